//! Providers: what a model is asked, what it answers, and the one trait that a wire format implements.
//!
//! A wire format is a [`Codec`]: two pure parts without I/O.
//! [`Stream`] drives one attempt at one request: it sends, reads, decodes, and ends in exactly one [`StreamEvent::Done`] or
//! [`StreamEvent::Failed`]; failures are data.
//! Deliberately absent: retries (the turn decides, with [`retry`]) and anything about sessions.

pub mod address;
pub mod anthropic;
pub mod call_text;
pub mod catalogue;
pub mod client;
pub mod compat;
pub mod demo;
pub mod driver;
mod effort;
pub mod encoding;
mod failure;
pub mod gemini;
pub mod hosted;
pub mod image;
pub mod key_source;
pub mod keychain;
pub mod keys;
pub mod lister;
pub mod listing;
pub mod models;
pub mod network;
pub mod ollama;
pub mod openai;
pub mod output_schema;
pub mod own_fields;
pub mod parameter;
pub mod preset;
pub mod public;
pub mod reached;
mod response_builder;
pub mod responses;
pub mod retry;
pub mod schema;
#[cfg(test)]
pub(crate) mod scripted;
pub mod setup;
pub mod single_flight;
pub mod sse;
#[cfg(test)]
pub(crate) mod support;
mod think_decoder;
pub mod think_tags;
mod timeouts;
pub mod tools;
mod transport_error;
mod unstreamed;
pub mod wellformed;
mod wire;

pub(crate) use wire::{json_size, with_good_escapes};

use std::collections::BTreeMap;
use std::fmt;

use linger_protocol::id::BlobId;
use linger_protocol::message::{ContentBlock, HostedPart, HostedTool, Role, Usage};
use linger_protocol::session::Effort;
use serde_json::{Map, Value};

use crate::diagnostics::secret::Secret;

pub use encoding::Encoding;
pub use failure::{Failure, FailureClass};
use output_schema::OutputSchema;
use tools::ToolSpecs;

/// What a model is asked in one step.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The model's name at its provider.
    pub model: &'a str,
    /// The same as `provider/model`: what a [`Message::origin`] must be for its opaque parts to go back.
    pub origin: &'a str,
    /// The system prompt; the same bytes for every step of a session unless an event says otherwise.
    pub system: &'a str,
    /// The tools, in a stable order.
    pub tools: &'a ToolSpecs,
    /// The context: never empty, the first message is a user's.
    pub messages: &'a [Message],
    /// The most tokens that the answer may have; 0 leaves it to the provider.
    pub max_tokens: u32,
    /// Names the session to the provider's prompt cache.
    pub cache_key: &'a str,
    /// The images that messages name, as far as they are not encoded yet; one that is not here is said to be missing.
    pub images: &'a Images,
    /// What the answer has to fit.
    pub output_schema: Option<OutputSchema<'a>>,
    /// How hard the model is to think.
    pub effort: Effort,
    /// The user's own fields of the body.
    pub own_fields: Option<&'a Map<String, Value>>,
}

/// Images in base64, by the names of their blobs.
pub type Images = BTreeMap<BlobId, String>;

/// Something that answers requests.
#[derive(Clone, Debug)]
pub enum Provider {
    /// A model behind HTTP.
    Http(driver::Endpoint),
    /// The scripted model that needs no network.
    Demo,
    /// A test's script, with the key that it is asked with.
    #[cfg(test)]
    Scripted(scripted::Script, Option<Secret>),
}

impl Provider {
    /// How many of the first messages of a context `encoding` has, so that their images are not needed again; for a request with
    /// this origin, system prompt and tools.
    pub fn encoded(&self, (origin, system, tools): (&str, &str, &ToolSpecs), encoding: &Encoding) -> usize {
        match self {
            Self::Http(endpoint) => encoding.encoded(endpoint.codec.as_ref(), (origin, system, tools)),
            Self::Demo => usize::MAX,
            #[cfg(test)]
            Self::Scripted(..) => usize::MAX,
        }
    }

    /// The key that it is asked with.
    pub fn key(&self) -> Option<&Secret> {
        match self {
            Self::Http(endpoint) => endpoint.key.as_ref(),
            Self::Demo => None,
            #[cfg(test)]
            Self::Scripted(_, key) => key.as_ref(),
        }
    }

    /// Begins one attempt at `request`; nothing happens before [`Stream::next`] is called.
    /// `encoding` keeps what was encoded of the context; it is the same for all requests that extend each other.
    pub fn start(&self, request: &Request<'_>, encoding: &mut Encoding) -> Stream {
        match self {
            Self::Http(endpoint) => Stream::Http(driver::HttpStream::start(endpoint, request, encoding)),
            Self::Demo => Stream::Demo(demo::DemoStream::start(request)),
            #[cfg(test)]
            Self::Scripted(script, _) => Stream::Scripted(script.start(request)),
        }
    }
}

/// One attempt at one request; dropping it aborts the attempt.
#[derive(Debug)]
pub enum Stream {
    /// Over HTTP.
    Http(driver::HttpStream),
    /// From the script.
    Demo(demo::DemoStream),
    /// From a test's script.
    #[cfg(test)]
    Scripted(scripted::ScriptedStream),
}

impl Stream {
    /// What came next: never empty until `Done` or `Failed` came, which is the last of all; then always empty.
    /// A call that is dropped before it answers loses nothing.
    pub async fn next(&mut self) -> Vec<StreamEvent> {
        match self {
            Self::Http(stream) => stream.next().await,
            Self::Demo(stream) => stream.next().await,
            #[cfg(test)]
            Self::Scripted(stream) => stream.next().await,
        }
    }

    /// What the provider has counted so far; an attempt that fails was paid for too.
    pub fn usage(&self) -> Usage {
        match self {
            Self::Http(stream) => stream.usage(),
            Self::Demo(stream) => stream.usage(),
            #[cfg(test)]
            Self::Scripted(stream) => stream.usage(),
        }
    }

    /// Whether anything of an answer came, shown or not: what fails before that was refused, what fails after it was cut.
    pub fn has_begun(&self) -> bool {
        match self {
            Self::Http(stream) => stream.has_begun(),
            // The script does not fail.
            Self::Demo(_) => true,
            #[cfg(test)]
            Self::Scripted(stream) => stream.has_begun(),
        }
    }
}

/// A message of the context.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: Vec<ContentBlock>,
    /// The `provider/model` that wrote it; its opaque parts go back to that one only.
    pub origin: Option<String>,
}

/// A tool as the model sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it is told about it.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
}

/// A request as the wire format wants it; the driver adds host and key.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpRequest {
    /// Appended to the provider's base URL; begins with `/`.
    pub path: String,
    /// Headers beside the key's; without a `content-type` that is `application/json`.
    pub headers: Vec<(&'static str, String)>,
    /// JSON, mostly.
    pub body: Vec<u8>,
}

impl HttpRequest {
    /// One for a list of models.
    fn listing(path: &str) -> Self {
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
    /// What a response with a status other than 2xx means.
    fn failure(&self, status: u16, body: &[u8]) -> Failure;
    /// Whether answers are asked for as a whole, without streaming.
    fn is_unstreamed(&self) -> bool {
        false
    }
    /// A whole answer as an event of a stream that the decoder takes.
    fn as_event(&self, answer: Value) -> Value {
        answer
    }
    /// What asks for the list of models (with GET, without a body), if there is one; [`listing::parse`] reads it.
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
    /// What the provider has counted so far, for an answer that never ends.
    fn usage(&self) -> Usage;
    /// How much of the answer there is; grows with every piece of it, and with nothing that only says that the provider lives.
    fn gathered(&self) -> usize;
}

/// What comes out of a response. After `Done` or `Failed` nothing comes.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamEvent {
    /// Text for the block with this index in the final content; never empty.
    Text {
        /// Index in [`Response::content`], whose text begins with all that came for it.
        block: u32,
        /// The piece.
        text: String,
    },
    /// Thinking, likewise.
    Thinking {
        /// Index in [`Response::content`].
        block: u32,
        /// The piece.
        text: String,
    },
    /// The arguments of a call of one of our tools, as canonical JSON ([`call_text`]). The first piece comes with the call's name.
    Call {
        /// Index in [`Response::content`].
        block: u32,
        /// The tool.
        name: String,
        /// The piece.
        text: String,
    },
    /// What is said of a tool that the provider runs itself, likewise.
    Hosted {
        /// Index in [`Response::content`].
        block: u32,
        /// The tool.
        tool: HostedTool,
        /// Whether it is a call, or what came of it.
        part: HostedPart,
        /// All of it.
        text: String,
    },
    /// The provider has counted the request, and nothing is to be shown yet: [`Stream::usage`] says what. Comes first or never, and
    /// from no decoder.
    Counted,
    /// The model is done.
    Done(Response),
    /// The attempt failed.
    Failed(Failure),
}

/// A whole answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Response {
    /// The blocks, in the provider's order. Tool calls have an empty `call_id`, which the turn fills in.
    /// The arguments of a call are an object; where the model wrote none, or was cut, they are a string of what it wrote.
    pub content: Vec<ContentBlock>,
    /// Why the model stopped, for reporting; whether the turn goes on depends on the content.
    pub stop: Stop,
    /// What it cost.
    pub usage: Usage,
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stop {
    /// It was done, or wants its tool calls run.
    #[default]
    End,
    /// Its answer was cut at the token limit.
    MaxTokens,
    /// It refused.
    Refusal,
    /// Its provider stopped in the middle of what it runs itself: it is asked again, with this answer at the end of the context.
    Paused,
}
