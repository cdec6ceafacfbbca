//! The policy in force: configured rules, grants of workspaces and sessions, and the decision on a call.
//!
//! Symlinks are resolved on a blocking thread, so that a hung disk delays only its own call.
//! Deliberately absent: pending questions and their answers, which are state of a session.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use linger_protocol::permission::Mode;
use tokio::time::timeout;

use super::ConfigStore;
use crate::permission::{CallInfo, ResolvedAccess, Rule, Verdict, decide, hides};
use crate::sys::disk;
use crate::tool::{Access, Hidden, Workspace};

/// Decides on calls, for all sessions.
#[derive(Debug)]
pub struct Policy {
    config: Arc<ConfigStore>,
}

impl Policy {
    /// A policy that follows `config`, reloads included.
    pub fn new(config: Arc<ConfigStore>) -> Self {
        Self { config }
    }

    /// Resolves the target of a call; `None` if the disk does not answer in time.
    pub async fn resolve(&self, access: &Access, workspace: &Arc<Workspace>) -> Option<ResolvedAccess> {
        let rules = self.config.current().map_or_else(|_| self.config.no_rules(), |config| config.rules.clone());
        if access.path().is_none() {
            return Some(ResolvedAccess::of(access, workspace, &rules));
        }
        let (access, seen) = (access.clone(), workspace.clone());
        disk::probe(&workspace.cwd, disk::TIMEOUT, move || ResolvedAccess::of(&access, &seen, &rules)).await
    }

    /// Decides one call of a session; `granted` are the rules that answers added to it.
    pub fn decide(
        &self,
        (mode, granted): (Mode, &[String]),
        call: &CallInfo<'_>,
        resolved: &ResolvedAccess,
        workspace: &Workspace,
    ) -> Verdict {
        match self.config.current() {
            Ok(config) => {
                let tools = self.config.tools().current();
                let granted = granted.iter().filter_map(|rule| Rule::parse(rule, tools.names()).ok());
                let grants: Vec<Rule> = granted.chain(config.grants(&workspace.root).iter().cloned()).collect();
                decide(&config.rules, &grants, mode, call, resolved)
            }
            // Without a readable configuration the rules are unknown.
            Err(_) => Verdict::Ask { rule: Some("the configuration cannot be read".to_owned()) },
        }
    }

    /// The paths that rules hide from a call of `tool`.
    pub fn hidden(&self, tool: &str, access: &Access, workspace: &Arc<Workspace>) -> Hidden {
        let Access::Read(root) = access else { return Arc::new(|_| false) };
        let (config, root, workspace) = (self.config.current().ok(), root.clone(), workspace.clone());
        let tool = tool.to_owned();
        // Computed on the call's own thread, because it blocks on the disk.
        let hidden = OnceLock::new();
        Arc::new(move |path| match &config {
            Some(config) => {
                let hidden = hidden.get_or_init(|| hides(&config.rules, &tool, &root, &workspace));
                hidden(path)
            }
            // The rules are unknown: only the permitted path itself may be read.
            None => true,
        })
    }

    /// Writes a rule into the configuration, for the workspace with this root. After [`disk::TIMEOUT`] it returns and the write
    /// continues in the background. `failed` gets the reason if the rule cannot be written.
    pub async fn grant_always(&self, root: &Path, rule: String, failed: impl FnOnce(String) + Send + 'static) {
        let (config, root) = (self.config.clone(), root.to_path_buf());
        let granted = tokio::task::spawn_blocking(move || {
            if let Err(error) = config.grant(&root, &rule) {
                tracing::warn!(target: "permission", rule, %error, "cannot write the rule into the configuration");
                failed(format!("allowed in this session only: {error}"));
            }
        });
        let _in_time = timeout(disk::TIMEOUT, granted).await;
    }
}
