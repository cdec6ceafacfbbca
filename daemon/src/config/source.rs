//! Positions in a configuration's text: the line of a key, and the key of an error.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use toml::de::{DeTable, DeValue};

/// An error with its position: `config.toml:12:1: providers.work.kind: unknown variant …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The configuration file.
    pub file: PathBuf,
    /// The line, from 1; 0 for an error of the whole file.
    pub line: usize,
    /// The column in characters, from 1; 0 as above.
    pub column: usize,
    /// The dotted key; empty if the position has none.
    pub key: String,
    /// The problem, without position.
    pub message: String,
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl From<ConfigError> for RpcError {
    /// The error of a request that needs a configuration while there is no good one.
    fn from(error: ConfigError) -> Self {
        Self::new(Code::BadConfig, error.to_string()).hint("correct the file; the daemon reads it when it is saved")
    }
}

impl ConfigError {
    /// An error of the whole file.
    pub(super) fn whole(file: &Path, message: impl fmt::Display) -> Self {
        Self { file: file.to_path_buf(), line: 0, column: 0, key: String::new(), message: message.to_string() }
    }
}

/// A configuration that is valid TOML; its keys are unchecked.
#[derive(Debug)]
pub(super) struct Source<'a> {
    file: &'a Path,
    text: &'a str,
    nodes: Vec<Node<'a>>,
}

/// A key or an array's entry, with its position.
#[derive(Debug)]
pub(super) struct Node<'a> {
    /// The path from the root; an array's entry is `[2]`.
    pub(super) path: Vec<String>,
    /// The value, if it is a string.
    pub(super) text: Option<&'a str>,
    key: Range<usize>,
    value: Range<usize>,
}

impl<'a> Source<'a> {
    /// Collects the nodes of `tree`, parsed from `text`.
    pub(super) fn new(file: &'a Path, text: &'a str, tree: &'a DeTable<'a>) -> Self {
        let mut nodes = Vec::new();
        collect(tree, &mut Vec::new(), &mut nodes);
        Self { file, text, nodes }
    }

    /// All keys and entries, in no particular order.
    pub(super) fn nodes(&self) -> &[Node<'a>] {
        &self.nodes
    }

    /// An error about the key at `path`.
    pub(super) fn error(&self, path: &[&str], message: impl fmt::Display) -> ConfigError {
        let at = self.find(path).map_or(0, |node| node.key.start);
        self.at(at, path, message)
    }

    /// The line of the key at `path`, from 1.
    pub(super) fn line(&self, path: &[&str]) -> usize {
        self.position(self.find(path).map_or(0, |node| node.key.start)).0
    }

    /// Converts an error of the TOML library.
    pub(super) fn explain(&self, error: &toml::de::Error) -> ConfigError {
        let start = error.span().map_or(0, |span| span.start);
        let message = suggest(error.message());
        // The innermost node at the position, or else the one before it on the same line.
        let within = |node: &&Node<'_>| node.key.contains(&start) || node.value.contains(&start);
        let before =
            |node: &&Node<'_>| node.key.start <= start && self.position(node.key.start).0 == self.position(start).0;
        let node = self
            .nodes
            .iter()
            .filter(within)
            .max_by_key(|node| node.path.len())
            .or_else(|| self.nodes.iter().filter(before).max_by_key(|node| node.key.start));
        match node {
            Some(node) => {
                let path: Vec<&str> = node.path.iter().map(String::as_str).collect();
                let at = if self.position(node.key.start).0 == self.position(start).0 { node.key.start } else { start };
                self.at(at, &path, message)
            }
            None => ConfigError { key: self.guess(start), ..self.at(start, &[], message) },
        }
    }

    /// The key on the line at `offset`, for a line that did not parse.
    fn guess(&self, offset: usize) -> String {
        let (line, _) = self.position(offset);
        let above = || self.text.lines().take(line);
        let key = above().last().and_then(|line| line.split_once('=')).map(|(key, _)| key.trim());
        let header = above().filter_map(|line| line.trim().strip_prefix('[')?.strip_suffix(']')).last();
        let parts = key.map(|key| [header, Some(key)].into_iter().flatten().collect::<Vec<_>>().join("."));
        parts.unwrap_or_default()
    }

    fn find(&self, path: &[&str]) -> Option<&Node<'a>> {
        self.nodes.iter().find(|node| node.path == path)
    }

    fn at(&self, offset: usize, path: &[&str], message: impl fmt::Display) -> ConfigError {
        let (line, column) = self.position(offset);
        ConfigError { file: self.file.to_path_buf(), line, column, key: dotted(path), message: message.to_string() }
    }

    fn position(&self, offset: usize) -> (usize, usize) {
        position(self.text, offset)
    }
}

/// Line and column of a byte, from 1; the column in characters.
pub(super) fn position(text: &str, offset: usize) -> (usize, usize) {
    let offset = (0..=offset.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    let before = text.get(..offset).unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

fn collect<'a>(table: &'a DeTable<'a>, path: &mut Vec<String>, nodes: &mut Vec<Node<'a>>) {
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        collect_value(value.get_ref(), key.span(), value.span(), path, nodes);
        path.pop();
    }
}

fn collect_value<'a>(
    value: &'a DeValue<'a>,
    key: Range<usize>,
    span: Range<usize>,
    path: &mut Vec<String>,
    nodes: &mut Vec<Node<'a>>,
) {
    nodes.push(Node { path: path.clone(), text: value.as_str(), key, value: span });
    if let Some(table) = value.as_table() {
        collect(table, path, nodes);
    }
    for (i, entry) in value.as_array().into_iter().flat_map(|array| array.iter()).enumerate() {
        path.push(format!("[{i}]"));
        collect_value(entry.get_ref(), entry.span(), entry.span(), path, nodes);
        path.pop();
    }
}

/// `providers.work.kind`, `permissions.allow[2]`, `workspaces."/home/x"`.
pub(super) fn dotted(path: &[&str]) -> String {
    let mut dotted = String::new();
    for part in path {
        let bare = part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        match part {
            _ if part.starts_with('[') => dotted.push_str(part),
            _ => {
                if !dotted.is_empty() {
                    dotted.push('.');
                }
                dotted.push_str(&if bare && !part.is_empty() { (*part).to_owned() } else { format!("{part:?}") });
            }
        }
    }
    dotted
}

/// serde's message, with a suggestion in place of the list of all names.
fn suggest(message: &str) -> String {
    let Some((what, rest)) = message.split_once(", expected ").filter(|(what, _)| what.starts_with("unknown ")) else {
        return message.to_owned();
    };
    let quoted = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let Some(unknown) = quoted(what).pop() else { return message.to_owned() };
    // Up to a third of the letters may differ; beyond that the words are unrelated.
    let near = quoted(rest)
        .into_iter()
        .map(|name| ((strsim::damerau_levenshtein(&name, &unknown), name.len().abs_diff(unknown.len())), name))
        .filter(|((distance, _), _)| *distance <= (unknown.chars().count() / 3).max(1))
        .min_by_key(|(distance, _)| *distance);
    match near {
        Some((_, name)) => format!("{what}; did you mean `{name}`?"),
        None => message.to_owned(),
    }
}
