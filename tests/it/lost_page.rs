//! A page of the database that is lost, and hides whole ones: these are found by themselves.

use linger_tests::harness::Daemon;
use linger_tests::model::ModelServer;
use rusqlite::Connection;
use serde_json::json;

use crate::damage::{damage, doctor, set_aside, talk};

#[tokio::test]
async fn one_page_that_hides_all_others_takes_no_session_along_and_what_is_missing_is_said() {
    /// So many that most rows are two levels below that page.
    const SESSIONS: usize = 16;
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let mut sessions = Vec::new();
    for n in 0..SESSIONS {
        sessions.push(talk(&client, &model, &format!("the-{n}"), 5).await);
    }
    let (cut, mut rows) = (sessions[2].clone(), 0u32);
    let was = damage(&daemon, |path| {
        let connection = Connection::open(path).unwrap();
        rows = connection.query_row("SELECT count(*) FROM event", [], |row| row.get(0)).unwrap();
        let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'event'";
        let root: u32 = connection.query_row(root, [], |row| row.get(0)).unwrap();
        connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        drop(connection);
        let mut bytes = std::fs::read(path).unwrap();
        assert_eq!(bytes[(root as usize - 1) * 4096], 0x02, "all the rows are on other pages, but for a few");
        let mut byte = 1u8;
        bytes[(root as usize - 1) * 4096..][..4096].fill_with(|| {
            byte = byte.wrapping_mul(77).wrapping_add(13);
            byte
        });
        // And one row of which everybody knows that it was there.
        let text = b"the-2-2 and so on";
        let found: Vec<_> =
            bytes.windows(text.len()).enumerate().filter(|(_, at)| at == text).map(|(at, _)| at).collect();
        found.iter().for_each(|at| bytes[at / 4096 * 4096..][..4096].fill(0x5a));
        std::fs::write(path, bytes).unwrap();
    })
    .await;
    daemon.launch().await;
    let back = daemon.client().await;
    let aside = set_aside(&back, &was).await;
    let (carried, left) = (aside["carried"].as_u64().unwrap(), aside["left"].as_array().cloned().unwrap_or_default());
    assert_eq!(carried as usize + left.len(), SESSIONS, "{aside}");
    assert!(carried >= 4 && left.iter().any(|left| left["session"] == *cut), "{aside}");
    doctor(&daemon, &[], false, "carried over whole").await;
    // What is removed meanwhile does not come back with the rest.
    let whole = |session: &&String| left.iter().all(|left| left["session"] != ***session);
    let removed = sessions.iter().find(whole).unwrap();
    back.call("session/remove", json!({ "session": removed })).await;

    let repaired = daemon.cli(&["doctor", "--repair"]).run().await.exits(1);
    assert!(!repaired.stdout.contains("can be deleted"), "{repaired:?}");
    assert!(
        repaired.stdout.contains(&format!("of its {SESSIONS} sessions {carried} were carried over whole")),
        "{repaired:?}"
    );
    assert!(repaired.stdout.contains("nothing more of it can be read here"), "{repaired:?}");
    let after = set_aside(&back, &was).await;
    assert_eq!(after["lost"], true, "{after}");
    let left = after["left"].as_array().unwrap();
    let told = left.iter().find(|left| left["session"] == *cut).unwrap();
    // Nothing at all if its first event was on that page too.
    assert!(told["events"].as_u64().unwrap() < told["of"].as_u64().unwrap(), "{told}");
    for left in left {
        let line = format!("has {} of its {} events", left["events"], left["of"]);
        assert!(left["events"] == 0 || repaired.stdout.contains(&line), "{line} is not in {repaired:?}");
    }
    let connection = Connection::open(daemon.dirs.database()).unwrap();
    let here: u32 = connection.query_row("SELECT count(*) FROM event", [], |row| row.get(0)).unwrap();
    assert!(here > rows / 2, "{here} of {rows}");
    drop(connection);
    let listed = back.call("session/list", json!({})).await;
    assert!(!listed.to_string().contains(removed), "{removed} is back: {listed}");
    for session in sessions.iter().filter(|session| *session != removed) {
        if left.iter().all(|left| left["session"] != **session) {
            back.attach(session).await;
            back.nth(session, "turn_finished", 5).await;
        }
    }
    assert!(!daemon.cli(&["ls"]).run().await.stderr.contains("warning"), "it was said, and heard");
    daemon.cli(&["doctor"]).run().await.exits(1);
    daemon.check(&[], &model);
}
