//! Tools of the user or of a workspace: programs that a Markdown file describes.
//!
//! Which there are, `agent` says ([`Program`]). A call runs through `process` as a command of `bash` does: in the session's
//! directory and environment, bounded, in the ledger. Its arguments reach it as JSON on standard input, or in the places of a
//! vector of arguments; no shell reads them. What it declares about its effects counts because a person confirmed its file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use linger_protocol::event::ToolKind;
use serde_json::{Map, Value};

use super::access::{Access, Effects};
use super::command::{collect, not_started};
use super::invalid::Invalid;
pub use super::names::PROGRAM_PREFIX as PREFIX;
use super::names::Takes;
use super::output::Output;
use super::path::normalise;
use super::text;
use super::types::{BoxFuture, Call, Context, Tool, ToolOutput};
use super::workspace::Workspace;
use crate::process::{Input, Stderr};
use crate::provider::schema;

/// The most that is shown of the arguments on standard input, in bytes: the question's `input` has all.
const MAX_SHOWN: usize = 2 << 10;

/// The largest vector of arguments, in bytes; the system takes 128 KiB for one.
const MAX_VECTOR: usize = 96 << 10;

/// A tool as its file describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Its name in tool sets, with [`PREFIX`].
    pub name: String,
    /// The description that the model reads.
    pub description: String,
    /// JSON Schema of its arguments, an object's.
    pub parameters: Value,
    /// The program and its arguments, with `{name}` in the places of a parameter.
    pub command: Vec<String>,
    /// Whether arguments are in `command`, and not on standard input.
    pub is_vector: bool,
    /// Whether it only reads, below the workspace. It counts only where the workspace cannot replace the program.
    pub only_reads: bool,
    /// How long a call may take, in seconds.
    pub timeout_s: u64,
    /// The file that describes it.
    pub file: PathBuf,
    /// `sha256:` and the hash of that file: a lasting permission is for it.
    pub digest: String,
}

/// A tool that runs a program, with its version.
pub struct ProgramTool(Arc<Program>, String);

impl ProgramTool {
    /// The tool of this description.
    pub fn new(program: Program) -> Self {
        let version = program.digest.trim_start_matches("sha256:").chars().take(VERSION).collect();
        Self(Arc::new(program), version)
    }

    /// The description in its file.
    pub fn program(&self) -> &Program {
        &self.0
    }
}

/// Digits of a version, as those of the tools of MCP servers: 64 bits.
const VERSION: usize = 16;

impl Tool for ProgramTool {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn description(&self) -> &str {
        &self.0.description
    }

    fn schema(&self) -> Value {
        self.0.parameters.clone()
    }

    // A call may know better: by PATH or a link its program can be one of the workspace.
    fn changes(&self) -> bool {
        !self.0.only_reads
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Execute
    }

    fn version(&self) -> &str {
        &self.1
    }

    fn file(&self) -> Option<&Path> {
        Some(&self.0.file)
    }

    fn pattern(&self) -> Takes {
        Takes::Version
    }

    fn prepare(&self, input: &Value, workspace: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let Some(fields) = input.as_object() else {
            return Err(Invalid("the arguments are not a JSON object".to_owned()));
        };
        schema::fits(&self.0.parameters, input).map_err(Invalid)?;
        let vector = vector(&self.0, fields)?;
        let only_reads = self.0.only_reads && vector.first().is_some_and(|program| !is_replaceable(program, workspace));
        let (program, version) = (self.0.clone(), self.1.clone());
        let (input, workspace) = (input.clone(), workspace.clone());
        Ok(Box::new(ProgramCall { program, version, vector, only_reads, input, workspace }))
    }
}

/// Whether the workspace can replace the program, so that what its file says about it need not hold: it or what it is a link to lies
/// there, or PATH leads there before it is found.
fn is_replaceable(program: &str, workspace: &Workspace) -> bool {
    let is_inside = |path: &Path| normalise(path).starts_with(&workspace.root) || workspace.contains(path);
    if program.contains('/') {
        return is_inside(&workspace.cwd.join(program));
    }
    let Some(path) = workspace.env.get("PATH") else { return true };
    for dir in std::env::split_paths(path) {
        let dir = workspace.cwd.join(dir);
        if is_inside(&dir) {
            return true;
        }
        let file = dir.join(program);
        if file.is_file() && rustix::fs::access(&file, rustix::fs::Access::EXEC_OK).is_ok() {
            return is_inside(&file);
        }
    }
    true
}

/// The program and its arguments.
fn vector(program: &Program, fields: &Map<String, Value>) -> Result<Vec<String>, Invalid> {
    let mut vector = Vec::new();
    for (at, part) in program.command.iter().enumerate() {
        if at == 0 || !program.is_vector {
            vector.push(part.clone());
        } else {
            vector.extend(filled(part, fields)?);
        }
    }
    let bad = |text: &String| text.contains('\0');
    if vector.iter().any(bad) {
        return Err(Invalid("an argument has a NUL in it".to_owned()));
    }
    if vector.iter().map(String::len).sum::<usize>() > MAX_VECTOR {
        return Err(Invalid(format!("the arguments have more than {MAX_VECTOR} bytes")));
    }
    Ok(vector)
}

/// The arguments that a part of the command becomes: a list in the place of a whole part is an argument for each entry, and a part whose parameter
/// is absent is left out.
fn filled(part: &str, fields: &Map<String, Value>) -> Result<Vec<String>, Invalid> {
    let plain = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let Some((before, name, after)) = parameter(part) else { return Ok(vec![part.to_owned()]) };
    let values = match fields.get(name) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) if before.is_empty() && after.is_empty() => list.iter().map(plain).collect(),
        Some(value) => vec![plain(value)],
    };
    // Else a model could pass an option of the program where its file has a value.
    if before.is_empty() && values.iter().any(|value: &String| value.starts_with('-')) {
        return Err(Invalid(format!("`{name}` begins with `-`, which the program could take for an option")));
    }
    Ok(values.into_iter().map(|value| format!("{before}{value}{after}")).collect())
}

/// A part around the parameter that it names: `--path={path}`.
pub fn parameter(part: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = part.split_once('{')?;
    let (name, after) = rest.split_once('}')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    is_name.then_some((before, name, after))
}

struct ProgramCall {
    program: Arc<Program>,
    version: String,
    vector: Vec<String>,
    /// Whether the call only reads: the file says so, and the program is the one that the file means.
    only_reads: bool,
    input: Value,
    workspace: Workspace,
}

impl ProgramCall {
    /// The vector as a shell would be given it, and what is on standard input.
    fn shown(&self) -> String {
        let words: Vec<String> = self.vector.iter().map(|word| quoted(word)).collect();
        let mut shown = words.join(" ");
        if !self.program.is_vector {
            let input = self.input.to_string();
            let head = text::head(&input, MAX_SHOWN);
            let more = if head.len() < input.len() { "…" } else { "" };
            shown.push_str(&format!(" <<< {}{more}", quoted(head)));
        }
        shown
    }
}

/// A word as it is, or in quotes.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

impl Call for ProgramCall {
    fn action(&self) -> String {
        self.shown()
    }

    fn effects(&self) -> Effects {
        if self.only_reads {
            return Effects::inspect(self.shown(), self.workspace.root.clone());
        }
        let tool = self.program.name.clone();
        Effects::change(Access::Other { server: tool.clone(), tool, version: self.version.clone() })
    }

    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        Box::pin(async move {
            let input =
                if self.program.is_vector { Input::Nothing } else { Input::Bytes(self.input.to_string().into_bytes()) };
            let Some((program, args)) = self.vector.split_first() else {
                return ToolOutput::error("its file names no program");
            };
            match context.spawn.command(program, args, input, Stderr::Merged).await {
                Ok(process) => {
                    collect(process, Output::to(context.output, context.blobs), self.program.timeout_s, "").await
                }
                Err(error) => not_started(&self.workspace, &error).await,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tool::tests::{run, test_workspace};

    fn tool(command: &[&str], is_vector: bool) -> ProgramTool {
        ProgramTool::new(Program {
            name: "tool__x".to_owned(),
            description: "does it".to_owned(),
            parameters: json!({ "type": "object", "properties": { "a": {}, "b": {} }, "additionalProperties": false }),
            command: command.iter().map(|part| (*part).to_owned()).collect(),
            is_vector,
            only_reads: false,
            timeout_s: 20,
            file: "/x.md".into(),
            digest: "sha256:0123456789abcdef0123".to_owned(),
        })
    }

    #[tokio::test]
    async fn arguments_reach_the_program_as_json_or_as_words_and_never_a_shell() {
        let (_dir, workspace) = test_workspace();
        let hostile = "$(touch pwned); `id` 'x' \"y\"";
        let (text, _) = run(&tool(&["cat"], false), &workspace, json!({ "a": hostile })).await;
        assert_eq!(text, json!({ "a": hostile }).to_string());
        let words = tool(&["printf", "%s|", "{a}", "--b={b}", "end"], true);
        let (text, _) = run(&words, &workspace, json!({ "a": hostile, "b": 7 })).await;
        assert_eq!(text, format!("{hostile}|--b=7|end|"));
        let (text, _) = run(&words, &workspace, json!({ "a": ["x y", "z"] })).await;
        assert_eq!(text, "x y|z|end|");
        assert!(!workspace.cwd.join("pwned").exists());
    }

    #[tokio::test]
    async fn arguments_that_do_not_fit_or_look_like_an_option_run_nothing() {
        let (_dir, workspace) = test_workspace();
        let refused = |tool: ProgramTool, input: Value| tool.prepare(&input, &workspace).err().unwrap().0;
        assert!(refused(tool(&["cat"], false), json!({ "c": 1 })).contains('c'));
        assert!(refused(tool(&["rm", "{a}"], true), json!({ "a": "-rf" })).contains("begins with `-`"));
        let (text, failed) = run(&tool(&["no-such-program"], false), &workspace, json!({})).await;
        assert!(failed && text.contains("could not be started"), "{text}");
    }

    #[test]
    fn a_program_that_the_workspace_can_replace_does_not_only_read() {
        let (_dir, workspace) = test_workspace();
        let outside = tempfile::tempdir().unwrap();
        let (root, beside) = (workspace.root.to_str().unwrap(), outside.path().to_str().unwrap());
        let changes = |command: &str, path: &str| {
            let mut workspace = workspace.clone();
            workspace.env = Arc::new(std::collections::BTreeMap::from([("PATH".to_owned(), path.to_owned())]));
            let program = Program { only_reads: true, ..tool(&[command], false).program().clone() };
            ProgramTool::new(program).prepare(&json!({}), &workspace).unwrap().effects().changes
        };
        std::os::unix::fs::symlink(workspace.root.join("lint"), outside.path().join("lint")).unwrap();
        std::os::unix::fs::symlink(&workspace.root, outside.path().join("bin")).unwrap();
        let system = "/usr/bin:/bin";
        assert!(!changes("/bin/sh", system));
        assert!(!changes("sh", system));
        assert!(!changes("sh", &format!("{system}:{root}")));
        assert!(changes("sh", &format!("{root}/bin:{system}")));
        assert!(changes("sh", &format!("{beside}/bin:{system}")));
        assert!(changes("sh", &format!("bin:{system}")));
        assert!(changes("no-such-program", system));
        assert!(changes(&format!("{root}/lint"), system));
        assert!(changes(&format!("/bin/..{root}/lint"), system));
        assert!(changes("./lint", system));
        assert!(changes(&format!("{beside}/lint"), system));
    }

    #[test]
    fn a_question_shows_the_command_and_its_input() {
        let (_dir, workspace) = test_workspace();
        let action = |tool: ProgramTool, input: Value| tool.prepare(&input, &workspace).unwrap().action();
        assert_eq!(action(tool(&["./lint", "{a}"], true), json!({ "a": "it's" })), "./lint 'it'\\''s'");
        assert_eq!(action(tool(&["lint"], false), json!({ "a": 1 })), "lint <<< '{\"a\":1}'");
    }
}
