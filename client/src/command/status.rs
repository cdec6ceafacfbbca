//! `linger status`: one line about all sessions and this project's latest one, for shell prompts and status bars.
//!
//! Starts no daemon: without one nothing is running.

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

/// Sessions counted, latest first. Running and waiting ones changed recently, and a status bar asks every second.
const COUNTED: u32 = 200;

/// The fields of a format.
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
    if args.json {
        super::output::print_value(&values)?;
    } else {
        Terminal::new().line(&filled(&args.format, &values))?;
    }
    Ok(Exit::GOOD)
}

/// Fails if a format names an unknown field.
fn check(format: &str) -> Result<(), Failure> {
    for part in format.split('{').skip(1) {
        let Some((name, _)) = part.split_once('}') else {
            return Err(Failure::usage(format!("--format: missing }} after {{{part}")).hint("write {running}"));
        };
        if !FIELDS.contains(&name) {
            return Err(Failure::usage(format!("--format: unknown field {{{name}}}"))
                .hint(format!("the fields are {{{}}}", FIELDS.join("} {"))));
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

/// Fills the values into the format.
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
