//! The wire by hand: whatever is sent, the answer is an error and the connection lives on.

use std::collections::BTreeSet;

use crate::bash;
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
async fn an_id_that_is_any_number_comes_back_digit_by_digit() {
    let (_model, _daemon, mut raw) = daemon().await;
    for id in ["-3", "1.50", "1e3", "123456789012345678901234567890"] {
        for method in [r#""tool/list""#, r#""no/such""#, r#""session/attach""#, "7"] {
            raw.send(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":{method}}}\n")).await;
            let mut answer = String::new();
            raw.drain(|line| {
                line.clone_into(&mut answer);
                true
            })
            .await;
            // A request that is no request has no id.
            let expect = if method == "7" { "null" } else { id };
            assert!(answer.contains(&format!("\"id\":{expect},")), "{answer}");
        }
    }
    let digits = "7".repeat(65);
    let answer = raw.ask(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{digits},\"method\":\"tool/list\"}}")).await;
    assert_eq!((answer["error"]["code"].as_i64(), &answer["id"]), (Some(-32600), &Value::Null), "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().starts_with("an id is a string, a number"), "{answer}");
    lives(&mut raw).await;
}

#[tokio::test]
async fn an_error_of_params_names_the_field() {
    let (_model, _daemon, mut raw) = daemon().await;
    let mut check = async |method: &str, params: &str, path: &str, message: &str| {
        let answer =
            raw.ask(&format!("{{\"jsonrpc\":\"2.0\",\"id\":-1,\"method\":\"{method}\",\"params\":{params}}}")).await;
        let error = &answer["error"];
        let got = (error["code"].as_i64(), error["data"]["path"].as_str(), error["message"].as_str());
        assert_eq!(got, (Some(-32602), Some(path), Some(message)), "{params} gave {answer}");
    };
    let string = "invalid type: integer `5`, expected a string";
    check("session/attach", r#"{"deltas":true,"session":5}"#, "session", string).await;
    check("session/attach", "{}", "session", "missing field `session`").await;
    check("session/attach", "null", "session", "missing field `session`").await;
    check("session/create", r#"{"cwd":"/","env":{"A":5}}"#, "env.A", string).await;
    let mode = "unknown variant `x`, expected one of `ask`, `edit`, `auto`, `plan`";
    check("session/set", r#"{"session":"s","mode":"x"}"#, "mode", mode).await;
    let range = "invalid type: string \"b\", expected u32";
    check("daemon/hello", r#"{"client":"a","protocol":[1,"b"]}"#, "protocol[1]", range).await;
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
async fn no_library_takes_one_line_for_two() {
    let (model, daemon, mut raw) = daemon().await;
    model.push([Reply::text("a\u{2028}b\u{2029}c\u{85}d")]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "x\u{2028}y").await;
    let attach = json!({ "jsonrpc": "2.0", "id": 1, "method": "session/attach", "params": { "session": session } });
    raw.send(format!("{attach}\n")).await;
    let mut lines = Vec::new();
    raw.drain(|line| {
        lines.push(line.to_owned());
        line.contains("caught_up")
    })
    .await;
    let cut: Vec<_> = lines.iter().filter(|line| line.contains(['\u{2028}', '\u{2029}', '\u{85}'])).collect();
    assert!(cut.is_empty(), "{cut:?}");
    let said = r"a\u2028b\u2029c\u0085d";
    assert_eq!(lines.iter().filter(|line| line.contains("\"message\"") && line.contains(said)).count(), 2, "{lines:?}");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn events_of_a_call_say_what_an_editor_shows() {
    let (model, daemon, _raw) = daemon().await;
    let long = "x".repeat(5000);
    let read = |path: &str| Reply::tool("read", json!({ "path": path }));
    model.push([bash("exit 3"), bash("kill -9 $$"), read("a.txt"), bash(&format!("true {long}")), Reply::text("done")]);
    let client = daemon.client().await;
    let cwd = daemon.workspace().canonicalize().unwrap();
    std::fs::write(cwd.join("a.txt"), "a\n").unwrap();
    let created = client.call("session/create", json!({ "cwd": cwd, "mode": "auto" })).await;
    assert_eq!((&created["model"], &created["mode"]), (&json!("work/m"), &json!("auto")));
    let session = created["session"].as_str().unwrap().to_owned();
    client.attach(&session).await;
    let finished = client.turn(&session, "go").await;
    let seen = client.transcript();
    assert_eq!(finished.event["prompt"], seen.of("prompt_accepted").next().unwrap().event["prompt"]);
    let started: Vec<_> = seen.of("tool_started").map(|seen| &seen.event).collect();
    let kinds: Vec<_> = started.iter().map(|event| event["tool_kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["execute", "execute", "read", "execute"]);
    assert_eq!(started[0]["input"], json!({ "command": "exit 3" }));
    assert_eq!(started[0].get("locations"), None);
    assert_eq!(started[2]["locations"], json!([{ "path": cwd.join("a.txt") }]));
    assert_eq!(started[3].get("input"), None, "more than 4 KiB");
    let exits: Vec<_> = seen.of("tool_finished").map(|seen| seen.event["exit"].clone()).collect();
    assert_eq!(exits, [json!({ "code": 3 }), json!({ "signal": 9 }), Value::Null, json!({ "code": 0 })]);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn lists_are_read_page_by_page() {
    let (model, daemon, _raw) = daemon().await;
    model.push([bash("true 1"), bash("true 2"), bash("true 3")]);
    let client = daemon.client().await;
    let mut made = BTreeSet::new();
    for _ in 0..3 {
        let session = client.session().await;
        client.prompt(&session, "go").await;
        client.first(&session, "permission_requested").await;
        made.insert(session);
    }
    let pages = async |method: &str, given: &str, fields: [&str; 2], limit: Option<u32>| {
        let (mut params, mut pages) = (json!({ "limit": limit }), Vec::new());
        loop {
            let rows = client.call(method, params.clone()).await;
            let rows = rows.as_array().unwrap();
            let Some(last) = rows.last() else { return pages };
            params[given] = json!({ fields[0]: last[fields[0]], fields[1]: last[fields[1]] });
            pages.push(rows.iter().map(|row| row["session"].as_str().unwrap().to_owned()).collect::<Vec<_>>());
        }
    };
    let listed = pages("session/list", "before", ["updated_at", "session"], Some(2)).await;
    assert_eq!(listed.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(listed.concat().into_iter().collect::<BTreeSet<_>>(), made);
    for (method, id) in [("permission/list", "permission"), ("question/list", "question")] {
        let all = client.call(method, json!({})).await;
        let all: Vec<_> = all.as_array().unwrap().iter().map(|row| (row["at"].clone(), row[id].clone())).collect();
        for (n, (at, row)) in all.iter().enumerate() {
            let rest = client.call(method, json!({ "after": { "at": at, id: row } })).await;
            let rest: Vec<_> = rest.as_array().unwrap().iter().map(|row| row[id].clone()).collect();
            assert_eq!(rest, all[n + 1..].iter().map(|(_, id)| id.clone()).collect::<Vec<_>>());
        }
    }
    for session in &made {
        client.call("session/cancel", json!({ "session": session })).await;
        client.first(session, "turn_finished").await;
    }
    daemon.check(&[&client], &model);
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
async fn a_protocol_that_nobody_speaks_is_refused_with_both_ranges() {
    let (_model, _daemon, mut raw) = daemon().await;
    let line = r#"{"jsonrpc":"2.0","id":1,"method":"daemon/hello","params":{"client":"x","protocol":[90,99]}}"#;
    let refused = json!({
        "code": -31018,
        "message": "this daemon (0.1.0) speaks protocol 1 to 1, the client 90 to 99",
        "data": { "hint": "restart the daemon with the client's own version: `linger daemon restart`" },
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
