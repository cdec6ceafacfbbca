//! Questions at the prompt: how they are shown, and which keys and lines answer them.
//!
//! A key counts alone if no line was being typed when its question came; otherwise Enter has to follow.
//! Either way it counts only for the question that was on the screen.

use linger_protocol::id::QuestionId;
use linger_protocol::permission::Mode;
use linger_protocol::session::Set;

use super::state::{Repl, Writing};
use crate::error::{Exit, Failure};
use crate::follow::Request;
use crate::input::{Hotkey, InputLine};
use crate::question::{Press, Question, Questions};
use crate::render::markdown::width::hang_lines;
use crate::render::style::Style;
use crate::terminal::{KeyRequest, terminal_width};

impl Repl {
    /// Shows the first open question; without one no key answers anything.
    pub(super) fn show_question(&mut self) -> Result<(), Failure> {
        self.ask(Questions::text)
    }

    /// Asks for an answer to the first open question, under what is to be shown of it.
    fn ask(&mut self, shown: impl Fn(&Questions, &Style) -> String) -> Result<(), Failure> {
        self.asking.request += 1;
        self.unask();
        if self.turn.cancelling || self.asking.writing.is_some() {
            return Ok(());
        }
        let client = &mut self.attachment.client;
        self.asking.questions.fetch_differences(client);
        let questions = &self.asking.questions;
        if questions.first().is_none() {
            return Ok(());
        }
        let style = self.renderer.style();
        let mut lines = Vec::new();
        self.renderer.fresh_line(&mut lines);
        let alone = self.input.above.is_some() && !self.keys.is_typing();
        let text = shown(questions, &style) + &questions.keys(&style, !alone);
        let asked = KeyRequest { request: self.asking.request, keys: questions.answers(), alone };
        self.terminal.print(lines)?;
        self.terminal.ask(&hang_lines(&text, terminal_width()), asked)?;
        self.asking.is_shown = true;
        Ok(())
    }

    /// The user turns to something else: a question that holds up nothing is answered only once it is shown again.
    pub(super) fn set_aside(&mut self) {
        if self.asking.questions.first().is_some_and(|question| !question.holds_up()) {
            self.asking.is_shown = false;
            self.unask();
        }
    }

    /// Handles a line that is nothing but a key of the first question; `request`: the question that was on the screen.
    pub(super) fn answered(&mut self, key: char, request: Option<u32>) -> Result<(), Failure> {
        let why = match (self.asking.is_shown, request.is_none_or(|request| request == self.asking.request)) {
            (true, true) => return self.press(key),
            // A question that was not on the screen yet, or another one, is not what it answers.
            (true, false) => "not taken as an answer: the question appeared while you were typing",
            (false, _) => {
                "not sent: this question is still open; press the key again to answer, or type more for a prompt"
            }
        };
        self.say(why)?;
        self.show_question()
    }

    /// Handles a key that does not belong to the line being read.
    pub(super) fn hotkey(&mut self, hotkey: Hotkey) -> Result<Option<Exit>, Failure> {
        match hotkey {
            Hotkey::Interrupt { .. } | Hotkey::Escape if self.asking.writing.is_some() => {
                self.set_writing(None);
                self.show_question()?;
            }
            Hotkey::Escape if self.turn.running.is_some() && !self.turn.cancelling => self.cancel()?,
            Hotkey::Stop if self.turn.running.is_some() && !self.turn.cancelling => self.cancel_and_take_back(None)?,
            Hotkey::Escape | Hotkey::Stop | Hotkey::ViMode => {}
            Hotkey::Interrupt { empty: true } if self.turn.cancelling => return self.leave().map(Some),
            Hotkey::Interrupt { empty: true } if self.turn.running.is_some() => self.cancel()?,
            Hotkey::Interrupt { .. } => self.say(match (&self.turn.running, self.turn.offered) {
                (Some(_), _) => "press Ctrl-C again to cancel the turn, Ctrl-D to leave",
                (None, true) => "the turn was interrupted: /continue resumes it, /cancel ends it, Ctrl-D leaves",
                (None, false) => "Ctrl-D to leave, /help for help",
            })?,
            Hotkey::NextMode => self.cycle_mode()?,
            Hotkey::Answer { key, request } if request == self.asking.request => self.press(key)?,
            Hotkey::Answer { .. } => {}
            Hotkey::Names(names) => {
                self.give_names(names);
                return Ok(None);
            }
        }
        self.show_live()?;
        Ok(None)
    }

    /// The effect of Esc now, for the status.
    pub(super) fn way_out(&self) -> String {
        let does = match () {
            () if self.picking.is_some() => "closes the list",
            () if self.asking.writing.is_some() => "goes back",
            () if self.turn.cancelling => return "stopping".to_owned(),
            () => "stops",
        };
        format!("{} {does}", self.keys.escape())
    }

    /// The next mode of ask, edit and plan. `auto`, which asks nothing, is not one key away.
    fn cycle_mode(&mut self) -> Result<(), Failure> {
        let next = match self.about.next_mode.unwrap_or(self.about.mode) {
            Mode::Ask => Mode::Edit,
            Mode::Edit => Mode::Plan,
            Mode::Plan | Mode::Auto => Mode::Ask,
        };
        self.set_mode(next)
    }

    fn set_mode(&mut self, mode: Mode) -> Result<(), Failure> {
        self.about.next_mode = Some(mode);
        self.set(Set { mode: Some(mode), ..Set::default() })
    }

    /// Handles a key for the question on the screen.
    pub(super) fn press(&mut self, key: char) -> Result<(), Failure> {
        match self.asking.questions.press(key)? {
            Press::Nothing => return Ok(()),
            Press::Show | Press::Rest => {}
            Press::NotYet => return self.ask(|_, style| Question::not_yet(style)),
            Press::Help => return self.ask(|questions, _| questions.help()),
            Press::Edits => {
                // The daemon checks the questions that wait against the new mode.
                self.set_mode(Mode::Edit)?;
                return Ok(());
            }
            Press::Write => return self.begin_writing(Writing::Answer, "type your answer"),
            Press::Reason => return self.begin_writing(Writing::Reason, "type the reason for the model"),
            Press::Rule(rule) => {
                self.begin_writing(Writing::Rule, "type the rule (Tab: the suggested one)")?;
                self.keys.suggest(rule);
                return Ok(());
            }
            Press::Answer(answer) => self.attachment.request(Request::Answer(answer))?,
            Press::Answers(answers) => {
                for answer in answers {
                    self.attachment.request(Request::Answer(answer))?;
                }
            }
        }
        self.show_question()
    }

    /// The next line belongs to the question on the screen.
    fn begin_writing(&mut self, writing: Writing, what: &str) -> Result<(), Failure> {
        let writing = self.asking.questions.first().map(|question| (question.id.clone(), writing));
        self.set_writing(writing);
        self.unask();
        self.say(&format!("{what}, then Enter; Ctrl-C goes back"))
    }

    /// Handles the line that was written to a question.
    pub(super) fn answer_by(&mut self, id: &QuestionId, writing: Writing, line: &InputLine) -> Result<(), Failure> {
        match line {
            InputLine::Text { text, .. } if !text.trim().is_empty() => {
                let answer = match writing {
                    Writing::Answer => self.asking.questions.write(id, text.trim()),
                    Writing::Reason => self.asking.questions.deny(id, text.trim()),
                    Writing::Rule => self.asking.questions.always(id, text.trim()),
                };
                match answer {
                    // What was written is wrong, not the session.
                    Err(failure) if failure.exit == Exit::USAGE => self.complain(failure)?,
                    Err(failure) => return Err(failure),
                    Ok(Some(answer)) => self.attachment.request(Request::Answer(answer))?,
                    Ok(None) => self.say("the question is no longer open; your answer was not sent")?,
                }
            }
            _ => self.say("no answer was sent")?,
        }
        self.show_question()
    }
}
