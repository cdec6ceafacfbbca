//! The tool `fetch` lays a page out, in a helper process.

use linger_tests::harness::{Daemon, Setup};
use linger_tests::model::{ModelServer, Reply};
use linger_tests::network::Pages;
use serde_json::json;

const PAGE: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nConnection: close\r\n\r\n\
                    <html><head><style>p{}</style></head><body><h1>Head</h1><script>x()</script><p>One <a href='/x'>link</a></p>";

#[tokio::test]
async fn a_page_is_fetched_as_text_with_its_links_or_as_its_source() {
    let pages = Pages::start(|_| PAGE.as_bytes().to_vec());
    let fetch = |raw: bool| Reply::tool("fetch", json!({ "url": pages.url("/"), "raw": raw }));
    let model = ModelServer::with([fetch(false), fetch(true), Reply::text("done")]);
    let config = "[tools]\nfetch_private = [\"127.0.0.0/8\"]\n";
    let daemon = Daemon::start_with(&model, Setup { config: config.to_owned(), ..Setup::default() }).await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "mode": "auto" })).await;
    client.attach(&session).await;
    client.turn(&session, "go").await;
    let mut texts = Vec::new();
    for n in [1, 2] {
        let finished = client.nth(&session, "tool_finished", n).await.event;
        texts.push(finished["content"][0]["text"].as_str().unwrap().to_owned());
    }
    assert_eq!(texts[0], format!("[{}]\n\n# Head\n\nOne [link][1]\n\n[1]: /x\n", pages.url("/")));
    assert!(texts[1].ends_with(PAGE.split("\r\n\r\n").nth(1).unwrap()), "{}", texts[1]);
    daemon.check(&[&client], &model);
}
