//! The tool `fetch`: what it reaches, what it asks, and what a model reads. A page as text is in `it`, because a process lays it out.

use linger_tests::harness::Setup;
use linger_tests::model::{ModelServer, Reply};
use linger_tests::network::Pages;
use serde_json::{Value, json};

use crate::Daemon;

fn pages() -> Pages {
    Pages::start(|path| {
        let (status, head, body): (_, _, &[u8]) = match path {
            "/text" => ("200 OK", "Content-Type: text/plain", b"plain words"),
            "/there" => ("302 Found", "Location: /text", b""),
            "/elsewhere" => ("301 Moved Permanently", "Location: http://other.example/x", b""),
            "/circle" => ("307 Temporary Redirect", "Location: /circle", b""),
            "/file" => ("302 Found", "Location: file:///etc/passwd", b""),
            "/binary" => ("200 OK", "Content-Type: application/zip", b"PK\0\0"),
            "/page" => ("200 OK", "Content-Type: text/html", b"<p>words"),
            "/large" => ("200 OK", "Content-Type: text/plain", &[b'x'; 6 << 20]),
            _ => ("404 Not Found", "Content-Type: text/plain", b"not here"),
        };
        let head =
            format!("HTTP/1.1 {status}\r\n{head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    })
}

/// What the model reads of each address, in a daemon with this configuration, and whether it is an error.
async fn fetched(config: &str, urls: Vec<String>) -> Vec<(String, bool)> {
    let mut replies: Vec<Reply> = urls.iter().map(|url| Reply::tool("fetch", json!({ "url": url }))).collect();
    replies.push(Reply::text("done"));
    let model = ModelServer::with(replies);
    let daemon = Daemon::start_with(&model, Setup { config: config.to_owned(), ..Setup::default() }).await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "mode": "auto" })).await;
    client.attach(&session).await;
    client.turn(&session, "go").await;
    let mut read = Vec::new();
    for n in 1..=urls.len() {
        let finished = client.nth(&session, "tool_finished", n).await.event;
        let texts: Vec<&str> =
            finished["content"].as_array().unwrap().iter().filter_map(|block| block["text"].as_str()).collect();
        read.push((texts.concat(), finished["is_error"] == true));
    }
    daemon.check(&[&client], &model);
    read
}

#[tokio::test]
async fn what_an_address_has_is_text_or_is_named() {
    let pages = pages();
    let url = |path: &str| pages.url(path);
    let paths = ["/text", "/there", "/elsewhere", "/circle", "/file", "/binary", "/page", "/large", "/gone"];
    let read = fetched("[tools]\nfetch_private = [\"127.0.0.1\"]\n", paths.map(url).to_vec()).await;
    let expect = [
        (format!("[{}]\n\nplain words", url("/text")), false),
        (format!("[{}]\n\nplain words", url("/text")), false),
        (
            format!("{} redirects to another host: fetch http://other.example/x if that is wanted", url("/elsewhere")),
            true,
        ),
        (format!("{} redirects more than 5 times", url("/circle")), true),
        (
            format!(
                "{} redirects to an address that begins with `file:`; only http and https can be fetched",
                url("/file")
            ),
            true,
        ),
        (format!("[{}]\n[4 bytes of application/zip, which is no text]", url("/binary")), true),
    ];
    assert_eq!(read[..expect.len()], expect);
    let [page, large, gone] = &read[expect.len()..] else { panic!("{read:?}") };
    assert!(page.0.contains("this is the source of the page") && page.0.ends_with("<p>words"), "{page:?}");
    assert!(large.0.starts_with(&format!("[{}, cut at 5 MiB]", url("/large"))), "{}", &large.0[..80]);
    assert!(large.0.len() < 30_000 && large.0.contains("the whole output is in"));
    assert_eq!(*gone, (format!("[{} 404 Not Found]\n\nnot here", url("/gone")), true));
}

#[tokio::test]
async fn a_private_address_is_reached_by_configuration_alone() {
    let pages = pages();
    let port = pages.url("").rsplit(':').next().unwrap().to_owned();
    let urls = ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"].map(|host| format!("http://{host}:{port}/text"));
    for (read, is_error) in fetched("", urls.to_vec()).await {
        assert!(is_error && read.contains("is not a public address; only a user can allow it"), "{read}");
    }
    let by_name = fetched("[tools]\nfetch_private = [\"localhost\"]\n", urls.to_vec()).await;
    assert_eq!(by_name.iter().map(|(_, is_error)| *is_error).collect::<Vec<_>>(), [true, false, true]);
}

#[tokio::test]
async fn a_host_is_asked_for_in_every_mode_but_auto_and_allowed_by_its_rule() {
    let pages = pages();
    let model = ModelServer::scripted(move |request| {
        if request.messages().contains("tool_call_id") {
            Reply::text("done")
        } else {
            Reply::tool("fetch", json!({ "url": pages.url("/text") }))
        }
    });
    let config = "[tools]\nfetch_private = [\"127.0.0.1\"]\n".to_owned();
    let daemon = Daemon::start_with(&model, Setup { config, ..Setup::default() }).await;
    let client = daemon.client().await;
    for mode in ["ask", "edit", "plan"] {
        let session = client.create_with(json!({ "mode": mode })).await;
        client.attach(&session).await;
        client.prompt(&session, "go").await;
        let asked = client.first(&session, "permission_requested").await.event;
        assert_eq!(asked["grant"], "fetch(127.0.0.1)");
        let answer = json!({ "permission": asked["permission"], "decision": "allow_once" });
        client.call("permission/answer", answer).await;
        let finished = client.first(&session, "tool_finished").await.event;
        assert_eq!(finished["outcome"], "ran", "{mode}: {finished}");
        client.first(&session, "turn_finished").await;
    }
    let explained = client.call("tool/list", json!({ "cwd": client.workspace() })).await;
    let row = explained.as_array().unwrap().iter().find(|row: &&Value| row["name"] == "fetch").unwrap().clone();
    assert_eq!(json!([row["effect"], row["verdict"]["verdict"]]), json!(["network", "ask"]));
    daemon.check(&[&client], &model);
}
