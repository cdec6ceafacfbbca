//! Skills, commands, agents, tools and servers, which are Markdown files: parameters and results of `skill/list` and its like.

use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::Level;

/// `skill/list`, `command/list`, `agent/list`, `tool/files`, `mcp/files`: what there is for sessions in a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct List {
    /// A directory of a workspace, absolute.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub cwd: PathBuf,
    /// Only this file, wherever it lies, absolute; for a skill its directory or its SKILL.md. It is checked, and not used.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub path: Option<PathBuf>,
    /// Whether the text of each comes with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub text: bool,
}

/// A skill, a command or an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Item {
    /// As a prompt or the configuration names it.
    pub name: String,
    /// Its purpose, as its file gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its file.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub path: PathBuf,
    /// Whose it is.
    pub scope: Scope,
    /// Whether sessions have it.
    pub status: Status,
    /// The file that counts in its place, if one of the same name does.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub hidden_by: Option<PathBuf>,
    /// Its errors and warnings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
    /// The text behind its header, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// Whose a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::open)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// The user's.
    User,
    /// The workspace's.
    Workspace,
    /// It was named in the request.
    Named,
    /// One that this build does not know.
    #[serde(other)]
    Unknown,
}

/// Whether sessions have a skill, command or agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::open)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// They have it.
    Active,
    /// Not until a person trusts its file: `trust/get`.
    Waits,
    /// Another one of its name counts.
    Hidden,
    /// It cannot be read.
    Broken,
    /// One that this build does not know.
    #[serde(other)]
    Unknown,
}

/// Something that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// The line, from 1.
    pub line: usize,
    /// `error` if it breaks the rules for such files, though it may be used.
    pub level: Level,
    /// The problem, in one line.
    pub text: String,
}

impl Problem {
    /// One that breaks the rules.
    pub fn error(line: usize, text: impl Into<String>) -> Self {
        Self { line, level: Level::Error, text: text.into() }
    }

    /// One that breaks no rule.
    pub fn warning(line: usize, text: impl Into<String>) -> Self {
        Self { line, level: Level::Warning, text: text.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

/// A skill that a session's model is told of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Skill {
    /// As its file or directory gives it.
    pub name: String,
    /// Its file.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub path: PathBuf,
    /// `sha256:` and the hash of the file.
    pub digest: String,
}

/// The limits of a turn that has read a skill.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SkillLimit {
    /// The skill's name.
    pub skill: String,
    /// Rules, as the configuration has them, for the calls that may run; those that only read need none.
    pub allowed: Vec<String>,
}

/// The agent of a session: the file that it was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Role {
    /// As its file gives it.
    pub name: String,
    /// Its file.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub path: PathBuf,
    /// `sha256:` and the hash of the file.
    pub digest: String,
}
