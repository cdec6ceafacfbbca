//! Notes that outlive sessions: parameters and results of `memory/*`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The subject of notes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::open)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// The user, in all workspaces.
    User,
    /// A workspace; they are the user's own files all the same, and not in it.
    #[default]
    Workspace,
    /// One that this build does not know.
    #[serde(other)]
    Unknown,
}

/// `memory/list`: the notes that sessions in a directory have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct List {
    /// A directory of a workspace, absolute.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub cwd: PathBuf,
    /// Whether the text of each comes with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub text: bool,
}

/// Something to remember in later sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Note {
    /// The subject.
    pub scope: Scope,
    /// Unique among notes of its scope.
    pub name: String,
    /// Its first line, as the index has it.
    pub about: String,
    /// Its file, which a person may edit.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub path: PathBuf,
    /// How long it is.
    pub bytes: u64,
    /// Its text, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// `memory/add`: writes a note that did not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Add {
    /// A directory of a workspace, absolute.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub cwd: PathBuf,
    /// The subject.
    #[serde(default)]
    pub scope: Scope,
    /// Its text; the first line says what it is about.
    pub text: String,
    /// Its name; made of its first words when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// `memory/remove`: removes a note.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Remove {
    /// A directory of a workspace, absolute.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub cwd: PathBuf,
    /// The subject.
    #[serde(default)]
    pub scope: Scope,
    /// As `memory/list` gives it.
    pub name: String,
}
