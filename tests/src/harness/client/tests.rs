//! The raw client against a daemon that was made up.

use tokio::net::UnixListener;

use super::*;

/// Answers hello, then writes `lines` after the first attach, then hangs up.
async fn daemon(dirs: &Dirs, lines: &'static [&'static str]) {
    let listener = UnixListener::bind(dirs.socket()).unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let (read, mut write) = stream.into_split();
        let mut requests = BufReader::new(read).lines();
        let mut answered = 0;
        while let Some(request) = requests.next_line().await.unwrap() {
            let request: Value = serde_json::from_str(&request).unwrap();
            let result = if request["method"] == "no/such" {
                json!({ "jsonrpc": "2.0", "id": request["id"], "error": { "code": -32601, "message": "no" } })
            } else {
                json!({ "jsonrpc": "2.0", "id": request["id"], "result": { "cursor": "2", "prompt": "p1", "seq": 2 } })
            };
            write.write_all(format!("{result}\n").as_bytes()).await.unwrap();
            answered += 1;
            if request["method"] == "session/attach" {
                for line in lines {
                    write.write_all(format!("{line}\n").as_bytes()).await.unwrap();
                }
            }
            if answered == 4 {
                return;
            }
        }
    });
}

#[tokio::test]
async fn what_comes_is_kept_byte_for_byte_and_answers_find_their_request() {
    let dirs = Dirs::default();
    let lines = &[
        r#"{"jsonrpc":"2.0","method":"session/event","params":{"session":"s1","cursor":"1","event":{"kind":"x", "seq":1 ,"at":1e2}}}"#,
        r#"{"jsonrpc":"2.0","method":"session/event","params":{"session":"s1","cursor":"1+m.0.2","event":{"kind":"text_delta","message":"m","block":0,"offset":0,"text":"hi"}}}"#,
    ];
    daemon(&dirs, lines).await;
    let client = Client::connect(&dirs, "test").await.unwrap();
    assert_eq!(client.refused("no/such", json!({})).await.code, -32601);
    client.call("session/prompt", json!({ "session": "s1", "content": "go", "key": "k" })).await;
    client.attach("s1").await;
    client.sees_text("s1", "hi").await;
    client.closed().await;
    let seen = client.transcript();
    assert_eq!(seen.events().next().unwrap().raw, r#"{"kind":"x", "seq":1 ,"at":1e2}"#);
    assert_eq!(seen.cursor("s1"), Some("1+m.0.2"));
    assert!(matches!(&seen.0[0], Entry::Accepted { prompt, seq: 2, key: Some(_), .. } if prompt == "p1"), "{seen:?}");
    assert!(matches!(&seen.0[1], Entry::Attached { after: None, .. }), "{seen:?}");
    assert_eq!(client.request("daemon/status", json!({})).await, None);
}

#[tokio::test]
#[should_panic(expected = "the daemon hung up")]
async fn waiting_for_what_can_no_longer_come_fails_at_once() {
    let dirs = Dirs::default();
    daemon(&dirs, &[]).await;
    let client = Client::connect(&dirs, "test").await.unwrap();
    client.attach("s1").await;
    client.attach("s1").await;
    client.attach("s1").await;
    client.first("s1", "turn_finished").await;
}
