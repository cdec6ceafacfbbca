//! Commands in the background: they outlive the call and the turn that start them, and end with their session.
//!
//! [`Jobs`] belongs to the session's actor, which gives each its handle and records its start and its end ([`Report`]). A task
//! owns each process; dropping the last clone of the [`Jobs`] ends them all. Deliberately absent: the log.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use linger_protocol::event::Exit;
use linger_protocol::id::{BackgroundId, CallId};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::frames::Frames;
use super::invalid::Invalid;
use super::left::left_behind;
use super::output::Output;
use super::text::{self, Decoder};
use crate::diagnostics::secret::SecretVariables;
use crate::process::server::Spawn;
use crate::process::{Input, Process, READ_SIZE, Stderr};
use crate::store::blob::{Blobs, Held};
use crate::sys::task;

/// The most that run at once in a session: a server, its database and some watchers.
pub(crate) const MAX_RUNNING: usize = 8;

/// The most that have ended and whose output can still be read; older ones are forgotten.
const MAX_ENDED: usize = 8;

/// How long one may run: a day, so that none that is forgotten runs for ever.
const MAX_TIME: Duration = Duration::from_secs(86400);

/// How much output is kept that was not asked for, in bytes, from its beginning and its end each: as much as a call shows.
const UNREAD: usize = 12 << 10;

/// How much unread output comes with the news of an end, in bytes: the last lines say what went wrong.
const LAST_WORDS: usize = 1 << 10;

/// How much of a command is recorded and listed, in bytes; its call has all of it.
const MAX_COMMAND: usize = 1 << 10;

/// How to keep a process that a command in the background leaves behind.
const STAY: &str = "; the command itself has to stay: end it with `wait`, or without `&`";

/// How long all may take to end when the daemon ends: SIGTERM, its grace, SIGKILL.
const END: Duration = Duration::from_secs(2);

/// The commands of one session; clones are one.
#[derive(Clone)]
pub struct Jobs(Arc<JobTable>);

struct JobTable {
    jobs: Mutex<Vec<Job>>,
    reports: mpsc::UnboundedSender<Box<Report>>,
}

/// A message to the actor.
pub enum Report {
    /// A call wants to start a command.
    Start(Start),
    /// A command has ended; [`Jobs::ended`] says how.
    Ended(BackgroundId),
}

/// A command that is to be started.
pub struct Start {
    /// The call that starts it.
    pub call: CallId,
    /// The whole command; an event has its beginning.
    pub command: String,
    secrets: SecretVariables,
    spawn: Spawn,
    blobs: Blobs,
    /// Gets the handle once the command runs.
    pub reply: oneshot::Sender<Result<BackgroundId, Invalid>>,
}

impl Start {
    /// The part of the command that is recorded.
    pub fn shown(&self) -> String {
        text::head(&self.command, MAX_COMMAND).to_owned()
    }
}

/// How a command ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// How its process ended by itself.
    pub exit: Option<Exit>,
    /// Why it was ended, or did not start.
    pub reason: Option<String>,
    /// The end of its output that was not read.
    pub last_words: String,
    /// The whole output, if it was long.
    pub whole: Option<Held>,
    /// How long it ran, in milliseconds.
    pub ms: u64,
}

struct Job {
    id: BackgroundId,
    output: Arc<Mutex<Unread>>,
    /// Says why it is to end.
    kill: watch::Sender<Option<String>>,
    ended: watch::Receiver<Option<Ended>>,
    _task: AbortOnDropHandle<()>,
}

impl Job {
    fn runs(&self) -> bool {
        self.ended.borrow().is_none()
    }
}

/// Output that was not asked for yet.
#[derive(Default)]
struct Unread {
    decoder: Decoder,
    frames: Frames,
    head: String,
    tail: String,
    /// Bytes left out between them.
    left_out: u64,
}

impl Unread {
    fn push(&mut self, bytes: &[u8]) {
        let text = self.frames.feed(&self.decoder.feed(bytes));
        self.add(&text);
    }

    fn add(&mut self, text: &str) {
        let fits = text::floor(text, if self.tail.is_empty() { UNREAD.saturating_sub(self.head.len()) } else { 0 });
        self.head.push_str(text.get(..fits).unwrap_or_default());
        self.tail.push_str(text.get(fits..).unwrap_or_default());
        if self.tail.len() > 2 * UNREAD {
            let cut = text::floor(&self.tail, self.tail.len() - UNREAD);
            self.left_out += cut as u64;
            self.tail.drain(..cut);
        }
    }

    /// Takes a line of linger's own, once the command has ended.
    fn say(&mut self, line: &str) {
        let rest = self.decoder.finish();
        let rest = self.frames.feed(&rest) + &self.frames.finish();
        let end = if line.is_empty() || rest.is_empty() || rest.ends_with('\n') { "" } else { "\n" };
        self.add(&format!("{rest}{end}{line}"));
    }

    /// Takes what there is; of a line that is being written over the frame that it shows now, which may come again.
    fn take(&mut self) -> String {
        let begun = self.frames.let_out();
        self.add(&begun);
        let (head, tail) = (std::mem::take(&mut self.head), std::mem::take(&mut self.tail));
        let kept = text::tail(&tail, UNREAD);
        let left_out = std::mem::take(&mut self.left_out) + (tail.len() - kept.len()) as u64;
        let frame = self.frames.shown();
        match left_out {
            0 => head + kept + frame,
            _ => format!("{head}\n[… {left_out} bytes left out]\n{kept}{frame}"),
        }
    }

    /// The end of what there is when the command has ended.
    fn last_words(&mut self) -> String {
        self.say("");
        let both = format!("{}{}", self.head, self.tail);
        text::tail(&both, LAST_WORDS).to_owned()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Jobs {
    /// None yet, and where they report.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Box<Report>>) {
        let (reports, receiver) = mpsc::unbounded_channel();
        (Self(Arc::new(JobTable { jobs: Mutex::default(), reports })), receiver)
    }

    /// Starts a command; gives its handle once it runs.
    pub async fn start(
        &self,
        call: CallId,
        command: String,
        secrets: SecretVariables,
        spawn: Spawn,
        blobs: Blobs,
    ) -> Result<BackgroundId, Invalid> {
        let (reply, started) = oneshot::channel();
        let start = Start { call, command, secrets, spawn, blobs, reply };
        let ends = || Invalid("the session ends".to_owned());
        self.0.reports.send(Box::new(Report::Start(start))).map_err(|_| ends())?;
        started.await.unwrap_or_else(|_| Err(ends()))
    }

    /// Runs a command that the actor has recorded, once `recorded` says that it is on disk.
    pub fn begin(&self, id: BackgroundId, start: Start, recorded: impl Future<Output = bool> + Send + 'static) {
        let (kill, killed) = watch::channel(None);
        let (end, ended) = watch::channel(None);
        let output = Arc::<Mutex<Unread>>::default();
        let (name, shown, reports) = (id.clone(), output.clone(), self.0.reports.clone());
        let task = task::spawn(async move {
            let began = Instant::now();
            let (exit, reason, whole) = if recorded.await {
                run(name.clone(), start, &shown, killed).await
            } else {
                (None, Some("its start could not be recorded".to_owned()), None)
            };
            let (last_words, ms) = (lock(&shown).last_words(), began.elapsed().as_millis() as u64);
            end.send_replace(Some(Ended { exit, reason, last_words, whole, ms }));
            // Without an actor the session has ended.
            let _gone = reports.send(Box::new(Report::Ended(name)));
        });
        let mut jobs = lock(&self.0.jobs);
        let old = jobs.iter().filter(|job| !job.runs()).count().saturating_sub(MAX_ENDED - 1);
        let mut forgotten = 0;
        jobs.retain(|job| {
            let forget = job.id == id || (!job.runs() && forgotten < old);
            forgotten += usize::from(forget);
            !forget
        });
        jobs.push(Job { id, output, kill, ended, _task: AbortOnDropHandle::new(task) });
    }

    /// Number of commands that run.
    pub fn running(&self) -> usize {
        lock(&self.0.jobs).iter().filter(|job| job.runs()).count()
    }

    /// Whether it is there and runs.
    pub fn runs(&self, id: &BackgroundId) -> bool {
        lock(&self.0.jobs).iter().any(|job| job.id == *id && job.runs())
    }

    /// How it ended, if it did and is still known.
    pub fn ended(&self, id: &BackgroundId) -> Option<Ended> {
        lock(&self.0.jobs).iter().find(|job| job.id == *id)?.ended.borrow().clone()
    }

    /// Ends all that run, because of `why`; whether there were any.
    pub fn kill_all(&self, why: &str) -> bool {
        let jobs = lock(&self.0.jobs);
        let mut any = false;
        for job in jobs.iter().filter(|job| job.runs()) {
            job.kill.send_replace(Some(why.to_owned()));
            any = true;
        }
        any
    }

    /// Ends all that run and waits for them, for at most [`END`]; those that are left are killed when this is dropped.
    pub async fn end(&self, why: &str) {
        self.kill_all(why);
        let ends: Vec<_> = lock(&self.0.jobs).iter().map(|job| job.ended.clone()).collect();
        let all = async {
            for mut ended in ends {
                // An error means that its task is gone.
                let _gone = ended.wait_for(Option::is_some).await;
            }
        };
        if timeout(END, all).await.is_err() {
            tracing::warn!(target: "process", left = self.running(), "commands in the background are still running");
        }
    }

    /// The output since it was last asked for, and how the command ended if it has; waits for its end for at most `wait`.
    pub async fn read(&self, id: &BackgroundId, wait: Duration) -> Result<(String, Option<Ended>), Invalid> {
        let (output, mut ended) = self.find(id, |job| (job.output.clone(), job.ended.clone()))?;
        // An error means that its task is gone, and with it the session.
        drop(timeout(wait, ended.wait_for(Option::is_some)).await);
        let text = lock(&output).take();
        let ended = ended.borrow().clone();
        Ok((text, ended))
    }

    /// Ends a command and waits for its end.
    pub async fn kill(&self, id: &BackgroundId, why: &str) -> Result<(), Invalid> {
        let mut ended = self.find(id, |job| {
            job.kill.send_replace(Some(why.to_owned()));
            job.ended.clone()
        })?;
        // As above.
        let _late = timeout(END, ended.wait_for(Option::is_some)).await;
        Ok(())
    }

    fn find<T>(&self, id: &BackgroundId, get: impl FnOnce(&Job) -> T) -> Result<T, Invalid> {
        let jobs = lock(&self.0.jobs);
        if let Some(job) = jobs.iter().find(|job| job.id == *id) {
            return Ok(get(job));
        }
        let known: Vec<&str> = jobs.iter().map(|job| job.id.as_str()).collect();
        let known =
            if known.is_empty() { "there are none".to_owned() } else { format!("there are {}", known.join(", ")) };
        Err(Invalid(format!("there is no command `{}` in the background; {known}", text::brief(id.as_str()))))
    }
}

/// Runs the command to its end: how it ended by itself or why it was ended, and its whole output if that is long.
async fn run(
    id: BackgroundId,
    Start { command, secrets, spawn, blobs, reply, .. }: Start,
    unread: &Mutex<Unread>,
    mut killed: watch::Receiver<Option<String>>,
) -> (Option<Exit>, Option<String>, Option<Held>) {
    let mut process = match spawn.shell(&command, Input::Nothing, Stderr::Merged).await {
        Ok(process) => process,
        Err(error) => {
            let why = format!("the command could not be started: {error}");
            // The call may be cancelled by now; so below.
            let _gone = reply.send(Err(Invalid(why.clone())));
            return (None, Some(why), None);
        }
    };
    let _gone = reply.send(Ok(id));
    // What is streamed goes nowhere.
    let mut output = Output::to(mpsc::channel(1).0, blobs);
    let why = tokio::select! {
        () = follow(&mut process, &mut output, unread) => None,
        () = tokio::time::sleep(MAX_TIME) => Some(format!("it ran for {} h", MAX_TIME.as_secs() / 3600)),
        why = async { killed.wait_for(Option::is_some).await.ok().and_then(|why| why.clone()) } => why,
    };
    let (exit, reason) = match why {
        Some(why) => {
            process.end().await;
            (None, Some(why))
        }
        None => {
            let status = process.wait().await;
            if let Some(left) = left_behind(process.left(), &secrets, STAY) {
                let line = format!("{left}\n");
                lock(unread).say(&line);
                output.push(line.as_bytes()).await;
            }
            match status {
                Ok(status) => (Some(exit(&status)), None),
                Err(error) => (None, Some(format!("how it ended is not known: {error}"))),
            }
        }
    };
    (exit, reason, output.finish().await.whole)
}

/// Reads output until its end.
async fn follow(process: &mut Process, output: &mut Output, unread: &Mutex<Unread>) {
    let mut buffer = vec![0; READ_SIZE];
    while let Ok(read @ 1..) = process.read(&mut buffer).await {
        let bytes = buffer.get(..read).unwrap_or_default();
        lock(unread).push(bytes);
        output.push(bytes).await;
    }
}

/// How a command ended, for programs.
pub(super) fn exit(status: &std::process::ExitStatus) -> Exit {
    use std::os::unix::process::ExitStatusExt;
    Exit { code: status.code(), signal: status.signal() }
}

/// How a command ended, in words: `exit code 1`, `killed by signal 9`, or why it was ended.
pub(crate) fn describe(exit: Option<&Exit>, reason: Option<&str>) -> String {
    match (exit, reason) {
        (Some(Exit { code: Some(code), .. }), _) => format!("exit code {code}"),
        (Some(Exit { signal: Some(signal), .. }), _) => format!("killed by signal {signal}"),
        (_, Some(reason)) => reason.to_owned(),
        (_, None) => "how it ended is not known".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_output_keeps_its_ends_and_is_given_once() {
        let mut unread = Unread::default();
        unread.push(b"one\n");
        assert_eq!((unread.take().as_str(), unread.take().as_str()), ("one\n", ""));
        for n in 0..100_000 {
            unread.push(format!("{n}\n").as_bytes());
        }
        assert!(unread.head.capacity() + unread.tail.capacity() < 16 * UNREAD);
        let text = unread.take();
        assert!(text.starts_with("0\n1\n") && text.ends_with("\n99999\n") && text.contains(" bytes left out]"));
        assert!(text.len() < 2 * UNREAD + 100, "{}", text.len());
        unread.push(b"two");
        assert_eq!(unread.take(), "two");
        unread.push(b"\r10%\r20%");
        assert_eq!((unread.take().as_str(), unread.take().as_str()), ("\n20%", "20%"));
        unread.push(b"\r\x1b[1m30%\x1b[m");
        assert_eq!(unread.last_words(), "30%");
    }
}
