//! Damage to single sessions, and what `linger doctor --repair` does and refuses.

use linger_tests::harness::{Daemon, comes_true};
use linger_tests::model::{Gate, ModelServer, Reply};
use rusqlite::Connection;
use serde_json::json;

use crate::damage::{damage, doctor, said, stop, talk, told};

#[tokio::test]
async fn a_session_whose_state_cannot_be_read_is_damaged_and_made_anew_from_its_events_by_a_repair() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let (broken, good) = (talk(&client, &model, "broken", 2).await, talk(&client, &model, "good", 1).await);
    damage(&daemon, |path| {
        let sql = format!("UPDATE session SET fold = '{{\"head\":', env = 'none' WHERE id = '{broken}'");
        Connection::open(path).unwrap().execute_batch(&sql).unwrap();
    })
    .await;
    daemon.launch().await;
    let back = daemon.client().await;
    let rows = back.call("session/list", json!({})).await;
    let row = |name: &str| rows.as_array().unwrap().iter().find(|row| row["name"] == name).cloned().unwrap();
    assert!(row("broken")["damaged"].is_string() && row("good")["damaged"].is_null(), "{rows}");
    assert_eq!(back.refused("session/attach", json!({ "session": broken })).await.code, -31021);
    back.attach(&good).await;
    model.push([Reply::text("Good day")]);
    assert_eq!(back.turn(&good, "hello").await.str("stop_reason"), "end_turn");
    doctor(&daemon, &[], false, "its state cannot be read").await;
    doctor(&daemon, &["--repair"], true, "all sessions that are in it were carried over (2)").await;
    let after = daemon.client().await;
    after.attach(&broken).await;
    assert!(told(&after, &broken).await.seq().is_some());
    model.push([Reply::text("Good day")]);
    assert_eq!(after.turn(&broken, "hello").await.str("stop_reason"), "end_turn");
    let rows = after.call("session/list", json!({})).await;
    assert!(rows.as_array().unwrap().iter().all(|row| row["damaged"].is_null()), "{rows}");
    daemon.check(&[&client, &back, &after], &model);
    doctor(&daemon, &[], true, "completely readable").await;
    let env: String = Connection::open(daemon.dirs.database())
        .unwrap()
        .query_row("SELECT env FROM session WHERE id = ?", [&broken], |row| row.get(0))
        .unwrap();
    assert!(env.contains("PATH"), "its variables are there again: {env}");
    stop(&daemon).await;
}

#[tokio::test]
async fn a_session_that_cannot_be_read_can_be_removed_by_force() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let (broken, good) = (talk(&client, &model, "broken", 2).await, talk(&client, &model, "good", 1).await);
    damage(&daemon, |path| {
        let last = "SELECT max(seq) FROM event WHERE session = ?1";
        let sql = format!("DELETE FROM event WHERE session = ?1 AND seq = ({last})");
        assert_eq!(Connection::open(path).unwrap().execute(&sql, [&broken]).unwrap(), 1);
    })
    .await;
    daemon.launch().await;
    let refused = daemon.cli(&["rm", "broken"]).run().await.exits(1);
    assert!(refused.stderr.contains("is damaged") && refused.stderr.contains("rm --force"), "{refused:?}");
    daemon.cli(&["rm", "--force", "broken"]).run().await.exits(0);
    let left = async || {
        let rows = daemon.client().await.call("session/list", json!({})).await;
        let names = rows.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(left().await, ["good"]);
    doctor(&daemon, &[], true, "completely readable").await;
    assert_eq!(daemon.terminate(), Some(0));
    daemon.launch().await;
    assert_eq!(left().await, ["good"]);
    let back = daemon.client().await;
    back.attach(&good).await;
    back.first(&good, "turn_finished").await;
    stop(&daemon).await;
}

#[tokio::test]
async fn damage_that_only_writing_meets_stops_its_session_and_not_the_daemon() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let quiet = client.session().await;
    damage(&daemon, |path| {
        let connection = Connection::open(path).unwrap();
        // An index of many pages, whose leaves nothing reads before a message is written.
        for n in 0..3000 {
            let row = ("zz", n + 1, format!("m{n:040}"));
            let sql = "INSERT INTO event (session, seq, at, kind, stream, data, sum) VALUES (?, ?, 1, 'x', ?, '{}', 0)";
            connection.execute(sql, row).unwrap();
        }
        let leaves = "SELECT pageno FROM dbstat WHERE name = 'event_stream' AND pagetype = 'leaf'";
        let leaves: Vec<u32> =
            connection.prepare(leaves).unwrap().query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        drop(connection);
        let mut bytes = std::fs::read(path).unwrap();
        leaves.iter().for_each(|leaf| bytes[(*leaf as usize - 1) * 4096..][..4096].fill(0x5a));
        std::fs::write(path, bytes).unwrap();
    })
    .await;
    daemon.launch().await;
    let back = daemon.client().await;
    model.push([Reply::text("Good day"), Reply::text("Good day")]);
    let session = back.session().await;
    back.prompt(&session, "hello").await;
    let end = back.first(&session, "notice").await;
    assert_eq!((end.str("code"), end.seq()), ("damaged", None));
    back.attach(&quiet).await;
    let damage = said(&back).await;
    assert!(damage.iter().any(|damage| damage["what"] == "in_use" && damage["hint"].is_string()), "{damage:?}");
    let failures = || daemon.log().matches("write failed").count();
    assert!(!comes_true(std::time::Duration::from_secs(3), || failures() > 3), "it is not tried for ever");
    // The rows that were put in above are no session.
    doctor(&daemon, &["--repair", "--force"], false, "of its 3 sessions 2 were carried over whole").await;
    let after = daemon.client().await;
    after.attach(&session).await;
    // The prompt was accepted, and gets its answer now.
    assert_eq!(after.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    daemon.check(&[&after], &model);
    stop(&daemon).await;
}

#[tokio::test]
async fn a_process_that_the_daemon_started_repairs_nothing() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let linger = linger_tests::harness::programs().client.display().to_string();
    let env: String = daemon.dirs.env().iter().map(|(name, value)| format!("{name}='{value}' ")).collect();
    model.push([crate::bash(&format!("{env}{linger} doctor --repair")), Reply::text("done")]);
    client.turn(&session, "go").await;
    let finished = client.first(&session, "tool_finished").await;
    assert!(finished.event["content"].to_string().contains("may not check what is stored"), "{finished:?}");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_repair_waits_for_a_word_while_a_turn_runs() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let (good, broken) = (client.session().await, talk(&client, &model, "broken", 1).await);
    damage(&daemon, |path| {
        let sql = "UPDATE session SET fold = '{' WHERE id = ?";
        assert_eq!(Connection::open(path).unwrap().execute(sql, [&broken]).unwrap(), 1);
    })
    .await;
    daemon.launch().await;
    let (back, pid) = (daemon.client().await, daemon.pid().await);
    back.attach(&good).await;
    model.push([Reply::text("Good d").gate(&Gate::new()), Reply::text("Good day")]);
    back.prompt(&good, "hello").await;
    back.sees_text(&good, "Good d").await;
    doctor(&daemon, &["--repair"], false, "1 sessions have a running turn").await;
    assert_eq!(daemon.pid().await, pid, "it has not ended");
    doctor(&daemon, &["--repair", "--force"], true, "carried over (2)").await;
    let after = daemon.client().await;
    after.attach(&good).await;
    assert_eq!(after.first(&good, "turn_finished").await.str("stop_reason"), "end_turn");
    daemon.check(&[&client, &back, &after], &model);
    stop(&daemon).await;
}

#[tokio::test]
async fn a_client_that_comes_during_a_repair_is_told_of_it_and_a_second_repair_does_not_begin() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    assert_eq!(daemon.terminate(), Some(0));
    // As the helper holds it.
    let lock =
        std::fs::OpenOptions::new().write(true).open(daemon.dirs.database().with_file_name("lingerd.lock")).unwrap();
    lock.try_lock().unwrap();
    std::os::unix::fs::FileExt::write_all_at(
        &lock,
        format!("{:<1023}\n", json!({ "pid": std::process::id(), "repairs": true })).as_bytes(),
        0,
    )
    .unwrap();
    for command in [&["ls"][..], &["doctor", "--repair"]] {
        let told = daemon.cli(command).run().await;
        let said = format!("{}{}", told.stdout, told.stderr);
        assert!(
            said.contains("the database is being repaired") && said.contains("try again when that is done"),
            "{told:?}"
        );
    }
    drop(lock);
    daemon.cli(&["ls"]).run().await.exits(0);
    stop(&daemon).await;
}
