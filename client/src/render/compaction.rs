//! Compactions and cuts of the context, as one line each.

use linger_protocol::event::{Compacted, CompactionFailed, CompactionStarted, EventBody, Trigger, Trimmed};

use super::money;
use super::style::Style;
use crate::terminal::clean_line;

/// The line for an event of this kind.
pub(super) fn line(body: &EventBody, style: Style) -> Option<String> {
    let many = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    Some(match body {
        EventBody::CompactionStarted(CompactionStarted { trigger, messages, tokens, .. }) => {
            let why = match trigger {
                Trigger::Full => "the context is nearly full; ",
                Trigger::TooLong => "the context is too long for the model; ",
                Trigger::Asked | Trigger::Unknown => "",
            };
            let old = many(*messages as usize, "older message");
            style.dim(&format!("{why}summarising {old}, {} tokens in all …", money::tokens(*tokens)))
        }
        EventBody::Compacted(Compacted { messages, tokens_before, tokens_after, .. }) => {
            let old = many(*messages as usize, "older message");
            style.dim(&format!("compacted: a summary replaces {old}{}", saved(*tokens_before, *tokens_after)))
        }
        EventBody::CompactionFailed(CompactionFailed { reason, .. }) => {
            style.yellow(&format!("warning: not compacted: {}", clean_line(reason)))
        }
        EventBody::Trimmed(Trimmed { native, .. }) if !native.is_empty() => {
            let messages = many(native.len(), "message");
            style.yellow(&format!(
                "warning: the provider refused the history; the model no longer sees its thinking in {messages}"
            ))
        }
        EventBody::Trimmed(Trimmed { calls, images, .. }) if calls.is_empty() => {
            let messages = many(images.len(), "message");
            style.yellow(&format!("warning: the model refused the images of {messages}; it no longer sees them"))
        }
        EventBody::Trimmed(Trimmed { calls, tokens_before, tokens_after, .. }) => {
            let old = many(calls.len(), "older call");
            let saved = saved(*tokens_before, *tokens_after);
            style.yellow(&format!("warning: the model no longer sees the output of {old}{saved}"))
        }
        _ => return None,
    })
}

/// How many tokens are saved.
fn saved(before: u64, after: u64) -> String {
    format!(
        "; {} tokens became {}, {} saved",
        money::tokens(before),
        money::tokens(after),
        money::tokens(before.saturating_sub(after))
    )
}
