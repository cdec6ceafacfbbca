//! The kinds of Markdown files.

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Knowledge on demand.
    Skill,
    /// A prompt with a name.
    Command,
    /// The role of a session.
    Agent,
    /// A program that models can call.
    Tool,
    /// An MCP server.
    Server,
}

impl FileKind {
    /// All of them.
    pub(crate) const ALL: [Self; 5] = [Self::Skill, Self::Command, Self::Agent, Self::Tool, Self::Server];
    /// The kinds that a tool set is made of.
    pub(super) const OF_TOOLS: [Self; 2] = [Self::Tool, Self::Server];

    /// The word for messages.
    pub(super) fn noun(self) -> &'static str {
        match self {
            Self::Skill => "skill",
            Self::Command => "command",
            Self::Agent => "agent",
            Self::Tool => "tool",
            Self::Server => "server",
        }
    }
}
