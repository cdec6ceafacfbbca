//! The table of authority: for each method the callers that it takes. Checked before the method's function runs
//! ([`super::Caller::may_call`]), whichever face the request came through; a method without a row is refused.
//!
//! **A process without a token** ([`ProcessNeed`]) is told apart by its ancestors:
//!
//! | | a user's process | a tool of session S | session S | another process of the family, or unknown |
//! |---|---|---|---|---|
//! | `Anyone` | yes | yes | yes | yes |
//! | `Reader` (the answer has only what the caller may read) | yes | S and below | S and below | no |
//! | `Read` the session that is named | yes | S and below | S and below | no |
//! | `Change(…)` the session that is named | yes | no | S and below | no |
//! | `Outside(…)` | yes | no | no | no |
//! | `User(…)` | yes, if known for certain | no | no | no |
//! | `Unrelated(…)` | yes | no | no | only if of another container |
//! | `Named(…)`: `Read` if a session is named | yes | S and below | S and below | no |
//! | `Named(…)`: `Outside(…)` otherwise | yes | no | no | no |
//! | `ByParams` | the function decides by what is named |||
//!
//! So a process that the daemon started changes nothing and reads its own session's tree. Where `/proc` hides the ancestors of a
//! process that does not have the daemon's mark, it counts as a user's for all but `User(…)`: it does not answer or grant anything.
//!
//! **A connection with a token** ([`TokenNeed`]) needs a right (`OBSERVE`, `SPEAK`, …), and only sees the sessions of its grant. `USERS` is
//! for processes without a token. `.all_sessions()`: the grant is not limited to some sessions. `.new_sessions()`: it may make sessions. `.run()`: a
//! process that is not known to be a user's starts nothing in a session that asks less than `ask`.
//!
//! Checks that remain in the functions depend on parameters: on modes, directories, variables, servers, or on which question it is.

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::token::Can;

use ProcessNeed::{Anyone, ByParams, Change, Named, Outside, Read, Reader, Unrelated, User};

/// The row of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// The tokens that the method takes.
    pub token: TokenNeed,
    /// The processes without a token that it takes.
    pub process: ProcessNeed,
}

/// The processes without a token that a method takes. The texts complete "a process may not …".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessNeed {
    /// Every process.
    Anyone,
    /// A process that may read some session.
    Reader,
    /// A process that may read the session that is named.
    Read,
    /// A user's process, or the parent of the session that is named; a session may create its children.
    Change(&'static str),
    /// A user's process, as far as the system tells.
    Outside(&'static str),
    /// A process that is known to be a user's.
    User(&'static str),
    /// A process that the daemon did not start, and that speaks for none that it started or that cannot be told from one.
    Unrelated(&'static str),
    /// [`Self::Read`] if a session is named, and otherwise [`Self::Outside`].
    Named(&'static str),
    /// Depends on the parameters: the function checks.
    ByParams,
}

impl ProcessNeed {
    /// The text for the error of a process that the method does not take.
    pub(super) fn what(self) -> &'static str {
        match self {
            Self::Change(what) | Self::Outside(what) | Self::User(what) | Self::Unrelated(what) | Self::Named(what) => {
                what
            }
            Self::Anyone | Self::Reader | Self::Read | Self::ByParams => "read a session",
        }
    }
}

/// The token that a method takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenNeed {
    /// The right that its grant must have.
    pub right: Right,
    /// How far its grant must reach.
    pub reach: Reach,
}

/// The right of a token that a method takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// None: it is how a connection gets its token.
    Open,
    /// This one.
    Can(Can),
    /// One of these; which one depends on the request.
    Either(Can, Can),
    /// No token is enough.
    Users,
}

/// The reach of a grant that a method takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Any: what lies outside of the grant is not seen.
    Any,
    /// All sessions.
    All,
    /// Sessions that do not exist yet.
    New,
    /// Any, but the session asks if the process is not known to be a user's.
    Run,
}

impl TokenNeed {
    const fn of(right: Right) -> Self {
        Self { right, reach: Reach::Any }
    }

    const fn can(can: Can) -> Self {
        Self::of(Right::Can(can))
    }

    const fn all_sessions(self) -> Self {
        Self { reach: Reach::All, ..self }
    }

    const fn new_sessions(self) -> Self {
        Self { reach: Reach::New, ..self }
    }

    const fn run(self) -> Self {
        Self { reach: Reach::Run, ..self }
    }
}

const OPEN: TokenNeed = TokenNeed::of(Right::Open);
const OBSERVE: TokenNeed = TokenNeed::can(Can::Observe);
const SPEAK: TokenNeed = TokenNeed::can(Can::Speak);
const STEER: TokenNeed = TokenNeed::can(Can::Steer);
const ANSWER: TokenNeed = TokenNeed::can(Can::AnswerEdits);
const ADMINISTER: TokenNeed = TokenNeed::can(Can::Administer);
const SPEAK_OR_STEER: TokenNeed = TokenNeed::of(Right::Either(Can::Speak, Can::Steer));
const USERS: TokenNeed = TokenNeed::of(Right::Users);

/// Every method, in the protocol's order.
#[rustfmt::skip]
const NEEDS: &[(&str, TokenNeed, ProcessNeed)] = &[
    ("daemon/hello", OPEN, Anyone),
    ("daemon/keys", USERS, User("bring keys")),
    ("daemon/status", OBSERVE, Reader),
    ("daemon/stop", ADMINISTER, User("stop the daemon")),
    ("daemon/check", ADMINISTER, User("check what is stored")),
    ("model/list", OBSERVE, Outside("list models")),
    ("mode/list", OBSERVE, Anyone),
    // Without a session and a directory: `Reader`.
    ("tool/list", OBSERVE, Named("read the rules")),
    ("session/create", SPEAK.new_sessions(), Change("create a session")),
    ("session/list", OBSERVE, Reader),
    ("session/attach", OBSERVE, Read),
    ("session/detach", OBSERVE, Anyone),
    ("session/env", OBSERVE, Read),
    ("session/prompt", SPEAK_OR_STEER.run(), Change("send a prompt")),
    ("session/cancel", SPEAK, Change("cancel a turn")),
    ("session/continue", SPEAK.run(), Change("continue a turn")),
    ("session/compact", STEER.run(), Change("compact a session")),
    ("session/unqueue", SPEAK, Change("take back a prompt")),
    ("session/undo", STEER.run(), Change("undo changes")),
    ("session/redo", STEER.run(), Change("redo changes")),
    ("session/diff", OBSERVE, Read),
    ("session/fork", SPEAK.new_sessions(), Outside("fork a session")),
    ("session/rewind", STEER.run(), Outside("rewind a session")),
    ("session/prompts", OBSERVE, Read),
    ("session/compaction", OBSERVE, Read),
    ("session/uncompact", STEER.run(), Change("take back a compaction")),
    ("session/merge", ADMINISTER, User("merge the work of a child")),
    ("session/set", STEER, Change("change a session")),
    ("session/bin", ADMINISTER, Change("put a session into the bin")),
    ("session/restore", ADMINISTER, Change("take a session out of the bin")),
    ("session/remove", ADMINISTER, Change("remove a session")),
    ("session/prune", ADMINISTER.all_sessions(), Outside("prune sessions")),
    ("events/subscribe", OBSERVE, Reader),
    ("events/unsubscribe", OBSERVE, Anyone),
    ("session/search", OBSERVE, Reader),
    ("completion/start", SPEAK.new_sessions(), Outside("ask a model")),
    ("completion/cancel", SPEAK, Anyone),
    ("usage/list", OBSERVE.all_sessions(), Outside("read the usage of all sessions")),
    ("blob/get", OBSERVE, Reader),
    ("artifact/begin", SPEAK, Outside("put an artifact here")),
    ("artifact/write", SPEAK, Outside("put an artifact here")),
    ("artifact/finish", SPEAK, Outside("put an artifact here")),
    ("artifact/get", OBSERVE, Outside("read an artifact")),
    ("artifact/read", OBSERVE, Outside("read an artifact")),
    ("artifact/list", OBSERVE, Outside("list artifacts")),
    // Its own; any with `administer`.
    ("artifact/delete", SPEAK, Outside("read an artifact")),
    ("key/list", ADMINISTER, Outside("list keys")),
    ("key/set", USERS, User("store keys")),
    ("key/remove", USERS, User("remove keys")),
    ("config/get", ADMINISTER, Outside("read the configuration")),
    ("config/confirm", USERS, User("confirm the configuration")),
    ("config/set", USERS, User("change the configuration")),
    ("config/write", USERS, User("change the configuration")),
    ("trust/get", ADMINISTER, Outside("read what a workspace sets")),
    ("trust/confirm", USERS, User("trust a workspace")),
    ("trust/list", ADMINISTER, Outside("list what is trusted")),
    ("trust/revoke", USERS, User("revoke trust")),
    ("token/mint", USERS, User("make a token")),
    ("token/exchange", OPEN, Unrelated("exchange a code")),
    ("token/list", USERS, User("list tokens")),
    ("token/revoke", USERS, User("revoke a token")),
    ("skill/list", OBSERVE, Outside("list the files of agents")),
    ("command/list", OBSERVE, Outside("list the files of agents")),
    ("agent/list", OBSERVE, Outside("list the files of agents")),
    ("tool/files", OBSERVE, Outside("list the files of agents")),
    ("mcp/files", OBSERVE, Outside("list the files of agents")),
    ("memory/list", OBSERVE, Outside("list notes")),
    ("memory/add", ADMINISTER, User("write a note")),
    ("memory/remove", ADMINISTER, User("remove a note")),
    ("mcp/list", OBSERVE, Named("list MCP servers")),
    ("mcp/add", USERS, User("add an MCP server")),
    ("mcp/remove", USERS, User("remove an MCP server")),
    ("mcp/restart", ADMINISTER, User("restart an MCP server")),
    ("mcp/logs", ADMINISTER, Outside("read what an MCP server wrote")),
    ("mcp/test", USERS, User("start an MCP server")),
    ("mcp/login", USERS, User("log in at an MCP server")),
    ("mcp/finish_login", USERS, User("log in at an MCP server")),
    ("mcp/logout", USERS, User("log out of an MCP server")),
    // For a session: `Change`; for a directory: `User`, and no token.
    ("mcp/resources", SPEAK, ByParams),
    ("mcp/resource", SPEAK, Change("ask an MCP server for something")),
    ("mcp/prompts", SPEAK, ByParams),
    ("mcp/prompt", SPEAK, Change("ask an MCP server for something")),
    ("permission/list", OBSERVE, Reader),
    // The limits of the grant decide which questions.
    ("permission/answer", ANSWER, User("answer a permission")),
    ("permission/explain", OBSERVE, Named("read the rules")),
    ("permission/rules", ADMINISTER, Outside("read the rules")),
    ("permission/remove", USERS, User("remove a rule")),
    ("question/list", OBSERVE, Reader),
    ("question/answer", ANSWER, User("answer a question")),
];

/// The row of a method; fails if it has none.
pub fn of(method: &str) -> Result<Need, RpcError> {
    let row = NEEDS.iter().find(|(name, ..)| *name == method);
    let row = row.map(|(_, token, process)| Need { token: *token, process: *process });
    row.ok_or_else(|| RpcError::new(Code::NotAllowed, format!("no caller may call {method}")))
}

#[cfg(test)]
mod tests {
    use linger_protocol::method::{Visitor, each_method};

    use super::*;

    #[test]
    fn every_method_of_the_protocol_has_one_row_and_there_are_no_others() {
        struct Names(Vec<&'static str>);
        impl Visitor for Names {
            fn method<P: schemars::JsonSchema, R: schemars::JsonSchema>(&mut self, name: &'static str) {
                self.0.push(name);
            }
        }
        let mut names = Names(Vec::new());
        each_method(&mut names);
        assert_eq!(NEEDS.iter().map(|(name, ..)| *name).collect::<Vec<_>>(), names.0);
        assert!(of("session/new_method").is_err());
    }
}
