//! Sums of tokens and cost: parameters and result of `usage/list`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::SessionId;
use crate::message::Usage;

/// `usage/list`: what was paid for, summed up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct List {
    /// From the day on in which this lies, in Unix milliseconds; everything without it. Days are those of UTC, as in providers' bills.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// The key of the rows.
    #[serde(default)]
    pub by: By,
}

/// The key of the rows of `usage/list`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// A day; the latest last.
    #[default]
    Day,
    /// A model, the dearest first.
    Model,
    /// A session, the dearest first; one row without a name stands for all that were removed.
    Session,
}

/// The result of `usage/list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sums {
    /// A row each.
    pub rows: Vec<Sum>,
    /// All of it, what was left out too.
    pub total: Sum,
    /// Rows that were left out because there are too many: the oldest days, the cheapest models or sessions.
    #[serde(default)]
    pub left_out: u64,
}

/// The usage of some answers, added up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sum {
    /// The day, such as `2026-11-21`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<String>,
    /// The model, `provider/model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Present in sums by session, unless it was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The name of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Answers of models, those that were cut included.
    pub answers: u64,
    /// Their tokens and what they cost.
    pub usage: Usage,
}
