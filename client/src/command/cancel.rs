//! `linger cancel`: stops a session's turn and keeps the session.

use linger_protocol::error::Code;
use linger_protocol::method::SessionCancel;
use linger_protocol::session::{self, State};
use serde_json::json;

use crate::arguments::Cancel;
use crate::connect::{Client, parse};
use crate::error::{Exit, Failure};
use crate::idempotency::key;
use crate::terminal::Terminal;

pub(super) fn run(args: &Cancel) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let session = super::find::resolve(&mut client, &args.session)?.session;
    let cancel = session::Cancel { session: session.clone(), background: args.background, key: Some(key()?) };
    match client.call_raw(&SessionCancel(cancel))? {
        Ok(raw) => parse::<SessionCancel>(&raw).map(drop)?,
        Err(error) if error.code() == Some(Code::Idle) && error.get_hint().is_none() => {
            let hint = "nothing to stop; `linger ls` shows which sessions are running";
            return Err(Failure::from(error).hint(hint));
        }
        Err(error) => return Err(error.into()),
    }
    let info = client.session_info(&session)?;
    if let Some(note) = super::output::queued_note(info.queued, &session).filter(|_| info.state == State::Idle) {
        Terminal::new().say(&note)?;
    }
    if let Some(note) = super::output::drafts_note(info.drafts, &session) {
        Terminal::new().say(&note)?;
    }
    if args.json {
        super::output::print_value(&json!({ "session": session }))?;
    }
    Ok(Exit::GOOD)
}
