//! Completion in real shells: what bash's function gives, and what zsh and fish write into the line at Tab.

use std::path::{Path, PathBuf};

use linger_tests::harness::{Daemon, Pty, Setup, programs};
use linger_tests::model::ModelServer;
use serde_json::json;

/// A PATH with linger in front.
fn path() -> String {
    let dir = programs().client.parent().unwrap().to_path_buf();
    format!("{}:{}", dir.display(), std::env::var("PATH").unwrap_or_default())
}

/// What bash prints that runs a script with linger on its PATH.
#[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
async fn bash(daemon: &Daemon, script: &str) -> String {
    let mut command = tokio::process::Command::new("bash");
    command
        .args(["-c", script])
        .current_dir(daemon.workspace())
        .env_clear()
        .envs(daemon.dirs.env())
        .env("PATH", path());
    let output = command.kill_on_drop(true).output().await.unwrap();
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{complained}");
    said.into_owned()
}

/// A shell that `.ci/run` installs; nothing where it is not, which is said.
fn installed(shell: &str) -> Option<PathBuf> {
    let found = ["/usr/bin", "/bin", "/usr/local/bin", "/opt/homebrew/bin"].map(|dir| Path::new(dir).join(shell));
    let found = found.into_iter().find(|path| path.is_file());
    assert!(found.is_some() || std::env::var_os("CI").is_none(), "{shell} is not installed");
    if found.is_none() {
        eprintln!("not run: this machine has no {shell}");
    }
    found
}

/// A daemon with names to complete: sessions, an agent, an MCP server.
async fn named(model: &ModelServer) -> Daemon {
    let config = "[mcp.notes]\ncommand = \"true\"\n".to_owned();
    let daemon = Daemon::start_with(model, Setup { config, ..Setup::default() }).await;
    let client = daemon.client().await;
    client.create_with(json!({ "name": "fix-parser" })).await;
    client.create_with(json!({ "name": "docs" })).await;
    let agents = daemon.dirs.root().join("c/linger/agents");
    std::fs::create_dir_all(&agents).unwrap();
    std::fs::write(agents.join("reviewer.md"), "---\ndescription: reads changes\n---\nReview.\n").unwrap();
    std::fs::create_dir(daemon.workspace().join("deep")).unwrap();
    std::fs::write(daemon.workspace().join("schema.json"), "{}").unwrap();
    daemon
}

/// Types lines and Tab into a real shell; each must make of the line what is expected.
async fn types(daemon: &Daemon, shell: &Path, args: &[&str], ready: &str) {
    let env: Vec<_> =
        daemon.env(true).into_iter().filter(|(name, _)| name != "PATH").chain([("PATH".to_owned(), path())]).collect();
    let mut terminal = Pty::open(shell, &env, &daemon.workspace(), args);
    terminal.line(ready);
    terminal.shows("ready-42").await;
    for (typed, becomes) in [
        ("linger atta", "linger attach"),
        ("linger attach fix", "linger attach fix-parser"),
        ("linger run -s do", "linger run -s docs"),
        ("linger run --mode pl", "linger run --mode plan"),
        ("linger daemon sto", "linger daemon stop"),
        ("linger mcp restart no", "linger mcp restart notes"),
        ("linger run -C d", "linger run -C deep/"),
        ("linger run --schema sch", "linger run --schema schema.json"),
    ] {
        terminal.keys(&format!("{typed}\t"));
        terminal
            .until_rows(&format!("{typed} becomes {becomes}"), |rows| {
                rows.last().is_some_and(|row| row.trim_end().ends_with(becomes))
            })
            .await;
        // The line is dropped.
        terminal.keys("\x15");
    }
    // Of several each shell shows all, with what is said of them.
    terminal.keys("linger answer q1 \t\t");
    terminal.shows("session").await;
    terminal.shows("deny").await;
    terminal.keys("\x03\x15exit\r");
    terminal.exits().await;
}

#[tokio::test]
async fn bash_completes_commands_options_and_the_names_that_there_are() {
    let model = ModelServer::start();
    let daemon = named(&model).await;
    let complete = async |line: &str| {
        let script = format!(
            "source <(linger completions bash) || exit 1; COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; \
             compopt() {{ :; }}; _linger; printf '%s\\n' \"${{COMPREPLY[@]}}\" | sort"
        );
        let said = bash(&daemon, &script).await;
        said.lines().map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(complete("linger atta").await, "attach");
    assert_eq!(complete("linger attach ").await, "docs fix-parser");
    assert_eq!(complete("linger wait docs fi").await, "fix-parser");
    assert_eq!(complete("linger run --mode ").await, "ask auto edit plan");
    assert_eq!(complete("linger run --mode=a").await, "ask auto");
    assert_eq!(complete("linger daemon sto").await, "stop");
    daemon.check(&[], &model);
}

#[tokio::test]
async fn zsh_completes_at_tab_what_there_is() {
    let Some(zsh) = installed("zsh") else { return };
    let model = ModelServer::start();
    let daemon = named(&model).await;
    let ready =
        "PS1='%% '; autoload -U compinit; compinit -D -u; source <(linger completions zsh); echo ready-$((40+2))";
    types(&daemon, &zsh, &["-f", "-i"], ready).await;
    // Saved as a file of $fpath it is found without being read first.
    let functions = daemon.workspace().join("functions");
    std::fs::create_dir(&functions).unwrap();
    let text = daemon.cli(&["completions", "zsh"]).run().await.exits(0).stdout;
    std::fs::write(functions.join("_linger"), text).unwrap();
    let ready = "PS1='%% '; fpath=($PWD/functions $fpath); autoload -U compinit; compinit -D -u; echo ready-$((40+2))";
    types(&daemon, &zsh, &["-f", "-i"], ready).await;
    daemon.check(&[], &model);
}

#[tokio::test]
async fn fish_completes_at_tab_what_there_is() {
    let Some(fish) = installed("fish") else { return };
    let model = ModelServer::start();
    let daemon = named(&model).await;
    let ready = "function fish_prompt; echo '> '; end; linger completions fish | source; echo ready-(math 40+2)";
    types(&daemon, &fish, &["--no-config", "-i"], ready).await;
    daemon.check(&[], &model);
}

#[tokio::test]
async fn completion_starts_no_daemon() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    daemon.cli(&["daemon", "stop"]).run().await.exits(0);
    let output = daemon.cli(&["complete", "--line", "linger attach "]).run().await.exits(0);
    assert_eq!(output.stdout, "");
    let output = daemon.cli(&["status", "--format", "{running}/{waiting}"]).run().await.exits(0);
    assert_eq!(output.stdout, "0/0\n");
    assert!(!daemon.dirs.socket().exists(), "a daemon was started");
}
