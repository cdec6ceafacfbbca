//! `mode/list`, `permission/explain`, `permission/rules` and `permission/remove`: the modes, what they and rules say of a call, and the
//! rules that answers added. Listing and answering permissions is in `question`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use linger_protocol::RpcError;
use linger_protocol::daemon::{Empty, ToolDecision};
use linger_protocol::error::Code;
use linger_protocol::id::SessionId;
use linger_protocol::permission::{AlwaysRule, Explain, Explained, Mode, ModeInfo, RemoveRule, RulesRemoved};
use serde::Deserialize;
use serde_json::json;

use super::{Caller, Services, in_force, need, tool};
use crate::config::always_line;
use crate::question::permission::{CallInfo, PartMet, Rule, Verdict, words_of};
use crate::session::messages::{CallBasis, Command};
use crate::sys::disk;
use crate::tool::set::{MCP, Takes};
use crate::tool::{Access, apply_patch};

/// The kind of event that says which rules were added.
const CONFIRMED: &[&str] = &["config_confirmed"];

/// How much of the daemon's log is read at once, in bytes.
const PAGE: usize = 1 << 20;

/// The most pages that are read to learn when a rule was added: hundreds of changes of a large configuration.
const MAX_PAGES: usize = 64;

/// The modes; they are the same for all, and no secret.
pub async fn modes(_: &Services, _: &Caller, _: Empty) -> Result<Vec<ModeInfo>, RpcError> {
    Ok(Mode::ALL.map(|mode| ModeInfo { mode, description: mode.description().to_owned() }).to_vec())
}

/// Says whether a call would run, and which rule or mode says so.
pub async fn explain(services: &Services, caller: &Caller, params: Explain) -> Result<Explained, RpcError> {
    let Explain { session, cwd, call: text } = params;
    if session.is_none() && cwd.is_none() {
        return Err(RpcError::new(Code::BadRule, "a session or a directory is needed"));
    }
    caller.may_name(services, session.as_ref(), cwd.as_deref(), need::of("permission/explain")?).await?;
    let basis = match (session, cwd) {
        (Some(session), _) => services.registry.ask(&session, Command::CallBasis).await?,
        (None, cwd) => tool::of_new(services, cwd.unwrap_or_default()).await?,
    };
    let CallBasis { mode, workspace, .. } = &basis;
    let (name, changes, access) = call(&basis, text.trim())?;
    let policy = &services.env().policy;
    let Some(resolved) = policy.resolve(&access, workspace).await else {
        return Err(RpcError::new(Code::Storage, disk::unresponsive(&workspace.cwd)));
    };
    let call = CallInfo { tool: &name, changes, access };
    let limit = policy.limit(&basis.limits, &call, &resolved);
    let (verdict, by, rule) = match (policy.decide(basis.settled(), &call, &resolved, workspace), limit) {
        (Verdict::Allow { .. } | Verdict::Ask { .. }, Some(why)) => (ToolDecision::Deny, why, None),
        (Verdict::Allow { by }, None) => {
            let rule = by.strip_prefix("rule ").map(str::to_owned);
            (ToolDecision::Allow, by, rule)
        }
        (Verdict::Ask { rule, why }, None) => {
            let why = why.map_or_else(String::new, |why| format!(", because {why}"));
            let by = rule.as_ref().map_or_else(|| format!("mode {mode}{why}"), |rule| format!("rule {rule}"));
            (ToolDecision::Ask, by, rule)
        }
        (Verdict::Deny { rule, .. }, _) => {
            let by = rule.as_ref().map_or_else(|| format!("mode {mode}"), |rule| format!("rule {rule}"));
            (ToolDecision::Deny, by, rule)
        }
    };
    let parts = policy.parts_met(basis.settled(), &call, &resolved, workspace);
    let by = with_parts(by, rule.as_deref(), &parts, call.access.command());
    let place = rule.and_then(|rule| policy.place_of(&rule, &basis.settled(), workspace));
    let (cwd, path) = (workspace.cwd.clone(), resolved.target().map(Path::to_path_buf));
    Ok(Explained { verdict, by, place, mode: *mode, cwd, path })
}

/// The rule or mode that decides, and which parts of a command line meet which rule.
fn with_parts(by: String, rule: Option<&str>, parts: &[PartMet], line: Option<&str>) -> String {
    let is_line = |part: &PartMet| line.is_some_and(|line| line.trim() == part.part.trim());
    match parts {
        [] => by,
        [one] if is_line(one) => by,
        [one] if one.rule.as_deref() == rule && rule.is_some() => format!("{by}, met by `{}`", one.part),
        _ if rule.is_some() => by,
        several => {
            let each = several.iter().map(|part| match &part.rule {
                Some(rule) => format!("`{}` meets {rule}", part.part),
                None => format!("no rule allows `{}`", part.part),
            });
            format!("{by}: {}", each.collect::<Vec<_>>().join(", "))
        }
    }
}

/// The tool, whether it changes something, and what the call touches, of `tool(what)`.
fn call(basis: &CallBasis, text: &str) -> Result<(String, bool, Access), RpcError> {
    let bad = |problem: String| {
        RpcError::new(Code::BadRule, problem).hint("write the call as a rule: `bash(cargo test)`, `edit(src/main.rs)`")
    };
    let names = basis.tools.names();
    let called = match text.split_once('(') {
        Some((name, rest)) => Some((name.trim(), rest.strip_suffix(')'))),
        None => Some((text, Some(""))),
    };
    let Some((name, Some(what))) = called else { return Err(bad(format!("`{text}` has no `)` at its end"))) };
    // Its name alone: the rest may be what no pattern is.
    Rule::parse(name, names).map_err(|error| bad(error.to_string()))?;
    let Some(takes) = names.takes(name) else {
        let near = names.near(name).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        return Err(bad(format!("no tool is called `{name}`{near}")));
    };
    let tool = basis.tools.get(name);
    // Not every session has it.
    let changes = name == apply_patch::NAME || tool.is_some_and(|tool| tool.changes());
    let of_server = name.strip_prefix(MCP).and_then(|rest| rest.split_once("__"));
    let needs = |noun: &str| bad(format!("name the {noun}: `{name}({noun})`"));
    // As the tool reads it.
    let path = || basis.workspace.absolute(what).map_err(|invalid| bad(invalid.0));
    let access = match takes {
        Takes::Path if what.is_empty() => return Err(needs("path")),
        Takes::Command | Takes::Arguments if what.trim().is_empty() => return Err(needs("command")),
        Takes::Host if what.is_empty() => return Err(needs("host")),
        Takes::Path if changes => Access::Write(path()?),
        Takes::Path => Access::Read(path()?),
        Takes::Command => Access::Command(what.to_owned()),
        Takes::Arguments => {
            let args = words_of(what);
            let effects = tool.zip(args).and_then(|(tool, args)| {
                Some(tool.prepare(&json!({ "args": args }), &basis.workspace).ok()?.effects())
            });
            match effects {
                Some(effects) => return Ok((name.to_owned(), effects.changes, effects.access)),
                None => Access::Command(format!("{name} {what}")),
            }
        }
        Takes::Host => Access::Network(what.to_owned()),
        Takes::Version => {
            let (server, of_it) = of_server.unwrap_or_default();
            let version = tool.map(|tool| tool.version().to_owned()).unwrap_or_default();
            Access::Other { server: server.to_owned(), tool: of_it.to_owned(), version }
        }
        Takes::Nothing => Access::Nothing,
    };
    Ok((name.to_owned(), changes, access))
}

/// The rules that `allow_always` and `reject_always` answers added.
pub async fn rules(services: &Services, _: &Caller, _: Empty) -> Result<Vec<AlwaysRule>, RpcError> {
    in_force::refresh(services).await;
    let config = services.config.current()?;
    let times = times(services).await?;
    let row = |(root, refuses, rule): (&PathBuf, bool, &Rule)| {
        let at = times.get(&always_line(&root.to_string_lossy(), &rule.to_string())).copied();
        AlwaysRule { workspace: root.clone(), rule: rule.to_string(), refuses, at }
    };
    let all = config.workspaces.iter().flat_map(|(root, rules)| {
        let allowed = rules.allow.iter().map(|rule| (false, rule));
        allowed.chain(rules.deny.iter().map(|rule| (true, rule))).map(move |(refuses, rule)| (root, refuses, rule))
    });
    Ok(all.map(row).collect())
}

/// Takes a rule that an answer added out of the configuration.
pub async fn remove(services: &Services, caller: &Caller, params: RemoveRule) -> Result<RulesRemoved, RpcError> {
    let RemoveRule { rule, workspace } = params;
    let (store, by, name) = (services.config.clone(), caller.name(), rule.trim().to_owned());
    let removed = in_force::blocking(move || store.revoke(workspace.as_deref(), &name, &by)).await?;
    in_force::apply(services).await;
    if removed.is_empty() {
        let error = RpcError::new(Code::BadRule, format!("no workspace always allows or refuses `{}`", rule.trim()));
        return Err(error.hint("`linger permissions` lists the rules; others are in config.toml, see `linger config`"));
    }
    let row = |(workspace, refuses)| AlwaysRule { workspace, rule: rule.trim().to_owned(), refuses, at: None };
    Ok(RulesRemoved { removed: removed.into_iter().map(row).collect() })
}

/// When each change was confirmed last, in Unix milliseconds, by its line.
async fn times(services: &Services) -> Result<HashMap<String, u64>, RpcError> {
    #[derive(Deserialize)]
    struct Confirmed {
        #[serde(default)]
        changes: Vec<String>,
    }
    let (mut times, mut after) = (HashMap::new(), 0);
    for _ in 0..MAX_PAGES {
        let (page, more) = services.store.events_of(SessionId::daemon(), CONFIRMED, after, PAGE).await?;
        for stored in &page {
            after = stored.seq;
            let confirmed = serde_json::from_str::<Confirmed>(&stored.data).ok();
            times.extend(confirmed.into_iter().flat_map(|it| it.changes).map(|line| (line, stored.at)));
        }
        if !more {
            break;
        }
    }
    Ok(times)
}
