//! The policy in force: the configuration's rules, what workspaces and sessions have granted, and the decision on a call.
//!
//! Links are resolved on a thread that may block, so that a disk which does not answer holds up its own call alone.
//! Deliberately absent: pending questions and their answers, which are state of a session.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use linger_protocol::permission::Mode;
use tokio::time::timeout;

use super::ConfigStore;
use crate::permission::{CallInfo, Rule, Sight, Verdict, decide, hides};
use crate::sys::disk;
use crate::tool::{Access, Hidden, Workspace};

/// What decides on calls, for all sessions.
#[derive(Debug)]
pub struct Policy {
    config: Arc<ConfigStore>,
}

impl Policy {
    /// The policy that `config` writes down.
    pub fn new(config: Arc<ConfigStore>) -> Self {
        Self { config }
    }

    /// Where a call would reach; nothing if the disk does not answer.
    pub async fn sight(&self, access: &Access, workspace: &Arc<Workspace>) -> Option<Sight> {
        let rules = self.config.current().map_or_else(|_| self.config.no_rules(), |config| config.rules.clone());
        if access.path().is_none() {
            return Some(Sight::of(access, workspace, &rules));
        }
        let (access, seen) = (access.clone(), workspace.clone());
        disk::look(&workspace.cwd, disk::PATIENCE, move || Sight::of(&access, &seen, &rules)).await
    }

    /// Decides one call of a session in this mode; `granted` are the rules that its answers have added.
    pub fn decide(
        &self,
        (mode, granted): (Mode, &[String]),
        call: &CallInfo<'_>,
        sight: &Sight,
        workspace: &Workspace,
    ) -> Verdict {
        match self.config.current() {
            Ok(config) => {
                let tools = self.config.tools().current();
                let granted = granted.iter().filter_map(|rule| Rule::parse(rule, tools.names()).ok());
                let grants: Vec<Rule> = granted.chain(config.grants(&workspace.root).iter().cloned()).collect();
                decide(&config.rules, &grants, mode, call, sight)
            }
            // What the rules forbid is unknown.
            Err(_) => Verdict::Ask { rule: Some("the configuration cannot be read".to_owned()) },
        }
    }

    /// What the rules keep a call of `tool` from reading.
    pub fn hidden(&self, tool: &str, access: &Access, workspace: &Arc<Workspace>) -> Hidden {
        let Access::Read(root) = access else { return Arc::new(|_| false) };
        let (config, root, workspace) = (self.config.current().ok(), root.clone(), workspace.clone());
        let tool = tool.to_owned();
        // Where the disk is looked at, in the thread of the call.
        let hidden = OnceLock::new();
        Arc::new(move |path| match &config {
            Some(config) => {
                let hidden = hidden.get_or_init(|| hides(&config.rules, &tool, &root, &workspace));
                hidden(path)
            }
            // Without rules to go by, nothing beyond the path that was permitted is read.
            None => true,
        })
    }

    /// Writes a rule into the configuration, for the workspace with this root. A disk that does not answer is not waited for:
    /// the rule comes when it does. `failed` is called with the reason if the rule could not be written.
    pub async fn grant_always(&self, root: &Path, rule: String, failed: impl FnOnce(String) + Send + 'static) {
        let (config, root) = (self.config.clone(), root.to_path_buf());
        let granted = tokio::task::spawn_blocking(move || {
            if let Err(error) = config.grant(&root, &rule) {
                tracing::warn!(target: "permission", rule, %error, "the rule could not be written into the configuration");
                failed(format!("allowed in this session only: {error}"));
            }
        });
        let _in_time = timeout(disk::PATIENCE, granted).await;
    }
}
