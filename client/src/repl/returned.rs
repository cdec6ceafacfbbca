//! The queued prompts of this client after it has cancelled the turn: they come back into the line, before what was being typed.
//!
//! The daemon makes drafts of them together with the end of the turn. Each is then taken back by a request of its own, and comes into
//! the line only when that has succeeded: a draft that another client has sent meanwhile is not there twice. Until all are answered no
//! line is read; what is typed meanwhile is read then.

use linger_protocol::id::PromptId;
use linger_protocol::session::Unqueue;

use super::state::Repl;
use crate::error::Failure;
use crate::follow::Request;
use crate::idempotency::key;

impl Repl {
    /// Cancels the turn. `line`: the unfinished line, if no line is being read.
    pub(super) fn cancel_and_take_back(&mut self, line: Option<String>) -> Result<(), Failure> {
        self.returning.get_or_insert_default().line = line;
        self.cancel()
    }

    /// The editor has given up this line, because a key was pressed that stops the turn.
    pub(super) fn line_stopped(&mut self, line: String) {
        match &mut self.returning {
            Some(returning) => returning.line = Some(line),
            None => self.keys.begin_with(line),
        }
    }

    /// The cancel is answered.
    pub(super) fn cancel_answered(&mut self) {
        if let Some(returning) = &mut self.returning {
            returning.cancelled = true;
        }
    }

    /// Asks for our drafts, once the turn is over.
    pub(super) fn ask_back(&mut self) -> Result<(), Failure> {
        if self.returning.is_none() || self.turn.running.is_some() {
            return Ok(());
        }
        for (prompt, typed) in self.prompts.take_to_come_back() {
            let session = self.attachment.session.clone();
            self.attachment.request(Request::Unqueue(Unqueue {
                session,
                prompt: Some(prompt.clone()),
                key: Some(key()?),
            }))?;
            self.prompts.ask_back(prompt.clone());
            self.returning.get_or_insert_default().asked.push((prompt, typed, None));
        }
        Ok(())
    }

    /// A request for one of our drafts is answered.
    pub(super) fn came_back(&mut self, prompt: Option<&PromptId>, is_back: bool) {
        if let Some(prompt) = prompt.filter(|_| !is_back) {
            self.prompts.not_back(prompt);
        }
        let asked = self.returning.iter_mut().flat_map(|returning| &mut returning.asked);
        for (of, _, answer) in asked {
            if Some(&*of) == prompt {
                *answer = Some(is_back);
            }
        }
    }

    /// Opens the prompt with what came back, once everything is answered.
    pub(super) fn reopen_line(&mut self) -> Result<(), Failure> {
        let is_over = self.returning.as_ref().is_some_and(|returning| {
            let is_answered = returning.cancelled && returning.asked.iter().all(|(.., answer)| answer.is_some());
            is_answered && returning.line.is_some() && self.turn.running.is_none() && self.prompts.all_answered()
        });
        let Some(returning) = self.returning.take_if(|_| is_over) else { return Ok(()) };
        let back: Vec<_> = returning.asked.into_iter().filter(|(.., answer)| *answer == Some(true)).collect();
        let count = back.len();
        let mut lines = Vec::new();
        for (_, typed, _) in back {
            lines.push(typed.line);
            self.ran.extend(typed.ran);
        }
        lines.extend(returning.line.filter(|line| !line.is_empty()));
        match count {
            0 => {}
            1 => self.say("1 queued prompt is back in the line")?,
            more => self.say(&format!("{more} queued prompts are back in the line"))?,
        }
        self.keys.begin_with(lines.join("\n\n"));
        self.open_prompt()?;
        self.show_live()
    }
}
