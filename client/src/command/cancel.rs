//! `linger cancel`: stops a session's turn and keeps the session.

use linger_protocol::method::SessionCancel;
use linger_protocol::session::Named as Params;

use crate::cli::Named;
use crate::connect::Client;
use crate::error::{Exit, Failure};

pub(super) fn run(args: &Named) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let session = super::resolve(&mut client, &args.session)?.session;
    client.call(&SessionCancel(Params { session }))?;
    Ok(Exit::GOOD)
}
