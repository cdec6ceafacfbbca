//! Who asks, and with what authority; what only a person may do is refused here to everything else.

use std::sync::{Mutex, PoisonError};

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::id::SessionId;

use super::Services;
use crate::process::mark::{self, Kin};
use crate::sys::peer::{self, Peer};

/// The longest name of a caller, in characters.
const MAX_NAME: usize = 60;

/// Who asks for something.
#[derive(Debug)]
pub struct Caller {
    authority: Authority,
    /// What it called itself in `daemon/hello`.
    name: Mutex<Option<String>>,
}

/// What a request is asked on the strength of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authority {
    /// A process of the daemon's own user, at the other end of a socket. What widens what may happen is for processes that the
    /// daemon did not start.
    Peer(Peer),
    /// A session, for its children: it widens nothing.
    Session(SessionId),
    /// The process that the daemon runs in.
    Daemon,
}

impl Caller {
    /// A caller that has not said its name.
    pub fn new(authority: Authority) -> Self {
        Self { authority, name: Mutex::default() }
    }

    /// What it asks on the strength of.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The name that others see.
    pub fn name(&self) -> String {
        let said = self.name.lock().unwrap_or_else(PoisonError::into_inner).clone();
        said.unwrap_or_else(|| match &self.authority {
            Authority::Peer(Peer { pid: Some(pid), .. }) => format!("pid {pid}"),
            Authority::Peer(Peer { pid: None, .. }) => "somebody".to_owned(),
            Authority::Session(session) => format!("session {session}"),
            Authority::Daemon => "the daemon".to_owned(),
        })
    }

    /// Takes the name by which the caller calls itself, without control characters and cut; an empty one is none.
    pub(super) fn set_name(&self, name: &str) {
        let name: String = name.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect();
        if !name.is_empty() {
            *self.name.lock().unwrap_or_else(PoisonError::into_inner) = Some(name);
        }
    }

    /// Refuses what only a user may do to a process that the daemon started, or that cannot be told from one.
    pub(super) fn must_be_user(&self, services: &Services, what: &str) -> Result<(), RpcError> {
        let (message, hint) = match self.standing(services.keeper) {
            Standing::User => return Ok(()),
            Standing::Session => (format!("a session may not {what}"), "do it from a terminal or an editor"),
            Standing::Family => {
                (format!("a process that the daemon started may not {what}"), "do it from a terminal or an editor")
            }
            Standing::Unknown => (
                format!("this process may not {what}: the system does not say whether the daemon started it"),
                "/proc must show the parents of who opened the connection: `linger doctor` looks",
            ),
            Standing::Limited => (
                format!(
                    "this process may not {what}: its limit of file locks is as low as if the daemon had started it"
                ),
                "do it from a terminal in which `ulimit -Hx` says unlimited",
            ),
        };
        tracing::warn!(target: "permission", caller = self.name(), what, "refused: {message}");
        Err(RpcError::new(Code::NotAllowed, message).hint(hint))
    }

    fn standing(&self, keeper: Option<u32>) -> Standing {
        match &self.authority {
            Authority::Peer(peer) => standing(*peer, keeper),
            Authority::Session(_) => Standing::Session,
            Authority::Daemon => Standing::User,
        }
    }
}

/// What a caller is to the daemon.
enum Standing {
    /// It was not started by it.
    User,
    /// It is a model's.
    Session,
    /// It was started by it.
    Family,
    /// Its parents cannot be seen.
    Unknown,
    /// It may have lowered what it inherited.
    Limited,
}

/// Whether a process is one that the daemon started. `keeper`: what a dead daemon left behind is below it.
fn standing(peer: Peer, keeper: Option<u32>) -> Standing {
    let Some(pid) = peer.pid.filter(|pid| peer::started(*pid) == peer.began) else { return Standing::Unknown };
    let family = [Some(std::process::id()), keeper].into_iter().flatten();
    let descends: Vec<Option<bool>> = family.map(|ancestor| peer::descends_from(pid, ancestor)).collect();
    if descends.contains(&Some(true)) {
        return Standing::Family;
    }
    match mark::kin(pid) {
        _ if descends.contains(&None) => Standing::Unknown,
        Kin::Stranger => Standing::User,
        Kin::Marked => Standing::Family,
        Kin::Below => Standing::Limited,
        Kin::Unknown => Standing::Unknown,
    }
}
