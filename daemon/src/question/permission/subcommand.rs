//! Programs that are worth a rule for one of their subcommands, and rules that allow any program.
//!
//! Data, and pure. A subcommand is listed only if its options are about what it does itself, but for some that such a rule does not
//! cover ([`goes_beyond`]): `git fetch` runs any program (`--upload-pack`) and `git diff` writes any file (`--output`), so a rule that
//! an answer adds names such a command exactly.

use crate::tool::launchers::{BUILD_TOOLS, INTERPRETERS, RUNNERS, base};

/// Programs and their subcommands, for which "always" means "with any further arguments".
const SUBCOMMANDS: [(&str, &[&str]); 6] = [
    ("cargo", &["bench", "build", "check", "clippy", "doc", "fmt", "metadata", "test", "tree"]),
    ("git", &["add", "branch", "commit", "status", "switch"]),
    ("go", &["build", "test", "vet"]),
    ("npm", &["ci", "ls", "outdated", "test"]),
    ("pnpm", &["ls", "outdated", "test"]),
    ("yarn", &["list", "outdated", "test"]),
];

/// Programs with a subcommand that runs a script of the project, which is a word of the rule too.
const SCRIPTS: [&str; 3] = ["npm", "pnpm", "yarn"];

/// Options that a rule for all commands with a beginning does not cover: they name another program, a file that says what runs, or a
/// file that is read or written elsewhere. A command that has one needs a rule of its own.
struct Refused {
    /// The program, and the subcommand if the row is about one.
    command: &'static [&'static str],
    /// Long options without their dashes; where `abbreviates`, a beginning means the option too.
    long: &'static [&'static str],
    abbreviates: bool,
    /// Short options, also within a cluster.
    letters: &'static str,
    /// Short options that take the rest of their word as a value.
    valued: &'static str,
    /// Whether one dash makes a long option too, as with Go.
    one_dash: bool,
}

const PLAIN: Refused =
    Refused { command: &[], long: &[], abbreviates: false, letters: "", valued: "", one_dash: false };

const REFUSED: &[Refused] = &[
    Refused {
        command: &["cargo"],
        long: &[
            "config",
            "manifest-path",
            "lockfile-path",
            "open",
            "fix",
            "artifact-dir",
            "out-dir",
            "target-dir",
            "unit-graph",
        ],
        letters: "CZ",
        valued: "jpF",
        ..PLAIN
    },
    Refused {
        command: &["git", "add"],
        long: &["pathspec-from-file", "edit", "interactive", "patch"],
        abbreviates: true,
        letters: "eip",
        ..PLAIN
    },
    Refused { command: &["git", "branch"], long: &["edit-description"], abbreviates: true, ..PLAIN },
    Refused {
        command: &["git", "commit"],
        long: &[
            "file",
            "template",
            "edit",
            "reedit-message",
            "gpg-sign",
            "pathspec-from-file",
            "patch",
            "interactive",
            "trailer",
        ],
        abbreviates: true,
        letters: "FtecpS",
        valued: "mC",
        ..PLAIN
    },
    Refused {
        command: &["go"],
        long: &[
            "exec",
            "toolexec",
            "vettool",
            "overlay",
            "modfile",
            "ldflags",
            "gcflags",
            "asmflags",
            "gccgoflags",
            "compiler",
            "pkgdir",
            "C",
            "o",
            "outputdir",
            "coverprofile",
            "cpuprofile",
            "memprofile",
            "blockprofile",
            "mutexprofile",
            "trace",
        ],
        one_dash: true,
        ..PLAIN
    },
    Refused { command: &["pnpm"], ..SCRIPT_RUNNER },
    Refused { command: &["yarn"], ..SCRIPT_RUNNER },
];

const SCRIPT_RUNNER: Refused = Refused {
    long: &[
        "dir",
        "prefix",
        "cwd",
        "script-shell",
        "shell",
        "shell-emulator",
        "node-options",
        "use-yarnrc",
        "userconfig",
        "globalconfig",
        "registry",
        "config",
        "global",
        "modules-folder",
        "store-dir",
        "npmrc",
        "top-level",
    ],
    abbreviates: true,
    letters: "Cg",
    ..PLAIN
};

/// The options of npm that a rule covers: it takes every setting for one, and every beginning of its name.
const OF_NPM: [&str; 16] = [
    "-s",
    "--silent",
    "--json",
    "--if-present",
    "--no-audit",
    "--no-fund",
    "--all",
    "--long",
    "--workspaces",
    "-ws",
    "--verbose",
    "--quiet",
    "--no-color",
    "--color",
    "--prefer-offline",
    "--offline",
];

/// Whether a command says more than a rule for all that begin with its first `known` words covers.
pub(super) fn goes_beyond(known: usize, command: &[String]) -> bool {
    let Some(program) = command.first().map(|program| base(program)) else { return false };
    let rest = command.get(known..).unwrap_or_default();
    let options = || rest.iter().take_while(|word| *word != "--").filter(|word| word.starts_with('-'));
    if program == "npm" {
        return options().any(|option| !OF_NPM.contains(&option.as_str()));
    }
    let is_about = |row: &&Refused| match row.command {
        [name] => *name == program,
        [name, second] => *name == program && command.get(1).is_some_and(|word| word == second),
        _ => false,
    };
    let Some(row) = REFUSED.iter().find(is_about) else { return false };
    // What follows `--` goes to a script of the project, but of cargo also to the compiler.
    if SCRIPTS.contains(&program) {
        options().any(|option| row.refuses(option))
    } else {
        rest.iter().any(|it| row.refuses(it))
    }
}

impl Refused {
    fn refuses(&self, option: &str) -> bool {
        let is_long = |name: &str| {
            let name = name.split('=').next().unwrap_or(name);
            !name.is_empty() && self.long.iter().any(|long| *long == name || self.abbreviates && long.starts_with(name))
        };
        match (option.strip_prefix("--"), option.strip_prefix('-')) {
            (Some(name), _) => is_long(name),
            (None, Some(name)) if self.one_dash => is_long(name),
            (None, Some(cluster)) => {
                cluster.chars().take_while(|letter| !self.valued.contains(*letter)).any(|it| self.letters.contains(it))
            }
            (None, None) => false,
        }
    }
}

/// The words of a command that a rule for all like it begins with, if there is such a rule.
pub(super) fn of(words: &[String]) -> Option<String> {
    let (program, second) = (words.first()?.as_str(), words.get(1)?.as_str());
    if is_known(program, second) {
        return (!goes_beyond(2, words)).then(|| format!("{program} {second}"));
    }
    let third = words.get(2).filter(|_| SCRIPTS.contains(&program) && second == "run")?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-:.".contains(c);
    let is_name = third.starts_with(|c: char| c.is_ascii_alphanumeric()) && third.chars().all(is_plain);
    (is_name && !goes_beyond(3, words)).then(|| format!("{program} {second} {third}"))
}

fn is_known(program: &str, second: &str) -> bool {
    SUBCOMMANDS.iter().any(|(name, known)| *name == program && known.contains(&second))
}

/// Why an allow rule for this command, or for all that begin so, allows every program, if it does.
pub(super) fn runs_any(words: &[String], is_prefix: bool) -> Option<String> {
    let program = words.first()?;
    let name = base(program);
    let rest = words.get(1..).unwrap_or_default();
    // Without the name of a program text it is read from a pipe.
    let names_no_file = rest.iter().all(|word| word.starts_with('-'));
    let is_fed = ["xargs", "parallel"].contains(&name);
    let any = match (RUNNERS.contains(&name), INTERPRETERS.contains(&name)) {
        (true, _) => is_prefix || is_fed,
        (_, true) => names_no_file,
        _ => false,
    };
    any.then(|| format!("allows every program, for `{program}` runs any"))
}

/// Subcommands of git with options that name a program, or a file to read or write.
const OF_GIT: [&str; 24] = [
    "am",
    "apply",
    "archive",
    "bisect",
    "bundle",
    "clone",
    "config",
    "diff",
    "difftool",
    "fetch",
    "filter-branch",
    "format-patch",
    "grep",
    "log",
    "ls-remote",
    "mergetool",
    "pull",
    "push",
    "rebase",
    "send-email",
    "show",
    "submodule",
    "tag",
    "worktree",
];

/// A warning about an allow rule for all commands that begin with these words, if it allows more than they say.
pub(super) fn caution(words: &[String]) -> Option<String> {
    let name = base(words.first()?);
    let second = words.get(1).map_or("", String::as_str);
    if is_known(name, second) || SCRIPTS.contains(&name) && second == "run" {
        return None;
    }
    if name == "git" {
        let is_wide = second.is_empty() || OF_GIT.contains(&second);
        let why =
            "options of `git` name programs that run, and files to read and write (`-c`, `--output`, `--upload-pack`)";
        return is_wide.then(|| format!("allows more than it says: {why}"));
    }
    let why = format!("`{name}` runs what its options and files of the workspace name, which a model can write");
    BUILD_TOOLS.contains(&name).then(|| format!("allows every program: {why}"))
}

#[cfg(test)]
mod tests {
    use super::super::line::{plain, simple_commands};
    use super::*;

    fn of(command: &str) -> Option<String> {
        let commands = simple_commands(plain(command))?;
        super::of(commands.first().filter(|_| commands.len() == 1)?)
    }

    #[test]
    fn a_subcommand_is_a_rule_of_its_own_only_if_the_command_is_plain() {
        let check = |command: &str, expect: Option<&str>| assert_eq!(of(command).as_deref(), expect, "{command}");
        check("cargo test --lib x", Some("cargo test"));
        check("  cargo 'test'", Some("cargo test"));
        check("git commit -m 'a; b'", Some("git commit"));
        check("npm run build:all -- -x", Some("npm run build:all"));
        for command in [
            "cargo",
            "cargo run",
            "cargo +nightly test",
            "git push",
            "git diff",
            "git fetch",
            "git -C x status",
            "git config a b",
            "npm run",
            "npm run -s",
            "npm exec x",
            "ls -l",
            "cargo test; cargo test",
            "cargo test $x",
            "cargo test > x",
            "./cargo test",
            "dotnet test",
        ] {
            check(command, None);
        }
    }

    #[test]
    fn a_rule_for_a_subcommand_covers_no_option_that_names_a_program_or_a_file() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for line in [
            "cargo test --config target.x.runner=['sh']",
            "cargo test --config=x",
            "cargo build --manifest-path ../other/Cargo.toml",
            "cargo build -C ../other",
            "cargo build -vC../other",
            "cargo build -Zunstable-options",
            "cargo clippy -- -C linker=x",
            "cargo doc --open",
            "npm test --prefix ../other",
            "npm test --pref=../other",
            "npm run build --script-shell=sh",
            "npm run build --script-sh sh",
            "npm ci --registry=http://x",
            "npm test -C ../other",
            "npm test --node-options=--require=x",
            "pnpm test --dir ../other",
            "pnpm test -C ../other",
            "yarn test --cwd ../other",
            "go test -exec sh ./...",
            "go test --exec=sh",
            "go build -toolexec sh",
            "go vet -vettool=x",
            "go build -overlay=x",
            "go build -ldflags=-extld=x",
            "go build -C ../other",
            "go test -o /x",
            "git commit -F /outside/s",
            "git commit -F/outside/s",
            "git commit -aF /outside/s",
            "git commit --file=/outside/s",
            "git commit --fil /outside/s",
            "git commit -t /outside/s",
            "git commit --templ=x",
            "git commit --pathspec-from-file=/outside/s",
            "git commit --pathspec-f /x",
            "git commit -e -m x",
            "git commit -S -m x",
            "git add --pathspec-from-file=/x",
            "git add -p",
            "git add -Ae",
            "git branch --edit-description",
        ] {
            assert!(goes_beyond(2, &words(line)), "{line}");
            assert_eq!(of(line), None, "{line}");
        }
        for line in [
            "cargo test --lib x -- --nocapture",
            "cargo test -p x -j4 --release --target y",
            "cargo build --offline -pCZ",
            "cargo clippy --all-targets -- -D warnings",
            "npm test -- --prefix x",
            "npm run build --if-present",
            "npm test some.test.js",
            "yarn test --watch",
            "go test ./... -run TestX -v -count=1",
            "go build ./...",
            "git commit -am Fix-F",
            "git commit -mFtS --amend --no-edit",
            "git add -A .",
            "git status -s",
            "git switch -c x",
        ] {
            assert!(!goes_beyond(2, &words(line)), "{line}");
        }
    }

    #[test]
    fn a_rule_written_by_hand_that_allows_more_than_it_says_is_named() {
        let check = |start: &str, expect: bool| {
            let words: Vec<String> = start.split(' ').map(str::to_owned).collect();
            assert_eq!(caution(&words).is_some(), expect, "{start}");
        };
        for start in [
            "git",
            "git log",
            "git push",
            "cargo",
            "cargo run",
            "make",
            "make test",
            "npm",
            "npm install",
            "go run",
            "pytest",
            "docker run",
        ] {
            check(start, true);
        }
        for start in [
            "git commit",
            "git status",
            "git stash",
            "cargo test",
            "npm run build",
            "npm test",
            "go vet",
            "ls",
            "shellcheck",
        ] {
            check(start, false);
        }
    }

    #[test]
    fn a_rule_for_a_program_that_runs_others_is_known() {
        let check = |command: &str, is_prefix: bool, expect: bool| {
            let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
            assert_eq!(runs_any(&words, is_prefix).is_some(), expect, "{command} {is_prefix}");
        };
        for command in [
            "sh",
            "bash -c",
            "env",
            "env A=b",
            "xargs rm",
            "find .",
            "sudo apt",
            "/usr/bin/python3.11",
            "perl -e",
            "node",
        ] {
            check(command, true, true);
        }
        for command in ["cargo test", "git status", "python3 x.py", "python3 -m pytest", "ls", "sha256sum"] {
            check(command, true, false);
        }
        check("find . -name x", false, false);
        check("sh", false, true);
        check("xargs rm", false, true);
        check("sudo apt update", false, false);
    }
}
