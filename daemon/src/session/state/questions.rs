//! The fold of questions: those that are open, their answers, and the rules that answers add. Pure.

use linger_protocol::event::{Event, EventBody};
use linger_protocol::id::QuestionId;
use linger_protocol::permission::Decision;
use linger_protocol::question::{Blocks, Subject};

use super::{GO_ON, Options, QuestionState, Resolution, STOP, State};
use crate::session::circles::Circles;

impl State {
    /// Applies an event about a question; any other one changes nothing.
    pub(super) fn apply_question(&mut self, event: &Event) {
        match &event.body {
            EventBody::PermissionRequested { permission, call_id, digest, grant, grants, .. } => {
                let (id, seq, at, call) = (permission.clone(), self.head, event.at, Some(call_id.clone()));
                let (digest, options, grants) = (digest.clone(), Options::Permission(grant.clone()), grants.clone());
                let (about, schema) = (None, None);
                self.asked(
                    Blocks::Call,
                    QuestionState { id, seq, at, call, digest, options, grants, about, schema, answer: None },
                );
            }
            EventBody::PermissionResolved { permission, decision, by, reason, rules, .. } => {
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
            EventBody::QuestionResolved { question, answer, value, by, reason, .. } => {
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
