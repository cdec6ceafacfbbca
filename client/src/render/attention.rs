//! When a terminal draws attention to itself: a question waits, or a long turn has ended. Pure.

use linger_protocol::event::{Event, EventBody, Notice, NoticeCode, TurnFinished};
use linger_protocol::message::StopReason;

/// The shortest turn whose end is signalled, in milliseconds: a person waits for a shorter one.
const LONG_TURN: u64 = 10_000;

/// The shortest time between two signals, in milliseconds: a person who answers one question after the other is there.
const GAP: u64 = 10_000;

/// The last signal, and the start of the turn.
#[derive(Debug, Default)]
pub(crate) struct Attention {
    started_at: Option<u64>,
    signalled_at: u64,
}

impl Attention {
    /// Takes the next event; what is to be said, if something is. `live` is false for what is repeated.
    pub(crate) fn event(&mut self, event: &Event, live: bool) -> Option<&'static str> {
        let text = match &event.body {
            EventBody::TurnStarted { .. } | EventBody::Notice(Notice { code: Some(NoticeCode::Resumed), .. }) => {
                self.started_at = Some(event.at);
                None
            }
            EventBody::PermissionRequested(_) | EventBody::QuestionAsked { .. } => Some("needs an answer"),
            EventBody::TurnFinished(TurnFinished { stop_reason, .. }) => {
                let took = event.at.saturating_sub(self.started_at.take().unwrap_or(event.at));
                match stop_reason {
                    StopReason::Cancelled => None,
                    _ if took < LONG_TURN => None,
                    StopReason::EndTurn => Some("has finished"),
                    _ => Some("has stopped"),
                }
            }
            _ => None,
        };
        let text = text.filter(|_| live && event.at.saturating_sub(self.signalled_at) >= GAP)?;
        self.signalled_at = event.at;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use linger_protocol::event::Notification;
    use serde_json::{Value, json};

    use super::*;

    fn event(at: u64, body: Value) -> Event {
        let mut body = body;
        body["at"] = at.into();
        let notification = json!({ "session": "s1", "cursor": "1", "event": body });
        serde_json::from_value::<Notification>(notification).unwrap().event
    }

    #[test]
    fn a_question_and_the_end_of_a_long_turn_are_signalled_and_no_burst() {
        let mut attention = Attention::default();
        let mut check = |at, body, expect| assert_eq!(attention.event(&event(at, body), true), expect, "{at}");
        let started = || json!({ "kind": "turn_started", "prompt": "p1" });
        let finished = |why: &str| json!({ "kind": "turn_finished", "stop_reason": why, "usage": {}, "steps": 1 });
        let asked = || {
            let asked = json!({ "kind": "choice", "blocks": "turn", "text": "?", "digest": "d" });
            json!({ "kind": "question_asked", "question": "q1", "asked": asked })
        };
        check(100_000, started(), None);
        check(105_000, asked(), Some("needs an answer"));
        check(106_000, asked(), None);
        check(120_000, finished("end_turn"), Some("has finished"));
        check(130_000, started(), None);
        check(135_000, finished("end_turn"), None);
        check(140_000, started(), None);
        check(190_000, finished("cancelled"), None);
        check(200_000, started(), None);
        check(230_000, finished("error"), Some("has stopped"));
        assert_eq!(Attention::default().event(&event(300_000, asked()), false), None);
    }
}
