//! The tools that a server lists, made fit for providers: names, descriptions, schemas.
//!
//! Pure. What cannot be made fit is left out, and a problem says so.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::schema::mended;
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

/// Lost parts of a mended schema that its problem names, at most.
const MAX_LOST: usize = 5;

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
            let name = match item.get("name") {
                Some(Value::Number(number)) => number.to_string(),
                name => name.and_then(Value::as_str).unwrap_or_default().to_owned(),
            };
            match tool(&name, item, &mut listing.problems) {
                Ok(tool) => match listing.tools.iter().find(|known| known.tool == tool.tool) {
                    // A server may list a page twice.
                    Some(known) if *known == tool => {}
                    Some(_) => listing.problem(&name, "is left out: another tool has the same name"),
                    None => listing.tools.push(tool),
                },
                Err(why) => listing.problem(&name, &format!("is left out: {why}")),
            }
        }
        if items.len() > MAX_TOOLS {
            listing.problems.push(format!("only the first {MAX_TOOLS} of {} tools are used", items.len()));
        }
        listing.problems = once(listing.problems);
        listing.renamed(server)
    }

    /// The same tools of a server with another name.
    pub(super) fn renamed(mut self, server: &str) -> Self {
        let is_exact = |tool: &ToolInfo| is_plain(&tool.tool);
        let mut taken: BTreeSet<String> =
            self.tools.iter().filter(|tool| is_exact(tool)).map(|tool| wire_name(server, &tool.tool)).collect();
        for tool in &mut self.tools {
            tool.name = wire_name(server, &tool.tool);
            if !is_exact(tool) && !taken.insert(tool.name.clone()) {
                tool.name = hashed_name(server, &tool.tool);
            }
        }
        self
    }

    fn problem(&mut self, tool: &str, what: &str) {
        self.problems.push(format!("tool {} {what}", shown(tool)));
    }
}

/// Each text once, in order.
fn once(texts: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    texts.into_iter().filter(|text| seen.insert(text.clone())).collect()
}

/// The letters of names that all providers take.
fn fits(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Whether a tool's own name can be a part of the name for models as it is.
fn is_plain(tool: &str) -> bool {
    tool.chars().all(fits)
}

/// The name of a tool for models; at most [`MAX_NAME`] letters, digits, `_` and `-`. One of which nothing would be left has a hash.
pub(super) fn wire_name(server: &str, tool: &str) -> String {
    let name = readable_name(server, tool);
    let says_nothing = !is_plain(tool) && !tool.chars().any(|c| c.is_ascii_alphanumeric());
    if name.len() <= MAX_NAME && !says_nothing { name } else { hashed_name(server, tool) }
}

fn readable_name(server: &str, tool: &str) -> String {
    format!("{MCP}{server}__").chars().chain(tool.chars().map(|c| if fits(c) { c } else { '_' })).collect()
}

/// The name for models with a hash of the tool's own name, so that it is like no other.
fn hashed_name(server: &str, tool: &str) -> String {
    let hash = Sha256::digest(tool.as_bytes());
    let hash: String = hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{}_{hash}", text::head(&readable_name(server, tool), MAX_NAME - hash.len() - 1))
}

/// A tool as it is listed; its name for models is due.
fn tool(name: &str, item: &Value, problems: &mut Vec<String>) -> Result<ToolInfo, String> {
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
    let description = described(description);
    let output_schema = item.get("outputSchema").filter(|schema| !schema.is_null()).cloned().map(usable);
    let output_schema = output_schema.filter(|schema| match check(schema) {
        Ok(()) => true,
        Err(why) => {
            let told = format!("its results are not checked: the output schema is unusable: {why}");
            problems.push(format!("tool {}: {told}", shown(name)));
            false
        }
    });
    Ok(ToolInfo { tool: name.to_owned(), name: String::new(), description, schema, read_only, headers, output_schema })
}

/// An output schema, mended where it is none as it is: with `null` for what is absent.
fn usable(schema: Value) -> Value {
    match schema {
        Value::Object(fields) if check(&Value::Object(fields.clone())).is_err() => {
            let (mended, lost) = mended(fields.clone());
            Value::Object(if lost.is_empty() { mended } else { fields })
        }
        other => other,
    }
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
    let size = schema.to_string().len();
    let object = match schema {
        Value::Null => Map::new(),
        // Some languages write an empty object so.
        Value::Array(items) if items.is_empty() => Map::new(),
        Value::Object(fields) => fields.clone(),
        _ => return Err("its schema is no object".to_owned()),
    };
    if size > MAX_SCHEMA {
        return Err(format!("its schema has more than {MAX_SCHEMA} bytes"));
    }
    if let Some(elsewhere) = reference(schema) {
        return Err(format!("its schema refers to {}, which is not fetched", shown(elsewhere)));
    }
    let (mut object, lost) = mended(object);
    if !lost.is_empty() {
        let lost: Vec<String> = lost.into_iter().take(MAX_LOST).collect();
        changed(format!("its schema is mended, because providers would refuse it: {}", lost.join(", ")));
    }
    let is_object = match object.get("type") {
        None => true,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        Some(kind) => kind == "object",
    };
    if !is_object {
        return Err("its arguments are no object".to_owned());
    }
    object.insert("type".to_owned(), "object".into());
    // No provider takes these at the top.
    for key in ["anyOf", "oneOf", "allOf", "not", "enum"] {
        if object.remove(key).is_some() {
            changed(format!("`{key}` at the top of its schema is dropped: providers refuse it"));
        }
    }
    let properties = object.entry("properties").or_insert_with(|| json!({}));
    let Some(properties) = properties.as_object() else { return Err("its properties are no object".to_owned()) };
    let known: BTreeSet<String> = properties.keys().cloned().collect();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let bad = |name: &&String| name.is_empty() || name.len() > MAX_ARGUMENT || !name.chars().all(is_name);
    if let Some(name) = properties.keys().find(bad) {
        return Err(format!("providers refuse the argument name {}", shown(name)));
    }
    if let Some(Value::Array(required)) = object.get_mut("required") {
        required.retain(|name| name.as_str().is_some_and(|name| known.contains(name)));
    }
    Ok(Value::Object(object))
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
    fn tools_whose_names_look_alike_are_all_there_in_any_order() {
        let names = |given: &[&str]| {
            let items = given.iter().map(|name| json!({ "name": name })).collect();
            let listing = listing(items);
            assert_eq!(listing.problems, [""; 0], "{given:?}");
            let names: BTreeSet<String> = listing.tools.iter().map(|tool| tool.name.clone()).collect();
            assert!(names.iter().all(|name| name.len() <= MAX_NAME && name.chars().all(fits)), "{names:?}");
            assert_eq!(names.len(), given.len(), "{names:?}");
            names
        };
        names(&["поиск", "обнов", "👍", "..."]);
        let one = names(&["a.b", "a_b", "a b", "a/b"]);
        assert!(one.contains("mcp__s__a_b"));
        let other = names(&["a_b", "a b", "a.b", "a/b"]);
        assert!(other.contains("mcp__s__a_b"));
        assert_eq!(listing(json!([{ "name": "a b" }])).tools[0].name, "mcp__s__a_b");
    }

    #[test]
    fn an_empty_object_may_be_written_as_a_list_or_null() {
        for (schema, annotations) in [
            (json!([]), json!([])),
            (json!(null), json!(null)),
            (json!({ "properties": [], "required": {} }), json!({})),
        ] {
            let item = json!({ "name": "x", "inputSchema": schema, "annotations": annotations, "outputSchema": null, "description": null });
            let listing = listing(json!([item]));
            assert_eq!(listing.problems, [""; 0], "{item}");
            assert_eq!(listing.tools[0].schema, json!({ "type": "object", "properties": {} }), "{item}");
        }
        let nullable = listing(json!([{ "name": "x", "inputSchema": { "type": ["object", "null"] } }]));
        assert_eq!(nullable.tools[0].schema["type"], "object");
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
        refuse(json!(["a"]), "its schema is no object");
        refuse(json!("{}"), "its schema is no object");
        refuse(json!({ "type": "string" }), "its arguments are no object");
        refuse(json!({ "properties": { "a b": {} } }), "providers refuse the argument name `a b`");
        refuse(
            json!({ "properties": { "a": { "items": [{ "$ref": "http://h/x" }] } } }),
            "its schema refers to `http://h/x`, which is not fetched",
        );
        refuse(json!({ "title": "x".repeat(MAX_SCHEMA) }), "its schema has more than 65536 bytes");
        let schema = json!({ "oneOf": [{}], "properties": { "a": { "$ref": "#/$defs/b" } }, "$defs": { "b": {} } });
        let told = "tool `x`: `oneOf` at the top of its schema is dropped: providers refuse it";
        check(json!({ "name": "x", "inputSchema": schema }), 1, told);
    }

    #[test]
    fn a_tool_that_says_otherwise_what_it_does_has_another_version() {
        let version = |item: Value| listing(json!([item])).tools[0].version();
        let tool = version(json!({ "name": "x", "description": "reads" }));
        assert_eq!((tool.len(), version(json!({ "name": "y", "description": "reads" }))), (VERSION, tool.clone()));
        assert_ne!(version(json!({ "name": "x", "description": "writes" })), tool);
        assert_ne!(
            version(json!({ "name": "x", "description": "reads", "inputSchema": { "properties": { "a": {} } } })),
            tool
        );
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
        let nulls = of(
            json!({ "type": "object", "title": null, "properties": { "n": { "type": "integer", "minimum": null } } }),
        );
        assert_eq!(
            nulls.tools[0].output_schema,
            Some(json!({ "type": "object", "properties": { "n": { "type": "integer" } } }))
        );
        let unusable = of(json!({ "type": "thing" }));
        assert_eq!((unusable.tools.len(), &unusable.tools[0].output_schema), (1, &None));
        assert!(unusable.problems[0].starts_with("tool `x`: its results are not checked: "), "{:?}", unusable.problems);
    }

    #[test]
    fn two_tools_of_one_name_and_too_many_are_said() {
        let twice = listing(json!([{ "name": "a" }, { "name": "a", "description": "another" }, { "name": "a" }]));
        assert_eq!(twice.tools.len(), 1);
        assert_eq!(twice.problems, ["tool `a` is left out: another tool has the same name"]);
        let many: Vec<Value> = (0..MAX_TOOLS + 1).map(|n| json!({ "name": format!("t{n}") })).collect();
        let listing = Listing::of("s", &many);
        assert_eq!(listing.tools.len(), MAX_TOOLS);
        assert_eq!(listing.problems, ["only the first 512 of 513 tools are used"]);
    }
}
