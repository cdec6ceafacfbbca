//! The interactive session: one loop, woken by the daemon, the keyboard and signals.
//!
//! While a turn streams there is no prompt; Ctrl-C cancels, Ctrl-D leaves, what is typed waits for the next prompt. When
//! another client's turn begins while a prompt is open, it stays open and text appears above it in whole lines; Ctrl-C cancels
//! that turn too, unless it takes back a line that is being typed. What we say ourselves never lands in the model's line.
//! The state is: what runs (`running`), what of ours is still to come (`mine`, `continuing`), and whether a prompt is open
//! (`open`). A turn that was left unfinished and waits for the user's word (`offered`) does not run.

pub(crate) mod editor;
mod obey;
mod slash;

use std::path::PathBuf;

use linger_protocol::event::{Event, EventBody, NoticeCode};
use linger_protocol::id::{Cursor, PromptId, TurnId};
use linger_protocol::message::StopReason;
use linger_protocol::method::SessionPrompt;
use linger_protocol::permission::Mode;
use linger_protocol::place::private_directory;
use linger_protocol::session::{Effort, Info, State};
use linger_protocol::{RpcError, error::Code};
use serde_json::value::RawValue;

use crate::command::current;
use crate::connect::{COMING_BACK, Client, parse};
use crate::error::{Exit, Failure};
use crate::follow::{Attachment, Happened, Request};
use crate::input::{Input, Key, Line, Signal, signals};
use crate::question::{Press, Questions, too_late};
use crate::render::style::Style;
use crate::render::{Renderer, Settings, Thinking};
use crate::terminal::{Keyboard, Look, Terminal, keyboard, keyboard_again};
use crate::typed::Pressed;
use editor::Setup;
use slash::Slash;

/// Everything that an interactive session knows.
struct Repl {
    attachment: Attachment,
    terminal: Terminal,
    renderer: Renderer,
    input: Input,
    questions: Questions,
    /// What a person calls the session.
    label: String,
    /// Where it works.
    cwd: PathBuf,
    model: String,
    mode: Mode,
    effort: Effort,
    /// The turn that is under way.
    running: Option<TurnId>,
    /// Whether the turn that is there was left unfinished and is not taken up by itself.
    offered: bool,
    /// Whether /continue was sent and what it takes up has not begun.
    continuing: bool,
    /// Prompts sent from here: not accepted yet.
    sent: usize,
    /// Prompts sent from here: accepted, their turn has not begun.
    mine: Vec<PromptId>,
    /// How many prompts waited when the session was attached to.
    queued: u32,
    /// Prompts sent from here that wait for /continue.
    held: Vec<PromptId>,
    /// Turns that began before their prompt's answer came.
    begun: Vec<PromptId>,
    /// The latest of all that have begun.
    last_begun: Option<PromptId>,
    /// Whether a prompt is open.
    open: bool,
    /// Whether all that was there has been shown.
    caught_up: bool,
    /// Whether a cancel is under way; the next Ctrl-C leaves.
    cancelling: bool,
}

/// Fails unless this is a terminal with a person at it.
pub(crate) fn needs_terminal(look: &Look, instead: &str) -> Result<(), Failure> {
    // Questions are shown on stderr, and a key is no answer to what nobody sees.
    if look.stdout && look.can_ask() {
        return Ok(());
    }
    Err(Failure::usage("an interactive session needs a terminal on stdin, stdout and stderr").hint(instead))
}

/// Attaches to a session and talks until the user leaves.
pub(crate) fn repl(client: Client, look: &Look, info: Info) -> Result<Exit, Failure> {
    let style = Style { color: look.color, unicode: look.unicode };
    let settings = Settings {
        style,
        width: look.width,
        raw: false,
        deltas: true,
        thinking: Thinking::Show,
        usage: true,
        permissions: false,
        prompts: true,
        me: client.name.clone(),
    };
    let label = info.name.clone().unwrap_or_else(|| info.session.to_string());
    signals(client.sender(), true)?;
    // The daemon has made it, unless its socket lies elsewhere; without it there is no history, which is no reason to stop.
    let _ = private_directory(&client.places.state);
    let setup = Setup { history: client.places.state.join("history"), cwd: info.cwd.clone(), room: client.room() };
    let input = Input::start(client.sender(), Some(setup))?;
    let mut terminal = Terminal::new();
    let at = crate::question::short_path(&info.cwd);
    terminal.say(&format!("session {label} in {at}, {} ({}); /help for help", info.model, info.mode))?;
    let cursor = Some(info.turn_cursor).filter(|cursor| *cursor != Cursor::default());
    let mut repl = Repl {
        attachment: Attachment::start(client, info.session, cursor, true)?,
        terminal,
        renderer: Renderer::new(settings),
        input,
        questions: Questions::default(),
        label,
        cwd: info.cwd,
        model: info.model,
        mode: info.mode,
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
        caught_up: false,
        cancelling: false,
    };
    keyboard(Keyboard::Quiet);
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

    /// Takes the next thing that happens; how to leave, if it is time to.
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
        let output = self.renderer.event(event);
        self.terminal.print(output)?;
        match &event.body {
            EventBody::TurnStarted { prompt } => {
                self.runs(event);
                self.taken_up(prompt);
            }
            EventBody::Notice { code: Some(NoticeCode::Resumed | NoticeCode::Continued), .. } => self.runs(event),
            EventBody::Notice { code: Some(NoticeCode::Offered | NoticeCode::Unconfigured), .. } => {
                (self.running, self.offered, self.cancelling) = (None, true, false);
                self.say_offered()?;
            }
            // In the turn under way, that is, and not in one of its own.
            EventBody::Compacted { prompt: Some(prompt), .. }
            | EventBody::CompactionFailed { prompt: Some(prompt), .. }
                if self.last_begun.as_ref() != Some(prompt) =>
            {
                self.taken_up(prompt);
            }
            EventBody::TurnFinished { stop_reason, .. } => self.finished(*stop_reason)?,
            EventBody::SessionChanged { model, mode, effort, name, .. } => {
                self.effort = effort.unwrap_or(self.effort);
                self.model = model.clone().unwrap_or_else(|| std::mem::take(&mut self.model));
                self.mode = mode.unwrap_or(self.mode);
                self.label = name.clone().unwrap_or_else(|| std::mem::take(&mut self.label));
            }
            _ => {}
        }
        let changed = self.questions.event(&event.body);
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

    /// The turn of `event` is under way.
    fn runs(&mut self, event: &Event) {
        self.running = event.turn.clone();
        (self.offered, self.continuing) = (false, false);
    }

    /// Says what can be done with a turn that does not go on by itself, once it is known that it does not.
    fn say_offered(&mut self) -> Result<(), Failure> {
        if !self.offered || !self.caught_up {
            return Ok(());
        }
        self.say("hint: /continue or a new prompt takes the turn up, /cancel ends it")
    }

    /// What was sent from here is not waited for any more.
    fn taken_up(&mut self, prompt: &PromptId) {
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
            // Only to be told; what else comes says what is wrong.
            if let Ok(info) = current(&mut self.attachment.client, &self.attachment.session)
                && info.state == State::Idle
            {
                self.say_held(info.queued)?;
            }
        }
        Ok(())
    }

    /// Says that prompts wait behind a turn that was stopped, whoever has sent them.
    fn say_held(&mut self, queued: u32) -> Result<(), Failure> {
        match queued {
            0 => Ok(()),
            1 => self.say("1 prompt that waits stays queued: /continue or a new prompt takes it up"),
            more => self.say(&format!("{more} prompts that wait stay queued: /continue or a new prompt takes them up")),
        }
    }

    /// There is nothing to come back to.
    fn removed(&mut self) -> Result<Exit, Failure> {
        self.terminal.prompt_closed()?;
        self.terminal.print_rest()?;
        self.fresh_line()?;
        Ok(Exit::FAILED)
    }

    /// Shows the first open question, or ends the asking.
    fn show_question(&mut self) -> Result<(), Failure> {
        let Some(question) = self.questions.first() else {
            if !self.open {
                self.input.stop_keys();
                keyboard(Keyboard::Quiet);
            }
            return Ok(());
        };
        let style = self.renderer.style();
        let mut lines = Vec::new();
        self.renderer.fresh_line(&mut lines);
        let text = question.text(&style) + &question.keys(&style, self.open);
        let answers = question.answers();
        // Before it is shown, so that a key counts as soon as it is seen. Where a line is typed, a key alone may be its beginning.
        if !self.open {
            self.input.ask_keys(Some(answers));
        }
        self.terminal.print(lines)?;
        self.terminal.talk(&text)?;
        Ok(())
    }

    /// Opens the prompt when there is nothing to wait for; whether it did.
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

    /// Ends the model's line, if the beginning of it is on the screen.
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
                        self.questions.again(&answer.permission);
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
        if self.attachment.back_soon()? {
            return Ok(());
        }
        self.say(COMING_BACK)?;
        self.attachment.reattach()
    }

    fn line(&mut self, line: Line) -> Result<Option<Exit>, Failure> {
        self.open = false;
        let late = self.terminal.prompt_closed()?;
        keyboard(Keyboard::Quiet);
        match line {
            Line::End => return self.leave().map(Some),
            // The prompt comes back when the turn has ended.
            Line::Interrupted { empty: true } if self.running.is_some() => self.cancel()?,
            Line::Interrupted { .. } => {
                self.say(match (&self.running, self.offered) {
                    (Some(_), _) => "Ctrl-C again cancels the turn, Ctrl-D leaves",
                    (None, true) => {
                        "the turn was left unfinished: /continue takes it up, /cancel ends it, Ctrl-D leaves"
                    }
                    (None, false) => "Ctrl-D leaves; /help for help",
                })?;
                self.open_prompt()?;
            }
            Line::Garbled => {
                self.say("error: that was not UTF-8, and the line is lost\nhint: set the terminal to UTF-8")?;
                self.open_prompt()?;
            }
            Line::Text(text) if text.trim().is_empty() => self.open_prompt()?,
            Line::Text(text) => match slash::parse(&text) {
                None => match only(&text).filter(|key| self.questions.has(*key)) {
                    // Maybe for what was not seen yet: it is shown again below.
                    Some(_) if late => {}
                    Some(key) => {
                        self.press(key)?;
                        self.prompt_if_idle()?;
                        return Ok(None);
                    }
                    None => self.prompt(text)?,
                },
                Some(Ok(Slash::Detach)) => return self.leave().map(Some),
                Some(Ok(Slash::Compact(focus))) => self.compact(focus)?,
                Some(Ok(Slash::Continue)) => self.go_on()?,
                Some(Ok(slash)) => {
                    self.slash(slash)?;
                    self.open_prompt()?;
                }
                Some(Err(error)) => {
                    self.say(&error)?;
                    self.open_prompt()?;
                }
            },
        }
        // What was held back for a prompt streams now.
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

    /// Takes a key that means the question which is shown.
    fn press(&mut self, key: char) -> Result<(), Failure> {
        match self.questions.press(key)? {
            Press::Nothing => return Ok(()),
            Press::Show => {}
            Press::Answer(answer) => self.attachment.request(Request::Answer(answer))?,
        }
        self.show_question()
    }

    fn signal(&mut self, signal: Signal) -> Result<Option<Exit>, Failure> {
        match signal {
            Signal::HangUp | Signal::Terminate => Ok(Some(Exit::GOOD)),
            Signal::Quit => self.leave().map(Some),
            Signal::Interrupt if self.cancelling => self.leave().map(Some),
            // At a prompt this comes from a terminal without an editor, which has dropped what was typed.
            Signal::Interrupt if self.running.is_some() => self.cancel().map(|()| None),
            Signal::Interrupt => Ok(None),
            Signal::Continued => self.again().map(|()| None),
        }
    }

    /// Sets the terminal again as it was before Ctrl-Z, and shows what is asked.
    fn again(&mut self) -> Result<(), Failure> {
        if self.open {
            keyboard_again();
            self.input.redraw();
        } else if self.questions.first().is_some() {
            self.show_question()?;
        } else {
            keyboard(Keyboard::Quiet);
        }
        Ok(())
    }

    /// Says what goes on and how to come back.
    fn leave(&mut self) -> Result<Exit, Failure> {
        self.terminal.prompt_closed()?;
        self.terminal.print_rest()?;
        let work = if self.running.is_some() || self.sent > 0 || self.continuing || !self.mine.is_empty() {
            "detached; the work goes on"
        } else if self.offered {
            "detached; a turn waits for /continue"
        } else {
            "detached"
        };
        self.say(&format!("{work}. come back with `linger attach {}`", self.label))?;
        Ok(Exit::GOOD)
    }
}

/// The one character that `text` has, if it has no more.
fn only(text: &str) -> Option<char> {
    let mut chars = text.trim().chars();
    chars.next().filter(|_| chars.next().is_none())
}
