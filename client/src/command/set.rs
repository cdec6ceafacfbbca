//! `linger set`: changes a session without a prompt.

use linger_protocol::method::SessionSet;
use linger_protocol::session::{self, Info};
use serde_json::json;

use super::find::resolve;
use super::output::print_value;
use crate::arguments::{Changeable, Set};
use crate::connect::Client;
use crate::environment::absolute;
use crate::error::{Exit, Failure};
use crate::idempotency::key;

pub(super) fn run(args: Set) -> Result<Exit, Failure> {
    let Set { session, name, dir, changeable, remove_dir, json } = args;
    let cwd = absolute(dir.into_iter().collect())?.pop();
    let set = session::Set { name, cwd, remove_directories: absolute(remove_dir)?, ..changes(changeable)? };
    if set == session::Set::default() {
        let failure = Failure::usage("nothing to change: give an option, such as --mode edit");
        return Err(failure.hint("`linger set --help` lists the options"));
    }
    let mut client = Client::open()?;
    let session = resolve(&mut client, &session)?.session;
    client.call(&SessionSet(session::Set { session: session.clone(), key: Some(key()?), ..set }))?;
    if json {
        let Info { session, model, mode, .. } = resolve(&mut client, session.as_str())?;
        print_value(&json!({ "session": session, "model": model, "mode": mode }))?;
    }
    Ok(Exit::GOOD)
}

/// The change that these options ask for, without its session.
pub(super) fn changes(options: Changeable) -> Result<session::Set, Failure> {
    let Changeable { model, mode, effort, patience, fallback, unattended, limits, tools, add_dir } = options;
    Ok(session::Set {
        model,
        mode,
        effort,
        patience,
        fallback: Some(fallback).filter(|models| !models.is_empty()),
        unattended,
        budget: limits.into(),
        tools: Some(tools).filter(|tools| !tools.is_empty()),
        add_directories: absolute(add_dir)?,
        ..session::Set::default()
    })
}
