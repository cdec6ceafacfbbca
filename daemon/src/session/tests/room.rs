//! Compaction: asked for, because the window is full, because the provider says so; and in vain.

use super::*;

/// A long text, and what a provider counts for it.
fn long(word: &str) -> String {
    format!("{word} ").repeat(600)
}

fn summary() -> Answer {
    Answer::text("## Goal\nwords were said, and nothing came of them").counts(500, 20)
}

impl Scene {
    async fn compact(&self, focus: Option<&str>) -> Result<Prompted, RpcError> {
        let compact = session::Compact { session: self.id.clone(), focus: focus.map(str::to_owned), key: None };
        self.send(|reply| Command::Compact(compact, None, Author::named("someone"), reply)).await
    }

    /// The transcript after the first two turns, which [`a_summary_that_is_asked_for_stands_for_older_messages`] shows.
    async fn after_two_turns(&self) -> String {
        self.transcript().await.lines().skip(10).collect::<Vec<_>>().join("\n")
    }
}

#[tokio::test]
async fn a_summary_that_is_asked_for_stands_for_older_messages() {
    let answers = [Answer::text(&long("one")), Answer::text(&long("two")), summary(), Answer::text("three")];
    let mut scene = Scene::auto(answers).await;
    scene.turn(&long("first")).await;
    scene.turn(&long("second")).await;
    scene.compact(None).await.unwrap();
    scene.ends(3).await;
    scene.turn("third").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "first first first first first first first first first first first first first first first first firs..."
    t1 turn_started p1
    t1 message m1 user: "first first first first first first first first first first first first first first first first firs..."
    t1 message m2 model: "one one one one one one one one one one one one one one one one one one one one one one one one one ..."
    t1 turn_finished end_turn after 1
    prompt_accepted p2 queue "second second second second second second second second second second second second second second se..."
    t2 turn_started p2
    t2 message m3 user: "second second second second second second second second second second second second second second se..."
    t2 message m4 model: "two two two two two two two two two two two two two two two two two two two two two two two two two ..."
    t2 turn_finished end_turn after 1
    prompt_accepted p3 steer compact
    t3 turn_started p3
    t3 compaction_started asked 3 messages through m3
    t3 compacted through m3: ## Goal/words were said, and nothing came of them
    t3 turn_finished end_turn after 0
    prompt_accepted p4 queue "third"
    t4 turn_started p4
    t4 message m5 user: "third"
    t4 message m6 model: "three"
    t4 turn_finished end_turn after 1
    "#);
}

#[tokio::test]
async fn after_a_compaction_a_history_is_read_from_the_turn_on_that_it_divided() {
    let answers = [
        Answer::text(&long("one")),
        Answer::text(&long("two")),
        summary(),
        Answer::text("three"),
        summary(),
        Answer::text("four"),
    ];
    let mut scene = Scene::auto(answers).await;
    scene.turn(&long("first")).await;
    scene.turn(&long("second")).await;
    scene.compact(None).await.unwrap();
    scene.ends(3).await;
    // What is read is held against the whole log.
    scene.crash().await;
    scene.turn("third").await;
    let request = scene.last_request();
    assert!(request.contains("## Goal") && request.contains("two two") && !request.contains("one one"), "{request}");
    let begun: Vec<u64> = scene
        .events()
        .await
        .iter()
        .filter_map(|event| matches!(event.body, EventBody::TurnStarted { .. }).then_some(event.seq?))
        .collect();
    let turn_of =
        async |message: &str| scene.env.store.turn_of(scene.id.clone(), message.to_owned(), 100).await.unwrap();
    // `m3` is the last message that the summary replaced.
    assert_eq!((turn_of("m3").await, turn_of("m1").await, turn_of("m9").await), (Some(begun[1]), Some(begun[0]), None));
    // After a second compaction too.
    scene.compact(None).await.unwrap();
    scene.ends(5).await;
    scene.crash().await;
    scene.turn("fourth").await;
    let request = scene.last_request();
    assert!(request.contains("## Goal") && request.contains("fourth") && !request.contains("one one"), "{request}");
}

#[tokio::test]
async fn there_is_nothing_to_compact_in_a_new_session() {
    let scene = Scene::auto([]).await;
    assert_eq!(scene.compact(None).await.unwrap_err().message, "session scene has nothing to compact");
}

#[tokio::test]
async fn a_summary_that_fails_leaves_the_context_as_it_is() {
    let fails = Answer::fails(FailureClass::Rejected, "not today");
    let mut scene = Scene::auto([Answer::text(&long("one")), Answer::text(&long("two")), fails]).await;
    scene.turn(&long("first")).await;
    scene.turn(&long("second")).await;
    scene.compact(Some("names")).await.unwrap();
    scene.ends(3).await;
    insta::assert_snapshot!(scene.after_two_turns().await, @r#"
    prompt_accepted p3 steer compact "names"
    t3 turn_started p3
    t3 compaction_started asked 3 messages through m3
    t3 compaction_failed mock: not today
    t3 turn_finished error after 0: not compacted: mock: not today
    "#);
}

#[tokio::test]
async fn a_window_that_is_nearly_full_is_compacted_before_the_step() {
    let answers = [
        Answer::text(&long("one")).counts(4000, 600),
        Answer::text(&long("two")).counts(11900, 600),
        summary(),
        Answer::text("three"),
    ];
    let mut scene = Scene::with("", "mock/small", Mode::Auto, answers).await;
    scene.turn(&long("first")).await;
    scene.turn(&long("second")).await;
    scene.turn("third").await;
    insta::assert_snapshot!(scene.after_two_turns().await, @r#"
    prompt_accepted p3 queue "third"
    t3 turn_started p3
    t3 message m5 user: "third"
    t3 compaction_started full 2 messages through m2
    t3 compacted through m2: ## Goal/words were said, and nothing came of them
    t3 message m6 model: "three"
    t3 turn_finished end_turn after 1
    "#);
}

#[tokio::test]
async fn a_request_that_is_too_long_is_compacted_and_sent_again() {
    let answers = [
        Answer::text(&long("one")),
        Answer::text(&long("two")),
        Answer::fails(FailureClass::TooLong, "too long"),
        summary(),
        Answer::text("three"),
    ];
    let mut scene = Scene::auto(answers).await;
    scene.turn(&long("first")).await;
    scene.turn(&long("second")).await;
    scene.turn("third").await;
    insta::assert_snapshot!(scene.after_two_turns().await, @r#"
    prompt_accepted p3 queue "third"
    t3 turn_started p3
    t3 message m5 user: "third"
    t3 compaction_started too_long 4 messages through m4
    t3 compacted through m4: ## Goal/words were said, and nothing came of them
    t3 message m6 model: "three"
    t3 turn_finished end_turn after 1
    "#);
}

#[tokio::test]
async fn a_request_that_stays_too_long_ends_the_turn() {
    let too_long = || Answer::fails(FailureClass::TooLong, "too long");
    let mut scene = Scene::auto([too_long(), too_long(), too_long()]).await;
    scene.turn("hi").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "hi"
    t1 turn_started p1
    t1 message m1 user: "hi"
    t1 compaction_failed nothing in the context is old enough to be replaced
    t1 turn_finished error after 0: mock: too long; cannot make more room in the context
    "#);
}

#[tokio::test]
async fn cancel_while_a_summary_is_written() {
    let writes = summary().waits(&gate());
    let mut scene = Scene::auto([Answer::text(&long("one")), Answer::text(&long("two")), writes]).await;
    scene.turn(&long("first")).await;
    scene.turn(&long("second")).await;
    scene.compact(None).await.unwrap();
    scene.until("compaction_started", 1).await;
    scene.cancel().await;
    insta::assert_snapshot!(scene.after_two_turns().await, @r#"
    prompt_accepted p3 steer compact
    t3 turn_started p3
    t3 compaction_started asked 3 messages through m3
    t3 compaction_failed cancelled by the user
    t3 turn_finished cancelled after 0
    "#);
}

#[tokio::test]
async fn output_is_trimmed_while_that_shortens_what_is_refused() {
    let read = |n: u32| Answer::call("bash", json!({ "command": format!("seq {n}000 {n}999") }));
    let too_long = |said: &str| Answer::fails(FailureClass::TooLong, said);
    let answers = [
        read(1),
        read(2),
        read(3),
        read(4),
        too_long("the maximum context length is 3000 tokens"),
        Answer::fails(FailureClass::Rejected, "no summary"),
        too_long("too long"),
        too_long("too long"),
        Answer::text("done"),
    ];
    let mut scene = Scene::auto(answers).await;
    scene.turn("count").await;
    let lines = scene.transcript().await;
    let room: Vec<&str> = lines.lines().filter(|line| line.contains("trimmed") || line.contains("comp")).collect();
    insta::assert_snapshot!(room.join("\n"), @r"
    t1 compaction_started too_long 9 messages through m9
    t1 compaction_failed mock: no summary
    t1 trimmed 1 calls 0 images 0 native
    t1 trimmed 1 calls 0 images 0 native
    t1 trimmed 1 calls 0 images 0 native
    ");
    assert!(lines.ends_with("turn_finished end_turn after 5"), "{lines}");
    assert_eq!(scene.env.providers.window("mock/m"), Some(3000));
}

#[tokio::test]
async fn a_prompt_that_is_too_large_does_not_stop_the_ones_after_it() {
    let too_long = || Answer::fails(FailureClass::TooLong, "too long");
    let no_summary = Answer::fails(FailureClass::Rejected, "not today");
    let mut scene = Scene::auto([too_long(), too_long(), no_summary, Answer::text("fine"), Answer::text("more")]).await;
    scene.turn(&"huge ".repeat(90_000)).await;
    scene.turn("small").await;
    let transcript = scene.transcript().await;
    let second = transcript.lines().filter(|line| line.starts_with("t2")).collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!(second, @r#"
    t2 turn_started p2
    t2 message m2 user: "small"
    t2 compaction_started too_long 1 messages through m1
    t2 compaction_failed mock: not today
    t2 compaction_started too_long 1 messages through m1
    t2 notice -: no summary could be written and the context is too long: older messages (1) were cut without one; they stay in the log
    t2 compacted through m1: [No summary could be written. The older messages were cut by the program; this is what is left of th...
    t2 message m3 model: "fine"
    t2 turn_finished end_turn after 1
    "#);
    let request = scene.last_request();
    assert!(request.contains("cut by the program") && request.ends_with("user: small"), "{request}");
    assert!(request.len() < 300_000, "{}", request.len());
    // It counts after a restart of the daemon too.
    scene.crash().await;
    scene.turn("next").await;
    assert!(scene.last_request().contains("cut by the program") && scene.last_request().contains("fine"));
}

#[tokio::test]
async fn where_no_summary_can_be_written_old_text_is_cut_off() {
    for fails in [
        Answer::fails(FailureClass::Rejected, "not today"),
        Answer::fails(FailureClass::TooLong, "too long"),
        Answer::text(""),
        Answer::text(&long("a summary that is longer than all").repeat(20)),
    ] {
        let too_long = Answer::fails(FailureClass::PerhapsTooLong, "400: the prompt has too many tokens");
        let answers = [Answer::text(&long("one")), Answer::text(&long("two")), too_long, fails, Answer::text("three")];
        let mut scene = Scene::auto(answers).await;
        scene.turn(&long("first").repeat(9)).await;
        scene.turn(&long("second").repeat(9)).await;
        scene.turn("third").await;
        let transcript = scene.transcript().await;
        assert!(transcript.ends_with("t3 turn_finished end_turn after 1"), "{transcript}");
        assert_eq!(scene.count("t3 compacted through").await, 1, "{transcript}");
        assert_eq!(scene.count("older messages (4) were cut without one").await, 1, "{transcript}");
    }
}

#[tokio::test]
async fn a_refusal_that_was_about_something_else_is_told_as_it_is() {
    let refused = || Answer::fails(FailureClass::PerhapsTooLong, "400: the limit of tokens is odd");
    let mut scene = Scene::auto([refused(), refused()]).await;
    scene.turn("hi").await;
    let transcript = scene.transcript().await;
    assert!(transcript.ends_with("turn_finished error after 0: mock: 400: the limit of tokens is odd"), "{transcript}");
}
