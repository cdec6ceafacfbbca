//! Rules: `tool` or `tool(pattern)`, and what a rule matches.
//!
//! | tool | covers |
//! |---|---|
//! | `edit`, `write` | every call that changes a file, whichever tool makes it; the two words mean the same |
//! | `read` | every call that reads a file (in *deny* and *ask* also `edit` and `apply_patch`, whose errors quote it), and the roots of `ls`, `glob` and `grep`; in *allow* those three only when the pattern ends in `**`, for they read the whole tree below |
//! | `bash` | every call that runs a command, whichever tool makes it; with a pattern also those of `git` that only read |
//! | `mcp__server__*` | calls of all tools of that server |
//! | `ls`, `glob`, `grep`, `git`, `mcp__server__tool`, others | calls of that tool |
//!
//! A path pattern is a glob in which `*` stops at `/`, `**` does not, and `[*]` is a star itself. A relative one begins at the
//! session's directory and never leaves it; `/…` and `~/…` are absolute; `dir/` means `dir/**`; `..` is refused.
//! A command pattern is the command itself; `cargo test:*` is every command that begins with these words; a pattern of `git` leaves its name out: `git(commit:*)`. A host pattern is a host's name, or `*.name` for those below.
//! The tool set says which kind a tool takes ([`Names`]); the pattern of an unknown tool is read as every kind.
//!
//! Rules that narrow (deny, ask) match generously, because a false hit costs only a question: the path as written *or* as
//! resolved, everything below a plainly named directory, `**/…` anywhere on the disk, every command that a line may run, wherever
//! it stands ([`super::line`]). Rules that widen (allow) match strictly: the resolved path; the whole command, or each of the simple
//! commands that it consists of, when it is nothing else.
//! A narrowing command rule is a convenience, not a fence: a program can run any other. Every command without an allow rule asks.

use std::fmt;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use globset::{GlobBuilder, GlobMatcher};

use super::line::{self, RuleStart, Whole, Words, plain};
use super::subcommand;
use crate::tool::apply_patch::NAME as APPLY_PATCH;
use crate::tool::image::NAME as IMAGE;
use crate::tool::pattern::too_large;
use crate::tool::set::{MCP, Names, Takes};
use crate::tool::{Access, Workspace, text};

/// The longest path pattern, in bytes: longer than the pattern of any single file with its name escaped.
const PATTERN_MAX: usize = 16 * 1024;

/// How much of a rule that is too large its error shows, in characters.
const SHOWN: usize = 60;

/// The tools whose errors quote the files that they change.
const QUOTING: [&str; 2] = ["edit", APPLY_PATCH];

/// The parts of a call that decide about its permission.
#[derive(Clone, Debug)]
pub struct CallInfo<'a> {
    /// The tool's name.
    pub tool: &'a str,
    /// Whether the call may change anything.
    pub changes: bool,
    /// The file, command or host that the call touches.
    pub access: Access,
}

/// A rule; `Display` gives its source text.
#[derive(Clone, Debug)]
pub struct Rule {
    text: String,
    tool: String,
    pattern: Option<Pattern>,
}

/// Why a rule does not parse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// It is not `tool` or `tool(pattern)`.
    #[error("`{0}` is not a rule: write `tool` or `tool(pattern)`, such as `bash(git status)`")]
    Shape(String),
    /// The pattern has a `..`.
    #[error("`{0}`: a pattern has no `..`; write the absolute path")]
    Climbs(String),
    /// The pattern is not a valid glob.
    #[error("`{0}`: {1}")]
    Glob(String, String),
}

/// The direction of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Deny and ask.
    Narrow,
    /// Allow and grants.
    Widen,
}

/// The text in the parentheses of a rule.
#[derive(Clone, Debug)]
struct Pattern {
    /// The pattern of a command or a host.
    text: String,
    /// Whether it ends in `:*`; with a blank behind the star it does not.
    is_prefix: bool,
    /// The simple command, or its beginning, that an allow rule matches; absent if the pattern is none.
    words: Option<Words>,
    /// The beginning, or the whole, of the commands that a deny or ask rule matches; absent if the pattern is no simple command.
    start: Option<RuleStart>,
    /// The pattern of a path; absent if the tool takes none.
    path: Option<PathPattern>,
    /// Whether it begins or ends with a blank, which hardly any path does.
    written_with_blanks: bool,
}

#[derive(Clone, Debug)]
struct PathPattern {
    base: Base,
    glob: GlobMatcher,
    /// Everything below, if the last part is a plain name.
    below: Option<GlobMatcher>,
    /// Whether it begins with `**/`.
    anywhere: bool,
    /// Whether it ends with `**`.
    whole_tree: bool,
}

#[derive(Clone, Copy, Debug)]
enum Base {
    Cwd,
    Home,
    Root,
}

/// A path that a call touches.
#[derive(Debug)]
pub(super) struct Target {
    /// The path as written, without `.` and `..`.
    pub(super) literal: PathBuf,
    /// The path with every symlink resolved.
    pub(super) resolved: PathBuf,
    /// Whether `resolved` is certain: the path has no `..` and no dangling symlink.
    pub(super) is_exact: bool,
    /// In a worktree of a child the same place in the workspace that it was made of: what is forbidden or asked about there, is so
    /// here.
    bound: Option<PathBuf>,
}

/// The directories that patterns are relative to, as written and resolved.
#[derive(Debug)]
pub(super) struct PathBases {
    /// Stored without links, and not resolved again: behind one that has taken its place nothing is in the workspace.
    pub(super) root: PathBuf,
    /// The added directories; as `root`.
    pub(super) added: Arc<[PathBuf]>,
    cwd: [PathBuf; 2],
    home: Option<[PathBuf; 2]>,
}

impl Rule {
    /// Parses `tool` or `tool(pattern)`; the pattern ends at the last parenthesis.
    pub fn parse(text: &str, names: &Names) -> Result<Self, RuleError> {
        let text = text.trim();
        let shape = || RuleError::Shape(text.to_owned());
        let (tool, pattern) = match text.split_once('(') {
            Some((tool, rest)) => (tool, Some(rest.strip_suffix(')').ok_or_else(shape)?)),
            None => (text, None),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let name = of_server(tool).unwrap_or(tool);
        if name.is_empty() || !name.chars().all(is_name) || pattern.is_some_and(|pattern| pattern.trim().is_empty()) {
            return Err(shape());
        }
        let read = |pattern: &str| {
            let takes = names.takes(tool);
            let whole = format!("{tool} {}", plain(pattern));
            let command = if takes == Some(Takes::Arguments) { whole.as_str() } else { pattern };
            let path = match takes {
                Some(Takes::Path) => Some(PathPattern::parse(pattern, text)?),
                Some(_) => None,
                None => PathPattern::parse(pattern, text).ok(),
            };
            let start = command.strip_suffix(":*");
            let one = |commands: Vec<Words>| <[Words; 1]>::try_from(commands).ok();
            let words = line::simple_commands(plain(start.unwrap_or(command))).and_then(one);
            let text = plain(command);
            Ok(Pattern {
                start: RuleStart::of(prefix(text).unwrap_or(text), prefix(text).is_some()),
                text: text.to_owned(),
                is_prefix: start.is_some(),
                words: words.map(|[words]| words),
                path,
                written_with_blanks: pattern.trim() != pattern,
            })
        };
        let pattern = pattern.map(read).transpose()?;
        Ok(Self { text: text.to_owned(), tool: tool.to_owned(), pattern })
    }

    /// A warning if the rule cannot match as its author may expect; `allows`: it is in an allow list.
    pub fn warning(&self, allows: bool, names: &Names) -> Option<String> {
        let Some(takes) = names.takes(&self.tool) else {
            let hint = names.near(&self.tool).map_or_else(String::new, |tool| format!("; did you mean `{tool}`?"));
            return Some(format!("`{self}` never matches: no tool is called `{}`{hint}", self.tool));
        };
        let pattern = self.pattern.as_ref()?;
        match takes {
            Takes::Command | Takes::Arguments if allows => self.allow_warning(pattern),
            Takes::Command | Takes::Arguments if prefix(&pattern.text).unwrap_or(&pattern.text).contains('*') => {
                let start = pattern.text.split('*').next().unwrap_or_default().trim_end();
                let start = if takes == Takes::Arguments { start.split_once(' ').map_or("", |it| it.1) } else { start };
                let hint =
                    if start.is_empty() { format!("`{}`", self.tool) } else { format!("`{}({start}:*)`", self.tool) };
                Some(format!(
                    "`{self}` matches only a command with that very `*` in it; {hint} matches every one that begins so"
                ))
            }
            Takes::Path if pattern.written_with_blanks => {
                Some(format!("`{self}` never matches: its path begins or ends with a blank"))
            }
            Takes::Version if allows && !pattern.text.starts_with('#') => {
                Some(format!("`{self}` never matches: the arguments of a server's tool are no pattern"))
            }
            Takes::Version if !allows => Some(format!("`{self}` applies to all calls of `{}`", self.tool)),
            Takes::Nothing if allows => Some(format!("`{self}` never matches: `{}` takes no pattern", self.tool)),
            Takes::Nothing => Some(format!("`{self}` applies to all calls: `{}` takes no pattern", self.tool)),
            _ => None,
        }
    }

    /// Why it matches nothing in an allow list, if so.
    pub fn matches_nothing(&self, names: &Names) -> Option<String> {
        self.warning(true, names).filter(|why| why.starts_with(&format!("`{self}` never matches: ")))
    }

    /// As [`Self::warning`], of an allow rule for commands.
    fn allow_warning(&self, pattern: &Pattern) -> Option<String> {
        let words = pattern.words.as_deref().unwrap_or_default();
        if let Some(why) = subcommand::runs_any(words, pattern.is_prefix) {
            return Some(format!("`{self}` {why}"));
        }
        let tool = &self.tool;
        let start = match pattern.text.strip_suffix(":*").filter(|_| pattern.is_prefix) {
            Some(start) => start,
            None if pattern.text == "*" => {
                return Some(format!("`{self}` allows only the command `*`; `{tool}` allows every command"));
            }
            None => {
                let start = pattern.text.strip_suffix(" *")?;
                return Some(format!(
                    "`{self}` allows only that exact command; `{tool}({start}:*)` allows all that begin so"
                ));
            }
        };
        match &pattern.words {
            None => {
                Some(format!("`{self}` never matches: before `:*` stand plain words of one command, not `{start}`"))
            }
            Some(words) if line::evaluates(words) => {
                let name = words.first().map_or("", String::as_str);
                Some(format!("`{self}` never matches: `{name}` runs what its words do not say; allow an exact command"))
            }
            Some(_) => None,
        }
    }

    /// A warning about it as an allow rule, if it allows more programs than its words say.
    pub fn caution(&self, names: &Names) -> Option<String> {
        let takes_commands = matches!(names.takes(&self.tool), Some(Takes::Command | Takes::Arguments));
        let pattern = self.pattern.as_ref().filter(|pattern| takes_commands && pattern.is_prefix)?;
        Some(format!("`{self}` {}", subcommand::caution(pattern.words.as_deref()?)?))
    }

    /// Whether an allow rule matches this simple command, as one of those that a command line consists of.
    pub(super) fn allows_simple(&self, call: &CallInfo<'_>, words: &[String]) -> bool {
        self.covers(call, Effect::Widen) && self.pattern.as_ref().is_some_and(|pattern| pattern.allows_simple(words))
    }

    /// Whether this rule, in `deny` or `ask`, may match a file below a directory, as far as the beginning of its pattern tells.
    pub(super) fn may_narrow_below(&self, directory: &Target, bases: &PathBases) -> bool {
        let Some(pattern) = self.pattern.as_ref() else { return true };
        let Some(path) = &pattern.path else { return false };
        let written = self.pattern().unwrap_or_default();
        let relative = match path.base {
            Base::Home => written.strip_prefix("~/").unwrap_or_default(),
            Base::Root => written.trim_start_matches('/'),
            Base::Cwd => written.strip_prefix("./").unwrap_or(written),
        };
        let fixed = relative.split('/').take_while(|part| !part.contains(['*', '?', '[', '{', '}']));
        let fixed: PathBuf = fixed.filter(|part| !part.is_empty() && *part != ".").collect();
        let starts: Vec<PathBuf> = bases.dirs(path.base).iter().map(|base| base.join(&fixed)).collect();
        let mut places = [&directory.literal, &directory.resolved].into_iter().chain(&directory.bound);
        let meets = |place: &PathBuf| starts.iter().any(|start| start.starts_with(place) || place.starts_with(start));
        path.anywhere || places.any(meets)
    }

    /// The tool that it names.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Whether this rule, in `deny` or `ask`, matches every command that the allow rule `allowed` would.
    pub(super) fn narrows_all_of(&self, allowed: &Self) -> bool {
        let of_commands = [self, allowed].iter().all(|rule| rule.tool == "bash");
        let (Some(own), Some(of), true) = (&self.pattern, &allowed.pattern, of_commands) else { return false };
        let start = of.text.strip_suffix(":*").unwrap_or(&of.text);
        (own.is_prefix || !of.is_prefix) && own.narrows_command(start, &Whole::of(start)).is_some()
    }

    /// The text in the parentheses.
    pub fn pattern(&self) -> Option<&str> {
        self.text.split_once('(')?.1.strip_suffix(')')
    }

    /// The part of a command line that this rule, in `deny` or `ask`, meets.
    pub(super) fn part_met<'a>(&self, call: &'a CallInfo<'_>, whole: &Whole) -> Option<&'a str> {
        let command = call.access.command()?;
        match &self.pattern {
            Some(pattern) => command.get(pattern.narrows_command(command, whole)?),
            None => Some(command),
        }
    }

    /// `whole` is the command line of the call, if it has one.
    pub(super) fn matches(
        &self,
        call: &CallInfo<'_>,
        target: Option<&Target>,
        whole: Option<&Whole>,
        bases: &PathBases,
        effect: Effect,
    ) -> bool {
        self.covers(call, effect)
            && match (&self.pattern, &call.access, target) {
                (None, ..) => true,
                (Some(Pattern { path: Some(pattern), .. }), Access::Inspect { .. }, Some(target))
                    if self.tool == "read" =>
                {
                    effect == Effect::Narrow && pattern.narrows(target, bases)
                }
                (Some(pattern), Access::Command(command) | Access::Inspect { command, .. }, _) => match effect {
                    Effect::Widen => !pattern.is_prefix && plain(command) == pattern.text,
                    Effect::Narrow => match whole {
                        Some(whole) => pattern.narrows_command(command, whole).is_some(),
                        None => pattern.narrows_command(command, &Whole::of(command)).is_some(),
                    },
                },
                (Some(pattern), Access::Network(host), _) => is_host(&pattern.text, host, effect),
                // A tool that changed since it was permitted asks again.
                (Some(pattern), Access::Other { version, .. }, _) => {
                    effect == Effect::Narrow || pattern.text.strip_prefix('#') == Some(version)
                }
                (Some(Pattern { path: Some(pattern), .. }), _, Some(target)) => match effect {
                    Effect::Widen => target.is_exact && pattern.widens(target, bases),
                    Effect::Narrow => pattern.narrows(target, bases),
                },
                _ => false,
            }
    }

    fn covers(&self, call: &CallInfo<'_>, effect: Effect) -> bool {
        match (self.tool.as_str(), &call.access) {
            (tool, _) if tool == call.tool => true,
            (tool, _) if of_server(tool).is_some_and(|server| call.tool.starts_with(server)) => true,
            ("edit" | "write", Access::Write(_)) => true,
            ("bash", Access::Command(_)) => true,
            // What only looks is no command to one who means them all.
            ("bash", Access::Inspect { .. }) => self.pattern.is_some(),
            ("read", Access::Inspect { .. }) => effect == Effect::Narrow,
            // It tells what is in the file, if only by what it does not find there.
            ("read", Access::Write(_)) => QUOTING.contains(&call.tool) && effect == Effect::Narrow,
            // It reads the file alone.
            ("read", Access::Read(_)) if call.tool == IMAGE => true,
            ("read", Access::Read(_)) => match &self.pattern {
                Some(Pattern { path: Some(pattern), .. }) => effect == Effect::Narrow || pattern.whole_tree,
                _ => true,
            },
            _ => false,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Pattern {
    /// Whether an allow rule with this pattern matches the simple command: one for all with a beginning covers no option that runs
    /// another program.
    fn allows_simple(&self, command: &[String]) -> bool {
        let known = self.words.as_ref().map_or(0, Vec::len);
        self.begins_simple(command) && !(self.is_prefix && subcommand::goes_beyond(known, command))
    }

    /// Whether the simple command is the pattern's, or begins with it where that is a beginning.
    fn begins_simple(&self, command: &[String]) -> bool {
        self.words
            .as_ref()
            .is_some_and(|words| if self.is_prefix { command.starts_with(words) } else { command == words.as_slice() })
    }

    /// The bytes of the part of a command line that a deny or ask rule with this pattern matches: a command, wherever it stands; or
    /// all of it, by its text or because it is not certain what runs.
    fn narrows_command(&self, command: &str, whole: &Whole) -> Option<Range<usize>> {
        let text = self.text.as_str();
        let hits =
            |part: &str| plain(part) == text || prefix(text).is_some_and(|prefix| plain(part).starts_with(prefix));
        let of_commands = |start: &RuleStart| whole.commands.iter().find(|command| start.fits(&command.words));
        if let Some(met) = self.start.as_ref().and_then(of_commands) {
            return Some(met.text.clone());
        }
        let may_be = |bare: &String| self.start.as_ref().is_none_or(|start| start.may_be_in(bare));
        let is_hit = hits(command) || whole.unsure.as_ref().is_some_and(may_be);
        is_hit.then_some(0..command.len())
    }
}

impl PathPattern {
    fn parse(written: &str, rule: &str) -> Result<Self, RuleError> {
        let (base, pattern) = match written {
            "~" => (Base::Home, ""),
            "." => (Base::Cwd, ""),
            _ => match (written.strip_prefix("~/"), written.strip_prefix('/')) {
                (Some(rest), _) => (Base::Home, rest),
                (_, Some(rest)) => (Base::Root, rest),
                _ => (Base::Cwd, written.strip_prefix("./").unwrap_or(written)),
            },
        };
        if let Some(problem) = too_large(pattern, PATTERN_MAX) {
            return Err(RuleError::Glob(format!("{}…", text::head(rule, SHOWN)), format!("too large: {problem}")));
        }
        if pattern.split('/').any(|part| part == "..") {
            return Err(RuleError::Climbs(rule.to_owned()));
        }
        let pattern = if pattern.ends_with('/') { format!("{pattern}**") } else { pattern.to_owned() };
        let compile = |pattern: &str| {
            GlobBuilder::new(pattern)
                .literal_separator(true)
                .backslash_escape(false)
                .build()
                .map(|glob| glob.compile_matcher())
                .map_err(|error| RuleError::Glob(rule.to_owned(), error.kind().to_string()))
        };
        let last = pattern.rsplit('/').next().unwrap_or_default();
        let below = match last {
            "" => Some(compile("**")?),
            _ if last.contains(['*', '?', '{', '}']) => None,
            _ => Some(compile(&format!("{pattern}/**"))?),
        };
        Ok(Self {
            base,
            glob: compile(&pattern)?,
            below,
            anywhere: matches!(base, Base::Cwd) && (pattern == "**" || pattern.starts_with("**/")),
            whole_tree: last == "**",
        })
    }

    fn widens(&self, target: &Target, bases: &PathBases) -> bool {
        let dirs = match self.base {
            // Stored without links: behind one that has taken its place nothing is allowed.
            Base::Cwd => bases.cwd.get(..1).unwrap_or_default(),
            base => bases.dirs(base),
        };
        dirs.iter().any(|base| target.resolved.strip_prefix(base).is_ok_and(|path| self.glob.is_match(path)))
    }

    fn narrows(&self, target: &Target, bases: &PathBases) -> bool {
        let hits =
            |path: &Path| self.glob.is_match(path) || self.below.as_ref().is_some_and(|below| below.is_match(path));
        let root = [PathBuf::from("/")];
        let dirs = if self.anywhere { &root } else { bases.dirs(self.base) };
        [&target.literal, &target.resolved]
            .into_iter()
            .chain(&target.bound)
            .any(|path| dirs.iter().any(|base| path.strip_prefix(base).is_ok_and(hits)))
    }
}

impl Target {
    pub(super) fn of(access: &Access, workspace: &Workspace) -> Option<Self> {
        let path = access.path()?;
        let literal = normalise(path, &workspace.cwd);
        let dangles = literal.ancestors().any(|part| part.is_symlink() && !part.exists());
        let resolved = workspace.resolve(&literal);
        Some(Self {
            bound: workspace.bound_place(&resolved),
            resolved,
            is_exact: literal.as_os_str() == path.as_os_str() && !dangles,
            literal,
        })
    }
}

impl PathBases {
    pub(super) fn of(workspace: &Workspace, home: Option<&Path>) -> Self {
        let both = |path: &Path| [path.to_path_buf(), workspace.resolve(path)];
        let (root, added) = (workspace.root.clone(), workspace.added.now());
        Self { root, added, cwd: both(&workspace.cwd), home: home.map(both) }
    }

    /// The same without blocking on the disk, for a call without a path.
    pub(super) fn unresolved(workspace: &Workspace) -> Self {
        let cwd = [workspace.cwd.clone(), workspace.cwd.clone()];
        Self { root: workspace.root.clone(), added: workspace.added.now(), cwd, home: None }
    }

    /// Whether a path without links is in the workspace or in an added directory.
    pub(super) fn has(&self, resolved: &Path) -> bool {
        resolved.starts_with(&self.root) || self.added.iter().any(|dir| resolved.starts_with(dir))
    }

    /// `path` relative to the session's directory; `None` if it is outside.
    pub(super) fn relative<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        self.cwd.iter().find_map(|cwd| path.strip_prefix(cwd).ok())
    }

    fn dirs(&self, base: Base) -> &[PathBuf] {
        static ROOT: std::sync::LazyLock<[PathBuf; 1]> = std::sync::LazyLock::new(|| [PathBuf::from("/")]);
        match base {
            Base::Cwd => &self.cwd,
            Base::Home => self.home.as_ref().map_or(&[], |home| home.as_slice()),
            Base::Root => ROOT.as_slice(),
        }
    }
}

/// The `mcp__server__` of `mcp__server__*`, a rule for all tools of a server.
fn of_server(tool: &str) -> Option<&str> {
    tool.strip_suffix('*')
        .filter(|server| server.starts_with(MCP) && server.ends_with("__") && server.len() > MCP.len())
}

/// Whether `pattern` matches the host: `name` itself, or `*.name` for subdomains. A narrowing rule always includes subdomains.
fn is_host(pattern: &str, host: &str, effect: Effect) -> bool {
    let plain = |name: &str| name.trim_end_matches('.').to_ascii_lowercase();
    let (pattern, host) = (plain(pattern), plain(host));
    let (name, below) = match pattern.strip_prefix("*.") {
        Some(name) => (name, true),
        None => (pattern.as_str(), effect == Effect::Narrow),
    };
    let is_below = host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
    (below && is_below) || (host == name && (name == pattern || effect == Effect::Narrow))
}

/// The text before a trailing `:*` or ` *`, or before a lone `*`.
fn prefix(text: &str) -> Option<&str> {
    if text == "*" { Some("") } else { text.strip_suffix(":*").or_else(|| text.strip_suffix(" *")) }
}

/// `path` without `.` and `..`, without consulting the disk.
fn normalise(path: &Path, cwd: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in cwd.join(path).components() {
        match part {
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir => {}
            part => clean.push(part),
        }
    }
    clean
}
