//! The rights of a caller: the checks of the table in [`super::need`], and those that depend on parameters.
//!
//! A token proves what a person allowed, not who holds it: a tool can read one in a file. So the process counts too, that at the
//! other end and that for which a face speaks. If the daemon started one of them, or nothing tells it from one that it started, the
//! connection only reads; if it is another user's or another container's, it neither answers nor administers nor changes a mode, and
//! starts nothing in a session whose mode is looser than `ask`.
//! An MCP server with `can` in the user's configuration has a grant too, without a token: the process is the proof.

use std::path::Path;

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::id::SessionId;
use linger_protocol::permission::Mode;
use linger_protocol::token::Can;

use super::need::{self, Need, ProcessNeed, Reach, Right};
use super::proof::unauthorized;
use super::standing::{Restraint, Standing};
use super::tokens::Token;
use super::{Caller, Services};
use crate::agent::role::stricter;
use crate::session::messages::AnswerLimit;
use crate::session::state::State;
use crate::store::scope::Scope;
use crate::sys::disk;

impl Caller {
    /// Fails unless it may call a method, by the method's row in [`need`]. The session that the request names is checked later
    /// ([`Self::may_use`]), because that may need the store.
    pub fn may_call(&self, services: &Services, method: &str) -> Result<(), RpcError> {
        let need = need::of(method);
        let is_open = matches!(&need, Ok(need) if need.token.right == Right::Open);
        if !self.is_plain() && !is_open {
            // Before an error that says whether there is such a method.
            self.has_valid_token(services)?;
        }
        let Need { token, process } = need?;
        if self.is_plain() || is_open {
            return self.must_be(services, process);
        }
        match token.right {
            Right::Can(can) => self.must_have(services, can, method)?,
            Right::Either(one, other) => {
                self.must_have(services, one, method).or_else(|_| self.must_have(services, other, method))?;
            }
            Right::Open | Right::Users => return Err(self.own_processes_only(method)),
        }
        match token.reach {
            Reach::All => self.must_see_all(process.what()),
            Reach::New => self.may_make_sessions(),
            Reach::Any | Reach::Run => Ok(()),
        }
    }

    /// Fails unless its process is one of these, as far as that can be told without the store.
    fn must_be(&self, services: &Services, process: ProcessNeed) -> Result<(), RpcError> {
        let standing = match process {
            ProcessNeed::Anyone | ProcessNeed::Named(_) | ProcessNeed::ByParams => return Ok(()),
            ProcessNeed::Unrelated(what) => return self.must_be_unrelated(services, what),
            _ => self.standing(services),
        };
        let fits = match (process, &standing) {
            (ProcessNeed::User(_), standing) => matches!(standing, Standing::User),
            (_, standing) if standing.is_outside() => true,
            (ProcessNeed::Reader | ProcessNeed::Read, Standing::Session(_) | Standing::Family(Some(_))) => true,
            (ProcessNeed::Change(_), Standing::Session(_)) => true,
            _ => false,
        };
        if fits { Ok(()) } else { Err(self.refuse(&standing, process.what())) }
    }

    /// Fails for a process that the daemon started, and for one that speaks for such a process.
    fn must_be_unrelated(&self, services: &Services, what: &str) -> Result<(), RpcError> {
        if !matches!(self.restraint(services), Restraint::Server | Restraint::Family) {
            return Ok(());
        }
        let text = format!("a process that the daemon started, or that cannot be told from one, may not {what}");
        Err(RpcError::new(Code::NotAllowed, text)
            .hint("open the link in a browser of yours on this machine, or through a Unix socket: `linger help http`"))
    }

    /// Whether it is known, for a connection that brings no token yet, that the daemon did not start its process.
    pub(super) fn is_known_outside(&self, services: &Services) -> bool {
        self.restraint(services) == Restraint::Free
    }

    /// Fails unless it may do what a row says with the session that its request names.
    pub(super) async fn may_use(&self, services: &Services, session: &SessionId, need: Need) -> Result<(), RpcError> {
        if !self.is_plain() {
            return self.may_read(services, session).await;
        }
        self.must_be(services, need.process)?;
        match (self.standing(services), need.process) {
            (standing, _) if standing.is_outside() => Ok(()),
            (Standing::Session(own), ProcessNeed::Change(_))
                if services.store.tree(own.clone()).await?.contains(session) =>
            {
                Ok(())
            }
            (_, ProcessNeed::Read) => self.may_read(services, session).await,
            (standing, process) => Err(self.refuse(&standing, process.what())),
        }
    }

    /// Fails unless it may read the session that its request names, or else look into the directory, as the row says.
    pub(super) async fn may_name(
        &self,
        services: &Services,
        session: Option<&SessionId>,
        directory: Option<&Path>,
        need: Need,
    ) -> Result<(), RpcError> {
        if let Some(session) = session {
            return self.may_read(services, session).await;
        }
        self.must_be_outside(services, need.process.what())?;
        match directory {
            Some(directory) => self.may_look_into(services, directory).await,
            None => Ok(()),
        }
    }

    /// Fails unless it is a user's process, or has a token that may administer.
    pub(super) fn must_be_user(&self, services: &Services, what: &'static str) -> Result<(), RpcError> {
        if self.is_plain() {
            self.must_be(services, ProcessNeed::User(what))
        } else {
            self.must_have(services, Can::Administer, what)
        }
    }

    /// Fails for a process that the daemon started or may have started; any valid token is enough.
    pub(super) fn must_be_outside(&self, services: &Services, what: &'static str) -> Result<(), RpcError> {
        if self.is_plain() {
            self.must_be(services, ProcessNeed::Outside(what))
        } else {
            self.has_valid_token(services)
        }
    }

    /// Fails unless it is a user's process without a token.
    pub(super) fn must_be_process(&self, services: &Services, what: &'static str) -> Result<(), RpcError> {
        if self.is_plain() { self.must_be_user(services, what) } else { Err(self.own_processes_only(what)) }
    }

    /// The sessions that it may read, `None` for all; fails if it may read none.
    pub(super) async fn readable(&self, services: &Services) -> Result<Option<Vec<SessionId>>, RpcError> {
        let scope = self.scope(services)?;
        Ok(if scope.is_all() { None } else { Some(services.store.within(scope).await?) })
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
            Standing::Hidden | Standing::Elsewhere | Standing::Unknown => (
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

    /// Fails unless its grant has this, and its process lets it be used. A process without a token is not looked at.
    pub(super) fn must_have(&self, services: &Services, can: Can, what: &str) -> Result<(), RpcError> {
        if self.is_plain() {
            return Ok(());
        }
        self.has_valid_token(services)?;
        let Some(token) = self.token() else { return Ok(()) };
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
        let why = if self.is_server() {
            "a process started by the daemon starts nothing there"
        } else {
            "nothing tells whether the daemon started the process behind this connection"
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

    /// The limit of its answers.
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
        let hint = if self.is_server() {
            "`linger help servers` says what `can` of an MCP server allows"
        } else {
            "`linger token list` shows what each token allows"
        };
        RpcError::new(Code::NotAllowed, why.to_owned()).hint(hint)
    }
}
