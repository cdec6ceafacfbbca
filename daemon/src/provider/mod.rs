//! Providers: what a model is asked, what it answers, and the one trait that a wire format implements.
//!
//! This file is the roof: it declares the rooms, and names what the rest of the daemon uses; no file of the room imports it.
//! From the ground up: the JSON helpers in `wire`, [`kind`] and `types`; the codecs, one directory each, with what they share
//! (`encoding`, `response_builder`, `output_schema`, think tags); [`codecs`], the registry; the driver, which does the HTTP; and
//! the [`catalogue`], which finds the endpoint of a model.
//! Deliberately absent: retries (the turn decides, with [`retry`]) and anything about sessions.

pub mod address;
pub mod anthropic;
mod attempt;
pub mod call_text;
pub mod catalogue;
pub mod client;
pub mod codecs;
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
pub mod kind;
pub mod lister;
pub mod listing;
pub mod models;
pub mod network;
pub mod ollama;
pub mod openai;
mod options;
pub mod output_schema;
pub mod own_fields;
pub mod parameter;
pub mod preset;
pub mod public;
pub mod reached;
pub mod refused_tools;
mod response_builder;
pub mod responses;
pub mod retry;
pub mod route;
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
mod transport_error;
mod types;
mod unstreamed;
#[cfg(test)]
#[path = "../../../tests/src/model/wellformed/mod.rs"]
pub mod wellformed;
mod wire;
pub mod written_call;

pub use attempt::{Provider, Stream};
pub use encoding::Encoding;
pub use types::tools;
pub use types::{
    AnswerOptions, CallChoice, Codec, ConversationStart, Decoder, EncodedOptions, Encoder, Failure, FailureClass,
    Forcing, Framing, HttpRequest, ImageCodec, Images, Message, Request, RequestPrefix, Response, Sampling, Stop,
    StreamEvent, ToolSpec,
};
pub(crate) use wire::{json_size, unwrapped_arguments, with_good_escapes};
