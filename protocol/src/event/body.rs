//! Constructors of events with many fields, and questions that every reader of events has.

use super::*;

impl Event {
    /// The event as JSON; in the place of one that cannot be encoded a notice that says so, never an empty text.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| {
            let kind = <&str>::from(&self.body);
            let text = format!("an event `{kind}` cannot be sent: {error}");
            serde_json::json!({ "kind": "notice", "level": "error", "text": text, "seq": self.seq, "at": self.at })
                .to_string()
        })
    }
}

impl EventBody {
    /// A message in the user's place: a prompt, results of calls, or what the daemon `asks`.
    pub fn user_message(
        message: MessageId,
        content: Vec<ContentBlock>,
        prompt: Option<PromptId>,
        asks: Option<Asks>,
    ) -> Self {
        Self::Message(MessageAdded {
            message,
            role: Role::User,
            content,
            interrupted: false,
            cut: false,
            paused: false,
            prompt,
            asks,
            model: None,
            usage: None,
            times: None,
        })
    }

    /// A message of `model`.
    pub fn assistant_message(
        message: MessageId,
        content: Vec<ContentBlock>,
        model: impl Into<Option<String>>,
        usage: Option<Usage>,
        end: AnswerEnd,
    ) -> Self {
        Self::Message(MessageAdded {
            message,
            role: Role::Assistant,
            content,
            interrupted: end == AnswerEnd::Interrupted,
            cut: end == AnswerEnd::Cut,
            paused: end == AnswerEnd::Paused,
            prompt: None,
            asks: None,
            model: model.into(),
            usage,
            times: None,
        })
    }

    /// A message that its provider took so long for.
    pub fn took(mut self, long: Option<Times>) -> Self {
        if let Self::Message(MessageAdded { times, .. }) = &mut self {
            *times = long;
        }
        self
    }

    /// A change of a session in which nothing is said yet.
    pub fn changed(change: impl FnOnce(&mut Self)) -> Self {
        let mut body = Self::SessionChanged(SessionChanged {
            model: None,
            mode: None,
            name: None,
            effort: None,
            instructions: None,
            skills: None,
            memory: None,
            agent: None,
            setup: None,
            stands_in_for: None,
            patience: None,
            fallback: None,
            unattended: None,
            budget: None,
            additional_directories: None,
            tools: None,
            mcp_servers: None,
            binned: None,
            by_retention: false,
            cwd: None,
            moved: None,
            title: None,
            title_cost: None,
        });
        change(&mut body);
        body
    }

    /// The session's instruction files are others from now on.
    pub fn instructions_changed(read: Vec<Instruction>) -> Self {
        Self::changed(|body| {
            if let Self::SessionChanged(SessionChanged { instructions, .. }) = body {
                *instructions = Some(read);
            }
        })
    }

    /// The skills that the session's model is told of are others from now on.
    pub fn skills_changed(now: Vec<Skill>) -> Self {
        Self::changed(|body| {
            if let Self::SessionChanged(SessionChanged { skills, .. }) = body {
                *skills = Some(now);
            }
        })
    }

    /// The system prompt has this index of notes from now on.
    pub fn memory_read(index: String) -> Self {
        Self::changed(|body| {
            if let Self::SessionChanged(SessionChanged { memory, .. }) = body {
                *memory = Some(index);
            }
        })
    }

    /// The file of the session's agent is another one from now on.
    pub fn agent_changed(now: AgentRole) -> Self {
        Self::changed(|body| {
            if let Self::SessionChanged(SessionChanged { agent, .. }) = body {
                *agent = Some(now);
            }
        })
    }

    /// The session's mode is another one from now on.
    pub fn mode_changed(now: Mode) -> Self {
        Self::changed(|body| {
            if let Self::SessionChanged(SessionChanged { mode, .. }) = body {
                *mode = Some(now);
            }
        })
    }

    /// A change of the setup of requests before the conversation.
    pub fn setup_changed(now: PrefixFingerprint) -> Self {
        Self::changed(|body| {
            if let Self::SessionChanged(SessionChanged { setup, .. }) = body {
                *setup = Some(now);
            }
        })
    }

    /// The session's model is another from now on; with `own`, only until the next turn.
    pub fn model_changed(to: String, now: PrefixFingerprint, own: Option<String>) -> Self {
        Self::changed(|body| {
            if let Self::SessionChanged(SessionChanged { model, setup, stands_in_for, .. }) = body {
                (*model, *setup, *stands_in_for) = (Some(to), Some(now), own);
            }
        })
    }

    /// How the session treats a provider that cannot answer is another from now on.
    pub fn outage_changed(long: Option<Patience>, others: Option<Vec<String>>) -> Self {
        Self::changed(|body| {
            if let Self::SessionChanged(SessionChanged { patience, fallback, .. }) = body {
                (*patience, *fallback) = (long, others);
            }
        })
    }

    /// A change of how questions that no person answers are treated.
    pub fn unattended_changed(now: Unattended) -> Self {
        Self::changed(|body| {
            if let Self::SessionChanged(SessionChanged { unattended, .. }) = body {
                *unattended = Some(now);
            }
        })
    }

    /// The session's budget is this one from now on.
    pub fn budget_changed(now: Budget) -> Self {
        Self::changed(|body| {
            if let Self::SessionChanged(SessionChanged { budget, .. }) = body {
                *budget = Some(now);
            }
        })
    }

    /// The session's added directories are these from now on.
    pub fn directories_changed(now: Vec<PathBuf>) -> Self {
        Self::changed(|body| {
            if let Self::SessionChanged(SessionChanged { additional_directories, .. }) = body {
                *additional_directories = Some(now);
            }
        })
    }

    /// The session's own MCP servers are these from now on.
    pub fn mcp_servers_changed(now: Vec<SessionServer>) -> Self {
        Self::changed(|body| {
            if let Self::SessionChanged(SessionChanged { mcp_servers, .. }) = body {
                *mcp_servers = Some(now);
            }
        })
    }

    /// A model was asked for the session's title.
    pub fn titled(given: Option<String>, cost: Option<ModelCost>) -> Self {
        Self::changed(|body| {
            if let Self::SessionChanged(SessionChanged { title, title_cost, .. }) = body {
                (*title, *title_cost) = (given, cost);
            }
        })
    }

    /// The session is put into the bin, or taken out of it under this name.
    pub fn bin_changed(now: bool, called: Option<String>, because_old: bool) -> Self {
        Self::changed(|body| {
            if let Self::SessionChanged(SessionChanged { binned, by_retention, name, .. }) = body {
                (*binned, *by_retention, *name) = (Some(now), because_old, called);
            }
        })
    }

    /// A notice of this kind, for people.
    pub fn notice(level: Level, code: NoticeCode, text: impl Into<String>) -> Self {
        Self::Notice(Notice { level, code: Some(code), text: text.into(), until_at: None, since_at: None })
    }

    /// The blobs that it names, but for those of [`Self::file_contents`].
    pub fn blobs(&self) -> Vec<&BlobId> {
        fn named<'a>(content: &'a [ContentBlock], found: &mut Vec<&'a BlobId>) {
            for block in content {
                found.extend(block.blob());
                if let ContentBlock::ToolResult { content, .. } = block {
                    named(content, found);
                }
            }
        }
        let mut found = Vec::new();
        match self {
            Self::PromptAccepted(PromptAccepted { content, .. }) | Self::Message(MessageAdded { content, .. }) => {
                named(content, &mut found)
            }
            Self::ToolFinished(ToolFinished { content, blob, .. }) => {
                named(content, &mut found);
                found.extend(blob);
            }
            Self::BackgroundEnded(BackgroundEnded { blob, .. }) => found.extend(blob),
            _ => {}
        }
        found
    }

    /// The blobs with contents of files that it names; the oldest of a session are given up when they take too much room.
    pub fn file_contents(&self) -> Vec<&BlobId> {
        match self {
            Self::ToolFinished(ToolFinished { changes, .. })
            | Self::PermissionRequested(PermissionRequested { changes, .. })
            | Self::UndoStarted(UndoStarted { changes, .. })
            | Self::Undone { changes, .. } => {
                changes.iter().flat_map(|change| change.before.iter().chain(&change.after)).collect()
            }
            _ => Vec::new(),
        }
    }
}
