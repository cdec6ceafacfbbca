//! The messages between a turn and its actor.

use linger_protocol::child::ChildUpdate;
use linger_protocol::event::EventBody;
use linger_protocol::id::{CallId, MessageId, PromptId};
use linger_protocol::message::{ContentBlock, StopReason, Times, Usage};
use linger_protocol::question::Question;
use linger_protocol::session::{Effort as Thinking, PrefixFingerprint};
use serde_json::Value;
use tokio::sync::oneshot;

use super::{ChildSettings, PermissionRequest, Reply};
use crate::log::PieceKind;
use crate::provider::catalogue::Resolved;
use crate::session::Draft;
use crate::session::context::Past;
use crate::session::state::until::UntilState;
use crate::session::state::{OutagePolicy, Resolution, Run, SchemaState};
use crate::store::StoreError;

/// A message from a turn to its actor.
pub enum TurnMessage {
    /// Events, whether to sync them, and who waits for the commit.
    Emit(Vec<Draft>, bool, Option<oneshot::Sender<Result<(), StoreError>>>),
    /// A message of the history; replies with the ids that the actor assigned. The last field waits for the commit.
    Message(
        Box<EventBody>,
        oneshot::Sender<(MessageId, Vec<ContentBlock>)>,
        Option<oneshot::Sender<Result<(), StoreError>>>,
    ),
    /// An attempt of this model failed: its shown text becomes a message, whose id is the reply.
    Interrupted(String, Option<Times>, oneshot::Sender<MessageId>),
    /// New text of open streams.
    Pieces(Vec<Fragment>, oneshot::Sender<Result<(), StoreError>>),
    /// The usage of the streaming answer so far.
    Counted(Option<Box<Usage>>),
    /// Ask whether these calls of one answer may run.
    AskPermissions(Vec<PermissionRequest>),
    /// A call's question to the user; replies when the answer is on disk or the question is withdrawn.
    Ask(Box<Question>, Reply<Resolution>),
    /// Between two steps. With an ending if the turn would end here; it has ended unless the reply has prompts.
    Boundary(Option<Box<TurnEnding>>, oneshot::Sender<NextStep>),
    /// Ask for the check of the turn; announces it if the latest answer has none yet.
    Check(oneshot::Sender<Option<UntilState>>),
    /// Announce the next command line of the prompt's command; gives all of them.
    Runs(oneshot::Sender<Vec<Run>>),
    /// The model cannot answer, for this reason: this other one stands in until the next turn.
    FallBack(Box<Resolved>, String),
    /// Ask for the settings of a call's child, or for the child that it has; true for one in the background.
    Delegate(CallId, bool, oneshot::Sender<Result<ChildSettings, String>>),
    /// How the child of a call gets on; replies whether the budget is spent, to the first once it is on disk.
    Child(Box<ChildUpdate>, oneshot::Sender<bool>),
    /// Ask for the current `provider/model`.
    Model(oneshot::Sender<(String, Option<PrefixFingerprint>)>),
    /// The turn has ended because the stored history is unreadable, for this reason.
    Unreadable(String),
    /// The history that it has read, for the next turn.
    Read(Box<Past>),
}

/// New text of a stream; the actor assigns its offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// Text of a block of the streaming answer.
    Answer {
        /// The block's index in the answer.
        block: u32,
        /// Text, thinking, or a part of a hosted tool.
        kind: PieceKind,
        /// The next part of the block.
        text: String,
    },
    /// Arguments of a call of the streaming answer, which gets its id with the first of them.
    Call {
        /// The block's index in the answer.
        block: u32,
        /// The tool.
        name: String,
        /// The next part of the arguments, in JSON.
        text: String,
    },
    /// Output of a call.
    Output {
        /// The call that wrote it.
        call: CallId,
        /// Where it begins in the output, in bytes; a gap marks dropped output.
        offset: u64,
        /// The next part of the output.
        text: String,
    },
}

/// How a turn ends.
#[derive(Clone, Debug)]
pub struct TurnEnding {
    /// Recorded in `turn_finished`; an error or a cancel holds the queued prompts back.
    pub reason: StopReason,
    /// The problem, or the limit that was reached.
    pub detail: Option<String>,
    /// The next thing for a user to do.
    pub hint: Option<String>,
    /// When the provider accepts requests again, in Unix milliseconds.
    pub until_at: Option<u64>,
    /// The value that fits the prompt's schema.
    pub answer: Option<Value>,
}

impl TurnEnding {
    /// An ending without details.
    pub fn plain(reason: StopReason) -> Self {
        Self { reason, detail: None, hint: None, until_at: None, answer: None }
    }
}

/// The input of the next step.
#[derive(Clone, Debug, Default)]
pub struct NextStep {
    /// Steering prompts, as messages of the log.
    pub prompts: Vec<(MessageId, Vec<ContentBlock>)>,
    /// News for the model (ended commands, undone changes, its mode), as a message of the log.
    pub news: Option<(MessageId, Vec<ContentBlock>)>,
    /// `provider/model` from now on.
    pub model: String,
    /// The fingerprint of the requests' prefix, from the log.
    pub setup: Option<PrefixFingerprint>,
    /// A requested compaction.
    pub compact: Option<CompactionRequest>,
    /// The schema that the turn's answer must fit, if any.
    pub output_schema: Option<SchemaState>,
    /// The session's effort.
    pub thinking: Thinking,
    /// The policy while the provider cannot answer.
    pub outage: OutagePolicy,
    /// The session's own limit of steps.
    pub max_steps: Option<u32>,
    /// The only tools that the session has.
    pub tools: Option<Vec<String>>,
}

/// A compaction that a user asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionRequest {
    /// The prompt that requests it.
    pub prompt: PromptId,
    /// The focus of the summary; may be empty.
    pub focus: String,
}
