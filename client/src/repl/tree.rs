//! `/fork`, `/rewind`, `/uncompact` and `/tree`: other ways on from points of the session, and changing to another session of its tree.

use linger_protocol::method::{SessionFork, SessionList, SessionPrompts, SessionRewind, SessionUncompact};
use linger_protocol::session::{Info, List};
use linger_protocol::tree::{Fork, Prompts, Rewind, Uncompact};

use super::state::Repl;
use crate::connect::parse;
use crate::environment::now;
use crate::error::Failure;
use crate::idempotency::key;
use crate::render::tree::{around, numbered, prompts, quoted};

/// Prompts that `/rewind` lists.
const LISTED: u32 = 20;

impl Repl {
    /// Makes a fork and enters it.
    pub(super) fn fork(&mut self, at: Option<String>) -> Result<(), Failure> {
        let session = self.attachment.session.clone();
        // The fork begins with the text that is on the screen.
        let is_shown = at.is_none() && self.turn.running.is_none();
        let fork = Fork { session, at, name: None, cwd: None, key: Some(key()?) };
        match self.attachment.client.call_raw(&SessionFork(fork))? {
            Ok(made) => {
                let made = parse::<SessionFork>(&made)?;
                let info = self.attachment.client.session_info(&made.session)?;
                self.go_over(info, is_shown)?;
                match made.text {
                    Some(text) => self.say(&format!("forked before the prompt \"{}\"", quoted(&text))),
                    None => Ok(()),
                }
            }
            Err(error) => self.complain(error.into()),
        }
    }

    /// Goes back to the N-th prompt of the list, or shows the list.
    pub(super) fn rewind(&mut self, number: Option<usize>, files: bool) -> Result<(), Failure> {
        let session = self.attachment.session.clone();
        let limit = Some(number.map_or(LISTED, |n| u32::try_from(n).unwrap_or(u32::MAX).max(LISTED)));
        let rows =
            match self.attachment.client.call_raw(&SessionPrompts(Prompts { session: session.clone(), limit }))? {
                Ok(rows) => parse::<SessionPrompts>(&rows)?,
                Err(error) => return self.complain(error.into()),
            };
        let Some(number) = number else {
            if rows.is_empty() {
                return self.say("no prompt to go back to");
            }
            for line in prompts(&rows, now(), true) {
                self.say(&line)?;
            }
            return self.say(
                "1 is the latest prompt; /rewind N goes back to just before prompt N, --files restores files too",
            );
        };
        let Some(row) = rows.get(number - 1) else {
            return self.say("no such prompt; /rewind lists them, 1 is the latest");
        };
        self.say(&format!("going back to before \"{}\"", quoted(&row.text)))?;
        let rewind = Rewind { session, to: Some(row.prompt.clone()), files, key: Some(key()?), ..Rewind::default() };
        // The event says that it went back.
        match self.attachment.client.call_raw(&SessionRewind(rewind))? {
            Ok(_) => Ok(()),
            Err(error) => self.complain(error.into()),
        }
    }

    /// Takes back the latest summary; the event says so.
    pub(super) fn uncompact(&mut self) -> Result<(), Failure> {
        let session = self.attachment.session.clone();
        match self.attachment.client.call_raw(&SessionUncompact(Uncompact { session, key: Some(key()?) }))? {
            Ok(_) => Ok(()),
            Err(error) => self.complain(error.into()),
        }
    }

    /// Shows the tree of the session, or changes to the N-th of it.
    pub(super) fn tree(&mut self, number: Option<usize>) -> Result<(), Failure> {
        let here = self.attachment.session.clone();
        let rows = self.attachment.client.call(&SessionList(List::default()))?;
        let tree = around(&rows, &here);
        let Some(number) = number else {
            for line in numbered(&tree, &here, now()) {
                self.say(&line)?;
            }
            return self.say(if tree.len() > 1 { "/tree N switches to another one" } else { "/fork makes one" });
        };
        match tree.get(number - 1) {
            Some((_, row)) if row.session == here => self.say("you are already in this session"),
            Some((_, row)) => self.go_over(Info::clone(row), false),
            None => self.say("no such session; /tree lists them"),
        }
    }
}
