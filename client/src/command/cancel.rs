//! `linger cancel`: stops a session's turn and keeps the session.

use linger_protocol::error::Code;
use linger_protocol::method::SessionCancel;
use linger_protocol::session::Keyed;

use crate::cli::Named;
use crate::connect::{Client, key, parse};
use crate::error::{Exit, Failure};

pub(super) fn run(args: &Named) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let session = super::resolve(&mut client, &args.session)?.session;
    match client.call_raw(&SessionCancel(Keyed { session, key: Some(key()?) }))? {
        Ok(raw) => parse::<SessionCancel>(&raw).map(|_| Exit::GOOD),
        Err(error) if error.code() == Some(Code::Idle) && error.get_hint().is_none() => {
            Err(Failure::from(error).hint("there is nothing to stop; `linger ls` shows which sessions run"))
        }
        Err(error) => Err(error.into()),
    }
}
