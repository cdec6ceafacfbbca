//! The tool calls of one step: each is checked, permitted, started, run, and gets exactly one result.
//!
//! A step asks for all its permissions at once, so that a user can answer them in any order. Calls overlap with their neighbours if
//! their effects allow it; the others run alone, in the model's order. A call that started before a restart needs no permission
//! and no second start: it is joined, or runs again if it only reads.

pub mod checkpoints;
mod hooks;
mod permit;
mod preview;
mod result;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use linger_protocol::checkpoint::Checkpoint;
use linger_protocol::event::{AfterCrash, EventBody, Outcome, ToolStarted};
use linger_protocol::id::{CallId, SessionId};
use linger_protocol::message::ContentBlock;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::fault;
use crate::log::{OpenStream, Piece};
use crate::provider::json_size;
use crate::session::calls::hooks::NotRun;
use crate::session::calls::permit::{CheckedCall, Ready, Slot};
use crate::session::calls::result::{CallResult, request_size};
use crate::session::delegate::Delegation;
use crate::session::env::CallServices;
use crate::session::messages::{Emitter, Fragment, TurnEnded, place};
use crate::session::state::State;
use crate::sys::{clock, disk};
use crate::tool::background::Jobs;
use crate::tool::set::ToolSet;
use crate::tool::{Access, Call, Context, Effects, OutputDelta, Targets, ToolOutput, Workspace};

/// Pieces of output queued for the log; beyond that the tool waits.
const OUTPUT_QUEUE: usize = 4;

/// The most calls of one step; a model makes a dozen. More are not run, and their results say so.
const MAX_CALLS: usize = 128;

/// The most arguments that the start of a call repeats, in bytes of JSON; the message with the call has all.
const MAX_INPUT: usize = 4 << 10;

/// The most concurrent calls; a model makes a dozen at most.
const OVERLAP: usize = 8;

/// Runs calls for one turn.
#[derive(Clone)]
pub struct Runner {
    /// The shared services.
    pub services: Arc<CallServices>,
    /// The tool set of the step.
    pub tools: Arc<ToolSet>,
    /// The workspace of the calls.
    pub workspace: Arc<Workspace>,
    /// Sends events to the actor.
    pub emit: Emitter,
    /// The session's commands in the background.
    pub jobs: Jobs,
    /// Has tasks done by other agents.
    pub delegation: Delegation,
    /// The session; its children are recorded as those of its tools.
    pub session: SessionId,
    /// The size of the results so far, in bytes of JSON.
    pub size: Arc<AtomicUsize>,
    /// Whether people know that there are no checkpoints.
    pub warned_no_checkpoints: Arc<AtomicBool>,
    /// Whether `workspace` is another one than the session's, whose directory is gone.
    pub is_moved: bool,
}

/// A started call that the next task of the turn continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartedCall {
    /// Whether it is joined or runs again, from its `tool_started`.
    pub after_crash: AfterCrash,
    /// Where its output continues, in bytes.
    pub offset: u64,
}

impl Runner {
    /// Runs `calls` and returns their results in the same order; `results` has earlier ones. Calls in `begun` started before a
    /// restart; they are joined or run again. `cut`: their answer hit the token limit, so they may be incomplete.
    pub async fn run(
        &self,
        calls: Vec<ContentBlock>,
        mut results: HashMap<CallId, ContentBlock>,
        begun: &HashMap<CallId, StartedCall>,
        cut: bool,
    ) -> Result<Vec<ContentBlock>, TurnEnded> {
        let mut slots = Vec::new();
        for call in calls {
            let ContentBlock::ToolUse { call_id, name, input, .. } = call else { continue };
            slots.push(match results.remove(&call_id) {
                Some(result) => {
                    self.size.fetch_add(request_size(std::slice::from_ref(&result)), Ordering::Relaxed);
                    Slot::Done(result)
                }
                None if slots.len() >= MAX_CALLS => {
                    let text =
                        format!("not run: an answer may have {MAX_CALLS} calls; make the others in the next one");
                    Slot::Done(self.refuse(call_id, &name, Outcome::Invalid, text)?)
                }
                None => match begun.get(&call_id) {
                    Some(begun) => self.prepare_begun(call_id, name, input, *begun)?,
                    None => self.prepare(call_id, name, input, cut, &slots).await?,
                },
            });
        }
        self.ask(slots.iter_mut().filter_map(Slot::take_request).collect())?;
        let mut done = Vec::with_capacity(slots.len());
        let mut together: Vec<(usize, Ready)> = Vec::new();
        // Whether other calls of the step have run since permission was asked.
        let mut late = false;
        for (index, slot) in slots.into_iter().enumerate() {
            done.push(None);
            match slot {
                Slot::Done(result) => set(&mut done, index, result),
                Slot::Ready(ready) if ready.checked.effects.overlaps && together.len() < OVERLAP => {
                    together.push((index, *ready))
                }
                Slot::Ready(ready) => {
                    late |= self.run_together(std::mem::take(&mut together), late, &mut done).await?;
                    if ready.checked.effects.overlaps {
                        together.push((index, *ready));
                    } else {
                        set(&mut done, index, self.run_one(*ready, late).await?);
                        late = true;
                    }
                }
            }
        }
        self.run_together(together, late, &mut done).await?;
        Ok(done.into_iter().flatten().skip(usize::from(fault::bug("I4"))).collect())
    }

    /// Runs calls concurrently; whether there were any.
    async fn run_together(
        &self,
        together: Vec<(usize, Ready)>,
        late: bool,
        done: &mut [Option<ContentBlock>],
    ) -> Result<bool, TurnEnded> {
        let any = !together.is_empty();
        let mut running = JoinSet::new();
        for (index, ready) in together {
            let runner = self.clone();
            running.spawn(async move { (index, runner.run_one(ready, late).await) });
        }
        while let Some(finished) = running.join_next().await {
            // A panic in a call ends the turn, with an event.
            let (index, result) = finished.map_err(resume_panic)?;
            set(done, index, result?);
        }
        Ok(any)
    }

    /// Runs a permitted call, or continues a started one; `late`: other calls of its step have run since it asked.
    async fn run_one(&self, ready: Ready, late: bool) -> Result<ContentBlock, TurnEnded> {
        match ready.checked.moved.clone() {
            Some(workspace) => Self { workspace, is_moved: true, ..self.clone() }.run_here(ready, late).await,
            None => self.run_here(ready, late).await,
        }
    }

    /// As [`Self::run_one`], in the workspace where the call runs.
    async fn run_here(&self, Ready { checked, permitted, .. }: Ready, late: bool) -> Result<ContentBlock, TurnEnded> {
        if let Some(permitted) = permitted {
            let permitted = self.permitted(&checked, permitted, late).await?;
            if let Some(NotRun(outcome, reason)) = self.forbidden(&checked, permitted).await {
                return self.refuse(checked.id, &checked.tool, outcome, reason);
            }
        }
        // Until the result is recorded: a daemon that is told to stop waits for it, and then no other begins.
        // What is joined needs no waiting for.
        let _running = match checked.effects.after_crash {
            AfterCrash::Join => None,
            _ => self.services.running.begin().await,
        };
        let watched = match checked.begun {
            Some(_) => None,
            None => self.checkpoint_before(&checked.id, &checked.tool, &checked.effects).await?,
        };
        let can_begin = match checked.begun {
            Some(_) => true,
            None => self.start(&checked, watched.as_ref().and_then(|watched| watched.before.clone())).await?,
        };
        let CheckedCall { id, tool, targets, effects, begun, preview, call, hooked, input, .. } = checked;
        let (began, from) = (Instant::now(), clock::now());
        let output = if can_begin {
            self.run_call(&id, &tool, targets.clone(), &effects, begun, call).await?
        } else {
            ToolOutput::error(disk::unresponsive(&self.workspace.cwd))
        };
        let (mut output, blobs) = self.stow(output).await;
        if self.is_moved && can_begin {
            output.content.push(ContentBlock::text(self.moved_note()));
        }
        self.keep_made(&tool, &mut output).await;
        if can_begin {
            self.add_hooked(hooked, &tool, &input, &mut output).await?;
        }
        // With the hooks: what they change is a change of the call.
        let ran = began.elapsed();
        let (outcome, ms) = (output.outcome, began.elapsed().as_millis() as u64);
        fault::point("call.finished");
        if let Some(watched) = watched {
            self.checkpoint_after(watched, from, ran).await?;
        }
        let mut locations = preview.locations;
        place(&mut locations, &output.changes, &targets);
        self.finish(id, &tool, CallResult { outcome, output, blobs, locations, ms })
    }

    /// Records the start of a call, and the checkpoint before it; false if it cannot begin.
    async fn start(&self, checked: &CheckedCall, before: Option<Checkpoint>) -> Result<bool, TurnEnded> {
        let CheckedCall { id, tool, kind, effects, input, preview, call, .. } = checked;
        fault::point("call.before_start");
        let action = call.action();
        tracing::info!(target: "tool", session = %self.session, call = %id, tool, action, "started");
        let (call_id, after_crash) = (id.clone(), effects.after_crash);
        let started = EventBody::ToolStarted(ToolStarted {
            call_id,
            tool: tool.clone(),
            tool_kind: *kind,
            action,
            locations: preview.locations.clone(),
            input: (json_size(&**input) <= MAX_INPUT).then(|| Value::clone(input)),
            after_crash,
            limit: call.limit(),
        });
        let can_begin = if effects.changes || after_crash == AfterCrash::Join {
            // On disk before the call can have any effect.
            let events = before.map(EventBody::Checkpoint).into_iter().chain([started]).collect();
            let (written, can_begin) = tokio::join!(self.emit.synced(events), self.can_begin(&effects.access));
            written?;
            can_begin
        } else {
            self.emit.send(vec![started], false, None)?;
            true
        };
        fault::point("call.started");
        Ok(can_begin)
    }

    /// Says where a call ran.
    fn moved_note(&self) -> String {
        format!("[the session's directory is gone; this ran in {}]", self.workspace.cwd.display())
    }

    /// Whether the disk of the working directory answers, because starting a child there would block.
    async fn can_begin(&self, access: &Access) -> bool {
        let cwd = self.workspace.cwd.clone();
        match access {
            Access::Command(_) => disk::probe(&self.workspace.cwd, disk::TIMEOUT, move || cwd.is_dir()).await.is_some(),
            _ => true,
        }
    }

    /// Runs or joins the call, and forwards its output.
    async fn run_call(
        &self,
        id: &CallId,
        tool: &str,
        targets: Targets,
        effects: &Effects,
        begun: Option<StartedCall>,
        call: Box<dyn Call>,
    ) -> Result<ToolOutput, TurnEnded> {
        let (sender, mut pieces) = mpsc::channel(OUTPUT_QUEUE);
        let context = Context {
            call: format!("{}/{id}", self.session),
            targets,
            output: sender,
            blobs: self.services.store.blobs.clone(),
            hidden: self.services.policy.hidden(tool, &effects.access, &self.workspace),
            spawn: self.workspace.spawn(self.services.children.clone(), Some(self.session.clone())),
            ask: self.emit.asks(id),
            id: id.clone(),
            jobs: self.jobs.clone(),
            web: self.services.providers.web(),
            delegate: self.delegation.of_call(id),
        };
        let joined = begun.is_some_and(|begun| begun.after_crash == AfterCrash::Join);
        if begun.is_some() {
            tracing::info!(target: "tool", session = %self.session, call = %id, tool, joined, "continues after a restart");
        }
        // Output from before the restart stays.
        let base = begun.map_or(0, |begun| begun.offset);
        let running = if joined { call.join(context) } else { call.run(context) };
        tokio::pin!(running);
        loop {
            tokio::select! {
                biased;
                Some(OutputDelta { offset, text }) = pieces.recv() => {
                    let fragment = Fragment::Output { call: id.clone(), offset: base.saturating_add(offset), text };
                    self.emit.pieces(vec![fragment]).await?;
                }
                mut output = &mut running => {
                    output.output.iter_mut().for_each(|part| part.offset = part.offset.saturating_add(base));
                    return Ok(output);
                }
            }
        }
    }
}

/// The started calls without a result that the turn continues; `streams` has their output so far.
pub fn started_calls(state: &State, streams: &[OpenStream]) -> HashMap<CallId, StartedCall> {
    let end = |call: &CallId| {
        let stream = streams.iter().find(|stream| stream.id == call.0);
        stream.and_then(|stream| stream.pieces.back()).map_or(0, Piece::end)
    };
    let calls = state.turn.iter().flat_map(|turn| &turn.calls);
    let open = calls.filter(|call| call.started && !call.finished && !call.after_crash.is_unknown());
    open.map(|call| (call.id.clone(), StartedCall { after_crash: call.after_crash, offset: end(&call.id) })).collect()
}

fn set(done: &mut [Option<ContentBlock>], index: usize, result: ContentBlock) {
    if let Some(slot) = done.get_mut(index) {
        *slot = Some(result);
    }
}

fn resume_panic(error: tokio::task::JoinError) -> TurnEnded {
    if error.is_panic() {
        std::panic::resume_unwind(error.into_panic());
    }
    TurnEnded
}
