//! The interactive session: one loop over events of the daemon, keys, lines and signals.
//!
//! While a turn streams there is no prompt; Ctrl-C cancels, Ctrl-D leaves, and typed text is kept for
//! the next prompt. If another client's turn starts while a prompt is open, the prompt stays and the
//! text appears above it in whole lines; Ctrl-C at the empty prompt cancels that turn. Our own messages
//! never land in the middle of a line of the model.
//! The state: the running turn (`running`), our prompts that have not started (`mine`, `continuing`),
//! and whether a prompt is open (`open`). An interrupted turn that waits for the user (`offered`) does
//! not run.

mod editor;
mod obey;
mod slash;

use std::path::PathBuf;

use linger_protocol::event::{Event, EventBody, NoticeCode};
use linger_protocol::id::{Cursor, PromptId, QuestionId, TurnId};
use linger_protocol::message::StopReason;
use linger_protocol::method::SessionPrompt;
use linger_protocol::permission::Mode;
use linger_protocol::place::private_directory;
use linger_protocol::session::{Effort, Info, State};
use linger_protocol::unattended::Unattended;
use linger_protocol::{RpcError, error::Code};
use serde_json::value::RawValue;

use crate::connect::{Client, RECONNECTING, parse};
use crate::error::{Exit, Failure};
use crate::follow::{Attachment, Happened, Request};
use crate::input::{Input, Key, Line, Pressed, Signal, signals};
use crate::question::{Press, Questions, too_late};
use crate::render::markdown::width::hang_lines;
use crate::render::style::Style;
use crate::render::{Renderer, Settings, Thinking};
use crate::terminal::{Capabilities, Keyboard, Terminal, resume_editing, set_keyboard, terminal_width};
use slash::Slash;

/// An interactive session.
struct Repl {
    attachment: Attachment,
    terminal: Terminal,
    renderer: Renderer,
    input: Input,
    questions: Questions,
    /// The session's name, or its id.
    label: String,
    /// Its directory.
    cwd: PathBuf,
    model: String,
    mode: Mode,
    unattended: Unattended,
    effort: Effort,
    /// The running turn.
    running: Option<TurnId>,
    /// Whether a turn was interrupted and waits for the user.
    offered: bool,
    /// Whether /continue was sent and its turn has not started.
    continuing: bool,
    /// How many of our prompts are not accepted yet.
    sent: usize,
    /// Our accepted prompts whose turn has not started.
    mine: Vec<PromptId>,
    /// How many prompts were queued when we attached.
    queued: u32,
    /// Our prompts that wait for /continue.
    held: Vec<PromptId>,
    /// Prompts whose turn started before their request was answered.
    begun: Vec<PromptId>,
    /// The latest prompt whose turn started.
    last_begun: Option<PromptId>,
    /// Whether a prompt is open.
    open: bool,
    /// The question that the next line answers.
    writing: Option<QuestionId>,
    /// Whether the replay is over.
    caught_up: bool,
    /// Whether a cancel was sent; the next Ctrl-C leaves.
    cancelling: bool,
}

/// Fails unless this is a terminal with a person at it.
pub(crate) fn needs_terminal(look: &Capabilities, instead: &str) -> Result<(), Failure> {
    // Questions are shown on stderr, so it has to be a terminal too.
    if look.stdout && look.can_ask() {
        return Ok(());
    }
    Err(Failure::usage("an interactive session needs a terminal on stdin, stdout and stderr").hint(instead))
}

/// Attaches to a session and runs until the user leaves.
pub(crate) fn repl(client: Client, look: &Capabilities, info: Info) -> Result<Exit, Failure> {
    let style = Style { color: look.color, unicode: look.unicode };
    let settings = Settings {
        style,
        width: look.width,
        raw: false,
        markdown: look.markdown,
        deltas: true,
        thinking: Thinking::Show,
        usage: true,
        permissions: false,
        prompts: true,
        me: client.name.clone(),
    };
    let label = info.name.clone().unwrap_or_else(|| info.session.to_string());
    signals(client.sender(), true)?;
    // Usually the daemon has created it. Without it there is no history, and the session works all the same.
    let _ = private_directory(&client.places.state);
    let history = client.places.state.join("history");
    let setup = editor::Setup { history, cwd: info.cwd.clone(), capacity: client.capacity() };
    let input = Input::start(client.sender(), Some(editor::open(setup)?))?;
    let mut terminal = Terminal::new();
    let at = crate::environment::short_path(&info.cwd);
    terminal.say(&format!("session {label} in {at}, {} ({}); /help for help", info.model, info.mode))?;
    let cursor = Some(info.turn_cursor).filter(|cursor| *cursor != Cursor::default());
    let mut repl = Repl {
        attachment: Attachment::start(client, info.session, cursor, true)?,
        terminal,
        renderer: Renderer::new(settings),
        input,
        questions: Questions::with_lines(),
        label,
        cwd: info.cwd,
        model: info.model,
        mode: info.mode,
        unattended: info.unattended,
        effort: info.effort,
        running: None,
        offered: false,
        continuing: false,
        sent: 0,
        mine: Vec::new(),
        queued: info.queued,
        held: Vec::new(),
        begun: Vec::new(),
        last_begun: None,
        open: false,
        writing: None,
        caught_up: false,
        cancelling: false,
    };
    set_keyboard(Keyboard::Quiet);
    repl.run()
}

impl Repl {
    fn run(&mut self) -> Result<Exit, Failure> {
        loop {
            match self.step() {
                Ok(Some(exit)) => return Ok(exit),
                Ok(None) => {}
                Err(failure) if failure.interrupted => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Handles the next event; the exit code, when it is time to leave.
    fn step(&mut self) -> Result<Option<Exit>, Failure> {
        match self.attachment.next(None)? {
            Happened::Event(notification, _) => {
                self.event(&notification.event)?;
                match notification.event.body {
                    EventBody::Notice { code: Some(NoticeCode::Removed), .. } => self.removed().map(Some),
                    _ => Ok(None),
                }
            }
            Happened::Answer(request, answer) => self.answer(*request, answer).map(|()| None),
            Happened::Lost => self.lost().map(|()| None),
            Happened::Line(line) => self.line(line),
            Happened::Key(key) => self.key(key).map(|()| None),
            Happened::Signal(signal) => self.signal(signal),
            Happened::TimedOut => Ok(None),
        }
    }

    fn event(&mut self, event: &Event) -> Result<(), Failure> {
        self.renderer.set_width(terminal_width());
        let output = self.renderer.event(event);
        self.terminal.print(output)?;
        match &event.body {
            EventBody::TurnStarted { prompt } => {
                self.runs(event);
                self.prompt_started(prompt);
            }
            EventBody::Notice { code: Some(NoticeCode::Resumed | NoticeCode::Continued), .. } => self.runs(event),
            EventBody::Notice { code: Some(NoticeCode::Offered | NoticeCode::Unconfigured), .. } => {
                (self.running, self.offered, self.cancelling) = (None, true, false);
                self.say_offered()?;
            }
            // A compaction within the running turn starts no turn of its own.
            EventBody::Compacted { prompt: Some(prompt), .. }
            | EventBody::CompactionFailed { prompt: Some(prompt), .. }
                if self.last_begun.as_ref() != Some(prompt) =>
            {
                self.prompt_started(prompt);
            }
            EventBody::TurnFinished { stop_reason, .. } => self.finished(*stop_reason)?,
            EventBody::SessionChanged { model, mode, effort, name, unattended, .. } => {
                self.effort = effort.unwrap_or(self.effort);
                self.model = model.clone().unwrap_or_else(|| std::mem::take(&mut self.model));
                self.mode = mode.unwrap_or(self.mode);
                self.unattended = unattended.unwrap_or(self.unattended);
                self.label = name.clone().unwrap_or_else(|| std::mem::take(&mut self.label));
            }
            _ => {}
        }
        let changed = self.questions.event(event);
        let all_there = matches!(event.body, EventBody::CaughtUp {}) && !self.caught_up;
        if all_there {
            self.caught_up = true;
            self.say_offered()?;
            if self.running.is_none() && !self.offered {
                self.say_held(self.queued)?;
            }
        }
        let opened = self.prompt_if_idle()?;
        if self.caught_up && (changed || all_there || (opened && self.questions.first().is_some())) {
            self.show_question()?;
        }
        Ok(())
    }

    /// The turn of `event` is running.
    fn runs(&mut self, event: &Event) {
        self.running = event.turn.clone();
        (self.offered, self.continuing) = (false, false);
    }

    /// Says how to resume an interrupted turn, once the replay has shown that it waits.
    fn say_offered(&mut self) -> Result<(), Failure> {
        if !self.offered || !self.caught_up {
            return Ok(());
        }
        self.say("hint: /continue or a new prompt resumes the turn; /cancel ends it")
    }

    /// The turn of a prompt started, or its compaction ended.
    fn prompt_started(&mut self, prompt: &PromptId) {
        self.last_begun = Some(prompt.clone());
        self.held.retain(|held| held != prompt);
        match self.mine.iter().position(|mine| mine == prompt) {
            Some(at) => drop(self.mine.remove(at)),
            None if self.sent > 0 => self.begun.push(prompt.clone()),
            None => {}
        }
    }

    fn finished(&mut self, stop_reason: StopReason) -> Result<(), Failure> {
        self.running = None;
        (self.offered, self.cancelling) = (false, false);
        let blocked = matches!(stop_reason, StopReason::Cancelled | StopReason::Error);
        if blocked && self.caught_up {
            self.held.append(&mut self.mine);
            // For a message only: a lost connection shows up as an event.
            if let Ok(info) = self.attachment.client.session_info(&self.attachment.session)
                && info.state == State::Idle
            {
                self.say_held(info.queued)?;
            }
        }
        Ok(())
    }

    /// Says that prompts are queued behind a stopped turn.
    fn say_held(&mut self, queued: u32) -> Result<(), Failure> {
        match queued {
            0 => Ok(()),
            1 => self.say("1 prompt is still queued; /continue or a new prompt starts it"),
            more => self.say(&format!("{more} prompts are still queued; /continue or a new prompt starts them")),
        }
    }

    /// The session was removed.
    fn removed(&mut self) -> Result<Exit, Failure> {
        self.terminal.prompt_closed()?;
        self.terminal.print_rest()?;
        self.fresh_line()?;
        Ok(Exit::FAILED)
    }

    /// Shows the first open question, or stops reading keys.
    fn show_question(&mut self) -> Result<(), Failure> {
        let Some(question) = self.questions.first() else {
            if !self.open {
                self.input.stop_keys();
                set_keyboard(Keyboard::Quiet);
            }
            return Ok(());
        };
        let style = self.renderer.style();
        let mut lines = Vec::new();
        self.renderer.fresh_line(&mut lines);
        let text = question.text(&style) + &question.keys(&style, self.open);
        let answers = question.answers();
        // Before the question is shown, so that a key counts as soon as it is seen. At an open prompt a key
        // may be the beginning of a line.
        if !self.open {
            self.input.ask_keys(Some(answers));
        }
        self.terminal.print(lines)?;
        self.terminal.talk(&hang_lines(&text, terminal_width()))?;
        Ok(())
    }

    /// Opens the prompt if nothing is running; true if it did.
    fn prompt_if_idle(&mut self) -> Result<bool, Failure> {
        let idle = self.running.is_none() && self.mine.is_empty() && self.sent == 0 && !self.continuing;
        if self.open || !self.caught_up || !idle {
            return Ok(false);
        }
        self.open_prompt().map(|()| true)
    }

    fn open_prompt(&mut self) -> Result<(), Failure> {
        self.fresh_line()?;
        self.open = true;
        self.input.ask_line();
        self.terminal.prompt_opened(self.input.above.clone());
        Ok(())
    }

    /// Ends the model's line, if its beginning is on the screen.
    fn fresh_line(&mut self) -> Result<(), Failure> {
        if self.terminal.holds_rest() {
            return Ok(());
        }
        let mut lines = Vec::new();
        self.renderer.fresh_line(&mut lines);
        Ok(self.terminal.print(lines)?)
    }

    /// Prints lines of our own.
    fn say(&mut self, lines: &str) -> Result<(), Failure> {
        self.fresh_line()?;
        Ok(self.terminal.say(lines)?)
    }

    fn complain(&mut self, failure: Failure) -> Result<(), Failure> {
        self.fresh_line()?;
        Ok(self.terminal.complain(failure)?)
    }

    fn answer(&mut self, request: Request, answer: Result<Box<RawValue>, RpcError>) -> Result<(), Failure> {
        if let Request::Prompt(_) | Request::Compact(_) = request {
            self.sent = self.sent.saturating_sub(1);
        }
        match (request, answer) {
            (Request::Prompt(_) | Request::Compact(_), Ok(raw)) => {
                let prompt = parse::<SessionPrompt>(&raw)?.prompt;
                match self.begun.iter().position(|begun| *begun == prompt) {
                    Some(at) => drop(self.begun.remove(at)),
                    None => self.mine.push(prompt),
                }
            }
            (Request::Continue(_), Ok(_)) => self.mine.append(&mut self.held),
            (_, Ok(_)) => {}
            (Request::Answer(_), Err(error)) if error.code() == Some(Code::AlreadyAnswered) => {
                self.say(&too_late(error.data))?;
            }
            (request, Err(error)) => {
                self.complain(error.into())?;
                match request {
                    Request::Answer(answer) => {
                        self.questions.again(&answer.question);
                        self.show_question()?;
                    }
                    Request::Cancel(_) => self.cancelling = false,
                    Request::Continue(_) => self.continuing = false,
                    _ => {}
                }
            }
        }
        self.prompt_if_idle().map(drop)
    }

    fn lost(&mut self) -> Result<(), Failure> {
        if self.attachment.reattach_soon()? {
            return Ok(());
        }
        self.say(RECONNECTING)?;
        self.attachment.reattach()
    }

    fn line(&mut self, line: Line) -> Result<Option<Exit>, Failure> {
        self.open = false;
        let late = self.terminal.prompt_closed()?;
        set_keyboard(Keyboard::Quiet);
        if let Some(id) = self.writing.take() {
            return self.written(&id, line).map(|()| None);
        }
        match line {
            Line::End => return self.leave().map(Some),
            // The prompt opens again at the end of the turn.
            Line::Interrupted { empty: true } if self.running.is_some() => self.cancel()?,
            Line::Interrupted { .. } => {
                self.say(match (&self.running, self.offered) {
                    (Some(_), _) => "Ctrl-C again cancels the turn, Ctrl-D leaves",
                    (None, true) => "the turn was interrupted: /continue resumes it, /cancel ends it, Ctrl-D leaves",
                    (None, false) => "Ctrl-D leaves; /help for help",
                })?;
                self.open_prompt()?;
            }
            Line::Garbled => {
                self.say("error: the line was not UTF-8 and is lost\nhint: set the terminal to UTF-8")?;
                self.open_prompt()?;
            }
            Line::Text(text) if text.trim().is_empty() => self.open_prompt()?,
            Line::Text(text) => match slash::parse(&text) {
                None => match only(&text).filter(|key| self.questions.has(*key)) {
                    // The key may be meant for text that was not shown yet: the question is shown again below.
                    Some(_) if late => {}
                    Some(key) => {
                        self.press(key)?;
                        self.prompt_if_idle()?;
                        return Ok(None);
                    }
                    None => self.prompt(text, false)?,
                },
                Some(Ok(Slash::Detach)) => return self.leave().map(Some),
                Some(Ok(Slash::Compact(focus))) => self.compact(focus)?,
                Some(Ok(Slash::ServerPrompt { server, prompt, words })) => {
                    self.server_prompt((server, prompt), words)?
                }
                Some(Ok(Slash::Continue)) => self.continue_turn()?,
                Some(Ok(slash)) => {
                    self.slash(slash)?;
                    self.open_prompt()?;
                }
                Some(Err(_)) if self.is_named(&text)? => self.prompt(text, true)?,
                Some(Err(error)) => {
                    self.say(&error)?;
                    self.open_prompt()?;
                }
            },
        }
        // Text that was held back for a prompt streams now.
        self.terminal.print_rest()?;
        if !self.open && !self.cancelling && self.questions.first().is_some() {
            self.show_question()?;
        }
        Ok(None)
    }

    fn key(&mut self, key: Key) -> Result<(), Failure> {
        if !self.input.counts(key) {
            return Ok(());
        }
        match (key.pressed, self.questions.first()) {
            (Pressed::Key(key), _) => self.press(key),
            (Pressed::Other, Some(question)) => {
                let text = question.unanswered(&self.renderer.style());
                self.fresh_line()?;
                Ok(self.terminal.talk(&text)?)
            }
            (Pressed::Other, None) => Ok(()),
        }
    }

    fn cancel(&mut self) -> Result<(), Failure> {
        self.cancelling = true;
        self.attachment.cancel()
    }

    /// Handles a key for the question on the screen.
    fn press(&mut self, key: char) -> Result<(), Failure> {
        match self.questions.press(key)? {
            Press::Nothing => return Ok(()),
            Press::Show => {}
            Press::Write => return self.begin_writing(),
            Press::Answer(answer) => self.attachment.request(Request::Answer(answer))?,
        }
        self.show_question()
    }

    /// Opens a prompt for the answer to the question on the screen.
    fn begin_writing(&mut self) -> Result<(), Failure> {
        self.writing = self.questions.first().map(|question| question.id.clone());
        self.say("  write the answer, then Enter; Ctrl-C goes back")?;
        self.open_prompt()
    }

    /// Handles the line that was written to a question.
    fn written(&mut self, id: &QuestionId, line: Line) -> Result<(), Failure> {
        match line {
            Line::Text(text) if !text.trim().is_empty() => match self.questions.write(id, text.trim())? {
                Some(answer) => self.attachment.request(Request::Answer(answer))?,
                None => self.say("no longer asked; the line was not sent")?,
            },
            _ => self.say("no answer was sent")?,
        }
        self.show_question()?;
        self.prompt_if_idle().map(drop)
    }

    fn signal(&mut self, signal: Signal) -> Result<Option<Exit>, Failure> {
        match signal {
            Signal::HangUp | Signal::Terminate => Ok(Some(Exit::GOOD)),
            Signal::Quit => self.leave().map(Some),
            Signal::Interrupt if self.cancelling => self.leave().map(Some),
            // At a prompt this comes from a terminal without an editor, which has dropped the line.
            Signal::Interrupt if self.running.is_some() => self.cancel().map(|()| None),
            Signal::Interrupt => Ok(None),
            Signal::Continued => self.again().map(|()| None),
        }
    }

    /// Restores the terminal's mode after Ctrl-Z, and shows the question again.
    fn again(&mut self) -> Result<(), Failure> {
        if self.open {
            resume_editing();
            self.input.redraw();
        } else if self.questions.first().is_some() {
            self.show_question()?;
        } else {
            set_keyboard(Keyboard::Quiet);
        }
        Ok(())
    }

    /// Says what still runs and how to attach again.
    fn leave(&mut self) -> Result<Exit, Failure> {
        self.terminal.prompt_closed()?;
        self.terminal.print_rest()?;
        let work = if self.running.is_some() || self.sent > 0 || self.continuing || !self.mine.is_empty() {
            "detached; the work continues"
        } else if self.offered {
            "detached; a turn waits for /continue"
        } else {
            "detached"
        };
        self.say(&format!("{work}; attach again with `linger attach {}`", self.label))?;
        Ok(Exit::GOOD)
    }
}

/// The character of a text that has only one.
fn only(text: &str) -> Option<char> {
    let mut chars = text.trim().chars();
    chars.next().filter(|_| chars.next().is_none())
}
