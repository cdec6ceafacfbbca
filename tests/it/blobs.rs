//! Files of blobs that others have changed, removed or put something else in the place of: none is served, each is named, and what
//! has the same bytes takes its place.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use linger_tests::harness::{Client, Daemon};
use linger_tests::model::{ModelServer, Reply};
use serde_json::{Value, json};

use crate::bash;
use crate::damage::{doctor, said, stop};

const PICTURE: &[u8] = b"\x89PNG\r\n\x1a\n and what comes then";

/// Sends the picture; gives its blob.
async fn show(client: &Client, session: &str) -> String {
    let image = json!({ "type": "image", "media_type": "image/png", "data": BASE64.encode(PICTURE) });
    let accepted = client.call("session/prompt", json!({ "session": session, "content": [image] })).await;
    let seen = client.wait("the prompt is there", |seen| {
        seen.events().find(|event| event.seq() == accepted["seq"].as_u64()).cloned()
    });
    let event = seen.await.event;
    client
        .wait("its turn ends", |seen| {
            let turns = seen.kinds(session).iter().filter(|kind| **kind == "turn_finished").count();
            let prompts = seen.kinds(session).iter().filter(|kind| **kind == "prompt_accepted").count();
            (turns == prompts).then_some(())
        })
        .await;
    event["content"][0]["blob"].as_str().unwrap().to_owned()
}

fn file_of(daemon: &Daemon, blob: &str) -> std::path::PathBuf {
    let digits = blob.strip_prefix("sha256:").unwrap();
    daemon.dirs.database().with_file_name("blobs").join(&digits[..2]).join(&digits[2..])
}

fn data(piece: &Value) -> Vec<u8> {
    BASE64.decode(piece["data"].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn other_bytes_of_the_same_length_are_not_served_and_the_right_ones_take_their_place() {
    let model = ModelServer::scripted(|_| Reply::text("a picture"));
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let blob = show(&client, &session).await;
    let get = json!({ "blob": blob });
    assert_eq!(data(&client.call("blob/get", get.clone()).await), PICTURE);
    let file = file_of(&daemon, &blob);
    let wrong: Vec<u8> = PICTURE.iter().map(|byte| byte ^ 1).collect();
    std::fs::write(&file, &wrong).unwrap();
    let refused = client.refused("blob/get", get.clone()).await;
    assert!(refused.code == -31021 && refused.message.contains("has other bytes than were stored"), "{refused:?}");
    assert_eq!(said(&client).await[0]["what"], "blob");
    doctor(&daemon, &[], false, "has other bytes than were stored").await;
    // Whoever has the right ones puts them there.
    model.expect_rewrites();
    assert_eq!(show(&client, &session).await, blob);
    assert_eq!(data(&client.call("blob/get", get).await), PICTURE);
    let beside: Vec<_> = file.parent().unwrap().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    let aside = beside.iter().find(|path| path.to_string_lossy().contains(".damaged-")).expect("the others are kept");
    assert_eq!(std::fs::read(aside).unwrap(), wrong);
    daemon.cli(&["doctor", "--repair"]).run().await;
    doctor(&daemon, &[], true, "completely readable").await;
    assert_eq!(data(&client.call("blob/get", json!({ "blob": blob })).await), PICTURE, "it is well, and stays");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn what_is_missing_is_named_and_given_up_by_a_repair() {
    let model = ModelServer::scripted(|_| Reply::text("a picture"));
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let blob = show(&client, &session).await;
    std::fs::remove_dir_all(daemon.dirs.database().with_file_name("blobs")).unwrap();
    doctor(&daemon, &[], false, "is missing").await;
    let repaired = daemon.cli(&["doctor", "--repair"]).run().await.exits(0);
    assert!(repaired.stdout.contains("✓ an image or an output was lost, and is used no more"), "{repaired:?}");
    assert!(repaired.stdout.contains("completely readable"), "{repaired:?}");
    let after = daemon.client().await;
    after.attach(&session).await;
    assert_eq!(after.refused("blob/get", json!({ "blob": blob })).await.code, -31023);
    let all: Vec<Value> = said(&after).await;
    assert!(all.iter().all(|damage| damage["hint"].is_null()), "nothing more can be done about it: {all:?}");
    model.expect_rewrites();
    after.prompt(&session, "and now?").await;
    after.nth(&session, "turn_finished", 2).await;
    assert_eq!(said(&after).await, all);
    assert_eq!(show(&after, &session).await, blob);
    assert_eq!(data(&after.call("blob/get", json!({ "blob": blob })).await), PICTURE);
    daemon.check(&[&client, &after], &model);
    stop(&daemon).await;
}

#[tokio::test]
async fn a_file_in_the_place_of_their_directory_is_moved_out_of_the_way() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let root = daemon.dirs.database().with_file_name("blobs");
    let _none_yet = std::fs::remove_dir_all(&root);
    std::fs::write(&root, "mine").unwrap();
    model.push([bash("seq 1 100000"), Reply::text("done")]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let whole = client.first(&session, "tool_finished").await;
    let piece = client.call("blob/get", json!({ "blob": whole.str("blob"), "length": 4 })).await;
    assert_eq!(data(&piece), b"1\n2\n");
    let beside = root.parent().unwrap().read_dir().unwrap().map(|entry| entry.unwrap().path());
    let aside = beside.into_iter().find(|path| path.to_string_lossy().contains("blobs.damaged-")).unwrap();
    assert_eq!(std::fs::read_to_string(aside).unwrap(), "mine");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn artifacts_lie_where_the_configuration_says_and_what_lies_elsewhere_is_told() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let file = daemon.workspace().join("notes.txt");
    std::fs::write(&file, "kept elsewhere").unwrap();
    let config = std::fs::read_to_string(daemon.dirs.config()).unwrap();
    let (here, disk) = (daemon.dirs.database().with_file_name("blobs"), daemon.dirs.root().join("disk"));
    let wanted = disk.join("linger");
    std::fs::write(daemon.dirs.config(), format!("blobs = {:?}\n{config}", wanted.display().to_string())).unwrap();
    stop(&daemon).await;
    daemon.launch().await;
    let told = async |words: &str| {
        let output = daemon.cli(&["doctor"]).run().await;
        assert!(output.stdout.contains(&format!("config.toml: blobs: {words}")), "{output:?}");
    };
    told(&format!("{} is not there", disk.display())).await;
    stop(&daemon).await;
    std::fs::create_dir(&disk).unwrap();
    daemon.launch().await;
    daemon.cli(&["artifact", "put", "notes.txt"]).run().await.exits(0);
    assert_eq!(std::fs::read_link(&here).unwrap(), wanted);
    assert!(std::fs::read_dir(&wanted).unwrap().flatten().any(|entry| entry.file_name().len() == 2), "a blob is there");
    // What a person has put into the link's place is theirs.
    stop(&daemon).await;
    std::fs::remove_file(&here).unwrap();
    std::fs::create_dir(&here).unwrap();
    std::fs::write(here.join("mine"), "").unwrap();
    daemon.launch().await;
    told(&format!("they lie in {}, not in {}", here.display(), wanted.display())).await;
    assert!(here.join("mine").is_file());
    daemon.check(&[], &model);
}
