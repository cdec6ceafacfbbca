//! The context window in an error about a context that is too long. Pure.

use crate::provider::models::MAX_WINDOW;

/// The smallest plausible window, in tokens: a smaller number means something else.
const MIN_WINDOW: u64 = 512;

/// How far after the phrase the number may begin, in bytes.
const GAP: usize = 8;

/// Phrases before the number, in lower case.
const BEFORE: [&str; 15] = [
    "maximum context length is",
    "maximum context length of",
    "maximum number of tokens allowed",
    "maximum model length of",
    "model's context length",
    "maximum prompt length is",
    "model token limit",
    "must be <=",
    "available context size",
    "input length should be [1,",
    "exceeds the limit of",
    "cannot exceed",
    "(tpm): limit",
    "context size of",
    "tokens >",
];

/// How providers say that two numbers in a message are the size of a request and the limit that it is over.
const OVER: [&str; 7] = ["exceed", "less than", "longer than", "more than", "greater than", "larger than", "too many"];

/// Phrases after the number.
const AFTER: [&str; 2] = [" maximum context length", " maximum"];

/// The window that `message` names, in tokens.
pub(super) fn named(message: &str) -> Option<u64> {
    let text = message.to_ascii_lowercase();
    // "190000 + 20000 > 200000".
    let sum = text.split_once("exceed context limit").and_then(|(_, rest)| number(rest.split_once('>')?.1));
    let before = || BEFORE.iter().find_map(|phrase| number(text.split_once(phrase)?.1));
    let after = || AFTER.iter().find_map(|phrase| last_number(text.split_once(phrase)?.0));
    let is_plausible = |window: &u64| (MIN_WINDOW..=MAX_WINDOW).contains(window);
    sum.or_else(before).or_else(after).filter(is_plausible).or_else(|| smaller(&text).filter(is_plausible))
}

/// The smaller of the only two numbers in a text that may be sizes: in whichever words, what was sent is more than the limit.
fn smaller(text: &str) -> Option<u64> {
    if !OVER.iter().any(|phrase| text.contains(phrase)) {
        return None;
    }
    let is_part = |c: char| is_of_number(c) || c.is_alphanumeric() || c == '-' || c == '.';
    let words = text.split(|c: char| !is_part(c)).map(|word| word.trim_matches(['.', ',']));
    let is_number = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.chars().all(is_of_number);
    let numbers: Vec<u64> = words
        .filter(is_number)
        .filter_map(|word| digits(word.chars()))
        .filter(|number| *number >= MIN_WINDOW)
        .collect();
    match numbers[..] {
        [one, other] if one != other => Some(one.min(other)),
        _ => None,
    }
}

/// The number near the beginning of `text`; its digits may be grouped.
fn number(text: &str) -> Option<u64> {
    let at = text.find(|c: char| c.is_ascii_digit()).filter(|at| *at <= GAP)?;
    digits(text.get(at..)?.chars())
}

/// The number at the end of `text`.
fn last_number(text: &str) -> Option<u64> {
    let tail = text.rsplit(|c: char| !is_of_number(c)).next()?;
    digits(tail.chars())
}

fn is_of_number(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, ',' | '_')
}

fn digits(text: impl Iterator<Item = char>) -> Option<u64> {
    text.take_while(|c| is_of_number(*c)).filter(char::is_ascii_digit).collect::<String>().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_read_in_the_words_of_each_provider() {
        fn check(said: &str, expect: Option<u64>) {
            assert_eq!(named(said), expect, "{said}");
        }
        check("prompt is too long: 213462 tokens > 200000 maximum", Some(200_000));
        check("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease", Some(200_000));
        check("This model's maximum context length is 8192 tokens. However, you requested 9000 tokens", Some(8192));
        check("This endpoint's maximum context length is 128,000 tokens", Some(128_000));
        check(
            "the input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
            Some(1_048_575),
        );
        check("the request exceeds the available context size (2048 tokens), try increasing it", Some(2048));
        check("The decoder prompt (length 9000) is longer than the maximum model length of 8192.", Some(8192));
        check("The input (9000 tokens) is longer than the model's context length (8192 tokens).", Some(8192));
        check("This model's maximum prompt length is 131072 but the request contains 537812 tokens.", Some(131_072));
        check("Prompt contains 140000 tokens, too large for model with 131072 maximum context length", Some(131_072));
        check("Your request exceeded model token limit: 262144 (requested: 300000)", Some(262_144));
        check("`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 5000 `inputs` tokens", Some(4097));
        check("Range of input length should be [1, 30720]", Some(30_720));
        check("prompt token count of 140000 exceeds the limit of 128000", Some(128_000));
        check("too many tokens: total number of tokens in the prompt cannot exceed 4081", Some(4081));
        check("Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 40000", Some(30_000));
        check("length of prompt_tokens (41000) must be less than max_seq_len (40960).", Some(40_960));
        check("the number of input tokens 9,100 cannot exceed the total tokens limit 8,192", Some(8192));
        check(
            "The sum of prompt length (9000) and query length (0) should not exceed max_num_tokens (4096)",
            Some(4096),
        );
        check("Input length (33100 tokens) exceeds the maximum allowed length (32768 tokens)", Some(32_768));
        check("requested input length 70000 exceeds maximum input length 65536", Some(65_536));
        check("Too many input tokens. Max input tokens: 24000, request input token count: 25117", Some(24_000));
        check("400: 9000 tokens is more than 8000 of 7000", None);
        check("model gpt-4096-8192 was sent 9000 tokens, which is too many", None);
        check("prompt too long; exceeded max context length by 4 tokens", None);
        check("invalid params, context window exceeds limit (2013)", None);
        check("the maximum context length is 8 tokens", None);
        check("Input is too long for requested model.", None);
        check("maximum context length is 99999999999999999999999", None);
    }
}
