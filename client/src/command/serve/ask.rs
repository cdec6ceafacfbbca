//! Shows questions of sessions through the host, as a form (elicitation).
//!
//! The form shows the whole question; one that is too long waits for another client, and the wait says so.

use std::collections::BTreeMap;

use linger_protocol::error::Code;
use linger_protocol::id::QuestionId;
use linger_protocol::method::QuestionAnswer;
use linger_protocol::question::{Answer, PendingQuestion, QuestionKind};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::server::{Open, Server};
use crate::error::Failure;
use crate::idempotency::key;
use crate::terminal::clean_exact;

/// Bytes of a question in a form, at most: a person has to read it.
const MAX_QUESTION: usize = 16 << 10;

impl Server {
    /// Shows a question through the host, once. Returns whether it is shown.
    pub(super) fn put(&mut self, question: &PendingQuestion) -> Result<bool, Failure> {
        if self.questions.iter().any(|open| open.question == question.question) {
            return Ok(true);
        }
        let Some(form) = form(question) else { return Ok(false) };
        self.last += 1;
        let (request, id, digest) = (self.last, question.question.clone(), question.asked.digest.clone());
        let is_form = question.asked.kind == QuestionKind::Form;
        self.send(&json!({ "jsonrpc": "2.0", "id": request, "method": "elicitation/create", "params": form }))?;
        self.questions.push(Open { request, question: id, digest, is_form });
        Ok(true)
    }

    /// Handles the host's answer to one of our requests.
    pub(super) fn answered(&mut self, id: &Value, result: Option<Value>) -> Result<(), Failure> {
        let Some(at) = self.questions.iter().position(|open| id.as_u64() == Some(open.request)) else { return Ok(()) };
        let Open { question, digest, is_form, .. } = self.questions.remove(at);
        let form = ShownForm { digest, is_form };
        if !self.give(question, form, result.as_ref())? {
            // It waits for another client.
            self.waits.iter_mut().for_each(|wait| wait.refused = true);
        }
        self.check_waits()
    }

    /// Takes the answers that a call brings to the questions of an earlier result. True if a question was left unanswered.
    pub(super) fn answered_with(&mut self, params: &Value) -> Result<bool, Failure> {
        let state = params.get("requestState").and_then(Value::as_str).unwrap_or_default();
        // The state says what was shown; without it no answer counts.
        let shown: BTreeMap<String, ShownForm> = serde_json::from_str(state).unwrap_or_default();
        let mut refused = false;
        for (question, form) in shown {
            let result = params.get("inputResponses").and_then(|all| all.get(&question)).cloned();
            refused |= !self.give(question.as_str().into(), form, result.as_ref())?;
        }
        Ok(refused)
    }

    /// Gives the host's answer to a question. False if there is none, or it may not be given.
    fn give(&mut self, question: QuestionId, form: ShownForm, result: Option<&Value>) -> Result<bool, Failure> {
        let Some((answer, value, reason)) = result.and_then(|result| answer(result, form.is_form)) else {
            return Ok(false);
        };
        let (digest, key) = (Some(form.digest), Some(key()?));
        let answer = Answer { question, answer, value, reason, digest, rules: Vec::new(), key };
        // If another answer came first, the next check finds the question gone.
        let answered = self.client.call_raw(&QuestionAnswer(answer))?;
        // Without the right to answer, every answer is refused.
        Ok(!answered.is_err_and(|error| error.code() == Some(Code::NotAllowed)))
    }
}

/// A question that was shown, as the answer to it needs it.
#[derive(Debug, Serialize, Deserialize)]
struct ShownForm {
    digest: String,
    is_form: bool,
}

/// The result that has a host ask its user these questions and call again; `None` if none of them fits a form.
pub(super) fn input_required(questions: &[PendingQuestion]) -> Option<Value> {
    let (mut requests, mut shown) = (Map::new(), BTreeMap::new());
    for question in questions {
        let Some(form) = form(question) else { continue };
        let (id, is_form) = (question.question.to_string(), question.asked.kind == QuestionKind::Form);
        requests.insert(id.clone(), json!({ "method": "elicitation/create", "params": form }));
        shown.insert(id, ShownForm { digest: question.asked.digest.clone(), is_form });
    }
    let state = serde_json::to_string(&shown).ok().filter(|_| !shown.is_empty())?;
    Some(json!({ "resultType": "input_required", "inputRequests": requests, "requestState": state }))
}

/// Answer, fields and reason from the form; `None` if the user gave no answer.
fn answer(result: &Value, is_form: bool) -> Option<(String, Option<Value>, Option<String>)> {
    match (result["action"].as_str()?, is_form) {
        ("accept", true) => Some(("accept".to_owned(), Some(result["content"].clone()), None)),
        ("decline", true) => Some(("decline".to_owned(), None, None)),
        ("accept", false) => {
            let reason = result.pointer("/content/reason").and_then(Value::as_str).filter(|reason| !reason.is_empty());
            Some((result.pointer("/content/answer")?.as_str()?.to_owned(), None, reason.map(str::to_owned)))
        }
        _ => None,
    }
}

/// The form for a question; `None` if a form cannot show all of it.
fn form(question: &PendingQuestion) -> Option<Value> {
    let asked = &question.asked;
    let session = question.session.as_ref().map(ToString::to_string).unwrap_or_default();
    let text = match &asked.permission {
        Some(action) => {
            let input = serde_json::to_string_pretty(&action.input).ok()?;
            let (tool, what, cwd) = (&action.tool, &action.action, action.cwd.display());
            format!(
                "Session {session} asks to run {tool} in {cwd}:\n{what}\n\nArguments:\n{input}\n\nallow_always adds the rule {}",
                action.grant
            )
        }
        None => format!("Session {session} asks:\n{}", asked.text),
    };
    let message = clean_exact(&text);
    if message.len() > MAX_QUESTION {
        return None;
    }
    let schema = match (asked.kind, &asked.schema) {
        (QuestionKind::Form, Some(schema)) => schema.clone(),
        (QuestionKind::Permission | QuestionKind::Choice, _) => {
            let names: Vec<&str> = asked.options.iter().map(|option| option.name.as_str()).collect();
            json!({
                "type": "object",
                "properties": {
                    "answer": { "type": "string", "enum": names, "title": "Answer" },
                    "reason": { "type": "string", "title": "Reason (optional)" },
                },
                "required": ["answer"],
            })
        }
        _ => return None,
    };
    Some(json!({ "mode": "form", "message": message, "requestedSchema": schema }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(command: &str) -> PendingQuestion {
        serde_json::from_value(json!({
            "question": "q1", "session": "s1", "kind": "permission", "blocks": "call", "digest": "d", "at": 1, "permission": "q1",
            "options": [{ "name": "allow_once", "label": "allow once" }, { "name": "reject_once", "label": "deny" }],
            "tool": "bash", "action": command, "input": { "command": command }, "cwd": "/w", "grant": "bash(x)",
        }))
        .unwrap()
    }

    #[test]
    fn a_form_shows_the_whole_action_with_visible_control_characters_or_there_is_none() {
        let shown = form(&question("echo \u{1b}]0;x\u{7} hi")).unwrap();
        let message = shown["message"].as_str().unwrap();
        assert!(message.contains(" hi") && !message.contains('\u{1b}'), "{message}");
        assert_eq!(shown["requestedSchema"]["properties"]["answer"]["enum"], json!(["allow_once", "reject_once"]));
        assert_eq!(form(&question(&"x".repeat(MAX_QUESTION))), None);
    }

    #[test]
    fn a_host_without_a_handshake_asks_what_fits_a_form_and_calls_again_with_the_digests() {
        let wanted = input_required(&[question("echo hi"), question(&"x".repeat(MAX_QUESTION))]).unwrap();
        assert_eq!(wanted["inputRequests"]["q1"]["method"], "elicitation/create");
        let state: BTreeMap<String, ShownForm> =
            serde_json::from_str(wanted["requestState"].as_str().unwrap()).unwrap();
        assert_eq!((state["q1"].digest.as_str(), state["q1"].is_form), ("d", false));
        assert_eq!(input_required(&[question(&"x".repeat(MAX_QUESTION))]), None);
    }

    #[test]
    fn a_person_who_closes_the_form_has_given_no_answer() {
        assert_eq!(answer(&json!({ "action": "cancel" }), false), None);
        assert_eq!(answer(&json!({ "action": "decline" }), false), None);
        let denied =
            answer(&json!({ "action": "accept", "content": { "answer": "reject_once", "reason": "no" } }), false);
        assert_eq!(denied, Some(("reject_once".to_owned(), None, Some("no".to_owned()))));
    }
}
