//! Faults on purpose: crash points, store operations that fail, planted bugs. For tests of tests; without the feature `faults`
//! every function here is empty, and nothing in the environment has any effect.
//!
//! - `LINGER_CRASH=POINT:N` and `LINGER_CRASH_ONCE=FILE`: the process that passes POINT for the Nth time is killed, unless FILE
//!   exists, which it makes first: one crash over all lives.
//! - `LINGER_POINTS=FILE`: each process adds the names of the points that it passes, once each.
//! - `LINGER_STORE_FAULT=N:KIND:K` and `LINGER_STORE_ONCE=FILE`: the Nth store operation of the process and the K−1 after it fail
//!   with KIND (`full`, `ioerr`, `busy`); FILE is made by the first, and where it exists nothing fails.
//! - `LINGER_BUG=NAME`: the bug NAME of [`BUGS`] is there.
//! - `LINGER_CLOCK=DAYS`: the clock is ahead by so many days, or behind.
//! - `LINGER_ASK=DIR`: what lies there as `daemon.json` is asked by the daemon when it is ready, and what lies there as
//!   `session.json` by the next session whose turn comes to a boundary, once each: `text`, `options` and `blocks` of a choice.
//!
//! What cannot be understood ends the process at once: a fault that never comes must not look like one that was survived.

/// The crash points. Each commit has one before and one after it for each kind of event, beside those named here.
pub const POINTS: [&str; 45] = [
    "actor.answered",
    "actor.attach",
    "actor.cancel",
    "actor.create",
    "actor.fork",
    "actor.load",
    "actor.paused",
    "actor.permitted",
    "actor.prompt",
    "actor.recovery.planned",
    "actor.recovery.written",
    "actor.rewind",
    "actor.stopped",
    "actor.turn.spawned",
    "actor.unload",
    "call.before_start",
    "call.finished",
    "call.permitted",
    "call.started",
    "child.before_spawn",
    "child.ended",
    "child.spawned",
    "compaction.answered",
    "compaction.started",
    "daemon.ending",
    "daemon.ready",
    "daemon.unfinished",
    "request.before_send",
    "request.first_piece",
    "response.done",
    "rpc.answer",
    "store.after_answer",
    "store.after_publish",
    "store.after_remove",
    "store.before_answer",
    "store.before_remove",
    "store.close",
    "store.closed",
    "store.lengthened",
    "subscriber.before_send",
    "subscriber.sent",
    "turn.boundary",
    "turn.context",
    "upkeep.before_step",
    "upkeep.stepped",
];

/// The kinds of commit that have crash points of their own: `commit.before.KIND` and `commit.after.KIND`.
pub const COMMITS: [&str; 19] = [
    "compacted",
    "compaction_failed",
    "compaction_started",
    "forked",
    "message",
    "message_superseded",
    "notice",
    "permission_requested",
    "permission_resolved",
    "pieces",
    "prompt_accepted",
    "rewound",
    "session_changed",
    "session_created",
    "tool_finished",
    "tool_started",
    "trimmed",
    "turn_finished",
    "turn_started",
];

/// Points of the keeper, passed only when a daemon has died.
pub const KEEPER_POINTS: [&str; 2] = ["keeper.daemon_died", "keeper.family_ended"];

/// The bugs that can be planted, one for each invariant that the daemon keeps; that of I12 is in the client.
pub const BUGS: [&str; 13] = ["I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I13", "I14"];

/// A choice to ask: its text, its options, and what it holds up.
pub type Choice = (String, Vec<linger_protocol::question::QuestionOption>, linger_protocol::question::Blocks);

/// The names of all crash points, in the order of the lists.
pub fn points() -> Vec<String> {
    let commits = COMMITS.iter().flat_map(|kind| ["before", "after"].map(|when| format!("commit.{when}.{kind}")));
    let named = POINTS.iter().chain(&KEEPER_POINTS).map(|name| (*name).to_owned());
    named.chain(commits).collect()
}

#[cfg(not(feature = "faults"))]
mod none {
    /// A crash point.
    #[inline(always)]
    pub fn point(_name: &'static str) {}

    /// The crash points of a commit of these kinds.
    #[inline(always)]
    pub fn commit<'a>(_when: &'static str, _kinds: impl Iterator<Item = &'a str>) {}

    /// A store operation.
    #[inline(always)]
    pub fn store() -> rusqlite::Result<()> {
        Ok(())
    }

    /// Whether a bug is there.
    #[inline(always)]
    pub fn bug(_name: &str) -> bool {
        false
    }

    /// The days by which the clock is ahead.
    #[inline(always)]
    pub fn days_ahead() -> i64 {
        0
    }

    /// A choice to ask.
    #[inline(always)]
    pub fn choice(_whose: &str) -> Option<super::Choice> {
        None
    }
}

#[cfg(feature = "faults")]
mod real {
    use std::collections::HashMap;
    use std::fs::OpenOptions;
    use std::io::Write as _;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{LazyLock, Mutex, PoisonError};

    use linger_protocol::question::{Blocks, QuestionOption};
    use rustix::process::{Signal, getpid, kill_process};

    use super::{BUGS, COMMITS, KEEPER_POINTS, POINTS, points};

    /// The faults that the environment asks for.
    struct FaultSpec {
        crash: Option<(String, u64)>,
        crash_once: Option<PathBuf>,
        points: Option<PathBuf>,
        store: Option<(u64, i32, u64)>,
        store_once: Option<PathBuf>,
        bug: String,
        questions: Option<PathBuf>,
        days_ahead: i64,
    }

    static ASKED: LazyLock<FaultSpec> = LazyLock::new(|| {
        let var = |name: &str| std::env::var(name).ok();
        let crash = var("LINGER_CRASH").map(|text| crash(&text).unwrap_or_else(|| not_understood(&text)));
        let store = var("LINGER_STORE_FAULT").map(|text| store_fault(&text).unwrap_or_else(|| not_understood(&text)));
        let bug = var("LINGER_BUG").unwrap_or_default();
        if !bug.is_empty() && bug != "I12" && !BUGS.contains(&bug.as_str()) {
            not_understood(&bug)
        }
        FaultSpec {
            crash,
            crash_once: var("LINGER_CRASH_ONCE").map(PathBuf::from),
            points: var("LINGER_POINTS").map(PathBuf::from),
            store,
            store_once: var("LINGER_STORE_ONCE").map(PathBuf::from),
            bug,
            questions: var("LINGER_ASK").map(PathBuf::from),
            days_ahead: var("LINGER_CLOCK").map_or(0, |text| text.parse().unwrap_or_else(|_| not_understood(&text))),
        }
    });

    fn crash(text: &str) -> Option<(String, u64)> {
        let (name, n) = text.rsplit_once(':')?;
        let n = n.parse().ok().filter(|n| *n > 0)?;
        points().contains(&name.to_owned()).then(|| (name.to_owned(), n))
    }

    fn store_fault(text: &str) -> Option<(u64, i32, u64)> {
        let [first, kind, times] = text.split(':').collect::<Vec<_>>().try_into().ok()?;
        let code = match kind {
            "full" => rusqlite::ffi::SQLITE_FULL,
            "busy" => rusqlite::ffi::SQLITE_BUSY,
            "ioerr" => rusqlite::ffi::SQLITE_IOERR_WRITE,
            _ => return None,
        };
        Some((first.parse().ok().filter(|first| *first > 0)?, code, times.parse().ok()?))
    }

    fn not_understood(text: &str) -> ! {
        eprintln!("error: no such fault: {text}");
        std::process::exit(2)
    }

    /// How often each point was passed.
    static PASSED: Mutex<Option<HashMap<String, u64>>> = Mutex::new(None);

    /// Store operations so far.
    static OPERATIONS: AtomicU64 = AtomicU64::new(0);

    /// Whether the fault of the store has begun in this process.
    static FAULTY: AtomicU64 = AtomicU64::new(0);

    /// A crash point.
    pub fn point(name: &'static str) {
        debug_assert!(POINTS.contains(&name) || KEEPER_POINTS.contains(&name), "{name} is not in the list");
        pass(name.to_owned());
    }

    /// The crash points of a commit of these kinds.
    pub fn commit<'a>(when: &'static str, kinds: impl Iterator<Item = &'a str>) {
        kinds.filter(|kind| COMMITS.contains(kind)).for_each(|kind| pass(format!("commit.{when}.{kind}")));
    }

    fn pass(name: String) {
        let mut passed = PASSED.lock().unwrap_or_else(PoisonError::into_inner);
        let times = passed.get_or_insert_default().entry(name.clone()).or_default();
        *times += 1;
        if *times == 1
            && let Some(file) = &ASKED.points
        {
            append(file, &name);
        }
        if ASKED.crash.as_ref().is_some_and(|(at, n)| *at == name && *n == *times) && claim(ASKED.crash_once.as_ref()) {
            let _sent = kill_process(getpid(), Signal::KILL);
            // It comes before this process does anything else.
            std::thread::park();
        }
    }

    /// Makes the file; false if it was there.
    fn claim(file: Option<&PathBuf>) -> bool {
        file.is_none_or(|file| OpenOptions::new().write(true).create_new(true).open(file).is_ok())
    }

    fn append(file: &PathBuf, line: &str) {
        let file = OpenOptions::new().append(true).create(true).open(file);
        let _unwritten = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    }

    /// A store operation.
    pub fn store() -> rusqlite::Result<()> {
        let Some((first, code, times)) = ASKED.store else { return Ok(()) };
        let n = OPERATIONS.fetch_add(1, Ordering::Relaxed) + 1;
        if n < first || n >= first + times {
            return Ok(());
        }
        if FAULTY.load(Ordering::Relaxed) == 0 {
            if !claim(ASKED.store_once.as_ref()) {
                return Ok(());
            }
            FAULTY.store(1, Ordering::Relaxed);
        }
        Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), Some("a fault on purpose".to_owned())))
    }

    /// Whether a bug is there.
    pub fn bug(name: &str) -> bool {
        ASKED.bug == name
    }

    /// A choice, as a test writes it.
    #[derive(serde::Deserialize)]
    struct Fields {
        text: String,
        options: Vec<QuestionOption>,
        blocks: Blocks,
    }

    /// The days by which the clock is ahead.
    pub fn days_ahead() -> i64 {
        ASKED.days_ahead
    }

    /// The choice that lies ready for `whose` log; it is taken, so that it is asked once over all lives.
    pub fn choice(whose: &str) -> Option<super::Choice> {
        let file = ASKED.questions.as_ref()?.join(format!("{whose}.json"));
        let taken = file.with_extension("asked");
        std::fs::rename(&file, &taken).ok()?;
        let text = std::fs::read_to_string(&taken).unwrap_or_default();
        let Fields { text, options, blocks } = serde_json::from_str(&text).unwrap_or_else(|_| not_understood(&text));
        Some((text, options, blocks))
    }
}

#[cfg(not(feature = "faults"))]
pub use none::*;
#[cfg(feature = "faults")]
pub use real::*;
