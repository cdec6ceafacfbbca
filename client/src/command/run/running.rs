//! The loop of `linger run`: follows the session until the turn that answers the prompt ends, and asks a person meanwhile.

mod shown;

use std::time::{Duration, Instant};

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::event::{Event, EventBody, MessageAdded, Notice, NoticeCode, Notification, TurnFinished};
use linger_protocol::id::{MessageId, PromptId, SessionId, TurnId};
use linger_protocol::message::{Role, StopReason, text_of};
use linger_protocol::method::SessionPrompt;
use linger_protocol::session::State;
use serde_json::value::RawValue;

use super::refused::refused;
use crate::command::wait::{AGAIN, Stuck, is_over, timed_out};
use crate::connect::{RECONNECTING, parse};
use crate::error::{Exit, Failure};
use crate::follow::{Attachment, Happened, Request};
use crate::input::{Input, Key, Pressed, Signal};
use crate::question::{Press, Question, Questions, too_late};
use crate::render::live::Live;
use crate::render::markdown::width::hang_lines;
use crate::render::{Renderer, reason, summary};
use crate::terminal::{Capabilities, Keyboard, Terminal, set_keyboard, terminal_width};

/// How long a turn waits for its provider before a person is told how to leave it.
const HINT_AFTER: Duration = Duration::from_secs(10);

/// How often the status is redrawn while the turn runs: its clock counts seconds.
const TICK: Duration = Duration::from_secs(1);

/// How stdout is used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Data {
    /// Text as it comes.
    Stream,
    /// The final message.
    Final,
    /// The answer that fits the schema.
    Answer,
    /// Events as they come.
    Json,
}

/// A prompt that is followed.
pub(super) struct Running {
    attachment: Attachment,
    terminal: Terminal,
    renderer: Renderer,
    live: Live,
    /// Whether the terminal shows what the turn is doing.
    status: bool,
    /// When something was printed last.
    printed: Instant,
    capabilities: Capabilities,
    data: Data,
    /// The keyboard; opened for the first question.
    input: Option<Input>,
    questions: Questions,
    stuck: Stuck,
    /// When to check whether the session can continue.
    check: Option<Instant>,
    /// The session, if it was created for our prompt, until that is accepted.
    unused: Option<SessionId>,
    /// Our prompt, once it is accepted.
    prompt: Option<PromptId>,
    /// Events that came before our prompt was accepted.
    held: Vec<Notification>,
    /// The running turn that answers our prompt.
    turn: Option<TurnId>,
    /// Whether a cancel can only hit our own turn.
    alone: bool,
    /// The messages of our turn so far, and whether each was cut at the token limit.
    messages: Vec<(MessageId, String, bool)>,
    /// When to say how to leave a turn that waits for its provider.
    leave_hint: Option<Instant>,
    /// Whether that hint was printed.
    quiet: bool,
    /// Whether a cancel was sent.
    cancelling: bool,
}

impl Running {
    /// Follows a session whose prompt was sent; `busy`: another turn may run first; `unused`: the session, if it was created for
    /// this prompt.
    pub(super) fn new(
        attachment: Attachment,
        renderer: Renderer,
        live: Live,
        capabilities: Capabilities,
        data: Data,
        busy: bool,
        unused: Option<SessionId>,
    ) -> Self {
        Self {
            attachment,
            terminal: Terminal::new(),
            renderer,
            live,
            status: data == Data::Stream && capabilities.stdout && capabilities.stderr && capabilities.moves,
            printed: Instant::now(),
            capabilities,
            data,
            input: None,
            questions: Questions::default(),
            stuck: Stuck::default(),
            check: busy.then(Instant::now),
            unused,
            prompt: None,
            held: Vec::new(),
            turn: None,
            alone: !busy,
            messages: Vec::new(),
            leave_hint: None,
            quiet: false,
            cancelling: false,
        }
    }

    /// Follows until the turn of the prompt ends or the deadline passes.
    pub(super) fn follow(&mut self, deadline: Option<Instant>) -> Result<Exit, Failure> {
        loop {
            let exit = match self.step(deadline) {
                Err(failure) if failure.interrupted || (failure.is_no_answer() && is_over(deadline)) => None,
                other => other?,
            };
            if let Some(exit) = exit {
                return Ok(exit);
            }
            if is_over(deadline) {
                self.fresh_line()?;
                return timed_out(&self.attachment.session);
            }
        }
    }

    /// Checks whether the session can continue, and handles the next event.
    fn step(&mut self, deadline: Option<Instant>) -> Result<Option<Exit>, Failure> {
        if let Some(exit) = self.check()? {
            return Ok(Some(exit));
        }
        self.hint_to_leave()?;
        let tick = self.show_live()?;
        let wake = [deadline, self.check, self.leave_hint, tick].into_iter().flatten().min();
        match self.attachment.next(wake)? {
            Happened::Event(notification, raw) => self.arrived(*notification, &raw),
            Happened::Answer(request, answer) => self.answered(*request, answer),
            Happened::Lost => self.lost().map(|()| None),
            Happened::Key(key) => self.key(key).map(|()| None),
            Happened::Signal(signal) => self.signal(signal),
            Happened::Line(_) | Happened::Hotkey(_) | Happened::TimedOut => Ok(None),
        }
    }

    fn lost(&mut self) -> Result<(), Failure> {
        if self.attachment.reattach_soon()? {
            return Ok(());
        }
        if self.capabilities.stderr {
            self.fresh_line()?;
            self.terminal.say(RECONNECTING)?;
        }
        self.attachment.reattach()
    }

    fn arrived(&mut self, notification: Notification, raw: &RawValue) -> Result<Option<Exit>, Failure> {
        if self.data == Data::Json {
            self.terminal.data(raw.get())?;
        }
        if self.prompt.is_none() {
            self.held.push(notification);
            return Ok(None);
        }
        self.event(&notification.event)
    }

    fn answered(&mut self, request: Request, answer: Result<Box<RawValue>, RpcError>) -> Result<Option<Exit>, Failure> {
        match (request, answer) {
            (Request::Prompt(_), Err(error)) => {
                return Err(refused(&mut self.attachment.client, self.unused.take(), error.into()));
            }
            (Request::Prompt(_), Ok(answer)) => {
                self.unused = None;
                self.prompt = Some(parse::<SessionPrompt>(&answer)?.prompt);
                for notification in std::mem::take(&mut self.held) {
                    if let Some(exit) = self.event(&notification.event)? {
                        return Ok(Some(exit));
                    }
                }
            }
            (Request::Answer(_), Err(error)) if error.code() == Some(Code::AlreadyAnswered) => {
                self.terminal.say(&too_late(error.data))?;
            }
            (Request::Answer(answer), Err(error)) => {
                self.fresh_line()?;
                self.terminal.complain(error.into())?;
                self.questions.reopen(&answer.question);
                self.ask()?;
            }
            (Request::Cancel(_), Err(error)) if error.code() == Some(Code::Idle) => {}
            (_, Err(error)) => return Err(error.into()),
            (_, Ok(_)) => {}
        }
        Ok(None)
    }

    /// Handles an event, once our prompt is known.
    fn event(&mut self, event: &Event) -> Result<Option<Exit>, Failure> {
        if let EventBody::TurnStarted { prompt } = &event.body
            && self.prompt.as_ref() == Some(prompt)
        {
            self.turn = event.turn.clone();
            if self.cancelling {
                self.attachment.cancel()?;
            }
        }
        if self.turn.is_none() {
            return self.before_our_turn(event);
        }
        let changed = self.questions.event(event);
        self.live.event(event);
        self.show(event)?;
        match &event.body {
            EventBody::Message(MessageAdded { message, role: Role::Assistant, content, cut, .. }) => {
                self.messages.push((message.clone(), text_of(content), *cut));
                self.stop_waiting();
            }
            EventBody::MessageSuperseded { message } => self.messages.retain(|(kept, ..)| kept != message),
            EventBody::Notice(Notice { code: Some(NoticeCode::Retry), since_at: Some(since), .. })
                if self.capabilities.can_ask() =>
            {
                let waited = Duration::from_millis(event.at.saturating_sub(*since));
                self.leave_hint.get_or_insert_with(|| Instant::now() + HINT_AFTER.saturating_sub(waited));
            }
            EventBody::Notice(Notice { code: Some(NoticeCode::Reached), .. }) => self.stop_waiting(),
            EventBody::TurnFinished(TurnFinished { stop_reason, answer, usage, session_usage, steps, .. }) => {
                let exit = self.finished(*stop_reason, answer.as_ref())?;
                self.say_spent(&summary(usage, session_usage.as_ref(), *steps))?;
                return Ok(Some(exit));
            }
            _ => {}
        }
        if self.capabilities.can_ask() {
            if changed {
                self.ask()?;
            }
        } else if self.questions.hold_up() || child_asks(&event.body) {
            self.check = Some(Instant::now());
        }
        if let EventBody::Notice(_) = &event.body {
            self.check.get_or_insert_with(Instant::now);
        }
        Ok(None)
    }

    /// An event of another turn, while ours is queued.
    fn before_our_turn(&mut self, event: &Event) -> Result<Option<Exit>, Failure> {
        let session = &self.attachment.session;
        match &event.body {
            EventBody::PromptDrafted { prompt } if self.prompt.as_ref() == Some(prompt) => {
                let text = "the turn before this prompt was cancelled, and the prompt is a draft now".to_owned();
                Err(Failure::new(Exit::of(StopReason::Cancelled), text)
                    .hint(format!("`linger queue {session} --send {prompt}` sends it")))
            }
            EventBody::PromptUnqueued { prompt, .. } if self.prompt.as_ref() == Some(prompt) => {
                let text = "the prompt was taken back before its turn began".to_owned();
                Err(Failure::new(Exit::of(StopReason::Cancelled), text))
            }
            EventBody::TurnFinished(TurnFinished {
                stop_reason: stop_reason @ (StopReason::Cancelled | StopReason::Error),
                ..
            }) => Err(Failure::new(
                Exit::of(*stop_reason),
                format!("the turn before this prompt: {}", reason(*stop_reason)),
            )
            .hint(format!("the prompt stays queued; `linger queue {session} --run` starts it"))),
            EventBody::TurnFinished(_) => {
                self.alone = true;
                Ok(None)
            }
            EventBody::PermissionRequested(_)
            | EventBody::QuestionAsked { .. }
            | EventBody::ChildUpdated(_)
            | EventBody::Notice(_) => {
                self.check = Some(Instant::now());
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Prints how to leave a turn that waits for its provider, when it is time.
    fn hint_to_leave(&mut self) -> Result<(), Failure> {
        if self.leave_hint.is_none_or(|at| Instant::now() < at) || self.questions.first().is_some() {
            return Ok(());
        }
        self.leave_hint = None;
        self.fresh_line()?;
        // Ctrl-D is a signal from now on.
        self.quiet = true;
        set_keyboard(Keyboard::Quiet);
        Ok(self.terminal.say("hint: Ctrl-C cancels, Ctrl-D detaches")?)
    }

    /// Ends the wait for the provider, which answers again.
    fn stop_waiting(&mut self) {
        self.leave_hint = None;
        if std::mem::take(&mut self.quiet) && self.questions.first().is_none() {
            set_keyboard(Keyboard::Shell);
        }
    }

    /// Shows the first open question, or stops asking.
    fn ask(&mut self) -> Result<(), Failure> {
        self.questions.fetch_differences(&mut self.attachment.client);
        if self.questions.first().is_none() {
            if let Some(input) = &mut self.input {
                input.stop_keys();
                set_keyboard(Keyboard::Shell);
            }
            return Ok(());
        }
        let style = self.renderer.style();
        let text = self.questions.text(&style) + &self.questions.keys(&style, false);
        let answers = self.questions.answers();
        self.fresh_line()?;
        let input = match &mut self.input {
            Some(input) => input,
            None => self.input.insert(Input::start(self.attachment.client.sender(), None)?),
        };
        input.ask_keys(Some(answers));
        Ok(self.terminal.talk(&hang_lines(&text, terminal_width()))?)
    }

    fn key(&mut self, key: Key) -> Result<(), Failure> {
        if !self.input.as_ref().is_some_and(|input| input.is_current(key)) {
            return Ok(());
        }
        let pressed = match (key.pressed, self.questions.first()) {
            (Pressed::Key(key), _) => key,
            (Pressed::Other, None) => return Ok(()),
            (Pressed::Other, Some(_)) => {
                let text = self.questions.unanswered(&self.renderer.style());
                return Ok(self.terminal.talk(&text)?);
            }
        };
        match self.questions.press(pressed)? {
            Press::Nothing => return Ok(()),
            Press::NotYet => {
                let style = self.renderer.style();
                let keys = self.questions.keys(&style, false);
                return Ok(self.terminal.talk(&(Question::not_yet(&style) + &keys))?);
            }
            Press::Show | Press::Rest | Press::Write | Press::Help | Press::Edits | Press::Reason | Press::Rule(_) => {}
            Press::Answer(answer) => self.attachment.request(Request::Answer(answer))?,
            Press::Answers(answers) => {
                for answer in answers {
                    self.attachment.request(Request::Answer(answer))?;
                }
            }
        }
        self.ask()
    }

    fn signal(&mut self, signal: Signal) -> Result<Option<Exit>, Failure> {
        let session = self.attachment.session.clone();
        match signal {
            // As in a shell: 128 plus the signal's number. The work continues.
            Signal::HangUp => return Ok(Some(Exit(129))),
            Signal::Quit if self.questions.hold_up() => {
                self.fresh_line()?;
                let answer = self.questions.first().map(Question::elsewhere).unwrap_or_default();
                self.terminal.say(&format!("detached; the session waits for an answer: {answer}"))?;
                return Ok(Some(Exit::QUESTION));
            }
            Signal::Terminate | Signal::Quit => {
                self.fresh_line()?;
                self.terminal.say(&format!("detached; the work continues: `linger attach {session}`"))?;
                return Ok(Some(Exit(143)));
            }
            // Where nothing is asked, the terminal is as the shell has it.
            Signal::Continued if self.input.is_some() && self.questions.first().is_some() => {
                return self.ask().map(|()| None);
            }
            Signal::Continued => return Ok(None),
            Signal::Interrupt => {}
        }
        self.fresh_line()?;
        if self.cancelling {
            return Ok(Some(Exit::CANCELLED));
        }
        if self.turn.is_none() && !self.alone {
            self.terminal
                .say(&format!("detached; the prompt stays queued behind another turn: `linger attach {session}`"))?;
            return Ok(Some(Exit::CANCELLED));
        }
        self.cancelling = true;
        self.attachment.cancel()?;
        Ok(None)
    }

    /// Checks whether the session can continue, when it is time.
    fn check(&mut self) -> Result<Option<Exit>, Failure> {
        if self.prompt.is_none() || self.check.is_none_or(|at| Instant::now() < at) {
            return Ok(None);
        }
        if self.capabilities.can_ask() && self.questions.first().is_some() {
            self.check = None;
            return Ok(None);
        }
        let info = self.attachment.client.session_info(&self.attachment.session)?;
        if matches!(info.state, State::Waiting | State::Offered) {
            self.fresh_line()?;
        }
        let exit = self.stuck.check(&mut self.attachment.client, &info)?;
        if exit.is_some() && self.turn.is_none() {
            self.terminal.say(&format!("your prompt runs after that: `linger wait {}`", self.attachment.session))?;
        }
        let again = info.state == State::Waiting || self.questions.hold_up();
        self.check = again.then(|| Instant::now() + AGAIN);
        Ok(exit)
    }
}

/// Whether a child waits for an answer, without which the turn may not continue.
fn child_asks(body: &EventBody) -> bool {
    matches!(body, EventBody::ChildUpdated(update) if !update.questions.is_empty())
}
