//! stub
use std::path::{Path,PathBuf}; use linger_protocol::event::Instruction; use crate::tool::Workspace;
pub fn load(_: &Path, _: &Workspace) -> Vec<(Instruction, String)> { vec![] }
pub fn render(_: &[(Instruction, String)]) -> String { String::new() }
pub fn workspace_root(cwd: &Path, _: Option<&Path>) -> PathBuf { cwd.to_path_buf() }
