//! Hooks of prompts, of the end of a turn, and of questions.

use linger_tests::harness::until;
use linger_tests::model::{ModelServer, Reply};
use serde_json::json;

use crate::{Daemon, bash};

#[tokio::test]
async fn hooks_refuse_prompts_add_to_them_and_tell_of_ends_and_questions() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let hooks = "[{ event = 'prompt', command = 'grep -q secret && echo \"not that\" >&2 && exit 2; echo added' }, \
                 { event = 'turn_finished', command = 'cat > finished' }, \
                 { event = 'question', command = 'cat > asked' }]";
    client.call("config/set", json!({ "name": "hooks", "value": hooks })).await;
    let session = client.session().await;
    let refused = client.refused("session/prompt", json!({ "session": session, "content": "the secret" })).await;
    assert_eq!(refused.message, "the prompt is refused: not that");

    model.push([bash("touch made"), Reply::text("done")]);
    client.prompt(&session, "go").await;
    let accepted = client.first(&session, "prompt_accepted").await;
    let said = [json!({ "type": "text", "text": "go" }), json!({ "type": "text", "text": "added" })];
    assert_eq!(accepted.event["content"], json!(said));
    let asked = client.first(&session, "permission_requested").await;
    let written = |name: &str| {
        let text = std::fs::read_to_string(daemon.workspace().join(name)).ok()?;
        serde_json::from_str::<serde_json::Value>(&text).ok()
    };
    let question = until("the hook of the question ran", async || written("asked")).await;
    assert_eq!(question["question"], asked.event["permission"]);
    assert_eq!(question["tool_input"], json!({ "command": "touch made" }));
    crate::answer(&client, asked.str("permission"), "reject_once").await;
    client.first(&session, "turn_finished").await;
    let finished = until("the hook of the end ran", async || written("finished")).await;
    assert_eq!((&finished["stop_reason"], &finished["session_id"]), (&json!("end_turn"), &json!(session)));
    assert_eq!(finished["hook_event_name"], "Stop");
    daemon.check(&[&client], &model);
}
