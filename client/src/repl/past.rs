//! The past of a session that is entered: read from its log, shown in a screenful.
//!
//! It is read over a connection of its own, so that nothing of it is left on the one that shows the session. Of a long log only
//! what is new and the last turn are read.

use linger_protocol::event::{Event, EventBody};
use linger_protocol::id::{Cursor, SessionId};
use linger_protocol::session::{Info, State};

use crate::connect::Client;
use crate::environment::now;
use crate::error::Failure;
use crate::follow::{Attachment, Happened};
use crate::render::back::{Back, Space};
use crate::render::markdown::Layout;
use crate::render::since::Since;
use crate::render::style::Style;

/// Lines of a terminal that does not tell its size.
const HEIGHT: usize = 24;

/// The largest log that is read from its beginning, in bytes: some hundredths of a second.
const MAX_READ: u64 = 4 << 20;

/// The most events that a fork may share and that are read for that: its size says nothing of them.
const MAX_SHARED: u64 = 20_000;

/// The lines of a session's past, and its row; what comes after them is `turn_cursor` of the row.
pub(crate) fn past(layout: Layout, info: Info, space: Space) -> Result<(Vec<String>, Info), Failure> {
    // A running turn is shown live.
    let is_idle = info.state == State::Idle;
    let until = if is_idle { info.cursor.clone() } else { info.turn_cursor.clone() };
    if info.damaged.is_some() || until == Cursor::default() {
        return Ok((Vec::new(), info));
    }
    let shares_much = info.origin.as_ref().is_some_and(|origin| origin.seq > MAX_SHARED);
    let is_whole = info.size <= MAX_READ && !shares_much;
    let (mut back, mut since) = (Back::default(), info.left.clone().map(Since::new));
    if is_whole {
        read(&info.session, None, &until, |event| {
            back.event(event);
            if let Some(since) = &mut since {
                since.event(event);
            }
        })?;
    } else {
        if let (Some(since), Some(left)) = (&mut since, &info.left) {
            read(&info.session, Some(left.cursor.clone()), &until, |event| since.event(event))?;
        }
        if is_idle {
            back = Back::of_last_turns();
            read(&info.session, Some(info.turn_cursor.clone()), &until, |event| back.event(event))?;
        }
    }
    let style = Style { color: layout.color, unicode: layout.unicode };
    let mut lines = since.map(|since| since.lines(&info.cwd, style, layout.width, now())).unwrap_or_default();
    // What is new is a part of the screenful.
    let space = match space {
        Space::Lines(rows) => Space::Lines(rows.saturating_sub(lines.len())),
        space => space,
    };
    let past = back.lines(&info, layout, &space, now());
    let is_shown = is_whole || !past.is_empty();
    lines.extend(past);
    Ok((lines, if is_shown { Info { turn_cursor: until, ..info } } else { info }))
}

/// Reads what was logged after a cursor, up to another one.
fn read(session: &SessionId, from: Option<Cursor>, to: &Cursor, mut each: impl FnMut(&Event)) -> Result<(), Failure> {
    if from.as_ref() == Some(to) {
        return Ok(());
    }
    let mut attachment = Attachment::start(Client::open_silent(None)?, session.clone(), from, false)?;
    loop {
        match attachment.next(None)? {
            Happened::Event(notification, _) => {
                if matches!(notification.event.body, EventBody::CaughtUp {}) {
                    return Ok(());
                }
                each(&notification.event);
                if notification.cursor == *to {
                    return Ok(());
                }
            }
            Happened::Lost if !attachment.reattach_soon()? => attachment.reattach()?,
            _ => {}
        }
    }
}

/// Lines of the terminal that the past may fill: not the last few, where the prompt is.
pub(crate) fn height() -> usize {
    let rows = rustix::termios::tcgetwinsize(rustix::stdio::stderr()).map(|size| usize::from(size.ws_row));
    rows.ok().filter(|rows| *rows >= 10).unwrap_or(HEIGHT).saturating_sub(4)
}
