//! Changes that an editor or another program may have made while a command ran, a line each.

use std::path::Path;

use linger_protocol::checkpoint::UncertainChange;
use linger_protocol::event::ChangeKind;
use linger_protocol::path::shown;

use super::table::{columns, moment};
use crate::terminal::clean_line;

/// The changes with their times, aligned; paths below `cwd` without that.
pub(crate) fn uncertain_lines(changes: &[UncertainChange], cwd: &Path) -> Vec<String> {
    let row = |change: &UncertainChange| {
        let path = shown(change.path.strip_prefix(cwd).unwrap_or(&change.path));
        vec![clean_line(&path).into_owned(), what(change), during(change)]
    };
    columns(&changes.iter().map(row).collect::<Vec<_>>())
}

/// One change in a sentence.
pub(super) fn uncertain_line(change: &UncertainChange) -> String {
    format!("{}: {}, {}", clean_line(&shown(&change.path)), what(change), during(change))
}

fn what(change: &UncertainChange) -> String {
    let verb = match change.kind {
        ChangeKind::Create => "created",
        ChangeKind::Delete => "deleted",
        ChangeKind::Edit | ChangeKind::Unknown => "changed",
    };
    change.at.map_or(verb.to_owned(), |at| format!("{verb} {}", moment(at)))
}

fn during(change: &UncertainChange) -> String {
    let call = clean_line(change.call_id.as_str());
    match change.from {
        Some(from) => format!("while {call} ran from {} to {}", time(from), time(change.to)),
        None => format!("while {call} ran until {}", time(change.to)),
    }
}

/// The time of the day of a moment.
fn time(ms: u64) -> String {
    let moment = moment(ms);
    moment.split_once(' ').map_or(moment.clone(), |(_, time)| time.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_has_its_time_and_the_one_of_the_call() {
        let change = |path: &str, kind, at| {
            let (path, call_id) = (path.into(), "c3".into());
            UncertainChange { path, kind, call_id, at, from: Some(1_000), to: 4_000 }
        };
        let changes = [change("/w/f", ChangeKind::Edit, Some(2_000)), change("/w/long\n", ChangeKind::Delete, None)];
        assert_eq!(
            uncertain_lines(&changes, Path::new("/w")),
            [
                "f       changed 1970-01-01 00:00:02Z  while c3 ran from 00:00:01Z to 00:00:04Z",
                "long\\n  deleted                       while c3 ran from 00:00:01Z to 00:00:04Z",
            ]
        );
        let unknown = UncertainChange { from: None, ..changes[0].clone() };
        assert_eq!(uncertain_line(&unknown), "/w/f: changed 1970-01-01 00:00:02Z, while c3 ran until 00:00:04Z");
    }
}
