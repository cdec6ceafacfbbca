//! The built-in provider `demo`: a scripted model, no AI, no key and no network.
//!
//! It imitates streaming, word by word, and makes real tool calls, so that everything around a model can be seen at work.
//! A prompt without a directive gets a look around: `ls`, then `read` of a file found there, then what was seen.
//! Lines of a prompt that are directives are carried out in their order:
//!
//! | line | what it does |
//! |---|---|
//! | `run: CMD` | calls `bash` with `CMD` and reports the result |
//! | `write: PATH TEXT` | calls `write` with the two and reports the result |
//! | `say: TEXT` | says `TEXT` and nothing else |
//! | `slow: N` | says N words, ten a second (at most [`MAX_SLOW`]) |
//!
//! Asked for a summary of older messages, it says that they were a demo.
//! Deliberately absent: anything that would make it seem to understand.

use std::collections::VecDeque;
use std::time::Duration;

use linger_protocol::id::CallId;
use linger_protocol::message::{ContentBlock, Role, Usage, text_of};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::call_text;
use super::types::{Message, Request, Response, StreamEvent};
use super::wire::json_size;

/// Between two words.
const PACE: Duration = Duration::from_millis(15);
/// Between two words of `slow:`.
const SLOW_PACE: Duration = Duration::from_millis(100);
/// The most words of one `slow:`.
pub const MAX_SLOW: usize = 100_000;
/// The most of a tool's output that a report quotes, in characters.
const QUOTE: usize = 400;

const INTRODUCTION: &str =
    "I am linger's demo, a scripted model and no AI: I follow a fixed script, but my tool calls are real.";

const SUMMARY: &str = "## Goal\nA demo.";

/// How the request for a summary begins.
const TRANSCRIPT: &str = "<transcript>";

/// One answer of the script.
#[derive(Debug)]
pub struct DemoStream {
    /// Words, each after a wait.
    words: VecDeque<(Duration, String)>,
    /// The call, in pieces, which follow the words.
    call: VecDeque<StreamEvent>,
    /// When the next word is due.
    due: Option<Instant>,
    /// The tokens of the request.
    counted: Usage,
    /// The whole answer; taken when it is given out.
    response: Option<Response>,
}

/// One thing that the script does.
#[derive(Debug)]
enum Action {
    Say(String),
    Slow(usize),
    Call(&'static str, Value),
}

/// A call since the prompt, and its result.
struct FinishedCall<'a> {
    name: &'a str,
    input: &'a Value,
    text: String,
    is_error: bool,
}

impl DemoStream {
    /// Decides what to say and do.
    pub fn start(request: &Request<'_>) -> Self {
        let (prompt, done) = since_prompt(request.messages);
        let mut words = VecDeque::new();
        let mut call = None;
        // The directives in a transcript were carried out long ago.
        let is_summary = request.tools.is_empty() && prompt.starts_with(TRANSCRIPT);
        let actions = if is_summary { vec![Action::Say(SUMMARY.to_owned())] } else { script(&prompt, &done) };
        for action in actions {
            match action {
                Action::Call(name, _) if request.tools.is_empty() => {
                    words.extend(
                        split(&format!("I was given no tools, so I cannot call `{name}`.\n")).map(|word| (PACE, word)),
                    );
                }
                Action::Say(text) => words.extend(split(&text).map(|word| (PACE, word))),
                Action::Slow(n) => words.extend((1..=n).map(|n| (SLOW_PACE, format!("word {n} ")))),
                Action::Call(name, input) => call = Some((name, input)),
            }
        }
        let text: String = words.iter().map(|(_, word)| word.as_str()).collect();
        let mut content = Vec::new();
        if !text.is_empty() {
            content.push(ContentBlock::text(text));
        }
        let mut pieces = VecDeque::new();
        if let Some((name, input)) = call {
            let (block, name) = (content.len() as u32, name.to_owned());
            let text = call_text::of(&input);
            let rest = text.strip_prefix(call_text::BEGIN).unwrap_or_default();
            let texts = std::iter::once(call_text::BEGIN.to_owned()).chain(split(rest));
            pieces.extend(texts.map(|text| StreamEvent::Call { block, name: name.clone(), text }));
            content.push(ContentBlock::ToolUse { call_id: CallId::default(), name, input, native: None });
        }
        let usage = Usage {
            input_tokens: tokens(json_size(
                &request.messages.iter().map(|message| &message.content).collect::<Vec<_>>(),
            )),
            output_tokens: tokens(json_size(&content)),
            ..Usage::default()
        };
        let counted = Usage { output_tokens: 0, ..usage };
        Self {
            words,
            call: pieces,
            due: None,
            counted,
            response: Some(Response { content, usage, ..Response::default() }),
        }
    }

    /// The request; the answer is counted at its end, as others do.
    pub fn usage(&self) -> Usage {
        self.counted
    }

    /// The next word, or the end; see [`super::Stream::next`].
    pub async fn next(&mut self) -> Vec<StreamEvent> {
        if let Some((pace, _)) = self.words.front() {
            tokio::time::sleep_until(*self.due.get_or_insert_with(|| Instant::now() + *pace)).await;
            self.due = None;
        }
        match self.words.pop_front() {
            Some((_, text)) => vec![StreamEvent::Text { block: 0, text }],
            None if self.call.is_empty() => self.response.take().map(StreamEvent::Done).into_iter().collect(),
            None => self.call.pop_front().into_iter().collect(),
        }
    }
}

/// A script has no tokens; four bytes for each is what other models come to.
fn tokens(bytes: usize) -> u64 {
    bytes.div_ceil(4) as u64
}

/// The text of the last prompt, and the calls since then that have a result.
fn since_prompt(messages: &[Message]) -> (String, Vec<FinishedCall<'_>>) {
    let is_prompt = |message: &&Message| {
        let result = |block: &ContentBlock| matches!(block, ContentBlock::ToolResult { .. });
        // What the daemon says of the mode is no prompt.
        let is_news = || text_of(&message.content).starts_with("[mode ");
        message.role == Role::User && !message.content.iter().any(result) && !is_news()
    };
    let mut since = messages.rsplitn(2, |message| is_prompt(&message)).next().unwrap_or_default().iter();
    let prompt = messages.iter().rev().find(is_prompt).map(|message| text_of(&message.content)).unwrap_or_default();
    let mut calls = Vec::new();
    let mut done = Vec::new();
    for block in since.by_ref().flat_map(|message| &message.content) {
        match block {
            ContentBlock::ToolUse { call_id, name, input, .. } => calls.push((call_id, name, input)),
            ContentBlock::ToolResult { call_id, is_error, content } => {
                if let Some((_, name, input)) = calls.iter().find(|(id, ..)| *id == call_id) {
                    done.push(FinishedCall { name, input, text: text_of(content), is_error: *is_error });
                }
            }
            _ => {}
        }
    }
    (prompt, done)
}

/// The actions of this step; a call is the last one.
fn script(prompt: &str, done: &[FinishedCall<'_>]) -> Vec<Action> {
    let directives: Vec<Action> = prompt.lines().filter_map(directive).collect();
    if directives.is_empty() {
        return look_around(done);
    }
    let mut step = Vec::new();
    let mut calls = 0;
    for action in directives {
        let is_call = matches!(action, Action::Call(..));
        if calls == done.len() {
            if is_call && done.is_empty() {
                step.push(Action::Say(format!("{INTRODUCTION}\n\n")));
            }
            step.push(action);
            if is_call {
                return step;
            }
        } else if is_call {
            calls += 1;
            if let (true, Some(last)) = (calls == done.len(), done.last()) {
                step.push(Action::Say(format!("{}\n", report(last))));
            }
        }
    }
    step
}

fn directive(line: &str) -> Option<Action> {
    let (word, rest) = line.trim().split_once(": ")?;
    match word {
        "run" => Some(Action::Call("bash", json!({"command": rest}))),
        "write" => {
            let (path, content) = rest.split_once(' ').unwrap_or((rest, ""));
            Some(Action::Call("write", json!({"path": path, "content": content})))
        }
        "say" => Some(Action::Say(rest.to_owned())),
        "slow" => rest.trim().parse().ok().map(|n: usize| Action::Slow(n.min(MAX_SLOW))),
        _ => None,
    }
}

fn look_around(done: &[FinishedCall<'_>]) -> Vec<Action> {
    let file = done.first().filter(|ls| !ls.is_error).and_then(|ls| interesting(&ls.text));
    match (done, file) {
        ([], _) => vec![
            Action::Say(format!("{INTRODUCTION} Let me look at this directory.")),
            Action::Call("ls", json!({"path": "."})),
        ],
        ([_], Some(file)) => {
            vec![Action::Say(format!("I see {file}; let me read it.")), Action::Call("read", json!({"path": file}))]
        }
        (done, _) => {
            let reports: Vec<String> = done.iter().map(report).collect();
            let end = "That is the end of my script; I am linger's demo and no AI. Try `run: CMD`, `write: PATH TEXT`, `say: TEXT` or `slow: N`.";
            vec![Action::Say(format!("{}\n{end}", reports.concat()))]
        }
    }
}

/// A file of a listing that is worth a look: the read-me, or the first.
fn interesting(listing: &str) -> Option<String> {
    // Neither directories nor links, and nothing hidden: that may be private.
    let is_file = |name: &&str| !name.ends_with('/') && !name.contains(" -> ") && !name.starts_with(['.', '[']);
    let names = || listing.lines().filter(|name| !name.is_empty()).filter(is_file);
    let readme = names().find(|name| name.to_ascii_lowercase().starts_with("readme"));
    let first = || names().find(|name| name.contains('.') && !name.contains(' '));
    readme.or_else(first).map(str::to_owned)
}

/// A report of a call and its result, in facts.
fn report(done: &FinishedCall<'_>) -> String {
    let argument = |name: &str| done.input.get(name).and_then(Value::as_str).unwrap_or_default();
    // Notes of the tools stand in brackets, and the numbers of a file's lines before a tab.
    let lines = || done.text.lines().filter(|line| !line.starts_with('['));
    let quote: String = done.text.chars().take(QUOTE).collect();
    match (done.name, done.is_error) {
        ("ls", false) => format!("`ls` listed {}.\n", counted(lines().count(), "entry", "entries")),
        ("read", false) => {
            let texts = lines().map(|line| line.split_once('\t').map_or(line, |(_, text)| text));
            let words: usize = texts.map(|text| text.split_whitespace().count()).sum();
            let (lines, words) = (counted(lines().count(), "line", "lines"), counted(words, "word", "words"));
            format!("I read {lines} of {}, with {words}.\n", argument("path"))
        }
        ("bash", false) => format!("`{}` ran and gave:\n\n{quote}\n", argument("command")),
        (name, false) => format!("`{name}` succeeded: {quote}\n"),
        (name, true) => format!("`{name}` did not succeed: {quote}\n"),
    }
}

/// A number with its noun.
fn counted(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// The words of `text`, each with the white space after it.
fn split(text: &str) -> impl Iterator<Item = String> {
    text.split_inclusive([' ', '\n']).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::super::attempt::Provider;
    use super::super::encoding::Encoding;
    use super::super::support::{assistant, call, result, shown_is_kept, user};
    use super::super::types::ToolSpecs;
    use super::super::types::{Images, ToolSpec};
    use super::*;

    /// What the model answers, and how long it takes.
    async fn answer(messages: &[Message]) -> (String, Option<(String, Value)>, Duration) {
        answer_with(&["ls", "read", "bash", "write"], messages).await
    }

    /// The same, with these tools.
    async fn answer_with(tools: &[&str], messages: &[Message]) -> (String, Option<(String, Value)>, Duration) {
        let tool =
            |name: &&str| ToolSpec { name: (*name).to_owned(), description: String::new(), input_schema: json!({}) };
        let request = Request {
            model: "demo",
            origin: "demo/demo",
            system: "",
            tools: &ToolSpecs::new(tools.iter().map(tool).collect()),
            messages,
            max_tokens: 0,
            cache_key: "",
            images: &Images::new(),
            output_schema: None,
            effort: linger_protocol::session::Effort::Auto,
            own_fields: None,
        };
        let began = Instant::now();
        let mut stream = Provider::Demo.start(&request, &mut Encoding::default());
        let mut events = Vec::new();
        loop {
            let next = stream.next().await;
            if next.is_empty() {
                break;
            }
            events.extend(next);
        }
        shown_is_kept(&events);
        let Some(StreamEvent::Done(response)) = events.pop() else { panic!("{events:?}") };
        let call = response.content.iter().find_map(|block| match block {
            ContentBlock::ToolUse { name, input, .. } => Some((name.clone(), input.clone())),
            _ => None,
        });
        (text_of(&response.content), call, began.elapsed())
    }

    fn prompt(text: &str) -> Message {
        user(vec![ContentBlock::text(text)])
    }

    fn called(n: u32, name: &str, input: Value, output: &str) -> [Message; 2] {
        let id = format!("c{n}");
        [assistant("demo/demo", vec![call(&id, name, input, None)]), user(vec![result(&id, output)])]
    }

    #[tokio::test(start_paused = true)]
    async fn without_tools_it_says_what_it_is_asked_to_and_summarises_a_transcript_alone() {
        assert_eq!(answer_with(&[], &[prompt("say: hello")]).await.0, "hello");
        let (text, call, _) = answer_with(&[], &[prompt("run: ls")]).await;
        assert_eq!((text, call), (format!("{INTRODUCTION}\n\nI was given no tools, so I cannot call `bash`.\n"), None));
        assert_eq!(answer_with(&[], &[prompt("<transcript>\nsay: hello\n</transcript>")]).await.0, SUMMARY);
    }

    #[tokio::test(start_paused = true)]
    async fn a_plain_prompt_is_answered_with_a_look_around() {
        let mut messages =
            vec![prompt("old"), assistant("demo/demo", vec![ContentBlock::text("x")]), prompt("what is here?")];
        let (text, next, _) = answer(&messages).await;
        assert!(text.contains("scripted model and no AI"), "{text}");
        assert_eq!(next, Some(("ls".to_owned(), json!({"path": "."}))));
        messages.extend(called(
            1,
            "ls",
            json!({"path": "."}),
            "src/\n.env\na.md -> b.md\nCargo.toml\nREADME.md\n[3 more entries]",
        ));
        let (_, next, _) = answer(&messages).await;
        assert_eq!(next, Some(("read".to_owned(), json!({"path": "README.md"}))));
        messages.extend(called(2, "read", json!({"path": "README.md"}), "1\t# linger\n2\t\n3\tthree more words\n"));
        let (text, next, _) = answer(&messages).await;
        assert_eq!(next, None);
        assert!(text.starts_with("`ls` listed 5 entries.\nI read 3 lines of README.md, with 5 words."), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn directives_are_carried_out_in_order() {
        let mut messages = vec![prompt("please\nrun: echo hi\nwrite: a.txt one two\nsay: over")];
        let (_, next, _) = answer(&messages).await;
        assert_eq!(next, Some(("bash".to_owned(), json!({"command": "echo hi"}))));
        messages.extend(called(1, "bash", json!({"command": "echo hi"}), "hi"));
        let (text, next, _) = answer(&messages).await;
        assert!(text.contains("`echo hi` ran and gave:\n\nhi"), "{text}");
        assert_eq!(next, Some(("write".to_owned(), json!({"path": "a.txt", "content": "one two"}))));
        messages.extend(called(2, "write", json!({"path": "a.txt", "content": "one two"}), "wrote"));
        let (text, next, _) = answer(&messages).await;
        assert_eq!((text.as_str(), next), ("`write` succeeded: wrote\n\nover", None));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_takes_a_tenth_of_a_second_a_word() {
        let (text, _, took) = answer(&[prompt("slow: 30")]).await;
        assert_eq!((text.split_whitespace().count(), took.as_secs()), (60, 3));
        assert_eq!(answer(&[prompt("say: exactly this")]).await.0, "exactly this");
    }
}
