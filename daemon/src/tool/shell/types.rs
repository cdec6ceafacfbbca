//! The parts of a command line: simple commands with their words, assignments, redirections and places.

use std::ops::Range;

/// The longest text, in bytes: longer than any command that a person reads before allowing it.
pub const MAX_TEXT: usize = 64 * 1024;

/// The deepest nesting of compound commands, substitutions and quotes: people write four.
pub const MAX_DEPTH: usize = 24;

/// The most simple commands of a line.
pub const MAX_COMMANDS: usize = 2000;

/// A command line, as bash would read it.
#[derive(Clone, Debug, Default)]
pub struct CommandLine {
    /// The simple commands in the order of the text, wherever they stand: also in substitutions and in the bodies of functions.
    pub commands: Vec<Simple>,
    /// Redirections of compound commands, as in `{ ls; } > f`.
    pub redirections: Vec<Redirection>,
    /// The kinds of its other parts.
    pub shape: Shape,
    /// Why the line is not known to be read as bash reads it. `commands` then has those in front of that place.
    pub unsure: Option<Unsure>,
}

/// Parts of a command line beside simple commands; each variant includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// `&&`, `||`, `;`, `|`, `|&` and line ends.
    #[default]
    List,
    /// `!`, `time`, `{ }`, `( )`, `if`, `while`, `until`.
    Grouped,
    /// Everything else: `&`, `for`, `case`, functions, `[[ ]]`, substitutions …
    Other,
}

/// Why and where a line is not certain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsure {
    /// The byte of the line from which on it is not known.
    pub at: usize,
    /// The reason, for people: "a quote is not closed".
    pub why: &'static str,
}

/// A simple command. It has a word, an assignment or a redirection.
#[derive(Clone, Debug)]
pub struct Simple {
    /// Its bytes in the line, redirections and assignments included; of a command in backticks, those of the backticks.
    pub text: Range<usize>,
    /// `NAME=value` before the first word.
    pub assignments: Vec<Assignment>,
    /// The command's name and its arguments.
    pub words: Vec<Word>,
    /// Its redirections, wherever they stand between the words.
    pub redirections: Vec<Redirection>,
    /// Where it stands.
    pub context: Standing,
}

/// Where a simple command stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// In `$( )`, backticks, `<( )` or `>( )`.
    pub in_substitution: bool,
    /// A part of a pipeline of several commands.
    pub in_pipeline: bool,
    /// The index in [`CommandLine::commands`] of the simple command whose output it reads, if it is one.
    pub fed_by: Option<usize>,
    /// In a list that ends with `&`, or in a coprocess.
    pub in_background: bool,
    /// In the body of a function.
    pub in_function: bool,
    /// In `for`, `while`, `until` or `select`.
    pub in_loop: bool,
    /// Whether it runs in a subshell, as `( )` does.
    pub in_subshell: bool,
}

/// A word, before expansion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word {
    /// Its bytes in the line.
    pub text: Range<usize>,
    /// Its pieces, quotes removed.
    pub pieces: Vec<WordPiece>,
    /// The word that the program gets; absent if anything in it is expanded.
    pub literal: Option<String>,
    /// Whether any part of it is quoted.
    pub is_quoted: bool,
    /// Whether it has an unquoted `*`, `?` or `[…]`.
    pub has_glob: bool,
    /// Whether bash, dash and their kin read it alike in any locale: [plain characters](is_plain), `'…'`, `"…"` and backslashes.
    pub is_plain: bool,
}

/// A part of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WordPiece {
    /// Text that stands for itself.
    Text(String),
    /// Unknown text within one word: a quoted expansion, a glob, a tilde.
    Unknown,
    /// An expansion that may become no word, one, or several.
    Split,
}

/// An assignment in front of a command, or alone.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// Its bytes in the line.
    pub text: Range<usize>,
    /// The variable.
    pub name: String,
    /// The value; absent for an array, with `+=`, for an element, and where it is expanded.
    pub value: Option<String>,
    /// Whether all shells read it alike, as [`Word::is_plain`].
    pub is_plain: bool,
}

/// A redirection of one descriptor, or of both outputs.
#[derive(Clone, Debug)]
pub struct Redirection {
    /// Its bytes in the line, without the body of a here-document.
    pub text: Range<usize>,
    /// The descriptor in front of the operator.
    pub fd: Fd,
    /// The direction, and what the target is.
    pub operator: Operator,
    /// The file, the descriptor, the here-string's text, or the delimiter.
    pub target: Word,
    /// The text of a here-document, as written.
    pub body: Option<String>,
}

/// The descriptor that a redirection is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fd {
    /// Standard input or output, as the operator says.
    Usual,
    /// `2>`
    Number(u32),
    /// `{name}>`
    Variable(String),
}

/// The operator of a redirection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `<`
    Read,
    /// `>`
    Write,
    /// `>>`
    Append,
    /// `>|`
    Clobber,
    /// `<>`
    ReadWrite,
    /// `<&`
    DuplicateInput,
    /// `>&`
    DuplicateOutput,
    /// `&>`
    Both,
    /// `&>>`
    BothAppend,
    /// `<<` and `<<-`
    HereDocument,
    /// `<<<`
    HereString,
}

impl Simple {
    /// The words that the program gets, its name first; absent if one is expanded.
    pub fn literals(&self) -> Option<Vec<String>> {
        self.words.iter().map(|word| word.literal.clone()).collect()
    }
}

impl Word {
    /// The word that stands for itself.
    pub fn of(text: &str, place: Range<usize>) -> Self {
        let pieces = if text.is_empty() { Vec::new() } else { vec![WordPiece::Text(text.to_owned())] };
        Self { text: place, pieces, literal: Some(text.to_owned()), is_quoted: true, has_glob: false, is_plain: true }
    }
}

/// Whether a character stands for itself outside of quotes, wherever in a word, in every shell and locale.
pub fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./:,+=@%".contains(c)
}
