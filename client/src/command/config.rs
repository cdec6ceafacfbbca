//! `linger config`: shows the configuration in force and pending changes, confirms them, and edits the file.
//!
//! The daemon reads, checks and writes the file. Deliberately absent: the meaning of a key.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Command;

use linger_protocol::config::{Configuration, Confirm, Confirmed, Get, Set, Waiting, Write};
use linger_protocol::method::{ConfigConfirm, ConfigGet, ConfigSet, ConfigWrite};
use linger_protocol::place::Places;
use serde_json::Value;

use super::output::print_value;
use crate::arguments::{Config, ConfigConfirmed, ConfigGetting, ConfigSetting, Configure, Json};
use crate::connect::{Client, parse};
use crate::error::{Exit, Failure};
use crate::input::{Event, Input, Pressed, Signal, signals};
use crate::terminal::{Capabilities, Terminal, clean_exact, restore};

/// The editor if neither `VISUAL` nor `EDITOR` is set.
const EDITOR: &str = "vi";

pub(super) fn run(args: Config) -> Result<Exit, Failure> {
    match args.command {
        None => show(&args.json),
        Some(Configure::Confirm(args)) => confirm(args),
        Some(Configure::Get(args)) => get(&args),
        Some(Configure::Path(args)) => path(&args),
        Some(Configure::Set(args)) => set(args),
        Some(Configure::Edit(args)) => edit(&args),
    }
}

/// Prints the settings in force as TOML, and pending changes as comments.
fn show(args: &Json) -> Result<Exit, Failure> {
    let mut client = Client::open_silent(None)?;
    let raw = client.call_raw(&ConfigGet(Get::default()))??;
    let mut terminal = Terminal::new();
    if args.json {
        terminal.data(raw.get())?;
        return Ok(Exit::GOOD);
    }
    let Configuration { file, settings, error, waiting, warnings, .. } = parse::<ConfigGet>(&raw)?;
    terminal.line(&format!("# {}; keys not listed have their default", file.display()))?;
    let mut lines = Vec::new();
    flatten("", &settings.unwrap_or_default(), &mut lines);
    lines.iter().try_for_each(|line| terminal.line(line))?;
    if let Some(waiting) = &waiting {
        terminal.line("# pending until you confirm it (`linger config confirm`):")?;
        let lines = waiting.changes.iter().flat_map(|change| change.lines());
        lines.into_iter().try_for_each(|line| terminal.line(&format!("#   {}", clean_exact(line))))?;
    }
    warnings.iter().try_for_each(|line| terminal.line(&format!("# warning: {}", clean_exact(line))))?;
    match error {
        Some(error) => Err(Failure::new(Exit::FAILED, error).hint("correct the file, or use `linger config edit`")),
        None => Ok(Exit::GOOD),
    }
}

/// Prints the value of a key: one line per element of a list, TOML for a table.
fn get(args: &ConfigGetting) -> Result<Exit, Failure> {
    let settings = Client::open_silent(None)?.call(&ConfigGet(Get::default()))?.settings.unwrap_or_default();
    let mut value = &settings;
    for part in parts(&args.name) {
        value = match value.get(part.as_str()) {
            Some(value) => value,
            None => {
                return Err(Failure::new(Exit::FAILED, format!("{} is not set", args.name)).hint(
                    "`linger help configuration` lists all keys and defaults, `linger config` those that are set",
                ));
            }
        };
    }
    let mut terminal = Terminal::new();
    match value {
        value if args.json => terminal.data(&value.to_string())?,
        Value::String(text) => terminal.line(text)?,
        Value::Array(list) => list.iter().try_for_each(|it| match it {
            Value::String(text) => terminal.line(text),
            other => terminal.line(&other.to_string()),
        })?,
        Value::Object(_) => {
            let mut lines = Vec::new();
            flatten("", value, &mut lines);
            lines.iter().try_for_each(|line| terminal.line(line))?;
        }
        other => terminal.line(&other.to_string())?,
    }
    Ok(Exit::GOOD)
}

/// Splits a dotted key; a quoted part may contain dots.
fn parts(name: &str) -> Vec<String> {
    let (mut parts, mut quoted) = (vec![String::new()], false);
    for c in name.chars() {
        match (c, parts.last_mut()) {
            ('"', _) => quoted = !quoted,
            ('.', _) if !quoted => parts.push(String::new()),
            (c, Some(part)) => part.push(c),
            (_, None) => {}
        }
    }
    parts
}

/// Prints the path of the file, whether or not it exists.
fn path(args: &Json) -> Result<Exit, Failure> {
    let file = Places::of_user()?.config_file();
    if args.json {
        print_value(&serde_json::json!({ "file": linger_protocol::path::text(&file), "exists": file.exists() }))?;
    } else {
        Terminal::new().line(&file.display().to_string())?;
    }
    Ok(Exit::GOOD)
}

/// One line of TOML per key. JSON strings, numbers and lists of them are valid TOML.
fn flatten(path: &str, value: &Value, lines: &mut Vec<String>) {
    match value {
        Value::Object(table) => table.iter().for_each(|(name, value)| {
            let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            let bare = !name.is_empty() && name.chars().all(is_bare);
            let name = if bare { name.clone() } else { Value::from(name.as_str()).to_string() };
            let path = if path.is_empty() { name } else { format!("{path}.{name}") };
            flatten(&path, value, lines);
        }),
        Value::Null => {}
        value => lines.push(format!("{path} = {value}")),
    }
}

fn confirm(args: ConfigConfirmed) -> Result<Exit, Failure> {
    let mut client = Client::open_silent(None)?;
    let Configuration { error, waiting, .. } = client.call(&ConfigGet(Get::default()))?;
    if let Some(error) = error {
        return Err(Failure::new(Exit::FAILED, error).hint("correct the file first"));
    }
    let Some(Waiting { digest, changes, .. }) = waiting else {
        Terminal::new().say("nothing to confirm")?;
        return done(&Confirmed::default(), args.json, false);
    };
    match args.digest {
        Some(shown) if shown != digest => {
            return Err(Failure::new(Exit::FAILED, "the configuration has changed since it was shown")
                .hint("`linger config` shows the pending changes"));
        }
        Some(_) => {}
        None if args.yes => {}
        None => {
            let title = "these changes need your confirmation:";
            if !Capabilities::detect().can_ask() {
                list(title, &changes)?;
                let scripts = format!("--digest {digest} confirms exactly these changes, --yes all pending ones");
                return Err(Failure::new(Exit::QUESTION, "there is no terminal to ask on").hint(scripts));
            }
            if !ask_about(&mut client, title, &changes, "confirm?")? {
                Terminal::new().say("nothing was confirmed")?;
                return Ok(Exit::CANCELLED);
            }
        }
    }
    let confirmed = client.call(&ConfigConfirm(Confirm { digest }))?;
    done(&confirmed, args.json, args.yes)
}

fn set(args: ConfigSetting) -> Result<Exit, Failure> {
    let ConfigSetting { name, value, json } = args;
    let confirmed = Client::open_silent(None)?.call(&ConfigSet(Set { name, value }))?;
    done(&confirmed, json, true)
}

/// Reports what was confirmed; with `shows` it lists the changes, for a user who has not just seen them.
pub(super) fn done(confirmed: &Confirmed, json: bool, shows: bool) -> Result<Exit, Failure> {
    if json {
        print_value(confirmed)?;
    } else if shows && !confirmed.confirmed.is_empty() {
        list("confirmed:", &confirmed.confirmed)?;
    } else if !confirmed.confirmed.is_empty() {
        Terminal::new().say("confirmed")?;
    }
    Ok(Exit::GOOD)
}

pub(super) fn list(title: &str, changes: &[String]) -> Result<(), Failure> {
    let lines: String = changes.iter().map(|line| format!("\n  {}", clean_exact(line))).collect();
    Ok(Terminal::new().say(&format!("{title}{lines}"))?)
}

/// Opens a copy in the editor; the daemon then checks and writes it.
fn edit(args: &Json) -> Result<Exit, Failure> {
    let mut client = Client::open_silent(None)?;
    let before = client.call(&ConfigGet(Get { text: true }))?.text;
    let before = before.ok_or_else(|| Failure::new(Exit::FAILED, "the daemon does not show the file"))?;
    // Ctrl-C belongs to the editor.
    signals(client.sender(), true)?;
    let copy = client.places.state.join(format!("config-edit-{}.toml", std::process::id()));
    let kept = |failure: Failure| failure.hint(format!("nothing was written; your text is kept in {}", copy.display()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&copy)?;
    file.write_all(before.text.as_bytes())?;
    drop(file);
    loop {
        let edited = run_editor(&copy);
        let text = fs::read_to_string(&copy)?;
        if text == before.text {
            fs::remove_file(&copy)?;
            edited?;
            Terminal::new().say("no changes")?;
            return done(&Confirmed::default(), args.json, false);
        }
        edited.map_err(kept)?;
        let mut client = Client::open_silent(None)?;
        match write(&mut client, text, &before.digest) {
            Ok(Some(confirmed)) => {
                fs::remove_file(&copy)?;
                return done(&confirmed, args.json, false);
            }
            Ok(None) => return Err(kept(Failure::new(Exit::CANCELLED, "not confirmed"))),
            Err(failure) if !failure.is_no_answer() && Capabilities::detect().can_ask() => {
                Terminal::new().complain(failure)?;
                if !ask(&mut client, "edit it again? y/n ")? {
                    return Err(kept(Failure::new(Exit::CANCELLED, "cancelled")));
                }
            }
            Err(failure) => return Err(kept(failure)),
        }
    }
}

/// Writes the text after showing what it grants: another process may have changed the copy. `None` if not confirmed.
fn write(client: &mut Client, text: String, digest: &str) -> Result<Option<Confirmed>, Failure> {
    let write = |text, dry_run| ConfigWrite(Write { text, digest: digest.to_owned(), dry_run });
    let grants = client.call(&write(text.clone(), true))?.confirmed;
    if !grants.is_empty() {
        list("this grants more:", &grants)?;
        if Capabilities::detect().can_ask() && !ask(client, "write it? y/n ")? {
            return Ok(None);
        }
    }
    client.call(&write(text, false)).map(Some)
}

#[allow(clippy::disallowed_methods, reason = "the user's editor, in the user's directory and environment")]
fn run_editor(file: &Path) -> Result<(), Failure> {
    let named = |name| std::env::var(name).ok().filter(|editor| !editor.trim().is_empty());
    let editor = named("VISUAL").or_else(|| named("EDITOR")).unwrap_or_else(|| EDITOR.to_owned());
    let status = Command::new("sh").arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(file).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        other => {
            let why = other.map_or_else(|error| error.to_string(), |status| status.to_string());
            Err(Failure::new(Exit::FAILED, format!("the editor `{editor}` failed: {why}"))
                .hint("nothing was written; `EDITOR=nano linger config edit` uses another"))
        }
    }
}

/// Further lines of the changes that are shown at once; longer texts are shown by `v`.
const SHOWN_AT_ONCE: usize = 20;

/// Shows changes and asks about them. Of long texts that stand with a change only the number of lines is shown at first; nothing is
/// confirmed before they were shown too.
pub(super) fn ask_about(client: &mut Client, title: &str, changes: &[String], question: &str) -> Result<bool, Failure> {
    let more: usize = changes.iter().map(|change| change.lines().count().saturating_sub(1)).sum();
    if more <= SHOWN_AT_ONCE {
        list(title, changes)?;
        return ask(client, &format!("{question} y/n "));
    }
    let short = |change: &String| {
        let (mut lines, count) = (change.lines(), change.lines().count());
        let first = lines.next().unwrap_or_default().to_owned();
        if count > 1 { format!("{first}\n    | … {} lines", count - 1) } else { first }
    };
    list(title, &changes.iter().map(short).collect::<Vec<_>>())?;
    let mut asker = Asker::open(client)?;
    let mut is_shown = false;
    loop {
        let keys = if is_shown { format!("{question} y/n ") } else { format!("{question} v shows the texts; y/n ") };
        match asker.ask(client, &keys, "yYnNvV")? {
            Some('v') => {
                list(title, changes)?;
                is_shown = true;
            }
            Some('y') if !is_shown => Terminal::new().say("press v to see the texts first")?,
            pressed => return Ok(pressed == Some('y')),
        }
    }
}

/// Asks for `y` or `n`; true for `y`.
pub(super) fn ask(client: &mut Client, question: &str) -> Result<bool, Failure> {
    Ok(Asker::open(client)?.ask(client, question, "yYnN")? == Some('y'))
}

/// Asks questions that one key answers.
pub(super) struct Asker(Input);

impl Asker {
    /// Starts reading keys and signals.
    pub(super) fn open(client: &Client) -> Result<Self, Failure> {
        signals(client.sender(), true)?;
        Input::start(client.sender(), None).map(Self)
    }

    /// Asks for one of `keys` (letters in both cases). Returns it in lower case; none if a signal ended the question.
    pub(super) fn ask(
        &mut self,
        client: &mut Client,
        question: &str,
        keys: &'static str,
    ) -> Result<Option<char>, Failure> {
        let mut terminal = Terminal::new();
        self.0.ask_keys(Some(keys));
        terminal.talk(question)?;
        let pressed = loop {
            match client.next_event(None) {
                Some(Event::Key(key)) if self.0.is_current(key) => match key.pressed {
                    Pressed::Key(key) if keys.contains(key) => break Some(key.to_ascii_lowercase()),
                    _ => {}
                },
                Some(Event::Signal(Signal::Continued)) => {
                    self.0.ask_keys(Some(keys));
                    terminal.talk(question)?;
                }
                Some(Event::Signal(_)) | None => break None,
                Some(_) => {}
            }
        };
        self.0.stop_keys();
        restore();
        terminal.talk(&format!("{}\n", pressed.unwrap_or('n')))?;
        Ok(pressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dotted_key_has_parts() {
        assert_eq!(parts("mode"), ["mode"]);
        assert_eq!(parts("models.\"openai/gpt-5.1\".window"), ["models", "openai/gpt-5.1", "window"]);
    }

    #[test]
    fn settings_are_printed_as_toml() {
        let settings = serde_json::json!({
            "mode": "ask", "max_steps": 3, "permissions": { "allow": ["bash(echo \"x\")"], "deny": [] },
            "workspaces": { "/a b": { "allow": ["ls"] } }, "tools": {},
        });
        let mut lines = Vec::new();
        flatten("", &settings, &mut lines);
        assert_eq!(
            lines,
            [
                "mode = \"ask\"",
                "max_steps = 3",
                "permissions.allow = [\"bash(echo \\\"x\\\")\"]",
                "permissions.deny = []",
                "workspaces.\"/a b\".allow = [\"ls\"]",
            ]
        );
    }
}
