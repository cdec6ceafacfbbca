//! Commands in the background: their starts and ends become events. Before its next step the model gets the news: ended commands,
//! undone changes, and the mode.

use linger_protocol::event::{Asks, BackgroundEnded};

use super::*;
use crate::store::blob::Held;
use crate::tool::Invalid;
use crate::tool::background::{self, Ended, Report, Start};

/// The commands in the background; they end with the actor.
pub(super) struct BackgroundJobs {
    jobs: Jobs,
    /// Starts that are wanted, and ends.
    reports: mpsc::UnboundedReceiver<Box<Report>>,
}

impl BackgroundJobs {
    /// The next start that is wanted, or end.
    pub(super) async fn next(&mut self) -> Option<Box<Report>> {
        self.reports.recv().await
    }

    /// The handle for a turn.
    pub(super) fn jobs(&self) -> Jobs {
        self.jobs.clone()
    }

    /// The number of running commands.
    pub(super) fn running(&self) -> usize {
        self.jobs.running()
    }

    /// Kills all for this reason; whether there was one.
    pub(super) fn kill_all(&self, why: &'static str) -> bool {
        self.jobs.kill_all(why)
    }

    /// Ends all for this reason, and waits for it.
    pub(super) async fn end(&self, why: &'static str) {
        self.jobs.end(why).await;
    }
}

impl Default for BackgroundJobs {
    fn default() -> Self {
        let (jobs, reports) = Jobs::new();
        Self { jobs, reports }
    }
}

impl Actor {
    /// Hears of a command that is to be started, or has ended.
    pub(super) fn job_report(&mut self, report: Report) {
        match report {
            Report::Start(start) => self.start_background(start),
            Report::Ended(id) => {
                let open = self.state.background.running().any(|job| job.id == id);
                if let Some(ended) = self.background.jobs.ended(&id).filter(|_| open) {
                    self.background_ended(id, ended);
                }
            }
        }
    }

    /// Records the start; the command runs once that is on disk.
    fn start_background(&mut self, start: Start) {
        if start.reply.is_closed() {
            // Its call was cancelled.
            return;
        }
        if self.state.background.running().count() >= background::MAX_RUNNING {
            let many = format!(
                "{} commands run in the background already; end one with bash_kill first",
                background::MAX_RUNNING
            );
            let _gone = start.reply.send(Err(Invalid(many)));
            return;
        }
        let id = BackgroundId(format!("b{}", self.state.progress.counts.background + 1));
        tracing::info!(target: "tool", session = %self.id, background = %id, command = start.command, "started");
        let (background, call_id, command) = (id.clone(), start.call.clone(), start.shown());
        let draft = self.in_turn(EventBody::BackgroundStarted { background, call_id, command });
        let committed = self.append_synced(vec![draft], None);
        self.background.jobs.begin(id, start, async move { matches!(committed.await, Ok(Ok(()))) });
    }

    fn background_ended(&mut self, background: BackgroundId, ended: Ended) {
        let Ended { exit, reason, last_words: output, whole, ms } = ended;
        if let Some(whole) = &whole {
            self.workspace.seen.output(whole);
        }
        tracing::info!(target: "result", session = %self.id, %background, ms, ?exit, reason, "ended");
        let (file, blob) = (whole.as_ref().and_then(Held::path), whole.as_ref().map(|held| held.id().clone()));
        let body = EventBody::BackgroundEnded(BackgroundEnded { background, exit, reason, output, file, blob, ms });
        let draft = Draft { blobs: whole.into_iter().collect(), ..self.in_turn(body) };
        self.append(vec![draft], Vec::new(), false, None);
    }

    /// Records the ends of commands that do not run any more: those of an earlier daemon, and those whose end could not be written.
    pub(super) fn end_background(&mut self) {
        let open = self.state.background.running().map(|job| &job.id);
        let gone: Vec<BackgroundId> = open.filter(|id| !self.background.jobs.runs(id)).cloned().collect();
        for id in gone {
            let ended = self.background.jobs.ended(&id).unwrap_or_else(|| Ended {
                exit: None,
                reason: Some("the daemon was restarted".to_owned()),
                last_words: String::new(),
                whole: None,
                ms: 0,
            });
            self.background_ended(id, ended);
        }
    }

    /// Tells the model, in a message of the history, which commands have ended, what was undone, and whether it only plans, since it
    /// was last told.
    pub(super) fn tell_ended(&mut self) -> Option<(MessageId, Vec<ContentBlock>)> {
        let mode = self.mode_news();
        let news: Vec<&str> = {
            let ended = self.state.background.jobs.iter().filter_map(|job| job.ended.as_deref());
            self.state.undo.news.iter().map(String::as_str).chain(ended).chain(mode.as_deref()).collect()
        };
        if news.is_empty() {
            return None;
        }
        let content = vec![ContentBlock::text(news.join("\n"))];
        let asks = if mode.is_some() { Asks::Mode } else { Asks::Ended };
        let body = EventBody::user_message(MessageId::default(), content, None, Some(asks));
        let draft = self.in_turn(body);
        self.append(vec![draft], Vec::new(), false, None).pop().and_then(message_of)
    }
}
