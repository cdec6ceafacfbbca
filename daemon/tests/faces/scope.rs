//! Grants for some sessions, for a directory, and up to a mode.

use super::*;

#[tokio::test]
async fn nothing_that_is_for_a_users_own_processes_comes_with_a_token_and_modes_have_their_bound() {
    let dir = tempfile::tempdir().unwrap();
    let places = Places::below(dir.path()).unwrap();
    std::fs::create_dir_all(&places.config).unwrap();
    std::fs::write(places.config_file(), "mode = \"auto\"\n").unwrap();
    let daemon = Daemon::start_in(dir);
    let mut person = daemon.person().await;
    let all = ["speak", "steer", "answer_commands", "administer"];
    let mut usual = daemon.with(json!({ "name": "usual", "can": all })).await;
    let mut edit = daemon.with(json!({ "name": "edit", "can": all, "mode": "edit" })).await;
    let mode = async |person: &mut Lines, session: &str| {
        person.ok("session/list", json!({ "matching": session })).await[0]["mode"].as_str().unwrap().to_owned()
    };
    let session = usual.create(daemon.path(), json!({})).await;
    assert_eq!(mode(&mut person, &session).await, "ask", "the configuration says auto");
    let other = edit.create(daemon.path(), json!({})).await;
    assert_eq!(mode(&mut person, &other).await, "edit");
    let cwd = daemon.path();
    for more in [
        json!({ "mode": "edit" }),
        json!({ "mode": "auto" }),
        json!({ "env": { "PATH": "/evil" } }),
        json!({ "additional_directories": ["/"] }),
        json!({ "mcp_servers": [{ "server": "s", "command": "/bin/true" }] }),
    ] {
        let mut params = json!({ "cwd": cwd, "model": "demo" });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(usual.refused("session/create", params).await.0, Code::NotAllowed, "{more}");
    }
    for set in [
        json!({ "mode": "auto" }),
        json!({ "mode": "edit" }),
        json!({ "add_directories": ["/"] }),
        json!({ "mcp_servers": [] }),
    ] {
        let mut params = json!({ "session": session });
        params.as_object_mut().unwrap().extend(set.as_object().unwrap().clone());
        assert_eq!(usual.refused("session/set", params).await.0, Code::NotAllowed, "{set}");
    }
    edit.ok("session/set", json!({ "session": session, "mode": "edit" })).await;
    usual.ok("session/set", json!({ "session": session, "mode": "plan" })).await;
    usual.ok("session/set", json!({ "session": session, "mode": "ask" })).await;
    let prompt = json!({ "session": session, "content": "x", "env": { "A_SECRET": "x" } });
    assert_eq!(usual.refused("session/prompt", prompt).await.0, Code::NotAllowed);
    assert_eq!(usual.refused("daemon/keys", json!({ "keys": { "ANTHROPIC_API_KEY": "x" } })).await.0, Code::NotAllowed);
    assert_eq!(usual.refused("skill/list", json!({ "cwd": cwd, "path": "/etc/passwd" })).await.0, Code::NotAllowed);
    let unknown = usual.ask("session/nothing", json!({})).await;
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    // A fork is no way around the bound.
    let auto = person.create(cwd, json!({ "mode": "auto" })).await;
    person.ok("session/attach", json!({ "session": auto })).await;
    person.ok("session/prompt", json!({ "session": auto, "content": "say: one" })).await;
    person.event("turn_finished").await;
    assert_eq!(usual.ok("session/fork", json!({ "session": auto })).await["mode"], "ask");
    assert_eq!(edit.ok("session/fork", json!({ "session": auto })).await["mode"], "edit");
    // It gives tools back where its mode reaches, and only takes some away where it does not.
    for (of, gives) in [(&session, true), (&auto, false)] {
        usual.ok("session/set", json!({ "session": of, "tools": ["read", "grep"] })).await;
        usual.ok("session/set", json!({ "session": of, "tools": ["read"] })).await;
        let all = json!({ "session": of, "tools": ["*"] });
        if gives {
            usual.ok("session/set", all).await;
        } else {
            assert_eq!(usual.refused("session/set", all).await.0, Code::NotAllowed);
        }
    }
    let tools = person.ok("tool/list", json!({ "session": auto })).await;
    assert_eq!(tools.as_array().unwrap().len(), 1, "{tools}");
    // Steering is more than speaking.
    let mut speaks = daemon.with(json!({ "name": "speaks" })).await;
    let mut steers = daemon.with(json!({ "name": "steers", "can": ["steer"] })).await;
    let steer = json!({ "session": session, "content": "say: x", "when": "interrupt" });
    assert_eq!(speaks.refused("session/prompt", steer.clone()).await.0, Code::NotAllowed);
    assert_eq!(
        steers.refused("session/prompt", json!({ "session": session, "content": "x" })).await.0,
        Code::NotAllowed
    );
    steers.ok("session/prompt", steer).await;
    daemon.end().await;
}

#[tokio::test]
async fn a_grant_for_a_directory_has_what_lies_in_it_whatever_links_say() {
    let daemon = Daemon::start();
    let mut person = daemon.person().await;
    let root = daemon.path().canonicalize().unwrap();
    for dir in ["in/below", "inside", "out"] {
        std::fs::create_dir_all(root.join(dir)).unwrap();
    }
    std::os::unix::fs::symlink(root.join("out"), root.join("in/escape")).unwrap();
    std::os::unix::fs::symlink(root.join("in/below"), root.join("out/back")).unwrap();
    std::os::unix::fs::symlink(root.join("in"), root.join("link")).unwrap();
    let minted = person.ok("token/mint", json!({ "name": "in", "directory": root.join("link") })).await;
    assert_eq!(minted["grant"]["directory"], json!(root.join("in")), "without links");
    let inside = person.create(&root.join("in/below"), json!({})).await;
    let outside = person.create(&root.join("out"), json!({})).await;
    let beside = person.create(&root.join("inside"), json!({})).await;
    for session in [&inside, &outside, &beside] {
        person.ok("session/attach", json!({ "session": session })).await;
        person.ok("session/prompt", json!({ "session": session, "content": "say: needle" })).await;
        person.event("turn_finished").await;
    }
    let mut lines = daemon.hello(json!({ "token": minted["token"] })).await;
    for dir in ["out", "in/escape", "in/../out", "inside", "."] {
        let refused = lines.refused("session/create", json!({ "cwd": root.join(dir), "model": "demo" })).await;
        assert_eq!(refused.0, Code::NotAllowed, "{dir}");
        for method in ["tool/list", "skill/list", "mcp/list", "memory/list"] {
            assert_eq!(lines.refused(method, json!({ "cwd": root.join(dir) })).await.0, Code::NotAllowed, "{method}");
        }
    }
    let own = lines.create(&root.join("out/back"), json!({})).await;
    lines.ok("tool/list", json!({ "cwd": root.join("in") })).await;
    let mut expect = [inside.clone(), own.clone()];
    expect.sort();
    let listed = lines.ok("session/list", json!({ "limit": 2 })).await;
    let mut listed: Vec<&str> = listed.as_array().unwrap().iter().map(|row| row["session"].as_str().unwrap()).collect();
    listed.sort_unstable();
    assert_eq!(listed, expect, "a page is not emptied by what lies outside");
    let found = lines.ok("session/search", json!({ "text": "needle" })).await;
    assert!(found["rows"].as_array().unwrap().iter().all(|row| row["session"] == inside), "{found}");
    assert!(!found["rows"].as_array().unwrap().is_empty());
    for session in [&outside, &beside] {
        for (method, params) in [
            ("session/attach", json!({ "session": session })),
            ("session/prompt", json!({ "session": session, "content": "x" })),
            ("session/fork", json!({ "session": session })),
            ("session/cancel", json!({ "session": session })),
            ("session/env", json!({ "session": session })),
            ("session/prompts", json!({ "session": session })),
            ("events/subscribe", json!({ "sessions": [session] })),
        ] {
            assert_eq!(lines.refused(method, params).await.0, Code::NotAllowed, "{method}");
        }
    }
    assert_eq!(lines.refused("usage/list", json!({})).await.0, Code::NotAllowed, "the usage of all");
    assert_eq!(lines.refused("events/subscribe", json!({ "sessions": ["daemon"] })).await.0, Code::NotAllowed);
    // The stream has those that come later too, and no others.
    lines.ok("events/subscribe", json!({ "kinds": ["session_created"] })).await;
    let late = person.create(&root.join("in"), json!({})).await;
    person.create(&root.join("out"), json!({})).await;
    let last = person.create(&root.join("in"), json!({})).await;
    let mut seen = Vec::new();
    while seen.last() != Some(&last) {
        let next = lines.next().await.unwrap();
        seen.extend(next["params"]["session"].as_str().map(str::to_owned));
    }
    assert_eq!(seen, [inside, own, late, last]);
    daemon.end().await;
}

#[tokio::test]
async fn a_grant_for_some_sessions_has_their_children_and_no_cursor_of_others() {
    let daemon = Daemon::start();
    let mut person = daemon.person().await;
    let own = person.create(daemon.path(), json!({ "name": "own" })).await;
    let other = person.create(daemon.path(), json!({})).await;
    let parent = lingerd::service::Authority::Session(own.as_str().into());
    let mut session = Lines::over(daemon.connector.connect_as(parent).await.unwrap());
    let child = session.create(daemon.path(), json!({})).await;
    let mint = json!({ "name": "one", "can": ["speak", "answer_commands"], "sessions": [own] });
    let mut lines = daemon.with(mint).await;
    for (session, text) in [(&own, "run: touch made"), (&other, "run: touch other")] {
        person.ok("session/attach", json!({ "session": session })).await;
        person.ok("session/prompt", json!({ "session": session, "content": text })).await;
        person.event("permission_requested").await;
    }
    let mut listed: Vec<String> = lines
        .ok("session/list", json!({}))
        .await
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["session"].as_str().unwrap().to_owned())
        .collect();
    listed.sort();
    let mut tree = [own.clone(), child.clone()];
    tree.sort();
    assert_eq!(listed, tree);
    for method in ["permission/list", "question/list"] {
        let waiting = lines.ok(method, json!({})).await;
        assert!(
            waiting.as_array().unwrap().iter().all(|row| row["session"] == own) && waiting[0].is_object(),
            "{waiting}"
        );
        assert_eq!(lines.ok(method, json!({ "session": other })).await, json!([]));
    }
    let foreign = person.ok("permission/list", json!({ "session": other })).await[0]["permission"].take();
    let answer = json!({ "permission": foreign, "decision": "allow_once" });
    assert_eq!(lines.refused("permission/answer", answer).await.0, Code::NotAllowed);
    let cursor = person.ok("session/list", json!({ "matching": other })).await[0]["cursor"].take();
    assert_eq!(lines.refused("session/attach", json!({ "session": other, "after": cursor })).await.0, Code::NotAllowed);
    for session in [&own, &child] {
        lines.ok("session/attach", json!({ "session": session })).await;
    }
    for (method, params) in [
        ("session/create", json!({ "cwd": daemon.path(), "model": "demo" })),
        ("session/fork", json!({ "session": own })),
        ("tool/list", json!({ "cwd": daemon.path() })),
        ("session/attach", json!({ "session": "daemon" })),
    ] {
        assert_eq!(lines.refused(method, params).await.0, Code::NotAllowed, "{method}");
    }
    for session in [&own, &other] {
        person.ok("session/cancel", json!({ "session": session })).await;
    }
    daemon.end().await;
}

#[tokio::test]
async fn what_no_token_can_be_is_refused_by_name() {
    let daemon = Daemon::start();
    let mut person = daemon.person().await;
    for (mint, code) in [
        (json!({ "name": " " }), Code::BadName),
        (json!({ "name": "a\u{1b}b" }), Code::BadName),
        (json!({ "name": "x".repeat(61) }), Code::BadName),
        (json!({ "name": "x", "can": [] }), Code::BadValue),
        (json!({ "name": "x", "days": 0 }), Code::BadValue),
        (json!({ "name": "x", "days": 3651 }), Code::BadValue),
        (json!({ "name": "x", "sessions": [] }), Code::TooMuch),
        (json!({ "name": "x", "sessions": ["none"] }), Code::UnknownSession),
        (json!({ "name": "x", "sessions": ["daemon"] }), Code::UnknownSession),
        (json!({ "name": "x", "directory": "relative" }), Code::NoWorkspace),
        (json!({ "name": "x", "directory": daemon.path().join("none") }), Code::NoWorkspace),
    ] {
        assert_eq!(person.refused("token/mint", mint.clone()).await.0, code, "{mint}");
    }
    assert_eq!(person.ok("token/list", json!({})).await, json!([]));
    daemon.end().await;
}
