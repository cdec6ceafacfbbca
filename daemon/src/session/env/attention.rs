//! Notifications: which were sent about each session, how far people have read, and the programs that notify them.
//!
//! The notes are in a file of the state directory, so that a restart repeats nothing; losing it costs a repetition.
//! A program gets its text as arguments, and never a word of a model. The actor decides when to notify ([`due`] is pure).

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linger_protocol::attention::LastRead;
use linger_protocol::id::{QuestionId, SessionId};
use linger_protocol::message::StopReason;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::config::Attention as Settings;
use crate::log::cursor::Position;
use crate::process::server::Spawn;
use crate::process::{End, Input, Stderr};
use crate::sys::clock;
use crate::sys::task;
use crate::tool::text;

/// Sessions with notes; beyond that the oldest note goes.
const MAX_NOTES: usize = 2000;

/// The largest file that is read, in bytes: as many notes, each with the questions of a large step.
const MAX_FILE: u64 = 4 << 20;

/// The shortest time between two notifications about one session, in milliseconds: a step may ask many questions.
const GAP_MS: u64 = 10_000;

/// The most notifications in [`WINDOW`] about all sessions together: a batch that asks everywhere is no storm.
const MAX_IN_WINDOW: usize = 10;
const WINDOW: Duration = Duration::from_secs(60);

/// Programs that run at a time.
const MAX_RUNNING: usize = 4;

/// How long a program may take; a notification takes milliseconds.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The most output of a program; it is discarded.
const MAX_OUTPUT: usize = 64 << 10;

/// The longest title that is told, in characters: a line of a notification.
const MAX_TITLE: usize = 120;

/// The program of desktops.
const NOTIFY_SEND: &str = "notify-send";

/// The variable with the session, the one with what is told (`question`, `finished` or `stopped`), and the one with the page about it.
const SESSION: &str = "LINGER_SESSION";
const NEWS: &str = "LINGER_ATTENTION";
const URL: &str = "LINGER_URL";

/// The reason for a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// A question waits.
    Question,
    /// A turn has ended.
    Ended(StopReason),
}

impl News {
    fn name(self) -> &'static str {
        match self {
            Self::Question => "question",
            Self::Ended(StopReason::EndTurn) => "finished",
            Self::Ended(_) => "stopped",
        }
    }

    /// One line for people.
    fn summary(self) -> &'static str {
        match self {
            Self::Question => "linger: a session needs an answer",
            Self::Ended(StopReason::EndTurn) => "linger: a session has finished",
            Self::Ended(_) => "linger: a session has stopped",
        }
    }
}

/// The notifications about one session, and how far it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The last event when the last terminal of a person left or came, and when that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left: Option<(u64, u64)>,
    /// The open questions that a person knows of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub told: Vec<QuestionId>,
    /// When they were told, in Unix milliseconds.
    #[serde(default)]
    pub told_at: u64,
    /// Whether they were told a second time.
    #[serde(default)]
    pub again: bool,
}

impl Note {
    fn latest(&self) -> u64 {
        self.told_at.max(self.left.map_or(0, |(_, at)| at))
    }
}

/// When the next notification about open questions is due, in Unix milliseconds, and whether it is a repetition.
pub fn due(waiting: &[QuestionId], note: &Note, again_after_ms: Option<u64>, now: u64) -> Option<(u64, bool)> {
    if waiting.is_empty() {
        return None;
    }
    if waiting.iter().any(|question| !note.told.contains(question)) {
        // A clock that was set back holds up nothing.
        let gap = (note.told_at + GAP_MS).min(now + GAP_MS);
        return Some((now.max(gap), false));
    }
    let after = again_after_ms.filter(|_| !note.again)?;
    Some(((note.told_at + after).min(now + after), true))
}

/// The notes of all sessions, in a file, and the limits on notifications.
#[derive(Debug)]
pub struct Notifications {
    file: PathBuf,
    notes: Mutex<BTreeMap<SessionId, Note>>,
    /// Held while the file is written.
    writes: Mutex<()>,
    /// When the last notifications were.
    recent: Mutex<VecDeque<Instant>>,
    running: Semaphore,
}

impl Notifications {
    /// Reads the notes from `file`; there are none if that fails.
    pub fn open(file: PathBuf) -> Arc<Self> {
        let notes = read(&file).unwrap_or_default();
        let (writes, recent) = (Mutex::default(), Mutex::default());
        Arc::new(Self { file, notes: Mutex::new(notes), writes, recent, running: Semaphore::new(MAX_RUNNING) })
    }

    fn notes(&self) -> MutexGuard<'_, BTreeMap<SessionId, Note>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The note of a session.
    pub fn note(&self, session: &SessionId) -> Note {
        self.notes().get(session).cloned().unwrap_or_default()
    }

    /// How far a person has read a session.
    pub fn left(&self, session: &SessionId) -> Option<LastRead> {
        let (seq, at) = self.notes().get(session)?.left?;
        Some(LastRead { seq, cursor: Position::after(seq).cursor(), at })
    }

    /// A person has read the session up to `seq`.
    pub fn has_read(self: &Arc<Self>, session: &SessionId, seq: u64) {
        self.change(session, |note| note.left = Some((seq, clock::now())));
    }

    /// Changes a note, and writes all on a blocking thread.
    pub fn change(self: &Arc<Self>, session: &SessionId, change: impl FnOnce(&mut Note)) {
        let mut notes = self.notes();
        change(notes.entry(session.clone()).or_default());
        while notes.len() > MAX_NOTES {
            let oldest = notes.iter().min_by_key(|(_, note)| note.latest()).map(|(id, _)| id.clone());
            let Some(oldest) = oldest else { break };
            notes.remove(&oldest);
        }
        drop(notes);
        self.write_soon();
    }

    /// Forgets a session that was removed.
    pub fn forget(self: &Arc<Self>, session: &SessionId) {
        if self.notes().remove(session).is_some() {
            self.write_soon();
        }
    }

    fn write_soon(self: &Arc<Self>) {
        let this = self.clone();
        task::spawn_blocking(move || {
            let _one = this.writes.lock().unwrap_or_else(PoisonError::into_inner);
            let text = serde_json::to_vec(&*this.notes()).map_err(std::io::Error::from);
            if let Err(error) = text.and_then(|text| write(&this.file, &text)) {
                let path = this.file.display();
                tracing::warn!(target: "attention", %error, %path, "cannot write what people were told");
            }
        });
    }

    /// Takes a place for a notification now; otherwise the time when there is one.
    pub fn admit(&self) -> Result<(), Instant> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        recent.retain(|at| now.duration_since(*at) < WINDOW);
        match recent.front() {
            Some(first) if recent.len() >= MAX_IN_WINDOW => Err(*first + WINDOW),
            _ => {
                recent.push_back(now);
                Ok(())
            }
        }
    }

    /// Runs the programs of the settings, one after the other. Failures are only logged.
    pub async fn tell(&self, settings: &Settings, news: News, about: NotificationSubject, spawn: Spawn) {
        // It is never closed.
        let Ok(_place) = self.running.acquire().await else { return };
        let NotificationSubject { session, label, title, url } = about;
        let title: String = text::one_line(&title).chars().filter(|c| !c.is_control()).take(MAX_TITLE).collect();
        // It begins with a word of ours: no title is an option of the program.
        let body = if title.is_empty() { format!("session {label}") } else { format!("session {label}: {title}") };
        let mut env = BTreeMap::clone(&spawn.env);
        env.insert(SESSION.to_owned(), session.to_string());
        env.insert(NEWS.to_owned(), news.name().to_owned());
        env.extend(url.clone().map(|url| (URL.to_owned(), url)));
        let spawn = Spawn { env: Arc::new(env), ..spawn };
        let desktop = settings.desktop.then(|| vec![NOTIFY_SEND.to_owned(), "--app-name=linger".to_owned()]);
        let own = Some(settings.command.clone()).filter(|command| !command.is_empty());
        // Desktops make a link of it.
        let linked = [Some(body.clone()), url].into_iter().flatten().collect::<Vec<_>>().join("\n");
        for (mut command, body) in own.map(|own| (own, body)).into_iter().chain(desktop.map(|it| (it, linked))) {
            let program = command.remove(0);
            command.extend([news.summary().to_owned(), body]);
            if let Err(why) = run(&spawn, &program, &command).await {
                tracing::warn!(target: "attention", %session, program, why, "a notification failed");
            }
        }
    }
}

/// The subject of a notification: a session with its name and title, and the page where it is answered. The title is the user's
/// own first prompt.
#[derive(Clone, Debug)]
pub struct NotificationSubject {
    /// The id; the program gets it as `LINGER_SESSION`.
    pub session: SessionId,
    /// Its name, or its id.
    pub label: String,
    /// Its title; empty without one.
    pub title: String,
    /// The page about it, if others reach the gateway.
    pub url: Option<String>,
}

/// The page about news of a session: its one question, all of them, or what it has said.
pub fn page(origin: &str, session: &SessionId, news: News, questions: &[QuestionId]) -> String {
    match (news, questions) {
        (News::Question, [question]) => format!("{origin}/#question={question}"),
        (News::Question, _) => format!("{origin}/#inbox"),
        (News::Ended(_), _) => format!("{origin}/#session={session}"),
    }
}

async fn run(spawn: &Spawn, program: &str, args: &[String]) -> Result<(), String> {
    let process = spawn.program(program, args, Input::Nothing, Stderr::Apart).await;
    let process = process.map_err(|error| error.to_string())?;
    let finished = process.finish(TIMEOUT, MAX_OUTPUT).await.map_err(|error| error.to_string())?;
    match finished.end {
        End::Status(status) if status.success() => Ok(()),
        End::Status(status) => Err(format!("{status}: {}", finished.stderr.trim())),
        End::TooMuch => Err(format!("it wrote more than {MAX_OUTPUT} bytes")),
        End::TooLate => Err(format!("it took longer than {} s", TIMEOUT.as_secs())),
    }
}

fn read(file: &Path) -> Option<BTreeMap<SessionId, Note>> {
    let mut text = Vec::new();
    std::fs::File::open(file).ok()?.take(MAX_FILE).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

fn write(file: &Path, text: &[u8]) -> std::io::Result<()> {
    let dir = file.parent().unwrap_or(Path::new("."));
    let mut new = tempfile::NamedTempFile::new_in(dir)?;
    new.write_all(text)?;
    new.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_told_once_and_once_more_after_a_while() {
        let ids = |names: &[&str]| names.iter().map(|name| QuestionId::from(*name)).collect::<Vec<_>>();
        let again = Some(1_000_000);
        let mut note = Note::default();
        let check = |waiting: &[&str], note: &Note, now, expect| {
            assert_eq!(due(&ids(waiting), note, again, now), expect, "{waiting:?} {note:?}");
        };
        check(&[], &note, 50_000, None);
        check(&["q1"], &note, 50_000, Some((50_000, false)));
        note = Note { told: ids(&["q1"]), told_at: 50_000, ..note };
        check(&["q1"], &note, 60_000, Some((1_050_000, true)));
        // Another one soon afterwards waits until the gap is over.
        check(&["q1", "q2"], &note, 51_000, Some((60_000, false)));
        check(&["q2"], &note, 70_000, Some((70_000, false)));
        note.again = true;
        check(&["q1"], &note, 2_000_000, None);
        assert_eq!(due(&ids(&["q1"]), &Note { again: false, ..note }, None, 60_000), None);
    }

    #[test]
    fn a_notification_leads_to_its_question_to_all_of_them_or_to_the_session() {
        let page = |news, questions: &[&str]| {
            let questions: Vec<QuestionId> = questions.iter().map(|id| QuestionId::from(*id)).collect();
            page("https://a", &SessionId::from("s1"), news, &questions)
        };
        assert_eq!(page(News::Question, &["q1"]), "https://a/#question=q1");
        assert_eq!(page(News::Question, &["q1", "q2"]), "https://a/#inbox");
        assert_eq!(page(News::Ended(StopReason::EndTurn), &[]), "https://a/#session=s1");
    }

    #[tokio::test(start_paused = true)]
    async fn many_sessions_are_no_storm() {
        let attention = Notifications::open(PathBuf::from("/nonexistent"));
        for _ in 0..MAX_IN_WINDOW {
            attention.admit().unwrap();
        }
        assert_eq!(attention.admit(), Err(Instant::now() + WINDOW));
        tokio::time::advance(WINDOW).await;
        attention.admit().unwrap();
    }

    #[tokio::test]
    async fn what_was_told_is_known_to_the_next_life() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lingerd.attention");
        let (one, other) = (SessionId::from("s1"), SessionId::from("s2"));
        let attention = Notifications::open(file.clone());
        attention.has_read(&one, 7);
        attention.change(&one, |note| note.told = vec!["q1".into()]);
        attention.has_read(&other, 3);
        attention.forget(&other);
        let written = || Notifications::open(file.clone());
        while written().note(&one).told.is_empty() || written().left(&other).is_some() {
            tokio::task::yield_now().await;
        }
        let next = written();
        assert_eq!(next.left(&one).map(|left| left.seq), Some(7));
        assert_eq!(next.note(&other), Note::default());
        let broken = dir.path().join("broken");
        std::fs::write(&broken, "{").unwrap();
        assert_eq!(Notifications::open(broken).left(&one), None);
    }
}
