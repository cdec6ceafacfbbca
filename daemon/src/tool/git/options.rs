//! Which arguments of git run without asking: an allow-list of subcommands and of their options, spelt in full.
//!
//! What is not in these tables asks, as any command does: an option may write a file (`--output`), read one (`--contents`,
//! `--no-index`), or run a program (`--ext-diff`, `--show-signature`), and git takes any unique beginning of its name.
//! Pure.

use std::path::{Component, Path};

/// A subcommand that only reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subcommand {
    Status,
    Diff,
    Log,
    Show,
    Blame,
}

/// Arguments that run without asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Inspection {
    pub(super) subcommand: Subcommand,
    /// The options, each with its value if that is a word of its own.
    pub(super) options: Vec<GitOption>,
    /// Revisions, or paths.
    pub(super) words: Vec<String>,
    /// Words after `--`.
    pub(super) paths: Vec<String>,
}

/// An option of git, with its value if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GitOption {
    pub(super) words: Vec<String>,
    pub(super) about: About,
}

/// The purpose of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// Which commits or files are shown.
    Selects,
    /// Which commits are shown, by what changed in their files.
    Searches,
    /// How they are shown.
    Shapes,
    /// How the changes of files are shown; `log` shows none without it.
    ShowsChanges,
}

/// Options of a subcommand, separated by blanks: those without a value, those with one behind `=`, and those of one letter with one
/// behind them or in the next word.
struct Table {
    flags: &'static str,
    values: &'static str,
    letters: &'static str,
    about: About,
}

const STATUS: [Table; 1] = [Table {
    flags: "-s --short -b --branch --porcelain --porcelain=v1 --porcelain=v2 --long -u -uno -unormal \
            -uall --untracked-files --ignored --show-stash --ahead-behind --no-ahead-behind \
            --renames --no-renames -z",
    values: "--untracked-files --ignored",
    letters: "",
    about: About::Shapes,
}];

/// Options of `diff`, `show` and `log`.
const CHANGES: Table = Table {
    flags: "-p -u --patch -s --no-patch --stat --numstat --shortstat --compact-summary --summary \
            --raw --name-only --name-status --patch-with-stat --minimal --patience --histogram -b -w \
            --ignore-space-change --ignore-all-space --ignore-space-at-eol --ignore-blank-lines \
            --ignore-cr-at-eol --full-index -W --function-context -M --find-renames --no-renames -a \
            --text --word-diff --no-ext-diff --no-textconv --no-prefix --check -m -c --cc",
    values: "--unified --stat --word-diff --diff-algorithm --find-renames",
    letters: "",
    about: About::ShowsChanges,
};

const SEARCHES: Table =
    Table { flags: "--pickaxe-regex --pickaxe-all", values: "--diff-filter", letters: "-S -G", about: About::Searches };

const DIFF: [Table; 3] = [
    CHANGES,
    SEARCHES,
    Table { flags: "--cached --staged --merge-base -R", values: "", letters: "", about: About::Selects },
];

/// How commits are shown.
const COMMITS: Table = Table {
    flags: "--oneline --graph --decorate --no-decorate --abbrev-commit --no-abbrev-commit \
            --relative-date --parents --left-right --source --no-color --no-notes",
    values: "--format --pretty --date --abbrev --decorate",
    letters: "",
    about: About::Shapes,
};

const LOG: [Table; 4] = [
    CHANGES,
    SEARCHES,
    COMMITS,
    Table {
        flags: "--all --branches --tags --remotes --merges --no-merges --first-parent --reverse \
            --date-order --topo-order --author-date-order -i -E -F --all-match --invert-grep \
            --full-history --cherry-pick -g --walk-reflogs",
        values: "--max-count --skip --since --after --until --before --author --committer --grep",
        letters: "-n",
        about: About::Selects,
    },
];

const SHOW: [Table; 2] = [CHANGES, COMMITS];

const BLAME: [Table; 1] = [Table {
    flags: "-l -t -w -s -e -f -n -p -c -M --porcelain --line-porcelain --root --show-name \
            --show-number --show-email",
    values: "--date --abbrev --since",
    letters: "-L",
    about: About::Shapes,
}];

impl Subcommand {
    fn of(word: &str) -> Option<(Self, &'static [Table])> {
        Some(match word {
            "status" => (Self::Status, &STATUS),
            "diff" => (Self::Diff, &DIFF),
            "log" => (Self::Log, &LOG),
            "show" => (Self::Show, &SHOW),
            "blame" => (Self::Blame, &BLAME),
            _ => return None,
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Diff => "diff",
            Self::Log => "log",
            Self::Show => "show",
            Self::Blame => "blame",
        }
    }
}

/// The inspection that these arguments are, if they are one; `depth` is how far the directory is below the workspace.
pub(super) fn inspection(args: &[String], depth: usize) -> Option<Inspection> {
    let (name, rest) = args.split_first()?;
    let (subcommand, tables) = Subcommand::of(name)?;
    let mut found = Inspection { subcommand, options: Vec::new(), words: Vec::new(), paths: Vec::new() };
    let mut rest = rest.iter();
    while let Some(arg) = rest.next() {
        if arg == "--" {
            found.paths = rest.by_ref().cloned().collect();
        } else if arg.starts_with('-') {
            let (about, takes_next) = option(arg, tables)?;
            let mut words = vec![arg.clone()];
            if takes_next {
                // Parts of git take what looks like an option for one, wherever it stands.
                words.push(rest.next().filter(|value| !value.starts_with('-'))?.clone());
            }
            found.options.push(GitOption { words, about });
        } else {
            found.words.push(arg.clone());
        }
    }
    let all = || found.words.iter().chain(&found.paths);
    // `git diff` compares two files of which one is outside of the repository as if there were none.
    all().all(|word| !word.is_empty() && stays_below(word, depth)).then_some(found)
}

/// The purpose of an option, and whether its value is the next word.
fn option(arg: &str, tables: &[Table]) -> Option<(About, bool)> {
    // Asks gpg about signatures.
    let behind_signs = |rest: &str| rest.trim_start_matches(['+', '-', ' ']).starts_with('G');
    if arg.split('%').skip(1).any(behind_signs) {
        return None;
    }
    // A width could ask for gigabytes of blanks.
    let is_letter = |rest: &str| rest.is_empty() || rest.starts_with(|c: char| c.is_ascii_alphabetic());
    let has_width = |date: &str| !date.split('%').skip(1).all(is_letter);
    if arg.strip_prefix("--date=").is_some_and(has_width) {
        return None;
    }
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    tables.iter().find_map(|table| {
        let words = |list: &'static str| list.split_ascii_whitespace();
        let has_value = |name: &str| arg.strip_prefix(name).is_some_and(|rest| rest.starts_with('='));
        if words(table.flags).any(|flag| flag == arg) || words(table.values).any(has_value) {
            return Some((table.about, false));
        }
        if let Some(letter) = words(table.letters).find(|letter| arg.starts_with(letter)) {
            return Some((table.about, arg == letter));
        }
        // `-5` is `-n 5`, and `-U5` is `--unified=5`.
        let bare = arg.strip_prefix('-').filter(|_| words(table.letters).any(|letter| letter == "-n"));
        let unified = arg.strip_prefix("-U").filter(|_| words(table.values).any(|name| name == "--unified"));
        let numbered = bare.is_some_and(is_number) || unified.is_some_and(is_number);
        numbered.then_some((table.about, false))
    })
}

/// Whether a path stays in the workspace, by its letters.
fn stays_below(word: &str, depth: usize) -> bool {
    let mut depth = Some(depth);
    for part in Path::new(word).components() {
        depth = match part {
            Component::Normal(_) => depth.map(|depth| depth + 1),
            Component::ParentDir => depth.and_then(|depth| depth.checked_sub(1)),
            Component::CurDir => depth,
            Component::RootDir | Component::Prefix(_) => None,
        };
    }
    depth.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn known_options_of_five_subcommands_run_without_asking() {
        for line in [
            "status",
            "status -s --branch --untracked-files=no",
            "status -- src",
            "diff --cached --stat HEAD~2 -- src/main.rs",
            "diff main...feature",
            "diff -U5 -w",
            "log --oneline -n 5 --since=yesterday --author=x",
            "log -5 -p -S needle -- a b",
            "log --format=%h%x09%s",
            "show HEAD:src/main.rs",
            "show --stat abc123^!",
            "blame -L 1,5 src/main.rs",
            "log -- ../x",
        ] {
            assert!(inspection(&args(line), 1).is_some(), "{line}");
        }
        let found = inspection(&args("log -n 5 --oneline main -- -x"), 0).unwrap();
        assert_eq!(found.options[0], GitOption { words: args("-n 5"), about: About::Selects });
        assert_eq!((found.words, found.paths), (args("main"), args("-x")));
    }

    #[test]
    fn everything_else_asks() {
        for line in [
            "commit -m x",
            "-C x status",
            "-c core.pager=x log",
            "--exec-path=x status",
            "push",
            "fetch",
            "diff --output=x",
            "diff --outpu=x",
            "diff --output x",
            "diff --ext-diff",
            "diff --textconv",
            "diff --no-index a b",
            "diff --no-inde a b",
            "diff -O x",
            "diff -Ox",
            "diff --submodule=log",
            "diff -- /etc/passwd /etc/shadow",
            "diff /etc/passwd /dev/null",
            "diff a ../../etc/passwd",
            "diff a/../../../b c",
            "log --show-signature",
            "log --format=%G?",
            "log --follow x",
            "log --full-diff -p x",
            "log -L 1,5:x",
            "log --stdin",
            "log -n",
            "log -S -L1,5:x",
            "show --textconv HEAD:x",
            "blame --contents x y",
            "blame -S revs y",
            "blame --ignore-revs-file=x y",
            "log --date=format:%900000000d",
            "status -v",
            "status --column",
            "log --open-files-in-pager",
            "status ",
            "--",
        ] {
            assert_eq!(inspection(&args(line), 1), None, "{line}");
        }
        assert_eq!(inspection(&[], 0), None);
    }
}
