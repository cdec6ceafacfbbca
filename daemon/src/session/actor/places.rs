//! Places in the mailbox: requests take effect in the order in which they arrive, also those that have to be prepared.
//!
//! Most requests are one command. A request that has to be prepared first (by a check that reads the store, a command to expand, a
//! hook to run) sends [`Command::Enter`] instead. When the actor reaches it, the place begins: its holder prepares the request in
//! a task of its own and sends commands of the place, and later requests are held back until the place ends. So the actor never
//! waits for a holder, and a slow hook delays its own session only.
//!
//! A prompt that is being prepared holds back neither a cancel, which refuses it and those behind it, nor clients that attach or
//! only read. A request that copies the session, such as a fork, holds back only a removal once it has read what it copies. While a
//! cancelled turn stops, prompts and changes wait for its end.

use std::collections::VecDeque;

use super::*;
use crate::sys::task;

/// A place that has begun.
struct OpenPlace {
    place: PlaceId,
    kind: PlaceKind,
    /// Cancels its preparation.
    cancel: oneshot::Sender<RpcError>,
}

/// The places of a session, and what they hold back.
#[derive(Default)]
pub(super) struct PlaceQueue {
    /// The place that holds others back.
    current: Option<OpenPlace>,
    /// Places that began while a prompt is being prepared.
    beside: Vec<OpenPlace>,
    /// Places of requests that copy the session and have read it; a removal waits for them.
    copying: Vec<OpenPlace>,
    /// The commands that wait, in the order of their arrival.
    waiting: VecDeque<Box<Command>>,
}

impl PlaceQueue {
    /// Whether nothing is prepared and nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.current.is_none() && self.beside.is_empty() && self.copying.is_empty() && self.waiting.is_empty()
    }

    /// Gives back a command that may run now; any other waits. `is_stopping`: a turn is being ended.
    fn hold_back(&mut self, command: Box<Command>, is_stopping: bool) -> Option<Box<Command>> {
        if self.may_run(&command, is_stopping) {
            return Some(command);
        }
        self.waiting.push_back(command);
        None
    }

    fn may_run(&self, command: &Command, is_stopping: bool) -> bool {
        let Some(kind) = command.place_kind() else { return true };
        if command.is_removal() && !self.copying.is_empty() {
            return false;
        }
        match &self.current {
            None if !self.beside.is_empty() => false,
            None => match kind {
                PlaceKind::Cancel => true,
                PlaceKind::Attach | PlaceKind::Read => self.waiting.is_empty(),
                PlaceKind::Prompt | PlaceKind::Change => self.waiting.is_empty() && !is_stopping,
            },
            Some(OpenPlace { kind: PlaceKind::Prompt, .. }) => match kind {
                PlaceKind::Cancel | PlaceKind::Attach => true,
                PlaceKind::Read => self.waiting.iter().all(|waits| waits.place_kind() == Some(PlaceKind::Prompt)),
                PlaceKind::Prompt | PlaceKind::Change => false,
            },
            Some(_) => false,
        }
    }

    /// The next command that waits, once nothing holds it back.
    fn next(&mut self, is_stopping: bool) -> Option<Box<Command>> {
        if is_stopping || self.current.is_some() || !self.beside.is_empty() {
            return None;
        }
        let is_free = self.copying.is_empty() || self.waiting.front().is_some_and(|waits| !waits.is_removal());
        if is_free { self.waiting.pop_front() } else { None }
    }

    /// Gives back a command of a place that may run now; a removal waits, before all others, for those that copy the session.
    fn hold_back_removal(&mut self, command: Box<Command>) -> Option<Box<Command>> {
        if self.copying.is_empty() || !command.is_removal() {
            return Some(command);
        }
        self.waiting.push_front(command);
        None
    }

    /// The holder of a place has read what it copies.
    fn has_read(&mut self, place: &PlaceId) {
        let current = self.current.take_if(|held| held.place == *place);
        let beside = self.beside.iter().position(|held| held.place == *place).map(|at| self.beside.remove(at));
        self.copying.extend(current.or(beside));
    }

    fn begin(&mut self, current: OpenPlace) {
        match self.current {
            None => self.current = Some(current),
            Some(_) => self.beside.push(current),
        }
    }

    fn has(&self, place: &PlaceId) -> bool {
        self.current.iter().chain(&self.beside).any(|held| held.place == *place)
    }

    fn end(&mut self, place: &PlaceId) {
        if self.current.as_ref().is_some_and(|held| held.place == *place) {
            self.current = None;
        }
        self.beside.retain(|held| held.place != *place);
        self.copying.retain(|held| held.place != *place);
    }

    /// Cancels the prompt that is being prepared, and refuses those that wait behind it; whether there was one.
    fn cancel_prompts(&mut self, error: &RpcError) -> bool {
        let Some(prompt) = self.current.take_if(|held| held.kind == PlaceKind::Prompt) else { return false };
        // Its client may be gone.
        let _gone = prompt.cancel.send(error.clone());
        let (prompts, rest) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<VecDeque<_>, _>(|waits| waits.place_kind() == Some(PlaceKind::Prompt));
        self.waiting = rest;
        for prompt in prompts {
            prompt.refuse(error.clone());
        }
        true
    }

    /// Refuses all that waits or is being prepared, because the actor ends.
    pub(super) fn refuse_all(&mut self, error: &RpcError) {
        for held in self.current.take().into_iter().chain(self.beside.drain(..)).chain(self.copying.drain(..)) {
            // Its client may be gone, or its command under way.
            let _gone = held.cancel.send(error.clone());
        }
        for command in self.waiting.drain(..) {
            command.refuse(error.clone());
        }
    }
}

impl Actor {
    /// Takes a command from the mailbox: it runs, or waits.
    pub(super) async fn take(&mut self, command: Box<Command>) {
        if let Some(command) = self.places.hold_back(command, self.is_stopping()) {
            self.run_in_place(command).await;
        }
    }

    /// Runs the commands that wait, as far as nothing holds them back.
    pub(super) async fn take_waiting(&mut self) {
        while let Some(command) = self.places.next(self.is_stopping()) {
            self.run_in_place(command).await;
        }
    }

    /// Whether a turn is being ended; one that is interrupted goes on with other prompts.
    fn is_stopping(&self) -> bool {
        matches!(self.phase, Phase::Stopping(_, Then::Cancel(..) | Then::Remove(_)))
    }

    async fn run_in_place(&mut self, command: Box<Command>) {
        match *command {
            Command::Enter(entry) => self.enter(entry).await,
            Command::Placed(place, step) => self.placed(place, step).await,
            command => self.boxed_command(command).await,
        }
    }

    async fn enter(&mut self, entry: EnterRequest) {
        if self.may_resync() {
            self.resync(true).await;
        }
        if let Some(error) = self.why_not(&entry) {
            return respond(entry.began, Err(error));
        }
        let (cancel, cancelled) = oneshot::channel();
        let began = Began { stored: self.flush(), cancelled };
        // A holder that is gone needs no place.
        if entry.began.send(Ok(began)).is_ok() {
            self.places.begin(OpenPlace { place: entry.place, kind: entry.kind, cancel });
        }
    }

    /// Prepares a prompt in a task of the actor's own, whose last command is the prompt.
    pub(super) fn prepare(
        &mut self,
        request: Box<PromptRequest>,
        prepare: impl Future<Output = Result<Option<Value>, RpcError>> + Send + 'static,
    ) {
        let (place, (cancel, cancelled)) = (PlaceId::default(), oneshot::channel());
        self.places.begin(OpenPlace { place: place.clone(), kind: PlaceKind::Prompt, cancel });
        let (host, id, ended) = (self.host.clone(), self.id.clone(), self.cancelled_prompt());
        task::spawn(async move {
            let prepared = tokio::select! {
                biased;
                error = cancelled => Err(error.unwrap_or(ended)),
                prepared = prepare => prepared,
            };
            let step = match prepared {
                Ok(schema) => PlaceStep::Last(Box::new(Command::Prompt(request.with_schema(schema)))),
                Err(error) => {
                    respond(request.reply, Err(error));
                    PlaceStep::End
                }
            };
            host.command(&id, Command::Placed(place, step));
        });
    }

    /// Why nothing is prepared here for a request; its commands would be refused with the same error.
    fn why_not(&self, entry: &EnterRequest) -> Option<RpcError> {
        if self.id.is_daemon() {
            return Some(self.not_for_daemon());
        }
        if entry.kind != PlaceKind::Prompt {
            return None;
        }
        if matches!(self.phase, Phase::Failed(..)) {
            return Some(self.unwritten());
        }
        self.state.settings.binned_at.map(|_| self.binned())
    }

    async fn placed(&mut self, place: PlaceId, step: PlaceStep) {
        let is_held = self.places.has(&place);
        if let PlaceStep::HasRead = step {
            return self.places.has_read(&place);
        }
        let (command, stays_open) = match step {
            PlaceStep::Command(command) => (Some(command), true),
            PlaceStep::Last(command) => (Some(command), false),
            PlaceStep::HasRead | PlaceStep::End => (None, false),
        };
        if !stays_open {
            self.places.end(&place);
        }
        match command {
            Some(command) if is_held => {
                if let Some(command) = self.places.hold_back_removal(command) {
                    self.boxed_command(*command).await;
                }
            }
            Some(command) => command.refuse(self.cancelled_prompt()),
            None => {}
        }
    }

    /// Cancels prompts that are not in the log yet; whether there were any.
    pub(super) fn cancel_prepared(&mut self) -> bool {
        let error = self.cancelled_prompt();
        self.places.cancel_prompts(&error)
    }

    /// The error of a prompt that was cancelled before it was accepted.
    pub(super) fn cancelled_prompt(&self) -> RpcError {
        RpcError::new(Code::Idle, format!("cancelled before session {} took the prompt", self.id)).hint("prompt again")
    }
}
