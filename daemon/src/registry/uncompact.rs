//! Compactions: what they replaced, and taking the latest one back.
//!
//! The messages are in the log, so the context is made again without the summary. Whether it fits is an estimate by size, as before a
//! provider has counted.

use std::sync::Arc;

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::event::{Compacted, Event, EventBody};
use linger_protocol::id::SessionId;
use linger_protocol::tree::{CompactionRow, Compactions, Uncompact, Uncompacted};

use super::Registry;
use super::place::HeldPlace;
use crate::session::context::{self, Builder};
use crate::session::messages::{Author, Command};
use crate::session::state::State;
use crate::session::state::tree::MAX_SKIPPED;
use crate::store::StoreError;
use crate::store::idempotency::Key;
use crate::sys::task;

/// The most compactions that are listed: each has a summary of some KB.
const LISTED: usize = 100;

impl Registry {
    /// The compactions of a session's conversation, the latest first.
    pub async fn compactions(&self, asked: Compactions) -> Result<Vec<CompactionRow>, RpcError> {
        let (_, state) = self.stored(&asked.session).await?;
        Ok(self.compactions_of(&asked.session, &state, LISTED).await?)
    }

    /// Takes back the latest compaction that counts. `place`: the request's place in the session.
    pub async fn uncompact(
        self: &Arc<Self>,
        asked: Uncompact,
        place: &HeldPlace,
        key: Option<Key>,
        by: Author,
    ) -> Result<Uncompacted, RpcError> {
        let (_turn, done) = self.locked(key.as_ref()).await?;
        if let Some(done) = done {
            return Ok(done);
        }
        let id = &asked.session;
        let (_, mut state) = self.stored(id).await?;
        if state.turn.is_some() {
            let busy = RpcError::new(Code::Busy, format!("session {id} has an unfinished turn"));
            return Err(busy.hint("wait for its end, or cancel it first"));
        }
        let rows = self.compactions_of(id, &state, LISTED).await?;
        let Some(row) = rows.into_iter().find(|row| !row.undone) else {
            let idle = RpcError::new(Code::Idle, format!("session {id} has no compaction to take back"));
            return Err(idle.hint(format!("`linger log --compaction {id}` shows those that there were")));
        };
        if state.history.passed_over.uncompacted.len() >= MAX_SKIPPED {
            return Err(RpcError::new(Code::TooMuch, format!("{MAX_SKIPPED} compactions were taken back already")));
        }
        let head = state.progress.head;
        state.try_uncompact(row.seq);
        let tokens = self.tokens_of(id, &state).await?;
        if let Some(window) = self.env.providers.window(&state.settings.model).filter(|window| tokens >= *window) {
            let text = format!("the messages have about {tokens} tokens, and {} takes {window}", state.settings.model);
            let error = RpcError::new(Code::TooMuch, text);
            return Err(error.hint("`/model` changes to a model with a larger window; `linger log` shows the messages"));
        }
        let taken = Uncompacted { compacted: row.seq, messages: row.messages, tokens, by: None, process: None };
        place.ask(|reply| Command::Uncompact(taken, head, key, by, reply)).await
    }

    async fn compactions_of(
        &self,
        id: &SessionId,
        state: &State,
        most: usize,
    ) -> Result<Vec<CompactionRow>, StoreError> {
        let (page, _) = self.env.store.events_before(id.clone(), &["compacted"], state.progress.head, most).await?;
        let live = page.iter().filter(|stored| !state.history.passed_over.is_skipped(stored.seq));
        let row = |event: Event| match event.body {
            EventBody::Compacted(Compacted { through, messages, summary, tokens_before, tokens_after, .. }) => {
                let (seq, at) = (event.seq.unwrap_or_default(), event.at);
                let undone = state.history.passed_over.uncompacted.iter().any(|(compacted, _)| *compacted == seq);
                Some(CompactionRow { seq, at, through, messages, summary, tokens_before, tokens_after, undone })
            }
            _ => None,
        };
        Ok(live.filter_map(|stored| serde_json::from_str(&stored.data).ok().and_then(row)).collect())
    }

    /// About how many tokens the context of a session has, by the size of its messages.
    async fn tokens_of(&self, id: &SessionId, state: &State) -> Result<u64, StoreError> {
        let (mut builder, mut after) = (Builder::default(), 0);
        loop {
            let (mut page, more) = self.env.store.events_of(id.clone(), context::KINDS, after, context::PAGE).await?;
            after = page.last().map_or(after, |last| last.seq);
            page.retain(|stored| !state.history.passed_over.has(stored));
            let add = move || builder.add(&page).map(|()| builder);
            // A long history is parsed on a blocking thread, because one thread runs all sessions.
            let added = if more { task::spawn_blocking(add).await } else { Ok(add()) };
            let added = added.map_err(|error| StoreError(error.to_string().into()))?;
            builder = added.map_err(|error| StoreError::damage(format!("an event cannot be understood: {error}")))?;
            if !more {
                return Ok(builder.finish().estimated());
            }
        }
    }
}
