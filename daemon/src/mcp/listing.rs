//! The tools that a server lists, made fit for providers: names, descriptions, schemas.
//!
//! Pure. What cannot be made fit is left out, and a problem says so.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::provider::schema::check;
use crate::question::permission::hash;
use crate::tool::set::MCP;
use crate::tool::text;

/// The most tools of one server; the largest have about 200.
pub(super) const MAX_TOOLS: usize = 512;

/// The longest description, in bytes: two pages; more is cut.
const MAX_DESCRIPTION: usize = 8 << 10;

/// The largest schema, in bytes: a few hundred arguments.
const MAX_SCHEMA: usize = 64 << 10;

/// The longest name of a tool that all providers take.
const MAX_NAME: usize = 64;

/// The longest name of an argument that all providers take.
const MAX_ARGUMENT: usize = 64;

/// The key of a schema that wants an argument in a header too.
const HEADER: &str = "x-mcp-header";

/// The digits of a version: 64 bits, so that a server cannot find another description with the same.
const VERSION: usize = 16;

/// A tool of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ToolInfo {
    /// The server's name for it.
    pub(super) tool: String,
    /// The name for models and rules.
    pub(super) name: String,
    /// The description for models.
    pub(super) description: String,
    /// JSON Schema of its arguments, an object.
    pub(super) schema: Value,
    /// The server says that it changes nothing. That widens nothing: such calls only overlap.
    pub(super) read_only: bool,
    /// The arguments that HTTP has in headers too: where each is in the arguments, as a JSON pointer, and the name of its header.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) headers: Vec<(String, String)>,
    /// JSON Schema of the structured content of its results, if it has a usable one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) output_schema: Option<Value>,
}

impl ToolInfo {
    /// The headers for a call with these arguments; one that is absent has none.
    pub(super) fn headers_of(&self, arguments: &Value) -> Vec<(String, String)> {
        let value = |pointer: &str| match arguments.pointer(pointer)? {
            Value::String(text) => Some(text.clone()),
            value @ (Value::Bool(_) | Value::Number(_)) => Some(value.to_string()),
            _ => None,
        };
        self.headers.iter().filter_map(|(pointer, header)| Some((header.clone(), value(pointer)?))).collect()
    }

    /// Names what the server says that the tool does: its description and its arguments, and whether it claims to change nothing.
    pub(super) fn version(&self) -> String {
        let Self { description, schema, read_only, .. } = self;
        let hash = hash(&json!({ "description": description, "schema": schema, "read_only": read_only }));
        let digits = hash.trim_start_matches("sha256:");
        digits.get(..VERSION).unwrap_or(digits).to_owned()
    }
}

/// The tools that a server lists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Listing {
    /// Its tools, in its order.
    pub(super) tools: Vec<ToolInfo>,
    /// Tools that were left out or changed, for people.
    pub(super) problems: Vec<String>,
}

impl Listing {
    /// The tools of `server` from the items of `tools/list`.
    pub(super) fn of(server: &str, items: &[Value]) -> Self {
        let mut listing = Self::default();
        for item in items.iter().take(MAX_TOOLS) {
            let name = item.get("name").and_then(Value::as_str).unwrap_or_default();
            match tool(server, name, item, &mut listing.problems) {
                Ok(tool) if listing.tools.iter().any(|known| known.name == tool.name) => {
                    listing.problem(name, "is left out: another tool has the same name");
                }
                Ok(tool) => listing.tools.push(tool),
                Err(why) => listing.problem(name, &format!("is left out: {why}")),
            }
        }
        if items.len() > MAX_TOOLS {
            listing.problems.push(format!("only the first {MAX_TOOLS} of {} tools are used", items.len()));
        }
        listing
    }

    /// The same tools of a server with another name.
    pub(super) fn renamed(mut self, server: &str) -> Self {
        self.tools.iter_mut().for_each(|tool| tool.name = wire_name(server, &tool.tool));
        self
    }

    fn problem(&mut self, tool: &str, what: &str) {
        self.problems.push(format!("tool {} {what}", shown(tool)));
    }
}

/// The name of a tool for models; at most [`MAX_NAME`] letters, digits, `_` and `-`.
pub(super) fn wire_name(server: &str, tool: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let name: String = format!("{MCP}{server}__").chars().chain(tool.chars().map(fits)).collect();
    if name.len() <= MAX_NAME {
        return name;
    }
    let hash = Sha256::digest(tool.as_bytes());
    let hash: String = hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{}_{hash}", text::head(&name, MAX_NAME - hash.len() - 1))
}

fn tool(server: &str, name: &str, item: &Value, problems: &mut Vec<String>) -> Result<ToolInfo, String> {
    if name.is_empty() {
        return Err("it has no name".to_owned());
    }
    let schema = schema(item.get("inputSchema").unwrap_or(&Value::Null), |change| {
        problems.push(format!("tool {}: {change}", shown(name)));
    })?;
    let mut headers = Vec::new();
    headers_in(&schema, "", &mut headers)?;
    let about = |key: &str| item.get(key).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
    let title = item.pointer("/annotations/title").and_then(Value::as_str);
    let description = about("description").or_else(|| about("title")).or(title).unwrap_or(name);
    let read_only = item.pointer("/annotations/readOnlyHint").and_then(Value::as_bool).unwrap_or_default();
    let (wire, description) = (wire_name(server, name), described(description));
    let output_schema = item.get("outputSchema").filter(|schema| match check(schema) {
        Ok(()) => true,
        Err(why) => {
            problems.push(format!(
                "tool {}: its results are not checked: the output schema is unusable: {why}",
                shown(name)
            ));
            false
        }
    });
    let output_schema = output_schema.cloned();
    Ok(ToolInfo { tool: name.to_owned(), name: wire, description, schema, read_only, headers, output_schema })
}

/// Finds the arguments that are wanted in headers (2026-07-28, "x-mcp-header"). Fails on one that cannot be in one: the revision
/// has such a tool left out.
fn headers_in(schema: &Value, above: &str, found: &mut Vec<(String, String)>) -> Result<(), String> {
    for (name, argument) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let pointer = format!("{above}/{}", name.replace('~', "~0").replace('/', "~1"));
        if let Some(header) = argument.get(HEADER) {
            let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
            let header = header.as_str().filter(|header| (1..=MAX_ARGUMENT).contains(&header.len()));
            let Some(header) = header.filter(|header| header.chars().all(is_token)) else {
                return Err(format!("the `{HEADER}` of its argument {} is not the name of a header", shown(name)));
            };
            let kind = argument.get("type").and_then(Value::as_str);
            if !matches!(kind, Some("string" | "integer" | "boolean")) {
                return Err(format!("its argument {} cannot be in a header", shown(name)));
            }
            if found.iter().any(|(_, known)| known.eq_ignore_ascii_case(header)) {
                return Err(format!("two arguments have the header {}", shown(header)));
            }
            found.push((pointer.clone(), header.to_owned()));
        }
        headers_in(argument, &pointer, found)?;
    }
    Ok(())
}

/// A description without control characters, and not too long.
fn described(text: &str) -> String {
    let visible: String = text.chars().filter(|c| !c.is_control() || *c == '\n' || *c == '\t').collect();
    match text::head(visible.trim(), MAX_DESCRIPTION) {
        cut if cut.len() < visible.trim().len() => format!("{cut}…"),
        whole => whole.to_owned(),
    }
}

/// A schema that every provider takes, or why there is none; `changed` hears what was dropped of it.
fn schema(schema: &Value, mut changed: impl FnMut(String)) -> Result<Value, String> {
    let mut schema = match schema {
        Value::Null => json!({}),
        Value::Object(_) => schema.clone(),
        _ => return Err("its schema is no object".to_owned()),
    };
    if schema.to_string().len() > MAX_SCHEMA {
        return Err(format!("its schema has more than {MAX_SCHEMA} bytes"));
    }
    if let Some(elsewhere) = reference(&schema) {
        return Err(format!("its schema refers to {}, which is not fetched", shown(elsewhere)));
    }
    let Some(object) = schema.as_object_mut() else { return Err("its schema is no object".to_owned()) };
    if object.get("type").is_some_and(|kind| kind != "object") {
        return Err("its arguments are no object".to_owned());
    }
    object.remove("$schema");
    // No provider takes these at the top.
    for key in ["anyOf", "oneOf", "allOf", "not", "enum"] {
        if object.remove(key).is_some() {
            changed(format!("`{key}` at the top of its schema is dropped: providers refuse it"));
        }
    }
    object.entry("type").or_insert_with(|| "object".into());
    let properties = object.entry("properties").or_insert_with(|| json!({}));
    let Some(properties) = properties.as_object() else { return Err("its properties are no object".to_owned()) };
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let bad = |name: &&String| name.is_empty() || name.len() > MAX_ARGUMENT || !name.chars().all(is_name);
    match properties.keys().find(bad) {
        Some(name) => Err(format!("providers refuse the argument name {}", shown(name))),
        None => Ok(schema),
    }
}

/// A `$ref` to another document.
fn reference(value: &Value) -> Option<&str> {
    match value {
        Value::Object(fields) => fields.iter().find_map(|(key, value)| match value.as_str() {
            Some(target) if key == "$ref" || key == "$dynamicRef" => Some(target).filter(|it| !it.starts_with('#')),
            _ => reference(value),
        }),
        Value::Array(items) => items.iter().find_map(reference),
        _ => None,
    }
}

/// A name that a server gave, as a problem shows it.
fn shown(name: &str) -> String {
    format!("`{}`", text::one_line(text::head(name, 2 * MAX_NAME)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(items: Value) -> Listing {
        Listing::of("s", items.as_array().unwrap())
    }

    #[test]
    fn a_name_fits_every_provider_and_stays_unique() {
        assert_eq!(wire_name("git", "log"), "mcp__git__log");
        assert_eq!(wire_name("git", "a b/ü"), "mcp__git__a_b__");
        let (one, two) = (wire_name("git", &"x".repeat(80)), wire_name("git", &"x".repeat(81)));
        assert_eq!((one.len(), two.len()), (64, 64));
        assert_ne!(one, two);
    }

    #[test]
    fn a_tool_is_taken_as_it_is_listed() {
        let schema = json!({ "type": "object", "properties": { "a": { "type": "string" } }, "required": ["a"] });
        let listing = listing(json!([{
            "name": "echo", "description": "Says it\u{1b}[31m again.\n", "annotations": { "readOnlyHint": true },
            "inputSchema": { "$schema": "x", "type": "object", "properties": { "a": { "type": "string" } }, "required": ["a"] },
        }]));
        let tool = ToolInfo {
            tool: "echo".to_owned(),
            name: "mcp__s__echo".to_owned(),
            description: "Says it[31m again.".to_owned(),
            schema,
            read_only: true,
            headers: Vec::new(),
            output_schema: None,
        };
        assert_eq!(listing, Listing { tools: vec![tool], problems: Vec::new() });
    }

    #[test]
    fn what_a_provider_would_refuse_is_repaired_or_left_out_and_said() {
        let check = |item: Value, tools: usize, problem: &str| {
            let listing = listing(json!([item]));
            assert_eq!(listing.tools.len(), tools, "{:?}", listing.problems);
            assert_eq!(listing.problems.join("; "), problem);
        };
        check(json!({ "name": "x" }), 1, "");
        check(json!({}), 0, "tool `` is left out: it has no name");
        let refuse = |schema: Value, problem: &str| {
            check(json!({ "name": "x", "inputSchema": schema }), 0, &format!("tool `x` is left out: {problem}"));
        };
        refuse(json!([]), "its schema is no object");
        refuse(json!({ "type": "string" }), "its arguments are no object");
        refuse(json!({ "properties": { "a b": {} } }), "providers refuse the argument name `a b`");
        refuse(
            json!({ "properties": { "a": { "items": [{ "$ref": "http://h/x" }] } } }),
            "its schema refers to `http://h/x`, which is not fetched",
        );
        refuse(json!({ "title": "x".repeat(MAX_SCHEMA) }), "its schema has more than 65536 bytes");
        let schema = json!({ "oneOf": [{}], "properties": { "a": { "$ref": "#/$defs/b" } } });
        let told = "tool `x`: `oneOf` at the top of its schema is dropped: providers refuse it";
        check(json!({ "name": "x", "inputSchema": schema }), 1, told);
    }

    #[test]
    fn a_tool_that_says_otherwise_what_it_does_has_another_version() {
        let version = |item: Value| listing(json!([item])).tools[0].version();
        let tool = version(json!({ "name": "x", "description": "reads" }));
        assert_eq!((tool.len(), version(json!({ "name": "y", "description": "reads" }))), (VERSION, tool.clone()));
        assert_ne!(version(json!({ "name": "x", "description": "writes" })), tool);
        assert_ne!(version(json!({ "name": "x", "description": "reads", "inputSchema": { "required": ["a"] } })), tool);
        let hint = json!({ "readOnlyHint": true });
        assert_ne!(version(json!({ "name": "x", "description": "reads", "annotations": hint })), tool);
    }

    #[test]
    fn arguments_that_are_wanted_in_headers_are_found_or_the_tool_is_left_out() {
        let tool = |properties: Value| {
            listing(json!([{ "name": "x", "inputSchema": { "type": "object", "properties": properties } }]))
        };
        let of = |kind: &str, header: &str| json!({ "type": kind, "x-mcp-header": header });
        let inner = json!({ "type": "object", "properties": { "b/c": of("integer", "Deep") } });
        let found = tool(json!({ "r": of("string", "Region"), "in": inner, "v": of("boolean", "V"), "q": {} }));
        let headers = found.tools[0].headers_of(&json!({ "r": " x", "in": { "b/c": 42 }, "v": null, "q": "no" }));
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(headers, [("Region", " x"), ("Deep", "42")]);
        let refuse = |properties: Value, problem: &str| {
            assert_eq!(tool(properties).problems, [format!("tool `x` is left out: {problem}")]);
        };
        refuse(json!({ "a": of("number", "A") }), "its argument `a` cannot be in a header");
        refuse(
            json!({ "a": of("string", "A B") }),
            "the `x-mcp-header` of its argument `a` is not the name of a header",
        );
        refuse(json!({ "a": of("string", "") }), "the `x-mcp-header` of its argument `a` is not the name of a header");
        refuse(json!({ "a": of("string", "A"), "b": of("string", "a") }), "two arguments have the header `a`");
    }

    #[test]
    fn an_output_schema_is_kept_if_it_can_be_checked() {
        let of = |schema: Value| listing(json!([{ "name": "x", "outputSchema": schema }]));
        let schema = json!({ "type": "object", "required": ["n"] });
        assert_eq!(of(schema.clone()).tools[0].output_schema, Some(schema));
        let unusable = of(json!({ "type": "thing" }));
        assert_eq!((unusable.tools.len(), &unusable.tools[0].output_schema), (1, &None));
        assert!(unusable.problems[0].starts_with("tool `x`: its results are not checked: "), "{:?}", unusable.problems);
    }

    #[test]
    fn two_tools_of_one_name_and_too_many_are_said() {
        let twice = listing(json!([{ "name": "a b" }, { "name": "a_b" }]));
        assert_eq!(twice.tools.len(), 1);
        assert_eq!(twice.problems, ["tool `a_b` is left out: another tool has the same name"]);
        let many: Vec<Value> = (0..MAX_TOOLS + 1).map(|n| json!({ "name": format!("t{n}") })).collect();
        let listing = Listing::of("s", &many);
        assert_eq!(listing.tools.len(), MAX_TOOLS);
        assert_eq!(listing.problems, ["only the first 512 of 513 tools are used"]);
    }
}
