//! The open questions of a session, and the effect of a key or a line on the first of them.

use linger_protocol::event::{Event, EventBody, PermissionResolved, QuestionResolved};
use linger_protocol::id::QuestionId;
use linger_protocol::permission::Decision;
use linger_protocol::question::Answer;

use super::one::{Press, Question};
use crate::connect::Client;
use crate::difference::Differences;
use crate::error::Failure;

/// The questions of a session that are open, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    pub(super) open: Vec<Question>,
    /// Whether an answer can be written here.
    pub(super) writes: bool,
}

impl Questions {
    /// None yet, where an answer can be written.
    pub(crate) fn with_lines() -> Self {
        Self { open: Vec::new(), writes: true }
    }

    /// Keeps up with an event; whether the open question is another now.
    pub(crate) fn event(&mut self, event: &Event) -> bool {
        let before = self.first().map(|question| question.id.clone());
        let writes = self.writes;
        self.open.extend(Question::of_event(event).map(|question| Question { writes, ..question }));
        match &event.body {
            EventBody::PermissionResolved(PermissionResolved { permission: question, .. })
            | EventBody::QuestionResolved(QuestionResolved { question, .. }) => self.remove(question),
            EventBody::TurnFinished(_) => self.open.retain(|question| !question.holds_up),
            _ => {}
        }
        before.as_ref() != self.first().map(|question| &question.id)
    }

    /// The one to be asked.
    pub(crate) fn first(&self) -> Option<&Question> {
        self.open.iter().find(|question| !question.answered)
    }

    /// Whether a call or the turn waits for an answer.
    pub(crate) fn hold_up(&self) -> bool {
        self.open.iter().any(|question| question.holds_up && !question.answered)
    }

    /// Whether a key means something for the first question.
    pub(crate) fn has(&self, key: char) -> bool {
        self.first().is_some_and(|question| question.answers().contains(key))
    }

    /// Presses a key for the first question; one that is answered makes room for the next.
    pub(crate) fn press(&mut self, key: char) -> Result<Press, Failure> {
        let means = self.has(key);
        let first = self.open.iter_mut().find(|question| !question.answered);
        let Some(question) = first.filter(|_| means) else { return Ok(Press::Nothing) };
        match key {
            _ if question.is_cut() && "yYsSaAeE".contains(key) => return Ok(Press::NotYet),
            'w' | 'W' => return Ok(Press::Write),
            '?' => return Ok(Press::Help),
            'e' | 'E' => return Ok(Press::Edits),
            'r' | 'R' => return Ok(Press::Reason),
            'A' if question.writes => return Ok(Press::Rule(question.grant())),
            _ => {}
        }
        let Some(name) = question.option(key).map(str::to_owned) else {
            question.whole = true;
            return Ok(Press::Show);
        };
        let answer = question.answer(name, None)?;
        question.answered = true;
        Ok(Press::Answer(answer))
    }

    /// The answer that was written to the first question, if that is still `id`.
    pub(crate) fn write(&mut self, id: &QuestionId, line: &str) -> Result<Option<Answer>, Failure> {
        let first = self.open.iter_mut().find(|question| !question.answered);
        let Some(question) = first.filter(|question| question.id == *id) else { return Ok(None) };
        let answer = Answer { value: question.fields(line)?, ..question.answer("accept".to_owned(), None)? };
        question.answered = true;
        Ok(Some(answer))
    }

    /// Denies the first question for a reason that was written, if that is still `id`.
    pub(crate) fn deny(&mut self, id: &QuestionId, reason: &str) -> Result<Option<Answer>, Failure> {
        let first = self.open.iter_mut().find(|question| !question.answered);
        let Some(question) = first.filter(|question| question.id == *id) else { return Ok(None) };
        let answer = question.answer(Decision::RejectOnce.name().to_owned(), Some(reason.to_owned()))?;
        question.answered = true;
        Ok(Some(answer))
    }

    /// Allows the first question always, by rules that were written, if that is still `id`.
    pub(crate) fn always(&mut self, id: &QuestionId, rules: &str) -> Result<Option<Answer>, Failure> {
        let first = self.open.iter_mut().find(|question| !question.answered);
        let Some(question) = first.filter(|question| question.id == *id) else { return Ok(None) };
        let answer = question.answer(Decision::AllowAlways.name().to_owned(), None)?;
        question.answered = true;
        Ok(Some(Answer { rules: split_rules(rules), ..answer }))
    }

    /// Fetches what the change of the first question would do. What cannot be fetched is not shown; then its arguments are.
    pub(crate) fn fetch_differences(&mut self, client: &mut Client) {
        let Some(question) = self.open.iter_mut().find(|question| !question.answered) else { return };
        if !question.is_edit() {
            return;
        }
        question.differences = Differences::of(client, std::mem::take(&mut question.changes));
    }

    /// The daemon did not take an answer: the question is still to be asked.
    pub(crate) fn reopen(&mut self, id: &QuestionId) {
        for question in self.open.iter_mut().filter(|question| question.id == *id) {
            question.answered = false;
        }
    }

    /// Takes a question off, once it is answered.
    pub(crate) fn remove(&mut self, id: &QuestionId) {
        self.open.retain(|question| question.id != *id);
    }
}

/// The rules of a line: several stand with `and` between them, as they are shown.
fn split_rules(line: &str) -> Vec<String> {
    let mut rules: Vec<String> = line.split(") and ").map(|rule| format!("{})", rule.trim())).collect();
    if let Some(last) = rules.last_mut() {
        last.pop();
    }
    rules
}
