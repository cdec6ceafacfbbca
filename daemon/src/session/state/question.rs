//! The questions in a session's state: those that are open, or answered and still needed, and the fold of their events. Pure.

use linger_protocol::event::{EventBody, PermissionRequested, PermissionResolved, Process, QuestionResolved};
use linger_protocol::id::{CallId, QuestionId};
use linger_protocol::permission::Decision;
use linger_protocol::question::{Blocks, Question, Subject};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{State, Turn};
use crate::question;
use crate::session::state::circles::Circles;

/// Open questions that block nothing; the turn has the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Questions {
    /// The questions, the oldest first.
    #[serde(rename = "questions", skip_serializing_if = "Vec::is_empty")]
    pub free: Vec<QuestionState>,
}

/// A question that is open, or whose answer is still needed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuestionState {
    /// Its id, unique over all sessions.
    pub id: QuestionId,
    /// The seq of the event that asked it.
    pub seq: u64,
    /// When it was asked, in Unix milliseconds; 0 in states of earlier versions.
    #[serde(default)]
    pub at: u64,
    /// The blocked call; absent if it blocks the turn, or nothing.
    pub call: Option<CallId>,
    /// The digest of its content.
    pub digest: String,
    /// The possible answers.
    pub options: Options,
    /// The rules that a lasting decision adds, if they are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<String>,
    /// The subject, if the daemon asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<Subject>,
    /// JSON Schema of the fields, if it is a form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// The answer, once there is one.
    pub answer: Option<Resolution>,
}

/// The possible answers to a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Options {
    /// A decision about a call; a lasting one adds this rule.
    Permission(String),
    /// One of these names.
    Choice(Vec<String>),
}

/// How a question ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolution {
    /// The name of the option that was chosen; absent if the question was withdrawn.
    pub answer: Option<String>,
    /// The fields of a form that was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// The name of the caller that answered, or why it was withdrawn.
    pub by: String,
    /// When, in Unix milliseconds.
    pub at: u64,
    /// The reason given with the answer.
    pub reason: Option<String>,
    /// The rules that it adds, where they are others than those of the question.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
}

/// The option of a question about a turn that lets it go on.
pub const GO_ON: &str = "go_on";

/// The option of a question about a turn that ends it.
pub const STOP: &str = "stop";

impl QuestionState {
    /// Whether this option was chosen.
    pub fn is_answered(&self, option: &str) -> bool {
        self.answer.as_ref().is_some_and(|given| given.answer.as_deref() == Some(option))
    }

    /// Whether somebody denied this call.
    pub fn denies(&self, call: &CallId) -> bool {
        let by_user = |given: &Resolution| given.by != question::UNATTENDED;
        let rejects = [Decision::RejectOnce, Decision::RejectAlways].map(Decision::name);
        self.call.as_ref() == Some(call)
            && rejects.iter().any(|rejects| self.is_answered(rejects))
            && self.answer.as_ref().is_some_and(by_user)
    }

    /// The rule that a lasting decision adds; absent if it is not a permission.
    pub fn grant(&self) -> Option<&str> {
        match &self.options {
            Options::Permission(grant) => Some(grant),
            Options::Choice(_) => None,
        }
    }

    /// The rules that a lasting decision adds; none if it is not a permission.
    pub fn rules(&self) -> Vec<String> {
        match &self.options {
            Options::Permission(grant) if self.grants.is_empty() => vec![grant.clone()],
            _ => self.grants.clone(),
        }
    }

    /// The names that an answer may have.
    pub fn names(&self) -> Vec<&str> {
        match &self.options {
            Options::Permission(_) => Decision::ANSWERS.map(Decision::name).to_vec(),
            Options::Choice(names) => names.iter().map(String::as_str).collect(),
        }
    }

    /// The answer that it has when no person answers: a permission is denied, a form declined, a turn stopped. Without one it is
    /// withdrawn: the options of a call mean what the model or a server says.
    pub fn unanswered(&self) -> Option<&'static str> {
        if self.grant().is_some() {
            return Some(Decision::RejectOnce.name());
        }
        let least = match (&self.schema, &self.call) {
            (Some(_), _) => question::DECLINE,
            (None, None) => STOP,
            (None, Some(_)) => return None,
        };
        Some(least).filter(|least| self.names().contains(least))
    }

    /// The event that withdraws it.
    pub fn withdrawn(&self, why: &str) -> EventBody {
        self.resolved(Resolution { by: why.to_owned(), ..Resolution::default() }, None)
    }

    /// The event that resolves it; without an `answer` it is withdrawn.
    pub fn resolved(&self, given: Resolution, process: Option<Process>) -> EventBody {
        let Resolution { answer, value, by, reason, rules, .. } = given;
        let question = self.id.clone();
        match &self.options {
            Options::Permission(_) => {
                let decision = answer.and_then(|name| Decision::answer(&name)).unwrap_or(Decision::Cancelled);
                EventBody::PermissionResolved(PermissionResolved {
                    permission: question,
                    decision,
                    by,
                    process,
                    reason,
                    rules,
                })
            }
            Options::Choice(_) => {
                EventBody::QuestionResolved(QuestionResolved { question, answer, value, by, process, reason })
            }
        }
    }
}

impl State {
    /// A call needs a permission.
    pub(super) fn ask_permission(&mut self, asked: &PermissionRequested, at: u64) {
        let question = QuestionState {
            id: asked.permission.clone(),
            seq: self.progress.head,
            at,
            call: Some(asked.call_id.clone()),
            digest: asked.digest.clone(),
            options: Options::Permission(asked.grant.clone()),
            grants: asked.grants.clone(),
            about: None,
            schema: None,
            answer: None,
        };
        self.ask(Blocks::Call, question);
    }

    /// A question is asked that is no permission.
    pub(super) fn ask_question(&mut self, id: &QuestionId, asked: &Question, at: u64) {
        let question = QuestionState {
            id: id.clone(),
            seq: self.progress.head,
            at,
            call: asked.call.clone(),
            digest: asked.digest.clone(),
            options: Options::Choice(asked.options.iter().map(|option| option.name.clone()).collect()),
            grants: Vec::new(),
            about: asked.about,
            schema: asked.schema.clone(),
            answer: None,
        };
        self.ask(asked.blocks, question);
    }

    /// Adds a question, which blocks an open call, the turn, or nothing.
    fn ask(&mut self, blocks: Blocks, question: QuestionState) {
        match blocks {
            Blocks::Nothing => self.questions.edit().free.push(question),
            Blocks::Turn => self.in_turn(|turn| turn.questions.push(QuestionState { call: None, ..question })),
            Blocks::Call => self.in_turn(|turn| {
                if turn.calls.iter().any(|call| question.call.as_ref() == Some(&call.id)) {
                    turn.questions.push(question);
                }
            }),
        }
    }

    pub(super) fn resolve_permission(&mut self, resolved: &PermissionResolved, at: u64) {
        let PermissionResolved { permission, decision, by, reason, rules, .. } = resolved;
        let answer = (*decision != Decision::Cancelled).then(|| decision.name().to_owned());
        let (by, reason, rules) = (by.clone(), reason.clone(), rules.clone());
        self.resolve(permission, Resolution { answer, value: None, by, at, reason, rules });
    }

    pub(super) fn resolve_question(&mut self, resolved: &QuestionResolved, at: u64) {
        let QuestionResolved { question, answer, value, by, reason, .. } = resolved;
        let (answer, by, reason) = (answer.clone(), by.clone(), reason.clone());
        self.resolve(question, Resolution { answer, value: value.clone(), by, at, reason, rules: Vec::new() });
    }

    fn resolve(&mut self, id: &QuestionId, resolution: Resolution) {
        if self.questions.free.iter().any(|question| question.id == *id) {
            self.questions.edit().free.retain(|question| question.id != *id);
        }
        let mut consent = Consent::default();
        self.in_turn(|turn| consent = turn.resolve(id, resolution));
        if consent.budget {
            self.progress.budget.raise(&self.progress.usage);
        }
        if !consent.grants.is_empty() || !consent.denied.is_empty() {
            self.settings.update(|settings| settings.add_rules(consent.grants, consent.denied));
        }
    }
}

/// The lasting effects of an answer.
#[derive(Default)]
struct Consent {
    grants: Vec<String>,
    denied: Vec<String>,
    /// Whether the budget is raised.
    budget: bool,
}

impl Turn {
    /// A question that may be one of the turn has its answer, or is withdrawn.
    fn resolve(&mut self, id: &QuestionId, resolution: Resolution) -> Consent {
        let mut consent = Consent::default();
        let Some(asked) = self.questions.iter_mut().find(|asked| asked.id == *id) else { return consent };
        let rules = || if resolution.rules.is_empty() { asked.rules() } else { resolution.rules.clone() };
        match resolution.answer.as_deref() {
            Some("allow_session" | "allow_always") => consent.grants = rules(),
            Some("reject_always") => consent.denied = rules(),
            _ => {}
        }
        asked.answer = Some(resolution);
        if asked.about == Some(Subject::Budget) && !asked.is_answered(STOP) {
            consent.budget = asked.is_answered(GO_ON);
            self.questions.retain(|asked| asked.id != *id);
        } else if asked.about == Some(Subject::Circles) && asked.is_answered(GO_ON) {
            self.circles = Circles::default();
            self.questions.retain(|asked| asked.id != *id);
        }
        consent
    }
}
