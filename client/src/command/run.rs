//! `linger run`: gives a session a prompt and follows it until the turn that answers it ends.
//!
//! To a terminal the answer streams; to a pipe goes the final message alone. Events that arrive before
//! the prompt's own answer are held back, because only that answer says which turn is ours.

use std::time::{Duration, Instant};

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::event::{Event, EventBody, Level, NoticeCode, Notification};
use linger_protocol::id::{MessageId, PromptId, SessionId, TurnId};
use linger_protocol::message::{Role, StopReason, text_of};
use linger_protocol::method::{SessionPrompt, SessionRemove, SessionSet};
use linger_protocol::session::{Info, Prompt, Remove, Set, State};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::find::must_be_latest;
use super::wait::{AGAIN, Stuck, is_over, timed_out};
use super::{answer_deadline, create, deadline, prompt, resolve};
use crate::arguments::{Check, Choice, OutputFormat, Run};
use crate::connect::{Client, RECONNECTING, parse};
use crate::environment::{absolute, now};
use crate::error::{Exit, Failure};
use crate::follow::{Attachment, Happened, Request};
use crate::idempotency::key;
use crate::input::{Input, Key, Pressed, Signal, signals};
use crate::question::{Press, Question, Questions, too_late};
use crate::render::live::Live;
use crate::render::markdown::width::hang_lines;
use crate::render::style::Style;
use crate::render::{Renderer, Settings, Thinking, reason, summary};
use crate::terminal::{Capabilities, Keyboard, Output, Terminal, set_keyboard, size, terminal_width};

/// How long a turn waits for its provider before a person is told how to leave it.
const HINT_AFTER: Duration = Duration::from_secs(10);

/// How often the status is redrawn while the turn runs: its clock counts seconds.
const TICK: Duration = Duration::from_secs(1);

/// How stdout is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Data {
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
struct Running {
    attachment: Attachment,
    terminal: Terminal,
    renderer: Renderer,
    live: Live,
    /// Whether the terminal shows what the turn is doing.
    status: bool,
    /// When something was printed last.
    printed: Instant,
    look: Capabilities,
    data: Data,
    /// Created for the first question.
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
    /// Whether that was said.
    quiet: bool,
    /// Whether a cancel was sent.
    cancelling: bool,
}

impl Run {
    /// `run` with these options of a session and no others.
    pub(super) fn printing(choice: Choice) -> Self {
        Self {
            choice,
            session: None,
            continue_latest: false,
            rm: false,
            output_format: None,
            print: true,
            detach: false,
            json: false,
            schema: None,
            thinking: Thinking::default(),
            stream: false,
            timeout: None,
            check: Check::default(),
            prompt: Vec::new(),
        }
    }
}

pub(super) fn run(args: Run) -> Result<Exit, Failure> {
    let rm = args.rm;
    let mut session = None;
    let ended = run_in(args, &mut session);
    // A turn that goes on, or waits for an answer, needs its session.
    let over = matches!(ended, Ok(Exit::GOOD | Exit::FAILED | Exit::CANCELLED));
    if let Some(session) = session.filter(|_| rm) {
        match over {
            true => remove(session)?,
            false => Terminal::new().say(&format!("session {session} is kept: its turn has not ended"))?,
        }
    }
    ended
}

/// Deletes a session of which nothing is to stay.
fn remove(session: SessionId) -> Result<(), Failure> {
    let remove = Remove { session, force: false, key: Some(key()?) };
    Client::open()?.call(&SessionRemove(remove)).map(drop)
}

fn run_in(args: Run, made: &mut Option<SessionId>) -> Result<Exit, Failure> {
    let json = args.json || args.output_format == Some(OutputFormat::StreamJson);
    let args = Run { json, ..args };
    let deadline = deadline(args.timeout);
    let written = prompt::written(&args.prompt)?;
    let mode = args.choice.mode.unwrap_or_default();
    let schema = args.schema.as_deref().map(prompt::schema).transpose()?;
    let mut client = Client::open_within(answer_deadline(deadline))?;
    let info = match (&args.session, args.continue_latest) {
        (Some(session), _) => Some(resolve(&mut client, session)?),
        (None, true) => Some(must_be_latest(&mut client, args.choice.directory.as_deref(), false)?),
        (None, false) => None,
    };
    let expand = written.begins_typed();
    let content = written.content(info.as_ref().map(|info| info.cwd.as_path()))?;
    let session = match &info {
        Some(info) => {
            adopt(&mut client, info, args.choice)?;
            info.session.clone()
        }
        None => create(&mut client, args.choice, true)?,
    };
    *made = Some(session.clone());
    // It can be removed until its first prompt is accepted.
    let mut unused = info.is_none().then(|| session.clone());
    let content = content
        .with_resources(&mut client, &session)
        .map_err(|failure| refused(&mut client, unused.take(), failure))?;
    let shaped = schema.is_some();
    let env = client.brought_env();
    let prompt = Prompt {
        session: session.clone(),
        content,
        when: None,
        schema,
        until: args.check.asked(),
        expand,
        env,
        key: Some(key()?),
    };
    if args.detach {
        let prompted =
            client.call(&SessionPrompt(prompt)).map_err(|failure| refused(&mut client, unused.take(), failure))?;
        if args.json {
            let made = json!({ "session": session, "prompt": prompted.prompt });
            Terminal::new().data(&made.to_string())?;
        } else {
            Terminal::new().line(session.as_str())?;
        }
        return Ok(Exit::GOOD);
    }
    let look = Capabilities::detect();
    let data = match (args.json, args.stream || look.stdout) {
        (true, _) => Data::Json,
        (false, _) if shaped => Data::Answer,
        (false, true) => Data::Stream,
        (false, false) => Data::Final,
    };
    let deltas = args.stream || data == Data::Stream;
    signals(client.sender(), true)?;
    let busy = info.as_ref().is_some_and(|info| info.state != State::Idle);
    let renderer = Renderer::new(settings(&look, deltas, args.thinking, client.name.clone()));
    let window = info.as_ref().and_then(|info| info.context_window);
    let mode = info.as_ref().map_or(mode, |info| info.mode);
    let live = Live::new(renderer.style(), mode, window);
    let mut attachment = Attachment::start_for(client, session, info.map(|info| info.cursor), deltas, look.can_ask())?;
    if let Err(failure) = attachment.request(Request::Prompt(prompt)) {
        return Err(refused(&mut attachment.client, unused.take(), failure));
    }
    let status = data == Data::Stream && look.stdout && look.stderr && look.moves;
    let mut running = Running {
        attachment,
        terminal: Terminal::new(),
        renderer,
        live,
        status,
        printed: Instant::now(),
        look,
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
    };
    running.follow(deadline)
}

/// The session that `-s` names, changed as the other options say.
pub(super) fn adopt(client: &mut Client, info: &Info, choice: Choice) -> Result<bool, Failure> {
    let Choice {
        model,
        mode,
        effort,
        patience,
        fallback,
        unattended,
        limits,
        add_dir,
        name,
        tools: _,
        agent: _,
        allow: _,
        system: _,
        directory: _,
    } = choice;
    let fallback = Some(fallback).filter(|models| !models.is_empty());
    let session = info.session.clone();
    let (budget, add_directories, remove_directories) = (limits.into(), absolute(add_dir)?, Vec::new());
    let set = Set {
        session,
        model,
        mode,
        effort,
        patience,
        fallback,
        unattended,
        budget,
        add_directories,
        remove_directories,
        mcp_servers: None,
        name,
        key: None,
    };
    if set == (Set { session: info.session.clone(), ..Set::default() }) {
        return Ok(false);
    }
    client.call(&SessionSet(Set { key: Some(key()?), ..set }))?;
    Ok(true)
}

/// A prompt was refused: removes the session that was created for it.
fn refused(client: &mut Client, unused: Option<SessionId>, failure: Failure) -> Failure {
    let Some(session) = unused else { return failure };
    let remove = |key| client.call(&SessionRemove(Remove { session: session.clone(), force: false, key: Some(key) }));
    match key().and_then(remove) {
        Ok(_) => failure,
        Err(_) => failure.and_also(format!("the session {session} was created for it and stays empty")),
    }
}

fn settings(look: &Capabilities, deltas: bool, thinking: Thinking, me: String) -> Settings {
    Settings {
        style: Style { color: look.color, unicode: look.unicode },
        width: look.width,
        raw: !look.stdout,
        markdown: look.markdown,
        deltas,
        thinking: if look.stderr { thinking } else { Thinking::Hide },
        usage: false,
        permissions: !look.can_ask(),
        prompts: false,
        me,
    }
}

impl Running {
    fn follow(&mut self, deadline: Option<Instant>) -> Result<Exit, Failure> {
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
        if self.look.stderr {
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
                self.questions.again(&answer.question);
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
            EventBody::Message { message, role: Role::Assistant, content, cut, .. } => {
                self.messages.push((message.clone(), text_of(content), *cut));
                self.stop_waiting();
            }
            EventBody::MessageSuperseded { message } => self.messages.retain(|(kept, ..)| kept != message),
            EventBody::Notice { code: Some(NoticeCode::Retry), since_at: Some(since), .. } if self.look.can_ask() => {
                let waited = Duration::from_millis(event.at.saturating_sub(*since));
                self.leave_hint.get_or_insert_with(|| Instant::now() + HINT_AFTER.saturating_sub(waited));
            }
            EventBody::Notice { code: Some(NoticeCode::Reached), .. } => self.stop_waiting(),
            EventBody::TurnFinished { stop_reason, answer, usage, session_usage, steps, .. } => {
                let exit = self.finished(*stop_reason, answer.as_ref())?;
                self.say_spent(&summary(usage, session_usage.as_ref(), *steps))?;
                return Ok(Some(exit));
            }
            _ => {}
        }
        if self.look.can_ask() {
            if changed {
                self.ask()?;
            }
        } else if self.questions.hold_up() || child_asks(&event.body) {
            self.check = Some(Instant::now());
        }
        if let EventBody::Notice { .. } = &event.body {
            self.check.get_or_insert_with(Instant::now);
        }
        Ok(None)
    }

    /// An event of another turn, while ours is queued.
    fn before_our_turn(&mut self, event: &Event) -> Result<Option<Exit>, Failure> {
        match &event.body {
            EventBody::TurnFinished {
                stop_reason: stop_reason @ (StopReason::Cancelled | StopReason::Error), ..
            } => {
                let session = &self.attachment.session;
                Err(Failure::new(
                    Exit::of(*stop_reason),
                    format!("the turn before this prompt: {}", reason(*stop_reason)),
                )
                .hint(format!("the prompt stays queued: `linger continue {session}` starts it")))
            }
            EventBody::TurnFinished { .. } => {
                self.alone = true;
                Ok(None)
            }
            EventBody::PermissionRequested { .. }
            | EventBody::QuestionAsked { .. }
            | EventBody::ChildUpdated(_)
            | EventBody::Notice { .. } => {
                self.check = Some(Instant::now());
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Redraws the status on a terminal, while our turn runs and nothing is asked; when to do so again.
    fn show_live(&mut self) -> Result<Option<Instant>, Failure> {
        if !self.status {
            return Ok(None);
        }
        let runs = self.turn.is_some() && self.questions.first().is_none();
        // Text that comes is sign enough, and would erase it at once.
        let silent = self.printed.elapsed();
        if runs && silent < TICK {
            return Ok(Some(self.printed + TICK));
        }
        let rows = match runs {
            true => self.live.rows(now(), size().columns, 0, false),
            false => Vec::new(),
        };
        self.terminal.set_live(rows)?;
        Ok(runs.then(|| Instant::now() + TICK))
    }

    fn show(&mut self, event: &Event) -> Result<(), Failure> {
        let ends = matches!(event.body, EventBody::TurnFinished { .. });
        // stdout cannot be taken back: stderr says that the text was cut and comes again.
        let cut =
            matches!(event.body, EventBody::Message { interrupted: true, .. } | EventBody::MessageSuperseded { .. });
        // The answer is given without the images.
        let blind = matches!(&event.body, EventBody::Trimmed { images, .. } if !images.is_empty());
        // Such as a wait, and until when.
        let warned = matches!(event.body, EventBody::Notice { level: Level::Warning | Level::Error, .. });
        let told = ends || blind || warned || (cut && self.data == Data::Stream);
        self.renderer.set_width(terminal_width());
        let output = self.renderer.event(event).into_iter().filter(|output| match output {
            Output::Text(_) => self.data == Data::Stream,
            // A script is told the end, waits, missing images, and text that does not count.
            Output::Talk(_) => self.look.stderr || told,
        });
        let output: Vec<Output> = output.collect();
        if !output.is_empty() {
            self.printed = Instant::now();
        }
        Ok(self.terminal.print(output)?)
    }

    fn finished(&mut self, stop_reason: StopReason, answer: Option<&Value>) -> Result<Exit, Failure> {
        if let (Data::Answer, Some(answer)) = (self.data, answer) {
            self.terminal.data(&answer.to_string())?;
        }
        if self.data == Data::Final {
            // Of a schema that the agent has, people read this part.
            let told = answer.and_then(|answer| answer.get("answer")).and_then(Value::as_str).map(str::to_owned);
            match told.unwrap_or_else(|| self.final_text()).as_str() {
                "" if stop_reason == StopReason::EndTurn => self.terminal.say("the model's answer is empty")?,
                "" => {}
                text => {
                    let end = if text.ends_with('\n') { "" } else { "\n" };
                    self.terminal.text(&format!("{text}{end}"))?;
                }
            }
        }
        Ok(Exit::of(stop_reason))
    }

    /// Says to a person which session it was and what it took, so that one can go on with it.
    fn say_spent(&mut self, spent: &str) -> Result<(), Failure> {
        if self.data != Data::Stream || !self.look.stdout || !self.look.stderr {
            return Ok(());
        }
        self.fresh_line()?;
        let line = format!("session {}: {spent}", self.attachment.session);
        Ok(self.terminal.talk(&format!("{}\n", self.renderer.style().dim(&line)))?)
    }

    /// The text of the last answer, with those that it continues.
    fn final_text(&self) -> String {
        let before = self.messages.len().saturating_sub(1);
        let continued = self.messages.iter().take(before).rev().take_while(|(.., cut)| *cut).count();
        self.messages.iter().skip(before - continued).map(|(_, text, _)| text.as_str()).collect()
    }

    /// Says how to leave a turn that waits for its provider, when it is time to.
    fn hint_to_leave(&mut self) -> Result<(), Failure> {
        if self.leave_hint.is_none_or(|at| Instant::now() < at) || self.questions.first().is_some() {
            return Ok(());
        }
        self.leave_hint = None;
        self.fresh_line()?;
        // Ctrl-D is a signal from now on.
        self.quiet = true;
        set_keyboard(Keyboard::Quiet);
        Ok(self.terminal.say("hint: Ctrl-C cancels, Ctrl-D leaves it waiting")?)
    }

    /// The provider answers again.
    fn stop_waiting(&mut self) {
        self.leave_hint = None;
        if std::mem::take(&mut self.quiet) && self.questions.first().is_none() {
            set_keyboard(Keyboard::Shell);
        }
    }

    /// Shows the first open question, or stops asking.
    fn ask(&mut self) -> Result<(), Failure> {
        self.questions.look(&mut self.attachment.client);
        let Some(question) = self.questions.first() else {
            if let Some(input) = &mut self.input {
                input.stop_keys();
                set_keyboard(Keyboard::Shell);
            }
            return Ok(());
        };
        let style = self.renderer.style();
        let text = question.text(&style) + &question.keys(&style, false);
        let answers = question.answers();
        self.fresh_line()?;
        let input = match &mut self.input {
            Some(input) => input,
            None => self.input.insert(Input::start(self.attachment.client.sender(), None)?),
        };
        input.ask_keys(Some(answers));
        Ok(self.terminal.talk(&hang_lines(&text, terminal_width()))?)
    }

    fn key(&mut self, key: Key) -> Result<(), Failure> {
        if !self.input.as_ref().is_some_and(|input| input.counts(key)) {
            return Ok(());
        }
        let pressed = match (key.pressed, self.questions.first()) {
            (Pressed::Key(key), _) => key,
            (Pressed::Other, None) => return Ok(()),
            (Pressed::Other, Some(question)) => {
                let text = question.unanswered(&self.renderer.style());
                return Ok(self.terminal.talk(&text)?);
            }
        };
        match self.questions.press(pressed)? {
            Press::Nothing => return Ok(()),
            Press::Show | Press::Write | Press::Help | Press::Edits | Press::Reason | Press::Rule(_) => {}
            Press::Answer(answer) => self.attachment.request(Request::Answer(answer))?,
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
                self.terminal.say(&format!("detached; the work waits for an answer: {answer}"))?;
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
                .say(&format!("left; the prompt stays queued behind another turn: `linger attach {session}`"))?;
            return Ok(Some(Exit::CANCELLED));
        }
        self.cancelling = true;
        self.attachment.cancel()?;
        Ok(None)
    }

    /// Checks whether the session can continue, when it is time to.
    fn check(&mut self) -> Result<Option<Exit>, Failure> {
        if self.prompt.is_none() || self.check.is_none_or(|at| Instant::now() < at) {
            return Ok(None);
        }
        if self.look.can_ask() && self.questions.first().is_some() {
            self.check = None;
            return Ok(None);
        }
        let info = self.attachment.client.session_info(&self.attachment.session)?;
        if matches!(info.state, State::Waiting | State::Offered) {
            self.fresh_line()?;
        }
        let exit = self.stuck.check(&mut self.attachment.client, &info)?;
        if exit.is_some() && self.turn.is_none() {
            self.terminal
                .say(&format!("your prompt is queued behind that: `linger wait {}`", self.attachment.session))?;
        }
        let again = info.state == State::Waiting || self.questions.hold_up();
        self.check = again.then(|| Instant::now() + AGAIN);
        Ok(exit)
    }

    fn fresh_line(&mut self) -> Result<(), Failure> {
        let mut output = Vec::new();
        self.renderer.fresh_line(&mut output);
        output.retain(|output| self.data == Data::Stream || matches!(output, Output::Talk(_)));
        Ok(self.terminal.print(output)?)
    }
}

/// Whether a child waits for an answer: then the turn may not go on without one.
fn child_asks(body: &EventBody) -> bool {
    matches!(body, EventBody::ChildUpdated(update) if !update.questions.is_empty())
}
