//! The commands that a command runs: `env`, `sudo`, `xargs`, `find -exec`, `sh -c` and their kin, looked through. Data, and pure.
//!
//! For rules that narrow, which look at every command wherever it stands. What is not understood is looked at in every way: of a
//! program with options that are not in the table, each suffix of its words counts as a command.

use super::launchers::base;
use super::shell::{Word, WordPiece};

/// A command in another's arguments.
#[derive(Clone, Debug)]
pub(crate) enum Launched {
    /// The words of a simple command.
    Words(Vec<Word>),
    /// Text, which a shell reads; expansions in it are `$_`.
    Text(String),
}

/// A program that runs its arguments, and its own options.
struct Launcher {
    names: &'static [&'static str],
    /// Short options without a value.
    flags: &'static str,
    /// Short options with one.
    valued: &'static str,
    /// Long options whose value is the next word.
    long: &'static [&'static str],
    /// Short options whose value is text that a shell reads.
    text: &'static str,
    /// Words between the options and the command.
    operands: usize,
    /// Whether the words are joined and read by a shell.
    is_joined: bool,
}

const PLAIN: Launcher =
    Launcher { names: &[], flags: "", valued: "", long: &[], text: "", operands: 0, is_joined: false };

const LAUNCHERS: &[Launcher] = &[
    Launcher { names: &["env"], flags: "i0v", valued: "uC", long: &["unset", "chdir"], text: "S", ..PLAIN },
    Launcher { names: &["nohup", "builtin", "busybox", "toybox", "fakeroot", "setsid"], flags: "cfw", ..PLAIN },
    Launcher { names: &["command"], flags: "p", ..PLAIN },
    Launcher { names: &["exec"], flags: "cl", valued: "a", ..PLAIN },
    Launcher { names: &["nice"], flags: "0123456789", valued: "n", long: &["adjustment"], ..PLAIN },
    Launcher { names: &["ionice"], flags: "t", valued: "cnpPu", long: &["class", "classdata"], ..PLAIN },
    Launcher { names: &["stdbuf"], valued: "ioe", long: &["input", "output", "error"], ..PLAIN },
    Launcher { names: &["timeout"], flags: "fpv", valued: "ks", long: &["kill-after", "signal"], operands: 1, ..PLAIN },
    Launcher { names: &["time"], flags: "apqvV", valued: "fo", long: &["format", "output"], ..PLAIN },
    Launcher {
        names: &["sudo"],
        flags: "AbBEHiKknPSsV",
        valued: "CDghpRrTtUu",
        long: &["user", "group", "host", "prompt", "chroot", "chdir", "role", "type", "close-from"],
        ..PLAIN
    },
    Launcher { names: &["doas"], flags: "Lns", valued: "aCu", ..PLAIN },
    Launcher {
        names: &["xargs"],
        flags: "0oprtx",
        valued: "adEIiLlnPs",
        long: &["arg-file", "delimiter", "eof", "replace", "max-lines", "max-args", "max-procs", "max-chars"],
        ..PLAIN
    },
    Launcher { names: &["watch"], flags: "bcdegptwx", valued: "nq", long: &["interval"], is_joined: true, ..PLAIN },
    Launcher {
        names: &["flock"],
        flags: "enosuxFv",
        valued: "wE",
        long: &["timeout", "wait", "conflict-exit-code"],
        text: "c",
        operands: 1,
        ..PLAIN
    },
    Launcher { names: &["chroot", "taskset", "chrt"], flags: "abdfior", operands: 1, ..PLAIN },
    Launcher {
        names: &["su", "runuser"],
        flags: "flmpPw",
        valued: "gGsu",
        long: &["user", "group", "shell"],
        text: "c",
        operands: 1,
        ..PLAIN
    },
    Launcher { names: &["script"], flags: "aefq", valued: "BEIOT", text: "c", operands: 9, ..PLAIN },
    Launcher { names: &["entr"], flags: "acdnprsxz", is_joined: true, ..PLAIN },
    Launcher {
        names: &["ssh"],
        flags: "46AaCfGgKkMNnqsTtVvXxYy",
        valued: "BbcDEeFIiJLlmOoPpQRSWw",
        operands: 1,
        is_joined: true,
        ..PLAIN
    },
    Launcher { names: &["eval"], is_joined: true, ..PLAIN },
    Launcher { names: &["npx", "bunx", "uvx"], flags: "yq", valued: "p", long: &["package"], text: "c", ..PLAIN },
];

/// Programs that run their arguments, whose options are not in the table: every suffix of their words may be a command.
const OTHERS: &[&str] = &[
    "at",
    "batch",
    "bwrap",
    "caffeinate",
    "catchsegv",
    "concurrently",
    "cpulimit",
    "daemonize",
    "dbus-run-session",
    "dumb-init",
    "fd",
    "fdfind",
    "firejail",
    "gdb",
    "gosu",
    "hyperfine",
    "ltrace",
    "nix-shell",
    "nodemon",
    "nsenter",
    "numactl",
    "parallel",
    "perf",
    "pkexec",
    "prlimit",
    "proxychains",
    "rlwrap",
    "run-parts",
    "screen",
    "setarch",
    "setpriv",
    "start-stop-daemon",
    "strace",
    "su-exec",
    "systemd-run",
    "tini",
    "tmux",
    "torsocks",
    "unbuffer",
    "unshare",
    "valgrind",
    "watchexec",
    "wsl",
    "xvfb-run",
];

/// Programs that run the rest of their words behind one of these.
const BEHIND: &[(&str, &[&str])] = &[
    ("asdf", &["exec"]),
    ("bundle", &["exec"]),
    ("cargo", &["watch"]),
    ("conda", &["run"]),
    ("direnv", &["exec"]),
    ("docker", &["exec", "run"]),
    ("hatch", &["run"]),
    ("kubectl", &["exec", "run"]),
    ("mise", &["exec", "x"]),
    ("nix", &["develop", "run", "shell"]),
    ("npm", &["exec", "x"]),
    ("pdm", &["run"]),
    ("pipenv", &["run"]),
    ("pnpm", &["exec", "dlx"]),
    ("podman", &["exec", "run"]),
    ("poetry", &["run"]),
    ("pyenv", &["exec"]),
    ("rbenv", &["exec"]),
    ("rustup", &["run"]),
    ("uv", &["run"]),
    ("yarn", &["exec", "dlx"]),
];

/// Shells that read the text behind `-c`.
const SHELLS: &[&str] = &["ash", "bash", "dash", "fish", "ksh", "mksh", "rbash", "sh", "yash", "zsh"];

/// Options of git in front of its subcommand whose value is the next word.
const OF_GIT: [&str; 8] =
    ["-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env", "--attr-source"];

/// Whether this program is a shell.
pub(crate) fn is_shell(program: &str) -> bool {
    SHELLS.contains(&base(program))
}

/// The commands that these words run as arguments of the first.
pub(crate) fn launched(words: &[Word]) -> Vec<Launched> {
    let Some((first, rest)) = words.split_first() else { return Vec::new() };
    let Some(program) = first.literal.as_deref() else { return Vec::new() };
    let name = base(program);
    let is = |word: &Word, text: &str| word.literal.as_deref() == Some(text);
    if let Some(launcher) = LAUNCHERS.iter().find(|launcher| launcher.names.contains(&name)) {
        if name == "command" && rest.first().is_some_and(|word| is(word, "-v") || is(word, "-V")) {
            return Vec::new();
        }
        return of_launcher(launcher, name, rest);
    }
    if SHELLS.contains(&name) {
        return of_shell(rest);
    }
    if OTHERS.contains(&name) {
        return suffixes(rest);
    }
    match name {
        "find" => of_find(rest),
        "trap" => {
            let action = rest.iter().find(|word| !is(word, "--"));
            action.map(|word| Launched::Text(text_of(word))).into_iter().collect()
        }
        "alias" => {
            let value = |word: &Word| Some(Launched::Text(text_of(word).split_once('=')?.1.to_owned()));
            rest.iter().filter_map(value).collect()
        }
        "git" => of_git(rest),
        _ => {
            let marks = BEHIND.iter().find(|(program, _)| *program == name).map(|(_, marks)| *marks);
            let at = marks.and_then(|marks| {
                rest.iter().position(|word| word.literal.as_deref().is_some_and(|word| marks.contains(&word)))
            });
            at.map(|at| suffixes(behind(rest, at + 1))).unwrap_or_default()
        }
    }
}

/// The words from this one on.
fn behind(words: &[Word], at: usize) -> &[Word] {
    words.get(at..).unwrap_or_default()
}

/// The text of a word, with `$_` in the place of what is expanded.
fn text_of(word: &Word) -> String {
    let text = |piece: &WordPiece| match piece {
        WordPiece::Text(text) => text.clone(),
        WordPiece::Unknown | WordPiece::Split => "$_".to_owned(),
    };
    word.pieces.iter().map(text).collect()
}

fn joined(words: &[Word]) -> Launched {
    Launched::Text(words.iter().map(text_of).collect::<Vec<_>>().join(" "))
}

/// Every suffix as a command, and every word with a blank as text.
fn suffixes(words: &[Word]) -> Vec<Launched> {
    /// Suffixes that are tried, at most.
    const MOST: usize = 64;
    let texts = words.iter().filter(|word| word.literal.as_ref().is_none_or(|text| text.contains([' ', '\t', ';'])));
    let texts = texts.take(MOST).map(|word| Launched::Text(text_of(word)));
    (0..words.len().min(MOST)).map(|at| Launched::Words(behind(words, at).to_vec())).chain(texts).collect()
}

fn of_launcher(launcher: &Launcher, name: &str, rest: &[Word]) -> Vec<Launched> {
    let mut found = Vec::new();
    let (mut operands, mut at, mut ended) = (launcher.operands, 0, false);
    while let Some(word) = rest.get(at) {
        // An expansion may be an option, an operand or the command.
        let Some(text) = word.literal.as_deref() else {
            if operands == 0 && !word.pieces.contains(&WordPiece::Split) {
                break;
            }
            found.extend(suffixes(behind(rest, at)));
            return found;
        };
        at += 1;
        if text == "--" {
            ended = true;
            break;
        }
        if ["env", "sudo", "doas"].contains(&name) && text.split_once('=').is_some_and(|(name, _)| is_name(name)) {
            continue;
        }
        if let Some(long) = text.strip_prefix("--") {
            match long.split_once('=') {
                Some(("split-string" | "command" | "call", value)) => found.push(Launched::Text(value.to_owned())),
                Some(_) => {}
                None if ["split-string", "command", "call"].contains(&long) => {
                    found.extend(rest.get(at).map(|word| Launched::Text(text_of(word))));
                    at += 1;
                }
                None if launcher.long.contains(&long) => at += 1,
                None => {
                    found.extend(suffixes(behind(rest, at)));
                    return found;
                }
            }
        } else if let Some(cluster) = text.strip_prefix('-').filter(|cluster| !cluster.is_empty()) {
            for (place, letter) in cluster.char_indices() {
                let value = cluster.get(place + letter.len_utf8()..).unwrap_or_default();
                let is_text = launcher.text.contains(letter);
                if launcher.flags.contains(letter) && !is_text {
                    continue;
                }
                if !is_text && !launcher.valued.contains(letter) {
                    found.extend(suffixes(behind(rest, at)));
                    return found;
                }
                let is_optional = name == "xargs" && "il".contains(letter);
                if value.is_empty() && !is_optional {
                    found.extend(rest.get(at).filter(|_| is_text).map(|word| Launched::Text(text_of(word))));
                    at += 1;
                } else if is_text {
                    found.push(Launched::Text(value.to_owned()));
                }
                break;
            }
        } else if operands == 0 {
            at -= 1;
            break;
        } else {
            operands -= 1;
        }
    }
    // Behind `--` the operands are still to come, but for those of programs that take a user by an option too.
    let skipped = if ended && !["su", "runuser"].contains(&name) { operands } else { 0 };
    let command = rest.get(at + skipped..).unwrap_or_default();
    if command.is_empty() {
        return found;
    }
    if launcher.is_joined {
        found.push(joined(command));
    }
    let mut words = command.to_vec();
    if name == "xargs" {
        words.push(Word { pieces: vec![WordPiece::Split], ..Word::default() });
    }
    found.push(Launched::Words(words));
    found
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The text behind `-c`, whatever the other options are.
fn of_shell(rest: &[Word]) -> Vec<Launched> {
    let is_option = |word: &&Word| {
        let text = word.literal.as_deref();
        text.is_none_or(|text| text.starts_with(['-', '+'])) && text != Some("--")
    };
    let takes_text = rest.iter().position(|word| {
        word.literal
            .as_deref()
            .is_some_and(|text| text.starts_with('-') && !text.starts_with("--") && text.contains('c'))
    });
    let Some(at) = takes_text else { return Vec::new() };
    // `-O`, `-o` and `--rcfile` have a value: any word behind may be the text, up to the first that is certainly no option.
    let others = behind(rest, at + 1);
    let certain = others.iter().take_while(is_option).count();
    let last = if rest.len() > 3 { certain + 2 } else { certain + 1 };
    others.iter().take(last).map(|word| Launched::Text(text_of(word))).collect()
}

fn of_find(rest: &[Word]) -> Vec<Launched> {
    let mut found = Vec::new();
    for (at, word) in rest.iter().enumerate() {
        let is_action =
            word.literal.as_deref().is_none_or(|text| ["-exec", "-execdir", "-ok", "-okdir"].contains(&text));
        if is_action {
            let ends = |word: &&Word| !matches!(word.literal.as_deref(), Some(";" | "+"));
            let command: Vec<Word> = behind(rest, at + 1).iter().take_while(ends).cloned().collect();
            found.push(Launched::Words(command));
        }
    }
    found
}

/// `git` without the options in front of its subcommand, and the commands that some subcommands run.
fn of_git(rest: &[Word]) -> Vec<Launched> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(word) = rest.get(at) {
        let Some(text) = word.literal.as_deref() else { break };
        if !text.starts_with('-') {
            break;
        }
        at += 1;
        if OF_GIT.contains(&text) {
            let value = rest.get(at).map(text_of).unwrap_or_default();
            if let Some((_, alias)) =
                value.split_once('=').filter(|(name, _)| name.to_ascii_lowercase().starts_with("alias."))
            {
                let text = alias.strip_prefix('!').map_or_else(|| format!("git {alias}"), str::to_owned);
                found.push(Launched::Text(text));
            }
            at += 1;
        }
    }
    if at > 0 && at < rest.len() {
        let git = Word::of("git", 0..0);
        found.push(Launched::Words(std::iter::once(git).chain(behind(rest, at).iter().cloned()).collect()));
        return found;
    }
    let second = rest.first().and_then(|word| word.literal.as_deref());
    let third = rest.get(1).and_then(|word| word.literal.as_deref());
    match (second, third) {
        (Some("submodule"), Some("foreach")) | (Some("bisect"), Some("run")) => found.extend(suffixes(behind(rest, 2))),
        (Some("rebase"), _) => {
            for (at, word) in rest.iter().enumerate() {
                let text = text_of(word);
                if text == "-x" || text == "--exec" {
                    found.extend(rest.get(at + 1).map(|word| Launched::Text(text_of(word))));
                } else if let Some(text) = text.strip_prefix("--exec=").or_else(|| text.strip_prefix("-x")) {
                    found.push(Launched::Text(text.to_owned()));
                }
            }
        }
        (Some("filter-branch"), _) => found.extend(suffixes(behind(rest, 1))),
        _ => {}
    }
    found
}
