//! The policy in force: configured rules, grants of workspaces and sessions, and the decision on a call.
//!
//! Symlinks are resolved on a blocking thread, so that a hung disk delays only its own call.
//! Deliberately absent: pending questions and their answers, which are state of a session.

use std::borrow::Cow;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use linger_protocol::agent::SkillLimit;
use linger_protocol::id::SessionId;
use linger_protocol::permission::Mode;
use tokio::time::timeout;

use super::store::WorkspaceNow as Now;
use super::{Config, ConfigStore, Hook, HookEvent};
use crate::question::permission::limit::{self, Limit};
use crate::question::permission::{
    CallInfo, PartMet, ResolvedAccess, Rule, Rules, Unasked, Verdict, decide, parts_met,
};
use crate::sys::disk;
use crate::sys::task;
use crate::tool::handle::Entry;
use crate::tool::{Access, Hidden, Workspace, normalise};

/// The decisions that a session has made about its calls.
#[derive(Clone, Copy, Debug)]
pub struct Settled<'a> {
    /// Decides about calls that no rule matches.
    pub mode: Mode,
    /// The rules that answers added to it.
    pub grants: &'a [String],
    /// Rules of answers that refuse.
    pub denied: &'a [String],
}

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

    /// Resolves the target of a call, and reads what the files of the workspace say; `None` if the disk does not answer in time.
    pub async fn resolve(&self, access: &Access, workspace: &Arc<Workspace>) -> Option<ResolvedAccess> {
        let rules = self.config.current().map_or_else(|_| self.config.no_rules(), |config| config.rules.clone());
        if *access == Access::Nothing {
            return Some(ResolvedAccess::of(access, workspace, &rules));
        }
        let (config, access, seen) = (self.config.clone(), access.clone(), workspace.clone());
        let resolve = move || {
            config.look(seen.rules_root());
            ResolvedAccess::of(&access, &seen, &rules)
        };
        disk::probe(&workspace.cwd, disk::TIMEOUT, resolve).await
    }

    /// Reads what the files of the workspace say, and gives what a session is to be told of it.
    pub async fn look(&self, workspace: &Workspace, session: &SessionId) -> Option<String> {
        self.read(workspace).await;
        self.config.news_of_workspace(workspace.rules_root(), session)
    }

    /// Reads what the files of the workspace say, unless the disk does not answer.
    pub async fn read(&self, workspace: &Workspace) {
        let (config, root) = (self.config.clone(), workspace.rules_root().to_path_buf());
        // A call reads them again, and is refused then.
        let _in_time = disk::probe(&workspace.cwd, disk::SHORT_TIMEOUT, move || drop(config.look(&root))).await;
    }

    /// The hooks of a session: the configuration's, then those of the workspace's files.
    pub fn hooks(&self, workspace: &Workspace) -> Arc<[Hook]> {
        let Ok(config) = self.config.current() else { return Arc::default() };
        match self.config.workspace(workspace.rules_root()) {
            Some(files) if !files.config.hooks.is_empty() => {
                config.hooks.iter().chain(&files.config.hooks).cloned().collect()
            }
            _ => config.hooks.clone(),
        }
    }

    /// Whether any session may have hooks of this event.
    pub fn may_have_hooks(&self, event: HookEvent) -> bool {
        let has = |hooks: &[Hook]| hooks.iter().any(|hook| hook.event == event);
        self.config.current().is_ok_and(|config| has(&config.hooks)) || self.config.has_workspace_hooks(event)
    }

    /// The mode of a new session whose creator names none.
    pub fn mode(&self, configured: Mode, workspace: &Workspace) -> Mode {
        let files = self.config.workspace(workspace.rules_root()).and_then(|files| files.config.mode);
        match (configured, files) {
            (_, Some(Mode::Plan)) => Mode::Plan,
            (Mode::Edit | Mode::Auto, Some(Mode::Ask)) => Mode::Ask,
            (configured, _) => configured,
        }
    }

    /// Decides one call of a session.
    pub fn decide(
        &self,
        Settled { mode, grants, denied }: Settled<'_>,
        call: &CallInfo<'_>,
        resolved: &ResolvedAccess,
        workspace: &Workspace,
    ) -> Verdict {
        match self.config.current() {
            Ok(config) => {
                let (grants, denied) = self.answered(&config, grants, denied, workspace);
                let files = self.config.workspace(workspace.rules_root());
                let mut rules = rules(&config, files.as_deref());
                if !denied.is_empty() {
                    rules.to_mut().deny.extend(denied);
                }
                let verdict = decide(&rules, &grants, mode, call, resolved);
                match verdict {
                    // What it would narrow is unknown.
                    Verdict::Allow { .. } if call.access != Access::Nothing && is_broken(files.as_deref()) => {
                        Verdict::Ask { rule: Some(BROKEN.to_owned()), why: None }
                    }
                    verdict => verdict,
                }
            }
            // Without a readable configuration the rules are unknown.
            Err(_) => Verdict::Ask { rule: Some("the configuration cannot be read".to_owned()), why: None },
        }
    }

    /// The rules that answers added, for the session and for the workspace: those that allow, and those that refuse.
    fn answered(
        &self,
        config: &Config,
        grants: &[String],
        denied: &[String],
        workspace: &Workspace,
    ) -> (Vec<Rule>, Vec<Rule>) {
        let tools = self.config.tools().current();
        let parsed = |rules: &[String]| -> Vec<Rule> {
            rules.iter().filter_map(|rule| Rule::parse(rule, tools.names()).ok()).collect()
        };
        let (mut grants, mut denied) = (parsed(grants), parsed(denied));
        if let Some(always) = config.always(workspace.rules_root()) {
            grants.extend(always.allow.iter().cloned());
            denied.extend(always.deny.iter().cloned());
        }
        (grants, denied)
    }

    /// The parts of a command line that decide on it, each with the rule that it meets.
    pub fn parts_met(
        &self,
        Settled { grants, denied, .. }: Settled<'_>,
        call: &CallInfo<'_>,
        resolved: &ResolvedAccess,
        workspace: &Workspace,
    ) -> Vec<PartMet> {
        let Ok(config) = self.config.current() else { return Vec::new() };
        let (grants, denied) = self.answered(&config, grants, denied, workspace);
        let files = self.config.workspace(workspace.rules_root());
        let mut rules = rules(&config, files.as_deref()).into_owned();
        rules.deny.extend(denied);
        parts_met(&rules, &grants, call, resolved)
    }

    /// Why what these skills let a turn do leaves a call out. A rule that cannot be read covers nothing.
    pub fn limit(&self, skills: &[SkillLimit], call: &CallInfo<'_>, resolved: &ResolvedAccess) -> Option<String> {
        if skills.is_empty() {
            return None;
        }
        let tools = self.config.tools().current();
        let limit = |limit: &SkillLimit| Limit {
            skill: limit.skill.clone(),
            allowed: limit.allowed.iter().filter_map(|rule| Rule::parse(rule, tools.names()).ok()).collect(),
        };
        limit::refuses(&skills.iter().map(limit).collect::<Vec<_>>(), call, resolved)
    }

    /// Where a rule stands that [`Self::decide`] names.
    pub fn place_of(&self, rule: &str, settled: &Settled<'_>, workspace: &Workspace) -> Option<String> {
        let config = self.config.current().ok()?;
        let has = |list: &[Rule]| list.iter().any(|it| it.to_string() == rule);
        let lists = [("deny", &config.rules.deny), ("ask", &config.rules.ask), ("allow", &config.rules.allow)];
        if let Some((name, _)) = lists.iter().find(|(_, list)| has(list)) {
            return Some(format!("permissions.{name} of the configuration"));
        }
        let files = self.config.workspace(workspace.rules_root()).unwrap_or_default();
        let of_files = &files.config;
        let lists = [("deny", &of_files.deny), ("ask", &of_files.ask), ("allow", &of_files.allow)];
        if let Some((name, _)) = lists.iter().find(|(_, list)| has(list)) {
            return Some(format!("permissions.{name} of the workspace's .linger/config.toml"));
        }
        if settled.grants.iter().chain(settled.denied).any(|it| it == rule) {
            return Some("an answer in this session".to_owned());
        }
        let (root, always) = (workspace.rules_root().display(), config.always(workspace.rules_root())?);
        match (has(&always.allow), has(&always.deny)) {
            (true, _) => Some(format!("what is always allowed in {root}")),
            (_, true) => Some(format!("what is always refused in {root}")),
            _ => None,
        }
    }

    /// The files that a call of `tool` does not read, though it was permitted to read what it names.
    pub fn hidden(&self, tool: &str, access: &Access, workspace: &Arc<Workspace>) -> Hidden {
        let Some(root) = access.reads() else { return Arc::new(|_| false) };
        let (config, root, workspace) = (self.config.clone(), root.to_path_buf(), workspace.clone());
        let tool = tool.to_owned();
        // Computed on the call's own thread, because it blocks on the disk.
        let unasked = OnceLock::new();
        Arc::new(move |path| unasked.get_or_init(|| config.unasked(&tool, &root, &workspace)).refusal(path).is_some())
    }

    /// The check of what a session reads without a call, such as instruction files. Blocks on the disk.
    pub fn unasked(&self, workspace: &Workspace) -> Unasked {
        self.config.unasked("read", &workspace.root, workspace)
    }

    /// The text of a file of at most `limit` bytes, as far as the session may read it without asking. Fails with the reason.
    pub async fn read_unasked(
        &self,
        settled: Settled<'_>,
        workspace: &Arc<Workspace>,
        path: &Path,
        limit: u64,
    ) -> Result<String, String> {
        let access = Access::Read(normalise(path));
        let resolved = self.resolve(&access, workspace).await.ok_or_else(|| disk::unresponsive(&workspace.cwd))?;
        let call = CallInfo { tool: "read", changes: false, access };
        match self.decide(settled, &call, &resolved, workspace) {
            Verdict::Allow { .. } => {}
            Verdict::Ask { .. } => return Err("reading it would ask; only what needs no permission is read".to_owned()),
            Verdict::Deny { reason, .. } => return Err(reason),
        }
        let target = resolved.target().unwrap_or(path).to_path_buf();
        let opened = target.clone();
        let read = move || -> io::Result<String> {
            let (file, _) = Entry::at(&opened)?.open()?;
            let mut bytes = Vec::new();
            file.take(limit + 1).read_to_end(&mut bytes)?;
            if bytes.len() as u64 > limit {
                return Err(io::Error::other(format!("is larger than {limit} bytes")));
            }
            let text = String::from_utf8(bytes).map_err(|_| io::Error::other("is not UTF-8 text"))?;
            Ok(text.replace('\0', ""))
        };
        let text = disk::probe(&target, disk::TIMEOUT, read).await.ok_or_else(|| disk::unresponsive(&target))?;
        text.map_err(|error| error.to_string())
    }

    /// Writes rules into the configuration, for the workspace with this root; `refuses`: into `deny`. After [`disk::TIMEOUT`] it
    /// returns and the write continues in the background. `failed` gets the reason if a rule cannot be written.
    pub async fn keep_always(
        &self,
        root: &Path,
        refuses: bool,
        rules: Vec<String>,
        failed: impl FnOnce(String) + Send + 'static,
    ) {
        let (config, root) = (self.config.clone(), root.to_path_buf());
        let kept = task::spawn_blocking(move || {
            let kept = rules.iter().try_for_each(|rule| config.always(&root, refuses, rule));
            if let Err(error) = kept {
                tracing::warn!(target: "permission", ?rules, %error, "cannot write a rule into the configuration");
                let what = if refuses { "refused" } else { "allowed" };
                failed(format!("{what} in this session only: cannot store the rule: {error}"));
            }
        });
        let _in_time = timeout(disk::TIMEOUT, kept).await;
    }
}

impl ConfigStore {
    /// The check of a reader that was permitted to read the directory `root`, under the rules of the configuration, of the
    /// workspace's files, and of answers that count always. Blocks on the disk.
    pub fn unasked(&self, tool: &str, root: &Path, workspace: &Workspace) -> Unasked {
        let Ok(config) = self.current() else { return Unasked::unknown(tool, root, workspace) };
        let files = self.workspace(workspace.rules_root());
        let mut rules = rules(&config, files.as_deref());
        if let Some(always) = config.always(workspace.rules_root()).filter(|always| !always.deny.is_empty()) {
            rules.to_mut().deny.extend(always.deny.iter().cloned());
        }
        Unasked::of(&rules, tool, root, workspace)
    }
}

/// Why a call asks where the file of the workspace is broken.
const BROKEN: &str = "the workspace's .linger/config.toml cannot be read";

fn is_broken(files: Option<&Now>) -> bool {
    files.is_none_or(|files| files.error.is_some())
}

/// The rules of the configuration and of the workspace's files.
fn rules<'a>(config: &'a Config, files: Option<&Now>) -> Cow<'a, Rules> {
    let Some(files) = files.map(|files| &files.config).filter(|files| !files.has_no_rules()) else {
        return Cow::Borrowed(&config.rules);
    };
    let mut rules = config.rules.clone();
    rules.deny.extend(files.deny.iter().cloned());
    rules.ask.extend(files.ask.iter().cloned());
    rules.allow.extend(files.allow.iter().cloned());
    rules.ask_reads |= files.ask_reads;
    Cow::Owned(rules)
}
