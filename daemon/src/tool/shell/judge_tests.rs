//! bash itself as the judge: what is read as simple commands is what it runs.
//!
//! Lines are made by a grammar (which has everything that bash has) and of loose parts (most of which are no commands). bash gets
//! functions in the place of programs, which tell their arguments. Every command that it runs must have been read, unless the line is
//! unsure; and of lines that run all their commands, every command that was read must have run.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use super::*;

/// How many lines the judge sees: a few hundred in a test, more by night.
fn lines() -> usize {
    std::env::var("LINGER_TEST_SCRIPTS").ok().and_then(|text| text.parse().ok()).unwrap_or(300)
}

/// What bash reads first: its programs are functions that write their words to descriptor 9. Each third one fails, so that loops end.
const SETUP: &str = r#"
exec 9>&1 >/dev/null 2>&1
trap '' PIPE
ulimit -t 5
FUNCNEST=8
count=0
told() { local text; printf -v text '%s\1' "$@"; printf '%s\2' "$text" >&9; [ -n "$ALL" ] || (( ++count % 3 )); }
for name in aa bb cc dd; do eval "$name() { told $name \"\$@\"; }"; done
command_not_found_handle() { told "$@"; }
readonly SHELLOPTS 2>/dev/null
"#;

/// The words of every command that bash runs.
fn run(dir: &Path, line: &str, all: bool) -> Vec<Vec<String>> {
    let setup = dir.join("setup");
    std::fs::write(&setup, SETUP).unwrap();
    let work = dir.join("work");
    let _none = std::fs::remove_dir_all(&work);
    std::fs::create_dir(&work).unwrap();
    #[allow(clippy::disallowed_methods, reason = "bash is the judge of this test")]
    let out = Command::new("/usr/bin/timeout")
        .args(["-s", "KILL", "2", "/bin/bash", "--norc", "--noprofile", "-c", line])
        .current_dir(&work)
        .env_clear()
        .env("PATH", "/nowhere")
        .env("HOME", "/home/x")
        .env("BASH_ENV", &setup)
        .env("ALL", if all { "1" } else { "" })
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let words = |command: &str| command.split_terminator('\u{1}').map(str::to_owned).collect();
    text.split_terminator('\u{2}').map(words).collect()
}

/// Whether these words may be what becomes of those that were read.
fn may_be(read: &[Word], ran: &[String]) -> bool {
    let Some((word, rest)) = read.split_first() else { return ran.is_empty() };
    if word.pieces.contains(&WordPiece::Split) || word.has_glob {
        return true;
    }
    let Some((first, others)) = ran.split_first() else { return false };
    word.literal.as_ref().is_none_or(|literal| literal == first) && may_be(rest, others)
}

/// Random choices, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % below
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

/// A line by the grammar.
struct Maker {
    dice: Dice,
    text: String,
    /// Here-documents to write at the next line end.
    pending: Vec<String>,
    /// Whether bash runs every command of it.
    runs_all: bool,
}

const WORDS: &[&str] = &[
    "x",
    "-f",
    "push",
    "a=b",
    "'q w'",
    "\"d e\"",
    "a\"b\"'c'",
    "\\;",
    "\\ y",
    "$'t\\tb'",
    "$'\\''",
    "\"it's\"",
    "'a\"b'",
    "x#y",
    "\"a;b\"",
    "'$(dd)'",
    "\"\\$(dd)\"",
    "''",
    "{}",
    "a{b",
    "}",
    "then",
    "do",
    "!",
    "[",
    "]",
    "--x=y",
    "é",
    "'é|'",
    "\"`aa z`\"",
    "\"$(bb w)\"",
    "x\\\ny",
    "HEAD~1",
    "HEAD@{1}",
    "a:b",
    "%1",
    "^x",
    "a,b",
    "$",
    "\"$\"",
    "a$",
    "in",
    "esac",
    "time",
    "[x",
    "\\\\",
    "\"\\\\\"",
    "'\\'",
    "$\"m\"",
];

const EXPANDED: &[&str] = &[
    "$x",
    "${x:-y}",
    "\"${x:-y z}\"",
    "${x:-$(aa v)}",
    "\"${x:-\"$(bb u)\"}\"",
    "$(cc t)",
    "`dd s`",
    "`aa \\`bb r\\``",
    "{a,b}",
    "a{1..3}",
    "*",
    "[a-z]x",
    "~",
    "~/x",
    "$((1+2))",
    "$((1+0$(cc q)))",
    "$[1+1]",
    "<(dd p)",
    "\"$@\"",
    "$#",
    "${#x}",
    "${x#'}'}",
    "${x%\\}}",
    "\"${x/a/b}\"",
    "${x:1:2}",
    "$?",
    "\"$(aa \"$(bb \"o )\")\")\"",
    "$(case x in x) aa n;; esac)",
    "$(cc m # )\n)",
    "?",
];

const NAMES: &[&str] = &["aa", "bb", "cc", "dd", "\\aa", "b\"b\"", "'cc'", "d\\\nd", "zz"];

impl Maker {
    fn put(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn blank(&mut self) {
        let blank = self.dice.pick(&[" ", " ", " ", "  ", "\t", " \\\n", "\\\n "]);
        self.put(blank);
    }

    fn end_line(&mut self) {
        self.put("\n");
        for body in std::mem::take(&mut self.pending) {
            self.put(&body);
        }
    }

    fn separator(&mut self) {
        match self.dice.below(5) {
            0 => self.put(" # a comment; bb 'x"),
            1 | 2 if self.pending.is_empty() => return self.put(";"),
            _ => {}
        }
        self.end_line();
    }

    fn word(&mut self) {
        let word = if self.dice.below(4) == 0 { self.dice.pick(EXPANDED) } else { self.dice.pick(WORDS) };
        // A line end in it is not read where a here-document is to begin.
        let word = if self.pending.is_empty() { word } else { "w" };
        self.put(word);
    }

    fn redirection(&mut self) {
        let redirections = [
            ">f",
            "> f",
            ">>f",
            "2>f",
            "2>&1",
            ">&2",
            "&>f",
            "&>>f",
            ">|f",
            "<>f",
            "</dev/null",
            "<&-",
            "{v}>f",
            "3>f",
            "<<<x",
            "<<<'a b'",
            ">'f g'",
            "2>/dev/null",
            "> \\\nf",
        ];
        let simple = if self.pending.is_empty() { redirections.len() } else { redirections.len() - 1 };
        let at = self.dice.below(simple + 4);
        if let Some(redirection) = redirections.get(at) {
            return self.put(redirection);
        }
        let (open, body) = match self.dice.below(5) {
            0 => ("<<E", "text; aa x\n$(cc here)\nE\n"),
            1 => ("<<'E'", "aa x; $(bb y)\nE\n"),
            2 => ("<<-E", "\ttext `dd doc`\n\tE\n"),
            3 => ("<<\"E\"", "\"it's\n\\\nE\n"),
            _ => ("<<E", "a\\\nE\n\\$(aa no) \"`cc also`\"\nE\n"),
        };
        self.put(open);
        self.pending.push(body.to_owned());
    }

    fn simple(&mut self) {
        for _ in 0..self.dice.below(8).saturating_sub(5) {
            let assignment = self.dice.pick(&["A=b ", "A= ", "A='x y' ", "A+=c ", "A=$(aa set) ", "a[1]=2 "]);
            self.put(assignment);
        }
        if self.dice.below(10) == 0 {
            self.redirection();
            self.put(" ");
        }
        let plain = if self.pending.is_empty() { NAMES.len() } else { 4 };
        let name = NAMES[self.dice.below(plain)];
        self.put(name);
        for _ in 0..self.dice.below(4) {
            if self.pending.is_empty() {
                self.blank()
            } else {
                self.put(" ")
            }
            if self.dice.below(6) == 0 { self.redirection() } else { self.word() }
        }
    }

    fn list(&mut self, depth: usize) {
        for _ in 0..=self.dice.below(2) {
            self.pipelines(depth);
            self.separator();
        }
    }

    fn pipelines(&mut self, depth: usize) {
        for _ in 0..self.dice.below(3).saturating_sub(1) {
            self.command(depth);
            let joint = self.dice.pick(&[" && ", "&&", " | ", "|", " |& ", " || ", " & "]);
            self.runs_all &= !joint.contains("||");
            self.put(joint);
        }
        if self.dice.below(12) == 0 {
            let prefix = self.dice.pick(&["! ", "time ", "time -p ", "! time "]);
            self.runs_all &= !prefix.contains('!');
            self.put(prefix);
        }
        self.command(depth);
    }

    fn command(&mut self, depth: usize) {
        if depth == 0 || self.dice.below(2) == 0 {
            return self.simple();
        }
        let depth = depth - 1;
        match self.dice.below(13) {
            0 => self.around("{ ", depth, "}"),
            1 => self.around("(", depth, ")"),
            2 => {
                self.around("if ", depth, "then ");
                self.around("", depth, "else ");
                self.runs_all = false;
                self.around("", depth, "fi");
            }
            3 => {
                self.around("if ", depth, "then ");
                self.around("", depth, "fi");
            }
            4 => self.around("for i in 1 'b c'; do ", depth, "done"),
            5 => {
                let head = self.dice.pick(&["while ", "until "]);
                let last = if head == "while " { "(( n++ < 2 ))\ndo " } else { "(( n++ > 1 ))\ndo " };
                self.around(head, depth, last);
                self.runs_all = false;
                self.around("", depth, "done");
            }
            6 => {
                let head = self.dice.pick(&["case x in x) ", "case x in (x|y) ", "case \"x\" in y) ;; *) "]);
                let tail = self.dice.pick(&[";; esac", "esac", ";& esac"]);
                self.around(head, depth, tail);
            }
            7 => {
                let head = self.dice.pick(&["f() { ", "function f { ", "f ()\n{ ", "function f() { "]);
                self.pending_first();
                // In a part of a pipeline it is not there for the next.
                self.runs_all = false;
                self.around(head, depth, "}; f");
            }
            8 => {
                self.runs_all = false;
                let head = self.dice.pick(&["coproc { ", "coproc N { "]);
                self.around(head, depth, "}");
            }
            9 => {
                let test = self.dice.pick(&["[[ a == a ]]", "(( 1 + 1 ))", "[[ x =~ ^(x|y)$ && -z \"$(aa test)\" ]]"]);
                self.put(test);
            }
            10 => self.around("for ((j=0;j<2;j++)); do ", depth, "done"),
            11 => self.around("aa \"$(", depth, ")\""),
            _ => self.around("A=(x $(", depth, "))"),
        }
        if self.dice.below(8) == 0 && !self.text.ends_with('f') && !self.text.ends_with(['"', ')']) {
            self.put(" ");
            self.redirection();
        }
    }

    fn pending_first(&mut self) {
        if !self.pending.is_empty() {
            self.end_line();
        }
    }

    fn around(&mut self, head: &str, depth: usize, tail: &str) {
        // bash reads the text of a here-document at the next line end, which must not be in a substitution.
        if head.contains('(') && !self.pending.is_empty() {
            self.put("aa; ");
            self.end_line();
        }
        self.put(head);
        self.list(depth);
        self.pending_first();
        self.put(tail);
    }
}

/// What lines of loose parts are made of.
const PARTS: &[&str] = &[
    "aa", "aa", "bb", "cc", "A", "x", "if", "then", "fi", "time", "coproc", "do", "done", "case", "esac", "in", "for",
    "while", "{", "}", "function", "f()", "()", "[[", "]]", "((", "))", " ", " ", " ", " ", " ", " ", " ", "; ",
    " && ", " || ", ";", " | ", "|", "&&", "&", "\n", "\n", "\t", "'", "'", "\"", "\"", "\\", "\\\n", "$", "$(", "$((",
    "${x", ")", "`", "`", "(", "*", "?", "[", "]", "~", "#", " #", "!", "! ", "<", ">", ">f", "2>&1", "<<E", "\nE\n",
    "<<-E", "<<<", "&>f", "=", "A=", "A+=", "A=(", "-c", "-", "+", "%", "^", ":", ",", "@", "é", "x y", "'a b'",
    "\"c d\"", "{x}>f", "{a,b}", "$'", "$\"", "<(", ">(", "@P}", "1", "2", ";;",
];

#[test]
fn bash_runs_the_commands_that_were_read_and_no_others() {
    if !Path::new("/bin/bash").exists() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let seed = std::env::var("LINGER_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0x9e37_79b9);
    let mut dice = Dice(seed);
    let (mut sure, mut ran_any) = (0, 0);
    let mut tried = 0;
    while tried < lines() {
        let is_loose = dice.below(3) == 0;
        let (text, runs_all) = if is_loose {
            ((0..=dice.below(12)).map(|_| dice.pick(PARTS)).collect::<String>(), false)
        } else {
            let seed = dice.below(usize::MAX / 2) as u64 | 1;
            let mut maker = Maker { dice: Dice(seed), text: String::new(), pending: Vec::new(), runs_all: true };
            maker.list(2);
            maker.pending_first();
            (maker.text, maker.runs_all)
        };
        let line = read(&text);
        if line.unsure.is_some() {
            tried += usize::from(!is_loose);
            continue;
        }
        tried += 1;
        sure += 1;
        let ran = run(dir.path(), &text, runs_all);
        ran_any += usize::from(!ran.is_empty());
        let programs: Vec<&Simple> = line.commands.iter().filter(|command| !command.words.is_empty()).collect();
        for words in &ran {
            let known = programs.iter().any(|command| may_be(&command.words, words));
            assert!(known, "{text:?}\nran {words:?}\nread {:?}", texts(&line));
        }
        let names: BTreeSet<&str> = ran.iter().filter_map(|words| Some(words.first()?.as_str())).collect();
        let never = programs.iter().filter_map(|command| command.words.first()?.literal.as_deref());
        let never: Vec<&str> = never.filter(|name| *name != "f" && runs_all && !names.contains(name)).collect();
        // bash refuses some lines as a whole, such as `time -p A=(x)`.
        assert!(never.is_empty() || ran.is_empty(), "{text:?}\nnever ran {never:?}\nran {ran:?}");
    }
    assert!(sure * 2 > tried && ran_any * 2 > sure, "of {tried} lines {sure} are sure and {ran_any} ran something");
}

fn texts(line: &CommandLine) -> Vec<Vec<Option<String>>> {
    let words = |command: &Simple| command.words.iter().map(|word| word.literal.clone()).collect();
    line.commands.iter().map(words).collect()
}
