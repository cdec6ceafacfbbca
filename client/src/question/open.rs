//! The open questions of a session, and the effect of a key or a line on the first of them.

use linger_protocol::event::{Event, EventBody, PermissionResolved, QuestionResolved};
use linger_protocol::id::QuestionId;
use linger_protocol::permission::Decision;
use linger_protocol::question::Answer;

use super::one::{Press, Question};
use crate::connect::Client;
use crate::difference::Differences;
use crate::error::Failure;
use crate::render::style::Style;

/// The questions of a session that are open, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    pub(super) open: Vec<Question>,
    /// Whether an answer can be written here.
    pub(super) writes: bool,
    /// The questions of one answer of the model that were shown whole, and that one key allows; none unless that was asked for.
    pub(super) rest: Vec<QuestionId>,
}

/// The keys while the rest of an answer is shown.
const REST: &str = "yYnN";

impl Questions {
    /// None yet, where an answer can be written.
    pub(crate) fn with_lines() -> Self {
        Self { writes: true, ..Self::default() }
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
        let is_other = before.as_ref() != self.first().map(|question| &question.id);
        if is_other {
            self.rest.clear();
        }
        is_other
    }

    /// The one to be asked.
    pub(crate) fn first(&self) -> Option<&Question> {
        self.open.iter().find(|question| !question.answered)
    }

    /// Whether a call or the turn waits for an answer.
    pub(crate) fn hold_up(&self) -> bool {
        self.open.iter().any(|question| question.holds_up && !question.answered)
    }

    /// Whether a key means something now.
    pub(crate) fn has(&self, key: char) -> bool {
        self.answers().contains(key)
    }

    /// The keys that mean something now.
    pub(crate) fn answers(&self) -> &'static str {
        if self.rest.is_empty() { self.first().map_or("", Question::answers) } else { REST }
    }

    /// The first question for people, or all that one key allows.
    pub(crate) fn text(&self, style: &Style) -> String {
        if self.rest.is_empty() {
            return self.first().map(|question| question.text(style)).unwrap_or_default();
        }
        self.of_rest().map(|question| question.text(style)).collect()
    }

    /// The line that says which keys there are.
    pub(crate) fn keys(&self, style: &Style, prompt: bool) -> String {
        if self.rest.is_empty() {
            // Those behind the first may be on their way.
            let is_begun = self.first().and_then(Question::position).is_some_and(|its| its.number == 1 && its.of > 1);
            let has_rest = is_begun || self.of_first().count() > 1;
            return self.first().map(|question| question.keys(style, prompt, has_rest)).unwrap_or_default();
        }
        let [y, n] = ["y", "n"].map(|key| style.bold(key));
        let (count, enter) = (self.of_rest().count(), if prompt { ", then Enter" } else { "" });
        format!("{y} allow these {count}, this once  {n} back to the first{enter}\n")
    }

    /// The help for the keys of the first question.
    pub(crate) fn help(&self) -> String {
        self.first().map(|question| question.help() + "\n").unwrap_or_default()
    }

    /// The reply to typed text that is no answer.
    pub(crate) fn unanswered(&self, style: &Style) -> String {
        let dropped = style.dim("ignored: press one of these keys alone; Ctrl-C cancels the turn");
        format!("{dropped}\n{}", self.keys(style, false))
    }

    /// The open questions of the same answer of the model as the first one, which is among them.
    fn of_first(&self) -> impl Iterator<Item = &Question> {
        let first = self.first().and_then(Question::position).map(|position| &position.first);
        let is_same = move |question: &&Question| {
            !question.answered && first.is_some() && question.position().map(|it| &it.first) == first
        };
        self.open.iter().filter(is_same)
    }

    /// The open questions that were shown to be allowed by one key.
    fn of_rest(&self) -> impl Iterator<Item = &Question> {
        self.open.iter().filter(|question| !question.answered && self.rest.contains(&question.id))
    }

    /// Handles a key while the rest of an answer is shown.
    fn press_rest(&mut self, key: char) -> Result<Press, Failure> {
        let rest = std::mem::take(&mut self.rest);
        if !"yY".contains(key) {
            return Ok(Press::Show);
        }
        let mut answers = Vec::new();
        for question in self.open.iter_mut().filter(|question| !question.answered && rest.contains(&question.id)) {
            answers.push(question.answer(Decision::AllowOnce.name().to_owned(), None)?);
            question.answered = true;
        }
        Ok(Press::Answers(answers))
    }

    /// Presses a key for the first question; one that is answered makes room for the next.
    pub(crate) fn press(&mut self, key: char) -> Result<Press, Failure> {
        let means = self.has(key);
        if means && !self.rest.is_empty() {
            return self.press_rest(key);
        }
        if means && "tT".contains(key) && self.first().is_some_and(|question| question.option(key).is_none()) {
            self.rest = self.of_first().map(|question| question.id.clone()).collect();
            for question in self.open.iter_mut().filter(|question| self.rest.contains(&question.id)) {
                question.whole = true;
            }
            return Ok(Press::Rest);
        }
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

    /// Fetches what the changes of the questions to be shown would do: of the first one, or of all that one key allows. What cannot be
    /// fetched is not shown; then its arguments are.
    pub(crate) fn fetch_differences(&mut self, client: &mut Client) {
        let Some(first) = self.first().map(|question| question.id.clone()) else { return };
        let is_shown = |question: &&mut Question| question.id == first || self.rest.contains(&question.id);
        for question in self.open.iter_mut().filter(is_shown) {
            if question.is_edit() && !question.changes.is_empty() {
                question.differences = Differences::of(client, std::mem::take(&mut question.changes));
            }
        }
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
