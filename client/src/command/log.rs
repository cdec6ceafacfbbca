//! `linger log`: prints what happened in a session, and with `-f` what happens.

use linger_protocol::event::{EventBody, NoticeCode};

use super::resolve;
use super::wait::reattach;
use crate::arguments::Log;
use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::follow::{Attachment, Happened};
use crate::input::signals;
use crate::render::style::Style;
use crate::render::{Renderer, Settings, Thinking};
use crate::terminal::{Capabilities, Terminal};

pub(super) fn run(args: &Log) -> Result<Exit, Failure> {
    let look = Capabilities::detect();
    let mut client = Client::open()?;
    let session = resolve(&mut client, &args.session)?.session;
    if args.follow {
        // The way to leave. Without it, a story that is cut is no success.
        signals(client.sender(), false)?;
    }
    let mut terminal = Terminal::new();
    // Here the talk is the data.
    terminal.one_stream = true;
    let mut renderer = Renderer::new(Settings {
        style: Style { color: look.color && look.stdout, unicode: look.unicode },
        width: look.width,
        raw: false,
        deltas: false,
        thinking: Thinking::Hide,
        usage: true,
        permissions: true,
        prompts: true,
        me: String::new(),
    });
    let mut attachment = Attachment::start(client, session, None, false)?;
    loop {
        match attachment.next(None)? {
            Happened::Event(notification, raw) => {
                let caught_up = matches!(notification.event.body, EventBody::CaughtUp {});
                let removed =
                    matches!(notification.event.body, EventBody::Notice { code: Some(NoticeCode::Removed), .. });
                match args.json {
                    true if caught_up => {}
                    true => terminal.data(raw.get())?,
                    false => terminal.print(renderer.event(&notification.event))?,
                }
                if removed || (caught_up && !args.follow) {
                    return Ok(Exit::GOOD);
                }
            }
            Happened::Lost => reattach(&mut attachment)?,
            Happened::Signal(_) => return Ok(Exit::GOOD),
            _ => {}
        }
    }
}
