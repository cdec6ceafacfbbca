//! What must hold for any bytes that a peer, a model, a file or a user can send: the bodies of the fuzz targets.
//!
//! Each takes bytes and panics when a law does not hold. `cargo fuzz` finds bytes (`fuzz_targets/`); `tests/it/corpus.rs` runs
//! the corpus and mutations of it as ordinary tests. Pure: no files, no clock.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // A panic is a find.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use linger_protocol::id::{CallId, Cursor};
use linger_protocol::message::{ContentBlock, Role};
use linger_protocol::permission::Mode;
use linger_protocol::place::Places;
use linger_protocol::transport::line::{Decoder, Frame, Framing, encode};
use lingerd::config::Config;
use lingerd::log::cursor::Position;
use lingerd::provider::anthropic::Anthropic;
use lingerd::provider::catalogue::ProviderKind;
use lingerd::provider::compat::Compat;
use lingerd::provider::gemini::Gemini;
use lingerd::provider::hosted::Hosted;
use lingerd::provider::ollama::Ollama;
use lingerd::provider::openai::OpenAi;
use lingerd::provider::responses::Responses;
use lingerd::provider::sse::Framer;
use lingerd::provider::tools::ToolSpecs;
use lingerd::provider::{Codec, Images, Message, Request, Response, StreamEvent, call_text};
use lingerd::question::permission::{CallInfo, ResolvedAccess, Rule, Rules, Verdict, decide};
use lingerd::tool::set::Tools;
use lingerd::tool::{Access, Workspace};
use wellformed::validate_text;

#[path = "../../src/model/wellformed/mod.rs"]
mod wellformed;

/// The largest line of the [`line`] target: small, so that too long ones come often.
const LINE: usize = 64;

/// Everything that a provider may run itself comes back to it.
const HOSTED: Compat = Compat { hosted: Hosted::ALL, ..Compat::NONE };

/// A first byte says how the rest is cut into chunks; the rest is what is decoded.
fn cut(data: &[u8]) -> (usize, &[u8]) {
    data.split_first().map_or((1, data), |(first, rest)| (usize::from(*first).max(1), rest))
}

/// The line codec: cuts do not matter, lines are what stands between two LF, and what is encoded comes out again.
pub fn line(data: &[u8]) {
    let (size, input) = cut(data);
    let whole = frames(input, input.len().max(1));
    assert_eq!(frames(input, size), whole, "in pieces of {size} bytes");
    if input.first() == Some(&b'C') {
        let broken = whole.iter().position(|frame| *frame == Frame::Broken);
        assert!(broken.is_none_or(|at| at + 1 == whole.len()), "something comes after a header without sense");
        return;
    }
    let lines = input.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"));
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let want: Vec<Frame> = lines
        .filter(|line| line.len() > LINE || !line.iter().all(u8::is_ascii_whitespace))
        .map(|line| if line.len() > LINE { Frame::Oversize } else { Frame::Message(line.to_vec()) })
        .collect();
    assert_eq!(whole, want);
    for framing in [Framing::Lines, Framing::ContentLength] {
        let mut bytes = Vec::new();
        let messages: Vec<&str> = whole
            .iter()
            .filter_map(
                |frame| if let Frame::Message(message) = frame { std::str::from_utf8(message).ok() } else { None },
            )
            // JSON never ends in CR, nor begins with the letter that means the other framing.
            .filter(|message| {
                framing == Framing::ContentLength || !(message.starts_with('C') || message.ends_with('\r'))
            })
            .collect();
        messages.iter().for_each(|message| encode(framing, message, &mut bytes));
        let want: Vec<Frame> = messages.iter().map(|message| Frame::Message(message.as_bytes().to_vec())).collect();
        assert_eq!(frames(&bytes, size), want, "what is encoded comes out");
    }
}

fn frames(input: &[u8], size: usize) -> Vec<Frame> {
    let mut decoder = Decoder::new(LINE);
    let mut out = Vec::new();
    for chunk in input.chunks(size) {
        decoder.feed(chunk);
        out.extend(std::iter::from_fn(|| decoder.next_frame()));
    }
    out
}

/// The decoder of Anthropic's Messages.
pub fn anthropic(data: &[u8]) {
    provider(&Anthropic::new(HOSTED), ProviderKind::Anthropic, data);
}

/// The decoder of OpenAI's Chat Completions.
pub fn openai(data: &[u8]) {
    provider(&OpenAi::new(Compat::NONE), ProviderKind::Openai, data);
}

/// The decoder of OpenAI's Responses.
pub fn responses(data: &[u8]) {
    provider(&Responses::new(HOSTED), ProviderKind::OpenaiResponses, data);
}

/// The decoder of Gemini.
pub fn gemini(data: &[u8]) {
    provider(&Gemini::new(HOSTED), ProviderKind::Gemini, data);
}

/// The decoder of Ollama.
pub fn ollama(data: &[u8]) {
    provider(&Ollama::new(Compat::NONE), ProviderKind::Ollama, data);
}

/// A decoder: cuts do not matter; one terminal event, and it is the last; what was shown begins what is kept; and what was
/// kept can be sent back in a body that the provider takes.
fn provider(codec: &dyn Codec, kind: ProviderKind, data: &[u8]) {
    let (size, input) = cut(data);
    let whole = decode(codec, input, input.len().max(1));
    assert_eq!(decode(codec, input, size), whole, "in pieces of {size} bytes");
    let (last, before) = whole.split_last().expect("a terminal event");
    let mut shown: BTreeMap<u32, String> = BTreeMap::new();
    for event in before {
        let (StreamEvent::Text { block, text }
        | StreamEvent::Thinking { block, text }
        | StreamEvent::Hosted { block, text, .. }
        | StreamEvent::Call { block, text, .. }) = event
        else {
            panic!("{event:?} is not the last");
        };
        assert!(!text.is_empty() && !text.contains('\0'), "{text:?}");
        shown.entry(*block).or_default().push_str(text);
    }
    let Response { content, .. } = match last {
        StreamEvent::Done(response) => response,
        StreamEvent::Failed(failure) => {
            let control = failure.message.chars().any(char::is_control);
            return assert!(!control && !failure.message.is_empty(), "{:?}", failure.message);
        }
        other => panic!("{other:?} is no end"),
    };
    for (block, text) in &shown {
        if let ContentBlock::ToolUse { input, .. } = &content[*block as usize] {
            // An object that has one key twice is shown as it was written.
            let is_same = call_text::of(input).starts_with(text.as_str());
            assert!(is_same || text.parse().ok().as_ref() == Some(input), "{text} of {input}");
            continue;
        }
        let (ContentBlock::Text { text: kept }
        | ContentBlock::Thinking { text: kept, .. }
        | ContentBlock::Hosted { text: kept, .. }) = &content[*block as usize]
        else {
            panic!("{text:?} was shown of {:?}", content[*block as usize]);
        };
        assert_eq!(kept, text, "what was shown is what is kept");
    }
    sent_back(codec, kind, content.clone());
}

fn decode(codec: &dyn Codec, input: &[u8], size: usize) -> Vec<StreamEvent> {
    let mut framer = Framer::new(codec.framing());
    let mut decoder = codec.decoder();
    let mut out = Vec::new();
    for chunk in input.chunks(size) {
        framer.push(chunk, &mut |event, data| decoder.feed(event, data, &mut out)).expect("inputs are small");
    }
    framer.finish(&mut |event, data| decoder.feed(event, data, &mut out));
    decoder.finish(&mut out);
    out
}

/// The next request after an answer with `content`, every call of which got its result.
fn sent_back(codec: &dyn Codec, kind: ProviderKind, mut content: Vec<ContentBlock>) {
    let mut results = Vec::new();
    for (n, block) in content.iter_mut().enumerate() {
        if let ContentBlock::ToolUse { call_id, .. } = block {
            *call_id = CallId(format!("c{n}"));
            let content = vec![ContentBlock::text("done")];
            results.push(ContentBlock::ToolResult { call_id: call_id.clone(), is_error: false, content });
        }
    }
    let user = |content| Message { role: Role::User, content, origin: None };
    let mut messages = vec![user(vec![ContentBlock::text("go")])];
    if !content.is_empty() {
        messages.push(Message { role: Role::Assistant, content, origin: Some("p/m".to_owned()) });
    }
    messages.push(user(if results.is_empty() { vec![ContentBlock::text("more")] } else { results }));
    let (system, tools, messages) = ("be brief", ToolSpecs::none(), messages.as_slice());
    let (model, origin, max_tokens, cache_key, images) = ("m", "p/m", 100, "s1", &Images::new());
    let (output_schema, effort, own_fields) = (None, linger_protocol::session::Effort::Auto, None);
    let request = Request {
        model,
        origin,
        system,
        tools,
        messages,
        max_tokens,
        cache_key,
        images,
        output_schema,
        effort,
        own_fields,
    };
    let body = codec.encoder().encode(&request).body;
    let body = String::from_utf8(body).expect("a body is text");
    assert_eq!(validate_text(kind.name(), &body), Ok(()), "{body}");
}

/// The configuration: what is wrong has a file, a place in it and a reason, and no key in it is repeated.
pub fn config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let dir = |name: &str| PathBuf::from("/home/u").join(name);
    let places = Places { config: dir("c"), data: dir("d"), state: dir("s"), socket: dir("s").join("lingerd.sock") };
    let error = match Config::parse(&text, &places, Some(Path::new("/home/u")), Tools::default().current().names()) {
        Ok(config) => {
            let _any = config.always(Path::new("/home/u/w"));
            return config.warnings.iter().for_each(|line| assert!(line.starts_with("config.toml:"), "{line}"));
        }
        Err(error) => error,
    };
    let lines: Vec<&str> = text.split('\n').collect();
    assert!((1..=lines.len()).contains(&error.line), "line {} of {}: {error}", error.line, lines.len());
    let columns = lines[error.line - 1].chars().count() + 1;
    assert!((1..=columns).contains(&error.column), "column {} of {columns}: {error}", error.column);
    let place = format!("/home/u/c/config.toml:{}:{}: ", error.line, error.column);
    let said = error.to_string();
    assert!(said.starts_with(&place) && !error.message.is_empty(), "{said:?}");
    for word in text.split(['"', '\'']).filter(|word| word.starts_with("sk-") && word.len() >= 16) {
        let secret = !word.contains(char::is_whitespace) && error.message.contains("is never written here");
        assert!(!secret || !said.contains(word), "a key is repeated: {said}");
    }
}

/// Cursors: what is read as one is written as one that is read as the same position.
pub fn cursor(data: &[u8]) {
    let text = String::from_utf8_lossy(data).into_owned();
    let Some(position) = Position::parse(&Cursor(text.clone())) else { return };
    let written = position.cursor();
    assert!(written.0.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte)), "{written:?}");
    assert_eq!(Position::parse(&written), Some(position), "{text:?} is written as {written:?}");
}

/// Rules: the first line is a rule, the rest is what a call touches. A rule allows no more than it denies, a command it
/// allows begins with the one that it names, and what is read as a rule reads the same when it is written.
pub fn rule(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (written, target) = text.split_once('\n').unwrap_or((&text, ""));
    let tools = Tools::default().current();
    let Ok(rule) = Rule::parse(written, tools.names()) else { return };
    assert_eq!(rule.to_string(), written.trim());
    let _hint = (rule.warning(true, tools.names()), rule.warning(false, tools.names()));
    let cwd = PathBuf::from("/home/u/w");
    let workspace = Workspace {
        notes: lingerd::tool::notes::Notes::default(),
        cwd: cwd.clone(),
        root: cwd.clone(),
        is_seen: true,
        bound_by: None,
        added: Default::default(),
        env: Arc::default(),
        secrets: Default::default(),
        seen: Default::default(),
        skills: Default::default(),
        timeout_s: 1,
    };
    let calls = [
        ("bash", true, Access::Command(target.to_owned())),
        ("read", false, Access::Read(cwd.join(target))),
        ("edit", true, Access::Write(cwd.join(target))),
        ("grep", false, Access::Read(cwd.join(target))),
    ];
    for (tool, changes, access) in calls {
        let call = CallInfo { tool, changes, access };
        let with = |allow: &[&Rule], deny: &[&Rule]| {
            let list = |rules: &[&Rule]| rules.iter().map(|rule| (*rule).clone()).collect();
            let home = Some(PathBuf::from("/home/u"));
            let rules = Rules { deny: list(deny), allow: list(allow), home, ask_reads: true, ..Rules::default() };
            decide(&rules, &[], Mode::Ask, &call, &ResolvedAccess::of(&call.access, &workspace, &rules))
        };
        let allowed = with(&[&rule], &[]) == Verdict::Allow { by: format!("rule {rule}") };
        let denied = matches!(with(&[], &[&rule]), Verdict::Deny { .. });
        assert!(!allowed || denied, "{rule} allows {call:?} and does not deny it");
        if let (true, Access::Command(command), Some((_, pattern))) = (allowed, &call.access, written.split_once('(')) {
            let pattern = pattern.trim_end().strip_suffix(')').unwrap_or(pattern);
            let blanks = [' ', '\t', '\n', '\\'];
            let is_same = command.trim_matches(blanks) == pattern.trim_matches(blanks);
            let unquoted = |text: &str| text.replace(['\'', '"'], "").split_whitespace().collect::<Vec<_>>().join(" ");
            let start = unquoted(pattern.strip_suffix(":*").unwrap_or(pattern));
            // Variables, redirections and words around commands are seen through.
            assert!(is_same || unquoted(command).contains(&start), "{rule} allows another command: {command}");
        }
    }
}

/// Command lines: every text is read in bounded time, and what is read lies in it.
pub fn shell(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let line = lingerd::tool::shell::read(text);
    for command in &line.commands {
        assert!(text.get(command.text.clone()).is_some(), "{text:?}: {:?} is no part of it", command.text);
        assert!(!command.words.is_empty() || !command.assignments.is_empty() || !command.redirections.is_empty());
    }
    if let Some(unsure) = line.unsure {
        assert!(unsure.at <= text.len());
    }
}
