//! The tools of a request as a model sees them, rendered once.
//!
//! [`ToolSpecs`] never changes: a request with other tools has another one, and its digest says so. Each wire format renders it
//! once, with the first request that needs it, and all requests of all sessions with these tools send the same bytes.
//! Deliberately absent: what the tools do.

use std::fmt::Write as _;
use std::sync::{LazyLock, OnceLock};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::super::kind::ProviderKind;
use super::super::wire;

/// A tool as the model sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// The name that the model calls it by.
    pub name: String,
    /// The description that tells the model when and how to call it.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
}

/// The parts of a tool as JSON, without NUL: what a wire format writes it down from.
pub(in super::super) struct ToolJson {
    /// The name, a string in quotes.
    pub(in super::super) name: String,
    /// The description, likewise.
    pub(in super::super) description: String,
    /// The schema of the arguments, an object.
    pub(in super::super) schema: String,
}

impl ToolJson {
    fn of(spec: &ToolSpec) -> Self {
        let text = |text: &str| Value::from(wire::without_nul(text)).to_string();
        Self {
            name: text(&spec.name),
            description: text(&spec.description),
            schema: wire::without_nul_in(&spec.input_schema).to_string(),
        }
    }
}

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
    /// JSON objects with commas between them, by [`ProviderKind`].
    rendered: [OnceLock<String>; ProviderKind::ALL.len()],
}

impl ToolSpecs {
    /// These tools, in this order.
    pub fn new(specs: Vec<ToolSpec>) -> Self {
        let size = |spec: &ToolSpec| spec.name.len() + spec.description.len() + wire::json_size(&spec.input_schema);
        let mut specs = Self { sizes: specs.iter().map(size).collect(), specs, ..Self::default() };
        let mut digest = String::new();
        for byte in Sha256::digest(specs.written(canonical)) {
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

    /// The tools as JSON objects with commas between them, each as `write` writes it; rendered once for each kind.
    pub(in super::super) fn rendered(&self, kind: ProviderKind, write: fn(&ToolJson) -> String) -> &str {
        // There is one for each kind.
        let Some(cell) = self.rendered.get(kind as usize) else { return "" };
        cell.get_or_init(|| self.written(write))
    }

    fn written(&self, write: fn(&ToolJson) -> String) -> String {
        let mut all = String::new();
        for spec in &self.specs {
            if !all.is_empty() {
                all.push(',');
            }
            all.push_str(&write(&ToolJson::of(spec)));
        }
        all
    }
}

/// A tool in the form that the digest is made of; stored digests depend on it.
fn canonical(tool: &ToolJson) -> String {
    let ToolJson { name, description, schema } = tool;
    format!(r#"{{"name":{name},"description":{description},"input_schema":{schema}}}"#)
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
    fn tools_are_json_without_nul_and_rendered_once_for_each_kind() {
        let specs = specs(&["one", "two"]);
        let list = |text: &str| -> Value { serde_json::from_str(&format!("[{text}]")).unwrap() };
        let (description, schema) = ("does \"two\"\u{fffd}", json!({"type": "object", "a": "\u{fffd}"}));
        let expect = json!({"name": "two", "description": description, "input_schema": schema});
        assert_eq!(list(specs.rendered(ProviderKind::Anthropic, canonical))[1], expect);
        let name = |tool: &ToolJson| tool.name.clone();
        assert_eq!(specs.rendered(ProviderKind::Gemini, name), "\"one\",\"two\"");
        assert_eq!(specs.rendered(ProviderKind::Gemini, canonical), "\"one\",\"two\"");
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
