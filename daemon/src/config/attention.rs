//! `[attention]`: how people are told that a session needs an answer or has ended. Parsed here; sessions decide when.

use linger_protocol::age;
use linger_protocol::attention::Signal;
use serde::Deserialize;

/// The most words of a command, and the longest one in bytes: more belongs into a script.
const MAX_WORDS: usize = 64;
const MAX_WORD: usize = 4 << 10;

/// The default time until an open question is signalled again, in milliseconds.
const AGAIN_AFTER_MS: u64 = 30 * 60 * 1000;

/// The shortest time until then, in milliseconds: a typing error must not ring every second.
const MIN_AGAIN_MS: u64 = 60 * 1000;

/// `[attention]` as it is written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
pub(super) struct AttentionWritten {
    command: Vec<String>,
    desktop: bool,
    terminal: Option<Vec<String>>,
    again_after: Option<String>,
    turn_end: Option<bool>,
}

/// How people are told that a session needs them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attention {
    /// The user's program and its first arguments; none if it is empty.
    pub command: Vec<String>,
    /// Whether `notify-send` runs.
    pub desktop: bool,
    /// Signals that attached terminals give.
    pub terminal: Vec<Signal>,
    /// The time until an open question is signalled once more, in milliseconds; never if absent.
    pub again_after_ms: Option<u64>,
    /// Whether the end of a turn is signalled too.
    pub turn_end: bool,
}

impl Attention {
    /// Whether a program runs while no terminal is attached.
    pub fn runs_something(&self) -> bool {
        self.desktop || !self.command.is_empty()
    }
}

/// Checks the table; fails with the key and what is wrong with it.
pub(super) fn check(written: AttentionWritten) -> Result<Attention, (&'static str, String)> {
    let AttentionWritten { command, desktop, terminal, again_after, turn_end } = written;
    if command.len() > MAX_WORDS || command.iter().any(|word| word.len() > MAX_WORD || word.contains('\0')) {
        let most = format!("may have {MAX_WORDS} words of {MAX_WORD} bytes; put more into a script");
        return Err(("command", most));
    }
    if command.first().is_some_and(|program| program.trim().is_empty()) {
        return Err((
            "command",
            "begins with the name of a program, such as [\"notify-send\", \"-u\", \"low\"]".to_owned(),
        ));
    }
    let signal = |name: &String| match name.as_str() {
        "bell" => Ok(Signal::Bell),
        "osc9" => Ok(Signal::Osc9),
        "osc777" => Ok(Signal::Osc777),
        other => Err(("terminal", format!("unknown signal '{}': use bell, osc9 and osc777", other.escape_default()))),
    };
    let terminal = match &terminal {
        Some(names) => names.iter().map(signal).collect::<Result<Vec<_>, _>>()?,
        None => vec![Signal::Bell],
    };
    let again_after_ms = match again_after.as_deref() {
        None => Some(AGAIN_AFTER_MS),
        Some("never") => None,
        Some(text) => match age::parse(text) {
            Ok(ms) if ms >= MIN_AGAIN_MS => Some(ms),
            Ok(_) => return Err(("again_after", "must be at least 1m, or \"never\"".to_owned())),
            Err(error) => return Err(("again_after", format!("{error}, or \"never\""))),
        },
    };
    Ok(Attention { command, desktop, terminal, again_after_ms, turn_end: turn_end.unwrap_or(true) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Attention, (&'static str, String)> {
        check(toml::from_str(text).unwrap())
    }

    #[test]
    fn it_is_a_bell_unless_something_else_is_written() {
        let none = parse("").unwrap();
        assert_eq!((none.runs_something(), none.terminal.as_slice()), (false, [Signal::Bell].as_slice()));
        assert_eq!((none.again_after_ms, none.turn_end), (Some(1_800_000), true));
        let all = parse("command = ['x', 'y']\nterminal = ['osc9', 'osc777']\nagain_after = 'never'\nturn_end = false");
        let all = all.unwrap();
        assert!(all.runs_something() && !all.turn_end);
        assert_eq!((all.terminal, all.again_after_ms), (vec![Signal::Osc9, Signal::Osc777], None));
        assert_eq!(parse("terminal = []").unwrap().terminal, []);
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_key() {
        for (text, key) in [
            ("command = ['', 'x']", "command"),
            ("command = [\"a\\u0000b\"]", "command"),
            ("terminal = ['siren']", "terminal"),
            ("again_after = '5s'", "again_after"),
            ("again_after = 'soon'", "again_after"),
        ] {
            assert_eq!(parse(text).map_err(|(key, _)| key), Err(key), "{text}");
        }
    }
}
