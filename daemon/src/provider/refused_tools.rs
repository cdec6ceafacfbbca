//! Tools that a provider refuses because of their schemas: recognising which, and remembering them as long as the daemon runs.
//!
//! A tool counts as refused with the schema that it had: one that its server mends comes back.
//! Deliberately absent: asking again (the turn), and mending schemas (`mcp`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::tools::ToolSpecs;

/// The most tools that are remembered for one provider.
const MAX_REFUSED: usize = 1000;

/// Words of which one stands in an error about a tool's schema, in lower case.
const ABOUT_SCHEMAS: [&str; 7] =
    ["schema", "parameters", "properties", "function_declarations", "functiondeclarations", "function", "tool"];

/// The words before the place of a tool in the list that was sent, in lower case; the most exact first.
const PLACES: [&str; 3] = ["function_declarations", "functiondeclarations", "tools"];

/// The count of a server that leaves the tools out is at least one part in this many of the estimate for the rest of the request,
/// and less than one of the whole. Estimates are off by a half at most; a count far below both says nothing.
const FAR_BELOW: u64 = 3;

/// The least estimate of all tools, in tokens, that says something.
const MIN_TOOLS: u64 = 600;

/// The tools that providers refuse; by provider.
#[derive(Debug, Default)]
pub struct RefusedTools {
    refused: Mutex<BTreeMap<String, BTreeMap<String, Value>>>,
    /// The models whose servers are known to leave tools out of what a model reads.
    warned: Mutex<BTreeSet<String>>,
}

impl RefusedTools {
    /// This provider refuses the tool with this schema; false if that is known.
    pub fn add(&self, provider: &str, tool: &str, schema: Value) -> bool {
        let mut all = self.refused();
        let known = all.entry(provider.to_owned()).or_default();
        if known.len() >= MAX_REFUSED {
            return false;
        }
        known.insert(tool.to_owned(), schema.clone()) != Some(schema)
    }

    /// The tools that this provider refuses as they are now.
    pub fn of(&self, provider: &str, schema: impl Fn(&str) -> Option<Value>) -> BTreeSet<String> {
        let all = self.refused();
        let known = all.get(provider).into_iter().flatten();
        known.filter(|(tool, refused)| schema(tool).as_ref() == Some(*refused)).map(|(tool, _)| tool.clone()).collect()
    }

    /// Whether people are to be told now that the server of this model seems to leave tools out: the first time.
    pub fn is_news(&self, model: &str) -> bool {
        self.warned.lock().unwrap_or_else(PoisonError::into_inner).insert(model.to_owned())
    }

    fn refused(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<String, Value>>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tool whose schema an error refuses, by its name or its place in the list.
pub fn named<'a>(message: &str, tools: &'a ToolSpecs) -> Option<&'a str> {
    let lower = message.to_lowercase();
    if !ABOUT_SCHEMAS.iter().any(|word| lower.contains(word)) {
        return None;
    }
    let by_name = || tools.iter().map(|tool| tool.name.as_str()).find(|name| names(message, name));
    // A name within a place is that of an argument.
    let by_place = || PLACES.iter().find_map(|word| places(&lower, word).last().copied());
    let place = by_place().and_then(|place| tools.iter().nth(place)).map(|tool| tool.name.as_str());
    by_name().or(place)
}

/// Whether a message names a tool: a name of several words as it is, and one that may be a word of the message only in quotes or
/// behind `function` or `tool`.
fn names(message: &str, name: &str) -> bool {
    message.match_indices(name).any(|(at, _)| {
        let before = message.get(..at).unwrap_or_default();
        let after = message.get(at + name.len()..).unwrap_or_default();
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        if before.ends_with(is_part) || after.starts_with(is_part) {
            return false;
        }
        let is_quoted = before.ends_with(['\'', '"', '`']) && after.starts_with(['\'', '"', '`']);
        let before = before.trim_end_matches([' ', ':']).to_lowercase();
        // Not the name of an argument in quotes, such as `('properties', 'path')`.
        let is_listed = before.trim_end_matches(['\'', '"', '`']).ends_with([',', '(', '[']);
        let follows = ["function", "tool", "for"]
            .iter()
            .any(|word| before.trim_end_matches(['\'', '"', '`', ' ']).ends_with(word));
        name.contains("__") || follows || (is_quoted && !is_listed && before.contains("tool"))
    })
}

/// The numbers behind a word: `tools[3]`, `tools.3`, `tools/3`.
fn places(message: &str, word: &str) -> Vec<usize> {
    let numbers = message.match_indices(word).filter_map(|(at, _)| {
        let rest = message.get(at + word.len()..)?.strip_prefix(['[', '.', '/', ' '])?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest.get(..end)?.parse().ok()
    });
    numbers.collect()
}

/// Whether a server that counts `counted` tokens for a whole request has evidently left out the tools: they have about `tools`, and
/// the rest of the request about `rest`.
pub fn are_left_out(counted: u64, rest: u64, tools: u64) -> bool {
    let scaled = counted.saturating_mul(FAR_BELOW);
    tools >= MIN_TOOLS && scaled >= rest && scaled < rest + tools
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::ToolSpec;
    use super::*;

    #[test]
    fn an_error_names_the_tool_by_its_name_or_its_place() {
        let spec = |name: &str| ToolSpec {
            name: name.to_owned(),
            description: String::new(),
            input_schema: json!({ "type": "object" }),
        };
        let specs = ToolSpecs::new(["read", "edit", "mcp__db__query", "mcp__db__query_all"].map(spec).into());
        let check = |message: &str, expect: Option<&str>| assert_eq!(named(message, &specs), expect, "{message}");
        check(
            "400: Invalid schema for function 'mcp__db__query_all': In context=('properties', 'read'), array schema missing items",
            Some("mcp__db__query_all"),
        );
        check("400: Invalid schema for function 'edit': object schema missing properties", Some("edit"));
        check(
            "400: tools.2.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12",
            Some("mcp__db__query"),
        );
        check("400: Invalid 'tools[3].function.parameters': unknown type", Some("mcp__db__query_all"));
        check(
            "400: * GenerateContentRequest.tools[0].function_declarations[2].parameters.properties[read].items: missing field.",
            Some("mcp__db__query"),
        );
        check("422: body.tools.1.function.parameters: bad", Some("edit"));
        check("400: the tool `read` has a bad schema", Some("read"));
        check("400: cannot read the request: bad parameters", None);
        check("400: tools.9.input_schema: bad", None);
        check("400: the model does not exist", None);
    }

    #[test]
    fn a_refused_tool_comes_back_with_another_schema() {
        let refused = RefusedTools::default();
        assert!(refused.add("p", "a", json!(1)) && !refused.add("p", "a", json!(1)));
        let of = |provider: &str, schema: i32| refused.of(provider, |_| Some(json!(schema))).len();
        assert_eq!((of("p", 1), of("p", 2), of("q", 1)), (1, 0, 0));
        assert!(refused.is_news("m") && !refused.is_news("m"));
    }

    #[test]
    fn a_count_far_below_the_estimate_means_that_the_tools_are_not_there() {
        let check = |counted, rest, tools, expect| assert_eq!(are_left_out(counted, rest, tools), expect);
        check(277, 400, 2400, true);
        check(1700, 400, 2400, false);
        check(4000, 5000, 2400, false);
        check(0, 400, 2400, false);
        check(10, 400, 2400, false);
        check(200, 400, 500, false);
    }
}
