//! The types of the client libraries in `contrib`, made from the schema; a test compares the two.
//!
//! Both libraries have the same types under the same names: an object, a union of objects (one for each kind), words, or a name
//! for another type. Variants that stand for what a client does not know are left out, so that a program can tell kinds apart;
//! at run time it skips them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

/// Between these lines of a library its types stand; a comment sign of the language comes before each.
const MARKS: [&str; 2] = [" types: begin (made from the schema)\n", " types: end\n"];

/// Words that no field of a class of Python can have as its name; of these the protocol has one.
const RESERVED: [&str; 1] = ["from"];

/// A field of an object.
struct Field {
    name: String,
    kind: Value,
    required: bool,
}

/// What a type is.
enum Shape {
    Object(Vec<Field>),
    Union(Vec<(String, String, Vec<Field>)>),
    Other,
}

/// A language that the types are written in.
#[derive(Clone, Copy, PartialEq)]
enum Language {
    Python,
    TypeScript,
}

struct Types {
    schema: Value,
    /// The name in the libraries of each type of the schema that is not the same in both.
    renamed: BTreeMap<String, String>,
}

impl Types {
    /// Gives params and results of one method alone the name of their method: there are seven types `List`.
    fn new() -> Self {
        let schema = super::protocol();
        let text = schema["$defs"].to_string();
        let mut renamed = BTreeMap::new();
        for (method, types) in methods(&schema) {
            for (what, suffix) in [("params", "Params"), ("result", "Result")] {
                let Some(name) = target(&types[what]) else { continue };
                let used = methods(&schema).flat_map(|(_, types)| [&types["params"], &types["result"]]);
                let here = used.filter(|used| target(used) == Some(name)).count();
                // Whole lines name all params and results too, each once.
                let elsewhere = text.matches(&format!("\"#/$defs/{name}\"")).count();
                if here == 1 && elsewhere <= 1 {
                    renamed.insert(name.to_owned(), format!("{}{suffix}", pascal(method)));
                }
            }
        }
        Self { schema, renamed }
    }

    fn def(&self, name: &str) -> &Value {
        &self.schema["$defs"][name]
    }

    fn name<'a>(&'a self, name: &'a str) -> &'a str {
        self.renamed.get(name).map_or(name, String::as_str)
    }

    /// All fields of an object: those of the type that it extends, its own, and those of its variants.
    fn fields(&self, schema: &Value, always: bool) -> Vec<Field> {
        let mut fields = target(schema).map_or_else(Vec::new, |name| self.fields(self.def(name), always));
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        for (name, kind) in schema["properties"].as_object().into_iter().flatten() {
            let required = always && required.contains(&Value::from(name.as_str()));
            fields.push(Field { name: name.clone(), kind: kind.clone(), required });
        }
        for variant in schema["anyOf"].as_array().into_iter().flatten() {
            fields.extend(self.fields(variant, false));
        }
        let mut seen = BTreeSet::new();
        fields.retain(|field| seen.insert(field.name.clone()));
        fields
    }

    fn shape(&self, name: &str) -> Shape {
        let schema = self.def(name);
        let variants = schema["oneOf"].as_array().cloned().unwrap_or_default();
        let tag = |variant: &Value| {
            let tagged = ["kind", "type"].iter().find_map(|tag| variant["properties"][*tag]["const"].as_str());
            tagged.map(str::to_owned)
        };
        if variants.iter().any(|variant| tag(variant).is_some()) {
            let variants = variants.iter().filter_map(|variant| {
                let mut fields = self.fields(variant, true);
                fields.extend(self.fields(&without_variants(schema), true));
                Some((format!("{}{name}", pascal(&tag(variant)?)), about(variant), fields))
            });
            return Shape::Union(variants.collect());
        }
        if schema["properties"].is_object() || (schema["type"] == "object" && schema["anyOf"].is_array()) {
            Shape::Object(self.fields(schema, true))
        } else {
            Shape::Other
        }
    }

    /// A type as an expression of the language.
    fn expression(&self, schema: &Value, language: Language) -> String {
        let python = language == Language::Python;
        if let Some(name) = target(schema) {
            return self.name(name).to_owned();
        }
        if let Some(word) = schema.get("const") {
            return if python { format!("Literal[{word}]") } else { word.to_string() };
        }
        let variants = ["anyOf", "oneOf"].iter().find_map(|key| schema[*key].as_array());
        if let Some(variants) = variants {
            let words: Vec<String> = variants.iter().filter_map(|it| it.get("const").map(Value::to_string)).collect();
            let open = variants.iter().any(|it| !it["not"].is_null());
            let mut types: Vec<String> = Vec::new();
            if python && !words.is_empty() {
                types.push(format!("Literal[{}]", words.join(", ")));
            }
            let rest = variants.iter().filter(|it| (it.get("const").is_none() || !python) && it["not"].is_null());
            types.extend(rest.map(|it| self.expression(it, language)));
            if open {
                // Completion offers the known words, and any other fits.
                types.push(if python { "str" } else { "(string & {})" }.to_owned());
            }
            return types.join(" | ");
        }
        if let Some(kinds) = schema["type"].as_array() {
            let one = |kind: &Value| {
                let mut schema = schema.clone();
                schema["type"] = kind.clone();
                self.expression(&schema, language)
            };
            return kinds.iter().map(one).collect::<Vec<_>>().join(" | ");
        }
        match (schema["type"].as_str(), python) {
            (Some("array"), true) => format!("list[{}]", self.expression(&schema["items"], language)),
            (Some("array"), false) => format!("Array<{}>", self.expression(&schema["items"], language)),
            (Some("object"), _) => {
                let values = &schema["additionalProperties"];
                let any = if python { "Any" } else { "unknown" };
                let values = if values.is_object() { self.expression(values, language) } else { any.to_owned() };
                if python { format!("dict[str, {values}]") } else { format!("Record<string, {values}>") }
            }
            (Some("string"), true) => "str".to_owned(),
            (Some("integer"), true) => "int".to_owned(),
            (Some("number"), true) => "float".to_owned(),
            (Some("boolean"), true) => "bool".to_owned(),
            (Some("null"), true) => "None".to_owned(),
            (Some("integer"), false) => "number".to_owned(),
            (Some(plain), false) => plain.to_owned(),
            (_, true) => "Any".to_owned(),
            (_, false) => "unknown".to_owned(),
        }
    }

    /// The types that methods and notifications name, directly or through others.
    fn reachable(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut open: Vec<&Value> = methods(&self.schema).map(|(_, types)| types).collect();
        open.push(&self.schema["notifications"]);
        while let Some(next) = open.pop() {
            match next {
                Value::Object(fields) => {
                    open.extend(fields.values());
                    if let Some(name) = target(next).filter(|name| found.insert((*name).to_owned())) {
                        open.push(self.def(name));
                    }
                }
                Value::Array(items) => open.extend(items),
                _ => {}
            }
        }
        found
    }

    fn all(&self, language: Language) -> String {
        let mut text = String::new();
        for name in self.reachable() {
            let (known, about) = (self.name(&name), about(self.def(&name)));
            match self.shape(&name) {
                Shape::Object(fields) => text.push_str(&self.object(known, &about, &fields, language)),
                Shape::Union(variants) => {
                    for (variant, about, fields) in &variants {
                        text.push_str(&self.object(variant, about, fields, language));
                    }
                    let names: Vec<&str> = variants.iter().map(|(name, ..)| name.as_str()).collect();
                    text.push_str(&alias(known, &about, &names.join(" | "), language));
                }
                Shape::Other => {
                    text.push_str(&alias(known, &about, &self.expression(self.def(&name), language), language));
                }
            }
        }
        text.push_str(&self.methods(language));
        text
    }

    fn object(&self, name: &str, about: &str, fields: &[Field], language: Language) -> String {
        let kind = |field: &Field| self.expression(&field.kind, language);
        let mut text = match language {
            Language::TypeScript => format!("/** {about} */\nexport interface {name} {{\n"),
            Language::Python => format!("class {name}(TypedDict):\n    \"\"\"{about}\"\"\"\n\n"),
        };
        let reserved = fields.iter().any(|field| RESERVED.contains(&field.name.as_str()));
        if language == Language::Python && reserved {
            text = format!("# {about}\n{name} = TypedDict(\"{name}\", {{\n");
        }
        for field in fields {
            let (Field { name, required, .. }, kind) = (field, kind(field));
            let line = match (language, required) {
                (Language::TypeScript, _) => {
                    let about = self::about(&field.kind);
                    let about = if about.is_empty() { about } else { format!("  /** {about} */\n") };
                    let mark = if *required { "" } else { "?" };
                    format!("{about}  {name}{mark}: {kind};")
                }
                (_, true) if reserved => format!("    \"{name}\": \"{}\",", kind.replace('"', "'")),
                (_, false) if reserved => format!("    \"{name}\": \"NotRequired[{}]\",", kind.replace('"', "'")),
                (_, true) => format!("    {name}: {kind}"),
                (_, false) => format!("    {name}: NotRequired[{kind}]"),
            };
            text.push_str(&line);
            text.push('\n');
        }
        text.push_str(match (language, reserved) {
            (Language::TypeScript, _) => "}\n\n",
            (_, true) => "})\n\n\n",
            (_, false) => "\n\n",
        });
        text
    }

    /// Each method with its params and result, and the codes of errors.
    fn methods(&self, language: Language) -> String {
        let mut text = String::new();
        let errors: Vec<(i64, &str)> = self.schema["errors"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(code, name)| Some((code.parse().ok()?, name.as_str()?)))
            .collect();
        let keyed: Vec<String> = methods(&self.schema)
            .filter(|(_, types)| self.fields(&types["params"], true).iter().any(|field| field.name == "key"))
            .map(|(method, _)| format!("\"{method}\""))
            .collect();
        match language {
            Language::TypeScript => {
                text.push_str("/** Each method with its params and its result. */\nexport interface Methods {\n");
                for (method, types) in methods(&self.schema) {
                    let [params, result] = ["params", "result"].map(|what| self.expression(&types[what], language));
                    let _whole = writeln!(text, "  \"{method}\": {{ params: {params}; result: {result} }};");
                }
                text.push_str("}\n\n/** The names of errors. */\nexport const ERRORS = {\n");
                errors.iter().for_each(|(code, name)| {
                    let _whole = writeln!(text, "  [{code}]: \"{name}\",");
                });
                text.push_str("} as const;\n\n/** Methods that take an idempotency key. */\n");
                let _whole =
                    writeln!(text, "const KEYED: ReadonlySet<string> = new Set([\n  {},\n]);", keyed.join(",\n  "));
            }
            Language::Python => {
                for (code, name) in errors {
                    let _whole = write!(text, "class {name}Error(LingerError):\n    code = {code}\n\n\n");
                }
                text.push_str("# Methods that take an idempotency key.\n");
                let _whole = write!(text, "KEYED = frozenset({{\n    {},\n}})\n\n\n", keyed.join(",\n    "));
                text.push_str("class Methods:\n    \"\"\"Each method with its params and its result.\"\"\"\n\n");
                text.push_str("    async def call(self, method: str, params: Any = None) -> Any:\n        raise NotImplementedError\n");
                for (method, types) in methods(&self.schema) {
                    let result = self.expression(&types["result"], language);
                    let (name, none) = (method.replace('/', "_"), self.fields(&types["params"], true).is_empty());
                    let params = self.expression(&types["params"], language);
                    let taken = if none { String::new() } else { format!(", **params: Unpack[{params}]") };
                    let given = if none { "" } else { ", params" };
                    let _whole = write!(
                        text,
                        "\n    async def {name}(self{taken}) -> {result}:\n        result: {result} = await self.call(\"{method}\"{given})\n        return result\n"
                    );
                }
            }
        }
        text
    }
}

fn alias(name: &str, about: &str, kind: &str, language: Language) -> String {
    match language {
        Language::TypeScript => format!("/** {about} */\nexport type {name} = {kind};\n\n"),
        // In quotes: what it names may come later.
        Language::Python => format!("{name}: TypeAlias = \"{}\"\n\n\n", kind.replace('"', "'")),
    }
}

fn methods(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["methods"].as_object().into_iter().flatten()
}

/// The type that a schema refers to.
fn target(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.rsplit('/').next()
}

fn without_variants(schema: &Value) -> Value {
    let mut schema = schema.clone();
    schema.as_object_mut().map(|fields| fields.remove("oneOf"));
    schema
}

/// `session/prompt` and `text_delta` as names of types.
fn pascal(name: &str) -> String {
    let words = name.split(['/', '_']).map(|word| {
        let (first, rest) = word.split_at(1);
        format!("{}{rest}", first.to_uppercase())
    });
    words.collect()
}

/// What its doc comment says, on one line, as a comment of either language may have it.
fn about(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default().replace('\n', " ");
    text.replace("*/", "* /").replace('\\', "\\\\").replace('"', "'")
}

#[track_caller]
fn check(path: &str, sign: &str, language: Language) {
    let path = format!("{}/../contrib/{path}", env!("CARGO_MANIFEST_DIR"));
    let library = std::fs::read_to_string(&path).unwrap_or_default();
    let [begin, end] = MARKS.map(|mark| format!("{sign}{mark}"));
    let (before, rest) = library.split_once(&begin).expect("types begin");
    let (shown, after) = rest.split_once(&end).expect("types end");
    let made = format!("\n{}\n", Types::new().all(language).trim_end());
    let made = format!("{made}\n");
    if std::env::var_os("UPDATE_DOCUMENTS").is_some() {
        std::fs::write(path, format!("{before}{begin}{made}{end}{after}")).expect("the library can be written");
        return;
    }
    assert!(shown == made, "the types are old: `UPDATE_DOCUMENTS=1 cargo test -p linger-protocol clients` writes them");
}

#[test]
fn the_types_of_the_python_client_are_those_of_the_schema() {
    check("python/linger.py", "#", Language::Python);
}

#[test]
fn the_types_of_the_typescript_client_are_those_of_the_schema() {
    check("typescript/linger.ts", "//", Language::TypeScript);
}
