//! Readers that attach, detach, hang up and read on from any cursor they had, while turns are live: whatever they do, they read
//! what one reads that never left, without a gap and without a repetition.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::batches;
use super::lean::{Connection, Incoming, Line, Wrong};
use crate::Rng;
use crate::check::{Stream, read, streamed};
use crate::harness::{Daemon, Setup, programs};
use crate::model::{Gate, ModelServer, Recorded, Reply};
use crate::report::Report;

/// Sessions at a time.
const SESSIONS: u64 = 4;

/// Readers of each that come and go.
const READERS: u64 = 3;

/// Turns of each session; then the next is made, so that what an attach costs does not grow.
const TURNS: usize = 3;

/// What one reader does before it reads a session to its end.
const OPERATIONS: u64 = 150;

/// Places in each answer where the model waits.
const GATES: usize = 8;

/// How many operations there are between two of them, about.
const BETWEEN: usize = 4;

/// Old places that a reader remembers.
const REMEMBERED: usize = 32;

/// How long a reader waits for a line that need not come.
const SOON: Duration = Duration::from_millis(1);

/// Lets readers attach, detach and resume `count` times.
pub async fn attachments(count: u64, seed: u64) -> Report {
    // Built now, so that no rate counts it.
    programs();
    let began = Instant::now();
    let mut report = Report::new("attaches, detaches and resumes", seed);
    let mut lines = 0;
    for (n, size) in batches(count).enumerate() {
        lines += batch(size, seed.wrapping_add(n as u64), &mut report).await;
    }
    let rate = report.count as f64 / began.elapsed().as_secs_f64();
    report.detail = format!("{} a second; {lines} lines held against those of a reader that stayed", rate as u64);
    report.finish(began)
}

/// Where the model of each session waits, until somebody has come and gone.
type Gates = Arc<Mutex<BTreeMap<String, VecDeque<Gate>>>>;

async fn batch(size: u64, seed: u64, report: &mut Report) -> u64 {
    let gates = Gates::default();
    let closed = gates.clone();
    let model = ModelServer::scripted(move |request| reply(request, &closed));
    let setup = Setup { mode: "auto", log: "warn", ..Setup::default() };
    let daemon = Arc::new(Daemon::start_with(&model, setup).await);
    let (wrong, mut found) = mpsc::unbounded_channel();
    let mut workers = JoinSet::new();
    for worker in 0..SESSIONS {
        let (daemon, wrong, gates) = (daemon.clone(), wrong.clone(), gates.clone());
        let mut rng = Rng(seed.wrapping_mul(SESSIONS).wrapping_add(worker));
        workers.spawn(async move {
            let (mut operations, mut lines) = (0, 0);
            while operations < size.div_ceil(SESSIONS) {
                let done = session(&daemon, &mut rng, &wrong, &gates).await;
                operations += done.0;
                lines += done.1;
            }
            (operations, lines)
        });
    }
    drop(wrong);
    let mut lines = 0;
    while let Some(ended) = workers.join_next().await {
        let (operations, read) = ended.expect("a worker goes on to the end");
        report.count += operations;
        lines += read;
    }
    while let Some(what) = found.recv().await {
        report.violation(what);
    }
    model.violations().into_iter().for_each(|what| report.violation(format!("I4: {what}")));
    model.forgive();
    lines
}

/// Text in small pieces, with gates between them so that the turn lives while readers come and go, and a command that says
/// something now and then.
fn reply(request: &Recorded, gates: &Gates) -> Reply {
    let text = format!("Grüße — 🦀 {} ", request.number).repeat(3);
    let words = request.json["messages"].to_string();
    let session = words.rsplit("go ").next().and_then(|words| words.split(' ').next()).unwrap_or_default();
    let mut closed = gates.lock().unwrap_or_else(PoisonError::into_inner);
    let closed = closed.entry(session.to_owned()).or_default();
    let mut spoken = |reply: Reply| {
        (0..GATES).fold(reply, |reply, _| {
            let gate = Gate::new();
            closed.push_back(gate.clone());
            reply.text_in_deltas(&text, 5).gate(&gate)
        })
    };
    if request.after_tool() {
        return spoken(Reply::new().thinking("hm, so be it", "sig"));
    }
    let command = "for i in 1 2 3 4 5 6; do echo line $i of the output; done";
    spoken(Reply::new()).and_tool("bash", json!({ "command": command }))
}

/// What all readers of a session have seen: the first to see a thing says what it is, the others must see the same.
#[derive(Default)]
struct Truth {
    events: BTreeMap<u64, String>,
    streams: BTreeMap<(String, u64), Stream>,
}

/// How far one reader is, by what it has read; the cursor is what the daemon says about it.
#[derive(Clone, Default)]
struct Place {
    cursor: Option<String>,
    seq: u64,
    /// Block and offset in each stream that is open.
    streams: BTreeMap<String, (u64, u64)>,
    finished: usize,
}

impl Place {
    /// Reads on by one event; says what is wrong with it.
    fn take(&mut self, incoming: &Incoming, truth: &Mutex<Truth>) -> Result<(), String> {
        let Incoming { cursor, raw, event } = incoming;
        let kind = incoming.str("kind");
        let mut truth = truth.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seq) = event["seq"].as_u64() {
            if seq != self.seq + 1 {
                return Err(format!("after event {} comes {raw}", self.seq));
            }
            let known = truth.events.entry(seq).or_insert_with(|| raw.clone());
            if known != raw {
                return Err(format!("one saw {known}, another {raw}"));
            }
            self.seq = seq;
            self.close(kind, event)?;
        } else if kind.ends_with("_delta") {
            let (stream, block) = match kind {
                "tool_output_delta" => (incoming.str("call_id"), 0),
                _ => (incoming.str("message"), event["block"].as_u64().unwrap_or_default()),
            };
            let (offset, text) = (event["offset"].as_u64().unwrap_or_default(), incoming.str("text"));
            let at = self.streams.entry(stream.to_owned()).or_default();
            let due = if block == at.0 { at.1 } else { 0 };
            // Output that came long ago is left out for those who come late, and the offset shows it.
            let good = if kind == "tool_output_delta" { offset >= due } else { offset == due && block >= at.0 };
            if !good {
                return Err(format!("at {at:?} of {stream} comes {raw}"));
            }
            *at = (block, offset + text.len() as u64);
            truth.streams.entry((stream.to_owned(), block)).or_default().add(offset, text)?;
        }
        self.cursor = Some(cursor.clone());
        let said = self.said();
        if said != *cursor {
            return Err(format!("the cursor is {cursor}, what was read ends at {said}, after {raw}"));
        }
        Ok(())
    }

    /// A stream that ends was read to its end.
    fn close(&mut self, kind: &str, event: &Value) -> Result<(), String> {
        match kind {
            "message" if event["role"] == "assistant" => {
                let at = self.streams.remove(event["message"].as_str().unwrap_or_default()).unwrap_or_default();
                let blocks = (0..).zip(event["content"].as_array().into_iter().flatten());
                let end = |(n, block): (u64, &Value)| (n, streamed(block).1.len() as u64);
                let end = blocks.map(end).filter(|(_, length)| *length > 0).last().unwrap_or_default();
                if at != end {
                    return Err(format!("the message ends at {end:?}, it was read up to {at:?}"));
                }
            }
            "tool_finished" => drop(self.streams.remove(event["call_id"].as_str().unwrap_or_default())),
            "turn_finished" => self.finished += 1,
            _ => {}
        }
        Ok(())
    }

    /// The cursor of this place, by the protocol's own rules.
    fn said(&self) -> String {
        let stream = |(stream, (block, offset)): (&String, &(u64, u64))| {
            if stream.starts_with('c') { format!("+{stream}.{offset}") } else { format!("+{stream}.{block}.{offset}") }
        };
        std::iter::once(self.seq.to_string()).chain(self.streams.iter().map(stream)).collect()
    }
}

/// One session with a reader that stays and some that do not; gives operations and lines.
async fn session(daemon: &Daemon, rng: &mut Rng, wrong: &Wrong, gates: &Gates) -> (u64, u64) {
    let socket = daemon.dirs.socket();
    let mut stayed = Connection::connect(&socket, "stayed").await;
    let params = json!({ "cwd": daemon.workspace(), "env": { "PATH": "/usr/bin:/bin" }, "model": "claude/m" });
    let made = stayed.call("session/create", params).await;
    let session = made["session"].as_str().expect("a session").to_owned();
    stayed.call("session/attach", json!({ "session": session })).await;
    for n in 0..TURNS {
        // Sessions that begin alike would be one to the model server.
        let content = format!("go {session} {n}");
        stayed.send("session/prompt", json!({ "session": session, "content": content })).await;
    }
    let truth: Arc<Mutex<Truth>> = Arc::default();
    let over = watch::Sender::new(false);
    let mut readers = JoinSet::new();
    for _ in 0..READERS {
        let reader = Reader {
            connection: Connection::connect(&socket, "reader").await,
            session: session.clone(),
            truth: truth.clone(),
            gates: gates.clone(),
            attached: false,
            place: Place::default(),
            old: Vec::new(),
            rng: Rng(rng.next_u64()),
            operations: 0,
            lines: 0,
        };
        readers.spawn(reader.run(socket.clone(), over.subscribe()));
    }
    let (mut place, mut finished, mut good) = (Place::default(), 0, true);
    while finished < TURNS {
        let event = match stayed.line().await {
            Line::Event(event) => event,
            Line::Answer(_, answer) => {
                answer.expect("the prompt is accepted");
                continue;
            }
        };
        finished += usize::from(event.str("kind") == "turn_finished");
        // What comes after something wrong cannot be judged.
        if good && let Err(what) = place.take(&event, &truth) {
            wrong.send(format!("{session}: one that stayed: {what}")).expect("somebody listens");
            good = false;
        }
    }
    over.send_replace(true);
    gates.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
    let (mut operations, mut lines) = (0, 0);
    while let Some(reader) = readers.join_next().await {
        let (done, read, what) = reader.expect("a reader goes on to the end");
        operations += done;
        lines += read;
        what.into_iter().for_each(|what| wrong.send(format!("{session}: {what}")).expect("somebody listens"));
    }
    let truth = std::mem::take(&mut *truth.lock().unwrap_or_else(PoisonError::into_inner));
    stored(&daemon.dirs.database(), &session, &truth)
        .into_iter()
        .for_each(|what| wrong.send(format!("{session}: {what}")).expect("somebody listens"));
    stayed.call("session/remove", json!({ "session": session, "force": true })).await;
    (operations, lines)
}

/// Where what was read differs from what is stored.
fn stored(database: &Path, session: &str, truth: &Truth) -> Vec<String> {
    let rows = read(database).expect("a database").0.remove(session).unwrap_or_default();
    let mut wrong = Vec::new();
    if !rows.iter().map(|row| (row.seq, &row.raw)).eq(truth.events.iter().map(|(seq, raw)| (*seq, raw))) {
        wrong.push(format!("{} events are stored, {} were read, or they differ", rows.len(), truth.events.len()));
    }
    for row in rows.iter().filter(|row| row.kind == "message" && row.str("role") == "assistant") {
        for (n, block) in (0..).zip(row.event["content"].as_array().into_iter().flatten()) {
            let text = Some(streamed(block).1).filter(|text| !text.is_empty());
            let read = truth.streams.get(&(row.str("message").to_owned(), n)).and_then(Stream::whole);
            if read != text.as_deref() {
                wrong.push(format!("block {n} of {} was read as {read:?}, stored is {text:?}", row.str("message")));
            }
        }
    }
    wrong
}

/// One that comes and goes.
struct Reader {
    connection: Connection,
    session: String,
    truth: Arc<Mutex<Truth>>,
    gates: Gates,
    attached: bool,
    /// Where it reads on.
    place: Place,
    /// Where it was before.
    old: Vec<Place>,
    rng: Rng,
    operations: u64,
    lines: u64,
}

impl Reader {
    async fn run(mut self, socket: std::path::PathBuf, over: watch::Receiver<bool>) -> (u64, u64, Option<String>) {
        let result = self.wander(&socket, &over).await;
        // Nobody waits for the others for ever when one has given up.
        while result.is_err() && !*over.borrow() {
            self.open_gate();
            tokio::time::sleep(SOON).await;
        }
        (self.operations, self.lines, result.err())
    }

    async fn wander(&mut self, socket: &Path, over: &watch::Receiver<bool>) -> Result<(), String> {
        while self.operations < OPERATIONS || !*over.borrow() {
            // Mostly on from where it was; now and then a part once more, or everything.
            let again = match self.rng.below(24) {
                0 => Some(Place::default()),
                1..4 if !self.old.is_empty() => Some(self.old[self.rng.below(self.old.len())].clone()),
                _ => None,
            };
            let mut place = again.clone().unwrap_or_else(|| self.place.clone());
            self.attach(&mut place).await?;
            let many = self.rng.below(40);
            self.read(&mut place, many).await?;
            match self.rng.below(12) {
                0 => {
                    self.connection = Connection::connect(socket, "reader").await;
                    self.attached = false;
                    self.operations += 1;
                }
                // Attached again while it is attached.
                1..3 => {}
                _ => self.detach(&mut place).await?,
            }
            if self.old.len() < REMEMBERED {
                self.old.push(place.clone());
            } else {
                let forgotten = self.rng.below(REMEMBERED);
                self.old[forgotten] = place.clone();
            }
            if again.is_none() {
                self.place = place;
            }
            if self.rng.below(BETWEEN) == 0 {
                self.open_gate();
            }
        }
        let mut place = self.place.clone();
        self.attach(&mut place).await?;
        while place.finished < TURNS {
            let line = self.connection.line().await;
            self.take(line, &mut place)?;
        }
        Ok(())
    }

    /// Lets the model go on.
    fn open_gate(&self) {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        let next = gates.get_mut(&self.session).and_then(VecDeque::pop_front);
        next.into_iter().for_each(|gate| gate.open());
    }

    async fn attach(&mut self, place: &mut Place) -> Result<(), String> {
        let mut params = json!({ "session": self.session });
        if let Some(cursor) = &place.cursor {
            params["after"] = json!(cursor);
        }
        let id = self.connection.send("session/attach", params).await;
        // What still comes goes on from where it was attached before, and is not looked at.
        loop {
            match self.connection.line().await {
                Line::Answer(answered, answer) if answered == id => {
                    answer.map_err(|error| format!("an attach after {:?} is refused: {error}", place.cursor))?;
                    break;
                }
                Line::Event(event) if !self.attached => return Err(format!("not attached, and comes {}", event.raw)),
                _ => {}
            }
        }
        self.attached = true;
        self.operations += 1;
        Ok(())
    }

    async fn detach(&mut self, place: &mut Place) -> Result<(), String> {
        let id = self.connection.send("session/detach", json!({ "session": self.session })).await;
        loop {
            match self.connection.line().await {
                Line::Answer(answered, answer) if answered == id => {
                    answer.map_err(|error| format!("a detach is refused: {error}"))?;
                    break;
                }
                line => self.take(line, place)?,
            }
        }
        self.attached = false;
        self.operations += 1;
        Ok(())
    }

    /// Reads up to `many` lines, as far as they come soon.
    async fn read(&mut self, place: &mut Place, many: usize) -> Result<(), String> {
        for _ in 0..many {
            let Some(line) = self.connection.line_within(SOON).await else { break };
            self.take(line, place)?;
        }
        Ok(())
    }

    fn take(&mut self, line: Line, place: &mut Place) -> Result<(), String> {
        self.lines += 1;
        match line {
            Line::Event(event) => place.take(&event, &self.truth),
            Line::Answer(id, _) => Err(format!("an answer to {id}, which was not asked")),
        }
    }
}
