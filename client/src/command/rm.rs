//! `linger rm`: deletes a session and everything that was stored for it.

use linger_protocol::error::Code;
use linger_protocol::method::SessionRemove;
use linger_protocol::session::Remove;
use serde_json::json;

use crate::arguments::Rm;
use crate::connect::{Client, parse};
use crate::error::{Exit, Failure};
use crate::idempotency::key;

pub(super) fn run(args: &Rm) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let session = super::resolve(&mut client, &args.session)?.session;
    let remove = Remove { session: session.clone(), force: args.force, key: Some(key()?) };
    match client.call_raw(&SessionRemove(remove))? {
        Ok(raw) => parse::<SessionRemove>(&raw).map(drop)?,
        Err(error) if error.code() == Some(Code::Busy) && error.get_hint().is_none() => {
            let hint = format!("`linger rm --force {}` cancels the turn first", args.session);
            return Err(Failure::from(error).hint(hint));
        }
        Err(error) => return Err(error.into()),
    }
    if args.json {
        super::print_value(&json!({ "session": session }))?;
    }
    Ok(Exit::GOOD)
}
