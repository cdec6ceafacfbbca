//! A connection to the daemon: hello, provider keys, requests and their answers.
//!
//! A thread reads each connection and sends what arrives into the one channel of the process, together
//! with the number of the connection, so that late input of a lost one is ignored. [`reconnect`]
//! replaces a lost connection. Deliberately absent: anything that ends a running daemon, whatever its
//! version.

pub(crate) mod far;
mod proof;
mod reach;
mod reader;
mod reconnect;
mod skew;
pub(crate) mod start;

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IsTerminal as _};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use linger_protocol::attention::Signal;
use linger_protocol::daemon::{Hello, Keys, Welcome};
use linger_protocol::error::Code;
use linger_protocol::id::SessionId;
use linger_protocol::listener::{self, Proof, holder};
use linger_protocol::method::{DaemonHello, DaemonKeys, Method, SessionList};
use linger_protocol::place::Places;
use linger_protocol::session::{Info, List};
use linger_protocol::token::Can;
use linger_protocol::transport::blocking::{Incoming, Writer};
use linger_protocol::variable::{DESKTOP, Withheld};
use linger_protocol::{PROTOCOL, RpcError, VERSION};
use serde_json::value::RawValue;

use crate::capacity::Capacity;
use crate::error::{Exit, Failure};
use crate::input::Event;
use crate::terminal::Terminal;
pub(crate) use reach::elsewhere;
use reach::{Search, Stream, dial, reach};
use reader::listen;
use skew::skew;

/// How long an answer may take; the slowest waits for a disk.
const ANSWER: Duration = Duration::from_secs(30);

/// How long a silent daemon is not mentioned to a person.
const SILENCE: Duration = Duration::from_secs(1);

/// How long the reader may take to pass on what the daemon sent before it hung up.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// When a person gets a hint about a daemon that does not answer.
const ADVICE: Duration = Duration::from_secs(5);

/// How long to try again while the daemon has all the connections it takes: a silent connection gives
/// up its place after 2 s.
const CROWDED: Duration = Duration::from_secs(6);

/// The pause before each of these tries.
const CROWDED_PAUSE: Duration = Duration::from_millis(200);

/// How long the daemon may still take to answer after a signal.
const AFTER_SIGNAL: Duration = Duration::from_secs(1);

/// How often one request is sent over new connections before it fails.
const RESENDS: usize = 3;

/// The message while the client reconnects.
pub(crate) const RECONNECTING: &str = "the connection to the daemon was lost; reconnecting";

/// The variable with the token that a client proves itself by, in place of its process.
const TOKEN_VARIABLE: &str = "LINGER_TOKEN";

/// The hint about a daemon that does not answer.
const SILENT: &str = "`linger daemon status` checks it, `linger daemon stop` ends it; turns continue at the next start";

/// A connection to the daemon, which is replaced when it is lost.
pub(crate) struct Client {
    /// The directories and the socket.
    pub(crate) places: Places,
    /// Our name for others: `linger@pts/3`.
    pub(crate) name: String,
    /// The answer to our hello.
    pub(crate) welcome: Welcome,
    /// The number of the last connection with a completed hello; attachments of earlier ones are gone.
    pub(crate) epoch: u32,
    /// The number of the present connection; counts up.
    connection: u32,
    writer: Writer,
    sender: Sender<Event>,
    events: Receiver<Event>,
    /// For input that was read and not received yet.
    capacity: Capacity,
    /// Events that came before the answer to a request.
    backlog: VecDeque<Event>,
    /// Who listens at the other end.
    proof: Proof,
    /// Whether any hello was answered.
    greeted: bool,
    /// Whether the daemon closed the connection for lack of capacity.
    crowded: bool,
    /// Whether this client started the daemon that it first reached.
    pub(crate) started: bool,
    /// When the command's time is over: no reconnecting after this.
    pub(crate) until: Option<Instant>,
}

/// The token of the environment, if it has one.
fn token() -> Result<Option<String>, Failure> {
    match std::env::var(TOKEN_VARIABLE) {
        Ok(token) if token.is_empty() => Ok(None),
        Ok(token) => Ok(Some(token)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Failure::usage(format!("{TOKEN_VARIABLE} is not a token")).hint("`linger token mint NAME` creates one"))
        }
    }
}

/// The outcome of a request.
pub(crate) enum Reply {
    Answered(Result<Box<RawValue>, RpcError>),
    /// The connection was lost, or the daemon is ending: ask the next one.
    Lost,
    /// No answer yet.
    Late,
}

impl Client {
    /// Connects, and starts the daemon if there is none; prints warnings about its configuration and
    /// its database.
    pub(crate) fn open() -> Result<Self, Failure> {
        Self::open_within(None)
    }

    /// As [`Client::open`], for a command whose requests all have to end by `until`.
    pub(crate) fn open_within(until: Option<Instant>) -> Result<Self, Failure> {
        let client = Self::open_silent(until)?;
        if let Some(error) = &client.welcome.config_error {
            let hint = if client.welcome.config_stale {
                "fix the file; until then its last valid content is used"
            } else {
                "fix the file; until then sessions can be read, but no turn starts"
            };
            Terminal::new().say(&format!("warning: {error}\nhint: {hint}"))?;
        }
        client.warn_unproven()?;
        if let Some(skew) = skew(&client.welcome.version, VERSION) {
            Terminal::new().say(&skew)?;
        }
        for warning in &client.welcome.config_warnings {
            Terminal::new().say(&format!("warning: {warning}"))?;
        }
        for damage in &client.welcome.damage {
            Terminal::new().say(&format!("warning: {damage}\nhint: `linger doctor` says what to do"))?;
        }
        Ok(client)
    }

    /// Says that the listener is not proven: once for a tunnel, and with each command where the daemon should be this machine's.
    fn warn_unproven(&self) -> Result<(), Failure> {
        // One that has ended since cannot be verified either; the next request finds that out.
        if self.proof != Proof::Unknown || self.writer.listener().is_some_and(holder::has_ended) {
            return Ok(());
        }
        if self.is_far() && !far::is_new(&self.places) {
            return Ok(());
        }
        let socket = self.places.socket.display();
        let mut terminal = Terminal::new();
        terminal.say(&format!(
            "warning: cannot verify that {socket} belongs to your daemon, so it gets no provider keys and no variables for tools"
        ))?;
        if self.is_far() {
            terminal.say("hint: tools have the variables of that machine's user: `linger help another-machine`")?;
        } else if !proof::is_named() {
            terminal
                .say("hint: if its keeper was killed, run `linger daemon stop`; the next command starts it again")?;
        }
        Ok(())
    }

    /// Connects to a running daemon, and proves who listens.
    pub(crate) fn open_if_running() -> Result<Option<Self>, Failure> {
        match Self::open_running(&Places::of_user()?)? {
            Some(mut client) => client.hello().map(|()| Some(client)),
            None => Ok(None),
        }
    }

    /// As [`Client::open`], without the warnings.
    pub(crate) fn open_silent(until: Option<Instant>) -> Result<Self, Failure> {
        let places = Places::of_user()?;
        let crowded = Instant::now() + CROWDED;
        let mut started = false;
        loop {
            let stream = reach(&places, Search::first(), |pause| {
                std::thread::sleep(pause);
                if until.is_some_and(|until| Instant::now() >= until) { Err(late()) } else { Ok(()) }
            })?;
            started |= stream.started;
            let mut client = Self { until, started, ..Self::over(places.clone(), stream) };
            match client.hello() {
                Ok(()) => return Ok(client),
                // It was ending just now: find or start the next one.
                Err(failure) if failure == lost() => {
                    return match client.reconnect() {
                        Err(failure) if failure == lost() && client.is_far() => Err(far::closed_there(&client.places)),
                        outcome => outcome.map(|()| client),
                    };
                }
                Err(failure) if failure.passing && Instant::now() < crowded => std::thread::sleep(CROWDED_PAUSE),
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Connects to a running daemon without hello: works with a daemon of any version.
    pub(crate) fn open_running(places: &Places) -> Result<Option<Self>, Failure> {
        Ok(dial(places)?.map(|stream| Self::over(places.clone(), stream)))
    }

    fn over(places: Places, Stream { reader, writer, .. }: Stream) -> Self {
        let (sender, events) = mpsc::channel();
        let capacity = Capacity::default();
        listen(reader, 0, sender.clone(), capacity.clone());
        let welcome = Welcome {
            grant: None,
            protocol: 0,
            version: String::new(),
            env: Vec::new(),
            env_deny: Vec::new(),
            keys: Vec::new(),
            workspace_keys: BTreeMap::new(),
            signals: Vec::new(),
            config_error: None,
            config_stale: false,
            config_warnings: Vec::new(),
            damage: Vec::new(),
        };
        Self {
            places,
            name: name(),
            welcome,
            epoch: 0,
            connection: 0,
            writer,
            sender,
            events,
            capacity,
            backlog: VecDeque::new(),
            proof: Proof::Unknown,
            greeted: false,
            crowded: false,
            started: false,
            until: None,
        }
    }

    /// Agrees on the protocol, proves who listens, and sends a proven daemon the provider keys that it lacks and this
    /// environment has. A token goes to a proven daemon, or where the user has pointed this client.
    fn hello(&mut self) -> Result<(), Failure> {
        let token = token()?;
        self.prove_and_greet(token.clone())?;
        if self.proof != Proof::Daemon {
            // It may have started only now.
            self.prove();
        }
        if matches!(self.proof, Proof::Stranger(_)) || self.writer.outlives_listener() {
            // A connection from before the daemon's start shows who opened the socket, the service manager, or the daemon before.
            let stream = dial(&self.places)?.ok_or_else(lost)?;
            self.writer.close();
            self.continue_with(stream);
            self.prove_and_greet(token.clone())?;
        }
        match self.proof {
            Proof::Stranger(_) if proof::is_named() => self.proof = Proof::Unknown,
            Proof::Stranger(pid) => return Err(proof::stranger(pid, &self.places)),
            Proof::Unknown if token.is_some() && !proof::is_named() => return Err(proof::no_token(&self.places)),
            // It was proven after its first answer.
            Proof::Daemon if token.is_some() && self.welcome.grant.is_none() => self.greet(token)?,
            Proof::Unknown | Proof::Daemon => {}
        }
        self.epoch = self.connection;
        let (keys, workspace_keys) = match self.proof {
            Proof::Daemon => (
                proof::keys(&self.welcome.keys, &self.places),
                proof::workspace_keys(&self.welcome.workspace_keys, &self.places),
            ),
            _ => (BTreeMap::new(), BTreeMap::new()),
        };
        if !keys.is_empty() || !workspace_keys.is_empty() {
            // Requests take effect in order, so there is no need to wait for the answer.
            self.send(&DaemonKeys(Keys { keys, workspace_keys }))?.ok_or_else(lost)?;
        }
        Ok(())
    }

    /// Says hello, with the token if it may go to this listener.
    fn prove_and_greet(&mut self, token: Option<String>) -> Result<(), Failure> {
        self.prove();
        let may_have_it = self.proof == Proof::Daemon || proof::is_named();
        self.greet(token.filter(|_| may_have_it))
    }

    fn prove(&mut self) {
        self.proof = listener::prove(&self.places, self.writer.listener());
    }

    /// Whether the daemon is elsewhere, as far as this machine shows: the user named a socket that is not this machine's own.
    pub(crate) fn is_far(&self) -> bool {
        self.proof != Proof::Daemon && !self.places.is_own_socket()
    }

    /// Whether the process at the other end is the daemon of this lock.
    pub(crate) fn is_daemon_of(&self, holder: &holder::Holder) -> bool {
        self.writer.listener().is_some_and(|listener| holder.is_daemon(listener))
    }

    fn greet(&mut self, token: Option<String>) -> Result<(), Failure> {
        let hello = Hello { client: self.name.clone(), protocol: PROTOCOL, token, ..Hello::default() };
        let hello = DaemonHello(hello);
        let id = self.send(&hello)?.ok_or_else(lost)?;
        let answer = match self.reply(id, SILENCE)? {
            Reply::Answered(answer) => Some(answer),
            Reply::Lost => None,
            Reply::Late => self.slow_hello(id)?,
        };
        self.welcome = match answer.ok_or_else(lost)? {
            Ok(raw) => parse::<DaemonHello>(&raw)?,
            Err(error) if error.code() == Some(Code::Version) => return Err(version_mismatch(error)),
            Err(error) => return Err(error.into()),
        };
        self.greeted = true;
        Ok(())
    }

    /// Waits for the answer to hello, and tells a person. Fails if the daemon is stopped.
    fn slow_hello(&mut self, id: u64) -> Result<Option<Result<Box<RawValue>, RpcError>>, Failure> {
        if let Some(pid) = self.writer.listener().filter(|pid| holder::is_stopped(*pid)) {
            let stopped = format!("the daemon (process {pid}) is stopped, as by Ctrl-Z or `kill -STOP`");
            let hint = format!("`kill -CONT {pid}` continues it, `linger daemon stop` ends it");
            return Err(Failure::unreachable(stopped).hint(hint));
        }
        let talks = !self.greeted && io::stderr().is_terminal();
        let mut terminal = Terminal::new();
        if talks {
            terminal.say(&format!("waiting for the daemon at {} …", self.places.socket.display()))?;
        }
        match self.reply(id, ADVICE)? {
            Reply::Answered(answer) => return Ok(Some(answer)),
            Reply::Lost => return Ok(None),
            Reply::Late if talks => terminal.say(&format!("hint: {SILENT}"))?,
            Reply::Late => {}
        }
        self.answer(id, ANSWER)
    }

    /// Where other threads send events.
    pub(crate) fn sender(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// The capacity that lines which are not drawn yet count against.
    pub(crate) fn capacity(&self) -> Capacity {
        self.capacity.clone()
    }

    /// Whether it sends no variables for a session's tools: they get those of the daemon's user.
    pub(crate) fn lacks_env(&self) -> bool {
        self.has_token() || self.proof != Proof::Daemon
    }

    /// The variables of this environment that a session's tools get; none for a daemon that is not proven.
    pub(crate) fn session_env(&self) -> BTreeMap<String, String> {
        match self.proof {
            _ if self.has_token() => BTreeMap::new(),
            Proof::Daemon => self.environment().0,
            _ => BTreeMap::new(),
        }
    }

    /// The variables that a client sends again with each attach and prompt: secrets, and those of its desktop.
    pub(crate) fn brought_env(&self) -> BTreeMap<String, String> {
        let desktop = || DESKTOP.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
        match self.proof {
            _ if self.has_token() => BTreeMap::new(),
            Proof::Daemon => self.secret_env().into_iter().chain(desktop()).collect(),
            _ => BTreeMap::new(),
        }
    }

    /// Whether it proved itself by a token, with which no variables go.
    pub(crate) fn has_token(&self) -> bool {
        self.welcome.grant.is_some()
    }

    /// Whether it may answer some questions, as far as its token says.
    pub(crate) fn may_answer(&self) -> bool {
        let answers = [Can::AnswerEdits, Can::AnswerCommands];
        self.welcome.grant.as_ref().is_none_or(|grant| answers.into_iter().any(|can| grant.may(can)))
    }

    /// How this terminal draws attention to itself.
    pub(crate) fn signals(&self) -> &[Signal] {
        &self.welcome.signals
    }

    /// The variables with secrets, which the daemon loses with a restart.
    pub(crate) fn secret_env(&self) -> BTreeMap<String, String> {
        match self.proof {
            _ if self.has_token() => BTreeMap::new(),
            Proof::Daemon => proof::secrets(&self.welcome, &self.places),
            _ => BTreeMap::new(),
        }
    }

    /// The variables that tools get, and why they do not get the rest.
    pub(crate) fn environment(&self) -> (BTreeMap<String, String>, BTreeMap<String, Withheld>) {
        proof::environment(&self.welcome, &self.places)
    }

    /// Fails if it cannot be told whether the user's own daemon listens; `so` is what is therefore not done.
    pub(crate) fn must_be_proven(&self, so: &str) -> Result<(), Failure> {
        if self.proof == Proof::Daemon {
            return Ok(());
        }
        let socket = self.places.socket.display();
        Err(Failure::unreachable(format!("cannot verify that {socket} belongs to your daemon, {so}"))
            .hint("run this on the machine where the daemon runs, as its user"))
    }

    /// Sends a request and returns the number of its answer; `None` if the connection is lost. Fails if
    /// no connection can carry the request, or the daemon refuses this one.
    pub(crate) fn send<M: Method>(&mut self, request: &M) -> Result<Option<u64>, Failure> {
        let busy = self.capacity.while_busy();
        let sent = self.writer.request(request);
        drop(busy);
        match sent {
            Ok(id) => Ok(Some(id)),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(Failure::unsendable(&error)),
            Err(_) if self.backlog.iter().any(|event| matches!(event, Event::Lost(n) if *n == self.connection)) => {
                Ok(None)
            }
            Err(_) => {
                // The daemon may have said why before it hung up; no answer has number 0.
                match self.reply(0, LAST_WORDS) {
                    Err(failure) if !failure.interrupted && failure != lost() => return Err(failure),
                    // The reader of events has to see the loss too, even if it was noticed long ago.
                    _ => self.backlog.push_back(Event::Lost(self.connection)),
                }
                Ok(None)
            }
        }
    }

    /// Sends a request and waits for its result.
    pub(crate) fn call<M: Method>(&mut self, request: &M) -> Result<M::Result, Failure> {
        parse::<M>(&self.call_raw(request)??)
    }

    /// Sends a request and waits for the raw answer; sends it again if the connection is lost meanwhile.
    pub(crate) fn call_raw<M: Method>(&mut self, request: &M) -> Result<Result<Box<RawValue>, RpcError>, Failure> {
        self.call_raw_within(request, ANSWER)
    }

    /// As [`Client::call`], with a time of its own: some requests wait for a person.
    pub(crate) fn call_within<M: Method>(&mut self, request: &M, within: Duration) -> Result<M::Result, Failure> {
        parse::<M>(&self.call_raw_within(request, within)??)
    }

    fn call_raw_within<M: Method>(
        &mut self,
        request: &M,
        within: Duration,
    ) -> Result<Result<Box<RawValue>, RpcError>, Failure> {
        for _ in 0..RESENDS {
            if let Some(id) = self.send(request)?
                && let Some(answer) = self.answer(id, within)?
            {
                return Ok(answer);
            }
            self.reconnect()?;
        }
        Err(lost())
    }

    /// Sends a request once, over this connection.
    pub(crate) fn call_once<M: Method>(&mut self, request: &M, within: Duration) -> Result<Reply, Failure> {
        match self.send(request)? {
            Some(id) => self.reply(id, within),
            None => Ok(Reply::Lost),
        }
    }

    /// The next event, or `None` if `deadline` passes first.
    pub(crate) fn next_event(&mut self, deadline: Option<Instant>) -> Option<Event> {
        loop {
            let event = match self.backlog.pop_front() {
                Some(event) => event,
                None => self.receive(deadline)?,
            };
            if self.is_news(&event) {
                return Some(event);
            }
        }
    }

    /// The answer to request `id`; `None` if the connection was lost. Other events go to the backlog.
    fn answer(&mut self, id: u64, within: Duration) -> Result<Option<Result<Box<RawValue>, RpcError>>, Failure> {
        match self.reply(id, within)? {
            Reply::Answered(answer) => Ok(Some(answer)),
            Reply::Lost => Ok(None),
            Reply::Late => {
                Err(Failure::unreachable(format!("the daemon did not answer within {} s", within.as_secs()))
                    .hint(format!("{SILENT}; see {}", self.places.log().display())))
            }
        }
    }

    /// The outcome of request `id` within a time. Fails if the daemon refuses the connection.
    fn reply(&mut self, id: u64, within: Duration) -> Result<Reply, Failure> {
        let _busy = self.capacity.while_busy();
        let mut deadline = Instant::now() + within;
        deadline = self.until.map_or(deadline, |until| deadline.min(until));
        let mut signalled = false;
        loop {
            let Some(event) = self.receive(Some(deadline)) else {
                return match self.until {
                    _ if signalled => Err(self.interrupted()),
                    Some(until) if Instant::now() >= until => Err(late()),
                    _ => Ok(Reply::Late),
                };
            };
            match event {
                event if event.is_stop() => {
                    deadline = deadline.min(Instant::now() + AFTER_SIGNAL);
                    signalled = true;
                    self.backlog.push_back(event);
                }
                event if !self.is_news(&event) => {}
                Event::Incoming(_, Incoming::Response(n, answer)) if n == id => {
                    return Ok(if is_ending(&answer) { Reply::Lost } else { Reply::Answered(answer) });
                }
                Event::Lost(_) => return Ok(Reply::Lost),
                Event::Refused(_, failure) => return Err(failure),
                other => self.backlog.push_back(other),
            }
        }
    }

    fn receive(&mut self, deadline: Option<Instant>) -> Option<Event> {
        // Fails only at the deadline: `self.sender` keeps the channel open.
        let event = match deadline {
            None => self.events.recv().ok(),
            Some(deadline) => self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok(),
        };
        match event {
            // The daemon lacks capacity just now: the request goes again, with its key, over the next connection.
            Some(Event::Refused(n, failure)) if failure.passing && self.greeted && self.epoch == n => {
                self.crowded = self.is_news(&Event::Lost(n));
                Some(Event::Lost(n))
            }
            Some(Event::Incoming(n, incoming)) => {
                self.capacity.free(&incoming);
                Some(Event::Incoming(n, incoming))
            }
            event => event,
        }
    }

    fn is_news(&self, event: &Event) -> bool {
        match event {
            Event::Incoming(n, _) | Event::Lost(n) | Event::Refused(n, _) => *n == self.connection,
            _ => true,
        }
    }

    /// The row of a session in `session/list`. Fails if the session was removed.
    pub(crate) fn session_info(&mut self, session: &SessionId) -> Result<Info, Failure> {
        let list = List { matching: Some(session.to_string()), ..List::default() };
        let rows = self.call(&SessionList(list))?;
        rows.into_iter()
            .find(|row| row.session == *session)
            .ok_or_else(|| Failure::new(Exit::FAILED, format!("session {session} was removed")))
    }
}

/// Reads a result as its method's type. Fails if the daemon sent something else.
pub(crate) fn parse<M: Method>(raw: &RawValue) -> Result<M::Result, Failure> {
    serde_json::from_str(raw.get()).map_err(|error| {
        Failure::new(Exit::FAILED, format!("cannot parse the daemon's answer to {}: {error}", M::NAME))
    })
}

/// The name of this client: the program and its terminal, or its process id without one.
fn name() -> String {
    let tty = rustix::termios::ttyname(rustix::stdio::stdin(), Vec::new())
        .or_else(|_| rustix::termios::ttyname(rustix::stdio::stderr(), Vec::new()));
    match tty.as_deref().map(std::ffi::CStr::to_string_lossy) {
        Ok(tty) => format!("linger@{}", tty.strip_prefix("/dev/").unwrap_or(&tty)),
        Err(_) => format!("linger@{}", std::process::id()),
    }
}

/// Whether a daemon that is ending refused a request: nothing changed, and the next daemon can be asked.
pub(crate) fn is_ending(answer: &Result<Box<RawValue>, RpcError>) -> bool {
    matches!(answer, Err(error) if error.code() == Some(Code::Ending))
}

/// The command's time is over, and the daemon has not answered.
fn late() -> Failure {
    Failure::new(Exit::TIMED_OUT, "the daemon did not answer before the timeout")
        .hint("give it more time with --timeout, or run `linger doctor`")
}

fn lost() -> Failure {
    Failure::unreachable("the connection to the daemon was lost")
        .hint("work continues once the daemon runs; `linger doctor` says what is wrong")
}

fn version_mismatch(error: RpcError) -> Failure {
    let [oldest, newest] = PROTOCOL;
    Failure::unreachable(format!(
        "{}; this is linger {VERSION}, which speaks protocol {oldest} to {newest}",
        error.message
    ))
    .hint(
        "`linger daemon restart` waits until no turn is running, and starts the `lingerd` next to this `linger`, or on PATH, \
         which must have the same version",
    )
}
