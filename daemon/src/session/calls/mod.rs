//! The tool calls of one step: each is checked, permitted, started, run, and gets exactly one result.
//!
//! A step asks for all its permissions at once, so that a user can answer them in any order. Calls overlap with their neighbours if
//! their effects allow it; the others run alone, in the model's order. A call that started before a restart needs no permission
//! and no second start: it is joined, or runs again if it only reads.

pub mod checkpoints;
mod hooks;
mod preview;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use linger_protocol::artifact::{Artifact, MENTION};
use linger_protocol::checkpoint::Checkpoint;
use linger_protocol::event::{
    AfterCrash, EventBody, Level, Location, NoticeCode, Outcome, ToolFinished, ToolKind, ToolStarted,
};
use linger_protocol::id::{CallId, SessionId};
use linger_protocol::message::{ContentBlock, ImageSource, text_of};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::fault;
use crate::log::{OpenStream, Piece};
use crate::provider::json_size;
use crate::question::permission::{ResolvedAccess, digest};
use crate::session::Draft;
use crate::session::calls::hooks::{Hooked, NotRun, PreparedCall};
use crate::session::delegate::Delegation;
use crate::session::env::CallServices;
use crate::session::messages::{Emitter, TurnEnded};
use crate::session::messages::{Fragment, PermissionAnswer, PermissionRequest, TurnMessage};
use crate::session::messages::{Preview, place};
use crate::session::state::State;
use crate::store::artifact::{name_or_other, type_or_other};
use crate::store::blob::{Held, StowError, in_base64};
use crate::sys::clock;
use crate::sys::disk;
use crate::sys::task;
use crate::tool::background::Jobs;
use crate::tool::set::ToolSet;
use crate::tool::{Access, Call, Context, Effects, Made, OutputDelta, Takes, Targets, Tool, ToolOutput, Workspace};

/// Pieces of output queued for the log; beyond that the tool waits.
const OUTPUT_QUEUE: usize = 4;

/// The most calls of one step; a model makes a dozen. More are not run, and their results say so.
const MAX_CALLS: usize = 128;

/// The most arguments that the start of a call repeats, in bytes of JSON; the message with the call has all.
const MAX_INPUT: usize = 4 << 10;

/// The bound on all results of a step, in bytes of JSON: they become one message, which clients read as one event.
const MAX_RESULTS: usize = linger_protocol::transport::MAX_EVENT / 2;

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

/// A call that waits for its permission.
struct Ready {
    checked: CheckedCall,
    /// The question whether it may run, until it is asked; absent for a call that started before a restart.
    request: Option<Box<PermissionRequest>>,
    /// The decision; absent for a call that started before a restart.
    permitted: Option<oneshot::Receiver<PermissionAnswer>>,
}

/// A call with a known tool and valid arguments.
struct CheckedCall {
    id: CallId,
    tool: String,
    kind: ToolKind,
    digest: String,
    /// The files that it reached when permission was asked; it runs on those, and follows no link to them.
    targets: Targets,
    effects: Effects,
    begun: Option<StartedCall>,
    input: Arc<Value>,
    preview: Preview,
    call: Box<dyn Call>,
    hooked: Hooked,
    /// Where it runs, if the session's directory is gone.
    moved: Option<Arc<Workspace>>,
}

/// A call with or without its result.
enum Slot {
    Ready(Box<Ready>),
    Done(ContentBlock),
}

/// The result of a call, with the data that only the log gets.
struct CallResult {
    outcome: Outcome,
    output: ToolOutput,
    /// The images of `output`.
    blobs: Vec<Held>,
    /// The files that the call was about.
    locations: Vec<Location>,
    /// How long it ran; 0 for a call that did not run.
    ms: u64,
}

impl Slot {
    /// The question whether it may run, if it was not asked yet.
    fn take_request(&mut self) -> Option<PermissionRequest> {
        match self {
            Self::Ready(ready) => ready.request.take().map(|request| *request),
            Self::Done(_) => None,
        }
    }

    /// Whether it has yet to run, and may then change one of `targets`, or show it to the model.
    fn may_touch(&self, targets: &Targets) -> bool {
        let Self::Ready(ready) = self else { return false };
        let CheckedCall { effects, begun, preview, targets: own, .. } = &ready.checked;
        if preview.refusal.is_some() {
            return false;
        }
        let is_known = |access: &Access| matches!(access, Access::Read(_) | Access::Write(_));
        if begun.is_some()
            || effects.after_crash == AfterCrash::Join
            || effects.changes && !effects.access.each().iter().all(is_known)
        {
            return true;
        }
        own.iter().any(|(_, own)| targets.iter().any(|(_, it)| own.starts_with(it) || it.starts_with(own)))
    }
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

    /// Checks a call, and prepares the question whether it may run; an invalid call gets its result immediately. `earlier` are those
    /// before it in its step.
    async fn prepare(
        &self,
        id: CallId,
        name: String,
        input: Value,
        cut: bool,
        earlier: &[Slot],
    ) -> Result<Slot, TurnEnded> {
        let refuse = |text: String| self.refuse(id.clone(), &name, Outcome::Invalid, text).map(Slot::Done);
        if cut {
            return refuse("not run: the answer was cut at the token limit; write less at once".to_owned());
        }
        let (name, input) = match self.tools.meant(name.clone(), input) {
            Ok(meant) => meant,
            Err(invalid) => return refuse(format!("not run: {invalid}")),
        };
        let refuse = |text: String| self.refuse(id.clone(), &name, Outcome::Invalid, text).map(Slot::Done);
        let tool = match self.tools.find(&name) {
            Ok(tool) => tool,
            Err(unknown) => return refuse(unknown.to_string()),
        };
        if let Value::String(raw) = &input {
            let problem = serde_json::from_str::<Value>(raw)
                .map_or_else(|error| error.to_string(), |_| "not an object".to_owned());
            return refuse(format!("not run: the arguments are not a JSON object: {problem}"));
        }
        if matches!(tool.pattern(), Takes::Command | Takes::Arguments) && !self.is_moved {
            match self.moved().await {
                Ok(None) => {}
                Ok(Some(moved)) => {
                    let (runner, tool) = (Self { workspace: moved, is_moved: true, ..self.clone() }, tool.clone());
                    return Box::pin(async move { runner.prepare_with(id, name, input, &tool, earlier).await }).await;
                }
                Err(why) => return refuse(format!("not run: {why}")),
            }
        }
        let tool = tool.clone();
        self.prepare_with(id, name, input, &tool, earlier).await
    }

    /// As [`Self::prepare`], in the workspace where the call runs.
    async fn prepare_with(
        &self,
        id: CallId,
        name: String,
        input: Value,
        tool: &Arc<dyn Tool>,
        earlier: &[Slot],
    ) -> Result<Slot, TurnEnded> {
        let refuse = |text: String| self.refuse(id.clone(), &name, Outcome::Invalid, text).map(Slot::Done);
        let prepared = match self.prepared(tool, &name, input).await {
            Ok(prepared) => prepared,
            Err(NotRun(outcome, why)) => return self.refuse(id, &name, outcome, why).map(Slot::Done),
        };
        let PreparedCall { input, call, effects, resolved, hooked } = prepared;
        let targets = resolved.targets(&effects.access);
        let Some((call, mut preview)) = self.preview(call, &targets).await else {
            return refuse(format!("not run: {}", disk::unresponsive(&self.workspace.cwd)));
        };
        if earlier.iter().any(|slot| slot.may_touch(&targets)) {
            preview.refusal = None;
        }
        let digest = digest(&name, &input, &self.workspace.cwd);
        let input = Arc::new(input);
        let kind = tool.kind();
        let (begun, moved) = (None, self.is_moved.then(|| self.workspace.clone()));
        let checked =
            CheckedCall { id, tool: name, kind, digest, targets, effects, begun, input, preview, call, hooked, moved };
        let (request, permitted) = Self::request(&checked, resolved, checked.preview.clone());
        Ok(Slot::Ready(Box::new(Ready { checked, request: Some(Box::new(request)), permitted: Some(permitted) })))
    }

    /// Prepares a call that started before a restart; it has its permission.
    fn prepare_begun(&self, id: CallId, name: String, input: Value, begun: StartedCall) -> Result<Slot, TurnEnded> {
        let meant = self.tools.meant(name.clone(), input);
        let found = meant.and_then(|(name, input)| {
            let call = self.tools.find(&name)?.prepare(&input, &self.workspace)?;
            Ok((call, name, input))
        });
        let (call, name, input) = match found {
            Ok(found) => found,
            Err(why) => {
                let text =
                    format!("interrupted, outcome unknown: the daemon was restarted while this call ran, and {why}");
                return self.refuse(id, &name, Outcome::Unknown, text).map(Slot::Done);
            }
        };
        let (digest, effects, input) = (String::new(), call.effects(), Arc::new(input));
        // Its start is recorded.
        let kind = ToolKind::Other;
        let (begun, preview, hooked) = (Some(begun), Preview::of(&*call), Hooked::default());
        let targets = Targets::default();
        let moved = None;
        let checked =
            CheckedCall { id, tool: name, kind, digest, targets, effects, begun, input, preview, call, hooked, moved };
        Ok(Slot::Ready(Box::new(Ready { checked, request: None, permitted: None })))
    }

    /// The question whether a call may run, and where its decision comes.
    fn request(
        checked: &CheckedCall,
        resolved: ResolvedAccess,
        preview: Preview,
    ) -> (PermissionRequest, oneshot::Receiver<PermissionAnswer>) {
        let (reply, permitted) = oneshot::channel();
        let request = PermissionRequest {
            call_id: checked.id.clone(),
            tool: checked.tool.clone(),
            effects: checked.effects.clone(),
            resolved,
            action: checked.call.action(),
            input: checked.input.clone(),
            digest: checked.digest.clone(),
            preview,
            moved: checked.moved.clone(),
            reply,
        };
        (request, permitted)
    }

    /// Asks whether these calls may run, all at once: so the actor knows how many questions there are.
    fn ask(&self, requests: Vec<PermissionRequest>) -> Result<(), TurnEnded> {
        if requests.is_empty() { Ok(()) } else { self.emit.tell(TurnMessage::AskPermissions(requests)) }
    }

    /// Waits for the decision; checks mode and rules again if `late`, because they may have changed.
    async fn permitted(
        &self,
        checked: &CheckedCall,
        permitted: oneshot::Receiver<PermissionAnswer>,
        late: bool,
    ) -> Result<PermissionAnswer, TurnEnded> {
        let permitted = permitted.await.map_err(|_| TurnEnded)?;
        if !late || !matches!(permitted, PermissionAnswer::ForNow(_)) {
            return Ok(permitted);
        }
        let Some(resolved) = self.services.policy.resolve(&checked.effects.access, &self.workspace).await else {
            return Ok(PermissionAnswer::No(disk::unresponsive(&self.workspace.cwd)));
        };
        // The files may be others since.
        let preview = Preview { refusal: None, ..checked.preview.clone() };
        let (request, permitted) = Self::request(checked, resolved, preview);
        self.ask(vec![request])?;
        permitted.await.map_err(|_| TurnEnded)
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

    /// The reason why a call must not run, if any.
    async fn forbidden(&self, checked: &CheckedCall, permitted: PermissionAnswer) -> Option<NotRun> {
        let denied = |reason: String| NotRun(Outcome::Denied, format!("not run: {reason}"));
        match permitted {
            PermissionAnswer::No(reason) => return Some(denied(reason)),
            PermissionAnswer::Futile(refusal) => return Some(NotRun(Outcome::Invalid, refusal)),
            PermissionAnswer::Yes(allowed) | PermissionAnswer::ForNow(allowed) if allowed != checked.digest => {
                return Some(denied("the call differs from the one that was approved".to_owned()));
            }
            PermissionAnswer::Yes(_) | PermissionAnswer::ForNow(_) => fault::point("call.permitted"),
        }
        self.leads_elsewhere(&checked.effects.access, &checked.targets).await.map(denied)
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

    /// Where commands run while the session's directory is gone; `None` while it is there. Fails with the reason.
    async fn moved(&self) -> Result<Option<Arc<Workspace>>, String> {
        let (workspace, empty) = (self.workspace.clone(), self.services.empty.join(self.session.as_str()));
        let moved = disk::probe(&self.workspace.cwd, disk::TIMEOUT, move || workspace.moved(&empty)).await;
        match moved {
            Some(Ok(moved)) => Ok(moved.map(Arc::new)),
            Some(Err(error)) => Err(format!("the working directory is gone, and no other can be made: {error}")),
            None => Err(disk::unresponsive(&self.workspace.cwd)),
        }
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

    /// The reason why a permitted call must not run: a symlink changed, and it would target another file.
    async fn leads_elsewhere(&self, access: &Access, targets: &Targets) -> Option<String> {
        if targets.is_empty() {
            return None;
        }
        let Some(resolved) = self.services.policy.resolve(access, &self.workspace).await else {
            return Some(disk::unresponsive(&self.workspace.cwd));
        };
        let now = resolved.targets(access);
        let (was, now) = targets.moved(&now)?;
        Some(format!("{} was approved, but the path now leads to {}", was.display(), now.display()))
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

    /// Stores the images of a result as blobs.
    async fn stow(&self, output: ToolOutput) -> (ToolOutput, Vec<Held>) {
        if !output.content.iter().any(|block| matches!(block, ContentBlock::Image { .. })) {
            return (output, Vec::new());
        }
        let (blobs, content) = (self.services.store.blobs.clone(), output.content);
        let stowed = task::spawn_blocking(move || blobs.stow(content)).await;
        match stowed.unwrap_or_else(|error| Err(StowError::Io(std::io::Error::other(error)))) {
            Ok((content, images)) => (ToolOutput { content, ..output }, images),
            Err(error) => (ToolOutput::error(format!("cannot store the image: {error}")), Vec::new()),
        }
    }

    /// Makes artifacts of the files that a tool made, and adds links to them to its result.
    async fn keep_made(&self, tool: &str, output: &mut ToolOutput) {
        for Made { name, content_type, bytes } in std::mem::take(&mut output.made) {
            // A server chose them, and the model reads them.
            let (name, content_type) = (name_or_other(name), type_or_other(content_type));
            let (what, size) = (format!("{name}, {content_type}"), bytes.len());
            let kept = self.services.store.keep_artifact(name, content_type, bytes, tool, &self.session).await;
            output.content.push(match kept {
                Ok(Artifact { id, name, content_type, .. }) => ContentBlock::ResourceLink {
                    uri: format!("{MENTION}{id}"),
                    name,
                    media_type: Some(content_type),
                    description: None,
                },
                Err(why) => ContentBlock::text(format!("[{what} of {size} bytes was not kept as an artifact: {why}]")),
            });
        }
    }

    /// The result of a call that does not run.
    fn refuse(&self, call_id: CallId, tool: &str, outcome: Outcome, text: String) -> Result<ContentBlock, TurnEnded> {
        let (output, blobs, locations) = (ToolOutput::error(text), Vec::new(), Vec::new());
        self.finish(call_id, tool, CallResult { outcome, output, blobs, locations, ms: 0 })
    }

    /// Records the result of a call, which becomes a block of the results' message.
    fn finish(&self, call_id: CallId, tool: &str, result: CallResult) -> Result<ContentBlock, TurnEnded> {
        let CallResult { outcome, mut output, mut blobs, locations, ms } = result;
        let size = request_size(&output.content);
        if self.size.fetch_add(size, Ordering::Relaxed) + size > MAX_RESULTS {
            self.size.fetch_sub(size, Ordering::Relaxed);
            let text = format!(
                "[the result of {size} bytes is left out: all results of one answer may have {MAX_RESULTS} bytes; make this call alone]"
            );
            let ToolOutput { whole, diff, changes, exit, model_cost, .. } = output;
            output = ToolOutput { whole, diff, changes, exit, model_cost, ..ToolOutput::error(text) };
            blobs.clear();
        }
        let ToolOutput { content, is_error, output, whole, diff, changes, exit, plan, notices, model_cost, .. } =
            output;
        let mut changed = Vec::new();
        for kept in changes {
            changed.push(kept.change);
            blobs.extend(kept.blobs);
        }
        let changes = changed;
        let (file, blob) = (whole.as_ref().and_then(Held::path), whole.as_ref().map(|held| held.id().clone()));
        if let Some(whole) = &whole {
            self.workspace.seen.output(whole);
        }
        blobs.extend(whole);
        tracing::info!(target: "result", session = %self.session, call = %call_id, tool, ms, is_error, ?outcome,
            bytes = text_of(&content).len(), "finished");
        let result = ContentBlock::ToolResult { call_id: call_id.clone(), is_error, content: content.clone() };
        let finished = EventBody::ToolFinished(ToolFinished {
            call_id,
            is_error,
            outcome,
            content,
            output,
            file,
            blob,
            diff,
            changes,
            locations,
            exit,
            model_cost,
            ms,
        });
        let plan = plan.map(|entries| Draft::new(EventBody::Plan { entries }));
        let finished = Draft { blobs, ..Draft::new(finished) };
        let notice = |text| Draft::new(EventBody::notice(Level::Warning, NoticeCode::OutputSchema, text));
        let notices = notices.into_iter().map(notice);
        self.emit.drafts(plan.into_iter().chain(notices).chain([finished]).collect(), false, None)?;
        Ok(result)
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

/// The approximate size of blocks in a request, in bytes, images included.
fn request_size(content: &[ContentBlock]) -> usize {
    fn images(content: &[ContentBlock]) -> usize {
        let image = |block: &ContentBlock| match block {
            ContentBlock::Image { source: ImageSource::Blob { bytes, .. }, .. } => in_base64(*bytes),
            ContentBlock::ToolResult { content, .. } => images(content),
            _ => 0,
        };
        content.iter().map(image).fold(0, usize::saturating_add)
    }
    json_size(&content).saturating_add(images(content))
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
