//! `linger mcp login`: a server that wants a login, with an authorization server, a browser and the whole way between them.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

use linger_tests::harness::{Daemon, Setup, until};
use linger_tests::model::{ModelServer, Reply};
use serde_json::json;

use crate::mcp_others::installed;
use crate::shared::mcp::calls;

/// The scripted servers; they end when dropped.
struct Servers {
    base: String,
    child: Child,
}

impl Servers {
    fn start(args: &[&str]) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/data/oauth.py");
        Self::run("python3", &[&[script], args].concat())
    }

    #[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
    fn run(program: &str, args: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(args).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut base = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut base).unwrap();
        Self { base: base.trim().to_owned(), child }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// A browser whose user agrees to everything.
fn browser(daemon: &Daemon) -> String {
    let path = daemon.dirs.root().join("browser");
    let script = "#!/usr/bin/env python3\nimport sys, urllib.request\nurllib.request.urlopen(sys.argv[1]).read()\n";
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[tokio::test]
async fn a_login_is_made_in_the_browser_renewed_and_asked_for_again_when_it_is_refused() {
    let model =
        ModelServer::scripted(|request| if request.after_tool() { Reply::text("ok") } else { calls("who", json!({})) });
    let servers = Servers::start(&["--short"]);
    let config = format!("[mcp.s]\nurl = \"{}/mcp\"\n", servers.base);
    let daemon = Daemon::start_with(&model, Setup { mode: "auto", config, ..Setup::default() }).await;
    let browser = browser(&daemon);
    let needs = async || {
        let rows = daemon.cli(&["mcp", "list"]).run().await.exits(0).stdout;
        rows.contains("needs login: `linger mcp login s`")
    };
    let test = daemon.cli(&["mcp", "test", "s"]).run().await.fails_with_hint(1);
    assert!(test.stderr.contains("needs a login: `linger mcp login s`"), "{test:?}");
    assert!(needs().await);

    let login = daemon.cli(&["mcp", "login", "s"]).env("BROWSER", &browser).run().await.exits(0);
    assert!(login.stderr.contains("logged in to s") && login.stdout.contains("mcp__s__who"), "{login:?}");
    // The token has ended each time, and is renewed with a refresh token that is good for one use.
    for _ in 0..2 {
        let run = daemon.cli(&["run", "--json", "go"]).run().await.exits(0);
        assert!(run.stdout.contains("a person who has logged in"), "{run:?}");
        assert!(!run.stdout.contains("access-token") && !login.stderr.contains("access-token"));
    }
    assert!(!needs().await);

    let revoke = status_of(&format!("{}/revoke", servers.base)).await;
    assert!(revoke.contains("200"), "{revoke}");
    daemon.cli(&["run", "--json", "go"]).run().await.exits(0);
    assert!(needs().await);
    daemon.cli(&["mcp", "login", "s"]).env("BROWSER", &browser).run().await.exits(0);
    daemon.cli(&["mcp", "logout", "s"]).run().await.exits(0).says("logged out of s");
    daemon.cli(&["mcp", "logout", "s"]).run().await.exits(0).says("no login");
    daemon.cli(&["mcp", "test", "s"]).run().await.fails_with_hint(1);
    assert!(needs().await);
    daemon.cli(&["mcp", "login", "nobody"]).run().await.fails_with_hint(2);
    assert!(!daemon.log().contains("access-token") && !daemon.log().contains("refresh-token"));
    daemon.check(&[], &model);
}

/// Logs in at a server and calls its tool.
async fn logs_in(servers: &Servers, what: &str) {
    let model =
        ModelServer::scripted(|request| if request.after_tool() { Reply::text("ok") } else { calls("who", json!({})) });
    let config = format!("[mcp.s]\nurl = \"{}/mcp\"\n", servers.base);
    let daemon = Daemon::start_with(&model, Setup { mode: "auto", config, ..Setup::default() }).await;
    let browser = browser(&daemon);
    let login = daemon.cli(&["mcp", "login", "s"]).env("BROWSER", &browser).run().await;
    assert!(login.code == 0 && login.stderr.contains("logged in to s"), "{what}: {login:?}");
    // With --short, each use renews the token first, with the same proof.
    let run = daemon.cli(&["run", "--json", "go"]).run().await.exits(0);
    assert!(run.stdout.contains("a person who has logged in"), "{what}: {run:?}");
    assert!(!run.stdout.contains("secret 1") && !daemon.log().contains("secret 1"));
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_client_with_a_secret_proves_itself_as_the_server_wants_it() {
    for kind in ["post", "basic", "both", "either"] {
        logs_in(&Servers::start(&["--short", "--secret", kind]), kind).await;
    }
}

#[tokio::test]
async fn a_server_made_with_the_official_python_sdk_and_fastmcp_takes_a_login() {
    let Some(place) = installed() else { return };
    let python = place.join("venv/bin/python").display().to_string();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/data/sdk_oauth.py");
    let servers = Servers::run(&python, &[script]);
    until_it_answers(&servers.base).await;
    logs_in(&servers, "FastMCP").await;
}

/// Waits until a server takes connections.
async fn until_it_answers(base: &str) {
    let host = base.strip_prefix("http://").unwrap();
    until("the server answers", async || tokio::net::TcpStream::connect(host).await.ok().map(drop)).await;
}

/// The status line of a plain request.
async fn status_of(url: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = tokio::net::TcpStream::connect(host).await.unwrap();
    stream.write_all(format!("GET /{path} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}
