//! Failures of an attempt: their classes, which decide how they are handled, and a hint for the user.
//!
//! Deliberately absent: reading a provider's error ([`crate::provider::failure`]).

use std::time::Duration;

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Its class, which decides about a retry.
    pub class: FailureClass,
    /// One line for users: the provider's message, without secrets.
    pub message: String,
    /// The wait that the provider asks for.
    pub retry_after: Option<Duration>,
}

/// The classes of failures, which decide whether an attempt is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    /// Unreachable, or no such host. Retried.
    Connect,
    /// Connection refused. Retried, but not for long.
    Refused,
    /// 408, 409, 425, 5xx, overloaded, also in mid-stream. Retried.
    Overloaded,
    /// 429: too many requests or tokens in a while, also in mid-stream. Retried.
    RateLimited,
    /// No answer, or silence in it, for longer than the limits allow. Retried.
    Timeout,
    /// The stream is truncated or malformed. Retried.
    Stream,
    /// A network setup problem: an untrusted certificate, a proxy that wants a password.
    Network,
    /// 401: the key is wrong.
    Auth,
    /// 403: the key is known, and may not do this; or something before the provider refuses.
    Forbidden,
    /// 402, a quota or credit that is used up: only payment helps, or another month.
    Quota,
    /// 404: no such model or address.
    NotFound,
    /// The context is larger than the model's window.
    TooLong,
    /// Perhaps that: the words are in no table, and speak of lengths and limits.
    PerhapsTooLong,
    /// The model refuses images, or one of these.
    Images,
    /// The provider refuses its own items of earlier messages: signatures, identifiers, the order of calls and results.
    History,
    /// A call in the history, made by another model, lacks the thinking before it, even an empty one.
    Reasoning,
    /// An optional part of the request is refused.
    Parameter(Parameter),
    /// Any other 4xx, no money left, policy.
    Rejected,
}

impl FailureClass {
    /// The next thing for a user to do.
    pub fn hint(self) -> &'static str {
        match self {
            Self::Connect | Self::Refused => "check that the server runs and that base_url is right, then prompt again",
            Self::Overloaded | Self::RateLimited | Self::Timeout | Self::Stream => {
                "prompt again in a while, or choose another model"
            }
            Self::Forbidden => {
                "the key may lack a permission, the API may be off in its project, or your region or network is refused: see the \
                 provider's message, then the account's settings"
            }
            Self::Quota => "top up or raise the limit in the provider's console, or choose another model",
            Self::Auth => "check the key: `linger key list` shows its source",
            Self::Network => "check [network] in config.toml and run `linger doctor`, then prompt again",
            Self::NotFound => "check the model's name and base_url",
            Self::TooLong | Self::PerhapsTooLong => {
                "choose a model with a larger window, or start a new session with a summary of this one"
            }
            Self::Images => "choose a model that takes images",
            Self::History => {
                "summarise the history with /compact, choose another model with /model, or start a new session"
            }
            Self::Reasoning => {
                "with kind openai set `reasoning_content = true` in [providers.NAME.compat], or choose another model with /model"
            }
            Self::Parameter(parameter) => parameter.hint(),
            Self::Rejected => "check the model, its settings and the account, then prompt again",
        }
    }
}

/// An optional part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// A JSON Schema for the answer.
    Schema,
    /// The same in a request with tools.
    SchemaWithTools,
    /// The mark that a schema is strict.
    StrictSchema,
    /// A number or a word for how hard to think.
    Effort,
    /// The field that switches thinking on.
    Thinking,
    /// The session's name for the prompt cache.
    CacheKey,
    /// The marks that say which parts of the request to cache.
    CacheControl,
    /// The request for token counts in a stream.
    StreamUsage,
    /// The request for encrypted reasoning.
    EncryptedReasoning,
    /// The role of the system prompt.
    DeveloperRole,
    /// The limit of an answer by its old name.
    MaxTokens,
    /// The limit of an answer by its new name.
    MaxCompletionTokens,
    /// The list of tools.
    Tools,
}

impl Parameter {
    /// The next thing for a user to do.
    pub fn hint(self) -> &'static str {
        match self {
            Self::Schema => "set `json_schema = false` in [providers.NAME.compat], then prompt again",
            Self::SchemaWithTools => "set `schema_with_tools = false` in [providers.NAME.compat], then prompt again",
            Self::StrictSchema => "set `strict_schema = false` in [providers.NAME.compat], then prompt again",
            Self::Effort => "set `reasoning_effort = false` in [providers.NAME.compat], or choose `--effort auto`",
            Self::CacheKey => "set `prompt_cache_key = false` in [providers.NAME.compat], then prompt again",
            Self::CacheControl => "set `cache_control = false` in [providers.NAME.compat], then prompt again",
            Self::StreamUsage => "set `stream_usage = false` in [providers.NAME.compat], then prompt again",
            Self::EncryptedReasoning => {
                "set `encrypted_reasoning = false` in [providers.NAME.compat], then prompt again"
            }
            Self::DeveloperRole => "set `developer_role = false` in [providers.NAME.compat], then prompt again",
            Self::MaxTokens => "set `max_completion_tokens = true` in [providers.NAME.compat], then prompt again",
            Self::MaxCompletionTokens => {
                "set `max_completion_tokens = false` in [providers.NAME.compat], then prompt again"
            }
            Self::Thinking => "choose `--effort none`, or another model",
            Self::Tools => {
                "choose a model that takes tools; a server of your own may need an option for them (vLLM: \
                 --enable-auto-tool-choice and --tool-call-parser, llama.cpp: --jinja)"
            }
        }
    }
}
