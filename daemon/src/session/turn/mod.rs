//! The turn: the agent loop. A child of its session's actor, to which it talks only in [`TurnMessage`]s.
//!
//! It begins with the history as the log has it, so that a turn which is resumed after a crash or an
//! interrupt runs through the same lines as a new one: open calls first, then step after step until
//! an answer has no tool call. Dropping it at any point is how a turn is stopped. It touches the
//! store only to read a history that the actor does not hold, never numbers anything, and waits for
//! a client only in a permission.
//!
//! | file | owns |
//! |---|---|
//! | `drive` | the loop, and how a turn ends |
//! | `history` | the context that a turn begins with |
//! | `step` | one step: what its request is made of, and what follows a refusal |
//! | `request` | one request, tried until it is answered or has failed for good |
//! | `resolve` | the provider and its key, waited for where they are missing |
//! | `compact` | room in the context |
//! | `shape` | answers that fit a schema |
//! | `prefix` | what stands before the conversation in each request |
//! | `emit` | what a turn tells its actor |

mod compact;
mod drive;
mod emit;
mod history;
mod prefix;
mod request;
mod resolve;
mod shape;
mod step;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use linger_protocol::event::Instruction;
use linger_protocol::id::{CallId, SessionId};
use linger_protocol::session::{Effort as Thinking, Setup};
use tokio::sync::mpsc;

use super::actor::TurnMessage;
use super::calls::{self, Begun};
use super::compaction::Effort;
use super::env::Env;
use super::state::{self, State};
use crate::log::OpenStream;
use crate::provider::{Failure, FailureClass, Stop};
use crate::tool::Workspace;
use crate::tool::set::ToolSet;
pub use emit::{Commits, Emitter};
pub use history::Past;

/// The turn has ended, for a reason that its actor knows: the actor ended it, or the store failed.
pub struct TurnEnded;

/// What a turn is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// To answer a prompt.
    Answer,
    /// To compact, and nothing else unless a prompt comes.
    Compact,
}

/// Whether the model may think.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thought {
    /// As hard as the session says.
    AsSet,
    /// Not before the turn ends or has another model: the history lacks thinking that the provider
    /// insists on.
    Off,
}

/// One turn.
pub struct Turn {
    session: SessionId,
    env: Arc<Env>,
    workspace: Arc<Workspace>,
    emit: Emitter,
    purpose: Purpose,
    /// `provider/model`; may change between steps.
    model: String,
    /// What stands before the conversation in requests, as the log says.
    setup: Option<Setup>,
    thinking: Thinking,
    thought: Thought,
    /// The tools of the step under way, replaced between two steps only.
    tools: Arc<ToolSet>,
    /// Steps that have finished.
    steps: u32,
    /// What was done to make room for the step under way.
    effort: Effort,
    /// The output schema of the answer.
    shape: Option<state::Shape>,
    instructions: Vec<Instruction>,
    /// When the session was created, in Unix milliseconds.
    created_at: u64,
}

/// What a turn begins with.
struct Opening {
    /// What the actor has kept of the history.
    past: Past,
    /// The number of the session's last event.
    head: u64,
    /// The calls that the state has as open: for others that the history has open, the results are lost.
    known: HashSet<CallId>,
    /// Those of them that have started, and are joined or run again.
    begun: HashMap<CallId, Begun>,
    /// How the last answer stopped, if the turn has one.
    stop: Stop,
}

impl Turn {
    /// Runs the turn of a session in this state until it ends; the actor learns that by message.
    pub fn run(
        session: SessionId,
        env: Arc<Env>,
        workspace: Arc<Workspace>,
        (state, past, streams): (&State, Past, &[OpenStream]),
        messages: mpsc::UnboundedSender<TurnMessage>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let turn = state.turn.clone().unwrap_or_default();
        let tools = env.tools.current();
        let opening = Opening {
            past,
            head: state.head,
            known: turn.calls.iter().map(|call| call.id.clone()).collect(),
            begun: calls::begun(state, streams),
            stop: match (turn.cut, turn.goes_on) {
                (true, _) => Stop::MaxTokens,
                (false, true) => Stop::Paused,
                (false, false) => Stop::End,
            },
        };
        let mut this = Self {
            session,
            env,
            workspace,
            emit: Emitter::new(messages),
            purpose: if turn.compacts.is_some() { Purpose::Compact } else { Purpose::Answer },
            model: state.model.clone(),
            setup: state.setup.clone(),
            thinking: state.thinking,
            thought: Thought::AsSet,
            tools,
            steps: turn.steps,
            effort: turn.effort,
            shape: turn.shape,
            instructions: state.instructions.clone(),
            created_at: state.created_at,
        };
        async move {
            // That it has ended is no error: the actor knows.
            let Err(TurnEnded) = this.drive(opening).await else { return };
        }
    }
}

/// A failure before anything was sent.
fn rejected(message: String) -> Failure {
    Failure { class: FailureClass::Rejected, message, retry_after: None }
}
