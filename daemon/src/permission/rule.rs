//! Rules: `tool` or `tool(pattern)`, and what a rule matches.
//!
//! | tool | covers |
//! |---|---|
//! | `edit`, `write` | every call that changes a file, whichever tool makes it; the two words mean the same |
//! | `read` | every call that reads a file, and the roots of `ls`, `glob` and `grep`; in *allow* those three only when the pattern ends in `**`, for they read the whole tree below |
//! | `mcp__server__*` | calls of all tools of that server |
//! | `ls`, `glob`, `grep`, `bash`, `mcp__server__tool`, others | calls of that tool |
//!
//! A path pattern is a glob in which `*` stops at `/`, `**` does not, and `[*]` is a star itself. A relative one begins at the
//! session's directory and never leaves it; `/…` and `~/…` are absolute; `dir/` means `dir/**`; `..` is refused.
//! A command pattern is the command itself, character for character. A host pattern is a host's name, or `*.name` for those below.
//! Which kind a tool takes, the tool set says ([`Names`]); the pattern of a tool that is not known yet is read as each of them.
//!
//! Rules that narrow (deny, ask) match generously, because a false hit costs a question: the path as written *or* as resolved,
//! what lies below a plainly named directory, `**/…` anywhere on the disk, a trailing ` *` or `:*` as a prefix of any part of a
//! command line. Rules that widen (allow) match strictly: the resolved path, the whole command. A narrowing command rule is a
//! convenience all the same, for a shell can spell one command in endless ways; what nothing allows is asked about.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

use super::CallInfo;
use crate::tool::pattern::too_large;
use crate::tool::set::{MCP, Names, Takes};
use crate::tool::{Access, Workspace, text};

/// The longest pattern of a path, in bytes: that of any one file, with what is special in its name escaped, is shorter.
const PATTERN_MAX: usize = 16 * 1024;

/// Of a rule that is too large this much is shown.
const SHOWN: usize = 60;

/// What separates the parts of a command line that deny and ask rules look at one by one.
const SEPARATORS: [char; 9] = [';', '|', '&', '\n', '(', ')', '{', '}', '`'];

/// A rule; its `Display` is what was written.
#[derive(Clone, Debug)]
pub struct Rule {
    text: String,
    tool: String,
    pattern: Option<Pattern>,
}

/// Why a rule cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// It is not `tool` or `tool(pattern)`.
    #[error("`{0}` is not a rule: write `tool` or `tool(pattern)`, such as `bash(git status)`")]
    Shape(String),
    /// The pattern climbs.
    #[error("`{0}`: a pattern has no `..`; write the absolute path")]
    Climbs(String),
    /// The pattern is no glob.
    #[error("`{0}`: {1}")]
    Glob(String, String),
}

/// Which way a rule works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Deny and ask.
    Narrow,
    /// Allow and grants.
    Widen,
}

/// What stands in the parentheses of a rule.
#[derive(Clone, Debug)]
struct Pattern {
    /// As a command or a host.
    text: String,
    /// As a path, where it is one.
    path: Option<PathPattern>,
}

#[derive(Clone, Debug)]
struct PathPattern {
    base: Base,
    glob: GlobMatcher,
    /// What lies below, when the last part is a plain name.
    below: Option<GlobMatcher>,
    /// Begins with `**/`.
    anywhere: bool,
    /// Ends with `**`.
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
    /// As the call has it, without `.` and `..`.
    pub(super) literal: PathBuf,
    /// With every link resolved.
    pub(super) resolved: PathBuf,
    /// Whether `resolved` is where the call will end: the path had no `..`, and no link on the way leads nowhere.
    pub(super) certain: bool,
}

/// The directories that patterns begin at, as written and resolved.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) root: PathBuf,
    cwd: [PathBuf; 2],
    home: Option<[PathBuf; 2]>,
}

impl Rule {
    /// Reads `tool` or `tool(pattern)`; the pattern ends at the last parenthesis, whatever is in it.
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
            let path = match names.takes(tool) {
                Some(Takes::Path) => Some(PathPattern::parse(pattern, text)?),
                Some(_) => None,
                None => PathPattern::parse(pattern, text).ok(),
            };
            Ok(Pattern { text: plain(pattern).to_owned(), path })
        };
        let pattern = pattern.map(read).transpose()?;
        Ok(Self { text: text.to_owned(), tool: tool.to_owned(), pattern })
    }

    /// What is wrong with the rule if it can never match as its author may think; `allows` says that it stands in an allow list.
    pub fn warning(&self, allows: bool, names: &Names) -> Option<String> {
        let Some(takes) = names.takes(&self.tool) else {
            let hint = names.near(&self.tool).map_or_else(String::new, |tool| format!("; did you mean `{tool}`?"));
            return Some(format!("`{self}` never matches: no tool is called `{}`{hint}", self.tool));
        };
        let pattern = self.pattern.as_ref()?;
        match takes {
            Takes::Command if allows && prefix(&pattern.text).is_some() => Some(format!(
                "`{self}` allows only the command that reads exactly so; `*` has no meaning when a command is allowed"
            )),
            Takes::Nothing if allows => Some(format!("`{self}` never matches: `{}` takes no pattern", self.tool)),
            Takes::Nothing => Some(format!("`{self}` is taken for all calls: `{}` takes no pattern", self.tool)),
            _ => None,
        }
    }

    pub(super) fn matches(
        &self,
        call: &CallInfo<'_>,
        target: Option<&Target>,
        ground: &Ground,
        effect: Effect,
    ) -> bool {
        self.covers(call, effect)
            && match (&self.pattern, &call.access, target) {
                (None, ..) => true,
                (Some(pattern), Access::Command(command), _) => match effect {
                    Effect::Widen => plain(command) == pattern.text,
                    Effect::Narrow => narrow_text(&pattern.text, command),
                },
                (Some(pattern), Access::Network(host), _) => is_host(&pattern.text, host, effect),
                // What a server is told cannot be held against a pattern.
                (Some(_), Access::Other { .. }, _) => effect == Effect::Narrow,
                (Some(Pattern { path: Some(pattern), .. }), _, Some(target)) => match effect {
                    Effect::Widen => target.certain && pattern.widens(target, ground),
                    Effect::Narrow => pattern.narrows(target, ground),
                },
                _ => false,
            }
    }

    fn covers(&self, call: &CallInfo<'_>, effect: Effect) -> bool {
        match (self.tool.as_str(), &call.access) {
            (tool, _) if tool == call.tool => true,
            (tool, _) if of_server(tool).is_some_and(|server| call.tool.starts_with(server)) => true,
            ("edit" | "write", Access::Write(_)) => true,
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

    fn widens(&self, target: &Target, ground: &Ground) -> bool {
        ground
            .bases(self.base)
            .iter()
            .any(|base| target.resolved.strip_prefix(base).is_ok_and(|path| self.glob.is_match(path)))
    }

    fn narrows(&self, target: &Target, ground: &Ground) -> bool {
        let hits =
            |path: &Path| self.glob.is_match(path) || self.below.as_ref().is_some_and(|below| below.is_match(path));
        let root = [PathBuf::from("/")];
        let bases = if self.anywhere { &root } else { ground.bases(self.base) };
        [&target.literal, &target.resolved]
            .iter()
            .any(|path| bases.iter().any(|base| path.strip_prefix(base).is_ok_and(hits)))
    }
}

impl Target {
    pub(super) fn of(access: &Access, workspace: &Workspace) -> Option<Self> {
        let path = access.path()?;
        let literal = normalise(path, &workspace.cwd);
        let dangles = literal.ancestors().any(|part| part.is_symlink() && !part.exists());
        Some(Self {
            resolved: workspace.resolve(&literal),
            certain: literal.as_os_str() == path.as_os_str() && !dangles,
            literal,
        })
    }
}

impl Ground {
    pub(super) fn of(workspace: &Workspace, home: Option<&Path>) -> Self {
        let both = |path: &Path| [path.to_path_buf(), workspace.resolve(path)];
        Self { root: workspace.resolve(&workspace.root), cwd: both(&workspace.cwd), home: home.map(both) }
    }

    /// The same without a look at the disk, for what has no path.
    pub(super) fn unseen(workspace: &Workspace) -> Self {
        let cwd = [workspace.cwd.clone(), workspace.cwd.clone()];
        Self { root: workspace.root.clone(), cwd, home: None }
    }

    /// `path` relative to the session's directory, if it lies below.
    pub(super) fn relative<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        self.cwd.iter().find_map(|cwd| path.strip_prefix(cwd).ok())
    }

    fn bases(&self, base: Base) -> &[PathBuf] {
        static ROOT: std::sync::LazyLock<[PathBuf; 1]> = std::sync::LazyLock::new(|| [PathBuf::from("/")]);
        match base {
            Base::Cwd => &self.cwd,
            Base::Home => self.home.as_ref().map_or(&[], |home| home.as_slice()),
            Base::Root => ROOT.as_slice(),
        }
    }
}

/// `mcp__server__` of a rule for all tools of a server, `mcp__server__*`.
fn of_server(tool: &str) -> Option<&str> {
    tool.strip_suffix('*')
        .filter(|server| server.starts_with(MCP) && server.ends_with("__") && server.len() > MCP.len())
}

/// Whether `pattern` means the host: by its name, or as `*.name` one below it. What narrows means those below in any case.
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

/// The command without the blanks around it, which the shell ignores; an escaped blank at the end is part of it.
fn plain(command: &str) -> &str {
    const BLANKS: [char; 3] = [' ', '\t', '\n'];
    let start = command.trim_start_matches(BLANKS);
    let trimmed = start.trim_end_matches(BLANKS);
    if trimmed.ends_with('\\') { start } else { trimmed }
}

/// What stands before a trailing `:*` or ` *`, or before a lone `*`.
fn prefix(text: &str) -> Option<&str> {
    if text == "*" { Some("") } else { text.strip_suffix(":*").or_else(|| text.strip_suffix(" *")) }
}

fn narrow_text(text: &str, command: &str) -> bool {
    let hits = |part: &str| plain(part) == text || prefix(text).is_some_and(|prefix| plain(part).starts_with(prefix));
    hits(command) || command.split(SEPARATORS).any(|part| !plain(part).is_empty() && hits(part))
}

/// `path` without `.` and `..`, by its text alone.
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
