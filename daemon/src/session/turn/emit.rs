//! How a turn talks to its actor: events in order, and the commits that it waits for.

use std::collections::VecDeque;

use linger_protocol::event::EventBody;
use linger_protocol::session::Setup;
use tokio::sync::{mpsc, oneshot};

use super::Over;
use crate::session::Draft;
use crate::session::actor::{Ending, Next, TurnMessage};
use crate::session::log::Piece;
use crate::store::StoreError;

/// Appends of deltas that may wait for their commit before the turn waits too: it keeps the store busy and memory small.
const AHEAD: usize = 4;

/// Where a turn talks to its actor.
#[derive(Clone)]
pub struct Emitter(mpsc::UnboundedSender<TurnMessage>);

impl Emitter {
    /// An emitter that tells an actor with this mailbox.
    pub fn new(messages: mpsc::UnboundedSender<TurnMessage>) -> Self {
        Self(messages)
    }

    /// Emits events in order.
    pub fn send(
        &self,
        bodies: Vec<EventBody>,
        sync: bool,
        done: Option<oneshot::Sender<Result<(), StoreError>>>,
    ) -> Result<(), Over> {
        self.drafts(bodies.into_iter().map(Draft::new).collect(), sync, done)
    }

    /// Emits events in order, with the blobs that they name.
    pub fn drafts(
        &self,
        drafts: Vec<Draft>,
        sync: bool,
        done: Option<oneshot::Sender<Result<(), StoreError>>>,
    ) -> Result<(), Over> {
        self.tell(TurnMessage::Emit(drafts, sync, done))
    }

    /// Emits events and waits until they are on disk.
    pub async fn synced(&self, bodies: Vec<EventBody>) -> Result<(), Over> {
        let (done, committed) = oneshot::channel();
        self.send(bodies, true, Some(done))?;
        settled(committed).await
    }

    /// Waits until everything that was emitted is committed.
    pub(super) async fn committed(&self) -> Result<(), Over> {
        let (done, committed) = oneshot::channel();
        self.send(Vec::new(), false, Some(done))?;
        settled(committed).await
    }

    /// Emits pieces of open streams.
    pub fn pieces(&self, pieces: Vec<Piece>) -> Result<oneshot::Receiver<Result<(), StoreError>>, Over> {
        let (done, committed) = oneshot::channel();
        self.tell(TurnMessage::Pieces(pieces, done))?;
        Ok(committed)
    }

    /// The `provider/model` that the session has now, and what its requests have beside the conversation.
    pub(super) async fn model(&self) -> Result<(String, Option<Setup>), Over> {
        let (reply, answer) = oneshot::channel();
        self.tell(TurnMessage::Model(reply))?;
        answer.await.map_err(|_| Over)
    }

    /// Between two steps, or at the end of the turn; see [`TurnMessage::Boundary`].
    pub(super) async fn boundary(&self, ending: Option<Ending>) -> Result<Next, Over> {
        let (reply, answer) = oneshot::channel();
        self.tell(TurnMessage::Boundary(ending, reply))?;
        answer.await.map_err(|_| Over)
    }

    /// Tells the actor; if it has dropped the turn, the turn is over.
    pub fn tell(&self, message: TurnMessage) -> Result<(), Over> {
        self.0.send(message).map_err(|_| Over)
    }
}

/// Commits that are waited for, a few behind.
#[derive(Default)]
pub struct Commits(VecDeque<oneshot::Receiver<Result<(), StoreError>>>);

impl Commits {
    /// Takes one more; waits for the oldest when there are too many.
    pub async fn add(&mut self, commit: oneshot::Receiver<Result<(), StoreError>>) -> Result<(), Over> {
        self.0.push_back(commit);
        while self.0.len() > AHEAD
            && let Some(oldest) = self.0.pop_front()
        {
            settled(oldest).await?;
        }
        Ok(())
    }
}

/// Waits for a commit; one that was refused ends the turn.
pub(super) async fn settled(commit: oneshot::Receiver<Result<(), StoreError>>) -> Result<(), Over> {
    match commit.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(Over),
    }
}
