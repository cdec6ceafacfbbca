//! The arguments of a command, read by its row of the [table](super::table): which files it opens, and whether it reads all below
//! them. Pure.

use super::table::{Operands, Row, Walk};
use super::{find, sed};

/// The files that a command opens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Opened {
    /// Files and directories, as they are written.
    pub(super) paths: Vec<String>,
    /// Words that are no files to this program as it is known, and are to another version of it: checked where there is such a file.
    pub(super) others: Vec<String>,
    /// Whether it reads all that is below them.
    pub(super) walks: bool,
}

/// The digits of the longest number: some commands keep as many lines in memory.
const NUMBER_MAX: usize = 5;

/// The files that a command with these arguments opens; absent if one of them is not known to be harmless.
pub(super) fn read(row: &Row, args: &[String]) -> Option<Opened> {
    match (row.name, row.operands) {
        // Options are text too, and `find` has no options but expressions.
        ("find", _) => find::read(args),
        (_, Operands::Text) => Some(Opened::default()),
        _ => {
            let mut reader = ArgumentReader::new(row);
            reader.words(args)?;
            reader.opened()
        }
    }
}

/// Reads words one by one.
struct ArgumentReader<'a> {
    row: &'a Row,
    operands: Vec<String>,
    /// Options behind operands, values of options, and patterns.
    others: Vec<String>,
    /// The names of the options that were given.
    given: Vec<String>,
    /// The values of `-e` and its like.
    patterns: Vec<String>,
}

impl<'a> ArgumentReader<'a> {
    fn new(row: &'a Row) -> Self {
        Self { row, operands: Vec::new(), others: Vec::new(), given: Vec::new(), patterns: Vec::new() }
    }

    fn words(&mut self, args: &[String]) -> Option<()> {
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            if arg == "--" {
                self.operands.extend(rest.by_ref().cloned());
            } else if arg.len() > 1 && arg.starts_with('-') {
                let late = Some(arg).filter(|_| !self.operands.is_empty());
                let takes_next = self.option(arg, rest.as_slice().first())?;
                let value = if takes_next { rest.next() } else { None };
                self.others.extend(late.into_iter().chain(value).cloned());
            } else {
                self.operands.push(arg.clone());
            }
        }
        Some(())
    }

    /// Reads an option; whether its value is the next word.
    fn option(&mut self, arg: &str, next: Option<&String>) -> Option<bool> {
        let has = |list: &str, name: &str| list.split_whitespace().any(|it| it == name);
        let row = self.row;
        if let Some(long) = arg.strip_prefix("--") {
            let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            self.given.push(name.to_owned());
            if has(row.long_words, name) {
                return value.is_some_and(is_word).then_some(false);
            }
            if has(row.long, name) {
                return value.is_none_or(is_word).then_some(false);
            }
            let (takes_next, value) =
                value.map_or_else(|| (true, next.map(String::as_str)), |value| (false, Some(value)));
            let is_right = match value? {
                number if has(row.long_numbers, name) => is_number(number),
                text if has(row.long_texts, name) => self.text(name, text)?,
                _ => false,
            };
            return is_right.then_some(takes_next);
        }
        let cluster = arg.strip_prefix('-')?;
        if row.takes_bare_number && cluster.starts_with(|c: char| c.is_ascii_digit()) {
            let is_count = cluster.len() <= NUMBER_MAX && cluster.chars().all(|c| c.is_ascii_digit());
            return is_count.then_some(false);
        }
        for (at, letter) in cluster.char_indices() {
            self.given.push(letter.to_string());
            if row.letters.contains(letter) {
                continue;
            }
            let is_numbered = row.numbers.contains(letter);
            if !is_numbered && !row.texts.contains(letter) {
                return None;
            }
            let behind = cluster.get(at + letter.len_utf8()..).filter(|value| !value.is_empty());
            let value = behind.or(next.map(String::as_str))?;
            let is_right = if is_numbered { is_number(value) } else { self.text(&letter.to_string(), value)? };
            return is_right.then_some(behind.is_none());
        }
        Some(false)
    }

    /// Whether a text is a right value of an option.
    fn text(&mut self, name: &str, text: &str) -> Option<bool> {
        match (self.row.name, name) {
            ("stat", _) => return Some(is_format(text)),
            ("grep" | "rg", "e" | "regexp") | ("sed", "e" | "expression") => self.patterns.push(text.to_owned()),
            _ => {}
        }
        Some(true)
    }

    fn opened(mut self) -> Option<Opened> {
        let row = self.row;
        let is_given = |names: &[&str]| self.given.iter().any(|given| names.contains(&given.as_str()));
        let walks = match row.walk {
            Walk::Never => false,
            Walk::Always => true,
            Walk::With(options) => is_given(options),
        };
        let has_files = row.name == "rg" && is_given(&["files", "type-list"]);
        let mut operands = std::mem::take(&mut self.operands).into_iter();
        match row.operands {
            Operands::None if operands.len() > 0 => return None,
            Operands::OnePath if operands.len() > 1 => return None,
            // `+1f` is an old form of `-n +1 -f`.
            Operands::Paths if row.name == "tail" && operands.as_slice().iter().any(|it| it.starts_with('+')) => {
                return None;
            }
            Operands::PatternAndPaths if self.patterns.is_empty() && !has_files => self.others.push(operands.next()?),
            Operands::ScriptAndPaths => {
                if !is_given(&["n", "quiet", "silent"]) {
                    return None;
                }
                if self.patterns.is_empty() {
                    self.patterns.push(operands.next()?);
                }
                if !self.patterns.iter().all(|script| sed::only_prints(script)) {
                    return None;
                }
            }
            // A repeat count could be any number.
            Operands::Sets => {
                let is_right = operands.len() <= 2 && operands.all(|set| !set.contains('*'));
                return is_right.then(Opened::default);
            }
            Operands::Names => return operands.all(|name| !name.contains('/')).then(Opened::default),
            Operands::DateFormat => {
                let is_right =
                    operands.len() <= 1 && operands.all(|format| format.strip_prefix('+').is_some_and(is_date_format));
                return is_right.then(Opened::default);
            }
            _ => {}
        }
        if !self.patterns.iter().chain(&self.others).all(|pattern| is_modest(pattern)) {
            return None;
        }
        let mut paths: Vec<String> = operands.collect();
        if paths.is_empty() && (row.reads_directory || walks) {
            paths.push(".".to_owned());
        }
        Some(Opened { paths, others: self.others, walks })
    }
}

/// Whether it is a number as options have it: `5`, `+5`, `-5`, `10k`.
fn is_number(text: &str) -> bool {
    let digits = text.trim_start_matches(['+', '-']);
    let unit = digits.trim_start_matches(|c: char| c.is_ascii_digit());
    let length = digits.len() - unit.len();
    text.len() - digits.len() <= 1
        && (1..=NUMBER_MAX).contains(&length)
        && unit.len() <= 2
        && unit.chars().all(|c| c.is_ascii_alphabetic())
}

/// The largest count of a repetition in a pattern.
const REPEATED_MAX: u32 = 255;

/// Whether a pattern has one counted repetition at most, and a small one: nested ones take gigabytes.
pub(super) fn is_modest(pattern: &str) -> bool {
    let mut counted = 0;
    for rest in pattern.split('{').skip(1) {
        let numbers = rest.split(|c: char| !c.is_ascii_digit() && c != ',').next().unwrap_or_default();
        let is_small =
            |number: &str| number.is_empty() || number.parse().is_ok_and(|number: u32| number <= REPEATED_MAX);
        counted += usize::from(!numbers.is_empty());
        if !numbers.split(',').all(is_small) {
            return false;
        }
    }
    counted <= 1
}

/// Whether it is the plain value of a long option, such as `always`.
fn is_word(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

/// Whether a format has no width: behind each `%` is a letter or a `%`.
pub(super) fn is_format(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| rest.is_empty() || rest.starts_with(|c: char| c.is_ascii_alphabetic()))
}

/// Whether a format of `date` has no width but one of a single digit, as in `%3N`.
fn is_date_format(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| {
        let rest = rest.strip_prefix(['-', '_', '^', '#', ':']).unwrap_or(rest);
        let rest = rest.strip_prefix(|c: char| c.is_ascii_digit()).unwrap_or(rest);
        rest.is_empty() || rest.starts_with(|c: char| c.is_ascii_alphabetic())
    })
}
