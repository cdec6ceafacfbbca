//! Completion in a real bash, and zsh and fish where they are installed.

use linger_tests::harness::{Daemon, programs};
use linger_tests::model::ModelServer;
use serde_json::json;

/// What a shell prints that runs a script with linger on its PATH; nothing if the shell is not installed.
#[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
async fn shell(daemon: &Daemon, shell: &str, script: &str) -> Option<String> {
    let dir = programs().client.parent().unwrap().to_path_buf();
    let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = tokio::process::Command::new(shell);
    command.args(["-c", script]).current_dir(daemon.workspace()).env_clear().envs(daemon.dirs.env()).env("PATH", path);
    let output = match command.kill_on_drop(true).output().await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        output => output.unwrap(),
    };
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{shell}: {said}{complained}");
    Some(said.into_owned())
}

#[tokio::test]
async fn bash_completes_commands_options_and_the_names_that_there_are() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    client.create_with(json!({ "name": "fix-parser" })).await;
    client.create_with(json!({ "name": "docs" })).await;
    let complete = async |line: &str| {
        let script = format!(
            "source <(linger completions bash) || exit 1; COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; \
             compopt() {{ :; }}; _linger; printf '%s\\n' \"${{COMPREPLY[@]}}\" | sort"
        );
        let said = shell(&daemon, "bash", &script).await.expect("bash");
        said.lines().map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(complete("linger atta").await, "attach");
    assert_eq!(complete("linger attach ").await, "docs fix-parser");
    assert_eq!(complete("linger wait docs fi").await, "fix-parser");
    assert_eq!(complete("linger run --mode ").await, "ask auto edit plan");
    assert_eq!(complete("linger run --mode=a").await, "ask auto");
    assert_eq!(complete("linger daemon sto").await, "stop");
    for other in ["zsh", "fish"] {
        let script = match other {
            "zsh" => "autoload -U compinit; compinit -D -u; source <(linger completions zsh); whence -w _linger",
            _ => "linger completions fish | source; complete -C 'linger attach fix'",
        };
        match shell(&daemon, other, script).await {
            Some(said) => assert!(said.contains("_linger: function") || said.contains("fix-parser"), "{other}: {said}"),
            None => eprintln!("not run: this machine has no {other}"),
        }
    }
    daemon.check(&[&client], &model);
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
