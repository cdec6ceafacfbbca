//! Words that are commands of other programs, and misspelt commands: the error names the right command; nothing runs. On a terminal
//! the user may send such a word as a prompt all the same.

use std::io::{self, BufRead as _, Read as _};

use clap::CommandFactory as _;

use crate::arguments::Arguments;
use crate::error::Failure;
use crate::render::near::{distance, nearest};
use crate::terminal::{Terminal, clean_line};

/// Commands of other programs, and what to use instead.
const ELSEWHERE: [(&str, &str); 42] = [
    ("setup", "`linger init` writes a first configuration"),
    ("completion", "`linger completions bash|zsh|fish` generates shell completions"),
    ("logout", "`linger key rm PROVIDER` removes a key from the keychain"),
    ("auth", "`linger key set PROVIDER` stores a key; `linger key list` lists them"),
    ("print", "`linger run PROMPT` prints the answer"),
    ("ask", "`linger run PROMPT` prints the answer"),
    ("start", "`linger` starts a session here; `linger daemon start` starts the daemon"),
    ("stop", "`linger cancel SESSION` stops a turn; `linger daemon stop` stops the daemon"),
    ("kill", "`linger cancel SESSION` stops a turn and keeps the session"),
    ("sessions", "`linger ls` lists the sessions"),
    ("ps", "`linger ls --running --waiting` lists active sessions"),
    ("history", "`linger log SESSION` prints what happened in a session"),
    ("cost", "`linger usage` shows what models cost"),
    ("tail", "`linger log -f SESSION` follows a session"),
    ("delete", "`linger rm SESSION` moves a session to the bin"),
    ("remove", "`linger rm SESSION` moves a session to the bin"),
    ("skill", "`linger files list skills` lists skills"),
    ("upgrade", UPGRADE),
    ("update", UPGRADE),
    ("install", UPGRADE),
    ("uninstall", "remove the programs `linger` and `lingerd`, after `linger daemon stop`"),
    ("version", "`linger --version` prints it"),
    (
        "serve",
        "`linger gateway start` serves the page and HTTP; `linger mcp serve` and `linger acp` serve other programs",
    ),
    ("server", "`linger daemon start` starts the daemon, `linger gateway start` the page and HTTP"),
    ("web", "`linger gateway url` prints the address of the page"),
    ("app", "`linger gateway url` prints the address of the page"),
    ("ui", "`linger gateway url` prints the address of the page"),
    ("tui", "`linger` alone opens a session here"),
    (
        "review",
        "linger has no such command: write what to review, or a file commands/review.md (`linger init command review`)",
    ),
    ("plugin", "`linger files list` lists skills, commands, agents and tools; `linger mcp add` adds a server"),
    ("plugins", "`linger files list` lists skills, commands, agents and tools; `linger mcp add` adds a server"),
    ("agent", "`linger files list agents` lists agents"),
    ("providers", "`linger models` lists providers and models, `linger key list` their keys"),
    ("provider", "`linger models` lists providers and models, `linger key list` their keys"),
    ("stats", "`linger usage` shows what models cost"),
    ("share", "`linger export SESSION` writes a session as Markdown"),
    ("apply", "`linger merge` merges a child's worktree; `linger diff SESSION` shows the changes"),
    ("debug", "`linger doctor` checks the installation; `linger daemon status` names the log"),
    ("feedback", "`linger doctor` checks the installation"),
    ("whoami", "`linger key list` shows the keys; linger has no accounts"),
    ("exit", "to leave a session, press Ctrl-D in it"),
    ("quit", "to leave a session, press Ctrl-D in it"),
];

/// linger does not replace itself.
const UPGRADE: &str = "linger does not update itself: install it again the way you did, then run `linger daemon stop`";

/// Options of other programs, and what to use instead.
const OPTIONS: [(&str, &str); 8] = [
    ("--yolo", AUTO),
    ("--dangerously-skip-permissions", AUTO),
    ("--dangerously-bypass-approvals-and-sandbox", AUTO),
    ("--full-auto", AUTO),
    ("--permission-mode", "`--mode ask|edit|auto|plan` is the permission mode"),
    ("--allowedTools", "`--allow 'bash(cargo test:*)'` allows calls, `--tools` limits the tools"),
    (
        "--resume",
        "`linger -r SESSION` opens one, `linger -c` the latest; `linger ls` lists them, /resume in a session picks",
    ),
    ("--append-system-prompt", "`--system FILE` adds to the system prompt"),
];

/// The mode without questions.
const AUTO: &str = "`--mode auto` runs everything without asking";

/// Bytes read of an answer, at most.
const MAX_LINE: u64 = 64;

/// The hint about an option that clap does not know or that lacks its value.
pub(crate) fn option_hint(option: &str) -> Option<&'static str> {
    let name = option.split(['=', ' ']).next().unwrap_or(option);
    OPTIONS.iter().find(|(known, _)| *known == name).map(|(_, hint)| *hint)
}

/// Hidden commands that people never type.
const INTERNAL: [&str; 2] = ["chat", "complete"];

/// Commands that delete: suggested only for a word that differs in one letter.
const DESTRUCTIVE: [&str; 2] = ["rm", "prune"];

/// Fails if the first word of a prompt was probably meant as a command: misspelt, from another program, or after options. With
/// `can_ask`, a word of another program is asked about.
pub(super) fn check(prompt: &[String], can_ask: bool) -> Result<(), Failure> {
    let Some(first) = prompt.first() else { return Ok(()) };
    // One quoted argument is a prompt.
    if first.chars().any(char::is_whitespace) {
        return Ok(());
    }
    let root = Arguments::command();
    let names: Vec<String> = root
        .get_subcommands()
        .filter(|command| !INTERNAL.contains(&command.get_name()))
        .flat_map(|command| {
            // Short aliases are too close to ordinary words: `lint` to `list`.
            let long = command.get_all_aliases().filter(|alias| alias.len() > 4);
            long.chain([command.get_name()]).map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    let as_prompt = format!("for a prompt: `linger run {}`", quoted(prompt));
    if names.iter().any(|name| name == first) {
        return Err(Failure::usage(format!("options of `linger {first}` belong after it"))
            .hint(format!("`linger {first} …`; {as_prompt}")));
    }
    let unknown = || Failure::usage(format!("no command is called '{first}'"));
    // A longer prompt may begin with such a word.
    if prompt.len() <= 2
        && let Some((_, hint)) = ELSEWHERE.iter().find(|(word, _)| word == first)
    {
        if can_ask && confirmed(&prompt.join(" "), hint)? {
            return Ok(());
        }
        return Err(unknown().hint(format!("{hint}; {as_prompt}")));
    }
    let may_be_meant = |name: &&str| !DESTRUCTIVE.contains(name) || distance(first, name) <= 1 && name.len() > 2;
    let known = || names.iter().map(String::as_str).filter(may_be_meant);
    let near = nearest(first, known(), 1).first().copied();
    match near.or_else(|| known().find(|name| is_swapped(first, name))) {
        Some(name) => Err(unknown().hint(format!("did you mean `linger {name}`? {as_prompt}"))),
        None => Ok(()),
    }
}

/// Whether the user sends words as a prompt that other programs have as a command.
fn confirmed(prompt: &str, hint: &str) -> Result<bool, Failure> {
    let mut terminal = Terminal::new();
    terminal.say(&format!("'{}' is a command of other programs; {hint}", clean_line(prompt)))?;
    terminal.talk("send it to the model as a prompt? [y/N] ")?;
    let mut line = String::new();
    io::stdin().lock().take(MAX_LINE).read_line(&mut line)?;
    Ok(matches!(line.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Whether `typed` is `name` with two neighbouring letters swapped.
fn is_swapped(typed: &str, name: &str) -> bool {
    let differ: Vec<(usize, (char, char))> =
        typed.chars().zip(name.chars()).enumerate().filter(|(_, (a, b))| a != b).collect();
    let same_length = typed.chars().count() == name.chars().count();
    match differ.as_slice() {
        [(i, (a, b)), (j, (c, d))] => same_length && *j == i + 1 && a == d && b == c,
        _ => false,
    }
}

/// The prompt quoted for a shell.
fn quoted(prompt: &[String]) -> String {
    format!("'{}'", prompt.join(" ").replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(words: &[&str]) -> Option<String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        check(&words, false).err().map(|failure| failure.hint.unwrap_or_default())
    }

    #[test]
    fn a_mistyped_command_is_no_prompt() {
        assert!(hint(&["lgo", "s1"]).is_some());
        assert!(hint(&["atach"]).unwrap().contains("`linger attach`"));
        assert!(hint(&["resme"]).unwrap().contains("`linger resume`"));
        assert!(hint(&["auth"]).unwrap().contains("`linger key set PROVIDER`"));
        assert!(hint(&["completion"]).unwrap().contains("completions"));
        assert!(hint(&["run", "x"]).unwrap().contains("`linger run …`"));
        for prompt in [&["fix the test"][..], &["fix", "the", "test"], &["explain"], &["log in again"], &["lint", "it"]]
        {
            assert_eq!(hint(prompt), None, "{prompt:?}");
        }
    }

    #[test]
    fn words_that_other_agents_have_as_commands_cost_nothing() {
        for word in ["upgrade", "update", "uninstall", "serve", "web", "plugin", "review", "tui", "stats"] {
            let hint = hint(&[word]).unwrap_or_else(|| panic!("{word} would be sent"));
            assert!(hint.contains(&format!("`linger run '{word}'`")), "{word}: {hint}");
        }
        assert!(hint(&["review", "src/main.rs"]).is_some());
        assert_eq!(hint(&["review", "the", "change"]), None);
        assert_eq!(hint(&["update the readme"]), None);
    }

    #[test]
    fn options_of_other_agents_have_a_hint() {
        assert!(option_hint("--yolo").unwrap().contains("--mode auto"));
        assert!(option_hint("--resume <SESSION>").unwrap().contains("linger ls"));
        assert!(option_hint("--permission-mode=plan").is_some());
        assert_eq!(option_hint("--colour"), None);
    }

    #[test]
    fn no_hint_names_a_command_that_deletes_for_something_else() {
        for word in ["resum", "renam", "run2", "em", "rn", "purge", "trune"] {
            let hint = hint(&[word]).unwrap_or_default();
            assert!(
                !hint.contains("`linger rm`") && !hint.contains("linger prune`") || word == "trune",
                "{word}: {hint}"
            );
        }
    }
}
