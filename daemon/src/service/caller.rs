//! The caller of a method: its name, what it proved in `daemon/hello`, and its relation to the daemon. Its rights are in
//! [`super::authority`].

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use linger_protocol::RpcError;
use linger_protocol::daemon::Hello;
use linger_protocol::error::Code;
use linger_protocol::event::Process;
use linger_protocol::gateway::RunningGateway;

use super::Services;
use super::proof::{Authority, Face, Proof, unauthorized};
use super::standing::{Restraint, Standing, standing};
use super::tokens::Token;
use super::upload::Upload;
use crate::session::messages::Author;
use crate::sys::clock;
use crate::sys::peer::{self, Peer};

/// The longest name of a caller, in characters.
const MAX_NAME: usize = 60;

/// The caller of a method.
#[derive(Debug)]
pub struct Caller {
    authority: Authority,
    /// Its name from `daemon/hello`.
    name: Mutex<Option<String>>,
    /// Its claims in `daemon/hello`, checked.
    proof: Mutex<Proof>,
    /// The artifacts that it is putting here.
    uploads: Mutex<Vec<Upload>>,
    /// Set while it is the gateway.
    gateway: Mutex<Option<Arc<RunningGateway>>>,
    /// Set once the process at the other end is known to be a user's: its connection stays one, also when it has ended.
    is_user: OnceLock<()>,
}

impl Caller {
    /// A caller without a name.
    pub fn new(authority: Authority) -> Self {
        Self {
            authority,
            name: Mutex::default(),
            proof: Mutex::default(),
            uploads: Mutex::default(),
            gateway: Mutex::default(),
            is_user: OnceLock::new(),
        }
    }

    /// Its authority as the transport knows it.
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
    /// known to be a user's. A client behind a server of ssh is named so: nothing tells which process it is.
    pub(super) fn set_name(&self, services: &Services, name: &str) {
        let name: String = name.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect();
        let is_forwarded = matches!(self.authority, Authority::Peer(Peer { pid: Some(pid), .. }) if peer::is_ssh(pid));
        let name = if is_forwarded && !name.is_empty() { format!("{name} via ssh") } else { name };
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

    /// Takes it for the gateway that listens there. Fails unless it is a user's process that speaks for itself.
    pub(super) fn serve_as_gateway(&self, services: &Services, mut running: RunningGateway) -> Result<(), RpcError> {
        self.must_be_process(services, "be the gateway")?;
        if let Authority::Peer(Peer { pid: Some(pid), .. }) = self.authority {
            running.pid = pid;
        }
        let running = Arc::new(running);
        services.gateways.add(&running);
        *self.gateway.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
        Ok(())
    }

    /// Whether it is the gateway.
    pub fn is_gateway(&self) -> bool {
        self.gateway.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn proof(&self) -> Proof {
        self.proof.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes what a connection says of itself; it cannot take it back. After a token that is not valid nothing is answered.
    pub(super) fn greet(&self, services: &Services, hello: &Hello) -> Result<(), RpcError> {
        let face = hello.behind.map(Face::of);
        let own = if hello.token.is_none() && face.is_none() { self.granted(services) } else { None };
        let mut proof = self.proof.lock().unwrap_or_else(PoisonError::into_inner);
        let token = match hello.token.as_deref() {
            None => None,
            Some(text) => match services.tokens.find(text, clock::now()) {
                Some(token) => Some(token),
                None => {
                    // One that is good stays: this one was never its own.
                    if !matches!(*proof, Proof::Token(..)) {
                        *proof = Proof::Refused;
                    }
                    return Err(unauthorized("the token is unknown, expired or revoked"));
                }
            },
        };
        let other = |what: &str| {
            Err(RpcError::new(Code::NotAllowed, format!("this connection has said hello with another {what}"))
                .hint("open another connection"))
        };
        *proof = match (&*proof, token, face) {
            (Proof::Process | Proof::Refused | Proof::Server(..), None, None) => own.unwrap_or_default(),
            (Proof::Process | Proof::Refused | Proof::Server(..), None, Some(face)) => Proof::Face(face),
            (Proof::Process | Proof::Refused | Proof::Server(..), Some(token), face) => Proof::Token(token, face),
            (Proof::Face(before), _, Some(face)) if *before != face => return other("process behind it"),
            (Proof::Face(before), None, _) => Proof::Face(*before),
            (Proof::Face(before), Some(token), _) => Proof::Token(token, Some(*before)),
            (Proof::Token(before, _), Some(token), _) if before.id != token.id => return other("token"),
            (Proof::Token(_, before), _, Some(face)) if *before != Some(face) => return other("process behind it"),
            (Proof::Token(token, face), ..) => Proof::Token(token.clone(), *face),
        };
        Ok(())
    }

    /// The grant of the user's configuration, if it is an MCP server of the daemon.
    fn granted(&self, services: &Services) -> Option<Proof> {
        match self.standing(services) {
            Standing::Server(grant) => {
                let token = Arc::new(Token::of_server(&grant));
                Some(Proof::Server(grant, token))
            }
            _ => None,
        }
    }

    /// Its token, or what stands for one.
    pub(super) fn token(&self) -> Option<Arc<Token>> {
        match self.proof() {
            Proof::Token(token, _) | Proof::Server(_, token) => Some(token),
            Proof::Process | Proof::Refused | Proof::Face(_) => None,
        }
    }

    /// Whether it has what the configuration grants an MCP server.
    pub(super) fn is_server(&self) -> bool {
        matches!(self.proof(), Proof::Server(..))
    }

    /// Whether it is a process that speaks for itself.
    pub(super) fn is_plain(&self) -> bool {
        matches!(*self.proof.lock().unwrap_or_else(PoisonError::into_inner), Proof::Process)
    }

    /// Whether it had a token that is valid no more.
    pub fn has_lost_token(&self, services: &Services) -> bool {
        match self.proof() {
            Proof::Token(token, _) => !services.tokens.is_valid(&token, clock::now()),
            Proof::Server(grant, _) => !services.env().calls.children.ledger.runs(&grant),
            Proof::Process | Proof::Refused | Proof::Face(_) => false,
        }
    }

    /// Fails unless it has a token that is valid now.
    pub(super) fn has_valid_token(&self, services: &Services) -> Result<(), RpcError> {
        match self.proof() {
            Proof::Token(token, _) if services.tokens.is_valid(&token, clock::now()) => Ok(()),
            Proof::Token(..) => Err(unauthorized("the token has expired or was revoked")),
            Proof::Server(grant, _) if services.env().calls.children.ledger.runs(&grant) => Ok(()),
            Proof::Server(..) => Err(RpcError::new(Code::Unauthorized, "the MCP server that had this grant has ended")
                .hint("its next start has it again")),
            Proof::Refused => Err(unauthorized("the token is unknown, expired or revoked")),
            Proof::Face(_) | Proof::Process => {
                Err(unauthorized("a connection that speaks for another process needs a token"))
            }
        }
    }

    /// The reason why it may not use all of its grant, as the system tells now.
    pub(super) fn restraint(&self, services: &Services) -> Restraint {
        let own = match self.authority() {
            Authority::Daemon => Restraint::Free,
            Authority::Peer(_) if matches!(self.proof(), Proof::Server(..)) => return Restraint::Server,
            Authority::Peer(_) | Authority::Session(_) => self.standing(services).into(),
        };
        let behind = match self.proof() {
            Proof::Face(face) | Proof::Token(_, Some(face)) => match face {
                Face::Process(peer) => standing(peer, services).into(),
                Face::OtherUser => Restraint::Unknown,
                Face::Hidden => Restraint::Family,
            },
            Proof::Process | Proof::Refused | Proof::Server(..) | Proof::Token(_, None) => Restraint::Free,
        };
        own.max(behind)
    }
}
