//! The verbs of scripts over all sessions, and the commands around a configuration, as a shell runs them.

use linger_tests::harness::Daemon;
use linger_tests::model::{ModelServer, Reply};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{answer, bash};

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

#[tokio::test]
async fn events_are_printed_from_a_cursor_on_and_messages_are_found_by_their_words() {
    let model = ModelServer::with([Reply::text("the parser is right"), Reply::text("so is the lexer")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "look at the parser").await;
    let output = daemon.cli(&["events", "--json", &session]).run().await.exits(0);
    let seen = rows(&output.stdout);
    let kinds: Vec<&str> = seen.iter().map(|row| row["event"]["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["session_created", "turn_started", "turn_finished"]);
    let cursor = seen[2]["cursor"].as_str().unwrap();
    client.turn(&session, "and the lexer").await;
    let output = daemon.cli(&["events", "--json", "--since", cursor]).run().await.exits(0);
    assert_eq!(rows(&output.stdout).len(), 2);
    let output = daemon.cli(&["events", "--kind", "message", &session]).run().await.exits(0);
    assert_eq!(output.stdout.lines().count(), 4, "{}", output.stdout);
    assert!(output.stdout.contains("message  so is the lexer"), "{}", output.stdout);
    let wrong = daemon.cli(&["events", "--since", "17.00000000"]).run().await;
    assert!(wrong.stderr.contains("error: unknown cursor '17.00000000'"), "{}", wrong.stderr);
    let wrong = daemon.cli(&["events", "--kind", "turn_ended"]).run().await;
    assert!(wrong.stderr.contains("hint: the kinds are"), "{}", wrong.stderr);

    let output = daemon.cli(&["search", "--json", "parser"]).run().await.exits(0);
    let found = rows(&output.stdout);
    assert_eq!(found.iter().map(|row| &row["role"]).collect::<Vec<_>>().len(), 2);
    assert!(found.iter().all(|row| row["session"] == *session), "{found:?}");
    let output = daemon.cli(&["search", "the lexer", "--here"]).run().await.exits(0);
    assert!(output.stdout.contains("so is the lexer"), "{}", output.stdout);
    assert!(output.stderr.contains(&format!("`linger attach {session}`")), "{}", output.stderr);
    let output = daemon.cli(&["search", "nothing", "like", "this"]).run().await.exits(0);
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("", "no messages found\n"));
    daemon.cli(&["search", "-n", "0", "parser"]).run().await.exits(2);

    let output = daemon.cli(&["log", "--json", "--since", "2000-01-01", &session]).run().await.exits(0);
    let all = rows(&output.stdout).len();
    let output = daemon.cli(&["log", "--json", "--since", "6", &session]).run().await.exits(0);
    assert_eq!(rows(&output.stdout).len(), all - 6);
    daemon.check(&[&client], &model);
}

/// What Claude Code has in the home directory: a server, two rules that linger has and one that it has not, an agent, instructions.
fn other_program(daemon: &Daemon) {
    let home = daemon.dirs.root().join("h");
    let write = |name: &str, text: &str| {
        let path = home.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let servers = json!({ "mcpServers": { "docs": { "command": "docs-server", "args": ["--stdio"],
        "env": { "LEVEL": "1", "API_KEY": "sk-secret" } } } });
    write(".claude.json", &servers.to_string());
    let rules =
        json!({ "permissions": { "allow": ["Bash(cargo test:*)", "Bash(git * main)"], "deny": ["Read(./.env)"] } });
    write(".claude/settings.json", &rules.to_string());
    write(".claude/agents/reviewer.md", "---\nname: reviewer\ndescription: Reviews\n---\nReview.\n");
    write(".claude/CLAUDE.md", "Be brief.\n");
}

/// What was imported: the configuration, and the other files of its directory.
fn imported(daemon: &Daemon) -> Vec<&'static str> {
    let config = daemon.dirs.config();
    let text = std::fs::read_to_string(&config).unwrap();
    let words = [("server", "docs-server"), ("allow", "bash(cargo test:*)"), ("deny", "read(.env)")];
    let files = [("agent", "agents/reviewer.md"), ("instructions", "AGENTS.md")];
    let words = words.iter().filter(|(_, word)| text.contains(word)).map(|(name, _)| *name);
    let is_there = |file: &str| config.with_file_name("").join(file).exists();
    words.chain(files.iter().filter(|(_, file)| is_there(file)).map(|(name, _)| *name)).collect()
}

#[tokio::test]
async fn of_what_another_program_has_kinds_are_chosen_by_scripts_and_single_things_by_people() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    other_program(&daemon);
    let wrong = daemon.cli(&["import", "claude", "--only", "server"]).run().await.exits(2);
    assert!(wrong.stderr.contains("servers, rules, agents, skills, commands, instructions"), "{}", wrong.stderr);
    daemon.cli(&["import", "claude", "--only", "rules", "--skip", "agents"]).run().await.exits(2);
    let none = daemon.cli(&["import", "claude", "--yes", "--only", "skills"]).run().await.exits(0);
    assert!(none.stderr.contains("nothing new to import among the kinds you chose"), "{}", none.stderr);
    let shown =
        daemon.cli(&["import", "claude", "--dry-run", "--json", "--skip", "servers,rules"]).run().await.exits(0);
    let shown = rows(&shown.stdout);
    let of = |rows: &[Value], state: &str| -> Vec<String> {
        let of = rows.iter().filter(|row| row["state"] == state);
        of.map(|row| row["kind"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(of(&shown, "new"), ["agents", "instructions"]);
    assert_eq!(of(&shown, "skipped"), ["servers", "rules", "rules"]);
    assert!(imported(&daemon).is_empty());
    let took = daemon.cli(&["import", "claude", "--yes", "--json", "--only", "instructions"]).run().await.exits(0);
    assert_eq!(of(&rows(&took.stdout), "taken"), ["instructions"]);
    assert_eq!(imported(&daemon), ["instructions"]);

    // Neither a `no`, nor what follows a `no more`, nor anything after Ctrl-C.
    for (keys, expect) in
        [("n", &["instructions"][..]), ("cy\x03", &["instructions"]), ("cnyq", &["allow", "instructions"])]
    {
        let mut terminal = daemon.pty(&["import", "claude"]);
        let questions = [
            "import all of this? ",
            "import MCP server docs? ",
            "import rule allow bash(cargo test:*)? ",
            "import rule deny read(.env)? ",
        ];
        for (question, key) in questions.iter().zip(keys.chars()) {
            terminal.shows(question).await;
            terminal.keys(&key.to_string());
        }
        assert_eq!(terminal.exits().await, if keys == "cnyq" { 0 } else { 4 }, "{}", terminal.screen());
        assert_eq!(imported(&daemon), expect, "{}", terminal.screen());
    }
    let mut terminal = daemon.pty(&["import", "claude"]);
    terminal.shows("c choose, n nothing").await;
    terminal.keys("c");
    terminal.shows("import MCP server docs? ").await;
    terminal.keys("n");
    terminal.shows("import rule deny read(.env)? ").await;
    terminal.keys("a");
    assert_eq!(terminal.exits().await, 0);
    assert_eq!(imported(&daemon), ["allow", "deny", "agent", "instructions"]);
}

#[tokio::test]
async fn what_another_program_has_is_shown_and_taken_and_nothing_is_replaced() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    other_program(&daemon);
    let config = daemon.dirs.config();
    let dir = config.parent().unwrap();
    let before = std::fs::read_to_string(&config).unwrap();

    let output = daemon.cli(&["import", "claude", "--dry-run"]).run().await.exits(0);
    for said in
        ["+ [mcp.\"docs\"]", "+ allow bash(cargo test:*)", "+ deny read(.env)", "agents/reviewer.md", "AGENTS.md"]
    {
        assert!(output.stdout.contains(said), "{said}: {}", output.stdout);
    }
    assert!(output.stdout.contains("left out: allow Bash(git * main)"), "{}", output.stdout);
    assert!(!output.stdout.contains("sk-secret"), "{}", output.stdout);
    daemon.cli(&["import", "claude"]).run().await.exits(3);
    assert_eq!(std::fs::read_to_string(&config).unwrap(), before, "nothing was imported yet");

    let taken = daemon.cli(&["import", "claude", "--yes"]).run().await.exits(0);
    assert!(taken.stderr.contains("`linger config confirm` enables agents"), "{}", taken.stderr);
    // What waits is said once, however many sessions a command is about.
    let client = daemon.client().await;
    let (one, two) = (client.session().await, client.session().await);
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}\n[attention]\ndesktop = true\n")).unwrap();
    let waited = daemon.cli(&["wait", "--answer", &one, &two]).run().await.exits(0);
    assert_eq!(waited.stderr.matches("`linger config confirm`").count(), 1, "{}", waited.stderr);
    std::fs::write(&config, text).unwrap();
    let after = std::fs::read_to_string(&config).unwrap();
    assert!(after.starts_with(&before) || after.contains("docs-server"), "{after}");
    assert!(after.contains("bash(cargo test:*)") && !after.contains("sk-secret"), "{after}");
    let get = daemon.cli(&["config", "get", "permissions.deny"]).run().await.exits(0);
    assert_eq!(get.stdout, "read(.env)\n");
    assert_eq!(std::fs::read_to_string(dir.join("AGENTS.md")).unwrap(), "Be brief.\n");
    std::fs::write(dir.join("agents/reviewer.md"), "mine").unwrap();
    let again = daemon.cli(&["import", "claude", "--yes"]).run().await.exits(0);
    assert!(again.stderr.contains("nothing new to import"), "{}{}", again.stdout, again.stderr);
    assert_eq!(std::fs::read_to_string(dir.join("agents/reviewer.md")).unwrap(), "mine");
    let none = daemon.cli(&["import", "codex"]).run().await.exits(1);
    assert!(none.stderr.contains("no files of Codex found"), "{}", none.stderr);
    let bad = dir.join("skills/bad/SKILL.md");
    std::fs::create_dir_all(bad.parent().unwrap()).unwrap();
    std::fs::write(&bad, "---\nname: other\n---\n").unwrap();
    let validate = daemon.cli(&["validate", "--json"]).run().await.exits(1);
    let found = rows(&validate.stdout);
    let row = found.iter().find(|row| row["line"] == 2).unwrap_or_else(|| panic!("{found:?}"));
    assert_eq!((&row["ok"], &row["file"]), (&json!(false), &json!(bad)), "{row}");
    // Settings of other agents in a workspace are not read, and that is said.
    for file in [".claude/settings.json", ".gemini/settings.json"] {
        let settings = daemon.workspace().join(file);
        std::fs::create_dir_all(settings.parent().unwrap()).unwrap();
        std::fs::write(&settings, "{}").unwrap();
        let validate = daemon.cli(&["validate"]).run().await.exits(1);
        assert!(validate.stdout.contains(&format!("{file}: warning: not read: ")), "{}", validate.stdout);
        let doctor = daemon.cli(&["doctor"]).run().await;
        assert!(doctor.stdout.contains(&format!("{file} is not read")), "{}", doctor.stdout);
    }
}

#[tokio::test]
async fn a_first_configuration_is_written_once_and_is_valid() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let refused = daemon.cli(&["init", "--provider", "ollama"]).run().await.exits(2);
    assert!(refused.stderr.contains("already exists"), "{}", refused.stderr);
    let file = daemon.cli(&["config", "path"]).run().await.exits(0);
    assert_eq!(file.stdout.trim(), daemon.dirs.config().to_str().unwrap());
    std::fs::write(daemon.dirs.config(), "").unwrap();
    let asked = daemon.cli(&["init"]).run().await.exits(2);
    assert!(asked.stderr.contains("give a provider or a model"), "{}", asked.stderr);
    // No server of it runs here: what was tried is said, and no key is asked for.
    let tried = daemon.cli(&["init", "-m", "ollama/tiny", "--mode", "plan", "--json"]).run().await.exits(0);
    assert!(tried.stderr.contains("ollama/tiny was asked and does not answer: "), "{}", tried.stderr);
    assert!(!tried.stderr.contains("keychain"), "{}", tried.stderr);
    let row = &tried.json()[0];
    assert!(row["answered_ms"].is_null() && row["problem"].is_string(), "{row}");
    let text = std::fs::read_to_string(daemon.dirs.config()).unwrap();
    assert!(text.contains("model = \"ollama/tiny\"") && text.contains("mode = \"plan\""), "{text}");
    let mode = daemon.cli(&["config", "get", "mode"]).run().await.exits(0);
    assert_eq!(mode.stdout, "plan\n");
    std::fs::write(daemon.dirs.config(), "").unwrap();
    let demo = daemon.cli(&["init", "--provider", "demo"]).run().await.exits(0);
    assert!(demo.stderr.contains("demo/demo answered in "), "{}", demo.stderr);
    let missing = daemon.cli(&["config", "get", "network.proxy"]).run().await.exits(1);
    assert!(missing.stderr.contains("network.proxy is not set"), "{}", missing.stderr);
}

#[tokio::test]
async fn a_followed_inbox_prints_what_waits_and_then_each_question_once_also_after_a_crash() {
    let model = ModelServer::with([bash("echo one"), bash("echo two"), Reply::text("done"), Reply::text("done")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let (one, two) = (client.session().await, client.session().await);
    client.prompt(&one, "go").await;
    let first = client.first(&one, "permission_requested").await;
    let mut inbox = daemon.cli(&["inbox", "-f", "--json"]).spawn().await;
    let row: Value = serde_json::from_str(&inbox.line().await.unwrap()).unwrap();
    assert_eq!(row["question"], first.event["permission"]);
    daemon.kill_daemon().await;
    let later = daemon.client().await;
    later.attach(&two).await;
    later.prompt(&two, "go there").await;
    let second = later.first(&two, "permission_requested").await;
    let row: Value = serde_json::from_str(&inbox.line().await.unwrap()).unwrap();
    assert_eq!((&row["question"], &row["session"]), (&second.event["permission"], &json!(two)));
    inbox.signal(Signal::INT);
    let ended = inbox.end().await.exits(0);
    assert_eq!(ended.stdout, "", "each question comes once");
    later.attach(&one).await;
    for (session, asked) in [(&one, &first), (&two, &second)] {
        answer(&later, asked.str("permission"), "reject_once").await;
        later.first(session, "turn_finished").await;
    }
    daemon.check(&[&client, &later], &model);
}
