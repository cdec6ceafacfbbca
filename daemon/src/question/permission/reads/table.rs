//! The commands that only read, with the options that are allowed: whatever is not in this table asks.
//!
//! Left out are options that read or write other files (`-f FILE`, `-o`, `--files0-from`, `--pre`), that follow links in a tree
//! (`-R` of grep, `-L`), that never end (`tail -f`), that run a program, and formats with a width, which may ask for gigabytes.
//! `git`, `find` and the scripts of `sed` have tables of their own. Data.

/// The meaning of operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operands {
    /// It takes none.
    None,
    /// Each is a file or a directory.
    Paths,
    /// At most one, which is a file: a second one is written.
    OnePath,
    /// The first is a pattern unless an option has one; the others are files or directories.
    PatternAndPaths,
    /// The first is a script of sed unless an option has one; the others are files.
    ScriptAndPaths,
    /// Text that is only shown.
    Text,
    /// The sets of `tr`.
    Sets,
    /// Names of programs.
    Names,
    /// One format of `date`.
    DateFormat,
}

/// When a command reads all that is below its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walk {
    Never,
    Always,
    /// With one of these options.
    With(&'static [&'static str]),
}

/// A command. Lists are separated by blanks; long names have no dashes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    /// Letters without a value, which may stand together.
    pub(super) letters: &'static str,
    /// Letters with a number, behind them or in the next word.
    pub(super) numbers: &'static str,
    /// Letters with a text.
    pub(super) texts: &'static str,
    /// Long options without a value, or with one behind `=` that is a plain word.
    pub(super) long: &'static str,
    /// Long options with a plain word behind `=`: the next word would be their value else.
    pub(super) long_words: &'static str,
    /// Long options with a number, behind `=` or in the next word.
    pub(super) long_numbers: &'static str,
    /// Long options with a text.
    pub(super) long_texts: &'static str,
    /// Whether `-5` is an option.
    pub(super) takes_bare_number: bool,
    pub(super) operands: Operands,
    pub(super) walk: Walk,
    /// Whether it reads its directory where no operand is.
    pub(super) reads_directory: bool,
    /// Whether the shell itself runs it.
    pub(super) is_builtin: bool,
}

const PLAIN: Row = Row {
    name: "",
    letters: "",
    numbers: "",
    texts: "",
    long: "",
    long_words: "",
    long_numbers: "",
    long_texts: "",
    takes_bare_number: false,
    operands: Operands::Paths,
    walk: Walk::Never,
    reads_directory: false,
    is_builtin: false,
};

/// The commands, each once.
pub(super) const TABLE: [Row; 20] = [
    Row {
        name: "ls",
        letters: "aAlh1trSFdpinsRUvgomxCGqQbkcuXNfZ",
        long_words: "sort time",
        long: "all almost-all human-readable recursive reverse size directory classify inode numeric-uid-gid si full-time \
               group-directories-first color   no-group escape literal quote-name file-type author",
        long_texts: "hide ignore",
        texts: "I",
        walk: Walk::With(&["R", "recursive"]),
        reads_directory: true,
        ..PLAIN
    },
    Row {
        name: "cat",
        letters: "nbsAetvETu",
        long: "number number-nonblank squeeze-blank show-all show-ends show-tabs show-nonprinting",
        ..PLAIN
    },
    Row {
        name: "head",
        letters: "qvz",
        numbers: "nc",
        long: "quiet silent verbose zero-terminated",
        long_numbers: "lines bytes",
        takes_bare_number: true,
        ..PLAIN
    },
    Row {
        name: "tail",
        letters: "qvz",
        numbers: "nc",
        long: "quiet silent verbose zero-terminated",
        long_numbers: "lines bytes",
        takes_bare_number: true,
        ..PLAIN
    },
    Row {
        name: "wc",
        letters: "cmlwL",
        long_words: "total",
        long: "bytes chars lines words max-line-length ",
        ..PLAIN
    },
    Row {
        name: "grep",
        letters: "ivwxclLnhHoqsrEFGPabzUTyI",
        numbers: "mABC",
        texts: "e",
        long_words: "binary-files",
        long: "ignore-case no-ignore-case invert-match word-regexp line-regexp count files-with-matches files-without-match \
               line-number no-filename with-filename only-matching quiet silent no-messages recursive extended-regexp \
               fixed-strings basic-regexp perl-regexp text byte-offset null null-data binary initial-tab color colour \
                line-buffered",
        long_numbers: "max-count after-context before-context context",
        long_texts: "regexp include exclude exclude-dir",
        takes_bare_number: true,
        operands: Operands::PatternAndPaths,
        walk: Walk::With(&["r", "recursive"]),
        ..PLAIN
    },
    Row {
        name: "rg",
        letters: "isSnNlcvwxFoUuHIP.0aqp",
        numbers: "mABCMd",
        texts: "egtT",
        long_words: "color sort sortr",
        long: "ignore-case case-sensitive smart-case line-number no-line-number files files-with-matches files-without-match \
               count count-matches invert-match word-regexp line-regexp fixed-strings only-matching multiline unrestricted \
               with-filename no-filename pcre2 hidden no-hidden text quiet heading no-heading vimgrep stats trim  column \
               no-column no-ignore no-ignore-vcs no-ignore-global no-ignore-parent no-messages null type-list   pretty \
               no-config crlf one-file-system",
        long_numbers: "max-count after-context before-context context max-columns max-depth",
        long_texts: "regexp glob iglob type type-not",
        operands: Operands::PatternAndPaths,
        walk: Walk::Always,
        ..PLAIN
    },
    Row {
        name: "sed",
        letters: "nErsuz",
        texts: "e",
        long: "quiet silent regexp-extended separate unbuffered null-data",
        long_texts: "expression",
        operands: Operands::ScriptAndPaths,
        ..PLAIN
    },
    Row {
        name: "sort",
        letters: "bdfgiMhnrVcCuzsm",
        texts: "kt",
        long_words: "sort",
        long: "ignore-leading-blanks dictionary-order ignore-case general-numeric-sort ignore-nonprinting month-sort \
               human-numeric-sort numeric-sort reverse version-sort check unique zero-terminated stable merge",
        long_texts: "key field-separator",
        ..PLAIN
    },
    Row {
        name: "uniq",
        letters: "cduizD",
        numbers: "fsw",
        long: "count repeated unique ignore-case zero-terminated all-repeated group",
        long_numbers: "skip-fields skip-chars check-chars",
        operands: Operands::OnePath,
        ..PLAIN
    },
    Row {
        name: "cut",
        letters: "snz",
        texts: "dfcb",
        long: "complement only-delimited zero-terminated",
        long_texts: "delimiter fields characters bytes output-delimiter",
        ..PLAIN
    },
    Row {
        name: "tr",
        letters: "cCdst",
        long: "complement delete squeeze-repeats truncate-set1",
        operands: Operands::Sets,
        ..PLAIN
    },
    Row { name: "pwd", letters: "LP", operands: Operands::None, is_builtin: true, ..PLAIN },
    Row {
        name: "stat",
        letters: "Lft",
        texts: "c",
        long: "dereference file-system terse",
        long_texts: "format printf",
        ..PLAIN
    },
    Row {
        name: "du",
        letters: "abchkmsxS0",
        numbers: "dt",
        long: "all apparent-size bytes total human-readable summarize one-file-system separate-dirs si null time",
        long_numbers: "max-depth threshold",
        long_texts: "exclude",
        walk: Walk::Always,
        ..PLAIN
    },
    Row {
        name: "date",
        letters: "uRI",
        long_words: "rfc-3339",
        long: "utc universal rfc-email iso-8601 ",
        operands: Operands::DateFormat,
        ..PLAIN
    },
    Row { name: "which", letters: "as", operands: Operands::Names, ..PLAIN },
    Row { name: "echo", operands: Operands::Text, is_builtin: true, ..PLAIN },
    Row { name: "true", operands: Operands::None, is_builtin: true, ..PLAIN },
    Row { name: "find", walk: Walk::Always, ..PLAIN },
];

/// The row of a command.
pub(super) fn row(name: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.name == name)
}
