//! Tools of the user or of a workspace: programs that a Markdown file describes.
//!
//! Which there are, `agent` says ([`Program`]). A call runs through `process` as a command of `bash` does: in the session's
//! directory and environment, bounded, in the ledger. Its arguments reach it as JSON on standard input, or in the places of a
//! vector of arguments; no shell reads them. That it only reads, as its file says, is believed of a program that a model cannot
//! change: neither it nor a file among its words lies in the workspace, and it runs no other ([`super::launchers`]). The paths among
//! its arguments are decided on like those of `read`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use linger_protocol::event::ToolKind;
use serde_json::{Map, Value};

use super::access::{Access, Effects};
use super::command::{RunningCommand, not_started};
use super::invalid::Invalid;
use super::launchers;
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

impl Program {
    /// The program and how it runs, for the person who confirms or trusts its file.
    pub fn about(&self, name: &str) -> String {
        let words: Vec<String> = self.command.iter().map(|word| quoted(word)).collect();
        let input =
            if self.is_vector { "arguments in the places of `{…}`" } else { "arguments as JSON on standard input" };
        let effects = if self.only_reads { "read: runs in every mode without asking" } else { "any: asks" };
        format!("tool `{name}`: runs `{}`; {input}; effects {effects}; at most {} s", words.join(" "), self.timeout_s)
    }
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
        let reads = (self.0.only_reads && is_believed(&self.0.command, workspace)).then(|| {
            // What its file says itself was confirmed with it.
            let given: Vec<&String> = vector.iter().filter(|word| !self.0.command.contains(word)).collect();
            paths(input, &given, workspace)
        });
        let (program, version) = (self.0.clone(), self.1.clone());
        let (input, workspace) = (input.clone(), workspace.clone());
        Ok(Box::new(ProgramCall { program, version, vector, reads, input, workspace }))
    }
}

/// Whether it is believed of this command that it only reads: what runs is no file of the workspace, and nothing that runs what
/// others say.
fn is_believed(command: &[String], workspace: &Workspace) -> bool {
    let Some((program, words)) = launchers::looked_through(command).split_first() else { return false };
    if launchers::runs_others(program) || is_replaceable(program, workspace) {
        return false;
    }
    // Each wrapper is one that the workspace cannot replace either.
    let wrappers = command.len() - words.len() - 1;
    if wrappers > 0 && command.first().is_none_or(|wrapper| is_replaceable(wrapper, workspace)) {
        return false;
    }
    let real = found(program, workspace).and_then(|file| file.canonicalize().ok());
    let name = real.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let runs_others = |name: String| launchers::runs_others(&name) && !launchers::is_many(&name);
    if name.is_none_or(runs_others) {
        return false;
    }
    let fixed = words.iter().filter(|word| parameter(word).is_none());
    !fixed.flat_map(|word| parts(word)).any(|part| {
        let file = workspace.cwd.join(part);
        file.is_file() && (normalise(&file).starts_with(&workspace.root) || workspace.contains(&file))
    })
}

/// The paths that a word may name: itself, and the part behind an option's name or a sign.
fn parts(word: &str) -> Vec<&str> {
    let mut parts = vec![word];
    parts.extend(word.split(['=', ':', ',', '@', ' ', '\n']).filter(|part| !part.is_empty() && *part != word));
    // `-cFILE`
    parts.extend(
        word.strip_prefix('-').and_then(|rest| rest.char_indices().nth(1)).and_then(|(at, _)| word.get(at + 1..)),
    );
    parts.extend(word.strip_prefix("file://"));
    parts
}

/// The paths among these arguments and words, absolute: what is named like one, and what is there.
fn paths(input: &Value, given: &[&String], workspace: &Workspace) -> Vec<PathBuf> {
    let mut texts: Vec<&str> = given.iter().map(|word| word.as_str()).collect();
    let mut left = vec![input];
    while let Some(value) = left.pop() {
        match value {
            Value::String(text) => texts.push(text),
            Value::Array(list) => left.extend(list),
            Value::Object(fields) => {
                texts.extend(fields.keys().map(String::as_str));
                left.extend(fields.values());
            }
            _ => {}
        }
    }
    let mut paths = Vec::new();
    for part in texts.into_iter().flat_map(parts).filter(|part| part.len() <= MAX_PATH) {
        let Ok(path) = workspace.absolute(part) else { continue };
        let is_named = part.starts_with(['/', '~']) || part.split('/').any(|name| name == "..");
        // The system goes through a link before it takes a `..`: what is opened may lie elsewhere than the letters say.
        let real = workspace.cwd.join(part).canonicalize().ok().filter(|_| is_named);
        let named = Some(path).filter(|path| is_named || path.symlink_metadata().is_ok());
        for path in named.into_iter().chain(real) {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
    }
    paths
}

/// The longest path that the system takes, in bytes.
const MAX_PATH: usize = 4096;

/// The file that runs for the name of a program.
fn found(program: &str, workspace: &Workspace) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(workspace.cwd.join(program));
    }
    let is_program = |file: &PathBuf| file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok();
    std::env::split_paths(workspace.env.get("PATH")?).map(|dir| workspace.cwd.join(dir).join(program)).find(is_program)
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
    /// The paths that it is given, if it only reads: its file says so, and it is believed.
    reads: Option<Vec<PathBuf>>,
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
        if let Some(paths) = &self.reads {
            let inspection = Effects::inspect(self.shown(), self.workspace.root.clone());
            if paths.is_empty() {
                return inspection;
            }
            let reads = paths.iter().cloned().map(Access::Read);
            let access = Access::Several(std::iter::once(inspection.access).chain(reads).collect());
            return Effects { access, changes: false, overlaps: true, after_crash: inspection.after_crash };
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
                    let output = Output::of_command(context.output, context.blobs);
                    RunningCommand::within(&self.workspace, self.program.timeout_s).collect(process, output).await
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

    /// Whether a tool with this command, which says that it only reads, changes something; `path` is the session's PATH.
    fn changes(workspace: &Workspace, command: &[&str], path: &str) -> bool {
        let mut workspace = workspace.clone();
        workspace.env = Arc::new(std::collections::BTreeMap::from([("PATH".to_owned(), path.to_owned())]));
        let program = Program { only_reads: true, ..tool(command, true).program().clone() };
        ProgramTool::new(program).prepare(&json!({}), &workspace).unwrap().effects().changes
    }

    const SYSTEM: &str = "/usr/bin:/bin";

    #[test]
    fn a_program_that_the_workspace_can_replace_does_not_only_read() {
        let (_dir, workspace) = test_workspace();
        let outside = tempfile::tempdir().unwrap();
        let (root, beside) = (workspace.root.to_str().unwrap(), outside.path().to_str().unwrap());
        let changes = |command: &str, path: &str| changes(&workspace, &[command], path);
        std::os::unix::fs::symlink(workspace.root.join("lint"), outside.path().join("lint")).unwrap();
        std::os::unix::fs::symlink(&workspace.root, outside.path().join("bin")).unwrap();
        assert!(!changes("/bin/wc", SYSTEM));
        assert!(!changes("wc", SYSTEM));
        assert!(!changes("wc", &format!("{SYSTEM}:{root}")));
        assert!(changes("wc", &format!("{root}/bin:{SYSTEM}")));
        assert!(changes("wc", &format!("{beside}/bin:{SYSTEM}")));
        assert!(changes("wc", &format!("bin:{SYSTEM}")));
        assert!(changes("no-such-program", SYSTEM));
        assert!(changes(&format!("{root}/lint"), SYSTEM));
        assert!(changes(&format!("/bin/..{root}/lint"), SYSTEM));
        assert!(changes("./lint", SYSTEM));
        assert!(changes(&format!("{beside}/lint"), SYSTEM));
    }

    #[test]
    fn a_program_that_runs_what_others_say_does_not_only_read() {
        let (_dir, workspace) = test_workspace();
        let outside = tempfile::tempdir().unwrap();
        for (name, target) in [("harmless", "/bin/sh"), ("counts", "/usr/bin/wc"), ("twice", "harmless")] {
            std::os::unix::fs::symlink(target, outside.path().join(name)).unwrap();
        }
        for name in ["make", "npm", "eslint", "python3.12"] {
            std::fs::copy("/usr/bin/wc", outside.path().join(name)).unwrap();
        }
        std::fs::write(workspace.root.join("lint.sh"), "touch x").unwrap();
        std::fs::write(outside.path().join("words"), "").unwrap();
        let path = format!("{SYSTEM}:{}", outside.path().display());
        let beside = |name: &str| outside.path().join(name).to_string_lossy().into_owned();
        let (words, harmless, link) = (beside("words"), beside("harmless"), beside("twice"));
        for command in [
            &["bash", "lint.sh"][..],
            &["sh"],
            &["/bin/sh"],
            &["env", "sh"],
            &["/usr/bin/env", "bash", "-c", "x"],
            &["nice", "nohup", "timeout", "5", "sh"],
            &["env", "X=1", "wc"],
            &["env", "-i", "wc"],
            &["timeout", "-s", "9", "wc"],
            &["xargs", "wc"],
            &["find", "."],
            &["make", "lint"],
            &["npm", "run", "lint"],
            &["eslint"],
            &["python3.12"],
            &[&harmless],
            &["harmless"],
            &[&link],
            &["env", "harmless"],
            &["wc", "lint.sh"],
            &["wc", "--files0-from=lint.sh"],
            &["wc", "-flint.sh"],
            &["wc", "./../../..", "./lint.sh"],
        ] {
            assert!(changes(&workspace, command, &path), "{command:?}");
        }
        for command in [
            &["wc"][..],
            &["wc", "-l", &words],
            &["counts"],
            &["env", "wc"],
            &["nice", "timeout", "5", "wc"],
            &["wc", "."],
        ] {
            assert!(!changes(&workspace, command, &path), "{command:?}");
        }
    }

    #[test]
    fn paths_among_the_arguments_are_decided_on_like_those_of_read() {
        let (_dir, workspace) = test_workspace();
        std::fs::write(workspace.root.join("a.txt"), "").unwrap();
        let at = |name: &str| workspace.root.join(name);
        let check = |command: &[&str], is_vector: bool, input: Value, expect: &[PathBuf]| {
            let program = Program { only_reads: true, ..tool(command, is_vector).program().clone() };
            let effects = ProgramTool::new(program).prepare(&input, &workspace).unwrap().effects();
            assert!(!effects.changes, "{input}");
            let mut paths: Vec<&Path> = effects.access.each().iter().skip(1).filter_map(Access::path).collect();
            paths.sort_unstable();
            assert_eq!(paths, expect, "{input}");
            assert_eq!(effects.access.each()[0].reads(), Some(workspace.root.as_path()));
        };
        check(&["cat", "{a}"], true, json!({ "a": "a.txt" }), &[at("a.txt")]);
        check(&["cat", "{a}"], true, json!({ "a": "/etc/shadow" }), &["/etc/shadow".into()]);
        check(
            &["cat", "{a}"],
            true,
            json!({ "a": ["a.txt", "../../etc/x"] }),
            &[normalise(&at("../../etc/x")), at("a.txt")],
        );
        check(&["cat", "--file={a}"], true, json!({ "a": "/etc/shadow" }), &["/etc/shadow".into()]);
        check(&["cat", "-n", "x:{a}"], true, json!({ "a": "~/.ssh/id" }), &["/home/nobody/.ssh/id".into()]);
        check(&["cat"], false, json!({ "a": { "deep": ["@/etc/shadow"] } }), &["/etc/shadow".into()]);
        check(&["cat"], false, json!({ "a": "file:///etc/shadow" }), &["/etc/shadow".into()]);
        check(&["cat", "{a}"], true, json!({ "a": "no path at all" }), &[]);
    }

    #[test]
    fn a_question_shows_the_command_and_its_input() {
        let (_dir, workspace) = test_workspace();
        let action = |tool: ProgramTool, input: Value| tool.prepare(&input, &workspace).unwrap().action();
        assert_eq!(action(tool(&["./lint", "{a}"], true), json!({ "a": "it's" })), "./lint 'it'\\''s'");
        assert_eq!(action(tool(&["lint"], false), json!({ "a": 1 })), "lint <<< '{\"a\":1}'");
    }
}
