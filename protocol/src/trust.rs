//! Trust in the files of a workspace: parameters and results of `trust/*`.
//!
//! What they narrow counts at once; what they widen (rules that allow) is in force once a person trusts it.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::Waiting;

/// `trust/get`: what the files of a workspace set, and what of it waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Get {
    /// A directory in the workspace, absolute.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub cwd: PathBuf,
}

/// The result of `trust/get`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Workspace {
    /// The root of the workspace: the repository that contains the directory, or that directory.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub workspace: PathBuf,
    /// The file; it may be missing.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub file: PathBuf,
    /// The settings that are in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<Value>,
    /// The error of the file; everything in the workspace asks while there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The errors of the workspace's `.mcp.json` and its servers, a line each; they concern those alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// The changes that wait until a person trusts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
}

/// `trust/confirm`: trusts what waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Confirm {
    /// The root of the workspace.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub workspace: PathBuf,
    /// The hash of the changes that were shown; others are refused.
    pub digest: String,
}

/// A row of `trust/list`: a workspace of which something is trusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trusted {
    /// The root of the workspace.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub workspace: PathBuf,
    /// The trusted settings, a line each.
    pub trusts: Vec<String>,
}

/// `trust/revoke`: trusts nothing of a workspace any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Revoke {
    /// A directory in the workspace, absolute; or its root, which may be gone.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub cwd: PathBuf,
}

/// The result of `trust/revoke`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Revoked {
    /// The root of the workspace.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub workspace: PathBuf,
    /// Whether anything was trusted.
    pub revoked: bool,
}
