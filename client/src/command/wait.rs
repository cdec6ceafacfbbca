//! `linger wait`: waits until sessions have nothing left to do or cannot continue.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use linger_protocol::event::{EventBody, MessageAdded, TurnFinished};
use linger_protocol::id::{Cursor, SessionId};
use linger_protocol::message::{Role, StopReason, text_of};
use linger_protocol::method::QuestionList;
use linger_protocol::question::{Blocks, List};
use linger_protocol::session::{Info, State};

use super::deadline::{answer_deadline, deadline};
use super::find::resolve;
use crate::arguments::Wait;
use crate::connect::{Client, RECONNECTING};
use crate::error::{Exit, Failure};
use crate::follow::{Attachment, Happened};
use crate::question::{Question, unknown_kind};
use crate::render::reason;
use crate::render::style::Style;
use crate::terminal::{Capabilities, Terminal, clean, clean_line};

/// How often to check without an event: a question may block only part of the work.
pub(super) const AGAIN: Duration = Duration::from_millis(500);

/// How long to wait for the details of a failed turn.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Sessions to wait for, at most: each takes a connection, together a quarter of the daemon's.
const MAX_SESSIONS: usize = 32;

/// How long a key may be missing: a client that reconnects after a crash sends it within this time.
const KEY: Duration = Duration::from_secs(2);

pub(super) fn run(args: &Wait) -> Result<Exit, Failure> {
    let deadline = deadline(args.timeout);
    let mut client = Client::open_within(answer_deadline(deadline))?;
    let rows: Vec<Info> =
        args.sessions.iter().map(|session| resolve(&mut client, session)).collect::<Result<_, _>>()?;
    if let [info] = rows.as_slice() {
        return one(args, client, info.clone(), deadline);
    }
    if rows.len() > MAX_SESSIONS {
        return Err(Failure::usage(format!("cannot wait for {} sessions", rows.len()))
            .hint(format!("the limit is {MAX_SESSIONS}")));
    }
    several(args, rows, deadline)
}

/// Waits for several sessions, each over its own connection. The exit code is the first one, in their order, that is not 0.
fn several(args: &Wait, rows: Vec<Info>, deadline: Option<Instant>) -> Result<Exit, Failure> {
    let (done, ends) = mpsc::channel();
    let mut exits: Vec<Option<Exit>> = rows.iter().map(|_| None).collect();
    std::thread::scope(|scope| {
        for (n, info) in rows.into_iter().enumerate() {
            let done = done.clone();
            scope.spawn(move || {
                let client = Client::open_silent(answer_deadline(deadline));
                let ended = client.and_then(|client| one(args, client, info, deadline));
                // With --any the receiver may be gone.
                let _late = done.send((n, ended));
            });
        }
        drop(done);
        for (n, ended) in ends {
            let exit = ended.or_else(|failure| {
                let exit = failure.exit;
                Terminal::new().complain(failure).map(|()| exit)
            })?;
            if args.any {
                // The other threads would keep waiting.
                std::process::exit(i32::from(exit.0));
            }
            if let Some(place) = exits.get_mut(n) {
                *place = Some(exit);
            }
        }
        let bad = exits.iter().flatten().find(|exit| **exit != Exit::GOOD);
        Ok(bad.copied().unwrap_or(Exit::GOOD))
    })
}

/// Waits for one session.
fn one(args: &Wait, client: Client, info: Info, deadline: Option<Instant>) -> Result<Exit, Failure> {
    // A failed turn's end is in the past: read from its start.
    let failed = info.state == State::Idle && info.stop_reason.is_some_and(|reason| reason != StopReason::EndTurn);
    let cursor = if failed { &info.turn_cursor } else { &info.cursor };
    let mut attachment = Attachment::start(client, info.session.clone(), Some(cursor.clone()), false)?;
    let mut info = info;
    let exit = until_settled(&mut attachment, &mut info, deadline);
    // Not if its state is unknown.
    if args.json && (exit.is_ok() || matches!(info.state, State::Offered | State::Waiting)) {
        super::output::print_value(&info)?;
    }
    if args.any && !args.json && !args.answer && exit.is_ok() {
        Terminal::new().line(info.session.as_str())?;
    }
    if args.answer && exit.is_ok() && info.state == State::Idle {
        print_answer(&info)?;
    }
    exit
}

/// Prints the last answer, including the answers it continues. Uses its own connection: the other one may still receive events of
/// its attachment.
fn print_answer(info: &Info) -> Result<(), Failure> {
    let from = Some(info.turn_cursor.clone()).filter(|cursor| *cursor != Cursor::default());
    let mut attachment = Attachment::start(Client::open_silent(None)?, info.session.clone(), from, false)?;
    let (mut answer, mut cut) = (String::new(), false);
    loop {
        match attachment.next(None)? {
            Happened::Event(notification, _) => match &notification.event.body {
                EventBody::Message(MessageAdded {
                    role: Role::Assistant,
                    content,
                    interrupted: false,
                    cut: now_cut,
                    ..
                }) => {
                    let text = text_of(content);
                    answer = if cut { answer + &text } else { text };
                    cut = *now_cut;
                }
                EventBody::CaughtUp {} => break,
                _ => {}
            },
            Happened::Lost => reattach(&mut attachment)?,
            _ => {}
        }
    }
    let end = if answer.ends_with('\n') || answer.is_empty() { "" } else { "\n" };
    let text = format!("{answer}{end}");
    let to_terminal = Capabilities::detect().stdout;
    Ok(Terminal::new().text(&if to_terminal { clean(&text).into_owned() } else { text })?)
}

/// Waits until a session has nothing left to do or cannot continue; `info` is then its current row.
fn until_settled(attachment: &mut Attachment, info: &mut Info, deadline: Option<Instant>) -> Result<Exit, Failure> {
    let session = info.session.clone();
    let mut stuck = Stuck::default();
    let mut ended = None;
    loop {
        if let Some(exit) = stuck.check(&mut attachment.client, info)? {
            return Ok(exit);
        }
        if let Some(stop_reason) = settled(info) {
            if stop_reason != StopReason::EndTurn {
                explain(attachment, ended, stop_reason)?;
            }
            if let Some(note) = super::output::queued_note(info.queued, &session) {
                Terminal::new().say(&note)?;
            }
            if let Some(note) = super::output::drafts_note(info.drafts, &session) {
                Terminal::new().say(&note)?;
            }
            return Ok(Exit::of(stop_reason));
        }
        if !news(attachment, info, &mut ended, deadline)? {
            return timed_out(&session);
        }
        *info = match attachment.client.session_info(&session) {
            Err(failure) if failure.is_no_answer() && is_over(deadline) => return timed_out(&session),
            info => info?,
        };
    }
}

/// Whether the deadline has passed.
pub(super) fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// Prints how the turn ended, and the daemon's hint.
fn explain(attachment: &mut Attachment, mut ended: Option<Ended>, stop_reason: StopReason) -> Result<(), Failure> {
    let deadline = Instant::now() + LAST_WORDS;
    // The session's row may be ahead of its events.
    while ended.is_none()
        && let Happened::Event(notification, _) = attachment.next(Some(deadline))?
    {
        note(&mut ended, &notification.event.body);
    }
    let ended = ended.unwrap_or_default();
    let mut terminal = Terminal::new();
    let detail = ended.detail.map(|detail| format!(": {}", clean_line(&detail))).unwrap_or_default();
    terminal.say(&format!("{}{detail}", reason(stop_reason)))?;
    Ok(ended.hint.map_or(Ok(()), |hint| terminal.say(&format!("hint: {}", clean_line(&hint))))?)
}

/// Detail and hint of the end of a turn.
#[derive(Default)]
struct Ended {
    detail: Option<String>,
    hint: Option<String>,
}

/// Remembers detail and hint of the latest turn.
fn note(ended: &mut Option<Ended>, body: &EventBody) {
    match body {
        EventBody::TurnStarted { .. } => *ended = None,
        EventBody::TurnFinished(TurnFinished { detail, hint, .. }) => {
            *ended = Some(Ended { detail: detail.clone(), hint: hint.clone() });
        }
        _ => {}
    }
}

/// Waits until the session's state may have changed; false if the deadline passed.
fn news(
    attachment: &mut Attachment,
    info: &Info,
    ended: &mut Option<Ended>,
    deadline: Option<Instant>,
) -> Result<bool, Failure> {
    let again = (info.state != State::Running).then(|| Instant::now() + AGAIN);
    let wake = [again, deadline].into_iter().flatten().min();
    loop {
        match attachment.next(wake)? {
            Happened::Event(notification, _) => {
                note(ended, &notification.event.body);
                if let EventBody::TurnStarted { .. }
                | EventBody::TurnFinished(_)
                | EventBody::PermissionRequested(_)
                | EventBody::PermissionResolved(_)
                | EventBody::QuestionAsked { .. }
                | EventBody::QuestionResolved(_)
                | EventBody::ConfigConfirmed { .. }
                | EventBody::ToolFinished(_)
                | EventBody::ChildUpdated(_)
                | EventBody::Notice(_)
                | EventBody::CaughtUp {} = notification.event.body
                {
                    return Ok(true);
                }
            }
            Happened::Lost => match reattach(attachment) {
                Err(_) if is_over(deadline) => return Ok(false),
                other => other?,
            },
            Happened::TimedOut => return Ok(!is_over(deadline)),
            _ => {}
        }
    }
}

/// Reattaches after a lost connection, with a message if that takes a while.
pub(super) fn reattach(attachment: &mut Attachment) -> Result<(), Failure> {
    if attachment.reattach_soon()? {
        return Ok(());
    }
    if Capabilities::detect().stderr {
        Terminal::new().say(RECONNECTING)?;
    }
    attachment.reattach()
}

/// The stop reason of the last turn, once nothing more will run.
pub(super) fn settled(info: &Info) -> Option<StopReason> {
    // After these, queued prompts wait for the user.
    let stopped = matches!(info.stop_reason, Some(StopReason::Cancelled | StopReason::Error));
    // Children in the background report in a later turn.
    if info.state != State::Idle || (info.queued > 0 && !stopped) || !info.children.is_empty() {
        return None;
    }
    Some(info.stop_reason.unwrap_or(StopReason::EndTurn))
}

/// Detects a session that cannot continue.
#[derive(Default)]
pub(super) struct Stuck {
    /// Since when a key is missing.
    key: Option<Instant>,
}

impl Stuck {
    /// If the session waits for something that cannot be given here, prints what, and how to give it.
    pub(super) fn check(&mut self, client: &mut Client, info: &Info) -> Result<Option<Exit>, Failure> {
        if info.state == State::Offered {
            return Err(Failure::new(Exit::FAILED, format!("the turn of session {} was interrupted", info.session))
                .hint(format!("`linger queue {} --run` resumes it", info.session)));
        }
        if info.state != State::Waiting {
            self.key = None;
            return Ok(None);
        }
        if info.questions.is_empty() {
            return if self.key.get_or_insert_with(Instant::now).elapsed() < KEY {
                Ok(None)
            } else {
                Err(Failure::usage(format!("session {} waits for a missing key", info.session))
                    .hint(format!("`linger log {}` names it; set it and attach, and the turn continues", info.session)))
            };
        }
        if !info.unattended.holds() {
            // It is answered automatically after a time.
            return Ok(None);
        }
        let mut rows = client.call(&QuestionList(List { session: Some(info.session.clone()), ..List::default() }))?;
        rows.retain(|row| row.asked.blocks != Blocks::Nothing);
        if rows.is_empty() {
            return Ok(None);
        }
        let capabilities = Capabilities::detect();
        let style = Style { color: capabilities.color, unicode: capabilities.unicode };
        let mut terminal = Terminal::new();
        for row in &rows {
            match Question::of_pending(row) {
                Some(question) => {
                    terminal.talk(&question.text(&style))?;
                    terminal.say(&format!("  {}", question.elsewhere()))?;
                }
                None => terminal.say(&unknown_kind(row))?,
            }
        }
        Ok(Some(Exit::QUESTION))
    }
}

/// Reports the timeout and that the work continues.
pub(super) fn timed_out(session: &SessionId) -> Result<Exit, Failure> {
    Terminal::new().say(&format!("timed out; the work continues: `linger attach {session}`"))?;
    Ok(Exit::TIMED_OUT)
}
