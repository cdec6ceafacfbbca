//! The tables of fields in `protocol/README.md`, made from the schema; a test compares the two.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

/// Between these lines of the document the tables stand.
const MARKS: [&str; 2] = ["<!-- tables: begin -->\n", "<!-- tables: end -->\n"];

/// Writes tables, and collects the types that they name.
struct Tables<'a> {
    defs: &'a Value,
    text: String,
    named: BTreeSet<String>,
}

impl Tables<'_> {
    /// The type that a schema refers to; absent if it is written out in place.
    fn target(&self, schema: &Value) -> Option<(String, &Value)> {
        let name = schema["$ref"].as_str()?.rsplit('/').next()?;
        Some((name.to_owned(), &self.defs[name]))
    }

    /// A type as it is named in a table.
    fn type_of(&mut self, schema: &Value) -> String {
        if let Some((name, target)) = self.target(schema) {
            if target["type"] == "string" && target["enum"].is_null() {
                return "string".to_owned();
            }
            self.named.insert(name.clone());
            return format!("[{name}](#{})", name.to_lowercase());
        }
        let variants = schema["anyOf"].as_array().cloned().unwrap_or_default();
        if !variants.is_empty() {
            let types = variants.iter().filter(|it| it["type"] != "null").map(|it| self.type_of(it));
            return types.collect::<Vec<_>>().join(" or ");
        }
        let of = |types: &Value| types.as_array().map_or(types.clone(), |types| types[0].clone());
        match of(&schema["type"]).as_str() {
            Some("array") => format!("list of {}", self.type_of(&schema["items"])),
            Some("object") if schema["additionalProperties"].is_object() => {
                format!("object of {}", self.type_of(&schema["additionalProperties"]))
            }
            Some(plain) => plain.to_owned(),
            None => "any".to_owned(),
        }
    }

    /// A table of the fields of an object; nothing if it has none.
    fn fields(&mut self, title: &str, schema: &Value) {
        let schema = self.target(schema).map_or(schema.clone(), |(_, target)| target.clone());
        let rows = self.rows(&schema, true);
        if !rows.is_empty() {
            self.head(title);
            rows.iter().for_each(|row| self.row(row));
        }
    }

    /// A row for each field, then for those that one of several variants has.
    fn rows(&mut self, schema: &Value, always: bool) -> Vec<String> {
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let mut rows = Vec::new();
        let fields = schema["properties"].as_object().into_iter().flatten();
        // The name of a variant is the head of its table.
        for (name, field) in fields.filter(|(_, field)| field["const"].is_null()) {
            let optional = if always && required.contains(&Value::from(name.as_str())) { "" } else { "?" };
            let kind = self.type_of(field);
            rows.push(format!("`{name}`{optional} | {kind} | {}", about(field)));
        }
        for variant in ["anyOf", "oneOf"].iter().flat_map(|key| schema[key].as_array().into_iter().flatten()) {
            let variant = self.target(variant).map_or(variant, |(_, target)| target).clone();
            rows.extend(self.rows(&variant, false));
        }
        rows
    }

    fn head(&mut self, title: &str) {
        self.text.push_str(&format!("\n| {title} | type | |\n|---|---|---|\n"));
    }

    fn row(&mut self, cells: &str) {
        let end = if cells.ends_with(' ') { "|" } else { " |" };
        // A string takes all that is written.
        let _whole = writeln!(self.text, "| {cells}{end}");
    }

    /// A method: its fields, or that there are none; a result that is a list shows one row.
    fn method(&mut self, name: &str, params: &Value, result: &Value) {
        self.text.push_str(&format!("\n### {name}\n"));
        self.fields("params", params);
        match result["type"].as_str() {
            Some("array") => self.fields("each row of the result", &result["items"]),
            _ => self.fields("result", result),
        }
    }

    /// A type: its fields, its words, or its variants with theirs.
    fn named_type(&mut self, name: &str) {
        let schema = self.defs[name].clone();
        self.text.push_str(&format!("\n#### {name}\n\n{}\n", about(&schema)));
        let variants = |key: &str| schema[key].as_array().cloned().unwrap_or_default();
        match (variants("oneOf"), variants("anyOf")) {
            (words, _) if words.iter().any(|it| it["const"].is_string()) => self.words(&words),
            (variants, _) if !variants.is_empty() => variants.iter().for_each(|variant| {
                if let Some(tag) = variant["properties"]["type"]["const"].as_str() {
                    self.fields(&format!("`{tag}`"), variant);
                }
            }),
            (_, either) if schema["properties"].is_null() => {
                let kinds: Vec<String> =
                    either.iter().map(|it| format!("{}: {}", self.type_of(it), about(it))).collect();
                self.text.push_str(&format!("\n- {}\n", kinds.join("\n- ")));
            }
            _ => self.fields("field", &schema),
        }
    }

    fn words(&mut self, words: &[Value]) {
        self.text.push_str("\n| value | means |\n|---|---|\n");
        for word in words {
            let name = word["const"].as_str().map_or_else(|| "any other".to_owned(), |name| format!("`{name}`"));
            self.row(&format!("{name} | {}", about(word)));
        }
    }
}

/// What its doc comment says, on one line.
fn about(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    text.replace('\n', " ").replace('|', "\\|")
}

/// All tables: each method, and then each type that one of them names.
fn tables() -> String {
    let schema = super::protocol();
    let mut tables = Tables { defs: &schema["$defs"], text: String::new(), named: BTreeSet::new() };
    let Some(methods) = schema["methods"].as_object() else { return String::new() };
    for (name, method) in methods {
        tables.method(name, &method["params"], &method["result"]);
    }
    tables.text.push_str("\n### Types\n");
    let mut done = BTreeSet::new();
    while let Some(name) = tables.named.difference(&done).next().cloned() {
        tables.named_type(&name);
        done.insert(name);
    }
    tables.text.push('\n');
    tables.text
}

#[test]
fn the_tables_of_the_document_are_those_of_the_types() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    let document = std::fs::read_to_string(path).unwrap_or_default();
    let (before, rest) = document.split_once(MARKS[0]).expect("tables begin");
    let (shown, after) = rest.split_once(MARKS[1]).expect("tables end");
    let made = tables();
    if std::env::var_os("UPDATE_DOCUMENTS").is_some() {
        let [begin, end] = MARKS;
        std::fs::write(path, format!("{before}{begin}{made}{end}{after}")).expect("the document can be written");
        return;
    }
    assert!(shown == made, "the tables are old: `UPDATE_DOCUMENTS=1 cargo test -p linger-protocol tables` writes them");
}

#[test]
fn what_a_build_does_not_know_is_no_word_of_the_wire() {
    fn words(at: &Value, found: &mut Vec<String>) {
        match at {
            Value::Object(fields) => {
                let of = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
                if of("const") == "unknown" && of("description").contains("does not know") {
                    found.push(of("description").to_owned());
                }
                fields.values().for_each(|inner| words(inner, found));
            }
            Value::Array(items) => items.iter().for_each(|inner| words(inner, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    words(&super::protocol(), &mut found);
    assert_eq!(found, Vec::<String>::new(), "`transform = crate::schema::open` is missing");
}
