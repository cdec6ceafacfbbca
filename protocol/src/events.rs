//! The events of all sessions, in one stream with one cursor: parameters, results and notifications of `events/*`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::VariantNames as _;

use crate::event::{Event, EventBody};
use crate::id::{Cursor, SessionId};

/// The method name of the notification that carries an event of any session.
pub const EVENTS_EVENT: &str = "events/event";

/// The value of `after` for a stream of new events only.
pub const NOW: &str = "now";

/// The value of `kinds` for all kinds.
pub const ALL_KINDS: &str = "*";

/// The kinds that a subscription without `kinds` has: sessions that come to be and change, their turns, and their questions.
pub const USUAL_KINDS: [&str; 8] = [
    "session_created",
    "session_changed",
    "turn_started",
    "turn_finished",
    "permission_requested",
    "permission_resolved",
    "question_asked",
    "question_resolved",
];

/// The kinds that are never stored: parts of messages, and what is for one reader only.
const NEVER_STORED: [&str; 7] =
    ["text_delta", "thinking_delta", "hosted_delta", "tool_call_delta", "tool_output_delta", "caught_up", "unknown"];

/// The kinds of stored events.
pub fn stored_kinds() -> impl Iterator<Item = &'static str> {
    EventBody::VARIANTS.iter().copied().filter(|kind| !NEVER_STORED.contains(kind))
}

/// `events/subscribe`: send the events of all sessions after a cursor, and all that follow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Subscribe {
    /// Only these sessions; all that the caller may read when absent, and the daemon's own log under the id `daemon`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Vec<SessionId>>,
    /// Only these kinds, `["*"]` for all of them; when absent sessions that come to be or change, turns and questions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<Vec<String>>,
    /// Where to read on from: a cursor of this stream, or `now`; from the beginning when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Cursor>,
}

/// The result of `events/subscribe`; events follow it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Subscribed {
    /// Where the stream begins: the cursor after which events follow.
    pub cursor: Cursor,
}

/// The `params` of an `events/event` notification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AnyNotification")]
pub struct Notification {
    /// The session that the event belongs to; absent for `caught_up`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Where to read on from after this event. It is none of `session/attach`.
    pub cursor: Cursor,
    /// The event itself.
    pub event: Event,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_kinds_are_stored_and_what_is_never_stored_is_a_kind() {
        assert!(USUAL_KINDS.iter().all(|kind| stored_kinds().any(|stored| stored == *kind)));
        assert!(NEVER_STORED.iter().all(|kind| EventBody::VARIANTS.contains(kind)));
    }
}
