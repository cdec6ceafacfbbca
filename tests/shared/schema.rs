//! What the tests of `schema` share, whether they need a program or not.

use linger_tests::model::{Format, Reply};
use serde_json::Value;

/// An answer as a model of this format gives one when it is held to a schema.
pub(crate) fn gives(format: Format, answer: &Value) -> Reply {
    match format {
        Format::Anthropic => Reply::tool("final_answer", answer.clone()),
        _ => Reply::text(answer.to_string()),
    }
}
