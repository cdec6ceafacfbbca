//! Delegation: a hub whose tasks are done by children, which are sessions like any other.

use linger_protocol::question::PendingQuestion;
use linger_tests::harness::{Client, Setup};
use linger_tests::model::{Format, ModelServer, PATIENCE, Recorded, Reply};
use serde_json::{Value, json};

use crate::Daemon;
use crate::shared::schema::gives;

const GOOGLE_KEY: &str = "canary-of-google-0123456789";

/// A daemon with three providers of three formats, and an agent for each.
async fn start(model: &ModelServer, mode: &'static str, more: &str) -> Daemon {
    let config = format!(
        "[providers.google]\nkind = \"gemini\"\nbase_url = \"{}/v1beta\"\napi_key_env = \"GOOGLE_KEY\"\n\
         patience = \"{PATIENCE}\"\n{more}",
        model.url()
    );
    let env = vec![("GOOGLE_KEY".to_owned(), GOOGLE_KEY.to_owned())];
    let agents = [("reader", "claude/c"), ("tester", "work/w"), ("writer", "google/gemini-2.5-pro")];
    let file = |(name, model): (&str, &str)| {
        let text = format!("---\nname: {name}\ndescription: a {name}\nmodel: {model}\n---\nYou are the {name}.\n");
        (format!("agents/{name}.md"), text)
    };
    let user_files = agents.map(file).to_vec();
    Daemon::start_with(model, Setup { mode, config, env, user_files, ..Setup::default() }).await
}

fn task(agent: &str, task: &str) -> Value {
    json!({ "agent": agent, "task": task })
}

fn answered(answer: &str, sources: Value) -> Value {
    json!({ "answer": answer, "sources": sources, "confidence": "high", "caveats": [] })
}

fn words(request: &Recorded) -> String {
    String::from_utf8_lossy(&request.body).into_owned()
}

/// The results of the calls of `delegate`, in the order of the calls.
fn results(client: &Client, session: &str) -> Vec<(Value, bool)> {
    let seen = client.transcript();
    let mut of: Vec<_> = seen.of("tool_finished").filter(|seen| seen.session == *session).collect();
    of.sort_by_key(|seen| seen.str("call_id").to_owned());
    let result = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    of.iter()
        .map(|seen| {
            let text = seen.event["content"][0]["text"].as_str().unwrap_or_default();
            (result(text), seen.event["is_error"] == true)
        })
        .collect()
}

async fn children(client: &Client, session: &str) -> Vec<Value> {
    let rows = client.call("session/list", json!({})).await;
    let mut rows: Vec<Value> =
        rows.as_array().unwrap().iter().filter(|row| row["parent"] == *session).cloned().collect();
    rows.sort_by_key(|row| row["delegated"]["call"].as_str().unwrap_or_default().to_owned());
    rows
}

#[tokio::test]
async fn a_hub_gets_the_answers_of_three_spokes_of_three_formats_in_order() {
    let model = ModelServer::start();
    let daemon = start(&model, "ask", "").await;
    std::fs::write(daemon.workspace().join("a.rs"), "one\ntwo\n").unwrap();
    let hub = Reply::tool("delegate", task("reader", "read alpha"))
        .and_tool("delegate", task("tester", "test beta"))
        .and_tool("delegate", task("writer", "write gamma"));
    model.push_for("m", [hub, Reply::text("all three are in")]);
    let source = json!([{ "file": "a.rs", "lines": "1-9", "summary": "it" }]);
    model.push_for("c", [gives(Format::Anthropic, &answered("alpha is read", source))]);
    // Denied, and then in a form that has to be mended.
    model.push_for(
        "w",
        [
            Reply::tool("bash", json!({ "command": "touch made" })),
            Reply::text("beta cannot be tested"),
            gives(Format::OpenAi, &answered("beta was denied", json!([]))),
        ],
    );
    let gives_gamma = move |request: &Recorded| match request.model() {
        "gemini-2.5-pro" => gives(Format::Gemini, &answered("gamma is written", json!([]))),
        other => panic!("nothing was scripted for {other}"),
    };
    model.otherwise(gives_gamma);
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    let asked = client.wait("a question of a child", |seen| {
        seen.of("child_updated").find(|seen| seen.event["status"] == "waiting").map(|seen| seen.event.clone())
    });
    let asked = asked.await;
    let inbox = client.call("question/list", json!({ "session": session })).await;
    let row: PendingQuestion = serde_json::from_value(inbox[0].clone()).unwrap();
    assert_eq!(
        (row.question.as_str(), &row.session.unwrap().0),
        (asked["questions"][0].as_str().unwrap(), &asked["child"].as_str().unwrap().to_owned())
    );
    assert_eq!((row.parent.unwrap().0, row.parent_name.unwrap()), (session.clone(), "go".to_owned()));
    client.call("permission/answer", json!({ "permission": asked["questions"][0], "decision": "reject_once" })).await;
    assert_eq!(client.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    let results = results(&client, &session);
    let answers: Vec<&Value> = results.iter().map(|(result, _)| &result["answer"]).collect();
    assert_eq!(answers, ["alpha is read", "beta was denied", "gamma is written"], "{results:?}");
    assert_eq!(results[0].0["caveats"], json!(["source a.rs: lines 1-9 do not exist, the file has 2"]));
    let rows = children(&client, &session).await;
    let told: Vec<Value> =
        rows.iter().map(|row| json!([row["agent"], row["state"], row["one_shot"], row["mode"]])).collect();
    let row = |agent: &str| json!([agent, "idle", true, "ask"]);
    assert_eq!(told, [row("reader"), row("tester"), row("writer")]);
    // What they used is in the sum of their parent, once.
    let of = |row: &Value| row["usage"]["input_tokens"].as_u64().unwrap();
    let own = client
        .transcript()
        .of("message")
        .filter(|seen| seen.session == session)
        .filter_map(|seen| seen.event["usage"]["input_tokens"].as_u64())
        .sum::<u64>();
    let sum = client.call("session/list", json!({ "matching": session })).await;
    assert_eq!(of(&sum[0]), own + rows.iter().map(of).sum::<u64>());
    assert!(words(&model.requests()[0]).contains("- reader: a reader"), "the hub is told of the agents");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn without_a_file_there_is_an_agent_and_an_unknown_one_is_answered_with_those_there_are() {
    let model = ModelServer::scripted(|request| match request.last_words().as_str() {
        "go" if !request.after_tool() => {
            Reply::tool("delegate", task("general", "look")).and_tool("delegate", task("nobody", "look"))
        }
        words if words.starts_with("look") => Reply::text(answered("seen", json!([])).to_string()),
        _ => Reply::text("done"),
    });
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let results = results(&client, &session);
    assert_eq!((&results[0].0["answer"], &results[0].0["agent"]), (&json!("seen"), &json!("general")));
    assert_eq!(results[1].0, "not run: the agent `nobody` is unknown (`linger agents list` lists them)");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_cancel_of_the_parent_cancels_its_children_and_one_of_a_child_is_a_result() {
    let model = ModelServer::scripted(|request| match request.last_words().as_str() {
        words if words.starts_with("sleep") => Reply::tool("bash", json!({ "command": "sleep 600" })),
        _ if request.after_tool() => Reply::text("so be it"),
        _ => Reply::tool("delegate", task("general", "sleep")),
    });
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let started = async |n: usize| {
        client
            .wait("a child at work", |seen| {
                let works = |seen: &&linger_tests::check::Seen| {
                    seen.event["doing"] == "sleep 600" && seen.event["status"] == "working"
                };
                let mut children: Vec<String> =
                    seen.of("child_updated").filter(works).map(|seen| seen.str("child").to_owned()).collect();
                children.dedup();
                children.get(n).cloned()
            })
            .await
    };
    client.prompt(&session, "one").await;
    let child = started(0).await;
    client.call("session/cancel", json!({ "session": child })).await;
    client.first(&session, "turn_finished").await;
    let (said, is_error) = results(&client, &session).remove(0);
    assert!(is_error && said.as_str().unwrap().contains("gives no answer: it was cancelled"), "{said}");
    client.prompt(&session, "two").await;
    let child = started(1).await;
    client.attach(&child).await;
    client.call("session/cancel", json!({ "session": session })).await;
    client.nth(&session, "turn_finished", 2).await;
    assert_eq!(client.first(&child, "turn_finished").await.str("stop_reason"), "cancelled");
    client
        .wait("the end of the child", |seen| {
            let ended =
                |seen: &&linger_tests::check::Seen| seen.str("child") == child && seen.event["status"] == "finished";
            seen.of("child_updated").find(ended).map(|_| ())
        })
        .await;
    daemon.check(&[&client], &model);
    let removed = client.call("session/remove", json!({ "session": session })).await;
    assert_eq!(removed["children"], 2);
    assert_eq!(client.call("session/list", json!({})).await, json!([]));
}

#[tokio::test]
async fn a_result_from_the_background_comes_in_a_turn_of_its_own_as_a_childs_words() {
    let model = ModelServer::scripted(|request| match request.last_words().as_str() {
        words if words.starts_with("look") => Reply::text(answered("seen", json!([])).to_string()),
        words if words.contains("not the user") => Reply::text("thanks"),
        _ if request.after_tool() => Reply::text("it works on it"),
        _ => Reply::tool("delegate", json!({ "agent": "general", "task": "look", "background": true })),
    });
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    client.nth(&session, "turn_finished", 2).await;
    let seen = client.transcript();
    let prompts: Vec<Value> = seen
        .of("prompt_accepted")
        .filter(|seen| seen.session == session)
        .map(|seen| seen.event["child"].clone())
        .collect();
    let child = children(&client, &session).await.remove(0);
    assert_eq!(prompts, [Value::Null, child["session"].clone()]);
    let asks: Vec<&str> =
        seen.of("message").filter(|seen| seen.str("role") == "user").map(|seen| seen.str("asks")).collect();
    assert_eq!(asks, ["", "", "child"]);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_child_never_asks_less_than_its_parent() {
    let model = ModelServer::scripted(|request| match request.last_words().as_str() {
        words if words.starts_with("sleep") => Reply::tool("bash", json!({ "command": "sleep 600" })),
        _ if request.after_tool() => Reply::text("so be it"),
        _ => Reply::tool("delegate", task("general", "sleep")),
    });
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    let child =
        client.wait("a child", |seen| seen.of("child_updated").next().map(|seen| seen.str("child").to_owned())).await;
    let mode =
        async |session: &str| client.call("session/list", json!({ "matching": session })).await[0]["mode"].clone();
    assert_eq!(mode(&child).await, "auto");
    client.call("session/set", json!({ "session": session, "mode": "ask" })).await;
    assert_eq!(mode(&child).await, "ask");
    let refused = client.refused("session/set", json!({ "session": child, "mode": "auto" })).await;
    assert!(refused.message.contains("whose mode is ask: it may not ask less"), "{}", refused.message);
    client.call("session/cancel", json!({ "session": session })).await;
    client.first(&session, "turn_finished").await;
    let finished = |seen: &linger_tests::check::Transcript| {
        seen.of("child_updated").find(|seen| seen.event["status"] == "finished").map(|_| ())
    };
    client.wait("the end of the child", finished).await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn agents_of_agents_of_agents_have_no_such_tool() {
    // The checker tells conversations by their beginning.
    let model = ModelServer::scripted(move |request| {
        let (has_tool, said) = (words(request).contains("\"name\":\"delegate\",\"description\""), request.last_words());
        match (request.after_tool(), has_tool) {
            (false, true) if said == "go" => Reply::tool("delegate", task("general", "deeper")),
            (false, true) => Reply::tool("delegate", task("general", "and deeper")),
            (true, _) if said == "go" => Reply::text("done"),
            _ => Reply::text(answered("deep", json!([])).to_string()),
        }
    });
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let rows = client.call("session/list", json!({})).await;
    let mut depths: Vec<u64> =
        rows.as_array().unwrap().iter().map(|row| row["delegated"]["depth"].as_u64().unwrap_or_default()).collect();
    depths.sort_unstable();
    assert_eq!(depths, [0, 1, 2]);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_budget_counts_what_a_child_uses_once_and_ends_the_child_that_spends_it() {
    let mut steps = 0;
    let model = ModelServer::scripted(move |request| {
        if words(request).contains("Another agent reads your answer") {
            steps += 1;
            let command = if steps < 3 { format!("echo {steps}") } else { "sleep 600".to_owned() };
            return Reply::tool("bash", json!({ "command": command })).usage(400, 0, 0);
        }
        if request.after_tool() {
            Reply::text("so be it").usage(100, 0, 0)
        } else {
            Reply::tool("delegate", task("general", "spend")).usage(100, 0, 0)
        }
    });
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "budget": { "max_tokens": 1000 } })).await;
    client.attach(&session).await;
    client.prompt(&session, "go").await;
    let asked = client.first(&session, "question_asked").await;
    let text = asked.event["asked"]["text"].as_str().unwrap();
    assert_eq!(text, "the session's budget is spent: it has used 1300 tokens, its budget is 1000; go on?");
    let (said, is_error) = results(&client, &session).remove(0);
    let why = "gives no answer: it was cancelled: the budget of the session that delegated it is spent";
    assert!(is_error && said.as_str().unwrap().contains(why), "{said}");
    client.call("question/answer", json!({ "question": asked.event["question"], "answer": "go_on" })).await;
    let finished = client.first(&session, "turn_finished").await.event;
    let tokens = |value: &Value| value["input_tokens"].as_u64().unwrap();
    assert_eq!((tokens(&finished["usage"]), tokens(&finished["session_usage"])), (1400, 1400));
    // The list, and the sums of what was paid for: the family is in the parent's row there, and each session's own here.
    let row = client.call("session/list", json!({ "matching": session })).await[0].clone();
    let child = children(&client, &session).await.remove(0);
    assert_eq!((tokens(&row["usage"]), tokens(&child["usage"])), (1400, 1200));
    let sums = client.call("usage/list", json!({ "by": "session" })).await;
    let own = |session: &Value| {
        let rows = sums["rows"].as_array().unwrap();
        tokens(&rows.iter().find(|row| row["session"] == *session).unwrap()["usage"])
    };
    assert_eq!((own(&row["session"]), own(&child["session"]), tokens(&sums["total"]["usage"])), (200, 1200, 1400));
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_child_whose_own_budget_is_spent_ends_with_a_result_and_its_parent_goes_on() {
    let model = ModelServer::start();
    let reader = "---\nmodel: work/w\nbudget: {tokens: 500}\n---\nYou are the reader.\n";
    let user_files = vec![("agents/reader.md".to_owned(), reader.to_owned())];
    let daemon = Daemon::start_with(&model, Setup { mode: "auto", user_files, ..Setup::default() }).await;
    let client = daemon.client().await;
    let step = || Reply::tool("bash", json!({ "command": "echo a" })).usage(400, 0, 0);
    model.push_for("w", [step(), step()]);
    model.push_for("m", [Reply::tool("delegate", task("reader", "read")), Reply::text("so be it")]);
    let session = client.session().await;
    assert_eq!(client.turn(&session, "go").await.str("stop_reason"), "end_turn");
    let (said, is_error) = results(&client, &session).remove(0);
    let why = "gives no answer: it failed: the session's budget is spent: it has used 800 tokens, its budget is 500]";
    assert!(is_error && said.as_str().unwrap().ends_with(why), "{said}");
    assert_eq!(client.transcript().of("question_asked").count(), 0, "its parent decides what comes of that");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn what_a_child_changes_is_in_the_diff_of_its_parent_and_undone_in_its_own_session() {
    let model = ModelServer::scripted(|request| match request.last_words().as_str() {
        words if words.starts_with("write") && request.after_tool() => {
            Reply::text(answered("written", json!([])).to_string())
        }
        words if words.starts_with("write") => Reply::tool("write", json!({ "path": "new", "content": "new\n" })),
        _ if request.after_tool() => Reply::text("so it is"),
        _ => Reply::tool("delegate", task("general", "write")),
    });
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let child = children(&client, &session).await.remove(0)["session"].clone();
    let diff = client.call("session/diff", json!({ "session": session })).await;
    let file = &diff["files"][0];
    assert_eq!((&file["child"]["session"], &file["added"], &file["kind"]), (&child, &json!(1), &json!("create")));
    let refused = client.refused("session/undo", json!({ "session": session })).await;
    assert!(refused.get_hint().unwrap().contains("what a child changed is undone in its own session"), "{refused:?}");
    client.call("session/undo", json!({ "session": child })).await;
    assert!(!daemon.workspace().join("new").exists());
    daemon.check(&[&client], &model);
}
