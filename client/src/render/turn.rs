//! The end of a turn: why it ended, what it took, and how long to wait for the next try.

use linger_protocol::event::{EventBody, TurnFinished};
use linger_protocol::message::StopReason;

use super::renderer::Renderer;
use super::words::{reason, summary};
use super::{money, table};
use crate::terminal::{Output, clean_line};

impl Renderer {
    pub(super) fn turn_finished(&mut self, body: &EventBody, out: &mut Vec<Output>) {
        let EventBody::TurnFinished(TurnFinished {
            stop_reason,
            detail,
            hint,
            until_at,
            usage,
            session_usage,
            context_tokens,
            context_window,
            steps,
            ..
        }) = body
        else {
            return;
        };
        self.busy = false;
        self.wait = until_at.map(|until| (until, false));
        self.end_cut(out);
        let fill = money::fill(*context_tokens, *context_window);
        let fill = fill.map(|fill| format!("context: {fill}")).unwrap_or_default();
        let mut spent = vec![summary(usage, session_usage.as_ref(), *steps), fill];
        spent.retain(|part| !part.is_empty());
        // It was said when the compaction failed.
        let known = self.not_compacted.take();
        let detail = detail.as_deref().filter(|detail| known.as_deref() != Some(*detail));
        self.say_end(*stop_reason, detail, &spent.join("; "), out);
        if let Some(hint) = hint.as_deref().filter(|_| *stop_reason != StopReason::EndTurn) {
            self.say(&format!("hint: {}", clean_line(hint)), out);
        }
    }

    pub(super) fn caught_up(&mut self, now: u64, out: &mut Vec<Output>) {
        self.replaying = false;
        self.still_waits(now, out);
    }

    /// The rest of a wait that was announced before this client attached.
    fn still_waits(&mut self, now: u64, out: &mut Vec<Output>) {
        let Some((until, continues)) = self.wait.take().filter(|(until, _)| *until > now) else { return };
        let line = if continues {
            format!("next attempt in {} s", (until - now).div_ceil(1000))
        } else {
            format!("the provider asks to wait another {}", table::age(now, until))
        };
        self.say(&self.settings.style.dim(&line), out);
    }

    fn say_end(&mut self, stop_reason: StopReason, detail: Option<&str>, spent: &str, out: &mut Vec<Output>) {
        self.end_text(out);
        self.fresh_line(out);
        self.block = None;
        self.calls.clear();
        let style = self.settings.style;
        if stop_reason != StopReason::EndTurn {
            let line = match (reason(stop_reason), detail.map(clean_line)) {
                (reason, None) => reason.to_owned(),
                // The detail is more exact.
                (reason, Some(detail)) => format!("{}: {detail}", reason.split(':').next().unwrap_or(reason)),
            };
            self.say(&if stop_reason == StopReason::Cancelled { style.dim(&line) } else { style.red(&line) }, out);
        }
        if self.settings.usage && !spent.is_empty() {
            self.say(&style.dim(spent), out);
        }
    }
}
