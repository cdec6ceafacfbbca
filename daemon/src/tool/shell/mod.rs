//! Reads a command line as bash does: which simple commands it consists of, with their words, assignments, redirections and places.
//!
//! [`read`] makes one pass over the text and runs nothing. It is a grammar of its own because none of the libraries fits: what is
//! read here decides what runs without a question, so every text must be read exactly as bash reads it, or be called *unsure*.
//! `brush-parser` recurses without a bound, takes exponential time for nested parentheses, and reads `{x}>f git push` and
//! `f+() {…` as other commands than bash; `tree-sitter-bash` recovers from errors instead of reporting them, and splits words
//! elsewhere than bash does.
//!
//! Bounds: [`MAX_TEXT`] bytes, [`MAX_DEPTH`] levels of nesting and [`MAX_COMMANDS`] simple commands. Beyond one of them, and at
//! everything that bash may read in two ways (depending on its version or options), the line is unsure from that place on.
//! Deliberately absent: what words expand to, what programs do with their arguments, and rules.

mod compound;
mod expansions;
mod here;
#[cfg(test)]
mod judge_tests;
mod parser;
#[cfg(test)]
mod tests;
mod types;
mod words;

pub use types::{
    Assignment, CommandLine, Fd, MAX_COMMANDS, MAX_DEPTH, MAX_TEXT, Operator, Redirection, Shape, Simple, Standing,
    Unsure, Word, WordPiece, is_plain,
};

use parser::Parser;

/// Reads a command line.
pub fn read(text: &str) -> CommandLine {
    let mut line = CommandLine::default();
    if text.len() > MAX_TEXT {
        line.unsure = Some(Unsure { at: 0, why: "it is too long" });
        return line;
    }
    if let Some(at) = text.find(|c: char| c.is_control() && !"\t\n".contains(c)) {
        line.unsure = Some(Unsure { at, why: "it has a control character" });
        return line;
    }
    // `bash -c TEXT` takes it for options.
    if text.starts_with(['-', '+']) {
        line.unsure = Some(Unsure { at: 0, why: "it begins like an option" });
        return line;
    }
    let mut parser = Parser::of(text, &mut line);
    let read = parser::program(&mut parser);
    line.unsure = read.err();
    line
}
