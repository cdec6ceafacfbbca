//! The way to the daemon: finds the socket, starts the daemon if there is none, says hello, brings keys, and comes back
//! after a loss.
//!
//! A thread reads each connection and puts what arrives into the one channel of the process, with the number of the
//! connection, so that what a lost one still had to say is not taken for news. It ends when its connection does.
//! A daemon that runs is never ended from here, whatever its version.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IsTerminal as _};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use linger_protocol::daemon::{Hello, Keys, Welcome};
use linger_protocol::error::Code;
use linger_protocol::method::{DaemonHello, DaemonKeys, DaemonStop, Method};
use linger_protocol::place::{PlaceError, Places, check_socket};
use linger_protocol::transport::blocking::{self, Incoming, Reader, Writer};
use linger_protocol::{PROTOCOL, RpcError, VERSION};
use serde_json::value::RawValue;

use crate::error::{Exit, Failure};
use crate::input::Event;
use crate::start;
use crate::terminal::Terminal;

/// How long an answer may take; the slowest waits for a disk.
const ANSWER: Duration = Duration::from_secs(30);

/// How long a person is left without a word while the daemon does not answer.
const SILENCE: Duration = Duration::from_secs(1);

/// How long the reader may take to hand on what the daemon said before it hung up.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long a daemon that is being started may take to accept a connection after it says that it runs.
const ACCEPT: Duration = Duration::from_secs(5);

/// Pauses between attempts to come back after a loss, in milliseconds: 15 s together, time for a daemon to start again.
const RETRY: [u64; 10] = [20, 80, 200, 500, 1000, 2000, 2500, 2500, 3000, 3200];

/// How often one request is sent over new connections before it is given up.
const RESENDS: usize = 3;

/// A connection to the daemon, which is replaced when it is lost.
pub(crate) struct Client {
    /// Where things lie.
    pub(crate) places: Places,
    /// Who we are to others: `linger@pts/3`.
    pub(crate) name: String,
    /// What the daemon said to our hello.
    pub(crate) welcome: Welcome,
    /// Which connection this is; counts up with each that is made.
    pub(crate) epoch: u32,
    writer: Writer,
    sender: Sender<Event>,
    events: Receiver<Event>,
    /// What came while an answer was waited for.
    backlog: VecDeque<Event>,
    /// Whether a daemon has answered our hello.
    greeted: bool,
    /// Whether the daemon refused a connection, so that coming back is no use.
    refused: bool,
}

/// What became of a request.
enum Reply {
    Answered(Result<Box<RawValue>, RpcError>),
    Lost,
    Late,
}

impl Client {
    /// Connects, and starts the daemon if there is none; says so if its configuration is broken or its database was damaged.
    pub(crate) fn open() -> Result<Self, Failure> {
        let client = Self::open_silent()?;
        if let Some(error) = &client.welcome.config_error {
            let hint = "correct the file; the last good configuration stays in force";
            Terminal::new().say(&format!("warning: {error}\nhint: {hint}"))?;
        }
        for damage in &client.welcome.damage {
            Terminal::new().say(&format!("warning: {damage}\nhint: `linger doctor` says what to do"))?;
        }
        Ok(client)
    }

    /// As [`Client::open`], for a command that looks at the configuration itself.
    pub(crate) fn open_silent() -> Result<Self, Failure> {
        let places = Places::of_user()?;
        let stream = match dial(&places)? {
            Some(stream) => stream,
            None => started(&places)?,
        };
        let mut client = Self::over(places, stream);
        match client.hello() {
            Ok(()) => Ok(client),
            // It was just ending: the next one is ours to find or to start.
            Err(failure) if failure == lost() => client.reopen().map(|()| client),
            Err(failure) => Err(failure),
        }
    }

    /// Connects to a daemon that runs already, without a word: works with a daemon of any version.
    pub(crate) fn open_running(places: &Places) -> Result<Option<Self>, Failure> {
        Ok(dial(places)?.map(|stream| Self::over(places.clone(), stream)))
    }

    fn over(places: Places, (reader, writer): (Reader, Writer)) -> Self {
        let (sender, events) = mpsc::channel();
        listen(reader, 0, sender.clone());
        let welcome = Welcome {
            protocol: 0,
            version: String::new(),
            env: Vec::new(),
            keys: Vec::new(),
            config_error: None,
            damage: Vec::new(),
        };
        Self {
            places,
            name: name(),
            welcome,
            epoch: 0,
            writer,
            sender,
            events,
            backlog: VecDeque::new(),
            greeted: false,
            refused: false,
        }
    }

    /// Agrees on the protocol, and brings the keys that the daemon wants and this environment has.
    fn hello(&mut self) -> Result<(), Failure> {
        let hello = DaemonHello(Hello { client: self.name.clone(), protocol: PROTOCOL });
        let id = self.send(&hello)?.ok_or_else(lost)?;
        let answer = match self.reply(id, SILENCE)? {
            Reply::Answered(answer) => Some(answer),
            Reply::Lost => None,
            Reply::Late => {
                if !self.greeted && io::stderr().is_terminal() {
                    Terminal::new().say(&format!("waiting for the daemon at {} …", self.places.socket.display()))?;
                }
                self.answer(id, ANSWER)?
            }
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

    /// Where other threads put what happens.
    pub(crate) fn sender(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// The variables of this environment that the daemon gives to a session's tools.
    pub(crate) fn session_env(&self) -> BTreeMap<String, String> {
        environment(&self.welcome.env)
    }

    /// Sends a request and returns the number of its answer; nothing if the connection is lost. Fails if no connection
    /// can carry it, or the daemon refuses this one.
    pub(crate) fn send<M: Method>(&mut self, request: &M) -> Result<Option<u64>, Failure> {
        match self.writer.request(request) {
            Ok(id) => Ok(Some(id)),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(Failure::unsendable(&error)),
            Err(_) if self.backlog.iter().any(|event| matches!(event, Event::Lost(epoch) if *epoch == self.epoch)) => {
                Ok(None)
            }
            Err(_) => {
                // The daemon may have said why before it hung up; no answer has number 0.
                match self.reply(0, LAST_WORDS)? {
                    // Whoever reads events has to hear of it too.
                    Reply::Lost => self.backlog.push_back(Event::Lost(self.epoch)),
                    Reply::Answered(_) | Reply::Late => {}
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
        for _ in 0..RESENDS {
            if let Some(id) = self.send(request)?
                && let Some(answer) = self.answer(id, ANSWER)?
            {
                return Ok(answer);
            }
            self.reopen()?;
        }
        Err(lost())
    }

    /// Ends the daemon; a connection that ends is as good as an answer.
    pub(crate) fn stop(&mut self, stop: &DaemonStop) -> Result<(), Failure> {
        let Some(id) = self.send(stop)? else { return Ok(()) };
        match self.answer(id, ANSWER)? {
            Some(Err(error)) => Err(error.into()),
            Some(Ok(_)) | None => Ok(()),
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
                    .hint(format!("see {}", self.places.log().display())))
            }
        }
    }

    /// What becomes of request `id` within a time; fails if the daemon refuses the connection.
    fn reply(&mut self, id: u64, within: Duration) -> Result<Reply, Failure> {
        let deadline = Instant::now() + within;
        loop {
            let Some(event) = self.receive(Some(deadline)) else { return Ok(Reply::Late) };
            match event {
                event if !self.is_news(&event) => {}
                Event::Incoming(_, Incoming::Response(n, answer)) if n == id => return Ok(Reply::Answered(answer)),
                Event::Lost(_) => return Ok(Reply::Lost),
                Event::Refused(_, failure) => {
                    self.refused = true;
                    return Err(failure);
                }
                other => self.backlog.push_back(other),
            }
        }
    }

    fn receive(&self, deadline: Option<Instant>) -> Option<Event> {
        match deadline {
            // Cannot fail: `self.sender` keeps the channel open.
            None => self.events.recv().ok(),
            Some(deadline) => self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok(),
        }
    }

    fn is_news(&self, event: &Event) -> bool {
        match event {
            Event::Incoming(epoch, _) | Event::Lost(epoch) | Event::Refused(epoch, _) => *epoch == self.epoch,
            _ => true,
        }
    }

    /// Connects again, patiently but not for ever; a signal ends the attempt.
    pub(crate) fn reopen(&mut self) -> Result<(), Failure> {
        let mut last = lost();
        for (attempt, pause) in RETRY.into_iter().enumerate() {
            self.pause(Duration::from_millis(pause))?;
            // The first attempts leave it to the keeper to start the daemon again.
            let stream = match dial(&self.places) {
                Ok(None) if attempt >= 2 => started(&self.places).map(Some),
                other => other,
            };
            let (reader, writer) = match stream {
                Ok(Some(stream)) => stream,
                Ok(None) => continue,
                Err(failure) => {
                    last = failure;
                    continue;
                }
            };
            self.epoch += 1;
            self.writer = writer;
            listen(reader, self.epoch, self.sender.clone());
            match self.hello() {
                Ok(()) => return Ok(()),
                Err(failure) if self.refused => return Err(failure),
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    fn pause(&mut self, pause: Duration) -> Result<(), Failure> {
        let deadline = Instant::now() + pause;
        loop {
            match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(Event::Signal(_)) => return Err(lost()),
                Ok(event) => self.backlog.push_back(event),
            }
        }
    }
}

/// Connects if there is a daemon.
pub(crate) fn dial(places: &Places) -> Result<Option<(Reader, Writer)>, Failure> {
    match check_socket(&places.socket) {
        Ok(()) => {}
        Err(PlaceError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    match blocking::connect(&places.socket) {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(None),
        Err(error) => {
            Err(Failure::unreachable(format!("cannot connect to the daemon at {}: {error}", places.socket.display()))
                .hint("`linger doctor` looks at everything"))
        }
    }
}

/// Starts the daemon and connects.
fn started(places: &Places) -> Result<(Reader, Writer), Failure> {
    start::daemon(places)?;
    let deadline = Instant::now() + ACCEPT;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(stream) = dial(places)? {
            return Ok(stream);
        }
        if Instant::now() > deadline {
            return Err(Failure::unreachable("the daemon was started but does not accept connections")
                .hint(format!("see {}", places.log().display())));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

fn listen(mut reader: Reader, epoch: u32, sender: Sender<Event>) {
    std::thread::spawn(move || {
        let end = loop {
            match reader.next_incoming() {
                Ok(Some(incoming)) => {
                    if sender.send(Event::Incoming(epoch, incoming)).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    break Event::Refused(epoch, Failure::refused(error));
                }
                // Whatever else ends the stream, to us the connection is lost: only a new one can help.
                Ok(None) | Err(_) => break Event::Lost(epoch),
            }
        };
        let _ = sender.send(end);
    });
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

fn environment(names: &[String]) -> BTreeMap<String, String> {
    names.iter().filter_map(|name| Some((name.clone(), std::env::var(name).ok()?))).collect()
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
    .hint("when no work is under way: `linger daemon stop`, then the same command again")
}
