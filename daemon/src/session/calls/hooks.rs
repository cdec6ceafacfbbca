//! Calls with their hooks: those that run before a call is decided on, and those that add to its result.
//!
//! A hook before a call comes before rules, mode and digest, so its output cannot allow a call: arguments that it changes are
//! checked like those of the model. It runs again when a turn resumes before the call has started, and never for one that has.

use std::sync::Arc;

use linger_protocol::event::{AfterCrash, Level, NoticeCode, Outcome};
use linger_protocol::message::{ContentBlock, text_of};
use serde_json::{Value, json};

use crate::config::{Hook, HookEvent};
use crate::question::permission::{CallInfo, ResolvedAccess, concerns};
use crate::session::calls::Runner;
use crate::session::env::hooks::{HookOutput, Hooks, Refusal, call_fields};
use crate::session::messages::TurnEnded;
use crate::sys::disk;
use crate::tool::{Access, Call, Effects, Tool, ToolOutput, text};

/// How much of changed arguments the model is shown, in bytes: it has made the others.
const MAX_NOTE: usize = 1 << 10;

/// A call as it is decided on.
pub(super) struct PreparedCall {
    pub(super) input: Value,
    pub(super) call: Box<dyn Call>,
    pub(super) effects: Effects,
    pub(super) resolved: ResolvedAccess,
    pub(super) hooked: Hooked,
}

/// Additions of hooks to a call's result.
#[derive(Default)]
pub(super) struct Hooked {
    /// The hooks after the call; absent without any, and for a call from before a restart.
    after: Option<Hooks>,
    /// The note to the model about arguments that a hook changed.
    note: Option<String>,
}

/// Why a call does not run.
pub(super) struct NotRun(pub(super) Outcome, pub(super) String);

impl Runner {
    /// Checks a call, and runs the hooks before it.
    pub(super) async fn prepared(
        &self,
        tool: &Arc<dyn Tool>,
        name: &str,
        mut input: Value,
    ) -> Result<PreparedCall, NotRun> {
        self.complete(tool, &mut input).await?;
        let (mut call, mut effects, mut resolved) = self.checked(tool.as_ref(), &input).await?;
        let hooks = Hooks::of(&self.services, &self.workspace, &self.session);
        let mut note = None;
        if hooks.has(HookEvent::BeforeCall) {
            let said =
                hooks.run(HookEvent::BeforeCall, call_fields(name, &input), about(name, &effects, &resolved)).await;
            let said = said.map_err(|Refusal { why, .. }| NotRun(Outcome::Denied, format!("not run: {why}")))?;
            if let Some(mut changed) = said.input.filter(|changed| *changed != input) {
                let by_hook = |NotRun(outcome, why)| NotRun(outcome, format!("{why} (a hook changed the arguments)"));
                self.complete(tool, &mut changed).await.map_err(by_hook)?;
                let again = self.checked(tool.as_ref(), &changed).await;
                (call, effects, resolved) = again.map_err(by_hook)?;
                // A restart knows only the arguments of the model, and must not run those.
                effects.after_crash = AfterCrash::Unknown;
                note = Some(format!("[a hook changed the arguments: {}]", text::head(&changed.to_string(), MAX_NOTE)));
                input = changed;
            }
        }
        let after = hooks.only(HookEvent::AfterCall, about(name, &effects, &resolved));
        let hooked = Hooked { after: Some(after).filter(|hooks| hooks.has(HookEvent::AfterCall)), note };
        Ok(PreparedCall { input, call, effects, resolved, hooked })
    }

    /// Has the tool complete the arguments.
    async fn complete(&self, tool: &Arc<dyn Tool>, input: &mut Value) -> Result<(), NotRun> {
        if !tool.completes() {
            return Ok(());
        }
        let (tool, given, workspace) = (tool.clone(), input.clone(), self.workspace.clone());
        let root = Access::Read(workspace.root.clone());
        let hidden = self.services.policy.hidden(tool.name(), &root, &workspace);
        let complete = move || tool.complete(&given, &workspace, &hidden);
        let completed = disk::probe(&self.workspace.cwd, disk::TIMEOUT, complete).await;
        let not_run = |why: String| NotRun(Outcome::Invalid, format!("not run: {why}"));
        match completed {
            None => Err(not_run(disk::unresponsive(&self.workspace.cwd))),
            Some(Err(invalid)) => Err(not_run(invalid.0)),
            Some(Ok(completed)) => {
                if let Some(completed) = completed {
                    *input = completed;
                }
                Ok(())
            }
        }
    }

    async fn checked(
        &self,
        tool: &dyn Tool,
        input: &Value,
    ) -> Result<(Box<dyn Call>, Effects, ResolvedAccess), NotRun> {
        let call = tool.prepare(input, &self.workspace);
        let call = call.map_err(|invalid| NotRun(Outcome::Invalid, format!("not run: {invalid}")))?;
        let effects = call.effects();
        let resolved = self.services.policy.resolve(&effects.access, &self.workspace).await;
        let hung = || NotRun(Outcome::Invalid, format!("not run: {}", disk::unresponsive(&self.workspace.cwd)));
        Ok((call, effects, resolved.ok_or_else(hung)?))
    }

    /// Runs the hooks after a call that ran; what they say becomes part of its result.
    pub(super) async fn add_hooked(
        &self,
        Hooked { after, note }: Hooked,
        tool: &str,
        input: &Value,
        output: &mut ToolOutput,
    ) -> Result<(), TurnEnded> {
        output.content.extend(note.map(ContentBlock::text));
        let Some(hooks) = after else { return Ok(()) };
        let mut fields = call_fields(tool, input);
        let response = json!({ "content": text_of(&output.content), "is_error": output.is_error });
        fields.insert("tool_response".to_owned(), response);
        let added = match hooks.run(HookEvent::AfterCall, fields, |_| true).await {
            Ok(HookOutput { added, .. }) => added,
            Err(Refusal { why, is_refusal: true }) => Some(why),
            Err(Refusal { why, .. }) => {
                self.emit.notice(Level::Warning, NoticeCode::HookFailed, why)?;
                None
            }
        };
        output.content.extend(added.map(|added| ContentBlock::text(format!("[a hook says]\n{added}"))));
        Ok(())
    }
}

/// Whether a hook is about a call.
fn about<'a>(
    tool: &'a str,
    effects: &Effects,
    resolved: &'a ResolvedAccess,
) -> impl Fn(&Hook) -> bool + Send + Sync + use<'a> {
    let (changes, access) = (effects.changes, effects.access.clone());
    move |hook| {
        let call = CallInfo { tool, changes, access: access.clone() };
        hook.matcher.as_ref().is_none_or(|rule| concerns(rule, &call, resolved))
    }
}
