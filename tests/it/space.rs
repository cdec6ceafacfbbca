//! Space: what is large is stored once and outside the database; what is removed gives its space back, whatever dies meanwhile.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use linger_tests::check::Entry;
use linger_tests::harness::{Client, Daemon, Setup, comes_true};
use linger_tests::model::{ModelServer, Recorded, Reply};
use linger_tests::stored::{add_event, change_state};
use serde_json::{Value, json};

use crate::bash;

/// Bytes that do not repeat, so that finding a part of them means something.
fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    let mut noise: Vec<u8> = (0..bytes).map(next).collect();
    // An image, as far as anybody looks.
    let magic = b"\x89PNG\r\n\x1a\n";
    noise[..magic.len()].copy_from_slice(magic);
    noise
}

fn image(bytes: &[u8]) -> Value {
    json!({ "type": "image", "media_type": "image/png", "data": BASE64.encode(bytes) })
}

async fn show(client: &Client, session: &str, blocks: Value) {
    let before = client.transcript().of("turn_finished").filter(|seen| seen.session == session).count();
    client.call("session/prompt", json!({ "session": session, "content": blocks })).await;
    client.nth(session, "turn_finished", before + 1).await;
}

fn database(daemon: &Daemon) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(daemon.dirs.database()).unwrap();
    connection.busy_timeout(linger_tests::TIMEOUT).unwrap();
    connection
}

fn count(daemon: &Daemon, sql: &str) -> i64 {
    database(daemon).query_row(sql, [], |row| row.get(0)).unwrap()
}

fn blobs_dir(daemon: &Daemon) -> PathBuf {
    daemon.dirs.database().with_file_name("blobs")
}

/// The files of blobs, without those that are being written.
fn blobs(daemon: &Daemon) -> Vec<PathBuf> {
    let entries = |dir: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(dir).map(|dir| dir.flatten().map(|entry| entry.path()).collect()).unwrap_or_default()
    };
    let dirs = entries(&blobs_dir(daemon)).into_iter();
    dirs.filter(|dir| !dir.to_string_lossy().contains("/new-")).flat_map(|dir| entries(&dir)).collect()
}

/// Files that were being written or deleted.
fn leftovers(daemon: &Daemon) -> usize {
    // A daemon makes it for its first blob.
    let dirs = std::fs::read_dir(blobs_dir(daemon)).into_iter().flatten().flatten().map(|entry| entry.path());
    let fresh = dirs.filter(|dir| dir.to_string_lossy().contains("/new-"));
    fresh.map(|dir| std::fs::read_dir(dir).map_or(0, Iterator::count)).sum()
}

/// Whether a file of the database has these bytes.
fn is_in_database(daemon: &Daemon, text: &str) -> bool {
    let path = daemon.dirs.database();
    ["", "-wal"].iter().any(|suffix| {
        let bytes = std::fs::read(format!("{}{suffix}", path.display())).unwrap_or_default();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

fn body(request: &Recorded) -> String {
    request.json.to_string()
}

#[tokio::test]
async fn an_image_is_stored_once_outside_the_database_and_the_model_gets_its_bytes() {
    let model = ModelServer::scripted(|_| Reply::text("a picture"));
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let picture = noise(300_000, 7);
    let data = BASE64.encode(&picture);
    for name in ["work/m", "claude/m"] {
        let session = client.create_with(json!({ "model": name })).await;
        client.attach(&session).await;
        client
            .call(
                "session/prompt",
                json!({ "session": session, "content": [{ "type": "text", "text": "look" }, image(&picture)] }),
            )
            .await;
        client.first(&session, "turn_finished").await;
        client.prompt(&session, "again").await;
        client.nth(&session, "turn_finished", 2).await;
        let accepted = client.first(&session, "prompt_accepted").await;
        let shown = &accepted.event["content"][1];
        assert_eq!((shown["media_type"].as_str(), shown["bytes"].as_u64()), (Some("image/png"), Some(300_000)));
        assert!(shown["blob"].as_str().unwrap().starts_with("sha256:") && shown.get("data").is_none(), "{shown}");
    }
    assert!(model.requests().iter().all(|request| body(request).contains(&data)), "each request has the image");
    assert!(!is_in_database(&daemon, &data[1000..1100]));
    assert_eq!(blobs(&daemon).len(), 1, "one file for four sessions and prompts");
    assert_eq!(std::fs::read(&blobs(&daemon)[0]).unwrap(), picture);
    assert_eq!(leftovers(&daemon), 0);
    // After a restart the request begins with the same bytes, which the model server checks.
    daemon.kill_and_restart().await;
    let again = daemon.client().await;
    let rows = again.call("session/list", json!({})).await;
    for row in rows.as_array().unwrap() {
        let session = row["session"].as_str().unwrap();
        assert!(row["size"].as_u64().unwrap() > 300_000, "{row}");
        again.attach(session).await;
        again.prompt(session, "and now").await;
        again.nth(session, "turn_finished", 3).await;
    }
    assert!(model.requests().iter().all(|request| body(request).contains(&data)));
    check_blobs(&daemon);
    daemon.check(&[&client, &again], &model);
}

#[tokio::test]
async fn a_blob_is_given_piece_by_piece_and_can_be_sent_again_by_its_name() {
    let model = ModelServer::scripted(|_| Reply::text("a picture"));
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let picture = noise(2_500_000, 11);
    show(&client, &session, json!([image(&picture)])).await;
    let blob = client.first(&session, "prompt_accepted").await.event["content"][0]["blob"].clone();
    let (mut whole, mut offset) = (Vec::new(), Some(0));
    let mut pieces = 0;
    while let Some(at) = offset {
        let piece = client.call("blob/get", json!({ "blob": blob, "offset": at })).await;
        assert_eq!(piece["size"], 2_500_000);
        whole.extend(BASE64.decode(piece["data"].as_str().unwrap()).unwrap());
        (offset, pieces) = (piece["next"].as_u64(), pieces + 1);
    }
    assert!(whole == picture && pieces == 3, "{} bytes in {pieces} pieces", whole.len());
    let part = client.call("blob/get", json!({ "blob": blob, "offset": 10, "length": 3 })).await;
    assert_eq!(part, json!({ "data": BASE64.encode(&picture[10..13]), "size": 2_500_000, "next": 13 }));
    let beyond = client.call("blob/get", json!({ "blob": blob, "offset": u64::MAX, "length": 0 })).await;
    assert_eq!(beyond, json!({ "data": "", "size": 2_500_000 }));
    // Sent by its name into another session, it is the same.
    let other = client.session().await;
    show(&client, &other, json!([{ "type": "image", "media_type": "image/png", "blob": blob }])).await;
    assert!(body(model.requests().last().unwrap()).contains(&BASE64.encode(&picture)));
    assert_eq!(blobs(&daemon).len(), 1);
    let unknown = format!("sha256:{}", "0".repeat(64));
    for name in [unknown.as_str(), "sha256:../../linger.db", "x"] {
        assert_eq!(client.refused("blob/get", json!({ "blob": name })).await.code, -31023);
        let content = json!([{ "type": "image", "media_type": "image/png", "blob": name }]);
        let refused = client.refused("session/prompt", json!({ "session": other, "content": content })).await;
        assert_eq!((refused.code, refused.get_hint().is_some()), (-31023, true));
    }
    for wrong in [json!({ "data": "" }), json!({ "data": "not base64!" }), json!({})] {
        let mut block = json!({ "type": "image", "media_type": "image/png" });
        block.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        let refused = client.refused("session/prompt", json!({ "session": other, "content": [block] })).await;
        assert!([-31019, -32602].contains(&refused.code), "{refused:?}");
    }
    // A file that is lost is said to be, and the turn goes on.
    std::fs::remove_file(&blobs(&daemon)[0]).unwrap();
    model.expect_rewrites();
    client.prompt(&other, "still there?").await;
    client.nth(&other, "turn_finished", 2).await;
    assert!(body(model.requests().last().unwrap()).contains("(an image that is lost)"));
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_long_output_and_an_image_that_was_read_are_blobs_that_tools_and_clients_can_read() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let picture = [b"\x89PNG\r\n\x1a\n".as_slice(), &noise(100_000, 3)].concat();
    std::fs::write(daemon.workspace().join("a.png"), &picture).unwrap();
    model.push([
        bash("seq 1 100000"),
        Reply::tool("read", json!({ "path": "a.png" })),
        Reply::text("done"),
        Reply::text("done again"),
    ]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let whole: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
    let finished = client.first(&session, "tool_finished").await;
    let file = PathBuf::from(finished.str("file"));
    assert!(file.starts_with(blobs_dir(&daemon)), "{}", file.display());
    assert!(finished.event["content"][1]["text"].as_str().unwrap().contains(file.to_str().unwrap()));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), whole);
    let piece = client.call("blob/get", json!({ "blob": finished.str("blob"), "length": 6 })).await;
    assert_eq!(piece["data"], BASE64.encode("1\n2\n3\n"));
    let read = client.nth(&session, "tool_finished", 2).await;
    assert_eq!(read.event["content"][1]["bytes"], picture.len());
    let data = BASE64.encode(&picture);
    assert!(body(model.requests().last().unwrap()).contains(&data));
    assert!(!is_in_database(&daemon, &data[1000..1100]));
    assert_eq!((blobs(&daemon).len(), leftovers(&daemon)), (2, 0));
    check_blobs(&daemon);
    // The model reads on in what was left out.
    model.push([Reply::tool("read", json!({ "path": file, "offset": 50_000, "limit": 1 })), Reply::text("fifty")]);
    model.requests();
    client.prompt(&session, "line 50000").await;
    client.nth(&session, "turn_finished", 2).await;
    client.turn(&session, "once more").await;
    let results: Vec<String> = client.transcript().of("tool_finished").map(|seen| seen.event.to_string()).collect();
    assert!(results.iter().any(|result| result.contains("50000")), "{results:?}");
    daemon.cli(&["rm", "--now", &session]).run().await.exits(0);
    assert!(comes_true(linger_tests::TIMEOUT, || blobs(&daemon).is_empty() && leftovers(&daemon) == 0));
}

#[tokio::test]
async fn what_is_removed_gives_its_space_back_and_what_another_session_uses_stays() {
    let model = ModelServer::scripted(|_| Reply::text("yes ".repeat(200_000)));
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let (one, two) = (client.session().await, client.session().await);
    let (shared, own) = (noise(50_000, 1), noise(60_000, 2));
    for session in [&one, &two] {
        client.call("session/prompt", json!({ "session": session, "content": [image(&shared)] })).await;
        client.first(session, "turn_finished").await;
    }
    client.call("session/prompt", json!({ "session": two, "content": [image(&own)] })).await;
    client.nth(&two, "turn_finished", 2).await;
    assert_eq!(blobs(&daemon).len(), 2);
    let rows = daemon.cli(&["ls", "--json"]).run().await.exits(0).json();
    let sizes: Vec<u64> = rows.iter().map(|row| row["size"].as_u64().unwrap()).collect();
    let sql = "SELECT (SELECT sum(octet_length(data)) FROM event WHERE session = s.id)
                    + (SELECT sum(size) FROM blob WHERE session = s.id) FROM session s
               WHERE id <> 'daemon' ORDER BY updated_at DESC";
    let connection = database(&daemon);
    let real: Vec<u64> = connection
        .prepare(sql)
        .unwrap()
        .query_map([], |row| Ok(row.get::<_, i64>(0)? as u64))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(sizes, real);
    drop(connection);
    daemon
        .cli(&["ls"])
        .run()
        .await
        .exits(0)
        .stdout
        .lines()
        .for_each(|line| assert!(line.contains(" kB  ") || line.contains(" MB  "), "{line}"));
    let status = daemon.cli(&["daemon", "status", "--json"]).run().await.exits(0).json().remove(0);
    assert_eq!(status["storage"]["blobs"], 110_000);
    let file = || std::fs::metadata(daemon.dirs.database()).unwrap().len();
    // What is in the log of the database is not in the file yet.
    database(&daemon).execute_batch("PRAGMA wal_checkpoint(FULL)").unwrap();
    let before = file();
    daemon.cli(&["rm", "--now", &two]).run().await.exits(0);
    client.wait("the notice", |seen| seen.of("notice").find(|seen| seen.str("code") == "removed").cloned()).await;
    assert!(comes_true(linger_tests::TIMEOUT, || blobs(&daemon).len() == 1), "its own image goes");
    assert!(comes_true(linger_tests::TIMEOUT, || file() < before * 2 / 3), "{} of {before} bytes", file());
    assert_eq!(std::fs::read(&blobs(&daemon)[0]).unwrap(), shared, "the shared one stays");
    for table in ["event", "scratch", "question", "outcome", "blob"] {
        assert_eq!(count(&daemon, &format!("SELECT count(*) FROM {table} WHERE session = '{two}'")), 0, "{table}");
    }
    daemon.cli(&["rm", "--now", &one]).run().await.exits(0);
    assert!(comes_true(linger_tests::TIMEOUT, || blobs(&daemon).is_empty() && leftovers(&daemon) == 0));
    assert!(comes_true(linger_tests::TIMEOUT, || count(&daemon, "SELECT count(*) FROM removed") == 0));
}

/// Gives a session so many events, while no daemon runs.
fn grow(daemon: &Daemon, session: &str, events: u32) {
    let database = database(daemon);
    database.execute_batch("BEGIN").unwrap();
    let last = "SELECT max(seq) FROM event WHERE session = ?";
    let head: u32 = database.query_row(last, [session], |row| row.get(0)).unwrap();
    for seq in head + 1..=events {
        let text = format!("{seq:01000x}");
        let event = json!({ "kind": "notice", "level": "info", "text": text, "seq": seq, "at": 0 });
        add_event(&database, session, seq.into(), "notice", None, &event.to_string());
    }
    change_state(&database, session, |state| state.progress.head = events.into());
    database.execute_batch("COMMIT").unwrap();
}

#[tokio::test]
async fn a_removal_that_is_cut_by_kill_9_is_finished_after_the_restart() {
    let model = ModelServer::scripted(|_| Reply::text("Good day"));
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let (session, other) = (client.session().await, client.session().await);
    show(&client, &session, json!([image(&noise(50_000, 5))])).await;
    daemon.kill_all().await;
    grow(&daemon, &session, 20_000);
    // However fast it is, it does not get to the end before it is killed.
    let stop = "CREATE TRIGGER stop BEFORE DELETE ON event WHEN OLD.seq = 10000 BEGIN SELECT RAISE(ABORT, 'stop'); END";
    database(&daemon).execute_batch(stop).unwrap();
    daemon.launch().await;
    let (again, running) = (daemon.client().await, daemon.pid().await);
    again.call("session/remove", json!({ "session": session })).await;
    daemon.kill_both(running);
    database(&daemon).execute_batch("DROP TRIGGER stop").unwrap();
    let left = count(&daemon, &format!("SELECT count(*) FROM event WHERE session = '{session}'"));
    assert!(left > 0, "it was killed before the rows were gone");
    let before = std::fs::metadata(daemon.dirs.database()).unwrap().len();
    daemon.launch().await;
    let again = daemon.client().await;
    // It is gone for everybody, and nobody waits for its rows.
    assert_eq!(again.refused("session/attach", json!({ "session": session })).await.code, -31002);
    again.attach(&other).await;
    again.turn(&other, "hello").await;
    let done = || count(&daemon, "SELECT (SELECT count(*) FROM removed) + (SELECT count(*) FROM stray)") == 0;
    assert!(comes_true(linger_tests::TIMEOUT, done));
    assert_eq!(count(&daemon, &format!("SELECT count(*) FROM event WHERE session = '{session}'")), 0);
    assert!(comes_true(linger_tests::TIMEOUT, || blobs(&daemon).is_empty()));
    let after = || std::fs::metadata(daemon.dirs.database()).unwrap().len();
    assert!(comes_true(linger_tests::TIMEOUT, || after() < before / 10), "{} of {before} bytes", after());
    assert_eq!(count(&daemon, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"), 0);
    daemon.check(&[&again], &model);
}

/// Panics unless each blob that an event names is a file with the bytes of its name, and no other file is there.
fn check_blobs(daemon: &Daemon) {
    let connection = database(daemon);
    let mut statement = connection.prepare("SELECT DISTINCT hash, size FROM blob ORDER BY hash").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)? as u64))).unwrap();
    let mut expect: Vec<(String, u64)> = rows.collect::<Result<_, _>>().unwrap();
    expect.sort();
    let file = |path: PathBuf| {
        let bytes = std::fs::read(&path).unwrap();
        (lingerd::store::blob::id_of_bytes(&bytes).0, bytes.len() as u64)
    };
    let mut found: Vec<_> = blobs(daemon).into_iter().map(file).collect();
    found.sort();
    assert_eq!(found, expect);
    let mut events = connection.prepare("SELECT data FROM event WHERE data LIKE '%\"blob\":\"%'").unwrap();
    let data: Vec<String> = events.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    for data in data {
        let named = data.split("\"blob\":\"").skip(1).map(|rest| rest.split('"').next().unwrap());
        named.for_each(|hash| assert!(expect.iter().any(|(known, _)| known == hash), "{hash} is named and not known"));
    }
}

#[tokio::test]
async fn kill_9_at_any_moment_leaves_each_blob_that_is_named_and_after_the_next_start_no_other() {
    let model = ModelServer::scripted(|request| {
        if crate::after_tool(request) { Reply::text("done") } else { bash("head -c 60000 /dev/urandom | base64") }
    });
    let daemon = Daemon::auto(&model).await;
    model.expect_rewrites();
    let mut accepted = 0;
    for round in 0..6 {
        let client = daemon.client().await;
        let session = client.session().await;
        // Several at once, so that the kill finds some of them in each state.
        for n in 0..4 {
            let content = json!([image(&noise(50_000, round * 10 + n)), { "type": "text", "text": "go" }]);
            client.send("session/prompt", json!({ "session": session, "content": content })).await.unwrap();
        }
        match round {
            // Of one of them it is known that it was accepted, however slow the disk is.
            5 => drop(client.first(&session, "prompt_accepted").await),
            _ => tokio::time::sleep(std::time::Duration::from_millis(round * 25)).await,
        }
        daemon.kill_all().await;
        accepted += client.transcript().0.iter().filter(|entry| matches!(entry, Entry::Accepted { .. })).count();
        daemon.launch().await;
        let again = daemon.client().await;
        let idle = linger_tests::harness::until("nothing is under way", async || {
            let rows = again.call("session/list", json!({})).await;
            let busy = |row: &Value| row["state"] == "running" || row["queued"] != 0;
            (!rows.as_array().unwrap().iter().any(busy)).then_some(())
        });
        idle.await;
        let strays = || count(&daemon, "SELECT count(*) FROM stray");
        assert!(comes_true(linger_tests::TIMEOUT, || strays() == 0 && leftovers(&daemon) == 0));
        check_blobs(&daemon);
    }
    let stored = count(&daemon, "SELECT count(*) FROM event WHERE kind = 'prompt_accepted'");
    assert!(stored >= accepted as i64 && stored > 0, "{stored} stored, {accepted} accepted");
}

/// Makes a session look as if nobody had used it for so many days, while no daemon runs.
fn age(daemon: &Daemon, session: &str, days: u64) {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    let at = now - days * 86_400_000;
    let database = database(daemon);
    change_state(&database, session, |state| state.progress.updated_at = at);
    let sql = "UPDATE session SET updated_at = ? WHERE id = ?";
    database.execute(sql, rusqlite::params![at as i64, session]).unwrap();
}

fn sessions(daemon: &Daemon) -> Vec<String> {
    let connection = database(daemon);
    let mut statement = connection.prepare("SELECT id FROM session WHERE id <> 'daemon' ORDER BY id").unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

#[tokio::test]
async fn prune_deletes_what_is_old_and_idle_and_a_dry_run_nothing() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    model.push([Reply::text("Good day"), bash("true")]);
    let client = daemon.client().await;
    let (old, waiting, new) = (client.session().await, client.session().await, client.session().await);
    client.turn(&old, "hello").await;
    client.prompt(&waiting, "run").await;
    client.first(&waiting, "permission_requested").await;
    assert_eq!(daemon.terminate(), Some(0));
    age(&daemon, &old, 100);
    daemon.launch().await;
    let mut all = vec![old.clone(), waiting.clone(), new.clone()];
    all.sort();
    for wrong in [vec!["prune"], vec!["prune", "--older-than", "90"], vec!["prune", "--older-than", "soon"]] {
        daemon.cli(&wrong).run().await.exits(2).says("error: ");
    }
    let dry =
        daemon.cli(&["prune", "--now", "--older-than", "90d", "--dry-run"]).run().await.exits(0).says("1 session, ");
    assert!(dry.stdout.starts_with(&old) && dry.stderr.contains("would be deleted for good"), "{dry:?}");
    daemon
        .cli(&["prune", "--yes", "--now", "--older-than", "101d"])
        .run()
        .await
        .exits(0)
        .says("no session is that old");
    assert_eq!(sessions(&daemon), all);
    let pruned =
        daemon.cli(&["prune", "--yes", "--now", "--older-than", "90d", "--json"]).run().await.exits(0).json().remove(0);
    assert_eq!((&pruned["count"], &pruned["sessions"][0]["session"]), (&json!(1), &json!(old)));
    assert_eq!(pruned["size"], pruned["sessions"][0]["size"]);
    all.retain(|session| *session != old);
    assert_eq!(sessions(&daemon), all);
    // However old, what waits for an answer is not forgotten, unless it is meant.
    daemon.cli(&["prune", "--yes", "--now", "--older-than", "0s"]).run().await.exits(0);
    assert_eq!(sessions(&daemon), vec![waiting.clone()]);
    daemon.cli(&["prune", "--yes", "--now", "--older-than", "0s", "--force"]).run().await.exits(0).says("1 session, ");
    assert_eq!(sessions(&daemon), Vec::<String>::new());
    daemon.cli(&["inbox"]).run().await.exits(0);
    assert_eq!(count(&daemon, "SELECT count(*) FROM question WHERE answer IS NULL"), 0);
}

/// Writes the record of a daemon that ran on each of these days ago.
fn ran(daemon: &Daemon, ago: impl Iterator<Item = u64>) {
    let today = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() / 86_400;
    let days: std::collections::BTreeSet<u64> = ago.map(|ago| today - ago).collect();
    let file = daemon.dirs.database().with_file_name("linger.db.days");
    std::fs::write(file, serde_json::to_string(&days).unwrap()).unwrap();
}

/// The names of the sessions in the bin.
async fn binned(daemon: &Daemon) -> Vec<String> {
    let rows = daemon.cli(&["ls", "--bin", "--json"]).run().await.exits(0).json();
    rows.iter().map(|row| row["session"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn sessions_older_than_the_configuration_keeps_go_into_the_bin_and_can_be_restored() {
    let model = ModelServer::with([Reply::text("Good day")]);
    let daemon = Daemon::start_with(&model, Setup { top: "retention = \"30d\"", ..Setup::default() }).await;
    let client = daemon.client().await;
    let (old, kept) = (client.session().await, client.session().await);
    client.turn(&old, "hello").await;
    client.call("session/set", json!({ "session": old, "name": "named" })).await;
    assert_eq!(daemon.terminate(), Some(0));
    age(&daemon, &old, 31);
    age(&daemon, &kept, 29);
    // A first start knows of no day that has passed.
    daemon.launch().await;
    assert_eq!(binned(&daemon).await, Vec::<String>::new());
    assert_eq!(daemon.terminate(), Some(0));
    ran(&daemon, 0..=40);
    daemon.launch().await;
    linger_tests::harness::until("the old one is in the bin", async || {
        (binned(&daemon).await == [old.clone()]).then_some(())
    })
    .await;
    assert_eq!(sessions(&daemon).len(), 2, "nothing is deleted");
    let note = "1 session moved to the bin by `retention`, to be restored for at least 30 more days";
    daemon.cli(&["ls"]).run().await.exits(0).says(note);
    let doctor = daemon.cli(&["doctor"]).run().await;
    assert!(doctor.stdout.contains(note), "{doctor:?}");
    daemon.cli(&["restore", &old]).run().await.exits(0);
    assert_eq!(binned(&daemon).await, Vec::<String>::new());
    let ls = daemon.cli(&["ls"]).run().await.exits(0);
    assert!(ls.stdout.contains("named") && !ls.stderr.contains("retention"), "{ls:?}");
    let config = std::fs::read_to_string(daemon.dirs.config()).unwrap();
    for (wrong, why) in [("1h", "at least 1d"), ("a month", "no age")] {
        std::fs::write(daemon.dirs.config(), config.replace("30d", wrong)).unwrap();
        let doctor = || daemon.cli(&["doctor"]);
        linger_tests::harness::until("the configuration is refused", async || {
            let said = doctor().run().await.stdout;
            (said.contains("retention") && said.contains(why)).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_clock_that_jumps_deletes_nothing_ahead_back_and_ahead_again() {
    let model = ModelServer::with([Reply::text("Good day")]);
    let setup = Setup { top: "retention = \"90d\"", faulty: true, ..Setup::default() };
    let daemon = Daemon::start_with(&model, setup).await;
    let client = daemon.client().await;
    let (one, two) = (client.session().await, client.session().await);
    client.turn(&one, "hello").await;
    client.call("session/bin", json!({ "session": two })).await;
    assert_eq!(daemon.terminate(), Some(0));
    ran(&daemon, 0..=40);
    for days in [400, 0, -4000, 401, 800, 0] {
        daemon.launch_with(&[("LINGER_CLOCK".to_owned(), days.to_string())]).await;
        // The search has ended once the next session is there.
        let client = daemon.client().await;
        let made = client.session().await;
        client.call("session/remove", json!({ "session": made })).await;
        assert_eq!(binned(&daemon).await, std::slice::from_ref(&two), "{days} days");
        assert!(sessions(&daemon).contains(&one), "{days} days");
        assert_eq!(daemon.terminate(), Some(0));
    }
    assert!(!daemon.log().contains("[retention]"), "{}", daemon.log_tail());
}
