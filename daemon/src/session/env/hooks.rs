//! Running hooks: a command gets JSON, and refuses, changes or adds.
//!
//! Exit code 2 refuses, with standard error as the reason; every other failure of a hook before a call or a prompt refuses too.
//! Deliberately absent: when hooks run (`calls`, the actor, `service`), and their configuration.

use std::path::PathBuf;
use std::sync::Arc;

use linger_protocol::id::SessionId;
use serde_json::{Map, Value, json};

use crate::config::{Hook, HookEvent};
use crate::process::server::Spawn;
use crate::process::{End, Input, Stderr};
use crate::session::env::CallServices;
use crate::sys::disk;
use crate::tool::{Workspace, text};

/// The most text that a hook adds, in bytes: a page of errors of a compiler.
const MAX_ADDED: usize = 4 << 10;

/// The longest output, in bytes: the arguments of a call, changed.
const MAX_OUTPUT: usize = 1 << 20;

/// The variable with the root of the workspace.
const ROOT: &str = "LINGER_WORKSPACE";

/// How much of a command its errors show, in characters.
const SHOWN: usize = 60;

/// The output of a hook that did not refuse.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HookOutput {
    /// Text for the model.
    pub added: Option<String>,
    /// Other arguments for the call.
    pub input: Option<Value>,
}

/// A hook has refused, or did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why, for the model and for people.
    pub why: String,
    /// Whether the hook said so.
    pub is_refusal: bool,
}

/// The fields of a call.
pub fn call_fields(tool: &str, input: &Value) -> Map<String, Value> {
    [("tool_name", Value::from(tool)), ("tool_input", input.clone())]
        .map(|(name, it)| (name.to_owned(), it))
        .into_iter()
        .collect()
}

/// Runs the hooks of one session.
#[derive(Clone, Debug)]
pub struct Hooks {
    hooks: Arc<[Hook]>,
    session: SessionId,
    spawn: Spawn,
    /// Where they run.
    workspace: Workspace,
    /// The directory for the case that the session's is gone.
    empty: PathBuf,
}

impl Hooks {
    /// The hooks that a session's workspace has.
    pub fn of(services: &CallServices, workspace: &Workspace, session: &SessionId) -> Self {
        let hooks = services.policy.hooks(workspace);
        let mut spawn = workspace.spawn(services.children.clone(), Some(session.clone()));
        if !hooks.is_empty() {
            let mut env = (*spawn.env).clone();
            env.insert(ROOT.to_owned(), workspace.root.to_string_lossy().into_owned());
            spawn.env = Arc::new(env);
        }
        let empty = services.empty.join(session.as_str());
        Self { hooks, session: session.clone(), spawn, workspace: workspace.clone(), empty }
    }

    /// An empty list, for an event of the daemon itself.
    pub fn none(services: &CallServices, workspace: &Workspace, session: &SessionId) -> Self {
        let spawn = workspace.spawn(services.children.clone(), Some(session.clone()));
        let empty = services.empty.join(session.as_str());
        Self { hooks: Arc::default(), session: session.clone(), spawn, workspace: workspace.clone(), empty }
    }

    /// Keeps the hooks for `event` that `about` accepts.
    pub fn only(self, event: HookEvent, about: impl Fn(&Hook) -> bool) -> Self {
        let hooks = self.hooks.iter().filter(|hook| hook.event == event && about(hook)).cloned().collect();
        Self { hooks, ..self }
    }

    /// Whether any runs at this event.
    pub fn has(&self, event: HookEvent) -> bool {
        self.hooks.iter().any(|hook| hook.event == event)
    }

    /// Runs the hooks for `event` that `about` accepts, in order, each with these fields. The first refusal ends the run. A hook
    /// gets the arguments as the one before it changed them.
    pub async fn run(
        &self,
        event: HookEvent,
        mut fields: Map<String, Value>,
        about: impl Fn(&Hook) -> bool,
    ) -> Result<HookOutput, Refusal> {
        let mut all = HookOutput::default();
        for hook in self.hooks.iter().filter(|hook| hook.event == event && about(hook)) {
            let HookOutput { added, input } = self.run_one(hook, &fields).await?;
            if let Some(added) = added {
                let before = all.added.take().map(|before| before + "\n").unwrap_or_default();
                all.added = Some(text::head(&(before + &added), MAX_ADDED).to_owned());
            }
            if let Some(input) = input {
                fields.insert("tool_input".to_owned(), input.clone());
                all.input = Some(input);
            }
        }
        Ok(all)
    }

    async fn run_one(&self, hook: &Hook, fields: &Map<String, Value>) -> Result<HookOutput, Refusal> {
        let mut input = json!({
            "hook_event_name": hook.event.common_name(),
            "event": hook.event.name(),
            "session_id": self.session,
            "cwd": linger_protocol::path::text(&self.spawn.cwd),
        });
        if let Some(all) = input.as_object_mut() {
            all.extend(fields.clone());
        }
        let failed = |why: String| {
            let command: String = text::one_line(&hook.command).chars().take(SHOWN).collect();
            Refusal { why: format!("the hook `{command}` {why}"), is_refusal: false }
        };
        let input = Input::Bytes(input.to_string().into_bytes());
        let mut spawn = self.spawn.clone();
        let (workspace, empty) = (self.workspace.clone(), self.empty.clone());
        let moved = disk::probe(&self.workspace.cwd, disk::TIMEOUT, move || workspace.moved(&empty)).await;
        if let Some(Ok(Some(moved))) = moved {
            spawn.cwd = moved.cwd;
        }
        let process = spawn.shell(&hook.command, input, Stderr::Apart).await;
        let process = process.map_err(|error| failed(format!("cannot be started: {error}")))?;
        let finished = process.finish(hook.timeout, MAX_OUTPUT).await;
        let finished = finished.map_err(|error| failed(format!("failed: {error}")))?;
        let stderr = finished.stderr.trim();
        let code = match finished.end {
            End::Status(status) => status.code(),
            End::TooMuch => return Err(failed(format!("wrote more than {MAX_OUTPUT} bytes"))),
            End::TooLate => return Err(failed(format!("took longer than {} s", hook.timeout.as_secs()))),
        };
        tracing::info!(target: "hook", session = %self.session, event = hook.event.name(), command = hook.command, code, "ran");
        match code {
            Some(0) => parse_output(hook.event, &finished.output).map_err(failed),
            Some(2) if stderr.is_empty() => Err(Refusal { is_refusal: true, ..failed("refuses".to_owned()) }),
            Some(2) => Err(Refusal { why: stderr.to_owned(), is_refusal: true }),
            Some(code) => Err(failed(format!("failed with exit code {code}: {stderr}"))),
            None => Err(failed("was killed".to_owned())),
        }
    }
}

/// Parses the output of a hook that exited with 0; fails if it has the form of another program.
fn parse_output(event: HookEvent, output: &[u8]) -> Result<HookOutput, String> {
    let output = String::from_utf8_lossy(output);
    let output = output.trim();
    match event {
        HookEvent::BeforeCall if output.starts_with('{') => {
            let value: Value =
                serde_json::from_str(output).map_err(|error| format!("wrote what is no JSON: {error}"))?;
            match value.get("tool_input") {
                Some(input @ Value::Object(_)) => Ok(HookOutput { input: Some(input.clone()), added: None }),
                Some(_) => Err("wrote a `tool_input` that is no object".to_owned()),
                None if value.as_object().is_some_and(serde_json::Map::is_empty) => Ok(HookOutput::default()),
                // JSON in another program's form may mean to refuse the call.
                None => Err("wrote JSON without `tool_input`; exit code 2 refuses a call".to_owned()),
            }
        }
        HookEvent::AfterCall | HookEvent::Prompt if !output.is_empty() => {
            Ok(HookOutput { added: Some(text::head(output, MAX_ADDED).to_owned()), input: None })
        }
        _ => Ok(HookOutput::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_in_the_form_of_another_program_does_not_allow_the_call() {
        let check = |output: &str, expect: Result<Option<Value>, &str>| {
            let said = parse_output(HookEvent::BeforeCall, output.as_bytes()).map(|said| said.input);
            match (said, expect) {
                (Err(said), Err(words)) => assert!(said.contains(words), "{output}: {said}"),
                (said, expect) => assert_eq!(said.ok(), expect.ok(), "{output}"),
            }
        };
        check("", Ok(None));
        check("fine", Ok(None));
        check("{}", Ok(None));
        check(r#"{"tool_input": {"a": 1}}"#, Ok(Some(serde_json::json!({ "a": 1 }))));
        check(r#"{"decision": "block"}"#, Err("exit code 2"));
        check(r#"{"tool_input": 1}"#, Err("no object"));
        check("{", Err("no JSON"));
    }
}
