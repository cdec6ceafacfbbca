//! The renderer, by example: events in, the screen out.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::style::Style;
use super::{Renderer, Settings, Thinking};
use crate::terminal::Output;

fn settings() -> Settings {
    Settings {
        style: Style { color: false, unicode: true },
        width: 60,
        raw: false,
        markdown: false,
        deltas: true,
        thinking: Thinking::Show,
        usage: false,
        permissions: false,
        prompts: true,
        me: "linger@pts/3".to_owned(),
    }
}

/// What the events look like, stdout and stderr on one screen.
fn screen(settings: Settings, events: Value) -> String {
    let mut renderer = Renderer::new(settings);
    let mut screen = String::new();
    for event in events.as_array().unwrap() {
        for output in renderer.event(&serde_json::from_value(event.clone()).unwrap()) {
            let (Output::Text(text) | Output::Talk(text)) = output;
            screen.push_str(&text);
        }
    }
    screen
}

fn delta(message: &str, block: u32, text: &str) -> Value {
    json!({"kind": "text_delta", "message": message, "block": block, "offset": 0, "text": text})
}

fn said(message: &str, content: Value) -> Value {
    json!({"kind": "message", "seq": 1, "message": message, "role": "assistant", "content": content})
}

fn end(reason: &str) -> Value {
    json!({"kind": "turn_finished", "stop_reason": reason, "detail": "HTTP 500", "steps": 2,
           "usage": {"input_tokens": 12345, "output_tokens": 60, "cached_tokens": 800}})
}

#[test]
fn a_message_that_streamed_is_not_printed_again() {
    let events = json!([
        delta("m1", 0, "Good d"),
        delta("m1", 0, "ay"),
        said("m1", json!([{"type": "text", "text": "Good day"}])),
        end("end_turn")
    ]);
    assert_snapshot!(screen(Settings { usage: true, ..settings() }, events), @r"
      Good day
    12k tokens in (800 cached), 60 out, 2 steps, cost unknown
    ");
}

#[test]
fn a_prompt_that_is_taken_back_is_named_by_its_words() {
    let accepted = |prompt: &str, text: &str| json!({"kind": "prompt_accepted", "prompt": prompt, "content": [{"type": "text", "text": text}], "when": "queue", "by": "vim"});
    let back = |prompt: &str, by: &str| json!({"kind": "prompt_unqueued", "prompt": prompt, "by": by});
    let me = "linger@pts/3";
    let events = json!([
        accepted("p1", "one\u{1b}[2J\nand more"),
        accepted("p2", "two"),
        back("p2", me),
        back("p1", "nvim"),
        back("p9", me)
    ]);
    assert_snapshot!(screen(settings(), events), @r"
    a queued prompt was removed: two
    a queued prompt was removed by nvim: one␛[2J
    a queued prompt was removed
    ");
}

#[test]
fn a_turn_ends_with_what_it_cost_and_the_session_so_far() {
    let mut paid = end("end_turn");
    paid["usage"]["cost_micros"] = json!(12_300);
    let usage = || Settings { usage: true, ..settings() };
    paid["session_usage"] = paid["usage"].clone();
    assert_snapshot!(screen(usage(), json!([paid])), @"12k tokens in (800 cached), 60 out, 2 steps, $0.0123");
    paid["session_usage"] = json!({"input_tokens": 99999, "cost_micros": 1_000_000, "cost_at_least": true});
    paid["usage"]["reasoning_tokens"] = json!(40);
    assert_snapshot!(
        screen(usage(), json!([paid])),
        @r"
    12k tokens in (800 cached), 60 out (40 reasoning), 2 steps,
      $0.0123; session: at least $1.00
    "
    );
}

#[test]
fn without_deltas_the_message_is_printed_whole() {
    let events = json!([said("m1", json!([{"type": "text", "text": "Good day"}])), end("end_turn")]);
    assert_snapshot!(screen(Settings { deltas: false, ..settings() }, events), @"Good day");
}

#[test]
fn what_was_interrupted_gets_a_line_under_it_and_stays() {
    let mut cut = said("m1", json!([{"type": "text", "text": "Good d"}]));
    cut["interrupted"] = json!(true);
    let events = json!([
        delta("m1", 0, "Good d"),
        cut,
        {"kind": "notice", "level": "warning", "text": "provider overloaded; trying again in 1.2 s"},
        {"kind": "message_superseded", "message": "m1"},
        delta("m2", 0, "Good day"),
        said("m2", json!([])),
        end("error"),
    ]);
    assert_snapshot!(screen(settings(), events), @r"
      Good d
    ╌╌╌ interrupted ╌╌╌
    warning: provider overloaded; trying again in 1.2 s
    retrying this step; ignore the text above
      Good day
    failed: HTTP 500
    ");
}

#[test]
fn tool_calls_are_short_lines() {
    let finished = |call: &str, outcome: &str, is_error: bool, text: &str| {
        json!({"kind": "tool_finished", "call_id": call, "is_error": is_error, "outcome": outcome,
               "content": [{"type": "text", "text": text}], "ms": 5321})
    };
    let mut edit = finished("c3", "ran", false, "");
    let mut failed = finished("c2", "ran", true, "what went wrong\n[exit code 1]");
    failed["exit"] = json!({"code": 1});
    edit["diff"] = json!("--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new\n");
    let uses = json!([
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "call_id": "c4", "name": "bash", "input": {"command": "rm -rf /"}},
    ]);
    let events = json!([
        delta("m1", 0, "Let me see."),
        said("m1", uses),
        {"kind": "tool_started", "call_id": "c1", "tool": "bash", "tool_kind": "execute", "action": "cargo test --workspace --all-targets --no-fail-fast --locked"},
        finished("c1", "ran", false, "1\n2\na\nb\n3 %\rc\nd\ne\n"),
        {"kind": "tool_started", "call_id": "c2", "tool": "bash", "action": "false\ntrue"},
        {"kind": "tool_started", "call_id": "c3", "tool": "edit", "action": "a \u{1b}[2J"},
        failed,
        edit,
        finished("c4", "denied", true, "denied"),
    ]);
    assert_snapshot!(screen(settings(), events), @r"
      Let me see.
    • bash cargo test --workspace --all-targets --no-fail-fast …
    ✓ 5.3 s, 7 lines
        a
        b
        c
        d
        e
    • bash false…
        true
    • edit a ␛[2J
    • bash false…
    ✗ exit code 1, 5.3 s
        what went wrong
    • edit a ␛[2J
    ✓ 5.3 s
        --- a
        +++ b
        @@ -1 +1 @@
        -old
        +new
    • bash rm -rf /
    ✗ denied
    ");
}

#[test]
fn prompts_of_others_are_shown_and_mine_are_on_the_screen_already() {
    let accepted = |prompt: &str, by: &str| json!({"kind": "prompt_accepted", "prompt": prompt, "content": [], "when": "queue", "by": by});
    let taken = |prompt: &str, text: &str| json!({"kind": "message", "message": "m", "role": "user", "prompt": prompt, "content": [{"type": "text", "text": text}]});
    let events = json!([
        accepted("p1", "linger@pts/3"),
        taken("p1", "from before"),
        {"kind": "caught_up"},
        accepted("p2", "linger@pts/3"),
        taken("p2", "just typed"),
        accepted("p3", "nvim"),
        taken("p3", "two\nlines"),
        accepted("p4", "nvim"),
        accepted("p5", "linger@pts/3"),
        taken("p4", "first"),
        taken("p5", "behind it"),
        accepted("p6", "linger@pts/3"),
        {"kind": "compaction_failed", "prompt": "p6", "reason": "no", "tokens": 9},
        accepted("p7", "linger@pts/3"),
        taken("p7", "just typed"),
        {"kind": "permission_resolved", "permission": "q1", "decision": "reject_once", "by": "nvim", "reason": "no"},
    ]);
    assert_snapshot!(screen(settings(), events), @r"
    > from before
    > two
      lines
    > first
    > behind it
    warning: not compacted: no
    denied by nvim: no
    ");
}

#[test]
fn thinking_and_text_have_lines_of_their_own() {
    let events = json!([
        {"kind": "thinking_delta", "message": "m1", "block": 0, "offset": 0, "text": "hm"},
        delta("m1", 1, "one"),
        delta("m1", 2, "two"),
        said("m1", json!([])),
    ]);
    let settings = Settings { style: Style { color: true, unicode: false }, ..settings() };
    assert_eq!(screen(settings, events), "  \u{1b}[2mhm\u{1b}[0m\n  one\n\n  two\n");
}

#[test]
fn thinking_is_shown_hidden_or_summarised_as_the_user_likes() {
    let thinks = |block: u32, text: &str| json!({"kind": "thinking_delta", "message": "m1", "block": block, "offset": 0, "text": text});
    let events = json!([
        thinks(0, "\n\nFirst, the fi"),
        thinks(0, "les.\nThen the rest.\n"),
        thinks(0, "And more."),
        delta("m1", 1, "one"),
        thinks(2, "Another thought that is much too long for a line of a terminal that has so few columns as this one"),
        said("m1", json!([])),
    ]);
    let seen = |thinking| screen(Settings { thinking, ..settings() }, events.clone());
    assert_snapshot!(seen(Thinking::Hide), @"one");
    assert_snapshot!(seen(Thinking::Summary), @r"
    First, the files. …
    one
    Another thought that is much too long for a line of a …
    ");
    assert!(seen(Thinking::Show).contains("And more."));
}

#[test]
fn an_answer_that_is_asked_for_again_says_why() {
    let text = "That answer does not fit the JSON Schema: /a: no\nGive it again.";
    let asked = |asks: &str| json!({"kind": "message", "message": "m2", "role": "user", "asks": asks, "content": [{"type": "text", "text": text}]});
    let again = screen(settings(), json!([asked("schema"), asked("again")]));
    assert_snapshot!(again, @r"
    asked again: That answer does not fit the JSON Schema: /a:
      no
    ");
}

#[test]
fn a_pipe_gets_the_bytes_as_they_are_and_a_terminal_does_not() {
    let events = json!([delta("m1", 0, "a\u{1b}[2Jb"), said("m1", json!([]))]);
    assert_eq!(screen(Settings { raw: true, ..settings() }, events.clone()), "a\u{1b}[2Jb\n");
    assert_eq!(screen(settings(), events), "  a␛[2Jb\n");
}

#[test]
fn what_made_room_in_the_context_is_one_line_each() {
    let started = |trigger: &str| json!({"kind": "compaction_started", "trigger": trigger, "through": "m9", "messages": 9, "tokens": 163_000});
    let compacted = |messages: u64| {
        json!({"kind": "compacted", "through": "m9", "messages": messages, "summary": "## Goal\nx", "tokens_before": 163_000,
               "tokens_after": 9000})
    };
    let mut done = end("end_turn");
    (done["context_tokens"], done["context_window"]) = (json!(124_500), json!(200_000));
    let events = json!([
        started("full"),
        compacted(9),
        started("too_long"),
        {"kind": "compaction_failed", "reason": "the model \u{1b}refused", "tokens": 163_000},
        {"kind": "trimmed", "calls": ["c1", "c2"], "tokens_before": 163_000, "tokens_after": 81_000},
        {"kind": "trimmed", "calls": [], "images": ["m1"], "tokens_before": 3000, "tokens_after": 1400},
        {"kind": "trimmed", "calls": [], "native": ["m2", "m4"], "tokens_before": 3000, "tokens_after": 2400},
        started("asked"),
        compacted(1),
        done,
    ]);
    assert_snapshot!(screen(Settings { usage: true, ..settings() }, events), @r"
    the context is nearly full; summarising 9 older messages,
      163k tokens in all …
    compacted: a summary replaces 9 older messages; 163k tokens
      became 9000, 154k saved
    the context is too long for the model; summarising 9 older
      messages, 163k tokens in all …
    warning: not compacted: the model ␛refused
    warning: the model no longer sees the output of 2 older
      calls; 163k tokens became 81k, 82k saved
    warning: the model refused the images of 1 message; it no
      longer sees them
    warning: the provider refused the history; the model no
      longer sees its thinking in 2 messages
    summarising 9 older messages, 163k tokens in all …
    compacted: a summary replaces 1 older message; 163k tokens
      became 9000, 154k saved
    12k tokens in (800 cached), 60 out, 2 steps, cost unknown;
      context: 62 % of 200k
    ");
}

fn hosted(block: u32, tool: &str, part: &str, offset: usize, text: &str) -> Value {
    json!({"kind": "hosted_delta", "message": "m1", "block": block, "tool": tool, "part": part, "offset": offset, "text": text})
}

/// What [`hosted`] says, in the message that closes it.
fn answer_with_a_search() -> Value {
    said(
        "m1",
        json!([
            {"type": "text", "text": "I look."},
            {"type": "hosted", "tool": "web_search", "part": "call", "text": "rust 2026", "native": {}},
            {"type": "hosted", "tool": "web_search", "part": "result", "text": "2 sources\nRust: https://rust-lang.org\nb"},
            {"type": "hosted", "tool": "code_execution", "part": "call", "text": "a = 1\nprint(a)"},
            {"type": "hosted", "tool": "code_execution", "part": "error", "text": "exit code 1\nno \u{1b}[2J"},
            {"type": "hosted", "tool": "brand_new", "part": "result", "text": ""},
            {"type": "text", "text": "It is so."},
        ]),
    )
}

#[test]
fn hosted_tools_are_lines_however_their_text_is_cut() {
    let web = "2 sources\nRust: https://rust-lang.org\nb";
    let whole = [
        delta("m1", 0, "I look."),
        hosted(1, "web_search", "call", 0, "rust 2026"),
        hosted(2, "web_search", "result", 0, web),
        hosted(3, "code_execution", "call", 0, "a = 1\nprint(a)"),
        hosted(4, "code_execution", "error", 0, "exit code 1\nno \u{1b}[2J"),
        delta("m1", 6, "It is so."),
        answer_with_a_search(),
    ];
    let shown = screen(settings(), json!(whole));
    assert_snapshot!(shown, @r"
      I look.
    • web_search rust 2026
    ✓ 2 sources
        Rust: https://rust-lang.org
        b
    • code_execution a = 1 …
    ✗ exit code 1
        no ␛[2J
      It is so.
    ");
    for at in 1..web.len() {
        let mut cut = whole.to_vec();
        let pieces =
            [hosted(2, "web_search", "result", 0, &web[..at]), hosted(2, "web_search", "result", at, &web[at..])];
        cut.splice(2..3, pieces);
        assert_eq!(screen(settings(), json!(cut)), shown, "cut at {at}");
    }
    let log = Settings { deltas: false, ..settings() };
    assert_eq!(screen(log, json!([answer_with_a_search()])), shown);
}

#[test]
fn in_a_pipe_hosted_tools_break_no_line_of_text() {
    let mut renderer = Renderer::new(Settings { raw: true, ..settings() });
    let events = [
        delta("m1", 0, "I look."),
        hosted(1, "web_search", "call", 0, "rust"),
        hosted(1, "web_search", "call", 4, " 2026"),
        delta("m1", 2, "So."),
        said("m1", json!([])),
    ];
    let (mut text, mut talk) = (String::new(), String::new());
    for output in events.iter().flat_map(|event| renderer.event(&serde_json::from_value(event.clone()).unwrap())) {
        match output {
            Output::Text(said) => text.push_str(&said),
            Output::Talk(said) => talk.push_str(&said),
        }
    }
    assert_eq!((text.as_str(), talk.as_str()), ("I look.\n\nSo.\n", "• web_search rust\n"));
}

#[test]
fn long_results_of_hosted_tools_are_cut_on_the_screen() {
    let lines: String = (0..20).map(|n| format!("line {n} {}\n", "x".repeat(80))).collect();
    let events =
        json!([hosted(0, "code_execution", "call", 0, &lines), hosted(1, "code_execution", "result", 0, &lines)]);
    assert_snapshot!(screen(settings(), events), @r"
    • code_execution line 0 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
    ✓ line 0 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
        line 1 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
        line 2 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
        line 3 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
        line 4 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
        line 5 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
        line 6 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
        …
    ");
}

#[test]
fn a_client_that_attaches_during_a_wait_sees_how_long_it_still_takes() {
    let notice = json!({"kind": "notice", "seq": 6, "at": 1_000, "turn": "t1", "level": "warning", "code": "retry",
        "text": "HTTP 529: overloaded; trying again in 45.0 s (2 of 6)", "until_at": 46_000});
    let caught_up = |at: u64| json!({"kind": "caught_up", "at": at});
    assert_snapshot!(screen(settings(), json!([notice, caught_up(15_500)])), @r"
    warning: HTTP 529: overloaded; trying again in 45.0 s (2 of
      6)
    next attempt in 31 s
    ");
    let over = "warning: HTTP 529: overloaded; trying again in 45.0 s (2 of\n  6)\n";
    assert_eq!(screen(settings(), json!([notice, caught_up(46_000)])), over);
    let answered = json!([notice, said("m1", json!([])), caught_up(15_500)]);
    assert_eq!(screen(settings(), answered), over);
    let mut old = notice.clone();
    old.as_object_mut().unwrap().remove("until_at");
    assert_eq!(screen(settings(), json!([old, caught_up(15_500)])), over);
}

#[test]
fn a_client_that_attaches_after_a_provider_asked_to_wait_sees_until_when() {
    let caught_up = |at: u64| json!({"kind": "caught_up", "at": at});
    let mut put_off = end("error");
    put_off["detail"] = json!("work: 429: slow down; the provider asks to wait 60 minutes");
    put_off["until_at"] = json!(3_600_000);
    assert_snapshot!(screen(settings(), json!([put_off, caught_up(1_700_000)])), @r"
    failed: work: 429: slow down; the provider asks to wait 60
      minutes
    the provider asks to wait another 31 min
    ");
    let over = "failed: work: 429: slow down; the provider asks to wait 60\n  minutes\n";
    assert_eq!(screen(settings(), json!([put_off, caught_up(3_600_000)])), over);
    let next = json!({"kind": "turn_started", "seq": 9, "at": 9, "turn": "t2", "prompt": "p2"});
    assert_eq!(screen(settings(), json!([put_off, next, caught_up(1_700_000)])), over);
}

#[test]
fn a_prompt_of_another_client_shows_that_it_has_pictures() {
    let image = json!({"type": "image", "media_type": "image/png", "blob": "sha256:00", "bytes": 8});
    let prompt = json!({"kind": "message", "seq": 1, "message": "m1", "role": "user", "prompt": "p1",
        "content": [{"type": "text", "text": "compare @a.png and @b.png"}, image, image]});
    assert_snapshot!(screen(settings(), json!([prompt])), @r"
    > compare @a.png and @b.png
      with 2 pictures
    ");
}

#[test]
fn an_answer_that_was_cut_goes_on_on_the_same_line() {
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    let mut cut = said("m1", text("and so o"));
    cut["cut"] = json!(true);
    let asks = json!({"kind": "message", "seq": 2, "message": "m2", "role": "user", "asks": "go_on", "content": text("Go on.")});
    let whole = said("m3", text("n, for ever"));
    let streamed =
        json!([delta("m1", 0, "and so o"), cut, asks, delta("m3", 0, "n, for ever"), whole, end("end_turn")]);
    let printed = json!([cut, asks, whole, end("end_turn")]);
    for (raw, whole) in [(false, "  and so on, for ever\n"), (true, "and so on, for ever\n")] {
        let settings = Settings { raw, ..settings() };
        assert_eq!(screen(settings.clone(), streamed.clone()), whole);
        assert_eq!(screen(Settings { deltas: false, ..settings.clone() }, printed.clone()), whole);
        let given_up = screen(settings, json!([delta("m1", 0, "and so o"), cut, end("max_tokens")]));
        assert!(given_up.trim_start().starts_with("and so o\nstopped: "), "{given_up}");
    }
}

#[test]
fn a_childs_answer_is_shown_and_not_the_data_that_its_parent_reads() {
    let answer = json!({"answer": "The parser\nlies in \u{1b}[2Jsrc.", "sources": [], "confidence": "high",
        "caveats": ["src/lib.rs:90-99 does not exist"], "agent": "general", "session": "s2"});
    let events = json!([
        {"kind": "tool_started", "call_id": "c1", "tool": "delegate", "action": "delegate general: find it"},
        {"kind": "tool_finished", "call_id": "c1", "is_error": false, "outcome": "ran", "ms": 10,
         "content": [{"type": "text", "text": answer.to_string()},
                     {"type": "text", "text": "[Its changes are in its git worktree /w.]"}]},
    ]);
    assert_snapshot!(screen(settings(), events), @r"
    • delegate general: find it
    ✓ 10 ms, 3 lines
      The parser
      lies in ␛[2Jsrc.
      caveat: src/lib.rs:90-99 does not exist
      [Its changes are in its git worktree /w.]
    ");
}

#[test]
fn a_new_session_says_nothing_of_requests_that_change_before_the_first_one() {
    let setup = json!({"kind": "session_changed", "seq": 3, "setup": {"kind": "openai", "digest": "b"}});
    let created = json!({"kind": "session_created", "seq": 1, "cwd": "/w", "model": "m", "mode": "ask"});
    let answer = said("m1", json!([{"type": "text", "text": "yes"}]));
    let line = "note: system prompt or tools changed; the provider's cache starts over";
    let seen = |events: Value| screen(settings(), events).matches(&line[..40]).count();
    assert_eq!(seen(json!([created, setup])), 0);
    assert_eq!(seen(json!([created, setup, answer, setup])), 1);
    assert_eq!(seen(json!([setup])), 1, "of a session that is not read from its beginning");
}

#[test]
fn a_turn_that_ended_before_anything_was_counted_has_no_line_of_zeros() {
    let cancelled = |session: Value| {
        json!([{"kind": "turn_finished", "stop_reason": "cancelled", "steps": 0, "session_usage": session,
                "usage": {"input_tokens": 0, "output_tokens": 0, "cost_at_least": true}}])
    };
    let shown = |session| screen(Settings { usage: true, ..settings() }, cancelled(session));
    assert_eq!(shown(Value::Null), "cancelled\n");
    assert_eq!(shown(json!({"input_tokens": 0, "output_tokens": 0, "cost_at_least": true})), "cancelled\n");
    let session = json!({"input_tokens": 9, "output_tokens": 1, "cost_micros": 40_000, "cost_at_least": true});
    assert_eq!(shown(session), "cancelled\nsession: at least $0.0400\n");
}

#[test]
fn a_compaction_that_failed_says_why_once() {
    let reason = "the model wrote no summary";
    let events = json!([
        {"kind": "compaction_failed", "prompt": "p1", "reason": reason, "tokens": 9},
        {"kind": "turn_finished", "stop_reason": "error", "detail": format!("not compacted: {reason}"), "steps": 0, "usage": {}},
    ]);
    assert_eq!(screen(settings(), events), "warning: not compacted: the model wrote no summary\nfailed\n");
}
