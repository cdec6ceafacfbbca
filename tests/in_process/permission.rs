//! Permissions: durable, answered once, by whoever is first; and the modes that decide what is asked. Races: `races.rs`.

use linger_tests::harness::{Raw, Setup};
use linger_tests::model::{ModelServer, Reply};
use serde_json::{Value, json};

use crate::Daemon;
use crate::shared::permission::{asked, swapped};
use crate::{after_tool, answer, bash};

#[tokio::test]
async fn an_answer_to_something_else_than_what_was_shown_is_refused() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    model.push([bash(&daemon.effect("once")), Reply::text("done")]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    let (permission, event) = asked(&client, &session, 1).await;
    let wrong = json!({ "permission": permission, "decision": "allow_once", "digest": "sha256:0000" });
    assert_eq!(client.refused("permission/answer", wrong).await.code, -31005);
    let unknown = json!({ "permission": "q-nope", "decision": "allow_once" });
    assert_eq!(client.refused("permission/answer", unknown).await.code, -31003);
    let cancelled = json!({ "permission": permission, "decision": "cancelled" });
    client.refused("permission/answer", cancelled).await;
    assert!(!daemon.side_effects().exists(), "nothing has run");
    assert_eq!(event["input"]["command"], daemon.effect("once"));
    let won = answer(&client, &permission, "allow_once").await;
    assert_eq!(won, json!({ "outcome": "won" }));
    client.first(&session, "turn_finished").await;
    let resolved = client.first(&session, "permission_resolved").await;
    assert_eq!((resolved.str("decision"), resolved.str("by")), ("allow_once", "test"));
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn replay_says_which_questions_are_in_the_past() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    model.push([bash("true one"), bash("true two"), bash("true three"), Reply::text("done")]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    let (first, _) = asked(&client, &session, 1).await;
    answer(&client, &first, "allow_once").await;
    let (second, _) = asked(&client, &session, 2).await;
    let mut late = daemon.raw().await;
    let attach = json!({ "jsonrpc": "2.0", "id": 1, "method": "session/attach", "params": { "session": session } });
    late.send(format!("{attach}\n")).await;
    let mut questions = Vec::new();
    let mut next = async |raw: &mut Raw| loop {
        let line = raw.any_line().await.unwrap();
        let event = &line["params"]["event"];
        if event["kind"] == "permission_requested" || event["kind"] == "caught_up" {
            questions.push((
                event["permission"].clone(),
                line["params"]["answered"].clone(),
                event["answered"].clone(),
            ));
            break event["kind"].clone();
        }
    };
    while next(&mut late).await != "caught_up" {}
    answer(&client, &second, "allow_once").await;
    let (third, _) = asked(&client, &session, 3).await;
    next(&mut late).await;
    answer(&client, &third, "allow_once").await;
    client.first(&session, "turn_finished").await;
    let (yes, none) = (json!(true), Value::Null);
    let expect = [
        (json!(first), yes, none.clone()),
        (json!(second), none.clone(), none.clone()),
        (none.clone(), none.clone(), none.clone()),
        (json!(third), none.clone(), none),
    ];
    assert_eq!(questions, expect);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_call_that_is_refused_has_a_result_that_the_model_can_read() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    model.push([bash(&daemon.effect("never")), Reply::text("understood")]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    let (permission, _) = asked(&client, &session, 1).await;
    let no = json!({ "permission": permission, "decision": "reject_once", "reason": "use the staging host" });
    client.call("permission/answer", no).await;
    assert_eq!(client.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    let finished = client.first(&session, "tool_finished").await;
    assert_eq!((finished.str("outcome"), &finished.event["is_error"]), ("denied", &json!(true)));
    assert_eq!(client.transcript().of("tool_started").count(), 0);
    assert!(model.requests()[1].messages().contains("use the staging host"));
    assert!(!daemon.side_effects().exists());
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn what_is_allowed_always_is_not_asked_in_the_next_session_of_the_workspace() {
    let model = ModelServer::scripted(|request| if after_tool(request) { Reply::text("ok") } else { bash("uname -s") });
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "one").await;
    let (permission, _) = asked(&client, &session, 1).await;
    answer(&client, &permission, "allow_always").await;
    client.first(&session, "turn_finished").await;
    let other = client.session().await;
    client.turn(&other, "one").await;
    let asked = client.transcript().of("permission_requested").filter(|seen| seen.session == other).count();
    assert_eq!(asked, 0);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_rule_that_cannot_be_stored_is_told_and_holds_in_the_session() {
    let model = ModelServer::scripted(|request| if after_tool(request) { Reply::text("ok") } else { bash("uname -s") });
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "one").await;
    let (permission, _) = asked(&client, &session, 1).await;
    let good = std::fs::read_to_string(daemon.dirs.config()).unwrap();
    std::fs::write(daemon.dirs.config(), format!("max_steps = 0\n{good}")).unwrap();
    answer(&client, &permission, "allow_always").await;
    let told = client.first(&session, "notice").await;
    assert_eq!((told.str("code"), told.str("level")), ("rule_not_stored", "warning"));
    assert!(told.str("text").starts_with("allowed in this session only: cannot store the rule"), "{:?}", told.event);
    client.first(&session, "turn_finished").await;
    client.turn(&session, "two").await;
    assert_eq!(client.transcript().of("permission_requested").count(), 1);
    daemon.check(&[&client], &model);
}

/// A turn that reads, writes and runs, in `mode`: what was asked, and what came of it.
async fn in_mode(mode: &str) -> (Vec<String>, Vec<String>) {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    std::fs::write(daemon.workspace().join("there"), "text\n").unwrap();
    let path = |name: &str| daemon.workspace().join(name).display().to_string();
    model.push([
        Reply::tool("read", json!({ "path": path("there") })),
        Reply::tool("write", json!({ "path": path("new"), "content": "x\n" })),
        bash("true"),
        Reply::text("done"),
    ]);
    let client = daemon.client().await;
    let session = client.create_with(json!({ "mode": mode })).await;
    client.attach(&session).await;
    client.prompt(&session, "go").await;
    let mut answered = 0;
    loop {
        let next = client
            .wait("a permission or the end", |seen| {
                let asked = seen.of("permission_requested").nth(answered).map(|seen| seen.str("permission").to_owned());
                asked.map(Some).or_else(|| seen.of("turn_finished").next().map(|_| None))
            })
            .await;
        let Some(permission) = next else { break };
        answer(&client, &permission, "reject_once").await;
        answered += 1;
    }
    let seen = client.transcript();
    let asked = seen.of("permission_requested").map(|seen| seen.str("tool").to_owned()).collect();
    let outcomes = seen.of("tool_finished").map(|seen| seen.str("outcome").to_owned()).collect();
    daemon.check(&[&client], &model);
    (asked, outcomes)
}

#[tokio::test]
async fn each_mode_asks_for_what_it_should() {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    assert_eq!(in_mode("ask").await, (words(&["write", "bash"]), words(&["ran", "denied", "denied"])));
    assert_eq!(in_mode("edit").await, (words(&["bash"]), words(&["ran", "ran", "denied"])));
    assert_eq!(in_mode("auto").await, (words(&[]), words(&["ran", "ran", "ran"])));
    assert_eq!(in_mode("plan").await, (words(&[]), words(&["ran", "denied", "denied"])));
}

#[tokio::test]
async fn rules_come_before_the_mode_and_deny_before_allow() {
    let rules = "[permissions]\nallow = [\"bash(echo fine)\", \"bash(echo deny me)\"]\nask = [\"bash(echo ask:*)\"]\ndeny = [\"bash(echo deny:*)\"]\n";
    let model = ModelServer::with([bash("echo fine"), bash("echo deny me"), bash("echo ask me"), Reply::text("done")]);
    let daemon = Daemon::start_with(&model, Setup { config: rules.to_owned(), ..Setup::default() }).await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "mode": "ask" })).await;
    client.attach(&session).await;
    client.prompt(&session, "go").await;
    let (permission, event) = asked(&client, &session, 1).await;
    assert_eq!((event["action"].as_str(), event["rule"].is_string()), (Some("echo ask me"), true));
    answer(&client, &permission, "allow_once").await;
    client.first(&session, "turn_finished").await;
    let outcomes: Vec<String> =
        client.transcript().of("tool_finished").map(|seen| seen.str("outcome").to_owned()).collect();
    assert_eq!(outcomes, ["ran", "denied", "ran"]);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_command_that_chains_is_not_covered_by_a_rule_for_its_first_word() {
    let rules = "[permissions]\nallow = [\"bash(echo:*)\"]\n";
    let commands = [
        "echo a; id",
        "echo a && id",
        "echo $(id)",
        "echo `id`",
        "echo a | sh",
        "echo a > x",
        "A=1 echo a",
        "echo a\nid",
    ];
    let model = ModelServer::with(commands.map(bash).into_iter().chain([Reply::text("done")]));
    let daemon = Daemon::start_with(&model, Setup { config: rules.to_owned(), ..Setup::default() }).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    for n in 1..=commands.len() {
        let (permission, event) = asked(&client, &session, n).await;
        assert_eq!(event["input"]["command"], commands[n - 1]);
        answer(&client, &permission, "reject_once").await;
    }
    client.first(&session, "turn_finished").await;
    assert_eq!(client.transcript().of("tool_started").count(), 0);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_link_that_was_turned_after_the_question_is_not_followed() {
    swapped(async |_| {}).await;
}

#[tokio::test]
async fn a_stricter_mode_holds_for_what_has_not_begun() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let fifo = daemon.dirs.root().join("fifo");
    let first = format!("mkfifo {0} && {1} && read line < {0}", fifo.display(), daemon.effect("first"));
    let second = json!({ "command": daemon.effect("second") });
    model.push([bash(&first).and_tool("bash", second.clone()).and_tool("bash", second), Reply::text("done")]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    assert!(linger_tests::harness::comes_true(linger_tests::TIMEOUT, || daemon.side_effects().exists()));
    client.call("session/set", json!({ "session": session, "mode": "ask" })).await;
    std::fs::write(&fifo, "go on\n").unwrap();
    let (permission, _) = asked(&client, &session, 1).await;
    client.call("session/set", json!({ "session": session, "mode": "plan" })).await;
    assert_eq!(client.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "first\n");
    let decided = client.first(&session, "permission_resolved").await;
    assert_eq!((decided.str("permission"), decided.str("decision")), (permission.as_str(), "reject_once"));
    let outcomes: Vec<String> =
        client.transcript().of("tool_finished").map(|finished| finished.str("outcome").to_owned()).collect();
    assert_eq!(outcomes, ["ran", "denied", "denied"]);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn what_decides_on_a_call_is_said_and_what_is_always_allowed_is_listed_and_taken_back() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let explain = async |call: &str| {
        let said = client.call("permission/explain", json!({ "call": call, "session": session })).await;
        (said["verdict"].clone(), said["by"].clone(), said["place"].is_null())
    };
    assert_eq!(explain("bash(git status -s)").await, (json!("ask"), json!("mode ask"), true));
    model.push([bash("git status"), Reply::text("done")]);
    client.prompt(&session, "go").await;
    let (permission, event) = asked(&client, &session, 1).await;
    assert_eq!(event["grant"], "bash(git status:*)");
    answer(&client, &permission, "allow_always").await;
    client.first(&session, "turn_finished").await;
    assert_eq!(explain("bash(git status -s)").await, (json!("allow"), json!("rule bash(git status:*)"), false));
    assert_eq!(
        explain("bash(git status; ls)").await,
        (json!("ask"), json!("mode ask: `git status` meets bash(git status:*), no rule allows `ls`"), true)
    );
    // As the tools read it.
    let said = client.call("permission/explain", json!({ "call": "read(~/x)", "cwd": daemon.workspace() })).await;
    assert_eq!((&said["verdict"], said["path"].as_str().unwrap().ends_with("/~/x")), (&json!("ask"), false), "{said}");
    let rules = client.call("permission/rules", json!({})).await;
    let root = daemon.workspace().canonicalize().unwrap();
    assert_eq!((&rules[0]["workspace"], &rules[0]["rule"]), (&json!(root), &json!("bash(git status:*)")));
    assert!(rules[0]["at"].is_u64(), "{rules}");
    let removed = client.call("permission/remove", json!({ "rule": "bash(git status:*)" })).await;
    assert_eq!(removed["removed"][0]["rule"], "bash(git status:*)");
    assert_eq!(client.call("permission/rules", json!({})).await, json!([]));
    assert_eq!(client.refused("permission/remove", json!({ "rule": "bash(git status:*)" })).await.code, -31040);
    assert_eq!(
        client.refused("permission/explain", json!({ "call": "bsh(x)", "session": session })).await.code,
        -31040
    );
    daemon.check(&[&client], &model);
}
