//! `linger gateway start|stop|status|url`: the HTTP server, a separate process.
//!
//! It is started here, so that it is not a process of the daemon. The daemon knows the `[gateway]` settings in force; the gateway
//! gets them as arguments. While it holds its lock, the lock file says where it listens.

use std::fs::{File, TryLockError};
use std::io::Read as _;

use linger_protocol::config::Get;
use linger_protocol::gateway::Running;
use linger_protocol::method::{ConfigGet, TokenMint};
use linger_protocol::permission::Mode;
use linger_protocol::place::Places;
use linger_protocol::token::{Can, Mint};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::{Value, json};

use super::output::print_value;
use crate::arguments::{Gateway, GatewayStart, GatewayUrl};
use crate::connect::Client;
use crate::connect::start::{become_gateway, gateway};
use crate::environment::now;
use crate::error::{Exit, Failure};
use crate::render::table::{age, columns};
use crate::terminal::Terminal;

/// The rights of the web page: everything a person does in a session.
const PAGE: [Can; 4] = [Can::Observe, Can::Speak, Can::Steer, Can::AnswerCommands];

/// Seconds that a gateway may take to end.
const END_S: i64 = 5;

/// Bytes of the lock file that are read: a line of JSON with a path and a name.
const MAX_FILE: u64 = 16 << 10;

pub(super) fn run(command: &Gateway) -> Result<Exit, Failure> {
    match command {
        Gateway::Start(args) => start(args),
        Gateway::Stop(args) => stop(args.json),
        Gateway::Status(args) => status(args.json),
        Gateway::Url(args) => url(args),
    }
}

/// The running gateway, if any.
fn running(places: &Places) -> Option<Running> {
    let file = File::open(places.gateway()).ok()?;
    // A free lock means that none is running.
    if !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        return None;
    }
    let mut text = String::new();
    file.take(MAX_FILE).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn none() -> Failure {
    Failure::unreachable("the gateway is not running").hint("`linger gateway start` starts it")
}

/// The `[gateway]` settings in force, as arguments.
fn arguments(settings: &Value) -> Vec<String> {
    let Some(table) = settings.get("gateway") else { return Vec::new() };
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let one = |name: &str, key: &str| Some(format!("{name}={}", text(table.get(key)?)));
    let single = [("--listen", "listen"), ("--public-url", "public_url"), ("--max-connections", "max_connections")];
    let single = single.into_iter().filter_map(|(name, key)| one(name, key));
    let origins = table.get("origins").and_then(Value::as_array).into_iter().flatten();
    single.chain(origins.map(|origin| format!("--origin={}", text(origin)))).collect()
}

fn start(args: &GatewayStart) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let settings = client.call(&ConfigGet(Get::default()))?;
    if settings.waiting.is_some_and(|waiting| waiting.changes.iter().any(|line| line.starts_with("gateway."))) {
        Terminal::new()
            .say("warning: a change of [gateway] waits for confirmation\nhint: run `linger config confirm`")?;
    }
    let arguments = arguments(&settings.settings.unwrap_or_default());
    let places = client.places.clone();
    drop(client);
    if args.foreground {
        return Err(become_gateway(&arguments));
    }
    gateway(&places, &arguments)?;
    let running =
        running(&places).ok_or_else(|| Failure::new(Exit::FAILED, "the gateway ended right after its start"))?;
    if args.json {
        print_value(&running)?;
        return Ok(Exit::GOOD);
    }
    Terminal::new().say(&format!("the gateway is listening at {}", place(&running)))?;
    Terminal::new()
        .say("hint: `linger gateway url` prints a link to the page; `linger token mint` creates a token for scripts")?;
    Ok(Exit::GOOD)
}

/// Where it listens, and the public address if there is a proxy.
fn place(running: &Running) -> String {
    let Running { listen, url, .. } = running;
    match url {
        Some(url) if url.strip_prefix("http://") == Some(listen) => url.clone(),
        Some(url) => format!("{listen}, public address {url}"),
        None => listen.clone(),
    }
}

/// Prints a link with a code that the page exchanges for its cookie.
fn url(args: &GatewayUrl) -> Result<Exit, Failure> {
    let places = Places::of_user()?;
    let running = running(&places).ok_or_else(none)?;
    let Some(page) = running.url else {
        let failure = Failure::new(Exit::FAILED, format!("browsers cannot reach {}", running.listen));
        return Err(failure.hint("set gateway.public_url to your proxy's address, or gateway.listen to 127.0.0.1:0"));
    };
    let can = if args.read_only { vec![Can::Observe] } else { PAGE.to_vec() };
    let mint = Mint { name: "page".to_owned(), can: Some(can), mode: Some(Mode::Auto), once: true, ..Mint::default() };
    let minted = Client::open()?.call(&TokenMint(mint))?;
    let question = args.question.as_ref().map(|question| format!("&question={question}")).unwrap_or_default();
    let url = format!("{page}/#code={}{question}", minted.token);
    if args.json {
        print_value(&json!({ "url": url, "id": minted.id }))?;
        return Ok(Exit::GOOD);
    }
    let mut terminal = Terminal::new();
    terminal.line(&url)?;
    terminal.say("hint: open it within 5 minutes; it works once, and the browser stays logged in for 30 days")?;
    Ok(Exit::GOOD)
}

fn status(json: bool) -> Result<Exit, Failure> {
    let places = Places::of_user()?;
    let running = running(&places);
    if json {
        let mut value = serde_json::to_value(&running).unwrap_or_default();
        match value.as_object_mut() {
            Some(fields) => drop(fields.insert("running".to_owned(), true.into())),
            None => value = json!({ "running": false }),
        }
        print_value(&value)?;
    }
    let running = running.ok_or_else(none)?;
    if json {
        return Ok(Exit::GOOD);
    }
    let Running { pid, listen, url, version, started_at } = running;
    let mut rows = vec![
        ("version", version),
        ("process", format!("{pid}, running for {}", age(started_at, now()))),
        ("listens at", listen),
    ];
    rows.extend(url.map(|url| ("page", url)));
    rows.push(("log", places.gateway_log().display().to_string()));
    let rows: Vec<_> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    let mut terminal = Terminal::new();
    columns(&rows).iter().try_for_each(|line| terminal.line(line))?;
    Ok(Exit::GOOD)
}

fn stop(json: bool) -> Result<Exit, Failure> {
    let places = Places::of_user()?;
    let found = running(&places);
    if let Some(found) = &found {
        end(&places, found)?;
    }
    if json {
        print_value(&json!({ "stopped": found.is_some() }))?;
        return Ok(Exit::GOOD);
    }
    let message = if found.is_some() { "stopped the gateway; sessions continue" } else { "the gateway is not running" };
    Terminal::new().say(message)?;
    Ok(Exit::GOOD)
}

/// Stops the process that holds the lock, and no other.
fn end(places: &Places, found: &Running) -> Result<(), Failure> {
    let failed = |why: String| {
        Failure::new(Exit::FAILED, format!("the gateway (process {}) cannot be stopped: {why}", found.pid))
    };
    let pid = i32::try_from(found.pid).ok().and_then(Pid::from_raw);
    let process =
        pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())).transpose().map_err(|error| failed(error.to_string()))?;
    // The descriptor holds the process: if it still has the lock, its number was not reused.
    let Some(process) = process.filter(|_| running(places).as_ref() == Some(found)) else { return Ok(()) };
    pidfd_send_signal(&process, Signal::TERM).map_err(|error| failed(error.to_string()))?;
    let limit = Timespec { tv_sec: END_S, tv_nsec: 0 };
    match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)) {
        Ok(1..) => Ok(()),
        Ok(0) => {
            Err(failed(format!("it still runs after {END_S} s")).hint(format!("`kill -9 {}` kills it", found.pid)))
        }
        Err(error) => Err(failed(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_for_a_proxy_is_shown_with_the_public_address() {
        let place = |listen: &str, url: Option<&str>| {
            place(&Running {
                pid: 1,
                listen: listen.into(),
                url: url.map(Into::into),
                version: String::new(),
                started_at: 0,
            })
        };
        assert_eq!(place("127.0.0.1:1", Some("http://127.0.0.1:1")), "http://127.0.0.1:1");
        assert_eq!(place("127.0.0.1:1", Some("https://a")), "127.0.0.1:1, public address https://a");
        assert_eq!(place("unix:/s", None), "unix:/s");
    }

    #[test]
    fn the_settings_are_the_gateways_arguments() {
        let settings = json!({ "model": "x", "gateway": {
            "listen": "127.0.0.1:1", "origins": ["https://a", "https://b"], "max_connections": 7 } });
        let expect = ["--listen=127.0.0.1:1", "--max-connections=7", "--origin=https://a", "--origin=https://b"];
        assert_eq!(arguments(&settings), expect);
        assert_eq!(arguments(&json!({})), [""; 0]);
    }
}
