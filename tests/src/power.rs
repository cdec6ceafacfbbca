//! Power cuts: what was acknowledged as durable survives one, wherever it comes.
//!
//! The real daemon works for a while with a shim between it and the disk (`power/shim.c`), which writes down every write and
//! every sync; with each acknowledgement that a client gets, the length of that journal is noted. From the journal [`disk`]
//! makes what a disk may hold at any moment; the ordinary daemon is started on that, and must serve everything that had been
//! acknowledged by then.
//! Deliberately absent: what a file system does beyond POSIX. A sync is trusted, everything else is left to chance.

mod disk;
mod recorder;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::DirBuilderExt as _;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::Context as _;
use rusqlite::{Connection, OpenFlags};
use serde_json::json;

use crate::Rng;
use crate::check::{Stored, Trace, check, read};
use crate::harness::{Daemon, Setup, programs};
use crate::model::{ModelServer, Reply};
use crate::report::Report;
use disk::{Disk, Image, Journal};

/// A run that records a journal, and the cuts that are tried on it.
#[derive(Clone, Copy, Debug)]
pub struct Power {
    /// How many cuts.
    pub cuts: u64,
    /// What chooses them.
    pub seed: u64,
    /// Planted: syncs do nothing.
    pub without_syncs: bool,
}

/// Something that a client was told is durable.
#[derive(Clone, Debug)]
struct Acknowledged {
    /// How long the journal was when the client knew.
    at: usize,
    session: String,
    what: Told,
}

/// How it was told.
#[derive(Clone, Debug)]
enum Told {
    /// By the event itself.
    Event { seq: u64, raw: String },
    /// By the answer to `session/create` or `session/prompt`: there is an event of this number and kind.
    Written { seq: u64, kind: &'static str },
    /// By the answer to `permission/answer`.
    Won { permission: String, decision: String },
}

/// What the run with the shim left.
struct Recording {
    journal: Journal,
    acknowledged: Vec<Acknowledged>,
    /// Each line of the side-effect file: what happened, and how long the journal was then.
    effects: Vec<(String, usize)>,
}

/// Cuts the power `cuts` times.
pub fn power(cuts: u64, seed: u64) -> Report {
    Power { cuts, seed, without_syncs: false }.run()
}

impl Power {
    /// Records a run, and cuts the power.
    pub fn run(self) -> Report {
        // A thread of its own: whoever calls may be in a runtime already.
        let run = move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            runtime.expect("a runtime").block_on(self.record_and_cut())
        };
        std::thread::spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    async fn record_and_cut(self) -> Report {
        programs();
        let began = Instant::now();
        let what = if self.without_syncs { "power cuts of a disk that lies" } else { "power cuts" };
        let mut report = Report::new(what, self.seed);
        let model = ModelServer::start();
        let daemon = Daemon::prepare(&model, Setup { log: "info", ..Setup::default() });
        let data = daemon.dirs.database().parent().expect("a directory").to_path_buf();
        let recording = self.record(&daemon, &model, &data).await;
        // The turns that are taken up again differ from what was said in the run.
        model.expect_rewrites();
        model.otherwise(|_| Reply::text("so be it"));
        let (mut lost, mut checked) = (0, 0);
        let mut rng = Rng(self.seed);
        let mut disk = Disk::new(&data.display().to_string());
        let mut records = recording.journal.records.iter();
        let mut at = 0;
        for upto in self.places(&recording, &mut rng) {
            for record in records.by_ref().take(upto - at) {
                disk.apply(record, &recording.journal.bytes);
                at += 1;
            }
            let end = at.checked_sub(1).map_or(0, |last| recording.journal.records[last].end);
            let (image, gone) = disk.after_cut(&recording.journal.bytes, &mut rng);
            lost += gone;
            put(&data, &image, &mut rng);
            let known: Vec<&Acknowledged> = recording.acknowledged.iter().filter(|ack| ack.at <= end).collect();
            checked += known.len();
            let effects: Vec<&str> =
                recording.effects.iter().filter(|(_, at)| *at <= end).map(|(name, _)| name.as_str()).collect();
            for what in after(&daemon, &known, &effects).await {
                report.violation(format!("cut {} after record {at}: {what}", report.count));
            }
            report.count += 1;
        }
        model.forgive();
        report.detail = format!(
            "{} records, {} acknowledgements checked, {lost} changes lost or torn",
            recording.journal.records.len(),
            checked
        );
        report.finish(began)
    }

    /// Runs the workload with the shim.
    async fn record(self, daemon: &Daemon, model: &ModelServer, data: &Path) -> Recording {
        let shim = build_shim(daemon.dirs.root());
        let journal = daemon.dirs.root().join("journal");
        let text = |path: &Path| path.display().to_string();
        let mut env = vec![
            ("LD_PRELOAD".to_owned(), text(&shim)),
            ("LINGER_POWER_DIR".to_owned(), text(data)),
            ("LINGER_POWER_JOURNAL".to_owned(), text(&journal)),
        ];
        if self.without_syncs {
            env.push(("LINGER_POWER_IGNORE".to_owned(), "sync".to_owned()));
        }
        let acknowledged = workload::run(daemon, model, &env, &journal).await;
        let journal = Journal::parse(std::fs::read(&journal).expect("the shim keeps a journal"));
        let mut disk = Disk::new(&text(data));
        journal.records.iter().for_each(|record| disk.apply(record, &journal.bytes));
        assert_eq!(
            outline(&disk.live(&journal.bytes)),
            outline(&on_disk(data)),
            "the shim has not seen all that the daemon did to its files"
        );
        Recording { journal, acknowledged, effects: workload::effects(&daemon.side_effects()) }
    }

    /// After how many records to cut, in order: at and around each sync while they last, and anywhere.
    fn places(self, recording: &Recording, rng: &mut Rng) -> Vec<usize> {
        let records = &recording.journal.records;
        let syncs: Vec<usize> = (0..records.len()).filter(|n| records[*n].op == disk::Op::Sync).collect();
        let anywhere = |rng: &mut Rng| rng.below(records.len() + 1);
        let place = |n: u64| match n % 2 {
            0 if !syncs.is_empty() => (syncs[rng.below(syncs.len())] + rng.below(2)).min(records.len()),
            _ => anywhere(rng),
        };
        let mut places: Vec<usize> = (0..self.cuts).map(place).collect();
        places.sort_unstable();
        places
    }
}

/// Starts the daemon on the disk as it is, and says what does not hold.
async fn after(daemon: &Daemon, known: &[&Acknowledged], effects: &[&str]) -> Vec<String> {
    let lines: String = effects.iter().map(|name| format!("{name} 0\n")).collect();
    std::fs::write(daemon.side_effects(), lines).expect("the side-effect file");
    if let Err(panic) = unwound(daemon.launch()).await {
        return vec![format!("the daemon does not start: {panic}")];
    }
    let mut wrong = Vec::new();
    // Before the log is: a call that had not started may do so now, and be on disk first.
    let effects_then = daemon.dirs.root().join("effects-then");
    std::fs::copy(daemon.side_effects(), &effects_then).expect("the side-effect file");
    match look(daemon).await {
        Ok((stored, integrity, waiting)) => {
            if integrity != "ok" {
                wrong.push(format!("the database is damaged: {integrity}"));
            }
            wrong.extend(missing(&stored, known));
            wrong.extend(unrecorded(&stored, effects));
            wrong.extend(forgotten(&stored, &waiting));
            let trace = Trace { stored, side_effects: Some(effects_then), ..Trace::default() };
            wrong.extend(check(&trace).iter().map(ToString::to_string));
        }
        Err(error) => wrong.push(format!("the database cannot be read: {error}")),
    }
    daemon.kill_family();
    // A turn that was taken up again may not repeat what it had done.
    let mut names = BTreeSet::new();
    for (name, _) in workload::effects(&daemon.side_effects()) {
        if !names.insert(name.clone()) {
            wrong.push(format!("I7: the side effect '{name}' happened again"));
        }
    }
    wrong
}

/// What the daemon that was just started has: its log, whether its database is sound, and the permissions it says are waiting.
async fn look(daemon: &Daemon) -> anyhow::Result<(Stored, String, BTreeSet<String>)> {
    let client = daemon.client().await;
    let path = daemon.dirs.database();
    // Before who waits is: a turn that goes on may ask meanwhile, and nobody answers.
    let stored = read(&path)?;
    let waiting = client.request("permission/list", json!({})).await.context("the daemon hangs up")??;
    let waiting = waiting.as_array().into_iter().flatten();
    let waiting = waiting.filter_map(|row| row["permission"].as_str().map(str::to_owned)).collect();
    let connection = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let integrity = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    Ok((stored, integrity, waiting))
}

/// What was acknowledged and is not there, or is there otherwise.
fn missing(stored: &Stored, known: &[&Acknowledged]) -> Vec<String> {
    let mut wrong = Vec::new();
    for Acknowledged { session, what, .. } in known {
        let rows = stored.0.get(session).map(Vec::as_slice).unwrap_or_default();
        let there = match what {
            Told::Event { seq, raw } => rows.iter().any(|row| row.seq == *seq && row.raw == *raw),
            Told::Written { seq, kind } => rows.iter().any(|row| row.seq == *seq && row.kind == *kind),
            Told::Won { permission, decision } => rows.iter().any(|row| {
                row.kind == "permission_resolved"
                    && row.str("permission") == permission
                    && row.str("decision") == decision
            }),
        };
        if !there {
            wrong.push(format!("I1: {session}: of {} events none is {what:?}, which was acknowledged", rows.len()));
        }
    }
    wrong
}

/// Side effects whose start is not on disk.
fn unrecorded(stored: &Stored, effects: &[&str]) -> Vec<String> {
    let started: Vec<&str> =
        stored.0.values().flatten().filter(|row| row.kind == "tool_started").map(|row| row.str("action")).collect();
    let known = |name: &str| started.iter().any(|action| action.contains(&format!("echo {name} ")));
    let unknown = effects.iter().filter(|name| !known(name));
    unknown.map(|name| format!("I7: '{name}' happened, and its start is not on disk")).collect()
}

/// Permissions without a decision that the daemon does not say are waiting.
fn forgotten(stored: &Stored, waiting: &BTreeSet<String>) -> Vec<String> {
    let of = |kind: &'static str| stored.0.values().flatten().filter(move |row| row.kind == kind);
    let resolved: BTreeSet<&str> = of("permission_resolved").map(|row| row.str("permission")).collect();
    let asked = of("permission_requested").map(|row| row.str("permission"));
    let open = asked.filter(|permission| !resolved.contains(permission) && !waiting.contains(*permission));
    open.map(|permission| format!("I9: {permission} has no decision and does not wait")).collect()
}

/// Runs `future`; gives the first line of what it says when it panics.
async fn unwound(future: impl Future<Output = ()>) -> Result<(), String> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        match polled {
            Ok(poll) => poll.map(Ok),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().and_then(|text| text.lines().next());
                std::task::Poll::Ready(Err(text.unwrap_or("it panics").to_owned()))
            }
        }
    })
    .await
}

#[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
fn build_shim(dir: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/power/shim.c");
    let shim = dir.join("shim.so");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-shared", "-fPIC", "-o"]).args([&shim, &source]).arg("-ldl");
    assert!(cc.status().expect("a C compiler").success(), "the shim does not compile");
    shim
}

/// Makes the directory hold the image and nothing else. The index of the WAL is never synced: there may be none, or anything.
fn put(data: &Path, image: &Image, rng: &mut Rng) {
    std::fs::remove_dir_all(data).expect("the data directory is the test's own");
    std::fs::DirBuilder::new().mode(0o700).create(data).expect("the data directory");
    for (path, content) in image.iter().filter(|(path, _)| !path.ends_with("-shm")) {
        match content {
            Some(content) => std::fs::write(path, content).expect("a file of the image"),
            None => std::fs::create_dir_all(path).expect("a directory of the image"),
        }
    }
    if image.keys().any(|path| path.ends_with("-wal")) && rng.below(4) == 0 {
        let noise: Vec<u8> = (0..32 << 10).map(|_| rng.next_u64() as u8).collect();
        std::fs::write(data.join("linger.db-shm"), noise).expect("a file of the image");
    }
}

/// The files below a directory.
fn on_disk(root: &Path) -> Image {
    let mut image = Image::from([(root.display().to_string(), None)]);
    let mut left = vec![root.to_path_buf()];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let content = path.is_file().then(|| std::fs::read(&path).unwrap_or_default());
            if content.is_none() {
                left.push(path.clone());
            }
            image.insert(path.display().to_string(), content);
        }
    }
    image
}

/// Size and a checksum of each file but the WAL's index, which is a map.
fn outline(image: &Image) -> BTreeMap<&str, Option<(usize, u64)>> {
    let sum = |content: &Vec<u8>| {
        let sum = content.iter().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
        (content.len(), sum)
    };
    let files = image.iter().filter(|(path, _)| !path.ends_with("-shm"));
    files.map(|(path, content)| (path.as_str(), content.as_ref().map(sum))).collect()
}
