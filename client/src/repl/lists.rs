//! The commands that list: the queue, sessions, providers, directories, rules, MCP servers.

use linger_protocol::daemon::{Empty, Model, Models};
use linger_protocol::mcp;
use linger_protocol::method::{McpList, ModelList, PermissionRules, SessionList};
use linger_protocol::session::List;

use super::state::Repl;
use crate::environment::now;
use crate::error::Failure;
use crate::render::sessions::listing_in;
use crate::render::table::columns;
use crate::render::{permissions, servers};
use crate::terminal::terminal_width;

impl Repl {
    fn say_all(&mut self, lines: &[String]) -> Result<(), Failure> {
        lines.iter().try_for_each(|line| self.say(line))
    }

    pub(super) fn list_queue(&mut self) -> Result<(), Failure> {
        let queue = self.prompts.queue();
        let drafts = self.prompts.drafts().iter().map(|(_, text)| format!("draft: {text}"));
        let all = queue.iter().map(|(_, text)| text.clone()).chain(drafts);
        let mut lines: Vec<_> = all.enumerate().map(|(n, text)| format!("{} {text}", n + 1)).collect();
        // Those from before we attached, of which no event has come.
        let may_have_more = self.prompts.queued_before() + self.prompts.drafts_before() > 0;
        let session = self.attachment.session.clone();
        let info = may_have_more.then(|| self.attachment.client.session_info(&session)).transpose()?;
        if let Some(info) = info
            && (info.queued + info.drafts) as usize > lines.len() + self.prompts.steering()
        {
            lines.push(format!("`linger queue {}` lists all", self.about.label));
        }
        self.say(&if lines.is_empty() { "nothing is queued".to_owned() } else { lines.join("\n") })
    }

    pub(super) fn list_providers(&mut self) -> Result<(), Failure> {
        let rows = self.attachment.client.call(&ModelList(Models::default()))?;
        let lines = providers(&rows, &self.about.model);
        self.say_all(&lines)
    }

    pub(super) fn list_sessions(&mut self) -> Result<(), Failure> {
        let rows = self.attachment.client.call(&SessionList(List::default()))?;
        self.say_all(&listing_in(&rows, now(), Some(terminal_width())))
    }

    /// Lists the directories that were added to the session's own.
    pub(super) fn list_directories(&mut self) -> Result<(), Failure> {
        let matching = Some(self.attachment.session.to_string());
        let rows = self.attachment.client.call(&SessionList(List { matching, ..List::default() }))?;
        let dirs = rows.iter().flat_map(|row| &row.additional_directories).map(|dir| dir.display().to_string());
        let dirs = dirs.collect::<Vec<_>>().join("\n");
        self.say(if dirs.is_empty() { "no added directories" } else { &dirs })
    }

    /// Lists the rules that answers added.
    pub(super) fn list_rules(&mut self) -> Result<(), Failure> {
        let rows = self.attachment.client.call(&PermissionRules(Empty {}))?;
        self.say_all(&permissions::listing(&rows, now()))
    }

    pub(super) fn list_servers(&mut self) -> Result<(), Failure> {
        let list = mcp::List { session: Some(self.attachment.session.clone()), cwd: None };
        let rows = self.attachment.client.call(&McpList(list))?;
        self.say_all(&servers::listing(&rows))
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
    lines.push("`linger models` lists all models and what the other providers are missing".to_owned());
    lines
}
