//! Lists to choose from, and going over to another session: `/model`, `/agent`, `/resume`, `/new`, `/merge`.

use std::collections::BTreeMap;
use std::time::Duration;

use linger_protocol::RpcError;
use linger_protocol::agent::{Item, List, Status};
use linger_protocol::checkpoint::{Uncertain, UncertainChange};
use linger_protocol::daemon::Models;
use linger_protocol::id::{Cursor, SessionId};
use linger_protocol::mcp;
use linger_protocol::method::{
    AgentList, CommandList, McpList, McpResources, Method, ModelList, SessionCreate, SessionList, SkillList,
};
use linger_protocol::session::{Create, Effort, Info, List as Sessions, Set};
use linger_protocol::worktree::Merge;

use super::menu::Choice;
use super::past::{height, past};
use super::picker::Picker;
use super::state::{Picking, Repl, Target};
use crate::connect::parse;
use crate::environment::{now, short_path, umask};
use crate::error::{Exit, Failure};
use crate::follow::Request;
use crate::idempotency::key;
use crate::input::{InputLine, Names};
use crate::render::back::Space;
use crate::render::live::Live;
use crate::render::markdown::Layout;
use crate::render::table::age;
use crate::render::uncertain::uncertain_lines;
use crate::render::{Renderer, Settings, money, worktree};
use crate::terminal::{clean_line, terminal_width};

/// Sessions that are listed to choose from: what a person remembers is among the latest.
const SESSIONS: u32 = 200;

/// The characters of an id that name a session at least, as on the command line.
const MIN_PREFIX: usize = 4;

/// Characters of a description next to a name.
const ABOUT: usize = 60;

/// Uncertain changes that are listed before `/undo` asks about them: more would push the question's beginning away.
const UNCERTAIN: usize = 20;

/// How long a list of resources may take: a server may have to start, and the session waits.
const RESOURCES: Duration = Duration::from_secs(2);

/// A resource as `@` names it, up to where a template leaves something open; absent if it cannot be typed.
fn resource(row: &mcp::Resource) -> Option<Choice> {
    let uri = row.uri.split('{').next().unwrap_or_default();
    let text = format!("{}:{uri}", row.server);
    let can_be_typed = !text.contains(char::is_whitespace) && clean_line(&text) == text;
    let note = if row.about.is_empty() { &row.name } else { &row.about };
    can_be_typed.then(|| Choice::new(text, clean_line(note)))
}

impl Repl {
    /// Asks the daemon; what it refuses is said, and nothing comes of it.
    pub(super) fn ask_daemon<M: Method>(&mut self, method: &M) -> Result<Option<M::Result>, Failure> {
        match self.attachment.client.call_raw(method)? {
            Ok(raw) => parse::<M>(&raw).map(Some),
            Err(error) => self.refused(error).map(|()| None),
        }
    }

    fn refused(&mut self, error: RpcError) -> Result<(), Failure> {
        self.complain(error.into())
    }

    /// Gives names to the thread that completes the line. What cannot be had is missing there.
    pub(super) fn give_names(&mut self, names: Names) {
        let list = self.names(names).unwrap_or_default();
        self.known.put(names, list);
    }

    fn names(&mut self, names: Names) -> Result<Vec<Choice>, Failure> {
        let list = List { cwd: self.about.cwd.clone(), ..List::default() };
        let session_id = self.attachment.session.clone();
        let client = &mut self.attachment.client;
        Ok(match names {
            Names::Models => {
                let rows = client.call(&ModelList(Models { all: true, ..Models::default() }))?;
                let ready = rows.into_iter().filter(|row| row.ready && !row.model.ends_with("/MODEL"));
                ready
                    .map(|row| {
                        let window = row.context_window.map(|tokens| format!("{} tokens", money::tokens(tokens)));
                        Choice::new(clean_line(&row.model), window.unwrap_or_default())
                    })
                    .collect()
            }
            Names::Efforts => {
                let model = Some(self.about.model.clone());
                let rows = client.call(&ModelList(Models { model, ..Models::default() }))?;
                let efforts = rows.into_iter().flat_map(|row| row.efforts);
                std::iter::once(Effort::Auto).chain(efforts).map(|effort| Choice::new(effort.name(), "")).collect()
            }
            Names::Sessions => {
                let rows = client.call(&SessionList(Sessions { limit: Some(SESSIONS), ..Sessions::default() }))?;
                rows.iter().filter(|row| row.session != self.attachment.session).map(session).collect()
            }
            Names::Merges => {
                let rows = client.call(&SessionList(Sessions { limit: Some(SESSIONS), ..Sessions::default() }))?;
                let is_near = |row: &&Info| row.parent.as_ref() == Some(&session_id) || row.session == session_id;
                rows.iter().filter(is_near).filter(|row| worktree::can_merge(row)).map(session).collect()
            }
            Names::Agents => {
                client.call(&AgentList(list))?.iter().filter(|it| is_there(it)).map(|it| item("", it)).collect()
            }
            Names::Commands => {
                let mut rows = client.call(&CommandList(list.clone()))?;
                rows.extend(client.call(&SkillList(list))?);
                rows.iter().filter(|it| is_there(it)).map(|it| item("/", it)).collect()
            }
            Names::Servers => {
                let rows = client.call(&McpList(mcp::List { session: Some(session_id), cwd: None }))?;
                rows.iter().map(|row| Choice::new(format!("{}:", clean_line(&row.server)), "an MCP server")).collect()
            }
            Names::Resources => {
                let offered = mcp::Offered { session: Some(session_id), cwd: None, env: BTreeMap::new(), server: None };
                let rows = client.call_within(&McpResources(offered), RESOURCES)?;
                rows.iter().filter_map(resource).collect()
            }
        })
    }

    /// Lets the user choose from a list: the next line does.
    pub(super) fn choose(&mut self, target: Target) -> Result<(), Failure> {
        let (title, names, none) = match target {
            Target::Model => ("model", Names::Models, "no model is ready; `linger models` says what is missing"),
            Target::Agent => ("agent", Names::Agents, "no agents here; see `linger help extending`"),
            Target::Session => ("session", Names::Sessions, "no other sessions"),
            Target::Merge => ("child", Names::Merges, "no child has a git worktree to merge"),
            Target::Undo => return Ok(()),
        };
        let choices = match self.names(names) {
            Err(failure) if failure.exit != Exit::UNREACHABLE && !failure.interrupted => return self.complain(failure),
            choices => choices?,
        };
        if choices.is_empty() {
            return self.say(none);
        }
        let picker = Picker::new(title, choices, (target == Target::Model).then_some(self.about.model.as_str()));
        self.pick(target, picker)
    }

    /// Asks what becomes of files that an editor or another program may have changed while a command ran.
    pub(super) fn choose_undo(&mut self, changes: &[UncertainChange]) -> Result<(), Failure> {
        self.say("not undone yet: an editor or another program may have changed these while a command ran:")?;
        for line in uncertain_lines(changes, &self.about.cwd).iter().take(UNCERTAIN) {
            self.say(&format!("  {line}"))?;
        }
        if changes.len() > UNCERTAIN {
            self.say(&format!("  and {} more; `linger undo` in a shell lists them", changes.len() - UNCERTAIN))?;
        }
        let choices = [
            Choice::new("certain", "undo only what is certainly the model's"),
            Choice::new("all", "undo these files too"),
            Choice::new("nothing", "leave all files as they are"),
        ];
        self.pick(Target::Undo, Picker::new("undo", choices.to_vec(), None))
    }

    /// Shows a list; the next line chooses from it.
    fn pick(&mut self, target: Target, picker: Picker) -> Result<(), Failure> {
        if self.input.above.is_some() {
            let keys = if self.settings.style.unicode {
                "type to filter · ↑↓ move · Enter select · Esc cancel"
            } else {
                "type to filter, arrows move, Enter selects, Esc cancels"
            };
            self.say(keys)?;
            self.keys.pick(picker.clone());
        } else {
            picker.numbered().iter().try_for_each(|line| self.say(line))?;
            self.say("type a number or a name; an empty line cancels")?;
        }
        self.picking = Some(Picking { target, picker });
        Ok(())
    }

    /// Handles the line that chooses.
    pub(super) fn choose_by(&mut self, picking: Picking, line: InputLine) -> Result<Option<Exit>, Failure> {
        let chosen = match line {
            InputLine::End => return self.leave().map(Some),
            InputLine::Picked(chosen) => chosen,
            InputLine::Text { text, .. } => picking.picker.find(&text),
            InputLine::Garbled | InputLine::Ran(_) | InputLine::NotRun | InputLine::Stopped(_) => None,
        };
        match (picking.target, chosen) {
            (_, None) => self.say("nothing was selected")?,
            (Target::Model, Some(model)) => self.set_model(model)?,
            (Target::Agent, Some(agent)) => self.fresh(Some(agent))?,
            (Target::Session, Some(session)) => self.resume(&session)?,
            (Target::Merge, Some(child)) => self.merge(&child)?,
            (Target::Undo, Some(what)) => match what.as_str() {
                "certain" => self.request_undo(Uncertain::Keep, false)?,
                "all" => self.request_undo(Uncertain::Undo, false)?,
                _ => self.say("nothing was undone")?,
            },
        }
        self.show_question()?;
        Ok(None)
    }

    /// Changes the model; the event says so.
    pub(super) fn set_model(&mut self, model: String) -> Result<(), Failure> {
        self.set(Set { model: Some(model), ..Set::default() })
    }

    /// Goes over to a fresh session in the same directory: with this one's model and mode, or with an agent.
    pub(super) fn fresh(&mut self, agent: Option<String>) -> Result<(), Failure> {
        let create = Create {
            cwd: self.about.cwd.clone(),
            model: agent.is_none().then(|| self.about.model.clone()),
            mode: Some(self.about.mode),
            effort: self.about.effort,
            unattended: Some(self.about.unattended),
            agent,
            env: self.attachment.client.session_env(),
            login_env: self.attachment.client.lacks_env(),
            umask: Some(umask()),
            key: Some(key()?),
            ..Create::default()
        };
        let Some(created) = self.ask_daemon(&SessionCreate(create))? else { return Ok(()) };
        let info = self.attachment.client.session_info(&created.session)?;
        self.go_over(info, false)
    }

    /// Goes over to a session that is named as on the command line.
    pub(super) fn resume(&mut self, named: &str) -> Result<(), Failure> {
        let Some(found) = self.find(named, "/resume")? else { return Ok(()) };
        if found.session == self.attachment.session {
            return self.say("you are already in this session");
        }
        self.go_over(found, false)
    }

    /// Merges what a child did in its git worktree; the event says so, and the answer how to take it back.
    pub(super) fn merge(&mut self, named: &str) -> Result<(), Failure> {
        let Some(found) = self.find(named, "/merge")? else { return Ok(()) };
        self.attachment.request(Request::Merge(Merge { session: found.session, key: Some(key()?) }))
    }

    /// The session that is named as on the command line; without one, says so.
    fn find(&mut self, named: &str, command: &str) -> Result<Option<Info>, Failure> {
        let list = Sessions { matching: Some(named.to_owned()), limit: Some(SESSIONS), ..Sessions::default() };
        let Some(rows) = self.ask_daemon(&SessionList(list))? else { return Ok(None) };
        // A name or an id wins over what begins so.
        let is = |info: &&Info| info.name.as_deref() == Some(named) || info.session.as_str() == named;
        if let Some(info) = rows.iter().find(is) {
            return Ok(Some(info.clone()));
        }
        match <[Info; 1]>::try_from(rows) {
            Ok([info]) => return Ok(Some(info)),
            Err(rows) if rows.is_empty() && named.chars().count() < MIN_PREFIX => {
                self.say(&format!("no session '{named}'; an id prefix needs at least {MIN_PREFIX} characters"))?;
            }
            Err(rows) if rows.is_empty() => self.say(&format!("no session '{named}'; {command} alone lists them"))?,
            Err(rows) => self.say(&format!("{} sessions begin with '{named}'", rows.len()))?,
        }
        Ok(None)
    }

    /// Attaches to another session over the same connection, with the same prompt; what happened there comes first, unless it
    /// `is_shown`.
    pub(super) fn go_over(&mut self, info: Info, is_shown: bool) -> Result<(), Failure> {
        self.fresh_line()?;
        if self.is_busy() {
            self.say(&format!("the work of {} continues", self.about.label))?;
        }
        let label = info.name.clone().unwrap_or_else(|| info.session.to_string());
        let (at, about) = (short_path(&info.cwd), format!("{} ({})", info.model, info.mode));
        let Settings { style, markdown, .. } = self.settings;
        let layout =
            Layout { width: terminal_width(), markdown, color: style.color, unicode: style.unicode, dim: false };
        let (lines, info) = if is_shown {
            (Vec::new(), Info { turn_cursor: info.cursor.clone(), ..info })
        } else {
            past(layout, info, Space::Lines(height()))?
        };
        lines.iter().try_for_each(|line| self.say_styled(line))?;
        self.say(&format!("session {label} in {at}, {about}"))?;
        let cursor = Some(info.turn_cursor.clone()).filter(|cursor| *cursor != Cursor::default());
        self.attachment.switch(info.session.clone(), cursor)?;
        let style = self.renderer.style();
        self.renderer = Renderer::new(self.settings.clone());
        self.live = Live::new(style, info.mode, info.context_window);
        self.workspace.set(info.cwd.clone());
        self.enter(info);
        self.show_live()
    }
}

/// A session to choose: its name or id, and what people know it by.
fn session(info: &Info) -> Choice {
    let id: &SessionId = &info.session;
    let title = info.title.clone().unwrap_or_default();
    let title: String = clean_line(&title).chars().take(ABOUT).collect();
    let note = format!("{}  {}  {title}", age(info.updated_at, now()), clean_line(&short_path(&info.cwd)));
    Choice::new(clean_line(&info.name.clone().unwrap_or_else(|| id.to_string())), note.trim_end())
}

fn is_there(item: &Item) -> bool {
    item.status == Status::Active
}

fn item(before: &str, item: &Item) -> Choice {
    let about = item.description.as_deref().unwrap_or_default();
    let about: String = about.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(ABOUT).collect();
    Choice::new(format!("{before}{}", clean_line(&item.name)), clean_line(&about))
}
