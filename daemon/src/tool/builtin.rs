//! The list of tools that come with the daemon.

use std::sync::Arc;

use super::apply_patch::ApplyPatch;
use super::ask_user::AskUser;
use super::bash::Bash;
use super::bash_output::{BashKill, BashOutput};
use super::delegate::Tasks;
use super::edit::Edit;
use super::fetch::Fetch;
use super::git::GitTool;
use super::glob::Glob;
use super::grep::Grep;
use super::image::Image;
use super::ls::Ls;
use super::memory::Memory;
use super::plan::Plan;
use super::read::Read;
use super::set::{ToolSet, Tools};
use super::skill::Skill;
use super::test_run::TestRun;
use super::types::Tool;
use super::write::Write;

/// The tools that come with the daemon, in the order in which a model sees them. Those at the end are for some sessions only.
pub fn builtin() -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(Bash),
        Arc::new(Read),
        Arc::new(Write),
        Arc::new(Edit),
        Arc::new(Ls),
        Arc::new(Glob),
        Arc::new(Grep),
        Arc::new(GitTool),
        Arc::new(TestRun),
        Arc::new(BashOutput),
        Arc::new(BashKill),
        Arc::new(Fetch),
        Arc::new(Plan),
        Arc::new(AskUser),
        Arc::new(Tasks),
        Arc::new(ApplyPatch),
        Arc::new(Image::without_models()),
        Arc::new(Memory),
        Arc::new(Skill),
    ]
}

impl Default for Tools {
    fn default() -> Self {
        Self::new(ToolSet::new(builtin()))
    }
}
