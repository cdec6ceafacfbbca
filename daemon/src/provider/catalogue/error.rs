//! Errors of resolving a model, each with the next thing to do.

use linger_protocol::RpcError;
use linger_protocol::error::Code;

/// Why a model cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// None was named, and there is no default.
    #[error(
        "no model: set {} (`linger models` lists more, local servers included), or name one in config.toml, or use the scripted model `demo`",
        .variables.join(" or ")
    )]
    NoModel {
        /// Variables of which each would make a model available, among others.
        variables: Vec<String>,
    },
    /// The provider is named, but it has no default model.
    #[error(
        "the provider `{provider}` has no default model: write `{provider}/MODEL`, or set `model` in [providers.{provider}]"
    )]
    NoDefault {
        /// Its name in the configuration.
        provider: String,
    },
    /// No provider has this name.
    #[error("unknown provider `{provider}`{}", .near.as_ref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default())]
    UnknownProvider {
        /// The unknown name.
        provider: String,
        /// A similar name: a provider, or `provider/model`.
        near: Option<String>,
    },
    /// The provider is configured, and no person has confirmed all of it.
    #[error("the provider `{provider}` is not in force: its configuration waits until you confirm it")]
    Unconfirmed {
        /// Its name in the configuration.
        provider: String,
    },
    /// The provider's address is unknown.
    #[error(
        "the provider `{provider}` has no address: set `base_url` in [providers.{provider}], such as \"{example}\""
    )]
    NoAddress {
        /// Its name in the configuration.
        provider: String,
        /// An address with a placeholder.
        example: String,
    },
    /// The model takes hosted tools, but not together with others.
    #[error(
        "{} cannot combine {tool} with other tools: {}remove `hosted_tools` from [providers.{provider}]",
        if *.vertex { "Vertex AI" } else { .model.as_str() },
        if *.vertex { "" } else { "choose a model from Gemini 3 on, or " }
    )]
    HostedApart {
        /// Its name in the configuration.
        provider: String,
        /// The model there.
        model: String,
        /// The first of the enabled tools.
        tool: &'static str,
        /// Whether no model of the provider can.
        vertex: bool,
    },
    /// The provider takes no key.
    #[error("the provider `{provider}` needs no key")]
    Keyless {
        /// Its name in the configuration.
        provider: String,
    },
    /// A value of the user's own is missing.
    #[error("`{field}` of the provider `{provider}` needs a value: set {variable}")]
    FieldMissing {
        /// Its name in the configuration.
        provider: String,
        /// The header or query parameter.
        field: String,
        /// The variable that holds it.
        variable: String,
    },
    /// The key is missing.
    #[error("the provider `{provider}` needs a key: set {variable}, or store it with `linger key set {provider}`")]
    KeyMissing {
        /// Its name in the configuration.
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
                (Code::NoModel, "set it in config.toml; the daemon reads the file when it is saved".to_owned())
            }
            ResolveError::UnknownProvider { .. } => {
                (Code::UnknownProvider, "`linger models` lists the providers; config.toml may name more".to_owned())
            }
            ResolveError::Unconfirmed { .. } => {
                (Code::UnknownProvider, "`linger config confirm` shows what waits, and asks".to_owned())
            }
            ResolveError::Keyless { .. } => (Code::NotAKey, "`linger key list` shows those that do".to_owned()),
            ResolveError::FieldMissing { variable, .. } => {
                (Code::KeyMissing, format!("export {variable}=… and run this again"))
            }
            ResolveError::KeyMissing { provider, variable } => {
                let ways = format!("export {variable}=… and run this again, or `linger key set {provider}`");
                (Code::KeyMissing, format!("{ways}; `--model demo` needs none"))
            }
        };
        Self::new(code, error.to_string()).hint(hint)
    }
}
