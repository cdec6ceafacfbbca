//! What delegating costs: a round of it and two plain turns in the same run, and the memory of children at work.
//!
//! A round is a turn of a hub whose only call delegates: the child is created, gets its task, answers, and the hub answers with the
//! result, which is four requests in three turns' worth of work. Its floor is two plain turns of a session, one after the other.

use std::time::Instant;

use linger_tests::floors::median;
use linger_tests::harness::{Client, Daemon};
use linger_tests::model::{Gate, ModelServer, Recorded, Reply};
use serde_json::json;

use super::figures::{settled, setup};
use super::{Figure, TRIES, least};

/// Rounds of one try.
const ROUNDS: usize = 40;

/// Children at work at once.
const CHILDREN: usize = 50;

/// Children of one hub: as many as it may have at once.
const EACH: usize = 8;

fn is_task(request: &Recorded) -> bool {
    request.last_words().starts_with("look")
}

fn answered() -> Reply {
    Reply::text(json!({ "answer": "seen", "sources": [], "confidence": "high", "caveats": [] }).to_string())
}

pub(super) async fn delegate() -> Vec<Figure> {
    let model = ModelServer::scripted(|request| match request.last_words().as_str() {
        "go" if !request.after_tool() => Reply::tool("delegate", json!({ "agent": "general", "task": "look" })),
        _ if is_task(request) => answered(),
        _ => Reply::text("ok"),
    });
    let daemon = Daemon::start_with(&model, setup()).await;
    let client = daemon.client().await;
    let turns = async |session: &str, texts: &[&str]| {
        let start = Instant::now();
        for text in texts {
            client.turn(session, text).await;
        }
        start.elapsed().as_secs_f64() * 1e3
    };
    let (mut rounds, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..TRIES {
        let (hub, plain) = (client.session().await, client.session().await);
        let (mut of_hub, mut of_plain) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            of_plain.push(turns(&plain, &["say ok", "say ok"]).await);
            of_hub.push(turns(&hub, &["go"]).await);
        }
        rounds.push(median(of_hub));
        floors.push(median(of_plain));
    }
    daemon.check(&[&client], &model);
    vec![Figure::told("a delegate round; floor: two plain turns", least(rounds), "ms").over(least(floors))]
}

pub(super) async fn delegate_memory() -> Vec<Figure> {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ModelServer::scripted(move |request| {
        if is_task(request) {
            return Reply::new().text_in_deltas(&"word ".repeat(200), 5).gate(&held);
        }
        let many =
            request.last_words().strip_prefix("go ").and_then(|rest| rest.split(' ').next()?.parse().ok()).unwrap_or(0);
        let task = json!({ "agent": "general", "task": "look" });
        if request.after_tool() || many == 0 {
            Reply::text("ok")
        } else {
            (1..many).fold(Reply::tool("delegate", task.clone()), |reply, _| reply.and_tool("delegate", task.clone()))
        }
    });
    let daemon = Daemon::start_with(&model, setup()).await;
    let client = daemon.client().await;
    let pid = daemon.pid().await;
    let hubs = hubs(&client).await;
    let before = settled(pid).await;
    if before.1 == 0.0 {
        eprintln!("memory is not measured: how much of a daemon's is its own, only root is told");
        return Vec::new();
    }
    for (n, hub) in hubs.iter().enumerate() {
        let many = (CHILDREN - n * EACH).min(EACH);
        client.prompt(hub, &format!("go {many} of hub {n}")).await;
    }
    let working = |seen: &linger_tests::check::Transcript| {
        let works = seen.of("child_updated").filter(|seen| seen.event["status"] == "working");
        let children: std::collections::BTreeSet<&str> = works.map(|seen| seen.str("child")).collect();
        (children.len() == CHILDREN).then_some(())
    };
    client.wait("50 children at work", working).await;
    let with = settled(pid).await;
    gate.open();
    let ended = |seen: &linger_tests::check::Transcript| {
        (seen.of("turn_finished").count() == 2 * CHILDREN.div_ceil(EACH)).then_some(())
    };
    client.wait("the end of all hubs", ended).await;
    daemon.check(&[&client], &model);
    vec![
        Figure::told("a daemon with 50 children at work, PSS", with.1, "MiB").over(before.1),
        Figure::new("each of 50 children at work, PSS", (with.1 - before.1) * 1024.0 / CHILDREN as f64, "KiB", 400.0),
    ]
}

/// As many sessions as 50 children need, each after a turn.
async fn hubs(client: &Client) -> Vec<String> {
    let mut hubs = Vec::new();
    for n in 0..CHILDREN.div_ceil(EACH) {
        let session = client.session().await;
        // Requests of two sessions are told apart by what is in them.
        client.turn(&session, &format!("say ok {n}")).await;
        hubs.push(session);
    }
    hubs
}
