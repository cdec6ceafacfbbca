//! The results of calls: bounded, recorded, and given back as blocks of the message with all results.

use std::sync::atomic::Ordering;

use linger_protocol::artifact::{Artifact, MENTION};
use linger_protocol::event::{EventBody, Level, Location, NoticeCode, Outcome, ToolFinished};
use linger_protocol::id::CallId;
use linger_protocol::message::{ContentBlock, ImageSource, text_of};

use crate::provider::json_size;
use crate::session::Draft;
use crate::session::calls::Runner;
use crate::session::messages::TurnEnded;
use crate::store::artifact::{name_or_other, type_or_other};
use crate::store::blob::{Held, StowError, in_base64};
use crate::sys::task;
use crate::tool::{Made, ToolOutput};

/// The bound on all results of a step, in bytes of JSON: they become one message, which clients read as one event.
const MAX_RESULTS: usize = linger_protocol::transport::MAX_EVENT / 2;

/// The result of a call, with the data that only the log gets.
pub(super) struct CallResult {
    pub(super) outcome: Outcome,
    pub(super) output: ToolOutput,
    /// The images of `output`.
    pub(super) blobs: Vec<Held>,
    /// The files that the call was about.
    pub(super) locations: Vec<Location>,
    /// How long it ran; 0 for a call that did not run.
    pub(super) ms: u64,
}

impl Runner {
    /// Stores the images of a result as blobs.
    pub(super) async fn stow(&self, output: ToolOutput) -> (ToolOutput, Vec<Held>) {
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
    pub(super) async fn keep_made(&self, tool: &str, output: &mut ToolOutput) {
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
    pub(super) fn refuse(
        &self,
        call_id: CallId,
        tool: &str,
        outcome: Outcome,
        text: String,
    ) -> Result<ContentBlock, TurnEnded> {
        let (output, blobs, locations) = (ToolOutput::error(text), Vec::new(), Vec::new());
        self.finish(call_id, tool, CallResult { outcome, output, blobs, locations, ms: 0 })
    }

    /// Records the result of a call, which becomes a block of the results' message.
    pub(super) fn finish(&self, call_id: CallId, tool: &str, result: CallResult) -> Result<ContentBlock, TurnEnded> {
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

/// The approximate size of blocks in a request, in bytes, images included.
pub(super) fn request_size(content: &[ContentBlock]) -> usize {
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
