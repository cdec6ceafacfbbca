//! The bin: a session in it has no turn, takes no prompts and leaves its name to others, and everything else of it stays as it is.

use super::*;
use crate::session::env::names::NameGuard;

/// How many names are tried for a session that comes back while its own is taken.
const NAMES: u32 = 9;

/// Why commands in the background ended with a session that was put into the bin.
const BINNED: &str = "the session was put into the bin";

impl Actor {
    /// Puts the session into the bin, unless a turn runs.
    pub(super) async fn bin(&mut self, asked: KeyedReply) {
        self.put_into_bin(asked, false).await;
    }

    /// Puts the session into the bin, for `retention`, unless it has been used since `before`.
    pub(super) async fn retain(&mut self, before: u64, reply: Reply<()>) {
        if self.state.progress.updated_at >= before || self.state.has_due_prompt() {
            return respond(reply, Err(RpcError::new(Code::Busy, format!("session {} is in use", self.id))));
        }
        self.put_into_bin(KeyedReply { key: None, reply }, true).await;
    }

    async fn put_into_bin(&mut self, asked: KeyedReply, by_retention: bool) {
        let Some(KeyedReply { key, reply }) = self.first_time(asked).await else { return };
        if self.state.turn.is_some() {
            let busy = RpcError::new(Code::Busy, format!("session {} has a running turn", self.id));
            return respond(reply, Err(busy.hint("cancel it first, or remove it by force")));
        }
        if let Some(busy) = self.git_is_busy() {
            return respond(reply, Err(busy));
        }
        if self.state.settings.binned_at.is_some() {
            return respond(reply, Ok(()));
        }
        self.background.kill_all(BINNED);
        self.env.forget_secrets(&self.id);
        tracing::info!(target: "session", session = %self.id, "put into the bin");
        let outcome = self.remember(key, &());
        let draft = Draft::new(EventBody::bin_changed(true, None, by_retention));
        let committed = self.append_synced(vec![draft], outcome);
        respond_when(reply, committed, ());
    }

    /// Takes the session out of the bin, under its name or, where that is taken, the name with a number.
    pub(super) async fn take_out(&mut self, key: Option<Key>, reply: Reply<session::OutOfBin>) {
        let Some(reply) = self.if_new(key.as_ref(), reply).await else { return };
        if self.state.settings.binned_at.is_none() {
            let idle = RpcError::new(Code::Idle, format!("session {} is not in the bin", self.id));
            return respond(reply, Err(idle.hint("`linger ls --bin` lists what is there")));
        }
        let named = match self.free_name().await {
            Ok(named) => named,
            Err(error) => return respond(reply, Err(error)),
        };
        let (name, guard) = named.unzip();
        let back = session::OutOfBin { name: name.clone() };
        tracing::info!(target: "session", session = %self.id, "taken out of the bin");
        let outcome = self.remember(key, &back);
        let draft = Draft::new(EventBody::bin_changed(false, name, false));
        let committed = self.append_synced(vec![draft], outcome);
        respond_holding(reply, committed, back, guard);
    }

    /// The session's name if it had one and no other session has it, or the first free one with a number.
    async fn free_name(&self) -> Result<Option<(String, NameGuard)>, RpcError> {
        let Some(name) = &self.state.settings.name else { return Ok(None) };
        let mut refused = None;
        let numbered = (2..=NAMES).map(|n| format!("{name}-{n}"));
        for name in std::iter::once(name.clone()).chain(numbered) {
            match self.env.names.take(&self.env.store, &name, Some(&self.id)).await {
                Ok(guard) => return Ok(Some((name, guard))),
                Err(error) if error.code() == Some(Code::BadName) => refused = Some(error),
                Err(error) => return Err(error),
            }
        }
        refused.map_or(Ok(None), Err)
    }
}
