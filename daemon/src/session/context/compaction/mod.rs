//! Compaction: making room in the context. Pure: when to compact, what, and whether the result helps.
//!
//! [`cut`] selects the messages that a summary may replace, [`transcript()`] renders them for the model that writes it, [`judge`]
//! accepts or rejects the summary; [`trim`] is the fallback. [`Effort`] bounds the tries of a step.
//! Deliberately absent: asking the model and writing events (the turn), and applying them ([`crate::session::context`]).

mod transcript;

use crate::provider::{Message, Response, Stop};
pub use crate::session::context::bytes;
use crate::session::context::{Mark, Part, of_bytes};
use crate::session::state::Effort;
use linger_protocol::id::CallId;
use linger_protocol::message::{ContentBlock, text_of};
pub use transcript::transcript;

/// The system prompt of the model that writes a summary.
pub const SYSTEM: &str = include_str!("summary.md");

/// Whole turns at the end may keep one in this many tokens of the room; the rest is for the summary and new messages.
const KEEP: u64 = 4;

/// The latest turn, or if too long its latest step, may keep one in this many tokens of the room.
const KEEP_LATEST: u64 = 2;

/// A compaction must replace at least one in this many tokens of the room.
const WORTH: u64 = 8;

/// The context must grow by one in this many tokens of the window before the next automatic compaction.
const GROWTH: u64 = 10;

/// The target after trimming, in percent of the window.
const TRIMMED: u64 = 50;

/// Smaller results are not trimmed, in tokens: the placeholder would take as much.
const SMALL: u64 = 60;

/// How much of one prompt, and of all, is kept verbatim next to a summary, in bytes.
const WORDS: [usize; 2] = [8 << 10, 24 << 10];

/// The reason to reject a summary that saves too little.
pub const NOT_SHORTER: &str = "the summary is hardly shorter than the messages it would replace";

/// A summary must save at least one in this many tokens of the context.
const SAVES: u64 = 20;

/// Why room is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// None is needed.
    None,
    /// The window is nearly full.
    Full,
    /// The provider has refused the request as it is.
    TooLong,
}

/// The next action of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextAction {
    /// Write a summary.
    Compact,
    /// Trim older output.
    Trim,
    /// Cut old text off, without a summary.
    CutOff,
    /// Send the request.
    Ask,
    /// Fail.
    GiveUp,
}

impl Effort {
    /// The next action. A step has one compaction; trims and requests go on while a trim shortens what was refused.
    pub fn next(self, need: Need) -> NextAction {
        match (need, self.compacted) {
            (Need::None, _) => NextAction::Ask,
            (_, None) => NextAction::Compact,
            (Need::Full, Some(true)) => NextAction::Ask,
            // The step may still fit: if its request fails, that says why; if not, nothing was trimmed in vain.
            (Need::Full, _) if self.unreached => NextAction::Ask,
            (_, Some(_)) if !self.trimmed => NextAction::Trim,
            (Need::Full, Some(false)) => NextAction::Ask,
            (Need::TooLong, _) if !self.exhausted => NextAction::Trim,
            (Need::TooLong, _) if !self.cut_off => NextAction::CutOff,
            (Need::TooLong, _) => NextAction::GiveUp,
        }
    }
}

/// Whether to compact a context of `tokens` before the next step: it fills `at` percent of the window, and has grown since the last
/// try at `floor` tokens, or does not fit at all. Some servers never count more than the window and silently drop the rest.
pub fn is_full(tokens: u64, floor: u64, window: u64, at: u8) -> bool {
    let grown = floor.saturating_add(if floor == 0 { 0 } else { window / GROWTH });
    at > 0 && tokens.saturating_mul(100) >= window.saturating_mul(at.into()) && tokens >= grown.min(window)
}

/// How many of the first messages a summary should replace; `None` if that would not help. `room` is the bound on messages, in
/// tokens.
///
/// The rest begins with a turn, or, if the latest turn is too long, with one of its steps. Unanswered prompts always stay, and so do
/// results that no model has seen, unless the provider `refused` them.
pub fn cut(marks: &[Mark], room: u64, refused: bool) -> Option<usize> {
    let first = 1 + usize::from(marks.first().is_some_and(|mark| mark.part == Part::Summary));
    let all: u64 = marks.iter().map(|mark| mark.tokens).sum();
    // The tokens from each message to the end.
    let tails: Vec<u64> =
        marks.iter().scan(all, |rest, mark| Some(std::mem::replace(rest, *rest - mark.tokens))).collect();
    let fits = |at: &usize, part: u64| tails.get(*at).is_none_or(|tail| *tail <= room / part);
    let part = |at: usize| marks.get(at).map(|mark| mark.part);
    let turns = || (first..marks.len()).filter(|at| part(*at) == Some(Part::Prompt(true)));
    let latest = turns().next_back();
    let is_step = |at: &usize| match part(*at) {
        Some(Part::Answer) => true,
        // Adjacent prompts belong together.
        Some(Part::Prompt(_)) => !matches!(part(*at - 1), Some(Part::Prompt(_))),
        _ => false,
    };
    let steps = || (latest.unwrap_or(first).max(first)..marks.len()).filter(is_step);
    let last = match part(marks.len().checked_sub(1)?)? {
        // The first of the unanswered prompts.
        Part::Prompt(_) => steps().next_back().or(latest)?,
        Part::Results if !refused => steps().next_back()?,
        _ => marks.len(),
    };
    let cut = turns()
        .find(|at| fits(at, KEEP))
        .or(latest.filter(|at| fits(at, KEEP_LATEST)))
        .or_else(|| steps().find(|at| fits(at, KEEP)))
        .or_else(|| steps().next_back().filter(|at| fits(at, KEEP_LATEST)))
        .unwrap_or(last);
    // An earlier summary becomes part of the next one.
    let carried = tails.first().copied().unwrap_or_default() - tails.get(first - 1).copied().unwrap_or_default();
    let replaced = (all - tails.get(cut).copied().unwrap_or_default()).saturating_sub(carried);
    (cut >= first && cut <= marks.len() && replaced.saturating_mul(WORTH) >= room.min(all)).then_some(cut)
}

/// How many of the first messages to cut off where no summary comes: as few as leave a rest that fits in half of `room`, in tokens.
/// Also prompts that were never answered go, because one of them may be what does not fit; the last message stays.
pub fn cut_off(marks: &[Mark], room: u64) -> Option<usize> {
    let first = 1 + usize::from(marks.first().is_some_and(|mark| mark.part == Part::Summary));
    // Results cannot stand without the answer before them.
    let may_begin = |at: &usize| marks.get(*at).is_some_and(|mark| matches!(mark.part, Part::Prompt(_) | Part::Answer));
    let tail = |at: usize| marks.iter().skip(at).map(|mark| mark.tokens).sum::<u64>();
    let places: Vec<usize> = (first..marks.len()).filter(may_begin).collect();
    places.iter().find(|at| tail(**at) <= room / 2).or(places.last()).copied()
}

/// The summary in a response, or why to reject it. `replaced`: the tokens it would replace.
pub fn judge(response: &Response, replaced: u64) -> Result<String, &'static str> {
    let text = text_of(&response.content);
    let text = text.trim();
    match response.stop {
        Stop::Refusal => Err("the model refused to write a summary"),
        Stop::MaxTokens => Err("the summary was cut at the model's token limit"),
        Stop::Paused => Err("the provider paused in the middle of the summary"),
        Stop::End | Stop::NoCalls if text.is_empty() => Err("the model wrote no summary"),
        Stop::End | Stop::NoCalls if of_bytes(text.len()) >= replaced => Err(NOT_SHORTER),
        Stop::End | Stop::NoCalls => Ok(text.to_owned()),
    }
}

/// A summary with the replaced prompts that are not fully answered.
pub fn with_words(summary: &str, words: &[String]) -> String {
    let mut text = summary.to_owned();
    let mut room = WORDS[1];
    for (n, words) in words.iter().filter(|words| !words.trim().is_empty()).enumerate() {
        if n == 0 {
            text.push_str("\n\n## The user's own words in the turn under way\n");
        }
        let words = transcript::short(words, WORDS[0].min(room));
        room -= words.len().min(room);
        text.push('\n');
        words.lines().for_each(|line| text.extend(["> ", line, "\n"]));
    }
    text.trim_end().to_owned()
}

/// The size of a context of `before` tokens after messages estimated at `gone` become ones estimated at `come`.
/// `estimated` is the estimate of all messages: a provider's count differs from it by a common factor.
pub fn after(before: u64, estimated: u64, gone: u64, come: u64) -> u64 {
    let scaled = |tokens: u64| (u128::from(tokens) * u128::from(before) / u128::from(estimated.max(1))) as u64;
    (before + scaled(come)).saturating_sub(scaled(gone))
}

/// Whether shrinking from `before` to `after` tokens is worth the loss.
pub fn is_worth(before: u64, after: u64) -> bool {
    before.saturating_sub(after).saturating_mul(SAVES) >= before && after < before
}

/// The calls whose results to trim, oldest first, until `goal` tokens are saved; and the tokens saved. Results that no model has
/// seen stay, unless the provider `refused` them.
pub fn trim(messages: &[Message], marks: &[Mark], goal: u64, refused: bool) -> (Vec<CallId>, u64) {
    let (mut calls, mut saved) = (Vec::new(), 0);
    let seen = if refused {
        marks.len()
    } else {
        marks.iter().rposition(|mark| mark.part == Part::Answer).unwrap_or_default()
    };
    let results = messages.iter().zip(marks).take(seen).filter(|(_, mark)| mark.part == Part::Results);
    for block in results.flat_map(|(message, _)| &message.content) {
        let ContentBlock::ToolResult { call_id, .. } = block else { continue };
        let tokens = crate::session::context::size(block);
        if saved >= goal {
            break;
        }
        if tokens > SMALL {
            calls.push(call_id.clone());
            saved += tokens - SMALL;
        }
    }
    (calls, saved)
}

/// How many tokens to trim from a context of `tokens`.
pub fn goal(tokens: u64, window: Option<u64>) -> u64 {
    let limit = window.map_or(tokens, |window| window.min(tokens));
    tokens - limit * TRIMMED / 100
}

#[cfg(test)]
mod tests;
