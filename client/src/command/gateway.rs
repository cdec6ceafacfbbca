//! `linger gateway start|stop|status|url`: the HTTP server, a separate process.
//!
//! It is started here, so that it is not a process of the daemon. The daemon knows the `[gateway]` settings in force; the gateway
//! gets them as arguments, and tells the daemon where it listens. A file could be written by any process of the user, so none is
//! read; `stop` ends the process that holds the gateway's lock.

use std::time::{Duration, Instant};

use linger_protocol::config::Get;
use linger_protocol::daemon::Empty;
use linger_protocol::gateway::RunningGateway;
use linger_protocol::listener::holder::{self, Holder};
use linger_protocol::method::{ConfigGet, DaemonStatus, TokenMint};
use linger_protocol::permission::Mode;
use linger_protocol::place::Places;
use linger_protocol::token::{Can, Mint};
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

/// How long a gateway may take to end.
const END: Duration = Duration::from_secs(5);

/// How long a gateway may take to find a daemon that has just started, and the pause between two looks.
const FINDS: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(20);

pub(super) fn run(command: &Gateway) -> Result<Exit, Failure> {
    match command {
        Gateway::Start(args) => start(args),
        Gateway::Stop(args) => stop(args.json),
        Gateway::Status(args) => status(args.json),
        Gateway::Url(args) => url(args),
    }
}

/// The running gateway, as the daemon knows it. Fails if there is none, or if the listener at the socket is not proven.
fn running(client: &mut Client) -> Result<RunningGateway, Failure> {
    client.must_be_proven("so where the gateway listens is not asked there")?;
    let deadline = Instant::now() + FINDS;
    loop {
        if let Some(running) = client.call(&DaemonStatus(Empty {}))?.gateway {
            return Ok(running);
        }
        let Some(holder) = lock_holder(&client.places) else { return Err(none()) };
        // It registers within milliseconds of the daemon's start.
        if Instant::now() >= deadline {
            let text = format!("process {} holds the gateway's lock, but the daemon knows no gateway", holder.pid);
            return Err(
                Failure::unreachable(text).hint("`linger gateway stop` ends it, `linger gateway start` starts one")
            );
        }
        std::thread::sleep(LOOK);
    }
}

/// The process that holds the gateway's lock.
fn lock_holder(places: &Places) -> Option<Holder> {
    holder::of_file(&places.gateway())
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
    let models = table.get("models").and_then(Value::as_object).into_iter().flatten();
    let models = models.map(|(alias, model)| format!("--model={alias}={}", text(model)));
    single.chain(origins.map(|origin| format!("--origin={}", text(origin)))).chain(models).collect()
}

fn start(args: &GatewayStart) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    client.must_be_proven("so no gateway is started for it")?;
    let settings = client.call(&ConfigGet(Get::default()))?;
    if settings.waiting.is_some_and(|waiting| waiting.changes.iter().any(|line| line.starts_with("gateway."))) {
        Terminal::new()
            .say("warning: a change of [gateway] waits for confirmation\nhint: run `linger config confirm`")?;
    }
    let arguments = arguments(&settings.settings.unwrap_or_default());
    if args.foreground {
        drop(client);
        return Err(become_gateway(&arguments));
    }
    gateway(&client.places, &arguments)?;
    let running = running(&mut client)?;
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
fn place(running: &RunningGateway) -> String {
    let RunningGateway { listen, url, .. } = running;
    match url {
        Some(url) if url.strip_prefix("http://") == Some(listen) => url.clone(),
        Some(url) => format!("{listen}, public address {url}"),
        None => listen.clone(),
    }
}

/// Prints a link with a code that the page exchanges for its cookie.
fn url(args: &GatewayUrl) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let running = running(&mut client)?;
    let Some(page) = running.url else {
        let failure = Failure::new(Exit::FAILED, format!("browsers cannot reach {}", running.listen));
        return Err(failure.hint("set gateway.public_url to your proxy's address, or gateway.listen to 127.0.0.1:0"));
    };
    let can = if args.read_only { vec![Can::Observe] } else { PAGE.to_vec() };
    let mint = Mint { name: "page".to_owned(), can: Some(can), mode: Some(Mode::Auto), once: true, ..Mint::default() };
    let minted = client.call(&TokenMint(mint))?;
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
    let mut client = Client::open_if_running()?;
    let found = client.as_mut().map(running);
    if json {
        let value = match &found {
            Some(Ok(running)) => {
                let mut value = json!(running);
                if let Some(fields) = value.as_object_mut() {
                    fields.insert("running".to_owned(), true.into());
                }
                value
            }
            _ => json!({ "running": false }),
        };
        print_value(&value)?;
    }
    let (Some(client), Some(found)) = (&client, found) else {
        let holder = lock_holder(&Places::of_user()?).ok_or_else(none)?;
        let text = format!("the gateway (process {}) waits for the daemon, which is not running", holder.pid);
        return Err(Failure::unreachable(text).hint("`linger daemon start` starts it"));
    };
    let running = found?;
    if json {
        return Ok(Exit::GOOD);
    }
    let RunningGateway { pid, listen, url, version, started_at } = running;
    let mut rows = vec![
        ("version", version),
        ("process", format!("{pid}, running for {}", age(started_at, now()))),
        ("listens at", listen),
    ];
    rows.extend(url.map(|url| ("page", url)));
    rows.push(("log", client.places.gateway_log().display().to_string()));
    let rows: Vec<_> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    let mut terminal = Terminal::new();
    columns(&rows).iter().try_for_each(|line| terminal.line(line))?;
    Ok(Exit::GOOD)
}

fn stop(json: bool) -> Result<Exit, Failure> {
    let found = lock_holder(&Places::of_user()?);
    if let Some(found) = &found {
        end(found)?;
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
fn end(found: &Holder) -> Result<(), Failure> {
    let pid = found.pid;
    let failed =
        |why: String| Failure::new(Exit::FAILED, format!("the gateway (process {pid}) cannot be stopped: {why}"));
    let asked = found.terminate();
    if found.ends_within(END) {
        return Ok(());
    }
    asked.map_err(|error| failed(error.to_string()))?;
    Err(failed(format!("it still runs after {} s", END.as_secs())).hint(format!("`kill -9 {pid}` kills it")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_for_a_proxy_is_shown_with_the_public_address() {
        let place = |listen: &str, url: Option<&str>| {
            place(&RunningGateway {
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
            "listen": "127.0.0.1:1", "origins": ["https://a", "https://b"], "max_connections": 7, "models": { "gpt": "p/m" } } });
        let expect = [
            "--listen=127.0.0.1:1",
            "--max-connections=7",
            "--origin=https://a",
            "--origin=https://b",
            "--model=gpt=p/m",
        ];
        assert_eq!(arguments(&settings), expect);
        assert_eq!(arguments(&json!({})), [""; 0]);
    }
}
