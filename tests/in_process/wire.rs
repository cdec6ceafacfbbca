//! The wire by hand: whatever is sent, the answer is an error and the connection lives on.

use crate::shared::wire::{STATUS, daemon, lives};
use linger_tests::model::Reply;
use serde_json::{Value, json};

const HELLO: &str = r#"{"jsonrpc":"2.0","id":"hi","method":"daemon/hello","params":{"client":"raw","protocol":[1,1]}}"#;

#[tokio::test]
async fn each_malformed_line_gets_its_error_and_the_connection_lives_on() {
    let (_model, _daemon, mut raw) = daemon().await;
    assert_eq!(raw.ask(HELLO).await["result"]["protocol"], 1);
    let cases: &[(&str, i64, Value)] = &[
        ("{", -32700, Value::Null),
        ("nonsense", -32700, Value::Null),
        ("\u{fffd}", -32700, Value::Null),
        (r#"{"jsonrpc":"2.0","id":1,"method":"no/such"}"#, -32601, json!(1)),
        (r#"{"jsonrpc":"1.0","id":2,"method":"daemon/status"}"#, -32600, json!(2)),
        (r#"{"id":3,"method":"daemon/status"}"#, -32600, json!(3)),
        (r#"{"jsonrpc":"2.0","id":4}"#, -32600, json!(4)),
        (r#"{"jsonrpc":"2.0","id":5,"method":"daemon/status","params":7}"#, -32600, json!(5)),
        (r#"{"jsonrpc":"2.0","id":6,"method":"session/attach","params":{"session":7}}"#, -32602, json!(6)),
        (r#"{"jsonrpc":"2.0","id":7,"method":"session/attach"}"#, -32602, json!(7)),
        (r#"{"jsonrpc":"2.0","id":8,"method":"session/prompt","params":{"session":"x"}}"#, -32602, json!(8)),
        (r#"{"jsonrpc":"2.0","id":[1],"method":"daemon/status"}"#, -32600, Value::Null),
        ("[]", -32600, Value::Null),
        ("7", -32600, Value::Null),
        (r#""text""#, -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","id":9,"method":"session/attach","params":{"session":"nope"}}"#, -31002, json!(9)),
    ];
    for (line, code, id) in cases {
        let answer = raw.ask(line).await;
        assert_eq!((answer["error"]["code"].as_i64(), &answer["id"]), (Some(*code), id), "{line} gave {answer}");
        assert!(answer.get("result").is_none(), "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(!message.contains("struct") && !message.contains("enum"), "{answer}");
        assert!(*code != -32602 || answer["error"]["data"]["hint"].is_string(), "{answer}");
    }
    let content = r#"{"jsonrpc":"2.0","id":8,"method":"session/prompt","params":{"session":"x","content":7}}"#;
    let message = raw.ask(content).await["error"]["message"].clone();
    assert!(message.as_str().unwrap().contains("a list of blocks"), "{message}");
    lives(&mut raw).await;
}

#[tokio::test]
async fn bytes_that_are_no_text_get_an_error_and_the_connection_lives_on() {
    let (_model, _daemon, mut raw) = daemon().await;
    for bytes in [
        &b"\xff\xfe\n"[..],
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}\n",
        b"\x00\x01\n",
        b"{\"a\":\"\\ud800\"}\n",
    ] {
        raw.send(bytes).await;
        assert!(raw.line().await.unwrap()["error"]["code"].as_i64().unwrap() <= -32600, "{bytes:?}");
    }
    let deep = format!("{}\n", "[".repeat(100_000));
    raw.send(deep).await;
    assert!(raw.line().await.unwrap()["error"].is_object());
    lives(&mut raw).await;
}

#[tokio::test]
async fn an_id_comes_back_as_it_was_sent() {
    let (_model, _daemon, mut raw) = daemon().await;
    for id in [
        json!(0),
        json!(1),
        json!(18_446_744_073_709_551_615_u64),
        json!("a"),
        json!(""),
        json!("käse \"x\""),
        Value::Null,
    ] {
        let answer = raw.ask(&json!({ "jsonrpc": "2.0", "id": id, "method": "daemon/status" }).to_string()).await;
        assert_eq!(answer["id"], id);
        assert_eq!(answer["jsonrpc"], "2.0");
    }
}

#[tokio::test]
async fn blank_lines_carriage_returns_and_unknown_fields_do_no_harm() {
    let (_model, _daemon, mut raw) = daemon().await;
    raw.send("\n\r\n   \n").await;
    let answer =
        raw.ask(r#"{"jsonrpc":"2.0","id":1,"method":"daemon/status","params":{"new":true},"extra":[1]}"#).await;
    assert!(answer["result"].is_object(), "{answer}");
    raw.send(format!("{STATUS}\r\n")).await;
    assert_eq!(raw.line().await.unwrap()["id"], 99);
}

#[tokio::test]
async fn a_notification_happens_and_is_not_answered() {
    let (model, daemon, mut raw) = daemon().await;
    model.push([Reply::text("x")]);
    let client = daemon.client().await;
    let session = client.session().await;
    let prompt =
        json!({ "jsonrpc": "2.0", "method": "session/prompt", "params": { "session": session, "content": "go" } });
    raw.send(format!("{prompt}\n")).await;
    raw.send("{\"jsonrpc\":\"2.0\",\"method\":\"no/such\"}\n").await;
    lives(&mut raw).await;
    client.first(&session, "turn_finished").await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_batch_is_answered_as_a_batch() {
    let (_model, _daemon, mut raw) = daemon().await;
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"daemon/status"},{"jsonrpc":"2.0","method":"daemon/status"},{"jsonrpc":"2.0","id":2,"method":"no/such"},7]"#;
    let answer = raw.ask(batch).await;
    let answers = answer.as_array().expect("a batch");
    assert_eq!(answers.len(), 3, "{answer}");
    let of = |id: Value| answers.iter().find(|answer| answer["id"] == id).unwrap();
    assert!(of(json!(1))["result"].is_object());
    assert_eq!(of(json!(2))["error"]["code"], -32601);
    assert_eq!(of(Value::Null)["error"]["code"], -32600);
    raw.send("[{\"jsonrpc\":\"2.0\",\"method\":\"daemon/status\"}]\n").await;
    lives(&mut raw).await;
    let many = format!("[{}]", vec![STATUS; 10_000].join(","));
    assert_eq!(raw.ask(&many).await["error"]["code"], -32600);
    lives(&mut raw).await;
}

#[tokio::test]
async fn half_a_line_and_a_hang_up_hurt_nobody() {
    let (_model, daemon, mut raw) = daemon().await;
    raw.send(r#"{"jsonrpc":"2.0","id":1,"meth"#).await;
    drop(raw);
    let mut raw = daemon.raw().await;
    lives(&mut raw).await;
}

#[tokio::test]
async fn what_was_asked_before_the_writing_side_closed_is_answered() {
    let (_model, _daemon, mut raw) = daemon().await;
    raw.send(format!("{STATUS}\n{STATUS}\n")).await;
    raw.finish().await;
    assert_eq!(raw.line().await.unwrap()["id"], 99);
    assert_eq!(raw.line().await.unwrap()["id"], 99);
    assert_eq!(raw.line().await, None);
}

#[tokio::test]
async fn a_connection_that_begins_with_content_length_speaks_that() {
    let (_model, _daemon, mut raw) = daemon().await;
    for line in [HELLO, STATUS] {
        raw.send(format!("Content-Length: {}\r\n\r\n{line}", line.len())).await;
        assert!(raw.counted().await["result"].is_object());
    }
    let bad = "{nonsense";
    raw.send(format!("Content-Length: {}\r\nContent-Type: x\r\n\r\n{bad}", bad.len())).await;
    assert_eq!(raw.counted().await["error"]["code"], -32700);
    raw.send(format!("Content-Length: {}\r\n\r\n{STATUS}", STATUS.len())).await;
    assert_eq!(raw.counted().await["id"], 99);
}

#[tokio::test]
async fn requests_take_effect_in_the_order_in_which_they_came() {
    let (model, daemon, mut raw) = daemon().await;
    let client = daemon.client().await;
    let session = client.session().await;
    model.push((0..20).map(|n| Reply::text(format!("{n}"))));
    let mut lines = String::new();
    for n in 0..20 {
        let params = json!({ "session": session, "content": format!("p{n}") });
        lines.push_str(&json!({ "jsonrpc": "2.0", "id": n, "method": "session/prompt", "params": params }).to_string());
        lines.push('\n');
    }
    raw.send(lines).await;
    client.nth(&session, "turn_finished", 20).await;
    let seen = client.transcript();
    let order: Vec<String> =
        seen.of("prompt_accepted").map(|seen| seen.event["content"][0]["text"].as_str().unwrap().to_owned()).collect();
    assert_eq!(order, (0..20).map(|n| format!("p{n}")).collect::<Vec<_>>());
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_protocol_that_nobody_speaks_is_refused_with_both_ranges() {
    let (_model, _daemon, mut raw) = daemon().await;
    let line = r#"{"jsonrpc":"2.0","id":1,"method":"daemon/hello","params":{"client":"x","protocol":[90,99]}}"#;
    let refused = json!({
        "code": -31018,
        "message": "this daemon (0.1.0) speaks protocol 1 to 1, the client 90 to 99",
        "data": { "hint": "restart the daemon with the client's own version: `linger daemon stop`" },
    });
    assert_eq!(raw.ask(line).await["error"], refused);
    assert_eq!(raw.ask(HELLO).await["result"]["protocol"], 1);
}

#[tokio::test]
async fn prompts_without_content_are_refused() {
    let (model, daemon, _raw) = daemon().await;
    let client = daemon.client().await;
    let session = client.session().await;
    let contents = [
        json!(""),
        json!("  \n"),
        json!([]),
        json!([{ "type": "tool_result", "call_id": "x", "content": [] }]),
        json!([{ "type": "news" }]),
    ];
    for content in contents {
        let error = client.refused("session/prompt", json!({ "session": session, "content": content })).await;
        assert_eq!(error.code, -31019, "{content}");
    }
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_directory_that_is_not_there_a_name_that_is_taken_and_a_model_of_nobody_are_refused() {
    let (model, daemon, _raw) = daemon().await;
    let client = daemon.client().await;
    let cwd = daemon.workspace();
    let cases = [
        (json!({ "cwd": cwd.join("nope") }), -31011),
        (json!({ "cwd": "relative" }), -31011),
        (json!({ "cwd": cwd, "model": "nobody/m" }), -31008),
        (json!({ "cwd": cwd, "name": "" }), -31012),
    ];
    for (params, code) in cases {
        assert_eq!(client.refused("session/create", params.clone()).await.code, code, "{params}");
    }
    client.create_with(json!({ "name": "mine" })).await;
    assert_eq!(client.refused("session/create", json!({ "cwd": cwd, "name": "mine" })).await.code, -31012);
    daemon.check(&[&client], &model);
}
