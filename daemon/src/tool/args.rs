//! Arguments: from JSON to a tool's own struct, and the schema that tells a model about it.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::invalid::Invalid;
use super::text;

/// The longest error about arguments that do not fit, in bytes: a sentence and a value.
const PROBLEM_MAX: usize = 400;

/// The arguments in `input`; the error names the one that does not fit.
pub(super) fn parse<T: DeserializeOwned>(input: &Value) -> Result<T, Invalid> {
    serde_path_to_error::deserialize(input).map_err(|error| {
        let inner = cut(error.inner().to_string());
        match error.path().to_string().as_str() {
            // An unknown or missing field is named in the message itself.
            path if path == "." || inner.contains(&format!("field `{path}`")) => Invalid(inner),
            path => Invalid(format!("`{}`: {inner}", cut(path.to_owned()))),
        }
    })
}

/// A problem that is long, for it repeats the argument, without its end.
fn cut(problem: String) -> String {
    match text::head(&problem, PROBLEM_MAX) {
        all if all.len() == problem.len() => problem,
        head => format!("{head}…"),
    }
}

/// The JSON Schema of `T`, without what no model needs: it is sent with every request.
pub(super) fn schema<T: JsonSchema>() -> Value {
    let mut schema = schemars::schema_for!(T).to_value();
    if let Some(object) = schema.as_object_mut() {
        object.retain(|key, _| !matches!(key.as_str(), "$schema" | "title" | "description"));
        for property in
            object.get_mut("properties").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut)
        {
            slim(property);
        }
    }
    schema
}

/// An optional argument is one that is not required; `null` and number formats are the derive's own additions.
fn slim(property: &mut Value) {
    if let Some(object) = property.as_object_mut() {
        object.retain(|key, _| !matches!(key.as_str(), "format" | "minimum" | "default"));
        let single = object.get("type").and_then(Value::as_array).and_then(|types| types.first()).cloned();
        if let Some(single) = single {
            object.insert("type".to_owned(), single);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::tool::builtin;
    use crate::tool::set::ToolSet;
    use crate::tool::tests::test_workspace;

    #[test]
    fn bad_arguments_are_named() {
        let (_dir, workspace) = test_workspace();
        let check = |tool: &str, input: serde_json::Value, expect: &str| {
            let tools = ToolSet::new(builtin());
            let error = tools.get(tool).unwrap().prepare(&input, &workspace).err().unwrap();
            assert_eq!(error.0, expect);
        };
        check("read", json!({"pth": "x"}), "unknown field `pth`, expected one of `path`, `offset`, `limit`");
        check("read", json!({}), "missing field `path`");
        check("read", json!({"path": 5}), "`path`: invalid type: integer `5`, expected a string");
        check("read", json!({"path": "x", "limit": "5"}), "`limit`: invalid type: string \"5\", expected u64");
        check("read", json!({"path": "x", "offset": 0}), "`offset` counts from 1");
        check("read", json!({"path": ""}), "`path` is empty");
        check("read", json!({"path": "a\0b"}), "`path` has a NUL in it");
        check("ls", json!("src"), "invalid type: string \"src\", expected an object");
        check("bash", json!({"command": " "}), "`command` is empty");
        check("bash", json!({"command": "ls", "timeout_s": 3601}), "`timeout_s` must be from 1 to 3600");
        check("edit", json!({"path": "x", "old": "", "new": "b"}), "`old` is empty; use write to make a file");
        check("edit", json!({"path": "x", "old": "a", "new": "a"}), "`old` and `new` are the same");
        check("glob", json!({"pattern": "/etc/*"}), "`pattern` is relative; give the directory as `path`");
        check(
            "glob",
            json!({"pattern": "a{b"}),
            "error parsing glob 'a{b': unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)",
        );
    }
}
