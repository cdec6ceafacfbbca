//! Forms: the fields of a JSON Schema, as people see and write them.

use serde_json::Value;

/// The name of a form's field, if it has one and that is any text.
pub(super) fn only_text(schema: &Value) -> Option<&str> {
    let fields = schema.get("properties")?.as_object()?;
    let (name, field) = fields.iter().next().filter(|_| fields.len() == 1)?;
    let is_text = field.get("type")?.as_str() == Some("string") && field.get("enum").is_none();
    is_text.then_some(name)
}

/// Whether `word` is the fields of a form with this one, in JSON.
pub(super) fn is_fields(word: &str, name: &str) -> bool {
    let fields = serde_json::from_str::<serde_json::Map<String, Value>>(word);
    fields.is_ok_and(|fields| fields.len() == 1 && fields.contains_key(name))
}

/// The fields of a form, a line each: name, kind, what it is.
pub(super) fn fields(schema: &Value) -> Vec<String> {
    let required = |name: &String| {
        let list = schema.get("required").and_then(Value::as_array);
        list.is_some_and(|list| list.iter().any(|it| it.as_str() == Some(name)))
    };
    let line = |(name, field): (&String, &Value)| {
        let text =
            |key: &str| field.get(key).and_then(Value::as_str).map(|text| format!(" {text}")).unwrap_or_default();
        // Several of a list are chosen from what its items may be.
        let choices = choices(field).or_else(|| choices(field.get("items")?)).unwrap_or_default();
        let default = field.get("default").map(|value| format!("default {value}"));
        let notes: Vec<String> = (!required(name)).then(|| "optional".to_owned()).into_iter().chain(default).collect();
        let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join(", ")) };
        format!("{name}:{}{choices}{notes}{}", text("type"), text("description"))
    };
    schema.get("properties").and_then(Value::as_object).into_iter().flatten().map(line).collect()
}

/// The values that a field may have, with their titles, if only some are left to it.
fn choices(field: &Value) -> Option<String> {
    if let Some(choices) = field.get("enum") {
        return Some(format!(" {choices}"));
    }
    let titled = field.get("oneOf").or_else(|| field.get("anyOf"))?.as_array()?;
    let one = |choice: &Value| {
        let title = choice.get("title").and_then(Value::as_str).map(|title| format!(" {title}"));
        Some(format!("{}{}", choice.get("const")?, title.unwrap_or_default()))
    };
    Some(format!(" [{}]", titled.iter().map(one).collect::<Option<Vec<_>>>()?.join(", ")))
}
