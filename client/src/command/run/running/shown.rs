//! The output of `linger run`: the streaming or final answer, the status row, the cost.

use std::time::Instant;

use linger_protocol::event::{Event, EventBody, Level, MessageAdded, Notice, Trimmed};
use linger_protocol::message::StopReason;
use serde_json::Value;

use super::{Data, Running, TICK};
use crate::environment::now;
use crate::error::{Exit, Failure};
use crate::terminal::{Output, size, terminal_width};

impl Running {
    /// Redraws the status row while our turn runs without a question; returns when to redraw.
    pub(super) fn show_live(&mut self) -> Result<Option<Instant>, Failure> {
        if !self.status {
            return Ok(None);
        }
        let runs = self.turn.is_some() && self.questions.first().is_none();
        // Streaming text shows progress, and would erase the row at once.
        let silent = self.printed.elapsed();
        if runs && silent < TICK {
            return Ok(Some(self.printed + TICK));
        }
        let rows = if runs { self.live.rows(now(), size().columns, 0, false, "Ctrl-C stops") } else { Vec::new() };
        self.terminal.set_live(rows)?;
        Ok(runs.then(|| Instant::now() + TICK))
    }

    pub(super) fn show(&mut self, event: &Event) -> Result<(), Failure> {
        let ends = matches!(event.body, EventBody::TurnFinished(_));
        // stdout cannot be erased: stderr says that the text was cut and is repeated.
        let cut = matches!(
            event.body,
            EventBody::Message(MessageAdded { interrupted: true, .. }) | EventBody::MessageSuperseded { .. }
        );
        // The model answers without the images.
        let blind = matches!(&event.body, EventBody::Trimmed(Trimmed { images, .. }) if !images.is_empty());
        // For example a wait and its end.
        let warned = matches!(event.body, EventBody::Notice(Notice { level: Level::Warning | Level::Error, .. }));
        let told = ends || blind || warned || (cut && self.data == Data::Stream);
        self.renderer.set_width(terminal_width());
        let output = self.renderer.event(event).into_iter().filter(|output| match output {
            Output::Text(_) => self.data == Data::Stream,
            // Scripts get only the end, waits, missing images, and notes about repeated text.
            Output::Talk(_) => self.capabilities.stderr || told,
        });
        let output: Vec<Output> = output.collect();
        if !output.is_empty() {
            self.printed = Instant::now();
        }
        Ok(self.terminal.print(output)?)
    }

    pub(super) fn finished(&mut self, stop_reason: StopReason, answer: Option<&Value>) -> Result<Exit, Failure> {
        if let (Data::Answer, Some(answer)) = (self.data, answer) {
            self.terminal.data(&answer.to_string())?;
        }
        if self.data == Data::Final {
            // People read this field of an agent's schema.
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

    /// Prints session and cost on a terminal, so that a person can continue the session.
    pub(super) fn say_spent(&mut self, spent: &str) -> Result<(), Failure> {
        if self.data != Data::Stream || !self.capabilities.stdout || !self.capabilities.stderr {
            return Ok(());
        }
        self.fresh_line()?;
        let spent = if spent.is_empty() { String::new() } else { format!(": {spent}") };
        let line = format!("session {}{spent}", self.attachment.session);
        Ok(self.terminal.talk(&format!("{}\n", self.renderer.style().dim(&line)))?)
    }

    /// The text of the last answer, including the answers it continues.
    pub(super) fn final_text(&self) -> String {
        let before = self.messages.len().saturating_sub(1);
        let continued = self.messages.iter().take(before).rev().take_while(|(.., cut)| *cut).count();
        self.messages.iter().skip(before - continued).map(|(_, text, _)| text.as_str()).collect()
    }

    pub(super) fn fresh_line(&mut self) -> Result<(), Failure> {
        let mut output = Vec::new();
        self.renderer.fresh_line(&mut output);
        output.retain(|output| self.data == Data::Stream || matches!(output, Output::Talk(_)));
        Ok(self.terminal.print(output)?)
    }
}
