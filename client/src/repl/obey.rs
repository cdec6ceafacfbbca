//! Carries out a line at the prompt: sends a prompt, or runs a slash command.

use linger_protocol::agent::List;
use linger_protocol::daemon::{Empty, Model, Models};
use linger_protocol::mcp;
use linger_protocol::method::{CommandList, McpList, ModelList, PermissionRules, SessionList, SkillList};
use linger_protocol::prompt::PromptContent;
use linger_protocol::session::{Compact, Keyed, List as Sessions, Prompt, Redo, Set, Undo};

use std::path::PathBuf;

use super::Repl;
use super::slash::{self, Slash};
use crate::attachable::{self, with_resources};
use crate::environment::{absolute, now, working_directory};
use crate::error::{Exit, Failure};
use crate::follow::Request;
use crate::idempotency::key;
use crate::picture::with_pictures;
use crate::render::sessions::listing;
use crate::render::table::columns;
use crate::render::{permissions, servers};

impl Repl {
    /// Sends a prompt; `expand`: it begins with the name of a command or a skill.
    pub(super) fn prompt(&mut self, text: String, expand: bool) -> Result<(), Failure> {
        let session = self.attachment.session.clone();
        let places: Vec<_> = working_directory().ok().into_iter().chain([self.cwd.clone()]).collect();
        let content = with_pictures(text, &places);
        let content = content.and_then(|content| with_resources(&mut self.attachment.client, &session, content));
        self.send(content, expand)
    }

    /// Whether the daemon knows a command or a skill by the name that `line` begins with.
    pub(super) fn is_named(&mut self, line: &str) -> Result<bool, Failure> {
        let name = line.split_whitespace().next().and_then(|word| word.strip_prefix('/')).unwrap_or_default();
        let list = List { cwd: self.cwd.clone(), ..List::default() };
        let mut rows = self.attachment.client.call(&CommandList(list.clone()))?;
        rows.extend(self.attachment.client.call(&SkillList(list))?);
        Ok(rows.iter().any(|row| row.name == name))
    }

    /// Sends what a prompt of an MCP server says.
    pub(super) fn server_prompt(&mut self, named: (String, String), words: String) -> Result<(), Failure> {
        let session = self.attachment.session.clone();
        let content = attachable::prompt(&mut self.attachment.client, &session, named, words);
        self.send(content, false)
    }

    fn send(&mut self, content: Result<PromptContent, Failure>, expand: bool) -> Result<(), Failure> {
        self.sent += 1;
        let session = self.attachment.session.clone();
        let sent = content.and_then(|content| {
            let pictures = content.pictures();
            // The attachment has brought the variables.
            let (when, schema, until, key) = (None, None, None, Some(key()?));
            let prompt = Prompt { session, content, when, schema, until, expand, env: Default::default(), key };
            self.attachment.request(Request::Prompt(prompt)).map(|()| pictures)
        });
        match sent {
            // The typed text is wrong, not the session.
            Err(failure) if failure.exit == Exit::USAGE => {
                self.sent = self.sent.saturating_sub(1);
                self.complain(failure)?;
                self.prompt_if_idle().map(drop)
            }
            Ok(0) => Ok(()),
            // Say that a name was taken for a picture.
            Ok(n) => self.say(&format!("with {n} picture{}", if n == 1 { "" } else { "s" })),
            Err(failure) => Err(failure),
        }
    }

    pub(super) fn compact(&mut self, focus: Option<String>) -> Result<(), Failure> {
        self.sent += 1;
        let session = self.attachment.session.clone();
        self.attachment.request(Request::Compact(Compact { session, focus, key: Some(key()?) }))
    }

    /// Counts like a prompt: the next prompt opens after the daemon's answer.
    pub(super) fn continue_turn(&mut self) -> Result<(), Failure> {
        self.continuing = true;
        let session = self.attachment.session.clone();
        self.attachment.request(Request::Continue(Keyed { session, key: Some(key()?) }))
    }

    /// Runs a command that is answered at once, or by events.
    pub(super) fn slash(&mut self, slash: Slash) -> Result<(), Failure> {
        let session = self.attachment.session.clone();
        match slash {
            Slash::Help => self.say(&slash::help())?,
            Slash::Mode(None) => self.say(&format!("mode: {}", self.mode))?,
            Slash::Unattended(None) => self.say(&format!("unattended: {}", self.unattended))?,
            Slash::Effort(None) => self.say(&format!("effort: {}", self.effort))?,
            Slash::Thinking(None) => self.say(&format!("thinking: {}", self.renderer.thinking()))?,
            Slash::Thinking(Some(thinking)) => self.renderer.set_thinking(thinking),
            Slash::Effort(effort) => {
                self.attachment.request(Request::Set(Set { session, effort, key: Some(key()?), ..Set::default() }))?;
            }
            Slash::Model(None) => self.say(&format!("model: {}", self.model))?,
            Slash::Mode(mode) => {
                self.attachment.request(Request::Set(Set { session, mode, key: Some(key()?), ..Set::default() }))?;
            }
            Slash::Unattended(unattended) => {
                self.attachment.request(Request::Set(Set {
                    session,
                    unattended,
                    key: Some(key()?),
                    ..Set::default()
                }))?;
            }
            Slash::Provider(None) => {
                let rows = self.attachment.client.call(&ModelList(Models::default()))?;
                for line in providers(&rows, &self.model) {
                    self.say(&line)?;
                }
            }
            Slash::Model(model) | Slash::Provider(model) => {
                self.attachment.request(Request::Set(Set { session, model, key: Some(key()?), ..Set::default() }))?;
            }
            Slash::Cancel => self.attachment.cancel()?,
            Slash::Undo(force) => {
                self.attachment.request(Request::Undo(Undo {
                    session,
                    force,
                    key: Some(key()?),
                    ..Undo::default()
                }))?;
            }
            Slash::Redo(force) => {
                self.attachment.request(Request::Redo(Redo { session, force, key: Some(key()?) }))?;
            }
            Slash::Sessions => {
                let rows = self.attachment.client.call(&SessionList(Sessions::default()))?;
                for line in listing(&rows, now()) {
                    self.say(&line)?;
                }
            }
            Slash::Dir(_, None) => {
                let rows = self
                    .attachment
                    .client
                    .call(&SessionList(Sessions { matching: Some(session.to_string()), ..Sessions::default() }))?;
                let dirs = rows.iter().flat_map(|row| &row.directories).map(|dir| dir.display().to_string());
                let dirs = dirs.collect::<Vec<_>>().join("\n");
                self.say(if dirs.is_empty() { "no added directory" } else { &dirs })?;
            }
            Slash::Dir(adds, Some(dir)) => {
                let dirs = absolute(vec![PathBuf::from(dir)])?;
                let (add_directories, remove_directories) = if adds { (dirs, Vec::new()) } else { (Vec::new(), dirs) };
                let key = Some(key()?);
                let set = Set { session, add_directories, remove_directories, key, ..Set::default() };
                self.attachment.request(Request::Set(set))?;
            }
            Slash::Permissions => {
                let rows = self.attachment.client.call(&PermissionRules(Empty {}))?;
                for line in permissions::listing(&rows, now()) {
                    self.say(&line)?;
                }
            }
            Slash::Mcp => {
                let list = mcp::List { session: Some(self.attachment.session.clone()), cwd: None };
                let rows = self.attachment.client.call(&McpList(list))?;
                for line in servers::listing(&rows) {
                    self.say(&line)?;
                }
            }
            Slash::Detach | Slash::Compact(_) | Slash::Continue | Slash::ServerPrompt { .. } => {}
        }
        Ok(())
    }
}

/// The usable providers with their default models; the current one is marked.
fn providers(rows: &[Model], current: &str) -> Vec<String> {
    let name = |model: &str| model.split('/').next().unwrap_or_default().to_owned();
    let ready = rows.iter().filter(|row| row.ready);
    let cells = ready.map(|row| {
        let mark = if name(&row.model) == name(current) { "*" } else { " " };
        let first = row.model.split_once('/').map(|(_, model)| model).filter(|model| *model != "MODEL");
        let provider = name(&row.model);
        let begins = first.map_or_else(|| format!("name a model: /model {provider}/MODEL"), str::to_owned);
        vec![mark.to_owned(), provider, begins]
    });
    let mut lines = columns(&cells.collect::<Vec<_>>());
    lines.push("`linger models` lists all models, and what the other providers lack".to_owned());
    lines
}
