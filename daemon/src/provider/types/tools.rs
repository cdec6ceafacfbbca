//! The tools of a request as a model sees them, rendered once.
//!
//! [`ToolSpecs`] never changes: a request with other tools has another one, and its digest says so. Each wire format renders it
//! once, with the first request that needs it, and all requests of all sessions with these tools send the same bytes.
//! Deliberately absent: what the tools do.

use std::fmt::Write as _;
use std::sync::{LazyLock, OnceLock};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::super::wire;

/// A tool as the model sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it is told about it.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
}

/// The ways in which formats write a tool down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Style {
    /// Anthropic: `input_schema`.
    Messages,
    /// Chat Completions, and Ollama: a `function` with `parameters`.
    Chat,
    /// Responses: flat, with `strict`.
    Responses,
    /// Gemini: `parametersJsonSchema`.
    Gemini,
}

/// How many there are.
const STYLES: usize = 4;

/// Whether a tool is among those that a session has: `only` has names, and beginnings of names before a `*`.
pub fn is_among(only: Option<&[String]>, name: &str) -> bool {
    let is = |it: &String| it.strip_suffix('*').map_or(it == name, |start| name.starts_with(start));
    only.is_none_or(|only| only.iter().any(is))
}

/// The only tools of a session with this list; `*` is all, which is `None`.
pub fn only(named: &[String]) -> Option<Vec<String>> {
    (!named.iter().any(|it| it == "*")).then(|| named.to_vec())
}

/// Tools in a stable order.
#[derive(Debug, Default)]
pub struct ToolSpecs {
    specs: Vec<ToolSpec>,
    /// About how large each is, in bytes.
    sizes: Vec<usize>,
    digest: String,
    /// JSON objects with commas between them, by [`Style`].
    rendered: [OnceLock<String>; STYLES],
}

impl ToolSpecs {
    /// These tools, in this order.
    pub fn new(specs: Vec<ToolSpec>) -> Self {
        let size = |spec: &ToolSpec| spec.name.len() + spec.description.len() + wire::json_size(&spec.input_schema);
        let mut specs = Self { sizes: specs.iter().map(size).collect(), specs, ..Self::default() };
        let mut digest = String::new();
        for byte in Sha256::digest(specs.rendered(Style::Messages)) {
            // Writing to a string does not fail.
            let _ = write!(digest, "{byte:02x}");
        }
        specs.digest = digest;
        specs
    }

    /// No tools: a request with these is to be answered at once.
    pub fn none() -> &'static Self {
        static NONE: LazyLock<ToolSpecs> = LazyLock::new(|| ToolSpecs::new(Vec::new()));
        &NONE
    }

    /// SHA-256 of what a model is sent of them, in hexadecimal digits.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.specs.is_empty()
    }

    /// One after the other.
    pub fn iter(&self) -> std::slice::Iter<'_, ToolSpec> {
        self.specs.iter()
    }

    /// About how large each of them is in a request, in bytes.
    pub fn sizes(&self) -> impl Iterator<Item = usize> {
        self.sizes.iter().copied()
    }

    /// The tools as JSON objects with commas between them; rendered by the first who asks.
    pub(in super::super) fn rendered(&self, style: Style) -> &str {
        // There is one for each style.
        let Some(cell) = self.rendered.get(style as usize) else { return "" };
        cell.get_or_init(|| {
            let mut all = String::new();
            for spec in &self.specs {
                if !all.is_empty() {
                    all.push(',');
                }
                all.push_str(&object(style, spec));
            }
            all
        })
    }
}

/// A tool as one style writes it.
fn object(style: Style, spec: &ToolSpec) -> String {
    let text = |text: &str| Value::from(wire::without_nul(text)).to_string();
    let (name, description) = (text(&spec.name), text(&spec.description));
    let schema = wire::without_nul_in(&spec.input_schema);
    match style {
        Style::Messages => format!(r#"{{"name":{name},"description":{description},"input_schema":{schema}}}"#),
        Style::Chat => format!(
            r#"{{"type":"function","function":{{"name":{name},"description":{description},"parameters":{schema}}}}}"#
        ),
        // Where `strict` is absent the server takes it to be true, and then refuses most schemas.
        Style::Responses => format!(
            r#"{{"type":"function","name":{name},"description":{description},"parameters":{schema},"strict":false}}"#
        ),
        Style::Gemini => format!(r#"{{"name":{name},"description":{description},"parametersJsonSchema":{schema}}}"#),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn specs(names: &[&str]) -> ToolSpecs {
        let spec = |name: &&str| ToolSpec {
            name: (*name).to_owned(),
            description: format!("does \"{name}\"\0"),
            input_schema: json!({"type": "object", "a": "\0"}),
        };
        ToolSpecs::new(names.iter().map(spec).collect())
    }

    #[test]
    fn each_style_is_json_without_nul() {
        let specs = specs(&["one", "two"]);
        let list = |style| -> Value { serde_json::from_str(&format!("[{}]", specs.rendered(style))).unwrap() };
        let (said, schema) = ("does \"two\"\u{fffd}", json!({"type": "object", "a": "\u{fffd}"}));
        assert_eq!(list(Style::Messages)[1], json!({"name": "two", "description": said, "input_schema": schema}));
        let function = json!({"name": "two", "description": said, "parameters": schema});
        assert_eq!(list(Style::Chat)[1], json!({"type": "function", "function": function}));
        assert_eq!(
            list(Style::Responses)[1],
            json!({"type": "function", "name": "two", "description": said, "parameters": schema, "strict": false})
        );
        assert_eq!(list(Style::Gemini)[1]["parametersJsonSchema"], schema);
    }

    #[test]
    fn other_tools_and_another_order_have_another_digest() {
        let digest = |names: &[&str]| specs(names).digest().to_owned();
        assert_eq!(digest(&["a", "b"]), digest(&["a", "b"]));
        assert_ne!(digest(&["a", "b"]), digest(&["b", "a"]));
        assert_ne!(digest(&["a"]), digest(&["a", "b"]));
        assert_eq!(digest(&[]), ToolSpecs::none().digest());
    }
}
