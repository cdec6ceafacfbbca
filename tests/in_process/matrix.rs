//! Five formats, whatever they may say, and every way in which that can go wrong: the decoders and the table of faults, pure.
//!
//! The streams are what the scripted model sends. What becomes of a turn is `matrix_turns`' and `provider_faults`'.

use std::collections::BTreeMap;
use std::time::Duration;

use linger_protocol::message::ContentBlock;
use linger_protocol::patience::Patience;
use linger_tests::model::{Format, Reply, events};
use lingerd::provider::catalogue::codec;
use lingerd::provider::compat::Compat;
use lingerd::provider::retry::{self, Decision, Tries};
use lingerd::provider::sse::{Framer, MAX_EVENT};
use lingerd::provider::{Codec, Failure, FailureClass, Response, StreamEvent};
use serde_json::{Value, json};
use std::sync::Arc;

use crate::corpus::targets;
use crate::shared::schema::gives;

/// How much of a stream the driver takes at once.
const BATCH: usize = 64 << 10;

/// Arguments with everything that cuts may break: letters of two to four bytes, quotes, line ends.
fn arguments(word: &str) -> Value {
    json!({ "command": format!("printf '{word}: ä€😀\\n' \"$HOME\"\n"), "ünï": ["🦀", null, 1.5] })
}

/// A value that fits some schema.
fn fitting() -> Value {
    json!({ "stadt": "Zürich 🦀\n\"\\", "n": [1, null, { "ä": -2.5 }] })
}

/// What a model may say.
fn replies(format: Format) -> Vec<(&'static str, Reply)> {
    let thoughts = || Reply::new().thinking("Zuerst: schauen, 🦀.", "c2lnbmF0dXJl");
    vec![
        ("text", Reply::new().text_in_deltas("Grüße, 🦀\u{2028}und\r\nmehr \"davon\".", 3)),
        ("thinking", thoughts().and_text("Gut.").details(0, 3)),
        (
            "two calls",
            Reply::text("Ich schaue.").and_tool("bash", arguments("eins")).and_tool("bash", arguments("zwei")),
        ),
        (
            "all",
            thoughts().and_text("Nun ").and_text("gut: ä").and_tool("bash", arguments("x")).and_tool("ls", json!({})),
        ),
        ("an answer that fits", gives(format, &fitting())),
        ("the limit", Reply::text("zu la").stop("max_tokens")),
        (
            "hosted",
            thoughts()
                .and_text("Ich suche.")
                .and_search("größe 🦀", &[("Grüße", "https://a.example/ä"), ("b", "https://b.example")])
                .and_text("Es ist ")
                .and_text("so: 🦀")
                .and_code("print('ä€😀')", "ä€😀\n")
                .and_tool("ls", json!({})),
        ),
    ]
}

fn codec_of(format: Format) -> Arc<dyn Codec> {
    codec(format.product_kind(), Compat::NONE).unwrap()
}

/// What comes of a stream.
#[derive(Debug, PartialEq)]
struct Outcome {
    /// What was shown, by block.
    shown: BTreeMap<u32, String>,
    end: Result<Response, Failure>,
}

impl Outcome {
    /// The class of its failure.
    fn class(&self) -> Option<FailureClass> {
        self.end.as_ref().err().map(|failure| failure.class)
    }

    /// It ended as `whole` did, or was cut on the way there: everything that was shown is a beginning of it.
    fn is_whole_or_cut(&self, whole: &Self, what: &str) {
        for (block, text) in &self.shown {
            let all = whole.shown.get(block).map(String::as_str).unwrap_or_default();
            assert!(all.starts_with(text.as_str()), "{what}: {text:?} of {all:?} was shown");
        }
        match (&self.end, &whole.end) {
            (Ok(response), Ok(all)) => {
                assert_eq!((&response.content, response.stop), (&all.content, all.stop), "{what}");
            }
            (Err(_), Ok(_)) => {}
            (_, Err(failure)) => panic!("the whole stream failed: {failure:?}"),
        }
    }
}

/// Decodes chunks as the driver does, up to the end; there is exactly one, and nothing comes after it.
fn decode<'a>(format: Format, chunks: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let codec = codec_of(format);
    let (mut framer, mut decoder, mut out) = (Framer::new(codec.framing()), codec.decoder(), Vec::new());
    let mut oversize = None;
    for chunk in chunks {
        if let Err(error) = framer.push(chunk, &mut |event, data| decoder.feed(event, data, &mut out)) {
            let failure = Failure { class: FailureClass::Stream, message: error.to_string(), retry_after: None };
            oversize = Some(StreamEvent::Failed(failure));
            break;
        }
    }
    if oversize.is_none() {
        framer.finish(&mut |event, data| decoder.feed(event, data, &mut out));
        decoder.finish(&mut out);
    } else if !out.iter().any(|event| matches!(event, StreamEvent::Done(_) | StreamEvent::Failed(_))) {
        out.extend(oversize);
    }
    let mut shown: BTreeMap<u32, String> = BTreeMap::new();
    let end = out.pop().expect("a stream has an end");
    for event in out {
        match event {
            StreamEvent::Text { block, text }
            | StreamEvent::Thinking { block, text }
            | StreamEvent::Hosted { block, text, .. } => {
                assert!(!text.is_empty());
                shown.entry(block).or_default().push_str(&text);
            }
            // Its pieces are held against the call in `tests/fuzz`.
            StreamEvent::Call { .. } => {}
            other => panic!("{other:?} is not the last"),
        }
    }
    let end = match end {
        StreamEvent::Done(response) => Ok(response),
        StreamEvent::Failed(failure) => Err(failure),
        other => panic!("{other:?} is no end"),
    };
    Outcome { shown, end }
}

/// Every format saying everything: the name of the case, its events, and what they come to.
fn each(mut check: impl FnMut(&str, Format, &[Vec<u8>], &Outcome)) {
    for format in Format::ALL {
        for (name, reply) in replies(format) {
            let events = events(&reply, format);
            let whole = decode(format, [events.concat().as_slice()]);
            check(&format!("{format:?}, {name}"), format, &events, &whole);
        }
    }
}

/// Where a stream is cut: at every byte where it has everything, at some in the others.
fn places(what: &str, stream: &[u8]) -> impl Iterator<Item = usize> + use<> {
    (0..stream.len()).step_by(if what.ends_with("all") { 1 } else { 13 })
}

/// The calls of an answer: tool and arguments.
fn calls<'a>(response: &'a Response) -> Vec<(&'a str, &'a Value)> {
    let call = |block: &'a ContentBlock| match block {
        ContentBlock::ToolUse { name, input, .. } => Some((name.as_str(), input)),
        _ => None,
    };
    response.content.iter().filter_map(call).collect()
}

/// What is said of tools of the provider's own.
fn hosted(response: &Response) -> impl Iterator<Item = &str> {
    response.content.iter().filter_map(|block| match block {
        ContentBlock::Hosted { text, .. } => Some(text.as_str()),
        _ => None,
    })
}

#[test]
fn every_format_says_everything() {
    each(|what, format, _, whole| {
        let response = whole.end.as_ref().unwrap_or_else(|failure| panic!("{what}: {failure:?}"));
        let text: String = response.content.iter().filter_map(ContentBlock::as_text).collect();
        let calls = calls(response);
        match what.split_once(", ").unwrap().1 {
            "text" => assert_eq!(text, "Grüße, 🦀\u{2028}und\r\nmehr \"davon\".", "{what}"),
            "thinking" => assert!(whole.shown.values().any(|shown| shown == "Zuerst: schauen, 🦀."), "{what}"),
            "two calls" => {
                assert_eq!(calls, [("bash", &arguments("eins")), ("bash", &arguments("zwei"))], "{what}");
            }
            "hosted" => {
                assert_eq!((text.as_str(), calls.len()), ("Ich suche.Es ist so: 🦀", 1), "{what}");
                let ran: Vec<&str> = hosted(response).collect();
                let expect = ["größe 🦀", "https://a.example/ä", "print('ä€😀')", "ä€😀"];
                let all = |ran: &[&str]| expect.iter().all(|word| ran.iter().any(|said| said.contains(word)));
                let has_any = matches!(format, Format::Anthropic | Format::Responses | Format::Gemini);
                assert_eq!((all(&ran), ran.is_empty()), (has_any, !has_any), "{what}: {ran:?}");
            }
            "all" => assert_eq!((text.as_str(), calls.len()), ("Nun gut: ä", 2), "{what}"),
            "an answer that fits" if format == Format::Anthropic => {
                assert_eq!(calls, [("final_answer", &fitting())], "{what}");
            }
            "an answer that fits" => {
                assert_eq!(serde_json::from_str::<Value>(&text).ok(), Some(fitting()), "{what}");
            }
            _ => assert_eq!(text, "zu la", "{what}"),
        }
    });
}

#[test]
fn the_cuts_between_chunks_do_not_matter_wherever_they_are() {
    each(|what, format, events, whole| {
        let stream = events.concat();
        for at in places(what, &stream) {
            assert_eq!(&decode(format, [&stream[..at], &stream[at..]]), whole, "{what}: cut at {at}");
        }
        for size in [1, 2, 3, 7, 64] {
            assert_eq!(&decode(format, stream.chunks(size)), whole, "{what}: in pieces of {size} bytes");
        }
    });
}

/// Arguments that a model wrote with escapes come in two halves that may part a pair of them.
#[test]
fn arguments_may_be_cut_within_an_escape() {
    for format in Format::ALL {
        for pad in 0..24 {
            let raw = format!(r#"{{"command":"{}\ud83e\udd80\u00e4\n\"","b":"\ud83e\udd80"}}"#, "x".repeat(pad));
            let reply = Reply::new().and_raw_tool("bash", &raw).and_raw_tool("bash", &raw);
            let whole = decode(format, [events(&reply, format).concat().as_slice()]);
            let want: Value = serde_json::from_str(&raw).unwrap();
            assert_eq!(calls(&whole.end.unwrap()), [("bash", &want), ("bash", &want)], "{format:?} {pad}");
        }
    }
}

#[test]
fn a_stream_that_is_cut_at_any_byte_is_whole_or_has_failed() {
    each(|what, format, events, whole| {
        let stream = events.concat();
        let mut was_whole = false;
        for at in places(what, &stream) {
            let got = decode(format, [&stream[..at]]);
            got.is_whole_or_cut(whole, &format!("{what}: cut at {at}"));
            assert!(got.end.is_ok() || got.class() == Some(FailureClass::Stream), "{what}: cut at {at}: {got:?}");
            assert!(got.end.is_ok() || !was_whole, "{what}: whole before byte {at}, and not after it");
            was_whole = got.end.is_ok();
        }
    });
}

#[test]
fn an_error_after_any_event_ends_the_answer_as_what_it_is() {
    each(|what, format, events_of, whole| {
        let error = events(&Reply::new().error_event("overloaded_error", "Overloaded"), format).pop().unwrap();
        // Ollama has no word for what went wrong.
        let class = if format == Format::Ollama { FailureClass::Stream } else { FailureClass::Overloaded };
        for at in 0..=events_of.len() {
            let stream = [events_of[..at].concat(), error.clone(), events_of[at..].concat()].concat();
            let got = decode(format, [stream.as_slice()]);
            got.is_whole_or_cut(whole, &format!("{what}: after event {at}"));
            let finished = decode(format, [events_of[..at].concat().as_slice()]).end.is_ok();
            assert!(got.class() == Some(class) || (finished && got.end.is_ok()), "{what}: after event {at}: {got:?}");
        }
    });
}

#[test]
fn garbage_after_any_event_is_no_answer() {
    let garbage: [&[u8]; 6] = [
        b"data: {\"this is\": not json\n\n",
        b"data: <html><body>504</body></html>\n\n<html>\n",
        b"data: \xff\xfe\x00\x00\n\n\xff\xfe\x00\n",
        b"data: [1,2\n\n[1,2\n",
        b"data: \"\\ud800\"\n\n\"\\ud800\"\n",
        b"HTTP/1.1 502 Bad Gateway\r\n\r\ndata: 502\n\n",
    ];
    each(|what, format, events_of, whole| {
        for at in 0..events_of.len() {
            for garbage in garbage {
                let stream = [&events_of[..at].concat(), garbage, &events_of[at..].concat()].concat();
                let got = decode(format, [stream.as_slice()]);
                got.is_whole_or_cut(whole, &format!("{what}: after event {at}"));
                let finished = decode(format, [events_of[..at].concat().as_slice()]).end.is_ok();
                let said = String::from_utf8_lossy(garbage);
                assert!(
                    got.class() == Some(FailureClass::Stream) || (finished && got.end.is_ok()),
                    "{what}: {said:?} after event {at}: {got:?}"
                );
            }
        }
    });
}

/// A byte that is something else: what holds for any bytes holds for these, and what comes of them can be sent back.
#[test]
fn any_byte_may_be_another() {
    let target = |format| match format {
        Format::Anthropic => targets::anthropic,
        Format::OpenAi => targets::openai,
        Format::Responses => targets::responses,
        Format::Gemini => targets::gemini,
        Format::Ollama => targets::ollama,
    };
    for (format, nth) in Format::ALL.into_iter().flat_map(|format| [(format, 3), (format, 6)]) {
        let (_, reply) = replies(format).swap_remove(nth);
        // The first byte says how the rest is cut.
        let stream = [vec![61], events(&reply, format).concat()].concat();
        for (n, other) in
            (1..stream.len()).step_by(7).zip([0xff, 0, b'"', b'\n', b'}', b'\\', b'9'].into_iter().cycle())
        {
            let mut changed = stream.clone();
            changed[n] = other;
            target(format)(&changed);
        }
    }
}

#[test]
fn a_line_without_an_end_is_given_up_wherever_it_comes() {
    each(|what, format, events_of, whole| {
        if !what.ends_with("all") {
            return;
        }
        for at in [0, events_of.len() / 2, events_of.len()] {
            for begin in [": ", "data: {\"x\":\""] {
                let before = events_of[..at].concat();
                let huge = [before.as_slice(), begin.as_bytes(), &vec![b'x'; MAX_EVENT + 9 * BATCH]].concat();
                let mut taken = 0;
                let got = decode(format, huge.chunks(BATCH).inspect(|chunk| taken += chunk.len()));
                got.is_whole_or_cut(whole, what);
                let finished = decode(format, [before.as_slice()]).end.is_ok();
                let given_up = got.class() == Some(FailureClass::Stream);
                assert!(given_up || (finished && got.end.is_ok()), "{what}, {begin} after event {at}: {:?}", got.end);
                let most = before.len() + MAX_EVENT + 2 * BATCH;
                assert!(taken <= most, "{what}, {begin} after event {at}: {taken} bytes were taken of {most}");
            }
        }
    });
}

#[test]
fn a_long_answer_is_all_there() {
    let words = "wörd ".repeat(5_000);
    for format in Format::ALL {
        let stream = events(&Reply::new().text_in_deltas(&words, 5), format).concat();
        let got = decode(format, stream.chunks(1400));
        assert_eq!(got.end.unwrap().content, [ContentBlock::text(&words)], "{format:?}");
        assert_eq!(got.shown.into_values().collect::<String>(), words, "{format:?}");
        // Cuts, at places that are spread over it.
        for at in (1..7).map(|n| stream.len() * n / 7) {
            let got = decode(format, [&stream[..at]]);
            assert_eq!(got.class(), Some(FailureClass::Stream), "{format:?}: cut at {at}");
            assert!(words.starts_with(&got.shown.into_values().collect::<String>()), "{format:?}: cut at {at}");
        }
    }
}

/// The table of faults: a status, what it means, and whether it is tried again.
const STATUSES: [(u16, FailureClass, bool); 25] = {
    use FailureClass::*;
    [
        (302, Rejected, false),
        (400, Rejected, false),
        (401, Auth, false),
        (402, Quota, false),
        (403, Forbidden, false),
        (404, NotFound, false),
        (405, Rejected, false),
        (408, Overloaded, true),
        (409, Overloaded, true),
        (410, Rejected, false),
        (413, TooLong, false),
        (415, Rejected, false),
        (422, Rejected, false),
        (425, Overloaded, true),
        (429, RateLimited, true),
        (451, Rejected, false),
        (500, Overloaded, true),
        (502, Overloaded, true),
        (503, Overloaded, true),
        (504, Overloaded, true),
        (520, Overloaded, true),
        (522, Overloaded, true),
        (524, Overloaded, true),
        (529, Overloaded, true),
        (599, Overloaded, true),
    ]
};

#[test]
fn each_status_means_the_same_in_every_format_whatever_its_body() {
    for (format, (status, class, again)) in Format::ALL.into_iter().flat_map(|format| STATUSES.map(|row| (format, row)))
    {
        let own = format.error_body(status, "api_error", "it failed").to_string();
        let long = format.error_body(status, "api_error", &"x".repeat(64 << 10)).to_string();
        let bodies: [&[u8]; 8] = [
            own.as_bytes(),
            &own.as_bytes()[..own.len() / 2],
            long.as_bytes(),
            b"",
            b"<html><body>no</body></html>",
            b"\xff\xfe\x00",
            b"[[[[[[",
            b"\"\"",
        ];
        for body in bodies {
            let failure = codec_of(format).failure(status, body);
            let what = format!("{format:?} {status} {:?}", String::from_utf8_lossy(&body[..body.len().min(80)]));
            assert_eq!(failure.class, class, "{what}");
            let message = &failure.message;
            assert!(message.contains(&status.to_string()), "{what}: {message}");
            // It is cut when the keys are out of it.
            assert!(message.len() < 65 << 10 && !message.contains(char::is_control), "{what}: {message}");
            let decision = retry::decide(&failure, &Tries::default(), Patience::USUAL, 1.0);
            assert_eq!(matches!(decision, Decision::Again { .. }), again, "{what}: {decision:?}");
        }
    }
}

/// However long each attempt takes, an outage is given up when the patience is over, and answers that break off before.
#[test]
fn whatever_fails_for_good_is_given_up() {
    use FailureClass::*;
    let last = [TooLong, Images, History, Rejected];
    for class in
        [Connect, Refused, Overloaded, RateLimited, Timeout, Stream, Network, Auth, NotFound].into_iter().chain(last)
    {
        for (took, asked, random) in
            [(0, None, 0.0), (0, None, 1.0), (120, None, 1.0), (1, Some(60), 0.5), (0, Some(0), 1.0)]
        {
            let retry_after = asked.map(Duration::from_secs);
            let failure = Failure { class, message: String::new(), retry_after };
            let mut tries =
                Tries { answered_before: true, broke_off: retry::broke_off(class, false), ..Tries::default() };
            tries.broken_off += u32::from(tries.broke_off);
            while let Decision::Again { after } = retry::decide(&failure, &tries, Patience::USUAL, random) {
                tries.broken_off += u32::from(tries.broke_off);
                tries.waited += after + Duration::from_secs(took);
            }
            assert!(tries.broken_off <= retry::MAX_BROKEN_OFF + 1, "{class:?}: {tries:?}");
            assert!(tries.waited <= Duration::from_secs(3600 + took), "{class:?}: {tries:?}");
        }
    }
}
