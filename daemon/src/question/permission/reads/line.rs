//! A command line as the commands that may run unasked: simple commands of plain words, joined by `&&`, `||`, `;`, `|` and line
//! ends, with no redirection but those that open nothing or read a file. Pure.

use crate::tool::shell::{self, Fd, Operator, Redirection, Shape, Simple, Standing};

/// A simple command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReadStep {
    /// Its name and its arguments.
    pub(super) words: Vec<StepWord>,
    /// The files of `< FILE`.
    pub(super) inputs: Vec<String>,
    /// Whether it is a part of a pipeline of several.
    pub(super) in_pipeline: bool,
}

/// A word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StepWord {
    /// The word that the program gets.
    Literal(String),
    /// A pattern of file names, with `*` and `?`.
    Pattern(String),
}

impl StepWord {
    /// The word that the program gets; absent if it is a pattern.
    pub(super) fn literal(&self) -> Option<String> {
        match self {
            Self::Literal(word) => Some(word.clone()),
            Self::Pattern(_) => None,
        }
    }
}

/// The commands of a line; absent if it is anything else, or not surely this.
pub(super) fn steps(text: &str) -> Option<Vec<ReadStep>> {
    let line = shell::read(text);
    // A locale may take a backslash for the second half of a character.
    let is_clear = text.is_ascii() || !text.contains('\\');
    let is_list = line.unsure.is_none() && line.shape == Shape::List && line.redirections.is_empty();
    if !is_list || !is_clear || line.commands.is_empty() {
        return None;
    }
    line.commands.iter().map(|simple| step(text, simple)).collect()
}

fn step(text: &str, simple: &Simple) -> Option<ReadStep> {
    let Standing { in_pipeline, fed_by, .. } = simple.context;
    let usual = Standing { in_pipeline, fed_by, ..Standing::default() };
    if simple.context != usual || !simple.assignments.is_empty() {
        return None;
    }
    let words = simple.words.iter().map(|word| step_word(text, word)).collect::<Option<Vec<_>>>()?;
    let inputs: Vec<Option<String>> = simple.redirections.iter().map(input).collect::<Option<_>>()?;
    Some(ReadStep { words, inputs: inputs.into_iter().flatten().collect(), in_pipeline })
}

fn step_word(text: &str, word: &shell::Word) -> Option<StepWord> {
    if let Some(literal) = &word.literal {
        return word.is_plain.then(|| StepWord::Literal(literal.clone()));
    }
    let pattern = text.get(word.text.clone()).filter(|_| word.has_glob && !word.is_quoted)?;
    let is_simple = pattern.chars().all(|c| shell::is_plain(c) || "*?".contains(c));
    is_simple.then(|| StepWord::Pattern(pattern.to_owned()))
}

/// The file that a redirection reads, if it reads one; absent unless it opens nothing else.
fn input(redirection: &Redirection) -> Option<Option<String>> {
    let target = redirection.target.literal.as_deref().filter(|_| redirection.target.is_plain)?;
    let is_output = matches!(redirection.fd, Fd::Usual | Fd::Number(1 | 2));
    let is_input = matches!(redirection.fd, Fd::Usual | Fd::Number(0));
    match redirection.operator {
        Operator::Read if is_input && !target.is_empty() => Some(Some(target.to_owned())),
        Operator::DuplicateOutput if is_output && ["1", "2"].contains(&target) => Some(None),
        Operator::Write | Operator::Append | Operator::Both | Operator::BothAppend
            if is_output && target == "/dev/null" =>
        {
            Some(None)
        }
        _ => None,
    }
}
