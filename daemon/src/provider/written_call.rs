//! Tool calls that a model wrote as text: nothing runs them, and the answer looks like one. Pure.
//!
//! Models fall back to the form of their training when a server's template has no tools, or its parser misses them.
//! Deliberately absent: reading such a call: what it means is not certain, and the model is asked to make it.

use serde_json::Value;

use super::wire;

/// How such a text begins, in lower case.
const BEGINNINGS: [&str; 24] = [
    "<tool_call",
    "<tool_use",
    "<tool>",
    "<tool ",
    "<tools>",
    "<use_tool",
    "<function_call",
    "<functioncall",
    "<function=",
    "<function ",
    "<function>",
    "<invoke",
    "<action>",
    "<minimax:tool_call",
    "<seed:tool_call",
    "<|tool",
    "<|python_",
    "<|channel|>commentary",
    "<|start|>",
    "<|plugin|>",
    "<｜tool",
    "[tool_call",
    "functions.",
    "to=functions",
];

/// How one ends that follows a sentence, in lower case.
const ENDS: [&str; 10] = [
    "</tool_call>",
    "</tool_calls>",
    "</tool_use>",
    "</tool>",
    "</function>",
    "</function_call>",
    "</function_calls>",
    "</invoke>",
    "end|>",
    "end｜>",
];

/// Fields with the name of a tool, and with its arguments.
const NAMES: [&str; 6] = ["name", "tool", "tool_name", "function", "function_name", "action"];
const ARGUMENTS: [&str; 7] = ["arguments", "parameters", "args", "input", "action_input", "params", "kwargs"];

/// Fields with calls in them.
const CALLS: [&str; 4] = ["tool_calls", "tool_call", "function_call", "function"];

/// The tool that a text calls, if it is nothing but a call, perhaps with a sentence before it. `names` are the tools that there are.
pub fn written_call<'a>(text: &str, names: &[&'a str]) -> Option<&'a str> {
    let text = text.trim();
    let body = wire::in_fence(text).map_or(text, str::trim);
    let lower = body.to_lowercase();
    let named = || names.iter().copied().find(|name| has_word(body, name));
    if body.starts_with(['{', '[']) {
        let mut values = serde_json::Deserializer::from_str(body).into_iter::<Value>();
        let whole: Option<Vec<Value>> = values.by_ref().map(Result::ok).collect();
        if let Some(called) = whole.and_then(|values| values.iter().find_map(|value| called(value, names))) {
            return Some(called);
        }
    }
    if BEGINNINGS.iter().any(|beginning| lower.starts_with(beginning)) {
        return named();
    }
    if lower.starts_with("action:") && lower.contains("action input:") {
        return named();
    }
    if let Some(name) = names.iter().copied().find(|name| is_expression(body, name) || is_element(body, name)) {
        return Some(name);
    }
    // After a sentence: a form that is not quoted.
    let at = BEGINNINGS.iter().filter_map(|beginning| lower.find(&format!("\n{beginning}"))).min()?;
    let (before, form) = (lower.get(..at)?, lower.get(at..)?);
    let is_quoted = before.matches("```").count() % 2 == 1;
    if is_quoted || !ENDS.iter().any(|end| form.ends_with(end)) {
        return None;
    }
    names.iter().copied().find(|name| has_word(form, &name.to_lowercase()))
}

/// The tool that a value calls.
fn called<'a>(value: &Value, names: &[&'a str]) -> Option<&'a str> {
    match value {
        Value::Array(items) => items.iter().find_map(|item| called(item, names)),
        Value::Object(fields) => {
            let within = CALLS.iter().filter_map(|field| fields.get(*field)).filter(|value| !value.is_string());
            if let Some(found) = within.into_iter().find_map(|value| called(value, names)) {
                return Some(found);
            }
            let name = NAMES.iter().find_map(|field| fields.get(*field)?.as_str())?;
            let has_arguments = ARGUMENTS.iter().any(|field| fields.contains_key(*field));
            let name = name.rsplit('.').next().unwrap_or(name);
            let known = names.iter().copied().find(|known| known.eq_ignore_ascii_case(name.trim()));
            known.filter(|_| has_arguments || fields.contains_key("type"))
        }
        _ => None,
    }
}

/// Whether a text is a call as a program writes it: `read(path="x")`, also in brackets.
fn is_expression(text: &str, name: &str) -> bool {
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let rest = inner.strip_prefix("functions.").unwrap_or(inner).strip_prefix(name);
    rest.is_some_and(|rest| rest.starts_with('(') && rest.ends_with(')') && (rest == "()" || rest.contains('=')))
}

/// Whether a text is an element called like the tool: `<read>…</read>`.
fn is_element(text: &str, name: &str) -> bool {
    let inner = text.strip_prefix(&format!("<{name}")).and_then(|text| text.strip_suffix(&format!("</{name}>")));
    inner.is_some_and(|inner| inner.starts_with(['>', ' ']))
}

/// Whether a name stands in a text by itself.
fn has_word(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    text.match_indices(name).any(|(at, _)| {
        let (before, after) = (text.get(..at).unwrap_or_default(), text.get(at + name.len()..).unwrap_or_default());
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOLS: [&str; 4] = ["read", "bash", "mcp__db__query", "git"];

    #[test]
    fn a_call_is_known_in_the_form_of_each_family_of_models() {
        for (text, expect) in [
            ("<tool_call>\n{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\"}}\n</tool_call>", "bash"),
            ("<tool_call><function=read><parameter=path>a</parameter></function></tool_call>", "read"),
            ("<function=bash>{\"command\": \"ls\"}</function>", "bash"),
            ("<function_calls>\n<invoke name=\"mcp__db__query\">\n</invoke>\n</function_calls>", "mcp__db__query"),
            ("{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}", "read"),
            ("```json\n{\"tool\": \"read\", \"args\": {\"path\": \"a\"}}\n```", "read"),
            ("[{\"type\": \"function\", \"function\": {\"name\": \"git\", \"arguments\": \"{}\"}}]", "git"),
            ("{\"tool_calls\": [{\"name\": \"functions.bash\", \"parameters\": {}}]}", "bash"),
            ("{\"name\":\"read\",\"input\":{}}\n{\"name\":\"read\",\"input\":{}}", "read"),
            ("[TOOL_CALLS]bash[ARGS]{\"command\": \"ls\"}", "bash"),
            ("<|python_tag|>{\"name\": \"read\", \"parameters\": {}}", "read"),
            ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>bash", "bash"),
            ("<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>{}", "read"),
            ("<|channel|>commentary to=functions.bash <|constrain|>json<|message|>{}", "bash"),
            ("functions.bash:1 {\"command\": \"ls\"}", "bash"),
            ("Action: bash\nAction Input: {\"command\": \"ls\"}", "bash"),
            ("[read(path=\"a\")]", "read"),
            ("<read><path>a</path></read>", "read"),
            ("Let me look.\n<tool_call>{\"name\": \"read\"}</tool_call>", "read"),
        ] {
            assert_eq!(written_call(text, &TOOLS), Some(expect), "{text}");
        }
    }

    #[test]
    fn an_answer_about_tools_is_an_answer() {
        for text in [
            "",
            "I read the file: it is empty.",
            "{\"name\": \"write\", \"arguments\": {}}",
            "{\"name\": \"read\", \"size\": 5}",
            "Models write `<tool_call>` before a call of read.",
            "This is how it looks:\n```\n<tool_call>{\"name\": \"read\"}</tool_call>\n```",
            "<tool_call>{\"name\": \"unknown\"}</tool_call>",
            "read(2) reads from a descriptor.",
            "<readme>bash</readme>",
            "[1, 2]",
        ] {
            assert_eq!(written_call(text, &TOOLS), None, "{text}");
        }
    }
}
