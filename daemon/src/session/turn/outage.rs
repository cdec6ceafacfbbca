//! Waiting for a provider that cannot answer: visible, in one timer, and cut short by a prompt or another model.
//!
//! The log tells since when the turn waits, so the wait goes on after a restart. Deliberately absent: the policy, which is
//! [`retry`]'s.

use std::time::Duration;

use linger_protocol::event::{EventBody, Level, Notice, NoticeCode};
use tokio::time::Instant;

use super::request::{Refused, RequestEnd, given_up};
use super::{Turn, TurnEnded};
use crate::provider::catalogue::Resolved;
use crate::provider::retry::{self, Decision, Tries};
use crate::provider::{Failure, FailureClass};
use crate::session::messages::TurnMessage;
use crate::session::state;
use crate::sys::clock;

/// From this length on a wait is a state of the turn, which lists show and a restart continues.
const LASTING: Duration = Duration::from_secs(5);

/// The failed attempts of the current step, until one succeeds.
#[derive(Debug, Default)]
pub(super) struct Outage {
    began: Option<FirstFailure>,
    /// Attempts that broke off in the middle of an answer.
    broken_off: u32,
    /// The class of the last announced failure, and how long the turn had waited by then.
    announced: Option<(FailureClass, Duration)>,
    /// Whether the log says that the turn waits.
    is_logged: bool,
}

/// When the first attempt failed.
#[derive(Clone, Copy, Debug)]
struct FirstFailure {
    /// In Unix milliseconds.
    at: u64,
    /// The time waited in earlier lives of the daemon.
    before: Duration,
    /// When this life began to wait.
    now: Instant,
}

/// Why a wait ended.
enum WaitEnd {
    /// It is time for the next try.
    Due,
    /// A user prompted, or asked to continue.
    Nudged,
    /// The session's model changed.
    OtherModel,
}

impl Outage {
    /// The outage according to the log.
    pub(super) fn of(turn: &state::Turn) -> Self {
        let began = turn.wait.provider.as_ref().map(|wait| {
            let before = Duration::from_millis(clock::now().saturating_sub(wait.since_at));
            FirstFailure { at: wait.since_at, before, now: Instant::now() }
        });
        Self { is_logged: began.is_some(), began, broken_off: turn.answer.broken_off, announced: None }
    }

    /// Counts a failed attempt.
    fn failed(&mut self, broke_off: bool, answered_before: bool) -> Tries {
        let began = self.began.get_or_insert_with(|| FirstFailure {
            at: clock::now(),
            before: Duration::ZERO,
            now: Instant::now(),
        });
        self.broken_off += u32::from(broke_off);
        Tries { waited: began.before + began.now.elapsed(), broken_off: self.broken_off, broke_off, answered_before }
    }

    /// Whether people should hear of this failure: not of every one in a long outage.
    fn is_news(&self, failure: &Failure, tries: &Tries, after: Duration) -> bool {
        let doubled = |(class, waited): (FailureClass, Duration)| class != failure.class || tries.waited >= 2 * waited;
        tries.broke_off || after > retry::CAP || self.announced.is_none_or(doubled)
    }
}

impl Turn {
    /// Waits after a failed attempt; `None` when the next one is due. `begun`: a part of the answer came; `is_shown`: the answer is a
    /// message of the session.
    pub(super) async fn wait_out(
        &mut self,
        refused: Refused,
        resolved: &Resolved,
        begun: bool,
        is_shown: bool,
    ) -> Result<Option<RequestEnd>, TurnEnded> {
        let (failure, shown) = (&refused.failure, &refused.shown);
        let answered_before = resolved.address().is_none_or(|address| self.services.providers.reached.has(&address));
        let tries = self.outage.failed(retry::broke_off(failure.class, begun), answered_before);
        let patience = self.policy.patience.unwrap_or(resolved.patience);
        let patience = self.fallback().map_or(patience, |(_, after)| patience.at_most(after));
        let after = match retry::decide(failure, &tries, patience, clock::random_fraction()) {
            Decision::GiveUp { note } => {
                let failure = given_up(refused.failure, note, resolved);
                return self.fall_back_or(Refused { failure, ..refused }).await.map(Some);
            }
            Decision::Again { after } => after,
        };
        let waited = self.wait_to_retry(failure, &tries, after).await?;
        if let Some(message) = shown.clone() {
            self.emit.send(vec![EventBody::MessageSuperseded { message }], false, None)?;
        }
        Ok(match waited {
            WaitEnd::OtherModel => Some(RequestEnd::StartOver),
            // The next step takes the prompt; a summary has no use for it.
            WaitEnd::Nudged if is_shown => Some(RequestEnd::StartOver),
            WaitEnd::Nudged | WaitEnd::Due => None,
        })
    }

    /// Waits before the next attempt.
    async fn wait_to_retry(&mut self, failure: &Failure, tries: &Tries, after: Duration) -> Result<WaitEnd, TurnEnded> {
        let due = Instant::now() + after;
        let lasts = self.outage.is_logged || tries.waited + after >= LASTING;
        if self.outage.is_news(failure, tries, after) || lasts != self.outage.is_logged {
            let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
            let since_at = self.outage.began.filter(|_| lasts).map(|began| began.at);
            let waited = since_at.map(|_| tries.waited).filter(|waited| *waited >= LASTING);
            let notice = EventBody::Notice(Notice {
                level: Level::Warning,
                code: Some(NoticeCode::Retry),
                text: retry::announced(failure, waited, after),
                until_at: Some(clock::now().saturating_add(millis(after))),
                since_at,
            });
            // A restart must know of a wait that lasts.
            self.emit.send(vec![notice], lasts, None)?;
            self.outage.announced = Some((failure.class, tries.waited));
            self.outage.is_logged = lasts;
        }
        let mut changed = self.services.providers.changed.subscribe();
        loop {
            tokio::select! {
                biased;
                () = self.emit.closed() => return Err(TurnEnded),
                () = self.nudge.notified() => return Ok(WaitEnd::Nudged),
                change = changed.changed() => {
                    change.map_err(|_| TurnEnded)?;
                    if self.is_another(false).await? {
                        return Ok(WaitEnd::OtherModel);
                    }
                }
                () = tokio::time::sleep_until(due) => return Ok(WaitEnd::Due),
            }
        }
    }

    /// The model that stands in next for the session's own, and after how long.
    fn fallback(&self) -> Option<(Resolved, Duration)> {
        let own = self.policy.own_model.as_ref().unwrap_or(&self.model);
        self.services.providers.next_fallback(own, &self.model, self.policy.fallback.as_deref())
    }

    /// The end of a request that failed for good: if another model may stand in, it does from now on.
    pub(super) async fn fall_back_or(&mut self, refused: Refused) -> Result<RequestEnd, TurnEnded> {
        let Some((other, _)) = self.fallback().filter(|_| retry::may_fall_back(refused.failure.class)) else {
            return Ok(RequestEnd::Failed(refused));
        };
        let superseded = refused.shown.into_iter().map(|message| EventBody::MessageSuperseded { message });
        self.emit.send(superseded.collect(), false, None)?;
        // Nothing stands in for a model that was changed meanwhile.
        if !self.is_another(false).await? {
            self.emit.tell(TurnMessage::FallBack(Box::new(other), refused.failure.message))?;
        }
        Ok(RequestEnd::StartOver)
    }

    /// The provider answers. Ends a wait that the log tells of: an answer that breaks off then is a failure of its own, which is
    /// tried again soon.
    pub(super) fn say_reached(&mut self) -> Result<(), TurnEnded> {
        if !std::mem::take(&mut self.outage.is_logged) {
            return Ok(());
        }
        let waited = self.outage.began.take().map(|began| began.before + began.now.elapsed()).unwrap_or_default();
        self.outage.announced = None;
        let provider = self.model.split('/').next().unwrap_or_default();
        let text = format!("{provider} answers again after {}", retry::spoken(waited));
        self.emit.notice(Level::Info, NoticeCode::Reached, text)
    }
}
