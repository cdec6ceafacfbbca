//! An interactive session: what it keeps, and how it prints between the lines that are typed.
//!
//! The chapters of the loop (`step`, `event`, `obey`, `asking`, `switch`, …) are built on this.

use std::path::PathBuf;

use linger_protocol::id::{QuestionId, TurnId};
use linger_protocol::message::ContentBlock;
use linger_protocol::permission::Mode;
use linger_protocol::session::{Effort, Info, State};
use linger_protocol::unattended::Unattended;

use super::complete::Known;
use super::editor::{PROMPT, Workspace};
use super::keys::Keys;
use super::outputs::Outputs;
use super::picker::Picker;
use super::prompts::{Prompts, Returning};
use crate::error::Failure;
use crate::follow::Attachment;
use crate::input::Input;
use crate::question::Questions;
use crate::render::attention::Attention;
use crate::render::live::Live;
use crate::render::{Renderer, Settings};
use crate::terminal::Terminal;

pub(super) struct Repl {
    pub(super) attachment: Attachment,
    pub(super) terminal: Terminal,
    pub(super) renderer: Renderer,
    pub(super) input: Input,
    pub(super) keys: Keys,
    /// The daemon's names that complete a line.
    pub(super) known: Known,
    /// The directory in which the editor completes names and runs commands.
    pub(super) workspace: Workspace,
    /// How events are shown, in each session that is entered.
    pub(super) settings: Settings,
    /// The rows that are redrawn while a turn runs; empty where the cursor cannot be moved.
    pub(super) live: Live,
    pub(super) outputs: Outputs,
    pub(super) attention: Attention,
    /// Whether the terminal knows escape sequences.
    pub(super) escapes: bool,
    pub(super) about: About,
    pub(super) turn: Turn,
    pub(super) prompts: Prompts,
    /// A cancel of ours after which queued prompts come back into the line; no line is read meanwhile.
    pub(super) returning: Option<Returning>,
    pub(super) asking: Asking,
    /// Whether a line is being read.
    pub(super) open: bool,
    /// The list that the next line chooses from.
    pub(super) picking: Option<Picking>,
    /// The output of the user's own commands, for the next prompt.
    pub(super) ran: Vec<ContentBlock>,
    /// Whether the replay is over.
    pub(super) caught_up: bool,
    /// Whether commands may run in the background: asked when a turn ends.
    pub(super) has_background: bool,
    /// Whether memory was given back since the last event.
    pub(super) rests: bool,
}

/// The session's settings, as far as the prompt needs them.
#[derive(Default)]
pub(super) struct About {
    /// Its name, or its id.
    pub(super) label: String,
    pub(super) cwd: PathBuf,
    pub(super) model: String,
    pub(super) mode: Mode,
    /// The mode that was asked for last and is not confirmed yet.
    pub(super) next_mode: Option<Mode>,
    pub(super) unattended: Unattended,
    pub(super) effort: Effort,
}

#[derive(Default)]
pub(super) struct Turn {
    pub(super) running: Option<TurnId>,
    /// Whether a turn was interrupted and waits for the user; it does not run.
    pub(super) offered: bool,
    /// Whether /continue was sent and its turn has not started.
    pub(super) continuing: bool,
    /// Whether a cancel was sent; the next Ctrl-C leaves.
    pub(super) cancelling: bool,
}

/// The open questions, and the one on the screen.
pub(super) struct Asking {
    pub(super) questions: Questions,
    /// Whether the first question is on the screen.
    pub(super) is_shown: bool,
    /// The latest request for an answer: a key or a line counts only for that.
    pub(super) request: u32,
    /// The question that the next line answers.
    pub(super) writing: Option<(QuestionId, Writing)>,
}

/// The meaning of a line that is written to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writing {
    /// The answer to a form.
    Answer,
    /// Why a permission is denied.
    Reason,
    /// The rule that always allows it.
    Rule,
}

/// A list that the next line chooses from.
pub(super) struct Picking {
    pub(super) target: Target,
    pub(super) picker: Picker,
}

/// The thing that is chosen from a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Model,
    Agent,
    /// The fate of files that something else may have changed.
    Undo,
    Session,
    Merge,
}

impl Repl {
    /// Enters a session: forgets all that belonged to the one before.
    pub(super) fn enter(&mut self, info: Info) {
        if info.state == State::Idle && info.stop_reason.is_none() {
            self.renderer.is_of_new_session();
        }
        self.prompts = Prompts::new(info.queued, info.drafts);
        self.returning = None;
        self.about = About {
            label: info.name.unwrap_or_else(|| info.session.to_string()),
            cwd: info.cwd,
            model: info.model,
            mode: info.mode,
            next_mode: None,
            unattended: info.unattended,
            effort: info.effort,
        };
        self.turn = Turn::default();
        (self.asking.questions, self.outputs) = (Questions::with_lines(), Outputs::default());
        self.picking = None;
        self.set_writing(None);
        self.caught_up = false;
        self.has_background = !info.background.is_empty();
        // A key that was pressed for a question of the session before answers nothing.
        self.asking.request += 1;
        self.unask();
    }

    /// The next line belongs to this question, or to none. The editor runs no line that does.
    pub(super) fn set_writing(&mut self, writing: Option<(QuestionId, Writing)>) {
        self.keys.set_writing(writing.is_some());
        self.asking.writing = writing;
    }

    /// No key answers the question on the screen any more.
    pub(super) fn unask(&self) {
        if let Some(above) = &self.input.above {
            above.unask();
        }
    }

    /// Whether work continues when we leave.
    pub(super) fn is_busy(&self) -> bool {
        self.turn.running.is_some() || self.turn.continuing || self.prompts.any_unstarted()
    }

    /// Reads the next line.
    pub(super) fn open_prompt(&mut self) -> Result<(), Failure> {
        self.open = true;
        self.input.ask_line();
        self.sign()
    }

    /// Shows that a line is expected, where that is not always to be seen: below what was printed last.
    pub(super) fn sign(&mut self) -> Result<(), Failure> {
        if !self.open || !self.caught_up || self.is_busy() {
            return Ok(());
        }
        Ok(self.terminal.sign(PROMPT)?)
    }

    /// Takes the prompt off the screen, and writes what it held back.
    pub(super) fn close_prompt(&mut self) -> Result<(), Failure> {
        self.terminal.prompt_closed()?;
        self.fresh_line()
    }

    /// Ends the model's line, if its beginning is on the screen.
    pub(super) fn fresh_line(&mut self) -> Result<(), Failure> {
        if self.terminal.holds_rest() {
            return Ok(());
        }
        let mut lines = Vec::new();
        self.renderer.fresh_line(&mut lines);
        Ok(self.terminal.print(lines)?)
    }

    /// Prints lines of our own.
    pub(super) fn say(&mut self, lines: &str) -> Result<(), Failure> {
        self.fresh_line()?;
        Ok(self.terminal.say(lines)?)
    }

    /// Prints a line of our own that is clean and styled.
    pub(super) fn say_styled(&mut self, line: &str) -> Result<(), Failure> {
        self.fresh_line()?;
        Ok(self.terminal.print_styled(&format!("{line}\n"))?)
    }

    pub(super) fn complain(&mut self, failure: Failure) -> Result<(), Failure> {
        self.fresh_line()?;
        Ok(self.terminal.complain(failure)?)
    }
}
