//! The interactive session: one loop, woken by the daemon, the keyboard and signals.
//!
//! While a turn streams there is no prompt; Ctrl-C cancels, Ctrl-D leaves, what is typed waits for the next prompt. When
//! another client's turn begins while a prompt is open, it stays open and text appears above it in whole lines.
//! The state is: what runs (`running`), what of ours is still to come (`mine`), and whether a prompt is open (`open`).

pub(crate) mod editor;
mod slash;

use std::path::PathBuf;

use linger_protocol::daemon::{Model, Models};
use linger_protocol::event::{Event, EventBody};
use linger_protocol::id::{Cursor, PromptId, TurnId};
use linger_protocol::message::StopReason;
use linger_protocol::method::{ModelList, SessionList, SessionPrompt};
use linger_protocol::permission::Mode;
use linger_protocol::place::private_directory;
use linger_protocol::session::{Compact, Effort, Info, Keyed, List, Prompt, Set};
use linger_protocol::{RpcError, error::Code};
use serde_json::value::RawValue;

use crate::command::{here, listing, now};
use crate::connect::{COMING_BACK, Client, key, parse};
use crate::error::{Exit, Failure};
use crate::follow::{Attachment, Happened, Request};
use crate::input::{Input, Key, Line, Signal, signals};
use crate::picture::with_pictures;
use crate::question::{Press, Questions, too_late};
use crate::render::style::Style;
use crate::render::table::columns;
use crate::render::{Renderer, Settings, Thinking};
use crate::terminal::{Keyboard, Look, Terminal, keyboard};
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
    /// Prompts sent from here: not accepted yet.
    sent: usize,
    /// Prompts sent from here: accepted, their turn has not begun.
    mine: Vec<PromptId>,
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
    if look.stdin && look.stdout {
        return Ok(());
    }
    Err(Failure::usage("an interactive session needs a terminal on stdin and stdout").hint(instead))
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
        sent: 0,
        mine: Vec::new(),
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
            Happened::Event(notification, _) => self.event(&notification.event).map(|()| None),
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
                self.running = event.turn.clone();
                self.taken_up(prompt);
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
        if matches!(event.body, EventBody::CaughtUp {}) && !self.caught_up {
            self.caught_up = true;
            self.show_question()?;
        } else if changed && self.caught_up {
            self.show_question()?;
        }
        self.prompt_if_idle()
    }

    /// What was sent from here is not waited for any more.
    fn taken_up(&mut self, prompt: &PromptId) {
        self.last_begun = Some(prompt.clone());
        match self.mine.iter().position(|mine| mine == prompt) {
            Some(at) => drop(self.mine.remove(at)),
            None if self.sent > 0 => self.begun.push(prompt.clone()),
            None => {}
        }
    }

    fn finished(&mut self, stop_reason: StopReason) -> Result<(), Failure> {
        self.running = None;
        self.cancelling = false;
        let blocked = matches!(stop_reason, StopReason::Cancelled | StopReason::Error);
        if blocked && !self.mine.is_empty() && self.caught_up {
            self.terminal.say("prompts that wait stay queued: /continue takes them up")?;
            self.mine.clear();
        }
        Ok(())
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
        // Before it is shown, so that a key counts as soon as it is seen. Where a line is typed, a key alone may be its beginning.
        if !self.open {
            self.input.ask_keys();
        }
        self.terminal.print(lines)?;
        self.terminal.talk(&text)?;
        Ok(())
    }

    /// Opens the prompt when there is nothing to wait for.
    fn prompt_if_idle(&mut self) -> Result<(), Failure> {
        let idle = self.running.is_none() && self.mine.is_empty() && self.sent == 0;
        if self.open || !self.caught_up || !idle {
            return Ok(());
        }
        self.open_prompt()
    }

    fn open_prompt(&mut self) -> Result<(), Failure> {
        let mut lines = Vec::new();
        self.renderer.fresh_line(&mut lines);
        self.terminal.print(lines)?;
        self.open = true;
        self.input.ask_line();
        self.terminal.prompt_opened(self.input.above.clone());
        Ok(())
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
            (_, Ok(_)) => {}
            (Request::Answer(_), Err(error)) if error.code() == Some(Code::AlreadyAnswered) => {
                self.terminal.say(&too_late(error.data))?;
            }
            (request, Err(error)) => {
                self.terminal.complain(error.into())?;
                if let Request::Answer(answer) = &request {
                    self.questions.again(&answer.permission);
                    self.show_question()?;
                }
                if let Request::Cancel(_) = request {
                    self.cancelling = false;
                }
            }
        }
        self.prompt_if_idle()
    }

    fn lost(&mut self) -> Result<(), Failure> {
        if self.attachment.back_soon()? {
            return Ok(());
        }
        let mut lines = Vec::new();
        self.renderer.fresh_line(&mut lines);
        self.terminal.print(lines)?;
        self.terminal.say(COMING_BACK)?;
        self.attachment.reattach()
    }

    fn line(&mut self, line: Line) -> Result<Option<Exit>, Failure> {
        self.open = false;
        let late = self.terminal.prompt_closed()?;
        keyboard(Keyboard::Quiet);
        match line {
            Line::End => return self.leave().map(Some),
            Line::Interrupted => {
                self.terminal.say("Ctrl-D leaves; /help for help")?;
                self.open_prompt()?;
            }
            Line::Garbled => {
                self.terminal
                    .say("error: that was not UTF-8, and the line is lost\nhint: set the terminal to UTF-8")?;
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
                Some(Ok(slash)) => {
                    self.slash(slash)?;
                    self.open_prompt()?;
                }
                Some(Err(error)) => {
                    self.terminal.say(&error)?;
                    self.open_prompt()?;
                }
            },
        }
        if !self.open && self.questions.first().is_some() {
            self.show_question()?;
        }
        Ok(None)
    }

    fn prompt(&mut self, text: String) -> Result<(), Failure> {
        self.sent += 1;
        let session = self.attachment.session.clone();
        let places: Vec<_> = here().ok().into_iter().chain([self.cwd.clone()]).collect();
        let sent = with_pictures(text, &places).and_then(|content| {
            let pictures = content.pictures();
            let prompt = Prompt { session, content, when: None, schema: None, key: Some(key()?) };
            self.attachment.request(Request::Prompt(prompt)).map(|()| pictures)
        });
        match sent {
            // What was typed is at fault, not the session.
            Err(failure) if failure.exit == Exit::USAGE => {
                self.sent = self.sent.saturating_sub(1);
                self.terminal.complain(failure)?;
                self.prompt_if_idle()
            }
            Ok(0) => Ok(()),
            // That it was taken for a picture should not be a guess.
            Ok(n) => Ok(self.terminal.say(&format!("with {n} picture{}", if n == 1 { "" } else { "s" }))?),
            Err(failure) => Err(failure),
        }
    }

    fn compact(&mut self, focus: Option<String>) -> Result<(), Failure> {
        self.sent += 1;
        let session = self.attachment.session.clone();
        self.attachment.request(Request::Compact(Compact { session, focus, key: Some(key()?) }))
    }

    fn slash(&mut self, slash: Slash) -> Result<(), Failure> {
        let session = self.attachment.session.clone();
        match slash {
            Slash::Help => self.terminal.say(&slash::help())?,
            Slash::Mode(None) => self.terminal.say(&format!("mode: {}", self.mode))?,
            Slash::Effort(None) => self.terminal.say(&format!("effort: {}", self.effort))?,
            Slash::Thinking(None) => self.terminal.say(&format!("thinking: {}", self.renderer.thinking()))?,
            Slash::Thinking(Some(thinking)) => self.renderer.set_thinking(thinking),
            Slash::Effort(effort) => {
                self.attachment.request(Request::Set(Set { session, effort, key: Some(key()?), ..Set::default() }))?;
            }
            Slash::Model(None) => self.terminal.say(&format!("model: {}", self.model))?,
            Slash::Mode(mode) => {
                self.attachment.request(Request::Set(Set { session, mode, key: Some(key()?), ..Set::default() }))?;
            }
            Slash::Provider(None) => {
                let rows = self.attachment.client.call(&ModelList(Models::default()))?;
                for line in providers(&rows, &self.model) {
                    self.terminal.say(&line)?;
                }
            }
            Slash::Model(model) | Slash::Provider(model) => {
                self.attachment.request(Request::Set(Set { session, model, key: Some(key()?), ..Set::default() }))?;
            }
            Slash::Cancel => self.attachment.cancel()?,
            Slash::Continue => self.attachment.request(Request::Continue(Keyed { session, key: Some(key()?) }))?,
            Slash::Sessions => {
                let rows = self.attachment.client.call(&SessionList(List::default()))?;
                for line in listing(&rows, now()) {
                    self.terminal.say(&line)?;
                }
            }
            Slash::Detach | Slash::Compact(_) => {}
        }
        Ok(())
    }

    fn key(&mut self, key: Key) -> Result<(), Failure> {
        if self.input.counts(key) { self.press(key.key) } else { Ok(()) }
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
            Signal::Interrupt if self.running.is_some() && !self.open => {
                self.cancelling = true;
                self.attachment.cancel()?;
                Ok(None)
            }
            Signal::Interrupt => Ok(None),
        }
    }

    /// Says what goes on and how to come back.
    fn leave(&mut self) -> Result<Exit, Failure> {
        self.terminal.prompt_closed()?;
        let mut lines = Vec::new();
        self.renderer.fresh_line(&mut lines);
        self.terminal.print(lines)?;
        let work = if self.running.is_some() || self.sent > 0 || !self.mine.is_empty() {
            "detached; the work goes on"
        } else {
            "detached"
        };
        self.terminal.say(&format!("{work}. come back with `linger attach {}`", self.label))?;
        Ok(Exit::GOOD)
    }
}

/// The one character that `text` has, if it has no more.
fn only(text: &str) -> Option<char> {
    let mut chars = text.trim().chars();
    chars.next().filter(|_| chars.next().is_none())
}

/// The providers that can be used, that of `current` marked, with the model that each begins with.
fn providers(rows: &[Model], current: &str) -> Vec<String> {
    let name = |model: &str| model.split('/').next().unwrap_or_default().to_owned();
    let ready = rows.iter().filter(|row| row.ready);
    let cells = ready.map(|row| {
        let mark = if name(&row.model) == name(current) { "*" } else { " " };
        let first = row.model.split_once('/').map(|(_, model)| model).filter(|model| *model != "MODEL");
        let provider = name(&row.model);
        let begins = first.map_or_else(|| format!("name a model: /model {provider}/MODEL"), str::to_owned);
        vec![mark.to_owned(), provider, begins]
    });
    let mut lines = columns(&cells.collect::<Vec<_>>());
    lines.push("`linger models` lists what each has, and what is missing for others".to_owned());
    lines
}
