//! `test_run`: runs a project's tests, and gives the failures first.
//!
//! The command is found before anything is asked ([`Tool::complete`]), so that the permission is about the command that runs; it runs
//! like one of `bash`, in a shell and by the same rules.

mod cargo;
mod detect;
mod go;
mod javascript;
mod pytest;
mod report;

use std::path::Path;

use linger_protocol::event::ToolKind;
use linger_protocol::message::ContentBlock;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::output::Output;
use super::set::Takes;
use super::{
    BoxFuture, Call, Context, Effects, Invalid, TIMEOUT_MAX_S, Tool, ToolOutput, Workspace, args, bash, path, text,
};
use crate::process::{Input, Stderr};

/// How much of the end of an output is read for failures, in bytes: it is in memory.
const READ_MAX: usize = 4 << 20;

/// How much of a path an error shows, in bytes.
const SHOWN_MAX: usize = 200;

/// The tool.
pub(super) struct TestRun;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Args {
    command: Option<String>,
    /// directory of the project
    path: Option<String>,
    /// only tests with this name
    filter: Option<String>,
    timeout_s: Option<u64>,
}

impl Tool for TestRun {
    fn name(&self) -> &str {
        "test_run"
    }

    fn description(&self) -> &str {
        include_str!("test_run.md")
    }

    fn schema(&self) -> Value {
        args::schema::<Args>()
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Execute
    }

    fn pattern(&self) -> Takes {
        Takes::Command
    }

    fn completes(&self) -> bool {
        true
    }

    fn complete(&self, input: &Value, workspace: &Workspace) -> Result<Option<Value>, Invalid> {
        let Args { command, path, filter, timeout_s } = args::parse(input)?;
        if command.is_some() {
            return match path.is_some() || filter.is_some() {
                true => {
                    Err(Invalid("`path` and `filter` are for a command that is found; leave out `command`".to_owned()))
                }
                false => Ok(None),
            };
        }
        let filter = filter.as_deref().filter(|filter| !filter.is_empty());
        // It would be read as an option.
        if filter.is_some_and(|filter| filter.starts_with('-') || filter.contains('\0')) {
            return Err(Invalid("`filter` is no name of a test; give the whole `command`".to_owned()));
        }
        let dir = workspace.resolve(&path::directory(workspace, path.as_deref())?);
        let root = workspace.resolve(&workspace.root);
        if !dir.starts_with(&root) {
            return Err(Invalid("`path` is not in the workspace; give the whole `command`".to_owned()));
        }
        let found = detect::command(&dir, &root, filter).map_err(Invalid)?;
        let Some(detect::Found { dir, command }) = found else {
            let shown = path::show(&workspace.cwd, &dir);
            let shown = text::head(&shown, SHOWN_MAX);
            let looked_for = detect::LOOKED_FOR;
            return Err(Invalid(format!(
                "no tests found in {shown} or above (looked for {looked_for}); give the `command`"
            )));
        };
        let command = match way(&workspace.resolve(&workspace.cwd), &dir) {
            Some(way) => format!("cd {} && {command}", text::shell_word(&way)),
            None => command,
        };
        let mut complete = json!({ "command": command });
        if let (Some(fields), Some(timeout_s)) = (complete.as_object_mut(), timeout_s) {
            fields.insert("timeout_s".to_owned(), timeout_s.into());
        }
        Ok(Some(complete))
    }

    fn prepare(&self, input: &Value, workspace: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let Args { command, timeout_s, .. } = args::parse(input)?;
        let command = command.ok_or_else(|| Invalid("no `command`".to_owned()))?;
        if command.trim().is_empty() || command.contains('\0') {
            return Err(Invalid("`command` is empty, or has a NUL in it".to_owned()));
        }
        let timeout_s = timeout_s.unwrap_or(workspace.timeout_s.clamp(1, TIMEOUT_MAX_S));
        if !(1..=TIMEOUT_MAX_S).contains(&timeout_s) {
            return Err(Invalid(format!("`timeout_s` must be from 1 to {TIMEOUT_MAX_S}")));
        }
        Ok(Box::new(Testing { command, timeout_s, workspace: workspace.clone() }))
    }
}

/// The way from one directory to another, both without links; nothing if they are the same.
fn way(from: &Path, to: &Path) -> Option<String> {
    let common = from.ancestors().find(|above| to.starts_with(above))?;
    let up = from.strip_prefix(common).ok()?.components().map(|_| "..".to_owned());
    let down = to.strip_prefix(common).ok()?.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
    let way = up.chain(down).collect::<Vec<_>>().join("/");
    match way.as_str() {
        "" => None,
        // `cd` would take it for an option.
        way if way.starts_with('-') => Some(format!("./{way}")),
        way => Some(way.to_owned()),
    }
}

struct Testing {
    command: String,
    timeout_s: u64,
    workspace: Workspace,
}

impl Call for Testing {
    fn action(&self) -> String {
        self.command.clone()
    }

    fn effects(&self) -> Effects {
        Effects::command(self.command.clone())
    }

    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        Box::pin(async move {
            let process = match context.spawn.shell(&self.command, Input::Nothing, Stderr::Merged).await {
                Ok(process) => process,
                Err(error) => return bash::not_started(&self.workspace, &error).await,
            };
            let mut output = Output::new(context);
            output.keep_end(READ_MAX);
            let longer = format!(" `timeout_s` may be up to {TIMEOUT_MAX_S}");
            let (ran, end) = bash::collect_with_end(process, output, self.timeout_s, &longer).await;
            match report::read(&end) {
                Some(report) => shown(&report, ran),
                None => ran,
            }
        })
    }
}

/// The result with the report in the place of the output, if that is shorter.
fn shown(report: &report::Report, ran: ToolOutput) -> ToolOutput {
    let text = report.text();
    let own: usize = ran.content.iter().filter_map(ContentBlock::as_text).map(str::len).sum();
    if own <= text.len() {
        return ran;
    }
    // What is no output says where the whole is, and how it ended.
    let is_output = |nth: usize| ran.output.iter().any(|segment| segment.block as usize == nth);
    let about = ran.content.iter().enumerate().filter(|(nth, _)| !is_output(*nth)).map(|(_, block)| block.clone());
    let content = std::iter::once(ContentBlock::text(text)).chain(about).collect();
    ToolOutput { content, output: Vec::new(), ..ran }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::tool::tests::{test_context, test_workspace};

    fn complete(workspace: &Workspace, input: Value) -> Result<Option<Value>, String> {
        TestRun.complete(&input, workspace).map_err(|invalid| invalid.0)
    }

    #[test]
    fn the_command_is_found_before_anything_is_asked() {
        let (_dir, mut workspace) = test_workspace();
        let root = workspace.root.clone();
        let missing = complete(&workspace, json!({})).unwrap_err();
        assert!(missing.starts_with("no tests found in . or above (looked for Cargo.toml, "), "{missing}");
        fs::create_dir_all(root.join("a/src")).unwrap();
        fs::write(root.join("a/Cargo.toml"), "").unwrap();
        let found = complete(&workspace, json!({ "path": "a/src", "filter": "x y", "timeout_s": 5 }));
        assert_eq!(found, Ok(Some(json!({ "command": "cd a && cargo test 'x y'", "timeout_s": 5 }))));
        workspace.cwd = root.join("a");
        assert_eq!(complete(&workspace, json!({})), Ok(Some(json!({ "command": "cargo test" }))));
        workspace.cwd = root.join("a/src");
        assert_eq!(complete(&workspace, json!({})), Ok(Some(json!({ "command": "cd .. && cargo test" }))));
        let given = json!({ "command": "cargo test -p x; rm y" });
        assert_eq!(complete(&workspace, given.clone()), Ok(None));
        let call = TestRun.prepare(&given, &workspace).unwrap();
        assert_eq!(call.effects(), Effects::command("cargo test -p x; rm y"));
        for (input, expect) in [
            (
                json!({ "command": "x", "filter": "y" }),
                "`path` and `filter` are for a command that is found; leave out `command`",
            ),
            (json!({ "path": "/" }), "`path` is not in the workspace; give the whole `command`"),
            (json!({ "path": "../../.." }), "`path` is not in the workspace; give the whole `command`"),
            (json!({ "filter": "--config=x" }), "`filter` is no name of a test; give the whole `command`"),
        ] {
            assert_eq!(complete(&workspace, input).unwrap_err(), expect);
        }
    }

    async fn run(workspace: &Workspace, command: &str) -> (String, bool) {
        let call = TestRun.prepare(&json!({ "command": command }), workspace).unwrap();
        let (sender, mut receiver) = tokio::sync::mpsc::channel(4);
        let drain = async { while receiver.recv().await.is_some() {} };
        let (output, ()) = tokio::join!(call.run(test_context(workspace, sender)), drain);
        (output.content.iter().filter_map(ContentBlock::as_text).collect::<Vec<_>>().join("|"), output.is_error)
    }

    #[tokio::test]
    async fn failures_come_first_and_other_output_is_shown_as_it_is() {
        let (_dir, workspace) = test_workspace();
        linger_protocol::place::private_directory(&workspace.cwd.join("out")).unwrap();
        let captured = include_str!("test_run/captured/cargo.txt");
        fs::write(workspace.cwd.join("log"), format!("{}{captured}", "   Compiling x\n".repeat(5000))).unwrap();
        let (text, is_error) = run(&workspace, "cat log; exit 101").await;
        assert!(is_error && text.starts_with("FAILED tests::result\n  Error: \"no database\"\n"), "{text}");
        assert!(text.ends_with("|[exit code 101]") && text.contains("the whole output is in "), "{text}");
        assert!(!text.contains("Compiling"), "{text}");
        let (text, is_error) = run(&workspace, "echo fine").await;
        assert_eq!((text.as_str(), is_error), ("fine\n", false));
    }
}
