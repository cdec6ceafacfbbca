//! Mode `plan`: the messages to the model about it, and the question whether its plan is carried out.
//!
//! The question holds up nothing and is asked with the end of a turn, so it is durable and any client answers it; a person's next
//! prompt or another mode withdraws it. An answer, the mode and the next prompt are one write.

use linger_protocol::permission::Mode;
use linger_protocol::question::{Answer, Blocks, QuestionOption, Subject};

use super::*;
use crate::question;
use crate::session::state::QuestionState;

/// The message to the model when the mode becomes `plan`.
const PLANS: &str = "[mode plan] The user wants a plan first, and nothing is to be changed now: calls that change something are \
                     refused. Read what you need with read, ls, glob, grep and git; bash takes only plain commands that read, such \
                     as cat, find or wc, without redirections, and the user is asked about them. Then answer with the plan: what you \
                     would change, where, and how you would check it. The user decides whether you go on.";

/// The end of the message to the model when mode `plan` is over.
const PLANS_NO_MORE: &str = "you may make changes now, as far as the user allows them.";

/// The prompt of an answer that lets it go on.
const CARRY_OUT: &str = "The plan is accepted: carry it out.";

/// The answer that leaves the mode as it is.
const NOT_YET: &str = "not_yet";

impl Actor {
    /// The message about the mode that the model has not had yet, if one is due.
    pub(super) fn mode_news(&self) -> Option<String> {
        match (self.state.settings.mode == Mode::Plan, self.state.history.plan_told) {
            (true, false) => Some(PLANS.to_owned()),
            (false, true) => Some(format!("[mode {}] Mode plan is over: {PLANS_NO_MORE}", self.state.settings.mode)),
            _ => None,
        }
    }

    /// The question that comes with the end of a turn in mode `plan`, unless another prompt follows. A child's plan is its parent's
    /// business, and a session for one prompt is over.
    pub(super) fn plan_question(&self, reason: StopReason, compacts: bool) -> Option<Draft> {
        let is_plan = self.state.settings.mode == Mode::Plan && reason == StopReason::EndTurn && !compacts;
        let continues = self.state.queue.prompts.iter().any(|queued| !queued.compact);
        let is_own = self.state.identity.parent.is_none()
            && !(self.state.identity.one_shot && self.state.settings.name.is_none());
        if !is_plan || continues || !is_own || self.state.open_questions().count() >= question::MAX_OPEN {
            return None;
        }
        let option = |mode: Mode| QuestionOption::new(&mode.to_string(), &format!("Go on in mode {mode}"));
        let options = vec![option(Mode::Edit), option(Mode::Ask), QuestionOption::new(NOT_YET, "Not yet")];
        let asked = question::choice("the plan is ready: go on?".to_owned(), options, Blocks::Nothing, None);
        let question = questions::new_id();
        tracing::info!(target: "question", session = %self.id, %question, "asked about the plan");
        let asked = linger_protocol::question::Question { about: Some(Subject::Plan), ..asked };
        Some(Draft::new(EventBody::QuestionAsked { question, asked }))
    }

    /// Withdraws the question about the plan, because of `why`.
    pub(super) fn withdraw_plan(&mut self, why: &str) {
        let asked = self.state.questions.free.iter().find(|asked| asked.about == Some(Subject::Plan));
        if let Some(withdrawn) = asked.map(|asked| asked.withdrawn(why)) {
            self.append(vec![Draft::new(withdrawn)], Vec::new(), false, None);
        }
    }

    /// Records the answer to the question about the plan, with the mode and the prompt that follow from it.
    pub(super) async fn answer_plan(&mut self, asked: &QuestionState, answer: Answer, by: Author, request: KeyedReply) {
        let KeyedReply { key, reply } = request;
        let mode = [Mode::Edit, Mode::Ask].into_iter().find(|mode| mode.to_string() == answer.answer);
        let word = answer.reason.clone().filter(|word| !word.trim().is_empty());
        let text = match (mode, word) {
            (Some(_), None) => Some(CARRY_OUT.to_owned()),
            (Some(_), Some(word)) => Some(format!("{CARRY_OUT}\n\n{word}")),
            (None, word) => word,
        };
        let content: Vec<ContentBlock> = text.map(ContentBlock::text).into_iter().collect();
        if !content.is_empty()
            && let Err(error) = self.may_prompt(&content).await
        {
            return respond(reply, Err(error));
        }
        let given = Resolution {
            answer: Some(answer.answer),
            by: by.name.clone(),
            reason: answer.reason,
            ..Resolution::default()
        };
        let mut drafts = vec![Draft::new(asked.resolved(given, by.process))];
        drafts.extend(mode.map(|mode| Draft::new(EventBody::mode_changed(mode))));
        let continues = !content.is_empty();
        if continues {
            let accepted = self.next_prompt(content, When::Queue, &by);
            drafts.push(Draft::new(EventBody::PromptAccepted(accepted)));
        }
        let outcome = self.remember(key, &());
        fault::point("actor.answered");
        let committed = self.append_synced(drafts, outcome);
        respond_when(reply, committed, ());
        if let (true, Phase::Git(git)) = (continues, &mut self.phase) {
            git.start_held();
        }
        if continues && matches!(self.phase, Phase::Idle) {
            self.start_next(true);
        }
    }
}
