//! MCP servers that others wrote: the reference server, the recipes of `contrib/mcp` as they are there, and what `npx` starts.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use linger_tests::harness::{Client, Daemon, Setup, process, profile, until};
use linger_tests::model::{ModelServer, Reply};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// Servers that others wrote, where `.ci/run` puts them; nothing where they are not, which is said.
pub(crate) fn installed() -> Option<PathBuf> {
    let place = std::env::var_os("LINGER_MCP_SERVERS").map(PathBuf::from);
    let place = place.unwrap_or_else(|| profile().parent().unwrap().join("mcp-servers"));
    if place.join("installed").exists() {
        return Some(place);
    }
    assert!(std::env::var_os("CI").is_none(), "{} is not there: see tests/README.md", place.display());
    eprintln!("not run: {} is not there; tests/README.md says how to install it", place.display());
    None
}

#[tokio::test]
async fn servers_that_others_wrote_work() {
    let Some(place) = installed() else { return };
    let node = place.join("node").display().to_string();
    let script = |name: &str| {
        place.join(format!("node_modules/@modelcontextprotocol/{name}/dist/index.js")).display().to_string()
    };
    let config =
        format!("[mcp.everything]\ncommand = {node:?}\nargs = [{:?}, \"stdio\"]\n", script("server-everything"));
    let git = place.join("venv/bin/mcp-server-git");
    let config = config + &format!("[mcp.git]\ncommand = {:?}\nprotocol = \"2026-07-28\"\n", git.display().to_string());
    let model = ModelServer::start();
    let daemon = Daemon::start_with(&model, Setup { mode: "auto", config, ..Setup::default() }).await;
    let call = |tool: &str, input: Value| Reply::tool(tool, input);
    model.push([
        call("mcp__everything__echo", json!({ "message": "hi" })),
        call("mcp__everything__get-sum", json!({ "a": 2, "b": 40 })),
        call("mcp__everything__get-tiny-image", json!({})),
        call("mcp__everything__get-resource-links", json!({ "count": 2 })),
        call("mcp__everything__get-structured-content", json!({ "location": "Chicago" })),
        call("mcp__everything__trigger-long-running-operation", json!({ "duration": 1, "steps": 2 })),
        Reply::text("done"),
    ]);
    let client = daemon.client().await;
    let tested = client.call("mcp/test", json!({ "server": "git", "cwd": daemon.workspace() })).await;
    assert_eq!(tested["instances"][0]["protocol"], "2026-07-28", "{tested}");
    let session = client.session().await;
    client.turn(&session, "go").await;
    let mut texts = Vec::new();
    for n in 1..=6 {
        let event = client.nth(&session, "tool_finished", n).await.event;
        texts.push(event["content"].to_string());
    }
    let says = ["Echo: hi", "42", "image/png", "resource", "temperature", "completed"];
    for (text, said) in texts.iter().zip(says) {
        assert!(text.to_lowercase().contains(&said.to_lowercase()), "{said}: {text}");
    }
    let shown: String = client.transcript().of("tool_output_delta").map(|seen| seen.str("text").to_owned()).collect();
    assert!(shown.contains("[1/2]"), "progress: {shown}");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn the_reference_server_asks_is_cancelled_and_is_killed_in_mid_call() {
    let Some(place) = installed() else { return };
    let script = place.join("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    let (node, script) = (place.join("node").display().to_string(), script.display().to_string());
    let config = format!("[mcp.everything]\ncommand = {node:?}\nargs = [{script:?}, \"stdio\"]\n");
    let model = ModelServer::start();
    let daemon = Daemon::start_with(&model, Setup { mode: "auto", config, ..Setup::default() }).await;
    let long =
        || Reply::tool("mcp__everything__trigger-long-running-operation", json!({ "duration": 600, "steps": 600 }));
    let echo = || Reply::tool("mcp__everything__echo", json!({ "message": "hi" }));
    let client = daemon.client().await;
    let session = client.session().await;
    let result = async |n: usize| {
        let event = client.nth(&session, "tool_finished", n).await.event;
        (event["outcome"].clone(), event["content"].to_string())
    };
    // Its tool for this is listed late, once it has seen that we can be asked.
    let has_asker = async || {
        let listed = client.call("mcp/test", json!({ "server": "everything", "cwd": daemon.workspace() })).await;
        listed.to_string().contains("trigger-elicitation-request").then_some(())
    };
    until("its tool that asks is listed", has_asker).await;
    model.push([Reply::tool("mcp__everything__trigger-elicitation-request", json!({})), Reply::text("done")]);
    client.prompt(&session, "ask").await;
    let question = client.first(&session, "question_asked").await.event["question"].clone();
    client.call("question/answer", json!({ "question": question, "answer": "decline" })).await;
    assert!(result(1).await.1.contains("declined"), "{}", result(1).await.1);
    client.first(&session, "turn_finished").await;

    model.push([long()]);
    client.prompt(&session, "cancel").await;
    client.nth(&session, "tool_started", 2).await;
    client.call("session/cancel", json!({ "session": session })).await;
    client.nth(&session, "turn_finished", 2).await;
    model.push([echo(), Reply::text("done")]);
    client.turn(&session, "still there?").await;
    assert!(result(3).await.1.contains("Echo: hi"));

    model.push([long(), echo(), Reply::text("done")]);
    client.prompt(&session, "kill").await;
    client.nth(&session, "tool_started", 4).await;
    let row = client.call("mcp/list", json!({})).await[0].clone();
    process::signal(u32::try_from(row["instances"][0]["pid"].as_u64().unwrap()).unwrap(), Signal::KILL);
    let (outcome, text) = result(4).await;
    assert!(outcome == "unknown" && text.contains("the MCP server everything is gone"), "{text}");
    assert!(result(5).await.1.contains("Echo: hi"), "it is started again");
    client.nth(&session, "turn_finished", 4).await;
    daemon.check(&[&client], &model);
}

/// The recipes that CI starts, with a call of each server and what its result says.
fn recipes(workspace: &str) -> [(&'static str, &'static str, Value, &'static str); 6] {
    let entity = json!({ "name": "linger", "entityType": "program", "observations": ["outlives terminals"] });
    let sql = "SELECT sum(n) AS total FROM 'numbers.csv'";
    [
        ("filesystem", "mcp__files__read_text_file", json!({ "path": format!("{workspace}/numbers.csv") }), "n\\n20"),
        ("git", "mcp__git__git_status", json!({ "repo_path": workspace }), "No commits yet"),
        ("fetch", "mcp__fetch__fetch", json!({ "url": "http://127.0.0.1:9/" }), "not a public address"),
        ("duckdb", "mcp__duckdb__execute_query", json!({ "sql": sql }), "42"),
        ("memory", "mcp__memory__create_entities", json!({ "entities": [entity] }), "outlives terminals"),
        ("searxng", "mcp__search__searxng_web_search", json!({ "query": "agents" }), "An agent that outlives"),
    ]
}

/// Stand-ins for `npx` and `uvx`, which start what is installed and download nothing.
fn runners(place: &Path, into: &Path) {
    let node = place.join("node").display().to_string();
    let packages = place.join("node_modules").display().to_string();
    let npx = format!(
        "#!{node}\nconst path = require('path'), [yes, name, ...args] = process.argv.slice(2);\n\
         if (yes !== '-y') throw new Error('npx would ask');\n\
         const {{ bin }} = require(path.join({packages:?}, name, 'package.json'));\n\
         const script = path.join({packages:?}, name, typeof bin === 'string' ? bin : Object.values(bin)[0]);\n\
         process.argv = [process.argv[0], script, ...args];\nimport(require('url').pathToFileURL(script).href);\n"
    );
    let uvx = format!("#!/bin/sh\nname=$1\nshift\nexec {}/\"$name\" \"$@\"\n", place.join("venv/bin").display());
    std::fs::create_dir_all(into).unwrap();
    for (name, text) in [("npx", npx), ("uvx", uvx)] {
        std::fs::write(into.join(name), text).unwrap();
        std::fs::set_permissions(into.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// A SearXNG with one page; gives its address.
async fn searxng() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let page = json!({ "url": "http://h/", "title": "linger", "content": "An agent that outlives", "score": 1.0 });
        let body = json!({ "query": "agents", "number_of_results": 1, "results": [page] }).to_string();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 8192];
            let _read = stream.read(&mut request).await;
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}",
                body.len()
            );
            let _gone = stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await;
        }
    });
    address
}

#[tokio::test]
async fn each_recipe_starts_as_it_is_written_and_works() {
    let Some(place) = installed() else { return };
    let bin = tempfile::tempdir().unwrap();
    runners(&place, bin.path());
    let mut config = String::new();
    for (recipe, ..) in recipes("") {
        let path = format!("{}/../contrib/mcp/{recipe}.toml", env!("CARGO_MANIFEST_DIR"));
        writeln!(config, "{}", std::fs::read_to_string(path).unwrap()).unwrap();
    }
    let model = ModelServer::start();
    let path = format!("{}:{}", bin.path().display(), std::env::var("PATH").unwrap());
    let env = vec![("PATH".to_owned(), path), ("SEARXNG_URL".to_owned(), searxng().await)];
    let daemon = Daemon::start_with(&model, Setup { mode: "auto", config, env, ..Setup::default() }).await;
    let workspace = daemon.workspace().canonicalize().unwrap();
    std::fs::write(workspace.join("numbers.csv"), "n\n20\n22\n").unwrap();
    // As little as git takes for a repository.
    ["objects", "refs"].iter().for_each(|part| std::fs::create_dir_all(workspace.join(".git").join(part)).unwrap());
    std::fs::write(workspace.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    std::fs::create_dir_all(daemon.dirs.root().join("h/.local/share")).unwrap();
    let all = recipes(&workspace.display().to_string());
    for (_, tool, ..) in &all {
        let server = tool.split("__").nth(1).unwrap();
        let tools = daemon.cli(&["mcp", "test", server]).run().await.exits(0).stdout;
        assert!(tools.contains(tool), "{server}: {tools}");
    }
    model.push(all.iter().map(|(_, tool, input, _)| Reply::tool(tool, input.clone())).chain([Reply::text("done")]));
    let run = daemon.cli(&["run", "--json", "go"]).run().await.exits(0).json();
    let results: Vec<&Value> = run.iter().filter(|line| line["event"]["kind"] == "tool_finished").collect();
    for ((recipe, _, _, says), result) in all.iter().zip(results) {
        let text = result["event"]["content"].to_string();
        assert!(text.contains(says), "{recipe}: {text}");
    }
    daemon.check(&[], &model);
}

#[tokio::test]
async fn what_npx_starts_goes_with_the_daemon_the_keeper_and_both() {
    let Some(place) = installed() else { return };
    let model = ModelServer::start();
    let prefix = place.display().to_string();
    let args = json!(["--no", "--prefix", prefix, "mcp-server-everything", "stdio"]);
    let config = format!("[mcp.everything]\ncommand = \"npx\"\nargs = {args}\nstart_timeout_s = 120\n");
    let daemon = Daemon::start_with(&model, Setup { config, ..Setup::default() }).await;
    for kill in ["daemon", "both", "keeper"] {
        let tools = daemon.cli(&["mcp", "test", "everything"]).run().await.exits(0).stdout;
        assert!(tools.contains("mcp__everything__echo"), "{tools}");
        let family = daemon.children(daemon.pid().await);
        let has = |word: &str| family.iter().any(|it| it.command.contains(word));
        assert!(family.len() >= 3 && has("npm") && has("node"), "{family:?}");
        let old = daemon.pid().await;
        match kill {
            "daemon" => daemon.kill_daemon().await,
            "both" => daemon.kill_and_restart().await,
            _ => daemon.kill_keeper().await,
        }
        until("no process of npx is left", async || (!family.iter().any(process::is_alive)).then_some(())).await;
        if kill == "keeper" {
            // The old daemon is the keeper of the next one, and of no test.
            until("the next daemon serves", async || Client::connect(&daemon.dirs, "test").await.ok().map(drop)).await;
            process::signal(old, Signal::TERM);
        }
    }
}
