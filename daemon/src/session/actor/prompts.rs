//! Prompts of clients: each is checked, queued, and answered by its commit; a queued one can be taken back.

use linger_protocol::event::PromptAccepted;
use linger_protocol::message::ImageSource;

use super::*;
use crate::provider::json_size;
use crate::provider::schema;
use crate::session::env::library;
use crate::session::state::until::may_check;
use crate::store::blob::{Blobs, Held, StowError, in_base64};
use crate::sys::task;

/// The longest focus of a compaction, in bytes: a few pages.
const MAX_FOCUS: usize = 16 << 10;

/// A checked prompt.
struct Accepted {
    content: Vec<ContentBlock>,
    when: When,
    /// Whether it is a compaction.
    compact: bool,
    /// The schema of the answer, if it has one.
    schema: Option<Value>,
    /// The check that has to pass.
    until: Option<session::Until>,
    /// The command that it named.
    named: Option<Named>,
    /// Whether its sender waits for the answer.
    awaited: bool,
    /// The blobs that `content` names.
    blobs: Vec<Held>,
}

impl Actor {
    pub(super) async fn prompt(&mut self, mut request: Box<PromptRequest>) {
        request.key = request.key.filter(|_| !fault::bug("I5"));
        let Some(request) = self.wait_for_worktree(request) else { return };
        if let Some(role) = self.state.identity.role.as_ref().filter(|_| !request.has_schema) {
            let (env, workspace, agent) = (self.env.clone(), self.workspace.clone(), role.name.clone());
            return self
                .prepare(request, async move { library::response_schema(&env.toolbox, &workspace, &agent).await });
        }
        let PromptRequest { prompt, named, key, by, reply, .. } = *request;
        let Some(reply) = self.if_new(key.as_ref(), reply).await else { return };
        // Its parent may have changed while it was made.
        if let Err(error) = self.keep_within_parent().await {
            return respond(reply, Err(error.into()));
        }
        self.take_variables(&prompt.env);
        let content = prompt.content.into_blocks();
        if let Some(why) = prompt.until.as_ref().and_then(|until| may_check(until).err()) {
            return respond(reply, Err(RpcError::new(Code::BadPrompt, why).hint("nothing was started")));
        }
        if let Err(error) = self.may_prompt(&content).await {
            return respond(reply, Err(error));
        }
        self.see_workspace().await;
        let asked = match good_schema(prompt.schema).await {
            Ok(asked) => asked,
            Err(error) => return respond(reply, Err(error)),
        };
        let (content, blobs) = match stow(self.env.store.blobs.clone(), content).await {
            Ok(stowed) => stowed,
            Err(error) => return respond(reply, Err(error)),
        };
        let accepted = Accepted {
            content,
            when: prompt.when.unwrap_or_default(),
            compact: false,
            schema: asked,
            until: prompt.until,
            named,
            awaited: prompt.awaited,
            blobs,
        };
        self.accept(accepted, key, by, reply);
    }

    /// A compaction is queued like a prompt: it waits, survives a restart and is cancelled like one.
    pub(super) async fn compact(
        &mut self,
        compact: session::Compact,
        key: Option<Key>,
        by: Author,
        reply: Reply<Prompted>,
    ) {
        let Some(reply) = self.if_new(key.as_ref(), reply).await else { return };
        let focus = compact.focus.filter(|focus| !focus.trim().is_empty());
        let content: Vec<ContentBlock> = focus.map(ContentBlock::text).into_iter().collect();
        if let Err(error) = self.may_compact(&content) {
            return respond(reply, Err(error));
        }
        let (schema, until, named, blobs) = (None, None, None, Vec::new());
        let accepted =
            Accepted { content, when: When::Steer, compact: true, schema, until, named, awaited: false, blobs };
        self.accept(accepted, key, by, reply);
    }

    fn may_compact(&self, content: &[ContentBlock]) -> Result<(), RpcError> {
        if self.state.progress.counts.messages == 0 {
            let idle = RpcError::new(Code::Idle, format!("session {} has nothing to compact", self.id));
            return Err(idle.hint("it has no messages yet"));
        }
        if self.state.turn.as_ref().is_some_and(|turn| turn.wait.offered) {
            let busy = RpcError::new(Code::Busy, format!("session {} has an unfinished turn", self.id));
            return Err(busy.hint("continue or cancel it first"));
        }
        if self.state.queue.prompts.iter().any(|queued| queued.compact) {
            let busy = RpcError::new(Code::Busy, format!("session {} already has a queued compaction", self.id));
            return Err(busy.hint("wait for that, or cancel it"));
        }
        if size(content) > MAX_FOCUS {
            let much = format!("the focus of a summary is longer than {MAX_FOCUS} bytes");
            return Err(RpcError::new(Code::TooMuch, much));
        }
        self.may_wait(content)?;
        self.env.providers.usable(&self.state.settings.model)
    }

    /// Queues a prompt, and starts it if the session is idle.
    fn accept(&mut self, accepted: Accepted, key: Option<Key>, by: Author, reply: Reply<Prompted>) {
        let Accepted { content, when, compact, schema, until, named, awaited, blobs } = accepted;
        fault::point("actor.prompt");
        if !compact {
            self.withdraw_plan("another prompt came");
        }
        let (command, runs, limit) = match named {
            Some(Named { typed, runs, limit }) => (Some(typed), runs, limit),
            None => (None, Vec::new(), None),
        };
        let plain = self.next_prompt(content, when, &by);
        let accepted = PromptAccepted { compact, schema, until, command, runs, limit, awaited, ..plain };
        let prompted = Prompted { prompt: accepted.prompt.clone(), seq: self.state.progress.head + 1 };
        let outcome = self.remember(key, &prompted);
        let accepted = Draft { blobs, ..Draft::new(EventBody::PromptAccepted(accepted)) };
        let committed = self.append_synced(vec![accepted], outcome);
        respond_when(reply, committed, prompted);
        if when == When::Steer && !compact {
            self.answer_circles(&by);
        }
        self.start_prompts(when);
    }

    /// Goes on with what was just queued.
    fn start_prompts(&mut self, when: When) {
        match (&mut self.phase, when) {
            (Phase::Running(_), When::Interrupt) => self.stop(Then::Interrupt),
            // Someone is there: a turn that waits for its provider tries at once.
            (Phase::Running(running), _) => running.nudge(),
            // Held prompts start when git is done.
            (Phase::Git(git), _) => git.start_held(),
            (Phase::Idle, _) if self.state.turn.is_some() => drop(self.resume_interrupted(Vec::new())),
            (Phase::Idle, _) => self.start_next(true),
            _ => {}
        }
    }

    /// Sends one draft: it is queued like a new prompt.
    pub(super) async fn send_draft(&mut self, prompt: PromptId, by: &Author, asked: KeyedReply) {
        let Some(KeyedReply { key, reply }) = self.first_time(asked).await else { return };
        if !self.state.queue.drafts.iter().any(|draft| draft.prompt == prompt) {
            let none = RpcError::new(Code::Idle, format!("prompt {prompt} is no draft of session {}", self.id));
            return respond(reply, Err(none.hint(format!("`linger queue {}` lists them", self.id))));
        }
        self.send_drafts(vec![prompt], key, by, reply);
    }

    /// Queues drafts again, in their order, and starts them.
    pub(super) fn send_drafts(&mut self, drafts: Vec<PromptId>, key: Option<Key>, by: &Author, reply: Reply<()>) {
        if let Err(error) = self.env.providers.usable(&self.state.settings.model) {
            return respond(reply, Err(error));
        }
        self.withdraw_plan("another prompt came");
        let outcome = self.remember(key, &());
        let sent = |prompt| EventBody::DraftSent { prompt, by: Some(by.name.clone()), process: by.process };
        let drafts = drafts.into_iter().map(sent).map(Draft::new).collect();
        let committed = self.append_synced(drafts, outcome);
        respond_when(reply, committed, ());
        self.start_prompts(When::Queue);
    }

    /// Takes back a prompt that waits for its turn, or a draft: the one that is named, or the last.
    pub(super) async fn unqueue(
        &mut self,
        prompt: Option<PromptId>,
        key: Option<Key>,
        by: Author,
        reply: Reply<session::Unqueued>,
    ) {
        let Some(reply) = self.if_new(key.as_ref(), reply).await else { return };
        // The prompt of a compaction that runs stays queued until its end; a cancel is for that.
        let running = self.state.turn.as_ref().and_then(|turn| turn.prompt.clone());
        let may_go = |queued: &&Queued| Some(&queued.prompt) != running.as_ref();
        let meant = match &prompt {
            Some(prompt) => self.state.queue.all().filter(may_go).find(|queued| queued.prompt == *prompt),
            None => self.state.queue.prompts.iter().rfind(may_go).or_else(|| self.state.queue.drafts.last()),
        };
        let Some(prompt) = meant.map(|queued| queued.prompt.clone()) else {
            let text = match prompt {
                Some(prompt) => format!("prompt {prompt} is not queued in session {}", self.id),
                None => format!("session {} has no queued prompts", self.id),
            };
            return respond(
                reply,
                Err(RpcError::new(Code::Idle, text).hint("a prompt that has started can be cancelled")),
            );
        };
        let unqueued = session::Unqueued { prompt: prompt.clone() };
        let outcome = self.remember(key, &unqueued);
        let Author { name, process } = by;
        let draft = Draft::new(EventBody::PromptUnqueued { prompt, by: Some(name), process });
        let committed = self.append_synced(vec![draft], outcome);
        respond_when(reply, committed, unqueued);
    }

    /// Queues the words that a user gave with an answer, for the next step of the turn.
    pub(super) fn steer(&mut self, content: Vec<ContentBlock>, by: &Author) {
        let accepted = EventBody::PromptAccepted(self.next_prompt(content, When::Steer, by));
        self.append(vec![Draft::new(accepted)], Vec::new(), false, None);
    }

    /// The event of the next prompt, with this content alone.
    pub(super) fn next_prompt(&self, content: Vec<ContentBlock>, when: When, by: &Author) -> PromptAccepted {
        let Author { name, process } = by.clone();
        PromptAccepted {
            prompt: PromptId(format!("p{}", self.state.progress.counts.prompts + 1)),
            content,
            when,
            by: Some(name),
            process,
            compact: false,
            schema: None,
            until: None,
            command: None,
            child: None,
            runs: Vec::new(),
            limit: None,
            awaited: false,
        }
    }

    pub(super) async fn may_prompt(&self, content: &[ContentBlock]) -> Result<(), RpcError> {
        let good = |block: &ContentBlock| match block {
            ContentBlock::Text { text } => !text.trim().is_empty(),
            ContentBlock::Image { media_type, .. } => media_type.starts_with("image/"),
            ContentBlock::ResourceLink { uri, .. } | ContentBlock::Resource { uri, .. } => !uri.trim().is_empty(),
            _ => false,
        };
        if content.is_empty() || !content.iter().all(good) {
            return Err(bad_prompt());
        }
        self.may_wait(content)?;
        let cwd = self.state.identity.cwd.clone();
        match disk::probe(&self.state.identity.cwd, disk::SHORT_TIMEOUT, move || cwd.is_dir()).await {
            // Talking needs no directory: without it commands run elsewhere, and say so.
            Some(true | false) => {}
            None => {
                return Err(RpcError::new(Code::NoWorkspace, disk::unresponsive(&self.state.identity.cwd))
                    .hint("try again when it does"));
            }
        }
        self.env.providers.usable(&self.state.settings.model)
    }

    /// Finds the root of the workspace, if its disk did not answer when the session was loaded.
    pub(super) async fn see_workspace(&mut self) {
        let is_elsewhere = self.workspace.cwd != self.state.identity.cwd && !self.id.is_daemon();
        if !self.workspace.is_seen || is_elsewhere {
            let env = BTreeMap::clone(&self.workspace.env);
            let (cwd, bound_by) = (&self.state.identity.cwd, self.state.task.bound_by());
            let workspaces = &self.env.workspaces;
            let mut workspace = workspaces.workspace_within(&self.id, cwd, env, disk::SHORT_TIMEOUT, bound_by).await;
            workspace.notes.is_child = self.state.identity.parent.is_some();
            self.workspace = Arc::new(workspace);
            self.workspace.added.set(&self.state.settings.directories);
        }
    }

    /// Checks the bounds on queued prompts.
    pub(super) fn may_wait(&self, content: &[ContentBlock]) -> Result<(), RpcError> {
        let waiting: usize = self.state.queue.prompts.iter().map(queued_size).sum();
        let drafts = self.state.queue.drafts.len();
        if !self.env.queued_bytes.has_room(size(content)) {
            let limit = format!("all sessions together already have {MAX_TOTAL} bytes of queued prompts");
            return Err(RpcError::new(Code::TooMuch, limit).hint("wait until some have started, or cancel"));
        }
        if waiting + size(content) > MAX_QUEUED_BYTES {
            return Err(RpcError::new(
                Code::TooMuch,
                format!("session {} already has {MAX_QUEUED_BYTES} bytes of queued prompts", self.id),
            )
            .hint("wait for its turns to end, or cancel"));
        }
        if self.state.queue.prompts.len() >= MAX_QUEUED {
            return Err(RpcError::new(
                Code::TooMuch,
                format!("session {} already has {MAX_QUEUED} queued prompts", self.id),
            )
            .hint("wait for its turns to end, or cancel"));
        }
        // A cancel makes drafts of all that is queued, and the user's next prompt is accepted after it.
        if drafts + self.state.queue.prompts.len() >= 2 * MAX_QUEUED {
            return Err(RpcError::new(Code::TooMuch, format!("session {} already has {drafts} drafts", self.id))
                .hint("send them, or take them back"));
        }
        Ok(())
    }
}

/// The memory of a queued prompt, in bytes; images count with their encoded size.
pub(super) fn queued_size(queued: &Queued) -> usize {
    size(&queued.content) + queued.schema.as_deref().map_or(0, json_size)
}

fn size(content: &[ContentBlock]) -> usize {
    let of = |block: &ContentBlock| match block {
        ContentBlock::Text { text } => text.len(),
        ContentBlock::Image { source: ImageSource::Data { data }, .. } => data.len(),
        ContentBlock::Image { source: ImageSource::Blob { bytes, .. }, .. } => in_base64(*bytes),
        other => other.resource_text().map_or(0, |text| text.len()),
    };
    content.iter().map(|block| size_of::<ContentBlock>() + of(block)).fold(0, usize::saturating_add)
}

/// Stores the images of a prompt as blobs, and holds existing ones.
async fn stow(blobs: Blobs, content: Vec<ContentBlock>) -> Result<(Vec<ContentBlock>, Vec<Held>), RpcError> {
    if !content.iter().any(|block| matches!(block, ContentBlock::Image { .. })) {
        return Ok((content, Vec::new()));
    }
    let stowed = task::spawn_blocking(move || blobs.stow(content)).await;
    stowed.unwrap_or_else(|error| Err(StowError::Io(std::io::Error::other(error)))).map_err(|error| match error {
        StowError::NoImage => RpcError::new(Code::BadPrompt, error.to_string()).hint("convert it first"),
        StowError::TooLarge(_) => RpcError::new(Code::TooMuch, error.to_string()).hint("make a smaller copy"),
        StowError::Unknown(_) => {
            RpcError::new(Code::UnknownBlob, error.to_string()).hint("send the image itself, as `data` in base64")
        }
        StowError::Io(error) => StoreError::from(error).into(),
    })
}

/// Checks a schema on a blocking thread, because that can take long.
async fn good_schema(asked: Option<Value>) -> Result<Option<Value>, RpcError> {
    let Some(asked) = asked else { return Ok(None) };
    let checked = task::spawn_blocking(move || schema::check(&asked).map(|()| asked)).await;
    match checked.unwrap_or_else(|error| Err(error.to_string())) {
        Ok(asked) => Ok(Some(asked)),
        Err(fault) => {
            let error = RpcError::new(Code::BadSchema, format!("invalid schema: {fault}"));
            Err(error.hint("use a JSON Schema without external references; nothing was started"))
        }
    }
}

fn bad_prompt() -> RpcError {
    RpcError::new(Code::BadPrompt, "a prompt must have text, images in base64, or resources with a `uri`")
}
