//! The options of one answer: which tools are called, where it ends, how tokens are chosen. Pure.

use linger_protocol::completion::ToolChoice;
use serde_json::{Map, Value};

use super::super::reply::Failure;
use super::asked::ApiRequest;

/// The most stop texts, which the daemon takes.
const MAX_STOPS: usize = 16;

impl ApiRequest {
    /// Which tools are called: `auto`, `none` or `required`, a function, or a choice among allowed tools. `tools` come first.
    pub(super) fn tool_choice(&mut self, choice: Option<&Value>) -> Result<(), Failure> {
        let Some(choice) = choice.filter(|choice| !choice.is_null()) else { return Ok(()) };
        let kind = choice.get("type").and_then(Value::as_str);
        match (choice.as_str(), kind) {
            (Some("none"), _) => {
                self.options.tool_choice = ToolChoice::None;
                Ok(())
            }
            (Some(word), _) => self.mode(word),
            // Chat Completions has the name in an object, and Responses beside the type.
            (None, Some("function")) => self.must_call(name_of(choice)),
            (None, Some("allowed_tools")) => {
                let allowed = choice.get("allowed_tools").unwrap_or(choice);
                let names = allowed.get("tools").and_then(Value::as_array);
                let names = names.ok_or_else(|| Failure::bad_request("`allowed_tools` has no list `tools`"))?;
                let names: Vec<&str> = names.iter().map(name_of).collect();
                self.tools.retain(|tool| names.contains(&tool.name.as_str()));
                self.mode(allowed.get("mode").and_then(Value::as_str).unwrap_or("auto"))
            }
            (None, other) => Err(unknown(other.unwrap_or("this"))),
        }
    }

    fn mode(&mut self, word: &str) -> Result<(), Failure> {
        self.options.tool_choice = match word {
            "auto" => ToolChoice::Auto,
            "required" => ToolChoice::Required,
            other => return Err(unknown(other)),
        };
        if word == "required" && self.tools.is_empty() {
            return Err(Failure::bad_request("`tool_choice` requires a call, and there is no function to call")
                .hint("put functions into `tools`, or leave `tool_choice` out"));
        }
        Ok(())
    }

    fn must_call(&mut self, name: &str) -> Result<(), Failure> {
        if !self.tools.iter().any(|tool| tool.name == name) {
            let text = format!("`tool_choice` names the function '{}', which is not in `tools`", name.escape_default());
            return Err(Failure::bad_request(text));
        }
        self.options.tool_choice = ToolChoice::Required;
        self.options.forced_tool = Some(name.to_owned());
        Ok(())
    }

    /// The options that both interfaces write the same way.
    pub(super) fn options(&mut self, body: &Map<String, Value>) -> Result<(), Failure> {
        let given = |name: &str| body.get(name).filter(|value| !value.is_null());
        let number = |name: &str| match given(name) {
            None => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) => Ok(Some(number)),
                None => Err(Failure::bad_request(format!("`{name}` is a number"))),
            },
        };
        self.options.temperature = number("temperature")?;
        self.options.top_p = number("top_p")?;
        self.options.frequency_penalty = number("frequency_penalty")?;
        self.options.presence_penalty = number("presence_penalty")?;
        if let Some(seed) = given("seed") {
            let seed = seed.as_i64().ok_or_else(|| Failure::bad_request("`seed` is an integer"))?;
            self.options.seed = Some(seed);
        }
        if let Some(parallel) = given("parallel_tool_calls") {
            let parallel = parallel.as_bool();
            let parallel = parallel.ok_or_else(|| Failure::bad_request("`parallel_tool_calls` is true or false"))?;
            self.options.parallel_tool_calls = Some(parallel);
        }
        self.options.stop = stop(given("stop"))?;
        Ok(())
    }

    /// Notes the fields that nothing here reads; a false, a zero and an empty list change nothing.
    pub(super) fn note_unread(&mut self, body: &Map<String, Value>, read: &[&str]) {
        let is_plain = |value: &Value| match value {
            Value::Null | Value::Bool(false) => true,
            Value::String(text) => matches!(text.as_str(), "" | "auto" | "default" | "disabled"),
            Value::Array(items) => items.is_empty() || items == &["text"],
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        let unread = body.iter().filter(|(name, value)| !read.contains(&name.as_str()) && !is_plain(value));
        self.ignored.extend(unread.map(|(name, _)| name.clone()));
    }
}

/// The name of a function, in the forms of both interfaces.
fn name_of(value: &Value) -> &str {
    let name = value.pointer("/function/name").or_else(|| value.get("name"));
    name.and_then(Value::as_str).unwrap_or_default()
}

fn unknown(word: &str) -> Failure {
    let text = format!("`tool_choice` cannot be '{}'", word.escape_default());
    Failure::bad_request(text).hint("it can be \"auto\", \"none\", \"required\", a function, or `allowed_tools`")
}

/// Texts that end the answer: one, or a list; empty ones end nothing.
fn stop(value: Option<&Value>) -> Result<Vec<String>, Failure> {
    let wrong = || Failure::bad_request("`stop` is a text, or a list of texts");
    let texts = match value {
        None => Vec::new(),
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(texts)) => {
            let text = |text: &Value| text.as_str().map(str::to_owned).ok_or_else(wrong);
            texts.iter().map(text).collect::<Result<_, _>>()?
        }
        Some(_) => return Err(wrong()),
    };
    let texts: Vec<String> = texts.into_iter().filter(|text| !text.is_empty()).collect();
    if texts.len() > MAX_STOPS {
        return Err(Failure::bad_request(format!("`stop` has more than {MAX_STOPS} texts")));
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use linger_protocol::completion::Tool;
    use serde_json::json;

    use super::*;

    fn with_tools(names: &[&str]) -> ApiRequest {
        let tool = |name: &&str| Tool { name: (*name).to_owned(), description: String::new(), input_schema: json!({}) };
        ApiRequest { tools: names.iter().map(tool).collect(), ..ApiRequest::default() }
    }

    #[test]
    fn a_choice_of_tools_is_read_in_every_form() {
        let check = |choice: Value, expect: ToolChoice, forced: Option<&str>, names: &[&str]| {
            let mut asked = with_tools(&["f", "g"]);
            asked.tool_choice(Some(&choice)).unwrap();
            assert_eq!(asked.options.tool_choice, expect, "{choice}");
            assert_eq!(asked.options.forced_tool.as_deref(), forced, "{choice}");
            let left: Vec<&str> = asked.tools.iter().map(|tool| tool.name.as_str()).collect();
            assert_eq!(left, names, "{choice}");
        };
        let both = ["f", "g"];
        check(json!(null), ToolChoice::Auto, None, &both);
        check(json!("auto"), ToolChoice::Auto, None, &both);
        check(json!("none"), ToolChoice::None, None, &both);
        check(json!("required"), ToolChoice::Required, None, &both);
        check(json!({ "type": "function", "function": { "name": "g" } }), ToolChoice::Required, Some("g"), &both);
        check(json!({ "type": "function", "name": "g" }), ToolChoice::Required, Some("g"), &both);
        let chat = json!({ "mode": "required", "tools": [{ "type": "function", "function": { "name": "f" } }] });
        check(json!({ "type": "allowed_tools", "allowed_tools": chat }), ToolChoice::Required, None, &["f"]);
        let responses =
            json!({ "type": "allowed_tools", "mode": "auto", "tools": [{ "type": "function", "name": "g" }] });
        check(responses, ToolChoice::Auto, None, &["g"]);
    }

    #[test]
    fn a_choice_that_cannot_be_is_refused_with_what_can() {
        let refused = |names: &[&str], choice: Value| with_tools(names).tool_choice(Some(&choice)).unwrap_err();
        for choice in [json!("sometimes"), json!(""), json!(7), json!({}), json!({ "type": "web_search" }), json!([])] {
            let failure = refused(&["f"], choice.clone());
            assert!(
                failure.message.contains("`tool_choice` cannot be") && failure.hint.is_some(),
                "{choice}: {failure:?}"
            );
        }
        assert!(refused(&["f"], json!({ "type": "function", "name": "g" })).message.contains("'g'"));
        assert!(refused(&["f"], json!({ "type": "function" })).message.contains("not in `tools`"));
        assert!(refused(&[], json!("required")).message.contains("no function to call"));
        let none = json!({ "type": "allowed_tools", "mode": "required", "tools": [] });
        assert!(refused(&["f"], none).message.contains("no function to call"));
    }

    #[test]
    fn options_are_read_or_refused_by_name() {
        let read = |body: Value| {
            let mut asked = ApiRequest::default();
            asked.options(body.as_object().unwrap()).map(|()| asked.options).map_err(|failure| failure.message)
        };
        let options = read(
            json!({ "temperature": 0, "top_p": 0.5, "seed": -3, "stop": ["a", "", "é"], "presence_penalty": null }),
        );
        let options = options.unwrap();
        assert_eq!((options.temperature, options.top_p, options.seed), (Some(0.0), Some(0.5), Some(-3)));
        assert_eq!(options.stop, ["a", "é"]);
        for stop in [json!(null), json!(""), json!([]), json!([""])] {
            assert_eq!(read(json!({ "stop": stop })).unwrap().stop, [""; 0]);
        }
        assert_eq!(read(json!({ "stop": "x" })).unwrap().stop, ["x"]);
        assert_eq!(read(json!({ "stop": ["a", "b", "c", "d", "e"] })).unwrap().stop.len(), 5);
        for (body, word) in [
            (json!({ "stop": 7 }), "`stop`"),
            (json!({ "stop": [7] }), "`stop`"),
            (json!({ "stop": vec!["x"; 17] }), "`stop`"),
            (json!({ "temperature": "hot" }), "`temperature`"),
            (json!({ "seed": 0.5 }), "`seed`"),
            (json!({ "parallel_tool_calls": "yes" }), "`parallel_tool_calls`"),
        ] {
            assert!(read(body.clone()).unwrap_err().contains(word), "{body}");
        }
    }

    #[test]
    fn fields_that_nothing_reads_are_noted() {
        let body = json!({ "model": "m", "verbosity": "low", "service_tier": "auto", "modalities": ["text"],
            "prediction": { "type": "content" }, "store": false, "x": null });
        let mut asked = ApiRequest::default();
        asked.note_unread(body.as_object().unwrap(), &["model"]);
        assert_eq!(asked.ignored, ["verbosity", "prediction"]);
    }
}
