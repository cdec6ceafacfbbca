//! A provider's own list of its models, in whichever shape it comes, and what it says of them. Pure.
//!
//! Source: the services' own documentation of their lists, and for what only some say (windows, prices) their answers to others.
//! Deliberately absent: which of them can hold a conversation, where the list does not say.

use serde::Deserialize;
use serde_json::Value;

use super::models::{MAX_WINDOW, ModelInfo, plausible_tokens, price_of};

/// The most models of one provider that are taken; the largest has some five hundred.
pub const MAX_MODELS: usize = 2000;

/// The longest name that is taken, in bytes.
const MAX_NAME: usize = 256;

/// Kinds of model, where a list says so, that are of no use here.
const OTHERS: [&str; 8] = ["embedding", "embeddings", "image", "audio", "rerank", "moderation", "transcribe", "video"];

/// Where a list may say how many tokens a request may have: OpenRouter and Together, Groq, LM Studio, Mistral, vLLM, Gemini,
/// Anthropic, llama.cpp. What a server has made room for goes before what its model could see.
const WINDOW: [&str; 9] = [
    "/context_length",
    "/context_window",
    "/loaded_context_length",
    "/max_context_length",
    "/max_model_len",
    "/inputTokenLimit",
    "/max_input_tokens",
    "/meta/n_ctx",
    "/meta/n_ctx_train",
];

/// Where it may say how many an answer may have: OpenRouter, Groq, Gemini, others, Anthropic.
const MAX_OUTPUT: [&str; 5] = [
    "/top_provider/max_completion_tokens",
    "/max_completion_tokens",
    "/outputTokenLimit",
    "/max_output_tokens",
    "/max_tokens",
];

/// A model in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// The name that requests use, without `models/` before it.
    pub name: String,
    /// Its properties, as far as the list has them.
    pub facts: ModelInfo,
}

/// The models in a list, by name: `data` (OpenAI, Anthropic), `models` (Gemini, Ollama), or the list alone (Together).
pub fn parse(body: &[u8]) -> Result<Vec<Listed>, String> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum ModelList {
        Data { data: Vec<Value> },
        Models { models: Vec<Value> },
        Plain(Vec<Value>),
    }
    let list = serde_json::from_slice(body).map_err(|_| "its list of models makes no sense".to_owned())?;
    let (ModelList::Data { data: rows } | ModelList::Models { models: rows } | ModelList::Plain(rows)) = list;
    let mut models: Vec<Listed> = rows.iter().filter_map(listed).take(MAX_MODELS).collect();
    models.sort_by(|one, two| one.name.cmp(&two.name));
    models.dedup_by(|one, two| one.name == two.name);
    Ok(models)
}

impl Listed {
    /// Whether the list says what it costs.
    pub fn has_prices(&self) -> bool {
        self.facts.prices.usual.input.is_some()
    }
}

/// Whether a list is of llama.cpp's server.
pub fn is_llamacpp(body: &[u8]) -> bool {
    let list: Value = serde_json::from_slice(body).unwrap_or_default();
    list.pointer("/data/0/owned_by").is_some_and(|owner| owner == "llamacpp")
}

/// The window in llama.cpp's `/props`: of one slot, in tokens.
pub fn llamacpp_window(body: &[u8]) -> Option<u64> {
    let props: Value = serde_json::from_slice(body).ok()?;
    plausible_tokens(props.pointer("/default_generation_settings/n_ctx")?)
}

/// The models in LiteLLM's `/model/info`: windows in tokens, prices in US dollars per token.
pub fn litellm_info(body: &[u8]) -> Vec<Listed> {
    let info: Value = serde_json::from_slice(body).unwrap_or_default();
    let rows = info.get("data").and_then(Value::as_array);
    let one = |row: &Value| {
        let (name, info) = (row.get("model_name")?.as_str()?, row.get("model_info")?);
        let price = |key: &str| price_of(info.get(key)?.as_f64()? * 1e6);
        let mut facts = ModelInfo {
            window: info.get("max_input_tokens").or_else(|| info.get("max_tokens")).and_then(plausible_tokens),
            max_output: info.get("max_output_tokens").and_then(plausible_tokens),
            ..ModelInfo::default()
        };
        let usual = &mut facts.prices.usual;
        usual.input = price("input_cost_per_token");
        usual.output = price("output_cost_per_token");
        usual.cache_read = price("cache_read_input_token_cost");
        usual.cache_write = price("cache_creation_input_token_cost");
        Some(Listed { name: name.to_owned(), facts })
    };
    rows.into_iter().flatten().filter_map(one).take(MAX_MODELS).collect()
}

fn listed(row: &Value) -> Option<Listed> {
    let text = |key: &str| row.get(key).and_then(Value::as_str);
    // Gemini's are called `models/NAME`, Ollama's have a `name` or only a `model`.
    let name = text("id").or_else(|| text("name")).or_else(|| text("model"))?;
    let name = name.strip_prefix("models/").unwrap_or(name);
    if name.is_empty() || name.len() > MAX_NAME || name.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return None;
    }
    let methods = row.get("supportedGenerationMethods").and_then(Value::as_array);
    let talks = methods.is_none_or(|methods| methods.iter().any(|method| method == "generateContent"));
    if !talks || text("type").is_some_and(|kind| OTHERS.contains(&kind)) {
        return None;
    }
    let tokens = |places: &[&str]| {
        let said = places.iter().find_map(|place| row.pointer(place)?.as_u64());
        said.filter(|tokens| (1..=MAX_WINDOW).contains(tokens))
    };
    let mut facts = ModelInfo { window: tokens(&WINDOW), max_output: tokens(&MAX_OUTPUT), ..ModelInfo::default() };
    let price = |key: &str| {
        // OpenRouter writes dollars per token, as text; Together dollars per million, as numbers.
        let said = row.get("pricing")?.get(key)?;
        price_of(said.as_f64().or_else(|| Some(said.as_str()?.parse::<f64>().ok()? * 1e6))?)
    };
    let usual = &mut facts.prices.usual;
    usual.input = price("prompt").or_else(|| price("input"));
    usual.output = price("completion").or_else(|| price("output"));
    usual.cache_read = price("input_cache_read").or_else(|| price("cached_input"));
    usual.cache_write = price("input_cache_write");
    Some(Listed { name: name.to_owned(), facts })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::ollama::Ollama;
    use super::super::types::Codec as _;
    use super::*;

    /// The models as text: name, window, longest answer, prices.
    fn check(list: &Value, expect: &[&str]) {
        let line = |listed: &Listed| {
            let ModelInfo { window, max_output, prices, .. } = listed.facts;
            let usual = prices.usual;
            let prices = [usual.input, usual.output, usual.cache_read, usual.cache_write];
            let tokens = [window, max_output].map(|tokens| tokens.map_or("-".to_owned(), |tokens| tokens.to_string()));
            let prices = prices.map(|price| price.map_or("-".to_owned(), |price| price.to_string()));
            [vec![listed.name.clone()], tokens.to_vec(), prices.to_vec()].concat().join(" ")
        };
        let models = parse(list.to_string().as_bytes()).unwrap();
        assert_eq!(models.iter().map(line).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn every_shape_of_list_is_read() {
        let openai =
            json!({"object": "list", "data": [{"id": "gpt-5", "object": "model"}, {"id": "a"}, {"id": "a"}, {"x": 1}]});
        check(&openai, &["a - - - - - -", "gpt-5 - - - - - -"]);
        let anthropic = json!({"data": [{"type": "model", "id": "claude-opus-5", "display_name": "Claude Opus 5",
            "max_input_tokens": 200_000, "max_tokens": 64_000, "created_at": "2026-01-01T00:00:00Z"}], "has_more": false});
        check(&anthropic, &["claude-opus-5 200000 64000 - - - -"]);
        let gemini = json!({"models": [
            {"name": "models/gemini-3", "inputTokenLimit": 1_048_576, "outputTokenLimit": 65_536,
             "supportedGenerationMethods": ["generateContent", "countTokens"]},
            {"name": "models/embedding-1", "supportedGenerationMethods": ["embedContent"]}]});
        check(&gemini, &["gemini-3 1048576 65536 - - - -"]);
        check(&json!({"models": [{"name": "qwen3:8b", "model": "qwen3:8b", "size": 5}]}), &["qwen3:8b - - - - - -"]);
        let openrouter = json!({"data": [{"id": "x/y:free", "context_length": 1000, "top_provider":
            {"max_completion_tokens": null}, "pricing": {"prompt": "0.0000025", "completion": "0.00001",
            "input_cache_read": "0.00000025", "request": "0"}}, {"id": "openrouter/auto", "pricing": {"prompt": "-1"}}]});
        check(&openrouter, &["openrouter/auto - - - - - -", "x/y:free 1000 - 2.5 10 0.25 -"]);
        let together = json!([{"id": "m/n", "type": "chat", "context_length": 8192, "pricing": {"input": 0.6, "output": 0}},
            {"id": "m/flux", "type": "image"}]);
        check(&together, &["m/n 8192 - 0.6 0 - -"]);
        check(&json!({"data": [{"id": "m", "max_model_len": 4096}]}), &["m 4096 - - - - -"]);
        check(&json!({"data": [{"id": "m", "meta": {"n_ctx_train": 40_960}}], "models": []}), &["m 40960 - - - - -"]);
        let room = json!({"data": [{"id": "l", "meta": {"n_ctx": 8192, "n_ctx_train": 40_960}},
            {"id": "s", "max_context_length": 40_960, "loaded_context_length": 4096}]});
        check(&room, &["l 8192 - - - - -", "s 4096 - - - - -"]);
        check(&json!({"data": []}), &[]);
    }

    #[test]
    fn what_servers_say_beside_their_lists_is_read() {
        let info = json!({"data": [{"model_name": "m", "litellm_params": {"model": "anthropic/x"}, "model_info": {
            "max_input_tokens": 128_000, "max_output_tokens": 4096, "input_cost_per_token": 3e-6,
            "output_cost_per_token": 1.5e-5, "cache_read_input_token_cost": null}}, {"model_name": "n"}]});
        let [listed] = litellm_info(info.to_string().as_bytes()).try_into().unwrap();
        assert_eq!(
            (listed.name.as_str(), listed.facts.window, listed.facts.max_output),
            ("m", Some(128_000), Some(4096))
        );
        assert!(listed.has_prices() && (listed.facts.prices.usual.output.unwrap() - 15.0).abs() < 1e-9);
        let props = json!({"default_generation_settings": {"n_ctx": 2048, "params": {}}, "total_slots": 1});
        assert_eq!(llamacpp_window(props.to_string().as_bytes()), Some(2048));
        let shown =
            json!({"license": "x", "model_info": {"general.architecture": "llama", "llama.context_length": 8192}});
        let ollama = |body: &[u8]| Ollama::default().model_window(body);
        assert_eq!(ollama(shown.to_string().as_bytes()), Some(8192));
        assert!(is_llamacpp(json!({"data": [{"id": "m", "owned_by": "llamacpp"}]}).to_string().as_bytes()));
        for body in ["", "[]", "{}", r#"{"data": [5]}"#, r#"{"model_info": []}"#] {
            let body = body.as_bytes();
            assert!(!is_llamacpp(body) && litellm_info(body).is_empty(), "{body:?}");
            assert_eq!((llamacpp_window(body), ollama(body)), (None, None));
        }
    }

    #[test]
    fn what_is_no_list_or_no_name_is_not_taken() {
        for body in ["", "null", "{}", "<html>", "[1", r#"{"data": 5}"#, r#"{"error": {"message": "no"}}"#] {
            assert!(parse(body.as_bytes()).is_err(), "{body}");
        }
        let names =
            json!({"data": [{"id": ""}, {"id": "a\u{1b}[2J"}, {"id": "a b"}, {"id": "x".repeat(257)}, {"id": 5}, 7]});
        check(&names, &[]);
        let many: Vec<Value> = (0..MAX_MODELS + 5).map(|n| json!({"id": format!("m{n}")})).collect();
        assert_eq!(parse(json!({"data": many}).to_string().as_bytes()).unwrap().len(), MAX_MODELS);
        check(&json!({"data": [{"id": "m", "context_length": -1, "max_model_len": 0}]}), &["m - - - - - -"]);
    }
}
