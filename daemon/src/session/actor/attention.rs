//! When a person is notified: a question waits, or a turn has ended, and no terminal of a person is attached.
//!
//! A question is announced once, and once more after a while. Questions that a person saw at a terminal count as announced when
//! they leave.

use linger_protocol::question::Subject;
use linger_protocol::variable::{DESKTOP, IN_MEMORY, MAX_VALUE};

use super::*;
use crate::session::env::attention::{News, NotificationSubject, due, page};
use crate::session::state::Turn;
use crate::sys::task;

/// Notifications of people, as far as they are in memory.
#[derive(Default)]
pub(super) struct Attendance {
    /// Whether a terminal of a person was attached, and its leaving was not noticed yet.
    attended: bool,
    /// Where the desktop of the last client is.
    desktop: BTreeMap<String, String>,
    /// There were too many notifications: none before this time.
    not_before: Option<Instant>,
}

impl Attendance {
    /// Whether a terminal of a person was attached, and its leaving was not noticed yet.
    pub(super) fn has_person(&self) -> bool {
        self.attended
    }

    /// Takes the variables of a client that say where its desktop is; all others are forgotten.
    pub(super) fn set_desktop(&mut self, env: &BTreeMap<String, String>) {
        let brought = DESKTOP.iter().filter_map(|name| Some(((*name).to_owned(), env.get(*name)?.clone())));
        let brought: BTreeMap<_, _> = brought.filter(|(_, value)| value.len() <= MAX_VALUE).collect();
        if !brought.is_empty() {
            self.desktop = brought;
        }
    }
}

impl Actor {
    /// A terminal of a person attaches; it does so until the receiver is dropped.
    pub(super) fn person_attached(&mut self) -> tokio::sync::watch::Receiver<()> {
        self.attendance.attended = true;
        // Kept if the daemon dies before it has left.
        self.env.attention.has_read(&self.id, self.state.progress.head);
        self.log.person()
    }

    /// The last terminal of a person has left.
    pub(super) fn person_left(&mut self) {
        self.attendance.attended = false;
        self.env.attention.has_read(&self.id, self.state.progress.head);
        let seen = self.waiting_questions();
        if !seen.is_empty() {
            let now = clock::now();
            self.env.attention.change(&self.id, |note| (note.told, note.told_at, note.again) = (seen, now, false));
        }
    }

    /// The questions that wait for a person: those of the turn, and whether a plan is carried out.
    fn waiting_questions(&self) -> Vec<QuestionId> {
        if self.state.settings.unattended.deadline(0) == Some(0) {
            return Vec::new();
        }
        let of_turn = self.state.turn.iter().flat_map(Turn::waiting);
        let of_plan = self.state.questions.free.iter().filter(|asked| asked.about == Some(Subject::Plan));
        of_turn.chain(of_plan).map(|asked| asked.id.clone()).collect()
    }

    /// When a person is to be notified of the questions of the turn.
    pub(super) fn attention_due(&self) -> Option<Instant> {
        let waiting = self.waiting_questions();
        if waiting.is_empty() || self.log.people() > 0 {
            return None;
        }
        let config = self.env.config.current().ok().filter(|config| config.attention.runs_something())?;
        let now = clock::now();
        let (at, _) = due(&waiting, &self.env.attention.note(&self.id), config.attention.again_after_ms, now)?;
        let at = Instant::now().checked_add(Duration::from_millis(at.saturating_sub(now)))?;
        Some(self.attendance.not_before.map_or(at, |least| at.max(least)))
    }

    /// Notifies a person of the questions of the turn.
    pub(super) fn notify_of_questions(&mut self) {
        if self.attention_due().is_none_or(|at| at > Instant::now()) {
            return;
        }
        if let Err(later) = self.env.attention.admit() {
            self.attendance.not_before = Some(later);
            return;
        }
        let waiting = self.waiting_questions();
        tracing::info!(target: "attention", session = %self.id, questions = waiting.len(), "told");
        let told = self.env.attention.note(&self.id).told;
        let new: Vec<QuestionId> = waiting.iter().filter(|question| !told.contains(question)).cloned().collect();
        let again = new.is_empty();
        let asked = if again { waiting.clone() } else { new };
        self.env.attention.change(&self.id, |note| {
            note.again = again;
            (note.told, note.told_at) = (waiting, clock::now());
        });
        self.notify(News::Question, &asked);
    }

    /// Notifies a person of the end of a turn, if no client reads of it: a child's parent does.
    pub(super) fn notify_of_end(&mut self, reason: StopReason, compacts: bool) {
        // A plan that is ready is a question.
        let continues =
            self.state.turn.is_some() || self.state.identity.parent.is_some() || !self.waiting_questions().is_empty();
        if continues || compacts || reason == StopReason::Cancelled || self.log.readers() > 0 || self.id.is_daemon() {
            return;
        }
        let Ok(config) = self.env.config.current() else { return };
        if !config.attention.turn_end || !config.attention.runs_something() {
            return;
        }
        match self.env.attention.admit() {
            Ok(()) => self.notify(News::Ended(reason), &[]),
            Err(_) => tracing::info!(target: "attention", session = %self.id, "not told: too many notifications"),
        }
    }

    /// Runs the user's programs once everything before is on disk. They outlive the session's actor. `asked` are the questions of it.
    fn notify(&self, news: News, asked: &[QuestionId]) {
        let Ok(config) = self.env.config.current() else { return };
        let committed = self.flush();
        let about = NotificationSubject {
            session: self.id.clone(),
            label: self.state.settings.name.clone().unwrap_or_else(|| self.id.to_string()),
            title: self.state.title.title.clone().unwrap_or_default(),
            url: config.public_url.as_deref().map(|origin| page(origin, &self.id, news, asked)),
        };
        // No secret of the session's tools, and nothing of its directory.
        let mut env = BTreeMap::clone(&self.workspace.env);
        env.retain(|_, value| value != IN_MEMORY);
        env.extend(self.attendance.desktop.clone());
        let mut spawn = self.workspace.spawn(self.env.calls.children.clone(), Some(self.id.clone()));
        (spawn.env, spawn.cwd) = (Arc::new(env), Path::new("/").to_path_buf());
        let attention = self.env.attention.clone();
        task::spawn(async move {
            if matches!(committed.await, Ok(Ok(()))) {
                attention.tell(&config.attention, news, about, spawn).await;
            }
        });
    }
}
