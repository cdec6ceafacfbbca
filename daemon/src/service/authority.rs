//! What a connection with a token may do: no more than its grant, and less if the daemon may have started the process behind it.
//!
//! A token proves what a person allowed, not who holds it: a tool can read one in a file. So the process counts too, that at the
//! other end and that for which a face speaks. If the daemon started one of them, the connection only reads; if that cannot be
//! told, it neither answers nor administers nor changes a mode, and starts nothing in a session whose mode is looser than `ask`.
//! No token is a process of the user's own: what is for those alone ([`super::need::Need::Process`]) is refused.
//! An MCP server with `can` in the user's configuration has a grant too, without a token: the process is the proof.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use linger_protocol::RpcError;
use linger_protocol::daemon::Hello;
use linger_protocol::error::Code;
use linger_protocol::id::SessionId;
use linger_protocol::permission::Mode;
use linger_protocol::token::{Behind, Can, Grant};

use super::caller::{Standing, standing};
use super::need::{self, Need};
use super::token::Token;
use super::{Authority, Caller, Services};
use crate::agent::role::stricter;
use crate::session::actor::AnswerLimit;
use crate::session::state::State;
use crate::sys::peer::{self, Peer};
use crate::sys::{clock, disk};

/// What a connection said of itself.
#[derive(Clone, Debug, Default)]
pub(super) enum Proof {
    /// Nothing: its process counts.
    #[default]
    Process,
    /// A token that is not valid: nothing is answered.
    Refused,
    /// It speaks for another process, and has no token yet.
    Face(Face),
    /// A token, and the process that it speaks for, if it speaks for one.
    Token(Arc<Token>, Option<Face>),
    /// Nothing, but it is an MCP server of the daemon, with this grant in the user's configuration, also as a token.
    Server(Arc<Grant>, Arc<Token>),
}

/// The process that a face speaks for, as it was at `daemon/hello`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Face(Peer);

impl Face {
    fn of(behind: Behind) -> Self {
        let pid = behind.pid.filter(|pid| *pid > 0);
        Self(Peer { pid, began: pid.and_then(peer::started), uid: rustix::process::geteuid().as_raw() })
    }
}

/// What keeps a connection from using all of its grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Restraint {
    /// Nothing.
    Free,
    /// The daemon started it, and the user's configuration grants it more.
    Server,
    /// Nothing tells whether the daemon started the process.
    Unknown,
    /// The daemon started it, or it may have lowered the mark that tells.
    Family,
}

impl From<Standing> for Restraint {
    fn from(standing: Standing) -> Self {
        match standing {
            Standing::User => Self::Free,
            Standing::Hidden | Standing::Unknown => Self::Unknown,
            Standing::Family(_) | Standing::Server(_) | Standing::Session(_) | Standing::Limited => Self::Family,
        }
    }
}

impl Restraint {
    /// Whether it leaves this.
    fn leaves(self, can: Can) -> bool {
        match self {
            Self::Free => true,
            Self::Server => Can::OF_SERVERS.contains(&can),
            Self::Unknown => matches!(can, Can::Observe | Can::Speak | Can::Steer),
            Self::Family => can == Can::Observe,
        }
    }
}

impl Caller {
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

    /// What the user's configuration grants it, if it is an MCP server of the daemon.
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
    fn is_server(&self) -> bool {
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
            Proof::Server(grant, _) => !services.env().children.ledger.runs(&grant),
            Proof::Process | Proof::Refused | Proof::Face(_) => false,
        }
    }

    /// Fails unless it has a token that is valid now.
    pub(super) fn has_valid_token(&self, services: &Services) -> Result<(), RpcError> {
        match self.proof() {
            Proof::Token(token, _) if services.tokens.is_valid(&token, clock::now()) => Ok(()),
            Proof::Token(..) => Err(unauthorized("the token has expired or was revoked")),
            Proof::Server(grant, _) if services.env().children.ledger.runs(&grant) => Ok(()),
            Proof::Server(..) => Err(RpcError::new(Code::Unauthorized, "the MCP server that had this grant has ended")
                .hint("its next start has it again")),
            Proof::Refused => Err(unauthorized("the token is unknown, expired or revoked")),
            Proof::Face(_) | Proof::Process => {
                Err(unauthorized("a connection that speaks for another process needs a token"))
            }
        }
    }

    /// What keeps it from using all of its grant, as the system tells now.
    pub(super) fn restraint(&self, services: &Services) -> Restraint {
        let own = match self.authority() {
            Authority::Daemon => Restraint::Free,
            Authority::Peer(_) if matches!(self.proof(), Proof::Server(..)) => return Restraint::Server,
            Authority::Peer(_) | Authority::Session(_) => self.standing(services).into(),
        };
        let behind = match self.proof() {
            Proof::Face(Face(peer)) | Proof::Token(_, Some(Face(peer))) => standing(peer, services).into(),
            Proof::Process | Proof::Refused | Proof::Server(..) | Proof::Token(_, None) => Restraint::Free,
        };
        own.max(behind)
    }

    /// Whether it may call a method at all; the method itself looks at what it names.
    pub fn may_call(&self, services: &Services, method: &str) -> Result<(), RpcError> {
        let need = need::of(method);
        if self.is_plain() || need == Some(Need::Open) {
            return Ok(());
        }
        self.has_valid_token(services)?;
        match need {
            Some(Need::Open) => Ok(()),
            Some(Need::Can(can)) => self.must_have(services, can, method),
            Some(Need::Either(one, other)) => {
                self.must_have(services, one, method).or_else(|_| self.must_have(services, other, method))
            }
            Some(Need::Process) | None => Err(self.own_processes_only(method)),
        }
    }

    /// Fails unless its grant has this, and its process lets it be used. A process without a token is not looked at.
    pub(super) fn must_have(&self, services: &Services, can: Can, what: &str) -> Result<(), RpcError> {
        let Some(token) = self.token() else { return Ok(()) };
        self.has_valid_token(services)?;
        if !token.grant.may(can) && self.is_server() && Can::OF_SERVERS.contains(&can) {
            let error = RpcError::new(Code::NotAllowed, format!("`can` of this MCP server does not let it {what}"));
            return Err(error.hint(format!("it needs \"{can}\" in config.toml: `linger help servers`")));
        }
        if !token.grant.may(can) && !self.is_server() {
            let error =
                RpcError::new(Code::NotAllowed, format!("the token '{}' has no right to {what}", token.grant.name));
            return Err(error.hint(format!("it needs `{can}`: `linger token mint --can {can}` makes such a token")));
        }
        match self.restraint(services) {
            restraint if restraint.leaves(can) => Ok(()),
            Restraint::Family | Restraint::Server => {
                Err(self.beyond(&token, &format!("a process started by the daemon may not {what}")))
            }
            Restraint::Free | Restraint::Unknown => Err(self.beyond(
                &token,
                &format!(
                    "cannot tell whether the daemon started the process behind this connection: it may not {what}"
                ),
            )),
        }
    }

    /// Fails unless its grant is to administer.
    pub(super) fn must_administer(&self, services: &Services, what: &str) -> Result<(), RpcError> {
        self.has_valid_token(services)?;
        self.must_have(services, Can::Administer, what)
    }

    /// Fails for a connection with a token, and for a process that the daemon started or may have started.
    pub(super) fn must_be_process(&self, services: &Services, what: &str) -> Result<(), RpcError> {
        if self.is_plain() { self.must_be_user(services, what) } else { Err(self.own_processes_only(what)) }
    }

    /// Whether a person may be there: one who could answer, as a person who reads along is not notified of a question.
    pub(super) fn is_person(&self, services: &Services) -> bool {
        if self.is_plain() {
            return self.is_user(services);
        }
        let answers = [Can::AnswerEdits, Can::AnswerCommands];
        self.restraint(services) == Restraint::Free
            && answers.into_iter().any(|can| self.must_have(services, can, "answer").is_ok())
    }

    /// The loosest mode of what it makes; `None` for any.
    pub(super) fn loosest(&self, services: &Services) -> Option<Mode> {
        let token = self.token()?;
        let granted = token.grant.mode.unwrap_or_default();
        Some(if self.restraint(services) == Restraint::Free { granted } else { stricter(granted, Mode::Ask) })
    }

    /// Fails if a session that it creates, or whose mode it sets, may not have this mode.
    pub(super) fn may_have_mode(&self, services: &Services, mode: Mode, is_new: bool) -> Result<(), RpcError> {
        let what = if is_new { "create a session that asks less" } else { "change the mode of a session" };
        let Some(token) = self.token() else {
            return if is_new && stricter(mode, Mode::Ask) == mode {
                Ok(())
            } else {
                self.must_be_user(services, what)
            };
        };
        if !is_new && self.restraint(services) != Restraint::Free {
            return Err(
                self.beyond(&token, "only a process that the daemon did not start may change the mode of a session")
            );
        }
        let most = self.loosest(services).unwrap_or_default();
        if stricter(mode, most) == mode {
            return Ok(());
        }
        Err(self.beyond(&token, &format!("mode {mode} is looser than {most}, the loosest of the grant")))
    }

    /// Fails if it may start and change nothing in a session, because its process is unknown and the session asks less than `ask`.
    pub(super) async fn may_run_in(&self, services: &Services, session: &SessionId) -> Result<(), RpcError> {
        let Some(token) = self.token() else { return Ok(()) };
        if self.restraint(services) == Restraint::Free {
            return Ok(());
        }
        let row = services.store.session(session.clone()).await?;
        let mode = row.and_then(|row| State::from_stored(&row.fold)).map_or(Mode::Auto, |state| state.settings.mode);
        if stricter(mode, Mode::Ask) == mode {
            return Ok(());
        }
        let why = match self.is_server() {
            true => "a process started by the daemon starts nothing there",
            false => "nothing tells whether the daemon started the process behind this connection",
        };
        let text = format!("session {session} has mode {mode}, and {why}");
        Err(self.beyond(&token, &text))
    }

    /// Fails unless a directory belongs to its grant; gives it without links. A grant for some sessions has none.
    pub(super) async fn may_look_into(&self, services: &Services, directory: &Path) -> Result<(), RpcError> {
        let Some(token) = self.token() else { return Ok(()) };
        self.has_valid_token(services)?;
        if token.scope.roots.is_some() {
            return Err(self.beyond(&token, "the token is for some sessions, and for no directory"));
        }
        if token.scope.directory.is_none() {
            return Ok(());
        }
        let seen = directory.to_path_buf();
        let real = disk::probe(directory, disk::TIMEOUT, move || seen.canonicalize().ok()).await.flatten();
        match real.filter(|real| token.scope.has_directory(real)) {
            Some(_) => Ok(()),
            None => Err(self.beyond(&token, &format!("{} is outside the directory of the grant", directory.display()))),
        }
    }

    /// The name that what it sees of no session must have been put here by; `None` for all. Only a grant for all sessions has all.
    pub(super) fn only_own(&self) -> Option<String> {
        self.token().filter(|token| !token.scope.is_all()).map(|token| token.grant.name.clone())
    }

    /// Fails if its grant is for some sessions, or for a directory.
    pub(super) fn must_see_all(&self, what: &str) -> Result<(), RpcError> {
        match self.token().filter(|token| !token.scope.is_all()) {
            Some(token) => Err(self.beyond(&token, &format!("a token for some sessions may not {what}"))),
            None => Ok(()),
        }
    }

    /// Fails if its grant is for some sessions: others would be none of them.
    pub(super) fn may_make_sessions(&self) -> Result<(), RpcError> {
        match self.token().filter(|token| token.scope.roots.is_some()) {
            Some(token) => Err(self.beyond(&token, "the token is for some sessions, and makes no others")),
            None => Ok(()),
        }
    }

    /// What its answers may decide.
    pub(super) fn answer_limit(&self, services: &Services) -> AnswerLimit {
        match self.token() {
            None => AnswerLimit::None,
            Some(token) => AnswerLimit::Grant {
                commands: token.grant.may(Can::AnswerCommands),
                most: self.loosest(services).unwrap_or_default(),
            },
        }
    }

    fn own_processes_only(&self, what: &str) -> RpcError {
        if self.token().is_none() {
            return unauthorized("a connection that speaks for another process needs a token");
        }
        let of = if self.is_server() { "a process started by the daemon" } else { "a connection with a token" };
        RpcError::new(Code::NotAllowed, format!("{of} may not {what}"))
            .hint("only a process of the user's own may, such as `linger` in a terminal")
    }

    /// The error of what lies beyond a grant.
    pub(super) fn beyond(&self, token: &Token, why: &str) -> RpcError {
        tracing::warn!(target: "permission", token = %token.id, name = token.grant.name, "refused: {why}");
        let hint = match self.is_server() {
            true => "`linger help servers` says what `can` of an MCP server allows",
            false => "`linger token list` shows what each token allows",
        };
        RpcError::new(Code::NotAllowed, why.to_owned()).hint(hint)
    }
}

/// The error of a token that is not valid.
pub(super) fn unauthorized(text: &str) -> RpcError {
    RpcError::new(Code::Unauthorized, text)
        .hint("`linger token mint NAME` makes a token; `linger token list` lists them")
}
