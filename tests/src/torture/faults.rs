//! Store faults: one scripted life whose n-th store operation fails, for every n.
//!
//! Reads count too. What fails is told, nothing runs whose record could not be written, and when the store works again the
//! session goes on, in the same process and with nothing lost.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::kills::look;
use super::persona::{AGAIN, Persona, Wrong};
use super::points::allows;
use super::{Life, script};
use crate::harness::{Daemon, Setup};
use crate::model::ModelServer;

/// How an operation fails, and how many after it do too: a disk stays full for a while, an error or a lock may pass at once.
pub(super) const KINDS: [(&str, u64); 4] = [("full", 1), ("ioerr", 1), ("busy", 1), ("full", 12)];

/// A fault: the operation that fails first, how, and how many fail.
pub(super) type Fault = (u64, &'static str, u64);

/// One life; whether the fault came. The store has fewer operations than that if it did not.
pub(super) async fn live((n, kind, times): Fault) -> (Life, bool) {
    let model = ModelServer::start();
    let setup = Setup { log: "info", top: "idle_unload_s = 0", faulty: true, ..Setup::default() };
    let daemon = Arc::new(Daemon::prepare(&model, setup));
    std::fs::write(daemon.workspace().join("notes.txt"), "a note\n").expect("a file for the tools");
    let once = daemon.dirs.root().join("failed");
    let env = [
        ("LINGER_STORE_FAULT".to_owned(), format!("{n}:{kind}:{times}")),
        ("LINGER_STORE_ONCE".to_owned(), once.display().to_string()),
    ];
    let open = Arc::new(AtomicBool::new(false));
    model.otherwise(script::on_request(daemon.side_effects(), open.clone()));
    let mut life = Life::default();
    if let Err(wrong) = run(&daemon, &model, (&env, &once, times), &open, &mut life).await {
        life.violations.push(wrong);
    }
    (life, once.exists())
}

async fn run(
    daemon: &Arc<Daemon>,
    model: &ModelServer,
    (env, once, times): (&[(String, String)], &Path, u64),
    open: &AtomicBool,
    life: &mut Life,
) -> Result<(), Wrong> {
    // A turn that is taken up at the start reads and writes too: it is there before the faults are.
    daemon.launch().await;
    let mut stays = Persona::new(daemon, "stays");
    let unwatched = stays.create(json!({})).await?;
    stays.prompt(&unwatched, "stall alone", "queue").await?;
    let session = stays.create(json!({})).await?;
    stays.attach(&session).await?;
    stays.prompt(&session, "tools at first", "queue").await?;
    stays.sees("a question", |seen| seen.of("permission_requested").next().map(drop)).await?;
    while !model.requests().iter().any(|request| request.messages().contains("stall alone")) {
        tokio::time::sleep(AGAIN).await;
    }
    daemon.kill_all().await;
    open.store(true, Ordering::Relaxed);
    daemon.launch_with(env).await;
    let over = Arc::new(AtomicBool::new(false));
    let asks = tokio::task::spawn_local(allows(daemon.clone(), session.clone(), over.clone()));
    let worked = async {
        // It goes on by itself: nobody attaches to it.
        stays.settle(&unwatched).await?;
        stays.settle(&session).await?;
        stays.prompt(&session, "tools again", "queue").await?;
        stays.settle(&session).await?;
        let other = stays.create(json!({})).await?;
        stays.prompt(&other, "plain", "queue").await?;
        stays.settle(&other).await?;
        stays.reads_to_the_end(&session).await
    }
    .await;
    over.store(true, Ordering::Relaxed);
    let answered = asks.await.map_err(|error| format!("run: a client failed: {error}"))?;
    worked?;
    let status = stays.must("daemon/status", json!({})).await?;
    if status["restarts"] != 0 {
        life.violations.push("I14: the daemon died of a store fault".to_owned());
    }
    // Whoever asked was told, or it is in the log file.
    let (answered, told) = answered?;
    let told = told + stays.told > 0 || daemon.log().contains("a fault on purpose");
    // One that passes at once may have harmed nobody: what fails together is tried again one by one.
    if once.exists() && !told && times > 1 {
        life.violations.push("I14: a store fault is told to nobody".to_owned());
    }
    look(daemon, model, vec![stays.transcript(), answered], life).await
}
