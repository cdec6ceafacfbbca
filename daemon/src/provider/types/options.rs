//! Options of one request, besides its conversation: which tools are called, where it ends, and how tokens are chosen.
//!
//! Only callers of `completion/start` have such options; a session's requests have none.

use serde_json::{Map, Number, Value};

/// The options of one request.
#[derive(Clone, Copy, Debug)]
pub struct AnswerOptions<'a> {
    /// Which tools are called.
    pub calls: CallChoice<'a>,
    /// Whether the request has tools.
    pub has_tools: bool,
    /// Whether the answer must fit a schema.
    pub has_schema: bool,
    /// Whether an answer may have one call at most.
    pub is_single: bool,
    /// Texts that end the answer; none is empty.
    pub stop: &'a [String],
    /// How tokens are chosen: numbers by the names that OpenAI has for them.
    pub sampling: &'a [Sampling],
    /// Whether the model is asked to think.
    pub thinks: bool,
}

/// A number that says how tokens are chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// OpenAI's name for it.
    pub name: &'static str,
    /// Its value, as the caller wrote it.
    pub value: Number,
}

/// Which tools an answer calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallChoice<'a> {
    /// The model decides.
    Auto,
    /// It calls none.
    None,
    /// It calls at least one.
    Any,
    /// It calls the one with this name.
    Tool(&'a str),
}

impl CallChoice<'_> {
    /// Whether the answer must be a call.
    pub fn is_forced(self) -> bool {
        matches!(self, Self::Any | Self::Tool(_))
    }
}

/// AnswerOptions as a wire format has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EncodedOptions {
    /// Fields of the body, which are merged into it.
    pub fields: Map<String, Value>,
    /// The names of the options that have no effect.
    pub ignored: Vec<&'static str>,
    /// How a call is forced, if one must be.
    pub forcing: Forcing,
    /// Whether the model must not think, as a call is forced.
    pub stops_thinking: bool,
}

/// How a model is made to call a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forcing {
    /// By a field of the request, which `fields` has.
    #[default]
    Field,
    /// By a schema for the answer: the format has no field for it, and the answer is the call as JSON.
    Schema,
    /// By words in the system prompt alone: the model refuses to be forced.
    Words,
}

/// The first thing that a conversation must have, as a wire format has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversationStart {
    /// A message of the user.
    User,
    /// Any message.
    Message,
    /// Nothing: the system prompt is enough.
    Nothing,
}
