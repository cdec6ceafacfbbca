//! Why a model cannot be asked, in words that say what to do.

use linger_protocol::RpcError;
use linger_protocol::error::Code;

/// Why a model cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// None was named, and there is no default.
    #[error(
        "no model: set {} (`linger models` lists more, also of servers on this machine), or name one in config.toml, or use the scripted model `demo`",
        .variables.join(" or ")
    )]
    NoModel {
        /// Any of these would give one, among others.
        variables: Vec<String>,
    },
    /// The provider is named, but it has no default model.
    #[error(
        "the provider `{provider}` has no default model: write `{provider}/MODEL`, or set `model` in [providers.{provider}]"
    )]
    NoDefault {
        /// The provider.
        provider: String,
    },
    /// No provider has this name.
    #[error("there is no provider `{provider}`{}", .near.as_ref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default())]
    UnknownProvider {
        /// What was written.
        provider: String,
        /// What may have been meant: a provider, or a model with its provider.
        near: Option<String>,
    },
    /// The provider's address is not known.
    #[error(
        "the provider `{provider}` has no address: set `base_url` in [providers.{provider}], such as \"{example}\""
    )]
    NoAddress {
        /// The provider.
        provider: String,
        /// An address with a placeholder.
        example: String,
    },
    /// It takes hosted tools, but not beside others.
    #[error(
        "{} takes no {tool} beside other tools: {}take `hosted_tools` out of [providers.{provider}]",
        if *.vertex { "Vertex AI" } else { .model.as_str() },
        if *.vertex { "" } else { "choose a model from Gemini 3 on, or " }
    )]
    HostedApart {
        /// The provider.
        provider: String,
        /// The model there.
        model: String,
        /// The first of the tools that are switched on.
        tool: &'static str,
        /// No model of it does.
        vertex: bool,
    },
    /// It has no use for a key.
    #[error("the provider `{provider}` needs no key")]
    Keyless {
        /// The provider.
        provider: String,
    },
    /// The key is not there.
    #[error("the provider `{provider}` needs a key: set {variable}, or store it with `linger key set {provider}`")]
    KeyMissing {
        /// The provider.
        provider: String,
        /// The variable that holds it.
        variable: String,
    },
}

impl From<ResolveError> for RpcError {
    /// The error with what to do next.
    fn from(error: ResolveError) -> Self {
        let (code, hint) = match &error {
            ResolveError::NoModel { .. } => (Code::NoModel, "`--model demo` shows linger without a key".to_owned()),
            ResolveError::NoDefault { .. } => (Code::NoModel, "`linger models` lists what can be used".to_owned()),
            ResolveError::HostedApart { .. } => (Code::BadConfig, "`linger models` lists what can be used".to_owned()),
            ResolveError::NoAddress { .. } => {
                (Code::NoModel, "write it in config.toml; it is read again when it is saved".to_owned())
            }
            ResolveError::UnknownProvider { .. } => {
                (Code::UnknownProvider, "`linger models` lists those there are; config.toml may name more".to_owned())
            }
            ResolveError::Keyless { .. } => (Code::NotAKey, "`linger key list` shows those that do".to_owned()),
            ResolveError::KeyMissing { provider, variable } => {
                let ways = format!("export {variable}=… and run this again, or `linger key set {provider}`");
                (Code::KeyMissing, format!("{ways}; `--model demo` needs none"))
            }
        };
        Self::new(code, error.to_string()).hint(hint)
    }
}
