//! `linger attach`, and `linger` alone: an interactive session.

use linger_protocol::id::SessionId;
use linger_protocol::method::SessionList;
use linger_protocol::session::{Info, List};

use super::{log, made, resolve};
use crate::arguments::{Attach, Choice, Log};
use crate::connect::Client;
use crate::environment::working_directory;
use crate::error::{Exit, Failure};
use crate::repl::{needs_terminal, repl};
use crate::terminal::Capabilities;

pub(super) fn run(args: &Attach) -> Result<Exit, Failure> {
    if args.json {
        return log::run(&Log { session: args.session.clone(), follow: true, json: true });
    }
    let look = Capabilities::detect();
    needs_terminal(&look, &format!("`linger log -f {}` follows a session without one", args.session))?;
    let mut client = Client::open()?;
    let info = resolve(&mut client, &args.session)?;
    repl(client, &look, info)
}

/// The latest session of this directory, or a new one.
pub(super) fn latest() -> Result<Exit, Failure> {
    let look = Capabilities::detect();
    needs_terminal(&look, "`linger run PROMPT` works without one, `linger help` lists the commands")?;
    let mut client = Client::open()?;
    let list = List { cwd: Some(working_directory()?), limit: Some(1), ..List::default() };
    let info = match client.call(&SessionList(list))?.into_iter().next() {
        Some(info) => info,
        None => {
            let session = made(&mut client, Choice::default())?.session;
            find(&mut client, &session)?
        }
    };
    repl(client, &look, info)
}

fn find(client: &mut Client, session: &SessionId) -> Result<Info, Failure> {
    resolve(client, session.as_str())
}
