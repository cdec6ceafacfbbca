//! The Markdown files that a user writes: their first versions, what `linger doctor --files` says of wrong ones, changes of them, and notes.

use std::os::unix::fs::PermissionsExt as _;

use linger_tests::model::{ModelServer, Reply};
use serde_json::json;

use crate::Daemon;

/// A kind, the command that checks its files, and the first file of that kind below the user's configuration.
const KINDS: [(&str, &str, &str); 5] = [
    ("agent", "agents", "agents/first-one.md"),
    ("skill", "skills", "skills/first-one/SKILL.md"),
    ("command", "commands", "commands/first-one.md"),
    ("tool", "tools", "tools/first-one.md"),
    ("server", "mcp", "mcp/first-one.md"),
];

#[tokio::test]
async fn a_first_file_of_each_kind_is_right_as_it_is_and_replaces_nothing() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let config = daemon.dirs.root().join("c/linger");
    for (kind, plural, below) in KINDS {
        let written =
            daemon.cli(&["init", kind, "first-one"]).run().await.exits(0).says("`linger files validate` checks it");
        let file = config.join(below);
        assert_eq!(written.word(), file.to_str().unwrap());
        let checked = daemon.cli(&[plural, "validate", file.to_str().unwrap()]).run().await.exits(0);
        assert_eq!(checked.stdout, "", "{kind}");
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains("\n# "), "it has comments: {text}");
        daemon.cli(&["init", kind, "first-one"]).run().await.fails_with_hint(2).says("already exists");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    }
    daemon.cli(&["validate"]).run().await.exits(0).says("0 errors");
    // What was just written can be confirmed at once.
    let confirmed = daemon.cli(&["config", "confirm", "--yes"]).run().await.exits(0);
    assert!(confirmed.stderr.contains("agents/first-one.md"), "{}", confirmed.stderr);
    for name in ["second", "third"] {
        std::fs::write(config.join(format!("agents/{name}.md")), "---\ndescription: x\n---\nText.\n").unwrap();
        let confirmed = daemon.cli(&["config", "confirm", "--yes"]).run().await.exits(0);
        assert!(confirmed.stderr.contains(&format!("agents/{name}.md")), "{}", confirmed.stderr);
    }
    // For a workspace it is below its root.
    let root = daemon.workspace();
    std::fs::create_dir_all(root.join(".git")).unwrap();
    std::fs::create_dir(root.join("sub")).unwrap();
    let here =
        daemon.cli(&["init", "agent", "reviewer", "--here", "--json"]).cwd(root.join("sub")).run().await.exits(0);
    let row = here.json().remove(0);
    assert_eq!(row["file"], root.join(".linger/agents/reviewer.md").to_str().unwrap());
    for wrong in [&["init", "agent"][..], &["init", "agent", "../x"], &["init", "agent", "A"], &["init", "thing", "x"]]
    {
        daemon.cli(wrong).run().await.exits(2);
    }
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_tool_without_a_file_is_shown_as_models_are_told_of_it() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let shown = daemon.cli(&["tools", "show", "bash"]).run().await.exits(0).says("built in, runs, asks: mode ask");
    assert!(shown.stdout.starts_with("Runs a command") && shown.stdout.contains("\"timeout_s\""), "{}", shown.stdout);
    let row = daemon.cli(&["tools", "show", "read", "--json"]).run().await.exits(0).json().remove(0);
    assert_eq!((&row["name"], &row["effect"]), (&json!("read"), &json!("reads")));
    daemon.cli(&["tools", "show", "bsh"]).run().await.fails_with_hint(2).says("no tool is called 'bsh'");
    daemon.check(&[], &model);
}

#[tokio::test]
async fn validate_names_file_and_line_of_whatever_is_wrong() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let config = daemon.dirs.root().join("c/linger");
    for (below, text, expect) in [
        ("agents/a.md", "---\nname: a\nmodle: x\n---\nText.\n", "3: warning: unknown key `modle`"),
        ("agents/b.md", "---\nbudget: lots\n---\nText.\n", "2: error: `budget`"),
        ("skills/s/SKILL.md", "---\nname: s\n---\nText.\n", "1: error: `description` is missing"),
        ("commands/c.md", "---\ndescription: x\n---\n", "1: error: there is no text"),
        ("tools/t.md", "---\ncommand: date\ntimeout_s: never\n---\nText.\n", "3: error: `timeout_s`"),
        ("mcp/m.md", "---\ncommand: x\ncomand: y\n---\nText.\n", "3: error: is no server"),
    ] {
        let file = config.join(below);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
        let checked = daemon.cli(&["validate"]).run().await.exits(i32::from(expect.contains("error")));
        let lines: Vec<&str> = checked.stdout.lines().filter(|line| line.starts_with(file.to_str().unwrap())).collect();
        let [line] = lines.as_slice() else { panic!("{below} once: {}", checked.stdout) };
        assert!(line.starts_with(&format!("{}:{expect}", file.display())), "{line}");
        std::fs::remove_file(&file).unwrap();
    }
    let file = daemon.workspace().join(".mcp.json");
    for (text, expect) in [
        ("{ nothing", "1:3: error: key must be a string"),
        (
            "{\"mcpServers\": {\n \"a\": {\"command\": \"x\",\n  \"args\": 7}}}",
            "3:11: error: mcpServers.a.args: invalid",
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let checked = daemon.cli(&["validate"]).run().await.exits(1).says("1 error");
        let line = checked.stdout.lines().find(|line| line.contains(" error: ")).unwrap();
        assert!(line.starts_with(&format!("{}:{expect}", file.display())), "{line}");
    }
    let rows = daemon.cli(&["validate", "--json"]).run().await.exits(1).json();
    let row = rows.iter().find(|row| row["ok"] == false).unwrap();
    assert_eq!((&row["file"], &row["line"], &row["column"]), (&json!(file), &json!(3), &json!(11)), "{row}");
    // The configuration's errors have the same form.
    std::fs::remove_file(&file).unwrap();
    std::fs::write(daemon.dirs.config(), "\nmodle = 'x'\n").unwrap();
    let checked = daemon.cli(&["validate"]).run().await.exits(1);
    let place = format!("{}:2:1: error: modle: ", daemon.dirs.config().display());
    assert!(checked.stdout.lines().any(|line| line.starts_with(&place)), "{}", checked.stdout);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_changed_file_is_said_in_loaded_sessions_and_counts_from_the_next_prompt() {
    let model = ModelServer::scripted(|_| Reply::text("hello"));
    model.expect_rewrites();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "one").await;
    let file = daemon.dirs.root().join("c/linger/skills/pdf/SKILL.md");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "---\nname: pdf\ndescription: Reads PDFs\n---\nText.\n").unwrap();
    let said = client
        .wait("a notice about the file", |seen| {
            let notice = seen.of("notice").find(|seen| seen.event["code"] == "files")?;
            Some(notice.event["text"].as_str().unwrap_or_default().to_owned())
        })
        .await;
    assert!(said.contains("pdf") && said.ends_with("this counts from the next prompt"), "{said}");
    client.prompt(&session, "two").await;
    client.nth(&session, "turn_finished", 2).await;
    let has = |n: usize| String::from_utf8_lossy(&model.requests()[n].body).contains("Reads PDFs");
    assert_eq!((has(0), has(1)), (false, true));
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_skill_that_is_sent_by_name_limits_its_turn_to_what_it_lists() {
    let model = ModelServer::scripted(|request| {
        if request.after_tool() {
            Reply::text("done")
        } else {
            Reply::tool("bash", json!({ "command": "echo said" }))
                .and_tool("write", json!({ "path": "made", "content": "x" }))
        }
    });
    let daemon = Daemon::start(&model).await;
    let file = daemon.dirs.root().join("c/linger/skills/echo/SKILL.md");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let text = "---\nname: echo\ndescription: Echoes\nallowed-tools: Read Bash(echo:*) Zap\n---\nEcho.\n";
    std::fs::write(&file, text).unwrap();
    let checked = daemon.cli(&["skills", "validate"]).run().await.exits(0);
    assert!(checked.stdout.contains(":4: warning: unknown tool `Zap`; it is left out"), "{}", checked.stdout);
    let done = daemon.cli(&["run", "--mode", "auto", "/echo it"]).run().await.exits(0);
    assert_eq!(done.stdout.trim(), "done");
    assert!(!daemon.workspace().join("made").exists());
    let read = model.requests().last().map(|request| String::from_utf8_lossy(&request.body).into_owned()).unwrap();
    let refused = "not run: the skill `echo` limits this turn to `read`, `bash(echo:*)` and calls that only read";
    assert!(read.contains("said") && read.contains(refused), "{read}");
    daemon.cli(&["run", "--mode", "auto", "do it"]).run().await.exits(0);
    assert!(daemon.workspace().join("made").exists(), "another turn is free");
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_call_that_a_skill_leaves_out_is_explained_with_the_skill_in_its_session_alone() {
    let model = ModelServer::scripted(|request| {
        if request.after_tool() { Reply::text("done") } else { Reply::tool("bash", json!({ "command": "echo said" })) }
    });
    let daemon = Daemon::start(&model).await;
    let skill = daemon.dirs.root().join("c/linger/skills/echo");
    std::fs::create_dir_all(&skill).unwrap();
    let text = "---\nname: echo\ndescription: Echoes\nallowed-tools: Bash(echo:*)\n---\nEcho.\n";
    std::fs::write(skill.join("SKILL.md"), text).unwrap();
    let client = daemon.client().await;
    let session = client.session().await;
    client.call("session/prompt", json!({ "session": session, "content": "/echo it", "expand": true })).await;
    let asked = client.nth(&session, "permission_requested", 1).await;
    // What counts is what the turn has read.
    std::fs::remove_dir_all(&skill).unwrap();
    let refused = "refused: the skill `echo` limits this turn to `bash(echo:*)` and calls that only read\n";
    for (call, expect) in [("write(made)", refused), ("bash(echo it)", "asks: mode ask\n"), ("read(x)", "runs: ")] {
        let said = daemon.cli(&["permissions", "explain", call, "-s", &session]).run().await.exits(0);
        assert!(said.stdout.starts_with(expect), "{call}: {}", said.stdout);
    }
    let elsewhere = daemon.cli(&["permissions", "explain", "write(made)"]).run().await.exits(0);
    assert!(elsewhere.stdout.starts_with("asks: mode ask\n"), "{}", elsewhere.stdout);
    let answer = json!({ "permission": asked.str("permission"), "decision": "allow_once" });
    client.call("permission/answer", answer).await;
    client.nth(&session, "turn_finished", 1).await;
    let free = daemon.cli(&["permissions", "explain", "write(made)", "-s", &session]).run().await.exits(0);
    assert!(free.stdout.starts_with("asks: mode ask\n"), "{}", free.stdout);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn notes_are_added_listed_edited_and_removed_from_the_command_line() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    daemon.cli(&["memory", "add", "Use", "pnpm"]).run().await.exits(0);
    daemon.cli(&["memory", "add", "--user", "Be short"]).run().await.exits(0);
    let listed = daemon.cli(&["memory", "list", "--json"]).run().await.exits(0).json();
    let told: Vec<_> =
        listed.iter().map(|row| (row["scope"].as_str().unwrap(), row["name"].as_str().unwrap())).collect();
    assert_eq!(told, [("user", "be-short"), ("workspace", "use-pnpm")]);
    let editor = daemon.workspace().join("editor.sh");
    std::fs::write(&editor, "#!/bin/sh\necho 'and never npm' >> \"$1\"\n").unwrap();
    std::fs::set_permissions(&editor, std::fs::Permissions::from_mode(0o755)).unwrap();
    let edit = daemon.cli(&["memory", "edit", "use-pnpm"]).env("EDITOR", editor.to_str().unwrap());
    edit.without("VISUAL").run().await.exits(0);
    let shown = daemon.cli(&["memory", "show", "use-pnpm"]).run().await.exits(0).stdout;
    assert!(shown.ends_with("Use pnpm\nand never npm\n"), "{shown}");
    daemon.cli(&["memory", "rm", "user/be-short"]).run().await.exits(0);
    daemon.cli(&["memory", "rm", "be-short"]).run().await.fails_with_hint(2);
    assert_eq!(daemon.cli(&["memory", "list", "--json"]).run().await.json().len(), 1);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_key_that_was_seen_once_takes_no_agent_to_another_provider() {
    let model = ModelServer::scripted(|_| Reply::text("done"));
    let daemon = Daemon::start(&model).await;
    let agents = daemon.dirs.config().parent().unwrap().join("agents");
    std::fs::create_dir_all(&agents).unwrap();
    for (name, word) in [("reviewer", "sonnet"), ("writer", "haiku")] {
        let text = format!("---\ndescription: Works\nmodel: {word}\n---\nWork.\n");
        std::fs::write(agents.join(format!("{name}.md")), text).unwrap();
    }
    daemon.cli(&["config", "confirm", "--yes"]).run().await.exits(0);
    daemon.cli(&["run", "one"]).env("ANTHROPIC_API_KEY", "sk-bad").run().await.exits(0);
    for agent in ["reviewer", "writer"] {
        let name = format!("of-{agent}");
        daemon.cli(&["run", "--agent", agent, "--name", &name, "two"]).run().await.exits(0);
        let log = daemon.cli(&["log", &name, "--json"]).run().await.exits(0);
        assert!(log.stdout.contains("only a client's environment had a key"), "{log:?}");
    }
    assert_eq!(model.request_count(), 3, "all went to the session's own provider");
}
