//! `linger doctor --env`: the variables that tools get, and those withheld from them. Only names, never values.

use linger_protocol::method::SessionEnv;
use linger_protocol::session::{Environment, Named};
use serde_json::{Map, Value, json};

use super::find::resolve;
use super::output::print_value;
use crate::arguments::Env;
use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::render::table::columns;
use crate::terminal::Terminal;

pub(super) fn run(args: &Env) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let (given, withheld) = client.environment();
    let (session, names) = match &args.session {
        Some(session) => {
            let session = resolve(&mut client, session)?.session;
            let names = client.call(&SessionEnv(Named { session: session.clone() }))?;
            (Some(session), names)
        }
        None => {
            let secrets = client.secret_env();
            let (secret, variables) = given.into_keys().partition(|name| secrets.contains_key(name));
            (None, Environment { variables, secret, missing: Vec::new() })
        }
    };
    if args.json {
        let withheld: Map<String, Value> =
            withheld.into_iter().map(|(name, why)| (name, why.to_string().into())).collect();
        let Environment { variables, secret, missing } = names;
        let value = json!({
            "session": session, "variables": variables, "secret": secret, "missing": missing, "withheld": withheld,
        });
        print_value(&value)?;
        return Ok(Exit::GOOD);
    }
    let secret = |name: &String| {
        if names.missing.contains(name) {
            "secret; missing since the daemon was restarted"
        } else {
            "secret, only in the daemon's memory"
        }
    };
    let plain = names.variables.iter().map(|name| vec![name.clone(), String::new()]);
    let secrets = names.secret.iter().map(|name| vec![name.clone(), secret(name).to_owned()]);
    let others = withheld.iter().map(|(name, why)| vec![name.clone(), format!("in this shell, withheld: {why}")]);
    let mut terminal = Terminal::new();
    for line in columns(&plain.chain(secrets).chain(others).collect::<Vec<_>>()) {
        terminal.line(line.trim_end())?;
    }
    if !names.missing.is_empty() {
        terminal.say("attach or send a prompt from a shell that has the missing variables")?;
    }
    Ok(Exit::GOOD)
}
