//! Following a child through its log: the turn of its task, its usage, its questions, and its end.
//!
//! The log is read from its beginning, so a follower after a restart knows what the one before it knew.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use linger_protocol::RpcError;
use linger_protocol::child::{ChildStatus, ChildUpdate};
use linger_protocol::error::Code;
use linger_protocol::event::{
    Compacted, CompactionFailed, Event, EventBody, MessageAdded, Notice, NoticeCode, PermissionRequested,
    PermissionResolved, PromptAccepted, QuestionResolved, SessionCreated, ToolStarted, TurnFinished,
};
use linger_protocol::id::{PromptId, QuestionId, SessionId, TurnId};
use linger_protocol::message::{Role, StopReason, Usage, text_of};
use linger_protocol::question::Blocks;
use linger_protocol::session::{self, Prompted};
use linger_protocol::worktree::{Worktree, WorktreeStatus};
use serde_json::Value;
use tokio::sync::oneshot;

use super::{answer, cancel, give};
use crate::session::env::Host;
use crate::session::messages::{Command, Reply};
use crate::session::reading::subscription::Subscription;
use crate::store::Store;
use crate::tool::text;

/// How long what a child does is shown, in characters: a line of a terminal.
const DOING: usize = 80;

/// The first and the longest pause before a child that cannot be loaded is tried again.
const AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

/// The detail of a child that a user removed.
const REMOVED: &str = "the session was removed";

/// How the task of a child ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChildEnding {
    /// The stop reason; absent if it never began, or the session is gone.
    pub reason: Option<StopReason>,
    /// The problem; absent if the task ended well.
    pub detail: Option<String>,
    /// The value that fits the schema.
    pub answer: Option<Value>,
    /// The text of its last answer.
    pub text: String,
}

/// The progress of a child, folded from its events. Pure.
#[derive(Clone, Debug, Default, PartialEq)]
struct ChildProgress {
    /// The prompt with its task.
    prompt: Option<PromptId>,
    /// The turn of that.
    turn: Option<TurnId>,
    steps: u32,
    usage: Usage,
    doing: String,
    questions: BTreeSet<QuestionId>,
    /// The questions of its own children, what these have used, and their steps.
    children: BTreeMap<SessionId, (Vec<QuestionId>, Usage, u32)>,
    /// Whether it waits to be continued, or for a key.
    is_stopped: bool,
    text: String,
    ending: Option<ChildEnding>,
    /// Where it works.
    cwd: PathBuf,
    /// Its git worktree, as it was made.
    worktree: Option<Worktree>,
    /// Whether its answer has a form of its own.
    has_own_form: bool,
}

impl ChildProgress {
    fn apply(&mut self, event: Event) {
        match event.body {
            EventBody::SessionCreated(SessionCreated { cwd, delegated, .. }) => {
                self.cwd = cwd;
                self.worktree = delegated.and_then(|of| of.worktree);
            }
            EventBody::PromptAccepted(PromptAccepted { prompt, schema, .. }) if self.prompt.is_none() => {
                self.prompt = Some(prompt);
                self.has_own_form = schema.is_some_and(|schema| schema != answer::schema());
            }
            EventBody::PromptUnqueued { prompt, .. } if self.prompt.as_ref() == Some(&prompt) => {
                self.end(None, Some("the task was taken back before it began".to_owned()), None);
            }
            EventBody::TurnStarted { prompt } if self.prompt.as_ref() == Some(&prompt) => self.turn = event.turn,
            // For this reader alone.
            EventBody::Notice(Notice { code: Some(NoticeCode::Removed), .. }) => {
                self.end(None, Some(REMOVED.to_owned()), None)
            }
            EventBody::Notice(Notice { code: Some(NoticeCode::Damaged), text, .. }) if event.seq.is_none() => {
                self.end(None, Some(format!("its log cannot be read: {text}")), None);
            }
            body if event.turn.is_some() && event.turn == self.turn => self.apply_to_task(body),
            _ => {}
        }
    }

    /// Applies an event of the task's turn.
    fn apply_to_task(&mut self, body: EventBody) {
        match body {
            EventBody::Message(MessageAdded { role: Role::Assistant, content, interrupted, usage, .. }) => {
                self.usage += Usage::of_answer(usage, interrupted);
                self.steps += u32::from(!interrupted);
                let text = text_of(&content);
                if !text.trim().is_empty() {
                    self.text = text;
                }
            }
            EventBody::Compacted(Compacted { usage, .. }) => self.usage += Usage::of_answer(usage, false),
            EventBody::CompactionFailed(CompactionFailed { usage, .. }) => self.usage += usage.unwrap_or_default(),
            EventBody::ToolStarted(ToolStarted { action, .. }) => {
                self.doing = text::one_line(&action).chars().take(DOING).collect();
            }
            EventBody::PermissionRequested(PermissionRequested { permission, .. }) => {
                self.questions.insert(permission);
            }
            EventBody::QuestionAsked { question, asked } if asked.blocks != Blocks::Nothing => {
                self.questions.insert(question);
            }
            EventBody::PermissionResolved(PermissionResolved { permission: question, .. })
            | EventBody::QuestionResolved(QuestionResolved { question, .. }) => drop(self.questions.remove(&question)),
            EventBody::ChildUpdated(update) => {
                let known = self.children.entry(update.child.clone()).or_default();
                self.usage += update.usage.since(&known.1);
                self.steps += update.steps.saturating_sub(known.2);
                let questions = if update.is_finished() { Vec::new() } else { update.questions };
                *known = (questions, update.usage, update.steps);
            }
            EventBody::Notice(Notice { code, .. }) => match code {
                Some(NoticeCode::Offered | NoticeCode::Unconfigured | NoticeCode::KeyMissing) => self.is_stopped = true,
                Some(NoticeCode::Resumed | NoticeCode::Continued | NoticeCode::KeyFound) => self.is_stopped = false,
                _ => {}
            },
            EventBody::TurnFinished(TurnFinished { stop_reason, detail, answer, usage, steps, .. }) => {
                (self.usage, self.steps) = (usage, steps);
                self.end(Some(stop_reason), detail, answer);
            }
            _ => {}
        }
    }

    fn end(&mut self, reason: Option<StopReason>, detail: Option<String>, answer: Option<Value>) {
        let text = std::mem::take(&mut self.text);
        self.ending.get_or_insert(ChildEnding { reason, detail, answer, text });
    }

    /// Brings `update` up to date; whether that changes it.
    fn bring_up_to_date(&self, update: &mut ChildUpdate) -> bool {
        let of_children = self.children.values().flat_map(|(questions, ..)| questions);
        let questions: Vec<QuestionId> = self.questions.iter().chain(of_children).cloned().collect();
        let status = match (&self.ending, questions.is_empty() && !self.is_stopped) {
            (Some(_), _) => ChildStatus::Finished,
            (None, true) => ChildStatus::Working,
            (None, false) => ChildStatus::Waiting,
        };
        let questions = if self.ending.is_some() { Vec::new() } else { questions };
        let now = ChildUpdate {
            status,
            doing: self.doing.clone(),
            questions,
            steps: self.steps,
            usage: self.usage,
            stop_reason: self.ending.as_ref().and_then(|ending| ending.reason),
            ..update.clone()
        };
        let is_other = now != *update;
        *update = now;
        is_other
    }
}

/// Reads the log of one child.
pub struct Follower {
    host: Arc<dyn Host>,
    subscription: Subscription,
    progress: ChildProgress,
    is_caught_up: bool,
}

impl Follower {
    /// Attaches to a child. One that is gone or cannot be read is followed too: its task has ended.
    pub async fn attach(store: &Store, host: &Arc<dyn Host>, child: &SessionId) -> Result<Self, String> {
        let reading = send(host, child, |reply| Command::Attach(None, false, BTreeMap::new(), reply)).await;
        let reading = reading.map_err(|error| error.message)?;
        let subscription = Subscription::new(reading, store.clone(), false);
        Ok(Self { host: host.clone(), subscription, progress: ChildProgress::default(), is_caught_up: false })
    }

    /// Reads what is there already.
    pub async fn catch_up(&mut self) {
        while !self.is_caught_up && self.progress.ending.is_none() {
            self.read().await;
        }
    }

    /// Whether it has its task.
    pub fn has_task(&self) -> bool {
        self.progress.prompt.is_some()
    }

    /// Whether it has no task, and could still get one.
    pub fn lacks_task(&self) -> bool {
        !self.has_task() && self.progress.ending.is_none()
    }

    /// Gives the child its task, unless it has it; `prompt` makes that for where the child works.
    pub async fn give_task(
        &mut self,
        parent: &SessionId,
        prompt: impl FnOnce(&Path, Option<&Worktree>) -> session::Prompt,
    ) -> Result<(), RpcError> {
        self.catch_up().await;
        if !self.lacks_task() {
            return Ok(());
        }
        let prompt = prompt(&self.progress.cwd, self.progress.worktree.as_ref());
        let child = self.subscription.session().clone();
        let given: Prompted = send(&self.host, &child, |reply| give(parent, &child, prompt.clone(), reply)).await?;
        tracing::debug!(target: "session", session = %child, prompt = %given.prompt, "has its task");
        Ok(())
    }

    /// Waits for the next event, and brings `update` up to date; whether that has news.
    pub async fn next(&mut self, update: &mut ChildUpdate) -> bool {
        if self.progress.ending.is_none()
            && (!self.is_caught_up || !self.progress.bring_up_to_date(&mut update.clone()))
        {
            self.read().await;
        }
        if self.progress.ending.is_some() {
            // Also if it was told before: the one that waits for it may not have heard.
            self.progress.bring_up_to_date(update);
            return true;
        }
        self.is_caught_up && self.progress.bring_up_to_date(update)
    }

    /// Where the child works, and whether its answer has a form of its own.
    pub fn form(&self) -> (PathBuf, bool) {
        (self.progress.cwd.clone(), self.progress.has_own_form)
    }

    /// Removes the child's git worktree unless it has changes; gives it if it stays.
    pub async fn remove_worktree(&self) -> Option<Worktree> {
        self.progress.worktree.as_ref()?;
        let told = send(&self.host, self.subscription.session(), Command::TidyWorktree).await;
        // A child that is gone, or cannot be read, keeps what it has.
        let now = told.ok().flatten().or_else(|| self.progress.worktree.clone());
        now.filter(|worktree| worktree.status != WorktreeStatus::Removed)
    }

    /// How the task ended.
    pub fn ending(&self) -> ChildEnding {
        self.progress.ending.clone().unwrap_or_default()
    }

    /// Cancels the child's turn.
    pub fn cancel(&self) {
        self.host.clone().command(self.subscription.session(), cancel());
    }

    async fn read(&mut self) {
        let Some(shown) = self.subscription.next().await else {
            return self.progress.end(None, Some(REMOVED.to_owned()), None);
        };
        match shown.into_event() {
            Ok(Event { body: EventBody::CaughtUp {}, .. }) => self.is_caught_up = true,
            Ok(event) => self.progress.apply(event),
            // What is damaged says so in a notice.
            Err(error) => tracing::warn!(target: "session", %error, "an event of a child cannot be read"),
        }
    }
}

/// Sends a command to a session until it has an answer that counts. While the daemon ends there is none: the next one goes on.
pub async fn send<T>(
    host: &Arc<dyn Host>,
    session: &SessionId,
    command: impl Fn(Reply<T>) -> Command,
) -> Result<T, RpcError> {
    let mut pause = AGAIN[0];
    loop {
        let (reply, answer) = oneshot::channel();
        host.clone().command(session, command(reply));
        let error = match answer.await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => error,
            Err(_) => RpcError::new(Code::Internal, format!("session {session} did not answer")),
        };
        match error.code() {
            Some(Code::Ending) => std::future::pending::<()>().await,
            Some(Code::Storage | Code::TooMuch) => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(AGAIN[1]);
            }
            _ => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use linger_protocol::message::AnswerEnd;

    use super::*;

    fn event(turn: &str, body: EventBody) -> Event {
        Event { body, seq: Some(1), at: 0, turn: Some(turn.into()).filter(|turn: &TurnId| !turn.0.is_empty()) }
    }

    fn said(tokens: u64) -> EventBody {
        let usage = Some(Usage { input_tokens: tokens, cost_micros: Some(1), ..Usage::default() });
        let content = vec![linger_protocol::message::ContentBlock::text("so")];
        EventBody::assistant_message("m1".into(), content, None, usage, AnswerEnd::Whole)
    }

    fn accepted(prompt: &str) -> EventBody {
        serde_json::from_value(serde_json::json!({
            "kind": "prompt_accepted", "prompt": prompt, "content": [], "when": "queue",
        }))
        .unwrap()
    }

    #[test]
    fn only_the_turn_of_the_task_counts_and_its_end_is_final() {
        let mut progress = ChildProgress::default();
        progress.apply(event("", accepted("p1")));
        progress.apply(event("t1", EventBody::TurnStarted { prompt: "p1".into() }));
        progress.apply(event("t1", said(10)));
        progress.apply(event("", accepted("p2")));
        let mut update = ChildUpdate { status: ChildStatus::Started, ..ChildUpdate::default() };
        assert!(progress.bring_up_to_date(&mut update) && !progress.bring_up_to_date(&mut update));
        assert_eq!((update.status, update.steps, update.usage.input_tokens), (ChildStatus::Working, 1, 10));
        let usage = Usage { input_tokens: 5, ..Usage::default() };
        let grandchild = ChildUpdate { usage, steps: 3, ..ChildUpdate::default() };
        for _ in 0..2 {
            progress.apply(event("t1", EventBody::ChildUpdated(grandchild.clone())));
        }
        progress.bring_up_to_date(&mut update);
        assert_eq!((update.usage.input_tokens, update.steps), (15, 4), "what a child of its own used counts once");
        progress.end(Some(StopReason::Cancelled), None, None);
        progress.apply(event("t2", EventBody::TurnStarted { prompt: "p2".into() }));
        progress.apply(event("t2", said(1000)));
        progress.bring_up_to_date(&mut update);
        assert_eq!((update.is_finished(), update.usage.input_tokens), (true, 15));
        assert_eq!(progress.ending.unwrap().text, "so");
    }

    #[test]
    fn a_question_makes_it_wait_until_it_is_answered() {
        let mut progress =
            ChildProgress { turn: Some("t1".into()), prompt: Some("p1".into()), ..ChildProgress::default() };
        let asked = crate::question::choice("which?".to_owned(), Vec::new(), Blocks::Turn, None);
        progress.apply(event("t1", EventBody::QuestionAsked { question: "q1".into(), asked }));
        let mut update = ChildUpdate::default();
        progress.bring_up_to_date(&mut update);
        assert_eq!((update.status, update.questions.len()), (ChildStatus::Waiting, 1));
        let (question, by) = ("q1".into(), "me".to_owned());
        progress.apply(event(
            "t1",
            EventBody::QuestionResolved(QuestionResolved {
                question,
                answer: None,
                value: None,
                by,
                process: None,
                reason: None,
            }),
        ));
        progress.bring_up_to_date(&mut update);
        assert_eq!((update.status, update.questions.len()), (ChildStatus::Working, 0));
    }
}
