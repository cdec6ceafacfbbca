//! The tools that show or ask something, and sessions that have only some tools.

use linger_tests::harness::Setup;
use linger_tests::model::{ModelServer, Reply};
use serde_json::{Value, json};

use crate::Daemon;

fn names(request: &Value) -> Vec<&str> {
    request["tools"].as_array().unwrap().iter().filter_map(|tool| tool["function"]["name"].as_str()).collect()
}

#[tokio::test]
async fn a_session_with_some_of_the_tools_has_no_others() {
    let model = ModelServer::with([Reply::tool("bash", json!({ "command": "touch made" })), Reply::text("done")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "tools": ["read", "grep"], "mode": "auto" })).await;
    client.attach(&session).await;
    client.turn(&session, "go").await;
    let finished = client.first(&session, "tool_finished").await.event;
    assert_eq!(finished["content"][0]["text"], "there is no tool `bash` (the tools are read, grep)");
    assert!(!client.workspace().join("made").exists());
    assert_eq!(client.first(&session, "session_created").await.event["tools"], json!(["read", "grep"]));
    for request in model.requests() {
        assert_eq!(names(&request.json), ["read", "grep"]);
    }
    let listed = client.call("tool/list", json!({ "session": session })).await;
    let told = |row: &Value| json!([row["name"], row["effect"], row["verdict"]["verdict"], row["verdict"]["by"]]);
    let told: Vec<Value> = listed.as_array().unwrap().iter().map(told).collect();
    assert_eq!(json!(told), json!([["read", "reads", "allow", "mode auto"], ["grep", "reads", "allow", "mode auto"]]));
    let refused = client.refused("session/create", json!({ "cwd": client.workspace(), "tools": ["raed"] })).await;
    assert!(refused.message.starts_with("there is no tool `raed`; did you mean `read`?"), "{}", refused.message);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_list_of_tools_says_what_a_new_session_would_ask_for() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let listed = client.call("tool/list", json!({ "cwd": client.workspace() })).await;
    let row = |name: &str| listed.as_array().unwrap().iter().find(|row| row["name"] == name).unwrap().clone();
    let said = |name: &str| json!([row(name)["effect"], row(name)["verdict"]["verdict"], row(name)["verdict"]["by"]]);
    assert_eq!(said("bash"), json!(["runs", "ask", "mode ask"]));
    assert_eq!(said("read"), json!(["reads", "allow", "mode ask"]));
    assert_eq!(said("write"), json!(["writes", "ask", "mode ask"]));
    assert_eq!(said("ask_user"), json!(["asks", "allow", "mode ask"]));
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_new_session_has_the_tools_that_are_listed_for_its_directory() {
    let model = ModelServer::with([Reply::text("done")]);
    let config = "[tools]\nimage = \"work/painter\"\n".to_owned();
    let daemon = Daemon::start_with(&model, Setup { config, ..Setup::default() }).await;
    let skill = daemon.dirs.root().join("c/linger/skills/echo");
    std::fs::create_dir_all(&skill).unwrap();
    std::fs::write(skill.join("SKILL.md"), "---\nname: echo\ndescription: Echoes.\n---\nText.\n").unwrap();
    let client = daemon.client().await;
    let listed = async |of: Value| {
        let listed = client.call("tool/list", of).await;
        listed.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let before = listed(json!({ "cwd": client.workspace() })).await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    assert_eq!(before, names(&model.requests()[0].json));
    assert_eq!(before, listed(json!({ "session": session })).await);
    assert!(["image", "memory", "skill"].iter().all(|name| before.iter().any(|it| it == name)), "{before:?}");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn the_models_question_waits_in_every_mode_and_its_answer_is_the_result() {
    let question = json!({ "question": "which one?", "options": ["sqlite", "postgres"] });
    let model = ModelServer::with([Reply::tool("ask_user", question), Reply::text("done")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "mode": "plan" })).await;
    client.attach(&session).await;
    client.prompt(&session, "go").await;
    let event = client.first(&session, "question_asked").await.event;
    assert_eq!((&event["asked"]["text"], &event["asked"]["blocks"]), (&json!("which one?"), &json!("call")));
    let listed = client.call("question/list", json!({})).await;
    assert_eq!(listed[0]["question"], event["question"]);
    client.call("question/answer", json!({ "question": event["question"], "answer": "postgres" })).await;
    client.first(&session, "turn_finished").await;
    let finished = client.first(&session, "tool_finished").await.event;
    assert_eq!((&finished["outcome"], &finished["content"][0]["text"]), (&json!("ran"), &json!("postgres")));
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_plan_is_an_event_of_its_own() {
    let entries = json!([{ "content": "look", "status": "completed" }, { "content": "mend", "status": "pending" }]);
    let model = ModelServer::with([Reply::tool("plan", json!({ "entries": entries })), Reply::text("done")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let plan = client.first(&session, "plan").await.event;
    assert_eq!(plan["entries"], entries);
    let finished = client.first(&session, "tool_finished").await.event;
    assert_eq!(plan["seq"].as_u64().unwrap() + 1, finished["seq"].as_u64().unwrap());
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_command_in_the_background_is_listed_and_ends_with_its_session() {
    let start = json!({ "command": "exec 3>witness; sleep 1000", "background": true });
    let model = ModelServer::with([Reply::tool("bash", start), Reply::text("started")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let witness = client.workspace().join("witness");
    rustix::fs::mkfifoat(rustix::fs::CWD, &witness, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let mut witness = tokio::net::unix::pipe::OpenOptions::new().open_receiver(witness).unwrap();
    let session = client.create_with(json!({ "mode": "auto" })).await;
    client.attach(&session).await;
    client.turn(&session, "go").await;
    let listed = client.call("session/list", json!({ "matching": session })).await;
    let row = &listed[0]["background"][0];
    assert_eq!((&row["background"], &row["command"]), (&json!("b1"), &json!("exec 3>witness; sleep 1000")));
    client.call("session/remove", json!({ "session": session })).await;
    // It ends when no process has the other end.
    tokio::io::AsyncReadExt::read_to_end(&mut witness, &mut Vec::new()).await.unwrap();
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn the_first_request_with_all_tools_is_small() {
    let model = ModelServer::with([Reply::text("done")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let size = model.requests()[0].json.to_string().len();
    assert!(size < 10_000, "{size} bytes");
    daemon.check(&[&client], &model);
}
