//! Invariant I4: what a request body must be for a provider to take it.
//!
//! The scripted model checks every body that it receives, the fuzz targets and the daemon's own unit tests those that they
//! encode. It imports nothing of the product, so that each of them can include it.
//! Deliberately absent: whether the model exists and whether the schemas of the tools make sense.

#![allow(clippy::indexing_slicing)] // A field that a JSON value lacks reads as null.

mod anthropic;
mod gemini;
mod ollama;
mod openai;
mod responses;

use serde_json::{Map, Value};

/// Everything that is wrong with a `body` for a provider of this kind (as in the configuration), one line each.
pub fn validate(kind: &str, body: &Value) -> Result<(), Vec<String>> {
    let mut check = Check { problems: Vec::new() };
    match kind {
        "anthropic" => check.anthropic(body),
        "openai" => check.openai(body),
        "openai-responses" => check.responses(body),
        "gemini" => check.gemini(body),
        "ollama" => check.ollama(body),
        _ => check.problems.push(format!("unknown wire format {kind}")),
    }
    check.no_nul("body", body);
    if check.problems.is_empty() { Ok(()) } else { Err(check.problems) }
}

/// [`validate`], for a body that is text.
pub fn validate_text(kind: &str, body: &str) -> Result<(), Vec<String>> {
    let body = serde_json::from_str(body).map_err(|error| vec![error.to_string()])?;
    validate(kind, &body)
}

/// Whether what is cached of `before` is a prefix of `after`: the same tools and system prompt, and the blocks of its messages
/// first, whatever the cache markers. Neighbouring messages of one role count as one.
pub fn extends(before: &Value, after: &Value) -> bool {
    cached_parts(after).starts_with(&cached_parts(before))
}

/// What a prompt cache compares, in its order: tools and system prompt first, then each block of the messages with its role.
pub fn cached_parts(body: &Value) -> Vec<Value> {
    let (head, blocks) = flat(body);
    let blocks = blocks.into_iter().map(|(role, block)| Value::from_iter([role, block]));
    std::iter::once(head).chain(blocks).collect()
}

/// Tools and system prompt; then each block with its role.
fn flat(body: &Value) -> (Value, Vec<(Value, Value)>) {
    let body = without_markers(body);
    let mut blocks = Vec::new();
    for message in ["messages", "input", "contents"].iter().flat_map(|name| list(&body[name])) {
        let content = if message["parts"].is_null() { &message["content"] } else { &message["parts"] };
        match content {
            Value::Array(content) if message["tool_calls"].is_null() => {
                blocks.extend(content.iter().map(|block| (message["role"].clone(), block.clone())));
            }
            _ => blocks.push((message["role"].clone(), message.clone())),
        }
    }
    let head = ["tools", "system", "instructions", "systemInstruction"].map(|name| body[name].clone());
    (head.into_iter().collect(), blocks)
}

fn without_markers(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(without_markers).collect(),
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| *name != "cache_control");
            Value::Object(kept.map(|(name, value)| (name.clone(), without_markers(value))).collect())
        }
        other => other.clone(),
    }
}

/// How hard OpenAI's formats can be told to think.
const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];

struct Check {
    problems: Vec<String>,
}

impl Check {
    fn that(&mut self, good: bool, problem: impl FnOnce() -> String) {
        if !good {
            self.problems.push(problem());
        }
    }

    fn fields(&mut self, at: &str, value: &Value, required: &[&str], known: &[&str]) {
        let none = Map::new();
        let fields = value.as_object().unwrap_or(&none);
        for name in required {
            self.that(fields.contains_key(*name), || format!("{at}: {name} is missing"));
        }
        for name in fields.keys() {
            self.that(known.contains(&name.as_str()), || format!("{at}: unknown field {name}"));
        }
    }

    fn string(&mut self, at: &str, value: &Value) {
        self.that(value.as_str().is_some_and(|text| !text.trim().is_empty()), || {
            format!("{at}: no text, or an empty one")
        });
    }

    /// If it is there, it is one of these words.
    fn word(&mut self, at: &str, value: &Value, words: &[&str]) {
        let known = value.as_str().is_some_and(|word| words.contains(&word));
        self.that(value.is_null() || known, || format!("{at}: {value} is none of {words:?}"));
    }

    /// A schema as OpenAI's formats have it; under `strict` each object must be closed and whole.
    fn json_schema(&mut self, at: &str, value: &Value, fields: &[&str]) {
        self.fields(at, value, fields, fields);
        self.name(at, &value["name"]);
        self.that(value["schema"]["type"] == "object", || format!("{at}: the schema is of no object"));
        let open = value["schema"]["additionalProperties"] != false;
        self.that(value["strict"] != true || !open, || format!("{at}: strict, and not closed"));
    }

    fn no_nul(&mut self, at: &str, value: &Value) {
        match value {
            Value::String(text) => self.that(!text.contains('\0'), || format!("{at}: NUL")),
            Value::Array(items) => items.iter().for_each(|item| self.no_nul(at, item)),
            Value::Object(fields) => {
                fields.iter().for_each(|(name, value)| self.no_nul(&format!("{at}.{name}"), value))
            }
            _ => {}
        }
    }

    fn result(&mut self, at: &str, open: &mut Vec<&str>, id: &str) {
        let before = open.len();
        open.retain(|call| *call != id);
        self.that(open.len() + 1 == before, || format!("{at}: a result for {id:?}, which no call waits for"));
    }

    /// Each call in `open` has exactly one result, and there are no others.
    fn results(&mut self, at: &str, open: &mut Vec<&str>, results: Vec<&str>) {
        for id in results {
            self.result(at, open, id);
        }
        for id in open.drain(..) {
            self.problems.push(format!("{at}: call {id} has no result before it"));
        }
    }

    /// Each call in `open`, by its name and perhaps an identifier, has its result at the same place.
    fn in_order(&mut self, at: &str, open: &mut Vec<(&str, &str)>, results: Vec<(&str, &str)>) {
        for (n, (name, id)) in open.iter().enumerate() {
            match results.get(n) {
                None => self.problems.push(format!("{at}: call {name} has no result before it")),
                Some(result) => self.that(*result == (*name, *id), || {
                    format!("{at}: the results are in another order: {result:?} for {name:?}, {id:?}")
                }),
            }
        }
        self.that(results.len() <= open.len(), || format!("{at}: a result which no call waits for"));
        open.clear();
    }

    fn name(&mut self, at: &str, name: &Value) {
        let name = name.as_str().unwrap_or_default();
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        self.that((1..=64).contains(&name.len()) && name.chars().all(fits), || {
            format!("{at}: {name:?} is no name for a tool")
        });
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `change` on a good body gives a problem that has `problem` in it.
    fn check(kind: &str, change: impl FnOnce(&mut Value), problem: &str) {
        let good = match kind {
            "anthropic" => json!({"model": "m", "max_tokens": 1, "messages": [
                {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                {"role": "assistant", "content": [
                    {"type": "tool_use", "id": "a", "name": "ls", "input": {}},
                    {"type": "tool_use", "id": "b", "name": "ls", "input": {}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "x"}]},
                    {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "y"}]},
                    {"type": "text", "text": "go on"}]}]}),
            "openai-responses" => {
                json!({"model": "m", "stream": true, "store": false, "instructions": "s", "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
                {"type": "function_call", "call_id": "a", "name": "ls", "arguments": "{}"},
                {"type": "function_call", "call_id": "b", "name": "ls", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "a", "output": "x"},
                {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "y"}]}]})
            }
            "gemini" => json!({"contents": [
                {"role": "user", "parts": [{"text": "hi"}]},
                {"role": "model", "parts": [
                    {"functionCall": {"name": "ls", "args": {}, "id": "1"}, "thoughtSignature": "c2ln"},
                    {"functionCall": {"name": "read", "args": {}}}]},
                {"role": "user", "parts": [
                    {"functionResponse": {"name": "ls", "id": "1", "response": {"output": "x"}}},
                    {"functionResponse": {"name": "read", "response": {"output": "y"}}}]}]}),
            "ollama" => json!({"model": "m", "stream": true, "options": {"num_ctx": 9}, "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": "", "tool_calls": [
                    {"function": {"name": "ls", "arguments": {}}}, {"function": {"name": "read", "arguments": {}}}]},
                {"role": "tool", "tool_name": "ls", "content": "x"},
                {"role": "tool", "tool_name": "read", "content": "y"}]}),
            _ => json!({"model": "m", "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "ls", "arguments": "{}"}},
                    {"id": "b", "type": "function", "function": {"name": "ls", "arguments": "{}"}}]},
                {"role": "tool", "tool_call_id": "a", "content": "x"},
                {"role": "tool", "tool_call_id": "b", "content": "y"}]}),
        };
        assert_eq!(validate(kind, &good), Ok(()));
        let mut bad = good;
        change(&mut bad);
        let problems = validate(kind, &bad).expect_err(problem);
        assert!(problems.iter().any(|line| line.contains(problem)), "{problem}: {problems:?}");
    }

    #[test]
    fn planted_faults_are_found_in_messages() {
        let check = |change: fn(&mut Value), problem| check("anthropic", change, problem);
        check(|body| body["max_token"] = json!(1), "unknown field max_token");
        check(|body| drop(body["messages"][2]["content"].as_array_mut().unwrap().remove(1)), "call b has no result");
        check(|body| body["messages"][2]["content"][1]["tool_use_id"] = json!("a"), "which no call waits for");
        check(
            |body| body["messages"][2]["content"].as_array_mut().unwrap().swap(1, 2),
            "a result after something else",
        );
        check(|body| body["messages"][1]["content"][1]["id"] = json!("a"), "not unique");
        check(|body| body["messages"][0]["content"][0]["text"] = json!(" "), "no text");
        check(|body| body["messages"][0]["content"] = json!([]), "no content");
        check(|body| body["messages"][0]["content"][0]["text"] = json!("a\0"), "NUL");
        check(|body| drop(body["messages"].as_array_mut().unwrap().remove(0)), "not a user's");
        check(|body| body["messages"][1]["content"][0]["name"] = json!("a b"), "no name for a tool");
        check(|body| body["messages"][1]["content"][0]["input"] = json!("{}"), "no object");
        check(|body| drop(body["messages"].as_array_mut().unwrap().pop()), "has no result");
        let ending = |body: &mut Value| {
            body["messages"][2] =
                json!({"role": "assistant", "content": [{"type": "thinking", "thinking": "", "signature": "s"}]});
        };
        check(ending, "ends in thinking");
    }

    #[test]
    fn planted_faults_are_found_in_what_ran_at_a_provider() {
        type Change = fn(&mut Value);
        let call = |id: &str| json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {}});
        let result = |id: &str| json!({"type": "web_search_tool_result", "tool_use_id": id, "content": []});
        // A search that is done, one that waits for the result of a call of ours, and what it found.
        let good = json!({"model": "m", "max_tokens": 1,
            "tools": [{"type": "web_search_20250305", "name": "web_search"}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                {"role": "assistant", "content": [call("s1"), result("s1"), call("s2"),
                    {"type": "tool_use", "id": "a", "name": "ls", "input": {}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "x"}]}]},
                {"role": "assistant", "content": [result("s2"), {"type": "text", "text": "so"}]},
                {"role": "user", "content": [{"type": "text", "text": "on"}]}]});
        assert_eq!(validate("anthropic", &good), Ok(()));
        let faults: [(Change, &str); 6] = [
            (|body| body["tools"][0]["type"] = json!("web_search_1"), "unknown kind"),
            (|body| drop(body["messages"][1]["content"].as_array_mut().unwrap().remove(1)), "was left open"),
            (|body| drop(body["messages"][3]["content"].as_array_mut().unwrap().remove(0)), "has no result before"),
            (|body| body["messages"][3]["content"].as_array_mut().unwrap().swap(0, 1), "has no result before"),
            (|body| body["messages"][1]["content"][1]["tool_use_id"] = json!("s3"), "which no call waits for"),
            (
                |body| {
                    body["messages"][2]["content"].as_array_mut().unwrap().push(json!({"type": "text", "text": "stop"}))
                },
                "was left open",
            ),
        ];
        for (change, problem) in faults {
            let mut bad = good.clone();
            change(&mut bad);
            let problems = validate("anthropic", &bad).expect_err(problem);
            assert!(problems.iter().any(|line| line.contains(problem)), "{problem}: {problems:?}");
        }
        let check = |kind, change: Change, problem| check(kind, change, problem);
        check("gemini", |body| body["tools"] = json!([{"googleSearch": {}}]), "toolConfig");
        check("gemini", |body| body["toolConfig"] = json!({"includeServerSideToolInvocations": true}), "toolConfig");
        check(
            "gemini",
            |body| body["contents"][1]["parts"][0] = json!({"toolCall": {}, "toolResponse": {}}),
            "toolCall and toolResponse",
        );
        check("openai-responses", |body| body["include"] = json!(["everything"]), "include");
        check(
            "openai-responses",
            |body| body["input"][1] = json!({"type": "web_search_call", "id": "ws_1", "status": "completed"}),
            "action",
        );
        check(
            "openai-responses",
            |body| body["input"][1] = json!({"type": "code_interpreter_call", "id": "c", "container_id": "x"}),
            "code or outputs",
        );
    }

    #[test]
    fn planted_faults_are_found_in_chat_completions() {
        let check = |change: fn(&mut Value), problem| check("openai", change, problem);
        check(|body| body["max_token"] = json!(1), "unknown field max_token");
        check(|body| drop(body["messages"].as_array_mut().unwrap().pop()), "call b has no result");
        check(|body| body["messages"][4]["tool_call_id"] = json!("a"), "which no call waits for");
        check(|body| body["messages"][2]["tool_calls"][1]["id"] = json!("a"), "not unique");
        check(|body| body["messages"][2]["tool_calls"][1]["function"]["arguments"] = json!({}), "no object");
        check(|body| body["messages"][4]["content"] = json!(""), "no text");
        check(|body| body["messages"][2]["role"] = json!("robot"), "unknown role");
        check(|body| body["messages"].as_array_mut().unwrap().swap(3, 2), "which no call waits for");
    }

    #[test]
    fn planted_faults_are_found_in_responses() {
        let check = |change: fn(&mut Value), problem| check("openai-responses", change, problem);
        fn input(body: &mut Value) -> &mut Vec<Value> {
            body["input"].as_array_mut().unwrap()
        }
        check(|body| body["max_tokens"] = json!(1), "unknown field max_tokens");
        check(|body| body["store"] = json!(true), "store");
        check(|body| drop(input(body).pop()), "call b has no result");
        check(|body| body["input"][5]["call_id"] = json!("a"), "which no call waits for");
        check(|body| body["input"][3]["call_id"] = json!("a"), "not unique");
        check(|body| input(body).insert(5, json!({"role": "user", "content": "x"})), "call b has no result");
        check(|body| body["input"][3]["arguments"] = json!({}), "no object");
        check(|body| drop(input(body).drain(2..)), "reasoning without what it led to");
        check(|body| body["input"][2] = json!({"role": "user", "content": "x"}), "reasoning without what it led to");
        check(|body| body["input"][1]["encrypted_content"] = json!(null), "encrypted_content");
        check(|body| body["input"][5]["output"] = json!(""), "no text");
        check(|body| body["input"][0]["content"] = json!([]), "no content");
        check(|body| body["input"][0]["content"][0]["type"] = json!("text"), "unknown part");
        check(|body| drop(input(body).remove(0)), "not a user's");
        check(
            |body| body["tools"] = json!([{"type": "function", "name": "a b", "parameters": {}, "strict": false}]),
            "no name for a tool",
        );
    }

    #[test]
    fn planted_faults_are_found_in_gemini() {
        let check = |change: fn(&mut Value), problem| check("gemini", change, problem);
        check(|body| body["model"] = json!("m"), "unknown field model");
        check(|body| drop(body["contents"][2]["parts"].as_array_mut().unwrap().pop()), "call read has no result");
        check(|body| body["contents"][2]["parts"].as_array_mut().unwrap().swap(0, 1), "in another order");
        check(|body| body["contents"][2]["parts"][0]["functionResponse"]["id"] = json!("2"), "in another order");
        check(|body| body["contents"][2]["parts"][0]["functionResponse"]["response"] = json!("x"), "no object");
        check(|body| drop(body["contents"].as_array_mut().unwrap().pop()), "has no result");
        check(|body| body["contents"][0]["parts"] = json!([]), "no parts");
        check(|body| body["contents"][0]["parts"][0]["text"] = json!(" "), "no text");
        check(|body| body["contents"][0]["role"] = json!("assistant"), "unknown role");
        check(|body| body["contents"][1]["role"] = json!("user"), "same role as before");
        check(|body| body["contents"][1]["parts"][0]["functionCall"]["args"] = json!("{}"), "no object");
        check(|body| body["contents"][1]["parts"][0]["thought_signature"] = json!("x"), "unknown field");
        check(|body| body["contents"][0]["parts"][0] = json!({"inlineData": {"mimeType": "image/png"}}), "data");
        let late = |body: &mut Value| {
            body["contents"][2]["parts"].as_array_mut().unwrap().insert(0, json!({"text": "x"}));
        };
        check(late, "a result after something else");
    }

    #[test]
    fn planted_faults_are_found_in_ollama() {
        let check = |change: fn(&mut Value), problem| check("ollama", change, problem);
        check(|body| body["max_tokens"] = json!(1), "unknown field max_tokens");
        check(|body| body["options"] = json!({"num_predict": 1}), "num_ctx");
        check(|body| drop(body["messages"].as_array_mut().unwrap().pop()), "call read has no result");
        check(|body| body["messages"].as_array_mut().unwrap().swap(3, 4), "in another order");
        check(|body| body["messages"][2]["tool_calls"][0]["function"]["arguments"] = json!("{}"), "no object");
        check(|body| body["messages"][1]["content"] = json!([{"type": "text", "text": "x"}]), "no text");
        check(|body| body["messages"][1]["images"] = json!(["data:image/png;base64,AA"]), "images");
        check(|body| body["messages"][2]["role"] = json!("model"), "unknown role");
        check(|body| body["messages"][2]["tool_calls"] = json!([]), "no calls");
    }

    #[test]
    fn planted_faults_are_found_in_what_shapes_an_answer() {
        let schema = || json!({"type": "object"});
        check("anthropic", |body| body["tool_choice"] = json!({"type": "any"}), "no such tool");
        let forced = json!({"type": "tool", "name": "final_answer"});
        check("anthropic", |body| body["tool_choice"] = forced, "no such tool");
        let thinks = |body: &mut Value| {
            body["tools"] = json!([{"name": "a", "input_schema": {}}]);
            body["thinking"] = json!({"type": "adaptive"});
            body["tool_choice"] = json!({"type": "any"});
        };
        check("anthropic", thinks, "demanded of a model that thinks");
        let budget = json!({"type": "enabled", "budget_tokens": 5000});
        check("anthropic", |body| body["thinking"] = budget, "a budget of 5000");
        let hidden = json!({"type": "adaptive", "display": "hidden"});
        check("anthropic", |body| body["thinking"] = hidden, "thinking");
        check("openai", |body| body["reasoning_effort"] = json!("most"), "reasoning_effort");
        let open = json!({"name": "answer", "schema": schema(), "strict": true});
        let format = json!({"type": "json_schema", "json_schema": open});
        check("openai", |body| body["response_format"] = format, "strict, and not closed");
        check("openai-responses", |body| body["text"] = json!({"format": {"type": "text"}}), "unknown format");
        check("openai-responses", |body| body["reasoning"] = json!({"effort": "most"}), "reasoning");
        let untyped = json!({"responseJsonSchema": schema()});
        check("gemini", |body| body["generationConfig"] = untyped, "without its type");
        check("ollama", |body| body["think"] = json!("max"), "think");
        check("ollama", |body| body["format"] = json!("x"), "no schema");
    }

    #[test]
    fn a_changed_beginning_is_no_beginning() {
        let body = |texts: &[&str]| {
            let block = |text: &&str| json!({"type": "text", "text": text, "cache_control": {"type": text}});
            json!({"messages": [{"role": "user", "content": texts.iter().map(block).collect::<Vec<_>>()}]})
        };
        assert!(extends(&body(&["a"]), &body(&["a", "b"])));
        assert!(!extends(&body(&["a", "b"]), &body(&["a"])));
        assert!(!extends(&body(&["a"]), &body(&["b", "a"])));
        let with_tools = json!({"tools": [1], "messages": body(&["a", "b"])["messages"]});
        assert!(!extends(&body(&["a"]), &with_tools));
        let contents = |texts: &[&str], system: &str| {
            let parts: Vec<Value> = texts.iter().map(|text| json!({"text": text})).collect();
            json!({"systemInstruction": system, "contents": [{"role": "user", "parts": parts}]})
        };
        assert!(extends(&contents(&["a"], "s"), &contents(&["a", "b"], "s")));
        assert!(!extends(&contents(&["a"], "s"), &contents(&["b"], "s")));
        assert!(!extends(&contents(&["a"], "s"), &contents(&["a"], "t")));
        let input =
            |texts: &[&str]| json!({"input": texts.iter().map(|text| json!({"output": text})).collect::<Vec<_>>()});
        assert!(extends(&input(&["a"]), &input(&["a", "b"])));
        assert!(!extends(&input(&["a", "b"]), &input(&["a", "c"])));
    }
}
