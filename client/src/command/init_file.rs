//! `linger init KIND NAME`: writes a first, commented file of an agent, skill, command, tool or server.
//!
//! For the user, or with `--here` for the workspace; never overwrites a file. The daemon reads it like any other such file; one that
//! grants more waits until a person confirms or trusts it.

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

/// Characters of a name, at most: the strictest limit of all kinds.
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
            .hint("use lower-case letters, digits and single hyphens: code-review"));
    }
    let base = if here { root(&working_directory()?).join(".linger") } else { Places::of_user()?.config };
    let file = base.join(below(kind, name));
    let shown = clean_line(&file.to_string_lossy()).into_owned();
    write(&file, &text(kind, name)).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::usage(format!("{shown} already exists")).hint("choose another name, or edit that file")
        }
        _ => Failure::new(Exit::FAILED, format!("cannot write {shown}: {error}")),
    })?;
    if json {
        print_value(&json!({ "file": linger_protocol::path::text(&file), "kind": kind.noun(), "name": name }))?;
        return Ok(Exit::GOOD);
    }
    let mut terminal = Terminal::new();
    terminal.data(&shown)?;
    let next = match (here, kind) {
        (true, _) => "edit it, then run `linger trust`",
        (false, FileKind::Skill | FileKind::Command) => "edit it; it takes effect at the next prompt",
        (false, FileKind::Agent | FileKind::Tool | FileKind::Server) => "edit it, then run `linger config confirm`",
    };
    terminal.say(&format!("{next}; `linger files validate` checks it"))?;
    Ok(Exit::GOOD)
}

/// The root of the workspace: the nearest repository at or above `cwd`, or `cwd`.
fn root(cwd: &Path) -> PathBuf {
    cwd.ancestors().find(|above| above.join(".git").exists()).unwrap_or(cwd).to_path_buf()
}

/// The path of the file below `.linger` or the configuration directory.
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

/// Creates the file, readable like its neighbours. Fails if it exists.
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
# An agent is a role for sessions: `linger run --agent NAME`, /agent NAME, or
# the tool `delegate` with this name. Lines that begin with # are comments.

# What it is for: models read this when they delegate.
description: Say what NAME is for, and when to use it

# PROVIDER/MODEL; default: the model of the session.
# model: anthropic/claude-sonnet-5
# Reasoning effort: none, low, medium, high.
# effort: low
# It never asks less than this: ask, edit, auto, or plan (changes nothing).
mode: plan
# Only these tools; `linger tools` lists all.
tools: [read, grep, glob, ls]
# Only the tools of these MCP servers, and only these skills.
# mcp: [git]
# skills: [release-notes]
# Limits: steps per turn; cost, tokens and time of its sessions.
# max_steps: 20
# budget: {cost: 2, tokens: 200k, time: 30m}
# Delegated tasks get their own git worktree and branch.
# worktree: true
# `replace`: the text below replaces linger's own prompt.
# prompt: replace
# A JSON Schema that each of its answers must match.
# response_schema:
#   type: object
#   properties: {answer: {type: string}}
#   required: [answer]
---
You are NAME. Describe here how to work, what to look at, what to leave alone,
and what the answer should capabilities like.
";

const SKILL: &str = "\
---
# A skill is knowledge on demand: models see its name and description, and read
# the rest when a task fits; /NAME sends it. It is named after its directory;
# models can also read the other files there.
name: NAME
description: Say what it does, and when to use it. Use it when ...
---
# NAME

Describe the task step by step. Name other files of this directory where they
help, such as scripts/check.sh or reference.md.
";

const COMMAND: &str = "\
---
# A command is a prompt with a name: /NAME words.
description: Say what /NAME does

# Changes the session's model, like /model.
# model: anthropic/claude-sonnet-5
# Only for sessions with this agent.
# agent: reviewer
---
Describe here what to do with $1. Everything written after the name is:
$ARGUMENTS

A file name after an @ sign is replaced by the file. A command in backticks
after an exclamation mark runs, if rules and mode permit, and its output is
added.
";

const TOOL: &str = "\
---
# A program that models can call, as tool__NAME. No shell reads the command.

# The program and its arguments; {text} is replaced by the argument `text`.
command: [echo, \"{text}\"]
# The arguments as a JSON Schema. Without a {name} in the command, they are sent
# as one JSON object on standard input.
parameters:
  type: object
  properties:
    text: {type: string, description: What to say}
  required: [text]
# `any` asks in the modes ask and edit. `read` only reads, and always runs.
effects: any
timeout_s: 60
---
Says a text. Models read this text: describe what the tool does, and when to use
it.
";

const SERVER: &str = "\
---
# An MCP server, with the settings of [mcp.NAME] in config.toml; see `linger
# help servers`. `linger mcp test NAME` tries it.

# A program that speaks MCP on its standard input and output:
command: npx
args: [-y, \"@modelcontextprotocol/server-filesystem\", .]
# Or an address, instead of these two:
# url: https://example.org/mcp
---
Describe when to use this server: models read this with its tools.
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
