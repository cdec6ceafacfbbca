//! `tools/NAME.md`: a program as a tool. Pure.
//!
//! Its text is the description that the model reads. What cannot be read makes the file unusable: nothing is guessed about a program
//! that runs.

use std::path::Path;

use linger_protocol::agent::Problem;
use serde_json::{Value, json};

use super::command::words;
use super::find::FoundFile;
use super::frontmatter::Page;
use crate::provider::schema;
use crate::tool::launchers::{looked_through, runs_others};
use crate::tool::program::{PREFIX, Program, parameter};
use crate::tool::{TIMEOUT_MAX_S, normalise, text};

/// The keys that count.
const KEYS: [&str; 7] = ["name", "command", "parameters", "effects", "input", "timeout_s", "description"];

/// The longest name: with the prefix it is one that every provider takes.
const MAX_NAME: usize = 48;

/// The longest description, in bytes: it is sent with every request.
const MAX_DESCRIPTION: usize = 4 << 10;

/// How long a call may take unless the file says so, in seconds; as `bash`.
const TIMEOUT_S: u64 = 120;

/// Reads a tool. Fails if it cannot be used.
pub(super) fn parse(found: &FoundFile, text: &str) -> (Result<Program, Problem>, String, Vec<Problem>) {
    let name = found.name.clone();
    let mut page = match Page::parse(text) {
        Ok(page) => page,
        Err(problem) => return (Err(problem), name, Vec::new()),
    };
    page.check_keys(&KEYS, false);
    let program = program(found, &mut page);
    (program, name, page.problems)
}

fn program(found: &FoundFile, page: &mut Page) -> Result<Program, Problem> {
    let name = &found.name;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_name) {
        let why = format!("a tool's file name has at most {MAX_NAME} letters, digits, `-` and `_` before `.md`");
        return Err(Problem::error(1, why));
    }
    let wrong = |page: &Page, key: &str, why: String| Err(Problem::error(page.line(key), why));
    if let Some(said) = page.text("name").filter(|said| said != name) {
        page.wrong("name", format!("the name `{}` differs from that of the file, which counts", text::one_line(&said)));
    }
    let command = match page.fields.get("command").cloned() {
        Some(Value::String(line)) => words(&line),
        Some(Value::Array(list)) => {
            let parts: Option<Vec<String>> = list.iter().map(|it| it.as_str().map(str::to_owned)).collect();
            match parts {
                Some(parts) => parts,
                None => return wrong(page, "command", "`command` is not a list of texts".to_owned()),
            }
        }
        Some(_) => return wrong(page, "command", "`command` is a program and its arguments".to_owned()),
        None => {
            return wrong(page, "command", "`command` is missing: the program to run, and its arguments".to_owned());
        }
    };
    if command.first().is_none_or(|program| program.trim().is_empty()) {
        return wrong(page, "command", "`command` names no program".to_owned());
    }
    let parameters = match page.fields.get("parameters").cloned() {
        None | Some(Value::Null) => json!({ "type": "object", "properties": {}, "additionalProperties": false }),
        Some(Value::String(text)) => match serde_json::from_str(&text) {
            Ok(schema) => schema,
            Err(error) => return wrong(page, "parameters", format!("`parameters` is not JSON: {error}")),
        },
        Some(schema) => schema,
    };
    if parameters.get("type").and_then(Value::as_str) != Some("object") {
        return wrong(page, "parameters", "`parameters` is a JSON Schema with `type: object`".to_owned());
    }
    if let Err(why) = schema::check(&parameters) {
        return wrong(page, "parameters", format!("`parameters` is no JSON Schema: {why}"));
    }
    let has = |name: &str| parameters.get("properties").is_some_and(|all| all.get(name).is_some());
    let named: Vec<&str> = command.iter().skip(1).filter_map(|part| Some(parameter(part)?.1)).collect();
    let is_vector = match page.text("input").as_deref() {
        None => named.iter().any(|name| has(name)),
        Some("json") => false,
        Some("arguments") => true,
        Some(other) => {
            let why = format!("unknown `input: {}`: json (on standard input) or arguments", text::one_line(other));
            return wrong(page, "input", why);
        }
    };
    if let Some(unknown) = named.iter().find(|name| is_vector && !has(name)) {
        return wrong(page, "command", format!("`{{{unknown}}}` in `command` is no property of `parameters`"));
    }
    let only_reads = match page.text("effects").as_deref() {
        None | Some("any") => false,
        Some("read" | "reads") => true,
        Some(other) => {
            let why =
                format!("unknown `effects: {}`: read (it only reads, in the workspace) or any", text::one_line(other));
            return wrong(page, "effects", why);
        }
    };
    let timeout_s = match page.text("timeout_s").map(|text| text.parse::<u64>()) {
        None => TIMEOUT_S,
        Some(Ok(seconds)) if (1..=TIMEOUT_MAX_S).contains(&seconds) => seconds,
        Some(_) => return wrong(page, "timeout_s", format!("`timeout_s` is a number from 1 to {TIMEOUT_MAX_S}")),
    };
    let about = page.text("description").filter(|_| page.body.is_empty()).unwrap_or_else(|| page.body.clone());
    if about.is_empty() {
        return Err(Problem::error(1, "there is no text behind the header: it tells the model what the tool does"));
    }
    if about.len() > MAX_DESCRIPTION {
        return Err(Problem::error(1, format!("the text is longer than {MAX_DESCRIPTION} bytes")));
    }
    let command = located(command, found);
    let is_inside = is_inside(&command, found);
    let launcher = looked_through(&command).first().filter(|program| runs_others(program)).cloned();
    if only_reads && is_inside {
        page.warn("effects", "`effects: read` counts only for a program outside the workspace: this one asks as `any`");
    } else if let Some(program) = launcher.as_ref().filter(|_| only_reads) {
        let program = text::one_line(program);
        page.warn(
            "effects",
            format!("`effects: read` is not believed of `{program}`, which runs others: this one asks as `any`"),
        );
    }
    Ok(Program {
        name: format!("{PREFIX}{name}"),
        description: about,
        parameters,
        command,
        is_vector,
        only_reads: only_reads && !is_inside && launcher.is_none(),
        timeout_s,
        file: found.path.clone(),
        digest: found.digest.clone(),
    })
}

/// A relative path of a program begins at the workspace's root, or beside the user's file.
fn located(mut command: Vec<String>, found: &FoundFile) -> Vec<String> {
    let Some(program) = command.first_mut().filter(|program| program.contains('/') && !program.starts_with('/')) else {
        return command;
    };
    if let Some(base) = base(found) {
        *program = normalise(&base.join(&*program)).to_string_lossy().into_owned();
    }
    command
}

/// The workspace's root, or the directory of the user's file.
fn base(found: &FoundFile) -> Option<&Path> {
    let depth = found.within.as_deref().map_or(1, |path| Path::new(path).components().count());
    found.real.ancestors().nth(depth)
}

/// Whether the program is a file of the workspace that has the tool, which a model can rewrite. Of links, PATH and the tools of the
/// user only a call knows it.
fn is_inside(command: &[String], found: &FoundFile) -> bool {
    let (Some(program), Some(root), true) = (command.first(), base(found), found.within.is_some()) else {
        return false;
    };
    program.contains('/') && normalise(Path::new(program)).starts_with(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(within: Option<&str>) -> FoundFile {
        let real = within.map_or("/c/tools/lint.md".to_owned(), |path| format!("/w/{path}"));
        FoundFile {
            name: "lint".to_owned(),
            path: real.clone().into(),
            real: real.into(),
            within: within.map(str::to_owned),
            digest: "sha256:00".to_owned(),
            text: Ok(String::new()),
        }
    }

    fn parsed(header: &str) -> Result<Program, String> {
        parse(&found(None), &format!("---\n{header}---\nLints files.\n")).0.map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_tool_is_a_program_with_parameters_and_effects() {
        let tool = parsed("command: [shellcheck, '{path}']\nparameters:\n  type: object\n  properties: {path: {type: string}}\neffects: read\ntimeout_s: 9\n").unwrap();
        assert_eq!(
            (tool.name.as_str(), tool.is_vector, tool.only_reads, tool.timeout_s),
            ("tool__lint", true, true, 9)
        );
        assert_eq!(tool.description, "Lints files.");
        let tool = parsed("command: ./bin/lint --fix\n").unwrap();
        assert_eq!((tool.command[0].as_str(), tool.is_vector, tool.only_reads), ("/c/tools/bin/lint", false, false));
        let text = "---\ncommand: scripts/lint\n---\nx\n";
        let of_workspace = parse(&found(Some(".linger/tools/lint.md")), text).0.unwrap();
        assert_eq!(of_workspace.command, ["/w/scripts/lint"]);
        let only_reads = |within: Option<&str>, program: &str| {
            let text = format!("---\ncommand: {program}\neffects: read\n---\nx\n");
            let (tool, _, problems) = parse(&found(within), &text);
            let tool = tool.unwrap();
            assert_eq!(problems.is_empty(), tool.only_reads, "{program}");
            tool.only_reads
        };
        let within = Some(".linger/tools/lint.md");
        assert!(
            only_reads(within, "shellcheck") && only_reads(within, "/usr/bin/shellcheck") && only_reads(None, "./lint")
        );
        assert!(!only_reads(within, "scripts/lint") && !only_reads(within, "/w/lint"));
        for command in
            ["bash lint.sh", "env python3 x", "make lint", "/usr/bin/npm run lint", "eslint", "git log", "xargs cat"]
        {
            assert!(!only_reads(None, command), "{command}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let check = |header: &str, expect: &str| {
            let error = parsed(header).unwrap_err();
            assert!(error.starts_with(expect), "{header}: {error}");
        };
        check("effects: read\n", "line 1: `command` is missing");
        check("effects: any\ncommand: 7\n", "line 3: `command` is a program");
        check("command: x\nparameters: {type: array}\n", "line 3: `parameters` is a JSON Schema with");
        check(
            "command: x\nparameters: {type: object, properties: {a: {type: no}}}\n",
            "line 3: `parameters` is no JSON",
        );
        check("command: x\neffects: none\n", "line 3: unknown `effects: none`");
        check("command: x\ninput: shell\n", "line 3: unknown `input: shell`");
        check("command: x\ntimeout_s: 0\n", "line 3: `timeout_s`");
        check("input: arguments\ncommand: [x, '{y}']\n", "line 3: `{y}` in `command`");
        let no_text = parse(&found(None), "---\ncommand: x\n---\n").0.unwrap_err();
        assert!(no_text.text.contains("no text"), "{no_text}");
    }
}
