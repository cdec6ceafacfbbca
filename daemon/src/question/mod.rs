//! Questions other than permissions: their bounds, and which session asks.
//!
//! A question is state of the session that asks it, or of the daemon's own log: the actor records it, holds back what it blocks,
//! and takes the one answer. Deliberately absent: which calls need a permission ([`crate::question::permission`]), and authority (`service`).

mod pending;
pub mod permission;

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::id::CallId;
use linger_protocol::question::{Action, Blocks, PendingQuestion, Question, QuestionKind, QuestionOption};
use serde_json::{Value, json};

use crate::provider::schema;
pub use pending::PendingQuestions;

/// The longest text of a question, in bytes: a list of changes may take some pages.
const MAX_TEXT: usize = 64 << 10;

/// The most options of a choice: users read them all.
const MAX_OPTIONS: usize = 32;

/// The longest name or label of an option, in bytes: a line of a terminal.
const MAX_OPTION: usize = 256;

/// The most open questions of one session, or of the daemon's log: twice the calls of a step.
pub const MAX_OPEN: usize = 256;

/// Makes a choice question.
pub fn choice(text: impl Into<String>, options: Vec<QuestionOption>, blocks: Blocks, call: Option<CallId>) -> Question {
    let text = text.into();
    let digest = permission::hash(&json!({ "kind": "choice", "options": options, "text": text }));
    Question {
        kind: QuestionKind::Choice,
        blocks,
        call,
        about: None,
        text,
        options,
        schema: None,
        permission: None,
        digest,
    }
}

/// The answer that gives the fields of a form.
pub const ACCEPT: &str = "accept";

/// The answer to a form that gives nothing.
pub const DECLINE: &str = "decline";

/// Makes a form question: the fields of `schema`.
pub fn form(text: impl Into<String>, schema: Value, blocks: Blocks, call: Option<CallId>) -> Question {
    let text = text.into();
    let digest = permission::hash(&json!({ "kind": "form", "schema": schema, "text": text }));
    let options = vec![QuestionOption::new(ACCEPT, "Give the fields"), QuestionOption::new(DECLINE, "Give nothing")];
    let (kind, schema) = (QuestionKind::Form, Some(schema));
    Question { kind, blocks, call, about: None, text, options, schema, permission: None, digest }
}

/// By what a question is resolved that no person answered.
pub const UNATTENDED: &str = "unattended";

/// Whether the digest of a permission is that of what is shown.
pub fn is_as_shown(question: &PendingQuestion) -> bool {
    let shown = |action: &Action| permission::digest(&action.tool, &action.input, &action.cwd);
    question.asked.permission.as_ref().is_none_or(|action| shown(action) == question.asked.digest)
}

/// Checks that the fields of an answer are what a question with this schema wants.
pub fn check_value(schema: Option<&Value>, answer: &str, value: Option<&Value>) -> Result<(), String> {
    match (schema.filter(|_| answer == ACCEPT), value) {
        (None, None) => Ok(()),
        (None, Some(_)) => Err(format!("the answer '{answer}' has no value")),
        (Some(_), None) => Err("the form wants a value".to_owned()),
        (Some(schema), Some(value)) => schema::fits(schema, value),
    }
}

/// Validates a question: its size, its text and its options.
pub fn check(question: &Question) -> Result<(), RpcError> {
    let refuse = |what: String| Err(RpcError::new(Code::TooMuch, what));
    if question.text.len() > MAX_TEXT {
        return refuse(format!("a question may have {MAX_TEXT} bytes"));
    }
    if let Some(schema) = &question.schema {
        schema::check(schema).map_err(|why| RpcError::new(Code::BadSchema, format!("the form's schema: {why}")))?;
    }
    if question.options.len() > MAX_OPTIONS {
        return refuse(format!("a question may have {MAX_OPTIONS} options"));
    }
    if question.options.iter().any(|option| option.name.len() > MAX_OPTION || option.label.len() > MAX_OPTION) {
        return refuse(format!("an option may have {MAX_OPTION} bytes"));
    }
    let names: Vec<&str> = question.options.iter().map(|option| option.name.as_str()).collect();
    let distinct =
        names.iter().enumerate().all(|(n, name)| !name.is_empty() && !names.iter().take(n).any(|it| it == name));
    if question.text.trim().is_empty() || names.is_empty() || !distinct {
        return Err(RpcError::new(Code::Internal, "a question needs a text, and options with names of their own"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(names: &[&str]) -> Vec<QuestionOption> {
        names.iter().map(|name| QuestionOption::new(name, &name.to_uppercase())).collect()
    }

    #[test]
    fn a_choice_has_a_text_and_options_that_can_be_told_apart() {
        let check = |text: &str, names: &[&str]| check(&choice(text, options(names), Blocks::Nothing, None));
        assert_eq!(check("go on?", &["yes", "no"]), Ok(()));
        for (text, names) in [(" ", &["yes"][..]), ("go on?", &[]), ("go on?", &["yes", "yes"]), ("go on?", &[""])] {
            assert_eq!(check(text, names).unwrap_err().code(), Some(Code::Internal), "{text} {names:?}");
        }
        let long = "x".repeat(MAX_OPTION + 1);
        let many: Vec<String> = (0..=MAX_OPTIONS).map(|n| n.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for (text, names) in [("x".repeat(MAX_TEXT + 1).as_str(), &["yes"][..]), ("x", &[&long]), ("x", &many)] {
            assert_eq!(check(text, names).unwrap_err().code(), Some(Code::TooMuch));
        }
    }

    #[test]
    fn the_digest_is_of_what_is_shown() {
        let digest = |text: &str, names: &[&str]| choice(text, options(names), Blocks::Nothing, None).digest;
        let one = digest("go on?", &["yes", "no"]);
        assert!(one.starts_with("sha256:"), "{one}");
        assert_eq!(one, digest("go on?", &["yes", "no"]));
        assert_ne!(one, digest("go on?", &["yes"]));
        assert_ne!(one, digest("go on!", &["yes", "no"]));
    }
}
