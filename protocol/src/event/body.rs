//! Constructors of events with many fields, and questions that every reader of events has.

use super::*;

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

    /// The session's instruction files are others from now on.
    pub fn instructions_changed(read: Vec<Instruction>) -> Self {
        Self::SessionChanged(SessionChanged { instructions: Some(read), ..SessionChanged::default() })
    }

    /// The skills that the session's model is told of are others from now on.
    pub fn skills_changed(now: Vec<Skill>) -> Self {
        Self::SessionChanged(SessionChanged { skills: Some(now), ..SessionChanged::default() })
    }

    /// The system prompt has this index of notes from now on.
    pub fn memory_read(index: String) -> Self {
        Self::SessionChanged(SessionChanged { memory: Some(index), ..SessionChanged::default() })
    }

    /// The file of the session's agent is another one from now on.
    pub fn agent_changed(now: AgentRole) -> Self {
        Self::SessionChanged(SessionChanged { agent: Some(now), ..SessionChanged::default() })
    }

    /// The session's mode is another one from now on.
    pub fn mode_changed(now: Mode) -> Self {
        Self::SessionChanged(SessionChanged { mode: Some(now), ..SessionChanged::default() })
    }

    /// The constant part of the session's requests is another from now on.
    pub fn setup_changed(now: PrefixFingerprint) -> Self {
        Self::SessionChanged(SessionChanged { setup: Some(now), ..SessionChanged::default() })
    }

    /// The session's model is another from now on; with `own`, only until the next turn.
    pub fn model_changed(to: String, now: PrefixFingerprint, own: Option<String>) -> Self {
        Self::SessionChanged(SessionChanged {
            model: Some(to),
            setup: Some(now),
            stands_in_for: own,
            ..SessionChanged::default()
        })
    }

    /// How the session treats a provider that cannot answer is another from now on.
    pub fn outage_changed(patience: Option<Patience>, fallback: Option<Vec<String>>) -> Self {
        Self::SessionChanged(SessionChanged { patience, fallback, ..SessionChanged::default() })
    }

    /// The treatment of questions that no person answers is another from now on.
    pub fn unattended_changed(now: Unattended) -> Self {
        Self::SessionChanged(SessionChanged { unattended: Some(now), ..SessionChanged::default() })
    }

    /// The session's budget is this one from now on.
    pub fn budget_changed(now: Budget) -> Self {
        Self::SessionChanged(SessionChanged { budget: Some(now), ..SessionChanged::default() })
    }

    /// The session's added directories are these from now on.
    pub fn directories_changed(now: Vec<PathBuf>) -> Self {
        Self::SessionChanged(SessionChanged { additional_directories: Some(now), ..SessionChanged::default() })
    }

    /// The session's own MCP servers are these from now on.
    pub fn mcp_servers_changed(now: Vec<SessionServer>) -> Self {
        Self::SessionChanged(SessionChanged { mcp_servers: Some(now), ..SessionChanged::default() })
    }

    /// A model was asked for the session's title.
    pub fn titled(title: Option<String>, title_cost: Option<ModelCost>) -> Self {
        Self::SessionChanged(SessionChanged { title, title_cost, ..SessionChanged::default() })
    }

    /// The session is put into the bin, or taken out of it under this name.
    pub fn bin_changed(binned: bool, name: Option<String>) -> Self {
        Self::SessionChanged(SessionChanged { binned: Some(binned), name, ..SessionChanged::default() })
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
