//! The form of a child's answer, and the result that the call makes of it: data, with its sources looked up in the files.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use linger_protocol::child::ChildUpdate;
use linger_protocol::message::{ContentBlock, StopReason};
use linger_protocol::worktree::Worktree;
use serde_json::{Value, json};

use super::follow::ChildEnding;
use crate::config::Policy;
use crate::sys::disk;
use crate::tool::handle::Entry;
use crate::tool::{Access, Hidden, ToolOutput, Workspace, normalise, text};

/// The most sources that are looked up; an answer names a dozen.
const MAX_SOURCES: usize = 64;

/// The largest file whose lines are counted, in bytes: what the file tools know.
const MAX_FILE: u64 = 16 << 20;

/// The largest result, in bytes: about 24,000 tokens, twice what reading a file gives.
const MAX_RESULT: usize = 96 << 10;

/// How much of its last words a result has that is no answer, in bytes.
const LAST_WORDS: usize = 4 << 10;

/// Beginning of the detail of a turn whose answer does not fit the schema.
const MISFIT: &str = "the answer does not fit the schema";

/// Behind a task whose answer has the usual form.
pub const FORM: &str = "\n\n[Another agent reads your answer, as data, and sees nothing else of your work: `answer` is what you \
                        found or did; `sources` are the places in files that it rests on, each with the file, its lines (such \
                        as 10-20) and what is there; `confidence` is low, medium or high; `caveats` are what you could not do, \
                        or are not sure of.]";

/// JSON Schema of the usual form.
pub fn schema() -> Value {
    let text = json!({ "type": "string" });
    let source = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": { "file": text, "lines": text, "summary": text },
        "required": ["file", "lines", "summary"],
    });
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "answer": text,
            "sources": { "type": "array", "items": source },
            "confidence": { "type": "string", "enum": ["low", "medium", "high"] },
            "caveats": { "type": "array", "items": text },
        },
        "required": ["answer", "sources", "confidence", "caveats"],
    })
}

/// The result of a call whose child works in the background.
pub fn handle(update: &ChildUpdate) -> ToolOutput {
    let ChildUpdate { child, agent, .. } = update;
    ToolOutput::text(format!(
        "The agent {agent} works on it in session {child}. Its result comes to you later, in a turn of its own; go on, or end your \
         turn."
    ))
}

/// The message to the parent of a child that worked in the background.
pub fn later(update: &ChildUpdate, output: &ToolOutput) -> String {
    let ChildUpdate { child, agent, call_id, .. } = update;
    let words = linger_protocol::message::text_of(&output.content);
    format!(
        "[This is not the user, but the result of your task {call_id}, which the agent {agent} did in session {child}. These are \
         its words:]\n{words}"
    )
}

/// The result of a call whose child has ended. `own`: the call had a schema; `why` it was cancelled, if by the daemon.
pub async fn result(
    policy: &Policy,
    workspace: &Arc<Workspace>,
    cwd: &Path,
    update: &ChildUpdate,
    ending: ChildEnding,
    own: bool,
    why: Option<&str>,
) -> ToolOutput {
    let ChildUpdate { child, agent, .. } = update;
    let said = |mut value: Value| {
        if let Some(fields) = value.as_object_mut() {
            fields.insert("agent".to_owned(), Value::from(agent.as_str()));
            fields.insert("session".to_owned(), Value::from(child.as_str()));
        }
        bounded(value.to_string())
    };
    let is_misfit = ending.detail.as_deref().is_some_and(|detail| detail.starts_with(MISFIT));
    match ending {
        ChildEnding { reason: Some(StopReason::EndTurn), answer: Some(answer), .. } if own => {
            said(json!({ "answer": answer }))
        }
        ChildEnding { reason: Some(StopReason::EndTurn), answer: Some(mut answer), .. } => {
            let hidden = policy.hidden("read", &Access::Read(cwd.to_path_buf()), workspace);
            check_sources(&mut answer, workspace, cwd, hidden).await;
            said(answer)
        }
        ChildEnding { text, .. } if is_misfit && !own && !text.trim().is_empty() => {
            let caveat = "it did not answer in the form that was asked for";
            said(json!({ "answer": text, "sources": [], "confidence": "low", "caveats": [caveat] }))
        }
        ChildEnding { reason, detail, text, .. } => {
            let how = match reason {
                Some(StopReason::Cancelled) => "was cancelled".to_owned(),
                Some(StopReason::MaxSteps) => "took as many steps as it may".to_owned(),
                Some(StopReason::MaxTokens) => "came to the token limit of its model".to_owned(),
                Some(StopReason::Refusal) => "refused".to_owned(),
                _ => "failed".to_owned(),
            };
            let detail = why.map(str::to_owned).or(detail).map(|why| format!(": {why}")).unwrap_or_default();
            let words = text::head(text.trim(), LAST_WORDS);
            let words = if words.is_empty() { String::new() } else { format!("\nIts last words:\n{words}") };
            ToolOutput::error(format!("[the agent {agent} (session {child}) gives no answer: it {how}{detail}]{words}"))
        }
    }
}

/// The result of a call with where the changes of the child are, if they are in a worktree.
pub fn with_worktree(mut output: ToolOutput, worktree: Option<&Worktree>) -> ToolOutput {
    if let Some(Worktree { path, branch, .. }) = worktree {
        output.content.push(ContentBlock::text(format!(
            "[Its changes are not in your directory but in its git worktree {}, on the branch {branch}; the user merges them.]",
            path.display()
        )));
    }
    output
}

fn bounded(text: String) -> ToolOutput {
    if text.len() <= MAX_RESULT {
        return ToolOutput::text(text);
    }
    let head = text::head(&text, MAX_RESULT);
    ToolOutput::text(format!("{head}\n[the rest is left out: {} bytes in all; ask for less]", text.len()))
}

/// A source as an answer names it.
struct CitedSource {
    file: String,
    /// Ranges such as `10-20`, or anything else.
    lines: String,
}

/// Looks each source up, and adds a caveat for each that is not there.
pub(crate) async fn check_sources(answer: &mut Value, workspace: &Arc<Workspace>, cwd: &Path, hidden: Hidden) {
    let sources: Vec<CitedSource> = answer["sources"].as_array().map_or_else(Vec::new, |sources| {
        let text = |source: &Value, name: &str| source[name].as_str().unwrap_or_default().to_owned();
        let cited = |source| CitedSource { file: text(source, "file"), lines: text(source, "lines") };
        sources.iter().take(MAX_SOURCES).map(cited).collect()
    });
    if sources.is_empty() {
        return;
    }
    let (workspace, below) = (workspace.clone(), cwd.to_path_buf());
    let look = move || sources.iter().filter_map(|source| wrong(source, &workspace, &below, &hidden)).collect();
    let found: Option<Vec<String>> = disk::probe(cwd, disk::TIMEOUT, look).await;
    let found = found.unwrap_or_else(|| vec!["its sources could not be looked up".to_owned()]);
    if let Some(caveats) = answer.get_mut("caveats").and_then(Value::as_array_mut) {
        caveats.extend(found.into_iter().map(Value::from));
    }
}

/// The caveat about a source that is not there; `None` if it is, or is too large to look. Blocks on the disk.
fn wrong(source: &CitedSource, workspace: &Workspace, cwd: &Path, hidden: &Hidden) -> Option<String> {
    let CitedSource { file, lines } = source;
    let shown = text::one_line(file);
    let named = normalise(&cwd.join(file));
    let path: PathBuf = workspace.resolve(&named);
    if !(workspace.contains(&path) || path.starts_with(cwd)) || hidden(&named) || hidden(&path) {
        return Some(format!("source {shown} is outside of the workspace and was not looked up"));
    }
    let Ok((opened, _)) = Entry::at(&path).and_then(|entry| entry.open()) else {
        return Some(format!("source {shown} does not exist"));
    };
    let last = last_line(lines)?;
    let mut bytes = Vec::new();
    opened.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 == MAX_FILE {
        return None;
    }
    let ends = bytes.iter().filter(|byte| **byte == b'\n').count();
    let has = ends + usize::from(bytes.last().is_some_and(|byte| *byte != b'\n'));
    let lines = text::one_line(lines);
    (last > has).then(|| format!("source {shown}: lines {lines} do not exist, the file has {has}"))
}

/// The last line that ranges such as `10-20, 30` name; none if they are written otherwise.
fn last_line(lines: &str) -> Option<usize> {
    let numbers = lines.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok());
    numbers.max()
}

#[cfg(test)]
mod tests {
    use linger_protocol::message::text_of;

    use super::*;
    use crate::tool::tests::test_workspace;

    #[tokio::test]
    async fn a_source_that_is_not_in_the_files_becomes_a_caveat() {
        let (_dir, workspace) = test_workspace();
        std::fs::write(workspace.cwd.join("a.rs"), "1\n2\n3").unwrap();
        let cwd = workspace.cwd.clone();
        let source = |file: &str, lines: &str| json!({ "file": file, "lines": lines, "summary": "" });
        let mut answer = json!({ "caveats": ["mine"], "sources": [
            source("a.rs", "1-3"), source("a.rs", "L2"), source("a.rs", ""), source("a.rs", "2-4"), source("b.rs", "1"),
            source("../../etc/passwd", "1"), source(&cwd.join("a.rs").to_string_lossy(), "9"),
        ] });
        check_sources(&mut answer, &Arc::new(workspace), &cwd, Arc::new(|_| false)).await;
        let own = format!("source {}: lines 9 do not exist, the file has 3", cwd.join("a.rs").display());
        let expect = [
            "mine",
            "source a.rs: lines 2-4 do not exist, the file has 3",
            "source b.rs does not exist",
            "source ../../etc/passwd is outside of the workspace and was not looked up",
            own.as_str(),
        ];
        assert_eq!(answer["caveats"], json!(expect));
    }

    #[test]
    fn a_long_result_is_cut_and_says_so() {
        let output = bounded("x".repeat(MAX_RESULT + 1));
        let said = text_of(&output.content);
        assert!(said.ends_with("[the rest is left out: 98305 bytes in all; ask for less]") && !output.is_error);
    }

    #[test]
    fn the_usual_form_is_a_schema() {
        assert_eq!(crate::provider::schema::check(&schema()), Ok(()));
    }
}
