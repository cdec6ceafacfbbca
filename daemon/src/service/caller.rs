//! The caller of a method and its authority; refuses other callers what only a user may do.
//!
//! A process that the daemon started, and one that may be such a process, changes nothing. It reads the session whose tool started
//! it and that session's children, if the ledger tells which session that is; otherwise nothing. An MCP server to which the user's
//! configuration grants more has that, as a token would ([`super::bearer`]).
//! A connection with a token is another matter: see [`super::bearer`].

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::event::Process;
use linger_protocol::id::SessionId;
use linger_protocol::token::Grant;

use super::Services;
use super::artifact::Upload;
use super::bearer::Proof;
use crate::process::ledger::StartedFor;
use crate::process::mark::{self, Kin};
use crate::session::messages::Author;
use crate::store::scope::Scope;
use crate::sys::peer::{self, Peer};

/// The longest name of a caller, in characters.
const MAX_NAME: usize = 60;

/// The caller of a method.
#[derive(Debug)]
pub struct Caller {
    authority: Authority,
    /// Its name from `daemon/hello`.
    name: Mutex<Option<String>>,
    /// What it said of itself in `daemon/hello`.
    pub(super) proof: Mutex<Proof>,
    /// The artifacts that it is putting here.
    uploads: Mutex<Vec<Upload>>,
    /// Set once the process at the other end is known to be a user's: its connection stays one, also when it has ended.
    is_user: OnceLock<()>,
}

/// The sessions that a caller may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Readable {
    /// All of them.
    All,
    /// These.
    Some(Vec<SessionId>),
}

impl Readable {
    /// The sessions; `None` for all, and for what belongs to no session.
    pub(super) fn sessions(self) -> Option<Vec<SessionId>> {
        match self {
            Self::All => None,
            Self::Some(sessions) => Some(sessions),
        }
    }
}

/// What a caller may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authority {
    /// A process of the daemon's own user, connected by socket. It may widen permissions only if the daemon did not start it.
    Peer(Peer),
    /// A session, for its children: it may widen nothing.
    Session(SessionId),
    /// The process that the daemon runs in: it may do everything.
    Daemon,
}

impl Caller {
    /// A caller without a name.
    pub fn new(authority: Authority) -> Self {
        Self {
            authority,
            name: Mutex::default(),
            proof: Mutex::default(),
            uploads: Mutex::default(),
            is_user: OnceLock::new(),
        }
    }

    /// Its authority.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The artifacts that it is putting here.
    pub(super) fn uploads(&self) -> MutexGuard<'_, Vec<Upload>> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name for other clients.
    pub fn name(&self) -> String {
        if let Some(token) = self.token() {
            return token.grant.name.clone();
        }
        let name = self.name.lock().unwrap_or_else(PoisonError::into_inner).clone();
        name.unwrap_or_else(|| match &self.authority {
            Authority::Peer(Peer { pid: Some(pid), .. }) => format!("pid {pid}"),
            Authority::Peer(Peer { pid: None, .. }) => "an unknown process".to_owned(),
            Authority::Session(session) => format!("session {session}"),
            Authority::Daemon => "the daemon".to_owned(),
        })
    }

    /// Sets the name, without control characters and cut to [`MAX_NAME`]; ignores an empty one, and that of a process that is not
    /// known to be a user's.
    pub(super) fn set_name(&self, services: &Services, name: &str) {
        let name: String = name.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect();
        let standing = self.standing(services);
        if !name.is_empty() && (standing.is_outside() || matches!(standing, Standing::Session(_))) {
            *self.name.lock().unwrap_or_else(PoisonError::into_inner) = Some(name);
        }
    }

    /// Whether both are connections of one process.
    pub fn is_same_process(&self, other: &Self) -> bool {
        match (&self.authority, &other.authority) {
            (Authority::Peer(peer), Authority::Peer(other)) => peer.pid.is_some() && peer == other,
            (Authority::Session(session), Authority::Session(other)) => session == other,
            (Authority::Daemon, _) | (_, Authority::Daemon) => false,
            _ => false,
        }
    }

    /// Whether it is a user's process, as far as the system tells now, whatever else it said of itself.
    pub fn is_user(&self, services: &Services) -> bool {
        self.standing(services).is_outside()
    }

    /// Whether it is already known to be a user's process.
    pub fn is_known_user(&self) -> bool {
        self.is_user.get().is_some() || self.authority == Authority::Daemon
    }

    /// The author of what it sends, for the log.
    pub(super) fn author(&self) -> Author {
        let (pid, family) = match &self.authority {
            Authority::Peer(peer) => (peer.pid, self.is_user.get().is_none()),
            Authority::Session(_) | Authority::Daemon => (Some(std::process::id()), true),
        };
        Author { name: self.name(), process: pid.map(|pid| Process { pid, family }) }
    }

    /// Fails unless the caller is a user: for a session, and for a process that the daemon started or may have started.
    pub(super) fn must_be_user(&self, services: &Services, what: &str) -> Result<(), RpcError> {
        if !self.is_plain() {
            return self.must_administer(services, what);
        }
        match self.standing(services) {
            Standing::User => Ok(()),
            standing => Err(self.refuse(&standing, what)),
        }
    }

    /// Fails unless the caller is a user, as far as the system tells: for a session, and for a process that the daemon started.
    pub(super) fn must_be_outside(&self, services: &Services, what: &str) -> Result<(), RpcError> {
        if !self.is_plain() {
            return self.has_valid_token(services);
        }
        let standing = self.standing(services);
        if standing.is_outside() { Ok(()) } else { Err(self.refuse(&standing, what)) }
    }

    /// Fails unless the caller may change this session: a user, or its parent.
    pub(super) async fn may_change(
        &self,
        services: &Services,
        session: &SessionId,
        what: &str,
    ) -> Result<(), RpcError> {
        if !self.is_plain() {
            return self.may_read(services, session).await;
        }
        match self.standing(services) {
            standing if standing.is_outside() => Ok(()),
            Standing::Session(own) if services.store.tree(own.clone()).await?.contains(session) => Ok(()),
            standing => Err(self.refuse(&standing, what)),
        }
    }

    /// The sessions that it may read; fails if that is none.
    pub(super) async fn readable(&self, services: &Services) -> Result<Readable, RpcError> {
        let scope = self.scope(services)?;
        match scope.is_all() {
            true => Ok(Readable::All),
            false => Ok(Readable::Some(services.store.within(scope).await?)),
        }
    }

    /// The sessions that it may read, those to come included; fails if it may read none.
    pub(super) fn scope(&self, services: &Services) -> Result<Scope, RpcError> {
        if !self.is_plain() {
            self.has_valid_token(services)?;
            return Ok(self.token().map(|token| token.scope.clone()).unwrap_or_default());
        }
        match self.standing(services) {
            standing if standing.is_outside() => Ok(Scope::default()),
            Standing::Session(session) | Standing::Family(Some(session)) => Ok(Scope::of(session)),
            standing => Err(self.refuse(&standing, "read a session")),
        }
    }

    /// Fails unless the caller may read this session.
    pub(super) async fn may_read(&self, services: &Services, session: &SessionId) -> Result<(), RpcError> {
        let scope = self.scope(services)?;
        if scope.is_all() || services.store.is_within(scope, session.clone()).await? {
            return Ok(());
        }
        match self.token() {
            Some(token) => Err(self.beyond(&token, &format!("session {session} is none of those of the grant"))),
            None => Err(self.refuse(&self.standing(services), "read a session of others")),
        }
    }

    fn refuse(&self, standing: &Standing, what: &str) -> RpcError {
        let (message, hint) = match standing {
            Standing::Session(_) => (format!("a session may not {what}"), "do it from a terminal or an editor"),
            Standing::User | Standing::Family(_) | Standing::Server(_) => {
                (format!("a process started by the daemon may not {what}"), "do it from a terminal or an editor")
            }
            Standing::Hidden | Standing::Unknown => (
                format!("this process may not {what}: cannot tell whether the daemon started it"),
                "/proc must show the parents of the client's process: run `linger doctor`",
            ),
            Standing::Limited => (
                format!(
                    "this process may not {what}: its limit of file locks is as low as in processes started by the daemon"
                ),
                "do it from a terminal where `ulimit -Hx` prints unlimited",
            ),
        };
        tracing::warn!(target: "permission", caller = self.name(), what, "refused: {message}");
        RpcError::new(Code::NotAllowed, message).hint(hint)
    }

    pub(super) fn standing(&self, services: &Services) -> Standing {
        match &self.authority {
            Authority::Peer(_) if self.is_user.get().is_some() => Standing::User,
            Authority::Peer(peer) => {
                let standing = standing(*peer, services);
                if matches!(standing, Standing::User) {
                    let _once = self.is_user.set(());
                }
                standing
            }
            Authority::Session(session) => Standing::Session(session.clone()),
            Authority::Daemon => Standing::User,
        }
    }
}

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
    /// Nothing tells whether the daemon started it.
    Unknown,
    /// It may have lowered the inherited mark.
    Limited,
}

impl Standing {
    /// Whether, as far as the system tells, the daemon did not start it. Other systems than Linux tell nothing: there a tool is
    /// refused answers, and nothing else.
    fn is_outside(&self) -> bool {
        matches!(self, Self::User | Self::Hidden) || (cfg!(not(target_os = "linux")) && matches!(self, Self::Unknown))
    }
}

/// The standing of a process. Those that a dead daemon left descend from the keeper.
pub(super) fn standing(peer: Peer, services: &Services) -> Standing {
    let Some(pid) = peer.pid.filter(|pid| peer::started(*pid) == peer.began) else { return Standing::Unknown };
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
