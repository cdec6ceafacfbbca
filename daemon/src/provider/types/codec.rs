//! The traits that a wire format implements, and the HTTP request that it makes.

use std::fmt;
use std::sync::Arc;

use linger_protocol::message::Usage;
use linger_protocol::session::Effort;
use serde_json::Value;

use super::failure::Failure;
use super::image::ImageCodec;
use super::options::{AnswerOptions, ConversationStart, EncodedOptions};
use super::request::Request;
use super::response::StreamEvent;
use crate::diagnostics::secret::Secret;
use crate::provider::kind::ProviderKind;

/// A request as the wire format wants it; the driver adds host and key.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpRequest {
    /// Appended to the provider's base URL; begins with `/`.
    pub path: String,
    /// Headers in addition to the key's; without a `content-type` that is `application/json`.
    pub headers: Vec<(&'static str, String)>,
    /// JSON, or a form where the endpoint takes no JSON.
    pub body: Vec<u8>,
}

impl HttpRequest {
    /// One for a list of models.
    pub(in super::super) fn listing(path: &str) -> Self {
        Self { path: path.to_owned(), headers: Vec::new(), body: Vec::new() }
    }
}

/// How a response body is cut into pieces for the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Server-sent events: each has a name and data.
    Sse,
    /// One JSON value a line.
    NdJson,
}

/// A wire format with its settings, which are all that its `Debug` shows: two that look the same do the same.
pub trait Codec: fmt::Debug + Send + Sync {
    /// An encoder for one context and one model.
    fn encoder(&self) -> Box<dyn Encoder>;
    /// The header that carries the key.
    fn authorize(&self, key: &Secret) -> (&'static str, String);
    /// How the response is framed.
    fn framing(&self) -> Framing;
    /// A decoder for one response.
    fn decoder(&self) -> Box<dyn Decoder>;
    /// The failure that a response with a status other than 2xx stands for.
    fn failure(&self, status: u16, body: &[u8]) -> Failure;
    /// Whether answers are asked for as a whole, without streaming.
    fn is_unstreamed(&self) -> bool {
        false
    }
    /// A whole answer as an event of a stream that the decoder takes.
    fn as_event(&self, answer: Value) -> Value {
        answer
    }
    /// A caller's options as this format has them, for a model.
    fn options(&self, model: &str, options: &AnswerOptions<'_>) -> EncodedOptions;
    /// The first thing that a conversation must have.
    fn opening(&self) -> ConversationStart {
        ConversationStart::User
    }
    /// The same format for requests that are sent as a caller wrote them, and whose events come back as they are; absent where a
    /// caller cannot have them.
    fn forwarding(&self) -> Option<Arc<dyn Codec>> {
        None
    }
    /// The kind that it is configured as.
    fn kind(&self) -> ProviderKind;

    // What the configuration of its providers may say.

    /// The fields of a body that linger sets itself, so that a user cannot; a dot leads into an object.
    fn own_fields(&self) -> &'static [&'static str];
    /// The flags of [`crate::provider::compat::Compat`] that it reads, by their names.
    fn flags(&self) -> &'static [&'static str];
    /// Whether its providers run tools themselves. The error ends the sentence "the kind … has none".
    fn has_hosted_tools(&self) -> Result<(), &'static str> {
        Err("")
    }

    // What its models can do.

    /// Whether a model takes tools that its provider runs together with others.
    fn combines_hosted_tools(&self, _model: &str) -> bool {
        true
    }
    /// Whether a request must limit the tokens of its answer.
    fn needs_max_tokens(&self) -> bool {
        false
    }
    /// Whether an effort has an effect on a model.
    fn takes_effort(&self, _model: &str, _effort: Effort) -> bool {
        true
    }
    /// The context window that requests ask for, in tokens, where it is not the model's own.
    fn requested_window(&self) -> Option<u32> {
        None
    }
    /// Whether requests with tools may have a schema for the answer too.
    fn takes_schema_with_tools(&self, _model: &str) -> bool {
        true
    }
    /// Whether only schemas of objects are enforced. Other answers are then wrapped in an object with one field.
    fn takes_only_objects(&self) -> bool {
        false
    }

    // What else can be asked of its providers.

    /// The request for one model's properties, where the list of models lacks them.
    fn model_request(&self, _model: &str) -> Option<HttpRequest> {
        None
    }
    /// The context window in the answer to [`Codec::model_request`], in tokens.
    fn model_window(&self, _answer: &[u8]) -> Option<u64> {
        None
    }
    /// How images are asked for, if they can be.
    fn images(&self) -> Option<&dyn ImageCodec> {
        None
    }
    /// The request for the list of models (GET, no body), if there is one; [`crate::provider::listing::parse`] reads the answer.
    fn listing(&self) -> Option<HttpRequest>;
}

/// Turns the requests of one context to one model into what is sent. Pure; gives the same as one that gets the last of them only.
/// From one request to the next, messages are added and none is changed; model, model, tools and output schema stay as they are.
pub trait Encoder: fmt::Debug + Send {
    /// Path and body of `request`.
    fn encode(&mut self, request: &Request<'_>) -> HttpRequest;
}

/// Turns one response into stream events. Pure; gives the same whatever the cuts between the chunks were.
pub trait Decoder: Send {
    /// Takes one framed piece: the event's name (empty for NDJSON) and its data.
    fn feed(&mut self, event: &str, data: &str, out: &mut Vec<StreamEvent>);
    /// The body has ended; gives `Failed` unless a terminal event was given before.
    fn finish(&mut self, out: &mut Vec<StreamEvent>);
    /// The tokens counted so far, for an answer that never ends.
    fn usage(&self) -> Usage;
    /// Whether the answer is over, and only its end in the stream is due.
    fn is_finished(&self) -> bool {
        false
    }
    /// How much of the answer there is; grows with every piece of it, and with nothing that only says that the provider lives.
    fn gathered(&self) -> usize;
}
