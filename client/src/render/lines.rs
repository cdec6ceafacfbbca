//! Events that are one dimmed line each. Pure.

use linger_protocol::event::{EventBody, Exit, PermissionRequested};
use linger_protocol::message::{ContentBlock, text_of};
use linger_protocol::question::Subject;
use linger_protocol::tree::{Forked, Rewound};

use crate::terminal::{clean_exact_line, clean_line};

pub(super) const SUPERSEDED: &str = "retrying this step; ignore the text above";

pub(super) fn check(failed: u32, tries: u32) -> String {
    let again = if failed == 0 { String::new() } else { format!(" (after try {failed} of {tries})") };
    format!("running the check{again}")
}

/// The first line of what is wrong with an answer.
pub(super) fn asked_again(content: &[ContentBlock]) -> String {
    let text = text_of(content);
    format!("asked again: {}", clean_line(text.lines().next().unwrap_or_default()))
}

pub(super) fn background_ended(background: &str, exit: Option<&Exit>, reason: Option<&str>) -> String {
    let how = match exit.and_then(|exit| exit.code) {
        Some(code) => format!("exit code {code}"),
        None => reason.unwrap_or("killed").to_owned(),
    };
    format!("background command {background} has ended: {}", clean_line(&how))
}

pub(super) fn forked(fork: &Forked) -> String {
    let line = format!("forked from session {} after event {}", fork.origin.session, fork.origin.seq);
    clean_line(&line).into_owned()
}

pub(super) fn rewound(back: &Rewound) -> String {
    let line = format!("went back to before prompt {}; the old branch is session {}", back.prompt, back.branch);
    clean_line(&line).into_owned()
}

/// The events that cannot be read any more.
pub(super) fn lost(first: u64, last: u64) -> String {
    if first == last {
        format!("event {first} can no longer be read")
    } else {
        format!("events {first} to {last} can no longer be read")
    }
}

/// A question where none can be answered.
pub(super) fn question(body: &EventBody) -> Option<String> {
    match body {
        EventBody::PermissionRequested(PermissionRequested { permission, tool, action, about, .. }) => {
            let tool = if *about == Some(Subject::Check) { "this turn's check:" } else { tool };
            Some(format!("? {permission}: {} {}", clean_line(tool), clean_exact_line(action)))
        }
        EventBody::QuestionAsked { question, asked } => Some(format!("? {question}: {}", clean_line(&asked.text))),
        _ => None,
    }
}
