//! Outages: a session under work whose provider goes away at random moments and comes back, and whose daemon is killed meanwhile.
//!
//! Every turn has to end well by itself: nobody continues, repeats or cancels anything.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::kills::look;
use super::persona::{Persona, Wrong};
use super::{Life, script};
use crate::Rng;
use crate::harness::{Daemon, Setup};
use crate::model::ModelServer;

/// Outages in one life.
pub(super) const OUTAGES: u64 = 4;

/// The longest pause before an outage, in milliseconds: as long as a step with its tools takes.
const PAUSE: usize = 40;

/// The longest outage, in milliseconds: two or three tries.
const AWAY: usize = 1500;

/// One life; gives what was wrong with it.
pub(super) async fn live(seed: u64, outages: u64) -> Life {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let model = ModelServer::start();
    let setup = Setup { mode: "auto", log: "info", ..Setup::default() };
    let daemon = Arc::new(Daemon::start_with(&model, setup).await);
    std::fs::write(daemon.workspace().join("notes.txt"), "a note\n").expect("a file for the tools");
    model.otherwise(script::answers(daemon.side_effects()));
    let mut life = Life::default();
    if let Err(wrong) = run(&mut rng, outages, &model, &daemon, &mut life).await {
        life.violations.push(wrong);
    }
    life
}

async fn run(
    rng: &mut Rng,
    outages: u64,
    model: &ModelServer,
    daemon: &Arc<Daemon>,
    life: &mut Life,
) -> Result<(), Wrong> {
    let mut client = Persona::new(daemon, "prompts");
    let session = client.create(json!({})).await?;
    client.attach(&session).await?;
    // An address that has never answered is given up soon.
    client.prompt(&session, "a first prompt", "queue").await?;
    client.settle(&session).await?;
    for outage in 0..outages {
        client.prompt(&session, &format!("prompt {outage}"), "queue").await?;
        tokio::time::sleep(Duration::from_millis(rng.below(PAUSE) as u64)).await;
        model.go_away().await;
        tokio::time::sleep(Duration::from_millis(rng.below(AWAY) as u64)).await;
        match rng.below(4) {
            0 => daemon.kill_daemon().await,
            1 => daemon.kill_and_restart().await,
            2 => drop(client.prompt(&session, &format!("steer {outage}"), "steer").await?),
            _ => {}
        }
        model.come_back().await;
        client.settle(&session).await?;
        life.kills += 1;
    }
    client.reads_to_the_end(&session).await?;
    let failed =
        client.look(|seen| seen.of("turn_finished").filter(|end| end.str("stop_reason") != "end_turn").count());
    if failed > 0 {
        life.violations.push(format!("{failed} turns did not outlive an outage"));
    }
    look(daemon, model, vec![client.transcript()], life).await
}
