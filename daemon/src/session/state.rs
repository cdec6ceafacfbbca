//! What a session is right now: a fold over its events, kept beside them in the store.
//!
//! Pure. [`State::apply`] is the only thing that changes it, so that a state that was loaded and one that was lived through
//! are the same.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use linger_protocol::event::{Asks, Event, EventBody, Instruction, NoticeCode};
use linger_protocol::id::{CallId, MessageId, PermissionId, PromptId, SessionId, TurnId};
use linger_protocol::message::{ContentBlock, Role, StopReason, Usage};
use linger_protocol::permission::{Decision, Mode};
use linger_protocol::session::{self, Effort as Thinking, Info, Setup, When};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::compaction::Effort;
use super::cursor::Position;

/// How much of the first prompt becomes the title, in characters: a line of a terminal.
const TITLE: usize = 72;

/// A turn that met this many crashes without finishing a step is offered, not resumed.
const MAX_CRASHES: u32 = 3;

/// The state of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Number of the last event.
    pub head: u64,
    /// Where it works.
    pub cwd: PathBuf,
    /// `provider/model`.
    pub model: String,
    /// The permission mode.
    pub mode: Mode,
    /// How hard the model thinks.
    #[serde(default, skip_serializing_if = "Thinking::is_auto")]
    pub thinking: Thinking,
    /// What its requests have beside the conversation; unknown in sessions of old builds until they ask again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<Setup>,
    /// The name.
    pub name: Option<String>,
    /// The beginning of the first prompt.
    pub title: Option<String>,
    /// When it was created, in Unix milliseconds.
    pub created_at: u64,
    /// When it last changed.
    pub updated_at: u64,
    /// Rules that answers allowed for this session.
    pub grants: Vec<String>,
    /// The instruction files that the system prompt was last made of.
    pub instructions: Vec<Instruction>,
    /// Prompts that wait, in order.
    pub queue: VecDeque<Queued>,
    /// Queued prompts wait for the user's next word: the last turn was cancelled or failed.
    pub held: bool,
    /// The turn under way.
    pub turn: Option<Turn>,
    /// How the last turn ended.
    pub stop_reason: Option<StopReason>,
    /// Number of the event before the latest turn.
    pub before_turn: u64,
    /// Tokens over all turns.
    pub usage: Usage,
    /// About how many tokens the context has; 0 while no provider has counted them.
    #[serde(default)]
    pub context: u64,
    /// How many turns, messages, calls and prompts there have been: the source of their ids.
    pub counts: Counts,
}

/// Sources of ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Turns.
    pub turns: u64,
    /// Messages.
    pub messages: u64,
    /// Tool calls.
    pub calls: u64,
    /// Prompts.
    pub prompts: u64,
}

/// A prompt that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Queued {
    /// The prompt.
    pub prompt: PromptId,
    /// The number of its `prompt_accepted`.
    pub seq: u64,
    /// What the user said; stored in that event, and read from it when the session is loaded.
    #[serde(skip)]
    pub content: Vec<ContentBlock>,
    /// When it is taken up.
    pub when: When,
    /// It asks for a compaction, and does not become a message.
    #[serde(default)]
    pub compact: bool,
    /// The JSON Schema that the answer has to fit; stored like the content.
    #[serde(skip)]
    pub schema: Option<Arc<Value>>,
}

/// What the answer of a turn has to fit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// The number of the `prompt_accepted` that has the schema.
    pub seq: u64,
    /// The schema; read from that event when the session is loaded.
    #[serde(skip)]
    pub schema: Arc<Value>,
    /// The model was told it in words.
    pub said: bool,
    /// How many answers did not fit.
    pub misfits: u32,
}

/// A turn under way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// The turn.
    pub id: TurnId,
    /// Steps that have finished.
    pub steps: u32,
    /// Tokens so far.
    pub usage: Usage,
    /// The calls of the last assistant message, until their results are a message.
    pub calls: Vec<Call>,
    /// Times that the daemon died without a step finishing in between.
    pub crashes: u32,
    /// It is not taken up by itself.
    pub offered: bool,
    /// The daemon ended in good order; taking the turn up again is no crash.
    pub paused: bool,
    /// It waits for a key.
    pub key_missing: bool,
    /// The last answer was cut at the token limit: nobody knows whether its calls are whole.
    pub cut: bool,
    /// The last answer is not over: the next step goes on with it.
    #[serde(default)]
    pub goes_on: bool,
    /// An interrupted message that is not superseded yet: the step has to be repeated.
    pub interrupted: Option<MessageId>,
    /// The prompt that asks for the compaction which is all that it does, unless another comes.
    #[serde(default)]
    pub compacts: Option<PromptId>,
    /// The compaction under way.
    #[serde(default)]
    pub compaction: Option<Compaction>,
    /// What was done to make room for the step under way.
    #[serde(default)]
    pub effort: Effort,
    /// What its answer has to fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Shape>,
}

/// A compaction under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compaction {
    /// The prompt that asked for it, if one did.
    pub prompt: Option<PromptId>,
    /// About how many tokens the context has.
    pub tokens: u64,
}

/// A tool call of the step under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The call.
    pub id: CallId,
    /// The permission that it needed.
    pub permission: Option<Permission>,
    /// Whether it has started.
    pub started: bool,
    /// Whether it has its result.
    pub finished: bool,
}

/// A permission of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Permission {
    /// The permission.
    pub id: PermissionId,
    /// What was asked.
    pub digest: String,
    /// The rule that an answer for longer adds.
    pub grant: String,
    /// The answer, once there is one.
    pub answer: Option<Answered>,
}

/// The answer to a permission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// The decision.
    pub decision: Decision,
    /// Who gave it.
    pub by: String,
    /// When, in Unix milliseconds.
    pub at: u64,
    /// What was said with it.
    pub reason: Option<String>,
}

impl State {
    /// Takes the next event.
    pub fn apply(&mut self, event: &Event) {
        if let Some(seq) = event.seq {
            self.head = seq;
            self.updated_at = event.at;
        }
        match &event.body {
            EventBody::SessionCreated { cwd, model, mode, effort, name, setup, .. } => {
                self.setup.clone_from(setup);
                self.created_at = event.at;
                self.thinking = *effort;
                (self.cwd, self.model, self.mode, self.name) = (cwd.clone(), model.clone(), *mode, name.clone());
            }
            EventBody::SessionChanged { model, mode, effort, name, instructions, setup } => {
                self.thinking = effort.unwrap_or(self.thinking);
                self.model = model.clone().unwrap_or_else(|| std::mem::take(&mut self.model));
                self.mode = mode.unwrap_or(self.mode);
                self.name = name.clone().or_else(|| self.name.take());
                if let Some(instructions) = instructions {
                    self.instructions.clone_from(instructions);
                }
                self.setup = setup.clone().or_else(|| self.setup.take());
            }
            EventBody::PromptAccepted { prompt, content, when, compact, schema, .. } => {
                self.prompt_accepted(prompt, content, *when, *compact);
                if let (Some(queued), Some(schema)) = (self.queue.back_mut(), schema) {
                    queued.schema = Some(Arc::new(schema.clone()));
                }
            }
            EventBody::TurnStarted { prompt } => {
                self.counts.turns += 1;
                self.held = false;
                self.before_turn = self.head.saturating_sub(1);
                let id = event.turn.clone().unwrap_or_default();
                let asks = |queued: &&Queued| queued.prompt == *prompt && queued.compact;
                let compacts = self.queue.iter().find(asks).map(|queued| queued.prompt.clone());
                self.turn = Some(Turn { id, compacts, ..Turn::default() });
            }
            EventBody::Message { message, role, content, interrupted, prompt, asks, usage, cut, paused, .. } => {
                self.counts.messages += 1;
                self.asked(*asks);
                if let Some(prompt) = prompt {
                    let taken = self.queue.iter().find(|queued| queued.prompt == *prompt);
                    let shape = taken.and_then(|queued| Some((queued.seq, queued.schema.clone()?)));
                    if let Some((seq, schema)) = shape {
                        self.in_turn(|turn| turn.shape = Some(Shape { seq, schema, ..Shape::default() }));
                    }
                    self.queue.retain(|queued| queued.prompt != *prompt);
                    // There is something new to answer, and what was tried before need not hold for it.
                    self.in_turn(|turn| (turn.compacts, turn.effort) = (None, Effort::default()));
                }
                match role {
                    Role::User => self.user_message(),
                    Role::Assistant => self.assistant_message(
                        message,
                        content,
                        [*interrupted, *cut, *paused],
                        Usage::of_answer(*usage, *interrupted),
                    ),
                }
            }
            EventBody::MessageSuperseded { .. } => self.in_turn(|turn| turn.interrupted = None),
            EventBody::ToolStarted { call_id, .. } => self.call(call_id, |call| call.started = true),
            EventBody::ToolFinished { call_id, .. } => self.call(call_id, |call| call.finished = true),
            EventBody::PermissionRequested { permission, call_id, digest, grant, .. } => {
                let (id, digest, grant) = (permission.clone(), digest.clone(), grant.clone());
                self.call(call_id, |call| call.permission = Some(Permission { id, digest, grant, answer: None }));
            }
            EventBody::PermissionResolved { permission, decision, by, reason } => {
                let answer = Answered { decision: *decision, by: by.clone(), at: event.at, reason: reason.clone() };
                self.permission_resolved(permission, answer);
            }
            EventBody::CompactionStarted { prompt, tokens, .. } => {
                let compaction = Compaction { prompt: prompt.clone(), tokens: *tokens };
                self.in_turn(|turn| turn.compaction = Some(compaction));
            }
            EventBody::Compacted { prompt, tokens_after, usage, .. } => {
                self.context = *tokens_after;
                self.compaction_over(prompt.as_ref(), true, Usage::of_answer(*usage, false));
            }
            EventBody::CompactionFailed { prompt, usage, .. } => {
                // Nobody pays for what was never counted.
                self.compaction_over(prompt.as_ref(), false, usage.unwrap_or_default());
            }
            EventBody::Trimmed { calls, tokens_after, .. } => {
                self.context = *tokens_after;
                let output = !calls.is_empty();
                self.in_turn(|turn| turn.effort.trimmed |= output);
            }
            EventBody::TurnFinished { stop_reason, .. } => {
                // A compaction that was cancelled is not taken up again.
                if let Some(prompt) = self.turn.take().and_then(|turn| turn.compacts) {
                    self.queue.retain(|queued| queued.prompt != prompt);
                }
                self.stop_reason = Some(*stop_reason);
                self.held = matches!(stop_reason, StopReason::Cancelled | StopReason::Error);
            }
            EventBody::Notice { code, .. } => self.notice(*code),
            EventBody::TextDelta(_)
            | EventBody::ThinkingDelta(_)
            | EventBody::HostedDelta { .. }
            | EventBody::ToolOutputDelta { .. }
            | EventBody::CaughtUp {}
            | EventBody::Unknown => {}
        }
    }

    fn prompt_accepted(&mut self, prompt: &PromptId, content: &[ContentBlock], when: When, compact: bool) {
        self.counts.prompts += 1;
        if self.title.is_none() && !compact {
            let text = content.iter().find_map(ContentBlock::as_text).unwrap_or_default();
            let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
            self.title = Some(line.trim().chars().take(TITLE).collect());
        }
        self.queue.push_back(Queued {
            prompt: prompt.clone(),
            seq: self.head,
            content: content.to_vec(),
            when,
            compact,
            schema: None,
        });
    }

    /// The daemon asked something of the model in the user's place.
    fn asked(&mut self, asks: Option<Asks>) {
        let Some(shape) = self.turn.as_mut().and_then(|turn| turn.shape.as_mut()) else { return };
        match asks {
            Some(Asks::Schema) => shape.said = true,
            Some(Asks::Again) => shape.misfits += 1,
            Some(Asks::GoOn | Asks::Unknown) | None => {}
        }
    }

    /// A summary that was asked for is there, or is not to be had.
    fn compaction_over(&mut self, prompt: Option<&PromptId>, compacted: bool, usage: Usage) {
        self.usage += usage;
        if let Some(prompt) = prompt {
            self.queue.retain(|queued| queued.prompt != *prompt);
        }
        self.in_turn(|turn| {
            turn.usage += usage;
            turn.compaction = None;
            if prompt.is_none() {
                turn.effort.compacted = Some(compacted);
            }
        });
    }

    fn user_message(&mut self) {
        // Either the results of all calls, or a user's words after the calls got their results.
        self.in_turn(|turn| {
            turn.calls.retain(|call| !call.finished);
            turn.interrupted = None;
        });
    }

    fn assistant_message(
        &mut self,
        message: &MessageId,
        content: &[ContentBlock],
        [interrupted, cut, paused]: [bool; 3],
        usage: Usage,
    ) {
        let calls = content.iter().filter_map(|block| match block {
            ContentBlock::ToolUse { call_id, .. } => {
                Some(Call { id: call_id.clone(), permission: None, started: false, finished: false })
            }
            _ => None,
        });
        let calls: Vec<Call> = calls.collect();
        self.counts.calls += calls.len() as u64;
        self.usage += usage;
        if usage.input_tokens > 0 {
            self.context = usage.input_tokens + usage.output_tokens;
        }
        self.in_turn(|turn| {
            turn.usage += usage;
            if interrupted {
                turn.interrupted = Some(message.clone());
                return;
            }
            turn.interrupted = None;
            (turn.cut, turn.goes_on) = (cut, paused);
            turn.crashes = 0;
            turn.effort = Effort::default();
            turn.steps += 1;
            turn.calls = calls;
        });
    }

    fn permission_resolved(&mut self, permission: &PermissionId, answer: Answered) {
        let decision = answer.decision;
        let mut grant = None;
        self.in_turn(|turn| {
            let asked = turn.calls.iter_mut().filter_map(|call| call.permission.as_mut());
            if let Some(asked) = asked.into_iter().find(|asked| asked.id == *permission) {
                asked.answer = Some(answer);
                grant = Some(asked.grant.clone());
            }
        });
        if matches!(decision, Decision::AllowSession | Decision::AllowAlways) {
            self.grants.extend(grant.filter(|grant| !self.grants.contains(grant)));
        }
    }

    fn notice(&mut self, code: Option<NoticeCode>) {
        self.in_turn(|turn| match code {
            Some(NoticeCode::Resumed) => {
                turn.crashes += u32::from(!turn.paused);
                (turn.paused, turn.offered, turn.key_missing) = (false, false, false);
            }
            Some(NoticeCode::Paused) => turn.paused = true,
            Some(NoticeCode::Offered) => turn.offered = true,
            Some(NoticeCode::Continued) => (turn.offered, turn.crashes) = (false, 0),
            Some(NoticeCode::KeyMissing) => turn.key_missing = true,
            Some(NoticeCode::KeyFound) => turn.key_missing = false,
            Some(
                NoticeCode::Retry
                | NoticeCode::Removed
                | NoticeCode::Damaged
                | NoticeCode::UnknownModel
                | NoticeCode::Unknown,
            )
            | None => {}
        });
    }

    fn in_turn(&mut self, change: impl FnOnce(&mut Turn)) {
        if let Some(turn) = &mut self.turn {
            change(turn);
        }
    }

    fn call(&mut self, id: &CallId, change: impl FnOnce(&mut Call)) {
        self.in_turn(|turn| {
            if let Some(call) = turn.calls.iter_mut().find(|call| call.id == *id) {
                change(call);
            }
        });
    }

    /// The prompts that do not wait for the end of the turn under way.
    pub fn steering(&self) -> impl Iterator<Item = &Queued> {
        self.queue.iter().filter(|queued| queued.when != When::Queue && !queued.compact)
    }

    /// What it is doing, for everybody.
    pub fn doing(&self) -> session::State {
        match &self.turn {
            None => session::State::Idle,
            Some(turn) if turn.offered => session::State::Offered,
            Some(turn) if turn.key_missing || turn.waiting().next().is_some() => session::State::Waiting,
            Some(_) => session::State::Running,
        }
    }

    /// Whether a turn should start that has not yet: a daemon that dies now must start it when it is back.
    pub fn is_owed(&self) -> bool {
        self.turn.is_none() && !self.held && !self.queue.is_empty()
    }

    /// What it is doing, as it stands in the database.
    pub fn stored_name(&self) -> &'static str {
        if self.is_owed() { OWED } else { state_name(self.doing()) }
    }

    /// About how many tokens the context has, if that was ever counted.
    pub fn context_tokens(&self) -> Option<u64> {
        Some(self.context).filter(|tokens| *tokens > 0)
    }

    /// The row of `session/list`, but for what only others know.
    pub fn info(&self, session: SessionId) -> Info {
        Info {
            session,
            name: self.name.clone(),
            cwd: self.cwd.clone(),
            model: self.model.clone(),
            mode: self.mode,
            effort: self.thinking,
            state: self.doing(),
            stop_reason: self.stop_reason,
            queued: self.queue.len() as u32,
            permissions: self.turn.iter().flat_map(Turn::waiting).map(|asked| asked.id.clone()).collect(),
            title: self.title.clone(),
            usage: self.usage,
            context_tokens: self.context_tokens(),
            context_window: None,
            size: 0,
            created_at: self.created_at,
            updated_at: self.updated_at,
            cursor: Position::after(self.head).cursor(),
            turn_cursor: Position::after(self.before_turn).cursor(),
            damaged: None,
        }
    }
}

impl Turn {
    /// The permissions that wait for an answer.
    pub fn waiting(&self) -> impl Iterator<Item = &Permission> {
        self.calls.iter().filter_map(|call| call.permission.as_ref()).filter(|asked| asked.answer.is_none())
    }

    /// Whether it met too many crashes to be taken up by itself once more.
    pub fn is_hopeless(&self) -> bool {
        // The one that it was found after counts.
        !self.paused && self.crashes + 1 >= MAX_CRASHES
    }
}

/// The name in the database of a session that owes its user a turn ([`State::is_owed`]).
const OWED: &str = "owed";

/// The name of a state in the database.
fn state_name(state: session::State) -> &'static str {
    match state {
        session::State::Idle => "idle",
        session::State::Running => "running",
        session::State::Waiting => "waiting",
        session::State::Offered => "offered",
    }
}
