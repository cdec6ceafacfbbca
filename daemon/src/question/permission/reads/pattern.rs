//! File names with `*` and `?`, as a shell expands them, where no link is among them. Blocks on the disk.

use std::path::Path;

use globset::GlobBuilder;

/// The names that a pattern becomes.
#[derive(Debug, Default)]
pub(super) struct Expanded {
    /// The names, in no order; the pattern itself where nothing matches.
    pub(super) names: Vec<String>,
    /// The directories whose entries were compared.
    pub(super) directories: Vec<String>,
}

/// Entries of directories that are looked at, at most: with more it asks.
const MAX_SEEN: usize = 10_000;

/// Names that a pattern may become, at most.
const MAX_NAMES: usize = 1000;

/// The names that a pattern of plain characters, `*` and `?` stands for in `base`; absent if a link is met, it is not certain
/// which names these are, or there are too many.
pub(super) fn expand(pattern: &str, base: &Path) -> Option<Expanded> {
    let (mut expanded, mut seen) = (Expanded::default(), 0);
    let start = if pattern.starts_with('/') { "/" } else { "" };
    let mut found = vec![start.to_owned()];
    let parts: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty()).collect();
    for (at, part) in parts.iter().enumerate() {
        let is_last = at + 1 == parts.len();
        let mut next = Vec::new();
        for place in &found {
            if part.contains(['*', '?']) {
                let directory = if place.is_empty() { "." } else { place.as_str() };
                expanded.directories.push(directory.to_owned());
                for name in matches(part, &base.join(directory), &mut seen)? {
                    next.push(format!("{place}{name}"));
                }
            } else {
                next.push(format!("{place}{part}"));
            }
        }
        next.retain(|name| base.join(name).symlink_metadata().is_ok());
        if next.len() > MAX_NAMES || next.iter().any(|name| base.join(name).is_symlink()) {
            return None;
        }
        if !is_last || pattern.ends_with('/') {
            next.retain(|name| base.join(name).is_dir());
            next.iter_mut().for_each(|name| name.push('/'));
        }
        found = next;
    }
    expanded.names = if found.is_empty() { vec![pattern.to_owned()] } else { found };
    Some(expanded)
}

/// The entries of a directory that match one part of a pattern.
fn matches(part: &str, directory: &Path, seen: &mut usize) -> Option<Vec<String>> {
    let glob = GlobBuilder::new(part).literal_separator(true).build().ok()?.compile_matcher();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).ok()? {
        *seen += 1;
        let name = entry.ok()?.file_name();
        // How many characters other names have depends on the locale.
        let is_clear = |name: &&str| name.is_ascii() || !part.contains('?');
        let name = name.to_str().filter(is_clear).filter(|_| *seen <= MAX_SEEN)?;
        let is_hidden = name.starts_with('.') && !part.starts_with('.');
        if !is_hidden && glob.is_match(name) {
            names.push(name.to_owned());
        }
    }
    if part.starts_with('.') {
        names.extend([".", ".."].into_iter().filter(|name| glob.is_match(name)).map(str::to_owned));
    }
    Some(names)
}
