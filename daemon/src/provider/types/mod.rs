//! The ground of the room: what a model is asked, what it answers, and the traits of a wire format.
//!
//! It imports nothing of the room but the kinds and the JSON helpers in `wire`; everything else of the room imports it.

mod codec;
mod failure;
mod image;
mod options;
mod request;
mod response;
pub mod tools;

pub use codec::{Codec, Decoder, Encoder, Framing, HttpRequest};
pub use failure::{Failure, FailureClass, Parameter};
pub use image::{ImageCodec, ImageRequest, MadeImage};
pub use options::{AnswerOptions, CallChoice, ConversationStart, EncodedOptions, Forcing, Sampling};
pub use request::{Images, Message, OutputSchema, Request, RequestPrefix};
pub use response::{Response, Stop, StreamEvent};
pub use tools::ToolSpec;
pub(super) use tools::{ToolJson, ToolSpecs};
