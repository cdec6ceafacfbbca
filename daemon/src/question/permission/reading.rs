//! Commands that only read: what mode `plan` does not refuse to ask about. Data, and pure.
//!
//! A program is listed only if none of its options writes a file or runs a program, or all that do are refused here, also as parts
//! of a cluster (`-no FILE`) and as beginnings (`--out`). `git` is not: a repository's own configuration makes it run programs; the
//! tool `git` reads without.

use super::line;

/// Programs without any option that writes or runs something.
const PLAIN: [&str; 26] = [
    "basename", "cat", "cmp", "comm", "cut", "df", "dirname", "du", "echo", "egrep", "fgrep", "grep", "head", "id",
    "ls", "nl", "pwd", "readlink", "realpath", "stat", "tail", "tr", "uname", "wc", "which", "whoami",
];

/// Programs with such options: the letters of short ones, and how long ones begin.
const SOME: [(&str, &str, &[&str]); 4] = [
    // It pipes through `pr`.
    ("diff", "l", &["--p"]),
    // Its actions begin with one sign.
    ("find", "", &["-exec", "-ok", "-delete", "-fprint", "-fls"]),
    ("rg", "z", &["--pre", "--hostname-bin", "--search-zip"]),
    ("sort", "oT", &["--o", "--co", "--t"]),
];

/// Whether each simple command of a command line only reads, and it is nothing else.
pub(super) fn only_reads(text: &str) -> bool {
    line::simple_commands(text).is_some_and(|commands| commands.iter().all(|words| reads(words)))
}

fn reads(words: &[String]) -> bool {
    let Some((program, args)) = words.split_first() else { return false };
    let program = program.as_str();
    if program == "date" {
        // It sets the clock otherwise.
        return args.iter().all(|arg| arg.starts_with('+') || ["-u", "--utc", "-R", "-I"].contains(&arg.as_str()));
    }
    if PLAIN.contains(&program) {
        return true;
    }
    let Some((_, letters, long)) = SOME.iter().find(|(name, ..)| *name == program) else { return false };
    let is_cluster = |arg: &str| arg.starts_with('-') && !arg.starts_with("--");
    let refused = |arg: &String| {
        long.iter().any(|begin| arg.starts_with(begin)) || is_cluster(arg) && arg.contains(|c| letters.contains(c))
    };
    !args.iter().any(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reads_is_known() {
        for line in [
            "cat src/main.rs",
            "ls -la && wc -l 'a b'",
            "find . -name '*.rs' -type f | sort -u | head -20",
            "rg -n foo src",
            "grep -rn \"fn main\" .",
            "diff -u a b",
            "date +%s",
            "pwd; id",
        ] {
            assert!(only_reads(line), "{line}");
        }
    }

    #[test]
    fn what_could_write_or_run_is_not() {
        for line in [
            "",
            "rm x",
            "cat x; rm x",
            "cat x | tee y",
            "cat x > y",
            "cat x >> y",
            "cat <(rm x)",
            "cat $(rm x)",
            "cat `rm x`",
            "cat \"$(rm x)\"",
            "cat x & rm y",
            "cat x\nrm y",
            "X=1 cat x",
            "./cat x",
            "/tmp/cat x",
            "'c'at x; sh y",
            "find . -delete",
            "find . -exec rm x",
            "find . -execdir rm x",
            "find . '-exec' rm x",
            "find . -\"ok\" rm x",
            "find . -okdir rm x",
            "find . -fprint y",
            "find . -fprintf y z",
            "find . -fls y",
            "sort -o y x",
            "sort -oy x",
            "sort x -uo y",
            "sort --output=y x",
            "sort --outp y x",
            "sort --compress-program=sh x",
            "sort --comp sh x",
            "sort -T d x",
            "sort --temp=d x",
            "rg --pre sh x",
            "rg --pre=sh x",
            "rg --hostname-bin sh x",
            "rg -z x",
            "rg -nz x",
            "diff -l a b",
            "diff -ul a b",
            "diff --pag a b",
            "date -s 12:00",
            "date --set=12:00",
            "date 010203042026",
            "git status",
            "git log",
            "env cat x",
            "xargs cat",
            "sudo cat x",
            "command cat x",
            "eval cat x",
            "uniq x y",
            "sed -i s/a/b/ x",
            "awk '{print}' x",
            "tee x",
            "cp a b",
            "cat x || sh y",
            "! cat x",
            "{ cat x; }",
            "(cat x)",
            "if true; then rm x; fi",
            "cat x #y\nrm z",
            "cat ~/x",
        ] {
            assert!(!only_reads(line), "{line}");
        }
    }
}
