//! `bash`: runs a command in the session's directory.

use std::sync::LazyLock;

use linger_protocol::event::ToolKind;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::access::Effects;
use super::args;
use super::command::{ShellCommand, check_command};
use super::invalid::Invalid;
use super::names::Takes;
use super::types::{BoxFuture, Call, Context, Tool, ToolOutput};
use super::workspace::Workspace;
use crate::diagnostics::secret::SecretVariables;

pub(super) struct Bash;

/// The tool where nothing outlives a call: without commands in the background.
pub(crate) struct ForegroundBash;

/// The part of the description about commands in the background.
const OF_BACKGROUND: &str = "; for a server or a long build set `background`: the result is a handle for bash_output and bash_kill, and you are told when it ends";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Args {
    command: String,
    /// seconds until it is ended; at most 3600
    timeout_s: Option<u64>,
    background: Option<bool>,
}

impl Tool for Bash {
    fn name(&self) -> &str {
        "bash"
    }

    fn description(&self) -> &str {
        include_str!("bash.md")
    }

    fn schema(&self) -> Value {
        args::schema::<Args>()
    }

    fn changes(&self) -> bool {
        true
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Execute
    }

    fn pattern(&self) -> Takes {
        Takes::Command
    }

    fn prepare(&self, input: &Value, workspace: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        prepare(input, workspace, "; for one that is to stay use `background`")
    }
}

/// The call that these arguments mean; `keep`: how to keep a process that it starts.
fn prepare(input: &Value, workspace: &Workspace, keep: &'static str) -> Result<Box<dyn Call>, Invalid> {
    let Args { command, timeout_s, background } = args::parse(input)?;
    let background = background.unwrap_or(false);
    if background && timeout_s.is_some() {
        return Err(Invalid("a command in the background has no `timeout_s`".to_owned()));
    }
    let timeout_s = check_command(&command, timeout_s, workspace)?;
    let workspace = workspace.clone();
    if background {
        Ok(Box::new(InBackground { command, secrets: workspace.secrets }))
    } else {
        Ok(Box::new(ShellCommand { command, timeout_s, workspace, keep, rewrite: None }))
    }
}

impl Tool for ForegroundBash {
    fn name(&self) -> &str {
        Bash.name()
    }

    fn description(&self) -> &str {
        static TEXT: LazyLock<String> = LazyLock::new(|| Bash.description().replace(OF_BACKGROUND, ""));
        &TEXT
    }

    fn schema(&self) -> Value {
        let mut schema = Bash.schema();
        schema
            .get_mut("properties")
            .and_then(Value::as_object_mut)
            .and_then(|fields| fields.shift_remove("background"));
        schema
    }

    fn changes(&self) -> bool {
        Bash.changes()
    }

    fn kind(&self) -> ToolKind {
        Bash.kind()
    }

    fn pattern(&self) -> Takes {
        Bash.pattern()
    }

    fn prepare(&self, input: &Value, workspace: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        if input.get("background") == Some(&Value::Bool(true)) {
            return Err(Invalid("no command can run in the background here".to_owned()));
        }
        prepare(input, workspace, "")
    }
}

/// A command that outlives its call.
struct InBackground {
    command: String,
    secrets: SecretVariables,
}

impl Call for InBackground {
    fn action(&self) -> String {
        format!("{}  (in the background)", self.command)
    }

    fn effects(&self) -> Effects {
        Effects::command(self.command.clone())
    }

    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        Box::pin(async move {
            let Self { command, secrets } = *self;
            match context.jobs.start(context.id, command, secrets, context.spawn, context.blobs).await {
                Ok(handle) => ToolOutput::text(format!("{handle} runs in the background")),
                Err(why) => ToolOutput::error(why.0),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, Instant};

    use linger_protocol::event::Outcome;
    use linger_protocol::message::ContentBlock;
    use serde_json::json;
    use tokio::net::unix::pipe;
    use tokio::sync::mpsc;

    use super::*;
    use crate::tool::OutputDelta;
    use crate::tool::tests::{test_context, test_workspace};

    /// More than any of these takes; a hang fails the test.
    const SOON: Duration = Duration::from_secs(60);

    /// Runs a call and gives its output and all that was streamed.
    async fn run(workspace: &Workspace, input: Value) -> (ToolOutput, Vec<OutputDelta>) {
        let (output, mut receiver) = mpsc::channel(4);
        let context = test_context(workspace, output);
        let call = Bash.prepare(&input, workspace).unwrap();
        let collect = async {
            let mut deltas = Vec::new();
            while let Some(delta) = receiver.recv().await {
                deltas.push(delta);
            }
            deltas
        };
        tokio::time::timeout(SOON, async { tokio::join!(call.run(context), collect) }).await.unwrap()
    }

    fn texts(output: &ToolOutput) -> Vec<&str> {
        output.content.iter().filter_map(ContentBlock::as_text).collect()
    }

    async fn check(command: &str, expect: &[&str], is_error: bool) {
        let (_dir, workspace) = test_workspace();
        let (output, _) = run(&workspace, json!({"command": command})).await;
        assert_eq!((texts(&output), output.is_error, output.outcome), (expect.to_vec(), is_error, Outcome::Ran));
    }

    #[tokio::test]
    async fn output_and_how_it_ended_are_told() {
        check("echo hi; echo oops >&2", &["hi\noops\n"], false).await;
        check("true", &["[no output]"], false).await;
        check("echo", &["[nothing but white space]"], false).await;
        check("echo hi; exit 3", &["hi\n", "[exit code 3]"], true).await;
        check("kill -9 $$", &["[no output]", "[killed by signal 9]"], true).await;
        check("no-such-program 2>/dev/null", &["[no output]", "[exit code 127]"], true).await;
        check(r"printf 'a\000b\377c\342\202'", &["a\u{fffd}b\u{fffd}c\u{fffd}"], false).await;
        check("[ -t 0 ] || [ -t 1 ] || cat", &["[no output]"], false).await;
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_process_that_was_left_behind_is_ended_and_named() {
        crate::process::adopt().unwrap();
        let (_dir, mut workspace) = test_workspace();
        workspace.secrets.put("TOKEN", crate::diagnostics::secret::Secret::new("hunter2"));
        workspace.env =
            std::sync::Arc::new([("TOKEN".to_owned(), linger_protocol::variable::IN_MEMORY.to_owned())].into());
        let of_session = async |command: &str| {
            let (output, _receiver) = mpsc::channel(64);
            let mut context = test_context(&workspace, output);
            context.spawn.started_for = crate::process::ledger::StartedFor::Session("s1".into());
            let call = Bash.prepare(&json!({ "command": command }), &workspace).unwrap();
            tokio::time::timeout(SOON, call.run(context)).await.unwrap()
        };
        for (command, names) in [
            ("sleep 1001 & echo hi", &["sleep 1001"][..]),
            ("nohup sleep 1002 >/dev/null 2>&1 & disown; echo hi", &["sleep 1002"]),
            ("setsid -f sleep 1003 >/dev/null 2>&1; echo hi", &["sleep 1003"]),
            ("(cd / && sleep 1004; true) & echo hi", &["sleep 1004"]),
            ("sleep 1005 & sleep 1006 & echo hi", &["sleep 1005", "sleep 1006"]),
            ("sh -c 'sleep 1007; true' & echo hi", &["sh -c sleep 1007; true"]),
            ("sh -c 'sleep 1009; true' $TOKEN & echo hi", &["sh"]),
            ("sh -c 'sleep 1010; true' $'a\nb' & echo hi", &["sh -c sleep 1010; true a\\nb"]),
        ] {
            let output = of_session(command).await;
            let [text, left] = texts(&output)[..] else { panic!("{command}: {output:?}") };
            let count = if names.len() == 1 {
                "1 process that it left behind was"
            } else {
                "2 processes that it left behind were"
            };
            assert_eq!((text, output.is_error, output.output.len()), ("hi\n", false, 1));
            assert!(left.starts_with(&format!("[{count} ended: ")), "{command}: {left}");
            assert!(left.ends_with("; for one that is to stay use `background`]"), "{command}: {left}");
            assert!(names.iter().all(|name| left.contains(&format!("{name} ("))), "{command}: {left}");
        }
        for command in [
            "sleep 0.01 & wait; echo hi",
            "(sleep 0.01; true) | cat; echo hi",
            "cat <(echo hi)",
            "echo hi > >(cat); wait $!",
        ] {
            let output = of_session(command).await;
            assert_eq!(texts(&output), ["hi\n"], "{command}");
        }
        let output = of_session("sleep 1011 & exit 3").await;
        assert_eq!((texts(&output)[1], texts(&output).len()), ("[exit code 3]", 3));
        let call = ForegroundBash.prepare(&json!({ "command": "sleep 1012 & true" }), &workspace).unwrap();
        let output = call.run(test_context(&workspace, mpsc::channel(4).0)).await;
        assert!(texts(&output)[1].ends_with(")]"), "nothing can run in the background: {output:?}");
    }

    #[tokio::test]
    async fn progress_is_shown_as_its_last_frame() {
        check("printf '1%%\\r50%%'; printf '\\r100%%\\n\\033[32mdone\\033[0m\\n'", &["100%\ndone\n"], false).await;
        check("printf 'a\\r\\nb\\r\\n'", &["a\r\nb\r\n"], false).await;
    }

    #[tokio::test]
    async fn a_character_that_comes_in_two_pieces_is_whole() {
        check(r"printf '\342\202'; sleep 0.05; printf '\254'", &["€"], false).await;
    }

    #[tokio::test]
    async fn it_runs_in_the_directory_and_environment_of_the_session() {
        let (_dir, mut workspace) = test_workspace();
        workspace.env = [("PATH", "/usr/bin:/bin"), ("X", "1")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into_iter()
            .collect::<std::collections::BTreeMap<_, _>>()
            .into();
        let (output, _) = run(&workspace, json!({"command": "exec env"})).await;
        // The shell itself adds the last three.
        let cwd = workspace.cwd.display();
        let varies = |line: &&str| line.starts_with("_=") || line.starts_with("LINGER_CALL=");
        let mut lines: Vec<&str> = texts(&output)[0].lines().filter(|line| !varies(line)).collect();
        lines.sort_unstable();
        let pwd = format!("PWD={cwd}");
        let expect = ["NO_COLOR=1", "PATH=/usr/bin:/bin", &pwd, "SHLVL=0", "TERM=dumb", "X=1"];
        assert_eq!(lines, expect);
    }

    #[tokio::test]
    async fn a_vanished_workspace_is_named() {
        let (dir, workspace) = test_workspace();
        drop(dir);
        let (output, _) = run(&workspace, json!({"command": "true"})).await;
        let expect = crate::tool::file::gone(&workspace);
        assert_eq!((texts(&output), output.is_error), (vec![expect.as_str()], true));
    }

    /// A FIFO that ends when nobody has it open for writing.
    fn witness(workspace: &Workspace) -> pipe::Receiver {
        let path = workspace.cwd.join("witness");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        pipe::OpenOptions::new().open_receiver(path).unwrap()
    }

    async fn gone(mut witness: pipe::Receiver) {
        use tokio::io::AsyncReadExt;
        tokio::time::timeout(SOON, witness.read_to_end(&mut Vec::new())).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn what_takes_too_long_is_ended_with_all_it_started() {
        let (_dir, workspace) = test_workspace();
        let witness = witness(&workspace);
        let command = "exec 3>witness; echo begun; (trap '' TERM; sleep 1000) & trap '' TERM; while :; do yes; done";
        let (output, deltas) = run(&workspace, json!({"command": command, "timeout_s": 4})).await;
        assert_eq!((output.is_error, output.outcome), (true, Outcome::TimedOut));
        assert!(texts(&output)[0].starts_with("begun\ny\n"));
        assert!(texts(&output).last().unwrap().starts_with("[timed out after 4 s; "));
        assert!(deltas[0].text.starts_with("begun\n"));
        gone(witness).await;
    }

    #[tokio::test]
    async fn dropping_a_call_ends_all_it_started() {
        let (_dir, workspace) = test_workspace();
        let witness = witness(&workspace);
        let (output, mut receiver) = mpsc::channel(1);
        let call = Bash.prepare(&json!({"command": "exec 3>witness; sleep 1000 & echo ready; sleep 1000"}), &workspace);
        let running = tokio::spawn(call.unwrap().run(test_context(&workspace, output)));
        assert_eq!(receiver.recv().await.unwrap().text, "ready\n");
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled());
        gone(witness).await;
    }

    /// That what was streamed and what was kept are pieces of `whole` at their offsets.
    fn check_pieces(whole: &str, output: &ToolOutput, deltas: &[OutputDelta]) {
        let at = |offset: u64, text: &str| assert!(whole[offset as usize..].starts_with(text), "at {offset}");
        let mut end = 0;
        for delta in deltas {
            assert!(delta.offset >= end, "deltas overlap");
            end = delta.offset + delta.text.len() as u64;
            at(delta.offset, &delta.text);
        }
        for segment in &output.output {
            at(segment.offset, output.content[segment.block as usize].as_text().unwrap());
        }
    }

    #[tokio::test]
    async fn output_that_fits_is_streamed_and_kept_whole() {
        let (_dir, workspace) = test_workspace();
        let (output, deltas) = run(&workspace, json!({"command": "seq 1 5000"})).await;
        let whole: String = (1..=5000).map(|i| format!("{i}\n")).collect();
        assert_eq!(texts(&output), [whole.as_str()]);
        assert_eq!(deltas.iter().map(|delta| delta.text.as_str()).collect::<String>(), whole);
        check_pieces(&whole, &output, &deltas);
        assert_eq!(output.whole, None);
        assert!(!workspace.cwd.join("out").exists());
    }

    #[tokio::test]
    async fn long_output_keeps_its_ends_and_is_whole_in_a_file() {
        let (_dir, workspace) = test_workspace();
        let (output, deltas) = run(&workspace, json!({"command": "seq 1 100000; exit 1"})).await;
        let whole: String = (1..=100_000).map(|i| format!("{i}\n")).collect();
        check_pieces(&whole, &output, &deltas);
        let held = output.whole.clone().unwrap();
        let spill = held.path().unwrap();
        assert!(spill.starts_with(workspace.cwd.join("out/blobs")));
        assert_eq!(fs::read_to_string(&spill).unwrap(), whole);
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&spill.metadata().unwrap().permissions()) & 0o777, 0o600);
        let [head, marker, tail, status] = texts(&output)[..] else { panic!("{output:?}") };
        assert!(head.len() > 10_000 && head.ends_with('\n') && tail.ends_with("\n100000\n") && tail.len() > 10_000);
        let left_out = whole.len() - head.len() - tail.len();
        assert_eq!(marker, format!("[… {left_out} bytes left out; the whole output is in {}]", spill.display()));
        assert_eq!((status, output.output.len()), ("[exit code 1]", 2));
        let whole: [u8; 32] = <sha2::Sha256 as sha2::Digest>::digest(fs::read(&spill).unwrap()).into();
        assert_eq!(*held.id(), crate::store::blob::id_of(&whole));
    }

    #[tokio::test]
    async fn a_flood_is_bounded() {
        let (_dir, workspace) = test_workspace();
        let begun = Instant::now();
        let (output, deltas) = run(&workspace, json!({"command": "yes | head -c 200000000"})).await;
        let seconds = begun.elapsed().as_secs() + 1;
        assert_eq!(output.whole.as_ref().unwrap().path().unwrap().metadata().unwrap().len(), 200_000_000);
        let streamed: usize = deltas.iter().map(|delta| delta.text.len()).sum();
        assert!(streamed as u64 <= 64 * 1024 + seconds * 32 * 1024, "{streamed} bytes streamed in {seconds} s");
        let kept: usize = texts(&output).iter().map(|text| text.len()).sum();
        assert!(kept < 25_000, "{kept} bytes kept");
        let last = output.output[1];
        assert_eq!(last.offset + texts(&output)[2].len() as u64, 200_000_000);
    }

    #[tokio::test]
    async fn output_that_cannot_be_stored_is_still_told() {
        let (_dir, workspace) = test_workspace();
        linger_protocol::place::private_directory(&workspace.cwd.join("out")).unwrap();
        // A directory, in which nobody can make anything.
        std::os::unix::fs::symlink("/proc", workspace.cwd.join("out/blobs")).unwrap();
        let (output, _) = run(&workspace, json!({"command": "seq 1 100000"})).await;
        let said = texts(&output)[1];
        assert!(said.contains("bytes left out; they could not be stored: ") && said.contains("os error"), "{said}");
        assert_eq!((output.whole, output.is_error), (None, false));
    }
}
