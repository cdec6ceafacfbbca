//! `linger status`: one line about all sessions and about this project's, for prompts and status bars.
//!
//! It starts no daemon: without one nothing runs, and the line says so.

use linger_protocol::method::SessionList;
use linger_protocol::place::Places;
use linger_protocol::session::{Info, List, State};
use serde_json::{Map, Value, json};

use super::find::latest;
use crate::arguments::Status;
use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::render::money;
use crate::terminal::{Terminal, clean_line};

/// Sessions that are counted, the latest first. What runs or waits has changed lately, and a status bar asks every second.
const COUNTED: u32 = 200;

/// What a format can name.
const FIELDS: [&str; 9] = ["running", "waiting", "queued", "session", "name", "model", "mode", "cost", "context"];

pub(super) fn run(args: &Status) -> Result<Exit, Failure> {
    check(&args.format)?;
    let values = match Client::open_running(&Places::of_user()?)? {
        None => values(&[], None),
        Some(mut client) => {
            let rows = client.call(&SessionList(List { limit: Some(COUNTED), ..List::default() }))?;
            let own = latest(&mut client, None, true)?;
            values(&rows, own.as_ref())
        }
    };
    match args.json {
        true => super::output::print_value(&values)?,
        false => Terminal::new().line(&filled(&args.format, &values))?,
    }
    Ok(Exit::GOOD)
}

/// Fails if a format names something else in braces.
fn check(format: &str) -> Result<(), Failure> {
    for part in format.split('{').skip(1) {
        let Some((name, _)) = part.split_once('}') else {
            return Err(Failure::usage(format!("--format has no end of {{{part}")).hint("write {running}"));
        };
        if !FIELDS.contains(&name) {
            return Err(Failure::usage(format!("--format has no {{{name}}}"))
                .hint(format!("it has {{{}}}", FIELDS.join("} {"))));
        }
    }
    Ok(())
}

fn values(rows: &[Info], own: Option<&Info>) -> Map<String, Value> {
    let count = |state: State| rows.iter().filter(|row| row.state == state).count();
    let of = |field: fn(&Info) -> String| json!(own.map(field).unwrap_or_default());
    let values = [
        json!(count(State::Running)),
        json!(count(State::Waiting)),
        json!(rows.iter().map(|row| u64::from(row.queued)).sum::<u64>()),
        of(|info| info.session.to_string()),
        of(|info| info.name.clone().unwrap_or_default()),
        of(|info| info.model.clone()),
        of(|info| info.mode.to_string()),
        of(|info| money::cost(&info.usage)),
        of(|info| money::fill(info.context_tokens, info.context_window).unwrap_or_default()),
    ];
    FIELDS.iter().map(|name| (*name).to_owned()).zip(values).collect()
}

/// The format with its values.
fn filled(format: &str, values: &Map<String, Value>) -> String {
    let mut line = String::new();
    let mut parts = format.split('{');
    line.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (name, rest) = part.split_once('}').unwrap_or((part, ""));
        match values.get(name) {
            Some(Value::String(text)) => line.push_str(text),
            Some(value) => line.push_str(&value.to_string()),
            None => {}
        }
        line.push_str(rest);
    }
    clean_line(&line).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_filled_in_and_unknown_names_are_refused() {
        let values = values(&[], None);
        assert_eq!(filled("{running}+{waiting} [{model}] {cost}", &values), "0+0 [] ");
        assert_eq!(filled("no fields", &values), "no fields");
        assert!(check("{running} {cost}").is_ok() && check("plain").is_ok() && check("{running").is_err());
        assert!(check("{runs}").unwrap_err().hint.unwrap().contains("{running} {waiting}"));
    }
}
