//! Tests of the client's prompts, queue and drafts.

use serde_json::{Value, json};

use super::*;

fn event(value: Value) -> Event {
    serde_json::from_value(value).unwrap()
}

fn accepted(prompt: &str, when: &str) -> Event {
    let content = json!([{ "type": "text", "text": format!("do {prompt}") }]);
    event(json!({ "kind": "prompt_accepted", "prompt": prompt, "content": content, "when": when }))
}

fn drafted(prompt: &str) -> Event {
    event(json!({ "kind": "prompt_drafted", "prompt": prompt }))
}

fn typed(line: &str, comes_back: bool) -> TypedPrompt {
    TypedPrompt { line: line.to_owned(), comes_back, ..TypedPrompt::default() }
}

fn send(prompts: &mut Prompts, prompt: &str, when: &str) {
    let key = Some(format!("k{prompt}"));
    prompts.send(key.clone(), typed(&format!("do {prompt}"), when == "queue"));
    prompts.event(&accepted(prompt, when));
    let was = prompts.end_request(key.as_ref());
    prompts.accept(prompt.into(), was);
}

#[test]
fn only_our_queued_prompts_come_back_each_once_and_in_order() {
    let mut prompts = Prompts::default();
    assert!(!prompts.any_to_come_back());
    send(&mut prompts, "p2", "queue");
    send(&mut prompts, "p3", "steer");
    prompts.event(&accepted("p4", "queue"));
    send(&mut prompts, "p5", "queue");
    assert!(prompts.any_to_come_back());
    for prompt in ["p2", "p3", "p4", "p5"] {
        prompts.event(&drafted(prompt));
    }
    assert!(!prompts.any_unstarted());
    let drafts: Vec<_> = prompts.drafts().iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(drafts, ["do p2", "do p3", "do p4", "do p5"]);
    let back = prompts.take_to_come_back();
    let lines: Vec<_> = back.iter().map(|(prompt, typed)| (prompt.0.as_str(), typed.line.as_str())).collect();
    assert_eq!(lines, [("p2", "do p2"), ("p5", "do p5")]);
    assert!(prompts.take_to_come_back().is_empty());
    prompts.event(&event(json!({ "kind": "prompt_unqueued", "prompt": "p2" })));
    assert_eq!(prompts.listed(1), Some((&"p3".into(), true)));
    prompts.event(&event(json!({ "kind": "draft_sent", "prompt": "p3" })));
    assert_eq!(prompts.listed(1), Some((&"p3".into(), false)));
    assert!(prompts.any_unstarted(), "our steer is queued again");
    assert_eq!((prompts.listed(0), prompts.listed(4)), (None, None));
}

#[test]
fn a_prompt_whose_answer_comes_after_it_was_drafted_comes_back_too() {
    let mut prompts = Prompts::default();
    prompts.send(Some("k".to_owned()), typed("late", true));
    prompts.event(&accepted("p2", "queue"));
    prompts.event(&drafted("p2"));
    assert!(prompts.take_to_come_back().is_empty() && !prompts.all_answered());
    let was = prompts.end_request(Some(&"k".to_owned()));
    prompts.accept("p2".into(), was);
    assert_eq!(prompts.take_to_come_back(), [("p2".into(), typed("late", true))]);
}

#[test]
fn what_an_error_holds_does_not_come_back() {
    let mut prompts = Prompts::default();
    send(&mut prompts, "p2", "queue");
    prompts.hold();
    assert!(prompts.take_to_come_back().is_empty());
    prompts.release();
    assert!(prompts.any_unstarted());
}
