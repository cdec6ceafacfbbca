//! The tool calls of one step: each is checked, permitted, started, run, and gets exactly one result.
//!
//! Permissions of a step are asked for all at once, so that a user can answer them in any order. Calls of tools that change
//! nothing overlap with their neighbours of the same kind; the others run alone and in the model's order.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use linger_protocol::event::{EventBody, Outcome};
use linger_protocol::id::{CallId, SessionId};
use linger_protocol::message::{ContentBlock, ImageSource, text_of};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::Draft;
use super::actor::{Permit, Permitted, TurnMessage};
use super::log::{Piece, PieceKind};
use super::turn::{Commits, Emitter, Over};
use crate::blob::{Held, StowError, in_base64};
use crate::daemon::Daemon;
use crate::disk;
use crate::fault;
use crate::permission::{Sight, digest};
use crate::provider::json_size;
use crate::tool::{Access, Call, Context, OutputDelta, ToolOutput, Workspace};

/// Pieces of output that wait for the log; the tool waits beyond.
const OUTPUT_QUEUE: usize = 4;

/// Calls of one step; a model asks for a dozen. Those beyond are not run, and it is told so.
const MAX_CALLS: usize = 128;

/// How large the results of one step may be together, in bytes of JSON: they become one message, which clients take as one event.
const MAX_RESULTS: usize = linger_protocol::transport::MAX_EVENT / 2;

/// Read-only calls that run at the same time; a model asks for a dozen at most.
const OVERLAP: usize = 8;

/// Runs calls for one turn.
#[derive(Clone)]
pub struct Runner {
    /// The daemon.
    pub daemon: Arc<Daemon>,
    /// Where the calls work.
    pub workspace: Arc<Workspace>,
    /// Where events go.
    pub emit: Emitter,
    /// The session, for the log file.
    pub session: SessionId,
    /// How large the results of the step are so far, in bytes of JSON.
    pub size: Arc<AtomicUsize>,
}

/// A call that may run once its permission is there.
struct Ready {
    checked: Checked,
    permitted: oneshot::Receiver<Permitted>,
}

/// A call whose tool and arguments are good.
struct Checked {
    id: CallId,
    tool: String,
    digest: String,
    /// The file that it reached when it was permitted.
    reach: Option<PathBuf>,
    read_only: bool,
    input: Arc<Value>,
    call: Box<dyn Call>,
}

/// A call on its way to its result.
enum Slot {
    Ready(Box<Ready>),
    Done(ContentBlock),
}

impl Runner {
    /// Runs `calls` and gives their results in the same order; those in `results` have theirs already.
    /// `cut`: the answer that they came in was cut, so nobody knows whether they are whole.
    pub async fn run(
        &self,
        calls: Vec<ContentBlock>,
        mut results: HashMap<CallId, ContentBlock>,
        cut: bool,
    ) -> Result<Vec<ContentBlock>, Over> {
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
                None => self.prepare(call_id, name, input, cut).await?,
            });
        }
        let mut done = Vec::with_capacity(slots.len());
        let mut together: Vec<(usize, Ready)> = Vec::new();
        // Whether others of the step have run meanwhile.
        let mut late = false;
        for (index, slot) in slots.into_iter().enumerate() {
            done.push(None);
            match slot {
                Slot::Done(result) => set(&mut done, index, result),
                Slot::Ready(ready) if ready.checked.read_only && together.len() < OVERLAP => {
                    together.push((index, *ready))
                }
                Slot::Ready(ready) => {
                    late |= self.run_together(std::mem::take(&mut together), late, &mut done).await?;
                    if ready.checked.read_only {
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

    /// Runs calls at the same time; whether there were any.
    async fn run_together(
        &self,
        together: Vec<(usize, Ready)>,
        late: bool,
        done: &mut [Option<ContentBlock>],
    ) -> Result<bool, Over> {
        let any = !together.is_empty();
        let mut running = JoinSet::new();
        for (index, ready) in together {
            let runner = self.clone();
            running.spawn(async move { (index, runner.run_one(ready, late).await) });
        }
        while let Some(finished) = running.join_next().await {
            // A call that panicked takes the turn with it, which ends with an event.
            let (index, result) = finished.map_err(resume_panic)?;
            set(done, index, result?);
        }
        Ok(any)
    }

    /// Checks a call and asks whether it may run; a call that cannot run has its result at once.
    async fn prepare(&self, id: CallId, name: String, input: Value, cut: bool) -> Result<Slot, Over> {
        let refuse = |text: String| self.refuse(id.clone(), &name, Outcome::Invalid, text).map(Slot::Done);
        if cut {
            return refuse("not run: the answer was cut at the token limit; write less at once".to_owned());
        }
        let Some(tool) = self.daemon.tool(&name) else {
            return refuse(self.daemon.no_such_tool(&name));
        };
        if let Value::String(raw) = &input {
            let problem = serde_json::from_str::<Value>(raw)
                .map_or_else(|error| error.to_string(), |_| "not an object".to_owned());
            return refuse(format!("not run: the arguments are not a JSON object: {problem}"));
        }
        let call = match tool.prepare(&input, &self.workspace) {
            Ok(call) => call,
            Err(invalid) => return refuse(format!("not run: {invalid}")),
        };
        let access = call.access();
        let Some(sight) = self.daemon.sight(&access, &self.workspace).await else {
            return refuse(format!("not run: {}", disk::silent(&self.workspace.cwd)));
        };
        let reach = sight.reach().map(Path::to_path_buf);
        let digest = digest(&name, &input, &self.workspace.cwd);
        let (input, read_only) = (Arc::new(input), tool.read_only());
        let checked = Checked { id, tool: name, digest, reach, read_only, input, call };
        let permitted = self.ask(&checked, access, sight)?;
        Ok(Slot::Ready(Box::new(Ready { checked, permitted })))
    }

    /// Asks whether a call may run.
    fn ask(&self, checked: &Checked, access: Access, sight: Sight) -> Result<oneshot::Receiver<Permitted>, Over> {
        let (reply, permitted) = oneshot::channel();
        let permit = Permit {
            call_id: checked.id.clone(),
            tool: checked.tool.clone(),
            read_only: checked.read_only,
            access,
            sight,
            action: checked.call.action(),
            input: checked.input.clone(),
            digest: checked.digest.clone(),
            reply,
        };
        self.emit.tell(TurnMessage::Permit(Box::new(permit)))?;
        Ok(permitted)
    }

    /// Whether a call may run. Mode and rules are asked again if it is `late`: they may have changed since.
    async fn permitted(&self, Ready { checked, permitted }: Ready, late: bool) -> Result<(Checked, Permitted), Over> {
        let permitted = permitted.await.map_err(|_| Over)?;
        if !late || !matches!(permitted, Permitted::ForNow(_)) {
            return Ok((checked, permitted));
        }
        let access = checked.call.access();
        let Some(sight) = self.daemon.sight(&access, &self.workspace).await else {
            return Ok((checked, Permitted::No(disk::silent(&self.workspace.cwd))));
        };
        let permitted = self.ask(&checked, access, sight)?.await.map_err(|_| Over)?;
        Ok((checked, permitted))
    }

    /// Runs a call that may; it is `late` if others of its step have run since it asked.
    async fn run_one(&self, ready: Ready, late: bool) -> Result<ContentBlock, Over> {
        let (checked, permitted) = self.permitted(ready, late).await?;
        let Checked { id, tool, digest, reach, read_only, call, .. } = checked;
        match permitted {
            Permitted::No(reason) => {
                return self.refuse(id, &tool, Outcome::Denied, format!("not run: {reason}"));
            }
            Permitted::Yes(allowed) | Permitted::ForNow(allowed) if allowed != digest => {
                let text = "not run: what was allowed is not what would run".to_owned();
                return self.refuse(id, &tool, Outcome::Denied, text);
            }
            Permitted::Yes(_) | Permitted::ForNow(_) => fault::point("call.permitted"),
        }
        if let Some(reason) = self.leads_elsewhere(call.access(), reach).await {
            return self.refuse(id, &tool, Outcome::Denied, reason);
        }
        fault::point("call.before_start");
        let action = call.action();
        tracing::info!(target: "tool", session = %self.session, call = %id, tool, action, "started");
        let started = EventBody::ToolStarted { call_id: id.clone(), tool: tool.clone(), action };
        let can_begin = if read_only {
            self.emit.send(vec![started], false, None)?;
            true
        } else {
            // On disk before anything exists that it could have done.
            let (written, can_begin) = tokio::join!(self.emit.synced(vec![started]), self.can_begin(call.access()));
            written?;
            can_begin
        };
        fault::point("call.started");
        let began = Instant::now();
        let output = match can_begin {
            true => self.run_call(&id, &tool, call).await?,
            false => ToolOutput::error(disk::silent(&self.workspace.cwd)),
        };
        let (output, images) = self.stow(output).await;
        let outcome = output.outcome;
        fault::point("call.finished");
        self.finish(id, &tool, began.elapsed().as_millis() as u64, outcome, output, images)
    }

    /// Whether a child could enter the working directory, or find that it is gone. One that hangs there would hold up whoever
    /// starts it.
    async fn can_begin(&self, access: Access) -> bool {
        let cwd = self.workspace.cwd.clone();
        match access {
            Access::Command(_) => disk::look(&self.workspace.cwd, disk::PATIENCE, move || cwd.is_dir()).await.is_some(),
            _ => true,
        }
    }

    /// Why a call that was permitted may not run after all: a link was turned meanwhile, and it would reach another file.
    async fn leads_elsewhere(&self, access: Access, reach: Option<PathBuf>) -> Option<String> {
        let reach = reach?;
        match self.daemon.sight(&access, &self.workspace).await {
            None => Some(format!("not run: {}", disk::silent(&self.workspace.cwd))),
            Some(sight) if sight.reach() == Some(&reach) => None,
            Some(sight) => {
                let now = sight.reach().unwrap_or(Path::new("")).display();
                Some(format!("not run: what was allowed is {}, and the path leads to {now} now", reach.display()))
            }
        }
    }

    /// Runs the call and passes its output on as it comes.
    async fn run_call(&self, id: &CallId, tool: &str, call: Box<dyn Call>) -> Result<ToolOutput, Over> {
        let (sender, mut pieces) = mpsc::channel(OUTPUT_QUEUE);
        let hidden = self.daemon.hidden(tool, &call.access(), &self.workspace);
        let running = call.run(Context { output: sender, blobs: self.daemon.store.blobs.clone(), hidden });
        tokio::pin!(running);
        let mut commits = Commits::default();
        loop {
            tokio::select! {
                biased;
                Some(OutputDelta { offset, text }) = pieces.recv() => {
                    let piece = Piece { stream: id.0.clone(), block: 0, offset, kind: PieceKind::Output, text };
                    commits.add(self.emit.pieces(vec![piece])?).await?;
                }
                output = &mut running => return Ok(output),
            }
        }
    }

    /// Puts images that a tool read where they are stored once.
    async fn stow(&self, output: ToolOutput) -> (ToolOutput, Vec<Held>) {
        if !output.content.iter().any(|block| matches!(block, ContentBlock::Image { .. })) {
            return (output, Vec::new());
        }
        let (blobs, content) = (self.daemon.store.blobs.clone(), output.content);
        let stowed = tokio::task::spawn_blocking(move || blobs.stow(content)).await;
        match stowed.unwrap_or_else(|error| Err(StowError::Io(std::io::Error::other(error)))) {
            Ok((content, images)) => (ToolOutput { content, ..output }, images),
            Err(error) => (ToolOutput::error(format!("the image could not be stored: {error}")), Vec::new()),
        }
    }

    /// The result of a call that does not run.
    fn refuse(&self, call_id: CallId, tool: &str, outcome: Outcome, text: String) -> Result<ContentBlock, Over> {
        self.finish(call_id, tool, 0, outcome, ToolOutput::error(text), Vec::new())
    }

    fn finish(
        &self,
        call_id: CallId,
        tool: &str,
        ms: u64,
        outcome: Outcome,
        mut output: ToolOutput,
        mut blobs: Vec<Held>,
    ) -> Result<ContentBlock, Over> {
        let size = request_size(&output.content);
        if self.size.fetch_add(size, Ordering::Relaxed) + size > MAX_RESULTS {
            self.size.fetch_sub(size, Ordering::Relaxed);
            let text = format!(
                "[the result of {size} bytes is left out: those of one answer may have {MAX_RESULTS} together; make this call alone]"
            );
            let ToolOutput { whole, diff, .. } = output;
            output = ToolOutput { whole, diff, ..ToolOutput::error(text) };
            blobs.clear();
        }
        let ToolOutput { content, is_error, output, whole, diff, .. } = output;
        let (file, blob) = (whole.as_ref().and_then(Held::path), whole.as_ref().map(|held| held.id().clone()));
        blobs.extend(whole);
        tracing::info!(target: "result", session = %self.session, call = %call_id, tool, ms, is_error, ?outcome,
            bytes = text_of(&content).len(), "finished");
        let result = ContentBlock::ToolResult { call_id: call_id.clone(), is_error, content: content.clone() };
        let finished = EventBody::ToolFinished { call_id, is_error, outcome, content, output, file, blob, diff, ms };
        self.emit.drafts(vec![Draft { blobs, ..Draft::new(finished) }], false, None)?;
        Ok(result)
    }
}

/// About how large blocks are in a request, in bytes: their images are there too.
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

fn resume_panic(error: tokio::task::JoinError) -> Over {
    if error.is_panic() {
        std::panic::resume_unwind(error.into_panic());
    }
    Over
}
