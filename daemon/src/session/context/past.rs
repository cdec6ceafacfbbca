//! The history that an actor keeps for its next turn.

use linger_protocol::event::{Event, EventBody};

use super::Builder;

/// The longest history that is kept between turns, in bytes of events. Reading a longer one at each
/// turn takes little time compared with the model.
pub(in crate::session) const KEPT: usize = 64 << 10;

/// A history, read or followed.
#[derive(Clone, Debug, Default)]
pub struct Past {
    pub(in crate::session) builder: Builder,
    /// The seq of its last event.
    pub(in crate::session) after: u64,
    /// The length of the events in it, in bytes.
    pub(in crate::session) bytes: usize,
}

impl Past {
    /// Adds the next event, of `bytes`. Drops everything if an event was missed or the history is too
    /// long.
    pub fn follow(&mut self, event: &Event, bytes: usize) {
        let Some(seq) = event.seq.filter(|seq| *seq == self.after + 1) else { return };
        if let EventBody::Rewound(_) | EventBody::Uncompacted(_) = &event.body {
            // What counts again is read.
            *self = Self::default();
            return;
        }
        if super::is_read(&event.body) {
            if self.bytes + bytes > KEPT {
                *self = Self::default();
                return;
            }
            self.builder.event(event.clone());
            self.bytes += bytes;
        }
        self.after = seq;
    }

    /// A history read by a turn; no relevant events follow it up to `head`.
    pub fn up_to(self, head: u64) -> Self {
        Self { after: head, ..self }
    }
}
