//! What each method needs of a connection with a token. The one table; a method without a row is refused.
//!
//! A process without a token is not looked up here: what it may do is for each method to say ([`super::Caller`]). What a grant
//! narrows within a method (sessions, directories, modes, which question) is checked there too.

use linger_protocol::token::Can;

/// What a method needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing: it is how a connection gets its token.
    Open,
    /// A grant with this.
    Can(Can),
    /// A grant with one of these; which one depends on the request.
    Either(Can, Can),
    /// A process of the user's own: no grant is enough.
    Process,
}

const OBSERVE: Need = Need::Can(Can::Observe);
const SPEAK: Need = Need::Can(Can::Speak);
const STEER: Need = Need::Can(Can::Steer);
const ANSWER: Need = Need::Can(Can::AnswerEdits);
const ADMINISTER: Need = Need::Can(Can::Administer);
const PROCESS: Need = Need::Process;

/// Every method, in the protocol's order.
const NEEDS: &[(&str, Need)] = &[
    ("daemon/hello", Need::Open),
    ("daemon/keys", PROCESS),
    ("daemon/status", OBSERVE),
    ("daemon/stop", ADMINISTER),
    ("daemon/check", ADMINISTER),
    ("model/list", OBSERVE),
    ("mode/list", OBSERVE),
    ("tool/list", OBSERVE),
    ("session/create", SPEAK),
    ("session/list", OBSERVE),
    ("session/attach", OBSERVE),
    ("session/detach", OBSERVE),
    ("session/env", OBSERVE),
    ("session/prompt", Need::Either(Can::Speak, Can::Steer)),
    ("session/cancel", SPEAK),
    ("session/continue", SPEAK),
    ("session/compact", STEER),
    ("session/unqueue", SPEAK),
    ("session/undo", STEER),
    ("session/redo", STEER),
    ("session/diff", OBSERVE),
    ("session/fork", SPEAK),
    ("session/rewind", STEER),
    ("session/prompts", OBSERVE),
    ("session/compaction", OBSERVE),
    ("session/uncompact", STEER),
    ("session/merge", ADMINISTER),
    ("session/set", STEER),
    ("session/bin", ADMINISTER),
    ("session/restore", ADMINISTER),
    ("session/remove", ADMINISTER),
    ("session/prune", ADMINISTER),
    ("events/subscribe", OBSERVE),
    ("events/unsubscribe", OBSERVE),
    ("session/search", OBSERVE),
    ("completion/start", SPEAK),
    ("completion/cancel", SPEAK),
    ("usage/list", OBSERVE),
    ("blob/get", OBSERVE),
    ("artifact/begin", SPEAK),
    ("artifact/write", SPEAK),
    ("artifact/finish", SPEAK),
    ("artifact/get", OBSERVE),
    ("artifact/read", OBSERVE),
    ("artifact/list", OBSERVE),
    // Those that it put here; all of them with `administer`.
    ("artifact/delete", SPEAK),
    ("key/list", ADMINISTER),
    ("key/set", PROCESS),
    ("key/remove", PROCESS),
    ("config/get", ADMINISTER),
    ("config/confirm", PROCESS),
    ("config/set", PROCESS),
    ("config/write", PROCESS),
    ("trust/get", ADMINISTER),
    ("trust/confirm", PROCESS),
    ("trust/list", ADMINISTER),
    ("trust/revoke", PROCESS),
    ("token/mint", PROCESS),
    ("token/exchange", Need::Open),
    ("token/list", PROCESS),
    ("token/revoke", PROCESS),
    ("skill/list", OBSERVE),
    ("command/list", OBSERVE),
    ("agent/list", OBSERVE),
    ("tool/files", OBSERVE),
    ("mcp/files", OBSERVE),
    ("memory/list", OBSERVE),
    ("memory/add", ADMINISTER),
    ("memory/remove", ADMINISTER),
    ("mcp/list", OBSERVE),
    ("mcp/add", PROCESS),
    ("mcp/remove", PROCESS),
    ("mcp/restart", ADMINISTER),
    ("mcp/logs", ADMINISTER),
    ("mcp/test", PROCESS),
    ("mcp/login", PROCESS),
    ("mcp/finish_login", PROCESS),
    ("mcp/logout", PROCESS),
    ("mcp/resources", SPEAK),
    ("mcp/resource", SPEAK),
    ("mcp/prompts", SPEAK),
    ("mcp/prompt", SPEAK),
    ("permission/list", OBSERVE),
    // Which question it is decides whether that is enough.
    ("permission/answer", ANSWER),
    ("permission/explain", OBSERVE),
    ("permission/rules", ADMINISTER),
    ("permission/remove", PROCESS),
    ("question/list", OBSERVE),
    ("question/answer", ANSWER),
];

/// What a method needs; `None` if it has no row.
pub fn of(method: &str) -> Option<Need> {
    NEEDS.iter().find(|(name, _)| *name == method).map(|(_, need)| *need)
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
        assert_eq!(NEEDS.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names.0);
        assert_eq!(of("session/new_method"), None);
    }
}
