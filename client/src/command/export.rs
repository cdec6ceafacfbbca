//! `linger export`: prints a session as Markdown, or its events as JSON lines.

use linger_protocol::event::EventBody;

use super::undo::one;
use super::wait::reattach;
use crate::arguments::{Export, ExportFormat};
use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::follow::{Attachment, Happened};
use crate::render::export::markdown;
use crate::terminal::{Capabilities, Terminal, clean};

pub(super) fn run(args: &Export) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let session = one(&mut client, args.session.as_deref())?.session;
    let to_terminal = Capabilities::detect().stdout;
    let mut terminal = Terminal::new();
    let mut attachment = Attachment::start(client, session, None, false)?;
    loop {
        match attachment.next(None)? {
            Happened::Event(notification, raw) => {
                if matches!(notification.event.body, EventBody::CaughtUp {}) {
                    return Ok(Exit::GOOD);
                }
                if args.json || args.format == ExportFormat::Jsonl {
                    terminal.data(raw.get())?;
                    continue;
                }
                let text = markdown(&notification.event);
                // A terminal gets the text without control characters, a file gets it unchanged.
                terminal.text(&if to_terminal { clean(&text).into_owned() } else { text })?;
            }
            Happened::Lost => reattach(&mut attachment)?,
            _ => {}
        }
    }
}
