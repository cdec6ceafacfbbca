//! May this call run? Rules first (deny, then ask, then allow; first match), then the mode.
//!
//! Pure but for one thing: symlinks are resolved on disk ([`ResolvedAccess`]), because a rule is about the file that a call
//! reaches, not about the name it uses. Deliberately absent: pending questions, answers, and where rules are stored.
//!
//! Invariants: when in doubt, ask. An allow rule for commands matches that exact command, or each simple command of one that
//! [`script`] reads whole. A path whose target is uncertain (`..`, a dangling symlink) is allowed by no rule and only by mode
//! `auto`.

mod home;
pub mod limit;
mod reading;
mod rule;
mod script;
mod subcommand;
mod unasked;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use linger_protocol::permission::Mode;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

pub use rule::{CallInfo, Rule, RuleError};
#[cfg(test)]
pub(crate) use unasked::planted;
pub use unasked::{NotRead, OpenedFile, Unasked, hides};

use crate::tool::added::AddedDirs;
use crate::tool::image::NAME as IMAGE;
use crate::tool::memory::NAME as MEMORY;
use crate::tool::set::{Names, Takes};
use crate::tool::skill::NAME as SKILL;
use crate::tool::{Access, Targets, Workspace};
use rule::{Effect, PathBases, Target};

/// The configured rules, and the directories that their patterns need.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Calls that never run.
    pub deny: Vec<Rule>,
    /// Calls that always ask.
    pub ask: Vec<Rule>,
    /// Calls that run without asking.
    pub allow: Vec<Rule>,
    /// The meaning of `~/`; if absent, such patterns match nothing.
    pub home: Option<PathBuf>,
    /// linger's own directories and files: mode `edit` asks before it writes there.
    pub own: Vec<PathBuf>,
}

impl Rules {
    /// A warning if a rule that comes first leaves nothing for this allow rule.
    pub fn shadow(&self, allowed: &Rule) -> Option<String> {
        let text = allowed.to_string();
        let lists = [("deny", &self.deny), ("ask", &self.ask)];
        let is_all = |rule: &Rule| rule.pattern().is_none() && rule.tool() == allowed.tool();
        let covers = |rule: &&Rule| is_all(rule) || rule.to_string() == text || rule.narrows_all_of(allowed);
        let (list, rule) = lists.iter().find_map(|(name, list)| Some((name, list.iter().find(covers)?)))?;
        Some(format!("`{allowed}` never matches: `{rule}` in {list} comes first"))
    }
}

/// The decision on a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It runs.
    Allow {
        /// The rule or the mode that allows it: `rule read(**)`, `mode ask`.
        by: String,
    },
    /// It waits for an answer.
    Ask {
        /// The rule that asks; absent when the mode asks.
        rule: Option<String>,
    },
    /// It does not run.
    Deny {
        /// The rule that forbids it; absent when the mode does.
        rule: Option<String>,
        /// The reason, for the model and for people.
        reason: String,
    },
}

/// The targets of a call with symlinks resolved, and the directories that rules are relative to.
#[derive(Debug)]
pub struct ResolvedAccess {
    bases: PathBases,
    /// One for each of [`Access::each`].
    parts: Vec<ResolvedPart>,
}

/// One thing that a call touches.
#[derive(Debug)]
struct ResolvedPart {
    /// Absent when it is no path.
    target: Option<Target>,
    /// Whether the call writes what controls git, linger, or which programs run: mode `edit` asks.
    is_guarded: bool,
}

impl ResolvedPart {
    fn of(access: &Access, workspace: &Workspace, rules: &Rules) -> Self {
        let target = Target::of(access, workspace);
        let writes = target.as_ref().filter(|_| matches!(access, Access::Write(_)));
        let is_guarded = writes.is_some_and(|target| {
            let own: Vec<PathBuf> = rules.own.iter().flat_map(|own| [own.clone(), workspace.resolve(own)]).collect();
            is_in_git(&target.resolved)
                || controls_git_or_linger(target, &own, workspace)
                || home::steers(target, workspace, rules.home.as_deref())
        });
        Self { target, is_guarded }
    }
}

impl ResolvedAccess {
    /// Blocks on the disk unless the access is a command: never call it on the runtime thread.
    pub fn of(access: &Access, workspace: &Workspace, rules: &Rules) -> Self {
        let parts: Vec<ResolvedPart> =
            access.each().iter().map(|part| ResolvedPart::of(part, workspace, rules)).collect();
        let bases = if parts.iter().any(|part| part.target.is_some()) {
            PathBases::of(workspace, rules.home.as_deref())
        } else {
            PathBases::unresolved(workspace)
        };
        Self { bases, parts }
    }

    /// The same target with the added directories of now: a call that waits may lie in one that was added since.
    pub fn set_added(&mut self, added: &AddedDirs) {
        self.bases.added = added.now();
    }

    /// The file that the call reaches, the first of several; absent when it touches no path.
    pub fn target(&self) -> Option<&Path> {
        self.parts.iter().find_map(|part| Some(part.target.as_ref()?.resolved.as_path()))
    }

    /// The files that a call with this access reaches.
    pub fn targets(&self, access: &Access) -> Targets {
        let paths = access.each().iter().zip(&self.parts);
        paths
            .filter_map(|(access, part)| Some((access.path()?.into(), part.target.as_ref()?.resolved.clone())))
            .collect()
    }

    /// The parts of a call, each as a call of its own: what it only reads, it does not change.
    fn each<'a>(&'a self, call: &'a CallInfo<'a>) -> impl Iterator<Item = (CallInfo<'a>, &'a ResolvedPart)> {
        let is_one = self.parts.len() == 1;
        call.access.each().iter().zip(&self.parts).map(move |(access, part)| {
            let changes = call.changes && (is_one || access.reads().is_none());
            (CallInfo { tool: call.tool, changes, access: access.clone() }, part)
        })
    }
}

/// Whether a call runs a command that is known to read alone.
pub fn reads_by_command(tool: &str, access: &Access) -> bool {
    tool == "bash" && matches!(access, Access::Command(line) if reading::only_reads(script::plain(line)))
}

/// Decides one call; `grants` are the grants of the session and of the workspace. Of a call that touches several things, each is
/// decided on, and the strictest decision counts.
pub fn decide(rules: &Rules, grants: &[Rule], mode: Mode, call: &CallInfo<'_>, resolved: &ResolvedAccess) -> Verdict {
    let verdicts = resolved.each(call).map(|(call, part)| decide_part(rules, grants, mode, &call, resolved, part));
    verdicts.reduce(stricter).unwrap_or(Verdict::Ask { rule: None })
}

/// The stricter of two decisions on parts of one call.
fn stricter(one: Verdict, other: Verdict) -> Verdict {
    match (one, other) {
        (deny @ Verdict::Deny { .. }, _) | (_, deny @ Verdict::Deny { .. }) => deny,
        (ask @ Verdict::Ask { rule: Some(_) }, _) | (_, ask @ Verdict::Ask { .. }) => ask,
        (ask @ Verdict::Ask { .. }, _) => ask,
        (Verdict::Allow { by }, Verdict::Allow { by: other }) if by.split(", ").any(|it| it == other) => {
            Verdict::Allow { by }
        }
        (Verdict::Allow { by }, Verdict::Allow { by: other }) => Verdict::Allow { by: format!("{by}, {other}") },
    }
}

/// Whether rules alone allow a call, or refuse it if they do not `allow`.
pub fn covers(rules: Vec<Rule>, allow: bool, call: &CallInfo<'_>, resolved: &ResolvedAccess) -> bool {
    if allow {
        let rules = Rules { allow: rules, ..Rules::default() };
        matches!(decide(&rules, &[], Mode::Ask, call, resolved), Verdict::Allow { .. })
    } else {
        let rules = Rules { deny: rules, ..Rules::default() };
        matches!(decide(&rules, &[], Mode::Auto, call, resolved), Verdict::Deny { .. })
    }
}

/// Decides what touches one thing.
fn decide_part(
    rules: &Rules,
    grants: &[Rule],
    mode: Mode,
    call: &CallInfo<'_>,
    resolved: &ResolvedAccess,
    part: &ResolvedPart,
) -> Verdict {
    let ResolvedAccess { bases, .. } = resolved;
    let ResolvedPart { target, is_guarded } = part;
    // What narrows `read` narrows the tool that reads a skill's files.
    let as_read = CallInfo { tool: "read", ..call.clone() };
    let first = |list: &[Rule], effect| {
        let is_read = [SKILL, MEMORY].contains(&call.tool) && !call.changes && effect == Effect::Narrow;
        let matches = |rule: &&Rule| {
            rule.matches(call, target.as_ref(), bases, effect)
                || is_read && rule.matches(&as_read, target.as_ref(), bases, effect)
        };
        list.iter().find(matches).map(ToString::to_string)
    };
    let read_only = is_read_only(call);

    if let Some(rule) = first(&rules.deny, Effect::Narrow) {
        return Verdict::Deny { reason: format!("the rule {rule} forbids it"), rule: Some(rule) };
    }
    let fetches = !call.changes && matches!(call.access, Access::Network(_));
    if mode == Mode::Plan && !read_only && !fetches && !reads_by_command(call.tool, &call.access) {
        return Verdict::Deny { rule: None, reason: "mode plan allows only what changes nothing".to_owned() };
    }
    if let Some(rule) = first(&rules.ask, Effect::Narrow) {
        return Verdict::Ask { rule: Some(rule) };
    }
    if let Some(rule) = first(&rules.allow, Effect::Widen).or_else(|| first(grants, Effect::Widen)) {
        return Verdict::Allow { by: format!("rule {rule}") };
    }
    if let Some(matched) = allow_each(rules.allow.iter().chain(grants), call) {
        let (noun, matched) = (if matched.len() == 1 { "rule" } else { "rules" }, matched.join(", "));
        return Verdict::Allow { by: format!("{noun} {matched}") };
    }
    let inside = target.as_ref().is_some_and(|target| target.is_exact && bases.has(&target.resolved));
    let allowed = match mode {
        _ if call.access == Access::Nothing => true,
        Mode::Auto => true,
        // The tool reads nothing but a skill's own files, which were put or trusted there.
        // Notes are the user's own; writing them asks, unless everything runs.
        _ if [SKILL, MEMORY].contains(&call.tool) => read_only,
        Mode::Ask | Mode::Plan => read_only && inside,
        Mode::Edit if matches!(call.access, Access::Write(_)) => inside && !is_guarded,
        Mode::Edit => read_only && inside,
    };
    if allowed { Verdict::Allow { by: format!("mode {mode}") } } else { Verdict::Ask { rule: None } }
}

/// Whether the call only reads. What a server or a host does with a call is unknown, whatever it declares.
fn is_read_only(call: &CallInfo<'_>) -> bool {
    !call.changes && !matches!(call.access, Access::Write(_)) && !call.access.is_outside()
}

/// Whether a hook with this matcher is about the call: it matches as generously as a rule in `deny`.
pub fn concerns(matcher: &Rule, call: &CallInfo<'_>, resolved: &ResolvedAccess) -> bool {
    resolved
        .each(call)
        .any(|(call, part)| matcher.matches(&call, part.target.as_ref(), &resolved.bases, Effect::Narrow))
}

/// The words of a command line that is one simple command, as [`script`] reads it.
pub fn words_of(line: &str) -> Option<Vec<String>> {
    let [words] = <[script::Words; 1]>::try_from(script::simple_commands(line)?).ok()?;
    Some(words)
}

/// The rules that allow each simple command of a command line, if it is nothing else; each rule once.
fn allow_each<'a>(rules: impl Iterator<Item = &'a Rule> + Clone, call: &CallInfo<'_>) -> Option<Vec<String>> {
    let line = call.access.command()?;
    let commands = script::simple_commands(script::plain(line))?;
    let mut matched = Vec::new();
    for words in &commands {
        let rule = rules.clone().find(|rule| rule.allows_simple(call, words)).filter(|_| !script::evaluates(words))?;
        let rule = rule.to_string();
        if !matched.contains(&rule) {
            matched.push(rule);
        }
    }
    Some(matched)
}

/// The rules that `allow_session` and `allow_always` add, one for each thing that the call touches: exactly this command, file or
/// host, or this version of a server's tool; or all commands that begin with this program and subcommand ([`subcommand`]).
pub fn grants_for(call: &CallInfo<'_>, resolved: &ResolvedAccess) -> Vec<String> {
    let mut grants = Vec::new();
    for (call, part) in resolved.each(call) {
        let grant = grant_for(&call, part.target.as_ref(), &resolved.bases);
        if !grants.contains(&grant) {
            grants.push(grant);
        }
    }
    grants
}

fn grant_for(call: &CallInfo<'_>, target: Option<&Target>, bases: &PathBases) -> String {
    let tool = match call.access {
        Access::Write(_) => "edit",
        // Its own rules are for hosts.
        Access::Read(_) if call.tool == IMAGE => "read",
        Access::Command(_) | Access::Inspect { .. } => "bash",
        _ => call.tool,
    };
    let Some(target) = target.filter(|_| call.access.command().is_none()) else {
        return match &call.access {
            // With a blank behind it the star is one, and not the beginning of more.
            Access::Command(text) if let Some(start) = subcommand::of(text) => format!("{tool}({start}:*)"),
            Access::Command(text) if script::plain(text).ends_with(":*") => format!("{tool}({} )", script::plain(text)),
            Access::Command(text) | Access::Inspect { command: text, .. } | Access::Network(text) => {
                format!("{tool}({text})")
            }
            Access::Other { version, .. } if !version.is_empty() => format!("{tool}(#{version})"),
            _ => tool.to_owned(),
        };
    };
    let path = match bases.relative(&target.resolved) {
        Some(path) if path.as_os_str().is_empty() => ".".to_owned(),
        // Without the `./` a file called `~` would be taken for the home directory.
        Some(path) if path.starts_with("~") => format!("./{}", globset::escape(&path.to_string_lossy())),
        Some(path) => globset::escape(&path.to_string_lossy()),
        None => globset::escape(&target.resolved.to_string_lossy()),
    };
    format!("{tool}({path})")
}

/// `rule`, as [`grants_for`] or a person writes it, in the form that means the same in every directory: a path becomes absolute.
/// A command or a host needs no change.
pub fn grant_everywhere(rule: &str, cwd: &Path, names: &Names) -> String {
    let Some((tool, path)) = rule.strip_suffix(')').and_then(|rule| rule.split_once('(')) else {
        return rule.to_owned();
    };
    let is_everywhere = path.starts_with(['/', '*']) || path == "~" || path.starts_with("~/");
    if names.takes(tool) != Some(Takes::Path) || is_everywhere {
        return rule.to_owned();
    }
    let cwd = globset::escape(&cwd.to_string_lossy());
    match path.strip_prefix("./").unwrap_or(path) {
        "." => format!("{tool}({cwd})"),
        below => format!("{tool}({}/{below})", cwd.trim_end_matches('/')),
    }
}

/// `sha256:<hex>` of tool, arguments and directory: proves that the call that runs is the one that was shown.
pub fn digest(tool: &str, input: &Value, cwd: &Path) -> String {
    hash(&serde_json::json!({ "cwd": cwd.to_string_lossy(), "input": input, "tool": tool }))
}

/// `sha256:<hex>` of a value, independent of the order of its fields.
pub fn hash(value: &Value) -> String {
    let mut text = String::new();
    canonical(value, &mut text);
    let hash = Sha256::digest(text.as_bytes());
    hash.iter().fold("sha256:".to_owned(), |hex, byte| format!("{hex}{byte:02x}"))
}

/// The names of what steers git, or linger in a workspace.
const OF_WORKSPACE: [&str; 3] = [".git", ".linger", ".mcp.json"];

/// Whether this file belongs to a `.git`, or is linger's own.
fn controls_git_or_linger(target: &Target, own: &[PathBuf], workspace: &Workspace) -> bool {
    // The worktree of a child lies in a directory of linger's.
    let is_free = |path: &Path| workspace.bound_by.is_some() && path.starts_with(&workspace.root);
    [&target.literal, &target.resolved].into_iter().any(|path| {
        path.components().any(|part| OF_WORKSPACE.iter().any(|name| part.as_os_str().eq_ignore_ascii_case(name)))
            || (!is_free(path) && own.iter().any(|own| path.starts_with(own)))
    })
}

/// Whether `path` is in a git directory, whatever its name: git runs the `config` and the hooks it finds there.
/// A git directory has a file `HEAD`, and either `objects` and `refs` or a `commondir` (gitrepository-layout(5)).
/// A new `HEAD` always asks, because writing one by hand has no honest use.
fn is_in_git(path: &Path) -> bool {
    let is = |name: &OsStr, known: &str| name.eq_ignore_ascii_case(known);
    if path.file_name().is_some_and(|name| is(name, "HEAD")) {
        return true;
    }
    path.ancestors().zip(path.ancestors().skip(1)).any(|(below, dir)| {
        let makes_one =
            || below.file_name().is_some_and(|name| ["objects", "refs", "commondir"].iter().any(|part| is(name, part)));
        let is_one = || dir.join("commondir").exists() || (dir.join("objects").is_dir() && dir.join("refs").is_dir());
        // git accepts a dangling symlink as `HEAD`.
        let head = dir.join("HEAD").symlink_metadata();
        head.is_ok_and(|head| !head.is_dir()) && (makes_one() || is_one())
    })
}

/// JSON with sorted keys and no blanks.
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(key, _)| *key);
            out.push('{');
            for (i, (key, value)) in fields.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                canonical(value, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                canonical(item, out);
            }
            out.push(']');
        }
        leaf => out.push_str(&leaf.to_string()),
    }
}

#[cfg(test)]
mod command_tests;
#[cfg(test)]
mod git_tests;
#[cfg(test)]
mod limit_tests;
#[cfg(test)]
mod swap_tests;
#[cfg(test)]
mod tests;
