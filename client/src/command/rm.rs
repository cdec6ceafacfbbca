//! `linger rm`: deletes a session and everything that was stored for it.

use linger_protocol::error::Code;
use linger_protocol::method::SessionRemove;
use linger_protocol::session::Remove;

use crate::cli::Rm;
use crate::connect::{Client, key, parse};
use crate::error::{Exit, Failure};

pub(super) fn run(args: &Rm) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let session = super::resolve(&mut client, &args.session)?.session;
    match client.call_raw(&SessionRemove(Remove { session, force: args.force, key: Some(key()?) }))? {
        Ok(raw) => parse::<SessionRemove>(&raw).map(|_| Exit::GOOD),
        Err(error) if error.code() == Some(Code::Busy) && error.get_hint().is_none() => {
            Err(Failure::from(error).hint(format!("`linger rm --force {}` cancels the turn first", args.session)))
        }
        Err(error) => Err(error.into()),
    }
}
