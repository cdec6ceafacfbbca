//! A call that must be made, where a provider cannot be told so: the answer is held to a schema and becomes the call. Pure.

use linger_protocol::completion::Tool;
use linger_protocol::message::ContentBlock;
use serde_json::{Value, json};

use crate::provider::unwrapped_arguments;

/// The tools of which one must be called; never empty.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ForcedCall(Vec<Tool>);

impl ForcedCall {
    /// A call of one of `tools`: of the one with this name, if there is a name.
    pub(super) fn new(tools: &[Tool], name: Option<&str>) -> Self {
        Self(tools.iter().filter(|tool| name.is_none_or(|name| tool.name == name)).cloned().collect())
    }

    /// The schema of the answer: the arguments of the only tool, or the name and the arguments of one of several.
    pub(super) fn schema(&self) -> Value {
        if let [only] = self.0.as_slice() {
            return only.input_schema.clone();
        }
        let one = |tool: &Tool| {
            // A reference would lead elsewhere from here.
            let is_whole = !tool.input_schema.to_string().contains("\"$ref\"");
            let arguments = if is_whole { tool.input_schema.clone() } else { json!({ "type": "object" }) };
            json!({
                "type": "object", "properties": { "name": { "const": tool.name }, "arguments": arguments },
                "required": ["name", "arguments"],
            })
        };
        json!({ "anyOf": self.0.iter().map(one).collect::<Vec<_>>() })
    }

    /// The instruction for the model.
    pub(super) fn instruction(&self) -> String {
        let described = |tool: &Tool| {
            let (name, description, parameters) = (&tool.name, &tool.description, &tool.input_schema);
            json!({ "name": name, "description": description, "parameters": parameters }).to_string()
        };
        let tools: Vec<String> = self.0.iter().map(described).collect();
        let form = match self.0.as_slice() {
            [only] => format!("a call of the function `{}`: its arguments as JSON", only.name),
            _ => "a call of one of these functions, as JSON: {\"name\": …, \"arguments\": {…}}".to_owned(),
        };
        format!("Answer with {form}, without a word before or after it.\n{}", tools.join("\n"))
    }

    /// The call that an answer is; absent if it is none.
    pub(super) fn call(&self, text: &str) -> Option<ContentBlock> {
        let mut answer = unwrapped_arguments(text).filter(|_| !text.trim().is_empty())?;
        let (name, input) = match self.0.as_slice() {
            [only] => (only.name.clone(), answer),
            several => {
                let name = answer.get("name")?.as_str()?.to_owned();
                several.iter().find(|tool| tool.name == name)?;
                (name, answer.get_mut("arguments")?.take())
            }
        };
        Some(ContentBlock::ToolUse { call_id: "".into(), name, input, native: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, input_schema: Value) -> Tool {
        Tool { name: name.to_owned(), description: "does".to_owned(), input_schema }
    }

    fn call(name: &str, input: Value) -> Option<ContentBlock> {
        Some(ContentBlock::ToolUse { call_id: "".into(), name: name.to_owned(), input, native: None })
    }

    #[test]
    fn an_answer_becomes_the_call_that_was_asked_for() {
        let tools = [tool("f", json!({ "type": "object" })), tool("g", json!({ "$ref": "#/$defs/x" }))];
        let one = ForcedCall::new(&tools, Some("f"));
        assert_eq!(one.schema(), json!({ "type": "object" }));
        assert!(one.instruction().contains("`f`") && !one.instruction().contains("\"g\""));
        assert_eq!(one.call("```json\n{\"a\":1}\n```"), call("f", json!({ "a": 1 })));
        assert_eq!(one.call("I would rather not"), None);
        assert_eq!(one.call(""), None);
        let any = ForcedCall::new(&tools, None);
        assert_eq!(any.call(r#"{"name":"g","arguments":{"b":2}}"#), call("g", json!({ "b": 2 })));
        assert_eq!(any.call(r#"{"name":"h","arguments":{}}"#), None);
        assert_eq!(any.schema()["anyOf"][1]["properties"]["arguments"], json!({ "type": "object" }));
    }
}
