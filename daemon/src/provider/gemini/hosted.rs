//! Tools that Google runs itself: how they are switched on, and what is read in their parts.
//!
//! A search beside other tools is a call and a response, which go back as they came; what it found is said beside the answer, in
//! its grounding, which does not go back. Code and its output are parts of their own.

use linger_protocol::message::{HostedPart, HostedTool};
use serde_json::{Value, json};

use super::super::compat::Compat;
use super::super::hosted::{self, Hosted, text};
use super::encode::is_third;

/// Whether hosted tools are taken beside others.
pub(in super::super) fn combines(compat: &Compat, model: &str) -> bool {
    // On Vertex AI what they need for that does not exist.
    compat.hosted_with_tools.unwrap_or_else(|| compat.vertex != Some(true) && is_third(model))
}

/// How the tools are switched on.
pub(super) fn tools(hosted: Hosted) -> Vec<Value> {
    let tool = |tool: HostedTool| match tool {
        HostedTool::WebSearch => json!({"googleSearch": {}}),
        _ => json!({"codeExecution": {}}),
    };
    hosted.tools().into_iter().map(tool).collect()
}

/// What a part is, and says, if it is of a hosted tool.
pub(super) fn part(part: &Value) -> Option<(HostedTool, HostedPart, String)> {
    let is_search = |kind: &Value| text(kind, "/toolType").starts_with("GOOGLE_SEARCH");
    if let Some(call) = part.get("toolCall").filter(|call| is_search(call)) {
        let queries = call.pointer("/args/queries").and_then(Value::as_array).into_iter().flatten();
        let said = hosted::queries(queries.filter_map(Value::as_str));
        return Some((HostedTool::WebSearch, HostedPart::Call, said));
    }
    if part.get("toolResponse").is_some_and(is_search) {
        // What was found is in the grounding.
        return Some((HostedTool::WebSearch, HostedPart::Result, String::new()));
    }
    if let Some(code) = part.get("executableCode") {
        return Some((HostedTool::CodeExecution, HostedPart::Call, hosted::said(text(code, "/code"))));
    }
    let result = part.get("codeExecutionResult")?;
    let (said, outcome) = (text(result, "/output"), text(result, "/outcome"));
    Some(match outcome {
        "OUTCOME_OK" | "OUTCOME_UNSPECIFIED" | "" => {
            let (part, said) = hosted::output(said, "", 0);
            (HostedTool::CodeExecution, part, said)
        }
        outcome => {
            let why = if outcome == "OUTCOME_DEADLINE_EXCEEDED" { "it took too long" } else { "it failed" };
            (HostedTool::CodeExecution, HostedPart::Error, hosted::said(&format!("{why}\n{said}")))
        }
    })
}

/// What was searched for.
pub(super) fn queries(grounding: &Value) -> String {
    let queries = grounding.get("webSearchQueries").and_then(Value::as_array).into_iter().flatten();
    hosted::queries(queries.filter_map(Value::as_str))
}

/// What was found; empty if nothing is named.
pub(super) fn sources(grounding: &Value) -> String {
    let found = grounding.get("groundingChunks").and_then(Value::as_array).into_iter().flatten();
    let found: Vec<_> =
        found.filter_map(|chunk| chunk.get("web")).map(|web| (text(web, "/title"), text(web, "/uri"))).collect();
    if found.is_empty() { String::new() } else { hosted::sources(found) }
}
