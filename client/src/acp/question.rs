//! Questions of a session as requests to the editor, and its answers.
//!
//! A permission, and a choice, is `session/request_permission`; a form is `elicitation/create` where the editor takes forms.
//! What the editor cannot show waits for another client, and the session says so.

use agent_client_protocol_schema::v1::{
    CreateElicitationRequest, CreateElicitationResponse, ElicitationAction, ElicitationFormMode, ElicitationSchema,
    ElicitationSessionScope, PermissionOption, PermissionOptionKind, RequestPermissionOutcome,
    RequestPermissionRequest, RequestPermissionResponse, SessionUpdate, ToolCallStatus, ToolCallUpdate,
    ToolCallUpdateFields,
};
use linger_protocol::event::{FileChange, Location};
use linger_protocol::id::{QuestionId, SessionId};
use linger_protocol::permission::Decision;
use linger_protocol::question::{Answer, PendingQuestion, Question, QuestionKind};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::update::{Blobs, diffs, locations, note};

/// The longest text of an editor in a message, in characters.
const MAX_REASON: usize = 200;

/// A question, as the editor is asked.
pub(super) enum EditorQuestion {
    /// A request for a permission.
    Permission(Box<RequestPermissionRequest>),
    Form(Box<CreateElicitationRequest>),
    /// Nothing that it can answer.
    Elsewhere(Box<SessionUpdate>),
}

/// A question that the editor was asked.
#[derive(Debug)]
pub(super) struct OpenQuestion {
    /// The number of our request.
    pub(super) request: u64,
    pub(super) session: SessionId,
    pub(super) question: QuestionId,
    digest: String,
    kind: QuestionKind,
    /// The names of its options.
    options: Vec<String>,
}

/// Why an editor's answer is none; the question stays open.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// Its user gave no answer.
    Cancelled,
    /// It answered something that was not offered, or with an error; the reason.
    Failed(String),
}

impl OpenQuestion {
    pub(super) fn new(request: u64, session: SessionId, question: &PendingQuestion) -> Self {
        let PendingQuestion { question, asked, .. } = question;
        let options = asked.options.iter().map(|option| option.name.clone()).collect();
        let (question, digest) = (question.clone(), asked.digest.clone());
        Self { request, session, question, digest, kind: asked.kind, options }
    }

    /// The meaning of the editor's answer. Fails if it gave none.
    pub(super) fn answer(self, result: Option<Value>, error: Option<Value>, key: String) -> Result<Answer, Unanswered> {
        if let Some(error) = error {
            let message = error.get("message").and_then(Value::as_str).unwrap_or("an error without a message");
            return Err(Unanswered::Failed(message.chars().take(MAX_REASON).collect()));
        }
        let result = result.unwrap_or_default();
        let (answer, value) = match self.kind {
            QuestionKind::Form => form_answer(parse(result)?)?,
            _ => {
                let RequestPermissionResponse { outcome, .. } = parse(result)?;
                match outcome {
                    RequestPermissionOutcome::Selected(selected) => (selected.option_id.to_string(), None),
                    RequestPermissionOutcome::Cancelled => return Err(Unanswered::Cancelled),
                    _ => return Err(Unanswered::Failed("its outcome is unknown".to_owned())),
                }
            }
        };
        if self.kind != QuestionKind::Form && !self.options.contains(&answer) {
            let answer: String = answer.chars().take(MAX_REASON).collect();
            return Err(Unanswered::Failed(format!("there is no option '{}'", answer.escape_default())));
        }
        let (question, digest) = (self.question, Some(self.digest));
        Ok(Answer { question, answer, value, reason: None, digest, rules: Vec::new(), key: Some(key) })
    }
}

fn parse<T: DeserializeOwned>(result: Value) -> Result<T, Unanswered> {
    serde_json::from_value(result).map_err(|error| Unanswered::Failed(error.to_string()))
}

fn form_answer(response: CreateElicitationResponse) -> Result<(String, Option<Value>), Unanswered> {
    match response.action {
        ElicitationAction::Accept(accept) => {
            let content = accept.content.unwrap_or_default();
            let content = serde_json::to_value(content).map_err(|error| Unanswered::Failed(error.to_string()))?;
            Ok(("accept".to_owned(), Some(content)))
        }
        ElicitationAction::Decline => Ok(("decline".to_owned(), None)),
        _ => Err(Unanswered::Cancelled),
    }
}

/// The request for a question; `forms` if the editor takes forms.
pub(super) fn ask(
    session: &SessionId,
    question: &PendingQuestion,
    at: &[Location],
    changes: &[FileChange],
    forms: bool,
    blobs: &mut Blobs<'_>,
) -> EditorQuestion {
    let PendingQuestion { question: id, asked, .. } = question;
    let call = asked.call.as_ref().map_or_else(|| id.to_string(), ToString::to_string);
    match asked.kind {
        QuestionKind::Permission | QuestionKind::Choice => {
            let fields = ToolCallUpdateFields::new().status(ToolCallStatus::Pending);
            let fields = match &asked.permission {
                Some(action) => fields
                    .title(action.action.clone())
                    .raw_input(action.input.clone())
                    .locations(locations(at))
                    .content(diffs(changes, blobs)),
                None => fields.title(asked.text.clone()),
            };
            let options = options(asked);
            let update = ToolCallUpdate::new(call, fields);
            EditorQuestion::Permission(Box::new(RequestPermissionRequest::new(session.to_string(), update, options)))
        }
        QuestionKind::Form if forms => match form(session, asked) {
            Some(request) => EditorQuestion::Form(Box::new(request)),
            None => elsewhere(id, asked),
        },
        _ => elsewhere(id, asked),
    }
}

fn elsewhere(id: &QuestionId, asked: &Question) -> EditorQuestion {
    let text = format!("this editor cannot show a question; answer it with `linger answer {id}`: {}", asked.text);
    EditorQuestion::Elsewhere(Box::new(note(&text)))
}

fn form(session: &SessionId, asked: &Question) -> Option<CreateElicitationRequest> {
    let schema: ElicitationSchema = serde_json::from_value(asked.schema.clone().unwrap_or_else(|| json!({}))).ok()?;
    let call = asked.call.as_ref().map(|call| call.to_string().into());
    let scope = ElicitationSessionScope::new(session.to_string()).tool_call_id(call);
    Some(CreateElicitationRequest::new(ElicitationFormMode::new(scope, schema), asked.text.clone()))
}

fn options(asked: &Question) -> Vec<PermissionOption> {
    let grant = asked.permission.as_ref().map(|action| action.grant.as_str()).unwrap_or_default();
    let option = |name: &str, label: &str| {
        let (label, kind) = match Decision::answer(name) {
            Some(Decision::AllowSession) => {
                (format!("Allow {grant} in this session"), PermissionOptionKind::AllowAlways)
            }
            Some(Decision::AllowAlways) => (format!("Always allow {grant}"), PermissionOptionKind::AllowAlways),
            Some(Decision::RejectOnce) => ("Deny".to_owned(), PermissionOptionKind::RejectOnce),
            Some(Decision::RejectAlways) => (format!("Always deny {grant}"), PermissionOptionKind::RejectAlways),
            Some(_) => ("Allow once".to_owned(), PermissionOptionKind::AllowOnce),
            None if ["stop", "decline", "no", "not_yet"].contains(&name) => {
                (label.to_owned(), PermissionOptionKind::RejectOnce)
            }
            None => (label.to_owned(), PermissionOptionKind::AllowOnce),
        };
        PermissionOption::new(name.to_owned(), label, kind)
    };
    asked.options.iter().map(|it| option(&it.name, &it.label)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(kind: &str) -> OpenQuestion {
        let question: PendingQuestion = serde_json::from_value(json!({
            "question": "q1", "session": "s1", "kind": kind, "blocks": "call", "digest": "d", "at": 1, "text": "?",
            "options": [{ "name": "allow_once", "label": "allow once" }, { "name": "reject_once", "label": "deny" }],
        }))
        .unwrap();
        OpenQuestion::new(1, "s1".into(), &question)
    }

    fn failure(kind: &str, result: Option<Value>, error: Option<Value>) -> String {
        match open(kind).answer(result, error, "k".to_owned()) {
            Err(Unanswered::Failed(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_an_option_that_was_offered_is_an_answer() {
        let selected = |id: &str| Some(json!({ "outcome": { "outcome": "selected", "optionId": id } }));
        let answer = open("choice").answer(selected("allow_once"), None, "k".to_owned()).unwrap();
        assert_eq!((answer.answer.as_str(), answer.digest.as_deref()), ("allow_once", Some("d")));
        assert!(failure("choice", selected("allow"), None).contains("no option 'allow'"));
        assert!(failure("choice", selected("\u{1b}["), None).contains("no option '\\u{1b}['"));
        assert!(!failure("choice", Some(json!({})), None).is_empty());
        assert!(!failure("choice", None, None).is_empty());
        assert!(!failure("form", Some(json!({ "action": 5 })), None).is_empty());
    }

    #[test]
    fn an_error_says_why_and_a_closed_dialog_is_no_answer() {
        assert_eq!(
            failure("form", None, Some(json!({ "code": -32601, "message": "no such method" }))),
            "no such method"
        );
        assert_eq!(failure("choice", None, Some(json!("?"))), "an error without a message");
        let cancelled = Some(json!({ "outcome": { "outcome": "cancelled" } }));
        assert_eq!(open("choice").answer(cancelled, None, "k".to_owned()), Err(Unanswered::Cancelled));
        let cancelled = Some(json!({ "action": "cancel" }));
        assert_eq!(open("form").answer(cancelled, None, "k".to_owned()), Err(Unanswered::Cancelled));
    }
}
