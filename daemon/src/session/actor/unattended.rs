//! Questions that no person answers: denied when their time has passed.
//!
//! The time follows from when a question was asked, which the log has, so a restart does not change it. Only questions of a turn
//! that runs are denied; the turn waits for the earliest of them, by one timer.

use super::*;
use crate::question;
use crate::session::state::{QuestionState, Turn};

/// When the questions of the turn are denied.
#[derive(Default)]
pub(super) struct Deadlines(HashMap<QuestionId, (u64, Instant)>);

impl Deadlines {
    /// Takes over what the state says; `now` in Unix milliseconds. Gives the earliest.
    fn follow(&mut self, state: &State, now: u64) -> Option<Instant> {
        let known = std::mem::take(&mut self.0);
        for (asked, at) in state.deadlines() {
            // Counted once: the wall clock may be set while a question waits.
            let same = known.get(&asked.id).filter(|(known, _)| *known == at).map(|(_, due)| *due);
            let left = Duration::from_millis(at.saturating_sub(now));
            // None in some centuries, which is never.
            if let Some(due) = same.or_else(|| Instant::now().checked_add(left)) {
                self.0.insert(asked.id.clone(), (at, due));
            }
        }
        self.0.values().map(|(_, due)| *due).min()
    }

    fn is_over(&self, question: &QuestionId) -> bool {
        self.0.get(question).is_some_and(|(_, due)| *due <= Instant::now())
    }
}

impl Actor {
    /// When the next question of the running turn is denied.
    pub(super) fn next_deadline(&mut self) -> Option<Instant> {
        self.deadlines.follow(&self.state, clock::now())
    }

    /// Denies the questions whose time has passed.
    pub(super) fn deny_unanswered(&mut self) {
        let waiting = self.state.turn.iter().flat_map(Turn::waiting);
        let over: Vec<QuestionState> = waiting.filter(|asked| self.deadlines.is_over(&asked.id)).cloned().collect();
        let reason = match self.state.settings.unattended.deadline(0) {
            Some(0) => "no person is there to answer".to_owned(),
            _ => format!("no person answered ({})", self.state.settings.unattended),
        };
        for asked in over {
            tracing::info!(target: "question", session = %self.id, question = %asked.id, "denied: unattended");
            let answer = asked.unanswered().map(str::to_owned);
            let (by, reason) = (question::UNATTENDED.to_owned(), Some(reason.clone()));
            drop(self.resolve(&asked, Resolution { answer, by, reason, ..Resolution::default() }, None, None));
        }
    }
}

#[cfg(test)]
mod tests {
    use linger_protocol::unattended::Unattended;

    use super::*;
    use crate::session::state::{Options, Settings};

    #[tokio::test(start_paused = true)]
    async fn a_time_that_has_passed_while_the_daemon_was_away_has_passed() {
        let asked = |id: &str, at| QuestionState {
            id: id.into(),
            seq: 1,
            at,
            call: None,
            digest: String::new(),
            options: Options::Permission(String::new()),
            grants: Vec::new(),
            about: None,
            schema: None,
            answer: None,
        };
        let questions = vec![asked("q1", 1_000), asked("q2", 9_000), asked("q3", 0)];
        let turn = Some(Turn { questions, ..Turn::default() }).into();
        let unattended = |unattended| Settings { unattended, ..Settings::default() }.into();
        let state = State { turn, settings: unattended(Unattended::DenyAfter(5_000)), ..State::default() };
        let mut deadlines = Deadlines::default();
        assert_eq!(deadlines.follow(&state, 10_000), Some(Instant::now()));
        let over = |deadlines: &Deadlines| ["q1", "q2", "q3"].map(|id| deadlines.is_over(&id.into()));
        assert_eq!(over(&deadlines), [true, false, false]);
        // A clock that is set back changes nothing of what waits.
        tokio::time::advance(Duration::from_secs(4)).await;
        deadlines.follow(&state, 1);
        assert_eq!(over(&deadlines), [true, true, false]);
        deadlines.follow(&State { settings: unattended(Unattended::Hold), ..state }, 1);
        assert_eq!(over(&deadlines), [false, false, false]);
    }
}
