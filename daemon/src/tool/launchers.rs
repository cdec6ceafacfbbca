//! Programs that run other programs: those that their arguments name, program text, or what files of a project say. Data, and pure.
//!
//! Who may run one of these without asking may run anything. The rules of commands ask here, and so do tools that say that they only
//! read.

/// Programs that run the program which their arguments or input name.
pub(crate) const RUNNERS: &[&str] = &[
    "busybox",
    "chroot",
    "doas",
    "entr",
    "env",
    "find",
    "firejail",
    "flock",
    "ionice",
    "nice",
    "nohup",
    "npx",
    "parallel",
    "pkexec",
    "run-parts",
    "runuser",
    "script",
    "setarch",
    "setsid",
    "ssh",
    "stdbuf",
    "strace",
    "su",
    "sudo",
    "systemd-run",
    "taskset",
    "time",
    "timeout",
    "toybox",
    "uvx",
    "watch",
    "xargs",
];

/// Programs that run the program text in their arguments or input.
pub(crate) const INTERPRETERS: &[&str] = &[
    "R",
    "Rscript",
    "ash",
    "awk",
    "bash",
    "bun",
    "csh",
    "dash",
    "deno",
    "ed",
    "elixir",
    "emacs",
    "erl",
    "escript",
    "ex",
    "expect",
    "fish",
    "gawk",
    "gdb",
    "ghci",
    "groovy",
    "guile",
    "irb",
    "java",
    "julia",
    "ksh",
    "lldb",
    "lua",
    "luajit",
    "m4",
    "mawk",
    "mksh",
    "nawk",
    "node",
    "nodejs",
    "nu",
    "nvim",
    "ocaml",
    "osascript",
    "perl",
    "php",
    "powershell",
    "pwsh",
    "pypy",
    "python",
    "racket",
    "ruby",
    "runghc",
    "sbcl",
    "scala",
    "sed",
    "sh",
    "sqlite",
    "swipl",
    "tclsh",
    "ts-node",
    "tsx",
    "vi",
    "view",
    "vim",
    "wish",
    "xonsh",
    "zsh",
];

/// Programs that run what files of a project say: build files, scripts, plugins, configurations that are programs.
pub(crate) const BUILD_TOOLS: &[&str] = &[
    "ansible",
    "ansible-playbook",
    "ant",
    "apt",
    "apt-get",
    "ava",
    "bazel",
    "brew",
    "buck",
    "buck2",
    "bundle",
    "cabal",
    "cargo",
    "cmake",
    "composer",
    "conan",
    "conda",
    "ctest",
    "docker",
    "docker-compose",
    "dotnet",
    "dune",
    "eslint",
    "gem",
    "git",
    "gmake",
    "go",
    "golangci-lint",
    "gradle",
    "gradlew",
    "grunt",
    "gulp",
    "hatch",
    "helm",
    "hg",
    "invoke",
    "jake",
    "jest",
    "just",
    "karma",
    "kubectl",
    "lerna",
    "make",
    "mage",
    "meson",
    "mise",
    "mix",
    "mocha",
    "msbuild",
    "mvn",
    "mvnw",
    "mypy",
    "ninja",
    "nix",
    "nox",
    "npm",
    "nx",
    "packer",
    "pants",
    "pdm",
    "phpunit",
    "pip",
    "pipenv",
    "pipx",
    "playwright",
    "pnpm",
    "podman",
    "poetry",
    "pre-commit",
    "prettier",
    "pylint",
    "pytest",
    "rails",
    "rake",
    "rebar",
    "rollup",
    "rspec",
    "rubocop",
    "sbt",
    "scons",
    "stack",
    "stylelint",
    "svn",
    "swift",
    "task",
    "terraform",
    "tofu",
    "tox",
    "tsc",
    "turbo",
    "uv",
    "vagrant",
    "vite",
    "vitest",
    "webpack",
    "xcodebuild",
    "yarn",
    "zig",
];

/// Binaries that are many programs, each under a name of its own.
const MANY: [&str; 3] = ["busybox", "coreutils", "toybox"];

/// The name of a program without its directory and version: `/usr/bin/python3.11` is `python`.
pub(crate) fn base(program: &str) -> &str {
    let name = program.rsplit('/').next().unwrap_or(program);
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    if bare.is_empty() { name } else { bare }
}

/// Whether a program of this name runs others.
pub(crate) fn runs_others(program: &str) -> bool {
    let name = base(program);
    [RUNNERS, INTERPRETERS, BUILD_TOOLS].iter().any(|table| table.contains(&name) || table.contains(&program))
}

/// Whether this is a binary whose name in a path decides what it is.
pub(crate) fn is_many(program: &str) -> bool {
    MANY.contains(&base(program))
}

/// The words from the program on that really runs: `env` and its kin are looked through where they have no options and set no
/// variable. What cannot be looked through stays.
pub(crate) fn looked_through(words: &[String]) -> &[String] {
    let mut words = words;
    loop {
        let Some((program, rest)) = words.split_first() else { return words };
        let skipped = match base(program) {
            "env" | "ionice" | "nice" | "nohup" | "setsid" | "stdbuf" | "time" => 0,
            "timeout" => 1,
            _ => return words,
        };
        match rest.get(skipped..) {
            Some(inner) if inner.first().is_some_and(|word| !word.starts_with('-') && !word.contains('=')) => {
                words = inner
            }
            _ => return words,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_runs_others_is_known_by_any_name() {
        for name in [
            "bash",
            "/bin/sh",
            "python3",
            "python3.11",
            "/opt/x/perl5.36",
            "nodejs",
            "make",
            "npm",
            "env",
            "sqlite3",
            "R",
        ] {
            assert!(runs_others(name), "{name}");
        }
        for name in ["cat", "shellcheck", "wc", "sha256sum", "jq", "/usr/bin/ls", "7"] {
            assert!(!runs_others(name), "{name}");
        }
    }

    #[test]
    fn wrappers_are_looked_through_where_they_only_run_a_program() {
        let check = |line: &str, expect: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(looked_through(&words).join(" "), expect, "{line}");
        };
        check("cat x", "cat x");
        check("env cat x", "cat x");
        check("nice nohup timeout 5 bash x", "bash x");
        check("env A=b cat", "env A=b cat");
        check("env -S cat", "env -S cat");
        check("timeout", "timeout");
        check("sudo cat", "sudo cat");
    }
}
