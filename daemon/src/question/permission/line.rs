//! A command line as rules see it: for narrowing rules every command that it may run, wherever it stands; for allow rules its simple
//! commands, where it is nothing else and certain. Pure. Deliberately absent: what a rule matches ([`super::rule`]).

use std::collections::BTreeSet;
use std::ops::Range;

use super::variables;
use crate::tool::launched::{Launched, is_shell, launched};
use crate::tool::shell::{self, Assignment, CommandLine, Fd, Operator, Redirection, Shape, Simple, Word, WordPiece};

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

/// Words that zsh and others read specially in the place of a command, even if quoted.
const RESERVED: [&str; 6] = ["end", "foreach", "nocorrect", "noglob", "repeat", "time"];

/// Commands within commands that are looked at, at most: `sudo env sh -c '…'` has four.
const LEVELS: usize = 8;

/// Commands that a narrowing rule looks at, at most. Beyond it the line counts as unsure.
const MOST: usize = 8000;

/// The words of a simple command as the program gets them, at least one.
pub(super) type Words = Vec<String>;

/// A simple command that an allow rule may match.
#[derive(Clone, Debug)]
pub(super) struct PlainCommand {
    pub(super) words: Words,
    /// Its bytes in the line.
    pub(super) text: Range<usize>,
}

/// A command line that consists of simple commands of literal words, with nothing that changes what they do.
#[derive(Clone, Debug)]
pub(super) struct Plain {
    pub(super) parts: Vec<PlainCommand>,
    /// The files that it reads from, by `<`.
    pub(super) inputs: Vec<String>,
    /// Whether a command may change the directory that relative paths begin at.
    pub(super) moves: bool,
    /// Whether it has redirections, variables or words around its commands.
    is_bare: bool,
}

/// A command line as narrowing rules see it.
#[derive(Debug, Default)]
pub(super) struct Whole {
    pub(super) commands: Vec<RunCommand>,
    /// The line without quotes, where it is not certain what it runs.
    pub(super) unsure: Option<String>,
}

/// A command that a line may run.
#[derive(Debug)]
pub(super) struct RunCommand {
    pub(super) words: Vec<Word>,
    /// Its bytes in the line.
    pub(super) text: Range<usize>,
}

/// The commands of a line that an allow rule may see through; `None` if it has anything else, or is not certain.
pub(super) fn plain_parts(text: &str) -> Option<Plain> {
    let line = shell::read(text);
    // A locale may take a backslash for the second half of a character.
    let is_clear = text.is_ascii() || !text.contains('\\');
    if line.unsure.is_some() || line.shape > Shape::Grouped || !is_clear || line.commands.is_empty() {
        return None;
    }
    let parts: Vec<PlainCommand> = line.commands.iter().map(part).collect::<Option<_>>()?;
    let mut inputs = Vec::new();
    let redirections = || line.commands.iter().flat_map(|command| &command.redirections).chain(&line.redirections);
    for redirection in redirections() {
        inputs.extend(passed(redirection)?);
    }
    let has_variables = line.commands.iter().any(|command| !command.assignments.is_empty());
    let is_bare = line.shape == Shape::List && redirections().next().is_none() && !has_variables;
    let moves = parts
        .iter()
        .any(|part| part.words.first().is_some_and(|name| ["cd", "pushd", "popd"].contains(&name.as_str())));
    Some(Plain { parts, inputs, moves, is_bare })
}

/// The simple commands of a line that is nothing but these.
pub(super) fn simple_commands(text: &str) -> Option<Vec<Words>> {
    let plain = plain_parts(text).filter(|plain| plain.is_bare)?;
    Some(plain.parts.into_iter().map(|part| part.words).collect())
}

/// Whether a builtin could run, evaluate or redefine something that its words do not say.
pub(super) fn evaluates(command: &[String]) -> bool {
    command.first().is_none_or(|name| EVALUATING.contains(&name.as_str()))
}

/// The command without surrounding blanks, which the shell ignores; an escaped blank at the end belongs to it.
pub(super) fn plain(command: &str) -> &str {
    const BLANKS: [char; 3] = [' ', '\t', '\n'];
    let start = command.trim_start_matches(BLANKS);
    let trimmed = start.trim_end_matches(BLANKS);
    if trimmed.ends_with('\\') { start } else { trimmed }
}

/// Words as a shell reads them back.
pub(super) fn quoted(words: &[String]) -> String {
    let quote = |word: &String| {
        let is_plain = !word.is_empty() && word.chars().all(shell::is_plain);
        if is_plain { word.clone() } else { format!("'{}'", word.replace('\'', r"'\''")) }
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

fn part(command: &Simple) -> Option<PlainCommand> {
    let is_harmless =
        |it: &Assignment| it.is_plain && it.value.as_ref().is_some_and(|value| variables::is_harmless(&it.name, value));
    if !command.assignments.iter().all(is_harmless) || !command.words.iter().all(|word| word.is_plain) {
        return None;
    }
    let words = command.literals()?;
    let name = words.first()?;
    // A job has a `%`; what begins with a sign could be read as an option of the shell.
    let begins_well = name.starts_with(|c: char| c.is_ascii_alphanumeric() || "_./".contains(c));
    let is_name = begins_well && !name.contains(['=', '%']) && !RESERVED.contains(&name.as_str());
    is_name.then(|| PlainCommand { words, text: command.text.clone() })
}

/// A redirection that changes nothing: the file that it reads, if it reads one; `None` if it does more.
fn passed(redirection: &Redirection) -> Option<Option<String>> {
    let target = redirection.target.literal.as_deref().filter(|_| redirection.target.is_plain)?;
    let number = match redirection.fd {
        Fd::Usual => None,
        Fd::Number(number @ 0..=2) => Some(number),
        Fd::Number(_) | Fd::Variable(_) => return None,
    };
    match redirection.operator {
        Operator::Write | Operator::Append | Operator::Both | Operator::BothAppend if target == "/dev/null" => {
            Some(None)
        }
        Operator::DuplicateOutput if target == "1" || target == "2" => Some(None),
        Operator::Read if number.is_none_or(|number| number == 0) && target == "/dev/null" => Some(None),
        Operator::Read if number.is_none_or(|number| number == 0) && !target.is_empty() => {
            Some(Some(target.to_owned()))
        }
        _ => None,
    }
}

impl Whole {
    /// Reads a line, and what its commands run in their arguments.
    pub(super) fn of(text: &str) -> Self {
        let mut whole = Self::default();
        let line = shell::read(text);
        whole.add(&line, None, 0);
        let is_full = whole.commands.len() >= MOST;
        if (line.unsure.is_some() || is_full) && whole.unsure.is_none() {
            whole.note(text);
        }
        whole
    }

    fn note(&mut self, text: &str) {
        let bare: String = text.replace("\\\n", "").chars().filter(|c| !"'\"\\".contains(*c)).collect();
        match &mut self.unsure {
            Some(known) => known.push_str(&bare),
            None => self.unsure = Some(bare),
        }
    }

    fn add(&mut self, line: &CommandLine, place: Option<&Range<usize>>, level: usize) {
        for command in &line.commands {
            let text = place.unwrap_or(&command.text).clone();
            self.add_words(&command.words, &text, level);
            let Some(program) = command.words.first().and_then(|word| word.literal.as_deref()) else { continue };
            if !is_shell(program) {
                continue;
            }
            // What a shell is fed runs.
            for redirection in &command.redirections {
                let body = match redirection.operator {
                    Operator::HereDocument => redirection.body.clone(),
                    Operator::HereString => redirection.target.literal.clone(),
                    _ => None,
                };
                if let Some(body) = body {
                    self.add_text(&body, &text, level);
                }
            }
            let feeder = command.context.fed_by.and_then(|at| line.commands.get(at));
            let says = feeder
                .and_then(Simple::literals)
                .filter(|words| words.first().is_some_and(|name| ["echo", "printf"].contains(&name.as_str())));
            if let Some((_, said)) = says.as_deref().and_then(<[String]>::split_first) {
                self.add_text(&said.join(" ").replace("\\n", "\n"), &text, level);
            }
        }
    }

    fn add_words(&mut self, words: &[Word], place: &Range<usize>, level: usize) {
        if words.is_empty() || self.commands.len() >= MOST {
            return;
        }
        self.commands.push(RunCommand { words: words.to_vec(), text: place.clone() });
        if level >= LEVELS {
            return self.note("$");
        }
        for inner in launched(words) {
            match inner {
                Launched::Words(words) => self.add_words(&words, place, level + 1),
                Launched::Text(text) => self.add_text(&text, place, level),
            }
        }
    }

    fn add_text(&mut self, text: &str, place: &Range<usize>, level: usize) {
        if level >= LEVELS {
            return self.note("$");
        }
        let line = shell::read(text);
        self.add(&line, Some(place), level + 1);
        if line.unsure.is_some() {
            self.note(text);
        }
    }
}

/// The beginning of commands that a narrowing rule names.
#[derive(Clone, Debug)]
pub(super) struct RuleStart {
    words: Vec<String>,
    /// Whether any arguments may follow.
    is_prefix: bool,
    /// Whether its last word may go on.
    is_open: bool,
}

impl RuleStart {
    /// The beginning that `text` says; `is_prefix` says that it is one.
    pub(super) fn of(text: &str, is_prefix: bool) -> Option<Self> {
        let line = shell::read(text);
        let words = match line.commands.as_slice() {
            [one] if line.unsure.is_none() && one.assignments.is_empty() && one.redirections.is_empty() => one
                .words
                .iter()
                .map(|word| word.literal.clone().or_else(|| text.get(word.text.clone()).map(str::to_owned)))
                .collect::<Option<Vec<String>>>()?,
            [] if is_prefix && text.trim().is_empty() => Vec::new(),
            _ if text.chars().any(|c| ";|&(){}`\n".contains(c)) => return None,
            _ => text.split_whitespace().map(str::to_owned).collect(),
        };
        let is_open = is_prefix && !text.ends_with([' ', '\t']);
        Some(Self { words, is_prefix, is_open })
    }

    /// Whether a command may begin so, whatever its expansions become.
    pub(super) fn fits(&self, command: &[Word]) -> bool {
        let Some((program, rest)) = self.words.split_first() else { return self.is_prefix };
        let Some((first, others)) = command.split_first() else { return false };
        let is_open = self.is_open && rest.is_empty();
        let fit = match fit(&first.pieces, program, is_open) {
            Fit::No if !program.contains('/') => fit_of_base(&first.pieces, program, is_open),
            fit => fit,
        };
        match fit {
            Fit::No => false,
            Fit::Any => true,
            Fit::Yes => self.follows(rest, others, program == "git"),
        }
    }

    /// Whether the arguments may be those of the rule, options between them left out: with the next word as their value or without.
    fn follows(&self, rule: &[String], command: &[Word], is_git: bool) -> bool {
        let mut reached = BTreeSet::from([0]);
        for (i, word) in rule.iter().enumerate() {
            let is_open = self.is_open && i + 1 == rule.len();
            let mut next = BTreeSet::new();
            for (at, first) in command.iter().enumerate() {
                if !reached.contains(&at) {
                    continue;
                }
                match fit(&first.pieces, word, is_open) {
                    Fit::Any => return true,
                    Fit::Yes => drop(next.insert(at + 1)),
                    Fit::No => {}
                }
                // Those of git in front of its subcommand are looked through where their values are known.
                let is_option =
                    first.literal.as_deref().is_some_and(|text| text.starts_with(['-', '+']) && text != "--");
                if is_option && !(is_git && i == 0) {
                    reached.extend([at + 1, at + 2]);
                }
            }
            reached = next;
        }
        if self.is_prefix { !reached.is_empty() } else { reached.contains(&command.len()) }
    }

    /// Whether a line that is not certain may have it, by its letters.
    pub(super) fn may_be_in(&self, bare: &str) -> bool {
        let is_composed = bare.contains(['$', '`', '*', '?', '[', '{']);
        is_composed || self.words.first().is_none_or(|program| bare.contains(program.as_str()))
    }
}

/// Whether pieces may become a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    No,
    Yes,
    /// They may become several words, which begin so.
    Any,
}

fn fit(pieces: &[WordPiece], text: &str, is_open: bool) -> Fit {
    let mut reached = BTreeSet::from([0]);
    for piece in pieces {
        match piece {
            WordPiece::Split => return Fit::Any,
            WordPiece::Unknown if is_open => return Fit::Yes,
            WordPiece::Unknown => {
                let first = reached.first().copied().unwrap_or(text.len());
                reached = (first..=text.len()).collect();
            }
            WordPiece::Text(part) => {
                let mut next = BTreeSet::new();
                for at in reached {
                    let Some(rest) = text.get(at..) else { continue };
                    if rest.starts_with(part.as_str()) {
                        next.insert(at + part.len());
                    } else if is_open && part.starts_with(rest) {
                        return Fit::Yes;
                    }
                }
                reached = next;
            }
        }
        if reached.is_empty() {
            return Fit::No;
        }
    }
    if reached.contains(&text.len()) { Fit::Yes } else { Fit::No }
}

/// As [`fit`], of the last part of a path.
fn fit_of_base(pieces: &[WordPiece], text: &str, is_open: bool) -> Fit {
    let last = pieces.iter().rposition(|piece| matches!(piece, WordPiece::Text(text) if text.contains('/')));
    let Some((at, WordPiece::Text(path))) = last.and_then(|at| Some((at, pieces.get(at)?))) else { return Fit::No };
    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
    let base: Vec<WordPiece> =
        std::iter::once(WordPiece::Text(name)).chain(pieces.iter().skip(at + 1).cloned()).collect();
    fit(&base, text, is_open)
}
