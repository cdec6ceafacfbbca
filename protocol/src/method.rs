//! The methods by name: which parameters belong to which result. The one table of them.
//!
//! [`Method`] is for clients, which name a method by the type of its parameters. [`api`] has the same as traits of jsonrpsee
//! (feature `rpc-client`): a typed client. Each method takes one struct, which on the wire is the whole `params`
//! object ([`crate::transport::serve`] sees to that).
//! Requests of one connection take effect in the order in which they came: handlers enqueue and return.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{
    agent, artifact, blob, checkpoint, completion, config, daemon, events, key, mcp, memory, permission, question,
    search, session, token, tree, trust, usage, worktree,
};

/// Parameters that know their method.
pub trait Method: Serialize {
    /// `resource/verb`.
    const NAME: &'static str;
    /// The parameters.
    type Params: DeserializeOwned;
    /// The daemon's answer.
    type Result: Serialize + DeserializeOwned;
}

/// Visits every method; see [`each_method`].
pub trait Visitor {
    /// Called once a method.
    fn method<P, R>(&mut self, name: &'static str)
    where
        P: schemars::JsonSchema,
        R: schemars::JsonSchema;
}

macro_rules! methods {
    ($(
        $(#[$about:meta])*
        $api:ident {
            $(
                $(#[$doc:meta])*
                $marker:ident: $name:tt = $handler:ident($params:ty) -> $result:ty;
            )*
        }
    )*) => {
        $($(
            $(#[$doc])*
            ///
            /// It names the method for [`Method`]; the parameters are its field.
            #[derive(Clone, Debug, Serialize)]
            #[serde(transparent)]
            pub struct $marker(pub $params);

            impl Method for $marker {
                const NAME: &'static str = $name;
                type Params = $params;
                type Result = $result;
            }
        )*)*

        /// Shows every method with its types to `visitor`.
        pub fn each_method(visitor: &mut impl Visitor) {
            $($(visitor.method::<$params, $result>($name);)*)*
        }

        /// Every method of a typed client, as traits of jsonrpsee.
        #[cfg(feature = "rpc-client")]
        pub mod api {
            use jsonrpsee::proc_macros::rpc;

            use super::{agent, artifact, blob, checkpoint, completion, config, daemon, events, key, mcp, memory, permission, question, search, session, token, tree, trust, usage, worktree};

            $(
                $(#[$about])*
                #[rpc(client)]
                pub trait $api {
                    $(
                        $(#[$doc])*
                        #[method(name = $name)]
                        async fn $handler(&self, params: $params) -> RpcResult<$result>;
                    )*
                }
            )*
        }
    };
}

methods! {
    /// The daemon itself.
    DaemonApi {
        /// Agrees on a protocol version and says which variables and keys the daemon would take.
        DaemonHello: "daemon/hello" = hello(daemon::Hello) -> daemon::Welcome;
        /// Brings provider keys, which stay in memory and go to their provider's host alone.
        DaemonKeys: "daemon/keys" = keys(daemon::Keys) -> daemon::Empty;
        /// Where everything is and what is running.
        DaemonStatus: "daemon/status" = status(daemon::Empty) -> daemon::Status;
        /// Ends the daemon; turns continue when it starts again.
        DaemonStop: "daemon/stop" = stop(daemon::Stop) -> daemon::Empty;
        /// Reads what is stored, and says what of it is damaged.
        DaemonCheck: "daemon/check" = check(daemon::Empty) -> daemon::Checked;
        /// The models that can be used, and what is missing for those that cannot.
        ModelList: "model/list" = models(daemon::Models) -> Vec<daemon::Model>;
        /// The permission modes, and what each runs without asking.
        ModeList: "mode/list" = modes(daemon::Empty) -> Vec<permission::ModeInfo>;
        /// The tools that models are given.
        ToolList: "tool/list" = tools(daemon::Tools) -> Vec<daemon::Tool>;
    }
    /// Work in a directory, with a history.
    SessionApi {
        /// Creates a session; answers once it is on disk.
        SessionCreate: "session/create" = create(session::Create) -> session::Created;
        /// Sessions, the latest first.
        SessionList: "session/list" = list(session::List) -> Vec<session::Info>;
        /// Sends the session's events after a cursor, and all that follow; a second attach replaces the first.
        SessionAttach: "session/attach" = attach(session::Attach) -> session::Attached;
        /// Sends no more events of the session.
        SessionDetach: "session/detach" = detach(session::Named) -> daemon::Empty;
        /// Names the variables of the session's tools.
        SessionEnv: "session/env" = env(session::Named) -> session::Environment;
        /// Gives the session something to do; answers once the prompt is on disk.
        SessionPrompt: "session/prompt" = prompt(session::Prompt) -> session::Prompted;
        /// Cancels the running turn and keeps the session; prompts that were queued behind it become drafts.
        SessionCancel: "session/cancel" = cancel(session::Cancel) -> daemon::Empty;
        /// Resumes an offered turn, starts prompts that wait after an error, or sends drafts.
        SessionContinue: "session/continue" = resume(session::Continue) -> daemon::Empty;
        /// Has older messages replaced by a summary, in the context; answers once the request is on disk.
        SessionCompact: "session/compact" = compact(session::Compact) -> session::Prompted;
        /// Takes back a prompt that waits for its turn, or a draft.
        SessionUnqueue: "session/unqueue" = unqueue(session::Unqueue) -> session::Unqueued;
        /// Puts files back to what they were before a turn.
        SessionUndo: "session/undo" = undo(session::Undo) -> session::Restored;
        /// Makes the changes again that were undone last.
        SessionRedo: "session/redo" = redo(session::Redo) -> session::Restored;
        /// The changes of the session's turns in files, with those of its children.
        SessionDiff: "session/diff" = diff(checkpoint::Diff) -> checkpoint::Differences;
        /// Makes a session that goes on from a point of another one; answers once it is on disk.
        SessionFork: "session/fork" = fork(tree::Fork) -> tree::ForkMade;
        /// Goes back to before a prompt; what is left stays as a fork.
        SessionRewind: "session/rewind" = rewind(tree::Rewind) -> tree::RewindDone;
        /// The prompts that the session can go back to, the latest first.
        SessionPrompts: "session/prompts" = prompts(tree::Prompts) -> Vec<tree::PromptRow>;
        /// The compactions of the context: messages replaced and their summaries, the latest first.
        SessionCompaction: "session/compaction" = compactions(tree::Compactions) -> Vec<tree::CompactionRow>;
        /// Takes back the latest compaction, while the messages fit the model.
        SessionUncompact: "session/uncompact" = uncompact(tree::Uncompact) -> tree::Uncompacted;
        /// Merges what a child did in its git worktree into the directory of its parent, whose model is told.
        SessionMerge: "session/merge" = merge(worktree::Merge) -> worktree::Merged;
        /// Changes model, mode or name from the next step on.
        SessionSet: "session/set" = set(session::Set) -> daemon::Empty;
        /// Puts a session into the bin, and its children: it is not listed, takes no prompts, and is deleted 30 days later.
        SessionBin: "session/bin" = bin(session::Bin) -> session::Removed;
        /// Takes a session out of the bin.
        SessionRestore: "session/restore" = restore(session::Keyed) -> session::OutOfBin;
        /// Deletes a session, its children and everything that was stored for them.
        SessionRemove: "session/remove" = remove(session::Remove) -> session::Removed;
        /// Deletes sessions that were not used for a while, or lists them.
        SessionPrune: "session/prune" = prune(session::Prune) -> session::Pruned;
    }
    /// All sessions together.
    EventsApi {
        /// Sends the events of all sessions after a cursor, and all that follow; a second one replaces the first.
        EventsSubscribe: "events/subscribe" = subscribe(events::Subscribe) -> events::Subscribed;
        /// Sends no more of them.
        EventsUnsubscribe: "events/unsubscribe" = unsubscribe(daemon::Empty) -> daemon::Empty;
        /// The messages of all sessions that have some words.
        SessionSearch: "session/search" = search(search::Search) -> search::FoundMessages;
    }
    /// Completions without a session.
    CompletionApi {
        /// Asks a model once, with what the caller sends and nothing else, and sends what it answers.
        CompletionStart: "completion/start" = start(completion::Start) -> completion::Started;
        /// Asks no more.
        CompletionCancel: "completion/cancel" = cancel(completion::Cancel) -> daemon::Empty;
    }
    /// Sums of tokens and cost.
    UsageApi {
        /// Tokens and costs, summed up.
        UsageList: "usage/list" = sums(usage::List) -> usage::Sums;
    }
    /// Content that is too large for an event.
    BlobApi {
        /// A piece of what an event names.
        BlobGet: "blob/get" = get(blob::Get) -> blob::Piece;
    }
    /// Files that clients and tools leave for prompts and people.
    ArtifactApi {
        /// Begins to put an artifact here.
        ArtifactBegin: "artifact/begin" = begin(artifact::Begin) -> artifact::Begun;
        /// The next piece of it.
        ArtifactWrite: "artifact/write" = write(artifact::Write) -> artifact::Written;
        /// Makes an artifact of what was written; answers once it is on disk.
        ArtifactFinish: "artifact/finish" = finish(artifact::Finish) -> artifact::Artifact;
        /// The properties of an artifact.
        ArtifactGet: "artifact/get" = get(artifact::Named) -> artifact::Artifact;
        /// A piece of its bytes.
        ArtifactRead: "artifact/read" = read(artifact::Read) -> blob::Piece;
        /// The artifacts, the latest first.
        ArtifactList: "artifact/list" = list(artifact::List) -> Vec<artifact::Artifact>;
        /// Deletes an artifact, and its bytes unless another one has them.
        ArtifactDelete: "artifact/delete" = delete(artifact::Named) -> daemon::Empty;
    }
    /// Provider keys.
    KeyApi {
        /// Where each provider's key comes from, and whether there is a keychain.
        KeyList: "key/list" = list(daemon::Empty) -> key::Listed;
        /// Puts a provider's key into the keychain.
        KeySet: "key/set" = set(key::Set) -> key::Info;
        /// Takes a provider's key out of the keychain.
        KeyRemove: "key/remove" = remove(key::Remove) -> key::Removed;
    }
    /// The configuration.
    ConfigApi {
        /// The configuration in force, and the changes that wait until a person confirms them.
        ConfigGet: "config/get" = get(config::Get) -> config::Configuration;
        /// Puts the changes of the file that wait into force.
        ConfigConfirm: "config/confirm" = confirm(config::Confirm) -> config::Confirmed;
        /// Sets one key in the file, and confirms it.
        ConfigSet: "config/set" = set(config::Set) -> config::Confirmed;
        /// Replaces the text of the file, and confirms what that changes.
        ConfigWrite: "config/write" = write(config::Write) -> config::Confirmed;
    }
    /// Trust in the files of workspaces.
    TrustApi {
        /// The settings of a workspace's files, and the changes that wait until a person trusts them.
        TrustGet: "trust/get" = get(trust::Get) -> trust::Workspace;
        /// Trusts what waits in a workspace.
        TrustConfirm: "trust/confirm" = confirm(trust::Confirm) -> config::Confirmed;
        /// The workspaces of which something is trusted.
        TrustList: "trust/list" = list(daemon::Empty) -> Vec<trust::Trusted>;
        /// Trusts nothing of a workspace any more.
        TrustRevoke: "trust/revoke" = revoke(trust::Revoke) -> trust::Revoked;
    }
    /// Access for other programs, with limits.
    TokenApi {
        /// Makes a token, whose text is shown this once.
        TokenMint: "token/mint" = mint(token::Mint) -> token::Minted;
        /// Gives a token for a code of `token/mint`, once.
        TokenExchange: "token/exchange" = exchange(token::Exchange) -> token::Minted;
        /// The tokens, without their texts; the latest first.
        TokenList: "token/list" = list(daemon::Empty) -> Vec<token::Row>;
        /// Ends a token, and at once each connection that has it.
        TokenRevoke: "token/revoke" = revoke(token::Revoke) -> daemon::Empty;
    }
    /// Skills, commands, agents, tools and servers, which are Markdown files.
    AgentApi {
        /// The skills of sessions in a directory.
        SkillList: "skill/list" = skills(agent::List) -> Vec<agent::Item>;
        /// The commands that prompts in a directory can name.
        CommandList: "command/list" = commands(agent::List) -> Vec<agent::Item>;
        /// The agents that a session in a directory can be.
        AgentList: "agent/list" = agents(agent::List) -> Vec<agent::Item>;
        /// The Markdown files that describe tools.
        ToolFiles: "tool/files" = tool_files(agent::List) -> Vec<agent::Item>;
        /// The Markdown files that describe MCP servers.
        ServerFiles: "mcp/files" = server_files(agent::List) -> Vec<agent::Item>;
    }
    /// Notes that outlive sessions.
    MemoryApi {
        /// The notes that sessions in a directory have.
        MemoryList: "memory/list" = list(memory::List) -> Vec<memory::Note>;
        /// Writes a new note.
        MemoryAdd: "memory/add" = add(memory::Add) -> memory::Note;
        /// Removes a note.
        MemoryRemove: "memory/remove" = remove(memory::Remove) -> daemon::Empty;
    }
    /// MCP servers.
    McpApi {
        /// The servers that are configured, and how they are.
        McpList: "mcp/list" = list(mcp::List) -> Vec<mcp::Server>;
        /// Puts a server into the configuration.
        McpAdd: "mcp/add" = add(mcp::Add) -> daemon::Empty;
        /// Takes a server out of the configuration.
        McpRemove: "mcp/remove" = remove(mcp::Named) -> daemon::Empty;
        /// Ends a server; the next call starts it.
        McpRestart: "mcp/restart" = restart(mcp::Named) -> daemon::Empty;
        /// The latest lines that a server wrote and logged.
        McpLogs: "mcp/logs" = logs(mcp::Named) -> mcp::Logs;
        /// Starts a server, if it does not run, and says how it is.
        McpTest: "mcp/test" = test(mcp::Test) -> mcp::Server;
        /// Begins a login at a server.
        McpLogin: "mcp/login" = login(mcp::Login) -> mcp::LoginPage;
        /// Ends a login with what the browser brought.
        McpFinishLogin: "mcp/finish_login" = finish_login(mcp::FinishLogin) -> mcp::LoggedIn;
        /// Forgets the login at a server.
        McpLogout: "mcp/logout" = logout(mcp::Named) -> mcp::LoggedOut;
        /// The resources of servers that a prompt can name.
        McpResources: "mcp/resources" = resources(mcp::Offered) -> Vec<mcp::Resource>;
        /// The content of a resource.
        McpResource: "mcp/resource" = resource(mcp::ReadResource) -> mcp::Attachable;
        /// The prompts that servers have ready.
        McpPrompts: "mcp/prompts" = prompts(mcp::Offered) -> Vec<mcp::ServerPrompt>;
        /// The content of such a prompt.
        McpPrompt: "mcp/prompt" = prompt(mcp::GetPrompt) -> mcp::Attachable;
    }
    /// Questions about tool calls, and rules.
    PermissionApi {
        /// The permissions that wait.
        PermissionList: "permission/list" = pending(permission::List) -> Vec<permission::Pending>;
        /// Decides one permission; the first answer wins, and later ones get its decision and client.
        PermissionAnswer: "permission/answer" = answer(permission::Answer) -> permission::Answered;
        /// Says whether a call would run, and which rule or mode says so.
        PermissionExplain: "permission/explain" = explain(permission::Explain) -> permission::Explained;
        /// The rules that `allow_always` answers added.
        PermissionRules: "permission/rules" = rules(daemon::Empty) -> Vec<permission::AlwaysRule>;
        /// Takes such a rule out of the configuration.
        PermissionRemove: "permission/remove" = remove(permission::RemoveRule) -> permission::RulesRemoved;
    }
    /// Questions, permissions among them.
    QuestionApi {
        /// The questions that wait.
        QuestionList: "question/list" = list(question::List) -> Vec<question::PendingQuestion>;
        /// Answers one question; the first answer wins and the others are told who won.
        QuestionAnswer: "question/answer" = answer(question::Answer) -> permission::Answered;
    }
}
