//! A session as Markdown: prompts, answers, and each tool call with what it gave. Pure: events in, text out.
//!
//! It goes to a file or a pipe, so text stays as the model wrote it; only fences grow until nothing inside can close them.

use linger_protocol::event::{
    Compacted, Event, EventBody, MessageAdded, SessionChanged, SessionCreated, ToolFinished, ToolStarted, TurnFinished,
};
use linger_protocol::message::{ContentBlock, Role, StopReason, text_of};

use super::words::reason;

/// Bytes of a tool's output that are exported; the session has all of it.
const MAX_OUTPUT: usize = 16 << 10;

/// The Markdown of an event; empty if it has none.
pub(crate) fn markdown(event: &Event) -> String {
    match &event.body {
        EventBody::SessionCreated(SessionCreated { cwd, model, .. }) => {
            format!("# Session in {}\n\nModel: {model}\n\n", cwd.display())
        }
        EventBody::SessionChanged(SessionChanged { title: Some(title), .. }) => format!("Title: {title}\n\n"),
        EventBody::Message(MessageAdded { role: Role::User, content, prompt: Some(_), .. }) => {
            let pictures = content.iter().filter(|block| matches!(block, ContentBlock::Image { .. })).count();
            let pictures = if pictures > 0 { format!("({pictures} pictures)\n\n") } else { String::new() };
            format!("## Prompt\n\n{}\n\n{pictures}", text_of(content).trim())
        }
        EventBody::Message(MessageAdded { role: Role::Assistant, content, model, .. }) => {
            let text = text_of(content);
            let by = model.as_deref().map(|model| format!(" ({model})")).unwrap_or_default();
            if text.trim().is_empty() { String::new() } else { format!("## Answer{by}\n\n{}\n\n", text.trim()) }
        }
        EventBody::ToolStarted(ToolStarted { tool, action, .. }) => format!("### {tool}\n\n{}", fenced(action)),
        EventBody::ToolFinished(ToolFinished { content, diff, is_error, .. }) => {
            let output = text_of(content);
            let end = (0..=output.len().min(MAX_OUTPUT)).rev().find(|at| output.is_char_boundary(*at)).unwrap_or(0);
            let (shown, cut) = output.split_at(end);
            let cut = if cut.is_empty() { String::new() } else { format!("({} bytes more)\n\n", cut.len()) };
            let failed = if *is_error { "It failed:\n\n" } else { "" };
            let diff = diff.as_deref().map(fenced).unwrap_or_default();
            format!("{failed}{}{cut}{diff}", fenced(shown))
        }
        EventBody::TurnFinished(TurnFinished { stop_reason, .. }) if *stop_reason != StopReason::EndTurn => {
            format!("*{}*\n\n", reason(*stop_reason))
        }
        EventBody::Forked(begun) => {
            format!("---\n\nForked from session {} after event {}.\n\n", begun.origin.session, begun.origin.seq)
        }
        EventBody::Uncompacted(_) => "---\n\nThe last summary was undone.\n\n".to_owned(),
        EventBody::Merged(done) => {
            format!("---\n\nThe work of session {} was merged: commit {}.\n\n", done.child, done.commit)
        }
        EventBody::Rewound(back) => {
            format!("---\n\nWent back to before prompt {}; the old branch is session {}.\n\n", back.prompt, back.branch)
        }
        EventBody::Compacted(Compacted { summary, .. }) => {
            format!("## Summary for the model\n\n{}\n\n", summary.trim())
        }
        _ => String::new(),
    }
}

/// A block of text as it stands.
fn fenced(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_inside_closes_a_fence() {
        assert_eq!(fenced("a\n```\nb"), "````\na\n```\nb\n````\n\n");
        assert_eq!(fenced(""), "```\n```\n\n");
    }
}
