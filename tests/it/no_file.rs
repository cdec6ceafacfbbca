//! What is no file where the daemon needs one: a directory, a pipe, a link. It is moved out of the way, and what it holds stays.

use std::path::Path;

use linger_tests::harness::{Daemon, Setup};
use linger_tests::model::ModelServer;

use crate::damage::{beside, doctor, said, stop, talk};

#[tokio::test]
async fn what_is_no_file_in_the_place_of_one_is_set_aside_and_nobody_waits_for_it() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let pipe =
        |path: &Path| rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let state = daemon.dirs.socket().parent().unwrap().to_path_buf();
    for part in ["", "-wal"] {
        let client = daemon.client().await;
        talk(&client, &model, &format!("name{part}"), 1).await;
        stop(&daemon).await;
        let (path, log) = (beside(&daemon.dirs.database(), part), state.join("lingerd.log"));
        std::fs::remove_file(&path).unwrap();
        pipe(&path);
        std::fs::remove_file(&log).unwrap();
        std::fs::create_dir(&log).unwrap();
        daemon.launch().await;
        doctor(&daemon, &["--repair"], true, &format!("linger.db{part} is not a file")).await;
        assert!(daemon.log().contains("ready"), "there is a log again");
    }
    assert_eq!(said(&daemon.client().await).await.len(), 2);
    stop(&daemon).await;
    let logs = std::fs::read_dir(&state).unwrap().flatten().map(|entry| entry.file_name());
    assert_eq!(logs.filter(|name| name.to_string_lossy().starts_with("lingerd.log.aside-")).count(), 2);
}

#[tokio::test]
async fn what_is_no_file_where_one_is_needed_to_start_is_moved_out_of_the_way() {
    let model = ModelServer::start();
    let daemon = Daemon::prepare(&model, Setup::default());
    let database = daemon.dirs.database();
    for start in ["first", "later"] {
        for part in [".new", ".new-wal", ".new-journal", "-journal", ".setting-aside"] {
            let dir = beside(&database, part);
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("one"), "precious").unwrap();
        }
        daemon.launch().await;
        talk(&daemon.client().await, &model, start, 1).await;
        assert_eq!(daemon.terminate(), Some(0));
        for entry in std::fs::read_dir(database.parent().unwrap()).unwrap().flatten() {
            if entry.path().is_dir() && entry.file_name().to_string_lossy().starts_with("linger.db") {
                assert_eq!(std::fs::read_to_string(entry.path().join("one")).unwrap(), "precious");
            }
        }
    }
    let names: Vec<_> =
        std::fs::read_dir(database.parent().unwrap()).unwrap().flatten().map(|e| e.file_name()).collect();
    let moved = |part: &str| {
        let name = format!("linger.db{part}.damaged-");
        names.iter().filter(|found| found.to_string_lossy().starts_with(&name)).count()
    };
    // A database that is there is not made.
    assert_eq!(
        [".new", ".new-wal", ".new-journal", "-journal", ".setting-aside"].map(moved),
        [1, 1, 1, 2, 2],
        "{names:?}"
    );
}

#[tokio::test]
async fn a_link_in_place_of_the_database_is_set_aside_and_not_what_it_leads_to() {
    let model = ModelServer::start();
    let daemon = Daemon::prepare(&model, Setup::default());
    let (database, pictures) = (daemon.dirs.database(), daemon.dirs.root().join("pictures"));
    std::fs::create_dir(&pictures).unwrap();
    std::fs::write(pictures.join("one"), "precious").unwrap();
    std::os::unix::fs::symlink(&pictures, &database).unwrap();
    daemon.launch().await;
    doctor(&daemon, &["--repair"], true, "linger.db is not a file").await;
    talk(&daemon.client().await, &model, "name", 1).await;
    assert!(database.symlink_metadata().unwrap().is_file(), "there is a database of its own");
    stop(&daemon).await;
    assert_eq!(std::fs::read_to_string(pictures.join("one")).unwrap(), "precious");
}
