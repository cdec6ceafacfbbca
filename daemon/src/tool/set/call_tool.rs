//! `call_tool`: how a model calls a tool that `find_tools` found.
//!
//! It is no tool of its own: [`ToolSet::meant`](super::ToolSet::meant) puts the tool that it names in its place before
//! anything looks at the call, so that permission, rules, events and recovery see the real one.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::tool::invalid::Invalid;
use crate::tool::types::{Call, Tool};
use crate::tool::workspace::Workspace;

pub(super) const NAME: &str = "call_tool";

pub(super) struct CallTool;

#[derive(Deserialize)]
#[serde(expecting = "an object with name and input")]
struct Args {
    name: String,
    #[serde(default, alias = "arguments")]
    input: Value,
}

impl Tool for CallTool {
    fn name(&self) -> &str {
        NAME
    }

    fn description(&self) -> &str {
        include_str!("call_tool.md")
    }

    fn schema(&self) -> Value {
        let properties = json!({ "name": { "type": "string" }, "input": { "type": "object" } });
        json!({ "type": "object", "properties": properties, "required": ["name", "input"] })
    }

    fn prepare(&self, _: &Value, _: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        // What it names would be here.
        Err(Invalid(format!("`{NAME}` does not call itself")))
    }
}

/// The name and the arguments of the tool that a call of this one means.
pub(super) fn meant(input: &Value) -> Result<(String, Value), Invalid> {
    let Args { name, input } = crate::tool::args::parse(input)?;
    let input = match input {
        Value::Null => Value::Object(Map::new()),
        // Some models write JSON as text inside JSON.
        Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        input => input,
    };
    Ok((name, input))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_means_what_it_names() {
        let check = |input: Value, name: &str, meant_input: Value| {
            assert_eq!(meant(&input).unwrap(), (name.to_owned(), meant_input));
        };
        check(json!({ "name": "a", "input": { "x": 1 } }), "a", json!({ "x": 1 }));
        check(json!({ "name": "a", "arguments": { "x": 1 } }), "a", json!({ "x": 1 }));
        check(json!({ "name": "a" }), "a", json!({}));
        check(json!({ "name": "a", "input": "{\"x\":1}" }), "a", json!({ "x": 1 }));
        check(json!({ "name": "a", "input": "{" }), "a", json!("{"));
        assert_eq!(meant(&json!({ "input": {} })).unwrap_err().0, "missing field `name`");
    }
}
