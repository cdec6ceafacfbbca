//! Whether a model goes in circles: pure, from the calls of a turn and their results.
//!
//! Only the last calls are kept, each as two hashes and a line for people, so an event adds a bounded amount to the state.
//! A prompt, and the answer to go on, start over.

use std::collections::VecDeque;

use linger_protocol::message::ContentBlock;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How often something comes in a row before it is a circle: twice happens when a model makes sure.
const TIMES: usize = 3;

/// The longest cycle that is noticed, in calls; longer ones make progress more often than not, and have `max_steps`.
const CYCLE: usize = 3;

/// How many failed calls in a row are a circle, whatever they are. A call that a user denied is no failure.
const FAILURES: u32 = 10;

/// The longest description of a call, in characters: three of them fit a question of a few lines.
const ABOUT: usize = 80;

/// Tools that wait for something else: the same call with the same result is what they are for.
const WAITING: [&str; 1] = ["bash_output"];

/// A call as its answer has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFingerprint {
    /// The hash of tool and arguments.
    hash: u32,
    /// A description for people, of one line.
    about: String,
    /// Whether its tool waits for something else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    waits: bool,
}

impl CallFingerprint {
    /// A call of `tool`.
    pub fn new(tool: &str, input: &Value) -> Self {
        let hash = crc32fast::hash(format!("{tool} {input}").as_bytes());
        Self { hash, about: line(tool), waits: WAITING.contains(&tool) }
    }

    /// Takes the description of the call that has started.
    pub fn describe(&mut self, action: &str) {
        self.about = line(action);
    }
}

/// The latest calls of a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Circles {
    /// The latest last, at most [`TIMES`] cycles.
    recent: VecDeque<Done>,
    /// Failed calls since one succeeded.
    failures: u32,
}

/// A call with its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Done {
    call: u32,
    result: u32,
    about: String,
}

/// A repetition that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Circle {
    /// These calls, with the same results, [`TIMES`] times.
    Cycle(Vec<String>),
    /// Nothing but failures, so many of them, the last of this call.
    Failures(u32, String),
}

impl Circles {
    /// Whether there is nothing to remember.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the calls of an answer with their results. The same one several times in it counts once: no result came between.
    pub fn add<'a>(&mut self, calls: impl IntoIterator<Item = (&'a CallFingerprint, bool, &'a [ContentBlock])>) {
        let mut before = None;
        for (made, is_error, result) in calls.into_iter().filter(|(made, ..)| !made.waits) {
            if before.replace(made.hash) != Some(made.hash) {
                self.add_one(made, is_error, result);
            }
        }
    }

    fn add_one(&mut self, made: &CallFingerprint, is_error: bool, result: &[ContentBlock]) {
        self.failures = if is_error { self.failures.saturating_add(1) } else { 0 };
        // Two results that cannot be compared are alike only if their errors are.
        let result = serde_json::to_vec(result).unwrap_or_else(|error| error.to_string().into_bytes());
        let result = crc32fast::hash(&result);
        self.recent.push_back(Done { call: made.hash, result, about: made.about.clone() });
        while self.recent.len() > TIMES * CYCLE {
            self.recent.pop_front();
        }
    }

    /// The circle that the latest calls are, the shortest that fits.
    pub fn found(&self) -> Option<Circle> {
        let cycle = (1..=CYCLE).find(|length| self.repeats(*length));
        if let Some(length) = cycle {
            let about = self.recent.iter().skip(self.recent.len() - length).map(|done| done.about.clone());
            return Some(Circle::Cycle(about.collect()));
        }
        let last = self.recent.back().filter(|_| self.failures >= FAILURES)?;
        Some(Circle::Failures(self.failures, last.about.clone()))
    }

    /// Whether the last `length` calls and their results came [`TIMES`] times in a row.
    fn repeats(&self, length: usize) -> bool {
        let same = |a: &Done, b: &Done| (a.call, a.result) == (b.call, b.result);
        let Some(from) = self.recent.len().checked_sub(length * TIMES) else { return false };
        let (former, latter) = (self.recent.iter().skip(from), self.recent.iter().skip(from + length));
        former.zip(latter).all(|(former, latter)| same(former, latter))
    }
}

impl Circle {
    /// The question to a user.
    pub fn question(&self) -> String {
        match self {
            Self::Cycle(calls) => match calls.as_slice() {
                [call] => {
                    format!("the same call has had the same result {TIMES} times in a row: `{call}`; go on?")
                }
                calls => {
                    let names: Vec<String> = calls.iter().map(|call| format!("`{call}`")).collect();
                    format!(
                        "the same {} calls have come {TIMES} times in a row: {}; go on?",
                        calls.len(),
                        names.join(", ")
                    )
                }
            },
            Self::Failures(count, last) => format!("{count} calls in a row have failed, the last one `{last}`; go on?"),
        }
    }
}

/// The first line of a text, cut.
fn line(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    if line.chars().count() <= ABOUT { line.to_owned() } else { line.chars().take(ABOUT - 1).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The circle after these calls, each `call=result`, with `!` for a failure.
    fn after(calls: &str) -> Option<String> {
        let mut circles = Circles::default();
        let mut found = None;
        for (n, word) in calls.split_whitespace().enumerate() {
            let (call, result) = word.split_once('=').unwrap();
            let made = CallFingerprint::new(call.split(':').next().unwrap(), &json!({ "path": call }));
            circles.add([(&made, result.starts_with('!'), [ContentBlock::text(result)].as_slice())]);
            if let (None, Some(circle)) = (&found, circles.found()) {
                found = Some(format!("{} {}", n + 1, circle.question()));
            }
        }
        found
    }

    fn check(calls: &str, expect: &str) {
        assert_eq!(after(calls).as_deref().unwrap_or("none"), expect, "{calls}");
    }

    #[test]
    fn the_same_call_with_the_same_result_is_a_circle_the_third_time() {
        check("ls=x ls=x", "none");
        check("ls=x ls=x ls=x", "3 the same call has had the same result 3 times in a row: `ls`; go on?");
        check("ls=x ls=y ls=x ls=y", "none");
        check("ls=x ls=x read=a ls=x ls=x", "none");
        check("read:a=x read:b=x read:c=x", "none");
        check("read=a ls=x ls=x ls=x", "4 the same call has had the same result 3 times in a row: `ls`; go on?");
    }

    #[test]
    fn a_cycle_of_two_or_three_calls_is_a_circle_the_third_time() {
        check("a=1 b=2 a=1 b=2 a=1", "none");
        check("a=1 b=2 a=1 b=2 a=1 b=2", "6 the same 2 calls have come 3 times in a row: `a`, `b`; go on?");
        let three = "9 the same 3 calls have come 3 times in a row: `a`, `b`, `c`; go on?";
        check("a=1 b=2 c=3 a=1 b=2 c=3 a=1 b=2 c=3", three);
        check("a=1 b=2 c=3 a=1 b=2 c=4 a=1 b=2 c=3", "none");
        check("a=1 b=2 a=1 b=3 a=1 b=4 a=1 b=5", "none");
        check("a=1 b=2 c=3 d=4 a=1 b=2 c=3 d=4 a=1 b=2 c=3 d=4", "none");
    }

    #[test]
    fn ten_failures_in_a_row_are_a_circle() {
        let failures = |count: usize| (0..count).map(|n| format!("c:{n}=!{n} ")).collect::<String>();
        check(&failures(9), "none");
        check(&failures(10), "10 10 calls in a row have failed, the last one `c`; go on?");
        check(&format!("{}a=fine {}", failures(9), failures(9)), "none");
    }

    #[test]
    fn waiting_for_a_command_in_the_background_is_no_circle() {
        check("bash_output=- bash_output=- bash_output=- bash_output=-", "none");
        check(
            "ls=x bash_output=- ls=x bash_output=- ls=x",
            "5 the same call has had the same result 3 times in a row: `ls`; go on?",
        );
    }

    #[test]
    fn the_same_call_several_times_in_one_answer_counts_once() {
        let (made, result) = (CallFingerprint::new("ls", &json!({})), [ContentBlock::text("x")]);
        let mut circles = Circles::default();
        let mut answer = || {
            circles.add((0..7).map(|_| (&made, false, result.as_slice())));
            circles.found().is_some()
        };
        assert_eq!([answer(), answer(), answer()], [false, false, true]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut circles = Circles::default();
        let mut made = CallFingerprint::new("bash", &json!({}));
        made.describe(&"long ".repeat(1000));
        (0..1000).for_each(|n| circles.add([(&made, false, [ContentBlock::text(n.to_string())].as_slice())]));
        assert_eq!(circles.recent.len(), TIMES * CYCLE);
        assert!(serde_json::to_string(&circles).unwrap().len() < 2000);
    }
}
