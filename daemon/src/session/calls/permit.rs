//! The way of a call until it may run: its tool and arguments are checked, and a person or a rule decides.

use std::sync::Arc;

use linger_protocol::event::{AfterCrash, Outcome, ToolKind};
use linger_protocol::id::CallId;
use linger_protocol::message::ContentBlock;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::fault;
use crate::question::permission::{ResolvedAccess, digest};
use crate::session::calls::hooks::{Hooked, NotRun, PreparedCall};
use crate::session::calls::{Runner, StartedCall};
use crate::session::messages::{PermissionAnswer, PermissionRequest, Preview, TurnEnded, TurnMessage};
use crate::sys::disk;
use crate::tool::{Access, Call, Effects, Takes, Targets, Tool, Workspace};

/// A call that waits for its permission.
pub(super) struct Ready {
    pub(super) checked: CheckedCall,
    /// The question whether it may run, until it is asked; absent for a call that started before a restart.
    pub(super) request: Option<Box<PermissionRequest>>,
    /// The decision; absent for a call that started before a restart.
    pub(super) permitted: Option<oneshot::Receiver<PermissionAnswer>>,
}

/// A call with a known tool and valid arguments.
pub(super) struct CheckedCall {
    pub(super) id: CallId,
    pub(super) tool: String,
    pub(super) kind: ToolKind,
    pub(super) digest: String,
    /// The files that it reached when permission was asked; it runs on those, and follows no link to them.
    pub(super) targets: Targets,
    pub(super) effects: Effects,
    pub(super) begun: Option<StartedCall>,
    pub(super) input: Arc<Value>,
    pub(super) preview: Preview,
    pub(super) call: Box<dyn Call>,
    pub(super) hooked: Hooked,
    /// Where it runs, if the session's directory is gone.
    pub(super) moved: Option<Arc<Workspace>>,
}

/// A call with or without its result.
pub(super) enum Slot {
    Ready(Box<Ready>),
    Done(ContentBlock),
}

impl Slot {
    /// The question whether it may run, if it was not asked yet.
    pub(super) fn take_request(&mut self) -> Option<PermissionRequest> {
        match self {
            Self::Ready(ready) => ready.request.take().map(|request| *request),
            Self::Done(_) => None,
        }
    }

    /// Whether it has yet to run, and may then change one of `targets`, or show it to the model.
    fn may_touch(&self, targets: &Targets) -> bool {
        let Self::Ready(ready) = self else { return false };
        let CheckedCall { effects, begun, preview, targets: own, .. } = &ready.checked;
        if preview.refusal.is_some() {
            return false;
        }
        let is_known = |access: &Access| matches!(access, Access::Read(_) | Access::Write(_));
        if begun.is_some()
            || effects.after_crash == AfterCrash::Join
            || effects.changes && !effects.access.each().iter().all(is_known)
        {
            return true;
        }
        own.iter().any(|(_, own)| targets.iter().any(|(_, it)| own.starts_with(it) || it.starts_with(own)))
    }
}

impl Runner {
    /// Checks a call, and prepares the question whether it may run; an invalid call gets its result immediately. `earlier` are those
    /// before it in its step.
    pub(super) async fn prepare(
        &self,
        id: CallId,
        name: String,
        input: Value,
        cut: bool,
        earlier: &[Slot],
    ) -> Result<Slot, TurnEnded> {
        let refuse = |text: String| self.refuse(id.clone(), &name, Outcome::Invalid, text).map(Slot::Done);
        if cut {
            return refuse("not run: the answer was cut at the token limit; write less at once".to_owned());
        }
        let (name, input) = match self.tools.meant(name.clone(), input) {
            Ok(meant) => meant,
            Err(invalid) => return refuse(format!("not run: {invalid}")),
        };
        let refuse = |text: String| self.refuse(id.clone(), &name, Outcome::Invalid, text).map(Slot::Done);
        let tool = match self.tools.find(&name) {
            Ok(tool) => tool,
            Err(unknown) => return refuse(unknown.to_string()),
        };
        if let Value::String(raw) = &input {
            let problem = serde_json::from_str::<Value>(raw)
                .map_or_else(|error| error.to_string(), |_| "not an object".to_owned());
            return refuse(format!("not run: the arguments are not a JSON object: {problem}"));
        }
        if matches!(tool.pattern(), Takes::Command | Takes::Arguments) && !self.is_moved {
            match self.moved().await {
                Ok(None) => {}
                Ok(Some(moved)) => {
                    let (runner, tool) = (Self { workspace: moved, is_moved: true, ..self.clone() }, tool.clone());
                    return Box::pin(async move { runner.prepare_with(id, name, input, &tool, earlier).await }).await;
                }
                Err(why) => return refuse(format!("not run: {why}")),
            }
        }
        let tool = tool.clone();
        self.prepare_with(id, name, input, &tool, earlier).await
    }

    /// As [`Self::prepare`], in the workspace where the call runs.
    async fn prepare_with(
        &self,
        id: CallId,
        name: String,
        input: Value,
        tool: &Arc<dyn Tool>,
        earlier: &[Slot],
    ) -> Result<Slot, TurnEnded> {
        let refuse = |text: String| self.refuse(id.clone(), &name, Outcome::Invalid, text).map(Slot::Done);
        let prepared = match self.prepared(tool, &name, input).await {
            Ok(prepared) => prepared,
            Err(NotRun(outcome, why)) => return self.refuse(id, &name, outcome, why).map(Slot::Done),
        };
        let PreparedCall { input, call, effects, resolved, hooked } = prepared;
        let targets = resolved.targets(&effects.access);
        let Some((call, mut preview)) = self.preview(call, &targets).await else {
            return refuse(format!("not run: {}", disk::unresponsive(&self.workspace.cwd)));
        };
        if earlier.iter().any(|slot| slot.may_touch(&targets)) {
            preview.refusal = None;
        }
        let digest = digest(&name, &input, &self.workspace.cwd);
        let input = Arc::new(input);
        let kind = tool.kind();
        let (begun, moved) = (None, self.is_moved.then(|| self.workspace.clone()));
        let checked =
            CheckedCall { id, tool: name, kind, digest, targets, effects, begun, input, preview, call, hooked, moved };
        let (request, permitted) = Self::request(&checked, resolved, checked.preview.clone());
        Ok(Slot::Ready(Box::new(Ready { checked, request: Some(Box::new(request)), permitted: Some(permitted) })))
    }

    /// Prepares a call that started before a restart; it has its permission.
    pub(super) fn prepare_begun(
        &self,
        id: CallId,
        name: String,
        input: Value,
        begun: StartedCall,
    ) -> Result<Slot, TurnEnded> {
        let meant = self.tools.meant(name.clone(), input);
        let found = meant.and_then(|(name, input)| {
            let call = self.tools.find(&name)?.prepare(&input, &self.workspace)?;
            Ok((call, name, input))
        });
        let (call, name, input) = match found {
            Ok(found) => found,
            Err(why) => {
                let text =
                    format!("interrupted, outcome unknown: the daemon was restarted while this call ran, and {why}");
                return self.refuse(id, &name, Outcome::Unknown, text).map(Slot::Done);
            }
        };
        let (digest, effects, input) = (String::new(), call.effects(), Arc::new(input));
        // Its start is recorded.
        let kind = ToolKind::Other;
        let (begun, preview, hooked) = (Some(begun), Preview::of(&*call), Hooked::default());
        let targets = Targets::default();
        let moved = None;
        let checked =
            CheckedCall { id, tool: name, kind, digest, targets, effects, begun, input, preview, call, hooked, moved };
        Ok(Slot::Ready(Box::new(Ready { checked, request: None, permitted: None })))
    }

    /// The question whether a call may run, and where its decision comes.
    fn request(
        checked: &CheckedCall,
        resolved: ResolvedAccess,
        preview: Preview,
    ) -> (PermissionRequest, oneshot::Receiver<PermissionAnswer>) {
        let (reply, permitted) = oneshot::channel();
        let request = PermissionRequest {
            call_id: checked.id.clone(),
            tool: checked.tool.clone(),
            effects: checked.effects.clone(),
            resolved,
            action: checked.call.action(),
            input: checked.input.clone(),
            digest: checked.digest.clone(),
            preview,
            moved: checked.moved.clone(),
            reply,
        };
        (request, permitted)
    }

    /// Asks whether these calls may run, all at once: so the actor knows how many questions there are.
    pub(super) fn ask(&self, requests: Vec<PermissionRequest>) -> Result<(), TurnEnded> {
        if requests.is_empty() { Ok(()) } else { self.emit.tell(TurnMessage::AskPermissions(requests)) }
    }

    /// Waits for the decision; checks mode and rules again if `late`, because they may have changed.
    pub(super) async fn permitted(
        &self,
        checked: &CheckedCall,
        permitted: oneshot::Receiver<PermissionAnswer>,
        late: bool,
    ) -> Result<PermissionAnswer, TurnEnded> {
        let permitted = permitted.await.map_err(|_| TurnEnded)?;
        if !late || !matches!(permitted, PermissionAnswer::ForNow(_)) {
            return Ok(permitted);
        }
        let Some(resolved) = self.services.policy.resolve(&checked.effects.access, &self.workspace).await else {
            return Ok(PermissionAnswer::No(disk::unresponsive(&self.workspace.cwd)));
        };
        // The files may be others since.
        let preview = Preview { refusal: None, ..checked.preview.clone() };
        let (request, permitted) = Self::request(checked, resolved, preview);
        self.ask(vec![request])?;
        permitted.await.map_err(|_| TurnEnded)
    }

    /// The reason why a call must not run, if any.
    pub(super) async fn forbidden(&self, checked: &CheckedCall, permitted: PermissionAnswer) -> Option<NotRun> {
        let denied = |reason: String| NotRun(Outcome::Denied, format!("not run: {reason}"));
        match permitted {
            PermissionAnswer::No(reason) => return Some(denied(reason)),
            PermissionAnswer::Futile(refusal) => return Some(NotRun(Outcome::Invalid, refusal)),
            PermissionAnswer::Yes(allowed) | PermissionAnswer::ForNow(allowed) if allowed != checked.digest => {
                return Some(denied("the call differs from the one that was approved".to_owned()));
            }
            PermissionAnswer::Yes(_) | PermissionAnswer::ForNow(_) => fault::point("call.permitted"),
        }
        self.leads_elsewhere(&checked.effects.access, &checked.targets).await.map(denied)
    }

    /// The reason why a permitted call must not run: a symlink changed, and it would target another file.
    async fn leads_elsewhere(&self, access: &Access, targets: &Targets) -> Option<String> {
        if targets.is_empty() {
            return None;
        }
        let Some(resolved) = self.services.policy.resolve(access, &self.workspace).await else {
            return Some(disk::unresponsive(&self.workspace.cwd));
        };
        let now = resolved.targets(access);
        let (was, now) = targets.moved(&now)?;
        Some(format!("{} was approved, but the path now leads to {}", was.display(), now.display()))
    }

    /// Where commands run while the session's directory is gone; `None` while it is there. Fails with the reason.
    async fn moved(&self) -> Result<Option<Arc<Workspace>>, String> {
        let (workspace, empty) = (self.workspace.clone(), self.services.empty.join(self.session.as_str()));
        let moved = disk::probe(&self.workspace.cwd, disk::TIMEOUT, move || workspace.moved(&empty)).await;
        match moved {
            Some(Ok(moved)) => Ok(moved.map(Arc::new)),
            Some(Err(error)) => Err(format!("the working directory is gone, and no other can be made: {error}")),
            None => Err(disk::unresponsive(&self.workspace.cwd)),
        }
    }
}
