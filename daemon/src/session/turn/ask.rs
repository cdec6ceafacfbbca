//! One request of a turn, tried until it is answered or has failed for good, and what is shown of it meanwhile.

use std::collections::BTreeSet;
use std::time::Instant;

use linger_protocol::event::{EventBody, Level, NoticeCode};
use linger_protocol::id::{BlobId, MessageId};
use linger_protocol::message::{ContentBlock, ImageSource, Usage};
use linger_protocol::session::Effort;

use super::emit::Commits;
use super::key::Unresolved;
use super::shown::Shown;
use super::{Over, Turn, notice};
use crate::clock;
use crate::fault;
use crate::provider::retry::{self, Decision};
use crate::provider::shape::{self as provider_shape, Shape};
use crate::provider::{
    Encoding, Failure, FailureClass, Images, Message, Request, Response, Stop, Stream, StreamEvent, ToolSpec,
};
use crate::secret::Secret;
use crate::session::actor::TurnMessage;
use crate::session::log::PieceKind;

/// What a model is asked.
pub(super) struct Ask<'a> {
    pub(super) system: &'a str,
    pub(super) tools: &'a [ToolSpec],
    pub(super) messages: &'a [Message],
    /// What the answer has to fit.
    pub(super) shape: Option<Shape<'a>>,
    /// Whether the answer is a message of the session, and shown as it comes.
    pub(super) shown: bool,
}

/// How a step ended.
pub(super) enum Step {
    Answer(Answer),
    /// The failure, and the message that shows what came before it.
    Failed(Failure, Option<MessageId>),
    /// The session has another model now, which was not asked.
    OtherModel,
}

/// A whole answer.
pub(super) struct Answer {
    pub(super) id: MessageId,
    pub(super) response: Response,
    /// What was counted, with its cost.
    pub(super) usage: Option<Usage>,
}

impl Turn {
    /// One request until it is answered, or has failed for good.
    pub(super) async fn ask(&mut self, ask: &Ask<'_>, encoding: &mut Encoding) -> Result<Step, Over> {
        let &Ask { system, tools, messages, shape, shown: is_shown } = ask;
        let mut began = Instant::now();
        let mut attempt = 1;
        let mut refused: Option<(Secret, Failure)> = None;
        loop {
            let waits = Instant::now();
            let (resolved, provider) = match self.resolve().await? {
                Ok(resolved) => resolved,
                Err(Unresolved::Failed(failure)) => return Ok(Step::Failed(failure, None)),
                Err(Unresolved::OtherModel) => return Ok(Step::OtherModel),
            };
            // How long a person takes to bring a key is no reason to try a provider for less long.
            began += waits.elapsed();
            if let Some((key, failure)) = &refused
                && provider.key() == Some(key)
            {
                return Ok(Step::Failed(failure.clone(), None));
            }
            self.say_setup(&resolved).await?;
            let effort = if self.unthinking { Effort::None } else { self.thinking };
            (self.thinks, self.reasons) = (resolved.thinks(effort), resolved.has_reasoning());
            let images = self.images(messages.get(provider.encoded(&resolved.origin, encoding)..)).await;
            let request = Request {
                model: &resolved.model,
                origin: &resolved.origin,
                system,
                tools,
                messages,
                max_tokens: resolved.max_tokens,
                cache_key: self.session.as_str(),
                images: &images,
                shape,
                effort: if effort.is_auto() { resolved.facts.effort } else { effort },
            };
            fault::point("request.before_send");
            tracing::info!(target: "request", session = %self.session, model = %self.model, messages = messages.len(), attempt, "sent");
            let id = MessageId(format!("m{}", self.messages + 1));
            let mut shown = Shown { id: id.clone(), prices: resolved.facts.prices, ..Shown::default() };
            let stream = provider.start(&request, encoding);
            drop(images);
            let failure = match self.attempt(stream, &mut shown, is_shown).await? {
                Ok(mut response) => {
                    if shape.is_some() {
                        provider_shape::spoken(&mut response);
                    }
                    tracing::info!(target: "response", session = %self.session, id = %id, ms = began.elapsed().as_millis() as u64,
                        input = response.usage.input_tokens, output = response.usage.output_tokens, "done");
                    let usage = shown.priced(response.usage);
                    return Ok(Step::Answer(Answer { id, response, usage }));
                }
                Err(failure) => failure,
            };
            tracing::warn!(target: "response", session = %self.session, class = ?failure.class, why = failure.message, attempt, "failed");
            let interrupted = is_shown && shown.begun;
            if interrupted {
                self.messages += 1;
                let message = self.message(id.clone(), shown.blocks(), true, shown.usage, Stop::End);
                self.emit.send(vec![message], false, None)?;
            } else {
                // Nobody pays for a refusal; of a summary that broke off its event has the sum.
                self.unshown = self.unshown.into_iter().chain(shown.usage.filter(|_| shown.begun)).reduce(sum);
                self.emit.tell(TurnMessage::Counted(None))?;
            }
            if failure.class == FailureClass::Auth
                && !interrupted
                && let Some(key) = provider.key()
                && self.daemon.key_sources.refuse(&resolved.key, key)
                && refused.is_none()
            {
                // A key that expires is got anew, once.
                let failure = Failure { message: format!("{}: {}", resolved.provider, failure.message), ..failure };
                let text = format!("{}; asking for the key again", failure.message);
                self.emit.send(vec![notice(Level::Warning, NoticeCode::Retry, text)], false, None)?;
                refused = Some((key.clone(), failure));
                attempt += 1;
                continue;
            }
            match retry::decide(&failure, attempt, began.elapsed(), provider.longest_wait(), clock::random_fraction()) {
                Decision::GiveUp { note } => {
                    let message =
                        note.map_or_else(|| failure.message.clone(), |note| format!("{}; {note}", failure.message));
                    let unsent = resolved.without_key().filter(|_| failure.class == FailureClass::Auth);
                    let unsent = unsent.map(|unsent| format!("; {unsent}")).unwrap_or_default();
                    let message = format!("{}: {message}{unsent}", resolved.provider);
                    return Ok(Step::Failed(Failure { message, ..failure }, interrupted.then_some(id)));
                }
                Decision::Again { after } => {
                    attempt += 1;
                    let (message, of) = (&failure.message, retry::attempts(failure.class));
                    let text = format!("{message}; trying again in {:.1} s ({attempt} of {of})", after.as_secs_f64());
                    let (level, code) = (Level::Warning, Some(NoticeCode::Retry));
                    let wait = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
                    let until_at = Some(clock::now().saturating_add(wait));
                    self.emit.send(vec![EventBody::Notice { level, code, text, until_at }], false, None)?;
                    tokio::time::sleep(after).await;
                }
            }
            if interrupted {
                self.emit.send(vec![EventBody::MessageSuperseded { message: id }], false, None)?;
            }
        }
    }

    /// The images that these messages name, read for one request and then let go.
    async fn images(&self, messages: Option<&[Message]>) -> Images {
        let named = |block: &ContentBlock| -> Vec<BlobId> {
            match block {
                ContentBlock::Image { source: ImageSource::Blob { blob, .. }, .. } => vec![blob.clone()],
                ContentBlock::ToolResult { content, .. } => {
                    content.iter().filter_map(ContentBlock::blob).cloned().collect()
                }
                _ => Vec::new(),
            }
        };
        let blocks = messages.unwrap_or_default().iter().flat_map(|message| &message.content);
        let ids: BTreeSet<BlobId> = blocks.flat_map(named).collect();
        if ids.is_empty() {
            return Images::new();
        }
        let (store, session) = (self.daemon.store.clone(), self.session.clone());
        let runtime = tokio::runtime::Handle::current();
        let load = move |id: BlobId| match store.blobs.load(&id) {
            Ok(data) => Some((id, data)),
            Err(error) => {
                // One that a repair has given up is still named by the history, and nothing more can be done about it.
                let used = matches!(runtime.block_on(store.uses(id.clone())), Ok(true));
                let error = if used { store.lost_blob(&id, error) } else { error.into() };
                tracing::error!(target: "request", %session, blob = %id, %error, "an image cannot be read");
                None
            }
        };
        tokio::task::spawn_blocking(move || ids.into_iter().filter_map(load).collect()).await.unwrap_or_default()
    }

    /// One attempt; what is shown of it goes into `shown`, and to clients if `is_shown`.
    async fn attempt(
        &self,
        mut stream: Stream,
        shown: &mut Shown,
        is_shown: bool,
    ) -> Result<Result<Response, Failure>, Over> {
        let mut commits = Commits::default();
        loop {
            let mut pieces = Vec::new();
            let mut end = None;
            let events = stream.next().await;
            shown.begun = stream.has_begun();
            if let Some(usage) = shown.count(stream.usage()) {
                tracing::debug!(target: "response", session = %self.session, id = %shown.id, input = usage.input_tokens,
                    output = usage.output_tokens, cost_micros = usage.cost_micros, "counted");
                self.emit.tell(TurnMessage::Counted(Some(usage)))?;
            }
            for event in events {
                match event {
                    StreamEvent::Text { block, text } => pieces.push(shown.push(block, PieceKind::Text, text)),
                    StreamEvent::Thinking { block, text } => pieces.push(shown.push(block, PieceKind::Thinking, text)),
                    StreamEvent::Hosted { block, tool, part, text } => {
                        pieces.push(shown.push(block, PieceKind::Hosted(tool, part), text));
                    }
                    StreamEvent::Counted => {}
                    StreamEvent::Done(response) => end = Some(Ok(response)),
                    StreamEvent::Failed(failure) => end = Some(Err(failure)),
                }
            }
            fault::point("request.first_piece");
            if is_shown && !pieces.is_empty() {
                commits.add(self.emit.pieces(pieces)?).await?;
            }
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }
}

/// Two usages in one.
pub(super) fn sum(mut one: Usage, other: Usage) -> Usage {
    one += other;
    one
}
