//! What is shown of a question, and what keys and words come to.

use linger_protocol::event::Event;
use linger_protocol::question::{Action, Answer, Position, QuestionOption};
use serde_json::Value;

use super::form;
use super::one::{Body, NUMBERS, Press, Question};
use super::open::Questions;
use super::shown::{LINE, LINES, indent, lines, parts};
use crate::difference::Differences;
use crate::render::style::Style;

#[test]
fn a_line_without_end_is_as_many_as_it_takes() {
    let line = "ä".repeat(LINE);
    assert_eq!(lines(&line), [(false, line.as_str())]);
    let long = format!("{line}{line}b\n\nc");
    assert_eq!(lines(&long), [(false, line.as_str()), (true, &line), (true, "b"), (false, ""), (false, "c")]);
    let mut out = String::new();
    indent(&mut out, &format!("{line}b"), LINES);
    assert_eq!(out, format!("    {line}\n  ~ b\n"));
}

fn question(body: Body) -> Question {
    Question {
        id: "q1".into(),
        body,
        holds_up: true,
        digest: String::new(),
        whole: false,
        answered: false,
        writes: false,
        rule: None,
        is_check: false,
        changes: Vec::new(),
        differences: Differences::default(),
    }
}

fn action(tool: &str, action: &str, input: Value, grant: &str) -> Action {
    let (tool, action, grant) = (tool.to_owned(), action.to_owned(), grant.to_owned());
    Action {
        permission: "q1".into(),
        tool,
        action,
        input,
        cwd: "/w".into(),
        grant,
        grants: Vec::new(),
        why: None,
        position: None,
    }
}

#[test]
fn a_long_rule_is_cut_only_where_it_repeats_the_action() {
    let style = Style { color: false, unicode: true };
    let long = format!("echo {}", "x".repeat(60));
    let keys = |of: &str, grant: String| {
        question(Body::Permission(action("bash", of, Value::Null, &grant))).keys(&style, false, false)
    };
    let cut = format!(" always bash(echo {}…)  ", "x".repeat(35));
    assert!(keys(&long, format!("bash({long})")).contains(&cut));
    assert!(keys(&format!("{long} *"), format!("bash({long} *)")).contains(&format!("bash({long} *)")));
    assert!(keys("cargo test", "bash(cargo test)".to_owned()).contains("bash(cargo test)"));
    assert!(keys("ls", "bash(l\u{200b}s\u{301})".to_owned()).contains(" always bash(l<200b>s<0301>)"));
    let unseen = format!("e\u{200b}cho {}", "x".repeat(60));
    assert!(keys(&unseen, format!("bash({unseen})")).contains(" always bash(e<200b>cho x"));
}

#[test]
fn a_choice_is_answered_by_number_here_and_by_name_elsewhere() {
    let style = Style { color: false, unicode: true };
    let options = |n: usize| (1..=n).map(|n| QuestionOption::new(&format!("n{n}"), &format!("take {n}"))).collect();
    let choice = |n| question(Body::Choice("which?\nthere are some\u{1b}[31m".to_owned(), options(n)));
    let two = choice(2);
    assert_eq!(two.text(&style), "? which?\n    there are some␛[31m\n    1 take 1 (n1)\n    2 take 2 (n2)\n");
    assert_eq!(
        (two.keys(&style, true, false).as_str(), two.answers()),
        ("press a number to answer, then Enter\n", "12")
    );
    assert_eq!(two.elsewhere(), "answer with `linger answer q1 n1|n2`");
    assert_eq!((two.named("n2"), two.named("2"), two.named("allow")), (Some("n2".to_owned()), None, None));
    let mut open = Questions { open: vec![choice(10)], ..Questions::default() };
    assert_eq!(open.first().unwrap().answers(), NUMBERS);
    assert!(open.first().unwrap().text(&style).ends_with("    9 take 9 (n9)\n    - take 10 (n10)\n"));
    assert_eq!(open.press('y').unwrap(), Press::Nothing);
    assert!(open.hold_up());
    assert!(matches!(open.press('9').unwrap(), Press::Answer(Answer { answer, .. }) if answer == "n9"));
    assert!(open.first().is_none() && !open.hold_up());
}

#[test]
fn a_form_is_declined_by_a_key_and_answered_elsewhere() {
    let style = Style { color: false, unicode: true };
    let schema = serde_json::json!({
        "properties": { "name": { "type": "string", "description": "yours" }, "size": { "enum": ["s", "m"] } },
        "required": ["name"],
    });
    let form = question(Body::Form("who?".to_owned(), schema));
    let text = "? who?\n    name: string yours\n    size: [\"s\",\"m\"] (optional)\n";
    assert_eq!(form.text(&style), text);
    let keys = "n decline; answer with `linger answer q1 '{…}'|decline`\n";
    assert_eq!((form.keys(&style, false, false).as_str(), form.answers()), (keys, "nN"));
    assert_eq!((form.named("{}").as_deref(), form.named("x")), (Some("accept"), None));
    let mut open = Questions { open: vec![form], ..Questions::default() };
    assert!(matches!(open.press('n').unwrap(), Press::Answer(Answer { answer, .. }) if answer == "decline"));
}

#[test]
fn a_form_shows_what_can_be_chosen_and_what_its_server_proposes() {
    let schema = serde_json::json!({
        "properties": {
            "pet": { "type": "string", "enum": ["cat", "dog"], "default": "cat" },
            "hero": { "type": "string", "oneOf": [{ "const": "h1", "title": "Ann" }, { "const": "h2" }] },
            "toys": { "type": "array", "items": { "type": "string", "enum": ["ball", "rope"] }, "default": ["ball"] },
            "fish": { "type": "array", "items": { "anyOf": [{ "const": "f1", "title": "Tuna" }] }, "description": "two" },
            "free": { "anyOf": [{ "type": "string" }, { "const": 1 }] },
        },
        "required": ["hero"],
    });
    let lines = [
        "pet: string [\"cat\",\"dog\"] (optional, default \"cat\")",
        "hero: string [\"h1\" Ann, \"h2\"]",
        "toys: array [\"ball\",\"rope\"] (optional, default [\"ball\"])",
        "fish: array [\"f1\" Tuna] (optional) two",
        "free: (optional)",
    ];
    assert_eq!(form::fields(&schema), lines);
}

#[test]
fn the_one_text_of_a_form_is_written_as_it_is() {
    let style = Style { color: false, unicode: true };
    let schema = serde_json::json!({ "properties": { "answer": { "type": "string" } } });
    let form = question(Body::Form("why?".to_owned(), schema));
    assert_eq!(form.elsewhere(), "answer with `linger answer q1 'TEXT'|decline`");
    assert_eq!((form.named("so"), form.named("decline")), (Some("accept".to_owned()), Some("decline".to_owned())));
    let value = |word: &str| form.fields(word).unwrap().unwrap();
    for (word, text) in [("so", "so"), ("{x}", "{x}"), (r#"{"answer": "a"}"#, "a"), (r#"{"b": 1}"#, r#"{"b": 1}"#)] {
        assert_eq!(value(word), serde_json::json!({ "answer": text }), "{word}");
    }
    let mut open = Questions { open: vec![Question { writes: true, ..form }], writes: true, ..Questions::default() };
    let keys = open.keys(&style, true);
    assert_eq!(keys, "w type an answer  n decline, then Enter\n");
    assert_eq!(open.press('w').unwrap(), Press::Write);
    assert_eq!(open.write(&"q2".into(), "so").unwrap(), None);
    let answer = open.write(&"q1".into(), "so").unwrap().unwrap();
    assert_eq!((answer.answer.as_str(), answer.value), ("accept", Some(serde_json::json!({ "answer": "so" }))));
    assert!(open.first().is_none());
}

#[test]
fn nothing_is_allowed_that_was_not_shown() {
    let style = Style { color: false, unicode: true };
    let command = |lines: usize| (1..=lines).map(|n| format!("echo {n}")).collect::<Vec<_>>().join("\n");
    let asked = |of: String| Questions {
        open: vec![question(Body::Permission(action("bash", &of, Value::Null, "")))],
        ..Questions::default()
    };
    let mut short = asked(command(40));
    assert!(short.first().unwrap().text(&style).contains("echo 20\n"));
    assert!(matches!(short.press('y').unwrap(), Press::Answer(answer) if answer.answer == "allow_once"));
    let mut long = asked(command(41));
    let text = |questions: &Questions| questions.first().unwrap().text(&style);
    assert!(text(&long).contains("    echo 30\n    (1 line is not shown)\n    echo 32\n"), "{}", text(&long));
    for key in ['y', 's', 'a', 'A'] {
        assert_eq!(long.press(key).unwrap(), Press::NotYet);
    }
    assert_eq!(long.press('x').unwrap(), Press::Nothing, "it cannot be pressed here");
    assert!(long.keys(&style, false).starts_with("v show the rest"));
    assert_eq!(long.press('v').unwrap(), Press::Show);
    assert!(text(&long).contains("    echo 31\n") && !text(&long).contains("not shown"));
    assert!(matches!(long.press('y').unwrap(), Press::Answer(_)) && long.first().is_none());
    long.reopen(&"q1".into());
    assert!(long.first().is_some_and(|question| !question.is_cut()), "a refused answer loses no question");
    let mut denied = asked(command(400));
    assert!(matches!(denied.press('n').unwrap(), Press::Answer(answer) if answer.answer == "reject_once"));
}

/// Questions about commands of one answer, `q1` and so on, and one of another answer behind them.
fn of_one_answer(commands: &[&str]) -> Questions {
    let of = commands.len() as u32;
    let one = |number: u32, command: &str, first: &str| {
        let position = Some(Position { number, of, first: first.into() });
        let body = Body::Permission(Action { position, ..action("bash", command, Value::Null, "") });
        Question { id: format!("{first}{number}").as_str().into(), digest: format!("d{number}"), ..question(body) }
    };
    let mut open: Vec<Question> = (1..).zip(commands).map(|(number, command)| one(number, command, "q")).collect();
    open.push(one(1, "of another answer", "r"));
    Questions { open, ..Questions::default() }
}

fn allowed(press: Press) -> Vec<(String, String, String)> {
    let Press::Answers(answers) = press else { panic!("{press:?}") };
    let fields = |answer: Answer| (answer.question.to_string(), answer.answer, answer.digest.unwrap_or_default());
    answers.into_iter().map(fields).collect()
}

#[test]
fn the_rest_of_an_answer_is_allowed_by_a_second_key_once_all_of_it_was_shown() {
    let style = Style { color: false, unicode: true };
    let long = (1..=60).map(|n| format!("echo {n}")).collect::<Vec<_>>().join("\n");
    let mut open = of_one_answer(&["make a", &long, "make c"]);
    assert!(open.text(&style).starts_with("? 1 of 3: bash wants to run in "), "{}", open.text(&style));
    assert!(open.keys(&style, false).starts_with("y once  t the rest of this answer  s "));
    assert!(!open.text(&style).contains("make c"));
    assert_eq!(open.press('t').unwrap(), Press::Rest);
    let text = open.text(&style);
    assert!(["make a", "echo 31\n", "echo 32\n", "make c"].iter().all(|part| text.contains(part)), "{text}");
    assert!(!text.contains("another answer") && !text.contains("not shown"), "{text}");
    assert_eq!(open.keys(&style, true), "y allow these 3, this once  n back to the first, then Enter\n");
    // Only these keys mean something, and nothing else is allowed by them.
    assert_eq!(open.answers(), "yYnN");
    assert_eq!(open.press('s').unwrap(), Press::Nothing);
    assert_eq!(open.press('n').unwrap(), Press::Show);
    assert!(open.keys(&style, false).starts_with("y once  t the rest"), "nothing was denied");
    open.press('T').unwrap();
    let one = |id: &str, digest: &str| (id.to_owned(), "allow_once".to_owned(), digest.to_owned());
    assert_eq!(allowed(open.press('y').unwrap()), [one("q1", "d1"), one("q2", "d2"), one("q3", "d3")]);
    assert_eq!(open.first().unwrap().id.as_str(), "r1");
}

#[test]
fn the_rest_has_what_is_open_when_it_is_shown_and_goes_when_the_first_is_answered_elsewhere() {
    let style = Style { color: false, unicode: true };
    let resolved = |question: &str| -> Event {
        serde_json::from_value(serde_json::json!({
            "kind": "permission_resolved", "seq": 1, "at": 1, "permission": question, "decision": "allow_once", "by": "me",
        }))
        .unwrap()
    };
    let mut open = of_one_answer(&["make a", "make b", "make c"]);
    open.press('t').unwrap();
    // Another client answers the second: it is not answered here.
    assert!(!open.event(&resolved("q2")));
    assert_eq!(allowed(open.press('y').unwrap()).into_iter().map(|(id, ..)| id).collect::<Vec<_>>(), ["q1", "q3"]);

    let mut open = of_one_answer(&["make a", "make b", "make c"]);
    open.press('t').unwrap();
    // Another client answers the first: the next is on the screen, and a key answers that alone.
    assert!(open.event(&resolved("q1")));
    assert!(open.text(&style).starts_with("? 2 of 3: "), "{}", open.text(&style));
    assert!(matches!(open.press('y').unwrap(), Press::Answer(answer) if answer.question.as_str() == "q2"));
    // The last of them has no rest.
    assert!(open.keys(&style, false).starts_with("y once  s this session"));
}

#[test]
fn the_reason_why_a_change_asks_is_shown() {
    let style = Style { color: false, unicode: true };
    let why = Some("`.envrc` is run by a shell\u{1b}[31m".to_owned());
    let asked = question(Body::Permission(Action { why, ..action("write", "write .envrc", Value::Null, "") }));
    assert!(
        asked.text(&style).contains("\n  asks because `.envrc` is run by a shell␛[31m\n"),
        "{}",
        asked.text(&style)
    );
}

#[test]
fn every_argument_is_shown_that_the_action_is_not() {
    let check = |tool: &str, of: &str, input: Value, expect: &[&str]| {
        assert_eq!(parts(&action(tool, of, input, "")), expect);
    };
    let write = |content: &str| serde_json::json!({"path": "x.sh", "content": content});
    check("write", "write x.sh", write(""), &["write x.sh", "content: \"\""]);
    check("write", "write x.sh", write(" \n"), &["write x.sh", "content: \" \\n\""]);
    check("write", "write x.sh", write("sh"), &["write x.sh", "content: sh"]);
    check("write", "write x.sh", write("x.sh"), &["write x.sh", "content: x.sh"]);
    let edit = serde_json::json!({"new": "", "old": "x", "path": "x.sh"});
    check("edit", "edit x.sh", edit, &["edit x.sh", "new: \"\"", "old: x"]);
    let bash = serde_json::json!({"command": "sleep 30", "timeout": 30});
    check("bash", "sleep 30", bash, &["sleep 30", "timeout: 30"]);
    let elsewhere = serde_json::json!({"content": "true", "path": "/w/x.sh"});
    check("write", "write x.sh", elsewhere, &["write x.sh", "content: true", "path: /w/x.sh"]);
}

#[test]
fn a_question_hides_no_character() {
    let mut out = String::new();
    indent(&mut out, "ls\rX\r # \u{e0041}\u{200b}\u{ad}\u{3164}\u{202e}ä\ttab\nnext", LINES);
    assert_eq!(out, "    ls␍X␍ # <e0041><200b><00ad><3164><202e>ä\ttab\n    next\n");
}
