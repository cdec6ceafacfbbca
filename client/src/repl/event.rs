//! Events of the session: the state they change, and the notes they print.

use linger_protocol::event::{
    Compacted, CompactionFailed, Event, EventBody, Notice, NoticeCode, PromptAccepted, SessionChanged, TurnFinished,
};
use linger_protocol::message::StopReason;
use linger_protocol::session::{State, When};

use super::prompts::Returning;
use super::show::running;
use super::state::{About, Repl};
use crate::error::Failure;
use crate::terminal::terminal_width;

impl About {
    /// Keeps up with the session's settings.
    fn event(&mut self, body: &EventBody) {
        let EventBody::SessionChanged(SessionChanged { model, mode, effort, name, unattended, cwd, .. }) = body else {
            return;
        };
        self.effort = effort.unwrap_or(self.effort);
        self.mode = mode.unwrap_or(self.mode);
        self.next_mode = self.next_mode.filter(|_| mode.is_none());
        self.unattended = unattended.unwrap_or(self.unattended);
        if let Some(model) = model {
            self.model.clone_from(model);
        }
        if let Some(cwd) = cwd {
            self.cwd.clone_from(cwd);
        }
        if let Some(name) = name {
            self.label.clone_from(name);
        }
    }
}

impl Repl {
    pub(super) fn event(&mut self, event: &Event) -> Result<(), Failure> {
        self.renderer.set_width(terminal_width());
        let output = self.renderer.event(event);
        // What comes back into the line is seen there.
        if !self.prompts.gives_back(&event.body) {
            self.terminal.print(output)?;
        }
        self.live.event(event);
        self.outputs.event(event);
        self.queue_event(event)?;
        match &event.body {
            EventBody::TurnStarted { prompt } => {
                self.runs(event);
                self.prompts.start(prompt);
            }
            EventBody::Notice(Notice { code: Some(NoticeCode::Resumed | NoticeCode::Continued), .. }) => {
                self.runs(event)
            }
            EventBody::Notice(Notice { code: Some(NoticeCode::Offered | NoticeCode::Unconfigured), .. }) => {
                (self.turn.running, self.turn.offered, self.turn.cancelling) = (None, true, false);
                self.say_offered()?;
            }
            // A compaction within the running turn starts no turn of its own.
            EventBody::Compacted(Compacted { prompt: Some(prompt), .. })
            | EventBody::CompactionFailed(CompactionFailed { prompt: Some(prompt), .. })
                if !self.prompts.started_last(prompt) =>
            {
                self.prompts.start(prompt);
            }
            EventBody::BackgroundStarted { .. } => self.has_background = true,
            EventBody::TurnFinished(TurnFinished { stop_reason, .. }) => self.finished(*stop_reason)?,
            EventBody::SessionChanged(_) => {
                self.about.event(&event.body);
                self.workspace.set(self.about.cwd.clone());
            }
            _ => {}
        }
        if let Some(news) = self.attention.event(event, self.caught_up) {
            let text = format!("linger: session {} {news}", self.about.label);
            self.terminal.signal(self.attachment.client.signals(), self.escapes, &text)?;
        }
        let changed = self.asking.questions.event(event);
        let all_there = matches!(event.body, EventBody::CaughtUp {}) && !self.caught_up;
        if all_there {
            self.caught_up = true;
            self.say_offered()?;
            if self.turn.running.is_none() && !self.turn.offered {
                self.say_held(self.prompts.queued_before())?;
                self.say_drafts(self.prompts.drafts_before())?;
                self.say_background()?;
            }
        }
        if all_there {
            self.terminal.prompt_opened(self.input.above.clone())?;
            if !self.open && self.returning.is_none() {
                self.open_prompt()?;
            }
        }
        if self.caught_up && (changed || all_there) {
            self.show_question()?;
        }
        self.follow_queue()?;
        self.sign()?;
        self.show_live()
    }

    /// Goes on with what comes back into the line, and tells the keys whether stopping brings something back.
    pub(super) fn follow_queue(&mut self) -> Result<(), Failure> {
        self.reopen_line()?;
        let brings_back = self.turn.running.is_some() && !self.turn.cancelling && self.prompts.any_to_come_back();
        self.keys.set_brings_back(brings_back && self.input.above.is_some());
        Ok(())
    }

    /// Keeps the list of queued prompts, and says that ours is queued.
    fn queue_event(&mut self, event: &Event) -> Result<(), Failure> {
        let waits = self.turn.running.is_some() || self.turn.offered || !self.prompts.queue().is_empty();
        self.prompts.event(event);
        let EventBody::PromptAccepted(PromptAccepted { when, by, .. }) = &event.body else { return Ok(()) };
        if !self.caught_up || by.as_deref() != Some(self.attachment.client.name.as_str()) {
            return Ok(());
        }
        let line = match when {
            When::Queue if waits => {
                format!("queued {}; /queue lists, /unqueue takes back", self.prompts.queue().len())
            }
            When::Steer if self.turn.running.is_some() => "will be read before the next step".to_owned(),
            _ => return Ok(()),
        };
        let line = self.renderer.style().dim(&line);
        self.say_styled(&line)
    }

    /// The turn of `event` is running.
    fn runs(&mut self, event: &Event) {
        self.turn.running = event.turn.clone();
        (self.turn.offered, self.turn.continuing) = (false, false);
    }

    /// Says how to resume an interrupted turn, once the replay has shown that it waits.
    fn say_offered(&mut self) -> Result<(), Failure> {
        if !self.turn.offered || !self.caught_up {
            return Ok(());
        }
        self.say("hint: /continue or a new prompt resumes the turn; /cancel ends it")
    }

    fn finished(&mut self, stop_reason: StopReason) -> Result<(), Failure> {
        self.turn.running = None;
        (self.turn.offered, self.turn.cancelling) = (false, false);
        let blocked = matches!(stop_reason, StopReason::Cancelled | StopReason::Error);
        if blocked && self.caught_up {
            self.prompts.hold();
            // For a message only: a lost connection shows up as an event.
            if let Ok(info) = self.attachment.client.session_info(&self.attachment.session)
                && info.state == State::Idle
            {
                self.say_held(info.queued)?;
            }
        }
        self.ask_back()?;
        if self.caught_up && stop_reason == StopReason::Cancelled {
            let back = self.returning.as_ref().map_or(0, Returning::count);
            self.say_drafts(self.prompts.drafts().len().saturating_sub(back) as u32)?;
        }
        self.say_background()
    }

    /// Says which commands go on in the background, now that no turn shows them.
    fn say_background(&mut self) -> Result<(), Failure> {
        if !self.has_background || !self.caught_up {
            return Ok(());
        }
        let Ok(info) = self.attachment.client.session_info(&self.attachment.session) else { return Ok(()) };
        self.has_background = !info.background.is_empty();
        let line = match info.background.as_slice() {
            [] => return Ok(()),
            [one] => format!("in the background: {}", running(one)),
            [first, rest @ ..] => {
                format!("in the background: {}, and {} more; /status lists them", running(first), rest.len())
            }
        };
        self.say(&line)
    }

    /// Says that there are drafts.
    fn say_drafts(&mut self, drafts: u32) -> Result<(), Failure> {
        match drafts {
            0 => Ok(()),
            1 => self.say("1 queued prompt is now a draft; /queue shows it, /continue sends it"),
            more => self.say(&format!("{more} queued prompts are now drafts; /queue shows them, /continue sends them")),
        }
    }

    /// Says that prompts are queued behind a stopped turn.
    fn say_held(&mut self, queued: u32) -> Result<(), Failure> {
        match queued {
            0 => Ok(()),
            1 => self.say("1 prompt is still queued; /continue or a new prompt starts it"),
            more => self.say(&format!("{more} prompts are still queued; /continue or a new prompt starts them")),
        }
    }
}
