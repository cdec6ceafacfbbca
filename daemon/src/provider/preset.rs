//! The services and servers that need no configuration: address, key, deviations from the format.
//!
//! Data alone. Sources: the services' own documentation, and for the flags what their servers answered to other clients; each
//! flag names its own, as of autumn 2026. A service without flags follows its format, as far as known.
//! Deliberately absent: models other than the default, which change too often.

use reqwest::Url;

use super::compat::Compat;
use super::kind::ProviderKind;

/// A provider that needs no configuration but its key, if it takes one.
#[derive(Debug)]
pub struct Preset {
    /// Its name in `provider/model`.
    pub name: &'static str,
    /// The wire format.
    pub kind: ProviderKind,
    /// Its address. [`PLACEHOLDER`] stands for a part that the user has to fill in.
    pub base_url: &'static str,
    /// The variable that holds its key.
    pub variable: &'static str,
    /// The command that prints its key; empty where a key stays the same.
    pub command: &'static str,
    /// The default model; empty where no model is available to every account.
    pub model: &'static str,
    /// A server on this machine: works without a key, and is ready while something listens.
    pub local: bool,
    /// Its deviations from the format.
    pub compat: Compat,
}

/// The part of an address that the user has to fill in.
pub const PLACEHOLDER: &str = "PROJECT";

const NONE: Preset = Preset {
    name: "",
    kind: ProviderKind::Openai,
    base_url: "",
    variable: "",
    command: "",
    model: "",
    local: false,
    compat: Compat::NONE,
};

/// Servers of one's own for any model: vLLM, llama.cpp's, and LM Studio, which runs the latter.
///
/// They hold an answer to a schema by a grammar, which leaves no way to call a tool: vllm-project/vllm#39929 (nothing but JSON
/// comes; still so in September 2026, #56086), llama.cpp's server (a grammar and tools exclude each other, and it says so;
/// modelship-ai/modelship#71 has why).
/// They run the template of the model, and those of Mistral's and Google's models raise an error ("conversation roles must
/// alternate") where a user speaks twice without a word of the model's; calls and their results do not count as one:
/// nomic-ai/gpt4all#3273 has such a template, mcowger/generic-copilot#43 met it with Devstral.
const TEMPLATES: Compat = Compat {
    schema_with_tools: Some(false),
    assistant_after_tool: Some(true),
    assistant_after_user: Some(true),
    ..Compat::NONE
};

/// In the order of preference for a default.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "anthropic",
        kind: ProviderKind::Anthropic,
        base_url: "https://api.anthropic.com",
        variable: "ANTHROPIC_API_KEY",
        model: "claude-sonnet-5",
        ..NONE
    },
    Preset {
        name: "openai",
        base_url: "https://api.openai.com/v1",
        variable: "OPENAI_API_KEY",
        model: "gpt-5",
        compat: Compat {
            max_completion_tokens: Some(true),
            developer_role: Some(true),
            prompt_cache_key: Some(true),
            ..Compat::NONE
        },
        ..NONE
    },
    Preset {
        name: "gemini",
        kind: ProviderKind::Gemini,
        base_url: "https://generativelanguage.googleapis.com/v1beta",
        variable: "GEMINI_API_KEY",
        model: "gemini-flash-latest",
        ..NONE
    },
    Preset {
        name: "openrouter",
        base_url: "https://openrouter.ai/api/v1",
        variable: "OPENROUTER_API_KEY",
        model: "openrouter/auto",
        // It takes `reasoning_effort` in all of its words for any model that thinks, and a schema where the model's host does:
        // openrouter.ai/docs, "Reasoning Tokens" and "Structured Outputs". Other makers' models cache without being asked, or
        // mark no more than a request does as a whole: the same, "Prompt Caching".
        compat: Compat { usage_cost: Some(true), cache_control: Some(true), ..Compat::NONE },
        ..NONE
    },
    Preset {
        name: "deepseek",
        base_url: "https://api.deepseek.com",
        variable: "DEEPSEEK_API_KEY",
        model: "deepseek-flash",
        // While it thinks, a message with calls but without this field is refused, and with it the whole session.
        // It knows JSON (`json_object`), but no schema of it: api-docs.deepseek.com, "JSON Output".
        // Every word but `none` is a `reasoning_effort`, taken for low, high or max: the same, "Thinking Mode".
        compat: Compat { reasoning_content: Some(true), json_schema: Some(false), ..Compat::NONE },
        ..NONE
    },
    Preset {
        name: "mistral",
        base_url: "https://api.mistral.ai/v1",
        variable: "MISTRAL_API_KEY",
        model: "mistral-medium-latest",
        // Fields that it does not know are refused with 422; it counts tokens without being asked.
        // It takes a schema. `reasoning_effort` is `high` or `none` for two of its models, more for a third, and refused for the
        // rest: docs.mistral.ai, "Adjustable reasoning". For such a model, set the flag.
        compat: Compat {
            stream_usage: Some(false),
            short_call_ids: Some(true),
            tool_result_name: Some(true),
            assistant_after_tool: Some(true),
            reasoning_effort: Some(false),
            ..Compat::NONE
        },
        ..NONE
    },
    Preset {
        name: "alibaba",
        base_url: "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        variable: "DASHSCOPE_API_KEY",
        model: "qwen-plus",
        // A schema is for a few models, while they do not think; thinking is `enable_thinking`, without degrees:
        // alibabacloud.com/help/en/model-studio, "Structured output" and "Deep thinking".
        compat: Compat { json_schema: Some(false), reasoning_effort: Some(false), ..Compat::NONE },
        ..NONE
    },
    Preset {
        name: "dashscope",
        base_url: "https://dashscope.aliyuncs.com/compatible-mode/v1",
        variable: "DASHSCOPE_API_KEY",
        model: "qwen-plus",
        compat: Compat { json_schema: Some(false), reasoning_effort: Some(false), ..Compat::NONE },
        ..NONE
    },
    Preset {
        name: "groq",
        base_url: "https://api.groq.com/openai/v1",
        variable: "GROQ_API_KEY",
        // Its schemas go with neither tools ("json mode cannot be combined with tool/function calling", vercel/ai#16540) nor
        // streams ("`response_format` does not support streaming", langchain-ai/langchain#23629).
        compat: Compat { max_completion_tokens: Some(true), json_schema: Some(false), ..Compat::NONE },
        ..NONE
    },
    // All its models since grok-2-1212 take a schema (hexdocs.pm/req_llm, `ReqLLM.Providers.XAI`); grok-4.3 takes an effort up to
    // high, grok-4.20 none, and says so (vercel/ai's releases @ai-sdk/xai 3.0.97 and 4.0.8).
    Preset { name: "xai", base_url: "https://api.x.ai/v1", variable: "XAI_API_KEY", ..NONE },
    // It takes a schema; `reasoning_effort` is low, medium or high and for GPT-OSS: docs.together.ai, "Structured outputs" and
    // "Reasoning".
    Preset { name: "together", base_url: "https://api.together.xyz/v1", variable: "TOGETHER_API_KEY", ..NONE },
    Preset {
        name: "vertex",
        kind: ProviderKind::Gemini,
        base_url: "https://aiplatform.googleapis.com/v1/projects/PROJECT/locations/global",
        // A token is valid for an hour, so a command prints it.
        command: "gcloud auth print-access-token",
        compat: Compat { vertex: Some(true), ..Compat::NONE },
        ..NONE
    },
    Preset {
        name: "ollama",
        kind: ProviderKind::Ollama,
        base_url: "http://127.0.0.1:11434",
        variable: "OLLAMA_API_KEY",
        local: true,
        ..NONE
    },
    Preset {
        name: "lmstudio",
        base_url: "http://127.0.0.1:1234/v1",
        variable: "LM_API_TOKEN",
        local: true,
        compat: TEMPLATES,
        ..NONE
    },
    Preset {
        name: "llamacpp",
        base_url: "http://127.0.0.1:8080/v1",
        variable: "LLAMA_API_KEY",
        local: true,
        compat: TEMPLATES,
        ..NONE
    },
    Preset {
        name: "vllm",
        base_url: "http://127.0.0.1:8000/v1",
        variable: "VLLM_API_KEY",
        local: true,
        compat: TEMPLATES,
        ..NONE
    },
    Preset { name: "litellm", base_url: "http://127.0.0.1:4000/v1", variable: "LITELLM_API_KEY", local: true, ..NONE },
    Preset { name: "demo", kind: ProviderKind::Demo, model: "demo", ..NONE },
];

/// The preset with this name.
pub fn named(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// The vendor of a kind: the default address of a configured provider without a preset.
pub fn vendor(kind: ProviderKind) -> Option<&'static Preset> {
    named(kind.vendor())
}

/// The preset at an address: the same scheme, host and port.
pub fn by_address(base_url: &str) -> Option<&'static Preset> {
    let url = Url::parse(base_url).ok()?;
    let host = url.host_str().map(|host| if matches!(host, "localhost" | "[::1]") { "127.0.0.1" } else { host })?;
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let authority = format!("{host}{port}");
    PRESETS.iter().find(|preset| {
        let (scheme, rest) = preset.base_url.split_once("://").unwrap_or_default();
        let place = rest.split('/').next().unwrap_or_default();
        // Regions of a service come before its name: `europe-west1-aiplatform.googleapis.com`.
        let region = || !preset.local && authority.strip_suffix(place).is_some_and(|region| region.ends_with('-'));
        url.scheme() == scheme && (authority == place || region())
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::codecs::codec;
    use super::*;

    #[test]
    fn the_table_is_in_order() {
        let names: BTreeSet<_> = PRESETS.iter().map(|preset| preset.name).collect();
        assert_eq!(names.len(), PRESETS.len());
        for preset in PRESETS {
            let flags = codec(preset.kind, Compat::NONE).map_or(&[] as &[&str], |codec| codec.flags());
            assert_eq!(preset.compat.misplaced(flags), None, "{}", preset.name);
            assert_eq!(preset.base_url.is_empty(), preset.kind == ProviderKind::Demo);
            assert!(preset.base_url.is_empty() || Url::parse(preset.base_url).is_ok(), "{}", preset.name);
            let secure = preset.base_url.starts_with("https://") || preset.local || preset.kind == ProviderKind::Demo;
            assert!(secure, "a key would go to {} in the clear", preset.name);
        }
    }

    #[test]
    fn clients_know_the_variables_of_all_keys() {
        let variables = PRESETS.iter().map(|preset| preset.variable).filter(|variable| !variable.is_empty());
        assert_eq!(variables.collect::<BTreeSet<_>>(), BTreeSet::from(linger_protocol::variable::PROVIDER_KEYS));
    }

    #[test]
    fn an_address_is_known_by_its_place() {
        fn check(base_url: &str, expect: Option<&str>) {
            assert_eq!(by_address(base_url).map(|preset| preset.name), expect, "{base_url}");
        }
        check("https://api.openai.com/v1", Some("openai"));
        check("https://api.openai.com", Some("openai"));
        check("http://api.openai.com/v1", None);
        check("https://api.openai.com:444/v1", None);
        check("https://api.deepseek.com/anthropic", Some("deepseek"));
        check("http://localhost:11434/", Some("ollama"));
        check("http://[::1]:11434/", Some("ollama"));
        check("http://127.0.0.1:11435/", None);
        check("https://europe-west1-aiplatform.googleapis.com/v1/projects/p/locations/europe-west1", Some("vertex"));
        check("https://api.openai.com.example.org/v1", None);
        check("https://evilapi.openai.com/v1", None);
        check("nonsense", None);
    }
}
