//! `linger init KIND NAME`: a first file of an agent, a skill, a command, a tool or a server, with comments that say what may be in it.
//!
//! It is written for the user, or with `--here` for the workspace, and replaces nothing. It does nothing by itself: the daemon reads
//! it like any other such file, and what widens waits until a person confirms or trusts it.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use linger_protocol::place::Places;
use serde_json::json;

use super::output::print_value;
use crate::arguments::FileKind;
use crate::environment::working_directory;
use crate::error::{Exit, Failure};
use crate::terminal::{Terminal, clean_line};

/// The longest name, in characters: what each kind may have.
const MAX_NAME: usize = 48;

pub(super) fn run(kind: FileKind, name: &str, here: bool, json: bool) -> Result<Exit, Failure> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_name = (1..=MAX_NAME).contains(&name.len())
        && name.chars().all(is_part)
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--");
    if !is_name {
        let name = clean_line(name);
        return Err(Failure::usage(format!("'{name}' is not a valid name"))
            .hint("a name has small letters and digits, with single hyphens between: code-review"));
    }
    let base = match here {
        true => root(&working_directory()?).join(".linger"),
        false => Places::of_user()?.config,
    };
    let file = base.join(below(kind, name));
    let shown = clean_line(&file.to_string_lossy()).into_owned();
    write(&file, &text(kind, name)).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::usage(format!("{shown} is there already")).hint("name another one, or edit that file")
        }
        _ => Failure::new(Exit::FAILED, format!("{shown} cannot be written: {error}")),
    })?;
    if json {
        print_value(&json!({ "file": file, "kind": kind.noun(), "name": name }))?;
        return Ok(Exit::GOOD);
    }
    let mut terminal = Terminal::new();
    terminal.data(&shown)?;
    let next = match (here, kind) {
        (true, _) => "edit it, then `linger trust` puts it into force",
        (false, FileKind::Skill | FileKind::Command) => "edit it; it counts from the next prompt",
        (false, FileKind::Agent | FileKind::Tool | FileKind::Server) => {
            "edit it, then `linger config confirm` puts it into force"
        }
    };
    terminal.say(&format!("{next}; `linger validate` checks it"))?;
    Ok(Exit::GOOD)
}

/// The root of the workspace: the nearest directory above with a repository.
fn root(cwd: &Path) -> PathBuf {
    cwd.ancestors().find(|above| above.join(".git").exists()).unwrap_or(cwd).to_path_buf()
}

/// Where the file lies below `.linger`, or beside `config.toml`.
fn below(kind: FileKind, name: &str) -> PathBuf {
    match kind {
        FileKind::Agent => format!("agents/{name}.md"),
        FileKind::Skill => format!("skills/{name}/SKILL.md"),
        FileKind::Command => format!("commands/{name}.md"),
        FileKind::Tool => format!("tools/{name}.md"),
        FileKind::Server => format!("mcp/{name}.md"),
    }
    .into()
}

/// Writes a new file, which others may read as they may those beside it.
fn write(file: &Path, text: &str) -> std::io::Result<()> {
    if let Some(directory) = file.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let mut new = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(file)?;
    new.write_all(text.as_bytes())
}

fn text(kind: FileKind, name: &str) -> String {
    let template = match kind {
        FileKind::Agent => AGENT,
        FileKind::Skill => SKILL,
        FileKind::Command => COMMAND,
        FileKind::Tool => TOOL,
        FileKind::Server => SERVER,
    };
    template.replace("NAME", name)
}

const AGENT: &str = "\
---
# An agent is a role for sessions: `linger run --agent NAME`, /agent NAME, and
# the tool `delegate` with this name. Lines that begin with # say nothing.

# What it is for: a model that delegates chooses by this.
description: Say what NAME is for, and when to use it

# PROVIDER/MODEL; without it, that of the session.
# model: anthropic/claude-sonnet-5
# How hard it thinks: none, low, medium, high.
# effort: low
# It never asks less than this: ask, edit, auto, or plan (changes nothing).
mode: plan
# Its only tools; `linger tools` lists them.
tools: [read, grep, glob, ls]
# Only the tools of these MCP servers, and only these skills.
# mcp: [git]
# skills: [release-notes]
# Limits: steps of a turn; cost, tokens and time of its sessions.
# max_steps: 20
# budget: {cost: 2, tokens: 200k, time: 30m}
# A git worktree and branch of its own when it is delegated to.
# worktree: true
# `replace`: the text below stands in the place of linger's own prompt.
# prompt: replace
# A JSON Schema that each of its answers fits.
# response_schema:
#   type: object
#   properties: {answer: {type: string}}
#   required: [answer]
---
You are NAME. Say here how you work, what you look at, what you leave alone, and
what your answer looks like.
";

const SKILL: &str = "\
---
# A skill is knowledge on demand: models are told its name and description, and
# read the rest when a task fits; /NAME sends it. The directory's name is its
# name, and files beside this one can be read by name.
name: NAME
description: Say what it does, and when to use it. Use it when ...
---
# NAME

Say here step by step what is to be done. Name files beside this one where they
help, such as scripts/check.sh or reference.md.
";

const COMMAND: &str = "\
---
# A command is a prompt with a name: /NAME words.
description: Say what /NAME does

# The session's model from then on, as /model does.
# model: anthropic/claude-sonnet-5
# Whose work it is: such an agent's session, or one that it is delegated to.
# agent: reviewer
---
Say here what is to be done with $1. All that was written behind the name is:
$ARGUMENTS

A file whose name follows an @ sign is read into the prompt, and a command line
in backticks behind an exclamation mark runs, if rules and mode let it, with its
output following.
";

const TOOL: &str = "\
---
# A program that models can call, as tool__NAME. No shell reads the command.

# The program and its arguments; {text} becomes the argument of that name.
command: [echo, \"{text}\"]
# The arguments as a JSON Schema. Without a {name} in the command they come as
# one JSON object on standard input.
parameters:
  type: object
  properties:
    text: {type: string, description: What to say}
  required: [text]
# `any`: it asks in the modes ask and edit. `read`: it only reads, and runs.
effects: any
timeout_s: 60
---
Says a text. This text is what the model reads: say what the tool does, and when
to use it.
";

const SERVER: &str = "\
---
# An MCP server, with the settings of [mcp.NAME] in config.toml; see `linger
# help servers`. `linger mcp test NAME` tries it.

# A program that speaks MCP on its standard input and output:
command: npx
args: [-y, \"@modelcontextprotocol/server-filesystem\", .]
# Or, in the place of these two, an address:
# url: https://example.org/mcp
---
Say here when to use this server: models read it with its tools.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_first_file_fits_a_terminal_and_has_its_name() {
        for kind in [FileKind::Agent, FileKind::Skill, FileKind::Command, FileKind::Tool, FileKind::Server] {
            let text = text(kind, "a-b");
            assert!(text.starts_with("---\n# ") && !text.contains("NAME") && text.contains("a-b"), "{kind:?}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{kind:?}");
        }
    }
}
