//! A prefix that changed, and the events that may name the change: `compacted`, `trimmed`, `forked`, `rewound`, a `prompt_accepted` with a schema and a
//! `session_changed` with instructions or a setup, by what they say and by nothing else.

use serde_json::Value;

use super::plain::is_made_plain;
use super::shape;

/// How a context begins whose older messages a summary stands for.
const SUMMARY: &str = "The beginning of this session was replaced by this summary.";

/// What stands in place of output that was left out.
const LEFT_OUT: &str = "of output were left out to make room;";

/// What stands in place of an image that was refused.
const NO_IMAGE: &str = "an image was left out: the model did not take it";

/// A request that does not begin as one before it did.
#[derive(Debug)]
pub(super) struct Break {
    /// What there is to complain about.
    pub(super) what: String,
    /// What may name it.
    pub(super) by: By,
}

/// What may be the reason of a change.
#[derive(Debug)]
pub(super) enum By {
    /// Room was made: these messages continue those of no request `before`, of those that they might have continued.
    Room { items: Vec<String>, before: Vec<Vec<String>> },
    /// A prompt whose answer is held to this schema.
    Prompt(Value),
    /// The system prompt or the tools are others: the files with instructions, or the setup.
    Setup,
}

/// Whether a request says that it goes on from a summary; one that asks for a summary has no tools.
pub(super) fn begins_with_summary(json: &Value, items: &[String]) -> bool {
    !json["tools"].is_null() && items.first().is_some_and(|item| item.contains(SUMMARY))
}

impl Break {
    /// Whether `event` is the reason.
    pub(super) fn is_named_by(&self, event: &Value) -> bool {
        let kind = event["kind"].as_str().unwrap_or_default();
        match &self.by {
            By::Prompt(schema) => kind == "prompt_accepted" && shape::holds_to(schema, &event["schema"]),
            By::Setup => {
                kind == "session_changed"
                    && (["instructions", "skills"].iter().any(|it| event[*it].is_array())
                        || event["cwd"].is_string()
                        || event["agent"]["digest"].is_string()
                        || event["setup"]["digest"].is_string())
            }
            By::Room { items, before } => match kind {
                "compacted" => is_compacted(items, before, event["summary"].as_str().unwrap_or_default()),
                "forked" | "rewound" => is_gone_on(items, before),
                "uncompacted" => before.iter().any(|before| !before.is_empty() && before.first() == items.first()),
                "trimmed" => {
                    let count = |named: &str| event[named].as_array().map_or(0, Vec::len);
                    is_trimmed(items, before, count("calls"), LEFT_OUT)
                        || is_trimmed(items, before, count("images"), NO_IMAGE)
                        || is_made_plain(items, before, count("native"))
                }
                _ => false,
            },
        }
    }
}

/// It is the beginning of what was sent before, and after that only a user has said something.
fn is_gone_on(items: &[String], before: &[Vec<String>]) -> bool {
    let is_new = |before: &Vec<String>| {
        let same = items.iter().zip(before).take_while(|(one, other)| one == other).count();
        same > 0 && !items.iter().skip(same).any(|item| item.starts_with("assistant "))
    };
    before.iter().any(is_new)
}

/// The summary comes first, and what follows it is the end of what was sent before, unchanged.
fn is_compacted(items: &[String], before: &[Vec<String>], summary: &str) -> bool {
    let Some((first, rest)) = items.split_first() else { return false };
    let written = Value::from(summary).to_string();
    let written = written.trim_matches('"');
    let kept = |before: &Vec<String>| {
        let ends = (1..=before.len()).map(|at| &before[at..]);
        // With nothing kept, nothing of what was sent before may be there.
        ends.into_iter()
            .any(|end| rest.starts_with(end) && (!end.is_empty() || !rest.iter().any(|item| before.contains(item))))
    };
    !summary.is_empty() && first.contains(SUMMARY) && first.contains(written) && before.iter().any(kept)
}

/// Some results or images are left out, `most` of them, and nothing else is different.
fn is_trimmed(items: &[String], before: &[Vec<String>], most: usize, word: &str) -> bool {
    let alike = |before: &Vec<String>| {
        let changed: Vec<bool> =
            before.iter().zip(items).filter(|(old, new)| old != new).map(|(_, new)| new.contains(word)).collect();
        before.len() <= items.len() && changed.len() <= most && changed.iter().all(|left_out| *left_out)
    };
    before.iter().any(alike)
}
