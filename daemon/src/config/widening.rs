//! Changes of the configuration that widen what may happen: they wait until a person confirms them.
//!
//! Pure: [`merge`] compares the settings of the file with those that were last confirmed, and says which are in force and what
//! waits. [`KEYS`] says for each key which changes widen; a key that is missing there waits whenever it changes, and fails a test.
//! Settings are JSON objects, with the structure of the file.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::mcp_json;
use super::shown::{self, ShownFile};
use super::source::dotted;
use crate::provider::catalogue::ProviderKind;
use crate::provider::preset::{self, Preset};

/// The key of the settings that has the hashes of Markdown files; no file sets it.
pub const FILES: &str = "files";

/// The key of the settings with the servers of `mcp/NAME.md`; no file sets it.
pub const MCP_FILES: &str = "mcp_files";

/// Which changes of a key widen what may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Widens {
    /// None: all count at once.
    Never,
    /// A mode that asks less.
    Mode,
    /// Entries that are added to the list.
    Added,
    /// Entries that are removed from the list.
    Removed,
    /// Anything else than `true`, where it was.
    Off,
    /// Every other value; the key may be removed.
    Value,
    /// Every change; the key may not be removed either.
    Change,
    /// Every change of where a provider's key goes: the keys of this kind in a table count together.
    KeyRoute,
}

use Widens::{Added, Change as Changed, KeyRoute, Mode, Never, Off, Removed, Value as Other};

/// All keys: `*` is any name; a table without further rows counts as one value. With what a change means, in a few words.
const KEYS: &[(&str, Widens, &str)] = &[
    ("model", Never, ""),
    ("titles", Never, ""),
    ("mode", Mode, ""),
    ("unattended", Never, ""),
    ("unknown_price", Never, ""),
    ("max_steps", Never, ""),
    ("memory", Never, ""),
    ("compact_at", Never, ""),
    ("after_restart", Never, ""),
    ("idle_unload_s", Never, ""),
    ("retention", Never, ""),
    ("blobs", Never, ""),
    ("tools.bash_timeout_s", Never, ""),
    ("tools.mcp_direct_percent", Never, ""),
    ("tools.image", Never, ""),
    ("models.*.apply_patch", Never, ""),
    ("delegate", Never, ""),
    ("tools.fetch_private", Added, "`fetch` reaches this private address"),
    ("env.pass", Added, "tools get this variable"),
    ("env.deny", Removed, "tools get this variable"),
    ("permissions.allow", Added, "runs without asking"),
    ("permissions.ask", Removed, "no longer asks"),
    ("permissions.deny", Removed, "is no longer refused"),
    ("permissions.ask_reads", Off, "commands that only read run without asking"),
    ("workspaces.*.allow", Added, "runs there without asking"),
    ("workspaces.*.deny", Removed, "is no longer refused there"),
    ("providers.*.kind", KeyRoute, "how its key is sent"),
    ("providers.*.base_url", KeyRoute, "where its key goes"),
    ("providers.*.api_key_env", KeyRoute, "the key in this variable"),
    ("providers.*.api_key_command", KeyRoute, "a command that linger runs to get the key"),
    ("providers.*.headers", KeyRoute, "sent with its requests"),
    ("providers.*.query", KeyRoute, "sent with its requests"),
    ("providers.*.body", Never, ""),
    ("providers.*.model", Never, ""),
    ("providers.*.max_tokens", Never, ""),
    ("providers.*.idle_timeout_ms", Never, ""),
    ("providers.*.connect_timeout_ms", Never, ""),
    ("providers.*.first_byte_timeout_ms", Never, ""),
    ("providers.*.total_timeout_ms", Never, ""),
    ("providers.*.patience", Never, ""),
    ("providers.*.hosted_tools", Never, ""),
    ("providers.*.compat", Never, ""),
    ("models.*.headers", Other, "sent with its requests"),
    ("models.*.query", Other, "sent with its requests"),
    ("models.*.body", Never, ""),
    ("models.*.context_window", Never, ""),
    ("models.*.max_output", Never, ""),
    ("models.*.input_price", Never, ""),
    ("models.*.output_price", Never, ""),
    ("models.*.cache_read_price", Never, ""),
    ("models.*.cache_write_price", Never, ""),
    ("models.*.effort", Never, ""),
    ("models.*.fallback", Never, ""),
    ("models.*.fallback_after", Never, ""),
    ("network.proxy", Changed, "where requests go"),
    ("network.no_proxy", Changed, "hosts that bypass the proxy"),
    ("network.proxy_loopback", Changed, "whether local requests use the proxy"),
    ("network.ca_file", Other, "trusted certificates"),
    ("hooks", Changed, "shell hooks: run at calls, prompts and turn end"),
    ("attention.command", Other, "a command that linger runs when a session needs you"),
    ("attention.desktop", Other, "linger runs `notify-send` when a session needs you"),
    ("attention.terminal", Never, ""),
    ("attention.again_after", Never, ""),
    ("attention.turn_end", Never, ""),
    ("gateway.listen", Other, "where the gateway listens"),
    ("gateway.public_url", Other, "the gateway answers under this name"),
    ("gateway.origins", Added, "pages of this origin may use the gateway, with a token"),
    ("gateway.max_connections", Never, ""),
    ("gateway.models", Never, ""),
    ("files.*", Other, "an agent, command, tool or skill"),
    ("mcp.*", Other, "an MCP server that linger starts or calls"),
];

/// How much of a file's hash its change shows, in characters: `sha256:` and 128 bits.
const SHOWN_HASH: usize = 7 + 32;

/// The row of a key, if it has one.
fn row(path: &[String]) -> Option<&'static (&'static str, Widens, &'static str)> {
    // The servers of other files count as those of the configuration.
    let is = |part: &str, name: &str| {
        part == "*" || part == name || part == "mcp" && [mcp_json::SERVERS, MCP_FILES].contains(&name)
    };
    KEYS.iter().find(|(pattern, ..)| {
        let parts = pattern.split('.');
        parts.clone().count() == path.len() && parts.zip(path).all(|(part, name)| is(part, name))
    })
}

fn widens(path: &[String]) -> Option<Widens> {
    row(path).map(|(_, widens, _)| *widens)
}

/// A change that waits.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    /// The key.
    path: Vec<String>,
    edit: Edit,
    /// The change, in one line.
    pub(super) text: String,
    /// The whole text of a file that would count.
    whole: Option<String>,
}

/// Says of each file that would count what it is, and has its whole text stand with the change.
pub(super) fn describe(changes: &mut [Change], files: &BTreeMap<String, ShownFile>) {
    for change in changes.iter_mut().filter(|change| change.is_of(FILES)) {
        let (Some(path), Edit::Set(Some(hash))) = (change.path.get(1), &change.edit) else { continue };
        let Some(file) = files.get(path).filter(|file| hash.as_str() == Some(&file.digest)) else { continue };
        let means = row(&change.path).map_or("", |(.., means)| means);
        let said = change.text.strip_suffix(&format!(" ({means})")).unwrap_or(&change.text);
        change.text = format!("{said} ({})", file.about);
        change.whole = Some(file.text.clone());
    }
}

impl Change {
    /// The change, with the whole text of a file below it.
    pub(super) fn shown(&self) -> String {
        let whole = self.whole.as_deref().map(shown::quoted).unwrap_or_default();
        format!("{}{whole}", self.text)
    }

    /// Whether it is in this section of the file.
    pub(super) fn is_of(&self, section: &str) -> bool {
        self.path.first().is_some_and(|first| first == section)
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Edit {
    /// Adds an entry to a list.
    Add(Value),
    /// Removes an entry from a list.
    Remove(Value),
    /// Sets a value, or removes the key.
    Set(Option<Value>),
}

/// A file compared with the confirmed settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Merged {
    /// The settings in force: the file's, without the changes that wait.
    pub(super) in_force: Value,
    /// The changes that wait.
    pub(super) changes: Vec<Change>,
}

/// Compares the settings of a file with the confirmed ones.
pub(super) fn merge(confirmed: &Value, found: &Value) -> Merged {
    let mut merge = Merge { found, path: Vec::new(), changes: Vec::new() };
    let in_force = merge.table(confirmed.as_object(), found.as_object()).unwrap_or_default();
    Merged { in_force: Value::Object(in_force), changes: merge.changes }
}

/// The line of [`Confirmed::changes`](super::Confirmed) for a rule that an `allow_always` answer adds.
pub fn always_line(root: &str, rule: &str) -> String {
    let path: Vec<String> = ["workspaces", root, "allow"].map(str::to_owned).into();
    let means = row(&path).map_or("", |(.., means)| means);
    format!("{}: add {} ({means})", dotted(&["workspaces", root, "allow"]), Value::from(rule))
}

/// The part of `settings` that has to be confirmed.
pub(super) fn confirmable(settings: &Value) -> Value {
    fn part(path: &mut Vec<String>, value: &Value) -> Option<Value> {
        match (widens(path), value) {
            (Some(Never), _) => None,
            (None, Value::Object(table)) => {
                let parts = table.iter().filter_map(|(name, value)| {
                    path.push(name.clone());
                    let part = part(path, value);
                    path.pop();
                    Some((name.clone(), part?))
                });
                let parts: Map<String, Value> = parts.collect();
                (!parts.is_empty()).then_some(Value::Object(parts))
            }
            _ => Some(value.clone()),
        }
    }
    part(&mut Vec::new(), settings).unwrap_or_else(|| Value::Object(Map::new()))
}

/// The confirmed settings once these changes are confirmed too.
pub(super) fn with(confirmed: &Value, changes: &[Change]) -> Value {
    let mut settings = confirmed.clone();
    for change in changes {
        apply(&mut settings, &change.path, change);
    }
    settings
}

fn apply(at: &mut Value, path: &[String], change: &Change) {
    let [name, rest @ ..] = path else { return };
    if !at.is_object() {
        *at = Value::Object(Map::new());
    }
    let Some(table) = at.as_object_mut() else { return };
    if !rest.is_empty() {
        return apply(table.entry(name).or_insert(Value::Null), rest, change);
    }
    match &change.edit {
        Edit::Set(None) => drop(table.shift_remove(name)),
        Edit::Set(Some(value)) => drop(table.insert(name.clone(), value.clone())),
        Edit::Add(entry) => {
            if let Some(list) = table.entry(name).or_insert_with(|| Value::Array(Vec::new())).as_array_mut() {
                list.push(entry.clone());
            }
        }
        Edit::Remove(entry) => {
            if let Some(list) = table.get_mut(name).and_then(Value::as_array_mut) {
                list.retain(|it| it != entry);
            }
        }
    }
}

struct Merge<'a> {
    found: &'a Value,
    path: Vec<String>,
    changes: Vec<Change>,
}

type Table = Map<String, Value>;

impl Merge<'_> {
    /// Merges a table; `None` if it is not in force at all.
    fn table(&mut self, confirmed: Option<&Table>, found: Option<&Table>) -> Option<Table> {
        let (confirmed_part, found_part) = (self.route(confirmed), self.route(found));
        let route = if self.route_waits(&confirmed_part, &found_part) { confirmed_part } else { found_part };
        let names = found.into_iter().chain(confirmed).flat_map(|table| table.keys());
        let mut seen = BTreeSet::new();
        let mut merged = Table::new();
        for name in names.filter(|name| seen.insert(name.as_str())) {
            let get = |table: Option<&Table>| table.and_then(|table| table.get(name)).cloned();
            self.path.push(name.clone());
            let value = match widens(&self.path) {
                Some(KeyRoute) => self.routed(get(confirmed), get(found), &route, name),
                _ => self.key(get(confirmed).as_ref(), get(found).as_ref()),
            };
            self.path.pop();
            merged.extend(value.map(|value| (name.clone(), value)));
        }
        // A provider that is not confirmed does not exist, unless it is built in.
        let [section, name] = self.path.as_slice() else { return Some(merged) };
        let exists = section != "providers" || merged.contains_key("kind") || preset::named(name).is_some();
        exists.then_some(merged)
    }

    /// Merges one key.
    fn key(&mut self, confirmed: Option<&Value>, found: Option<&Value>) -> Option<Value> {
        match widens(&self.path) {
            Some(Never) => found.cloned(),
            Some(Mode) => self.mode(confirmed, found),
            Some(Added) => self.added(confirmed, found),
            Some(Removed) => self.removed(confirmed, found),
            Some(Off) if found == Some(&Value::Bool(true)) || confirmed != Some(&Value::Bool(true)) => found.cloned(),
            Some(Other) if found.is_none() => None,
            None if [confirmed, found].into_iter().flatten().all(Value::is_object) => {
                let merged = self.table(confirmed.and_then(Value::as_object), found.and_then(Value::as_object))?;
                (!merged.is_empty() || found.is_some()).then_some(Value::Object(merged))
            }
            // A key without a row too.
            Some(Off | Other | Changed | KeyRoute) | None => self.value(confirmed, found),
        }
    }

    fn value(&mut self, confirmed: Option<&Value>, found: Option<&Value>) -> Option<Value> {
        if confirmed == found {
            return confirmed.cloned();
        }
        let means = row(&self.path).map_or("", |(.., means)| means);
        match self.path.as_slice() {
            [section, _] if section == "mcp" => return self.server(confirmed, found, means),
            _ => self.set(confirmed, found, means),
        }
        confirmed.cloned()
    }

    /// Merges an MCP server that changes; `can` may shrink without a person.
    fn server(&mut self, confirmed: Option<&Value>, found: Option<&Value>, means: &str) -> Option<Value> {
        const CAN: &str = "can";
        let can = |server: Option<&Value>| entries(server.and_then(|server| server.get(CAN)));
        let (had, has) = (can(confirmed), can(found));
        let can_more = has.iter().any(|right| !had.contains(right));
        let rest = |server: Option<&Value>| {
            let mut rest = server.and_then(Value::as_object).cloned().unwrap_or_default();
            rest.shift_remove(CAN);
            rest
        };
        if !can_more && rest(confirmed) == rest(found) {
            return found.cloned();
        }
        let means = if can_more { format!("{means}; `can` lets it work with sessions") } else { means.to_owned() };
        let mut kept = confirmed.cloned();
        if let Some(table) = kept.as_mut().and_then(Value::as_object_mut)
            && table.shift_remove(CAN).is_some()
        {
            let left: Vec<Value> = had.into_iter().filter(|right| has.contains(right)).collect();
            table.extend((!left.is_empty()).then(|| (CAN.to_owned(), Value::Array(left))));
        }
        self.set(kept.as_ref(), found, &means);
        kept
    }

    fn mode(&mut self, confirmed: Option<&Value>, found: Option<&Value>) -> Option<Value> {
        const LEAST_FIRST: [(&str, &str); 4] = [
            ("plan", ""),
            ("ask", "changes are no longer refused, but ask"),
            ("edit", "changes to files in the workspace run without asking"),
            ("auto", "everything runs without asking"),
        ];
        let rank = |mode: Option<&Value>| {
            let name = mode.and_then(Value::as_str).unwrap_or("ask");
            LEAST_FIRST.iter().position(|(mode, _)| *mode == name).unwrap_or(LEAST_FIRST.len())
        };
        if rank(found) <= rank(confirmed) {
            return found.cloned();
        }
        self.set(confirmed, found, LEAST_FIRST.get(rank(found)).map_or("", |(_, means)| means));
        confirmed.cloned()
    }

    fn added(&mut self, confirmed: Option<&Value>, found: Option<&Value>) -> Option<Value> {
        let (confirmed, list) = (entries(confirmed), entries(found));
        let (known, new): (Vec<Value>, Vec<Value>) = list.into_iter().partition(|entry| confirmed.contains(entry));
        if new.is_empty() {
            return found.cloned();
        }
        for entry in new {
            self.change("add", entry.clone(), Edit::Add(entry));
        }
        Some(Value::Array(known))
    }

    fn removed(&mut self, confirmed: Option<&Value>, found: Option<&Value>) -> Option<Value> {
        let (confirmed, mut list) = (entries(confirmed), entries(found));
        // A call that a rule asked about may be refused instead.
        let denied = entries(self.found.pointer("/permissions/deny"));
        let is_kept = |entry: &Value| !list.contains(entry) && !denied.contains(entry);
        let kept: Vec<Value> = confirmed.into_iter().filter(is_kept).collect();
        if kept.is_empty() {
            return found.cloned();
        }
        for entry in kept {
            self.change("remove", entry.clone(), Edit::Remove(entry.clone()));
            list.push(entry);
        }
        Some(Value::Array(list))
    }

    /// The keys of a provider that decide where its key goes.
    fn route(&self, table: Option<&Table>) -> Table {
        let is_route = |name: &String| {
            let path: Vec<String> = self.path.iter().chain([name]).cloned().collect();
            widens(&path) == Some(KeyRoute)
        };
        table.into_iter().flatten().filter(|(name, _)| is_route(name)).map(|(k, v)| (k.clone(), v.clone())).collect()
    }

    /// Whether a changed route waits. A removed one is the built-in one, or none.
    fn route_waits(&self, confirmed: &Table, found: &Table) -> bool {
        let name = self.path.last().map_or("", String::as_str);
        let is_same = |key: &str| confirmed.get(key) == found.get(key);
        let loses_key = !takes_key(name, found) && ["kind", "base_url"].into_iter().all(is_same);
        confirmed != found && !found.is_empty() && !loses_key && (takes_key(name, confirmed) || takes_key(name, found))
    }

    /// A key of a provider's route, and the change if the route waits.
    fn routed(&mut self, confirmed: Option<Value>, found: Option<Value>, route: &Table, name: &str) -> Option<Value> {
        let in_force = route.get(name).cloned();
        if in_force != found {
            let (provider, all) = match self.path.as_slice() {
                [section, provider, _] => (provider.as_str(), self.found.get(section).and_then(|it| it.get(provider))),
                _ => ("", None),
            };
            let goes_to = all.and_then(Value::as_object).and_then(|all| Some(address(provider, all)?.to_owned()));
            let means = row(&self.path).map_or("", |(.., means)| means);
            let means = match goes_to.filter(|_| name != "base_url") {
                Some(address) if found.is_some() => format!("{means}, which goes to {address}"),
                _ => means.to_owned(),
            };
            self.set(confirmed.as_ref(), found.as_ref(), &means);
        }
        in_force
    }

    fn change(&mut self, verb: &str, entry: Value, edit: Edit) {
        let means = row(&self.path).map_or("", |(.., means)| means);
        let text = format!("{}: {verb} {entry} ({means})", self.name());
        self.changes.push(Change { path: self.path.clone(), edit, text, whole: None });
    }

    fn set(&mut self, confirmed: Option<&Value>, found: Option<&Value>, means: &str) {
        let change = match (confirmed, found) {
            // Enough of it that no two contents have the same line, and no more: people don't compare hashes.
            (before, Some(now)) if self.path.first().is_some_and(|key| key == FILES) => {
                let hash: String = now.as_str().unwrap_or_default().chars().take(SHOWN_HASH).collect();
                format!("{}, {hash}", before.map_or("new", |_| "changed"))
            }
            (Some(before), Some(now)) => format!("{now} in place of {before}"),
            (None, Some(now)) => format!("{now}, new"),
            (Some(before), None) => format!("no longer {before}"),
            (None, None) => String::new(),
        };
        let means = if means.is_empty() { String::new() } else { format!(" ({means})") };
        let text = format!("{}: {change}{means}", self.name());
        self.changes.push(Change { path: self.path.clone(), edit: Edit::Set(found.cloned()), text, whole: None });
    }

    fn name(&self) -> String {
        dotted(&self.path.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

/// The entries of a list.
fn entries(list: Option<&Value>) -> Vec<Value> {
    list.and_then(Value::as_array).cloned().unwrap_or_default()
}

/// The built-in provider whose place a provider with this route has.
fn place(name: &str, route: &Table) -> Option<&'static Preset> {
    match route.get("base_url").and_then(Value::as_str) {
        Some(url) => preset::by_address(url),
        None => preset::named(name).or_else(|| {
            let kind = serde_json::from_value::<ProviderKind>(route.get("kind")?.clone()).ok()?;
            preset::vendor(kind)
        }),
    }
}

/// Whether a provider with this route gets a key.
fn takes_key(name: &str, route: &Table) -> bool {
    let own = ["api_key_env", "api_key_command", "headers", "query"].into_iter().any(|key| route.contains_key(key));
    own || place(name, route).is_some_and(|place| !place.variable.is_empty() || !place.command.is_empty())
}

/// The address of a provider with this route.
fn address<'a>(name: &str, route: &'a Table) -> Option<&'a str> {
    let own = route.get("base_url").and_then(Value::as_str);
    own.or_else(|| Some(place(name, route)?.base_url)).filter(|address| !address.is_empty())
}

#[cfg(test)]
#[path = "widening_tests.rs"]
mod tests;
