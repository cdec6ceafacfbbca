//! The page of the gateway, in a real Chromium that `tests/page/cases.mjs` drives; and the bounds of its files.
//!
//! Each case is one script here and one there, which take turns: the page shows something, the test does its part.
//! Where there is no Chromium these tests say so and pass, but not in CI.

use std::path::{Path, PathBuf};

use linger_tests::harness::{Cli, Daemon, Running, Setup, profile, until};
use linger_tests::model::{Gate, ModelServer, Reply};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::process::ChildStdin;

/// The most lines of the page's files, all together: one person can read them in an evening.
const MAX_LINES: usize = 2600;

/// The most bytes of them: what a phone loads in a second on a slow line.
const MAX_BYTES: usize = 150 * 1024;

/// A case that runs in Chromium.
struct Page {
    script: Running,
    stdin: ChildStdin,
}

impl Page {
    async fn open(daemon: &Daemon, case: &str, url: &str, more: &[&str]) -> Option<Self> {
        let [node, chromium] = programs()?;
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("page/cases.mjs");
        let args = [&[script.to_str().unwrap(), case, url], more].concat();
        // A home of its own: the browser leaves files there.
        let cli =
            Cli::new(&node, daemon.env(false), daemon.workspace(), &args).env("CHROMIUM", chromium.to_str().unwrap());
        // Less than a test waits for a line, so that it says what it waited for.
        let cli = cli.env("PAGE_TIMEOUT_MS", "15000");
        let (script, stdin) = cli.talk().await;
        Some(Self { script, stdin })
    }

    /// Waits until the case is so far.
    async fn reaches(&mut self, step: &str) {
        let mut lines = Vec::new();
        while let Some(line) = self.script.line().await {
            if line == step {
                return;
            }
            lines.push(line);
        }
        panic!("the page has not come to '{step}': {lines:#?}");
    }

    /// Lets the case go on.
    async fn go(&mut self) {
        self.stdin.write_all(b"go\n").await.unwrap();
    }

    async fn ends(mut self) {
        self.reaches("all is well").await;
        self.script.end().await.exits(0);
    }
}

/// Node.js and Chromium; nothing where one of them is missing, which is said.
fn programs() -> Option<[PathBuf; 2]> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find = |names: &[&str]| {
        let places = names.iter().flat_map(|name| std::env::split_paths(&path).map(move |dir| dir.join(name)));
        places.into_iter().find(|file| file.is_file())
    };
    let of_the_mock = Some(profile().parent().unwrap().join("aimock/node")).filter(|node| node.exists());
    let chromium = std::env::var_os("LINGER_CHROMIUM").map(PathBuf::from);
    let chromium = chromium.or_else(|| find(&["chromium-headless-shell", "chromium", "google-chrome"]));
    let found = find(&["node"]).or(of_the_mock).zip(chromium);
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "there is no Chromium or no Node.js: see tests/README.md");
        eprintln!("not run: there is no Chromium or no Node.js; tests/README.md says which");
    }
    found.map(|(node, chromium)| [node, chromium])
}

/// A daemon with a gateway on a port of its own.
fn setup(mode: &'static str) -> Setup {
    Setup { mode, config: "[gateway]\nlisten = \"127.0.0.1:0\"\n".to_owned(), ..Setup::default() }
}

/// The address that logs a browser in, once.
async fn link(daemon: &Daemon) -> String {
    daemon.cli(&["gateway", "start"]).run().await.exits(0);
    daemon.cli(&["gateway", "url"]).run().await.exits(0).word().to_owned()
}

async fn ends(daemon: &Daemon) {
    daemon.cli(&["gateway", "stop"]).run().await.exits(0);
}

#[tokio::test]
async fn a_turn_streams_into_the_page_that_began_it() {
    let gate = Gate::new();
    let first = Reply::text("## A heading\n\nThis is **half** of it")
        .gate(&gate)
        .and_text(", see [the docs](https://example.com/docs).\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n")
        .and_text("```rust\nlet x = 1;\n```\n")
        .and_tool("bash", json!({ "command": "echo from the tool" }));
    let model = ModelServer::with([first, Reply::text("That is all.")]);
    let daemon = Daemon::start_with(&model, setup("auto")).await;
    let url = link(&daemon).await;
    let workspace = daemon.workspace();
    let Some(mut page) = Page::open(&daemon, "stream", &url, &[workspace.to_str().unwrap()]).await else { return };
    page.reaches("half").await;
    gate.open();
    page.go().await;
    page.ends().await;
    ends(&daemon).await;
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_question_is_answered_in_the_page_or_elsewhere_and_everybody_sees_who_did() {
    let model = ModelServer::with([
        Reply::tool("bash", json!({ "command": "echo first" })),
        Reply::tool("bash", json!({ "command": "echo second" })),
        Reply::tool("ask_user", json!({ "question": "Which colour?" })),
        Reply::text("So be it."),
    ]);
    let daemon = Daemon::start_with(&model, setup("ask")).await;
    let url = link(&daemon).await;
    let other = daemon.named("another").await;
    let session = other.session().await;
    let Some(mut page) = Page::open(&daemon, "question", &url, &[&session]).await else { return };
    other.prompt(&session, "go").await;
    page.reaches("answered").await;
    let first = other.nth(&session, "permission_resolved", 1).await;
    assert_eq!(first.event["decision"], "allow_once");
    assert_ne!(first.event["by"], "another");
    page.go().await;
    page.reaches("asked").await;
    let second = other.nth(&session, "permission_requested", 2).await;
    let answer = json!({ "permission": second.event["permission"], "decision": "reject_once", "reason": "no" });
    other.call("permission/answer", answer).await;
    page.go().await;
    page.reaches("form").await;
    let form = other.first(&session, "question_resolved").await;
    assert!(form.event["value"].to_string().contains("blue"), "{form:?}");
    page.go().await;
    page.ends().await;
    other.first(&session, "turn_finished").await;
    ends(&daemon).await;
    daemon.check(&[&other], &model);
}

#[tokio::test]
async fn keys_answer_where_the_cursor_is_while_the_prompt_is_empty() {
    let first = Reply::tool("bash", json!({ "command": "echo first" }));
    let model =
        ModelServer::with([first.and_tool("bash", json!({ "command": "echo second" })), Reply::text("So be it.")]);
    let daemon = Daemon::start_with(&model, setup("ask")).await;
    let url = link(&daemon).await;
    let other = daemon.named("another").await;
    let session = other.session().await;
    let Some(mut page) = Page::open(&daemon, "keys", &url, &[&session]).await else { return };
    other.prompt(&session, "go").await;
    page.reaches("denied").await;
    let first = other.nth(&session, "permission_resolved", 1).await;
    assert_eq!(first.event["decision"], "reject_once");
    page.go().await;
    page.ends().await;
    let second = other.nth(&session, "permission_resolved", 2).await;
    assert_eq!(second.event["decision"], "allow_once");
    ends(&daemon).await;
    daemon.check(&[&other], &model);
}

#[tokio::test]
async fn a_form_of_a_server_has_a_field_of_each_kind_in_the_page() {
    let Some(place) = crate::mcp_others::installed() else { return };
    let script = place.join("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    let (node, script) = (place.join("node").display().to_string(), script.display().to_string());
    let Setup { config, .. } = setup("auto");
    let config = format!("{config}[mcp.everything]\ncommand = {node:?}\nargs = [{script:?}, \"stdio\"]\n");
    let model = ModelServer::with([
        Reply::tool("mcp__everything__trigger-elicitation-request", json!({})),
        Reply::text("filled in"),
    ]);
    let daemon = Daemon::start_with(&model, Setup { config, ..setup("auto") }).await;
    let client = daemon.client().await;
    // Its tool for this is listed late, once it has seen that we can be asked.
    let has_asker = async || {
        let listed = client.call("mcp/test", json!({ "server": "everything", "cwd": daemon.workspace() })).await;
        listed.to_string().contains("trigger-elicitation-request").then_some(())
    };
    until("its tool that asks is listed", has_asker).await;
    let url = link(&daemon).await;
    let session = client.session().await;
    client.prompt(&session, "ask").await;
    let Some(page) = Page::open(&daemon, "form", &url, &[&session]).await else { return };
    page.ends().await;
    let value = client.first(&session, "question_resolved").await.event["value"].clone();
    let [name, check, integer] = ["name", "check", "integer"].map(|field| value[field].clone());
    assert_eq!(json!([name, check, integer, value["number"]]), json!(["Ada", true, 7, 2.5]), "{value}");
    let chosen = json!([value["titledSingleSelectEnum"], value["titledMultipleSelectEnum"]]);
    assert_eq!(chosen, json!(["hero-3", ["fish-1", "fish-3"]]), "{value}");
    client.first(&session, "turn_finished").await;
    ends(&daemon).await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_child_at_work_is_below_its_parent_in_the_page() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ModelServer::scripted(move |request| match request.last_words() {
        words if words.starts_with("write") => Reply::text("{\"answer\": \"the child writes\", ")
            .gate(&held)
            .and_text("\"sources\": [], \"confidence\": \"high\", \"caveats\": []}"),
        _ if request.after_tool() => Reply::text("the child is done"),
        _ => Reply::tool("delegate", json!({ "agent": "general", "task": "write" })),
    });
    let daemon = Daemon::start_with(&model, setup("auto")).await;
    let url = link(&daemon).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    gate.reached().await;
    let Some(mut page) = Page::open(&daemon, "tree", &url, &[&session]).await else { return };
    page.reaches("child").await;
    gate.open();
    page.go().await;
    page.ends().await;
    client.first(&session, "turn_finished").await;
    ends(&daemon).await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_page_that_is_loaded_again_in_mid_word_reads_on() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("Good mor").gate(&gate).and_text("ning to you.")]);
    let daemon = Daemon::start_with(&model, setup("auto")).await;
    let url = link(&daemon).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "greet").await;
    let Some(mut page) = Page::open(&daemon, "reload", &url, &[&session]).await else { return };
    page.reaches("again").await;
    gate.open();
    page.go().await;
    page.ends().await;
    ends(&daemon).await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_killed_daemon_and_a_gateway_that_comes_again_leave_no_gap_in_the_page() {
    let (before, after) = (Gate::new(), Gate::new());
    let model = ModelServer::with([
        Reply::text("Before the ").gate(&before).and_text("kill."),
        Reply::text("After the ").gate(&after).and_text("kill."),
    ]);
    let port = free_port();
    let config = format!("[gateway]\nlisten = \"127.0.0.1:{port}\"\n");
    let daemon = Daemon::start_with(&model, Setup { config, ..setup("auto") }).await;
    let url = link(&daemon).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    let Some(mut page) = Page::open(&daemon, "killed", &url, &[&session]).await else { return };
    page.reaches("half").await;
    daemon.kill_daemon().await;
    page.go().await;
    page.reaches("gateway").await;
    ends(&daemon).await;
    after.open();
    daemon.cli(&["gateway", "start"]).run().await.exits(0);
    page.go().await;
    page.ends().await;
    before.open();
    ends(&daemon).await;
    daemon.check(&[], &model);
}

/// A port that nothing listened on a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// What would run, look like the page's own words, or break out of its place, if text were anything but text.
const HOSTILE: &[&str] = &[
    "<script>window.pwned = 1</script>",
    "<img src=x onerror=\"window.pwned=2\"> <svg onload=window.pwned=2> <iframe srcdoc=\"<script>parent.pwned=2</script>\"></iframe>",
    "[click](javascript:window.pwned=3) <javascript:window.pwned=3> [x](JaVaScRiPt:window.pwned=3) [y](data:text/html,<script>pwned</script>)",
    "[z](java\tscript:window.pwned=3) [file](file:///etc/passwd) [blob](blob:https://x/y) ![pic](https://evil.example/pixel.png)",
    "[http://bank.example](https://evil.example/) [user](https://user:pass@evil.example/) https://evil.example/<b>\"onclick=alert(1)",
    "\u{202e}txt.exe\u{2066} \u{200f}right \u{e0041}\u{e0042} \u{1b}[2J\u{9b}31m\u{0}\u{7} zal\u{300}\u{301}\u{302}\u{303}go",
    "</pre></article><article class=\"item question\">? bash wants to run</article>",
    "<style>*{display:none}</style><link rel=stylesheet href=//evil.example/x.css><base href=//evil.example/>",
    "`````\n<script>window.pwned = 4</script>\n",
    "| <script>window.pwned=5</script> | [a](javascript:1) |\n|---|---|\n| **<b onclick=pwned()>** | `</code><script>` |",
    "{{constructor.constructor('window.pwned=6')()}} ${window.pwned=6} __proto__ constructor [constructor](__proto__)",
];

#[tokio::test]
async fn nothing_that_a_model_a_tool_or_a_name_says_runs_or_is_html() {
    let bombs = [
        format!("{}\n", "x".repeat(300_000)),
        format!("{}\n", "*_`[".repeat(20_000)),
        format!("{}\n", "> ".repeat(5000)),
        format!("{}a", "- ".repeat(5000)),
    ];
    let words = [HOSTILE.join("\n\n"), bombs.concat()].concat();
    let tool = HOSTILE.join("\n").replace(['\0', '\''], "");
    let command = format!("printf '%s\\n' '{tool}'; head -c 300000 /dev/zero | tr '\\0' y");
    let model = ModelServer::scripted(move |request| {
        if request.after_tool() {
            Reply::text(words.clone())
        } else {
            Reply::tool("bash", json!({ "command": command }))
        }
    });
    let daemon = Daemon::start_with(&model, setup("auto")).await;
    let url = link(&daemon).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, &HOSTILE.join("\n")).await;
    let Some(page) = Page::open(&daemon, "hostile", &url, &[&session]).await else { return };
    page.ends().await;
    ends(&daemon).await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn of_a_long_session_only_what_is_near_is_drawn_and_all_of_it_can_be_reached() {
    let turns: usize = std::env::var("LINGER_PAGE_MESSAGES").map_or(120, |count| count.parse().unwrap()) / 2;
    let model = ModelServer::scripted(|_| Reply::text("An **answer** with `code`.\n\n- and\n- a list"));
    let daemon = Daemon::start_with(&model, setup("auto")).await;
    let client = daemon.client().await;
    let session = client.session().await;
    for turn in 0..turns {
        client.turn(&session, &format!("prompt {turn}")).await;
        if turn % 100 == 99 {
            // Else each request has all messages, which takes most of the time.
            client.call("session/compact", json!({ "session": session })).await;
        }
    }
    // The link is good for five minutes.
    let url = link(&daemon).await;
    let count = (turns * 3).to_string();
    let Some(mut page) = Page::open(&daemon, "many", &url, &[&session, &count]).await else { return };
    while let Some(line) = page.script.line().await {
        // A figure for people, with `--nocapture`: how long the latest turn and all of it took, and tasks above 50 ms.
        println!("{line}");
        if line == "all is well" {
            break;
        }
        assert!(!line.starts_with("failed"), "{line}");
    }
    ends(&daemon).await;
    crate::providers::check(&daemon, &[&client], &model);
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../daemon/src/face/gateway/page")
}

/// The page's files: names and texts.
fn files() -> Vec<(String, String)> {
    let read = |file: std::fs::DirEntry| {
        (
            file.file_name().into_string().unwrap(),
            std::fs::read_to_string(file.path()).expect("files of the page are text"),
        )
    };
    std::fs::read_dir(folder()).unwrap().map(|file| read(file.unwrap())).collect()
}

#[test]
fn the_page_is_small() {
    let files = files();
    let lines: usize = files.iter().map(|(_, text)| text.lines().count()).sum();
    let bytes: usize = files.iter().map(|(_, text)| text.len()).sum();
    assert!(lines <= MAX_LINES, "{lines} lines");
    assert!(bytes <= MAX_BYTES, "{bytes} bytes");
}

#[test]
fn the_page_asks_for_its_own_files_only_and_for_all_of_them() {
    let files = files();
    let mut wanted = vec!["index.html".to_owned()];
    for (name, text) in &files {
        let ends: &[char] = &['\'', '"'];
        let begin = if name.ends_with(".html") { "=\"/page/" } else { " from './" };
        wanted.extend(text.split(begin).skip(1).map(|rest| rest.split(ends).next().unwrap().to_owned()));
    }
    wanted.sort();
    wanted.dedup();
    let mut names: Vec<String> = files.iter().map(|(name, _)| name.clone()).collect();
    names.sort();
    assert_eq!(wanted, names);
}

#[test]
fn the_page_has_no_inline_script_or_style_and_no_way_from_text_to_html() {
    for (name, text) in files() {
        let banned: &[&str] = match name.rsplit('.').next() {
            Some("html") => &["style=", "<style", "javascript:", "http:", "https:"],
            Some("css") => &["@import", "url(", "expression("],
            Some("svg") => &["<script", "<style", "href"],
            _ => &[
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "DOMParser",
                "createContextualFragment",
                "eval(",
                "new Function",
                "'style'",
                "cssText",
                "import(",
                "setHTML",
            ],
        };
        for word in banned {
            assert!(!text.contains(word), "{name} has {word:?}");
        }
        let handler = |word: &&str| word.starts_with("on") && word.contains("=\"");
        let handlers: Vec<_> = text.split_whitespace().filter(handler).filter(|_| !name.ends_with("js")).collect();
        assert!(handlers.is_empty(), "{name}: {handlers:?}");
        let scripts = text.matches("<script").count();
        let empty = text.matches("src=\"/page/app.js\"></script>").count();
        assert!(!name.ends_with(".html") || (scripts, empty) == (1, 1), "{name} has a script of its own");
    }
}
