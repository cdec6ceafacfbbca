//! The servers that clients bring for one session, such as an editor its own: that session has them with the user's and those of its
//! workspace.
//!
//! What starts them is in the session's log, but for the values of variables and headers, which are in memory alone: after a restart of
//! the daemon a server with such values waits until a client brings them. One of the user's own servers hides one of the same name;
//! a server of the session hides one of the workspace's files. Deliberately absent: who may bring one (`service`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use linger_protocol::mcp::{self, Scope, SessionServer};
use linger_protocol::variable::{IN_MEMORY, MAX_TOTAL, withheld};

use super::configured::{Configured, OfSession};
use super::server::{Origin, Server};
use super::servers::{Servers, ServersOf};
use super::settings::ServerConfig;
use crate::diagnostics::secret::{Secret, SecretVariables};
use crate::tool::set::{ToolSet, Tools};

/// The most servers of one session: an editor has a handful, and each is a process.
const MAX_SERVERS: usize = 16;

/// The most bytes of them in a session's log and state, which is written with each event.
const MAX_STORED: usize = 16 << 10;

/// Held by the actor of a session with servers; those of a session that is not loaded are dropped once none of them runs.
pub type Loaded = Arc<()>;

/// Why a client cannot bring these.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Unfit {
    /// They are more than a session may have.
    #[error("{0}")]
    TooMuch(String),
    /// One of them makes no sense.
    #[error("the MCP server '{server}': {why}")]
    Wrong {
        /// Its name.
        server: String,
        /// The reason, without the server's name.
        why: String,
    },
}

/// Checks what a client brings; says what is wrong.
pub fn check(servers: &[SessionServer]) -> Result<(), Unfit> {
    let too_much = |text: String| Err(Unfit::TooMuch(text));
    if servers.len() > MAX_SERVERS {
        return too_much(format!("a session may have {MAX_SERVERS} MCP servers of its own"));
    }
    let stored: Vec<SessionServer> = servers.iter().map(SessionServer::without_values).collect();
    if serde_json::to_string(&stored).map_or(usize::MAX, |text| text.len()) > MAX_STORED {
        return too_much(format!(
            "the MCP servers of a session may have {MAX_STORED} bytes without the values of their variables"
        ));
    }
    if servers.iter().flat_map(SessionServer::values).map(|(_, value)| value.len()).sum::<usize>() > MAX_TOTAL {
        return too_much(format!("the variables of a session's MCP servers may have {MAX_TOTAL} bytes"));
    }
    let mut names = BTreeSet::new();
    for server in servers {
        let wrong = |why: String| Err(Unfit::Wrong { server: server.server.escape_default().to_string(), why });
        if let Err((key, why)) = config(server).check(&server.server) {
            return wrong(if key.is_empty() { why } else { format!("`{key}` {why}") });
        }
        let relative = |command: &String| command.contains('/') && !Path::new(command).is_absolute();
        if server.command.as_ref().is_some_and(relative) {
            return wrong("`command` must be an absolute path, or the name of a program".to_owned());
        }
        // A variable's name is in `${…}`, and a header is a line.
        let bad = |name: &str, value: &str| name.is_empty() || name.contains(['}', '=', '\0']) || value.contains('\0');
        if let Some((name, _)) = server.values().find(|(name, value)| bad(name, value)) {
            return wrong(format!(
                "the variable or header '{}' has a character that none can have",
                name.escape_default()
            ));
        }
        let texts = server.args.iter().chain(&server.command).chain(&server.url);
        if texts.into_iter().any(|text| text.contains('\0')) {
            return wrong("a text of it has a NUL".to_owned());
        }
        if !names.insert(&server.server) {
            return wrong("there are two of that name".to_owned());
        }
    }
    Ok(())
}

/// The settings of a server that a client brings: its texts are as they are, and each value is one of its variables.
fn config(SessionServer { command, args, env, url, headers, .. }: &SessionServer) -> ServerConfig {
    let named = |values: &BTreeMap<String, String>| {
        values.keys().map(|name| (name.clone(), format!("${{{name}}}"))).collect::<BTreeMap<_, _>>()
    };
    ServerConfig {
        command: command.clone(),
        args: args.clone(),
        env: named(env),
        url: url.clone(),
        headers: named(headers),
        scope: Some(Scope::Session),
        is_literal: true,
        ..ServerConfig::default()
    }
}

impl Servers {
    /// Keeps the values of what a client brings for a session, which [`check`] has found fit. A server that gets others is started
    /// again by its next call.
    pub fn bring(&self, session: &str, servers: &[SessionServer]) {
        let mut changed = Vec::new();
        for server in servers {
            let values = self.values_of(session, &server.server);
            let mut is_new = false;
            for (name, value) in server.values().filter(|(_, value)| *value != IN_MEMORY) {
                let secret = Secret::new(value);
                if withheld(name, value).is_some() {
                    self.outside.keys.redactor().add(&secret);
                }
                is_new |= values.get(name).is_some_and(|had| had != secret);
                values.put(name, secret);
            }
            changed.extend(is_new.then(|| server.server.clone()));
        }
        let all = self.configured();
        let running = all.sessions.get(session).into_iter().flat_map(|of| &of.servers);
        running.filter(|(name, _)| changed.contains(name)).for_each(|(_, server)| server.stop(true));
    }

    /// Gives a session the values of its origin or its parent.
    pub fn share_brought(&self, from: &str, to: &str) {
        let held = self.brought().get(from).cloned().unwrap_or_default();
        for (server, values) in held {
            values.copy_to(&self.values_of(to, &server));
        }
    }

    /// Takes the servers of a session as its log has them. They stay while what this gives is held, or one of them runs.
    pub fn configure_session(self: &Arc<Self>, session: &str, root: &Path, given: &[SessionServer]) -> Option<Loaded> {
        let mut gone = BTreeMap::new();
        let loaded = {
            let mut guard = self.configured();
            let all = &mut *guard;
            all.sessions.retain(|_, of| of.loaded.strong_count() > 0 || of.servers.values().any(|it| it.runs()));
            let before = all.sessions.remove(session);
            let held = before.as_ref().and_then(|of| of.loaded.upgrade()).unwrap_or_default();
            let tools = before.as_ref().map_or_else(|| Tools::new(ToolSet::new([])), |of| of.tools.clone());
            gone.extend(before.into_iter().flat_map(|of| of.servers));
            if !given.is_empty() {
                let mut servers = BTreeMap::new();
                for server in given {
                    let (name, config) = (&server.server, config(server));
                    let same = gone.get(name).is_some_and(|it: &Arc<Server>| it.config == config);
                    let same = if same { gone.remove(name) } else { None };
                    let origin = || Origin::Session(session.to_owned(), self.values_of(session, name));
                    let new = || Arc::new(self.server(name, &config, origin()));
                    servers.insert(name.clone(), same.unwrap_or_else(new));
                }
                let of = OfSession {
                    root: root.to_path_buf(),
                    given: given.to_vec(),
                    servers,
                    tools,
                    loaded: Arc::downgrade(&held),
                };
                all.sessions.insert(session.to_owned(), of);
                self.publish(all);
            }
            (!given.is_empty()).then_some(held)
        };
        gone.values().for_each(|server| server.stop(false));
        loaded
    }

    /// Ends the servers of a session that was removed, and forgets their values.
    pub fn forget_session(&self, session: &str) {
        self.brought().remove(session);
        let gone = self.configured().sessions.remove(session);
        gone.into_iter().flat_map(|of| of.servers).for_each(|(_, server)| server.stop(true));
    }

    /// The rows of the servers of a session that others hide.
    pub(super) fn hidden_in(&self, all: &Configured, of: ServersOf<'_>) -> Vec<mcp::Server> {
        let Some(of) = of.session.and_then(|session| all.sessions.get(session)) else { return Vec::new() };
        let hidden = of.servers.iter().filter(|(name, _)| all.own.contains_key(*name));
        let row = |(name, server): (&String, &Arc<Server>)| mcp::Server {
            state: mcp::State::LeftOut,
            problems: vec![format!("left out: your own config.toml has [mcp.{name}]")],
            ..server.row()
        };
        hidden.map(row).collect()
    }

    fn values_of(&self, session: &str, server: &str) -> SecretVariables {
        let mut all = self.brought();
        all.entry(session.to_owned()).or_default().entry(server.to_owned()).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stdio(server: &str) -> SessionServer {
        let env = [("TOKEN".to_owned(), "hunter2".to_owned())].into();
        let (server, command) = (server.to_owned(), Some("/bin/server".to_owned()));
        SessionServer { server, command, args: vec!["${HOME}".to_owned()], env, ..SessionServer::default() }
    }

    #[test]
    fn texts_are_as_they_are_and_values_are_variables() {
        let config = config(&stdio("files"));
        assert_eq!(config.variables().into_iter().collect::<Vec<_>>(), ["TOKEN"]);
        assert_eq!(config.missing(|_| false), ["TOKEN"]);
        let expanded = config.expanded(|name| (name == "TOKEN").then(|| "${X}".to_owned())).unwrap();
        assert_eq!((expanded.args[0].as_str(), expanded.env["TOKEN"].as_str()), ("${HOME}", "${X}"));
    }

    #[test]
    fn what_is_stored_or_shown_has_no_value() {
        let server = stdio("files");
        let stored = serde_json::to_string(&server.without_values()).unwrap();
        assert!(!stored.contains("hunter2") && stored.contains(IN_MEMORY), "{stored}");
        assert!(!format!("{server:?}").contains("hunter2"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_the_error_names_the_server() {
        let check = |change: fn(&mut SessionServer), expect: &str| {
            let mut server = stdio("files");
            change(&mut server);
            let error = super::check(&[server]).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        };
        assert_eq!(super::check(&[stdio("files"), stdio("more")]), Ok(()));
        check(|it| it.server = "a b".to_owned(), "'a b': a server's name");
        check(|it| it.command = None, "'files': needs `command`");
        check(|it| it.command = Some("./x".to_owned()), "absolute path");
        check(|it| it.url = Some("http://h/".to_owned()), "`url` has `command` too");
        check(|it| it.args.push("\0".to_owned()), "NUL");
        check(|it| drop(it.env.insert("A}".to_owned(), String::new())), "'A}' has a character");
        let two = super::check(&[stdio("files"), stdio("files")]).unwrap_err().to_string();
        assert!(two.contains("two of that name"), "{two}");
        let many: Vec<_> = (0..17).map(|n| stdio(&format!("s{n}"))).collect();
        assert!(matches!(super::check(&many), Err(Unfit::TooMuch(_))));
        let mut long = stdio("files");
        long.args.push("x".repeat(MAX_STORED));
        assert!(matches!(super::check(&[long]), Err(Unfit::TooMuch(_))));
    }
}
