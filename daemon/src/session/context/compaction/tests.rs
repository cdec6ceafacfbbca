//! Compaction, by drawn histories and by sessions that have every change of their context.

mod session;

use linger_protocol::id::MessageId;
use linger_protocol::message::Role;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::provider::support::{KINDS, mixed_history};
use crate::session::context::Context;
use session::Session;

/// A history drawn as its parts: `P` opens a turn, `p` steers, `a` answers, `r` has results, `S` is a summary; each with its tokens.
fn marks(drawn: &str) -> Vec<Mark> {
    let mark = |(n, word): (usize, &str)| {
        let (kind, tokens) = word.split_at(1);
        let part = match kind {
            "S" => Part::Summary,
            "P" => Part::Prompt(true),
            "p" => Part::Prompt(false),
            "a" => Part::Answer,
            _ => Part::Results,
        };
        let id = (part != Part::Summary).then(|| MessageId(format!("m{n}")));
        Mark { id, part, tokens: tokens.parse().unwrap() }
    };
    drawn.split_whitespace().enumerate().map(mark).collect()
}

/// What is replaced of a history, and what stays, with a bar between.
#[track_caller]
fn check(history: &str, room: u64, expect: Option<&str>) {
    check_if(false, history, room, expect);
}

#[track_caller]
fn check_if(refused: bool, history: &str, room: u64, expect: Option<&str>) {
    let marks = marks(history);
    let words: Vec<&str> = history.split_whitespace().collect();
    let got = cut(&marks, room, refused).map(|cut| [&words[..cut], &["|"], &words[cut..]].concat().join(" "));
    assert_eq!(got.as_deref(), expect);
}

#[test]
fn the_latest_turns_stay_whole() {
    check("P10 a40 P10 a40 P10 a40 P5 a5", 160, Some("P10 a40 P10 a40 P10 a40 | P5 a5"));
    check("P10 a70 P5 a5 P5 a5 P5 a5", 160, Some("P10 a70 | P5 a5 P5 a5 P5 a5"));
    check("P10 a40 P10 a40 P10 a20 r20 a20", 150, Some("P10 a40 P10 a40 | P10 a20 r20 a20"));
    check("S20 P10 a40 P10 a40 P5 a5", 130, Some("S20 P10 a40 P10 a40 | P5 a5"));
}

#[test]
fn a_turn_that_is_too_long_is_cut_between_its_steps() {
    check("P10 a10 r40 a10 r40 a10 r10", 130, Some("P10 a10 r40 a10 r40 | a10 r10"));
    check("P10 a10 P10 a10 r40 a10 r40 p5 a10 r10", 155, Some("P10 a10 P10 a10 r40 a10 r40 | p5 a10 r10"));
    check("P10 a10 r40 a10 r60 p5", 135, Some("P10 a10 r40 a10 r60 | p5"));
}

#[test]
fn results_that_no_model_has_seen_stay_unless_they_were_refused() {
    check("P10 a10 r100 a10 r400", 530, Some("P10 a10 r100 | a10 r400"));
    check("P10 a10 r400", 420, None);
    check_if(true, "P10 a10 r400", 420, Some("P10 a10 r400 |"));
    check_if(true, "P10 a10 r10 a10 r400", 440, Some("P10 a10 r10 a10 r400 |"));
    check("P10 a400", 410, Some("P10 a400 |"));
}

#[test]
fn words_that_nobody_has_answered_stay() {
    check("P10 a90 P400", 500, Some("P10 a90 | P400"));
    check("P400", 400, None);
    check("S10 P400", 410, None);
    check("P200 p200", 400, None);
    check("P400 P10", 410, Some("P400 | P10"));
}

#[test]
fn what_would_save_little_is_left_alone() {
    check("", 100, None);
    check("P1 a5", 6, Some("P1 a5 |"));
    check("S10 P1 a1", 100, None);
    check("P10 a10 P380", 400, None);
}

#[test]
fn a_context_is_compacted_once_until_it_has_grown() {
    assert!(!is_full(79, 0, 100, 80) && is_full(80, 0, 100, 80) && is_full(200, 0, 100, 80));
    assert!(!is_full(85, 80, 100, 80) && is_full(90, 80, 100, 80));
    assert!(!is_full(1000, 0, 100, 0), "never by itself");
    assert!(is_full(u64::MAX, 0, u64::MAX, 80) && !is_full(1, u64::MAX, u64::MAX, 80));
    assert!(!is_full(99, 95, 100, 80) && is_full(100, 95, 100, 80) && is_full(110, 110, 100, 80), "it does not fit");
}

#[test]
fn what_was_done_for_one_model_is_no_reason_to_wait_for_another() {
    let told = |context: &Context| [context.floor("p/large"), context.floor("p/small")];
    let mut session = Session::default();
    session.says(message(Role::User, vec![ContentBlock::text("x".repeat(3000))]));
    session.says(message(Role::Assistant, vec![ContentBlock::text("y".repeat(3000))]));
    assert_eq!(told(&session.context), [0, 0]);
    session.compact_by("p/large", 4);
    let after = session.context.tokens(0);
    assert_eq!((told(&session.context), told(&session.loaded())), ([after, 0], [after, 0]));
    session.gives_up(None);
    assert_eq!(told(&session.loaded()), [after, 0], "nobody was asked");
    session.gives_up(Some("p/small"));
    assert_eq!(told(&session.loaded()), [0, after]);
}

#[test]
fn a_provider_that_twice_refuses_what_it_just_gave_gets_nothing_back_any_more() {
    const MODEL: &str = "openai";
    let says = |session: &mut Session, text: &str| {
        let thought = ContentBlock::Thinking { text: text.to_owned(), native: Some(json!({"field": "reasoning"})) };
        let content = vec![thought, ContentBlock::text(text)];
        session.says(Message { origin: Some(MODEL.to_owned()), ..message(Role::Assistant, content) });
        session.says(message(Role::User, vec![ContentBlock::text("go on")]));
        assert_eq!(session.loaded(), session.context);
        session.context.with_native(MODEL).len()
    };
    let mut session = Session::default();
    session.says(message(Role::User, vec![ContentBlock::text("begin")]));
    assert_eq!([says(&mut session, "a"), says(&mut session, "b")], [1, 2]);
    session.leave_out_native(MODEL).unwrap();
    // It takes what comes now, and refuses it later.
    assert_eq!([says(&mut session, "c"), says(&mut session, "d")], [1, 2]);
    session.leave_out_native(MODEL).unwrap();
    assert_eq!(says(&mut session, "e"), 1);
    session.leave_out_native(MODEL).unwrap();
    assert_eq!(says(&mut session, "f"), 0, "what came first since was refused");
    session.compact(4);
    assert_eq!(says(&mut session, "g"), 0);
    assert!(session.context.estimated() > 0 && session.context.messages.iter().all(|message| message.origin.is_none()));
}

#[test]
fn a_summary_that_is_no_use_is_not_taken() {
    fn check(text: &str, stop: Stop, replaced: u64, expect: Result<&str, &str>) {
        let response = Response { content: vec![ContentBlock::text(text)], stop, ..Response::default() };
        assert_eq!(judge(&response, replaced), expect.map(str::to_owned));
    }
    check(" ## Goal\nx\n", Stop::End, 100, Ok("## Goal\nx"));
    check(" \n", Stop::End, 100, Err("the model wrote no summary"));
    check("x", Stop::Refusal, 100, Err("the model refused to write a summary"));
    check("x", Stop::MaxTokens, 100, Err("the summary was cut at the model's token limit"));
    check(&"x".repeat(300), Stop::End, 100, Err(NOT_SHORTER));
}

#[test]
fn what_saves_little_is_not_worth_what_is_lost() {
    assert!(is_worth(100, 95) && !is_worth(100, 96) && !is_worth(54, 53));
    assert!(!is_worth(0, 0) && !is_worth(9, 10) && is_worth(u64::MAX, 0) && !is_worth(u64::MAX, u64::MAX));
}

#[test]
fn the_words_of_a_turn_under_way_are_kept_beside_the_summary() {
    let words = ["fix it\nall of it".to_owned(), " ".to_owned(), "and the docs".to_owned()];
    insta::assert_snapshot!(with_words("## Goal\nx", &words), @r"
    ## Goal
    x

    ## The user's own words in the turn under way

    > fix it
    > all of it

    > and the docs
    ");
    let long = vec!["ä".repeat(100_000); 9];
    assert!(with_words("x", &long).len() < WORDS[1] + 1024);
}

fn message(role: Role, content: Vec<ContentBlock>) -> Message {
    Message { role, content, origin: None }
}

fn call(id: &str, input: Value) -> ContentBlock {
    ContentBlock::ToolUse { call_id: id.into(), name: "bash".to_owned(), input, native: Some(json!({"id": "toolu_1"})) }
}

fn result(id: &str, text: &str) -> ContentBlock {
    ContentBlock::ToolResult { call_id: id.into(), is_error: false, content: vec![ContentBlock::text(text)] }
}

#[test]
fn a_transcript_says_what_was_said_and_nothing_that_was_signed() {
    let thought = ContentBlock::Thinking { text: "hm".to_owned(), native: Some(json!({"signature": "c2ln"})) };
    let messages = [
        message(Role::User, vec![ContentBlock::text("look "), ContentBlock::image("image/png", "AAAA")]),
        message(Role::Assistant, vec![thought, ContentBlock::text("Looking."), call("c1", json!({"command": "ls"}))]),
        message(Role::User, vec![result("c1", "a\nb\n")]),
    ];
    insta::assert_snapshot!(transcript(&messages, 10_000), @r#"
    ### user
    look
    [an image]

    ### agent
    Looking.
    [c1 calls bash: {"command":"ls"}]

    ### results
    [c1:]
    a
    b
    "#);
}

#[test]
fn a_transcript_fits_and_gives_up_output_first() {
    let mut messages = vec![message(Role::User, vec![ContentBlock::text("the goal")])];
    for n in 0..50 {
        messages.push(message(Role::Assistant, vec![ContentBlock::text(format!("words {n}")), call("c1", json!({}))]));
        messages.push(message(Role::User, vec![result("c1", &"ä".repeat(9_000))]));
    }
    for room in [300, 1_000, 10_000, 100_000, 400_000, 2_000_000] {
        let text = transcript(&messages, room);
        assert!(text.len() <= room + 100, "{} in {room}", text.len());
        assert!(text.contains("the goal"), "{room}");
        assert_eq!(room >= 10_000, text.contains("words 0"), "{room}");
        assert!(room < 1_000 || text.contains("words 49"), "{room}");
    }
}

#[test]
fn the_oldest_output_goes_first_and_small_results_stay() {
    let mut context = Context::default();
    for n in 0..4 {
        let id = |kind: &str| MessageId(format!("{kind}{n}"));
        let name = format!("c{n}");
        context.push(id("a"), message(Role::Assistant, vec![call(&name, json!({}))]), false);
        let output = if n == 1 { "small".to_owned() } else { "x".repeat(3000) };
        context.push(id("r"), message(Role::User, vec![result(&name, &output)]), false);
    }
    let trimmed =
        |goal| trim(&context.messages, &context.marks, goal, true).0.iter().map(|id| id.0.clone()).collect::<Vec<_>>();
    assert_eq!(trimmed(0), [""; 0]);
    assert_eq!(trimmed(1), ["c0"]);
    assert_eq!(trimmed(1000), ["c0", "c2"]);
    assert_eq!(trimmed(u64::MAX), ["c0", "c2", "c3"]);
    let seen = trim(&context.messages, &context.marks, u64::MAX, false).0;
    assert_eq!(seen, ["c0".into(), "c2".into()], "what no model has seen stays");
    let before = context.tokens(0);
    context.gave_up(before, "p/m".to_owned());
    context.trim(&["c0".into(), "c2".into()], 77);
    assert_eq!((context.tokens(0), context.floor("p/m")), (77, 77));
    assert!(context.estimated() + 1800 < before);
    assert_eq!(trim(&context.messages, &context.marks, u64::MAX, true).0, ["c3".into()], "nothing is left out twice");
    let ContentBlock::ToolResult { content, .. } = &context.messages[1].content[0] else { panic!() };
    assert_eq!(
        text_of(content),
        "[3000 bytes of output were left out to make room; call the tool again if they are needed]"
    );
}

#[test]
fn where_no_summary_comes_as_little_as_possible_is_cut_off_and_the_last_message_stays() {
    let context = |sizes: &[(char, usize)]| {
        let mut context = Context::default();
        for (n, (what, size)) in sizes.iter().enumerate() {
            let (id, name) = (MessageId(format!("m{n}")), format!("c{n}"));
            let text = vec![ContentBlock::text("x".repeat(*size))];
            let (message, opens) = match what {
                'p' => (message(Role::User, text), true),
                'c' => (message(Role::Assistant, vec![call(&name, json!({}))]), false),
                'r' => (message(Role::User, vec![result(&format!("c{}", n - 1), &"x".repeat(*size))]), false),
                _ => (message(Role::Assistant, text), false),
            };
            context.push(id, message, opens);
        }
        context
    };
    let check = |sizes: &[(char, usize)], room: u64, expect: Option<usize>| {
        assert_eq!(cut_off(&context(sizes).marks, room), expect, "{sizes:?}");
    };
    // A prompt that was never answered may be what does not fit.
    check(&[('p', 90_000), ('p', 30)], 2000, Some(1));
    check(&[('p', 30)], 2000, None);
    check(&[], 2000, None);
    check(&[('p', 30), ('a', 9000), ('p', 30), ('a', 30), ('p', 30)], 2000, Some(2));
    check(&[('p', 30), ('a', 30), ('p', 9000)], 2000, Some(2));
    // Results stay with the answer before them.
    check(&[('p', 9000), ('c', 0), ('r', 30)], 2000, Some(1));
    check(&[('p', 30), ('c', 0), ('r', 9000)], 2000, Some(1));
}

#[test]
fn without_a_summary_a_step_is_asked_for_as_it_is_and_output_left_out_only_if_that_is_refused() {
    let effort = Effort { compacted: Some(false), unreached: true, ..Effort::default() };
    assert_eq!((effort.next(Need::Full), effort.next(Need::TooLong)), (NextAction::Ask, NextAction::Trim));
    let refused = Effort { unreached: false, ..effort };
    assert_eq!((refused.next(Need::Full), refused.next(Need::TooLong)), (NextAction::Trim, NextAction::Trim));
}

proptest! {
    /// However the provider, the summaries and the outputs turn out, a step comes to an end, once nothing more can be trimmed.
    #[test]
    fn a_step_never_tries_for_ever(
        outcomes in prop::collection::vec(any::<(bool, bool, bool)>(), 16),
        unreached in any::<bool>(),
    ) {
        let mut effort = Effort::default();
        let (mut compactions, mut trims, mut cuts, mut asks) = (0, 0, 0, 0);
        let mut refused = false;
        let mut ended = false;
        for (full, works, fits) in outcomes {
            let need = if refused { Need::TooLong } else if full { Need::Full } else { Need::None };
            let made_room = match effort.next(need) {
                NextAction::Compact => {
                    compactions += 1;
                    effort.compacted = Some(works);
                    effort.unreached = unreached && !works;
                    works
                }
                NextAction::Trim => {
                    trims += 1;
                    let shortens = works && trims <= 3;
                    (effort.trimmed, effort.exhausted) = (true, !shortens);
                    shortens
                }
                NextAction::CutOff => {
                    cuts += 1;
                    effort.cut_off = true;
                    works
                }
                NextAction::Ask => {
                    asks += 1;
                    refused = !fits;
                    ended |= fits;
                    false
                }
                NextAction::GiveUp => {
                    prop_assert!(compactions == 1 && effort.exhausted && cuts == 1, "nothing was left untried");
                    ended = true;
                    false
                }
            };
            if made_room { refused = false; }
            if ended { break; }
        }
        prop_assert!(ended, "after {} compactions, {} trims, {} requests", compactions, trims, asks);
        prop_assert!(compactions <= 1 && trims <= 4 && cuts <= 1 && asks <= trims + cuts + 2);
    }

    #[test]
    fn a_transcript_always_fits(messages in mixed_history(), room in 200..5000usize) {
        prop_assert!(transcript(&messages, room).len() <= room + 100);
    }

    /// Whatever is lost of a session, it can go on with every provider.
    #[test]
    fn what_is_left_after_a_loss_is_good_in_all_formats(
        messages in mixed_history(),
        done in prop::collection::vec((0..10u8, 1..400u64), 40),
        lost in prop::collection::vec(prop::bool::weighted(0.2), 300),
        kind in 0..5usize,
    ) {
        let mut session = Session::default();
        let mut closed = false;
        for (message, (what, room)) in messages.into_iter().zip(done) {
            if std::mem::take(&mut closed) {
                continue;
            }
            session.says(message);
            match what {
                _ if session.is_open() => match what {
                    0..4 => { closed = true; session.cancelled() }
                    4..6 => { closed = true; session.cut_by_a_crash(room.is_multiple_of(2)) }
                    _ => {}
                }
                0 => session.compact(room),
                1 => session.trim(room),
                2 => session.breaks_off(|_| {}),
                3 => session.leave_out_images(),
                _ => {}
            }
        }
        session.loses(|at| lost.get(at).is_some_and(|lost| *lost));
        session.says(message(Role::User, vec![ContentBlock::text("go on")]));
        // Whether that opened a turn, whoever lives on from here knows better than the log, of which the last turn may be lost.
        session.context = session.loaded();
        session.ask(KINDS[kind])?;
        session.says(message(Role::Assistant, vec![ContentBlock::text("so be it")]));
        prop_assert_eq!(&session.loaded(), &session.context, "what is loaded is what was lived through");
        session.says(message(Role::User, vec![ContentBlock::text("and on")]));
        session.ask(KINDS[kind])?;
    }

    /// A session whose context is compacted and trimmed again and again, and which is loaded anew in between, sends what each
    /// format takes, and begins every request as the one before unless an event says why not.
    #[test]
    fn what_is_left_after_compactions_is_good_in_all_formats(
        messages in mixed_history(),
        done in prop::collection::vec((0..10u8, 0..5usize, 1..400u64), 40),
    ) {
        let mut session = Session::default();
        let mut kind = KINDS[0];
        let mut closed = false;
        for (message, (what, next, room)) in messages.into_iter().zip(done) {
            // The results of calls that were cancelled or denied do not come.
            if std::mem::take(&mut closed) {
                continue;
            }
            session.says(message);
            if session.is_open() {
                // Nobody is asked before the results are there: those that come, or those that stand for them.
                closed = matches!(what, 8 | 9);
                match what {
                    8 => session.cancelled(),
                    9 => session.cut_by_a_crash(room.is_multiple_of(2)),
                    _ => continue,
                }
            }
            match what {
                0 | 1 => session.compact(room),
                2 => session.trim(room),
                3 => kind = KINDS[next],
                4 => session.breaks_off(|session| match next {
                    0 => session.compact(room),
                    1 => session.trim(room),
                    2 => session.leave_out_images(),
                    _ => {}
                }),
                5 => session.leave_out_images(),
                6 => session.leave_out_native(kind.name())?,
                _ => {}
            }
            prop_assert_eq!(&session.loaded(), &session.context, "what is loaded is what was lived through");
            session.ask(kind)?;
        }
    }
}
