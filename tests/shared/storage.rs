//! What the tests of `storage` share, whether they need a program or not.

use crate::Daemon;

/// Makes the database refuse events of this kind.
pub(crate) fn refuse(daemon: &Daemon, kind: &str) {
    refuse_with(daemon, kind, "");
}

/// Makes the database refuse events of this kind that contain some text.
pub(crate) fn refuse_with(daemon: &Daemon, kind: &str, text: &str) {
    let sql = format!(
        "CREATE TRIGGER refused BEFORE INSERT ON event WHEN NEW.kind = '{kind}' AND instr(NEW.data, '{text}') \
         BEGIN SELECT RAISE(ABORT, 'refused'); END"
    );
    rusqlite::Connection::open(daemon.dirs.database()).unwrap().execute_batch(&sql).unwrap();
}

/// Takes everything again.
pub(crate) fn take_again(daemon: &Daemon) {
    let database = rusqlite::Connection::open(daemon.dirs.database()).unwrap();
    database.execute_batch("DROP TRIGGER refused; DROP TRIGGER IF EXISTS refused_too").unwrap();
}
