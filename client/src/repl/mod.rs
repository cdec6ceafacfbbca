//! The interactive session: one loop over events of the daemon, lines, keys and signals.
//!
//! The prompt is open all the time, also while a turn runs: what the model says is drawn above it, Enter
//! queues, Alt-S steers, Esc and Ctrl-C at an empty line stop the turn, Ctrl-D leaves. Where the cursor
//! cannot be moved whole lines are written, and a line is read without a sign while a turn runs.
//! Our own messages never land in the middle of a line of the model.
//! The state: the running turn (`running`), our prompts that have not started (`mine`, `continuing`),
//! and whether a line is being read (`open`). An interrupted turn that waits for the user (`offered`)
//! does not run.

mod asking;
mod complete;
mod editor;
mod files;
mod history;
mod ignored;
mod keys;
mod menu;
mod note;
mod obey;
mod output;
mod past;
mod paste;
mod picker;
mod show;
mod slash;
mod switch;
mod tree;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use linger_protocol::event::{
    Compacted, CompactionFailed, Event, EventBody, MessageAdded, Notice, NoticeCode, PromptAccepted, SessionChanged,
    TurnFinished,
};
use linger_protocol::footprint;
use linger_protocol::id::{Cursor, PromptId, QuestionId, TurnId};
use linger_protocol::message::{ContentBlock, StopReason, text_of};
use linger_protocol::method::{SessionMerge, SessionPrompt};
use linger_protocol::permission::Mode;
use linger_protocol::place::private_directory;
use linger_protocol::session::{Effort, Info, State, When};
use linger_protocol::unattended::Unattended;
use linger_protocol::{RpcError, error::Code};
use serde_json::value::RawValue;

use crate::connect::{Client, RECONNECTING, parse};
use crate::environment::now;
use crate::error::{Exit, Failure};
use crate::follow::{Attachment, Happened, Request};
use crate::input::{Input, Line, Signal, signals};
use crate::question::{Questions, too_late};
use crate::render::attention::Attention;
use crate::render::live::Live;
use crate::render::markdown::width::hang_lines;
use crate::render::style::Style;
use crate::render::{Renderer, Settings, Thinking, worktree};
use crate::terminal::{Above, Capabilities, Terminal, clean_line, resume_editing, size, terminal_width};
use asking::Writing;
use complete::Known;
use editor::Workspace;
use keys::Keys;
use output::Outputs;
pub(crate) use past::{height, past};
use picker::Picker;
use switch::What;

/// How often the status is redrawn while a turn runs: its clock counts seconds.
const TICK: Duration = Duration::from_secs(1);

/// So long after the last event the client gives back memory, if no turn runs.
const REST: Duration = Duration::from_secs(1);

/// An interactive session.
struct Repl {
    attachment: Attachment,
    terminal: Terminal,
    renderer: Renderer,
    input: Input,
    keys: Keys,
    /// The daemon's names that complete a line.
    known: Known,
    /// The editor's directory.
    workspace: Workspace,
    /// How events are shown, in each session that is entered.
    settings: Settings,
    /// What is redrawn while a turn runs; empty where the cursor cannot be moved.
    live: Live,
    outputs: Outputs,
    attention: Attention,
    /// Whether the terminal knows escape sequences.
    escapes: bool,
    questions: Questions,
    /// Whether the first question is what the screen asks.
    asks: bool,
    /// The session's name, or its id.
    label: String,
    /// Its directory.
    cwd: PathBuf,
    model: String,
    mode: Mode,
    /// The mode that was asked for last and is not confirmed yet.
    next_mode: Option<Mode>,
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
    /// The prompts that wait for their turn, as far as their events came.
    queue: Vec<(PromptId, String)>,
    /// Our prompts that wait for /continue.
    held: Vec<PromptId>,
    /// Prompts whose turn started before their request was answered.
    begun: Vec<PromptId>,
    /// The latest prompt whose turn started.
    last_begun: Option<PromptId>,
    /// Whether a line is being read.
    open: bool,
    /// The latest request for an answer: a key or a line counts only for that.
    request: u32,
    /// What the next line chooses from.
    picking: Option<(What, Picker)>,
    /// What the user's own commands wrote, for the next prompt.
    ran: Vec<ContentBlock>,
    /// The question that the next line answers.
    writing: Option<(QuestionId, Writing)>,
    /// Whether the replay is over.
    caught_up: bool,
    /// Whether a cancel was sent; the next Ctrl-C leaves.
    cancelling: bool,
    /// Whether memory was given back since the last event.
    rests: bool,
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
    signals(client.sender(), true)?;
    // Usually the daemon has created it. Without it there is no history, and the session works all the same.
    let _ = private_directory(&client.places.state);
    let (state, capacity) = (client.places.state.clone(), client.capacity());
    let workspace = Workspace::new(info.cwd.clone());
    let setup = editor::Setup { state, workspace: workspace.clone(), style, capacity, sender: client.sender() };
    let (lines, keys, known) = editor::open(setup)?;
    let input = Input::start(client.sender(), Some(lines))?;
    let mut terminal = Terminal::new();
    let at = crate::environment::short_path(&info.cwd);
    let label = info.name.clone().unwrap_or_else(|| info.session.to_string());
    let enters = format!("session {label} in {at}, {} ({}); /help for help", info.model, info.mode);
    terminal.say(&hang_lines(&enters, terminal_width()))?;
    let cursor = Some(info.turn_cursor.clone()).filter(|cursor| *cursor != Cursor::default());
    let mut repl = Repl {
        attachment: Attachment::start_for(client, info.session.clone(), cursor, true, true)?,
        terminal,
        renderer: Renderer::new(settings.clone()),
        settings,
        live: Live::new(style, info.mode, info.context_window),
        outputs: Outputs::default(),
        attention: Attention::default(),
        escapes: look.moves,
        input,
        keys,
        known,
        workspace,
        questions: Questions::with_lines(),
        asks: false,
        label,
        cwd: PathBuf::new(),
        model: String::new(),
        mode: info.mode,
        next_mode: None,
        unattended: info.unattended,
        effort: info.effort,
        running: None,
        offered: false,
        continuing: false,
        sent: 0,
        mine: Vec::new(),
        queued: 0,
        queue: Vec::new(),
        held: Vec::new(),
        begun: Vec::new(),
        last_begun: None,
        open: false,
        request: 0,
        picking: None,
        ran: Vec::new(),
        writing: None,
        caught_up: false,
        cancelling: false,
        rests: false,
    };
    repl.take(info);
    repl.run()
}

impl Repl {
    /// Begins with a session: nothing of it was seen yet, and nothing was asked of it.
    fn take(&mut self, info: Info) {
        if info.state == State::Idle && info.stop_reason.is_none() {
            self.renderer.is_of_new_session();
        }
        self.label = info.name.unwrap_or_else(|| info.session.to_string());
        (self.cwd, self.model, self.mode, self.next_mode) = (info.cwd, info.model, info.mode, None);
        (self.unattended, self.effort, self.queued) = (info.unattended, info.effort, info.queued);
        (self.questions, self.outputs) = (Questions::with_lines(), Outputs::default());
        (self.running, self.offered, self.continuing, self.sent) = (None, false, false, 0);
        (self.mine, self.held, self.begun, self.queue) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        (self.last_begun, self.picking) = (None, None);
        self.set_writing(None);
        (self.caught_up, self.cancelling) = (false, false);
        // A key that was pressed for a question of the session before answers nothing.
        self.request += 1;
        self.input.above.iter().for_each(Above::unask);
    }

    /// Whether there is work that goes on without us.
    fn is_busy(&self) -> bool {
        self.running.is_some() || self.sent > 0 || self.continuing || !self.mine.is_empty()
    }

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
        let happened = self.attachment.next(self.tick())?;
        self.rests &= matches!(happened, Happened::TimedOut);
        match happened {
            Happened::Event(notification, _) => {
                self.event(&notification.event)?;
                match notification.event.body {
                    EventBody::Notice(Notice { code: Some(NoticeCode::Removed), .. }) => self.removed().map(Some),
                    _ => Ok(None),
                }
            }
            Happened::Answer(request, answer) => self.answer(*request, answer).map(|()| None),
            Happened::Lost => self.lost().map(|()| None),
            Happened::Line(line) => self.line(line),
            Happened::Hotkey(hotkey) => self.hotkey(hotkey),
            Happened::Signal(signal) => self.signal(signal),
            Happened::Key(_) => Ok(None),
            Happened::TimedOut if self.ticks() => {
                self.live.stalls();
                self.show_live().map(|()| None)
            }
            Happened::TimedOut => {
                footprint::release_idle_memory();
                self.rests = true;
                Ok(None)
            }
        }
    }

    /// Whether there is a status to redraw.
    fn ticks(&self) -> bool {
        self.running.is_some() && self.caught_up && self.input.above.is_some()
    }

    /// When to do something without an event: redraw the status, each second; or give back memory, once.
    fn tick(&self) -> Option<Instant> {
        match (self.ticks(), self.running.is_none() && !self.rests) {
            (true, _) => Some(Instant::now() + TICK),
            (false, true) => Some(Instant::now() + REST),
            (false, false) => None,
        }
    }

    /// Redraws the status and the end of a running command's output.
    fn show_live(&mut self) -> Result<(), Failure> {
        if self.input.above.is_none() {
            return Ok(());
        }
        let asks = self.questions.first().is_some();
        let rows = match self.running.is_some() && self.caught_up {
            true => self.live.rows(now(), size().columns, self.queue.len(), asks, &self.way_out()),
            false => Vec::new(),
        };
        Ok(self.terminal.set_live(rows)?)
    }

    fn event(&mut self, event: &Event) -> Result<(), Failure> {
        self.renderer.set_width(terminal_width());
        let output = self.renderer.event(event);
        self.terminal.print(output)?;
        self.live.event(event);
        self.outputs.event(event);
        self.queue_event(event)?;
        match &event.body {
            EventBody::TurnStarted { prompt } => {
                self.runs(event);
                self.prompt_started(prompt);
            }
            EventBody::Notice(Notice { code: Some(NoticeCode::Resumed | NoticeCode::Continued), .. }) => {
                self.runs(event)
            }
            EventBody::Notice(Notice { code: Some(NoticeCode::Offered | NoticeCode::Unconfigured), .. }) => {
                (self.running, self.offered, self.cancelling) = (None, true, false);
                self.say_offered()?;
            }
            // A compaction within the running turn starts no turn of its own.
            EventBody::Compacted(Compacted { prompt: Some(prompt), .. })
            | EventBody::CompactionFailed(CompactionFailed { prompt: Some(prompt), .. })
                if self.last_begun.as_ref() != Some(prompt) =>
            {
                self.prompt_started(prompt);
            }
            EventBody::TurnFinished(TurnFinished { stop_reason, .. }) => self.finished(*stop_reason)?,
            EventBody::SessionChanged(SessionChanged { model, mode, effort, name, unattended, .. }) => {
                self.effort = effort.unwrap_or(self.effort);
                self.model = model.clone().unwrap_or_else(|| std::mem::take(&mut self.model));
                self.mode = mode.unwrap_or(self.mode);
                self.next_mode = self.next_mode.filter(|_| mode.is_none());
                self.unattended = unattended.unwrap_or(self.unattended);
                self.label = name.clone().unwrap_or_else(|| std::mem::take(&mut self.label));
            }
            _ => {}
        }
        if let Some(news) = self.attention.event(event, self.caught_up) {
            let text = format!("linger: session {} {news}", self.label);
            self.terminal.signal(self.attachment.client.signals(), self.escapes, &text)?;
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
        if all_there {
            self.terminal.prompt_opened(self.input.above.clone())?;
            if !self.open {
                self.open_prompt()?;
            }
        }
        if self.caught_up && (changed || all_there) {
            self.show_question()?;
        }
        self.sign()?;
        self.show_live()
    }

    /// Keeps the list of queued prompts, and says that ours is queued.
    fn queue_event(&mut self, event: &Event) -> Result<(), Failure> {
        match &event.body {
            EventBody::PromptAccepted(PromptAccepted { prompt, content, when, by, compact, .. }) => {
                let text = match compact {
                    true => "/compact".to_owned(),
                    false => clean_line(text_of(content).lines().next().unwrap_or_default()).into_owned(),
                };
                let waits = *when == When::Queue && (self.running.is_some() || self.offered || !self.queue.is_empty());
                if *when == When::Queue {
                    self.queue.push((prompt.clone(), text));
                }
                if self.caught_up && by.as_deref() == Some(self.attachment.client.name.as_str()) {
                    let dim = self.renderer.style();
                    match when {
                        When::Queue if waits => {
                            let line = format!("queued {}; /queue lists, /unqueue takes back", self.queue.len());
                            self.say_styled(&dim.dim(&line))?;
                        }
                        When::Steer if self.running.is_some() => {
                            self.say_styled(&dim.dim("steers the turn before its next step"))?;
                        }
                        _ => {}
                    }
                }
            }
            EventBody::TurnStarted { prompt }
            | EventBody::PromptUnqueued { prompt, .. }
            | EventBody::Message(MessageAdded { prompt: Some(prompt), .. }) => {
                self.queue.retain(|(queued, _)| queued != prompt);
            }
            EventBody::Compacted(Compacted { prompt: Some(prompt), .. })
            | EventBody::CompactionFailed(CompactionFailed { prompt: Some(prompt), .. }) => {
                self.queue.retain(|(queued, _)| queued != prompt);
            }
            // The queued prompts are the origin's.
            EventBody::Forked(_) => self.queue.clear(),
            _ => {}
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
        self.close_prompt()?;
        Ok(Exit::FAILED)
    }

    /// Reads the next line.
    fn open_prompt(&mut self) -> Result<(), Failure> {
        self.open = true;
        self.input.ask_line();
        self.sign()
    }

    /// Shows that a line is expected, where that is not always to be seen: below what was printed last.
    fn sign(&mut self) -> Result<(), Failure> {
        if !self.open || !self.caught_up || self.is_busy() {
            return Ok(());
        }
        Ok(self.terminal.sign(editor::PROMPT)?)
    }

    /// Takes the prompt off the screen, and writes what it held back.
    fn close_prompt(&mut self) -> Result<(), Failure> {
        self.terminal.prompt_closed()?;
        self.fresh_line()
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

    /// Prints a line of our own that is clean and styled.
    fn say_styled(&mut self, line: &str) -> Result<(), Failure> {
        self.fresh_line()?;
        Ok(self.terminal.past(&format!("{line}\n"))?)
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
            (Request::Merge(_), Ok(raw)) => self.say(&worktree::takes_back(&parse::<SessionMerge>(&raw)?))?,
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
        self.sign()
    }

    fn lost(&mut self) -> Result<(), Failure> {
        if self.attachment.reattach_soon()? {
            return Ok(());
        }
        self.say(RECONNECTING)?;
        self.attachment.reattach()
    }

    /// Handles a line, and reads the next one.
    fn line(&mut self, line: Line) -> Result<Option<Exit>, Failure> {
        self.open = false;
        self.terminal.line_read();
        let exit = self.obey(line)?;
        if exit.is_none() {
            self.open_prompt()?;
            self.show_live()?;
        }
        Ok(exit)
    }

    fn cancel(&mut self) -> Result<(), Failure> {
        self.cancelling = true;
        self.attachment.cancel()
    }

    fn signal(&mut self, signal: Signal) -> Result<Option<Exit>, Failure> {
        match signal {
            Signal::HangUp | Signal::Terminate => Ok(Some(Exit::GOOD)),
            Signal::Quit => self.leave().map(Some),
            Signal::Interrupt if self.cancelling => self.leave().map(Some),
            // From a terminal without an editor, which has dropped the line, or between two lines.
            Signal::Interrupt if self.running.is_some() => self.cancel().map(|()| None),
            Signal::Interrupt => Ok(None),
            Signal::Continued => self.again().map(|()| None),
        }
    }

    /// Restores the terminal's mode after Ctrl-Z, and shows the question again.
    fn again(&mut self) -> Result<(), Failure> {
        if self.input.above.is_some() {
            resume_editing();
            self.input.redraw();
        }
        if self.questions.first().is_some() { self.show_question() } else { Ok(()) }
    }

    /// Says what still runs and how to attach again.
    fn leave(&mut self) -> Result<Exit, Failure> {
        self.close_prompt()?;
        let work = if self.is_busy() {
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
