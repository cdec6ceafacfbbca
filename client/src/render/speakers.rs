//! Speakers cannot be forged: a screen of a terminal shows whose words are whose. What linger says begins in the first column;
//! what a model, a tool or a file says never comes to stand there, whatever it is made of.

use linger_protocol::event::Event;
use serde_json::{Value, json};

use super::style::Style;
use super::{Renderer, Settings, Thinking};
use crate::terminal::Output;

/// Lines of linger, or what a person may take for one.
const OURS: &[&str] = &[
    "• bash git push --force",
    "* bash rm -rf /",
    "✓ 3.1 s, 120 lines",
    "✗ exit code 1",
    "ok 3 ms",
    "> now commit it",
    "> /mode auto",
    "? bash wants to run in ~/work",
    "y once  s this session  a always bash(*)  n no",
    "? q17: bash rm -rf /",
    "allowed by linger@pts/2",
    "denied by nvim: no",
    "2410 tokens in, 31 out, 3 steps, $0.0091",
    "mode: auto",
    "warning: the provider refused the history",
    "error: cannot write to disk",
    "hint: press y",
    "cancelled",
    "failed: HTTP 500",
    "╌╌╌ interrupted ╌╌╌",
    "compacted: a summary replaces 3 older messages",
    "queued: rm -rf /",
    "undone: restored src/main.rs",
    "session work in ~/work, mock/mock (auto); /help for help",
    "detached; the work continues",
];

/// Disguises of a line on a terminal of so many columns.
fn disguises(line: &str, width: usize) -> Vec<String> {
    let behind = |filler: &str, count: usize| format!("{}{line}", filler.repeat(count));
    let mut texts = vec![
        line.to_owned(),
        format!("So.\n{line}\n{line}"),
        format!("x\r{line}"),
        format!("x\r\n\r\n{line}"),
        format!("\x1b[2K\x1b[1G{line}"),
        format!("\x1b[A\x1b[9D{line}\x1b[1;1H{line}"),
        format!("\u{9b}1G{line}\u{85}{line}\u{2028}{line}\u{2029}{line}\u{b}{line}\u{c}{line}"),
        format!("\u{202e}{line}\u{2066}\n\u{202d}{line}"),
        format!("\u{200f}{line}\n\u{61c}{line}"),
        format!("\u{301}{line}\n\u{20dd}{line}\n\u{200d}{line}\n\u{fe0f}{line}"),
        format!("```\n{line}\n```\n```sh\n{line}"),
        format!("> {line}\n>> {line}\n{line}"),
        format!("- {line}\n  - {line}\n{line}\n1. {line}\n\n   {line}"),
        format!("| a | b |\n|---|---|\n| {line} | x |\n| {line}{line}{line} | {line} |\n{line}"),
        format!("# {line}\n---\n***\n{line}\n==="),
        format!("**{line}** *{line}* `{line}` [{line}]({line}) <{line}>"),
        format!("    {line}\n\t{line}\n{}{line}", "- ".repeat(60)),
        behind("\u{8}", 40),
        behind("\t", 40),
        behind("\u{3000}", width / 2 - 1),
        behind("\u{a0}", width),
        behind("\u{2003}", width - 1),
        behind("\u{2800}", width),
        behind("\u{3164}", width / 2),
        behind("\u{ad}", width),
        behind("\u{200b}", width),
        behind("\u{115f}\u{1161}", width / 2),
        behind("漢", width / 2),
        behind("👩\u{200d}👩\u{200d}👧", 20),
        behind("☀\u{fe0f}", 30),
        behind("e\u{301}", width),
        behind(&"\u{338}".repeat(40), 4),
    ];
    // Words and blanks that end where a row does.
    for off in 0..6 {
        texts.extend([behind("x", width - off), behind(" ", width - off)]);
        texts.extend([format!("{} {line}", "x".repeat(width - off)), format!("{}{line}", "x ".repeat(width - off))]);
    }
    texts
}

/// The rows of the screen after these events, on a terminal that wraps what is too wide.
fn rows(events: &[Value], width: usize, markdown: bool) -> Vec<String> {
    let mut renderer = Renderer::new(Settings {
        style: Style { color: markdown, unicode: true },
        width,
        raw: false,
        markdown,
        deltas: true,
        thinking: Thinking::Show,
        usage: false,
        permissions: true,
        prompts: true,
        me: String::new(),
    });
    let mut terminal = vt100::Parser::new(120, u16::try_from(width).unwrap(), 0);
    for event in events {
        let event: Event = serde_json::from_value(event.clone()).unwrap();
        for Output::Text(text) | Output::Talk(text) in renderer.event(&event) {
            terminal.process(text.replace('\n', "\r\n").as_bytes());
        }
    }
    let (screen, columns) = (terminal.screen(), u16::try_from(width).unwrap());
    screen.rows(0, columns).filter(|row| !row.trim().is_empty()).collect()
}

/// The rows of the first column.
fn ours(rows: &[String]) -> Vec<&String> {
    rows.iter().filter(|row| !row.starts_with("  ")).collect()
}

/// Checks each disguise of each line, in the events that `speak` makes of it: so many rows are linger's, and begin so.
fn check(most: usize, begins: &[&str], speak: impl Fn(&str) -> Vec<Value>) {
    for width in [40, 80] {
        // Each disguise of each line in the text of a model; elsewhere of some, as it is the disguise that matters there.
        let step = if begins.is_empty() { 1 } else { 5 };
        for text in OURS.iter().step_by(step).flat_map(|line| disguises(line, width)) {
            for markdown in [false, true] {
                let rows = rows(&speak(&text), width, markdown);
                let ours = ours(&rows);
                let known = |row: &&String| begins.iter().any(|begin| row.starts_with(begin));
                assert!(ours.len() <= most && ours.iter().all(known), "{text:?} at {width}: {rows:#?}");
            }
        }
    }
}

#[test]
fn text_and_thinking_of_a_model_never_stand_in_the_first_column() {
    let delta = |kind: &str, text: &str| json!({"kind": kind, "message": "m", "block": 0, "offset": 0, "text": text});
    let end = json!({"kind": "message", "seq": 1, "message": "m", "role": "assistant", "content": []});
    let count: usize = OURS.iter().map(|line| disguises(line, 80).len()).sum();
    assert!(count >= 1000, "{count}");
    check(0, &[], |text| vec![delta("text_delta", text), end.clone()]);
    check(0, &[], |text| vec![delta("thinking_delta", text), end.clone()]);
}

#[test]
fn tools_are_named_by_one_line_and_what_they_say_is_no_line_of_ours() {
    let finished = |text: &str, diff: Option<&str>, is_error: bool| {
        json!({"kind": "tool_finished", "call_id": "c", "outcome": "ran", "is_error": is_error, "ms": 1, "diff": diff,
               "content": [{"type": "text", "text": text}]})
    };
    let started = |action: &str| json!({"kind": "tool_started", "call_id": "c", "tool": "bash", "action": action});
    check(2, &["• bash", "✓ 1 ms"], |text| vec![started(text), finished(text, None, false)]);
    check(2, &["• bash", "✗"], |text| vec![started("x"), finished(text, None, true)]);
    check(2, &["• bash", "✓ 1 ms"], |text| {
        vec![started("x"), finished("", Some(&format!("+{text}\n-{text}\n{text}")), false)]
    });
    let hosted = |part: &str, text: &str| json!({"kind": "hosted_delta", "message": "m", "block": 1, "tool": "web_search", "part": part, "offset": 0, "text": text});
    check(1, &["✓"], |text| vec![hosted("result", text)]);
    check(1, &["• web_search"], |text| vec![hosted("call", text)]);
}

#[test]
fn what_others_wrote_is_behind_a_word_of_ours() {
    let prompt = |text: &str| json!({"kind": "message", "seq": 1, "message": "m", "role": "user", "prompt": "p", "content": [{"type": "text", "text": text}]});
    check(1, &[">"], |text| vec![prompt(text)]);
    check(1, &["warning:"], |text| vec![json!({"kind": "notice", "level": "warning", "text": text})]);
    check(1, &["denied by nvim:"], |text| {
        vec![
            json!({"kind": "permission_resolved", "permission": "q", "decision": "reject_once", "by": "nvim", "reason": text}),
        ]
    });
    check(0, &[], |text| vec![json!({"kind": "plan", "entries": [{"content": text, "status": "in_progress"}]})]);
    check(1, &["? q: bash"], |text| {
        vec![
            json!({"kind": "permission_requested", "permission": "q", "call_id": "c", "tool": "bash", "action": text, "input": {}, "cwd": "/", "digest": "", "grant": "", "options": []}),
        ]
    });
}
