//! `linger wait`: waits until a session has nothing more to do, or cannot go on.

use std::time::{Duration, Instant};

use linger_protocol::event::EventBody;
use linger_protocol::id::SessionId;
use linger_protocol::message::StopReason;
use linger_protocol::method::{PermissionList, SessionList};
use linger_protocol::permission;
use linger_protocol::session::{Info, List, State};

use super::{deadline, patience, resolve};
use crate::cli::Wait;
use crate::connect::{COMING_BACK, Client};
use crate::error::{Exit, Failure};
use crate::follow::{Attachment, Happened};
use crate::question::Question;
use crate::render::reason;
use crate::render::style::Style;
use crate::terminal::{Look, Terminal, clean_line};

/// How often to look again where no event may come: a question that blocks only part of the work.
pub(super) const AGAIN: Duration = Duration::from_millis(500);

/// How long to look for what the daemon said of a turn that failed.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long a key may be missing: a client that comes back after a crash brings it within this.
const KEY: Duration = Duration::from_secs(2);

pub(super) fn run(args: &Wait) -> Result<Exit, Failure> {
    let deadline = deadline(args.timeout);
    let mut client = Client::open_within(patience(deadline))?;
    let info = resolve(&mut client, &args.session)?;
    // The end of a turn that is over already is in the past.
    let failed = info.state == State::Idle && info.stop_reason.is_some_and(|reason| reason != StopReason::EndTurn);
    let cursor = if failed { &info.turn_cursor } else { &info.cursor };
    let mut attachment = Attachment::start(client, info.session.clone(), Some(cursor.clone()), false)?;
    let mut info = info;
    let exit = until_settled(&mut attachment, &mut info, deadline);
    // Unless it is not known any more how it stands.
    if args.json && (exit.is_ok() || matches!(info.state, State::Offered | State::Waiting)) {
        super::print_value(&info)?;
    }
    exit
}

/// Waits until a session has nothing more to do, or cannot go on; `info` is then how it stands.
fn until_settled(attachment: &mut Attachment, info: &mut Info, deadline: Option<Instant>) -> Result<Exit, Failure> {
    let session = info.session.clone();
    let mut stuck = Stuck::default();
    let mut ended = None;
    loop {
        if let Some(exit) = stuck.look(&mut attachment.client, info)? {
            return Ok(exit);
        }
        if let Some(stop_reason) = settled(info) {
            if stop_reason != StopReason::EndTurn {
                explain(attachment, ended, stop_reason)?;
            }
            if let Some(held) = super::held(info.queued, &session) {
                Terminal::new().say(&held)?;
            }
            return Ok(Exit::of(stop_reason));
        }
        if !news(attachment, info, &mut ended, deadline)? {
            return timed_out(&session);
        }
        *info = match current(&mut attachment.client, &session) {
            Err(failure) if failure.is_no_answer() && is_over(deadline) => return timed_out(&session),
            info => info?,
        };
    }
}

/// Whether the time is up.
pub(super) fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// Says how the turn ended and, if the daemon has said so, what to do about it.
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

/// What the daemon said at the end of a turn.
#[derive(Default)]
struct Ended {
    detail: Option<String>,
    hint: Option<String>,
}

/// Keeps what was said at the end of the latest turn.
fn note(ended: &mut Option<Ended>, body: &EventBody) {
    match body {
        EventBody::TurnStarted { .. } => *ended = None,
        EventBody::TurnFinished { detail, hint, .. } => {
            *ended = Some(Ended { detail: detail.clone(), hint: hint.clone() });
        }
        _ => {}
    }
}

/// Waits until the session's state may be another; false if the deadline passed.
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
                | EventBody::TurnFinished { .. }
                | EventBody::PermissionRequested { .. }
                | EventBody::PermissionResolved { .. }
                | EventBody::ToolFinished { .. }
                | EventBody::Notice { .. }
                | EventBody::CaughtUp {} = notification.event.body
                {
                    return Ok(true);
                }
            }
            Happened::Lost => match come_back(attachment) {
                Err(_) if is_over(deadline) => return Ok(false),
                other => other?,
            },
            Happened::TimedOut => return Ok(!is_over(deadline)),
            _ => {}
        }
    }
}

/// Comes back after a loss, with a word to a person if it takes a while.
pub(super) fn come_back(attachment: &mut Attachment) -> Result<(), Failure> {
    if attachment.back_soon()? {
        return Ok(());
    }
    if Look::of_process().stderr {
        Terminal::new().say(COMING_BACK)?;
    }
    attachment.reattach()
}

/// How the session stands, once it does nothing more by itself.
fn settled(info: &Info) -> Option<StopReason> {
    // After these, what is queued waits for a user's word.
    let stopped = matches!(info.stop_reason, Some(StopReason::Cancelled | StopReason::Error));
    if info.state != State::Idle || (info.queued > 0 && !stopped) {
        return None;
    }
    Some(info.stop_reason.unwrap_or(StopReason::EndTurn))
}

/// The session's row as it is now.
pub(crate) fn current(client: &mut Client, session: &SessionId) -> Result<Info, Failure> {
    let list = List { matching: Some(session.to_string()), ..List::default() };
    let rows = client.call(&SessionList(list))?;
    rows.into_iter()
        .find(|row| row.session == *session)
        .ok_or_else(|| Failure::new(Exit::FAILED, format!("session {session} was removed")))
}

/// Watches for a session that cannot go on.
#[derive(Default)]
pub(super) struct Stuck {
    /// Since when a key is missing.
    key: Option<Instant>,
}

impl Stuck {
    /// If the session waits for what cannot be given here, says for what, and how to give it.
    pub(super) fn look(&mut self, client: &mut Client, info: &Info) -> Result<Option<Exit>, Failure> {
        if info.state == State::Offered {
            return Err(Failure::new(
                Exit::FAILED,
                format!("the turn of session {} was left unfinished", info.session),
            )
            .hint(format!("`linger attach {}`, then /continue", info.session)));
        }
        if info.state != State::Waiting {
            self.key = None;
            return Ok(None);
        }
        if info.permissions.is_empty() {
            return if self.key.get_or_insert_with(Instant::now).elapsed() < KEY {
                Ok(None)
            } else {
                Err(Failure::usage(format!("session {} waits for a key that the daemon does not have", info.session))
                    .hint(format!("`linger log {}` says which; set it and attach: the turn goes on", info.session)))
            };
        }
        let list = permission::List { session: Some(info.session.clone()) };
        let rows = client.call(&PermissionList(list))?;
        if rows.is_empty() {
            return Ok(None);
        }
        let look = Look::of_process();
        let style = Style { color: look.color, unicode: look.unicode };
        let mut terminal = Terminal::new();
        for row in &rows {
            let question = Question::of_pending(row);
            terminal.talk(&question.text(&style))?;
            terminal.say(&format!("  {}", question.elsewhere()))?;
        }
        Ok(Some(Exit::PERMISSION))
    }
}

/// Says that the work goes on.
pub(super) fn timed_out(session: &SessionId) -> Result<Exit, Failure> {
    Terminal::new().say(&format!("the time is up; the work goes on: `linger attach {session}`"))?;
    Ok(Exit::TIMED_OUT)
}
