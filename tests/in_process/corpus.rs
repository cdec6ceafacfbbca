//! The fuzz targets on stable: their corpus, and seeded mutations of it.
//!
//! What `cargo fuzz` or this finds goes into `fuzz/corpus/TARGET`, made small, and is an ordinary test from then on. More
//! mutations than usual by `LINGER_TEST_MUTATIONS=1000000`, from `LINGER_TEST_SEED`.

use std::panic::catch_unwind;
use std::path::Path;

use linger_tests::Rng;

use crate::wanted;

#[path = "../fuzz/src/lib.rs"]
#[allow(unreachable_pub)] // The targets call it from another crate.
pub(crate) mod targets;

/// Mutations of each corpus in the ordinary run of the tests.
const MUTATIONS: u64 = 3000;

/// Pieces that mean something to one of the targets.
const WORDS: [&str; 38] = [
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    " ",
    "\t",
    "\0",
    "data: ",
    "event: ",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    ":",
    ",",
    "null",
    "0",
    "-1",
    "1e9",
    "18446744073709551616",
    "\\u0000",
    "\\ud800",
    "C",
    "Content-Length: ",
    "<think>",
    "</think>",
    "[DONE]",
    "**",
    "..",
    "~/",
    "(",
    ")",
    "+",
    "=",
    "ä",
    "🦀",
];

fn run(target: &str, body: fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut paths: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() > 10, "{target} has a corpus");
    let corpus: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    for (path, input) in paths.iter().zip(&corpus) {
        assert!(catch_unwind(|| body(input)).is_ok(), "{} does not hold", path.display());
    }
    let seed = wanted("LINGER_TEST_SEED", 1);
    let mut rng = Rng(seed);
    for n in 0..wanted("LINGER_TEST_MUTATIONS", MUTATIONS) {
        let mut input = corpus[rng.below(corpus.len())].clone();
        for _ in 0..=rng.below(4) {
            mutate(&mut input, &corpus, &mut rng);
        }
        if catch_unwind(|| body(&input)).is_err() {
            let find = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{target}-{seed}-{n}"));
            std::fs::write(&find, &input).unwrap();
            panic!("mutation {n} of seed {seed} does not hold: {}", find.display());
        }
    }
}

/// Changes one thing.
fn mutate(input: &mut Vec<u8>, corpus: &[Vec<u8>], rng: &mut Rng) {
    let at = rng.below(input.len() + 1);
    let end = at + rng.below((input.len() - at).min(64) + 1);
    match rng.below(8) {
        0 => input.iter_mut().skip(at).take(1).for_each(|byte| *byte = rng.next_u64() as u8),
        1 => input.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << rng.below(8)),
        2 => drop(input.drain(at..end)),
        3 => {
            let piece = input[at..end].to_vec();
            let to = rng.below(input.len() + 1);
            input.splice(to..to, piece);
        }
        4 => input.truncate(at),
        5 => {
            let other = &corpus[rng.below(corpus.len())];
            let from = rng.below(other.len() + 1);
            let upto = (from + rng.below(256)).min(other.len());
            input.splice(at..at, other[from..upto].iter().copied());
        }
        6 => drop(input.splice(at..end, WORDS[rng.below(WORDS.len())].bytes())),
        _ => drop(input.splice(at..at, WORDS[rng.below(WORDS.len())].bytes())),
    }
}

#[test]
fn the_line_codec_holds_for_any_bytes() {
    run("line", targets::line);
}

#[test]
fn the_decoder_of_anthropic_holds_for_any_bytes() {
    run("anthropic", targets::anthropic);
}

#[test]
fn the_decoder_of_openai_holds_for_any_bytes() {
    run("openai", targets::openai);
}

#[test]
fn the_decoder_of_responses_holds_for_any_bytes() {
    run("responses", targets::responses);
}

#[test]
fn the_decoder_of_gemini_holds_for_any_bytes() {
    run("gemini", targets::gemini);
}

#[test]
fn the_decoder_of_ollama_holds_for_any_bytes() {
    run("ollama", targets::ollama);
}

#[test]
fn the_configuration_holds_for_any_bytes() {
    run("config", targets::config);
}

#[test]
fn cursors_hold_for_any_bytes() {
    run("cursor", targets::cursor);
}

#[test]
fn rules_hold_for_any_bytes() {
    run("rule", targets::rule);
}

#[test]
fn any_command_line_is_read() {
    run("shell", targets::shell);
}
