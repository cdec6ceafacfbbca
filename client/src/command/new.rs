//! `linger new`: creates a session and prints its id.

use crate::arguments::New;
use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::terminal::Terminal;

pub(super) fn run(args: New) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    if args.json {
        let made = super::create::create_with_warning(&mut client, args.choice, false)?;
        super::output::print_value(&made)?;
        return Ok(Exit::GOOD);
    }
    let session = super::create::create(&mut client, args.choice, false)?;
    Terminal::new().line(session.as_str())?;
    Ok(Exit::GOOD)
}
