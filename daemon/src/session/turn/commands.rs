//! The command lines of a prompt's command: run as calls of `bash` before the next step, and their output told to the model.
//!
//! The state knows how far they are, so a resumed turn continues with the permission, the result or the message that is due.

use std::collections::HashMap;

use linger_protocol::event::Asks;
use linger_protocol::id::CallId;
use linger_protocol::message::ContentBlock;

use super::step::Step;
use super::{Turn, TurnEnded};
use crate::session::state::until::{CHECKS_WITH, command_input};
use crate::tool::text::tail;

/// How much of a command's output the model reads, in bytes: about 8,000 tokens; the whole is with the call.
const MAX_OUTPUT: usize = 32 << 10;

impl Turn {
    /// Runs the command lines that are due.
    pub(super) async fn run_commands(&mut self, step: &mut Step) -> Result<(), TurnEnded> {
        let mut results: HashMap<CallId, ContentBlock> = HashMap::new();
        let runs = loop {
            let runs = self.emit.runs().await?;
            let open = runs.iter().find(|run| run.outcome.is_none());
            let Some((run, call_id)) = open.and_then(|run| Some((run, run.call.clone()?))) else { break runs };
            let (name, input) = (CHECKS_WITH.to_owned(), command_input(&run.command));
            let call = ContentBlock::ToolUse { call_id: call_id.clone(), name, input, native: None };
            let result = self.runner().run(vec![call], HashMap::new(), &HashMap::new(), false).await?.pop();
            results.extend(result.map(|result| (call_id, result)));
        };
        if runs.is_empty() {
            return Ok(());
        }
        let mut text = "[This is not the user, but the output of the commands of the prompt:]".to_owned();
        for run in runs {
            let call = run.call.unwrap_or_default();
            let result = results.remove(&call).or_else(|| step.context.results.remove(&call));
            let output = match &result {
                Some(ContentBlock::ToolResult { content, .. }) => lines_of(content),
                _ => "[its result is lost; it may have run]".to_owned(),
            };
            text.push_str(&format!("\n\n$ {}\n{}", run.command, tail(&output, MAX_OUTPUT)));
        }
        self.say(Asks::Output, text, step).await
    }
}

/// The texts of a result, each on lines of its own.
pub(super) fn lines_of(content: &[ContentBlock]) -> String {
    let texts = content.iter().filter_map(ContentBlock::as_text).map(str::trim_end).filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join("\n")
}
