//! Words that are commands of other programs, and misspelt commands: the error names the right command; nothing runs.

use clap::CommandFactory as _;

use crate::arguments::Arguments;
use crate::error::Failure;
use crate::render::near::{distance, nearest};

/// Commands of other programs, and what to use instead.
const ELSEWHERE: [(&str, &str); 17] = [
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
];

/// Hidden commands that people never type.
const INTERNAL: [&str; 2] = ["chat", "complete"];

/// Commands that delete: suggested only for a word that differs in one letter.
const DESTRUCTIVE: [&str; 2] = ["rm", "prune"];

/// Fails if the first word of a prompt was probably meant as a command: misspelt, from another program, or after options.
pub(super) fn check(prompt: &[String]) -> Result<(), Failure> {
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
        check(&words).err().map(|failure| failure.hint.unwrap_or_default())
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
