//! Carries out a line at the prompt: sends a prompt, or runs a slash command.

use std::path::PathBuf;

use linger_protocol::agent::List;
use linger_protocol::checkpoint::Uncertain;
use linger_protocol::error::Code;
use linger_protocol::method::{CommandList, SessionUndo, SessionUnqueue, SkillList};
use linger_protocol::prompt::PromptContent;
use linger_protocol::session::{Compact, Continue, Prompt, Redo, Set, Undo, Unqueue, When};

use super::note;
use super::prompts::TypedPrompt;
use super::slash::{self, Slash, UndoMeans};
use super::state::{Repl, Target};
use crate::attachable::{self, with_resources};
use crate::environment::{absolute, working_directory};
use crate::error::{Exit, Failure};
use crate::follow::Request;
use crate::idempotency::key;
use crate::input::InputLine;
use crate::mention::{self, with_files};

impl Repl {
    /// Does what a line says; the exit code, if it says to leave.
    pub(super) fn obey(&mut self, line: InputLine) -> Result<Option<Exit>, Failure> {
        if let (Some((question, writing)), InputLine::Text { .. } | InputLine::Garbled) =
            (self.asking.writing.clone(), &line)
        {
            self.set_writing(None);
            return self.answer_by(&question, writing, &line).map(|()| None);
        }
        if let Some(picking) = self.picking.take() {
            return self.choose_by(picking, line);
        }
        let (text, typed, steer, request) = match line {
            // The list that it was chosen from belongs to a session that was left.
            InputLine::Picked(_) => return Ok(None),
            InputLine::Ran(ran) => return self.keep_output(ran).map(|()| None),
            InputLine::NotRun => {
                let why = "error: a ! command must be typed as one line; nothing was run or sent";
                self.say(&format!("{why}\nhint: type it, or remove the ! to send it to the model"))?;
                return Ok(None);
            }
            InputLine::Stopped(line) => {
                self.line_stopped(line);
                return Ok(None);
            }
            InputLine::End => return self.leave().map(Some),
            InputLine::Garbled => {
                self.say("error: the line was not valid UTF-8 and was dropped\nhint: set the terminal to UTF-8")?;
                return Ok(None);
            }
            InputLine::Text { text, typed, steer, request } => (text, typed, steer, request),
        };
        if text.trim().is_empty() {
            return Ok(None);
        }
        if let Some(key) = only(&text).filter(|key| self.asking.questions.has(*key)) {
            return self.answered(key, request).map(|()| None);
        }
        self.set_aside();
        if text.trim() == "!" {
            return self.say("type a command after the !, for example !make").map(|()| None);
        }
        if matches!(text.trim(), "exit" | "quit" | ":q") {
            return self.leave().map(Some);
        }
        if let Some((scope, text)) = note::parse(&text) {
            return self.note(scope, text).map(|()| None);
        }
        let when = steer.then_some(When::Steer);
        match slash::parse(&text) {
            None => self.prompt(text.clone(), &typed, &text, when, false)?,
            Some(Ok(Slash::Detach)) => return self.leave().map(Some),
            Some(Ok(Slash::Init(words))) => self.prompt(Self::init(words), &typed, &text, None, false)?,
            Some(Ok(slash)) => self.slash(slash, &typed)?,
            Some(Err(_)) if self.is_named(&text)? => self.prompt(text.clone(), &typed, &text, when, true)?,
            Some(Err(error)) => self.say(&error)?,
        }
        Ok(None)
    }

    /// Sends a prompt, which comes back as `line`; `expand`: it begins with the name of a command or a skill.
    fn prompt(
        &mut self,
        text: String,
        typed: &str,
        line: &str,
        when: Option<When>,
        expand: bool,
    ) -> Result<(), Failure> {
        let session = self.attachment.session.clone();
        let places: Vec<_> = working_directory().ok().into_iter().chain([self.about.cwd.clone()]).collect();
        let content = with_files(text, typed, &places).map(|content| {
            if self.ran.is_empty() {
                content
            } else {
                PromptContent::Blocks(content.into_blocks().into_iter().chain(self.ran.clone()).collect())
            }
        });
        let content = content.and_then(|content| with_resources(&mut self.attachment.client, &session, content));
        let is_sent = content.is_ok();
        let sent = TypedPrompt { line: line.to_owned(), ran: self.ran.clone(), comes_back: when.is_none() };
        self.send(content, when, expand, sent)?;
        for name in mention::missing(typed, &places).into_iter().filter(|_| is_sent) {
            self.say(&format!("@{name}: no such file, sent as plain text"))?;
        }
        Ok(())
    }

    /// Whether the daemon knows a command or a skill by the name that `line` begins with.
    pub(super) fn is_named(&mut self, line: &str) -> Result<bool, Failure> {
        let name = line.split_whitespace().next().and_then(|word| word.strip_prefix('/')).unwrap_or_default();
        let list = List { cwd: self.about.cwd.clone(), ..List::default() };
        let mut rows = self.attachment.client.call(&CommandList(list.clone()))?;
        rows.extend(self.attachment.client.call(&SkillList(list))?);
        Ok(rows.iter().any(|row| row.name == name))
    }

    /// Sends what a prompt of an MCP server says.
    fn server_prompt(&mut self, server: String, prompt: String, words: String) -> Result<(), Failure> {
        let session = self.attachment.session.clone();
        let content = attachable::prompt(&mut self.attachment.client, &session, server, prompt, words);
        self.send(content, None, false, TypedPrompt::default())
    }

    fn send(
        &mut self,
        content: Result<PromptContent, Failure>,
        when: Option<When>,
        expand: bool,
        typed: TypedPrompt,
    ) -> Result<(), Failure> {
        let (session, key) = (self.attachment.session.clone(), Some(key()?));
        self.prompts.send(key.clone(), typed);
        let sent_key = key.clone();
        let sent = content.and_then(|content| {
            let with = mention::with(&content);
            // The attachment has brought the variables.
            let (schema, until, awaited, env) = (None, None, false, Default::default());
            let prompt = Prompt { session, content, when, schema, until, expand, awaited, env, key };
            self.attachment.request(Request::Prompt(prompt)).map(|()| with)
        });
        match sent {
            Ok(with) => {
                self.ran.clear();
                // Say what was taken for a file.
                with.map_or(Ok(()), |with| self.say(&with))
            }
            // The typed text is wrong, not the session.
            Err(failure) if failure.exit == Exit::USAGE => {
                self.prompts.end_request(sent_key.as_ref());
                self.complain(failure)
            }
            Err(failure) => Err(failure),
        }
    }

    fn compact(&mut self, focus: Option<String>) -> Result<(), Failure> {
        let (session, key) = (self.attachment.session.clone(), Some(key()?));
        self.prompts.send(key.clone(), TypedPrompt::default());
        self.attachment.request(Request::Compact(Compact { session, focus, key }))
    }

    /// Goes on; with a number, sends that draft of the list alone.
    fn continue_turn(&mut self, n: Option<usize>) -> Result<(), Failure> {
        let prompt = match n.map(|n| self.prompts.listed(n)) {
            None => None,
            Some(Some((prompt, true))) => Some(prompt.clone()),
            Some(Some((_, false))) => return self.say("it is queued already; /queue lists the drafts too"),
            Some(None) => return self.say("no such draft; /queue lists them"),
        };
        self.turn.continuing = true;
        let session = self.attachment.session.clone();
        self.attachment.request(Request::Continue(Continue { session, prompt, key: Some(key()?) }))
    }

    /// Runs a command that is answered at once, or by events.
    fn slash(&mut self, slash: Slash, typed: &str) -> Result<(), Failure> {
        match slash {
            Slash::Compact(focus) => self.compact(focus),
            Slash::ServerPrompt { server, prompt, words } => self.server_prompt(server, prompt, words),
            Slash::Continue(n) => self.continue_turn(n),
            Slash::Steer(text) => self.prompt(text, typed, typed, Some(When::Steer), false),
            Slash::Interrupt(text) => self.prompt(text, typed, typed, Some(When::Interrupt), false),
            Slash::Queue => self.list_queue(),
            Slash::Unqueue(n) => self.unqueue(n),
            Slash::Output(n) => self.output(n),
            Slash::Help(command) => self.say(&slash::help(command.as_deref())),
            Slash::New => self.fresh(None),
            Slash::Resume(None) => self.choose(Target::Session),
            Slash::Resume(Some(named)) => self.resume(&named),
            Slash::Agent(None) => self.choose(Target::Agent),
            Slash::Agent(agent) => self.fresh(agent),
            Slash::Rename(name) => self.set(Set { name: Some(name), ..Set::default() }),
            Slash::Diff(turn) => self.diff(turn.as_deref()),
            Slash::Export(file) => self.export(file),
            Slash::Status => self.status(),
            Slash::Subcommand(which, words) => self.subcommand(which, words),
            Slash::Mode(None) => self.say(&format!("mode: {}", self.about.mode)),
            Slash::Unattended(None) => self.say(&format!("unattended: {}", self.about.unattended)),
            Slash::Effort(None) => self.say(&format!("effort: {}", self.about.effort)),
            Slash::Thinking(None) => self.say(&format!("thinking: {}", self.renderer.thinking())),
            Slash::Thinking(Some(thinking)) => {
                self.renderer.set_thinking(thinking);
                self.say(&format!("thinking: {thinking}"))
            }
            Slash::Mode(mode) => self.set(Set { mode, ..Set::default() }),
            Slash::Unattended(unattended) => self.set(Set { unattended, ..Set::default() }),
            Slash::Effort(effort) => self.set(Set { effort, ..Set::default() }),
            Slash::Model(None) => self.choose(Target::Model),
            Slash::Provider(None) => self.list_providers(),
            Slash::Model(Some(model)) | Slash::Provider(Some(model)) => self.set_model(model),
            Slash::Cancel if self.turn.running.is_some() && self.input.above.is_some() => {
                self.cancel_and_take_back(Some(String::new()))
            }
            Slash::Cancel => self.attachment.cancel(),
            Slash::Undo(means) => self.undo(means),
            Slash::Redo(force) => self.redo(force),
            Slash::Sessions => self.list_sessions(),
            Slash::Dir(_, None) => self.list_directories(),
            Slash::Dir(adds, Some(dir)) => self.set_directory(adds, dir),
            Slash::Permissions => self.list_rules(),
            Slash::Mcp => self.list_servers(),
            Slash::Uncompact => self.uncompact(),
            Slash::Fork(at) => self.fork(at),
            Slash::Rewind(number, files) => self.rewind(number, files),
            Slash::Tree(number) => self.tree(number),
            Slash::Merge(None) => self.choose(Target::Merge),
            Slash::Merge(Some(child)) => self.merge(&child),
            Slash::Detach | Slash::Init(_) => Ok(()),
        }
    }

    /// Changes the session; the event says so.
    pub(super) fn set(&mut self, set: Set) -> Result<(), Failure> {
        let session = self.attachment.session.clone();
        self.attachment.request(Request::Set(Set { session, key: Some(key()?), ..set }))
    }

    fn set_directory(&mut self, adds: bool, dir: String) -> Result<(), Failure> {
        let dirs = absolute(vec![PathBuf::from(dir)])?;
        let (add_directories, remove_directories) = if adds { (dirs, Vec::new()) } else { (Vec::new(), dirs) };
        self.set(Set { add_directories, remove_directories, ..Set::default() })
    }

    fn undo(&mut self, means: UndoMeans) -> Result<(), Failure> {
        let uncertain = if means == UndoMeans::Keep { Uncertain::Keep } else { Uncertain::Ask };
        self.request_undo(uncertain, means == UndoMeans::Force)
    }

    /// Undoes the last turn's changes; the event says which. In a terminal, asks about those that may be of something else.
    pub(super) fn request_undo(&mut self, uncertain: Uncertain, force: bool) -> Result<(), Failure> {
        let (session, key) = (self.attachment.session.clone(), Some(key()?));
        let undo = Undo { session, uncertain: Some(uncertain), force, key, ..Undo::default() };
        if self.input.above.is_none() {
            return self.attachment.request(Request::Undo(undo));
        }
        match self.attachment.client.call_raw(&SessionUndo(undo))? {
            Ok(_) => Ok(()),
            Err(error) if uncertain == Uncertain::Ask && error.code() == Some(Code::Uncertain) => {
                self.choose_undo(&error.get_uncertain())
            }
            Err(error) => self.complain(error.into()),
        }
    }

    fn redo(&mut self, force: bool) -> Result<(), Failure> {
        let session = self.attachment.session.clone();
        self.attachment.request(Request::Redo(Redo { session, force, key: Some(key()?) }))
    }

    /// Takes back the N-th prompt of the list, or the last queued one; the event says so.
    fn unqueue(&mut self, n: Option<usize>) -> Result<(), Failure> {
        let prompt = n.and_then(|n| self.prompts.listed(n)).map(|(prompt, _)| prompt.clone());
        if n.is_some() && prompt.is_none() {
            return self.say("no such queued prompt; /queue lists them");
        }
        let unqueue = Unqueue { session: self.attachment.session.clone(), prompt, key: Some(key()?) };
        match self.attachment.client.call_raw(&SessionUnqueue(unqueue))? {
            Ok(_) => Ok(()),
            Err(error) => self.complain(error.into()),
        }
    }
}

/// The character of a text that has only one.
fn only(text: &str) -> Option<char> {
    let mut chars = text.trim().chars();
    chars.next().filter(|_| chars.next().is_none())
}
