//! The daemon itself: parameters and results of `daemon/*`, `model/list` and `tool/list`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::attention::Signal;
use crate::event::ToolKind;
use crate::gateway::RunningGateway;
use crate::id::SessionId;
use crate::message::HostedTool;
use crate::session::Effort;
use crate::token::{Behind, Grant};

/// No parameters, or a result that says nothing but that it was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Empty {}

/// `daemon/hello`: agrees on a protocol version; the first thing a client says.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hello {
    /// The client's name, as others see it in `by`: a program and its terminal, such as `linger@pts/3`.
    pub client: String,
    /// The oldest and the newest protocol version that the client speaks.
    pub protocol: [u32; 2],
    /// A token: the connection may do what its grant allows, and nothing that is for a user's own processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// For a face: the process that it speaks for. Without a token such a connection may only exchange a code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<Behind>,
    /// For the gateway, which only a process of the user's own can be: where it listens, for `daemon/status`, while this connection
    /// lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<RunningGateway>,
}

impl std::fmt::Debug for Hello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { client, protocol, token, behind, gateway } = self;
        let has_token = token.is_some();
        f.debug_struct("Hello")
            .field("client", client)
            .field("protocol", protocol)
            .field("has_token", &has_token)
            .field("behind", behind)
            .field("gateway", gateway)
            .finish()
    }
}

/// The result of `daemon/hello`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Welcome {
    /// The protocol version that both speak.
    pub protocol: u32,
    /// The daemon's version.
    pub version: String,
    /// The grant of the connection's token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Grant>,
    /// Names of variables that `session/create` takes in `env` whatever they look like, and some that every session should have.
    pub env: Vec<String>,
    /// Names of variables that it never takes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_deny: Vec<String>,
    /// Names of variables that hold keys which the daemon could use and does not have; see `daemon/keys`.
    pub keys: Vec<String>,
    /// Variables that the trusted MCP servers of workspaces name and the daemon does not have, by the root of the workspace; see
    /// `daemon/keys`.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        with = "crate::path::PathText::<BTreeMap<PathBuf, Vec<String>>>"
    )]
    pub workspace_keys: BTreeMap<PathBuf, Vec<String>>,
    /// How a terminal draws attention to a session that needs an answer or has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<Signal>,
    /// The error of the configuration now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_error: Option<String>,
    /// It was good before, and what it said then stays in force; otherwise no turn begins until it is mended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub config_stale: bool,
    /// Settings without effect, or with a surprising one, a line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config_warnings: Vec<String>,
    /// Damage to stored data that the user should know of, a line each; `daemon/status` says more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<String>,
}

/// `daemon/keys`: brings provider keys, which stay in the daemon's memory. It has no idempotency key: sent again it is the same,
/// and after a restart it has to have its effect again.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Keys {
    /// Variable name to key; names that no provider uses are ignored.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub keys: BTreeMap<String, String>,
    /// Variables for the MCP servers of the files of a workspace, by its root: name to value. Others get none of them.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        with = "crate::path::PathText::<BTreeMap<PathBuf, BTreeMap<String, String>>>"
    )]
    pub workspace_keys: BTreeMap<PathBuf, BTreeMap<String, String>>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of_workspaces = self.workspace_keys.values().flat_map(BTreeMap::keys);
        f.debug_set().entries(self.keys.keys().chain(of_workspaces)).finish()
    }
}

/// The result of `daemon/status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// The protocol versions that it speaks.
    pub protocol: [u32; 2],
    /// Its process.
    pub pid: u32,
    /// The process that restarts it when it dies: the one to send a signal to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeper: Option<u32>,
    /// How often it died and was restarted since its keeper started.
    #[serde(default)]
    pub restarts: u32,
    /// When it started, in Unix milliseconds.
    pub started_at: u64,
    /// The path that clients connect to.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub socket: PathBuf,
    /// The path of the SQLite file.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub database: PathBuf,
    /// Its log file.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub log: PathBuf,
    /// Why nothing can be written there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_error: Option<String>,
    /// The configuration file that it reads.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub config: PathBuf,
    /// The error of the configuration: file, line and key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_error: Option<String>,
    /// Settings without effect, or with a surprising one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config_warnings: Vec<String>,
    /// The model of new sessions, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Sessions in the database.
    pub sessions: u32,
    /// Sessions with a running turn.
    pub running: u32,
    /// Permissions that wait.
    pub permissions: u32,
    /// Questions of any kind that wait for an answer, permissions among them.
    #[serde(default)]
    pub questions: u32,
    /// Tokens that are valid; see `token/list`.
    #[serde(default)]
    pub tokens: u32,
    /// Clients that are connected, this one included.
    pub connections: u32,
    /// Damage to what is stored, and what became of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<Damage>,
    /// The space that is taken on the disk, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
    /// The gateway that is connected, if one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<RunningGateway>,
    /// The proxies that requests to providers go through, a line each, without passwords.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proxies: Vec<String>,
}

/// A piece of damage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Damage {
    /// The thing that is damaged.
    pub what: Damaged,
    /// The session, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Where it was set aside, unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub file: Option<PathBuf>,
    /// When it was found, in Unix milliseconds; 0 if unknown.
    pub at: u64,
    /// The damage, in one line.
    pub text: String,
    /// The next thing to do about it; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Sessions that were carried over whole from what was set aside.
    #[serde(default)]
    pub carried: u32,
    /// Sessions that were not, or only a part of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<Left>,
    /// The missing part cannot be read any more, and is in `file` alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
}

/// A thing that can be damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::open)]
#[serde(rename_all = "snake_case")]
pub enum Damaged {
    /// The database that is in use.
    InUse,
    /// A database that was set aside.
    Database,
    /// A database that a newer linger wrote, and that was set aside.
    Newer,
    /// The end of a WAL, of which a copy was kept.
    Wal,
    /// A session in the database that is in use.
    Session,
    /// Nothing can be written just now, of some sessions at least.
    Unwritten,
    /// An image or a whole output, whose file is missing or has other bytes.
    Blob,
    /// Something that this build does not know.
    #[serde(other)]
    Unknown,
}

/// A session that was not carried over whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Left {
    /// The session whose events are not all there.
    pub session: SessionId,
    /// How many of its events were carried over; each of the others has a `lost` in its place.
    pub events: u64,
    /// How many it is known to have had; 0 if nothing is known of that.
    #[serde(default)]
    pub of: u64,
    /// The damage to the rest.
    pub text: String,
}

/// The result of `daemon/check`, which reads what is stored for some seconds at most and changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checked {
    /// Whether everything was read.
    #[serde(default)]
    pub complete: bool,
    /// Whether `lingerd --recover` could save something.
    #[serde(default)]
    pub repairable: bool,
    /// Damage, the files that were set aside, and their outcome.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<Damage>,
}

/// The output of `lingerd --recover` once it has saved what can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// The files that were set aside and their outcome; blobs that are lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<Damage>,
}

/// The space that is taken on the disk, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Storage {
    /// The size of the SQLite file.
    pub database: u64,
    /// The part of it that holds nothing any more.
    pub unused: u64,
    /// Recent writes that are not in the database file yet.
    pub wal: u64,
    /// Images and whole outputs.
    pub blobs: u64,
    /// The log files.
    pub log: u64,
    /// Free space on the file system of the database.
    pub free: u64,
}

/// `daemon/stop`: ends the daemon; running turns continue when it starts again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stop {
    /// Also while a turn is running.
    #[serde(default)]
    pub force: bool,
    /// At once: tool calls that run do not get 10 s to end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub now: bool,
    /// Idempotency key: sent again with it, after a new start too, the request ends nothing more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// `model/list`: the models that can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Models {
    /// All that the providers have: those that can be used are asked, at once and not for long. Without it each has one row, with
    /// the model that it begins with.
    #[serde(default)]
    pub all: bool,
    /// Only models that can be used now and whose names are known: from the lists that providers have given, which are renewed in
    /// the background, or else from linger's own table. A provider that was never asked for its list is, for two seconds at most.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub known: bool,
    /// Only this one, as `provider/model`; no server is asked. No row if its provider is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// A row of `model/list`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Model {
    /// `provider/model`.
    pub model: String,
    /// The wire format.
    pub kind: String,
    /// Where requests go; absent for `demo`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Whether it can be used now: its key is there, or it needs none.
    pub ready: bool,
    /// The missing key or setting, if it cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Whether new sessions use it.
    pub default: bool,
    /// Why its provider's list of models is not here, though it was asked for one; the row stands for the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Whether the provider's server was contacted for this row.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub contacted: bool,
    /// How many tokens a request may have; absent if that is unknown, and so are the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// How many tokens an answer may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// The price of a request's tokens that no cache had, in US dollars per million.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_price: Option<f64>,
    /// The price of an answer's tokens, in US dollars per million.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_price: Option<f64>,
    /// The price of tokens that were read from the cache, in US dollars per million.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read_price: Option<f64>,
    /// The price of tokens that were written to the cache, in US dollars per million.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_price: Option<f64>,
    /// Requests with more tokens than this cost more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dearer_above: Option<u64>,
    /// The efforts that it takes beside `auto`; of those that come to the same, one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub efforts: Vec<Effort>,
    /// Tools that run at the provider and that the configuration switches on for this model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosted_tools: Vec<HostedTool>,
}

/// `tool/list`: the tools of a session, or without one those of a new session in a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tools {
    /// Absent to ask about a new session in `cwd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The directory, absolute; without it and without a session the rows have no `verdict`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub cwd: Option<PathBuf>,
}

/// The effect of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolEffect {
    /// Reads files.
    Reads,
    /// Writes files.
    Writes,
    /// Runs commands.
    Runs,
    /// Talks to other machines.
    Network,
    /// Shows something to the user, or asks.
    Asks,
    /// Unknown: it is up to the MCP server.
    #[default]
    #[serde(other)]
    Unknown,
}

/// The verdict of rules and mode on a plain call: within the workspace, to a host or with a command that no rule names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolVerdict {
    /// `allow`, `ask` or `deny`.
    pub verdict: ToolDecision,
    /// The rule or the mode that says so.
    pub by: String,
}

/// Whether a call runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolDecision {
    /// It runs.
    Allow,
    /// It waits for an answer.
    Ask,
    /// It does not run.
    Deny,
}

/// A row of `tool/list`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tool {
    /// The tool.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
    /// Whether it changes nothing.
    pub read_only: bool,
    /// The category, for icons and the like.
    #[serde(default)]
    pub kind: ToolKind,
    /// Reads, changes, or unknown.
    #[serde(default)]
    pub effect: ToolEffect,
    /// Whether a plain call of it would run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<ToolVerdict>,
    /// The MCP server that it belongs to; absent for the daemon's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The Markdown file that describes it; absent for the daemon's own and those of servers.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub file: Option<PathBuf>,
}
