//! The configuration: parameters and results of `config/*`.
//!
//! What widens what may happen (mode, rules, programs to run, where a key goes …) is in force once a person has confirmed it.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::QuestionId;

/// `config/get`: what is in force, and what waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Get {
    /// Whether the result has the text of the file.
    #[serde(default)]
    pub text: bool,
}

/// The result of `config/get`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Configuration {
    /// The file; it may be missing.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub file: PathBuf,
    /// The settings of the file that are in force, with its tables and keys; what is absent has its default. Absent if the file
    /// was never valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<Value>,
    /// The error of the file as it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The changes of the file that wait until a person confirms them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// Valid settings without effect, or with a surprising one, a line each: such as a rule that never matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The text of the file, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Text>,
}

/// Changes that wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Waiting {
    /// The hash of the changes; `config/confirm` takes it.
    pub digest: String,
    /// The question that lists them; absent once it was answered with `keep`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<QuestionId>,
    /// The changes, a line each.
    pub changes: Vec<String>,
}

/// The text of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Text {
    /// The text; empty if there is no file.
    pub text: String,
    /// Its hash; `config/write` takes it.
    pub digest: String,
}

/// `config/confirm`: puts the changes that wait into force. Sent again it does nothing more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Confirm {
    /// The hash of the changes that were shown; others are refused.
    pub digest: String,
}

/// `config/set`: sets one key in the file; what that widens is confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Set {
    /// The dotted key, such as `permissions.allow`.
    pub name: String,
    /// The value as in the file; what is not TOML is a string.
    pub value: String,
}

/// `config/write`: replaces the text of the file; what that widens is confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Write {
    /// The new text.
    pub text: String,
    /// The hash of the text that was edited; if the file has another now, nothing is written.
    pub digest: String,
    /// Only check the text, and say what would be confirmed.
    #[serde(default)]
    pub dry_run: bool,
}

/// The result of `config/confirm`, `config/set` and `config/write`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Confirmed {
    /// The confirmed changes, a line each; empty if nothing widens.
    #[serde(default)]
    pub confirmed: Vec<String>,
}
