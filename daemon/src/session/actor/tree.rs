//! Forks and going back, as far as an actor does them.

use linger_protocol::tree::{Forked, RewindDone, Rewound, Uncompacted};

use super::*;

impl Actor {
    /// Creates the actor of a fork whose log ends with the events of `before`, and queues its first own events, `forked` and `more`;
    /// `done` gets the result of the commit.
    pub fn fork(
        env: Arc<Env>,
        host: Arc<dyn Host>,
        new: NewSession<'_>,
        before: State,
        forked: Forked,
        more: Option<Draft>,
        done: oneshot::Sender<Result<(), StoreError>>,
    ) -> Self {
        let NewSession { id, variables, workspace, outcome } = new;
        let log = Log::new(id, before.progress.head, Vec::new());
        let origin = Fold::Shared(forked.origin.session.0.clone(), before.progress.head);
        let folds = [origin, environment(variables)].into_iter().chain(outcome).collect();
        workspace.added.set(&forked.additional_directories);
        let mut actor = Self::new(env, host, log, before, workspace);
        fault::point("actor.fork");
        let begun = Draft::new(EventBody::Forked(Box::new(forked)));
        actor.append(std::iter::once(begun).chain(more).collect(), folds, true, Some(done));
        actor
    }

    /// Goes back, unless something has happened since that was checked.
    pub(super) async fn go_back(&mut self, back: GoBack, key: Option<Key>, by: Author, reply: Reply<RewindDone>) {
        let Some(reply) = self.if_new(key.as_ref(), reply).await else { return };
        if let Err(error) = self.is_still_at(back.head) {
            return respond(reply, Err(error));
        }
        fault::point("actor.rewind");
        let Author { name, process } = by;
        let body = EventBody::Rewound(Rewound { by: Some(name), process, ..back.rewound });
        tracing::info!(target: "session", session = %self.id, to = back.done.to, branch = %back.done.branch, "went back");
        self.withdraw_plan("the session went back");
        let outcome = self.remember(key, &back.done);
        let committed = self.append_synced(vec![Draft::new(body)], outcome);
        self.workspace.seen.forget();
        respond_when(reply, committed, back.done);
    }

    /// Takes back a compaction, unless something has happened since that was checked.
    pub(super) async fn uncompact(
        &mut self,
        taken: Uncompacted,
        head: u64,
        key: Option<Key>,
        by: Author,
        reply: Reply<Uncompacted>,
    ) {
        let Some(reply) = self.if_new(key.as_ref(), reply).await else { return };
        if let Err(error) = self.is_still_at(head) {
            return respond(reply, Err(error));
        }
        let Author { name, process } = by;
        let body = EventBody::Uncompacted(Uncompacted { by: Some(name), process, ..taken.clone() });
        let outcome = self.remember(key, &taken);
        let committed = self.append_synced(vec![Draft::new(body)], outcome);
        respond_when(reply, committed, taken);
    }

    /// Fails if something has happened since this event, or a turn runs.
    fn is_still_at(&self, head: u64) -> Result<(), RpcError> {
        if self.state.turn.is_none() && matches!(self.phase, Phase::Idle) && self.state.progress.head == head {
            return Ok(());
        }
        let busy = RpcError::new(Code::Busy, format!("session {} has gone on meanwhile", self.id));
        Err(busy.hint("wait for the end of its turn, and try again"))
    }
}
