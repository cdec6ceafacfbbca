//! The checker against traces that were made up: a good one passes, and every planted fault is found.

use super::database::Row;
use super::*;

const SESSION: &str = "s1";

/// The log of a turn with a permission and a tool, as the daemon would store it.
fn log() -> Vec<String> {
    [
        r#"{"kind":"session_created","seq":1,"at":1,"cwd":"/w","model":"work/m","mode":"ask"}"#,
        r#"{"kind":"prompt_accepted","seq":2,"at":2,"prompt":"p1","content":[{"type":"text","text":"go"}],"when":"queue"}"#,
        r#"{"kind":"turn_started","seq":3,"at":3,"turn":"t1","prompt":"p1"}"#,
        r#"{"kind":"message","seq":4,"at":4,"turn":"t1","message":"m1","role":"user","prompt":"p1","content":[{"type":"text","text":"go"}]}"#,
        r#"{"kind":"message","seq":5,"at":5,"turn":"t1","message":"m2","role":"assistant","interrupted":true,"content":[{"type":"text","text":"Good d"}]}"#,
        r#"{"kind":"message_superseded","seq":6,"at":6,"turn":"t1","message":"m2"}"#,
        r#"{"kind":"message","seq":7,"at":7,"turn":"t1","message":"m3","role":"assistant","content":[{"type":"text","text":"Good day"},{"type":"tool_use","call_id":"c1","name":"bash","input":{"command":"ls"}}]}"#,
        r#"{"kind":"permission_requested","seq":8,"at":8,"turn":"t1","permission":"q1","call_id":"c1","tool":"bash","action":"ls","input":{"command":"ls"},"cwd":"/w","digest":"sha256:1","rule":null,"grant":"bash(ls)","options":["allow_once"]}"#,
        r#"{"kind":"permission_resolved","seq":9,"at":9,"turn":"t1","permission":"q1","decision":"allow_once","by":"a"}"#,
        r#"{"kind":"tool_started","seq":10,"at":10,"turn":"t1","call_id":"c1","tool":"bash","action":"ls"}"#,
        r#"{"kind":"tool_finished","seq":11,"at":11,"turn":"t1","call_id":"c1","is_error":false,"outcome":"ran","content":[{"type":"text","text":"abcdef"}],"output":[{"block":0,"offset":0}],"ms":1}"#,
        r#"{"kind":"message","seq":12,"at":12,"turn":"t1","message":"m4","role":"user","content":[{"type":"tool_result","call_id":"c1","content":[{"type":"text","text":"abcdef"}]}]}"#,
        r#"{"kind":"message","seq":13,"at":13,"turn":"t1","message":"m5","role":"assistant","content":[{"type":"text","text":"done"}]}"#,
        r#"{"kind":"turn_finished","seq":14,"at":14,"turn":"t1","stop_reason":"end_turn","usage":{},"steps":2}"#,
    ]
    .map(str::to_owned)
    .to_vec()
}

fn seen(cursor: &str, raw: &str) -> Entry {
    Entry::Event(Seen::new(SESSION, cursor, raw))
}

fn text(cursor: &str, message: &str, offset: usize, text: &str) -> Entry {
    let raw =
        format!(r#"{{"kind":"text_delta","message":"{message}","block":0,"offset":{offset},"text":"{text}","at":1}}"#);
    seen(cursor, &raw)
}

fn call(offset: usize, text: &str) -> Entry {
    let head = r#""kind":"tool_call_delta","message":"m3","block":1,"call_id":"c1","name":"bash""#;
    seen("6+m3", &format!("{{{head},\"offset\":{offset},\"text\":{},\"at\":1}}", serde_json::Value::from(text)))
}

fn output(offset: usize, text: &str) -> Entry {
    seen("10+c1", &format!(r#"{{"kind":"tool_output_delta","call_id":"c1","offset":{offset},"text":"{text}","at":1}}"#))
}

/// A client that was there from the beginning.
fn client(log: &[String]) -> Transcript {
    let mut entries = vec![Entry::Attached { session: SESSION.into(), after: None, deltas: true }];
    entries.push(Entry::Accepted { session: SESSION.into(), prompt: "p1".into(), seq: 2, key: Some("k".into()) });
    for raw in log {
        let seq = Row::new(raw).seq;
        match seq {
            5 => entries.extend([text("4+m2", "m2", 0, "Good"), text("4+m2", "m2", 4, " d")]),
            7 => entries.extend([
                text("6+m3", "m3", 0, "Good d"),
                text("6+m3", "m3", 6, "ay"),
                call(0, "{\"command\":"),
                call(11, "\"ls\"}"),
            ]),
            11 => entries.extend([output(0, "ab"), output(4, "ef")]),
            13 => entries.push(text("12+m5", "m5", 0, "done")),
            _ => {}
        }
        entries.push(seen(&seq.to_string(), raw));
    }
    entries.push(Entry::Won {
        permission: "q1".into(),
        decision: "allow_once".into(),
        digest: Some("sha256:1".into()),
        key: None,
    });
    Transcript(entries)
}

fn trace_of(log: &[String]) -> Trace {
    let mut trace = Trace { clients: vec![client(log)], settled: true, ..Trace::default() };
    trace.stored.0.insert(SESSION.into(), log.iter().map(|raw| Row::new(raw)).collect());
    trace
}

fn good() -> Trace {
    trace_of(&log())
}

/// The good log with one event written differently, as stored and as seen.
fn with(seq: usize, from: &str, to: &str) -> Trace {
    let mut log = log();
    assert!(log[seq - 1].contains(from), "nothing to replace in {}", log[seq - 1]);
    log[seq - 1] = log[seq - 1].replace(from, to);
    trace_of(&log)
}

/// The good log with an event added after `seq`, the rest renumbered.
fn with_extra(seq: usize, extra: &str) -> Trace {
    let mut log = log();
    log.insert(seq, extra.to_owned());
    let renumber = |(n, raw): (usize, &String)| {
        let old = Row::new(raw).seq;
        raw.replacen(&format!("\"seq\":{old},"), &format!("\"seq\":{},", n + 1), 1)
    };
    let log: Vec<String> = log.iter().enumerate().map(renumber).collect();
    let mut trace = trace_of(&log);
    // Deltas are placed by number: leave them out.
    trace.clients[0].0.retain(|entry| !matches!(entry, Entry::Event(seen) if seen.is_delta()));
    trace
}

#[track_caller]
fn finds(invariant: &str, what: &str, trace: &Trace) {
    let found = check(trace);
    assert!(found.iter().any(|v| v.invariant == invariant && v.what.contains(what)), "{invariant} {what}: {found:#?}");
}

fn stored(trace: &mut Trace) -> &mut Vec<Row> {
    trace.stored.0.get_mut(SESSION).unwrap()
}

#[test]
fn a_call_that_was_shown_otherwise_than_it_is_stored_is_found() {
    let mut trace = good();
    let shown = |entry: &Entry| matches!(entry, Entry::Event(seen) if seen.kind() == "tool_call_delta");
    let last = trace.clients[0].0.iter().rposition(shown).unwrap();
    trace.clients[0].0[last] = call(11, "\"rm\"}");
    finds("I3", "of block 1 of m3", &trace);
    trace.clients[0].0.remove(last);
    finds("I3", "of block 1 of m3", &trace);
}

#[test]
fn a_good_trace_passes() {
    assert_eq!(check(&good()), []);
}

#[test]
fn an_event_that_was_seen_and_is_stored_otherwise_is_found() {
    let mut trace = good();
    stored(&mut trace)[4] = Row::new(&log()[4].replace("Good d", "Good D"));
    finds("I1", "a client saw", &trace);
    let mut trace = good();
    stored(&mut trace).pop();
    finds("I1", "stored is None", &trace);
    let mut trace = good();
    trace.stored.0.clear();
    finds("I1", "is not in the database", &trace);
}

#[test]
fn text_that_was_shown_and_is_not_stored_is_found() {
    finds("I1", "bytes were shown", &with(5, "Good d", "Goo"));
    finds("I1", "shown from byte 0", &with(5, "Good d", "Bad dd"));
    finds("I1", "shown from byte 4", &with(11, "abcdef", "abcdxx"));
    let mut trace = good();
    trace.clients[0].0.push(text("14+m9", "m9", 0, "x"));
    finds("I1", "none is stored", &trace);
}

#[test]
fn a_gap_and_a_repetition_in_seq_are_found() {
    let mut trace = good();
    stored(&mut trace).remove(5);
    finds("I2", "stands where", &trace);
    let mut trace = good();
    let row = stored(&mut trace)[5].clone();
    stored(&mut trace).insert(5, row);
    finds("I2", "stands where", &trace);
    let mut trace = good();
    stored(&mut trace)[5].seq = 60;
    finds("I2", "row 60 holds", &trace);
}

#[test]
fn what_a_client_missed_or_saw_twice_is_found() {
    let mut trace = good();
    trace.clients[0].0.retain(|entry| !matches!(entry, Entry::Event(seen) if seen.seq() == Some(6)));
    finds("I3", "was due", &trace);
    let mut trace = good();
    trace.clients[0].0.retain(|entry| !matches!(entry, Entry::Event(seen) if seen.str("text") == "Good d"));
    finds("I3", "text is missing", &trace);
    let mut trace = good();
    trace.clients[0].0.push(text("6+m3", "m3", 2, "xx"));
    finds("I3", "bytes from 2", &trace);
}

#[test]
fn a_client_that_reattached_with_its_cursor_equals_one_that_stayed() {
    let stayed = client(&log());
    let cut =
        stayed.0.iter().position(|entry| matches!(entry, Entry::Event(seen) if seen.str("text") == "ay")).unwrap();
    let cursor = stayed.0[..cut].iter().rev().find_map(|entry| match entry {
        Entry::Event(seen) => Some(seen.cursor.clone()),
        _ => None,
    });
    let mut left = stayed.clone();
    left.0.insert(cut, Entry::Attached { session: SESSION.into(), after: cursor, deltas: true });
    assert_eq!(assemble(&left, SESSION), assemble(&stayed, SESSION));
    assert_eq!(assemble(&left, SESSION).1, Vec::<String>::new());
    assert_eq!(assemble(&left, SESSION).0.message("m3"), "Good day");
}

#[test]
fn what_the_model_server_found_is_passed_on() {
    let mut trace = good();
    trace.model.push("no messages".into());
    finds("I4", "no messages", &trace);
}

#[test]
fn a_prompt_that_is_there_twice_or_never_is_found() {
    finds("I5", "two prompt_accepted", &with_extra(2, &log()[1]));
    let mut trace = good();
    trace.clients[0].0.push(Entry::Accepted { session: SESSION.into(), prompt: "p2".into(), seq: 9, key: None });
    finds("I5", "is not there", &trace);
    let mut trace = good();
    trace.clients[0].0.push(Entry::Accepted {
        session: SESSION.into(),
        prompt: "p3".into(),
        seq: 2,
        key: Some("k".into()),
    });
    finds("I5", "key k made", &trace);
}

#[test]
fn a_turn_that_ends_twice_or_never_is_found() {
    finds("I6", "has ended", &with_extra(14, &log()[13]));
    let mut trace = good();
    stored(&mut trace).pop();
    finds("I6", "never finished", &trace);
    finds("I6", "starts while", &with_extra(4, r#"{"kind":"turn_started","seq":3,"at":3,"turn":"t2","prompt":"p9"}"#));
}

#[test]
fn a_call_that_starts_twice_or_has_no_result_is_found() {
    finds("I7", "started 2 times", &with_extra(10, &log()[9]));
    finds("I7", "has 2 tool_finished", &with_extra(11, &log()[10]));
    finds("I7", "has 0 results", &with(12, r#""call_id":"c1""#, r#""call_id":"c2""#));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "one\ntwo\none\n").unwrap();
    finds("I7", "'one' happened twice", &Trace { side_effects: Some(file.path().into()), ..good() });
}

#[test]
fn a_permission_with_two_decisions_or_none_is_found() {
    finds("I9", "has 2 decisions", &with_extra(9, &log()[8]));
    finds("I9", "ran without a decision", &with(9, "allow_once", "reject_once"));
    finds("I9", "the call has another", &with(8, r#""input":{"command":"ls"}"#, r#""input":{"command":"rm"}"#));
    let mut trace = good();
    let won = trace.clients[0].0.last().unwrap().clone();
    trace.clients.push(Transcript(vec![won]));
    finds("I9", "two clients won", &trace);
    let lost = Entry::Won {
        permission: "q1".into(),
        decision: "reject_once".into(),
        digest: Some("sha256:2".into()),
        key: None,
    };
    let mut trace = good();
    *trace.clients[0].0.last_mut().unwrap() = lost;
    finds("I9", "the log has", &trace);
    finds("I9", "won with digest", &trace);
}

#[test]
fn a_question_with_two_answers_or_with_one_that_was_no_option_is_found() {
    let asked = r#"{"kind":"question_asked","seq":1,"at":1,"question":"q9","asked":{"kind":"choice","blocks":"nothing","text":"?","options":[{"name":"yes","label":"Yes"}],"digest":"sha256:1"}}"#;
    let answer = |seq: u64, name: &str| {
        format!(r#"{{"kind":"question_resolved","seq":{seq},"at":1,"question":"q9","answer":"{name}","by":"a"}}"#)
    };
    let trace = |answers: &[String]| {
        let mut trace = good();
        let rows = std::iter::once(asked).chain(answers.iter().map(String::as_str)).map(Row::new).collect();
        trace.stored.0.insert("daemon".to_owned(), rows);
        trace
    };
    assert_eq!(check(&trace(&[answer(2, "yes")])), []);
    finds("I9", "has 2 answers", &trace(&[answer(2, "yes"), answer(3, "yes")]));
    finds("I9", "has the answer", &trace(&[answer(2, "no")]));
}

#[test]
fn a_secret_that_got_out_is_found() {
    let canary = "sk-canary-1".to_owned();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"\xffsk-canary-1\x00").unwrap();
    let trace = Trace { canaries: vec![canary.clone()], files: vec![file.path().into()], ..good() };
    finds("I11", "a secret is in /", &trace);
    let shown = Trace { canaries: vec![canary], ..with(13, "done", "sk-canary-1") };
    finds("I11", "sent to a client", &shown);
    finds("I11", "in the log", &shown);
}

#[test]
fn a_client_that_was_there_and_has_not_all_of_a_message_is_found() {
    let mut trace = good();
    trace.clients[0].0.retain(|entry| !matches!(entry, Entry::Event(seen) if seen.str("text") == "ay"));
    finds("I3", "of block 0 of m3", &trace);
    // One that began in the middle is owed no more than what it has.
    let Entry::Attached { after, .. } = &mut trace.clients[0].0[0] else { panic!("it attaches first") };
    *after = Some("3".into());
    assert_eq!(check(&trace), []);
}

#[test]
fn a_side_effect_of_no_call_that_started_is_found() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "ls\nelsewhere\n").unwrap();
    let trace = Trace { side_effects: Some(file.path().into()), ..good() };
    finds("I7", "'elsewhere' is of no call", &trace);
    assert_eq!(check(&trace).len(), 1);
}

#[test]
fn a_call_that_made_two_children_or_has_the_answer_of_another_is_found() {
    let with_child = |made: &[&str], answer_of: &str| {
        let answer = format!(r#"{{\"agent\":\"general\",\"session\":\"{answer_of}\"}}"#);
        let mut trace = with(11, "abcdef", &answer);
        for child in made {
            let log = [
                r#"{"kind":"session_created","seq":1,"at":1,"parent":"s1","delegated":{"call":"c1","agent":"general"}}"#,
                r#"{"kind":"prompt_accepted","seq":2,"at":2,"prompt":"p1","by":"session s1"}"#,
            ];
            trace.stored.0.insert((*child).to_owned(), log.map(Row::new).to_vec());
        }
        trace
    };
    let found = |trace: &Trace| check(trace).into_iter().filter(|it| it.what.contains("call c1")).count();
    assert_eq!(found(&with_child(&["s2"], "s2")), 0);
    finds("I7", "made s2 and s3", &with_child(&["s2", "s3"], "s3"));
    finds("I7", "the answer of s9", &with_child(&["s2"], "s9"));
    let mut trace = with_child(&["s2"], "s2");
    let rows = trace.stored.0.get_mut("s2").unwrap();
    rows.push(Row::new(&rows[1].raw.replace("\"seq\":2", "\"seq\":3").replace("p1", "p2")));
    finds("I5", "its task 2 times", &trace);
}

#[test]
fn what_is_folded_otherwise_than_the_log_says_is_found() {
    let folded = || Folded {
        states: [("s1".to_owned(), "idle".to_owned())].into(),
        scratch: [].into(),
        questions: [("q1".to_owned(), Some("allow_once".to_owned()))].into(),
        paid: [("s1".to_owned(), (3, 0))].into(),
        miscounted: [].into(),
    };
    assert_eq!(check(&Trace { folded: Some(folded()), ..good() }), []);
    let states = [("s1".to_owned(), "running".to_owned())].into();
    let paid = std::iter::once((SESSION.to_owned(), (2, 0))).collect();
    finds("fold", "its days for (2, 0)", &Trace { folded: Some(Folded { paid, ..folded() }), ..good() });
    finds("I6", "s1 is running", &Trace { folded: Some(Folded { states, ..folded() }), ..good() });
    let miscounted = [("s1".to_owned(), 7)].into();
    finds("fold", "it has 7 bytes", &Trace { folded: Some(Folded { miscounted, ..folded() }), ..good() });
    let scratch = [("s1".to_owned(), "m9".to_owned())].into();
    finds("I1", "text of m9 is left", &Trace { folded: Some(Folded { scratch, ..folded() }), ..good() });
    let questions = [("q1".to_owned(), None)].into();
    finds("I9", "the table of questions", &Trace { folded: Some(Folded { questions, ..folded() }), ..good() });
}

#[test]
fn what_is_left_grown_printed_late_or_refused_is_found() {
    finds("I8", "left behind: sleep", &Trace { left: vec!["sleep".into()], ..good() });
    finds("I10", "1 KiB before", &Trace { grown: Some((1, 90_000)), ..good() });
    finds("I12", "was printed", &Trace { printed: vec!["a\u{1b}[2J".into()], ..good() });
    finds("I13", "a cancel took 3s", &Trace { cancels: vec![Duration::from_secs(3)], ..good() });
    finds("I14", "does not start", &Trace { refused: vec!["no".into()], ..good() });
    let fine = Trace {
        grown: Some((1000, 1200)),
        printed: vec!["a\tb\nc é".into()],
        cancels: vec![Duration::from_millis(30)],
        ..good()
    };
    assert_eq!(check(&fine), []);
}

#[test]
fn the_database_is_read_as_it_is_described() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("linger.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.pragma_update(None, "journal_mode", "wal").unwrap();
    let schema = "CREATE TABLE session(id TEXT PRIMARY KEY);
        CREATE TABLE event(session TEXT, seq INTEGER, at INTEGER, kind TEXT, stream TEXT, data TEXT);
        INSERT INTO session VALUES ('s1'), ('s2');";
    connection.execute_batch(schema).unwrap();
    for raw in log().iter().rev() {
        let row = Row::new(raw);
        let insert = "INSERT INTO event VALUES ('s1', ?1, 0, ?2, NULL, ?3)";
        connection.execute(insert, (row.seq as i64, row.kind, raw)).unwrap();
    }
    let stored = read(&path).unwrap();
    assert_eq!(stored.0["s1"], log().iter().map(|raw| Row::new(raw)).collect::<Vec<_>>());
    assert_eq!(stored.0["s2"], []);
}
