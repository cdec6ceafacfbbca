//! Delegating: a call's child is made, given its task, followed through its log, and its answer becomes the call's result.
//!
//! A child is a session like any other, with a log of its own; a call that is joined after a restart reads its progress there. [`Delegation`] belongs to a step of the parent's turn and talks to its actor; the actor follows children whose call has
//! ended. Deliberately absent: making sessions (the registry, through [`Host`]) and what a child's turn does.
//!
//! | file | owns |
//! |---|---|
//! | `follow` | reading a child's log |
//! | `answer` | the form of an answer, its sources, and the result of the call |

pub mod answer;
pub mod follow;

use std::path::Path;
use std::sync::Arc;

use linger_protocol::RpcError;
use linger_protocol::child::{ChildStatus, ChildUpdate, Delegated};
use linger_protocol::event::Process;
use linger_protocol::id::{CallId, SessionId};
use linger_protocol::permission::Mode;
use linger_protocol::prompt::PromptContent;
use linger_protocol::session::{self, Create, Prompted};
use linger_protocol::worktree::Worktree;
use tokio::sync::{Semaphore, oneshot};

use crate::config::Policy;
use crate::session::env::{Host, TurnServices};
use crate::session::messages::{
    Author, Child, ChildSettings, Command, Emitter, KeyedReply, PromptRequest, Reply, TurnEnded, TurnMessage,
};
use crate::store::Store;
use crate::store::idempotency::Key;
use crate::tool::delegate::{Delegate, Order};
use crate::tool::{ToolOutput, Workspace};
use follow::Follower;

/// Delegates the tasks of one step's calls.
#[derive(Clone)]
pub struct Delegation {
    store: Store,
    policy: Arc<Policy>,
    host: Arc<dyn Host>,
    emit: Emitter,
    workspace: Arc<Workspace>,
    session: SessionId,
    /// A place for each child that works.
    places: Arc<Semaphore>,
}

impl Delegation {
    /// For the calls of a step of this session.
    pub fn of(
        services: &TurnServices,
        host: &Arc<dyn Host>,
        emit: &Emitter,
        workspace: &Arc<Workspace>,
        session: &SessionId,
    ) -> Self {
        let places = Arc::new(Semaphore::new(services.config.delegation().at_once as usize));
        let (store, policy) = (services.store.clone(), services.policy.clone());
        let (host, emit) = (host.clone(), emit.clone());
        Self { store, policy, host, emit, workspace: workspace.clone(), session: session.clone(), places }
    }

    /// The function with which a call delegates.
    pub fn of_call(&self, call: &CallId) -> Delegate {
        let (this, call) = (self.clone(), call.clone());
        Arc::new(move |order| {
            let (this, call) = (this.clone(), call.clone());
            Box::pin(async move { this.run(&call, order).await.unwrap_or_else(ToolOutput::error) })
        })
    }

    /// Fails with what the model is told.
    async fn run(&self, call: &CallId, order: Order) -> Result<ToolOutput, String> {
        let _place = if order.background {
            // Its call ends at once.
            None
        } else {
            Some(self.places.acquire().await.map_err(|error| error.to_string())?)
        };
        let basis = self.basis(call, order.background).await?;
        let mut update = match basis.known.clone() {
            Some(known) => known,
            None => self.make(call, &order, basis).await?,
        };
        let prompt = |cwd: &Path, worktree: Option<&Worktree>| prompt_of(&order, &self.workspace.cwd, cwd, worktree);
        let mut follower = Follower::attach(&self.store, &self.host, &update.child).await?;
        follower.give_task(&self.session, prompt).await.map_err(|error| error.message)?;
        if order.background {
            return Ok(answer::handle(&update));
        }
        let mut why = None;
        loop {
            if !follower.next(&mut update).await {
                continue;
            }
            let is_over_budget = self.tell(update.clone()).await?;
            if update.is_finished() {
                break;
            }
            if is_over_budget && why.is_none() {
                why = Some("the budget of the session that delegated it is spent");
                self.host.clone().command(&update.child, cancel());
            }
        }
        let (cwd, own) = follower.form();
        let ending = follower.ending();
        let output = answer::result(&self.policy, &self.workspace, &cwd, &update, ending, own, why).await;
        // After its sources were looked up, which may be there.
        Ok(answer::with_worktree(output, follower.remove_worktree().await.as_ref()))
    }

    /// Asks the actor for the settings of a call's child, or for the child that the call has already.
    async fn basis(&self, call: &CallId, background: bool) -> Result<ChildSettings, String> {
        let settings = self.emit.ask(|reply| TurnMessage::Delegate(call.clone(), background, reply)).await;
        settings.map_err(|TurnEnded| ENDED.to_owned())?
    }

    /// Makes the child, and records that before it has a task: one whose parent does not know of it does nothing.
    async fn make(&self, call: &CallId, order: &Order, basis: ChildSettings) -> Result<ChildUpdate, String> {
        let ChildSettings { create, model, mode, depth, .. } = basis;
        if order.worktree == Some(true) && mode == Mode::Plan {
            return Err(
                "not run: in mode plan nothing changes, so there is no worktree; delegate without one".to_owned()
            );
        }
        let bound_by = self.workspace.bound_by.clone();
        let delegated = Delegated { call: call.clone(), depth, agent: order.agent.clone(), worktree: None, bound_by };
        // Its rules and its workspace are those of its parent; another directory would have others.
        let create = Create { cwd: self.workspace.cwd.clone(), agent: Some(order.agent.clone()), ..create };
        let (parent, workspace) = (self.session.clone(), self.workspace.clone());
        let worktree = order.worktree;
        let child = Child { parent, delegated, create, model, most: mode, workspace, worktree };
        let child = self.host.clone().child(child).await.map_err(|error| describe(&error))?;
        tracing::info!(target: "session", session = %self.session, %child, agent = order.agent, "delegates");
        let update = ChildUpdate {
            child,
            call_id: call.clone(),
            agent: order.agent.clone(),
            background: order.background,
            status: ChildStatus::Started,
            ..ChildUpdate::default()
        };
        self.tell(update.clone()).await?;
        Ok(update)
    }

    /// Records how a child gets on; whether the budget of the session is spent.
    async fn tell(&self, update: ChildUpdate) -> Result<bool, String> {
        let is_spent = self.emit.ask(|reply| TurnMessage::Child(Box::new(update), reply)).await;
        is_spent.map_err(|TurnEnded| ENDED.to_owned())
    }
}

/// Why a call ends whose turn is gone; no model reads it.
const ENDED: &str = "the turn has ended";

/// The command that cancels a child's turn.
pub fn cancel() -> Command {
    Command::Cancel(true, KeyedReply { key: None, reply: oneshot::channel().0 })
}

/// A child that cannot be made, for the model.
fn describe(error: &RpcError) -> String {
    let hint = error.get_hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
    format!("not run: {}{hint}", error.message)
}

/// The child's prompt; `cwd` is where it is, and `above` where its parent is.
fn prompt_of(order: &Order, above: &Path, cwd: &Path, worktree: Option<&Worktree>) -> session::Prompt {
    let moved = |path: &Path| path.strip_prefix(above).map_or_else(|_| path.to_path_buf(), |below| cwd.join(below));
    let place = if order.directory.as_path() == above {
        String::new()
    } else {
        format!("\n\nWork in {}.", moved(&order.directory).display())
    };
    let own = worktree.map_or_else(String::new, |worktree| {
        format!(
            "\n\n[You work in a git worktree of your own, {}, on the branch {}, which begins with the last commit: changes that \
             were not committed are not in it. Stay in it. What you change is kept, and you need not commit it.]",
            worktree.path.display(),
            worktree.branch
        )
    });
    let files = match order.files.as_slice() {
        [] => String::new(),
        files => {
            let names: Vec<String> = files.iter().map(|file| moved(Path::new(file)).display().to_string()).collect();
            format!("\n\nBegin with these files:\n{}", names.join("\n"))
        }
    };
    let form = if order.schema.is_none() { answer::FORM } else { "" };
    let text = format!("{}{place}{files}{own}{form}", order.task);
    session::Prompt {
        session: SessionId::default(),
        content: PromptContent::Text(text),
        when: None,
        schema: Some(order.schema.clone().unwrap_or_else(answer::schema)),
        until: None,
        expand: false,
        awaited: true,
        env: Default::default(),
        key: None,
    }
}

/// The command that gives a child its task, once: the key is that of its only task.
fn give(parent: &SessionId, child: &SessionId, prompt: session::Prompt, reply: Reply<Prompted>) -> Command {
    let key = Key { id: format!("delegate {child}"), params: String::new() };
    let process = Some(Process { pid: std::process::id(), family: true });
    let by = Author { name: format!("session {parent}"), process };
    let prompt = session::Prompt { session: child.clone(), ..prompt };
    Command::Prompt(Box::new(PromptRequest { prompt, named: None, key: Some(key), by, has_schema: true, reply }))
}

#[cfg(test)]
mod tests {
    use linger_protocol::message::text_of;

    use super::*;

    #[test]
    fn a_directory_is_a_part_of_the_task_unless_the_child_is_there() {
        let said = |directory: &str, cwd: &str, worktree: Option<&Worktree>| {
            let (agent, task, files) =
                ("general".to_owned(), "look".to_owned(), vec!["a".to_owned(), "/w/b".to_owned()]);
            let (schema, background, directory) = (None, false, directory.into());
            let order = Order { agent, task, files, directory, schema, background, worktree: None };
            text_of(&prompt_of(&order, Path::new("/w"), Path::new(cwd), worktree).content.into_blocks())
        };
        let plain = said("/w", "/w", None);
        assert!(plain.starts_with("look\n\nBegin with these files:\na\n/w/b\n"), "{plain}");
        let below = said("/w/sub", "/w", None);
        assert!(below.starts_with("look\n\nWork in /w/sub.\n\nBegin with"), "{below}");
        let worktree = Worktree { path: "/t".into(), branch: "linger/x".to_owned(), ..Worktree::default() };
        let own = said("/w/sub", "/t", Some(&worktree));
        let expect = "look\n\nWork in /t/sub.\n\nBegin with these files:\na\n/t/b\n\n[You work in a git worktree of your own, /t,";
        assert!(own.starts_with(expect), "{own}");
    }
}
