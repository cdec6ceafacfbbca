//! The questions of a server, and the calls that they belong to.
//!
//! Over HTTP the stream tells. Over standard input nothing does: with several open calls a question is held until one is left, until
//! each of them has asked, or until it has waited for long.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep};

use super::{CallEvent, Channel, Peer, ServerRequest};
use crate::sys::task;

/// Questions of a server that wait until it is known which call they belong to, at most.
const MAX_HELD: usize = 16;

/// How long such a question waits; then it is asked in a session that may be another's.
const HOLD: Duration = Duration::from_secs(60);

/// A question of which it is not known which call it belongs to.
#[derive(Debug)]
pub(super) struct HeldQuestion {
    pub(super) id: Value,
    method: String,
    params: Value,
    /// When it waits no longer.
    until: Instant,
}

impl HeldQuestion {
    pub(super) fn new(id: Value, method: String, params: Value) -> Self {
        Self { id, method, params, until: Instant::now() + HOLD }
    }
}

impl Peer {
    /// Asks a question where it belongs: by the stream that it came on, or because only one call is open. Else it is held.
    pub(super) fn question(&self, question: HeldQuestion, channel: Channel) {
        let of_stream = match channel {
            Channel::StreamOf(id) | Channel::ReplyTo(id) => {
                self.state().open.get(&id).and_then(|open| open.events.clone())
            }
            Channel::Shared => None,
        };
        if let Some(events) = of_stream {
            return self.ask_in(&events, question, true);
        }
        let id = question.id.clone();
        {
            let mut state = self.state();
            if state.held.len() >= MAX_HELD {
                drop(state);
                return self.refuse(id, -32603, "too many questions wait");
            }
            state.held.push(question);
        }
        self.release();
        if self.state().held.iter().any(|held| held.id == id) {
            let peer = self.clone();
            task::spawn(async move {
                sleep(HOLD).await;
                peer.release();
            });
        }
    }

    /// Asks the held questions of which it is known by now which call they belong to: one call is left, or each open call has one.
    /// One that has waited long is asked as well as can be.
    pub(super) fn release(&self) {
        let (asked, refused) = {
            let mut state = self.state();
            if state.held.is_empty() {
                return;
            }
            let mut calls: Vec<(u64, mpsc::Sender<CallEvent>)> =
                state.open.iter().filter_map(|(id, open)| Some((*id, open.events.clone()?))).collect();
            calls.sort_by_key(|(id, _)| *id);
            let now = Instant::now();
            let held = std::mem::take(&mut state.held);
            match calls.len() {
                0 => (Vec::new(), held),
                open => {
                    let is_due = open == 1 || held.len() >= open;
                    let (due, left): (Vec<_>, Vec<_>) = held.into_iter().partition(|it| is_due || it.until <= now);
                    state.held = left;
                    // Calls and questions come in the same order, most likely.
                    let calls = calls.into_iter().map(|(_, events)| events).cycle();
                    (
                        due.into_iter().zip(calls).map(|(question, events)| (question, events, open == 1)).collect(),
                        Vec::new(),
                    )
                }
            }
        };
        for (question, events, is_certain) in asked {
            self.ask_in(&events, question, is_certain);
        }
        for question in refused {
            self.refuse(question.id, -32603, "the question belongs to no call");
        }
    }

    fn ask_in(&self, events: &mpsc::Sender<CallEvent>, question: HeldQuestion, is_certain: bool) {
        let HeldQuestion { id, method, params, .. } = question;
        let (reply, answer) = oneshot::channel();
        let asked = CallEvent::Asked(ServerRequest { method, params, is_certain, reply });
        const LATE: &str = "the question cannot be asked now";
        if events.try_send(asked).is_err() {
            return self.refuse(id, -32603, LATE);
        }
        let peer = self.clone();
        task::spawn(async move {
            match answer.await {
                Ok(answer) => peer.say(&json!({ "jsonrpc": "2.0", "id": id, "result": answer })),
                Err(_) => peer.refuse(id, -32603, LATE),
            }
        });
    }
}
