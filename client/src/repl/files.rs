//! The files that a name in a prompt may become: those of its directory that begin so, then those anywhere below that have its
//! letters in order. What git ignores and hidden files are left out, unless the name begins like them.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use super::ignored::Ignored;
use crate::picture::{candidates, escaped, named};
use crate::terminal::clean_line;

/// The names that a listing has; of more a person types another letter.
const MAX_NAMES: usize = 200;

/// Entries that are looked at below a directory: a tenth of a second, as long as a person takes a key to answer at once. The tree
/// is walked by depth, so that what is missed lies deepest.
const MAX_WALKED: usize = 20_000;

/// The files that complete a name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Files {
    /// Where the name begins in the line.
    pub(super) start: usize,
    /// Prefix matches.
    pub(super) begin: Vec<String>,
    /// Fuzzy matches: names with its letters in order.
    pub(super) fuzzy: Vec<String>,
}

/// The files that complete the name at the end of `typed`; `None` if the text does not end in a name.
pub(super) fn mentioned(typed: &str, places: &[PathBuf]) -> Option<Files> {
    if let Some(at) =
        typed.strip_suffix('@').filter(|before| before.chars().next_back().is_none_or(char::is_whitespace))
    {
        let begin = beginning("", places, false).iter().map(|name| escaped(name)).collect();
        return Some(Files { start: at.len() + 1, begin, fuzzy: Vec::new() });
    }
    let name = named(typed).pop().filter(|name| name.range.end == typed.len())?;
    let shown = |names: Vec<String>| {
        if name.quoted { names } else { names.iter().map(|name| escaped(name)).collect::<Vec<_>>() }
    };
    let begin = beginning(&name.text, places, false);
    let mut fuzzy = fuzzy(&name.text, places);
    fuzzy.retain(|name| !begin.contains(name));
    Some(Files { start: name.range.start, begin: shown(begin), fuzzy: shown(fuzzy) })
}

/// The directories that a text may become.
pub(super) fn directories(text: &str, places: &[PathBuf]) -> Vec<String> {
    beginning(text, places, true)
}

/// The names that begin with `text`, in the directory that it names; directories end in a slash.
fn beginning(text: &str, places: &[PathBuf], directories: bool) -> Vec<String> {
    let (directory, begins) = text.rfind('/').map_or(("", text), |slash| text.split_at(slash + 1));
    let mut found = Vec::new();
    for place in candidates(directory, places) {
        let ignored = Ignored::of(&std::path::absolute(&place).unwrap_or_else(|_| place.clone()));
        for (name, path, is_directory) in entries(&place) {
            if !name.starts_with(begins)
                || (name.starts_with('.') && begins.is_empty())
                || (directories && !is_directory)
            {
                continue;
            }
            // One that is ignored takes its first letter.
            if begins.is_empty() && ignored.has(&path, is_directory) {
                continue;
            }
            found.push(format!("{directory}{name}{}", if is_directory { "/" } else { "" }));
        }
    }
    found.sort_unstable();
    found.dedup();
    found.truncate(MAX_NAMES);
    found
}

/// The files below the first place that has any which have the letters of `text` in order, the nearest first.
fn fuzzy(text: &str, places: &[PathBuf]) -> Vec<String> {
    if text.is_empty() || text.starts_with(['/', '~']) {
        return Vec::new();
    }
    for place in places {
        let mut found: Vec<((u8, u32), usize, String)> = walk(place, text.contains("/.") || text.starts_with('.'))
            .into_iter()
            .filter_map(|name| Some((rank(text, &name)?, name.len(), name)))
            .collect();
        if !found.is_empty() {
            found.sort_unstable();
            found.truncate(MAX_NAMES);
            return found.into_iter().map(|(.., name)| name).collect();
        }
    }
    Vec::new()
}

/// The files below a directory that git does not ignore, as paths from it.
fn walk(root: &Path, hidden: bool) -> Vec<String> {
    let Ok(root) = std::path::absolute(root) else { return Vec::new() };
    let (mut files, mut walked) = (Vec::new(), 0);
    let mut open = VecDeque::from([(root.clone(), String::new(), Ignored::of(&root))]);
    while let Some((directory, prefix, ignored)) = open.pop_front() {
        for (name, path, is_directory) in entries(&directory) {
            walked += 1;
            if walked > MAX_WALKED {
                return files;
            }
            if name == ".git" || (name.starts_with('.') && !hidden) || ignored.has(&path, is_directory) {
                continue;
            }
            let shown = format!("{prefix}{name}");
            // A link may lead out, or round.
            if is_directory && !path.is_symlink() {
                let mut below = ignored.clone();
                below.enter(&path);
                open.push_back((path, format!("{shown}/"), below));
            } else {
                files.push(shown);
            }
        }
    }
    files
}

/// The entries of a directory in order, whose names can be shown and typed: name, path, whether it is a directory.
fn entries(directory: &Path) -> Vec<(String, PathBuf, bool)> {
    let mut entries: Vec<_> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let (name, path) = (entry.file_name().into_string().ok()?, entry.path());
            // The chosen name is inserted unchanged.
            let clean = clean_line(&name) == name && !name.chars().any(char::is_control);
            let is_directory =
                entry.file_type().is_ok_and(|kind| kind.is_dir() || (kind.is_symlink() && path.is_dir()));
            clean.then_some((name, path, is_directory))
        })
        .collect();
    entries.sort_unstable();
    entries
}

/// The place of a name in a list for a text: the exact name first, then names that begin with it, shorter ones first, then those
/// with its letters, nearest first. Only the last part of a path counts as its name too. `None` if it has not those letters.
pub(super) fn rank(text: &str, name: &str) -> Option<(u8, u32)> {
    let far = score(text, name)?;
    let (text, name) = (text.to_lowercase(), name.to_lowercase());
    let last = name.rsplit('/').next().unwrap_or_default();
    let length = |name: &str| u32::try_from(name.len()).unwrap_or(u32::MAX);
    Some(if name == text {
        (0, 0)
    } else if last == text {
        (1, length(&name))
    } else if name.starts_with(&text) {
        (2, length(&name))
    } else if last.starts_with(&text) {
        (3, length(last))
    } else {
        (4, far)
    })
}

/// How far a name is from a text whose letters it has in order, in any case; `None` if it has not. Less is nearer: letters that
/// follow each other and begin a word cost nothing.
pub(super) fn score(text: &str, name: &str) -> Option<u32> {
    let name: Vec<char> = name.chars().flat_map(char::to_lowercase).collect();
    let file = name.iter().rposition(|c| *c == '/').map_or(0, |slash| slash + 1);
    let wanted: Vec<char> = text.chars().flat_map(char::to_lowercase).collect();
    // From the file's name on, if it has all of them, as that is what people mean.
    from(&wanted, &name, file).or_else(|| from(&wanted, &name, 0).map(|cost| cost + 10))
}

fn from(wanted: &[char], name: &[char], start: usize) -> Option<u32> {
    let (mut at, mut cost, mut last) = (start, 0, None);
    for c in wanted {
        let found = at + name.get(at..)?.iter().position(|it| it == c)?;
        let begins = found == 0 || name.get(found - 1).is_some_and(|before| !before.is_alphanumeric());
        let follows = last.is_some_and(|last| last + 1 == found);
        cost += if follows {
            0
        } else if begins {
            1
        } else {
            4
        };
        (at, last) = (found + 1, Some(found));
    }
    Some(cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> (tempfile::TempDir, Vec<PathBuf>) {
        let dir = tempfile::tempdir().unwrap();
        for name in
            ["sub/ä 1.png", "src/main.rs", "src/model/mod.rs", "one.png", "on two.png", ".hidden", "target/main.rs"]
        {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        fs::create_dir(dir.path().join(".git")).unwrap();
        fs::write(dir.path().join(".gitignore"), "target\n").unwrap();
        let places = vec![dir.path().to_path_buf(), dir.path().to_path_buf()];
        (dir, places)
    }

    #[test]
    fn a_name_becomes_those_that_begin_like_it_and_then_those_with_its_letters() {
        let (_dir, places) = tree();
        let check = |typed: &str, start: usize, begin: &[&str], fuzzy: &[&str]| {
            let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            let expect = Files { start, begin: names(begin), fuzzy: names(fuzzy) };
            assert_eq!(mentioned(typed, &places), Some(expect), "{typed}");
        };
        check("see @one", 5, &["one.png"], &[]);
        check("see @on", 5, &["on\\ two.png", "one.png"], &[]);
        check("see @\"on t", 6, &["on two.png"], &[]);
        check("@s", 1, &["src/", "sub/"], &["src/main.rs", "sub/ä\\ 1.png", "src/model/mod.rs"]);
        check("@src/", 1, &["src/main.rs", "src/model/"], &["src/model/mod.rs"]);
        check("@main", 1, &[], &["src/main.rs"]);
        check("@Srmd", 1, &[], &["src/model/mod.rs"]);
        check("@", 1, &["on\\ two.png", "one.png", "src/", "sub/"], &[]);
        check("@.hi", 1, &[".hidden"], &[]);
        check("@ta", 1, &["target/"], &[]);
        check("@nothing", 1, &[], &[]);
        for none in ["@one.png and", "me@on", "/he", ""] {
            assert_eq!(mentioned(none, &places), None, "{none}");
        }
        assert_eq!(directories("s", &places), ["src/", "sub/"]);
    }

    #[test]
    fn a_name_that_steers_the_terminal_is_not_completed() {
        let dir = tempfile::tempdir().unwrap();
        for name in
            ["on\u{1b}[2J.png", "on\t.png", "on\u{9b}.png", "on\n.png", "on\u{202e}gnp.png", "on 2\u{202f}PM.png"]
        {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let places = [dir.path().to_path_buf()];
        assert_eq!(mentioned("@\"o", &places).unwrap().begin, ["on 2\u{202f}PM.png"]);
    }

    #[test]
    fn letters_that_follow_each_other_or_begin_words_are_nearer() {
        let sorted = |text: &str, names: &[&str]| {
            let mut scored: Vec<_> = names.iter().filter_map(|name| Some((score(text, name)?, *name))).collect();
            scored.sort_unstable();
            scored.into_iter().map(|(_, name)| name.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(
            sorted("mod", &["src/my_old.rs", "src/mod.rs", "model/x.rs", "none"]),
            ["src/mod.rs", "src/my_old.rs", "model/x.rs"]
        );
    }
}
