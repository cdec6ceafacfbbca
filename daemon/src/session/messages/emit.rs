//! How a turn talks to its actor: events in order, and the commits that it waits for.

use std::sync::Arc;

use linger_protocol::event::{EventBody, Level, NoticeCode};
use linger_protocol::id::{CallId, MessageId};
use linger_protocol::message::{ContentBlock, Times};
use linger_protocol::question::Blocks;
use linger_protocol::session::PrefixFingerprint;
use tokio::sync::{mpsc, oneshot};

use super::{Committed, Fragment, NextStep, TurnEnding, TurnMessage};
use crate::question;
use crate::session::Draft;
use crate::session::state::until::UntilState;
use crate::session::state::{Resolution, Run};
use crate::store::StoreError;
use crate::tool::{Ask, Choice, Chosen, Invalid, Wants};

/// The turn has ended for a reason that its actor knows: the actor ended it, or the store failed.
pub struct TurnEnded;

/// Where a turn talks to its actor.
#[derive(Clone)]
pub struct Emitter(mpsc::UnboundedSender<Box<TurnMessage>>);

impl Emitter {
    /// An emitter that tells an actor with this mailbox.
    pub fn new(messages: mpsc::UnboundedSender<Box<TurnMessage>>) -> Self {
        Self(messages)
    }

    /// Emits events in order.
    pub fn send(
        &self,
        bodies: Vec<EventBody>,
        sync: bool,
        done: Option<oneshot::Sender<Result<(), StoreError>>>,
    ) -> Result<(), TurnEnded> {
        self.drafts(bodies.into_iter().map(Draft::new).collect(), sync, done)
    }

    /// Emits events in order, with the blobs that they name.
    pub fn drafts(
        &self,
        drafts: Vec<Draft>,
        sync: bool,
        done: Option<oneshot::Sender<Result<(), StoreError>>>,
    ) -> Result<(), TurnEnded> {
        self.tell(TurnMessage::Emit(drafts, sync, done))
    }

    /// Emits events and waits until they are on disk.
    pub async fn synced(&self, bodies: Vec<EventBody>) -> Result<(), TurnEnded> {
        self.send_and_wait(bodies, true).await
    }

    /// Waits until everything that was emitted is committed.
    pub(in crate::session) async fn committed(&self) -> Result<(), TurnEnded> {
        self.send_and_wait(Vec::new(), false).await
    }

    /// Emits an event and waits until it is committed, and everything before it.
    pub(in crate::session) async fn committed_event(&self, body: EventBody) -> Result<(), TurnEnded> {
        self.send_and_wait(vec![body], false).await
    }

    async fn send_and_wait(&self, bodies: Vec<EventBody>, sync: bool) -> Result<(), TurnEnded> {
        let (done, committed) = oneshot::channel();
        self.send(bodies, sync, Some(done))?;
        settled(committed).await
    }

    /// Shows a notice to people.
    pub(in crate::session) fn notice(&self, level: Level, code: NoticeCode, text: String) -> Result<(), TurnEnded> {
        self.send(vec![EventBody::notice(level, code, text)], false, None)
    }

    /// Emits a message of the history; gives the name that it got, and its content with the names of its calls.
    pub(in crate::session) async fn message(
        &self,
        body: EventBody,
    ) -> Result<(MessageId, Vec<ContentBlock>), TurnEnded> {
        self.named(body, None).await
    }

    /// As [`Self::message`], once it is committed.
    pub(in crate::session) async fn committed_message(
        &self,
        body: EventBody,
    ) -> Result<(MessageId, Vec<ContentBlock>), TurnEnded> {
        let (done, committed) = oneshot::channel();
        let named = self.named(body, Some(done)).await?;
        settled(committed).await?;
        Ok(named)
    }

    async fn named(
        &self,
        body: EventBody,
        done: Option<oneshot::Sender<Result<(), StoreError>>>,
    ) -> Result<(MessageId, Vec<ContentBlock>), TurnEnded> {
        self.ask(|reply| TurnMessage::Message(Box::new(body), reply, done)).await
    }

    /// Turns the shown text of a failed attempt of `model` into a message; returns its id.
    pub(in crate::session) async fn interrupted(
        &self,
        model: String,
        times: Option<Times>,
    ) -> Result<MessageId, TurnEnded> {
        self.ask(|reply| TurnMessage::Interrupted(model, times, reply)).await
    }

    /// Emits new text of streams, and waits until it is committed. Text that arrives meanwhile waits at its source, so that each of
    /// hundreds of streams is read once a commit, and not once a token.
    pub async fn pieces(&self, pieces: Vec<Fragment>) -> Result<(), TurnEnded> {
        let (done, committed) = oneshot::channel();
        self.tell(TurnMessage::Pieces(pieces, done))?;
        settled(committed).await
    }

    /// The `provider/model` that the session has now, and what stands before the conversation in its requests.
    pub(in crate::session) async fn model(&self) -> Result<(String, Option<PrefixFingerprint>), TurnEnded> {
        self.ask(TurnMessage::Model).await
    }

    /// The check of the turn, if it has one; announces it if the latest answer has none yet.
    pub(in crate::session) async fn check(&self) -> Result<Option<UntilState>, TurnEnded> {
        self.ask(TurnMessage::Check).await
    }

    /// The command lines of the prompt's command; announces the next one if none is under way.
    pub(in crate::session) async fn runs(&self) -> Result<Vec<Run>, TurnEnded> {
        self.ask(TurnMessage::Runs).await
    }

    /// Between two steps, or at the end of the turn; see [`TurnMessage::Boundary`].
    pub(in crate::session) async fn boundary(&self, ending: Option<TurnEnding>) -> Result<NextStep, TurnEnded> {
        self.ask(|reply| TurnMessage::Boundary(ending.map(Box::new), reply)).await
    }

    /// The function with which `call` asks a person. It keeps no turn alive: after the turn's end it fails.
    pub fn asks(&self, call: &CallId) -> Ask {
        let (actor, call) = (self.0.downgrade(), call.clone());
        Arc::new(move |Choice { text, wants }| {
            let call = Some(call.clone());
            let question = match wants {
                Wants::Option(options) => question::choice(text, options, Blocks::Call, call),
                Wants::Fields(schema) => question::form(text, schema, Blocks::Call, call),
            };
            let (reply, answer) = oneshot::channel();
            let told = actor
                .upgrade()
                .is_some_and(|actor| actor.send(Box::new(TurnMessage::Ask(Box::new(question), reply))).is_ok());
            Box::pin(async move {
                let ended = || Invalid("the turn has ended".to_owned());
                let answer = if told { answer.await.map_err(|_| ended())? } else { return Err(ended()) };
                let Resolution { answer, value, by, reason, .. } =
                    answer.map_err(|refused| Invalid(refused.message))?;
                let answer =
                    answer.ok_or_else(|| Invalid(format!("the question was withdrawn: {}", reason.unwrap_or(by))))?;
                Ok(Chosen { answer, value })
            })
        })
    }

    /// Waits until the actor has dropped the turn.
    pub(in crate::session) async fn closed(&self) {
        self.0.closed().await;
    }

    /// Sends the actor a message with a reply channel, and waits for the reply.
    pub(in crate::session) async fn ask<T>(
        &self,
        message: impl FnOnce(oneshot::Sender<T>) -> TurnMessage,
    ) -> Result<T, TurnEnded> {
        let (reply, answer) = oneshot::channel();
        self.tell(message(reply))?;
        answer.await.map_err(|_| TurnEnded)
    }

    /// Tells the actor; if it has dropped the turn, the turn is over.
    pub fn tell(&self, message: TurnMessage) -> Result<(), TurnEnded> {
        self.0.send(Box::new(message)).map_err(|_| TurnEnded)
    }
}

/// Waits for a commit; one that was refused ends the turn.
async fn settled(commit: Committed) -> Result<(), TurnEnded> {
    match commit.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(TurnEnded),
    }
}
