//! A prefix that changed, and the events that may name the change: `compacted`, `trimmed` and a `prompt_accepted` with a schema,
//! by what they say and by nothing else.

use serde_json::Value;

/// How a context begins whose older messages a summary stands for.
const SUMMARY: &str = "The beginning of this session was replaced by this summary.";

/// What stands in place of output that was left out.
const LEFT_OUT: &str = "of output were left out to make room;";

/// What stands in place of an image that was refused.
const NO_IMAGE: &str = "an image was left out: the model did not take it";

/// A request whose messages continue those of no request before.
#[derive(Debug)]
pub(super) struct Break {
    /// What there is to complain about.
    pub(super) what: String,
    pub(super) items: Vec<String>,
    /// The requests that it might have continued.
    pub(super) before: Vec<Vec<String>>,
    /// What the answer is held to, if that is what has to be named.
    pub(super) schema: Option<Value>,
}

/// Whether a request says that it goes on from a summary; one that asks for a summary has no tools.
pub(super) fn begins_with_summary(json: &Value, items: &[String]) -> bool {
    !json["tools"].is_null() && items.first().is_some_and(|item| item.contains(SUMMARY))
}

impl Break {
    /// Whether `event` is the reason.
    pub(super) fn is_named_by(&self, event: &Value) -> bool {
        if let Some(schema) = &self.schema {
            return event["kind"] == "prompt_accepted" && event["schema"] == *schema;
        }
        match event["kind"].as_str() {
            Some("compacted") => self.is_compacted(event["summary"].as_str().unwrap_or_default()),
            Some("trimmed") => {
                let count = |named: &str| event[named].as_array().map_or(0, Vec::len);
                self.is_trimmed(count("calls"), LEFT_OUT) || self.is_trimmed(count("images"), NO_IMAGE)
            }
            _ => false,
        }
    }

    /// The summary comes first, and what follows it is the end of what was sent before, unchanged.
    fn is_compacted(&self, summary: &str) -> bool {
        let Some((first, rest)) = self.items.split_first() else { return false };
        let written = Value::from(summary).to_string();
        let written = written.trim_matches('"');
        let kept = |before: &Vec<String>| {
            let ends = (1..=before.len()).map(|at| &before[at..]);
            // With nothing kept, nothing of what was sent before may be there.
            ends.into_iter()
                .any(|end| rest.starts_with(end) && (!end.is_empty() || !rest.iter().any(|item| before.contains(item))))
        };
        !summary.is_empty() && first.contains(SUMMARY) && first.contains(written) && self.before.iter().any(kept)
    }

    /// Some results or images are left out, as many as the event says at most, and nothing else is different.
    fn is_trimmed(&self, items: usize, word: &str) -> bool {
        let alike = |before: &Vec<String>| {
            let changed: Vec<bool> = before
                .iter()
                .zip(&self.items)
                .filter(|(old, new)| old != new)
                .map(|(_, new)| new.contains(word))
                .collect();
            before.len() <= self.items.len() && changed.len() <= items && changed.iter().all(|left_out| *left_out)
        };
        self.before.iter().any(alike)
    }
}
