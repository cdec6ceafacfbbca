//! The turn: the agent loop. A child of its session's actor, to which it talks only in [`TurnMessage`]s.
//!
//! It begins with the history from the log, so a turn resumed after a crash or an interrupt runs the
//! same code as a new one: open calls first, then step after step until an answer has no tool call.
//! Dropping it stops the turn at any point. It reads the store only for a history that the actor
//! does not hold, assigns no ids, and waits for a client only in a permission.
//!
//! A future is as large as the largest one that it awaits, and most turns at any moment wait for a model: all else that is large
//! is boxed while it lasts.
//!
//! | file | owns |
//! |---|---|
//! | `drive` | the loop, and the ends of a turn |
//! | `history` | the context that a turn begins with |
//! | `step` | one step: its request, and reactions to a refusal |
//! | `request` | one request with its retries |
//! | `outage` | waiting for a provider that cannot answer |
//! | `resolve` | the provider and its key, and waiting for a missing one |
//! | `compact` | making room in the context |
//! | `check` | the check of an answer, which may fail |
//! | `commands` | the command lines of a prompt's command |
//! | `output_schema` | answers that fit a schema |
//! | `prefix` | the part of each request before the messages |
//! | `title` | the title that a cheap model gives a session |

mod check;
mod commands;
mod compact;
mod drive;
mod history;
mod outage;
mod output_schema;
mod prefix;
mod request;
mod resolve;
mod step;
pub mod title;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use linger_protocol::agent::Role;
use linger_protocol::event::Instruction;
use linger_protocol::id::{CallId, SessionId};
use linger_protocol::session::{Effort as Thinking, PrefixFingerprint};
use tokio::sync::{Notify, mpsc};

use crate::log::OpenStream;
use crate::provider::{Failure, FailureClass, Stop};
use crate::session::calls::{self, StartedCall};
use crate::session::context::Past;
use crate::session::env::{Host, TurnServices};
use crate::session::messages::{Emitter, TurnEnded, TurnMessage};
use crate::session::state::Effort;
use crate::session::state::{self, OutagePolicy, State};
use crate::tool::Workspace;
use crate::tool::background::Jobs;
use crate::tool::set::ToolSet;
use outage::Outage;

/// The purpose of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Answer a prompt.
    Answer,
    /// Compact, and nothing else unless a prompt arrives.
    Compact,
}

/// Whether the model may think.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thought {
    /// By the session's effort.
    AsSet,
    /// Off until the turn ends or changes its model, because the history lacks thinking that the
    /// provider requires.
    Off,
}

/// One turn.
pub struct Turn {
    session: SessionId,
    services: Arc<TurnServices>,
    workspace: Arc<Workspace>,
    jobs: Jobs,
    emit: Emitter,
    purpose: Purpose,
    /// `provider/model`; may change between steps.
    model: String,
    /// The fingerprint of the requests' prefix, from the log.
    setup: Option<PrefixFingerprint>,
    thinking: Thinking,
    thought: Thought,
    /// The only tools that the session has; absent for all.
    only: Option<Vec<String>>,
    /// The tool set of the current step; replaced only between two steps.
    tools: Arc<ToolSet>,
    /// Steps that have finished.
    steps: u32,
    /// The session's own limit of steps.
    max_steps: Option<u32>,
    /// The tries of the current step to make room in the context.
    effort: Effort,
    /// How often the answer was continued that was cut at the token limit.
    continued: u32,
    /// Whether the model was asked once more, because its answer was none.
    nudged: bool,
    /// The policy while the provider cannot answer.
    policy: OutagePolicy,
    /// The failed attempts of the current step.
    outage: Outage,
    /// Ends a wait for a provider that cannot answer.
    nudge: Arc<Notify>,
    /// The output schema of the answer.
    output_schema: Option<state::SchemaState>,
    instructions: Vec<Instruction>,
    /// The digest of the skills that the model is told of; absent without any.
    skills: Option<String>,
    /// How far the session is from one that a user started.
    depth: u32,
    /// The list of agents in the system prompt; empty if it cannot delegate.
    agents: String,
    /// The registry, which makes children.
    host: Arc<dyn Host>,
    /// The index of notes that the system prompt has.
    memory: Option<state::MemoryIndex>,
    /// The system prompt without the index of notes.
    system: Arc<str>,
    /// The session creator's addition to the system prompt.
    added_system: Option<String>,
    /// The agent that the session is.
    role: Option<Role>,
    /// The most steps that its agent wants.
    role_steps: Option<u32>,
    /// When the conversation was started, in Unix milliseconds.
    started_at: u64,
    /// Whether people know that there are no checkpoints.
    warned_no_checkpoints: Arc<AtomicBool>,
}

/// The handles that a turn gets from its actor.
pub struct TurnHandles {
    /// The session whose turn it is.
    pub session: SessionId,
    /// The shared services for turns and calls.
    pub services: Arc<TurnServices>,
    /// The registry.
    pub host: Arc<dyn Host>,
    /// Where its calls work.
    pub workspace: Arc<Workspace>,
    /// Starts commands in the background.
    pub jobs: Jobs,
    /// The way back to the actor.
    pub messages: mpsc::UnboundedSender<Box<TurnMessage>>,
    /// Notified to end a wait for a provider that cannot answer.
    pub nudge: Arc<Notify>,
}

/// The input of a turn.
struct Opening {
    /// The events of the log that a context leaves out.
    passed_over: state::tree::PassedOver,
    /// The history kept by the actor.
    past: Past,
    /// The seq of the session's last event.
    head: u64,
    /// The open calls of the state; the results of other open calls in the history are lost.
    known: HashSet<CallId>,
    /// The started ones, which are joined or run again.
    begun: HashMap<CallId, StartedCall>,
    /// The stop reason of the turn's last answer.
    stop: Stop,
    /// The checkpoint before a call that was cut off.
    checkpoint: Option<state::undo::OpenCheckpoint>,
}

impl Turn {
    /// Runs a turn until it ends; the actor hears of the end by message.
    pub fn run(
        handles: TurnHandles,
        state: &State,
        past: Past,
        streams: &[OpenStream],
    ) -> impl Future<Output = ()> + Send + 'static {
        let TurnHandles { session, services, host, workspace, jobs, messages, nudge } = handles;
        let turn = state.turn.clone().into_value().unwrap_or_default();
        let tools = services.toolbox.tools_of(
            &state.settings.model,
            workspace.rules_root(),
            &session,
            state.settings.tools.as_deref(),
            services.toolbox.offered(state.has_skills(), state.task.depth()),
        );
        // A box: a turn's future has room for each value that it was handed on through, as long as it lives.
        let opening = Box::new(Opening {
            past,
            head: state.progress.head,
            passed_over: state.history.passed_over.clone(),
            known: turn.calls.iter().map(|call| call.id.clone()).collect(),
            begun: calls::started_calls(state, streams),
            stop: match (turn.answer.cut, turn.answer.paused) {
                (true, _) => Stop::MaxTokens,
                (false, true) => Stop::Paused,
                (false, false) => Stop::End,
            },
            checkpoint: state.undo.open.as_deref().cloned(),
        });
        let mut this = Self {
            session,
            services,
            workspace,
            jobs,
            emit: Emitter::new(messages),
            purpose: if turn.room.compacts.is_some() { Purpose::Compact } else { Purpose::Answer },
            model: state.settings.model.clone(),
            setup: state.prefix.setup.clone(),
            thinking: state.settings.thinking,
            thought: Thought::AsSet,
            only: state.settings.tools.clone(),
            tools,
            steps: turn.steps,
            max_steps: state.progress.budget.size.max_steps,
            continued: turn.answer.continued,
            nudged: false,
            policy: state.settings.outage.clone(),
            outage: Outage::of(&turn),
            nudge,
            effort: turn.room.effort,
            output_schema: turn.demands.output_schema,
            instructions: state.prefix.instructions.clone(),
            skills: state.prefix.skills.clone(),
            depth: state.task.depth(),
            agents: String::new(),
            host,
            memory: state.prefix.memory.clone(),
            system: Arc::default(),
            added_system: state.identity.added_system.clone(),
            role: state.identity.role.clone(),
            role_steps: None,
            started_at: state.identity.started_at.unwrap_or(state.identity.created_at),
            warned_no_checkpoints: Arc::new(AtomicBool::new(state.undo.warned_no_checkpoints)),
        };
        async move {
            // The actor knows that it has ended.
            let Err(TurnEnded) = this.drive(opening).await else { return };
        }
    }
}

/// A failure before anything was sent.
fn rejected(message: String) -> Failure {
    Failure { class: FailureClass::Rejected, message, retry_after: None }
}
