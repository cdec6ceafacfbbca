//! Questions: what waits for a person, and how a person answers.
//!
//! A permission is the first kind of question. It keeps methods and events of its own ([`crate::permission`]), and is listed and
//! answered here too. Every other kind has the events `question_asked` and `question_resolved`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::{Event, EventBody, PermissionRequested, PermissionResolved, QuestionResolved};
use crate::id::{CallId, PermissionId, QuestionId, SessionId};
use crate::permission::{self, Decision};

/// The kind of answer that a question wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::open)]
#[serde(rename_all = "snake_case")]
pub enum QuestionKind {
    /// Whether a tool call may run; its options are [`Decision`]s.
    Permission,
    /// One of the options.
    Choice,
    /// The fields of a JSON Schema: an answer `accept` has them as its `value`; `decline` has none.
    Form,
    /// A kind that this build does not know; a client that cannot show it says so and leaves it to others.
    #[serde(other)]
    Unknown,
}

impl QuestionKind {
    /// The event that withdraws a question of this kind, because of `by`.
    pub fn withdrawn(self, question: QuestionId, by: String) -> EventBody {
        match self {
            Self::Permission => {
                let decision = Decision::Cancelled;
                EventBody::PermissionResolved(PermissionResolved {
                    permission: question,
                    decision,
                    by,
                    process: None,
                    reason: None,
                    rules: Vec::new(),
                })
            }
            Self::Choice | Self::Form | Self::Unknown => EventBody::QuestionResolved(QuestionResolved {
                question,
                answer: None,
                value: None,
                by,
                process: None,
                reason: None,
            }),
        }
    }
}

/// The work that waits for the answer to a question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Blocks {
    /// One tool call.
    Call,
    /// The turn, from its next step on.
    Turn,
    /// Work goes on meanwhile.
    #[default]
    Nothing,
}

/// The subject of a question that the daemon asks by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::open)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// Changes of the configuration that wait; `config/get` has them too.
    Configuration,
    /// The calls of a turn that repeat themselves; `go_on` and `stop` answer it.
    Circles,
    /// The budget of the session, which is spent; `go_on` raises it by its own size, `stop` ends the turn.
    Budget,
    /// The settings that the files of a workspace want; `trust/get` has them too.
    Workspace,
    /// The plan that a turn in mode `plan` has ended with: `edit` and `ask` set the mode and start the next turn, `not_yet` leaves
    /// it; a word with the answer goes to the model.
    Plan,
    /// The check of a turn's answer; a permission, which the daemon asks for and no model.
    Check,
    /// A subject that this build does not know.
    #[serde(other)]
    Unknown,
}

/// One of the possible answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuestionOption {
    /// The word for it in an answer.
    pub name: String,
    /// The text for people.
    pub label: String,
}

impl QuestionOption {
    /// An option.
    pub fn new(name: &str, label: &str) -> Self {
        Self { name: name.to_owned(), label: label.to_owned() }
    }
}

/// A question, whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Question {
    /// The form of the answer.
    pub kind: QuestionKind,
    /// The work that waits for it.
    pub blocks: Blocks,
    /// The tool call that asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// Its subject, if it is the daemon's own and of a kind that programs know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<Subject>,
    /// The question; absent for a permission, whose `action` says it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The possible answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<QuestionOption>,
    /// JSON Schema of the fields, if it is a form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// The call that would run, if it is a permission: the fields of `permission/list`.
    #[serde(flatten)]
    pub permission: Option<Action>,
    /// The hash of what is asked.
    pub digest: String,
}

/// The place of a permission among those that the calls of one answer of a model ask together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "QuestionPosition")]
pub struct Position {
    /// Its number, from 1.
    pub number: u32,
    /// How many there are, at least 2.
    pub of: u32,
    /// The first of them; all have the same.
    pub first: PermissionId,
}

/// The action that a permission is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Action {
    /// The permission: the question itself; `permission/answer` takes it too.
    pub permission: PermissionId,
    /// The name of the tool that would run.
    pub tool: String,
    /// The call in one line.
    pub action: String,
    /// The arguments, whole.
    pub input: Value,
    /// Where it will run.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub cwd: PathBuf,
    /// The rule that `allow_session` and `allow_always` would add, and `reject_always` as one that refuses.
    pub grant: String,
    /// The rules one by one, if the call touches several things: then `grant` names them all, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<String>,
    /// Why the mode asks about what it lets run elsewhere, behind "asks because".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Its place among those of the same answer of the model; absent if it is the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
}

/// A question that waits: a row of `question/list`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PendingQuestion {
    /// The question; `question/answer` takes it.
    pub question: QuestionId,
    /// The session that asks; absent if the daemon itself does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The session that this one works for, if it is a child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionId>,
    /// The name of that one; without one, the beginning of its first prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_name: Option<String>,
    /// Its text, options and form.
    #[serde(flatten)]
    pub asked: Question,
    /// When it was asked, in Unix milliseconds.
    pub at: u64,
}

impl PendingQuestion {
    /// The question that an event of `session` asks.
    pub fn of_event(session: &SessionId, event: &Event) -> Option<Self> {
        let session = (!session.is_daemon()).then(|| session.clone());
        let (question, asked) = match &event.body {
            EventBody::QuestionAsked { question, asked } => (question.clone(), asked.clone()),
            EventBody::PermissionRequested(PermissionRequested {
                permission,
                call_id,
                tool,
                action,
                input,
                cwd,
                digest,
                grant,
                grants,
                about,
                why,
                position,
                ..
            }) => {
                let (id, tool, action, input) = (permission.clone(), tool.clone(), action.clone(), input.clone());
                let (cwd, grant, grants) = (cwd.clone(), grant.clone(), grants.clone());
                let (why, position) = (why.clone(), position.clone());
                let action = Action { permission: id, tool, action, input, cwd, grant, grants, why, position };
                let asked = Question {
                    kind: QuestionKind::Permission,
                    blocks: Blocks::Call,
                    call: Some(call_id.clone()),
                    about: *about,
                    text: String::new(),
                    options: Decision::ANSWERS.map(|it| QuestionOption::new(it.name(), it.label())).to_vec(),
                    schema: None,
                    permission: Some(action),
                    digest: digest.clone(),
                };
                (permission.clone(), asked)
            }
            _ => return None,
        };
        Some(Self { question, session, parent: None, parent_name: None, asked, at: event.at })
    }

    /// The row of `permission/list`, if it is a permission.
    pub fn into_permission(self) -> Option<permission::Pending> {
        let Self { session, asked, at, .. } = self;
        let Action { permission, tool, action, input, cwd, grant, grants, why, position } = asked.permission?;
        let (session, call) = (session?, asked.call?);
        Some(permission::Pending {
            permission,
            session,
            call,
            tool,
            action,
            input,
            cwd,
            digest: asked.digest,
            grant,
            grants,
            why,
            position,
            at,
        })
    }
}

/// `question/list`: the questions that wait, of one session or of all and the daemon; the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct List {
    /// Only those of this session and of its children; `daemon` for the daemon's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Only those that come after this one: the last row of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<After>,
}

/// A row of `question/list`, of which these two fields count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AfterQuestion")]
pub struct After {
    /// When it was asked, in Unix milliseconds.
    pub at: u64,
    /// Orders rows of the same time.
    pub question: QuestionId,
}

/// `question/answer`: answers one question; the first answer wins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// The question to answer.
    pub question: QuestionId,
    /// The name of an option.
    pub answer: String,
    /// The fields of a form that is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// A word with it; for a permission that is refused, one to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The digest that was shown; an answer to something else is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The rules that a lasting decision about a call adds, in place of those that were shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The `data` of the error `already answered`, as `question/answer` gives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AlreadyAnswered {
    /// The name of the option that was chosen; absent if the question was withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Who answered, or why it was withdrawn.
    pub by: String,
    /// When, in Unix milliseconds.
    pub at: u64,
}
