//! `linger rename`: gives a session another name.

use linger_protocol::method::SessionSet;
use linger_protocol::session::Set;
use serde_json::json;

use crate::arguments::Rename;
use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::idempotency::key;

pub(super) fn run(args: Rename) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let session = super::find::resolve(&mut client, &args.session)?.session;
    let name = args.name;
    let set = Set { session: session.clone(), name: Some(name.clone()), key: Some(key()?), ..Set::default() };
    client.call(&SessionSet(set))?;
    if args.json {
        super::output::print_value(&json!({ "session": session, "name": name }))?;
    }
    Ok(Exit::GOOD)
}
