//! The limits of an answer that a connection with a token gives.
//!
//! Checked here and not by the method: only the actor has the waiting call, with the target that was resolved for the question and
//! that will run. Deliberately absent: who has which token.

use linger_protocol::permission::{Decision, Mode};
use linger_protocol::question::{Answer, Subject};

use super::*;
use crate::agent::role::stricter;
use crate::question::permission::{Rules, Verdict, decide};
use crate::session::state::QuestionState;

impl Actor {
    /// Fails if an answer decides more than its limit allows.
    pub(super) fn check_limit(
        &self,
        limit: AnswerLimit,
        asked: &QuestionState,
        answer: &Answer,
    ) -> Result<(), RpcError> {
        let AnswerLimit::Grant { commands, most } = limit else { return Ok(()) };
        let refuse = |what: String| {
            Err(RpcError::new(Code::NotAllowed, what).hint("answer it in a terminal: `linger inbox` lists what waits"))
        };
        let is_permission = asked.grant().is_some();
        match asked.about {
            Some(Subject::Configuration | Subject::Workspace | Subject::Unknown) => {
                return refuse("a token may not answer what the daemon itself asks".to_owned());
            }
            Some(Subject::Plan) => {
                let mode = answer.answer.parse::<Mode>().ok();
                return match mode.filter(|mode| stricter(*mode, most) != *mode) {
                    Some(mode) => refuse(format!("mode {mode} is looser than {most}, the loosest of the token")),
                    None => Ok(()),
                };
            }
            Some(Subject::Circles | Subject::Budget | Subject::Check) | None => {}
        }
        if !is_permission {
            return Ok(());
        }
        if answer.answer == Decision::AllowAlways.name() {
            return refuse(
                "a token may not add a rule to the configuration: allow it once, or in this session".to_owned(),
            );
        }
        if commands || self.edits(asked) {
            return Ok(());
        }
        refuse("the token may answer only for calls that change files in the workspace".to_owned())
    }

    /// Whether a question is about a call that mode `edit` would run by itself: a change of a file in the workspace, and of none that
    /// steers git, linger or which programs run. Unknown is no: the call may not be there yet, after a restart.
    fn edits(&self, asked: &QuestionState) -> bool {
        self.running().and_then(|running| running.request(&asked.id)).is_some_and(|request| {
            let info = request.info();
            matches!(info.access, crate::tool::Access::Write(_))
                && matches!(decide(&Rules::default(), &[], Mode::Edit, &info, &request.resolved), Verdict::Allow { .. })
        })
    }
}
