//! `linger key`: shows where provider keys come from, and manages those in the system's keychain.
//!
//! A key is read from the terminal without being shown, or as a line of stdin; never from an argument,
//! which other processes and the shell's history see. The daemon stores it in the keychain, because the
//! daemon needs it while no client is attached.

use std::io::{IsTerminal as _, Read as _};
use std::time::Duration;

use linger_protocol::daemon::Empty;
use linger_protocol::key::{Info, Listed, Remove, Removed, Set, Source};
use linger_protocol::method::{KeyList, KeyRemove, KeySet};
use serde_json::Value;

use super::output::print_value;
use crate::arguments::{Json, Key};
use crate::connect::{Client, parse};
use crate::error::{Exit, Failure};
use crate::input::{Event, Input, Pressed, Signal, signals};
use crate::render::table::columns;
use crate::terminal::{Terminal, restore};

/// Timeout for the keychain: it may ask for a password, and the daemon gives up earlier.
const KEYCHAIN_TIMEOUT: Duration = Duration::from_secs(90);

/// Bytes read of a key, at most; the daemon accepts fewer.
const MAX_SECRET: u64 = 64 << 10;

pub(super) fn run(command: Key) -> Result<Exit, Failure> {
    match command {
        Key::Set { provider, json, extra } => set(provider, json, &extra),
        Key::Rm { provider, json } => rm(provider, json),
        Key::List(args) => list(&args),
    }
}

fn list(args: &Json) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let raw = client.call_raw(&KeyList(Empty {}))??;
    let mut listed = parse::<KeyList>(&raw)?;
    let mut terminal = Terminal::new();
    if args.json {
        let value: Value = serde_json::from_str(raw.get()).unwrap_or_default();
        for row in value.get("keys").and_then(Value::as_array).into_iter().flatten() {
            terminal.data(&row.to_string())?;
        }
    } else {
        let rank = |info: &Info| match info.source {
            Source::Missing => 2,
            Source::None => 1,
            _ => 0,
        };
        listed.keys.sort_by_key(|info| (!info.default, rank(info)));
        let row = |info: &Info| vec![info.provider.clone(), origin(info), info.at.clone().unwrap_or_default()];
        for line in columns(&listed.keys.iter().map(row).collect::<Vec<_>>()) {
            terminal.line(&line)?;
        }
    }
    if let Some(why) = &listed.no_keychain {
        terminal.say(&format!("{why}\nhint: keys from variables and commands still work"))?;
    }
    Ok(Exit::GOOD)
}

/// Describes where a key comes from.
pub(super) fn origin(info: &Info) -> String {
    let from = info.from.as_deref().unwrap_or_default();
    let elsewhere =
        info.elsewhere.as_ref().map(|at| format!("; the keychain only has one for {at}")).unwrap_or_default();
    match info.source {
        Source::Command => format!("the command `{from}`"),
        Source::Daemon => format!("{from}, in the daemon's environment"),
        Source::Client => format!("{from}, in a client's environment"),
        Source::Keychain => "the keychain".to_owned(),
        Source::None => format!("none needed{elsewhere}"),
        Source::Missing => format!("missing: {from} is not set{elsewhere}"),
        Source::Unknown => "unknown to this version of linger".to_owned(),
    }
}

/// Reads a key and stores it in the keychain.
pub(super) fn set(provider: Option<String>, json: bool, extra: &[String]) -> Result<Exit, Failure> {
    let Some(provider) = provider else {
        return Err(Failure::usage("which provider?")
            .hint("for example `linger key set anthropic`; `linger key list` lists them"));
    };
    if !extra.is_empty() {
        let failure = Failure::usage(
            "a key cannot be an argument: other processes can see it, and the shell keeps it in its history",
        );
        return Err(failure.hint(format!(
            "run `linger key set {provider}`: it asks for the key, or reads one line of stdin. Replace this key: it has been exposed"
        )));
    }
    let mut client = Client::open()?;
    client.must_be_proven("so no key is sent there")?;
    let Listed { keys, no_keychain } = client.call(&KeyList(Empty {}))?;
    // Before a key is asked for.
    let Some(info) = keys.into_iter().find(|info| info.provider == provider) else {
        return Err(Failure::usage(format!("no provider called '{provider}' needs a key"))
            .hint("`linger key list` lists those that do; `linger help providers` explains how to add one"));
    };
    if let Some(why) = no_keychain {
        return Err(Failure::new(Exit::FAILED, why).hint(other_ways(&info)));
    }
    let secret = if std::io::stdin().is_terminal() { ask(&mut client, &provider)? } else { read()? };
    if secret.trim().is_empty() {
        return Err(Failure::usage("no key given; nothing was stored"));
    }
    let stored = client.call_within(&KeySet(Set { provider, secret }), KEYCHAIN_TIMEOUT)?;
    let mut terminal = Terminal::new();
    if json {
        print_value(&stored)?;
        return Ok(Exit::GOOD);
    }
    let at = stored.at.as_deref().unwrap_or("its provider");
    terminal.say(&format!("stored the key of {} in the keychain; it is only sent to {at}", stored.provider))?;
    if stored.source != Source::Keychain {
        terminal.say(&format!("note: another key takes precedence: {}", origin(&stored)))?;
    }
    Ok(Exit::GOOD)
}

/// Explains how to provide a key without a keychain.
fn other_ways(info: &Info) -> String {
    let provider = &info.provider;
    match info.from.as_deref().filter(|name| !name.contains(char::is_whitespace)) {
        Some(variable) => format!(
            "set {variable} where you run linger, or set `api_key_command` in [providers.{provider}] to a command that \
             prints the key"
        ),
        None => format!(
            "in [providers.{provider}], set `api_key_env` to a variable that has the key, or `api_key_command` to a \
             command that prints it"
        ),
    }
}

fn rm(provider: String, json: bool) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let Removed { removed, now } =
        client.call_within(&KeyRemove(Remove { provider: provider.clone() }), KEYCHAIN_TIMEOUT)?;
    if !removed {
        return Err(Failure::new(Exit::FAILED, format!("the keychain has no key for {provider}"))
            .hint("`linger key list` shows where each key comes from"));
    }
    if json {
        print_value(&Removed { removed, now })?;
        return Ok(Exit::GOOD);
    }
    let mut terminal = Terminal::new();
    terminal.say(&format!("removed the key of {provider} from the keychain"))?;
    if let Some(now) = now.filter(|now| !matches!(now.source, Source::Missing | Source::None)) {
        terminal.say(&format!("note: another key is still used: {}", origin(&now)))?;
    }
    Ok(Exit::GOOD)
}

/// Reads the key from stdin. Fails if there is more than one line.
fn read() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin().take(MAX_SECRET).read_to_string(&mut text)?;
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let first = lines.next().unwrap_or_default().to_owned();
    match lines.next() {
        None => Ok(first),
        Some(_) => Err(Failure::usage("stdin has more than one line, a key is one line; nothing was stored")),
    }
}

/// Asks for the key on the terminal, without echo.
fn ask(client: &mut Client, provider: &str) -> Result<String, Failure> {
    signals(client.sender(), true)?;
    let mut input = Input::start(client.sender(), None)?;
    let mut terminal = Terminal::new();
    let question = format!("key of {} (not shown): ", crate::terminal::clean_line(provider));
    input.ask_keys(None);
    terminal.talk(&question)?;
    let mut line = Line::default();
    let secret = loop {
        match client.next_event(None) {
            Some(Event::Key(key)) if input.is_current(key) => {
                if let Pressed::Key(key) = key.pressed
                    && let Some(secret) = line.press(key)
                {
                    break Some(secret);
                }
            }
            // Ask again from the beginning.
            Some(Event::Signal(Signal::Continued)) => {
                line = Line::default();
                input.ask_keys(None);
                terminal.talk(&question)?;
            }
            Some(Event::Signal(_)) | None => break None,
            Some(_) => {}
        }
    };
    input.stop_keys();
    restore();
    terminal.talk("\n")?;
    secret.ok_or_else(|| Failure::new(Exit::CANCELLED, "nothing was stored"))
}

/// The line typed so far, in bytes.
#[derive(Default)]
struct Line(Vec<u8>);

impl Line {
    /// Handles a key press; returns the line on Enter.
    fn press(&mut self, key: char) -> Option<String> {
        match key {
            '\r' | '\n' => return Some(String::from_utf8_lossy(&std::mem::take(&mut self.0)).into_owned()),
            '\u{8}' | '\u{7f}' => drop(self.0.pop()),
            // Ctrl-U.
            '\u{15}' => self.0.clear(),
            // Each byte arrives as the character with its number.
            key => self.0.extend(u8::try_from(u32::from(key)).ok().filter(|_| (self.0.len() as u64) < MAX_SECRET)),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_typed_and_corrected() {
        let typed = |keys: &str| {
            keys.chars().fold((Line::default(), None), |(mut line, _), key| {
                let ended = line.press(key);
                (line, ended)
            })
        };
        assert_eq!(typed("sk-1\n").1.as_deref(), Some("sk-1"));
        assert_eq!(typed("wrong\u{15}sk-2x\u{7f}\r").1.as_deref(), Some("sk-2"));
        assert_eq!(typed("\u{7f}\u{7f}\n").1.as_deref(), Some(""));
        assert_eq!(typed("sk-3").1, None);
        assert_eq!(typed("\u{c3}\u{a4}\n").1.as_deref(), Some("ä"));
    }

    #[test]
    fn the_origin_of_a_key_is_described() {
        let info = |source, from: Option<&str>, elsewhere: Option<&str>| Info {
            provider: "work".to_owned(),
            source,
            from: from.map(str::to_owned),
            at: None,
            elsewhere: elsewhere.map(str::to_owned),
            default: false,
        };
        assert_eq!(origin(&info(Source::Command, Some("pass x"), None)), "the command `pass x`");
        assert_eq!(origin(&info(Source::Daemon, Some("A"), None)), "A, in the daemon's environment");
        assert_eq!(
            origin(&info(Source::Missing, Some("A"), Some("https://h"))),
            "missing: A is not set; the keychain only has one for https://h"
        );
        assert_eq!(
            other_ways(&info(Source::Missing, Some("A"), None)),
            "set A where you run linger, or set `api_key_command` in [providers.work] to a command that prints the key"
        );
        assert_eq!(
            other_ways(&info(Source::Command, Some("pass x"), None)),
            "in [providers.work], set `api_key_env` to a variable that has the key, or `api_key_command` to a command that \
             prints it"
        );
    }
}
