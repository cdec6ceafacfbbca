//! Damage to what is stored: the daemon starts, what is damaged is named, and the rest is served; what a repair saves of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use linger_tests::check::Seen;
use linger_tests::harness::{Client, Daemon, Output, until};
use linger_tests::model::{Gate, ModelServer, Reply};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::story;

pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

/// The content of a database and its WAL, if it has any. SQLite may create an empty WAL, and rewrites its index.
fn files(path: &Path) -> BTreeMap<&'static str, Vec<u8>> {
    let read = |part| Some((part, std::fs::read(beside(path, part)).ok().filter(|bytes| !bytes.is_empty())?));
    ["", "-wal"].into_iter().filter_map(read).collect()
}

/// A session with some turns, each of a page or so of text that names it.
pub(crate) async fn talk(client: &Client, model: &ModelServer, name: &str, turns: usize) -> String {
    let session = client.create_with(json!({ "name": name })).await;
    client.attach(&session).await;
    for turn in 0..turns {
        model.push([Reply::text(format!("{name}-{turn} {}", "and so on ".repeat(300)))]);
        client.turn(&session, &format!("{name} {turn}")).await;
    }
    session
}

/// Changes the database while no daemon runs; gives what then lies there.
pub(crate) async fn damage(daemon: &Daemon, how: impl FnOnce(&Path)) -> BTreeMap<&'static str, Vec<u8>> {
    assert_eq!(daemon.terminate(), Some(0));
    how(&daemon.dirs.database());
    files(&daemon.dirs.database())
}

/// Overwrites half of a page of events of the session called `name`, in the middle of its turns.
fn tear(database: &Path, name: &str, turns: usize) {
    let mut bytes = std::fs::read(database).unwrap();
    let page = |turn: usize| {
        let text = format!("{name}-{turn} and so on");
        let found = bytes.windows(text.len()).enumerate().filter(|(_, found)| *found == text.as_bytes());
        // A leaf of the table; others have what was deleted.
        found.map(|(at, _)| at / 4096 * 4096).find(|page| bytes[*page] == 0x0d)
    };
    let page = (turns / 3..turns * 2 / 3).find_map(page).expect("the text is stored");
    bytes[page..][..2048].fill(0x5a);
    std::fs::write(database, bytes).unwrap();
}

/// What the daemon says of damage.
pub(crate) async fn said(client: &Client) -> Vec<Value> {
    client.call("daemon/status", json!({})).await["damage"].as_array().cloned().unwrap_or_default()
}

/// The one thing that was set aside, which must be what was there.
pub(crate) async fn set_aside(client: &Client, was: &BTreeMap<&'static str, Vec<u8>>) -> Value {
    let said = said(client).await;
    let [aside] = said.iter().filter(|said| said["file"].is_string()).collect::<Vec<_>>()[..] else {
        panic!("one thing is set aside, not {said:?}");
    };
    let file = Path::new(aside["file"].as_str().unwrap());
    assert!(file.file_name().unwrap().to_str().unwrap().starts_with("linger.db."), "{file:?}");
    assert!(files(file) == *was, "what was set aside is what was there");
    aside.clone()
}

/// What `linger doctor` says of what is stored: a line that is good, or one that is not.
pub(crate) async fn doctor(daemon: &Daemon, more: &[&str], good: bool, words: &str) {
    let output = daemon.cli(&[&["doctor"], more].concat()).run().await;
    let sign = if good { '✓' } else { '✗' };
    let said = output.stdout.lines().any(|line| line.starts_with(sign) && line.contains(words));
    assert!(said, "'{sign} … {words}' is not in {output:?}");
}

/// Has what can be read saved, whatever runs; gives what `linger doctor` says then.
pub(crate) async fn repair(daemon: &Daemon) -> Output {
    daemon.cli(&["doctor", "--repair", "--force"]).run().await
}

/// Waits until a session is told that it was damaged, or its database.
pub(crate) async fn told(client: &Client, session: &str) -> Seen {
    let told = client.wait("it is told", |seen| {
        let mut notices = seen.events().filter(|seen| seen.session == session && seen.event["code"] == "damaged");
        notices.next().cloned()
    });
    told.await
}

/// Waits until a session has nothing to do.
pub(crate) async fn idle(client: &Client, session: &str) {
    until("the session is idle", async || {
        let rows = client.call("session/list", json!({ "matching": session })).await;
        (rows[0]["state"] == "idle" && rows[0]["queued"] == 0).then_some(())
    })
    .await;
}

/// Ends a daemon that a client has started.
pub(crate) async fn stop(daemon: &Daemon) {
    daemon.cli(&["daemon", "stop", "--force"]).run().await.exits(0);
}

#[tokio::test]
async fn with_its_header_gone_the_daemon_starts_and_a_repair_carries_everything_over() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let (one, two) = (talk(&client, &model, "one", 3).await, talk(&client, &model, "two", 2).await);
    let was = damage(&daemon, |path| {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[..100].fill(0x5a);
        std::fs::write(path, bytes).unwrap();
    })
    .await;
    daemon.launch().await;
    // It is named, and work goes on.
    let meanwhile = daemon.client().await;
    let aside = set_aside(&meanwhile, &was).await;
    assert_eq!((aside["what"].as_str(), aside["carried"].as_u64()), (Some("database"), Some(0)), "{aside}");
    let three = talk(&meanwhile, &model, "three", 1).await;
    let ls = daemon.cli(&["ls"]).run().await.exits(0);
    assert!(ls.stdout.contains("three") && !ls.stdout.contains("two"), "{ls:?}");
    assert!(ls.stderr.contains("warning: the database was set aside"), "{ls:?}");
    doctor(&daemon, &[], false, "its sessions are not here").await;
    doctor(&daemon, &["--repair"], true, "all sessions that are in it were carried over (2)").await;
    let back = daemon.client().await;
    let aside = set_aside(&back, &was).await;
    assert_eq!((aside["carried"].as_u64(), &aside["hint"]), (Some(2), &Value::Null), "nothing is left to do");
    let rows = back.call("session/list", json!({})).await;
    let names: Vec<_> = rows.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["three", "two", "one"], "in the order in which they were used");
    for session in [&one, &two, &three] {
        back.attach(session).await;
    }
    told(&back, &one).await;
    // It goes on where it was.
    model.push([Reply::text("Good day")]);
    assert_eq!(back.turn(&one, "hello").await.str("stop_reason"), "end_turn");
    daemon.check(&[&client, &meanwhile, &back], &model);
    assert!(!daemon.cli(&["ls"]).run().await.stderr.contains("warning"), "it was said, and heard");
    // What is carried over once is not carried over again.
    let pid = daemon.pid().await;
    doctor(&daemon, &["--repair"], true, "all sessions that are in it were carried over (2)").await;
    assert_eq!(daemon.pid().await, pid, "there was nothing to stop it for");
    stop(&daemon).await;
}

#[tokio::test]
async fn what_was_under_way_when_the_database_was_set_aside_goes_on_and_keys_are_still_known() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("Good d").gate(&gate), Reply::text("Good day")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let prompt = json!({ "session": session, "content": "hello", "key": "k-1" });
    client.call("session/prompt", prompt.clone()).await;
    client.sees_text(&session, "Good d").await;
    daemon.kill_all().await;
    // All of it is in the WAL or in the database; the header of the latter is gone.
    let path = daemon.dirs.database();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[..50].fill(0);
    std::fs::write(&path, bytes).unwrap();
    daemon.launch().await;
    // What was confirmed before is in the file that was set aside, and a tool could have damaged it.
    daemon.cli(&["config", "confirm", "--yes"]).run().await.exits(0);
    doctor(&daemon, &["--repair"], true, "carried over (1)").await;
    let back = daemon.client().await;
    back.attach(&session).await;
    assert_eq!(back.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    assert_eq!(back.call("session/prompt", prompt).await["prompt"], "p1", "it was accepted before");
    assert_eq!(back.transcript().of("prompt_accepted").count(), 1);
    daemon.check(&[&client, &back], &model);
    stop(&daemon).await;
}

#[tokio::test]
async fn images_are_carried_over_with_their_session_and_what_was_removed_stays_so() {
    let model = ModelServer::scripted(|_| Reply::text("a picture"));
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let (kept, gone) = (client.session().await, client.create_with(json!({ "name": "gone" })).await);
    let image = json!({ "type": "image", "media_type": "image/png", "data": "iVBORw0KGgo=" });
    client.call("session/prompt", json!({ "session": kept, "content": [image] })).await;
    client.first(&kept, "turn_finished").await;
    let row = |rows: Value| rows.as_array().unwrap().iter().find(|row| row["session"] == *kept).cloned().unwrap();
    let size = row(client.call("session/list", json!({})).await)["size"].as_u64().unwrap();
    let accepted = client.first(&kept, "prompt_accepted").await;
    let blob = accepted.event["content"][0]["blob"].clone();
    let was = damage(&daemon, |path| {
        // As a daemon leaves it that dies before it has deleted anything of it.
        let connection = Connection::open(path).unwrap();
        connection.execute("INSERT INTO removed VALUES (?)", [&gone]).unwrap();
        connection.execute("DELETE FROM session WHERE id = ?", [&gone]).unwrap();
        // A marker of one that died while it held the blob.
        let fresh = path.with_file_name("blobs/new-dead");
        std::fs::create_dir_all(&fresh).unwrap();
        std::fs::write(fresh.join(blob.as_str().unwrap().trim_start_matches("sha256:")), "").unwrap();
        connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE); DROP TABLE scratch").unwrap();
    })
    .await;
    daemon.launch().await;
    set_aside(&daemon.client().await, &was).await;
    doctor(&daemon, &["--repair"], true, "carried over (1)").await;
    let back = daemon.client().await;
    assert_eq!(set_aside(&back, &was).await["carried"], 1);
    let rows = back.call("session/list", json!({})).await;
    assert_eq!(rows.as_array().unwrap().len(), 1, "{rows}");
    // The notice that it was carried over came to it.
    assert!(row(rows.clone())["size"].as_u64().unwrap() > size, "{rows}");
    assert_eq!(back.call("blob/get", json!({ "blob": blob })).await["data"], "iVBORw0KGgo=");
    // Nor does a start, which sees that nothing is owed, take it for a stray.
    until("the start has looked at what was left", async || {
        (!daemon.dirs.database().with_file_name("blobs/new-dead").exists()).then_some(())
    })
    .await;
    assert_eq!(back.call("blob/get", json!({ "blob": blob })).await["data"], "iVBORw0KGgo=");
    stop(&daemon).await;
}

#[tokio::test]
async fn a_torn_page_harms_its_session_alone_and_repair_saves_the_rest_of_it() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let (torn, whole) = (talk(&client, &model, "torn", 18).await, talk(&client, &model, "whole", 6).await);
    let was = damage(&daemon, |path| tear(path, "torn", 18)).await;
    daemon.launch().await;
    let back = daemon.client().await;
    assert_eq!(said(&back).await, Vec::<Value>::new(), "nobody has read it yet");
    back.attach(&whole).await;
    back.nth(&whole, "turn_finished", 6).await;
    // As far as it goes, and then a word.
    let page = back.request("session/attach", json!({ "session": torn })).await.unwrap();
    match page {
        Ok(_) => {
            let last = back.first(&torn, "notice").await;
            assert_eq!((last.str("code"), last.seq()), ("damaged", None));
        }
        Err(error) => assert_eq!(error.code, -31021, "{error:?}"),
    }
    let rows = back.call("session/list", json!({})).await;
    let damaged = |row: &&Value| row["damaged"].is_string();
    let named: Vec<_> = rows.as_array().unwrap().iter().filter(damaged).map(|row| row["name"].clone()).collect();
    assert_eq!(named, ["torn"]);
    assert_eq!(said(&back).await[0]["session"], torn);
    let ls = daemon.cli(&["ls"]).run().await.exits(0);
    assert!(ls.stdout.lines().any(|line| line.contains("damaged") && line.contains("torn")), "{ls:?}");
    let log = daemon.cli(&["log", &torn]).run().await.exits(1);
    assert!(log.stderr.contains("linger doctor --repair"), "{log:?}");
    doctor(&daemon, &[], false, "session").await;
    assert!(files(&daemon.dirs.database())[""] == was[""], "looking changes nothing");

    let repaired = repair(&daemon).await.exits(1);
    assert!(repaired.stdout.contains(" of its "), "{repaired:?}");
    let after = daemon.client().await;
    let aside = said(&after).await.remove(0);
    assert_eq!((aside["carried"].as_u64(), aside["left"][0]["session"].as_str()), (Some(1), Some(&*torn)), "{aside}");
    assert!(aside["left"][0]["events"].as_u64().unwrap() >= 8, "{aside}");
    after.attach(&torn).await;
    after.attach(&whole).await;
    let notice = told(&after, &torn).await;
    assert!(notice.str("text").contains("the rest is in"), "{notice:?}");
    told(&after, &whole).await;
    // The model is not sent what it had been sent: the history is shorter. A prompt may have waited at its end.
    model.expect_rewrites();
    model.otherwise(|_| Reply::text("Good day"));
    after.prompt(&torn, "hello").await;
    idle(&after, &torn).await;
    daemon.check(&[&after], &model);
    stop(&daemon).await;
}

#[tokio::test]
async fn a_truncated_database_is_set_aside_and_a_repair_saves_what_is_left_of_it() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let mut sessions = Vec::new();
    for name in ["the-a", "the-b", "the-c", "the-d"] {
        sessions.push(talk(&client, &model, name, 5).await);
    }
    let was = damage(&daemon, |path| {
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(file.metadata().unwrap().len() * 2 / 3 - 100).unwrap();
    })
    .await;
    daemon.launch().await;
    set_aside(&daemon.client().await, &was).await;
    assert!(daemon.cli(&["ls"]).run().await.exits(0).stderr.contains("warning: the database was set aside"));
    repair(&daemon).await.exits(1);
    let back = daemon.client().await;
    let after = set_aside(&back, &was).await;
    assert_eq!((&after["lost"], after["hint"].is_string()), (&json!(true), true), "{after}");
    let left = after["left"].as_array().unwrap();
    assert_eq!(after["carried"].as_u64().unwrap() as usize + left.len(), 4, "{after}");
    for session in &sessions {
        let left = left.iter().find(|left| left["session"] == **session);
        if left.is_none_or(|left| left["events"].as_u64() > Some(0)) {
            back.attach(session).await;
            told(&back, session).await;
        }
    }
    assert!(!daemon.cli(&["ls"]).run().await.stderr.contains("warning"), "it was said, and heard");
    daemon.check(&[], &model);
    stop(&daemon).await;
}

#[tokio::test]
async fn a_truncated_wal_is_read_as_far_as_it_goes() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = talk(&client, &model, "cut", 4).await;
    daemon.kill_all().await;
    let wal = beside(&daemon.dirs.database(), "-wal");
    let file = std::fs::OpenOptions::new().write(true).open(&wal).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    // A turn whose end was lost goes on.
    model.expect_rewrites();
    model.otherwise(|_| Reply::text("Good day"));
    daemon.launch().await;
    let back = daemon.client().await;
    back.attach(&session).await;
    idle(&back, &session).await;
    back.wait("all there is", |seen| seen.of("caught_up").next().map(|_| ())).await;
    let kinds = story(&back.transcript(), &session);
    assert!(kinds.contains(&"turn_finished".to_owned()), "{kinds:?}");
    // What the lost end held is no longer there to be held against what was seen.
    daemon.check(&[], &model);
    assert_eq!(said(&back).await, Vec::<Value>::new());
}

#[tokio::test]
async fn an_empty_database_is_damage_and_not_a_new_one() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    talk(&client, &model, "gone", 1).await;
    let was = damage(&daemon, |path| std::fs::write(path, []).unwrap()).await;
    daemon.launch().await;
    set_aside(&daemon.client().await, &was).await;
    let ls = daemon.cli(&["ls"]).run().await.exits(0);
    assert!(ls.stderr.contains("warning: the database was set aside as"), "{ls:?}");
    doctor(&daemon, &[], false, "it is empty").await;
    doctor(&daemon, &["--repair"], true, "it is empty; nothing in it could be read").await;
    assert!(!daemon.cli(&["ls"]).run().await.stderr.contains("warning"), "it was said, and heard");
    let back = daemon.client().await;
    assert_eq!(back.call("session/list", json!({})).await, json!([]));
    talk(&back, &model, "new", 1).await;
    daemon.check(&[&back], &model);
    stop(&daemon).await;
}

#[tokio::test]
async fn a_later_linger_takes_back_what_an_older_one_set_aside_with_what_came_meanwhile() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let before = talk(&client, &model, "same", 2).await;
    let version: i64 = {
        let connection = Connection::open(daemon.dirs.database()).unwrap();
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
    };
    let set = |path: &Path, version: i64| {
        Connection::open(path).unwrap().pragma_update(None, "user_version", version).unwrap();
    };
    let was = damage(&daemon, |path| set(path, version + 7)).await;
    daemon.launch().await;
    let older = daemon.client().await;
    let aside = set_aside(&older, &was).await;
    assert_eq!(aside["what"], "newer");
    assert!(aside["text"].as_str().unwrap().contains(&format!("its schema is version {}", version + 7)), "{aside}");
    let ls = daemon.cli(&["ls"]).run().await.exits(0);
    assert!(ls.stderr.contains("a newer one wrote it"), "{ls:?}");
    // An older one cannot repair it, and does not say that it did.
    doctor(&daemon, &["--repair"], false, "a newer one wrote it").await;
    // The name is taken meanwhile.
    let meanwhile = talk(&older, &model, "same", 1).await;
    assert_eq!(daemon.terminate(), Some(0));
    // As one that knows that schema sees it.
    let file = Path::new(aside["file"].as_str().unwrap());
    set(file, version);
    let report = std::fs::read_to_string(beside(file, ".json")).unwrap();
    let schema = format!("\"schema\": {}", version + 7);
    assert!(report.contains(&schema), "{report}");
    std::fs::write(beside(file, ".json"), report.replace(&schema, "\"schema\": 1")).unwrap();
    daemon.launch().await;
    doctor(&daemon, &["--repair"], true, "carried over (1)").await;
    let newer = daemon.client().await;
    newer.attach(&before).await;
    newer.attach(&meanwhile).await;
    newer.nth(&before, "turn_finished", 2).await;
    newer.first(&meanwhile, "turn_finished").await;
    let rows = newer.call("session/list", json!({ "matching": "same" })).await;
    assert_eq!(rows.as_array().unwrap().len(), 1, "a name has one session: {rows}");
    assert_eq!(rows[0]["session"], meanwhile);
    daemon.check(&[&client, &older, &newer], &model);
    stop(&daemon).await;
}

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
    damage(&daemon, |path| {
        let connection = Connection::open(path).unwrap();
        rows = connection.query_row("SELECT count(*) FROM event", [], |row| row.get(0)).unwrap();
        let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'event'";
        let root: u32 = connection.query_row(root, [], |row| row.get(0)).unwrap();
        connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        drop(connection);
        let mut bytes = std::fs::read(path).unwrap();
        assert_eq!(bytes[(root as usize - 1) * 4096], 0x05, "the rows are on other pages");
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
    doctor(&daemon, &[], false, "damaged").await;
    let repaired = repair(&daemon).await.exits(1);
    assert!(!repaired.stdout.contains("can be deleted"), "{repaired:?}");
    assert!(repaired.stdout.contains("nothing more of it can be read here"), "{repaired:?}");
    let back = daemon.client().await;
    let after = said(&back).await.remove(0);
    assert_eq!(after["lost"], true, "{after}");
    let (carried, left) = (after["carried"].as_u64().unwrap(), after["left"].as_array().unwrap());
    assert_eq!(carried as usize + left.len(), SESSIONS, "{after}");
    assert!(carried as usize + 2 >= SESSIONS, "{after}");
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
    for session in sessions.iter().filter(|session| left.iter().all(|left| left["session"] != ***session)) {
        back.attach(session).await;
        back.nth(session, "turn_finished", 5).await;
    }
    assert!(!daemon.cli(&["ls"]).run().await.stderr.contains("warning"), "it was said, and heard");
    daemon.cli(&["doctor"]).run().await.exits(1);
    daemon.check(&[], &model);
    stop(&daemon).await;
}
