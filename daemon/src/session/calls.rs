//! The tool calls of one step: each is checked, permitted, started, run, and gets exactly one result.
//!
//! Permissions of a step are asked for all at once, so that a user can answer them in any order. Calls of tools that change
//! nothing overlap with their neighbours of the same kind; the others run alone and in the model's order.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use linger_protocol::event::{EventBody, Outcome};
use linger_protocol::id::{CallId, SessionId};
use linger_protocol::message::{ContentBlock, text_of};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::Draft;
use super::actor::{Permit, Permitted, TurnMessage};
use super::log::{Piece, PieceKind};
use super::turn::{Commits, Emitter, Over};
use crate::blob::{Held, StowError};
use crate::daemon::Daemon;
use crate::permission::digest;
use crate::tool::{Call, Context, OutputDelta, ToolOutput, Workspace};

/// Pieces of output that wait for the log; the tool waits beyond.
const OUTPUT_QUEUE: usize = 4;

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
}

/// A call that may run once its permission is there.
struct Ready {
    id: CallId,
    tool: String,
    digest: String,
    read_only: bool,
    call: Box<dyn Call>,
    permitted: oneshot::Receiver<Permitted>,
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
                Some(result) => Slot::Done(result),
                None => self.prepare(call_id, name, input, cut)?,
            });
        }
        let mut done = Vec::with_capacity(slots.len());
        let mut together: Vec<(usize, Ready)> = Vec::new();
        for (index, slot) in slots.into_iter().enumerate() {
            done.push(None);
            match slot {
                Slot::Done(result) => set(&mut done, index, result),
                Slot::Ready(ready) if ready.read_only && together.len() < OVERLAP => together.push((index, *ready)),
                Slot::Ready(ready) => {
                    self.run_together(std::mem::take(&mut together), &mut done).await?;
                    if ready.read_only {
                        together.push((index, *ready));
                    } else {
                        set(&mut done, index, self.run_one(*ready).await?);
                    }
                }
            }
        }
        self.run_together(together, &mut done).await?;
        Ok(done.into_iter().flatten().collect())
    }

    async fn run_together(&self, together: Vec<(usize, Ready)>, done: &mut [Option<ContentBlock>]) -> Result<(), Over> {
        let mut running = JoinSet::new();
        for (index, ready) in together {
            let runner = self.clone();
            running.spawn(async move { (index, runner.run_one(ready).await) });
        }
        while let Some(finished) = running.join_next().await {
            // A call that panicked takes the turn with it, which ends with an event.
            let (index, result) = finished.map_err(resume_panic)?;
            set(done, index, result?);
        }
        Ok(())
    }

    /// Checks a call and asks whether it may run; a call that cannot run has its result at once.
    fn prepare(&self, id: CallId, name: String, input: Value, cut: bool) -> Result<Slot, Over> {
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
        let digest = digest(&name, &input, &self.workspace.cwd);
        let (reply, permitted) = oneshot::channel();
        let permit = Permit {
            call_id: id.clone(),
            tool: name.clone(),
            read_only: tool.read_only(),
            access: call.access(),
            action: call.action(),
            input,
            digest: digest.clone(),
            reply,
        };
        self.emit.tell(TurnMessage::Permit(Box::new(permit)))?;
        Ok(Slot::Ready(Box::new(Ready { id, tool: name, digest, read_only: tool.read_only(), call, permitted })))
    }

    async fn run_one(&self, ready: Ready) -> Result<ContentBlock, Over> {
        let Ready { id, tool, digest, read_only, call, permitted } = ready;
        match permitted.await.map_err(|_| Over)? {
            Permitted::No(reason) => {
                return self.refuse(id, &tool, Outcome::Denied, format!("not run: {reason}"));
            }
            Permitted::Yes(allowed) if allowed != digest => {
                let text = "not run: what was allowed is not what would run".to_owned();
                return self.refuse(id, &tool, Outcome::Denied, text);
            }
            Permitted::Yes(_) => {}
        }
        let action = call.action();
        tracing::info!(target: "tool", session = %self.session, call = %id, tool, action, "started");
        let started = EventBody::ToolStarted { call_id: id.clone(), tool: tool.clone(), action };
        if read_only {
            self.emit.send(vec![started], false, None)?;
        } else {
            // On disk before anything exists that it could have done.
            self.emit.synced(vec![started]).await?;
        }
        let began = Instant::now();
        let output = self.run_call(&id, call).await?;
        let (output, images) = self.stow(output).await;
        let outcome = output.outcome;
        self.finish(id, &tool, began.elapsed().as_millis() as u64, outcome, output, images)
    }

    /// Runs the call and passes its output on as it comes.
    async fn run_call(&self, id: &CallId, call: Box<dyn Call>) -> Result<ToolOutput, Over> {
        let (sender, mut pieces) = mpsc::channel(OUTPUT_QUEUE);
        let running = call.run(Context {
            output: sender,
            blobs: self.daemon.store.blobs.clone(),
            hidden: self.daemon.hidden(&self.workspace),
        });
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
        output: ToolOutput,
        mut blobs: Vec<Held>,
    ) -> Result<ContentBlock, Over> {
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
