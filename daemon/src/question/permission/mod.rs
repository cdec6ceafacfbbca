//! May this call run? Rules first (deny, then ask, then allow; first match), then the mode.
//!
//! Pure but for one thing: symlinks are resolved on disk ([`ResolvedAccess`]), because a rule is about the file that a call
//! reaches, not about the name it uses. Deliberately absent: pending questions, answers, and where rules are stored.
//!
//! Invariants: when in doubt, ask. An allow rule for commands matches that exact command, or each simple command of one that
//! [`mod@line`] reads whole. A path whose target is uncertain (`..`, a dangling symlink) is allowed by no rule and only by mode
//! `auto`.

mod guarded;
mod home;
pub mod limit;
mod line;
mod offer;
mod reading;
mod reads;
mod rule;
mod rules;
mod starters;
mod subcommand;
mod unasked;
mod variables;

use std::path::Path;

use linger_protocol::permission::Mode;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

pub use rule::{CallInfo, Rule, RuleError};
pub use rules::Rules;
#[cfg(test)]
pub(crate) use unasked::planted;
pub use unasked::{NotRead, OpenedFile, Unasked, hides};

use crate::tool::added::AddedDirs;
use crate::tool::image::NAME as IMAGE;
use crate::tool::memory::NAME as MEMORY;
use crate::tool::set::{Names, Takes};
use crate::tool::skill::NAME as SKILL;
use crate::tool::{Access, Targets, Workspace};
use line::Whole;
use reads::CommandReads;
use rule::{Effect, PathBases, Target};

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
        /// Why the mode asks about what it lets run elsewhere, behind "asks because".
        why: Option<String>,
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
    /// Why mode `edit` asks before the call writes it: it controls git, linger, or which programs run.
    guard: Option<String>,
    /// Absent when it is no command.
    line: Option<ReadLine>,
}

impl ResolvedPart {
    fn of(access: &Access, workspace: &Workspace, rules: &Rules) -> Self {
        let target = Target::of(access, workspace);
        let writes = target.as_ref().filter(|_| matches!(access, Access::Write(_)));
        let guard = writes.and_then(|target| guarded::reason(target, workspace, rules));
        Self { target, line: access.command().map(|text| ReadLine::of(text, workspace, rules)), guard }
    }

    /// Whether it is a command that is known only to read.
    fn reads(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.reads.is_some())
    }

    /// The command line of a call that was resolved; absent for another.
    fn whole_of(&self, call: &CallInfo<'_>) -> Option<&Whole> {
        self.line.as_ref().filter(|line| call.access.command() == Some(&line.text)).map(|line| &line.whole)
    }
}

/// A command line, read once.
#[derive(Debug)]
struct ReadLine {
    text: String,
    whole: Whole,
    /// Whether the files that it reads by `<` may be read without asking.
    may_read: bool,
    /// The files that it opens, if it is known only to read.
    reads: Option<CommandReads>,
}

impl ReadLine {
    fn of(text: &str, workspace: &Workspace, rules: &Rules) -> Self {
        let may_read = line::plain_parts(text).filter(|plain| !plain.inputs.is_empty()).is_none_or(|plain| {
            let unasked = Unasked::of(rules, "read", &workspace.root, workspace);
            plain.inputs.iter().all(|input| {
                let path = workspace.cwd.join(input);
                (!plain.moves || input.starts_with('/')) && !input.starts_with('~') && unasked.refusal(&path).is_none()
            })
        });
        let reads = if rules.ask_reads { None } else { CommandReads::of(text, workspace) };
        Self { text: text.to_owned(), whole: Whole::of(text), may_read, reads }
    }
}

impl ResolvedAccess {
    /// Blocks on the disk: never call it on the runtime thread.
    pub fn of(access: &Access, workspace: &Workspace, rules: &Rules) -> Self {
        let parts: Vec<ResolvedPart> =
            access.each().iter().map(|part| ResolvedPart::of(part, workspace, rules)).collect();
        let bases = if parts.iter().any(|part| part.target.is_some() || part.reads()) {
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

/// The tool that runs command lines of the model.
const BASH: &str = "bash";

/// Whether a call runs a command that is known to read alone.
pub fn reads_by_command(tool: &str, access: &Access) -> bool {
    tool == BASH && matches!(access, Access::Command(line) if reading::only_reads(line::plain(line)))
}

/// Decides one call; `grants` are the grants of the session and of the workspace. Of a call that touches several things, each is
/// decided on, and the strictest decision counts.
pub fn decide(rules: &Rules, grants: &[Rule], mode: Mode, call: &CallInfo<'_>, resolved: &ResolvedAccess) -> Verdict {
    let verdicts = resolved.each(call).map(|(call, part)| decide_part(rules, grants, mode, &call, resolved, part));
    verdicts.reduce(stricter).unwrap_or(Verdict::Ask { rule: None, why: None })
}

/// The stricter of two decisions on parts of one call.
fn stricter(one: Verdict, other: Verdict) -> Verdict {
    match (one, other) {
        (deny @ Verdict::Deny { .. }, _) | (_, deny @ Verdict::Deny { .. }) => deny,
        (ask @ Verdict::Ask { rule: Some(_), .. }, _) | (_, ask @ Verdict::Ask { rule: Some(_), .. }) => ask,
        (ask @ Verdict::Ask { why: Some(_), .. }, _) | (_, ask @ Verdict::Ask { .. }) => ask,
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
        let rules = Rules { allow: rules, ask_reads: true, ..Rules::default() };
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
    let ResolvedPart { target, guard, .. } = part;
    let whole = part.whole_of(call);
    let reads = part.line.as_ref().and_then(|line| line.reads.as_ref());
    let reads = reads.filter(|reads| call.tool == BASH && whole.is_some() && reads.is_allowed(rules, bases));
    // What narrows `read` narrows the tool that reads a skill's files.
    let as_read = CallInfo { tool: "read", ..call.clone() };
    let first = |list: &[Rule], effect| {
        let is_read = [SKILL, MEMORY].contains(&call.tool) && !call.changes && effect == Effect::Narrow;
        let matches = |rule: &&Rule| {
            rule.matches(call, target.as_ref(), whole, bases, effect)
                || is_read && rule.matches(&as_read, target.as_ref(), None, bases, effect)
        };
        list.iter().find(matches).map(ToString::to_string)
    };
    let read_only = is_read_only(call);

    if let Some(rule) = first(&rules.deny, Effect::Narrow) {
        return Verdict::Deny { reason: format!("the rule {rule} forbids it"), rule: Some(rule) };
    }
    let fetches = !call.changes && matches!(call.access, Access::Network(_));
    if mode == Mode::Plan && !read_only && !fetches && reads.is_none() && !reads_by_command(call.tool, &call.access) {
        return Verdict::Deny { rule: None, reason: "mode plan allows only what changes nothing".to_owned() };
    }
    if let Some(rule) = first(&rules.ask, Effect::Narrow) {
        return Verdict::Ask { rule: Some(rule), why: None };
    }
    if let Some(rule) = first(&rules.allow, Effect::Widen).or_else(|| first(grants, Effect::Widen)) {
        return Verdict::Allow { by: format!("rule {rule}") };
    }
    if let Some(matched) = allow_each(rules.allow.iter().chain(grants), call, part) {
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
        Mode::Edit if matches!(call.access, Access::Write(_)) => inside && guard.is_none(),
        Mode::Edit => read_only && inside,
    };
    if !allowed && let Some(reads) = reads {
        return Verdict::Allow { by: format!("mode {mode}, which lets these read: {}", reads.said()) };
    }
    if allowed {
        return Verdict::Allow { by: format!("mode {mode}") };
    }
    Verdict::Ask { rule: None, why: guard.clone().filter(|_| mode == Mode::Edit && inside) }
}

/// Whether the call only reads. What a server or a host does with a call is unknown, whatever it declares.
fn is_read_only(call: &CallInfo<'_>) -> bool {
    !call.changes && !matches!(call.access, Access::Write(_)) && !call.access.is_outside()
}

/// Whether a hook with this matcher is about the call: it matches as generously as a rule in `deny`.
pub fn concerns(matcher: &Rule, call: &CallInfo<'_>, resolved: &ResolvedAccess) -> bool {
    resolved.each(call).any(|(call, part)| {
        matcher.matches(&call, part.target.as_ref(), part.whole_of(&call), &resolved.bases, Effect::Narrow)
    })
}

/// The words of a command line that is one simple command, as [`mod@line`] reads it.
pub fn words_of(text: &str) -> Option<Vec<String>> {
    let [words] = <[line::Words; 1]>::try_from(line::simple_commands(text)?).ok()?;
    Some(words)
}

/// Whether "always" adds rules for the commands of a line, and not one for exactly the line.
pub fn is_several(text: &str) -> bool {
    offer::of_line(text).is_some_and(|_| line::plain_parts(text).is_none_or(|plain| plain.parts.len() > 1))
}

/// The rules that allow each simple command of a command line, if it is nothing else; each rule once.
fn allow_each<'a>(
    rules: impl Iterator<Item = &'a Rule> + Clone,
    call: &CallInfo<'_>,
    part: &ResolvedPart,
) -> Option<Vec<String>> {
    let text = call.access.command()?;
    let plain = line::plain_parts(line::plain(text))?;
    let may_read = || part.line.as_ref().is_some_and(|line| line.text == text && line.may_read);
    if !plain.inputs.is_empty() && !may_read() {
        return None;
    }
    let mut matched = Vec::new();
    for command in &plain.parts {
        let rule = allowing(rules.clone(), call, &command.words)?.to_string();
        if !matched.contains(&rule) {
            matched.push(rule);
        }
    }
    Some(matched)
}

/// The first rule that allows a simple command of a line.
fn allowing<'a>(mut rules: impl Iterator<Item = &'a Rule>, call: &CallInfo<'_>, words: &[String]) -> Option<&'a Rule> {
    rules.find(|rule| rule.allows_simple(call, words)).filter(|_| !line::evaluates(words))
}

/// A part of a command line, and the rule that it met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartMet {
    /// The command, as the line has it.
    pub part: String,
    /// Absent if none allows it.
    pub rule: Option<String>,
}

/// The parts of a command line that decide: the one that a deny or ask rule meets, or else each with the rule that allows it. Empty for
/// other calls, and where no rule counts for a part.
pub fn parts_met(rules: &Rules, grants: &[Rule], call: &CallInfo<'_>, resolved: &ResolvedAccess) -> Vec<PartMet> {
    let (Some(text), [resolved_part]) = (call.access.command(), resolved.parts.as_slice()) else { return Vec::new() };
    let Some(whole) = resolved_part.whole_of(call) else { return Vec::new() };
    let target = resolved_part.target.as_ref();
    let narrowing = rules.deny.iter().chain(&rules.ask);
    let met = narrowing.filter(|rule| rule.matches(call, target, Some(whole), &resolved.bases, Effect::Narrow));
    let met = met.into_iter().find_map(|rule| Some((rule, rule.part_met(call, whole)?)));
    if let Some((rule, part)) = met {
        return vec![PartMet { part: part.to_owned(), rule: Some(rule.to_string()) }];
    }
    let Some(plain) = line::plain_parts(text) else { return Vec::new() };
    let allow = rules.allow.iter().chain(grants);
    let part = |it: &line::PlainCommand| PartMet {
        part: text.get(it.text.clone()).unwrap_or_default().to_owned(),
        rule: allowing(allow.clone(), call, &it.words).map(ToString::to_string),
    };
    let parts: Vec<PartMet> = plain.parts.iter().map(part).collect();
    if parts.iter().any(|part| part.rule.is_some()) { parts } else { Vec::new() }
}

/// The rules that `allow_session` and `allow_always` add, one for each thing that the call touches: exactly this command, file or
/// host, or this version of a server's tool; or all commands that begin with this program and subcommand ([`subcommand`]). A line of
/// several commands has a rule for each ([`offer`]).
pub fn grants_for(call: &CallInfo<'_>, resolved: &ResolvedAccess) -> Vec<String> {
    let mut grants = Vec::new();
    for (call, part) in resolved.each(call) {
        let several =
            call.access.command().filter(|_| matches!(call.access, Access::Command(_))).and_then(offer::of_line);
        let one = || vec![grant_for(&call, part.target.as_ref(), &resolved.bases)];
        for grant in several.unwrap_or_else(one) {
            if !grants.contains(&grant) {
                grants.push(grant);
            }
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
            Access::Command(text) if line::plain(text).ends_with(":*") => format!("{tool}({} )", line::plain(text)),
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
    hash(&serde_json::json!({ "cwd": linger_protocol::path::text(cwd), "input": input, "tool": tool }))
}

/// `sha256:<hex>` of a value, independent of the order of its fields.
pub fn hash(value: &Value) -> String {
    let mut text = String::new();
    canonical(value, &mut text);
    let hash = Sha256::digest(text.as_bytes());
    hash.iter().fold("sha256:".to_owned(), |hex, byte| format!("{hex}{byte:02x}"))
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
mod corpus_tests;
#[cfg(test)]
mod git_tests;
#[cfg(test)]
mod limit_tests;
#[cfg(test)]
mod swap_tests;
#[cfg(test)]
mod tests;
