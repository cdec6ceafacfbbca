//! A model's answer: the events of a stream, and the whole answer that ends it.

use linger_protocol::message::{ContentBlock, HostedPart, HostedTool, Usage};

use super::failure::Failure;

/// An event of a response. Nothing follows `Done` or `Failed`.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamEvent {
    /// Text for the block with this index in the final content; never empty.
    Text {
        /// Index in [`Response::content`], whose text begins with all that came for it.
        block: u32,
        /// The next piece of the block; never empty.
        text: String,
    },
    /// A piece of thinking, for the block with this index.
    Thinking {
        /// Index in [`Response::content`].
        block: u32,
        /// The next piece of the block; never empty.
        text: String,
    },
    /// The arguments of a call of one of our tools, as canonical JSON ([`crate::provider::call_text`]). The first piece comes with the call's name.
    Call {
        /// Index in [`Response::content`].
        block: u32,
        /// The tool's name, as the model wrote it.
        name: String,
        /// The next piece of the block; never empty.
        text: String,
    },
    /// Text about a tool that the provider runs itself, likewise.
    Hosted {
        /// Index in [`Response::content`].
        block: u32,
        /// A web search, or code in a sandbox of the provider.
        tool: HostedTool,
        /// Whether it is a call, or what came of it.
        part: HostedPart,
        /// All of it.
        text: String,
    },
    /// The provider has counted the request, and nothing is to be shown yet: [`crate::provider::Stream::usage`] says what. Comes first or never, and
    /// from no decoder.
    Counted,
    /// An event of a forwarded request, as the provider sent it: the text of a JSON object. It comes in place of all others but `Done`
    /// and `Failed`.
    Native(String),
    /// The model is done.
    Done(Response),
    /// The attempt failed; there is no answer.
    Failed(Failure),
}

/// An answer that has ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Response {
    /// The blocks, in the provider's order. Tool calls have an empty `call_id`, which the turn fills in.
    /// The arguments of a call are an object; where the model wrote none, or was cut, they are a string of what it wrote.
    pub content: Vec<ContentBlock>,
    /// Why the model stopped, for reporting; whether the turn goes on depends on the content.
    pub stop: Stop,
    /// The tokens that it took.
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
    /// It refused to answer.
    Refusal,
    /// It says that it calls tools, and has called none.
    NoCalls,
    /// Its provider stopped in the middle of what it runs itself: it is asked again, with this answer at the end of the context.
    Paused,
}
