//! The gateway with real HTTP: who is let in, events, OpenAI's interface, and clients that misbehave.

mod http;
mod openai;
mod proof;
mod requests;
mod strangers;

use std::time::Duration;

use linger_tests::TIMEOUT;
use linger_tests::harness::{Daemon, Running, Setup, until};
use linger_tests::model::{ModelServer, Reply};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use http::{Http, get, post, upload};

/// A gateway beside a daemon.
struct Gateway {
    http: Http,
    process: Running,
}

impl Gateway {
    async fn start(daemon: &Daemon) -> Self {
        // The client starts the daemon otherwise; here it runs, and the gateway is a child of the test's.
        let process = daemon.cli(&["gateway", "start", "--foreground"]).spawn().await;
        let address = until("the gateway listens", async || {
            let status = daemon.cli(&["gateway", "status", "--json"]).run().await;
            status.json().first()?["listen"].as_str().map(str::to_owned)
        });
        Self { http: Http::new(address.await.parse().unwrap()), process }
    }
}

impl Gateway {
    fn host_port(&self) -> (String, String) {
        let host = self.http.host();
        let (host, port) = host.rsplit_once(':').unwrap();
        (host.to_owned(), port.to_owned())
    }
}

/// A token with these rights.
async fn token(daemon: &Daemon, can: &[&str]) -> String {
    let params = json!({ "name": "test", "can": can, "directory": daemon.workspace(), "mode": "auto" });
    daemon.client().await.call("token/mint", params).await["token"].as_str().unwrap().to_owned()
}

const EVERYTHING: [&str; 6] = ["observe", "speak", "steer", "answer_edits", "answer_commands", "administer"];

#[tokio::test]
async fn every_route_refuses_strangers_before_it_reads_anything() {
    let model = ModelServer::start();
    let config = "[gateway]\norigins = ['http://localhost:3000']".to_owned();
    let daemon = Daemon::start_with(&model, Setup { config, ..Setup::default() }).await;
    let gateway = Gateway::start(&daemon).await;
    let good = token(&daemon, &EVERYTHING).await;
    let bad = format!("lng_{}", "x".repeat(43));
    let routes = [
        "/me",
        "/rpc",
        "/logout",
        "/events",
        "/blob/x",
        "/artifact/",
        "/artifact/x",
        "/artifact/x/meta",
        "/v1/models",
        "/v1/models/x/y",
        "/v1/tools",
        "/v1/chat/completions",
        "/v1/responses",
        "/nowhere",
        "/v1/nowhere",
    ];
    let own = gateway.http.host();
    let port = own.rsplit(':').next().unwrap().to_owned();
    for route in routes {
        for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
            let status = async |headers: &[(&str, &str)]| {
                // The body never comes: whoever waits for it does not answer.
                let request = get(route).method(method).header("content-length", "1000");
                let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
                gateway.http.send(request).await.status
            };
            let bearer = format!("Bearer {good}");
            let cookie = format!("linger={good}");
            assert_eq!(status(&[]).await, 401, "{method} {route}");
            assert_eq!(status(&[("authorization", &format!("Bearer {bad}"))]).await, 401, "{method} {route}");
            assert_eq!(status(&[("cookie", &format!("linger={bad}"))]).await, 401, "{method} {route}");
            for host in ["evil.example", "127.0.0.1", "", &format!("evil.example:{port}")] {
                assert_eq!(status(&[("host", host), ("authorization", &bearer)]).await, 403, "{method} {route} {host}");
            }
            for origin in ["https://evil.example", "null", &format!("http://localhost:{port}")] {
                assert_eq!(
                    status(&[("origin", origin), ("authorization", &bearer)]).await,
                    403,
                    "{method} {route} {origin}"
                );
            }
            for site in ["same-site", "cross-site"] {
                assert_eq!(
                    status(&[("sec-fetch-site", site), ("cookie", &cookie)]).await,
                    403,
                    "{method} {route} {site}"
                );
            }
            if method != "OPTIONS" {
                let other = [("origin", "http://localhost:3000"), ("cookie", cookie.as_str())];
                assert_eq!(status(&other).await, 403, "{method} {route}: the cookie is for no other page");
            }
        }
    }
    // What is right is let in, and a wrong method is said.
    let allowed = get("/me").token(&good).header("origin", "http://localhost:3000");
    let allowed = gateway.http.send(allowed).await;
    assert_eq!((allowed.status, allowed.header("access-control-allow-origin")), (200, Some("http://localhost:3000")));
    let own_page = gateway.http.send(get("/me").token(&good).header("origin", &format!("http://{own}"))).await;
    assert_eq!((own_page.status, own_page.header("access-control-allow-origin")), (200, None));
    let preflight = get("/rpc").method("OPTIONS").header("origin", "http://localhost:3000");
    assert_eq!(gateway.http.send(preflight).await.status, 204);
    assert_eq!(gateway.http.send(get("/rpc").token(&good)).await.status, 405);
    assert_eq!(gateway.http.send(get("/nowhere").token(&good)).await.status, 404);
    // The page needs none.
    let page = gateway.http.send(get("/")).await;
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'none'; script-src 'self'"));
    assert_eq!(gateway.http.send(get("/page/nothing.js")).await.status, 404);
    // The log has no secret.
    let log = std::fs::read_to_string(daemon.dirs.state().join("gateway.log")).unwrap();
    assert!(log.contains("GET /me 200") && !log.contains("lng_"), "{log}");
}

#[tokio::test]
async fn a_code_becomes_a_cookie_once_and_a_revoked_token_is_of_no_more_use() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let gateway = Gateway::start(&daemon).await;
    let url =
        daemon.cli(&["gateway", "url", "--json"]).run().await.exits(0).json()[0]["url"].as_str().unwrap().to_owned();
    let (page, code) = url.split_once("/#code=").unwrap();
    assert_eq!(page, format!("http://{}", gateway.http.host()));
    let login = gateway.http.send(post("/login", json!({ "code": code }))).await;
    assert_eq!(login.json()["grant"]["name"], "page", "{login:?}");
    let cookie = login.header("set-cookie").unwrap().to_owned();
    assert!(cookie.contains("; HttpOnly; SameSite=Strict; Path=/") && !cookie.contains("Secure"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    let me = || get("/me").header("cookie", cookie);
    assert_eq!(gateway.http.send(me()).await.json()["grant"]["name"], "page");
    assert_eq!(gateway.http.send(post("/login", json!({ "code": code }))).await.status, 401, "a code is good once");
    let ids = daemon.client().await.call("token/list", json!({})).await;
    let id = ids.as_array().unwrap().iter().find(|row| row["grant"]["name"] == "page").unwrap()["id"].clone();
    let mut events = gateway.http.stream(get("/events").header("cookie", cookie)).await;
    events.until("caught_up").await;
    daemon.client().await.call("token/revoke", json!({ "id": id })).await;
    events.end().await;
    assert_eq!(gateway.http.send(me()).await.status, 401);
}

#[tokio::test]
async fn methods_and_events_come_through_and_a_reader_reads_on_where_it_was() {
    let model = ModelServer::with([Reply::text("one"), Reply::text("two")]);
    let daemon = Daemon::start(&model).await;
    let gateway = Gateway::start(&daemon).await;
    let token = token(&daemon, &["observe", "speak"]).await;
    let rpc = async |method: &str, params: Value| {
        let request = json!({ "jsonrpc": "2.0", "id": "x", "method": method, "params": params });
        let answer = gateway.http.send(post("/rpc", request).token(&token)).await;
        (answer.status, answer.json())
    };
    let (_, created) = rpc("session/create", json!({ "cwd": daemon.workspace() })).await;
    let session = created["result"]["session"].as_str().unwrap().to_owned();
    assert_eq!(created["id"], "x");
    rpc("session/prompt", json!({ "session": session, "content": "go" })).await;
    let path = format!("/events?session={session}");
    let mut reader = gateway.http.stream(get(&path).token(&token)).await;
    let (cursor, _) = reader.until("\"turn_finished\"").await;
    drop(reader);
    rpc("session/prompt", json!({ "session": session, "content": "more" })).await;
    let mut reader = gateway.http.stream(get(&path).token(&token).header("last-event-id", &cursor)).await;
    let (_, data) = reader.next().await;
    assert_eq!(data["event"]["kind"], "prompt_accepted", "nothing comes twice: {data}");
    reader.until("\"turn_finished\"").await;
    // Of some kinds only, and from a cursor that is none.
    let mut some = gateway.http.stream(get(&format!("{path}&kinds=turn_finished&deltas=0")).token(&token)).await;
    assert_eq!(some.next().await.1["event"]["kind"], "turn_finished");
    let refused = gateway.http.send(get(&format!("{path}&after=nonsense")).token(&token)).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (409, &json!("unknown_cursor")));
    // Refusals keep their words, and what is about one connection is refused here.
    let (status, refused) = rpc("session/prompt", json!({ "session": "nope", "content": "x" })).await;
    assert_eq!((status, refused["error"]["code"].is_i64()), (200, true));
    assert_eq!(rpc("session/attach", json!({ "session": session })).await.0, 400);
    assert_eq!(rpc("token/mint", json!({ "name": "more" })).await.1["error"]["code"], -31006);
}

#[tokio::test]
async fn a_tool_with_a_stolen_token_may_not_answer_and_its_user_may() {
    // The tool answers the question of another session, with a token that may.
    let model = ModelServer::scripted(|request| match (request.after_tool(), request.last_words().contains("ask")) {
        (true, _) => Reply::text("done"),
        (false, true) => Reply::tool("bash", json!({ "command": "touch asked" })),
        (false, false) => Reply::tool("bash", json!({ "command": "sh ./steal.sh" })),
    });
    let daemon = Daemon::start(&model).await;
    let gateway = Gateway::start(&daemon).await;
    let token = token(&daemon, &EVERYTHING).await;
    let client = daemon.client().await;
    let asking = client.create_with(json!({ "mode": "ask" })).await;
    client.attach(&asking).await;
    client.prompt(&asking, "ask").await;
    let question = client.first(&asking, "permission_requested").await.event["permission"].clone();
    let answer = json!({ "jsonrpc": "2.0", "id": 1, "method": "permission/answer", "params": { "permission": question, "decision": "allow_once" } });
    let url = format!("http://{}", gateway.http.host());
    let curl = |how: &str| format!("curl -s -X POST -d '{answer}' -H '{how}' {url}/rpc\n");
    let script =
        [format!("Authorization: Bearer {token}"), format!("Cookie: linger={token}")].map(|how| curl(&how)).concat();
    std::fs::write(daemon.workspace().join("steal.sh"), script).unwrap();
    let thief = client.create_with(json!({ "mode": "auto" })).await;
    client.attach(&thief).await;
    client.turn(&thief, "go").await;
    let said = client.first(&thief, "tool_finished").await.event["content"][0]["text"].as_str().unwrap().to_owned();
    assert_eq!(said.matches("a process started by the daemon may not").count(), 2, "{said}");
    assert!(!daemon.workspace().join("asked").exists());
    // The same from here, where no tool is.
    let answered = gateway.http.send(post("/rpc", answer).token(&token)).await;
    assert!(answered.json()["result"].is_object(), "{answered:?}");
    client.first(&asking, "turn_finished").await;
    assert!(daemon.workspace().join("asked").exists());
}

#[tokio::test]
async fn slow_clients_and_half_requests_are_hung_up_and_a_thousand_connections_are_too_many() {
    let model = ModelServer::start();
    let config = "[gateway]\nmax_connections = 1000".to_owned();
    let daemon = Daemon::start_with(&model, Setup { config, ..Setup::default() }).await;
    let gateway = Gateway::start(&daemon).await;
    let token = token(&daemon, &["observe"]).await;
    let mut half = gateway.http.connect().await;
    let mut slow = gateway.http.connect().await;
    http::write(&mut half, "POST /rpc HTTP/1.1\r\nhost: ").await;
    let head = post("/rpc", json!({})).token(&token).header("content-length", "100").head(&gateway.http.host());
    http::write(&mut slow, &head).await;
    let mut open = Vec::new();
    for _ in 0..998 {
        open.push(gateway.http.connect().await);
    }
    let full = gateway.http.send(get("/me").token(&token)).await;
    assert_eq!((full.status, &full.json()["error"]["code"]), (503, &json!("too_much")));
    drop(open);
    until("there is room again", async || {
        (gateway.http.send(get("/me").token(&token)).await.status == 200).then_some(())
    })
    .await;
    // Both are told within their time-outs.
    let read = async |socket: &mut tokio::net::TcpStream| {
        let mut text = String::new();
        timeout(TIMEOUT + Duration::from_secs(20), socket.read_to_string(&mut text)).await.unwrap().unwrap();
        text
    };
    assert!(read(&mut slow).await.starts_with("HTTP/1.1 408"));
    let half = read(&mut half).await;
    assert!(half.is_empty() || half.starts_with("HTTP/1.1 408"), "{half}");
    // What is too large is refused by its length alone.
    let large = post("/rpc", json!({})).token(&token).header("content-length", "2000000");
    assert_eq!(gateway.http.send(large).await.status, 413);
}

#[tokio::test]
async fn an_artifact_goes_in_and_comes_out_by_range_and_nothing_of_it_runs_in_a_browser() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let gateway = Gateway::start(&daemon).await;
    let (speaks, observes) = (token(&daemon, &["observe", "speak"]).await, token(&daemon, &["observe"]).await);
    // More than one piece.
    let page = "<script>alert(1)</script>\n".repeat(100_000);
    let put = upload("/artifact/", page.clone())
        .header("content-type", "text/html")
        .header("x-original-filename", "a%20%C3%A4.html");
    assert_eq!(gateway.http.send(put.clone().token(&observes)).await.status, 403);
    let made = gateway.http.send(put.token(&speaks)).await;
    let row = made.json();
    assert_eq!(
        (made.status, row["name"].as_str(), row["size"].as_u64()),
        (201, Some("a ä.html"), Some(page.len() as u64))
    );
    let path = format!("/artifact/{}", row["id"].as_str().unwrap());
    let whole = gateway.http.send(get(&path).token(&observes)).await;
    assert!(whole.status == 200 && whole.body == page.as_bytes(), "{} {} bytes", whole.status, whole.body.len());
    let header = |name: &str| whole.header(name).map(str::to_owned);
    assert_eq!(header("content-disposition").as_deref(), Some("attachment; filename*=UTF-8''a%20%C3%A4%2Ehtml"));
    assert_eq!(header("content-security-policy").as_deref(), Some("default-src 'none'; sandbox"));
    assert_eq!(header("x-content-type-options").as_deref(), Some("nosniff"));
    let part = gateway.http.send(get(&path).token(&observes).header("range", "bytes=1048570-1048579")).await;
    assert_eq!((part.status, part.body.as_slice()), (206, &page.as_bytes()[1_048_570..1_048_580]));
    assert_eq!(part.header("content-range").map(str::to_owned), Some(format!("bytes 1048570-1048579/{}", page.len())));
    let beyond = gateway.http.send(get(&path).token(&observes).header("range", "bytes=99999999-")).await;
    assert_eq!(beyond.status, 416);
    let head = gateway.http.send(get(&path).method("HEAD").token(&observes)).await;
    let length = head.header("content-length").map(str::to_owned);
    assert_eq!((head.status, length, head.body.len()), (200, Some(page.len().to_string()), 0));
    let text = upload("/artifact/", "plain".to_owned()).header("content-type", "text/plain").token(&speaks);
    let text = gateway.http.send(text).await.json();
    let shown = gateway.http.send(get(&format!("/artifact/{}", text["id"].as_str().unwrap())).token(&speaks)).await;
    assert!(shown.header("content-disposition").unwrap().starts_with("inline"), "{shown:?}");
    assert_eq!(gateway.http.send(get("/artifact/").token(&observes)).await.json().as_array().unwrap().len(), 2);
    assert_eq!(gateway.http.send(get(&format!("{path}/meta")).token(&observes)).await.json(), row);
    assert_eq!(gateway.http.send(get(&path).method("DELETE").token(&observes)).await.status, 403);
    assert_eq!(gateway.http.send(get(&path).method("DELETE").token(&speaks)).await.status, 204);
    assert_eq!(gateway.http.send(get(&path).token(&speaks)).await.status, 404);
    let much = get("/artifact/").method("POST").header("content-length", "99999999").token(&speaks);
    assert_eq!(gateway.http.send(much).await.status, 413);
}
