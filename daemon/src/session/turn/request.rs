//! One request of a turn with its retries, and showing its answer as it streams; waiting between them is in `outage`.

use std::collections::BTreeSet;

use linger_protocol::event::{Level, NoticeCode};
use linger_protocol::id::{BlobId, MessageId};
use linger_protocol::message::{ContentBlock, ImageSource, Times, Usage};
use linger_protocol::session::Effort;
use tokio::time::Instant;

use super::outage::Outage;
use super::resolve::Unresolved;
use super::{Thought, Turn, TurnEnded};
use crate::diagnostics::secret::Secret;
use crate::fault;
use crate::log::PieceKind;
use crate::provider::catalogue::Resolved;
use crate::provider::models::Prices;
use crate::provider::output_schema::{self, OutputSchema};
use crate::provider::tools::ToolSpecs;
use crate::provider::{
    Encoding, Failure, FailureClass, Images, Message, Provider, Request, RequestPrefix, Response, Stream, StreamEvent,
};
use crate::session::messages::{Fragment, TurnMessage};
use crate::sys::task;

/// The input of one request, before the provider's format.
pub(super) struct ModelRequest<'a> {
    pub(super) system: &'a str,
    pub(super) tools: &'a ToolSpecs,
    pub(super) messages: &'a [Message],
    /// The schema that the answer must fit, if any.
    pub(super) output_schema: Option<OutputSchema<'a>>,
    /// Whether the answer is a message of the session and is shown while it streams.
    pub(super) shown: bool,
}

/// The result of a request.
pub(super) struct RequestOutcome {
    pub(super) end: RequestEnd,
    /// The usage of failed attempts that are not messages.
    pub(super) broke_off: Option<Usage>,
}

/// The end of a request.
pub(super) enum RequestEnd {
    Answered(ModelResponse),
    Failed(Refused),
    /// The session's model changed, or a prompt came while the turn waited for the provider.
    StartOver,
}

/// A request that failed after its retries.
pub(super) struct Refused {
    pub(super) failure: Failure,
    /// The message with the shown text of the last attempt.
    pub(super) shown: Option<MessageId>,
    /// Whether the request enabled thinking.
    pub(super) thinks: bool,
    /// Whether the request had `reasoning_content` at all calls.
    pub(super) reasons: bool,
}

/// A complete answer.
pub(super) struct ModelResponse {
    pub(super) response: Response,
    /// Its usage, with cost.
    pub(super) usage: Option<Usage>,
    pub(super) times: Option<Times>,
}

/// The usage and times of one attempt.
struct Meter {
    /// Whether a part of an answer came, even if not shown.
    begun: bool,
    usage: Option<Usage>,
    prices: Prices,
    began: Instant,
    first_byte_ms: Option<u64>,
}

impl Meter {
    /// The time since the request, in milliseconds.
    fn elapsed(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// The times of an attempt that ends now; `None` if it had no answer.
    fn times(&self) -> Option<Times> {
        self.first_byte_ms.map(|first_byte_ms| Times { first_byte_ms, total_ms: self.elapsed() })
    }

    /// Updates the usage; returns it if it changed.
    fn count(&mut self, usage: Usage) -> Option<Usage> {
        let usage = self.priced(usage);
        if usage == self.usage {
            return None;
        }
        self.usage = usage;
        usage
    }

    /// Adds the cost, preferring the provider's own; `None` if nothing was counted.
    fn priced(&self, usage: Usage) -> Option<Usage> {
        let cost_micros = usage.cost_micros.or_else(|| self.prices.cost(&usage));
        (!usage.is_uncounted()).then_some(Usage { cost_micros, ..usage })
    }
}

impl Turn {
    /// Sends a request, with retries.
    pub(super) async fn ask(
        &mut self,
        ask: &ModelRequest<'_>,
        encoding: &mut Encoding,
    ) -> Result<RequestOutcome, TurnEnded> {
        let mut attempt = 1;
        let mut broke_off: Option<Usage> = None;
        let mut wrong_key: Option<(Secret, Failure)> = None;
        let (mut thinks, mut reasons) = (false, false);
        loop {
            let (resolved, provider) = match Box::pin(self.resolve()).await? {
                Ok(resolved) => resolved,
                Err(Unresolved::Failed(failure)) => {
                    let end = Box::pin(self.fall_back_or(Refused { failure, shown: None, thinks, reasons })).await?;
                    return Ok(RequestOutcome { end, broke_off });
                }
                Err(Unresolved::OtherModel) => return Ok(RequestOutcome { end: RequestEnd::StartOver, broke_off }),
            };
            if let Some((key, failure)) = &wrong_key
                && provider.key() == Some(key)
            {
                let refused = Refused { failure: failure.clone(), shown: None, thinks, reasons };
                return Ok(RequestOutcome { end: Box::pin(self.fall_back_or(refused)).await?, broke_off });
            }
            self.say_setup(&resolved).await?;
            (thinks, reasons) = (resolved.thinks(self.effort_of_thought()), resolved.has_reasoning());
            tracing::info!(target: "request", session = %self.session, model = %self.model, messages = ask.messages.len(),
                attempt, "sent");
            let (began, prices) = (Instant::now(), resolved.facts.prices);
            let mut meter = Meter { begun: false, usage: None, prices, began, first_byte_ms: None };
            let stream = self.start(ask, &resolved, &provider, encoding).await;
            let ended = self.attempt(stream, &mut meter, ask.shown, ask.output_schema.is_some()).await?;
            if let Some(address) = resolved.address().filter(|_| has_answered(&ended, &meter)) {
                self.services.providers.reached.add(&address);
            }
            let failure = match ended {
                Ok(mut response) => {
                    self.say_reached()?;
                    self.outage = Outage::default();
                    if ask.output_schema.is_some() {
                        output_schema::answer_call_to_text(&mut response);
                    }
                    tracing::info!(target: "response", session = %self.session, ms = meter.elapsed(),
                        input = response.usage.input_tokens, output = response.usage.output_tokens, "done");
                    let usage = meter.priced(response.usage);
                    return Ok(RequestOutcome {
                        end: RequestEnd::Answered(ModelResponse { response, usage, times: meter.times() }),
                        broke_off,
                    });
                }
                Err(failure) => failure,
            };
            tracing::warn!(target: "response", session = %self.session, class = ?failure.class, why = failure.message, attempt, "failed");
            let shown = if ask.shown && meter.begun {
                Some(self.emit.interrupted(self.model.clone(), meter.times()).await?)
            } else {
                // A refusal costs nothing.
                broke_off = broke_off.into_iter().chain(meter.usage.filter(|_| meter.begun)).reduce(sum);
                self.emit.tell(TurnMessage::Counted(None))?;
                None
            };
            if failure.class == FailureClass::Auth
                && shown.is_none()
                && let Some(key) = provider.key()
                && self.services.providers.key_sources.refuse(&resolved.key, key)
                && wrong_key.is_none()
            {
                // An expired key is obtained again, once.
                let failure = Failure { message: format!("{}: {}", resolved.provider, failure.message), ..failure };
                let text = format!("{}; asking for the key again", failure.message);
                self.emit.notice(Level::Warning, NoticeCode::Retry, text)?;
                wrong_key = Some((key.clone(), failure));
                attempt += 1;
                continue;
            }
            attempt += 1;
            let refused = Refused { failure, shown, thinks, reasons };
            if let Some(end) = Box::pin(self.wait_out(refused, &resolved, meter.begun, ask.shown)).await? {
                return Ok(RequestOutcome { end, broke_off });
            }
        }
    }

    /// The effort for the request.
    fn effort_of_thought(&self) -> Effort {
        match self.thought {
            Thought::AsSet => self.thinking,
            Thought::Off => Effort::None,
        }
    }

    /// Sends one attempt.
    async fn start(
        &self,
        ask: &ModelRequest<'_>,
        resolved: &Resolved,
        provider: &Provider,
        encoding: &mut Encoding,
    ) -> Stream {
        let &ModelRequest { system, tools, messages, output_schema, .. } = ask;
        let effort = self.effort_of_thought();
        let encoded = provider.encoded(&RequestPrefix { origin: &resolved.origin, system, tools }, encoding);
        let images = self.images(messages.get(encoded..)).await;
        let request = Request {
            model: &resolved.model,
            origin: &resolved.origin,
            system,
            tools,
            messages,
            max_tokens: resolved.max_tokens,
            cache_key: self.session.as_str(),
            images: &images,
            output_schema,
            effort: if effort.is_auto() { resolved.facts.effort } else { effort },
            own_fields: Some(&resolved.body),
        };
        fault::point("request.before_send");
        provider.start(&request, encoding)
    }

    /// Reads the images of these messages for one request.
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
        let (store, session) = (self.services.store.clone(), self.session.clone());
        let runtime = tokio::runtime::Handle::current();
        let load = move |id: BlobId| match store.blobs.load(&id) {
            Ok(data) => Some((id, data)),
            Err(error) => {
                // The history may name an image that a repair could not save.
                let used = matches!(runtime.block_on(store.uses(id.clone(), None)), Ok(true));
                let error = if used { store.lost_blob(&id, error) } else { error.into() };
                tracing::error!(target: "request", %session, blob = %id, %error, "cannot read an image");
                None
            }
        };
        task::spawn_blocking(move || ids.into_iter().filter_map(load).collect()).await.unwrap_or_default()
    }

    /// One attempt; shown to clients if `is_shown`, and always metered. With `has_schema` the answer may be a call.
    async fn attempt(
        &mut self,
        mut stream: Stream,
        meter: &mut Meter,
        is_shown: bool,
        has_schema: bool,
    ) -> Result<Result<Response, Failure>, TurnEnded> {
        loop {
            let mut fragments = Vec::new();
            let mut end = None;
            let events = stream.next().await;
            meter.begun = stream.has_begun();
            if meter.begun {
                meter.first_byte_ms.get_or_insert_with(|| meter.began.elapsed().as_millis() as u64);
                self.say_reached()?;
            }
            if let Some(usage) = meter.count(stream.usage()) {
                tracing::debug!(target: "response", session = %self.session, input = usage.input_tokens,
                    output = usage.output_tokens, cost_micros = usage.cost_micros, "counted");
                self.emit.tell(TurnMessage::Counted(Some(Box::new(usage))))?;
            }
            let answer = |block, kind, text| Fragment::Answer { block, kind, text };
            for event in events {
                match event {
                    StreamEvent::Text { block, text } => fragments.push(answer(block, PieceKind::Text, text)),
                    StreamEvent::Thinking { block, text } => fragments.push(answer(block, PieceKind::Thinking, text)),
                    StreamEvent::Hosted { block, tool, part, text } => {
                        fragments.push(answer(block, PieceKind::Hosted(tool, part), text));
                    }
                    // It becomes text.
                    StreamEvent::Call { name, .. } if has_schema && name == output_schema::ANSWER => {}
                    StreamEvent::Call { block, name, text } => fragments.push(Fragment::Call { block, name, text }),
                    StreamEvent::Counted | StreamEvent::Native(_) => {}
                    StreamEvent::Done(response) => end = Some(Ok(response)),
                    StreamEvent::Failed(failure) => end = Some(Err(failure)),
                }
            }
            fault::point("request.first_piece");
            if is_shown && !fragments.is_empty() {
                self.emit.pieces(fragments).await?;
            }
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }
}

/// Whether the provider's address has answered, with whatever.
fn has_answered(ended: &Result<Response, Failure>, meter: &Meter) -> bool {
    let is_theirs = |class| {
        !matches!(
            class,
            FailureClass::Connect
                | FailureClass::Refused
                | FailureClass::Timeout
                | FailureClass::Network
                | FailureClass::Auth
                | FailureClass::NotFound
        )
    };
    meter.begun || ended.as_ref().err().is_none_or(|failure| is_theirs(failure.class))
}

/// The final form of a failure, for users.
pub(super) fn given_up(failure: Failure, note: Option<String>, resolved: &Resolved) -> Failure {
    let message = note.map_or_else(|| failure.message.clone(), |note| format!("{}; {note}", failure.message));
    let unsent =
        resolved.without_key().filter(|_| matches!(failure.class, FailureClass::Auth | FailureClass::Forbidden));
    let unsent = unsent.map(|unsent| format!("; {unsent}")).unwrap_or_default();
    Failure { message: format!("{}: {message}{unsent}", resolved.provider), ..failure }
}

/// Adds two usages.
pub(super) fn sum(mut one: Usage, other: Usage) -> Usage {
    one += other;
    one
}
