//! Compaction: making room in the context. Pure: when, what, and whether what came of it is any use.
//!
//! [`cut`] says what a summary may stand for, [`transcript()`] what the model that writes it is given, [`judge`] whether to take
//! it; [`trim`] is what is left when there is none. [`Effort`] keeps a step from trying for ever.
//! Deliberately absent: asking the model and writing events, which are the turn's; applying them, which is
//! [`super::context`]'s.

mod transcript;

use linger_protocol::id::CallId;
use linger_protocol::message::{ContentBlock, text_of};
use serde::{Deserialize, Serialize};

pub use super::context::bytes;
use super::context::{Mark, Part, of_bytes};
use crate::provider::{Message, Response, Stop};
pub use transcript::transcript;

/// What the model is told that writes a summary.
pub const SYSTEM: &str = include_str!("summary.md");

/// The part of the room (one in so many) that whole turns at the end may keep: the rest is for the summary and what comes.
const KEEP: u64 = 4;

/// The part of the room that the latest turn may keep, or if it is longer its latest step.
const KEEP_LATEST: u64 = 2;

/// A compaction that would replace less than this part of the room is no use.
const WORTH: u64 = 8;

/// How much of the window, in one of so many parts, must have come since the last compaction before the next one begins by itself.
const GROWTH: u64 = 10;

/// How full the window may be after outputs were trimmed, in percent.
const TRIMMED: u64 = 50;

/// Results smaller than this stay: a word about them would take as much. In tokens.
const SMALL: u64 = 60;

/// The most of a user's prompt that is kept word for word beside a summary, in bytes, and of all of them.
const WORDS: [usize; 2] = [8 << 10, 24 << 10];

/// Why a summary is no use that takes as much as what it is of.
pub const NOT_SHORTER: &str = "the summary is hardly shorter than what it would replace";

/// A summary that saves less than this part of the context is no use.
const SAVES: u64 = 20;

/// What a step has done to make room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effort {
    /// It asked for a summary; whether that stands in the context now.
    pub compacted: Option<bool>,
    /// It left out older output, or looked for some.
    pub trimmed: bool,
    /// Nobody could be asked for the summary. Of no account after a restart, when somebody may be.
    #[serde(skip)]
    pub unreached: bool,
}

/// Why room is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// There is enough.
    None,
    /// The window is nearly full.
    Full,
    /// The provider has refused the request as it is.
    TooLong,
}

/// What to do next about a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Have a summary written.
    Compact,
    /// Leave out older output.
    Trim,
    /// Send the request.
    Ask,
    /// There is nothing left to try.
    GiveUp,
}

impl Effort {
    /// What to do next; a step has one compaction and one trim, and is asked for three times at most.
    pub fn next(self, need: Need) -> Next {
        match (need, self.compacted) {
            (Need::None, _) => Next::Ask,
            (_, None) => Next::Compact,
            (Need::Full, Some(true)) => Next::Ask,
            // There is room for this step: if it fails too it says why, and if it does not, nothing was left out in vain.
            (Need::Full, _) if self.unreached => Next::Ask,
            (_, Some(_)) if !self.trimmed => Next::Trim,
            (Need::Full, Some(false)) => Next::Ask,
            (Need::TooLong, _) => Next::GiveUp,
        }
    }
}

/// Whether a context of `tokens` is to be compacted before the next step: it fills `at` percent of the window, and has grown since
/// that was tried last, when it had `floor`, or does not fit at all. There are servers that never count more than the window, and
/// drop the rest without a word.
pub fn is_full(tokens: u64, floor: u64, window: u64, at: u8) -> bool {
    let grown = floor.saturating_add(if floor == 0 { 0 } else { window / GROWTH });
    at > 0 && tokens.saturating_mul(100) >= window.saturating_mul(at.into()) && tokens >= grown.min(window)
}

/// How many of the first messages a summary may stand for; none if that would be no use. `room` is how many tokens the messages
/// may have at most.
///
/// What stays begins with a turn; where the latest turn is too long for that, with one of its steps. Words that nobody has
/// answered always stay, and results that no model has seen unless the provider `refused` them.
pub fn cut(marks: &[Mark], room: u64, refused: bool) -> Option<usize> {
    let first = 1 + usize::from(marks.first().is_some_and(|mark| mark.part == Part::Summary));
    let all: u64 = marks.iter().map(|mark| mark.tokens).sum();
    // What there is from each message on.
    let tails: Vec<u64> =
        marks.iter().scan(all, |rest, mark| Some(std::mem::replace(rest, *rest - mark.tokens))).collect();
    let fits = |at: &usize, part: u64| tails.get(*at).is_none_or(|tail| *tail <= room / part);
    let part = |at: usize| marks.get(at).map(|mark| mark.part);
    let turns = || (first..marks.len()).filter(|at| part(*at) == Some(Part::Prompt(true)));
    let latest = turns().next_back();
    let is_step = |at: &usize| match part(*at) {
        Some(Part::Answer) => true,
        // Words that came one after the other belong together.
        Some(Part::Prompt(_)) => !matches!(part(*at - 1), Some(Part::Prompt(_))),
        _ => false,
    };
    let steps = || (latest.unwrap_or(first).max(first)..marks.len()).filter(is_step);
    let last = match part(marks.len().checked_sub(1)?)? {
        // The first of the words that nobody has answered.
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
    // An earlier summary will be a part of the next one.
    let carried = tails.first().copied().unwrap_or_default() - tails.get(first - 1).copied().unwrap_or_default();
    let replaced = (all - tails.get(cut).copied().unwrap_or_default()).saturating_sub(carried);
    (cut >= first && cut <= marks.len() && replaced.saturating_mul(WORTH) >= room.min(all)).then_some(cut)
}

/// The summary that a model wrote, or why it is no use. `replaced` is how many tokens it would stand for.
pub fn judge(response: &Response, replaced: u64) -> Result<String, &'static str> {
    let text = text_of(&response.content);
    let text = text.trim();
    match response.stop {
        Stop::Refusal => Err("the model refused to write a summary"),
        Stop::MaxTokens => Err("the summary was cut at the model's token limit"),
        Stop::Paused => Err("the provider paused in the middle of the summary"),
        Stop::End if text.is_empty() => Err("the model wrote no summary"),
        Stop::End if of_bytes(text.len()) >= replaced => Err(NOT_SHORTER),
        Stop::End => Ok(text.to_owned()),
    }
}

/// A summary with the words of the user that it stands for and that are not answered in full.
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

/// How large a context of `before` tokens is when some of its messages, estimated at `gone`, are something else, estimated at `come`.
/// The estimates of all its messages come to `estimated`: a provider counts otherwise, but alike for all.
pub fn after(before: u64, estimated: u64, gone: u64, come: u64) -> u64 {
    let scaled = |tokens: u64| (u128::from(tokens) * u128::from(before) / u128::from(estimated.max(1))) as u64;
    (before + scaled(come)).saturating_sub(scaled(gone))
}

/// Whether going from `before` tokens to `after` is worth what is lost.
pub fn is_worth(before: u64, after: u64) -> bool {
    before.saturating_sub(after).saturating_mul(SAVES) >= before && after < before
}

/// The calls whose results are to be left out, the oldest first, until `goal` tokens are saved; and how many that are. Results
/// that no model has seen stay unless the provider `refused` them.
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
        let tokens = super::context::size(block);
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

/// How many tokens are to be saved by leaving out output, of a context of `tokens`.
pub fn goal(tokens: u64, window: Option<u64>) -> u64 {
    let limit = window.map_or(tokens, |window| window.min(tokens));
    tokens - limit * TRIMMED / 100
}

#[cfg(test)]
mod tests;
