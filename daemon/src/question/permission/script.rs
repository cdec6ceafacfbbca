//! Reads a command line that is nothing but simple commands of literal words, and refuses every other.
//!
//! This decides what an allow rule may match, so it knows one small language that all shells read alike: words of
//! [plain characters](is_plain), `'…'` and `"…"`, separated by blanks, and commands joined by `&&`, `||`, `;` and `|`. Expansions,
//! globs, braces, tildes, redirections, assignments, comments, backslashes, newlines, other control characters, reserved words,
//! subshells and background commands are refused, not interpreted.
//! Pure. Deliberately absent: what a rule matches.

/// Words that begin a compound command, or that a shell reads specially in the place of a command; refused there even if quoted.
const RESERVED: [&str; 22] = [
    "case",
    "coproc",
    "do",
    "done",
    "elif",
    "else",
    "end",
    "esac",
    "fi",
    "for",
    "foreach",
    "function",
    "if",
    "in",
    "nocorrect",
    "noglob",
    "repeat",
    "select",
    "then",
    "time",
    "until",
    "while",
];

/// Builtin commands that run or evaluate their arguments, or change what the commands after them mean: `eval`, `alias ls=rm`,
/// `printf -v PATH`, `test -v 'a[$(x)]'`.
const EVALUATING: [&str; 45] = [
    ".",
    "[",
    "alias",
    "bg",
    "bind",
    "builtin",
    "command",
    "compgen",
    "complete",
    "compopt",
    "declare",
    "enable",
    "eval",
    "exec",
    "export",
    "fc",
    "fg",
    "getopts",
    "hash",
    "history",
    "integer",
    "jobs",
    "let",
    "local",
    "logout",
    "mapfile",
    "print",
    "printf",
    "read",
    "readarray",
    "readonly",
    "return",
    "set",
    "shift",
    "shopt",
    "source",
    "suspend",
    "test",
    "trap",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unset",
    "wait",
];

/// A simple command: its words as the program gets them, at least one.
pub(super) type Words = Vec<String>;

/// The simple commands of `script`; `None` if it is anything else.
pub(super) fn simple_commands(script: &str) -> Option<Vec<Words>> {
    let mut commands = Vec::new();
    let mut words = Words::new();
    let mut rest = script;
    loop {
        rest = rest.trim_start_matches(' ');
        let Some(first) = rest.chars().next() else { break };
        match first {
            ';' | '&' | '|' => {
                let after = ["&&", "||"].iter().find_map(|joint| rest.strip_prefix(joint));
                rest = match after {
                    Some(after) => after,
                    None if first == '&' => return None,
                    None => rest.strip_prefix(first)?,
                };
                commands.push(command(std::mem::take(&mut words))?);
            }
            _ => {
                let (word, after) = word(rest)?;
                words.push(word);
                rest = after;
            }
        }
    }
    commands.push(command(words)?);
    Some(commands)
}

/// Whether a builtin could run, evaluate or redefine something that its words do not say.
pub(super) fn evaluates(command: &[String]) -> bool {
    command.first().is_none_or(|name| EVALUATING.contains(&name.as_str()))
}

/// The words of a command, if a shell finds a command by the first one.
fn command(words: Words) -> Option<Words> {
    let name = words.first()?;
    // An assignment has a `=`; a job a `%`; what begins with a sign could be read as an option of the shell.
    let begins_well = name.starts_with(|c: char| c.is_ascii_alphanumeric() || "_./".contains(c));
    let is_name = begins_well && !name.contains(['=', '%']) && !RESERVED.contains(&name.as_str());
    is_name.then_some(words)
}

/// The first word of `text`, which does not begin with a blank, and what follows it.
fn word(text: &str) -> Option<(String, &str)> {
    let mut word = String::new();
    let mut rest = text;
    // zsh expands `=name`.
    if rest.starts_with('=') {
        return None;
    }
    while let Some(first) = rest.chars().next().filter(|c| !" ;&|".contains(*c)) {
        let literal = if first == '\'' || first == '"' {
            let (inside, after) = rest.strip_prefix(first)?.split_once(first)?;
            rest = after;
            inside
        } else {
            let end = rest.find(|c| !is_plain(c)).unwrap_or(rest.len());
            let (plain, after) = rest.split_at_checked(end).filter(|(plain, _)| !plain.is_empty())?;
            rest = after;
            plain
        };
        let is_special = |c: char| c.is_control() || (first == '"' && "$`\\!".contains(c));
        if literal.contains(is_special) {
            return None;
        }
        word.push_str(literal);
    }
    Some((word, rest))
}

/// Whether a character stands for itself outside of quotes, wherever in a word, in every shell and locale.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./:,+=@%".contains(c)
}

/// The command without surrounding blanks, which the shell ignores; an escaped blank at the end belongs to it.
pub(super) fn plain(command: &str) -> &str {
    const BLANKS: [char; 3] = [' ', '\t', '\n'];
    let start = command.trim_start_matches(BLANKS);
    let trimmed = start.trim_end_matches(BLANKS);
    if trimmed.ends_with('\\') { start } else { trimmed }
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;
