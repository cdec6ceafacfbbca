//! `linger models`: lists models with window and price, and what is missing for those that cannot be used.

use linger_protocol::daemon::{Model, Models};
use linger_protocol::method::ModelList;
use serde_json::value::RawValue;

use crate::arguments;
use crate::connect::{Client, parse};
use crate::error::{Exit, Failure};
use crate::render::money;
use crate::render::near::nearest;
use crate::render::table::columns;
use crate::terminal::{Terminal, clean_line};

/// Similar names to suggest, at most.
const NEAR: usize = 3;

pub(super) fn run(args: &arguments::Models) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let raw = client.call_raw(&ModelList(Models { all: true, ..Models::default() }))??;
    let models: Vec<Model> = parse::<ModelList>(&raw)?;
    let texts: Vec<Box<RawValue>> = serde_json::from_str(raw.get())
        .map_err(|error| Failure::new(Exit::FAILED, format!("the daemon's answer is not a list: {error}")))?;
    let mut terminal = Terminal::new();
    let pattern = args.pattern.as_deref();
    for model in models.iter().filter(|model| model.problem.is_some() && concerns(pattern, &model.model)) {
        terminal.say(&problem(model))?;
    }
    let mut found: Vec<(&Model, &RawValue)> = models.iter().zip(texts.iter().map(AsRef::as_ref)).collect();
    found.retain(|(model, _)| pattern.is_none_or(|pattern| matches(pattern, &model.model)));
    if let (Some(pattern), true) = (pattern, found.is_empty()) {
        return Err(none(pattern, &models));
    }
    if args.json {
        found.iter().try_for_each(|(_, text)| terminal.data(text.get()))?;
        return Ok(Exit::GOOD);
    }
    found.sort_by_key(|(model, _)| (!model.default, !model.ready));
    let rows: Vec<_> = found.iter().map(|(model, _)| row(model)).collect();
    for line in columns(&rows) {
        terminal.line(&line)?;
    }
    Ok(Exit::GOOD)
}

fn row(model: &Model) -> Vec<String> {
    let state = match (&model.missing, &model.problem, model.default) {
        // Either a variable or configuration key, or a sentence.
        (Some(missing), ..) if missing.contains(' ') => missing.clone(),
        (Some(missing), ..) => format!("needs {missing}"),
        (None, Some(_), _) => "not listed".to_owned(),
        (None, None, true) => "default".to_owned(),
        (None, None, false) => String::new(),
    };
    let window = model.context_window.map_or_else(|| "unknown".to_owned(), money::tokens);
    let price = match (model.input_price, model.output_price) {
        (None, None) => "price unknown".to_owned(),
        (input, output) => {
            let above = model.dearer_above.map(|above| format!(", more above {}", money::tokens(above)));
            format!("{} in, {} out{}", money::price(input), money::price(output), above.unwrap_or_default())
        }
    };
    vec![model.model.clone(), format!("window {window}"), price, state]
}

/// Whether a pattern can match models of this row's provider.
fn concerns(pattern: Option<&str>, row: &str) -> bool {
    let provider = row.split('/').next().unwrap_or_default().to_lowercase();
    match pattern.and_then(|pattern| pattern.split_once('/')) {
        Some((wanted, _)) => matches(wanted, &provider),
        None => true,
    }
}

/// The warning about a provider that did not list its models.
fn problem(model: &Model) -> String {
    let provider = model.model.split('/').next().unwrap_or_default();
    let why = model.problem.as_deref().unwrap_or_default();
    format!("warning: {} does not list its models: {}", clean_line(provider), clean_line(why))
}

fn none(pattern: &str, models: &[Model]) -> Failure {
    let names = models.iter().map(|model| model.model.as_str());
    let near = nearest(pattern, names, NEAR);
    let failure = Failure::usage(format!("no model is called '{}'", pattern.escape_default()));
    if near.is_empty() {
        return failure.hint("`linger models` lists all available models");
    }
    failure.hint(format!("did you mean {}?", near.join(" or ")))
}

/// Whether `name` contains `pattern` or, with `*` or `?`, matches it as a whole; ignores case. A pattern without a slash may also
/// match the name without its provider.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.to_lowercase(), name.to_lowercase());
    if !pattern.contains(['*', '?']) {
        return name.contains(&pattern);
    }
    let model = name.split_once('/').map_or("", |(_, model)| model);
    is_glob(&pattern, &name) || is_glob(&pattern, model)
}

/// `*` stands for any characters, `?` for one.
fn is_glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    // Which prefixes of the text the pattern so far matches.
    let mut fits: Vec<bool> = (0..=text.len()).map(|length| length == 0).collect();
    for sign in pattern {
        let mut next = vec![false; fits.len()];
        let mut before = false;
        for (at, fit) in fits.iter().enumerate() {
            let here = match sign {
                '*' => before || *fit,
                _ => at > 0 && fits.get(at - 1) == Some(&true) && (sign == '?' || text.get(at - 1) == Some(&sign)),
            };
            before = here;
            if let Some(slot) = next.get_mut(at) {
                *slot = here;
            }
        }
        fits = next;
    }
    fits.last() == Some(&true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_with_a_provider_concerns_that_one_alone() {
        let of = |pattern| ["openai/MODEL", "openrouter/MODEL", "Work/MODEL"].map(|row| concerns(pattern, row));
        assert_eq!(of(None), [true, true, true]);
        assert_eq!(of(Some("qwen*")), [true, true, true]);
        assert_eq!(of(Some("openai/*")), [true, false, false]);
        assert_eq!(of(Some("open*/x")), [true, true, false]);
        assert_eq!(of(Some("work/x")), [false, false, true]);
    }

    #[test]
    fn a_pattern_is_a_part_or_a_glob() {
        for (pattern, name, expect) in [
            ("sonnet", "anthropic/claude-sonnet-5", true),
            ("SONNET", "anthropic/claude-sonnet-5", true),
            ("anthropic/", "anthropic/claude-sonnet-5", true),
            ("opus", "anthropic/claude-sonnet-5", false),
            ("claude-*", "anthropic/claude-sonnet-5", true),
            ("*-5", "anthropic/claude-sonnet-5", true),
            ("anthropic/*5", "anthropic/claude-sonnet-5", true),
            ("claude", "openrouter/anthropic/claude", true),
            ("gpt-?", "openai/gpt-5", true),
            ("gpt-?", "openai/gpt-5.5", false),
            ("*", "a/b", true),
            ("**b*", "a/b", true),
            ("b?", "a/b", false),
            ("", "a/b", true),
        ] {
            assert_eq!(matches(pattern, name), expect, "{pattern} {name}");
        }
    }

    #[test]
    fn unknown_values_are_shown_as_unknown() {
        let model = Model { model: "a/b".to_owned(), ready: true, ..Model::default() };
        assert_eq!(row(&model), ["a/b", "window unknown", "price unknown", ""]);
        let model = Model {
            context_window: Some(272_000),
            input_price: Some(1.25),
            dearer_above: Some(200_000),
            default: true,
            ..model
        };
        assert_eq!(row(&model), ["a/b", "window 272k", "$1.25 in, unknown out, more above 200k", "default"]);
    }
}
