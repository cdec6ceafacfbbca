//! Taking up what a daemon that died left behind, and starting anew after a failed write.

use super::*;

impl Actor {
    /// Goes on with what a daemon that died left behind.
    pub(super) async fn take_up(&mut self) -> Result<(), StoreError> {
        let pieces = self.daemon.store.scratch(self.id.clone()).await?;
        let turn = self.state.turn.as_ref().map(|turn| turn.id.clone());
        self.streams.clear();
        pieces.into_iter().for_each(|piece| push_piece(&mut self.streams, turn.as_ref(), piece));
        self.log.tail().streams.clone_from(&self.streams);
        if let Some(turn) = &self.state.turn {
            self.results = self.stored_results(turn).await?;
            let plan = recovery::plan(&self.state, &self.streams);
            tracing::info!(target: "turn", session = %self.id, resume = plan.resume, "found unfinished");
            self.append(plan.drafts, Vec::new(), true, None);
            if plan.resume {
                self.spawn_turn();
            }
        } else {
            self.start_next(false);
        }
        Ok(())
    }

    /// The results of a turn's open calls, as far as they are stored.
    pub(super) async fn stored_results(
        &self,
        turn: &crate::session::state::Turn,
    ) -> Result<HashMap<CallId, ContentBlock>, StoreError> {
        let mut results = HashMap::new();
        for call in turn.calls.iter().filter(|call| call.finished) {
            let stored = self.daemon.store.closing(self.id.clone(), call.id.0.clone()).await?;
            let event = stored.and_then(|stored| serde_json::from_str::<Event>(&stored.data).ok());
            results.extend(event.and_then(|event| recovery::result_of(&event.body)));
        }
        Ok(results)
    }

    /// A write failed: what was folded since is not stored. Stops, and starts anew from the store after a while.
    pub(super) fn fail(&mut self) {
        if let Phase::Running(running) = std::mem::replace(&mut self.phase, Phase::Failed(MEND[0])) {
            running.task.abort();
        }
    }

    pub(super) async fn mend(&mut self) {
        let Phase::Failed(wait) = self.phase else { return };
        self.barrier().await;
        self.phase = Phase::Idle;
        self.log.mend();
        self.remembered.clear();
        let again = async {
            let row = self.daemon.store.session(self.id.clone()).await?;
            let fold = row.map(|row| row.fold).unwrap_or_default();
            self.state = parse_state(&self.id, &fold)?;
            self.take_up().await
        };
        if let Err(error) = again.await {
            tracing::error!(target: "session", session = %self.id, %error, "still cannot be read");
            self.phase = Phase::Failed((wait * 2).min(MEND[1]));
        }
    }
}

pub(super) fn parse_state(id: &SessionId, fold: &str) -> Result<State, StoreError> {
    serde_json::from_str(fold).map_err(|error| StoreError(format!("session {id} cannot be read: {error}").into()))
}
