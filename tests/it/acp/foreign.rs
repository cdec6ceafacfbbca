//! What editors by others do and expect: options for everything, forks, requests that are cancelled, answers that make no sense.

use super::*;

/// The option of a session with this id.
fn option<'a>(result: &'a Value, id: &str) -> &'a Value {
    let options = result["configOptions"].as_array().unwrap_or_else(|| panic!("{result}"));
    options.iter().find(|option| option["id"] == id).unwrap_or_else(|| panic!("no option {id}: {result}"))
}

fn values(option: &Value) -> Vec<&str> {
    option["options"].as_array().unwrap().iter().map(|it| it["value"].as_str().unwrap()).collect()
}

async fn opened(editor: &mut Editor, daemon: &Daemon) -> (String, Value) {
    let params = json!({ "cwd": daemon.workspace(), "mcpServers": [] });
    let result = editor.ask("session/new", params).await["result"].clone();
    (result["sessionId"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned(), result)
}

async fn set(editor: &mut Editor, session: &str, option: &str, value: &str) -> Value {
    let params = json!({ "sessionId": session, "configId": option, "value": value });
    editor.ask("session/set_config_option", params).await
}

#[tokio::test]
async fn the_mode_is_an_option_and_every_change_of_it_is_told_whoever_made_it() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let mut editor = Editor::start(&daemon, json!({})).await;
    let (session, made) = opened(&mut editor, &daemon).await;
    let mode = option(&made, "mode");
    assert_eq!((&mode["category"], &mode["currentValue"]), (&json!("mode"), &json!("ask")), "{mode}");
    assert_eq!(values(mode), ["ask", "edit", "auto", "plan"]);
    assert_eq!(made["modes"]["currentModeId"], "ask", "editors that know only modes have them still");
    let done = set(&mut editor, &session, "mode", "plan").await;
    assert_eq!(option(&done["result"], "mode")["currentValue"], "plan", "{done}");
    // A terminal changes it.
    daemon.cli(&["set", &session, "--mode", "edit"]).run().await.exits(0);
    let is_edit = |it: &Value| {
        let update = &it["params"]["update"];
        (update["sessionUpdate"] == "config_option_update" && option(update, "mode")["currentValue"] == "edit")
            .then_some(())
    };
    editor.until(is_edit).await;
    editor.until(|it| (it["params"]["update"]["currentModeId"] == "edit").then_some(())).await;
    for (option, value) in [("mode", ""), ("mode", "yolo"), ("model", ""), ("effort", "most"), ("colour", "red")] {
        let refused = set(&mut editor, &session, option, value).await;
        assert_eq!(refused["error"]["code"], -32602, "{option}={value}: {refused}");
    }
}

#[tokio::test]
async fn the_models_are_those_that_providers_list_and_never_a_guess_or_a_placeholder() {
    let model = ModelServer::start();
    model.list("/v1/models", json!({ "data": [{ "id": "mock" }, { "id": "mock-large" }] }));
    // A preset's name at another address, and a provider without a default model.
    let config = format!(
        "[providers.openai]\nbase_url = \"{0}/v1\"\napi_key_env = \"WORK_KEY\"\n\
         [providers.resp]\nkind = \"openai-responses\"\nbase_url = \"{0}/v1\"\napi_key_env = \"WORK_KEY\"\n",
        model.url()
    );
    let daemon = Daemon::start_with(&model, Setup { config, ..Setup::default() }).await;
    let mut editor = Editor::start(&daemon, json!({})).await;
    let (session, made) = opened(&mut editor, &daemon).await;
    let offered = option(&made, "model");
    let names = values(offered);
    assert!(names.contains(&offered["currentValue"].as_str().unwrap()), "{names:?}");
    assert!(!names.iter().any(|name| name.ends_with("/MODEL") || *name == "openai/gpt-5"), "{names:?}");
    for listed in ["openai/mock", "openai/mock-large", "resp/mock"] {
        assert!(names.contains(&listed), "{listed}: {names:?}");
        let done = set(&mut editor, &session, "model", listed).await;
        assert_eq!(option(&done["result"], "model")["currentValue"], listed, "what is offered can be chosen: {done}");
    }
}

#[tokio::test]
async fn a_name_and_a_title_reach_the_editor_when_they_change() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let mut editor = Editor::start(&daemon, json!({})).await;
    let (session, _) = opened(&mut editor, &daemon).await;
    daemon.cli(&["rename", &session, "a-name"]).run().await.exits(0);
    editor
        .until(|it| {
            let update = &it["params"]["update"];
            (update["sessionUpdate"] == "session_info_update" && update["title"] == "a-name").then_some(())
        })
        .await;
    let mut other = Editor::start(&daemon, json!({})).await;
    other.load(&daemon, &session).await;
    other.until(|it| (it["params"]["update"]["title"] == "a-name").then_some(())).await;
}

#[tokio::test]
async fn an_answer_that_was_not_offered_or_an_error_ends_the_prompt_and_leaves_the_question_to_others() {
    let model = ModelServer::scripted(|request| {
        if request.after_tool() { Reply::text("done") } else { Reply::tool("bash", json!({ "command": "echo hi" })) }
    });
    let daemon = Daemon::start(&model).await;
    let selected = json!({ "outcome": { "outcome": "selected", "optionId": "allow" } });
    for (answer, why) in [
        (json!({ "result": selected }), "no option 'allow'"),
        (json!({ "error": { "code": -32601, "message": "no such method" } }), "no such method"),
        (json!({ "result": { "outcome": "yes" } }), "cannot be used"),
    ] {
        let mut editor = Editor::start(&daemon, json!({})).await;
        let (session, _) = opened(&mut editor, &daemon).await;
        let prompt = editor.prompt(&session, "go").await;
        let asked = editor.asked("session/request_permission").await;
        let mut message = json!({ "jsonrpc": "2.0", "id": asked["id"] });
        message.as_object_mut().unwrap().extend(answer.as_object().unwrap().clone());
        editor.write(message).await;
        let ended = editor.answer(prompt).await;
        let text = ended["error"]["message"].as_str().unwrap_or_else(|| panic!("{ended}")).to_owned();
        assert!(text.contains(why) && text.contains("linger answer "), "{text}");
        // The turn goes on once somebody else answers.
        let question = text.split("linger answer ").nth(1).unwrap().split('`').next().unwrap();
        daemon.cli(&["answer", question, "allow"]).run().await.exits(0);
        editor.until(|it| (it["params"]["update"]["content"]["text"] == "done").then_some(())).await;
    }
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_prompt_request_that_the_editor_cancels_ends_as_cancelled_whether_it_runs_or_waits() {
    let model = ModelServer::with([Reply::new().text_in_deltas("begun", 2).stall(), Reply::text("third")]);
    let daemon = Daemon::start(&model).await;
    let mut editor = Editor::start(&daemon, json!({})).await;
    let (session, _) = opened(&mut editor, &daemon).await;
    let running = editor.prompt(&session, "one").await;
    editor.until(|it| it["params"]["update"]["content"]["text"].as_str().map(|_| ())).await;
    let queued = editor.prompt(&session, "two").await;
    let cancel = |id: Value| json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": { "requestId": id } });
    editor.write(cancel(json!(queued))).await;
    assert_eq!(editor.answer(queued).await["result"]["stopReason"], "cancelled");
    editor.write(cancel(json!("unknown"))).await;
    editor.write(cancel(json!(running))).await;
    assert_eq!(editor.answer(running).await["result"]["stopReason"], "cancelled");
    let third = editor.prompt(&session, "three").await;
    assert_eq!(editor.answer(third).await["result"]["stopReason"], "end_turn");
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_session_that_is_binned_or_removed_elsewhere_ends_neither_the_bridge_nor_its_other_sessions() {
    let model = ModelServer::with([Reply::text("still here")]);
    let daemon = Daemon::start(&model).await;
    let mut editor = Editor::start(&daemon, json!({})).await;
    let (binned, _) = opened(&mut editor, &daemon).await;
    let (removed, _) = opened(&mut editor, &daemon).await;
    let (kept, _) = opened(&mut editor, &daemon).await;
    daemon.cli(&["rm", &binned]).run().await.exits(0);
    editor
        .until(|it| it["params"]["update"]["content"]["text"].as_str()?.contains("is in the bin").then_some(()))
        .await;
    daemon.cli(&["rm", "--now", &removed]).run().await.exits(0);
    let deleted = editor.ask("session/delete", json!({ "sessionId": kept })).await;
    assert!(deleted["result"].is_object(), "{deleted}");
    let gone = editor.ask("session/prompt", json!({ "sessionId": binned, "prompt": [] })).await;
    assert_eq!(gone["error"]["code"], -32002, "{gone}");
    let (last, _) = opened(&mut editor, &daemon).await;
    let prompt = editor.prompt(&last, "go").await;
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "end_turn");
    // What is taken out of the bin can be loaded again.
    daemon.cli(&["rm", "--restore", &binned]).run().await.exits(0);
    assert!(editor.load(&daemon, &binned).await["result"].is_object());
}

#[tokio::test]
async fn a_session_can_be_forked_and_one_that_works_elsewhere_says_so() {
    let model = ModelServer::with([Reply::text("one"), Reply::text("two")]);
    let daemon = Daemon::start(&model).await;
    let mut editor = Editor::start(&daemon, json!({})).await;
    let (session, _) = opened(&mut editor, &daemon).await;
    let prompt = editor.prompt(&session, "first").await;
    editor.answer(prompt).await;
    let elsewhere = tempfile::tempdir().unwrap();
    let params = json!({ "sessionId": session, "cwd": daemon.workspace(), "mcpServers": [] });
    let forked = editor.ask("session/fork", params).await["result"].clone();
    let fork = forked["sessionId"].as_str().unwrap_or_else(|| panic!("{forked}")).to_owned();
    assert_ne!(fork, session);
    assert_eq!(option(&forked, "mode")["currentValue"], "ask", "{forked}");
    let prompt = editor.prompt(&fork, "second").await;
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "end_turn");
    assert!(model.requests()[1].messages().contains("first"), "the fork has what was said before");
    let params = json!({ "sessionId": session, "cwd": elsewhere.path(), "mcpServers": [] });
    assert!(editor.ask("session/load", params).await["result"].is_object());
    editor
        .until(|it| it["params"]["update"]["content"]["text"].as_str()?.contains("this session works in").then_some(()))
        .await;
    daemon.check(&[], &model);
}

#[tokio::test]
async fn text_of_a_step_that_is_repeated_is_marked_where_it_stands() {
    let gate = Gate::new();
    let model = ModelServer::with([
        Reply::new().text_in_deltas("the first half", 3).gate(&gate).and_text(" and more"),
        Reply::text("all of it"),
    ]);
    let daemon = Daemon::start(&model).await;
    let mut editor = Editor::start(&daemon, json!({})).await;
    let (session, _) = opened(&mut editor, &daemon).await;
    let prompt = editor.prompt(&session, "go").await;
    editor.until(|it| it["params"]["update"]["content"]["text"].as_str().map(|_| ())).await;
    daemon.kill_daemon().await;
    gate.open();
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "end_turn");
    let text = text_of(&editor.shown());
    let mark = text.find("[linger] retrying this step; ignore the text above").unwrap_or_else(|| panic!("{text}"));
    assert!(text.find("the first").unwrap() < mark && mark < text.find("all of it").unwrap(), "{text}");
}
