//! `grep`: searches in files.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkFinish, SinkMatch};
use linger_protocol::event::ToolKind;
use memchr::memchr;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::access::Effects;
use super::handle::{Below, Dir, Entry};
use super::invalid::Invalid;
use super::names::Takes;
use super::pattern::{PATTERN_MAX, Pattern};
use super::types::{BoxFuture, Call, Context, Hidden, Tool, ToolOutput, blocking};
use super::walk::Walk;
use super::workspace::Workspace;
use super::{args, file, path, text};

/// Lines that are shown, with their context.
const LINES_MAX: usize = 200;

/// The most bytes that one call gives: about 6,000 tokens.
const BYTES_MAX: usize = 24 * 1024;

/// Bytes shown of a longer line.
const LINE_MAX: usize = 250;

/// Lines before and after a match that a model may ask for.
const CONTEXT_MAX: usize = 20;

/// A file with a longer line than this is skipped: it must be in memory.
const HEAP_MAX: usize = 8 * 1024 * 1024;

/// The largest compiled pattern, in bytes; `\w{50}` takes more than half of it. A call has several of them, and many may run.
const PATTERN_SIZE: usize = 4 * 1024 * 1024;

/// The largest cache of a search about its pattern, in bytes; when it is full, it is emptied.
const CACHE_SIZE: usize = 8 * 1024 * 1024;

/// The prefix of lines from the output of an earlier call, whose own name is a hash.
const OUTPUT_NAME: &str = "output";

pub(super) struct Grep;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Args {
    pattern: String,
    path: Option<String>,
    /// only files like this, such as `*.rs`
    glob: Option<String>,
    /// lines around each match
    context: Option<usize>,
    /// only names of files
    files: Option<bool>,
    /// only the number of matching lines of each file
    count: Option<bool>,
    /// hidden files too
    hidden: Option<bool>,
    /// a match may span lines; `(?s)` lets . match their ends
    multiline: Option<bool>,
}

impl Tool for Grep {
    fn name(&self) -> &str {
        "grep"
    }

    fn description(&self) -> &str {
        include_str!("grep.md")
    }

    fn schema(&self) -> Value {
        args::schema::<Args>()
    }

    fn changes(&self) -> bool {
        false
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Search
    }

    fn pattern(&self) -> Takes {
        Takes::Path
    }

    fn prepare(&self, input: &Value, workspace: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let Args { pattern, path, glob, context, files, count, hidden, multiline } = args::parse(input)?;
        let shows = match (files.unwrap_or_default(), count.unwrap_or_default()) {
            (true, true) => return Err(Invalid("give `files` or `count`".to_owned())),
            (true, false) => Shows::Files,
            (false, true) => Shows::Counts,
            (false, false) => Shows::Lines,
        };
        if pattern.len() > PATTERN_MAX {
            return Err(Invalid(format!("`pattern` has {} bytes, and may have {PATTERN_MAX}", pattern.len())));
        }
        glob.as_deref().map(Pattern::check).transpose()?;
        let output = path.as_deref().and_then(|path| workspace.seen.output_named(path));
        Ok(Box::new(Searching {
            pattern,
            root: workspace.directory(path.as_deref())?,
            output,
            glob,
            context: if shows == Shows::Lines { context.unwrap_or_default().min(CONTEXT_MAX) } else { 0 },
            shows,
            hidden: hidden.unwrap_or_default(),
            multiline: multiline.unwrap_or_default(),
            workspace: workspace.clone(),
        }))
    }
}

/// Nothing is compiled while it waits: there may be many calls, and a question may wait for days.
struct Searching {
    pattern: String,
    root: PathBuf,
    /// The file, if it is the whole output of an earlier call.
    output: Option<PathBuf>,
    glob: Option<String>,
    context: usize,
    shows: Shows,
    hidden: bool,
    multiline: bool,
    workspace: Workspace,
}

/// How much of each match is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shows {
    Lines,
    Files,
    Counts,
}

impl Call for Searching {
    fn action(&self) -> String {
        format!("grep {} in {}", self.pattern, path::show(&self.workspace.cwd, &self.root))
    }

    fn effects(&self) -> Effects {
        match self.output {
            // It is the session's own.
            Some(_) => Effects::nothing(),
            None => Effects::read(self.root.clone()),
        }
    }

    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        blocking(move |token| {
            let target = context.reached(&self.workspace, &self.root);
            match self.compile().map(|what| self.search(&target, &what, token, &context.hidden)) {
                Ok(Ok(output)) => output,
                Ok(Err(error)) => file::failure(&self.workspace, &self.root, &target, &error),
                Err(Invalid(problem)) => ToolOutput::error(problem),
            }
        })
    }
}

/// The pattern, and the files that it is searched in.
struct What {
    matcher: RegexMatcher,
    glob: Option<Pattern>,
}

impl Searching {
    fn compile(&self) -> Result<What, Invalid> {
        let pattern = if self.multiline { any_line_end(&self.pattern) } else { self.pattern.as_str().into() };
        let matcher = RegexMatcherBuilder::new()
            .multi_line(true)
            .crlf(!self.multiline)
            .size_limit(PATTERN_SIZE)
            .dfa_size_limit(CACHE_SIZE)
            .build(&pattern)
            .map_err(|error| Invalid(format!("`pattern`: {error}")))?;
        Ok(What { matcher, glob: self.glob.as_deref().map(Pattern::new).transpose()? })
    }

    fn search(&self, target: &Path, what: &What, token: &CancellationToken, hidden: &Hidden) -> io::Result<ToolOutput> {
        let mut searcher = SearcherBuilder::new()
            .line_number(true)
            .multi_line(self.multiline)
            .line_terminator(if self.multiline { LineTerminator::byte(b'\n') } else { LineTerminator::crlf() })
            .before_context(self.context)
            .after_context(self.context)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(HEAP_MAX))
            .build();
        let mut found = Matches::default();
        if let Some(output) = &self.output {
            let named = Path::new(OUTPUT_NAME);
            self.search_file(&mut searcher, &what.matcher, file::open(output)?, named, &mut found, token)?;
            return Ok(found.output(""));
        }
        let dir = match Dir::open(target) {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                let (file, _) = Entry::at(target)?.open()?;
                self.search_file(&mut searcher, &what.matcher, file, &self.root, &mut found, token)?;
                return Ok(found.output(""));
            }
            opened => opened?,
        };
        let mut entries = Below::of(&dir);
        let mut walk = Walk::new(target, what.glob.as_ref(), self.hidden, token);
        let meant = |path: &Path| what.glob.as_ref().is_none_or(|glob| glob.is_match(path));
        for (below, _) in walk.by_ref().filter(|(path, is_file)| *is_file && meant(path)) {
            let path = self.root.join(&below);
            // The file that is opened has no link in its path; a rule may name it by one as well.
            if hidden(&target.join(&below)) || (target != self.root && hidden(&path)) {
                found.hidden += 1;
                continue;
            }
            let opened = entries.entry(&below).and_then(|entry| entry.open());
            let searched = opened
                .and_then(|(file, _)| self.search_file(&mut searcher, &what.matcher, file, &path, &mut found, token));
            found.skipped += usize::from(searched.is_err());
            if found.full {
                break;
            }
        }
        Ok(found.output(&walk.left_out()))
    }

    fn search_file(
        &self,
        searcher: &mut Searcher,
        matcher: &RegexMatcher,
        file: File,
        path: &Path,
        found: &mut Matches,
        token: &CancellationToken,
    ) -> io::Result<()> {
        let name = path::show(&self.workspace.cwd, path);
        let lines = Lines { name, matcher, found, shows: self.shows, count: 0 };
        searcher.search_reader(matcher, Cancellable { file, token }, lines)
    }
}

/// The pattern with each `\n` also standing for `\r\n`: the model does not see how the lines of a file end.
fn any_line_end(pattern: &str) -> Cow<'_, str> {
    if !pattern.contains("\\n") && !pattern.contains('\n') {
        return Cow::Borrowed(pattern);
    }
    let (mut out, mut in_class, mut chars) = (String::with_capacity(pattern.len() + 16), false, pattern.chars());
    while let Some(char) = chars.next() {
        match char {
            '\n' if !in_class => out.push_str("(?:\\r?\\n)"),
            '\\' => match chars.next() {
                Some('n') if !in_class => out.push_str("(?:\\r?\\n)"),
                escaped => out.extend(['\\'].into_iter().chain(escaped)),
            },
            _ => {
                in_class = char == '[' || in_class && char != ']';
                out.push(char);
            }
        }
    }
    Cow::Owned(out)
}

/// A file whose reads fail once the call is cancelled.
struct Cancellable<'a> {
    file: File,
    token: &'a CancellationToken,
}

impl Read for Cancellable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.token.is_cancelled() { Err(io::Error::other("was left")) } else { self.file.read(buffer) }
    }
}

/// The matches in all files.
#[derive(Default)]
struct Matches {
    text: String,
    lines: usize,
    full: bool,
    /// Files that could not be searched.
    skipped: usize,
    /// Files that a rule keeps from being read.
    hidden: usize,
}

impl Matches {
    /// Adds a line if there is room.
    fn add(&mut self, line: &str) {
        self.full = self.lines >= LINES_MAX || self.text.len() + line.len() > BYTES_MAX;
        if !self.full {
            self.text.push_str(line);
            self.lines += 1;
        }
    }

    fn output(mut self, left_out: &str) -> ToolOutput {
        if self.text.is_empty() {
            self.text.push_str("[no match]\n");
        }
        if self.full {
            let why =
                format!("[stopped after {} lines, there are more; narrow `pattern`, `path` or `glob`]\n", self.lines);
            self.text.push_str(&why);
        }
        if self.skipped > 0 {
            self.text.push_str(&format!("[{} files could not be searched]\n", self.skipped));
        }
        if self.hidden > 0 {
            self.text.push_str(&format!("[{} files are kept from being read by the user's rules]\n", self.hidden));
        }
        self.text.push_str(left_out);
        ToolOutput::text(self.text)
    }
}

/// Takes the lines of one file.
struct Lines<'a> {
    name: String,
    matcher: &'a RegexMatcher,
    found: &'a mut Matches,
    shows: Shows,
    /// Matching lines so far.
    count: u64,
}

impl Lines<'_> {
    fn add(&mut self, mark: char, number: Option<u64>, line: &str) -> bool {
        let number = number.unwrap_or_default();
        self.found.add(&format!("{}{mark}{number}{mark}{line}\n", self.name));
        !self.found.full
    }
}

impl Sink for Lines<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        use grep_matcher::Matcher;
        match self.shows {
            Shows::Files => {
                self.found.add(&format!("{}\n", self.name));
                return Ok(false);
            }
            Shows::Counts => {
                self.count += found.lines().count() as u64;
                return Ok(true);
            }
            Shows::Lines => {}
        }
        let at = self.matcher.find(found.bytes()).ok().flatten().map_or(0, |place| place.start());
        let mut goes_on = true;
        // In a match over several lines the first has its beginning.
        for (line, n) in found.lines().zip(0..) {
            let number = found.line_number().map(|first| first + n);
            goes_on = goes_on && self.add(':', number, &clip(line, if n == 0 { at } else { 0 }));
        }
        Ok(goes_on)
    }

    fn finish(&mut self, _: &Searcher, _: &SinkFinish) -> io::Result<()> {
        if self.shows == Shows::Counts && self.count > 0 {
            self.found.add(&format!("{}:{}\n", self.name, self.count));
        }
        Ok(())
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        Ok(self.add('-', context.line_number(), &clip(context.bytes(), 0)))
    }

    fn context_break(&mut self, _: &Searcher) -> io::Result<bool> {
        self.found.add("--\n");
        Ok(!self.found.full)
    }
}

/// The line, or of a long one the part that has byte `at` in it.
fn clip(line: &[u8], at: usize) -> String {
    let line = line.get(..memchr(b'\n', line).unwrap_or(line.len())).unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() <= LINE_MAX {
        return text::lossy(line);
    }
    let from = if at < LINE_MAX * 4 / 5 { 0 } else { at - LINE_MAX / 5 };
    let part = line.get(from..line.len().min(from + LINE_MAX)).unwrap_or_default();
    let (before, after) = (if from > 0 { "…" } else { "" }, if from + LINE_MAX < line.len() { "…" } else { "" });
    format!("{before}{}{after}", text::lossy(part))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::tool::tests::{run, test_context, test_workspace};

    #[tokio::test]
    async fn matches_are_shown_with_file_and_line() {
        let (_dir, workspace) = test_workspace();
        let write = |name: &str, content: &[u8]| {
            let path = workspace.cwd.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        write("src/a.rs", b"fn one() {\r\n  two\r\n}\nfn two() {}\n");
        write("b.txt", b"two \xff\n");
        write("binary", b"two\0two\n");
        write(".hidden", b"two\n");
        write("out/c.rs", b"two\n");
        write(".gitignore", b"out/\n");
        for (input, expect) in [
            (json!({"pattern": "two"}), "b.txt:1:two \u{fffd}\nsrc/a.rs:2:  two\nsrc/a.rs:4:fn two() {}\n"),
            (json!({"pattern": "^FN", "path": "src"}), "[no match]\n"),
            (json!({"pattern": "(?i)^FN o", "path": "src"}), "src/a.rs:1:fn one() {\n"),
            (json!({"pattern": "\\{$|^  two$"}), "src/a.rs:1:fn one() {\nsrc/a.rs:2:  two\n"),
            (json!({"pattern": "two", "glob": "*.txt"}), "b.txt:1:two \u{fffd}\n"),
            (json!({"pattern": "two", "glob": ".h*"}), ".hidden:1:two\n"),
            (json!({"pattern": "two", "path": "out/c.rs"}), "out/c.rs:1:two\n"),
            (json!({"pattern": "two", "files": true}), "b.txt\nsrc/a.rs\n"),
            (json!({"pattern": "two", "count": true}), "b.txt:1\nsrc/a.rs:2\n"),
            (json!({"pattern": "two", "hidden": true, "files": true}), ".hidden\nb.txt\nsrc/a.rs\n"),
            (json!({"pattern": "two\\n\\}", "multiline": true}), "src/a.rs:2:  two\nsrc/a.rs:3:}\n"),
            (json!({"pattern": "two", "files": true, "count": true}), "give `files` or `count`"),
            (json!({"pattern": "one", "context": 1}), "src/a.rs:1:fn one() {\nsrc/a.rs-2-  two\n"),
            (json!({"pattern": "one", "path": "/dev/zero"}), "/dev/zero is not a regular file"),
        ] {
            assert_eq!(run(&Grep, &workspace, input.clone()).await.0, expect, "{input}");
        }
    }

    #[test]
    fn a_line_end_is_any_line_end_outside_of_classes() {
        for (pattern, expect) in [
            (r"a\nb", r"a(?:\r?\n)b"),
            ("a\nb", r"a(?:\r?\n)b"),
            (r"\n{2}", r"(?:\r?\n){2}"),
            (r"[^\n\]]+\n", r"[^\n\]]+(?:\r?\n)"),
            (r"\\n\[\n", r"\\n\[(?:\r?\n)"),
            ("a\\", "a\\"),
        ] {
            assert_eq!(any_line_end(pattern), expect, "{pattern}");
        }
    }

    #[tokio::test]
    async fn a_pattern_is_compiled_when_the_call_runs_and_bounded() {
        let (_dir, workspace) = test_workspace();
        fs::write(workspace.cwd.join("a"), format!("{}\n", "é".repeat(60))).unwrap();
        let large = "`pattern`: compiled regex exceeds size limit of 4194304";
        let open = "`pattern`: regex parse error:\n    (?:()\n    ^\nerror: unclosed group";
        for (input, expect) in [
            (json!({"pattern": "(\\p{L}{100}){20}"}), (large, true)),
            (json!({"pattern": "("}), (open, true)),
            (json!({"pattern": "x".repeat(4097)}), ("`pattern` has 4097 bytes, and may have 4096", true)),
            (json!({"pattern": "^\\w{50}$"}), ("[no match]\n", false)),
            (
                json!({"pattern": "x", "glob": "{".repeat(33)}),
                ("the glob is too large: it opens 33 braces, and may open 32", true),
            ),
        ] {
            let (text, failed) = run(&Grep, &workspace, input.clone()).await;
            assert_eq!((text.as_str(), failed), expect, "{input}");
        }
        for pattern in ["(\\p{L}{100}){20}", "("] {
            assert!(Grep.prepare(&json!({ "pattern": pattern }), &workspace).is_ok());
        }
    }

    #[tokio::test]
    async fn what_is_found_is_bounded() {
        let (_dir, workspace) = test_workspace();
        let file = workspace.cwd.join("many");
        fs::write(&file, "x\n".repeat(300)).unwrap();
        let (text, _) = run(&Grep, &workspace, json!({"pattern": "x"})).await;
        let end = "many:200:x\n[stopped after 200 lines, there are more; narrow `pattern`, `path` or `glob`]\n";
        assert!(text.ends_with(end), "{text}");
        fs::write(&file, format!("{}x{}\n", "a".repeat(1000), "b".repeat(1000))).unwrap();
        let (text, _) = run(&Grep, &workspace, json!({"pattern": "x"})).await;
        assert_eq!(text, format!("many:1:…{}x{}…\n", "a".repeat(50), "b".repeat(199)));
        fs::write(&file, vec![b'a'; HEAP_MAX * 2]).unwrap();
        let (text, _) = run(&Grep, &workspace, json!({"pattern": "x"})).await;
        assert_eq!(text, "[no match]\n[1 files could not be searched]\n");
    }

    #[tokio::test]
    async fn a_file_that_the_rules_hide_is_not_searched() {
        let (_dir, workspace) = test_workspace();
        fs::write(workspace.cwd.join("open.txt"), "password\n").unwrap();
        fs::write(workspace.cwd.join("secret.txt"), "password\n").unwrap();
        let call = Grep.prepare(&json!({ "pattern": "password" }), &workspace).unwrap();
        let hidden: Hidden = std::sync::Arc::new(|path| path.ends_with("secret.txt"));
        let (output, _) = tokio::sync::mpsc::channel(1);
        let found = call.run(Context { hidden, ..test_context(&workspace, output) }).await;
        let text = found.content[0].as_text().unwrap();
        assert!(text.contains("open.txt") && !text.contains("secret.txt"), "{text}");
        assert!(text.contains("1 files are kept from being read"), "{text}");
    }

    #[tokio::test]
    async fn an_output_of_the_session_is_searched_without_a_question() {
        let (_dir, workspace) = test_workspace();
        let data = tempfile::tempdir().unwrap();
        let held = crate::store::blob::Blobs::of(&data.path().join("linger.db")).put(b"one\ntwo\n").unwrap();
        let by_id = json!({"pattern": "two", "path": held.id().as_str()});
        let by_path = json!({"pattern": "two", "path": held.path().unwrap()});
        assert!(run(&Grep, &workspace, by_id.clone()).await.1, "it is no output of this session");
        assert_ne!(Grep.prepare(&by_path, &workspace).unwrap().effects(), Effects::nothing());
        workspace.seen.output(&held);
        for input in [by_id, by_path] {
            assert_eq!(Grep.prepare(&input, &workspace).unwrap().effects(), Effects::nothing());
            assert_eq!(run(&Grep, &workspace, input).await, ("output:2:two\n".to_owned(), false));
        }
    }

    #[tokio::test]
    async fn a_search_that_nobody_waits_for_ends() {
        let (_dir, workspace) = test_workspace();
        let file = workspace.cwd.join("file");
        fs::write(&file, "x\n").unwrap();
        let call = Searching {
            pattern: "x".to_owned(),
            root: workspace.cwd.clone(),
            output: None,
            glob: None,
            context: 0,
            shows: Shows::Lines,
            hidden: false,
            multiline: false,
            workspace,
        };
        let token = CancellationToken::new();
        token.cancel();
        let hidden: Hidden = std::sync::Arc::new(|_| false);
        let what = call.compile().unwrap();
        assert_eq!(call.search(&call.root, &what, &token, &hidden).unwrap(), ToolOutput::text("[no match]\n"));
        let (opened, mut found) = (File::open(&file).unwrap(), Matches::default());
        let searched = call.search_file(&mut Searcher::new(), &what.matcher, opened, &file, &mut found, &token);
        assert!(searched.is_err());
    }
}
