//! `mcp/*`: the MCP servers that extend the daemon's tools.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::SessionId;
use crate::message::ContentBlock;
use crate::variable::IN_MEMORY;

/// Who shares one process of a server, or one connection to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::open)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// All sessions.
    User,
    /// The sessions of one workspace.
    Workspace,
    /// One session.
    Session,
    /// One that this build does not know.
    #[serde(other)]
    Unknown,
}

/// How a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::open)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It does not run; the next call starts it.
    Idle,
    /// It is being started.
    Starting,
    /// It runs.
    Running,
    /// It could not be started, or ended by itself; `error` says why.
    Failed,
    /// It is started once a client brings the variables in `waits_for`.
    Waiting,
    /// It wants a login, see `mcp/login`; `linger mcp login` does that.
    NeedsLogin,
    /// It is of the files of a workspace, and is not started before a person trusts them; `trust/get` shows what waits.
    Untrusted,
    /// It is of the files of a workspace, and not used; `problems` says why.
    LeftOut,
    /// Something that this build does not know.
    #[serde(other)]
    Unknown,
}

/// One process of a server, or one connection to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Instance {
    /// Its directory; absent for a server with an address.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub cwd: Option<PathBuf>,
    /// Its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The memory of that process, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Its own name and version.
    pub name: String,
    /// The revision of the protocol that it speaks.
    pub protocol: String,
    /// Calls that run.
    pub calls: u32,
}

/// A tool of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerTool {
    /// The name for models and rules: `mcp__SERVER__TOOL`.
    pub name: String,
    /// The server's name for it.
    pub tool: String,
    /// The first line of its description.
    pub about: String,
}

/// A configured server: a row of `mcp/list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Server {
    /// Its name in the configuration.
    pub server: String,
    /// The command or the address.
    pub target: String,
    /// Who shares one process.
    pub scope: Scope,
    /// Whether turns need it.
    pub required: bool,
    /// How it is.
    pub state: State,
    /// The running instances.
    pub instances: Vec<Instance>,
    /// Its tools, as last seen; absent if it was never seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<ServerTool>>,
    /// Its problems, and those of its tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// Why it could not be started, or ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The variables that its configuration names and that no client has brought since the daemon was started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
    /// The file of a workspace that has it; absent if the user's own configuration does.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub from: Option<PathBuf>,
    /// The session that a client brought it for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
}

/// `mcp/list`: the servers of the user's configuration, of a workspace and of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct List {
    /// A session, whose own servers count, and those of the files of its workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Without a session: a directory in that workspace, absolute.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub cwd: Option<PathBuf>,
}

/// Names a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Named {
    /// Its name in the configuration.
    pub server: String,
    /// A directory in the workspace whose files may have it, absolute; absent: the user's own configuration has it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub cwd: Option<PathBuf>,
    /// In place of a directory: a session that may have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
}

/// `mcp/login`: begins a login at a server with an address. A person opens the page that is answered in a browser, which then goes to
/// `redirect` with what `mcp/finish_login` takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Login {
    /// The server's name.
    pub server: String,
    /// A directory in the workspace whose files may have it, absolute; absent: the user's own configuration has it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub cwd: Option<PathBuf>,
    /// As in `mcp/logs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Where the browser goes afterwards: `http://127.0.0.1:PORT/…` of the client.
    pub redirect: String,
}

/// The answer of `mcp/login`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoginPage {
    /// Names the login for `mcp/finish_login`, for ten minutes.
    pub login: String,
    /// The page to open.
    pub page: String,
}

/// `mcp/finish_login`: what the browser brought to `redirect`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FinishLogin {
    /// From the result of `mcp/login`.
    pub login: String,
    /// The server that it is for, which is started again.
    pub server: String,
    /// As in `mcp/login`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub cwd: Option<PathBuf>,
    /// As in `mcp/login`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The parameter `code` of the redirect.
    pub code: String,
    /// The parameter `state` of the redirect.
    pub state: String,
    /// `iss`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
}

impl std::fmt::Debug for FinishLogin {
    /// Without the code.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FinishLogin").field("login", &self.login).finish_non_exhaustive()
    }
}

/// The answer of `mcp/finish_login`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoggedIn {
    /// Why the login lasts only as long as the daemon runs; absent if the keychain has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_keychain: Option<String>,
}

/// The answer of `mcp/logout`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoggedOut {
    /// Whether there was a login.
    pub removed: bool,
}

/// `mcp/test`: starts a server and asks for its tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Test {
    /// Its name in the configuration.
    pub server: String,
    /// The workspace to start it for.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub cwd: PathBuf,
    /// The environment of the client, as of `session/create`.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// `mcp/add`: puts a server into the configuration; one of that name is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Add {
    /// Its name.
    pub server: String,
    /// The program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Its variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Its directory.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub cwd: Option<PathBuf>,
    /// The address, in place of a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// An MCP server of one session, which a client brings for it: a program, or an address of Streamable HTTP.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionServer {
    /// Its name: at most 32 letters, digits, `-` and `_`. A server of the user's configuration hides one of the same name.
    pub server: String,
    /// The program: an absolute path, or a name that the session's `PATH` has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Its arguments, as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Its variables. The values are in the daemon's memory alone; events have `<in memory>` in their place.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The address, in place of a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Headers of each request to it; in memory like `env`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

impl SessionServer {
    /// The values that are kept in memory, by the name of their variable or header.
    pub fn values(&self) -> impl Iterator<Item = (&String, &String)> {
        self.env.iter().chain(&self.headers)
    }

    /// The same as events and the database have it.
    pub fn without_values(&self) -> Self {
        let names = |values: &BTreeMap<String, String>| {
            values.keys().map(|name| (name.clone(), IN_MEMORY.to_owned())).collect::<BTreeMap<_, _>>()
        };
        Self { env: names(&self.env), headers: names(&self.headers), ..self.clone() }
    }
}

impl std::fmt::Debug for SessionServer {
    /// Without the values.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&String> = self.values().map(|(name, _)| name).collect();
        f.debug_struct("SessionServer").field("server", &self.server).field("values", &names).finish_non_exhaustive()
    }
}

/// `mcp/resources` and `mcp/prompts`: those of all servers, or of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Offered {
    /// The session that they are for: a server may be started for its workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Without a session: the workspace that they are for.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub cwd: Option<PathBuf>,
    /// The environment of the client, with `cwd`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The server; absent: all that can be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

/// A resource that a prompt can name as `@SERVER:URI`: a row of `mcp/resources`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Resource {
    /// The server that has it.
    pub server: String,
    /// Its address; of a template one with `{names}`.
    pub uri: String,
    /// The server's name for it; may be empty.
    pub name: String,
    /// The first line of its description; may be empty.
    pub about: String,
    /// Whether its address is a pattern of addresses (RFC 6570).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_template: bool,
}

/// `mcp/resource`: what a resource has, as blocks for a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReadResource {
    /// The session that it is for.
    pub session: SessionId,
    /// The server that has it.
    pub server: String,
    /// Its address.
    pub uri: String,
}

/// A prompt that a server has ready: a row of `mcp/prompts`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerPrompt {
    /// The server that has it.
    pub server: String,
    /// Its name.
    pub prompt: String,
    /// The first line of its description; may be empty.
    pub about: String,
    /// The arguments that it takes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<PromptArgument>,
}

/// An argument of a [`ServerPrompt`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PromptArgument {
    /// The key in `arguments`.
    pub name: String,
    /// The first line of its description; may be empty.
    pub about: String,
    /// Whether the prompt needs it.
    pub required: bool,
}

/// `mcp/prompt`: what a server's prompt says, as blocks for a prompt of the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GetPrompt {
    /// The session that it is for.
    pub session: SessionId,
    /// The server that has it.
    pub server: String,
    /// Its name.
    pub prompt: String,
    /// Arguments by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arguments: BTreeMap<String, String>,
    /// The other arguments, in the order in which the prompt has them: a word each, and the rest for the last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// The answer of `mcp/resource` and `mcp/prompt`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Attachable {
    /// Text that begins with its source, and images.
    pub content: Vec<ContentBlock>,
}

/// The answer of `mcp/logs`: what a server wrote to standard error, and what it logged; the latest 500 lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Logs {
    /// The lines, the oldest first.
    pub lines: Vec<LogLine>,
}

/// A line of `mcp/logs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogLine {
    /// When, in Unix milliseconds.
    pub at: u64,
    /// What.
    pub text: String,
}
