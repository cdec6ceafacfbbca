//! Programs that are worth a rule for one of their subcommands, and programs that run any other.
//!
//! Data, and pure. A subcommand is listed only if its options are about what it does itself: `git fetch` runs any program
//! (`--upload-pack`) and `git diff` writes any file (`--output`), so a rule that an answer adds names such a command exactly.

use super::script::{self, plain};

/// Programs and their subcommands, for which "always" means "with any further arguments".
const SUBCOMMANDS: [(&str, &[&str]); 7] = [
    ("cargo", &["bench", "build", "check", "clippy", "doc", "fmt", "metadata", "test", "tree"]),
    ("dotnet", &["build", "test"]),
    ("git", &["add", "branch", "commit", "status", "switch"]),
    ("go", &["build", "test", "vet"]),
    ("npm", &["ci", "ls", "outdated", "test"]),
    ("pnpm", &["ls", "outdated", "test"]),
    ("yarn", &["list", "outdated", "test"]),
];

/// Programs with a subcommand that runs a script of the project, which is a word of the rule too.
const SCRIPTS: [&str; 3] = ["npm", "pnpm", "yarn"];

/// Programs that run the program which their arguments or input name.
const RUNNERS: [&str; 24] = [
    "chroot",
    "doas",
    "env",
    "find",
    "nice",
    "nohup",
    "npx",
    "parallel",
    "pkexec",
    "runuser",
    "script",
    "setsid",
    "ssh",
    "stdbuf",
    "strace",
    "su",
    "sudo",
    "systemd-run",
    "time",
    "timeout",
    "uvx",
    "watch",
    "xargs",
    "busybox",
];

/// Programs that run the program text in their arguments or input.
const INTERPRETERS: [&str; 25] = [
    "ash",
    "awk",
    "bash",
    "bun",
    "csh",
    "dash",
    "deno",
    "ed",
    "fish",
    "gawk",
    "irb",
    "ksh",
    "lua",
    "mawk",
    "node",
    "osascript",
    "perl",
    "php",
    "pwsh",
    "python",
    "ruby",
    "sh",
    "tclsh",
    "vim",
    "zsh",
];

/// The words of a command that a rule for all like it begins with, if there is such a rule.
pub(super) fn of(command: &str) -> Option<String> {
    let [words] = <[script::Words; 1]>::try_from(script::simple_commands(plain(command))?).ok()?;
    let (program, second) = (words.first()?.as_str(), words.get(1)?.as_str());
    let is_known = SUBCOMMANDS.iter().any(|(name, known)| *name == program && known.contains(&second));
    if is_known {
        return Some(format!("{program} {second}"));
    }
    let third = words.get(2).filter(|_| SCRIPTS.contains(&program) && second == "run")?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-:.".contains(c);
    let is_name = third.starts_with(|c: char| c.is_ascii_alphanumeric()) && third.chars().all(is_plain);
    is_name.then(|| format!("{program} {second} {third}"))
}

/// Why an allow rule for this command, or for all that begin so, allows every program, if it does.
pub(super) fn runs_any(words: &[String], is_prefix: bool) -> Option<String> {
    let program = words.first()?;
    let name = program.rsplit('/').next().unwrap_or(program);
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
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

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            check(command, None);
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
