//! The request to a model in one step: the context, the tools, and how to answer.

use std::collections::BTreeMap;

use linger_protocol::id::BlobId;
use linger_protocol::message::{ContentBlock, Role};
use linger_protocol::session::Effort;
use serde_json::{Map, Value};

use super::tools::ToolSpecs;

/// One request to a model, for one step of a turn.
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
    /// The schema that the answer must fit; absent for free text.
    pub output_schema: Option<OutputSchema<'a>>,
    /// How hard the model is to think.
    pub effort: Effort,
    /// The user's own fields of the body.
    pub own_fields: Option<&'a Map<String, Value>>,
}

/// The part of a request before the context. While it stays, requests of one context extend each other.
#[derive(Clone, Copy, Debug)]
pub struct RequestPrefix<'a> {
    /// [`Request::origin`].
    pub origin: &'a str,
    /// [`Request::system`].
    pub system: &'a str,
    /// [`Request::tools`].
    pub tools: &'a ToolSpecs,
}

/// Images in base64, by the names of their blobs.
pub type Images = BTreeMap<BlobId, String>;

/// A message of the context.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The user, whose messages carry results too, or the model.
    pub role: Role,
    /// Text, thinking, images, calls and results, in order.
    pub content: Vec<ContentBlock>,
    /// The `provider/model` that wrote it; its opaque parts go back to that one only.
    pub origin: Option<String>,
}

impl Message {
    /// Whether the model that `request` asks wrote it, so that its opaque parts may go back.
    pub(in super::super) fn is_own(&self, request: &Request<'_>) -> bool {
        self.origin.as_deref() == Some(request.origin)
    }
}

/// The schema of an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutputSchema<'a> {
    /// The schema, JSON Schema 2020-12.
    pub schema: &'a Value,
    /// The answer is due: no other tool may be called first, where the format can express that.
    pub due: bool,
}
