use super::*;

/// Asks, and gives what the server was sent.
async fn asked(queue: &mut mpsc::Receiver<Outgoing>) -> Value {
    serde_json::from_str(&queue.recv().await.unwrap().text).unwrap()
}

#[tokio::test]
async fn each_request_gets_its_own_answer_once() {
    let (peer, mut queue) = Peer::new(json!([]));
    let ask = |method: &'static str| {
        let peer = peer.clone();
        tokio::spawn(async move { peer.request(method, json!({}), None).await.map(|raw| raw.get().to_owned()) })
    };
    let (one, two) = (ask("one"), ask("two"));
    let ids = [asked(&mut queue).await["id"].clone(), asked(&mut queue).await["id"].clone()];
    for line in [
        format!(r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-1,"message":"no"}}}}"#, ids[1]),
        format!(r#"{{"jsonrpc":"2.0","id":"{}","result":{{"x":"\ud800"}}}}"#, ids[0]),
        format!(r#"{{"jsonrpc":"2.0","id":{},"result":2}}"#, ids[0]),
        r#"{"jsonrpc":"2.0","id":99,"result":2}"#.to_owned(),
    ] {
        assert!(peer.receive(&line, Channel::Shared).is_empty());
    }
    assert_eq!(one.await.unwrap().unwrap(), "{\"x\":\"\u{fffd}\"}");
    assert_eq!(two.await.unwrap(), Err(Failure::Refused { code: -1, message: "no".to_owned() }));
    assert!(matches!(&peer.receive("hello", Channel::Shared)[..], [Said::Garbage(_)]));
    assert!(matches!(&peer.receive("{}", Channel::Shared)[..], [Said::Garbage(_)]));
    peer.end("gone");
    assert_eq!(peer.request("x", json!({}), None).await.unwrap_err(), Failure::Ended("gone".into()));
}

#[tokio::test]
async fn a_request_that_is_dropped_is_cancelled_and_an_ended_connection_answers_all() {
    let (peer, mut queue) = Peer::new(json!([]));
    let (events, _progress) = Peer::events();
    let call = Call { events, headers: Vec::new() };
    let mut call = Box::pin(peer.request("tools/call", json!({}), Some(call)));
    assert!(futures_poll(&mut call).is_pending());
    let sent = asked(&mut queue).await;
    assert_eq!(sent["params"]["_meta"]["progressToken"], sent["id"]);
    drop(call);
    let cancelled = asked(&mut queue).await;
    assert_eq!(
        (&cancelled["method"], &cancelled["params"]["requestId"]),
        (&json!("notifications/cancelled"), &sent["id"])
    );
    assert!(peer.state().open.is_empty());
    let other = peer.clone();
    let waits = tokio::spawn(async move { other.request("x", json!({}), None).await.unwrap_err() });
    asked(&mut queue).await;
    peer.end("it crashed");
    assert_eq!(waits.await.unwrap(), Failure::Ended("it crashed".into()));
}

#[tokio::test]
async fn what_a_server_asks_belongs_to_its_only_open_call() {
    let (peer, mut queue) = Peer::new(json!([{ "uri": "file:///w" }]));
    let elicit = r#"{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"who?"}}"#;
    assert!(peer.receive(elicit, Channel::Shared).is_empty());
    assert_eq!(asked(&mut queue).await["error"]["code"], -32603);
    peer.receive(r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#, Channel::Shared);
    assert_eq!(asked(&mut queue).await["result"]["roots"][0]["uri"], "file:///w");
    peer.receive(r#"{"jsonrpc":"2.0","id":8,"method":"sampling/createMessage"}"#, Channel::Shared);
    assert_eq!(asked(&mut queue).await["error"]["code"], UNKNOWN_METHOD);
    let (events, mut heard) = Peer::events();
    let other = peer.clone();
    let call = Call { events, headers: Vec::new() };
    let call = tokio::spawn(async move { other.request("tools/call", json!({}), Some(call)).await.is_ok() });
    let id = asked(&mut queue).await["id"].clone();
    peer.receive(
        &json!({ "method": "notifications/progress", "params": { "progressToken": id, "progress": 1 } }).to_string(),
        Channel::Shared,
    );
    assert!(matches!(heard.recv().await, Some(CallEvent::Progress(Progress { progress: 1.0, .. }))));
    peer.receive(elicit, Channel::Shared);
    let Some(CallEvent::Asked(ServerRequest { params, reply, .. })) = heard.recv().await else { panic!("no question") };
    assert_eq!(params["message"], "who?");
    reply.send(json!({ "action": "decline" })).unwrap();
    let answer = asked(&mut queue).await;
    assert_eq!((&answer["id"], &answer["result"]["action"]), (&json!("e"), &json!("decline")));
    peer.receive(&json!({ "id": id, "result": {} }).to_string(), Channel::Shared);
    assert!(call.await.unwrap());
}

/// Asks `n` requests that are calls, and gives their answers, events and numbers.
async fn calls(
    peer: &Peer,
    queue: &mut mpsc::Receiver<Outgoing>,
    n: usize,
) -> Vec<(tokio::task::JoinHandle<Result<String, Failure>>, mpsc::Receiver<CallEvent>, Value)> {
    let mut all = Vec::new();
    for _ in 0..n {
        let ((events, heard), other) = (Peer::events(), peer.clone());
        let call = Call { events, headers: Vec::new() };
        let call = tokio::spawn(async move {
            other.request("tools/call", json!({}), Some(call)).await.map(|raw| raw.get().to_owned())
        });
        all.push((call, heard, asked(queue).await["id"].clone()));
    }
    all
}

#[tokio::test]
async fn an_answer_that_is_no_perfect_message_ends_its_call_at_once_with_its_reason() {
    let refused = |code: i64, message: &str| Err(Failure::Refused { code, message: message.to_owned() });
    let unreadable = |text: &str| Err(Failure::Unreadable(text.to_owned()));
    for (line, expect) in [
        (r#"{"id":ID,"error":"no paper"}"#, refused(0, "no paper")),
        (r#"{"id":ID,"error":["no","paper"]}"#, refused(0, r#"["no","paper"]"#)),
        (r#"{"id":"ID","error":{"code":"E_PAPER","message":"no paper"}}"#, refused(0, "E_PAPER: no paper")),
        (r#"{"id":ID.0,"error":{"code":-32602,"message":"no","data":["paper"]}}"#, refused(-32602, "no: [\"paper\"]")),
        (r#"{"id":null,"error":{"code":-32603,"message":"no paper"}}"#, refused(-32603, "no paper")),
        (r#"{"error":{"message":"no paper"}}"#, refused(0, "no paper")),
        (r#"{"id":ID,"result":{"n":-Infinity}}"#, Ok(r#"{"n":null}"#.to_owned())),
        (r#"[{"id":ID,"result":[]}]"#, Ok("[]".to_owned())),
        ("\u{feff}{\"id\":ID,\"result\":null}", Ok("null".to_owned())),
        (r#"{"id":ID,"result":{"text":"cut"#, unreadable(r#"{"id":ID,"result":{"text":"cut"#)),
        (r#"{"id":ID,"status":"no paper"}"#, unreadable(r#"{"id":ID,"status":"no paper"}"#)),
    ] {
        let (peer, mut queue) = Peer::new(json!([]));
        let (call, _heard, id) = calls(&peer, &mut queue, 1).await.remove(0);
        let (line, id) = (line.to_owned(), id.to_string());
        assert!(peer.receive(&line.replace("ID", &id), Channel::Shared).is_empty(), "{line}");
        let expect = expect.map_err(|failure| match failure {
            Failure::Unreadable(text) => Failure::Unreadable(text.replace("ID", &id)),
            other => other,
        });
        assert_eq!(call.await.unwrap(), expect, "{line}");
    }
}

#[tokio::test]
async fn what_may_belong_to_several_calls_or_to_none_ends_no_call() {
    let (peer, mut queue) = Peer::new(json!([]));
    let open = calls(&peer, &mut queue, 2).await;
    for line in [r#"{"id":null,"error":"no paper"}"#, r#"{"level":"info","message":"up"}"#, "{\"id\": 99, x", "up"] {
        assert!(matches!(&peer.receive(line, Channel::Shared)[..], [Said::Garbage(_)]), "{line}");
    }
    // The reply to a post is that of its request, whatever its id.
    peer.receive(r#"{"id":"server-error","error":"no paper"}"#, Channel::ReplyTo(2));
    peer.receive("<html>", Channel::ReplyTo(1));
    let mut failures = Vec::new();
    for (call, ..) in open {
        failures.push(call.await.unwrap().unwrap_err().to_string());
    }
    assert_eq!(failures, ["its answer cannot be read: <html>", "no paper"]);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_may_be_of_several_calls_is_asked_where_it_came_from_or_waits() {
    let elicit =
        |id: &str| json!({ "id": id, "method": "elicitation/create", "params": { "message": id } }).to_string();
    let message = |event: Option<CallEvent>| match event {
        Some(CallEvent::Asked(ServerRequest { params, is_certain, .. })) => (params["message"].clone(), is_certain),
        other => panic!("{other:?}"),
    };
    let (peer, mut queue) = Peer::new(json!([]));
    let mut open = calls(&peer, &mut queue, 2).await;
    // By its stream.
    peer.receive(&elicit("streamed"), Channel::StreamOf(2));
    assert_eq!(message(open[1].1.recv().await), (json!("streamed"), true));
    // Held until the other call is over.
    peer.receive(&elicit("held"), Channel::Shared);
    assert!(open.iter_mut().all(|(_, heard, _)| heard.try_recv().is_err()));
    peer.receive(&json!({ "id": open[0].2, "result": {} }).to_string(), Channel::Shared);
    assert_eq!(message(open[1].1.recv().await), (json!("held"), true));
    // When each call has asked, none would ever be over.
    let mut more = calls(&peer, &mut queue, 1).await;
    peer.receive(&elicit("one"), Channel::Shared);
    peer.receive(&elicit("two"), Channel::Shared);
    assert_eq!(message(open[1].1.recv().await), (json!("one"), false));
    assert_eq!(message(more[0].1.recv().await), (json!("two"), false));
    // And one alone does not wait for ever; a server may take it back.
    peer.receive(&elicit("late"), Channel::Shared);
    assert_eq!(message(open[1].1.recv().await), (json!("late"), false));
    peer.receive(&elicit("back"), Channel::Shared);
    peer.receive(r#"{"method":"notifications/cancelled","params":{"requestId":"back"}}"#, Channel::Shared);
    assert!(peer.state().held.is_empty());
}

/// Polls once.
fn futures_poll<T>(future: &mut std::pin::Pin<Box<impl Future<Output = T>>>) -> std::task::Poll<T> {
    future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
}
