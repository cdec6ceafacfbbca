//! What the daemon does while the shim looks on: turns of three sessions at once, with answers long enough that the WAL is
//! moved into the database on the way, a kill, and an orderly end.

use std::path::Path;

use serde_json::json;

use super::Acknowledged;
use super::disk::Journal;
use super::recorder::Recorder;
use crate::harness::Daemon;
use crate::model::{ModelServer, Recorded, Reply};

/// Turns of each session in each of the daemon's three lives.
const ROUNDS: usize = 5;

/// An answer of this many bytes: some fifty of them fill the WAL, which is moved at 4 MiB.
const ANSWER: usize = 40 << 10;

/// Runs it, and gives what clients were told is durable.
pub(super) async fn run(
    daemon: &Daemon,
    model: &ModelServer,
    env: &[(String, String)],
    journal: &Path,
) -> Vec<Acknowledged> {
    let effects = daemon.side_effects().display().to_string();
    let log = journal.display().to_string();
    model.otherwise(move |request| reply(request, &effects, &log));
    let mut all = Vec::new();
    let mut sessions = Vec::new();
    for life in 0..3 {
        daemon.launch_with(env).await;
        let mut client = Recorder::connect(&daemon.dirs.socket(), journal);
        if sessions.is_empty() {
            for (mode, model) in [("auto", "work/a"), ("ask", "work/b"), ("ask", "claude/c")] {
                let params = json!({ "cwd": daemon.workspace(), "env": {}, "mode": mode, "model": model });
                let made = client.call("session/create", params);
                sessions.push(made["session"].as_str().expect("a session").to_owned());
            }
        }
        for session in &sessions {
            client.call("session/attach", json!({ "session": session }));
        }
        for round in life * ROUNDS..(life + 1) * ROUNDS {
            for session in &sessions {
                let content = format!("round {session}-{round}");
                let accepted = client.call("session/prompt", json!({ "session": session, "content": content }));
                assert_eq!(accepted["prompt"], format!("p{}", round + 1));
            }
            for session in &sessions[1..] {
                let asked = client.nth(session, "permission_requested", round + 1);
                let decision = if round % 3 == 2 { "reject_once" } else { "allow_once" };
                let answer = json!({ "permission": asked["permission"], "decision": decision, "of": session });
                assert_eq!(client.call("permission/answer", answer)["outcome"], "won");
                let resolved = client.nth(session, "permission_resolved", round + 1);
                assert_eq!(resolved["decision"], decision);
            }
            for session in &sessions {
                client.nth(session, "turn_finished", round + 1);
            }
        }
        all.extend(client.acknowledged());
        if life == 1 {
            daemon.kill_all().await;
            Journal::drop_torn(journal);
        } else {
            assert_eq!(daemon.terminate(), Some(0), "the daemon ends well");
        }
    }
    all
}

/// A command that leaves a line which nothing else leaves, and how long the journal was then; after it a long answer.
fn reply(request: &Recorded, effects: &str, journal: &str) -> Reply {
    if request.after_tool() {
        return Reply::new().text_in_deltas(&"It is done, and this is said at length. ".repeat(ANSWER / 40), 4000);
    }
    let name = request.last_words().replace("round ", "");
    let command = format!("echo {name} $(stat -c %s {journal}) >> {effects}");
    Reply::text("I shall run it.").and_tool("bash", json!({ "command": command }))
}

/// The lines of the side-effect file.
pub(super) fn effects(path: &Path) -> Vec<(String, usize)> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = |line: &str| {
        let (name, at) = line.split_once(' ')?;
        Some((name.to_owned(), at.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}
