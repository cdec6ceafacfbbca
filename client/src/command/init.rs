//! `linger init`: writes a first, commented configuration. Asks for provider, key, model and mode, or takes them as options, asks the
//! model once ([`super::init_model`]), and says what it did. With a kind and a name it writes a first Markdown file
//! ([`super::init_file`]).
//!
//! The daemon checks and writes the text; an existing configuration stays as it is.

use linger_protocol::config::{Get, Write};
use linger_protocol::daemon::{Model, Models};
use linger_protocol::method::{ConfigGet, ConfigWrite, ModelList};
use linger_protocol::permission::Mode;
use serde_json::{Value, json};

use super::init_model::{self, Trial, ask_line};
use super::key;
use super::output::print_value;
use crate::arguments::Init;
use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::terminal::{Capabilities, Terminal, clean, clean_line};

/// Providers offered first, in this order, if none is ready.
const COMMON: [&str; 5] = ["anthropic", "openai", "gemini", "openrouter", "ollama"];

/// Providers that are listed, at most.
const SHOWN: usize = 8;

pub(super) fn run(args: Init) -> Result<Exit, Failure> {
    if let (Some(kind), Some(name)) = (args.kind, &args.name) {
        return super::init_file::run(kind, name, args.here, args.json);
    }
    let mut client = Client::open_silent(None)?;
    let before = client.call(&ConfigGet(Get { text: true }))?;
    let text = before.text.ok_or_else(|| Failure::new(Exit::FAILED, "the daemon does not show the configuration"))?;
    let file = before.file.display().to_string();
    if !text.text.trim().is_empty() {
        return Err(Failure::usage(format!("{file} already exists"))
            .hint("`linger config edit` changes it, `linger config set KEY VALUE` one key of it"));
    }
    let asks = Capabilities::detect().can_ask();
    let rows = client.call(&ModelList(Models::default()))?;
    let named = args.model.clone().or_else(|| args.provider.clone());
    let model = match named {
        Some(named) => named,
        None if asks => choose(&rows)?,
        None => {
            return Err(Failure::usage("there is no terminal to ask on: give a provider or a model")
                .hint("`linger init --provider anthropic`, or `-m PROVIDER/MODEL`; `linger models` lists them"));
        }
    };
    let provider = model.split('/').next().unwrap_or_default().to_owned();
    let Some(row) = rows.iter().find(|row| row.model.split('/').next() == Some(provider.as_str())) else {
        return Err(Failure::usage(format!("unknown provider {provider}")).hint("`linger models` lists them"));
    };
    // Only a key that is missing is asked for: a server that does not run needs none.
    if args.key || (asks && lacks(row).is_some()) {
        let stored = key::set(Some(provider.clone()), false, &[]);
        match (stored, args.key) {
            (Ok(_), _) => {}
            (Err(failure), true) => return Err(failure),
            // The configuration is useful without a key.
            (Err(failure), false) => Terminal::new().complain(failure)?,
        }
    } else if !row.ready {
        let note = match lacks(row) {
            Some(variable) => {
                format!("{provider} needs {variable}: set it where you run linger, or run `linger key set {provider}`")
            }
            None => format!("{provider} is not ready: {}", row.missing.as_deref().unwrap_or("its key is missing")),
        };
        Terminal::new().say(&format!("note: {}", clean_line(&note)))?;
    }
    let model = if model.contains('/') {
        model
    } else {
        // The key may have come only now.
        let usual = Some(row.model.as_str()).filter(|name| !init_model::is_placeholder(name));
        init_model::pick(&mut Client::open_silent(None)?, &provider, usual, asks)?
    };
    let mode = match args.mode {
        Some(mode) => mode,
        None if asks => ask_mode()?,
        None => Mode::Ask,
    };
    // Asking for the key may have taken a while.
    let mut client = Client::open_silent(None)?;
    client.call(&ConfigWrite(Write { text: written(&model, mode), digest: text.digest, dry_run: false }))?;
    let mut terminal = Terminal::new();
    terminal.say(&format!("wrote {}: model {}, mode {mode}", clean_line(&file), clean_line(&model)))?;
    let trial = init_model::try_out(&mut client, &model)?;
    if args.json {
        let (answered_ms, problem) = match &trial {
            Trial::Answered(after) => (Some(u64::try_from(after.as_millis()).unwrap_or(u64::MAX)), None),
            Trial::Failed(why) => (None, Some(why)),
        };
        let mode = mode.to_string();
        let row = json!({ "file": file, "model": model, "mode": mode, "answered_ms": answered_ms, "problem": problem });
        print_value(&row)?;
    }
    let model = clean_line(&model);
    match trial {
        Trial::Answered(after) => {
            let seconds = after.as_secs_f64();
            terminal.say(&format!("{model} answered in {seconds:.1} s; `linger` starts a session here"))?;
        }
        Trial::Failed(why) => {
            terminal.say(&format!("warning: {model} was asked and does not answer: {}", clean(&why)))?;
            terminal.say("hint: `linger doctor --probe` says what is wrong; `linger config edit` changes the file")?;
        }
    }
    Ok(Exit::GOOD)
}

/// The text of the configuration. JSON strings are valid TOML.
fn written(model: &str, mode: Mode) -> String {
    format!(
        r#"# linger's configuration. Edit it with `linger config edit`: that opens this
# file, checks it, and puts your changes in force. After another editor,
# changes that grant more wait for `linger config confirm`.
# `linger help configuration` explains every key.

# The model of new sessions: PROVIDER/MODEL, as `linger models` lists them.
model = {}

# What runs without asking: ask (only reading), edit (also changes to files in
# the workspace), auto (everything), plan (changes are refused).
mode = {}

# Rules come before the mode: deny, then ask, then allow. `linger help rules`.
# [permissions]
# allow = ["bash(cargo test:*)", "bash(git status)"]
# ask = ["bash(git push:*)"]
# deny = ["read(**/.env)"]

# MCP servers give the model more tools: see `linger help servers`.
# [mcp.files]
# command = "npx"
# args = ["-y", "@modelcontextprotocol/server-filesystem", "."]

# A server of your own that speaks a known format: `linger help providers`.
# [providers.work]
# kind = "openai"
# base_url = "http://127.0.0.1:4000/v1"
# api_key_env = "WORK_KEY"
"#,
        Value::from(model),
        Value::from(mode.to_string()),
    )
}

/// Asks for a provider: by number, by name, or Enter for the first.
fn choose(rows: &[Model]) -> Result<String, Failure> {
    let all = rows;
    let mut rows: Vec<&Model> = all.iter().filter(|row| row.kind != "demo").collect();
    let provider = |row: &Model| row.model.split('/').next().unwrap_or_default().to_owned();
    let rank = |row: &Model| COMMON.iter().position(|name| *name == provider(row)).unwrap_or(COMMON.len());
    rows.sort_by_key(|row| (!row.ready, rank(row)));
    let mut terminal = Terminal::new();
    for (n, row) in rows.iter().take(SHOWN).enumerate() {
        terminal.say(&format!("{:>3}  {}  {}", n + 1, clean_line(&row.model), clean_line(&state(row))))?;
    }
    loop {
        let line = ask_line("provider, or PROVIDER/MODEL [1]: ")?;
        let chosen = match line.parse::<usize>() {
            _ if line.is_empty() => rows.first().map(|row| provider(row)),
            Ok(number) => number.checked_sub(1).and_then(|at| rows.get(at)).map(|row| provider(row)),
            Err(_) => Some(line.clone()),
        };
        let is_known = |named: &String| all.iter().any(|row| named.split('/').next() == row.model.split('/').next());
        match chosen.filter(is_known) {
            Some(chosen) => return Ok(chosen),
            None => {
                let failure = Failure::usage(format!("no provider is called {}", line.escape_default()));
                terminal.complain(failure.hint("`linger models` lists all"))?;
            }
        }
    }
}

/// The state of a provider in a few words.
fn state(row: &Model) -> String {
    match (lacks(row), &row.missing) {
        _ if row.ready => "ready".to_owned(),
        (Some(variable), _) => format!("needs {variable}"),
        (None, Some(why)) => why.clone(),
        (None, None) => "not ready".to_owned(),
    }
}

/// The variable that a provider needs; `None` if it lacks something else, which its row describes.
fn lacks(row: &Model) -> Option<&str> {
    row.missing.as_deref().filter(|missing| !row.ready && !missing.contains(' '))
}

fn ask_mode() -> Result<Mode, Failure> {
    loop {
        let line = ask_line("mode: ask, edit, auto or plan [ask]: ")?;
        match line.parse() {
            _ if line.is_empty() => return Ok(Mode::Ask),
            Ok(mode) => return Ok(mode),
            Err(_) => Terminal::new().complain(Failure::usage(format!("'{}' is not a mode", line.escape_default())))?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_needs_a_variable_or_its_row_says_why() {
        let check = |missing: Option<&str>, ready: bool, expect: &str| {
            let row = Model { missing: missing.map(str::to_owned), ready, ..Model::default() };
            assert_eq!(state(&row), expect);
        };
        check(None, true, "ready");
        check(Some("X_API_KEY"), false, "needs X_API_KEY");
        check(Some("no server listens at 127.0.0.1:11434"), false, "no server listens at 127.0.0.1:11434");
        check(None, false, "not ready");
    }

    #[test]
    fn what_is_written_is_toml_and_so_are_its_comments() {
        let text = written("anthropic/claude \"x\"", Mode::Edit);
        let table: toml::Table = text.parse().unwrap();
        assert_eq!(table["model"].as_str(), Some("anthropic/claude \"x\""));
        assert_eq!(table["mode"].as_str(), Some("edit"));
        let examples = text
            .lines()
            .filter_map(|line| line.strip_prefix("# "))
            .filter(|line| line.starts_with('[') || line.split_once(" = ").is_some_and(|(key, _)| !key.contains(' ')));
        let examples: toml::Table = examples.collect::<Vec<_>>().join("\n").parse().unwrap();
        assert_eq!(examples.keys().collect::<Vec<_>>(), ["mcp", "permissions", "providers"]);
        assert!(text.lines().all(|line| line.chars().count() <= 80));
    }
}
