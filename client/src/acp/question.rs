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
use serde_json::{Value, json};

use super::update::{Blobs, diffs, locations, note};

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
}

impl OpenQuestion {
    pub(super) fn new(request: u64, session: SessionId, question: &PendingQuestion) -> Self {
        let PendingQuestion { question, asked, .. } = question;
        Self { request, session, question: question.clone(), digest: asked.digest.clone(), kind: asked.kind }
    }

    /// The meaning of the editor's answer; `None` if it gave none: the question waits.
    pub(super) fn answer(self, result: Option<Value>, key: String) -> Option<Answer> {
        let (answer, value) = match self.kind {
            QuestionKind::Form => form_answer(serde_json::from_value(result?).ok()?)?,
            _ => {
                let RequestPermissionResponse { outcome, .. } = serde_json::from_value(result?).ok()?;
                match outcome {
                    RequestPermissionOutcome::Selected(selected) => (selected.option_id.to_string(), None),
                    _ => return None,
                }
            }
        };
        let (question, digest) = (self.question, Some(self.digest));
        Some(Answer { question, answer, value, reason: None, digest, rules: Vec::new(), key: Some(key) })
    }
}

fn form_answer(response: CreateElicitationResponse) -> Option<(String, Option<Value>)> {
    match response.action {
        ElicitationAction::Accept(accept) => {
            let content = accept.content.unwrap_or_default();
            Some(("accept".to_owned(), Some(serde_json::to_value(content).ok()?)))
        }
        ElicitationAction::Decline => Some(("decline".to_owned(), None)),
        _ => None,
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
