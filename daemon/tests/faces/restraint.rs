//! What a token is worth for a process that the daemon started or may have started, and what answers a grant allows.

use lingerd::service::Authority;
use lingerd::sys::peer::{self, Peer};

use super::*;

/// A session in mode `auto` whose command runs until it is cancelled, and the process of the command.
async fn tool(daemon: &Daemon) -> (String, u32) {
    let mut person = daemon.person().await;
    let session = person.create(daemon.path(), json!({ "mode": "auto" })).await;
    person.ok("session/attach", json!({ "session": session })).await;
    person.ok("session/prompt", json!({ "session": session, "content": "run: echo $$; exec sleep 1000" })).await;
    let output = person.event("tool_output_delta").await;
    (session, output["text"].as_str().unwrap().trim().parse().unwrap())
}

fn peer(pid: u32) -> Authority {
    Authority::Peer(Peer { pid: Some(pid), began: peer::started(pid), uid: peer::user(pid).unwrap() })
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_tool_with_a_stolen_token_reads_and_changes_nothing_on_the_socket_and_behind_a_face() {
    let daemon = Daemon::start();
    let mut person = daemon.person().await;
    let (session, pid) = tool(&daemon).await;
    let asks = person.create(daemon.path(), json!({})).await;
    person.ok("session/attach", json!({ "session": asks })).await;
    person.ok("session/prompt", json!({ "session": asks, "content": "run: touch made" })).await;
    let permission = person.event("permission_requested").await["permission"].take();
    let minted = person.ok("token/mint", json!({ "name": "stolen", "can": ["administer"], "mode": "auto" })).await;
    let code = person.ok("token/mint", json!({ "name": "code", "once": true })).await;

    let mut own = Lines::over(daemon.connector.connect_as(peer(pid)).await.unwrap());
    assert_eq!(own.refused("token/mint", json!({ "name": "mine" })).await.0, Code::NotAllowed);
    assert_eq!(own.refused("token/exchange", json!({ "code": code["token"] })).await.0, Code::NotAllowed);
    own.hello(json!({ "token": minted["token"] })).await.unwrap();
    let behind = daemon.hello(json!({ "token": minted["token"], "behind": { "pid": pid } })).await;
    let me = daemon.hello(json!({ "token": minted["token"], "behind": { "pid": std::process::id() } })).await;
    for mut lines in [own, behind, me] {
        assert_eq!(lines.ok("session/list", json!({})).await.as_array().unwrap().len(), 2);
        assert_eq!(lines.ok("permission/list", json!({})).await[0]["permission"], permission);
        for (method, params) in [
            ("permission/answer", json!({ "permission": permission, "decision": "allow_once" })),
            ("permission/answer", json!({ "permission": permission, "decision": "reject_once" })),
            ("question/answer", json!({ "question": permission, "answer": "allow_once" })),
            ("session/prompt", json!({ "session": session, "content": "run: touch made" })),
            ("session/prompt", json!({ "session": asks, "content": "x", "when": "steer" })),
            ("session/create", json!({ "cwd": daemon.path(), "model": "demo" })),
            ("session/set", json!({ "session": asks, "mode": "auto" })),
            ("session/cancel", json!({ "session": asks })),
            ("session/fork", json!({ "session": session })),
            ("session/remove", json!({ "session": asks, "force": true })),
            ("daemon/stop", json!({ "force": true })),
            ("token/mint", json!({ "name": "another" })),
            ("token/list", json!({})),
            ("config/set", json!({ "name": "mode", "value": "auto" })),
        ] {
            assert_eq!(lines.refused(method, params).await.0, Code::NotAllowed, "{method}");
        }
    }
    person.ok("session/cancel", json!({ "session": session })).await;
    person.ok("session/cancel", json!({ "session": asks })).await;
    daemon.end().await;
}

#[tokio::test]
async fn a_face_for_another_users_process_speaks_and_neither_answers_nor_loosens() {
    let daemon = Daemon::start();
    let mut person = daemon.person().await;
    let asks = person.create(daemon.path(), json!({})).await;
    let auto = person.create(daemon.path(), json!({ "mode": "auto" })).await;
    person.ok("session/attach", json!({ "session": asks })).await;
    let minted = person.ok("token/mint", json!({ "name": "page", "can": ["administer"], "mode": "auto" })).await;
    // Another user's process, and one of another container.
    let other = json!({ "token": minted["token"], "behind": { "user": rustix::process::geteuid().as_raw() + 1 } });
    let elsewhere = Authority::Peer(Peer { pid: None, began: None, uid: 0 });
    let mut far = Lines::over(daemon.connector.connect_as(elsewhere).await.unwrap());
    far.hello(json!({ "token": minted["token"] })).await.unwrap();
    for mut lines in [daemon.hello(other).await, far] {
        lines.ok("session/prompt", json!({ "session": asks, "content": "run: touch made" })).await;
        let permission = person.event("permission_requested").await["permission"].take();
        let made = lines.create(daemon.path(), json!({})).await;
        for (method, params) in [
            ("permission/answer", json!({ "permission": permission, "decision": "allow_once" })),
            ("session/prompt", json!({ "session": auto, "content": "run: touch made" })),
            ("session/continue", json!({ "session": auto })),
            ("session/set", json!({ "session": made, "mode": "ask" })),
            ("session/create", json!({ "cwd": daemon.path(), "model": "demo", "mode": "edit" })),
            ("session/remove", json!({ "session": made })),
            ("daemon/stop", json!({ "force": true })),
            ("token/list", json!({})),
        ] {
            assert_eq!(lines.refused(method, params).await.0, Code::NotAllowed, "{method}");
        }
        lines.ok("session/set", json!({ "session": made, "effort": "low" })).await;
        lines.ok("session/cancel", json!({ "session": asks })).await;
        person.event("turn_finished").await;
    }
    // A stranger is a user.
    let stranger = json!({ "pid": std::os::unix::process::parent_id() });
    let mut lines = daemon.hello(json!({ "token": minted["token"], "behind": stranger })).await;
    lines.ok("session/prompt", json!({ "session": asks, "content": "run: touch made" })).await;
    let permission = person.event("permission_requested").await["permission"].take();
    let resolved = async |person: &mut Lines| person.event("permission_resolved").await;
    lines.ok("permission/answer", json!({ "permission": permission, "decision": "allow_once" })).await;
    assert_eq!(resolved(&mut person).await["by"], "page", "the grant's name");
    person.event("turn_finished").await;
    assert!(daemon.path().join("made").exists());
    daemon.end().await;
}

#[tokio::test]
async fn a_process_that_cannot_be_told_from_a_tool_only_reads_and_uses_no_code_up() {
    let daemon = Daemon::start();
    let mut person = daemon.person().await;
    let asks = person.create(daemon.path(), json!({})).await;
    let token = person.ok("token/mint", json!({ "name": "found", "can": ["administer"], "mode": "auto" })).await;
    let code = person.ok("token/mint", json!({ "name": "page", "can": ["answer_commands"], "once": true })).await;
    let looks = person.ok("token/mint", json!({ "name": "looks", "can": ["observe"], "once": true })).await;
    let own = rustix::process::geteuid().as_raw();
    // Nothing is known; it has ended, or hides; its number is another process's now.
    let behind = [json!({}), json!({ "pid": i32::MAX }), json!({ "pid": 0 }), json!({ "user": own })];
    let reused = Peer { pid: Some(std::os::unix::process::parent_id()), began: Some(1), uid: own };
    let ended = Peer { pid: Some(i32::MAX as u32), began: Some(1), uid: own };
    let mut connections = Vec::new();
    for behind in behind {
        let mut codes = daemon.hello(json!({ "behind": behind })).await;
        for code in [&code, &looks] {
            let (refused, text) = codes.refused("token/exchange", json!({ "code": code["token"] })).await;
            assert_eq!(refused, Code::NotAllowed, "{behind}: {text}");
        }
        connections.push(daemon.hello(json!({ "token": token["token"], "behind": behind })).await);
    }
    for peer in [reused, ended] {
        let mut lines = Lines::over(daemon.connector.connect_as(Authority::Peer(peer)).await.unwrap());
        let refused = lines.refused("token/exchange", json!({ "code": code["token"] })).await;
        assert_eq!(refused.0, Code::NotAllowed, "{peer:?}: {}", refused.1);
        lines.hello(json!({ "token": token["token"] })).await.unwrap();
        connections.push(lines);
    }
    for mut lines in connections {
        assert_eq!(lines.ok("session/list", json!({})).await.as_array().unwrap().len(), 1);
        for (method, params) in [
            ("session/prompt", json!({ "session": asks, "content": "run: touch made" })),
            ("session/prompt", json!({ "session": asks, "content": "x", "when": "steer" })),
            ("session/create", json!({ "cwd": daemon.path(), "model": "demo" })),
            ("session/set", json!({ "session": asks, "effort": "low" })),
            ("session/cancel", json!({ "session": asks })),
            ("completion/start", json!({ "model": "demo", "messages": [] })),
            ("artifact/begin", json!({ "name": "x" })),
        ] {
            assert_eq!(lines.refused(method, params).await.0, Code::NotAllowed, "{method}");
        }
    }
    // The codes are as good as before: for a user's process, and one that only looks for another user's proxy.
    let mut proxy = daemon.hello(json!({ "behind": { "user": own + 1 } })).await;
    assert_eq!(proxy.refused("token/exchange", json!({ "code": code["token"] })).await.0, Code::NotAllowed);
    proxy.ok("token/exchange", json!({ "code": looks["token"] })).await;
    let mut mine = daemon.hello(json!({ "behind": { "pid": std::os::unix::process::parent_id() } })).await;
    assert_eq!(mine.ok("token/exchange", json!({ "code": code["token"] })).await["grant"]["name"], "page");
    daemon.end().await;
}

#[tokio::test]
async fn only_a_users_process_is_the_gateway_and_only_while_it_is_connected() {
    let daemon = Daemon::start();
    let (mut person, (session, pid)) = (daemon.person().await, tool(&daemon).await);
    let known = async |person: &mut Lines| person.ok("daemon/status", json!({})).await["gateway"].take();
    let says = |listen: &str| json!({ "gateway": { "pid": 1, "listen": listen, "version": "0", "started_at": 0 } });
    let token = person.ok("token/mint", json!({ "name": "found", "can": ["administer"] })).await["token"].take();
    let dead = Peer { pid: Some(i32::MAX as u32), began: Some(1), uid: rustix::process::geteuid().as_raw() };
    for authority in [peer(pid), Authority::Peer(dead), Authority::Session(session.as_str().into())] {
        let mut lines = Lines::over(daemon.connector.connect_as(authority).await.unwrap());
        assert_eq!(lines.hello(says("127.0.0.1:6")).await.unwrap_err()["code"], Code::NotAllowed as i64);
    }
    let mut with_token = says("127.0.0.1:6");
    with_token["token"] = token;
    assert_eq!(daemon.person().await.hello(with_token).await.unwrap_err()["code"], Code::NotAllowed as i64);
    assert_eq!(known(&mut person).await, Value::Null);
    let mut first = daemon.hello(says("127.0.0.1:7")).await;
    let second = daemon.hello(says("127.0.0.1:8")).await;
    assert_eq!(known(&mut person).await["listen"], "127.0.0.1:8", "the one that came last");
    drop(second);
    while known(&mut person).await["listen"] != "127.0.0.1:7" {
        first.ok("mode/list", json!({})).await;
    }
    person.ok("session/cancel", json!({ "session": session })).await;
    daemon.end().await;
}

#[tokio::test]
async fn a_token_answers_what_its_grant_is_for_and_never_what_the_daemon_asks() {
    let daemon = Daemon::start();
    let mut person = daemon.person().await;
    let work = daemon.path().join("work");
    std::fs::create_dir(&work).unwrap();
    std::os::unix::fs::symlink(daemon.path(), work.join("out")).unwrap();
    let session = person.create(&work, json!({})).await;
    person.ok("session/attach", json!({ "session": session })).await;
    let mut edits = daemon.with(json!({ "name": "edits", "can": ["answer_edits"] })).await;
    let mut speaks = daemon.with(json!({ "name": "speaks" })).await;
    let mut commands = daemon.with(json!({ "name": "commands", "can": ["answer_commands"] })).await;
    let decide = |permission: &Value, decision: &str| json!({ "permission": permission, "decision": decision });
    for (prompt, is_edit) in [
        ("write: inside.txt x", true),
        ("write: ../outside.txt x", false),
        ("write: out/outside.txt x", false),
        ("write: .git/config x", false),
        ("write: .linger/config.toml x", false),
        ("run: touch made", false),
    ] {
        person.ok("session/prompt", json!({ "session": session, "content": prompt })).await;
        let permission = person.event("permission_requested").await["permission"].take();
        assert_eq!(speaks.refused("permission/answer", decide(&permission, "allow_once")).await.0, Code::NotAllowed);
        for lines in [&mut edits, &mut commands] {
            let refused = lines.refused("permission/answer", decide(&permission, "allow_always")).await;
            assert_eq!(refused.0, Code::NotAllowed, "{prompt}: a rule of the configuration");
        }
        if is_edit {
            edits.ok("permission/answer", decide(&permission, "allow_once")).await;
        } else {
            for decision in ["allow_once", "allow_session", "reject_once"] {
                let refused = edits.refused("permission/answer", decide(&permission, decision)).await;
                assert_eq!(refused.0, Code::NotAllowed, "{prompt}: {decision}");
            }
            commands.ok("question/answer", json!({ "question": permission, "answer": "reject_once" })).await;
        }
        assert_eq!(person.event("permission_resolved").await["by"], if is_edit { "edits" } else { "commands" });
        person.event("turn_finished").await;
    }
    assert!(work.join("inside.txt").exists() && !daemon.path().join("outside.txt").exists());

    // The plan of a session in mode `plan`: its answer sets a mode.
    person.ok("session/set", json!({ "session": session, "mode": "plan", "name": "planned" })).await;
    person.ok("session/prompt", json!({ "session": session, "content": "say: the plan" })).await;
    let question = person.event("question_asked").await["question"].take();
    let refused = edits.refused("question/answer", json!({ "question": question, "answer": "edit" })).await;
    assert_eq!(refused.0, Code::NotAllowed, "{}", refused.1);
    edits.ok("question/answer", json!({ "question": question, "answer": "not_yet" })).await;

    // The daemon's own: a change of the configuration.
    let mut admin = daemon.with(json!({ "name": "admin", "can": ["administer"], "mode": "auto" })).await;
    let places = Places::below(daemon.path()).unwrap();
    std::fs::write(places.config_file(), "mode = \"auto\"\n").unwrap();
    person.ok("events/subscribe", json!({ "sessions": ["daemon"] })).await;
    let question = person.event("question_asked").await["question"].take();
    for lines in [&mut edits, &mut commands, &mut admin] {
        let refused = lines.refused("question/answer", json!({ "question": question, "answer": "confirm" })).await;
        assert_eq!(refused.0, Code::NotAllowed, "{}", refused.1);
        assert_eq!(lines.refused("config/confirm", json!({ "digest": "x" })).await.0, Code::NotAllowed);
    }
    daemon.end().await;
}

/// The methods that a process of a tool may ask for without a token: what they read is of its own session, or of none.
const OF_TOOLS: [&str; 12] = [
    "daemon/hello",
    "daemon/status",
    "mode/list",
    "session/list",
    "session/detach",
    "events/subscribe",
    "events/unsubscribe",
    "session/search",
    "completion/cancel",
    "blob/get",
    "permission/list",
    "question/list",
];

#[cfg(target_os = "linux")]
#[tokio::test]
async fn of_all_methods_a_tool_without_a_token_is_refused_those_of_other_sessions_and_those_that_change() {
    let daemon = Daemon::start();
    let mut person = daemon.person().await;
    let (session, pid) = tool(&daemon).await;
    let asks = person.create(daemon.path(), json!({})).await;
    person.ok("session/attach", json!({ "session": asks })).await;
    person.ok("session/prompt", json!({ "session": asks, "content": "run: touch made" })).await;
    let permission = person.event("permission_requested").await["permission"].take();
    let mut own = Lines::over(daemon.connector.connect_as(peer(pid)).await.unwrap());
    // What any method needs; a field that it does not know does no harm.
    let all = json!({
        "session": asks, "cwd": daemon.path(), "content": "run: touch made", "model": "demo", "name": "n", "older_than_ms": 0,
        "force": true, "permission": permission, "decision": "allow_once", "question": permission, "answer": "allow_once",
        "messages": [], "upload": "u", "offset": 0, "data": "", "id": "i", "provider": "anthropic", "secret": "x",
        "digest": "sha256:0", "value": "auto", "text": "x", "workspace": daemon.path(), "server": "s",
        "redirect": "http://127.0.0.1:1/", "login": "l", "code": "c", "state": "s", "uri": "u", "call": "ls",
        "rule": "bash", "prompt": "p", "keys": {},
    });
    for (whose, reads) in [(&asks, true), (&session, false)] {
        let mut params = all.clone();
        params["session"] = json!(whose);
        let mut passed = Vec::new();
        for (method, need) in methods() {
            // What only reads, a tool may ask of its own session.
            if OF_TOOLS.contains(&method) || (need == Right::Can(Can::Observe) && !reads) {
                continue;
            }
            let mut answer = own.ask(method, params.clone()).await;
            if answer["error"]["data"]["path"] == "text" {
                // There it says whether a text is wanted.
                let mut params = params.clone();
                params["text"] = json!(true);
                answer = own.ask(method, params).await;
            }
            if answer["error"]["code"] != Code::NotAllowed as i64 {
                passed.push((method, answer));
            }
        }
        assert_eq!(passed, [], "of {whose}");
    }
    assert!(!daemon.path().join("made").exists());
    person.ok("session/cancel", json!({ "session": session })).await;
    person.ok("session/cancel", json!({ "session": asks })).await;
    daemon.end().await;
}
