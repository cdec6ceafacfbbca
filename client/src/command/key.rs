//! `linger key`: where the keys of providers come from, and the operating system's keychain.
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

use super::print_value;
use crate::arguments::{Json, Key, Login};
use crate::connect::{Client, parse};
use crate::error::{Exit, Failure};
use crate::input::{Event, Input, Pressed, Signal, signals};
use crate::render::table::columns;
use crate::terminal::{Terminal, restore};

/// How long the keychain may take: it may ask its user for a password, and the daemon gives up before us.
const KEYCHAIN_TIMEOUT: Duration = Duration::from_secs(90);

/// The most bytes that are read of a key; the daemon takes fewer.
const MAX_SECRET: u64 = 64 << 10;

pub(super) fn run(command: Key) -> Result<Exit, Failure> {
    match command {
        Key::Set { provider, json, extra } => set(provider, json, &extra),
        Key::Rm { provider, json } => rm(provider, json),
        Key::List(args) => list(&args),
    }
}

/// `linger login`: as `linger key set`.
pub(super) fn login(args: Login) -> Result<Exit, Failure> {
    let Some(provider) = args.provider else {
        return Err(Failure::usage("which provider?").hint("`linger login anthropic`; `linger key set` does the same"));
    };
    set(provider, args.json, &args.extra)
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

/// Where a key comes from, for people.
pub(super) fn origin(info: &Info) -> String {
    let from = info.from.as_deref().unwrap_or_default();
    let elsewhere =
        info.elsewhere.as_ref().map(|at| format!("; the keychain has one for {at} alone")).unwrap_or_default();
    match info.source {
        Source::Command => format!("the command `{from}`"),
        Source::Daemon => format!("{from}, in the daemon's environment"),
        Source::Client => format!("{from}, in a client's environment"),
        Source::Keychain => "the keychain".to_owned(),
        Source::None => format!("none, and none needed{elsewhere}"),
        Source::Missing => format!("missing: {from} is not set{elsewhere}"),
        Source::Unknown => "unknown to this version of linger".to_owned(),
    }
}

pub(super) fn set(provider: String, json: bool, extra: &[String]) -> Result<Exit, Failure> {
    if !extra.is_empty() {
        let failure =
            Failure::usage("a key cannot be an argument: other processes see it, and the shell's history keeps it");
        return Err(failure.hint(format!(
            "run `linger key set {provider}` alone; it asks for the key, or reads a line of stdin. Replace this key: it was exposed"
        )));
    }
    let mut client = Client::open()?;
    client.must_be_proven()?;
    let Listed { keys, no_keychain } = client.call(&KeyList(Empty {}))?;
    // Before a key is asked for.
    let Some(info) = keys.into_iter().find(|info| info.provider == provider) else {
        return Err(Failure::usage(format!("no provider called '{provider}' takes a key"))
            .hint("`linger key list` shows those that do; `linger help providers` says how to add one"));
    };
    if let Some(why) = no_keychain {
        return Err(Failure::new(Exit::FAILED, why).hint(other_ways(&info)));
    }
    let secret = if std::io::stdin().is_terminal() { ask(&mut client, &provider)? } else { read()? };
    if secret.trim().is_empty() {
        return Err(Failure::usage("no key was given; nothing was stored"));
    }
    let stored = client.call_within(&KeySet(Set { provider, secret }), KEYCHAIN_TIMEOUT)?;
    let mut terminal = Terminal::new();
    if json {
        print_value(&stored)?;
        return Ok(Exit::GOOD);
    }
    let at = stored.at.as_deref().unwrap_or("its provider");
    terminal.say(&format!("the keychain has the key of {}; it goes to {at} and nowhere else", stored.provider))?;
    if stored.source != Source::Keychain {
        terminal.say(&format!("note: another key has priority: {}", origin(&stored)))?;
    }
    Ok(Exit::GOOD)
}

/// What can be done without a keychain.
fn other_ways(info: &Info) -> String {
    let provider = &info.provider;
    let variable = info.from.as_deref().filter(|name| !name.contains(char::is_whitespace)).unwrap_or("ITS_KEY");
    format!(
        "set {variable} where you run linger (`api_key_env` in [providers.{provider}] names another variable), or let a \
         command print the key (`api_key_command`)"
    )
}

fn rm(provider: String, json: bool) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let Removed { removed, now } =
        client.call_within(&KeyRemove(Remove { provider: provider.clone() }), KEYCHAIN_TIMEOUT)?;
    if !removed {
        return Err(Failure::new(Exit::FAILED, format!("the keychain has no key of {provider}"))
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

/// A line of stdin.
fn read() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin().take(MAX_SECRET).read_to_string(&mut text)?;
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let first = lines.next().unwrap_or_default().to_owned();
    match lines.next() {
        None => Ok(first),
        Some(_) => Err(Failure::usage("stdin has more than one line; a key is one line, and nothing was stored")),
    }
}

/// Reads a line from the terminal, which does not show it.
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

/// A line as it is typed, byte by byte.
#[derive(Default)]
struct Line(Vec<u8>);

impl Line {
    /// Takes a key; returns the line at its end.
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
    fn where_a_key_comes_from_is_said_in_a_few_words() {
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
            "missing: A is not set; the keychain has one for https://h alone"
        );
        assert_eq!(
            other_ways(&info(Source::Command, Some("pass x"), None)),
            "set ITS_KEY where you run linger (`api_key_env` in [providers.work] names another variable), or let a command \
             print the key (`api_key_command`)"
        );
    }
}
