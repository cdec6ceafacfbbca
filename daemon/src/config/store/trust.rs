//! The files of workspaces in force, and what of them a person has trusted.
//!
//! Each workspace has the same as the configuration itself: the settings of its files, those that were trusted, and their
//! difference, which waits ([`crate::config::widening`]). What narrows counts at once. A broken file leaves the last good one in force,
//! or what of it was trusted; with a broken `.linger/config.toml` everything asks.
//! They are read before each call that could concern them, so a rule that was written counts for the next call: nothing is
//! watched. Deliberately absent: asking a person (`service`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use linger_protocol::id::SessionId;
use serde::Deserialize as _;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::{ConfigStore, Confirmed, Waiting};
use crate::config::edit::EditError;
use crate::config::hooks::HookEvent;
use crate::config::mcp_json::{self, MCP_JSON, Parsed};
use crate::config::source::{ConfigError, dotted};
use crate::config::widening::{FILES, MCP_FILES, confirmable, describe, merge};
use crate::config::workspace::{self, CONFIG, Trusted, WorkspaceConfig, nothing};
use crate::mcp::settings::{SERVER_FILES, ServerConfig};

/// The most workspaces with trusted settings: a state of the daemon's log has them all.
const MAX_TRUSTED: usize = 1000;

/// The most trusted settings of one workspace, in bytes of JSON.
const MAX_SETTINGS: usize = 64 << 10;

/// The workspaces that were looked at since the daemon's start.
#[derive(Debug)]
pub(super) struct Workspaces {
    seen: Mutex<HashMap<PathBuf, Arc<Seen>>>,
    trusted: Mutex<Trusted>,
    changed: mpsc::UnboundedSender<PathBuf>,
    changes: Mutex<Option<mpsc::UnboundedReceiver<PathBuf>>>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Held while the files are read, so that the last text read is the one in use.
    reading: Mutex<()>,
    now: Mutex<Arc<Now>>,
    /// The Markdown files that [`ConfigStore::survey`] was told of last, with their hashes.
    files: Mutex<BTreeMap<String, String>>,
    /// The servers of Markdown files that it was told of.
    servers: Mutex<Map<String, Value>>,
    /// A hash of the last notice of each session.
    told: Mutex<HashMap<SessionId, u64>>,
}

/// The state of a workspace's files when they were last read.
#[derive(Debug, Default)]
pub struct Now {
    /// The last texts.
    texts: Texts,
    /// The settings of the last good texts.
    found: Option<Value>,
    /// The configuration in force.
    pub config: Arc<WorkspaceConfig>,
    /// The settings in force.
    pub settings: Option<Value>,
    /// Changes that wait until a person trusts them.
    pub waiting: Option<Arc<Waiting>>,
    /// The error of `.linger/config.toml`; while there is one, everything asks.
    pub error: Option<ConfigError>,
    /// The errors of `.mcp.json`, a line each; they concern servers alone.
    problems: Vec<String>,
    /// The line of each server there.
    lines: BTreeMap<String, usize>,
    /// The servers that are not in force, or not as the files have them now.
    pub waiting_servers: Vec<WaitingServer>,
}

impl Now {
    /// The errors of the `.mcp.json` below this root, and the servers that are left out, a line each.
    pub fn server_problems(&self, root: &Path) -> Vec<String> {
        let hidden = self.config.hidden_servers.iter().map(|name| {
            let line = self.lines.get(name).map(|line| format!(":{line}")).unwrap_or_default();
            let (file, key) = (root.join(MCP_JSON), dotted(&[mcp_json::SERVERS, name]));
            format!("{}{line}: {key}: left out: {CONFIG} has one of that name", file.display())
        });
        self.problems.iter().cloned().chain(hidden).collect()
    }
}

/// A server of the files of a workspace that waits until a person trusts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingServer {
    /// As the file has it, without the workspace's.
    pub name: String,
    /// The file, below the root.
    pub file: &'static str,
    /// Its settings there.
    pub config: ServerConfig,
    /// Whether one of that name is in force, as it was trusted.
    pub is_changed: bool,
}

/// The texts of a workspace's files; absent if there is no file, or if it could not be read.
#[derive(Clone, Debug, Default, PartialEq)]
struct Texts {
    config: Option<String>,
    servers: Option<String>,
}

impl Default for Workspaces {
    fn default() -> Self {
        let (changed, changes) = mpsc::unbounded_channel();
        Self { seen: Mutex::default(), trusted: Mutex::default(), changed, changes: Mutex::new(Some(changes)) }
    }
}

impl Workspaces {
    fn seen(&self, root: &Path) -> Arc<Seen> {
        let mut seen = lock(&self.seen);
        seen.entry(root.to_path_buf()).or_default().clone()
    }
}

impl ConfigStore {
    /// Continues with what was trusted earlier.
    pub fn begin_trust(&self, trusted: Trusted) {
        *lock(&self.workspaces.trusted) = trusted;
    }

    /// The roots of workspaces about which a person is to be asked other things than before. Absent at a second call.
    pub fn trust_changes(&self) -> Option<mpsc::UnboundedReceiver<PathBuf>> {
        lock(&self.workspaces.changes).take()
    }

    /// The trusted settings that widen what may happen, a line each, by the root of the workspace.
    pub fn trusts(&self) -> BTreeMap<PathBuf, Vec<String>> {
        let trusted = lock(&self.workspaces.trusted).clone();
        let lines = |settings: &Value| merge(&nothing(), settings).changes.into_iter().map(|it| it.text).collect();
        let rows = trusted.iter().map(|(root, settings)| (root.clone(), lines(settings)));
        rows.filter(|(_, lines): &(_, Vec<String>)| !lines.is_empty()).collect()
    }

    /// The variables that trusted servers name, by the root of their workspace.
    pub fn trusted_variables(&self) -> BTreeMap<PathBuf, BTreeSet<String>> {
        let trusted = lock(&self.workspaces.trusted);
        let rows = trusted.iter().map(|(root, settings)| {
            (root.clone(), servers_of(settings).flat_map(|(_, server)| server.variables()).collect())
        });
        rows.filter(|(_, names): &(_, BTreeSet<String>)| !names.is_empty()).collect()
    }

    /// The identities of the trusted servers of all workspaces.
    pub fn trusted_servers(&self) -> BTreeSet<String> {
        let trusted = lock(&self.workspaces.trusted);
        let of = |(root, settings): (&PathBuf, &Value)| -> Vec<String> {
            let config = WorkspaceConfig::of_settings(settings, root, self.tools().current().names());
            let servers = config.map(|config| config.servers).unwrap_or_default();
            servers.into_values().map(|server| server.config.identity(Some(root))).collect()
        };
        trusted.iter().flat_map(of).collect()
    }

    /// Reads the files of a workspace, and gives what is in force. Blocks on the disk.
    pub fn look(&self, root: &Path) -> Arc<Now> {
        let seen = self.workspaces.seen(root);
        let _reading = lock(&seen.reading);
        let (config, servers) = (workspace::read(root, CONFIG), workspace::read(root, MCP_JSON));
        let before = lock(&seen.now).clone();
        let is_same = matches!((&config, &servers), (Ok(config), Ok(servers))
            if *config == before.texts.config && *servers == before.texts.servers);
        if is_same && before.found.is_some() && before.error.is_none() {
            return before;
        }
        let trusted = lock(&self.workspaces.trusted).get(root).cloned().unwrap_or_else(nothing);
        // What a broken file says is what it said last.
        let (mut found, mut servers_found) = split(before.found.clone().unwrap_or(trusted));
        let mut read = WorkspaceFiles::default();
        match parsed(config, &root.join(CONFIG), |text, file| {
            workspace::parse(text.unwrap_or_default(), file, self.tools().current().names())
        }) {
            Ok((text, settings)) => (read.texts.config, found) = (text, settings),
            Err(error) => read.error = Some(error),
        }
        match parsed(servers, &root.join(MCP_JSON), |text, file| {
            text.map_or_else(|| Ok(mcp_json::Parsed::default()), |text| mcp_json::parse(text, file, root))
        }) {
            Ok((text, Parsed { servers, lines, problems })) => {
                (read.texts.servers, servers_found) = (text, servers);
                (read.lines, read.problems) = (lines, problems);
            }
            Err(error) => (read.lines, read.problems) = (before.lines.clone(), vec![error.to_string()]),
        }
        self.settle_files(root, &seen, read, join(found, servers_found))
    }

    /// As [`Self::look`], where the workspace has these Markdown files, each with its hash: those that are trusted with it stand in
    /// the settings in force. `servers`: those of its `.linger/mcp/NAME.md`.
    pub fn survey(&self, root: &Path, files: BTreeMap<String, String>, servers: Map<String, Value>) -> Arc<Now> {
        let seen = self.workspaces.seen(root);
        let is_new = {
            let mut known = lock(&seen.files);
            let before = known.clone();
            // Those of other directories of the workspace stay while they are there.
            known.retain(|path, _| files.contains_key(path) || root.join(path).is_file());
            known.extend(files);
            let are_new = *lock(&seen.servers) != servers;
            *lock(&seen.servers) = servers;
            are_new || *known != before
        };
        let now = self.look(root);
        if is_new && now.error.is_none() {
            self.settle_again(root);
        }
        self.workspace(root).unwrap_or(now)
    }

    /// The state of a workspace when its files were last read.
    pub fn workspace(&self, root: &Path) -> Option<Arc<Now>> {
        let seen = lock(&self.workspaces.seen).get(root).cloned()?;
        let now = lock(&seen.now).clone();
        now.found.is_some().then_some(now)
    }

    /// Whether hooks of this event are trusted in some workspace.
    pub fn has_workspace_hooks(&self, event: HookEvent) -> bool {
        let is_of = |hook: &Value| hook.get("event").and_then(Value::as_str) == Some(event.name());
        let has =
            |settings: &Value| settings.get("hooks").and_then(Value::as_array).is_some_and(|it| it.iter().any(is_of));
        lock(&self.workspaces.trusted).values().any(has)
    }

    /// Puts what was found into force, without what waits.
    fn settle_files(&self, root: &Path, seen: &Seen, read: WorkspaceFiles, found: Value) -> Arc<Now> {
        let WorkspaceFiles { texts, error, problems, lines } = read;
        let trusted = lock(&self.workspaces.trusted).get(root).cloned().unwrap_or_else(nothing);
        let found = with_files(found, &lock(&seen.files), &lock(&seen.servers), &trusted);
        let mut merged = merge(&trusted, &found);
        describe(&mut merged.changes, &self.shown.of(root));
        let of_settings = WorkspaceConfig::of_settings(&merged.in_force, root, self.tools().current().names());
        let (config, error) = match of_settings {
            Ok(config) => (config, error),
            Err(wrong) => (WorkspaceConfig::default(), error.or(Some(ConfigError::whole(&root.join(CONFIG), wrong)))),
        };
        let waiting = Waiting { changes: merged.changes, settings: confirmable(&found) };
        let waiting = Some(Arc::new(waiting)).filter(|waiting| !waiting.changes.is_empty());
        // A file that is missing may be about to be replaced.
        let (in_force, in_force_servers) = split(confirmable(&merged.in_force));
        let (was, were) = split(trusted.clone());
        let kept = join(
            if texts.config.is_some() { in_force } else { was },
            if texts.servers.is_some() { in_force_servers } else { were },
        );
        if kept != trusted {
            // What narrows has to be trusted before it widens again.
            if let Err(error) = self.trust_settings(root, kept, Vec::new(), "") {
                tracing::warn!(target: "config", %error, root = %root.display(), "the narrower rules are in force, but not stored");
            }
        }
        let waiting_servers = waiting_servers(&found, &merged.in_force);
        let (config, settings, found) = (Arc::new(config), Some(merged.in_force), Some(found));
        let now = Arc::new(Now { texts, found, config, settings, waiting, error, problems, lines, waiting_servers });
        let before = std::mem::replace(&mut *lock(&seen.now), now.clone());
        if before.waiting != now.waiting {
            // Without a receiver no person is asked, as in tests.
            let _asked = self.workspaces.changed.send(root.to_path_buf());
        }
        now
    }

    /// Trusts what waits in a workspace, if it and the files are still the same. Blocks on the disk.
    pub fn trust(&self, root: &Path, shown: &Waiting, by: &str) -> Result<(), EditError> {
        let now = self.look(root);
        let waiting = now.waiting.as_ref().filter(|waiting| ***waiting == *shown).ok_or(EditError::Stale)?;
        self.trust_settings(root, waiting.settings.clone(), waiting.lines(), by)?;
        self.settle_again(root);
        Ok(())
    }

    /// Trusts nothing of a workspace any more; whether anything was. Blocks on the disk.
    pub fn distrust(&self, root: &Path, by: &str) -> Result<bool, EditError> {
        if !lock(&self.workspaces.trusted).contains_key(root) {
            return Ok(false);
        }
        self.trust_settings(root, Value::Null, vec!["nothing is trusted any more".to_owned()], by)?;
        self.settle_again(root);
        Ok(true)
    }

    fn settle_again(&self, root: &Path) {
        let seen = self.workspaces.seen(root);
        let _reading = lock(&seen.reading);
        let now = lock(&seen.now).clone();
        let (texts, error) = (now.texts.clone(), now.error.clone());
        let (problems, lines) = (now.problems.clone(), now.lines.clone());
        // A broken one stays as it is.
        if let (Some(found), None) = (now.found.clone(), &error) {
            self.settle_files(root, &seen, WorkspaceFiles { texts, error, problems, lines }, found);
        }
    }

    /// Stores what is trusted of a workspace, and uses it from then on.
    fn trust_settings(&self, root: &Path, settings: Value, changes: Vec<String>, by: &str) -> Result<(), EditError> {
        let is_new = !lock(&self.workspaces.trusted).contains_key(root);
        if settings.to_string().len() > MAX_SETTINGS || is_new && lock(&self.workspaces.trusted).len() >= MAX_TRUSTED {
            let limit = format!("{MAX_TRUSTED} workspaces can be trusted, each with {MAX_SETTINGS} bytes of settings");
            return Err(EditError::Refused(ConfigError::whole(&root.join(CONFIG), limit)));
        }
        let workspace = Some(root.to_path_buf());
        self.store(Confirmed { settings: settings.clone(), changes, by: by.to_owned(), workspace })?;
        let mut trusted = lock(&self.workspaces.trusted);
        match settings {
            Value::Null => drop(trusted.remove(root)),
            settings => drop(trusted.insert(root.to_path_buf(), settings)),
        }
        Ok(())
    }

    /// The notice about its workspace that a session has not had yet.
    pub fn news_of_workspace(&self, root: &Path, session: &SessionId) -> Option<String> {
        let seen = lock(&self.workspaces.seen).get(root).cloned()?;
        let now = lock(&seen.now).clone();
        let mut said = now.server_problems(root);
        match (&now.error, &now.waiting) {
            (Some(error), _) => said.push(format!("{error}; until it is corrected, everything here asks")),
            (None, Some(waiting)) => {
                let count = match waiting.changes.len() {
                    1 => "1 setting".to_owned(),
                    more => format!("{more} settings"),
                };
                let has = |file: &str| {
                    waiting.changes.iter().any(|change| change.is_of(mcp_json::SERVERS) == (file == MCP_JSON))
                };
                let mut files: Vec<String> = [CONFIG, MCP_JSON]
                    .into_iter()
                    .filter(|file| has(file))
                    .map(|file| root.join(file).display().to_string())
                    .collect();
                if waiting.changes.iter().any(|change| change.is_of(FILES) || change.is_of(MCP_FILES)) {
                    // There may be too many to name.
                    files = vec![root.display().to_string()];
                }
                let files = files.join(" and ");
                said.push(format!(
                    "{count} of {files} not in force until you trust it: `linger trust` shows what, and asks"
                ));
            }
            (None, None) => {}
        }
        if said.is_empty() {
            return lock(&seen.told).remove(session).and(None);
        }
        let text = said.join("; ");
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        now.waiting.iter().for_each(|waiting| waiting.lines().hash(&mut hasher));
        let hash = hasher.finish();
        (lock(&seen.told).insert(session.clone(), hash) != Some(hash)).then_some(text)
    }
}

/// The result of reading the files of a workspace.
#[derive(Default)]
struct WorkspaceFiles {
    texts: Texts,
    error: Option<ConfigError>,
    problems: Vec<String>,
    lines: BTreeMap<String, usize>,
}

/// The text of a file, and what it means.
fn parsed<T>(
    read: io::Result<Option<String>>,
    file: &Path,
    parse: impl FnOnce(Option<&str>, &Path) -> Result<T, ConfigError>,
) -> Result<(Option<String>, T), ConfigError> {
    let text = read.map_err(|error| ConfigError::whole(file, error))?;
    let meaning = parse(text.as_deref(), file)?;
    Ok((text, meaning))
}

/// The settings of `.linger/config.toml`, and the servers of `.mcp.json`.
fn split(mut settings: Value) -> (Value, Map<String, Value>) {
    match settings.as_object_mut().and_then(|all| all.shift_remove(mcp_json::SERVERS)) {
        Some(Value::Object(servers)) => (settings, servers),
        _ => (settings, Map::new()),
    }
}

fn join(mut settings: Value, servers: Map<String, Value>) -> Value {
    if let Some(all) = settings.as_object_mut().filter(|_| !servers.is_empty()) {
        all.insert(mcp_json::SERVERS.to_owned(), Value::Object(servers));
    }
    settings
}

/// The servers of the files that are not in force as they are there.
fn waiting_servers(found: &Value, in_force: &Value) -> Vec<WaitingServer> {
    let mut waiting = Vec::new();
    for (section, file) in [("mcp", CONFIG), (mcp_json::SERVERS, MCP_JSON), (MCP_FILES, SERVER_FILES)] {
        let servers = found.get(section).and_then(Value::as_object);
        for (name, found) in servers.into_iter().flatten() {
            let now = in_force.get(section).and_then(|servers| servers.get(name));
            let config = ServerConfig::deserialize(found).ok().filter(|_| now != Some(found));
            waiting.extend(config.map(|config| WaitingServer {
                name: name.clone(),
                file,
                config,
                is_changed: now.is_some(),
            }));
        }
    }
    waiting
}

/// The servers among trusted settings, by name.
fn servers_of(settings: &Value) -> impl Iterator<Item = (&String, ServerConfig)> {
    let sections =
        ["mcp", mcp_json::SERVERS, MCP_FILES].into_iter().filter_map(|section| settings.get(section)?.as_object());
    sections.flatten().filter_map(|(name, server)| Some((name, ServerConfig::deserialize(server).ok()?)))
}

/// The settings of a file with the hashes of the Markdown files. A trusted file that is gone stays trusted: it may lie below another
/// directory than the session's, and with another content it asks again.
fn with_files(
    mut found: Value,
    files: &BTreeMap<String, String>,
    servers: &Map<String, Value>,
    trusted: &Value,
) -> Value {
    let mut all = trusted.get(FILES).and_then(Value::as_object).cloned().unwrap_or_default();
    all.extend(files.iter().map(|(path, hash)| (path.clone(), Value::from(hash.as_str()))));
    if let Some(table) = found.as_object_mut() {
        table.shift_remove(FILES);
        table.shift_remove(MCP_FILES);
        if !servers.is_empty() {
            table.insert(MCP_FILES.to_owned(), Value::Object(servers.clone()));
        }
        if !all.is_empty() {
            table.insert(FILES.to_owned(), Value::Object(all));
        }
    }
    found
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "trust_tests.rs"]
mod tests;
