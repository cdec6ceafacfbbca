//! The thinking options of each generation of Claude, by model name. A table, and pure.
//!
//! Source: platform.claude.com on thinking and effort and in the guides to each new model, and the notes of vercel/ai's
//! `@ai-sdk/anthropic` 4.0.60, as of autumn 2026. For models that the table lacks there is the flag `thinking_budget`.

/// The thinking options of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claude {
    /// How to enable thinking.
    pub(super) form: Form,
    /// How to disable thinking.
    pub(super) off: Off,
    /// Whether it has the effort between `high` and `max`.
    pub(super) xhigh: bool,
    /// Whether `tool_choice` can force a call.
    pub(super) forced: bool,
}

/// How thinking is enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Not supported: the field is an error.
    Nothing,
    /// By a token budget.
    Budget,
    /// By an effort; the model decides how much.
    Adaptive,
}

/// How thinking is disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Off {
    Disabled,
    /// Disabled, except for text between calls.
    BetweenTools,
    /// Not possible; the least effort thinks little.
    Never,
}

/// Models of a family (any, if empty) from a version on; the first match counts.
struct ClaudeRow(&'static str, (u8, u8), Claude);

const NOTHING: Claude = Claude { form: Form::Nothing, off: Off::Disabled, xhigh: false, forced: true };
const BUDGET: Claude = Claude { form: Form::Budget, ..NOTHING };
const ADAPTIVE: Claude = Claude { form: Form::Adaptive, ..NOTHING };
const CURRENT: Claude = Claude { xhigh: true, ..ADAPTIVE };
const ALWAYS: Claude = Claude { off: Off::Never, ..CURRENT };
const UNFORCED: Claude = Claude { forced: false, ..ALWAYS };

const ROWS: &[ClaudeRow] = &[
    ClaudeRow("opus", (5, 5), UNFORCED),
    ClaudeRow("fable", (5, 1), UNFORCED),
    ClaudeRow("mythos", (5, 1), UNFORCED),
    ClaudeRow("fable", (0, 0), ALWAYS),
    ClaudeRow("mythos", (0, 0), ALWAYS),
    ClaudeRow("sonnet", (5, 5), Claude { off: Off::BetweenTools, ..CURRENT }),
    ClaudeRow("", (4, 7), CURRENT),
    ClaudeRow("", (4, 6), ADAPTIVE),
    ClaudeRow("", (3, 7), BUDGET),
    ClaudeRow("", (0, 0), NOTHING),
];

/// The options of `model`, in any provider's spelling; the format's defaults if it is not a Claude.
pub(super) fn named(model: &str) -> Claude {
    let Some((_, name)) = model.rsplit_once("claude") else { return CURRENT };
    let parts: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty()).collect();
    // A part of a version is shorter than a date.
    let number = |part: &&str| part.parse::<u8>().ok().filter(|_| part.len() < 3);
    let version = parts.iter().enumerate().find_map(|(n, part)| Some((n, number(part)?)));
    // Names without a version mean the latest.
    let version = version.map_or((u8::MAX, 0), |(n, major)| (major, parts.get(n + 1).and_then(number).unwrap_or(0)));
    let fits =
        |ClaudeRow(family, from, _): &&ClaudeRow| (family.is_empty() || parts.contains(family)) && version >= *from;
    ROWS.iter().find(fits).map_or(CURRENT, |ClaudeRow(.., claude)| *claude)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_known_by_its_generation_however_it_is_written() {
        fn check(expect: Claude, models: &[&str]) {
            for model in models {
                assert_eq!(named(model), expect, "{model}");
            }
        }
        check(NOTHING, &["claude-2.1", "claude-instant-1.2", "claude-3-opus-20240229", "claude-3-5-sonnet-20241022"]);
        check(NOTHING, &["claude-3-haiku@20240307", "anthropic/claude-3.5-haiku", "claude-3-5-haiku-latest"]);
        check(BUDGET, &["claude-3-7-sonnet-20250219", "claude-3-7-sonnet-latest", "anthropic/claude-3.7-sonnet"]);
        check(BUDGET, &["claude-opus-4-20250514", "claude-sonnet-4-0", "claude-opus-4-1", "claude-opus-4-1-20250805"]);
        check(BUDGET, &["claude-sonnet-4-5", "claude-sonnet-4-5-20250929", "claude-haiku-4-5", "claude-opus-4-5"]);
        check(BUDGET, &["claude-opus-4@20250514", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"]);
        check(ADAPTIVE, &["claude-opus-4-6", "claude-sonnet-4-6", "anthropic.claude-opus-4-6-v1"]);
        check(CURRENT, &["claude-opus-4-7", "claude-opus-4-8", "claude-sonnet-5", "claude-opus-5", "claude-haiku-5-5"]);
        check(CURRENT, &["m", "deepseek-flash", "glm-5", "claude-code-proxy", "claude-sonnet-5-20260101"]);
        check(ALWAYS, &["claude-fable-5", "claude-mythos-5", "anthropic/claude-fable-5:batch"]);
        check(UNFORCED, &["claude-opus-5-5", "claude-fable-5-1", "claude-fable-5-2", "claude-opus-latest"]);
        check(Claude { off: Off::BetweenTools, ..CURRENT }, &["claude-sonnet-5-5", "claude-sonnet-6"]);
    }
}
