//! A connection to the daemon: says hello, brings keys, asks and waits for answers, and comes back after a loss.
//!
//! A thread reads each connection and puts what arrives into the one channel of the process, with the number of the
//! connection, so that what a lost one still had to say is not taken for news. It ends when its connection does.
//! A daemon that runs is never ended from here, whatever its version.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IsTerminal as _};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use linger_protocol::daemon::{Hello, Keys, Welcome};
use linger_protocol::error::Code;
use linger_protocol::method::{DaemonHello, DaemonKeys, Method};
use linger_protocol::place::Places;
use linger_protocol::transport::blocking::{Incoming, Writer};
use linger_protocol::{PROTOCOL, RpcError, VERSION};
use serde_json::value::RawValue;

use crate::error::{Exit, Failure};
use crate::input::Event;
use crate::reach::{KEEPER, Search, Stream, dial, reach};
use crate::room::{Room, listen};
use crate::terminal::Terminal;

/// How long an answer may take; the slowest waits for a disk.
const ANSWER: Duration = Duration::from_secs(30);

/// How long a person is left without a word while the daemon does not answer.
const SILENCE: Duration = Duration::from_secs(1);

/// How long the reader may take to hand on what the daemon said before it hung up.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long until a person is told what can be done about a daemon that does not answer.
const ADVICE: Duration = Duration::from_secs(5);

/// How long a daemon with no room is asked again: connections that say nothing make room for another after 2 s, and a client that
/// is refused then has not lost anything.
const CROWDED: Duration = Duration::from_secs(6);

/// The pause before that.
const ELBOW_ROOM: Duration = Duration::from_millis(200);

/// How long the daemon may take to answer once a signal waits for its turn.
const HEED: Duration = Duration::from_secs(1);

/// How often one request is sent over new connections before it is given up.
const RESENDS: usize = 3;

/// What a person is told while the daemon is away.
pub(crate) const COMING_BACK: &str = "the connection to the daemon was lost; coming back";

/// What can be done about a daemon that does not answer.
const DEAF: &str = "`linger daemon status` looks at it, `linger daemon stop` ends it; turns go on at the next start";

/// A connection to the daemon, which is replaced when it is lost.
pub(crate) struct Client {
    /// Where things lie.
    pub(crate) places: Places,
    /// Who we are to others: `linger@pts/3`.
    pub(crate) name: String,
    /// What the daemon said to our hello.
    pub(crate) welcome: Welcome,
    /// The connection over which a daemon has greeted us last; another number means that whatever was attached is so no more.
    pub(crate) epoch: u32,
    /// The connection that there is; counts up with each that is made.
    connection: u32,
    writer: Writer,
    sender: Sender<Event>,
    events: Receiver<Event>,
    /// For what a connection says and nobody has received.
    room: Room,
    /// What came while an answer was waited for.
    backlog: VecDeque<Event>,
    /// Whether a daemon has answered our hello.
    greeted: bool,
    /// Whether the connection was lost because the daemon has no room.
    crowded: bool,
    /// When whoever waits for us wants no more to come back after a loss.
    pub(crate) until: Option<Instant>,
}

/// What became of a request.
pub(crate) enum Reply {
    /// Its answer.
    Answered(Result<Box<RawValue>, RpcError>),
    /// The connection was lost, or the daemon is ending: the next one is to be asked.
    Lost,
    /// No answer yet.
    Late,
}

impl Client {
    /// Connects, and starts the daemon if there is none; says so if something in its configuration is broken or has no effect, or
    /// its database was damaged.
    pub(crate) fn open() -> Result<Self, Failure> {
        Self::open_within(None)
    }

    /// As [`Client::open`], for a command that has until `until` for all that it asks.
    pub(crate) fn open_within(until: Option<Instant>) -> Result<Self, Failure> {
        let client = Self::open_silent(until)?;
        if let Some(error) = &client.welcome.config_error {
            let hint = match client.welcome.config_stale {
                true => "correct the file; what it said before stays in force",
                false => "correct the file; until then sessions can be read, and no turn begins",
            };
            Terminal::new().say(&format!("warning: {error}\nhint: {hint}"))?;
        }
        for warning in &client.welcome.config_warnings {
            Terminal::new().say(&format!("warning: {warning}"))?;
        }
        for damage in &client.welcome.damage {
            Terminal::new().say(&format!("warning: {damage}\nhint: `linger doctor` says what to do"))?;
        }
        Ok(client)
    }

    /// As [`Client::open`], for a command that looks at the configuration itself.
    pub(crate) fn open_silent(until: Option<Instant>) -> Result<Self, Failure> {
        let places = Places::of_user()?;
        let crowded = Instant::now() + CROWDED;
        loop {
            let stream = reach(&places, Search::first(), |pause| {
                std::thread::sleep(pause);
                if until.is_some_and(|until| Instant::now() >= until) { Err(late()) } else { Ok(()) }
            })?;
            let mut client = Self { until, ..Self::over(places.clone(), stream) };
            match client.hello() {
                Ok(()) => return Ok(client),
                // It was just ending: the next one is ours to find or to start.
                Err(failure) if failure == lost() => return client.come_back().map(|()| client),
                Err(failure) if failure.passing && Instant::now() < crowded => std::thread::sleep(ELBOW_ROOM),
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Connects to a daemon that runs already, without a word: works with a daemon of any version.
    pub(crate) fn open_running(places: &Places) -> Result<Option<Self>, Failure> {
        Ok(dial(places)?.map(|stream| Self::over(places.clone(), stream)))
    }

    fn over(places: Places, (reader, writer): Stream) -> Self {
        let (sender, events) = mpsc::channel();
        let room = Room::default();
        listen(reader, 0, sender.clone(), room.clone());
        let welcome = Welcome {
            protocol: 0,
            version: String::new(),
            env: Vec::new(),
            keys: Vec::new(),
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
            room,
            backlog: VecDeque::new(),
            greeted: false,
            crowded: false,
            until: None,
        }
    }

    /// Agrees on the protocol, and brings the keys that the daemon wants and this environment has.
    fn hello(&mut self) -> Result<(), Failure> {
        let hello = DaemonHello(Hello { client: self.name.clone(), protocol: PROTOCOL });
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
        let keys = environment(&self.welcome.keys);
        if !keys.is_empty() {
            // Requests take effect in order: there is no need to wait for the answer, nor anything to do with it.
            self.send(&DaemonKeys(Keys { keys }))?.ok_or_else(lost)?;
        }
        Ok(())
    }

    /// Waits for the answer to hello, and says so to a person.
    fn slow_hello(&mut self, id: u64) -> Result<Option<Result<Box<RawValue>, RpcError>>, Failure> {
        let talks = !self.greeted && io::stderr().is_terminal();
        let mut terminal = Terminal::new();
        if talks {
            terminal.say(&format!("waiting for the daemon at {} …", self.places.socket.display()))?;
        }
        match self.reply(id, ADVICE)? {
            Reply::Answered(answer) => return Ok(Some(answer)),
            Reply::Lost => return Ok(None),
            Reply::Late if talks => terminal.say(&format!("hint: {DEAF}"))?,
            Reply::Late => {}
        }
        self.answer(id, ANSWER)
    }

    /// Where other threads put what happens.
    pub(crate) fn sender(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// Room for lines that are not drawn yet: what takes it keeps the daemon from being read.
    pub(crate) fn room(&self) -> Room {
        self.room.clone()
    }

    /// The variables of this environment that the daemon gives to a session's tools.
    pub(crate) fn session_env(&self) -> BTreeMap<String, String> {
        environment(&self.welcome.env)
    }

    /// Sends a request and returns the number of its answer; nothing if the connection is lost. Fails if no connection
    /// can carry it, or the daemon refuses this one.
    pub(crate) fn send<M: Method>(&mut self, request: &M) -> Result<Option<u64>, Failure> {
        let busy = self.room.while_busy();
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
                    // Whoever reads events has to hear of it too, also if the loss itself was noticed long ago.
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

    /// Sends a request and waits for its answer as it came; sends it again if the connection is lost meanwhile.
    pub(crate) fn call_raw<M: Method>(&mut self, request: &M) -> Result<Result<Box<RawValue>, RpcError>, Failure> {
        self.call_raw_within(request, ANSWER)
    }

    /// As [`Client::call`], for what may take as long as its user does.
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
            self.come_back()?;
        }
        Err(lost())
    }

    /// Sends a request once, over this connection or not at all.
    pub(crate) fn call_once<M: Method>(&mut self, request: &M, within: Duration) -> Result<Reply, Failure> {
        match self.send(request)? {
            Some(id) => self.reply(id, within),
            None => Ok(Reply::Lost),
        }
    }

    /// The next thing that happens, or nothing if `deadline` passes first.
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

    /// The answer to request `id`; nothing if the connection was lost. What else happens is kept for later.
    fn answer(&mut self, id: u64, within: Duration) -> Result<Option<Result<Box<RawValue>, RpcError>>, Failure> {
        match self.reply(id, within)? {
            Reply::Answered(answer) => Ok(Some(answer)),
            Reply::Lost => Ok(None),
            Reply::Late => {
                Err(Failure::unreachable(format!("the daemon did not answer within {} s", within.as_secs()))
                    .hint(format!("{DEAF}; see {}", self.places.log().display())))
            }
        }
    }

    /// What becomes of request `id` within a time; fails if the daemon refuses the connection.
    fn reply(&mut self, id: u64, within: Duration) -> Result<Reply, Failure> {
        let _busy = self.room.while_busy();
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
                Event::Signal(_) => {
                    deadline = deadline.min(Instant::now() + HEED);
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
        // Fails at the deadline alone: `self.sender` keeps the channel open.
        let event = match deadline {
            None => self.events.recv().ok(),
            Some(deadline) => self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok(),
        };
        match event {
            // It has given up one request, and would take it in a moment: over the next connection, with its key.
            Some(Event::Refused(n, failure)) if failure.passing && self.greeted && self.epoch == n => {
                self.crowded = self.is_news(&Event::Lost(n));
                Some(Event::Lost(n))
            }
            Some(Event::Incoming(n, incoming)) => {
                self.room.free(&incoming);
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

    /// Comes back after a loss, and says so to a person if it takes a while.
    fn come_back(&mut self) -> Result<(), Failure> {
        if self.back_soon()? {
            return Ok(());
        }
        if io::stderr().is_terminal() {
            Terminal::new().say(COMING_BACK)?;
        }
        self.reopen()
    }

    /// Connects again if the daemon is back at once, as one is that has a keeper; whether it was.
    pub(crate) fn back_soon(&mut self) -> Result<bool, Failure> {
        if std::mem::take(&mut self.crowded) {
            self.pause(ELBOW_ROOM)?;
        }
        let deadline = Instant::now() + KEEPER;
        let mut pause = Duration::from_millis(5);
        while Instant::now() < deadline {
            if let Some(stream) = dial(&self.places)? {
                match self.replace(stream) {
                    // One that has no room yet may have some in a moment.
                    Err(failure) if failure == lost() || failure.passing => {}
                    other => return other.map(|()| true),
                }
            }
            self.pause(pause)?;
            pause = (pause * 2).min(KEEPER / 5);
        }
        Ok(false)
    }

    /// Connects again, patiently but not for ever, and starts a daemon if there is none; a signal ends the attempt.
    pub(crate) fn reopen(&mut self) -> Result<(), Failure> {
        let until = Instant::now() + CROWDED;
        let mut losses = 0;
        while losses < RESENDS {
            let places = self.places.clone();
            let stream = reach(&places, Search::again(), |pause| self.pause(pause))?;
            match self.replace(stream) {
                Err(failure) if failure == lost() => losses += 1,
                Err(failure) if failure.passing && Instant::now() < until => self.pause(ELBOW_ROOM)?,
                other => return other,
            }
        }
        Err(lost())
    }

    /// Goes on with another connection.
    fn replace(&mut self, (reader, writer): Stream) -> Result<(), Failure> {
        self.connection += 1;
        self.writer = writer;
        listen(reader, self.connection, self.sender.clone(), self.room.clone());
        self.hello()?;
        self.epoch = self.connection;
        Ok(())
    }

    fn pause(&mut self, pause: Duration) -> Result<(), Failure> {
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return Err(late());
        }
        let deadline = Instant::now() + pause;
        while let Some(event) = self.receive(Some(deadline)) {
            match event {
                Event::Signal(_) => {
                    self.backlog.push_back(event);
                    return Err(self.interrupted());
                }
                event => self.backlog.push_back(event),
            }
        }
        Ok(())
    }

    /// Leaves off, so that whoever reads events hears of the signal, and then that the connection is lost.
    fn interrupted(&mut self) -> Failure {
        self.backlog.push_back(Event::Lost(self.connection));
        Failure { interrupted: true, ..lost() }
    }
}

/// Reads a result as what its method promises.
pub(crate) fn parse<M: Method>(raw: &RawValue) -> Result<M::Result, Failure> {
    serde_json::from_str(raw.get()).map_err(|error| {
        Failure::new(Exit::FAILED, format!("the daemon's answer to {} is not understood: {error}", M::NAME))
    })
}

/// A new idempotency key.
pub(crate) fn key() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Failure::new(Exit::FAILED, format!("no random bytes: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Who we are: the program and its terminal, or its process where there is none.
fn name() -> String {
    let tty = rustix::termios::ttyname(rustix::stdio::stdin(), Vec::new())
        .or_else(|_| rustix::termios::ttyname(rustix::stdio::stderr(), Vec::new()));
    match tty.as_deref().map(std::ffi::CStr::to_string_lossy) {
        Ok(tty) => format!("linger@{}", tty.strip_prefix("/dev/").unwrap_or(&tty)),
        Err(_) => format!("linger@{}", std::process::id()),
    }
}

/// Whether a daemon that ends has refused a request: it changed nothing, and the next daemon is to be asked.
pub(crate) fn is_ending(answer: &Result<Box<RawValue>, RpcError>) -> bool {
    matches!(answer, Err(error) if error.code() == Some(Code::Ending))
}

fn environment(names: &[String]) -> BTreeMap<String, String> {
    names.iter().filter_map(|name| Some((name.clone(), std::env::var(name).ok()?))).collect()
}

/// The time that a command was given is over, and the daemon has not answered.
fn late() -> Failure {
    Failure::new(Exit::TIMED_OUT, "the daemon did not answer before the time was over")
        .hint("give it more with --timeout; `linger doctor` looks at everything")
}

fn lost() -> Failure {
    Failure::unreachable("the connection to the daemon was lost")
        .hint("the work goes on when the daemon runs; `linger doctor` looks at everything")
}

fn version_mismatch(error: RpcError) -> Failure {
    let [oldest, newest] = PROTOCOL;
    Failure::unreachable(format!(
        "{}; this is linger {VERSION}, which speaks protocol {oldest} to {newest}",
        error.message
    ))
    .hint(
        "when no work is under way: `linger daemon stop`, then the same command again; it starts the `lingerd` beside this \
         `linger`, or else on PATH, which has to fit",
    )
}
