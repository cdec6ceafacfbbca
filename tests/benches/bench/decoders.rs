//! The decoders, each beside a bare parse of the same JSON: a long answer in chunks as a network gives them, in memory.

use std::time::Instant;

use linger_tests::floors::median;
use linger_tests::harness::{Daemon, Setup};
use linger_tests::model::{Format, ModelServer, Reply, events, prefix_kept};
use lingerd::provider::StreamEvent;
use lingerd::provider::catalogue::codec;
use lingerd::provider::compat::Compat;
use lingerd::provider::sse::Framer;
use serde_json::{Value, json};

use super::Figure;
use super::figures::setup;

/// Tokens of the answer.
const TOKENS: usize = 20_000;

/// Answers whose median is taken.
const RUNS: usize = 15;

/// What a network gives at once.
const CHUNK: usize = 1400;

/// How much longer than a bare parse a decoder may take: it also frames, checks and copies what is shown.
const FACTOR: f64 = 2.0;

/// Steps of the session whose prefix is looked at.
const STEPS: usize = 50;

pub(super) async fn decoders() -> Vec<Figure> {
    Format::ALL.into_iter().flat_map(decoder).collect()
}

fn decoder(format: Format) -> [Figure; 2] {
    let [a_token, rate] = match format {
        Format::Anthropic => ["decoder of Anthropic Messages, a token", "the same, throughput"],
        Format::OpenAi => ["decoder of Chat Completions, a token", "the same, throughput"],
        Format::Responses => ["decoder of Responses, a token", "the same, throughput"],
        Format::Gemini => ["decoder of Gemini, a token", "the same, throughput"],
        Format::Ollama => ["decoder of Ollama, a token", "the same, throughput"],
    };
    let stream = events(&Reply::new().text_in_deltas(&"word ".repeat(TOKENS), 5), format).concat();
    let text = std::str::from_utf8(&stream).expect("a stream is text");
    let json: Vec<&str> = text
        .lines()
        .map(|line| line.strip_prefix("data: ").unwrap_or(line))
        .filter(|line| line.starts_with('{'))
        .collect();
    let (mut took, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        took.push(decode(format, &stream));
        let start = Instant::now();
        let parsed: usize = json.iter().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count();
        floors.push(start.elapsed().as_secs_f64());
        assert_eq!(parsed, json.len(), "all lines are JSON");
    }
    let (took, floor) = (median(took), median(floors));
    let ns = |seconds: f64| seconds * 1e9 / TOKENS as f64;
    let mb = |seconds: f64| stream.len() as f64 / 1e6 / seconds;
    [
        Figure::new(a_token, ns(took), "ns", ns(floor) * FACTOR).over(ns(floor)),
        Figure::at_least(rate, mb(took), "MB/s", mb(floor) / FACTOR).over(mb(floor)),
    ]
}

/// How long it takes until the answer is complete, in seconds.
fn decode(format: Format, stream: &[u8]) -> f64 {
    let start = Instant::now();
    let codec = codec(format.product_kind(), Compat::NONE).expect("a codec");
    let (mut framer, mut decoder, mut out) = (Framer::new(codec.framing()), codec.decoder(), Vec::new());
    let mut pieces = 0;
    for chunk in stream.chunks(CHUNK) {
        framer.push(chunk, &mut |event, data| decoder.feed(event, data, &mut out)).expect("events are small");
        // Whoever shows them takes them.
        pieces += out.iter().filter(|event| matches!(event, StreamEvent::Text { .. })).count();
        out.retain(|event| matches!(event, StreamEvent::Done(_)));
    }
    framer.finish(&mut |event, data| decoder.feed(event, data, &mut out));
    decoder.finish(&mut out);
    let took = start.elapsed().as_secs_f64();
    assert!(matches!(out.last(), Some(StreamEvent::Done(_))) && pieces > 0, "{format:?}: {pieces} pieces, {out:?}");
    took
}

/// How much of each request a prompt cache finds at the beginning of the next one, over a session.
pub(super) async fn prefix() -> Vec<Figure> {
    let model = ModelServer::scripted(|request| {
        if request.after_tool() { Reply::text("so it is") } else { Reply::text("I look.").and_tool("ls", json!({})) }
    });
    let config = Format::ALL.map(|format| format.provider(&format!("p-{}", format.kind()), &model.url())).concat();
    let daemon = Daemon::start_with(&model, Setup { config, ..setup() }).await;
    let client = daemon.client().await;
    let mut figures = Vec::new();
    for (name, format) in [
        ("prefix kept over 50 steps, Anthropic", Format::Anthropic),
        ("prefix kept over 50 steps, Chat Completions", Format::OpenAi),
        ("prefix kept over 50 steps, Responses", Format::Responses),
        ("prefix kept over 50 steps, Gemini", Format::Gemini),
        ("prefix kept over 50 steps, Ollama", Format::Ollama),
    ] {
        let before = model.requests().len();
        let session = client.create_with(json!({ "model": format!("p-{}/m", format.kind()) })).await;
        client.attach(&session).await;
        for n in 0..STEPS / 2 {
            client.turn(&session, &format!("look {n}")).await;
        }
        let requests = model.requests().split_off(before);
        assert_eq!(requests.len(), STEPS);
        let bodies: Vec<Value> = requests.into_iter().map(|request| request.json).collect();
        figures.push(Figure::at_least(name, prefix_kept(&bodies) * 100.0, "%", 100.0));
    }
    figures
}
