//! Programs of two versions meet. This build has one protocol, so a relay between the real client and the real daemon says in
//! the client's hello that it speaks another one, and passes on everything else as it is.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;

use linger_protocol::{PROTOCOL, VERSION};
use linger_tests::harness::Daemon;
use linger_tests::model::{Gate, ModelServer, Reply};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

/// Listens beside the daemon; gives where. Clients that come that way speak the protocols in `range`.
fn relay(daemon: &Daemon, range: [u32; 2]) -> PathBuf {
    let dir = daemon.dirs.root().join("relay");
    std::fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
    let path = dir.join("lingerd.sock");
    let listener = UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (real, own) = (daemon.dirs.socket(), path.clone());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            // It is there as long as the daemon is.
            let Ok(daemon) = UnixStream::connect(&real).await else { break };
            // Either may hang up.
            tokio::spawn(carry(client, daemon, range));
        }
        std::fs::remove_file(own).unwrap();
    });
    path
}

async fn carry(client: UnixStream, daemon: UnixStream, range: [u32; 2]) -> std::io::Result<()> {
    let (from_client, mut to_client) = client.into_split();
    let (mut from_daemon, mut to_daemon) = daemon.into_split();
    tokio::spawn(async move { tokio::io::copy(&mut from_daemon, &mut to_client).await });
    let mut lines = BufReader::new(from_client).lines();
    while let Some(line) = lines.next_line().await? {
        let mut request: Value = serde_json::from_str(&line)?;
        if request["method"] == "daemon/hello" {
            request["params"]["protocol"] = json!(range);
        }
        to_daemon.write_all(format!("{request}\n").as_bytes()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_client_that_the_daemon_does_not_understand_says_what_both_speak_and_how_to_go_on() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("still ").gate(&gate).and_text("here")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "hello").await;
    client.sees_text(&session, "still ").await;
    let relay = relay(&daemon, [PROTOCOL[1] + 1, PROTOCOL[1] + 8]);
    let through = |args: &[&str]| daemon.cli(args).env("LINGER_SOCKET", relay.to_str().unwrap());

    let [oldest, newest] = PROTOCOL;
    let expect = format!(
        "error: this daemon ({VERSION}) speaks protocol {oldest} to {newest}, the client {} to {}; \
         this is linger {VERSION}, which speaks protocol {oldest} to {newest}\n\
         hint: `linger daemon restart` waits until no turn is running, and starts the `lingerd` next to this `linger`, or on PATH, which must have the same version\n",
        newest + 1,
        newest + 8,
    );
    for args in [["ls"].as_slice(), &["run", "hello"], &["log", &session]] {
        let output = through(args).run().await.exits(5);
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("", expect.as_str()), "{args:?}");
    }

    gate.open();
    client.first(&session, "turn_finished").await;
    assert_eq!(model.requests().len(), 1, "nothing was run for who was refused");
    daemon.check(&[&client], &model);
    // The way out that the hint names is for the daemon's own machine, and not for the other end of a relay.
    through(&["daemon", "restart"]).run().await.fails_with_hint(5);
    daemon.cli(&["daemon", "stop"]).run().await.exits(0);
    client.closed().await;
}

#[tokio::test]
async fn a_client_that_speaks_newer_protocols_too_is_served_in_the_one_that_both_speak() {
    let model = ModelServer::with([Reply::text("good day")]);
    let daemon = Daemon::start(&model).await;
    let relay = relay(&daemon, [PROTOCOL[0], PROTOCOL[1] + 8]);
    let output = daemon.cli(&["run", "hello"]).env("LINGER_SOCKET", relay.to_str().unwrap()).run().await.exits(0);
    assert_eq!(output.stdout, "good day\n");
    daemon.check(&[], &model);
}
