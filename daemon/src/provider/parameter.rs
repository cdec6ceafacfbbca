//! Optional parameters that a server may refuse: recognising the refusal, and the flag that leaves the parameter out. Pure.
//!
//! Deliberately absent: remembering what was refused (the catalogue), and asking again (the turn).

use super::compat::Compat;
pub use super::types::Parameter;

/// Words in an error, in lower case: all of a row. The first row that fits counts.
const EXACT: &[(Parameter, &[&str])] = &[
    (Parameter::MaxTokens, &["max_tokens", "use 'max_completion_tokens' instead"]),
    (Parameter::SchemaWithTools, &["grammar", "with tools"]),
    (Parameter::SchemaWithTools, &["json mode cannot be combined"]),
    (Parameter::SchemaWithTools, &["response_format", "tools", "same time"]),
    (Parameter::SchemaWithTools, &["response mime type", "function calling"]),
    (Parameter::EncryptedReasoning, &["encrypted content is not supported"]),
    (Parameter::Schema, &["response_format", "unavailable"]),
    (Parameter::Thinking, &["does not support thinking"]),
    (Parameter::Tools, &["does not support tools"]),
    (Parameter::Tools, &["does not support function calling"]),
    (Parameter::Tools, &["support tool use"]),
    (Parameter::Tools, &["--enable-auto-tool-choice"]),
    (Parameter::Tools, &["tools param requires --jinja"]),
];

/// Names of parameters in errors, in lower case; beside one of them stands one of [`REFUSED`].
const NAMES: &[(Parameter, &[&str])] = &[
    (Parameter::StrictSchema, &["json_schema.strict", "format.strict", "'strict'", "`strict`", "\"strict\""]),
    (Parameter::Schema, &["response_format", "json_schema", "text.format", "responsejsonschema", "response_schema"]),
    (Parameter::EncryptedReasoning, &["reasoning.encrypted_content", "'include'", "`include`"]),
    (Parameter::Effort, &["reasoning_effort", "reasoning.effort", "'reasoning'", "`reasoning`", "\"reasoning\""]),
    (Parameter::CacheKey, &["prompt_cache_key"]),
    (Parameter::CacheControl, &["cache_control"]),
    (Parameter::StreamUsage, &["stream_options", "include_usage"]),
    (Parameter::MaxCompletionTokens, &["max_completion_tokens"]),
    (Parameter::DeveloperRole, &["'developer'", "`developer`", "\"developer\"", "role developer", "developer role"]),
];

/// How servers refuse a parameter, in lower case.
const REFUSED: &[&str] = &[
    "not supported",
    "unsupported",
    "does not support",
    "doesn't support",
    "don't support",
    "isn't supported",
    "unrecognized",
    "unrecognised",
    "unknown",
    "not permitted",
    "not allowed",
    "unexpected",
    "extra inputs",
    "extra fields",
    "extra_forbidden",
    "invalid parameter",
    "invalid role",
    "not one of",
    "unavailable",
];

/// Phrases that refuse a value or a schema, not the parameter as such.
const OF_A_VALUE: &[&str] = &["supported values", "unsupported value", "invalid schema"];

impl Parameter {
    /// The parameter that an error refuses. `said` is in lower case.
    pub(super) fn refused(said: &str) -> Option<Self> {
        if let Some((parameter, _)) = EXACT.iter().find(|(_, row)| row.iter().all(|word| said.contains(word))) {
            return Some(*parameter);
        }
        let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
        let role = has(&["'developer'", "`developer`", "\"developer\""]) && said.contains("role");
        if !has(REFUSED) || (has(OF_A_VALUE) && !role) {
            return None;
        }
        NAMES.iter().find(|(_, names)| has(names)).map(|(parameter, _)| *parameter)
    }

    /// The line of `[providers.NAME.compat]` that leaves it out; `None` if no flag does.
    pub fn setting(self) -> Option<&'static str> {
        Some(match self {
            Self::Schema => "json_schema = false",
            Self::SchemaWithTools => "schema_with_tools = false",
            Self::StrictSchema => "strict_schema = false",
            Self::Effort => "reasoning_effort = false",
            Self::CacheKey => "prompt_cache_key = false",
            Self::CacheControl => "cache_control = false",
            Self::StreamUsage => "stream_usage = false",
            Self::EncryptedReasoning => "encrypted_reasoning = false",
            Self::DeveloperRole => "developer_role = false",
            Self::MaxTokens => "max_completion_tokens = true",
            Self::MaxCompletionTokens => "max_completion_tokens = false",
            Self::Thinking | Self::Tools => return None,
        })
    }

    /// Its flag, and the value that leaves it out.
    fn flag(self, compat: &mut Compat) -> Option<(&mut Option<bool>, bool)> {
        Some(match self {
            Self::Schema => (&mut compat.json_schema, false),
            Self::SchemaWithTools => (&mut compat.schema_with_tools, false),
            Self::StrictSchema => (&mut compat.strict_schema, false),
            Self::Effort => (&mut compat.reasoning_effort, false),
            Self::CacheKey => (&mut compat.prompt_cache_key, false),
            Self::CacheControl => (&mut compat.cache_control, false),
            Self::StreamUsage => (&mut compat.stream_usage, false),
            Self::EncryptedReasoning => (&mut compat.encrypted_reasoning, false),
            Self::DeveloperRole => (&mut compat.developer_role, false),
            Self::MaxTokens => (&mut compat.max_completion_tokens, true),
            Self::MaxCompletionTokens => (&mut compat.max_completion_tokens, false),
            Self::Thinking | Self::Tools => return None,
        })
    }

    /// Sets its flag in `compat`; false if it has that value, or `configured` has the other one.
    pub(super) fn leave_out(self, compat: &mut Compat, mut configured: Compat) -> bool {
        let insists = self.flag(&mut configured).is_none_or(|(flag, out)| *flag == Some(!out));
        match self.flag(compat) {
            Some((flag, out)) if !insists && *flag != Some(out) => {
                *flag = Some(out);
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_parameter_is_known_by_the_words_of_each_server() {
        fn check(said: &str, expect: Option<Parameter>) {
            assert_eq!(Parameter::refused(&said.to_lowercase()), expect, "{said}");
        }
        use Parameter::*;
        check(
            "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.",
            Some(Schema),
        );
        check("This response_format type is unavailable now", Some(Schema));
        check("Unknown parameter: 'text.format.strict'.", Some(StrictSchema));
        check("Unrecognized request argument supplied: reasoning_effort", Some(Effort));
        check("Unsupported parameter: 'reasoning.effort' is not supported with this model.", Some(Effort));
        check(
            "litellm.UnsupportedParamsError: anthropic does not support parameters: ['prompt_cache_key']",
            Some(CacheKey),
        );
        check("body.stream_options: Extra inputs are not permitted", Some(StreamUsage));
        check("Encrypted content is not supported with this model.", Some(EncryptedReasoning));
        check(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            Some(MaxTokens),
        );
        check("body.max_completion_tokens: Extra inputs are not permitted", Some(MaxCompletionTokens));
        check("Invalid role 'developer', expected one of system, user, assistant, tool", Some(DeveloperRole));
        check("Cannot use custom grammar constraints with tools.", Some(SchemaWithTools));
        check("json mode cannot be combined with tool/function calling", Some(SchemaWithTools));
        check("Function calling with a response mime type: 'application/json' is unsupported", Some(SchemaWithTools));
        check("registry.ollama.ai/library/gemma3:4b does not support tools", Some(Tools));
        check("\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set", Some(Tools));
        check("\"qwen2.5\" does not support thinking", Some(Thinking));
        // A value or a schema is refused, not the parameter.
        check(
            "Unsupported value: 'reasoning_effort' does not support 'max'. Supported values are: 'low', 'high'.",
            None,
        );
        check("Invalid schema for response_format 'answer': 'oneOf' is not permitted.", None);
        check("The model `gpt-9` does not exist", None);
        check("messages: unexpected role", None);
    }

    #[test]
    fn a_flag_is_set_once_and_never_against_the_configuration() {
        let mut compat = Compat::NONE;
        assert!(Parameter::CacheKey.leave_out(&mut compat, Compat::NONE));
        assert_eq!(compat, Compat { prompt_cache_key: Some(false), ..Compat::NONE });
        assert!(!Parameter::CacheKey.leave_out(&mut compat, Compat::NONE));
        let insists = Compat { stream_usage: Some(true), ..Compat::NONE };
        assert!(!Parameter::StreamUsage.leave_out(&mut compat, insists));
        assert!(!Parameter::Tools.leave_out(&mut compat, Compat::NONE));
    }

    #[test]
    fn each_hint_has_the_setting() {
        use Parameter::*;
        for parameter in [
            Schema,
            SchemaWithTools,
            StrictSchema,
            Effort,
            CacheKey,
            CacheControl,
            StreamUsage,
            EncryptedReasoning,
            DeveloperRole,
            MaxTokens,
            MaxCompletionTokens,
        ] {
            let setting = parameter.setting().unwrap();
            assert!(parameter.hint().contains(setting), "{parameter:?}");
            let set: Compat = toml::from_str(setting).unwrap();
            let mut compat = Compat::NONE;
            assert!(parameter.leave_out(&mut compat, Compat::NONE));
            assert_eq!(compat, set, "{parameter:?}");
        }
    }
}
