//! Tools that OpenAI runs: enabling them, and reading their items.
//!
//! A call and its result are one item, which goes back unchanged, after its reasoning. Citations are in the text already, so
//! annotations do not go back.

use linger_protocol::message::{HostedPart, HostedTool};
use serde_json::{Value, json};

use super::super::hosted::{self, Hosted, text};

/// The tools of a request.
pub(super) fn tools(hosted: Hosted) -> Vec<Value> {
    let tool = |tool: HostedTool| match tool {
        HostedTool::WebSearch => json!({"type": "web_search"}),
        _ => json!({"type": "code_interpreter", "container": {"type": "auto"}}),
    };
    hosted.tools().into_iter().map(tool).collect()
}

/// The parts of items that the server sends only on request.
pub(super) fn include(hosted: Hosted) -> Vec<&'static str> {
    let name = |tool: HostedTool| match tool {
        HostedTool::WebSearch => "web_search_call.action.sources",
        _ => "code_interpreter_call.outputs",
    };
    hosted.tools().into_iter().map(name).collect()
}

/// Input and output of a tool, from an item.
pub(super) struct HostedItem {
    pub(super) tool: HostedTool,
    pub(super) call: String,
    pub(super) result: Option<(HostedPart, String)>,
    /// The item has all required fields to go back.
    pub(super) whole: bool,
}

/// Reads an item, if it is a hosted tool's.
pub(super) fn hosted_item(item: &Value) -> Option<HostedItem> {
    let failed = matches!(text(item, "/status"), "failed" | "incomplete");
    let broken = || (HostedPart::Error, hosted::excerpt(text(item, "/status")));
    let has = |name: &str| !text(item, name).trim().is_empty();
    match text(item, "/type") {
        "web_search_call" => {
            let action = item.get("action").unwrap_or(&Value::Null);
            let call = match (text(action, "/type"), action.get("queries").and_then(Value::as_array)) {
                ("open_page", _) => hosted::excerpt(text(action, "/url")),
                ("find_in_page", _) => {
                    hosted::excerpt(&format!("{} in {}", text(action, "/pattern"), text(action, "/url")))
                }
                (_, Some(queries)) if !queries.is_empty() => hosted::queries(queries.iter().filter_map(Value::as_str)),
                _ => hosted::excerpt(text(action, "/query")),
            };
            let sources = action.get("sources").and_then(Value::as_array);
            let found = || sources.map(|found| hosted::sources(found.iter().map(|found| ("", text(found, "/url")))));
            let result = if failed { Some(broken()) } else { found().map(|found| (HostedPart::Result, found)) };
            Some(HostedItem { tool: HostedTool::WebSearch, call, result, whole: has("/id") && has("/action/type") })
        }
        "code_interpreter_call" => {
            let outputs = item.get("outputs").and_then(Value::as_array);
            let logs = outputs.map(|outputs| {
                let output = |output: &Value| match text(output, "/type") {
                    "image" => "(an image)".to_owned(),
                    _ => text(output, "/logs").to_owned(),
                };
                hosted::output(&outputs.iter().map(output).collect::<Vec<_>>().join("\n"), "", 0)
            });
            let whole = has("/id") && has("/container_id") && item.get("code").is_some();
            let result = if failed { Some(broken()) } else { logs };
            let call = hosted::excerpt(text(item, "/code"));
            Some(HostedItem {
                tool: HostedTool::CodeExecution,
                call,
                result,
                whole: whole && item.get("outputs").is_some(),
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_says_what_was_asked_and_given_and_whether_it_can_go_back() {
        use HostedPart::{Error, Result};
        fn check(item: Value, call: &str, result: Option<(HostedPart, &str)>, whole: bool) {
            let got = hosted_item(&item).unwrap();
            let result = result.map(|(part, text)| (part, text.to_owned()));
            assert_eq!((got.call.as_str(), got.result, got.whole), (call, result, whole), "{item}");
        }
        let search = |action: Value, status: &str| json!({"id": "ws_1", "type": "web_search_call", "status": status, "action": action});
        let sources = json!([{"type": "url", "url": "https://a"}, {"type": "url", "url": "https://b"}]);
        let found = json!({"type": "search", "query": "x", "queries": ["x", "y"], "sources": sources});
        check(search(found, "completed"), "x; y", Some((Result, "2 sources\nhttps://a\nhttps://b")), true);
        check(search(json!({"type": "search", "query": "x"}), "completed"), "x", None, true);
        check(search(json!({"type": "open_page", "url": "https://a"}), "completed"), "https://a", None, true);
        let found = json!({"type": "find_in_page", "url": "https://a", "pattern": "p"});
        check(search(found, "completed"), "p in https://a", None, true);
        check(search(json!(null), "failed"), "", Some((Error, "failed")), false);
        let ran = |outputs: Value| json!({"id": "ci_1", "type": "code_interpreter_call", "status": "completed", "code": "print(4)", "container_id": "cntr_1", "outputs": outputs});
        let logs = json!([{"type": "logs", "logs": "4\n"}, {"type": "image", "url": "data:"}]);
        check(ran(logs), "print(4)", Some((Result, "4\n\n(an image)")), true);
        check(ran(json!(null)), "print(4)", None, true);
        let lost = json!({"id": "ci_1", "type": "code_interpreter_call", "status": "incomplete", "code": "1"});
        check(lost, "1", Some((Error, "incomplete")), false);
        assert!(hosted_item(&json!({"type": "reasoning"})).is_none());
    }
}
