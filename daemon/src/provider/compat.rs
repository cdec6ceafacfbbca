//! Deviations of servers from their wire format: flags that presets and users set.
//!
//! Deliberately absent: deviations in answers, which the decoders tolerate, and fields that are never sent (`store`, `strict`,
//! `parallel_tool_calls`), because several servers refuse them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::hosted::Hosted;

/// The flags; an unset flag has the default named here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Compat {
    /// `openai`: the limit of an answer is called `max_completion_tokens`, not `max_tokens`. Default no.
    pub max_completion_tokens: Option<bool>,
    /// `openai`: the system prompt has the role `developer`, not `system`. Default no.
    pub developer_role: Option<bool>,
    /// `openai`, `openai-responses`: the server takes `prompt_cache_key`. Default no.
    pub prompt_cache_key: Option<bool>,
    /// `openai`: models of Anthropic's (`anthropic/…`) cache only with `cache_control` in the request. Default no.
    pub cache_control: Option<bool>,
    /// `openai`, `openai-responses`, `ollama`: answers are streamed. Default yes.
    pub streaming: Option<bool>,
    /// `openai`: the server takes `stream_options.include_usage`. Default yes.
    pub stream_usage: Option<bool>,
    /// `openai`: `usage.cost` is what a request cost, in US dollars. Default no.
    pub usage_cost: Option<bool>,
    /// `openai`: a message with tool calls must have `reasoning_content`, even an empty one. Default no.
    pub reasoning_content: Option<bool>,
    /// `openai`: names of tool calls are nine letters or digits. Default no.
    pub short_call_ids: Option<bool>,
    /// `openai`: the result of a tool must say its name. Default no.
    pub tool_result_name: Option<bool>,
    /// `openai`: a user cannot speak right after a tool, so the model is made to say something between. Default no.
    pub assistant_after_tool: Option<bool>,
    /// `openai`: a user cannot speak twice in a row, so the model is made to say something between. Default no.
    pub assistant_after_user: Option<bool>,
    /// An answer begins inside of thinking, of which only the closing tag comes: `</think>`. Default no.
    pub think_open: Option<bool>,
    /// `openai-responses`: the server gives its reasoning encrypted, to be returned. Default yes.
    pub encrypted_reasoning: Option<bool>,
    /// The server can be held to a JSON Schema. Default yes; otherwise the model is told in words.
    pub json_schema: Option<bool>,
    /// `openai`, `openai-responses`: a schema may be marked as strict. Default yes, where it is.
    pub strict_schema: Option<bool>,
    /// `openai`, `openai-responses`, `gemini`, `ollama`: it can in requests that have tools. Default yes, yes, for models from
    /// Gemini 3 on, and no.
    pub schema_with_tools: Option<bool>,
    /// `openai`, `openai-responses`: the server takes an effort. Default yes; it is sent only if one was chosen.
    pub reasoning_effort: Option<bool>,
    /// `anthropic`, `gemini`: how hard to think is a number of tokens. Default: for models before Claude 4.6 and Gemini 3.
    pub thinking_budget: Option<bool>,
    /// `anthropic`, `openai-responses`, `gemini`, `ollama`: ask that the model thinks, and shows it, or (`ollama`) that it does
    /// not, or (`anthropic`, `gemini`) that what it thinks for an effort is not shown. Default: nothing is said, so the model
    /// does what it does.
    pub thinking: Option<bool>,
    /// `gemini`: hosted tools work together with other tools. Default: for models from Gemini 3 on, and not on Vertex AI.
    pub hosted_with_tools: Option<bool>,
    /// `anthropic`, `gemini`: addresses and key as on Vertex AI. Default no.
    pub vertex: Option<bool>,
    /// `gemini`: a call that another model made gets the placeholder for its missing signature. Default: for models from
    /// Gemini 3 on, which insist on one.
    pub signature_placeholder: Option<bool>,
    /// `ollama`: the tokens that the server keeps in view. Default: what the user says is the model's window, or 32768.
    pub num_ctx: Option<u32>,
    /// No flag: the hosted tools that the provider's table switches on.
    #[serde(skip)]
    pub hosted: Hosted,
}

impl Compat {
    /// Nothing set; in constants, where `Default` cannot be used.
    pub const NONE: Self = Self {
        max_completion_tokens: None,
        developer_role: None,
        prompt_cache_key: None,
        cache_control: None,
        streaming: None,
        stream_usage: None,
        usage_cost: None,
        reasoning_content: None,
        short_call_ids: None,
        tool_result_name: None,
        assistant_after_tool: None,
        assistant_after_user: None,
        think_open: None,
        encrypted_reasoning: None,
        json_schema: None,
        strict_schema: None,
        schema_with_tools: None,
        reasoning_effort: None,
        thinking_budget: None,
        thinking: None,
        hosted_with_tools: None,
        vertex: None,
        signature_placeholder: None,
        num_ctx: None,
        hosted: Hosted::NONE,
    };

    /// These flags, and for those that are not set `other`'s.
    pub fn or(self, other: Self) -> Self {
        Self {
            max_completion_tokens: self.max_completion_tokens.or(other.max_completion_tokens),
            developer_role: self.developer_role.or(other.developer_role),
            prompt_cache_key: self.prompt_cache_key.or(other.prompt_cache_key),
            cache_control: self.cache_control.or(other.cache_control),
            streaming: self.streaming.or(other.streaming),
            stream_usage: self.stream_usage.or(other.stream_usage),
            usage_cost: self.usage_cost.or(other.usage_cost),
            reasoning_content: self.reasoning_content.or(other.reasoning_content),
            short_call_ids: self.short_call_ids.or(other.short_call_ids),
            tool_result_name: self.tool_result_name.or(other.tool_result_name),
            assistant_after_tool: self.assistant_after_tool.or(other.assistant_after_tool),
            assistant_after_user: self.assistant_after_user.or(other.assistant_after_user),
            think_open: self.think_open.or(other.think_open),
            encrypted_reasoning: self.encrypted_reasoning.or(other.encrypted_reasoning),
            json_schema: self.json_schema.or(other.json_schema),
            strict_schema: self.strict_schema.or(other.strict_schema),
            schema_with_tools: self.schema_with_tools.or(other.schema_with_tools),
            reasoning_effort: self.reasoning_effort.or(other.reasoning_effort),
            thinking_budget: self.thinking_budget.or(other.thinking_budget),
            thinking: self.thinking.or(other.thinking),
            hosted_with_tools: self.hosted_with_tools.or(other.hosted_with_tools),
            vertex: self.vertex.or(other.vertex),
            signature_placeholder: self.signature_placeholder.or(other.signature_placeholder),
            num_ctx: self.num_ctx.or(other.num_ctx),
            hosted: self.hosted,
        }
    }

    /// The flags that are set, as a JSON object in the order of their names; a flag that is added to the list changes nothing.
    pub fn encoded(&self) -> String {
        let flags = serde_json::json!(self);
        let set = flags.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        serde_json::json!(set.collect::<BTreeMap<_, _>>()).to_string()
    }

    /// A flag that is set and is not among `known`, those that a wire format reads.
    pub fn misplaced(&self, known: &[&str]) -> Option<&'static str> {
        let set: [(&str, bool); 24] = [
            ("max_completion_tokens", self.max_completion_tokens.is_some()),
            ("developer_role", self.developer_role.is_some()),
            ("prompt_cache_key", self.prompt_cache_key.is_some()),
            ("cache_control", self.cache_control.is_some()),
            ("streaming", self.streaming.is_some()),
            ("stream_usage", self.stream_usage.is_some()),
            ("usage_cost", self.usage_cost.is_some()),
            ("reasoning_content", self.reasoning_content.is_some()),
            ("short_call_ids", self.short_call_ids.is_some()),
            ("tool_result_name", self.tool_result_name.is_some()),
            ("assistant_after_tool", self.assistant_after_tool.is_some()),
            ("assistant_after_user", self.assistant_after_user.is_some()),
            ("think_open", self.think_open.is_some()),
            ("encrypted_reasoning", self.encrypted_reasoning.is_some()),
            ("json_schema", self.json_schema.is_some()),
            ("strict_schema", self.strict_schema.is_some()),
            ("schema_with_tools", self.schema_with_tools.is_some()),
            ("reasoning_effort", self.reasoning_effort.is_some()),
            ("thinking_budget", self.thinking_budget.is_some()),
            ("thinking", self.thinking.is_some()),
            ("hosted_with_tools", self.hosted_with_tools.is_some()),
            ("vertex", self.vertex.is_some()),
            ("signature_placeholder", self.signature_placeholder.is_some()),
            ("num_ctx", self.num_ctx.is_some()),
        ];
        set.into_iter().find(|(name, set)| *set && !known.contains(name)).map(|(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::codecs::codec;
    use super::super::kind::ProviderKind;
    use super::*;

    fn flags(kind: ProviderKind) -> &'static [&'static str] {
        codec(kind, Compat::NONE).map_or(&[], |codec| codec.flags())
    }

    #[test]
    fn what_a_user_sets_goes_before_what_is_known_and_the_rest_stays() {
        let known = Compat { stream_usage: Some(false), num_ctx: Some(7), ..Compat::NONE };
        let user = Compat { stream_usage: Some(true), vertex: Some(true), ..Compat::NONE };
        let both = Compat { num_ctx: Some(7), ..user };
        assert_eq!(user.or(known), both);
        assert_eq!(Compat::NONE, Compat::default());
    }

    #[test]
    fn flags_are_encoded_by_their_names_and_only_if_they_are_set() {
        let set = Compat { vertex: Some(true), num_ctx: Some(7), stream_usage: Some(false), ..Compat::NONE };
        assert_eq!(set.encoded(), r#"{"num_ctx":7,"stream_usage":false,"vertex":true}"#);
        assert_eq!(Compat::NONE.encoded(), "{}");
    }

    #[test]
    fn every_flag_has_a_kind_that_reads_it() {
        let all: Compat = toml::from_str(
            "max_completion_tokens = true\ndeveloper_role = true\nprompt_cache_key = true\ncache_control = true\nstreaming = true\nstream_usage = true\nusage_cost = true\n\
             reasoning_content = true\nshort_call_ids = true\ntool_result_name = true\nassistant_after_tool = true\n\
             assistant_after_user = true\nthink_open = true\nencrypted_reasoning = true\njson_schema = true\nstrict_schema = true\nschema_with_tools = true\nreasoning_effort = true\n\
             thinking_budget = true\nthinking = true\nhosted_with_tools = true\nvertex = true\nsignature_placeholder = true\nnum_ctx = 1",
        )
        .unwrap();
        let known: Vec<&str> = ProviderKind::ALL.into_iter().flat_map(flags).copied().collect();
        assert_eq!(all.misplaced(&known), None);
        for kind in ProviderKind::ALL {
            for name in flags(kind) {
                let value = if *name == "num_ctx" { "1" } else { "true" };
                let set: Compat = toml::from_str(&format!("{name} = {value}")).unwrap();
                assert_eq!((set.misplaced(&[]), set.misplaced(flags(kind))), (Some(*name), None), "{kind:?}");
            }
        }
        let set = |name: &str| toml::from_str::<Compat>(&format!("{name} = true")).unwrap();
        assert_eq!(all.misplaced(flags(ProviderKind::Anthropic)), Some("max_completion_tokens"));
        assert_eq!(set("vertex").misplaced(flags(ProviderKind::Gemini)), None);
        assert_eq!(set("vertex").misplaced(flags(ProviderKind::Openai)), Some("vertex"));
        assert_eq!(set("thinking").misplaced(flags(ProviderKind::Openai)), Some("thinking"));
        assert_eq!(set("thinking").misplaced(flags(ProviderKind::Anthropic)), None);
        assert_eq!(set("prompt_cache_key").misplaced(flags(ProviderKind::OpenaiResponses)), None);
        assert_eq!(Compat::NONE.misplaced(flags(ProviderKind::Demo)), None);
    }
}
