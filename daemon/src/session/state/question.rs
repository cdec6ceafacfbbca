//! The questions in a session's state: those that are open, or answered and still needed, and the fold of their events. Pure.

use linger_protocol::event::{Event, EventBody, PermissionRequested, PermissionResolved, Process, QuestionResolved};
use linger_protocol::id::{CallId, QuestionId};
use linger_protocol::permission::Decision;
use linger_protocol::question::{Blocks, Subject};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::State;
use crate::question;
use crate::session::circles::Circles;

/// A question that is open, or whose answer is still needed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuestionState {
    /// The question.
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
    /// What it is about, if the daemon asks.
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
    /// Applies an event about a question; any other one changes nothing.
    pub(super) fn apply_question(&mut self, event: &Event) {
        match &event.body {
            EventBody::PermissionRequested(PermissionRequested {
                permission, call_id, digest, grant, grants, ..
            }) => {
                let (id, seq, at, call) = (permission.clone(), self.head, event.at, Some(call_id.clone()));
                let (digest, options, grants) = (digest.clone(), Options::Permission(grant.clone()), grants.clone());
                let (about, schema) = (None, None);
                self.asked(
                    Blocks::Call,
                    QuestionState { id, seq, at, call, digest, options, grants, about, schema, answer: None },
                );
            }
            EventBody::PermissionResolved(PermissionResolved { permission, decision, by, reason, rules, .. }) => {
                let answer = (*decision != Decision::Cancelled).then(|| decision.name().to_owned());
                let (by, reason, rules) = (by.clone(), reason.clone(), rules.clone());
                self.resolved(permission, Resolution { answer, value: None, by, at: event.at, reason, rules });
            }
            EventBody::QuestionAsked { question, asked } => {
                let options = Options::Choice(asked.options.iter().map(|option| option.name.clone()).collect());
                let (id, seq, at) = (question.clone(), self.head, event.at);
                let (call, digest) = (asked.call.clone(), asked.digest.clone());
                let (about, schema) = (asked.about, asked.schema.clone());
                self.asked(
                    asked.blocks,
                    QuestionState {
                        id,
                        seq,
                        at,
                        call,
                        digest,
                        options,
                        grants: Vec::new(),
                        about,
                        schema,
                        answer: None,
                    },
                );
            }
            EventBody::QuestionResolved(QuestionResolved { question, answer, value, by, reason, .. }) => {
                let (answer, by, reason) = (answer.clone(), by.clone(), reason.clone());
                let (value, rules) = (value.clone(), Vec::new());
                self.resolved(question, Resolution { answer, value, by, at: event.at, reason, rules });
            }
            _ => {}
        }
    }

    /// Adds a question, which blocks an open call, the turn, or nothing.
    fn asked(&mut self, blocks: Blocks, question: QuestionState) {
        match blocks {
            Blocks::Nothing => self.questions.push(question),
            Blocks::Turn => self.in_turn(|turn| turn.questions.push(QuestionState { call: None, ..question })),
            Blocks::Call => self.in_turn(|turn| {
                if turn.calls.iter().any(|call| question.call.as_ref() == Some(&call.id)) {
                    turn.questions.push(question);
                }
            }),
        }
    }

    fn resolved(&mut self, id: &QuestionId, resolution: Resolution) {
        self.questions.retain(|question| question.id != *id);
        let (mut grants, mut denied, mut raised) = (Vec::new(), Vec::new(), false);
        self.in_turn(|turn| {
            if let Some(asked) = turn.questions.iter_mut().find(|asked| asked.id == *id) {
                let rules = || match resolution.rules.as_slice() {
                    [] => asked.rules(),
                    rules => rules.to_vec(),
                };
                match resolution.answer.as_deref() {
                    Some("allow_session" | "allow_always") => grants = rules(),
                    Some("reject_always") => denied = rules(),
                    _ => {}
                }
                asked.answer = Some(resolution);
                if asked.about == Some(Subject::Budget) && !asked.is_answered(STOP) {
                    raised = asked.is_answered(GO_ON);
                    turn.questions.retain(|asked| asked.id != *id);
                } else if asked.about == Some(Subject::Circles) && asked.is_answered(GO_ON) {
                    turn.circles = Circles::default();
                    turn.questions.retain(|asked| asked.id != *id);
                }
            }
        });
        if raised {
            self.budget.raise(&self.usage);
        }
        for (list, rules) in [(&mut self.grants, grants), (&mut self.denied, denied)] {
            for rule in rules {
                if !list.contains(&rule) {
                    list.push(rule);
                }
            }
        }
    }
}
