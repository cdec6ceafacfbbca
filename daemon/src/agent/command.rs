//! Commands: prompts with a name, and what their text becomes. Pure, but for the files that the caller reads.
//!
//! `$ARGUMENTS` and `$1` … are what the user wrote after the name; `@file` is a file, which the caller reads by permission. A command
//! line, `` !`…` ``, gets what the user wrote as positional parameters, and runs in the turn like a call of `bash`.

use linger_protocol::agent::Problem;

use super::frontmatter::Page;
use super::{FoundFile, others};

/// The keys of a header that count, and those of other programs that change nothing here.
const KEYS: [&str; 6] = ["description", "agent", "model", "subtask", "argument-hint", "name"];

/// The longest text of a prompt that a command makes, in bytes, without its files: some pages.
const MAX_TEXT: usize = 256 << 10;

/// The most files that a command names.
pub const MAX_FILES: usize = 16;

/// The most command lines that a command runs: each may ask.
const MAX_RUNS: usize = 16;

/// A named prompt, `/name` in a prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Its purpose, as the header gives it.
    pub description: Option<String>,
    /// The agent whose work it is.
    pub agent: Option<String>,
    /// The `provider/model` that it wants.
    pub model: Option<String>,
    /// Whether it runs a command, so that a person has to confirm it.
    pub runs: bool,
    /// The prompt, with its placeholders.
    pub body: String,
}

impl Command {
    /// The command lines that it runs, for the person who trusts it.
    pub(super) fn about(&self, name: &str) -> String {
        let runs: Vec<String> = scripts(&self.body).iter().map(|line| format!("`{line}`")).collect();
        let runs = if runs.is_empty() { "a prompt".to_owned() } else { format!("runs {}", runs.join(", ")) };
        let part =
            |what: &str, value: &Option<String>| value.iter().map(|it| format!("; {what} {it}")).collect::<String>();
        format!(
            "command `/{name}`: {runs}{}{}",
            part("for the agent", &self.agent),
            part("with the model", &self.model)
        )
    }
}

/// A piece of an expanded command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Literal text.
    Text(String),
    /// A file, as the command names it.
    File(String),
    /// A command line that runs once it is permitted; the model reads its output.
    Run(String),
}

/// Reads a command. Fails if it cannot be used.
pub(super) fn parse(found: &FoundFile, text: &str) -> (Result<Command, Problem>, String, Vec<Problem>) {
    let name = found.name.clone();
    let mut page = match Page::parse(text) {
        Ok(page) => page,
        Err(problem) => return (Err(problem), name, Vec::new()),
    };
    page.check_keys(&KEYS, false);
    let description = page.text("description");
    if page.body.is_empty() {
        return (Err(Problem::error(1, "there is no text behind the header")), name, page.problems);
    }
    let agent = page.text("agent").filter(|agent| !others::is_silent(agent));
    let said = page.text("model").filter(|model| !others::is_silent(model));
    let model = said.as_deref().and_then(others::model);
    if let (Some(said), None) = (&said, &model) {
        let said = crate::tool::text::one_line(said);
        page.warn("model", format!("`{said}` is no `provider/model`, and changes nothing"));
    }
    let runs = scripts(&page.body);
    for script in &runs {
        if script.trim().is_empty() {
            let is_empty = |rest: &str| rest.split_once('`').is_some_and(|(script, _)| script.trim().is_empty());
            let line = text.lines().position(|line| line.split("!`").skip(1).any(is_empty)).unwrap_or_default();
            return (Err(Problem::error(line + 1, "!`…` has no command")), name, page.problems);
        }
    }
    if runs.len() > MAX_RUNS {
        return (Err(Problem::error(1, format!("it runs more than {MAX_RUNS} commands"))), name, page.problems);
    }
    (Ok(Command { description, agent, model, runs: !runs.is_empty(), body: page.body }), name, page.problems)
}

/// The command lines between `` !` `` and the next backtick: those that [`expand`] runs, and no others.
fn scripts(body: &str) -> Vec<String> {
    let (mut all, mut rest) = (Vec::new(), body);
    while let Some((_, after)) = rest.split_once("!`") {
        let Some((script, then)) = after.split_once('`') else { break };
        all.push(script.to_owned());
        rest = then;
    }
    all
}

/// The command line that runs: the script, with the words after the command's name as its positional parameters, and all of them as
/// `$ARGUMENTS`. They are in quotes, so no shell takes any of them for more than text.
fn command_line(script: &str, arguments: &str, given: &[String]) -> (String, bool) {
    let uses_all = script.contains("$ARGUMENTS") || script.contains("${ARGUMENTS}");
    let uses_words = script.match_indices('$').any(|(at, _)| {
        let next = script.get(at + 1..).and_then(|rest| rest.trim_start_matches('{').chars().next());
        next.is_some_and(|c| c.is_ascii_digit() && c != '0' || "@*#".contains(c))
    });
    let mut line = String::new();
    if uses_all {
        line.push_str(&format!("ARGUMENTS={}; ", quoted(arguments)));
    }
    if uses_words {
        let words: Vec<String> = given.iter().map(|word| quoted(word)).collect();
        line.push_str(&format!("set -- {}; ", words.join(" ")));
    }
    line.push_str(script.trim());
    (line, uses_all || uses_words)
}

/// A text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// The words of what was written after a command's name: blanks separate, quotes hold together.
pub(super) fn words(arguments: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in arguments.chars() {
        match (quote, c) {
            (Some(open), c) if open == c => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// The name that a line begins with, and what follows; a path is no name.
pub fn named(line: &str) -> Option<(&str, &str)> {
    let rest = line.strip_prefix('/')?;
    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
    let (name, arguments) = rest.split_at(end);
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':'));
    is_name.then_some((name, arguments.trim()))
}

/// The text of a command with these arguments. What the arguments say is text: nothing in them is a placeholder.
/// Fails if it becomes too long or names too many files.
pub fn expand(body: &str, arguments: &str) -> Result<Vec<Piece>, String> {
    let given = words(arguments);
    let (mut pieces, mut text, mut size) = (Vec::new(), String::new(), 0);
    let mut uses_arguments = false;
    let mut rest = body;
    let mut before = ' ';
    while let Some(c) = rest.chars().next() {
        if let Some((script, after)) = rest.strip_prefix("!`").and_then(|rest| rest.split_once('`')) {
            let (line, used) = command_line(script, arguments, &given);
            uses_arguments |= used;
            size += text.len();
            pieces.push(Piece::Text(std::mem::take(&mut text)));
            pieces.push(Piece::Run(line));
            (rest, before) = (after, '`');
            continue;
        }
        let after = rest.get(c.len_utf8()..).unwrap_or_default();
        let placed = if c == '$' { placeholder(after, arguments, &given) } else { None };
        let file = if c == '@' && !before.is_alphanumeric() { file_name(after, arguments, &given) } else { None };
        rest = match (placed, file) {
            (Some((value, rest)), _) => {
                uses_arguments = true;
                text.push_str(&value);
                rest
            }
            (None, Some((name, used, rest))) => {
                uses_arguments |= used;
                size += text.len();
                pieces.push(Piece::Text(std::mem::take(&mut text)));
                pieces.push(Piece::File(name));
                rest
            }
            (None, None) => {
                text.push(c);
                after
            }
        };
        before = c;
        if size + text.len() > MAX_TEXT {
            return Err(format!("its text would be longer than {MAX_TEXT} bytes"));
        }
    }
    if !uses_arguments && !arguments.is_empty() {
        text.push_str("\n\n");
        text.push_str(arguments);
    }
    pieces.push(Piece::Text(text));
    pieces.retain(|piece| *piece != Piece::Text(String::new()));
    if pieces.iter().filter(|piece| matches!(piece, Piece::File(_))).count() > MAX_FILES {
        return Err(format!("it names more than {MAX_FILES} files"));
    }
    Ok(pieces)
}

/// The value of the placeholder whose `$` was read, and what follows it.
fn placeholder<'a>(after: &'a str, arguments: &str, given: &[String]) -> Option<(String, &'a str)> {
    if let Some(rest) = after.strip_prefix("ARGUMENTS") {
        return Some((arguments.to_owned(), rest));
    }
    let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number: usize = after.get(..digits)?.parse().ok().filter(|number| (1..=99).contains(number))?;
    Some((given.get(number - 1).cloned().unwrap_or_default(), after.get(digits..)?))
}

/// The file whose `@` was read, whether an argument is part of its name, and what follows it.
fn file_name<'a>(after: &'a str, arguments: &str, given: &[String]) -> Option<(String, bool, &'a str)> {
    let end = after.find(|c: char| c.is_whitespace() || "\"'`()<>,;".contains(c)).unwrap_or(after.len());
    // A full stop or colon behind it ends the sentence.
    let token = after.get(..end)?.trim_end_matches(['.', ':', '!', '?']);
    let rest = after.get(token.len()..)?;
    let (mut name, mut used, mut left) = (String::new(), false, token);
    while let Some(c) = left.chars().next() {
        let next = left.get(c.len_utf8()..).unwrap_or_default();
        left = match if c == '$' { placeholder(next, arguments, given) } else { None } {
            Some((value, rest)) => {
                used = true;
                name.push_str(value.trim());
                rest
            }
            None => {
                name.push(c);
                next
            }
        };
    }
    // A name without a dot or slash is a person or a decorator.
    let is_path = used || name.contains(['.', '/']);
    (is_path && !name.is_empty()).then_some((name, used, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_a_command_and_a_path_does_not() {
        assert_eq!(named("/review src a "), Some(("review", "src a")));
        assert_eq!(named("/x\n"), Some(("x", "")));
        assert_eq!(named(" /x"), None, "a blank keeps it text");
        assert_eq!(named("/etc/passwd is odd"), None);
        assert_eq!(named("/ a"), None);
        assert_eq!(named("a /b"), None);
    }

    fn check(body: &str, arguments: &str, expect: &[&str]) {
        let shown: Vec<String> = expand(body, arguments)
            .unwrap()
            .into_iter()
            .map(|piece| match piece {
                Piece::Text(text) => text,
                Piece::File(name) => format!("<{name}>"),
                Piece::Run(line) => format!("!{line}!"),
            })
            .collect();
        assert_eq!(shown, expect, "{body} {arguments}");
    }

    #[test]
    fn placeholders_are_replaced_once() {
        check("Review $1 for $2.", "src/a.rs 'odd things' x", &["Review src/a.rs for odd things."]);
        check("All: $ARGUMENTS!", "a  \"b\"", &["All: a  \"b\"!"]);
        check("Costs $5 and $x, $1", "$ARGUMENTS", &["Costs  and $x, $ARGUMENTS"]);
        check("No place", "for this", &["No place\n\nfor this"]);
        check("None", "", &["None"]);
        check("$1 @b.md", "@/etc/passwd", &["@/etc/passwd ", "<b.md>"]);
    }

    #[test]
    fn a_file_is_named_by_the_command_and_not_by_its_arguments() {
        check("Read @docs/a.md, then @b.md.", "", &["Read ", "<docs/a.md>", ", then ", "<b.md>", "."]);
        check("Look at @$1", "src/x.rs", &["Look at ", "<src/x.rs>"]);
        check("Mail me@x.org or @alice", "", &["Mail me@x.org or @alice"]);
        assert!(expand(&"@a.md ".repeat(17), "").unwrap_err().contains("more than 16 files"));
        assert!(expand(&"$1".repeat(1000), &"x".repeat(1000)).unwrap_err().contains("longer than"));
    }

    #[test]
    fn arguments_reach_a_command_line_as_parameters_and_never_as_shell_text() {
        check("Log: !`git log -3`.", "", &["Log: ", "!git log -3!", "."]);
        check("!`git show $1`", "'a b' $(touch x)", &["!set -- 'a b' '$(touch' 'x)'; git show $1!"]);
        check("!`grep $ARGUMENTS f`", "it's; rm", &["!ARGUMENTS='it'\\''s; rm'; grep $ARGUMENTS f!"]);
        check("!`date` $1", "!`id`", &["!date!", " !`id`"]);
        check("Costs `x`! And !`", "", &["Costs `x`! And !`"]);
    }

    #[test]
    fn what_a_command_is_confirmed_for_is_what_it_runs() {
        let check = |body: &str, expect: &[&str]| {
            let mut runs = Vec::new();
            for piece in expand(body, "").unwrap() {
                if let Piece::Run(line) = piece {
                    runs.push(line);
                }
            }
            assert_eq!(runs, expect, "{body}");
            assert_eq!(scripts(body), expect, "{body}");
        };
        check("!`id #!`", &["id #!"]);
        check("!`a`!`b`", &["a", "b"]);
        check("!`a!`b` c", &["a!"]);
        check("`x`!`y", &[]);
        check("Costs `x`! And !`", &[]);
    }
}
