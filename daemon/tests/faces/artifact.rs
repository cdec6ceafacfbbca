//! Artifacts: put in pieces, read by range, named in prompts, deleted with their bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::{Digest as _, Sha256};

use super::*;

/// The beginning of a PNG of one pixel, which is enough to be taken for one.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0";

impl Lines {
    async fn put(&mut self, name: &str, bytes: &[u8]) -> Value {
        let upload = self.ok("artifact/begin", json!({ "name": name })).await["upload"].take();
        for (n, piece) in bytes.chunks(1 << 20).enumerate() {
            let offset = n << 20;
            let params = json!({ "upload": upload, "offset": offset, "data": BASE64.encode(piece) });
            let written = self.ok("artifact/write", params).await;
            assert_eq!(written["size"], offset + piece.len());
        }
        self.ok("artifact/finish", json!({ "upload": upload })).await
    }

    async fn bytes(&mut self, id: &Value) -> Vec<u8> {
        let (mut bytes, mut offset) = (Vec::new(), json!(0));
        while !offset.is_null() {
            let mut piece = self.ok("artifact/read", json!({ "id": id, "offset": offset })).await;
            bytes.extend(BASE64.decode(piece["data"].as_str().unwrap()).unwrap());
            offset = piece["next"].take();
        }
        bytes
    }
}

#[tokio::test]
async fn what_was_put_is_read_by_range_survives_the_daemon_and_goes_with_its_bytes() {
    let daemon = Daemon::start();
    let mut person = daemon.person().await;
    let content: Vec<u8> = (0..2_500_000_u32).map(|n| (n % 251) as u8).collect();
    let one = person.put("data.bin", &content).await;
    let hash = Sha256::digest(&content).iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    assert_eq!((&one["size"], &one["sha256"]), (&json!(content.len()), &json!(hash)));
    assert_eq!(
        (one["name"].as_str(), one["content_type"].as_str()),
        (Some("data.bin"), Some("application/octet-stream"))
    );
    let two = person.put("same.bin", &content).await;
    assert_ne!(one["id"], two["id"]);
    let empty = person.put("empty", b"").await;
    let dir = daemon.end().await;
    let daemon = Daemon::start_in(dir);
    let mut person = daemon.person().await;
    assert_eq!(person.bytes(&one["id"]).await, content);
    assert_eq!(person.bytes(&empty["id"]).await, b"");
    let range = json!({ "id": one["id"], "offset": 250, "length": 3 });
    assert_eq!(person.ok("artifact/read", range).await["data"], BASE64.encode([250, 0, 1]));
    assert_eq!(person.ok("artifact/get", json!({ "id": one["id"] })).await, one);
    let listed = person.ok("artifact/list", json!({ "limit": 2 })).await;
    let rest = person.ok("artifact/list", json!({ "before": listed[1] })).await;
    let mut ids: Vec<&Value> =
        listed.as_array().unwrap().iter().chain(rest.as_array().unwrap()).map(|it| &it["id"]).collect();
    ids.sort_by_key(ToString::to_string);
    let mut expect = [&one["id"], &two["id"], &empty["id"]];
    expect.sort_by_key(ToString::to_string);
    assert_eq!(ids, expect);

    let file = daemon.path().join("data/blobs").join(&hash[..2]).join(&hash[2..]);
    person.ok("artifact/delete", json!({ "id": one["id"] })).await;
    assert_eq!(person.bytes(&two["id"]).await, content, "another one has the same bytes");
    person.ok("artifact/delete", json!({ "id": two["id"] })).await;
    assert_eq!(person.refused("artifact/get", json!({ "id": two["id"] })).await.0, Code::UnknownArtifact);
    assert_eq!(person.refused("artifact/delete", json!({ "id": two["id"] })).await.0, Code::UnknownArtifact);
    let dir = daemon.end().await;
    // What no time was left for is done after the next start.
    let daemon = Daemon::start_in(dir);
    let gone = async {
        while file.exists() {
            daemon.person().await.ok("daemon/status", json!({})).await;
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, gone).await.unwrap();
    daemon.end().await;
}

#[tokio::test]
async fn an_upload_belongs_to_its_connection_and_bad_input_says_what_is_wrong() {
    let daemon = Daemon::start();
    let (mut person, mut other) = (daemon.person().await, daemon.person().await);
    for (params, code) in [
        (json!({ "name": "a/b" }), Code::BadName),
        (json!({ "name": ".." }), Code::BadName),
        (json!({ "name": "" }), Code::BadName),
        (json!({ "name": "a\nb" }), Code::BadName),
        (json!({ "content_type": "text" }), Code::BadValue),
        (json!({ "content_type": "text/plain\r\nX: y" }), Code::BadValue),
        (json!({ "size": (64 << 20) + 1 }), Code::TooMuch),
    ] {
        assert_eq!(person.refused("artifact/begin", params.clone()).await.0, code, "{params}");
    }
    let upload = person.ok("artifact/begin", json!({})).await["upload"].take();
    let write = |offset: u64, data: &str| json!({ "upload": upload, "offset": offset, "data": data });
    assert_eq!(other.refused("artifact/write", write(0, "eA==")).await.0, Code::UnknownArtifact);
    assert_eq!(other.refused("artifact/finish", json!({ "upload": upload })).await.0, Code::UnknownArtifact);
    assert_eq!(person.refused("artifact/write", write(0, "no base64")).await.0, Code::BadValue);
    person.ok("artifact/write", write(0, "eA==")).await;
    assert_eq!(person.refused("artifact/write", write(0, "eA==")).await.0, Code::BadValue, "twice");
    let large = BASE64.encode(vec![0; (1 << 20) + 1]);
    assert_eq!(person.refused("artifact/write", write(1, &large)).await.0, Code::TooMuch);
    let wrong = json!({ "upload": upload, "sha256": "00" });
    assert_eq!(person.refused("artifact/finish", wrong).await.0, Code::WrongDigest);
    assert_eq!(person.refused("artifact/finish", json!({ "upload": upload })).await.0, Code::UnknownArtifact);
    for _ in 0..8 {
        person.ok("artifact/begin", json!({})).await;
    }
    assert_eq!(person.refused("artifact/begin", json!({})).await.0, Code::TooMuch);
    assert_eq!(person.ok("artifact/list", json!({})).await, json!([]));
    daemon.end().await;
}

#[tokio::test]
async fn a_prompt_that_names_an_artifact_has_its_text_or_its_picture() {
    let daemon = Daemon::start();
    let mut person = daemon.person().await;
    let session = person.create(daemon.path(), json!({})).await;
    person.ok("session/attach", json!({ "session": session })).await;
    let text = person.put("notes.txt", "größer".as_bytes()).await["id"].take();
    let picture = person.put("p.png", PNG).await;
    let other = person.put("x.bin", b"a\0b").await["id"].take();
    let long = person.put("long.txt", &vec![b'x'; (96 << 10) + 1]).await["id"].take();
    let (text, id) = (text.as_str().unwrap(), picture["id"].as_str().unwrap());
    let content = format!("say: look at artifact:{text} and artifact:{id}, and artifact:{text} again");
    person.ok("session/prompt", json!({ "session": session, "content": content })).await;
    let accepted = person.event("prompt_accepted").await;
    let blocks = accepted["content"].as_array().unwrap();
    assert_eq!(blocks.len(), 3, "{accepted}");
    assert_eq!(blocks[0]["text"], content);
    assert_eq!(blocks[1]["text"], format!("<file artifact=\"{text}\" name=\"notes.txt\">\ngrößer\n</file>"));
    assert_eq!(blocks[2]["media_type"], "image/png");
    assert_eq!(blocks[2]["blob"], format!("sha256:{}", picture["sha256"].as_str().unwrap()));
    person.event("turn_finished").await;
    for (bad, code) in [
        (other.as_str().unwrap(), Code::BadPrompt),
        (long.as_str().unwrap(), Code::BadPrompt),
        ("00000000-0000-4000-8000-000000000000", Code::UnknownArtifact),
    ] {
        let prompt = json!({ "session": session, "content": format!("artifact:{bad}") });
        assert_eq!(person.refused("session/prompt", prompt).await.0, code, "{bad}");
    }
    // The session keeps the picture when the artifact is gone.
    person.ok("artifact/delete", json!({ "id": id })).await;
    person.ok("blob/get", json!({ "blob": blocks[2]["blob"] })).await;
    daemon.end().await;
}

#[tokio::test]
async fn a_token_deletes_what_came_by_it_and_one_for_a_directory_sees_no_other() {
    let daemon = Daemon::start();
    let mut person = daemon.person().await;
    let theirs = person.put("theirs", b"1").await["id"].take();
    let mut speaks = daemon.with(json!({ "name": "speaks" })).await;
    let mut narrow = daemon.with(json!({ "name": "narrow", "directory": daemon.path() })).await;
    let mut reads = daemon.with(json!({ "name": "reads", "can": ["observe"] })).await;
    let own = speaks.put("own", b"2").await;
    assert_eq!(own["by"], "speaks");
    let small = narrow.put("small", b"3").await["id"].take();
    assert_eq!(speaks.refused("artifact/delete", json!({ "id": theirs })).await.0, Code::NotAllowed);
    assert_eq!(reads.refused("artifact/begin", json!({})).await.0, Code::NotAllowed);
    assert_eq!(reads.refused("artifact/delete", json!({ "id": theirs })).await.0, Code::NotAllowed);
    assert_eq!(reads.bytes(&theirs).await, b"1");
    assert_eq!(narrow.ok("artifact/list", json!({})).await.as_array().unwrap().len(), 1);
    for id in [&theirs, &own["id"]] {
        assert_eq!(narrow.refused("artifact/read", json!({ "id": id })).await.0, Code::UnknownArtifact);
    }
    narrow.ok("artifact/delete", json!({ "id": small })).await;
    speaks.ok("artifact/delete", json!({ "id": own["id"] })).await;
    let mut admin = daemon.with(json!({ "name": "admin", "can": ["administer"] })).await;
    admin.ok("artifact/delete", json!({ "id": theirs })).await;
    assert_eq!(person.ok("artifact/list", json!({})).await, json!([]));
    daemon.end().await;
}
