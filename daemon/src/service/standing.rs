//! The relation of a process to the daemon: a user's, one that the daemon started, or one of which nothing can be told.

use std::sync::Arc;

use linger_protocol::id::SessionId;
use linger_protocol::token::{Can, Grant};

use super::Services;
use crate::process::ledger::StartedFor;
use crate::process::mark::{self, Kin};
use crate::sys::peer::{self, Peer};

/// The relation of a caller to the daemon.
pub(super) enum Standing {
    /// The daemon did not start it.
    User,
    /// It acts for this session.
    Session(SessionId),
    /// The daemon started it, for the tools of this session if the ledger knows.
    Family(Option<SessionId>),
    /// The daemon started it as an MCP server, or that server did, and the user's configuration grants it this.
    Server(Arc<Grant>),
    /// Its ancestors are unknown, but its limits are above the mark: it may do all but answer and widen.
    Hidden,
    /// It is in no list of processes here: another container, from which none of the daemon's children can come.
    Elsewhere,
    /// Nothing tells whether the daemon started it, as when it has ended.
    Unknown,
    /// It may have lowered the inherited mark.
    Limited,
}

impl Standing {
    /// Whether, as far as the system tells, the daemon did not start it. Other systems than Linux tell nothing: there a tool is
    /// refused answers, and nothing else.
    pub(super) fn is_outside(&self) -> bool {
        let is_untold = matches!(self, Self::Elsewhere | Self::Unknown);
        matches!(self, Self::User | Self::Hidden) || (cfg!(not(target_os = "linux")) && is_untold)
    }
}

/// The standing of a process. Those that a dead daemon left descend from the keeper.
pub(super) fn standing(peer: Peer, services: &Services) -> Standing {
    let Some(pid) = peer.pid else { return Standing::Elsewhere };
    // It has ended, another one has its number, or the system does not show it.
    if peer.began.is_none() || peer::started(pid) != peer.began {
        return Standing::Unknown;
    }
    let family = [Some(std::process::id()), services.keeper].into_iter().flatten();
    let descends: Vec<Option<bool>> = family.map(|ancestor| peer::descends_from(pid, ancestor)).collect();
    if descends.contains(&Some(true)) {
        return match services.env().calls.children.ledger.started_for(pid) {
            StartedFor::Server(grant) => Standing::Server(grant),
            StartedFor::Session(session) => Standing::Family(Some(session)),
            StartedFor::Daemon => Standing::Family(None),
        };
    }
    match mark::kin(pid) {
        Kin::Stranger if descends.contains(&None) => Standing::Hidden,
        Kin::Stranger => Standing::User,
        Kin::Marked => Standing::Family(None),
        Kin::Below => Standing::Limited,
        Kin::Unknown => Standing::Unknown,
    }
}

/// A reason why a connection may not use all of its grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Restraint {
    /// Nothing.
    Free,
    /// The daemon started it, and the user's configuration grants it more.
    Server,
    /// Another user's process, or one of another container: the daemon did not start it, but may have asked it to act.
    Unknown,
    /// The daemon started it, or nothing tells it from one that the daemon started.
    Family,
}

impl From<Standing> for Restraint {
    fn from(standing: Standing) -> Self {
        match standing {
            Standing::User => Self::Free,
            Standing::Hidden | Standing::Elsewhere => Self::Unknown,
            Standing::Family(_)
            | Standing::Server(_)
            | Standing::Session(_)
            | Standing::Limited
            | Standing::Unknown => Self::Family,
        }
    }
}

impl Restraint {
    /// Whether it leaves this.
    pub(super) fn leaves(self, can: Can) -> bool {
        match self {
            Self::Free => true,
            Self::Server => Can::OF_SERVERS.contains(&can),
            Self::Unknown => matches!(can, Can::Observe | Can::Speak | Can::Steer),
            Self::Family => can == Can::Observe,
        }
    }
}
