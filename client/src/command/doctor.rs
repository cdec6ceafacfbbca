//! `linger doctor`: checks everything and says how to fix problems. With `--repair`, a helper saves what can be read from damaged
//! data while the daemon is stopped.

mod report;
mod servers;

use linger_protocol::VERSION;
use linger_protocol::config::{Configuration, Get};
use linger_protocol::daemon::{Checked, Damage, Empty, Model, Models, Recovered, Status, Storage};
use linger_protocol::key::{Listed, Source};
use linger_protocol::listener::holder::parent;
use linger_protocol::method::{ConfigGet, DaemonCheck, DaemonStatus, KeyList, ModelList, TrustGet};
use linger_protocol::place::{PlaceError, Places, check_socket};
use linger_protocol::trust;
use linger_protocol::variable::Withheld;

use super::attention::programs;
use super::validate::{UNREAD, UNREAD_HINT, unread_settings};
use crate::arguments::Doctor;
use crate::connect::{Client, far, start};
use crate::environment::working_directory;
use crate::error::{Exit, Failure};
use crate::render::style::Style;
use crate::render::table::size;
use crate::terminal::{Capabilities, Terminal};
use report::Report;

/// The variables that name a proxy, by scheme of the address.
const PROXIES: [(&str, [&str; 4]); 2] = [
    ("https", ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]),
    ("http", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]),
];

/// The hint for a provider that does not answer.
const PROBE_HINT: &str = "check its base_url in the configuration, and its key with `linger key list`";

/// Sessions of a damaged database that are listed; `daemon status --json` lists all.
const NAMED: usize = 20;

/// Ancestors of a process that are followed, at most; real processes have a few dozen.
const GENERATIONS: usize = 1024;

pub(super) fn run(args: &Doctor) -> Result<Exit, Failure> {
    let capabilities = Capabilities::detect();
    let style = Style { color: capabilities.color && capabilities.stdout, unicode: capabilities.unicode };
    let mut report = Report { terminal: Terminal::new(), style, json: args.json, healthy: true, bad: Vec::new() };
    examine(&mut report, args)?;
    Ok(if report.healthy { Exit::GOOD } else { Exit::FAILED })
}

fn examine(report: &mut Report, args: &Doctor) -> Result<(), Failure> {
    report.good(&format!("linger {VERSION}"))?;
    let places = match Places::of_user() {
        Ok(places) => places,
        Err(error) => return report.bad(&error.to_string(), Some(&error.hint())),
    };
    match check_socket(&places.socket) {
        Ok(()) => report.good(&format!("socket {}", places.socket.display()))?,
        Err(PlaceError::Io { error, .. })
            if error.kind() == std::io::ErrorKind::NotFound && places.socket.starts_with(&places.state) =>
        {
            report
                .good(&format!("socket {} (its directory is created at the first start)", places.socket.display()))?;
        }
        Err(error) => return report.bad(&error.to_string(), Some(&error.hint())),
    }
    family(report)?;
    let client = Client::open_silent(None);
    let is_far = matches!(&client, Ok(client) if client.is_far());
    if is_far {
        let socket = places.socket.display();
        report
            .good(&format!("the daemon is on another machine, through {socket}: what follows is about that machine"))?;
    }
    // A broken configuration is reported below.
    if !is_far && !matches!(&client, Ok(client) if client.welcome.config_error.is_some()) {
        let config = places.config_file();
        let state = if config.exists() { "" } else { " (does not exist yet; defaults apply)" };
        report.good(&format!("configuration {}{state}", config.display()))?;
    }
    let mut client = match client {
        Ok(client) => client,
        Err(failure) => return report.failure(&failure),
    };
    let mut recovered = Recovered::default();
    if args.repair && is_far {
        report.failure(&far::not_from_here(&places, "only that machine can repair its data"))?;
    } else if args.repair {
        match repair(client, args.force) {
            Ok(all) => recovered = all,
            Err(failure) => report.failure(&failure)?,
        }
        client = match Client::open_silent(None) {
            Ok(client) => client,
            Err(failure) => return report.failure(&failure),
        };
    }
    let mut named = None;
    match client.call(&DaemonStatus(Empty {})) {
        Ok(status) => {
            daemon(report, &status)?;
            let mut checked = client.call(&DaemonCheck(Empty {}));
            if let Ok(checked) = &mut checked {
                // Damage that only the helper has seen.
                checked.damage.extend(recovered.damage.into_iter().filter(|damage| damage.file.is_none()));
            }
            stored(report, &status, checked)?;
            named = status.model;
        }
        Err(failure) => report.failure(&failure)?,
    }
    match client.call(&ModelList(Models::default())) {
        Ok(rows) => {
            let waiting = client.call(&ConfigGet(Get::default())).is_ok_and(|config| config.waiting.is_some());
            models(report, &rows, named.as_deref(), waiting)?;
        }
        Err(failure) => return report.failure(&failure),
    }
    if args.probe {
        match client.call(&ModelList(Models { all: true, ..Models::default() })) {
            Ok(rows) => probed(report, &rows)?,
            Err(failure) => return report.failure(&failure),
        }
    }
    match client.call(&KeyList(Empty {})) {
        Ok(listed) => keys(report, &listed)?,
        Err(failure) => return report.failure(&failure),
    }
    if let Ok(Some(note)) = super::ls::retained(&mut client) {
        report.good(&note)?;
    }
    if is_far {
        return Ok(());
    }
    attention(report, &mut client)?;
    workspace(report, &mut client)?;
    servers::examine(report, &mut client)?;
    environment(report, &client)
}

/// Checks the programs that notify when a session needs an answer.
fn attention(report: &mut Report, client: &mut Client) -> Result<(), Failure> {
    let Ok(Configuration { settings: Some(settings), .. }) = client.call(&ConfigGet(Get::default())) else {
        return Ok(());
    };
    programs(&settings).into_iter().try_for_each(|program| match program.problem {
        None => report.good(&format!("attention runs {}", program.name)),
        Some((text, hint)) => report.bad(&text, Some(&hint)),
    })
}

/// Checks the configuration of this directory's workspace.
fn workspace(report: &mut Report, client: &mut Client) -> Result<(), Failure> {
    let Ok(workspace) = client.call(&TrustGet(trust::Get { cwd: working_directory()? })) else { return Ok(()) };
    if let Some(error) = &workspace.error {
        report.bad(error, Some("correct the file; until then everything in this workspace asks"))?;
    }
    if workspace.waiting.is_some() {
        let text = format!("files of {} wait for your trust", workspace.workspace.display());
        report.more(&text, Some("run `linger trust` to review them"))?;
    }
    for file in unread_settings(&workspace.workspace) {
        report.more(&format!("{} is not read: {UNREAD}", file.display()), Some(UNREAD_HINT))?;
    }
    Ok(())
}

/// Reports which variables of this environment tools get, and which are withheld.
fn environment(report: &mut Report, client: &Client) -> Result<(), Failure> {
    let (given, others) = client.environment();
    let noteworthy = others.iter().filter(|(_, why)| !matches!(why, Withheld::Own | Withheld::Terminal));
    let names: Vec<&str> = noteworthy.map(|(name, _)| name.as_str()).collect();
    let withheld = if names.is_empty() {
        String::new()
    } else {
        format!("; withheld: {} (`linger doctor --env` says why)", names.join(", "))
    };
    report.good(&format!("tools get {} variables of this shell{withheld}", given.len()))
}

/// Checks that the system shows the parents of a process. Without that, the daemon cannot tell a user from a tool, and refuses
/// everything that only a user may do.
fn family(report: &mut Report) -> Result<(), Failure> {
    if !cfg!(target_os = "linux") || sees_ancestors(std::process::id(), parent) {
        return Ok(());
    }
    report.bad(
        "/proc does not show the parents of a process, so the daemon refuses everyone's answers, looser modes, keys and stop requests",
        Some("mount /proc without hidepid, or with gid= of a group of yours, and restart the daemon"),
    )
}

/// Whether the ancestors of a process are visible up to the first one.
fn sees_ancestors(pid: u32, parent: impl Fn(u32) -> Option<u32>) -> bool {
    let line = std::iter::successors(Some(pid), |pid| parent(*pid).filter(|parent| *parent != 0));
    line.take(GENERATIONS).last().is_some_and(|first| parent(first) == Some(0))
}

fn daemon(report: &mut Report, status: &Status) -> Result<(), Failure> {
    if status.version == VERSION {
        report.good(&format!("daemon {} is running as process {}", status.version, status.pid))?;
    } else {
        let text =
            format!("daemon {} is running as process {}, but this is linger {VERSION}", status.version, status.pid);
        report.bad(&text, Some("`linger daemon restart` starts this version (`linger help background`)"))?;
    }
    let log = status.log.display();
    match &status.log_error {
        None => report.good(&format!("log {log}"))?,
        Some(error) => report
            .bad(&format!("log {log}: {error}"), Some("the daemon works without a log, and retries with each line"))?,
    }
    status.storage.map_or(Ok(()), |storage| space(report, &storage))?;
    if let Some(error) = &status.config_error {
        report.bad(error, Some(&format!("correct {}; it is reloaded at once", status.config.display())))?;
    }
    for warning in &status.config_warnings {
        report.bad(warning, Some(&format!("see {}", status.config.display())))?;
    }
    for proxy in &status.proxies {
        report.good(&format!("proxy {proxy}"))?;
    }
    if let Some((name, scheme)) = proxy_here(&status.proxies) {
        let text = format!(
            "{name} is set here, but the daemon was started without it and connects directly to {scheme}:// addresses"
        );
        report.more(
            &text,
            Some("set `proxy` in [network] of the configuration, or restart the daemon from this shell"),
        )?;
    }
    if status.tokens > 0 {
        let tokens = if status.tokens == 1 { "token is" } else { "tokens are" };
        report.good(&format!("{} {tokens} valid: `linger token list`", status.tokens))?;
    }
    if status.questions > 0 {
        let questions = if status.questions == 1 { "question waits" } else { "questions wait" };
        report.good(&format!("{} {questions}: `linger inbox`", status.questions))?;
    }
    Ok(())
}

/// A variable that names a proxy here but not for the daemon, and the scheme it is for.
fn proxy_here(proxies: &[String]) -> Option<(&'static str, &'static str)> {
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let has = |scheme: &str| {
        proxies.iter().any(|proxy| !proxy.starts_with("for ") || proxy.starts_with(&format!("for {scheme}: ")))
    };
    let mut lacking = PROXIES.iter().filter(|(scheme, _)| !has(scheme));
    lacking.find_map(|(scheme, names)| Some((*names.iter().find(|name| is_set(name))?, *scheme)))
}

/// Saves what can be read from damaged data while the daemon is stopped. Does nothing if there is no damage.
fn repair(mut client: Client, force: bool) -> Result<Recovered, Failure> {
    let checked = client.call(&DaemonCheck(Empty {}))?;
    if checked.complete && !checked.repairable {
        return Ok(Recovered::default());
    }
    let places = client.places.clone();
    drop(client);
    super::daemon::end_daemon(force, false, "`linger doctor --repair --force` stops the daemon anyway")?;
    start::recover(&places)
}

/// Reports the state of the database, and present and past damage.
fn stored(report: &mut Report, status: &Status, checked: Result<Checked, Failure>) -> Result<(), Failure> {
    let in_use = |damage: &Damage| damage.file.is_none() && damage.hint.is_some();
    let database = status.database.display();
    let damage = match &checked {
        Ok(checked) => &checked.damage,
        Err(failure) => {
            report.failure(failure)?;
            &status.damage
        }
    };
    match &checked {
        Ok(_) if damage.iter().any(in_use) => {}
        Ok(Checked { complete: true, .. }) => report.good(&format!("database {database}, completely readable"))?,
        Ok(_) => report.good(&format!("database {database}; it is large, only its beginning was read"))?,
        Err(_) => {}
    }
    for damage in damage {
        match &damage.hint {
            Some(hint) => report.bad(&damage.text, Some(hint))?,
            None if damage.file.is_none() => report.good(&damage.text)?,
            None => report.good(&format!("{}; it can be deleted", damage.text))?,
        }
        for left in damage.left.iter().take(NAMED) {
            let what = match left.events {
                0 => "is missing".to_owned(),
                events if left.of > events => format!("has {events} of its {} events", left.of),
                events => format!("has {events} events"),
            };
            report.more(&format!("session {} {what}: {}", left.session, left.text), None)?;
        }
        if damage.left.len() > NAMED {
            let rest = damage.left.len() - NAMED;
            report.more(&format!("and {rest} more"), Some("`linger daemon status --json` lists all"))?;
        }
    }
    Ok(())
}

fn space(report: &mut Report, storage: &Storage) -> Result<(), Failure> {
    report.good(&format!("storage: {}; {} free", super::daemon::storage(storage), size(storage.free)))?;
    if let Some(low) = super::daemon::low_space(storage) {
        report.bad(&low, Some("`linger rm --older-than 30d --dry-run` lists sessions that could be deleted"))?;
    }
    Ok(())
}

/// Reports usable models. `named` is the model of new sessions, which need not be listed by its provider; `waiting` says whether
/// changes of the configuration wait for confirmation.
fn models(report: &mut Report, rows: &[Model], named: Option<&str>, waiting: bool) -> Result<(), Failure> {
    for model in rows.iter().filter(|model| model.ready) {
        let default = if model.default { ", for new sessions" } else { "" };
        report.good(&format!("{}{default}{}", named_by(model), contact(model)))?;
    }
    if let Some(model) = rows.iter().find(|model| model.default && !model.ready) {
        let missing = model.missing.as_deref().unwrap_or("it is not ready");
        report.bad(&format!("model {}, for new sessions: {missing}", model.model), None)?;
    } else if rows.iter().any(|model| model.default) {
        // Listed above.
    } else if let Some(model) = named {
        report.good(&format!("model {model}, for new sessions"))?;
    } else if waiting {
        report.bad(
            "new sessions have no model yet: changes of the configuration are not confirmed",
            Some("run `linger config confirm` to review them and put them in force"),
        )?;
    } else {
        report.bad(
            "new sessions have no model",
            Some("run `linger init`, or export a key such as ANTHROPIC_API_KEY; `linger -m demo` needs no key"),
        )?;
    }
    Ok(())
}

/// The model of a row, or its provider if that has no default model.
fn named_by(model: &Model) -> String {
    match model.model.split_once('/') {
        Some((provider, "MODEL")) => format!("provider {provider}"),
        _ => format!("model {}", model.model),
    }
}

/// Whether the server of a model was contacted.
fn contact(model: &Model) -> &'static str {
    match (&model.base_url, model.contacted) {
        (None, _) => "",
        (Some(_), true) => "; its server is listening",
        (Some(_), false) => "; not contacted (--probe asks it)",
    }
}

/// Reports the answers of the providers that were asked for their models.
fn probed(report: &mut Report, rows: &[Model]) -> Result<(), Failure> {
    let of = |row: &Model| row.model.split('/').next().unwrap_or_default().to_owned();
    for rows in rows.chunk_by(|one, two| of(one) == of(two)) {
        let Some(first) = rows.first() else { continue };
        let (provider, contacted) = (of(first), rows.iter().any(|row| row.contacted));
        match rows.iter().find_map(|row| row.problem.as_deref()) {
            Some(problem) => report.bad(&format!("provider {provider}: {problem}"), Some(PROBE_HINT))?,
            None if contacted => report.good(&format!("provider {provider} answers: {} models", rows.len()))?,
            None if first.ready && first.base_url.is_some() => {
                report.more(&format!("provider {provider} offers no list of models"), None)?;
            }
            None => {}
        }
    }
    Ok(())
}

/// Reports where the key for new sessions comes from.
fn keys(report: &mut Report, listed: &Listed) -> Result<(), Failure> {
    let Some(info) = listed.keys.iter().find(|info| info.default) else { return Ok(()) };
    let text = format!("key of {}: {}", info.provider, super::key::origin(info));
    match (&listed.no_keychain, info.source) {
        (Some(why), Source::Keychain) => report.bad(
            &format!("{text}, but {why}"),
            Some("start the daemon in a session with a keychain, or use a variable"),
        ),
        // Reported with the model.
        (_, Source::Missing) => Ok(()),
        _ => report.good(&text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_seen_only_if_its_first_member_is() {
        let parents =
            |pid| [(9, 5), (5, 1), (1, 0), (8, 4), (7, 7)].iter().find(|(child, _)| *child == pid).map(|(_, p)| *p);
        assert_eq!([9, 5, 1, 8, 7, 3].map(|pid| sees_ancestors(pid, parents)), [true, true, true, false, false, false]);
        #[cfg(target_os = "linux")]
        assert_eq!(parent(std::process::id()), Some(std::os::unix::process::parent_id()));
    }
}
