//! Tools that Google runs: enabling them, and reading their parts.
//!
//! A search beside other tools is a call and a response, which go back unchanged; the sources are in the grounding of the answer,
//! which does not go back. Code and its output are parts of their own.

use linger_protocol::message::{HostedPart, HostedTool};
use serde_json::{Value, json};

use super::super::compat::Compat;
use super::super::hosted::{self, Hosted, text};
use super::encode::is_third;

/// Whether hosted tools are accepted beside others.
pub(super) fn combines(compat: &Compat, model: &str) -> bool {
    // Vertex AI lacks the option for that.
    compat.hosted_with_tools.unwrap_or_else(|| compat.vertex != Some(true) && is_third(model))
}

/// The tools of a request.
pub(super) fn tools(hosted: Hosted) -> Vec<Value> {
    let tool = |tool: HostedTool| match tool {
        HostedTool::WebSearch => json!({"googleSearch": {}}),
        _ => json!({"codeExecution": {}}),
    };
    hosted.tools().into_iter().map(tool).collect()
}

/// Reads a part, if it is a hosted tool's.
pub(super) fn part(part: &Value) -> Option<(HostedTool, HostedPart, String)> {
    let is_search = |kind: &Value| text(kind, "/toolType").starts_with("GOOGLE_SEARCH");
    if let Some(call) = part.get("toolCall").filter(|call| is_search(call)) {
        let queries = call.pointer("/args/queries").and_then(Value::as_array).into_iter().flatten();
        let said = hosted::queries(queries.filter_map(Value::as_str));
        return Some((HostedTool::WebSearch, HostedPart::Call, said));
    }
    if part.get("toolResponse").is_some_and(is_search) {
        // The sources are in the grounding.
        return Some((HostedTool::WebSearch, HostedPart::Result, String::new()));
    }
    if let Some(code) = part.get("executableCode") {
        return Some((HostedTool::CodeExecution, HostedPart::Call, hosted::excerpt(text(code, "/code"))));
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
            (HostedTool::CodeExecution, HostedPart::Error, hosted::excerpt(&format!("{why}\n{said}")))
        }
    })
}

/// The queries of a search.
pub(super) fn queries(grounding: &Value) -> String {
    let queries = grounding.get("webSearchQueries").and_then(Value::as_array).into_iter().flatten();
    hosted::queries(queries.filter_map(Value::as_str))
}

/// The sources; empty if none.
pub(super) fn sources(grounding: &Value) -> String {
    let found = grounding.get("groundingChunks").and_then(Value::as_array).into_iter().flatten();
    let found: Vec<_> =
        found.filter_map(|chunk| chunk.get("web")).map(|web| (text(web, "/title"), text(web, "/uri"))).collect();
    if found.is_empty() { String::new() } else { hosted::sources(found) }
}
