//! The way out: TLS with whose certificates, proxies with whose word, redirects that are not followed, and a key that goes to its
//! own host and to nobody between.

use linger_tests::harness::{Client, Daemon, Setup};
use linger_tests::model::{ModelServer, Reply};
use linger_tests::network::{Authority, Front, Manners, Proxy};
use serde_json::json;

/// A key that must be nowhere but in a header to the model.
const KEY: &str = "canary-of-net-0123456789";

/// A daemon with the provider `net` at `base_url`.
async fn start(model: &ModelServer, base_url: &str, network: &str, env: &[(&str, &str)]) -> Daemon {
    Daemon::start_with(model, setup(base_url, network, env)).await
}

fn setup(base_url: &str, network: &str, env: &[(&str, &str)]) -> Setup {
    let config = format!(
        "[providers.net]\nkind = \"openai\"\nbase_url = \"{base_url}\"\napi_key_env = \"NET_KEY\"\n[network]\n{network}\n"
    );
    let env = [&[("NET_KEY", KEY)], env].concat();
    let env = env.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Setup { model: Some("net/m".to_owned()), config, env, ..Setup::default() }
}

/// How a turn ends: its reason, or what it says.
async fn turn(client: &Client) -> String {
    let session = client.session().await;
    let finished = client.turn(&session, "hi").await;
    match finished.str("stop_reason") {
        "end_turn" => "end_turn".to_owned(),
        _ => finished.str("detail").to_owned(),
    }
}

/// Nothing that must always hold was broken, and no secret is anywhere but in its header.
fn check(daemon: &Daemon, client: &Client, model: &ModelServer, secrets: &[&str]) {
    let mut trace = daemon.trace(&[client], model);
    trace.canaries.extend([&[KEY], secrets].concat().into_iter().map(str::to_owned));
    linger_tests::check::assert_holds(&trace);
    model.verify();
}

fn answering() -> ModelServer {
    let model = ModelServer::scripted(|_| Reply::text("hi"));
    // Daemons in other directories ask it too.
    model.expect_rewrites();
    model
}

fn keys_seen(model: &ModelServer) -> Vec<Option<String>> {
    model.requests().iter().map(|request| request.header("authorization").map(str::to_owned)).collect()
}

#[tokio::test]
async fn a_certificate_of_ones_own_is_refused_until_its_authority_is_named() {
    let (model, authority) = (answering(), Authority::default());
    let front = Front::tls(&authority, &["localhost", "127.0.0.1"], model.address());
    let url = format!("https://{}/v1", front.address);
    let daemon = start(&model, &url, "", &[]).await;
    let client = daemon.client().await;
    let said = turn(&client).await;
    let expect =
        format!("net: the certificate of {} is not trusted: no authority that this machine trusts", front.address);
    assert!(said.starts_with(&expect) && said.contains("ca_file in [network], or SSL_CERT_FILE"), "{said}");
    let transcript = client.transcript();
    assert!(transcript.of("notice").next().is_none(), "it is not tried again");
    assert!(model.requests().is_empty());

    // The file is named while the daemon runs: the same session works.
    let file = authority.file(daemon.dirs.root());
    let config = std::fs::read_to_string(daemon.dirs.config()).unwrap();
    let named = config.replace("[network]\n", &format!("[network]\nca_file = \"{}\"\n", file.display()));
    std::fs::write(daemon.dirs.config(), named).unwrap();
    client.confirm().await;
    linger_tests::harness::until("the authority is trusted", async || {
        (turn(&client).await == "end_turn").then_some(())
    })
    .await;
    assert_eq!(keys_seen(&model), [Some(format!("Bearer {KEY}"))]);
    check(&daemon, &client, &model, &[]);
}

#[tokio::test]
async fn the_environments_certificates_are_trusted_too() {
    let (model, authority) = (answering(), Authority::default());
    let front = Front::tls(&authority, &["localhost"], model.address());
    let url = format!("https://localhost:{}/v1/", front.address.port());
    let dir = tempfile::tempdir().unwrap();
    let file = authority.file(dir.path()).display().to_string();
    for env in [("SSL_CERT_FILE", file.as_str()), ("SSL_CERT_DIR", dir.path().to_str().unwrap())] {
        let daemon = start(&model, &url, "", &[env]).await;
        let client = daemon.client().await;
        assert_eq!(turn(&client).await, "end_turn", "{env:?}");
        check(&daemon, &client, &model, &[]);
    }
    assert_eq!(model.requests().len(), 2);
}

#[tokio::test]
async fn what_is_wrong_with_a_certificate_is_said_in_words() {
    let (model, authority) = (answering(), Authority::default());
    let dir = tempfile::tempdir().unwrap();
    let file = authority.file(dir.path()).display().to_string();
    let trusted = format!("ca_file = \"{file}\"");
    let other = Front::tls(&authority, &["other.test"], model.address());
    let expired = Front::expired(&authority, &["localhost"], model.address());
    let plain = Front::saying(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
    let (own, pem) = Front::own(&["localhost"], model.address());
    let pinned = dir.path().join("own.pem");
    std::fs::write(&pinned, pem).unwrap();
    let pinned = format!("ca_file = \"{}\"", pinned.display());
    for (port, network, expect) in [
        (
            own.address.port(),
            pinned.as_str(),
            "is not trusted: it is made as an authority's (CA:TRUE), also where ca_file",
        ),
        (other.address.port(), trusted.as_str(), "is not trusted: it is for other.test; see whether base_url"),
        (expired.address.port(), &trusted, "is not trusted: it has expired, or this machine's clock is wrong"),
        (plain.address.port(), &trusted, "does not speak TLS at this port: should base_url begin with http://?"),
        (
            plain.address.port(),
            "ca_file = \"/nowhere/ca.pem\"",
            "network.ca_file: /nowhere/ca.pem: No such file or directory",
        ),
    ] {
        let daemon = start(&model, &format!("https://localhost:{port}"), network, &[]).await;
        let client = daemon.client().await;
        let said = turn(&client).await;
        assert!(said.contains(expect), "{said}");
        check(&daemon, &client, &model, &[]);
    }
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn http_to_a_port_with_tls_is_said() {
    let (model, authority) = (answering(), Authority::default());
    let front = Front::tls(&authority, &["localhost"], model.address());
    let setup = setup(&format!("http://localhost:{}/v1", front.address.port()), "", &[]);
    let config = setup.config.replace("[network]", "patience = 0\n[network]");
    let daemon = Daemon::start_with(&model, Setup { config, ..setup }).await;
    let client = daemon.client().await;
    let said = turn(&client).await;
    assert!(said.contains("should base_url begin with https://?"), "{said}");
    check(&daemon, &client, &model, &[]);
}

#[tokio::test]
async fn a_proxy_of_the_environment_is_gone_through_and_does_not_see_the_key() {
    let (model, authority) = (answering(), Authority::default());
    let front = Front::tls(&authority, &["model.test"], model.address());
    let proxy = Proxy::to(front.address);
    let dir = tempfile::tempdir().unwrap();
    let file = authority.file(dir.path()).display().to_string();
    let env = [("HTTPS_PROXY", proxy.url()), ("SSL_CERT_FILE", file)];
    let env = [(env[0].0, env[0].1.as_str()), (env[1].0, env[1].1.as_str())];
    let daemon = start(&model, "https://model.test/v1", "", &env).await;
    let client = daemon.client().await;
    assert_eq!(turn(&client).await, "end_turn");
    assert_eq!(proxy.asked(), ["CONNECT model.test:443 HTTP/1.1"]);
    assert!(!proxy.heads().concat().contains(KEY), "{:?}", proxy.heads());
    assert_eq!(keys_seen(&model), [Some(format!("Bearer {KEY}"))]);
    let status = client.call("daemon/status", json!({})).await;
    assert_eq!(status["proxies"], json!([format!("for https: {} (HTTPS_PROXY)", proxy.url())]));
    check(&daemon, &client, &model, &[]);
}

#[tokio::test]
async fn the_configured_proxy_wins_and_some_hosts_are_spared() {
    let model = answering();
    let (right, wrong) = (Proxy::to(model.address()), Proxy::to(model.address()));
    let wrong_env = ("http_proxy", wrong.url());
    let wrong_env = (wrong_env.0, wrong_env.1.as_str());
    let configured = format!("proxy = \"{}\"", right.url());
    let daemon = start(&model, "http://model.test:8000/v1", &configured, &[wrong_env]).await;
    let client = daemon.client().await;
    assert_eq!(turn(&client).await, "end_turn");
    assert_eq!(right.asked(), ["POST http://model.test:8000/v1/chat/completions HTTP/1.1"]);

    // This very machine needs no proxy, unless somebody says so.
    for (network, through) in [("", 0), ("proxy_loopback = true", 1), ("proxy_loopback = true\nproxy = \"direct\"", 1)]
    {
        let daemon = start(&model, &format!("{}/v1", model.url()), network, &[wrong_env]).await;
        let client = daemon.client().await;
        assert_eq!(turn(&client).await, "end_turn", "{network}");
        assert_eq!(wrong.asked().len(), through, "{network}");
    }

    // A host that is spared is asked directly; this one nobody knows.
    let spared = [wrong_env, ("NO_PROXY", "other.test, .test")];
    let daemon = start(&model, "http://model.test:8000/v1", "", &spared).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "hi").await;
    let notice = client.first(&session, "notice").await;
    assert!(notice.str("text").starts_with("cannot connect to model.test:8000: "), "{}", notice.raw);
    assert_eq!(wrong.asked().len(), 1, "not through the proxy");
    client.call("session/cancel", json!({ "session": session })).await;
    client.first(&session, "turn_finished").await;
    check(&daemon, &client, &model, &[]);
}

#[tokio::test]
async fn a_proxy_with_a_password_gets_it_and_nobody_else_sees_it() {
    let (model, authority) = (answering(), Authority::default());
    let front = Front::tls(&authority, &["model.test"], model.address());
    let dir = tempfile::tempdir().unwrap();
    let ca = format!("ca_file = \"{}\"", authority.file(dir.path()).display());
    // user:geheim-4711
    let authorization = Some("Basic dXNlcjpnZWhlaW0tNDcxMQ==".to_owned());
    let secrets = ["geheim-4711", "dXNlcjpnZWhlaW0tNDcxMQ==", "falsch-0815"];
    for (base_url, target) in [("https://model.test/v1", front.address), ("http://model.test/v1", model.address())] {
        let proxy = Proxy::with(target, Manners { authorization: authorization.clone(), refuses: None });
        for (password, good) in [("geheim-4711", true), ("falsch-0815", false)] {
            let url = format!("http://user:{password}@{}", proxy.address);
            let daemon = start(&model, base_url, &ca, &[("ALL_PROXY", &url)]).await;
            let client = daemon.client().await;
            let said = turn(&client).await;
            if good {
                assert_eq!(said, "end_turn", "{base_url}");
            } else {
                let expect = format!("net: the proxy {} (ALL_PROXY) refuses user and password", proxy.url());
                assert!(said.starts_with(&expect), "{base_url}: {said}");
                assert!(client.transcript().of("notice").next().is_none(), "it is not tried again");
            }
            check(&daemon, &client, &model, &secrets);
        }
    }
    // Nothing that was for the proxy went on to the model.
    let headers = model.requests().into_iter().flat_map(|request| request.headers);
    assert!(headers.into_iter().all(|(name, _)| !name.starts_with("proxy-")));
}

#[tokio::test]
async fn a_proxy_that_refuses_or_is_not_there_is_named() {
    let model = answering();
    let refusing = Proxy::with(model.address(), Manners { authorization: None, refuses: Some(403) });
    let gone = Proxy::to(model.address());
    let gone_url = gone.url();
    drop(gone);
    for (base_url, proxy, expect) in [
        ("https://model.test/v1", refusing.url(), "(network.proxy) does not connect to model.test"),
        ("http://model.test/v1", refusing.url(), "(network.proxy)"),
        ("https://model.test/v1", gone_url.clone(), "(network.proxy): Connection refused"),
        ("http://model.test/v1", gone_url, "(network.proxy): Connection refused"),
    ] {
        let daemon = start(&model, base_url, &format!("proxy = \"{proxy}\""), &[]).await;
        let client = daemon.client().await;
        let said = turn(&client).await;
        assert!(said.contains(&format!("the proxy {proxy} ")) && said.contains(expect), "{base_url} {proxy}: {said}");
        check(&daemon, &client, &model, &[]);
    }
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn a_model_at_an_ipv6_address_is_reached() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("not run: this machine has no IPv6");
        return;
    }
    let model = answering();
    let front = Front::at("::1", model.address());
    let daemon =
        start(&model, &format!("http://{}/v1/", front.address), "", &[("ALL_PROXY", "http://127.0.0.1:1")]).await;
    let client = daemon.client().await;
    assert_eq!(turn(&client).await, "end_turn");
    check(&daemon, &client, &model, &[]);
}

#[tokio::test]
async fn a_redirect_is_an_error_and_the_key_does_not_follow_it() {
    let elsewhere = answering();
    for status in [301, 302, 303, 307, 308] {
        let location = format!("{}/v1/chat/completions?token=x", elsewhere.url());
        let model = ModelServer::with([Reply::status(status).header("location", &location), Reply::text("hi")]);
        let daemon = start(&model, &format!("{}/v1", model.url()), "", &[]).await;
        let client = daemon.client().await;
        let said = turn(&client).await;
        let expect =
            format!("answers {status}, a redirect to {}/v1/chat/completions; it is not followed", elsewhere.url());
        assert!(said.contains(&expect), "{said}");
        assert_eq!(turn(&client).await, "end_turn", "the next prompt works");
        check(&daemon, &client, &model, &[]);
    }
    assert!(elsewhere.requests().is_empty());
}

#[tokio::test]
async fn doctor_says_that_the_daemon_was_started_without_the_proxy_of_this_shell() {
    let model = answering();
    let daemon = start(&model, &format!("{}/v1", model.url()), "", &[]).await;
    let doctor = || daemon.cli(&["doctor"]);
    let shell = doctor().env("https_proxy", "http://proxy.test:3128").run().await.exits(0);
    assert!(
        shell.stdout.contains("https_proxy is set here, but the daemon was started without it"),
        "{}",
        shell.stdout
    );
    let other = doctor().env("http_proxy", "http://proxy.test:3128").run().await.exits(0);
    assert!(other.stdout.contains("http_proxy is set here"), "{}", other.stdout);
    assert!(shell.stdout.contains("key of net: NET_KEY, in the daemon's environment"), "{}", shell.stdout);
    let config = std::fs::read_to_string(daemon.dirs.config()).unwrap();
    let client = daemon.client().await;
    std::fs::write(daemon.dirs.config(), config.replace("[network]\n", "[network]\nproxy = \"http://p.test:1\"\n"))
        .unwrap();
    client.confirm().await;
    linger_tests::harness::until("the proxy is known", async || {
        let status = client.call("daemon/status", json!({})).await;
        status["proxies"].is_array().then_some(())
    })
    .await;
    let said = doctor().env("https_proxy", "http://proxy.test:3128").run().await.exits(0);
    assert!(said.stdout.contains("proxy http://p.test:1 (network.proxy)"), "{}", said.stdout);
    assert!(!said.stdout.contains("was started without it"), "the configuration says which one: {}", said.stdout);
    check(&daemon, &client, &model, &[]);
}
