//! Anthropic's hosted tools: enabling them, reading their blocks, and keeping a history valid.
//!
//! A call and its result are usually blocks of one answer. If the turn is paused, or the model also calls a tool of ours, the
//! result comes at the beginning of the next answer. An abandoned call gets an error as its result, because a call without a
//! result is refused.

use linger_protocol::message::{ContentBlock, HostedPart, HostedTool};
use serde_json::{Value, json};

use super::super::hosted::{self, Hosted, text};
use super::super::types::Message;
use super::super::wire;
use super::decode::MAX_OPEN;

/// In an opaque block: the division of the text before it, with the citations of each part.
const CITED: &str = "cited";

/// In an opaque block: the container of this turn's code.
pub(super) const CONTAINER: &str = "container";

/// The entries of `tools`: versions that every current model takes, and that need no extra header.
pub(super) fn tools(hosted: Hosted) -> Vec<Value> {
    let tool = |tool: HostedTool| match tool {
        HostedTool::WebSearch => json!({"type": "web_search_20250305", "name": "web_search"}),
        _ => json!({"type": "code_execution_20250825", "name": "code_execution"}),
    };
    hosted.tools().into_iter().map(tool).collect()
}

/// The tool of a call's name or a result's type; `None` if we cannot enable it.
pub(super) fn tool(name: &str) -> Option<HostedTool> {
    match name {
        "web_search" => Some(HostedTool::WebSearch),
        "code_execution" | "bash_code_execution" | "text_editor_code_execution" => Some(HostedTool::CodeExecution),
        _ => None,
    }
}

/// The text of a call.
pub(super) fn asked(input: &Value) -> String {
    let first = ["/query", "/command", "/code"].map(|name| text(input, name)).into_iter().find(|said| !said.is_empty());
    match (first.unwrap_or_default(), text(input, "/path")) {
        (said, path) if !path.is_empty() => hosted::excerpt(&format!("{said} {path}")),
        ("", _) if *input == json!({}) => String::new(),
        ("", _) => hosted::excerpt(&input.to_string()),
        (said, _) => hosted::excerpt(said),
    }
}

/// The text of a result.
pub(super) fn gave(result: &Value) -> (HostedPart, String) {
    let content = &result["content"];
    if let Some(found) = content.as_array() {
        let source = |found| (text(found, "/title"), text(found, "/url"));
        return (HostedPart::Result, hosted::sources(found.iter().map(source)));
    }
    match (text(content, "/error_code"), content.get("return_code").and_then(Value::as_i64)) {
        ("", Some(status)) => hosted::output(text(content, "/stdout"), text(content, "/stderr"), status),
        ("", None) => {
            let said = ["/content", "/lines"].map(|name| text(content, name)).into_iter().find(|said| !said.is_empty());
            (HostedPart::Result, hosted::excerpt(said.unwrap_or("done")))
        }
        (code, _) => (HostedPart::Error, hosted::excerpt(code)),
    }
}

/// Calls of a history without a result yet: their ids and names.
#[derive(Debug, Default)]
pub(super) struct OpenCalls(Vec<(String, String)>);

impl OpenCalls {
    /// Takes the blocks of the model's next answer; returns the errors that must come before them.
    pub(super) fn answered(&mut self, blocks: &[Value]) -> Vec<Value> {
        let answers = |id: &str| blocks.iter().any(|block| is_result(block) && block["tool_use_id"] == id);
        let errors = self.give_up(|id| !answers(id));
        for block in blocks {
            match block["type"].as_str() {
                Some("server_tool_use") => {
                    self.0.push((text(block, "/id").to_owned(), text(block, "/name").to_owned()));
                }
                _ if is_result(block) => self.0.retain(|(id, _)| block["tool_use_id"] != id.as_str()),
                _ => {}
            }
        }
        errors
    }

    /// A filter for the blocks of the next answer.
    pub(super) fn next(&self) -> ResultFilter {
        ResultFilter { open: self.0.iter().map(|(id, _)| id.clone()).collect(), late: self.0.len() }
    }

    /// Takes a user's blocks; anything but results abandons open calls. Returns the errors that must come before them.
    pub(super) fn interrupted(&mut self, blocks: &[Value]) -> Vec<Value> {
        if blocks.iter().all(|block| block["type"] == "tool_result") {
            return Vec::new();
        }
        self.give_up(|_| true)
    }

    fn give_up(&mut self, gone: impl Fn(&str) -> bool) -> Vec<Value> {
        let error = |(id, name): &(String, String)| {
            let kind = format!("{name}_tool_result");
            json!({"type": kind, "tool_use_id": id, "content": {"type": format!("{kind}_error"), "error_code": "unavailable"}})
        };
        let (given_up, kept) = std::mem::take(&mut self.0).into_iter().partition(|(id, _)| gone(id));
        self.0 = kept;
        let given_up: Vec<(String, String)> = given_up;
        given_up.iter().map(error).collect()
    }
}

/// Whether a block is a hosted call or its result, of any tool.
pub(super) fn is_at_provider(block: &Value) -> bool {
    block["type"] == "server_tool_use" || is_result(block)
}

fn is_result(block: &Value) -> bool {
    text(block, "/type").ends_with("_tool_result")
}

/// Filters the hosted calls of one answer.
#[derive(Debug)]
pub(super) struct ResultFilter {
    /// Calls without a result.
    open: Vec<String>,
    /// How many of them, at the front, are from the previous answer.
    late: usize,
}

impl ResultFilter {
    /// Whether a block can be sent back after `before`: a call once, a result with its call, late results first. A result whose call
    /// was compacted or malformed cannot.
    pub(super) fn take(&mut self, block: &Value, before: &[Value]) -> bool {
        if block["type"] == "server_tool_use" {
            let id = text(block, "/id");
            let name = text(block, "/name");
            let named = !name.is_empty() && wire::tool_name(name) == name && !id.trim().is_empty();
            let good = named && block["input"].is_object() && self.open.iter().all(|open| open != id);
            self.open.extend(good.then(|| id.to_owned()));
            return good;
        }
        let Some(at) = self.open.iter().position(|open| block["tool_use_id"] == open.as_str()) else { return false };
        let is_late = at < self.late;
        if is_late && !before.iter().all(is_result) {
            return false;
        }
        self.late -= usize::from(is_late);
        self.open.remove(at);
        true
    }
}

/// The parts of the text at the end of an answer: the provider begins a block for each citation.
#[derive(Debug, Default)]
pub(super) struct CitedParts(Vec<CitedPart>);

#[derive(Debug)]
struct CitedPart {
    index: u64,
    bytes: usize,
    citations: Vec<Value>,
}

impl CitedParts {
    pub(super) fn begin(&mut self, index: u64, citations: Vec<Value>) {
        self.0.push(CitedPart { index, bytes: 0, citations });
    }

    pub(super) fn add(&mut self, index: u64, bytes: usize) {
        if let Some(part) = self.part(index) {
            part.bytes += bytes;
        }
    }

    pub(super) fn cite(&mut self, index: u64, citation: Value) {
        if let Some(part) = self.part(index) {
            part.citations.push(citation);
        }
    }

    fn part(&mut self, index: u64) -> Option<&mut CitedPart> {
        self.0.iter_mut().rev().take(MAX_OPEN).find(|part| part.index == index)
    }

    /// The division of the text, if it has citations.
    pub(super) fn cited(self) -> Option<Value> {
        let cites = self.0.iter().any(|part| !part.citations.is_empty());
        let citations = |part: CitedPart| if part.citations.is_empty() { Value::Null } else { part.citations.into() };
        let parts = self.0.into_iter().map(|part| json!([part.bytes, citations(part)]));
        cites.then(|| json!({ CITED: parts.collect::<Value>() }))
    }
}

/// A text in its original parts, if the block after it has the division; blank parts are dropped, because they are refused.
pub(super) fn divided(said: &str, next: Option<&ContentBlock>) -> Option<Vec<Value>> {
    let Some(ContentBlock::Opaque { native }) = next else { return None };
    let mut rest = said;
    let mut parts = Vec::new();
    for part in native.get(CITED)?.as_array()? {
        let bytes = part.get(0)?.as_u64().and_then(|bytes| usize::try_from(bytes).ok())?;
        let (own, after) = rest.split_at_checked(bytes)?;
        rest = after;
        let citations = part.get(1).filter(|citations| citations.is_array());
        if let Some(own) = wire::visible(own) {
            let mut block = json!({"type": "text", "text": own});
            if let Some(citations) = citations {
                wire::set(&mut block, "citations", citations.clone());
            }
            parts.push(block);
        }
    }
    Some(parts)
}

/// The container of an answer's code.
pub(super) fn container(message: &Message) -> Option<String> {
    let named = |block: &ContentBlock| match block {
        ContentBlock::Opaque { native } => Some(native.get(CONTAINER)?.as_str()?.to_owned()),
        _ => None,
    };
    message.content.iter().rev().find_map(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_says_how_it_went() {
        use HostedPart::{Error, Result};
        fn check(content: Value, expect: (HostedPart, &str)) {
            assert_eq!(gave(&json!({"content": content})), (expect.0, expect.1.to_owned()));
        }
        let ran = |stdout: &str, stderr: &str, status: i64| json!({"stdout": stdout, "stderr": stderr, "return_code": status});
        check(ran("4\n", "", 0), (Result, "4"));
        check(ran("", "", 0), (Result, "no output"));
        check(ran("a", "b\n", 2), (Error, "exit code 2\na\nb"));
        check(json!({"error_code": "unavailable"}), (Error, "unavailable"));
        check(json!({"content": "x = 1"}), (Result, "x = 1"));
        check(json!({"is_file_update": false}), (Result, "done"));
        check(json!([]), (Result, "nothing found"));
    }

    #[test]
    fn a_call_says_what_it_asks_for() {
        fn check(input: Value, expect: &str) {
            assert_eq!(asked(&input), expect);
        }
        check(json!({"query": "rust"}), "rust");
        check(json!({"command": "view", "path": "a.py"}), "view a.py");
        check(json!({"code": "1\n2"}), "1\n2");
        check(json!({"other": 1}), "{\"other\":1}");
        check(json!({}), "");
    }
}
