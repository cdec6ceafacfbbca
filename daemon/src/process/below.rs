//! The processes directly below this one.

use std::io;

use rustix::process::Pid;

/// The children of this process, including adopted ones; fails if `/proc` cannot be read. Empty on systems other than Linux.
pub fn children() -> io::Result<Vec<Pid>> {
    let mut children = Vec::new();
    let threads = match std::fs::read_dir("/proc/self/task") {
        Ok(threads) => threads,
        Err(error) if gone(&error) => return Ok(children),
        Err(error) => return Err(error),
    };
    for thread in threads {
        let list = match std::fs::read_to_string(thread?.path().join("children")) {
            Ok(list) => list,
            // The thread ended in the meantime; another thread has its children.
            Err(error) if gone(&error) => continue,
            Err(error) => return Err(error),
        };
        children.extend(list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
    }
    Ok(children)
}

fn gone(error: &io::Error) -> bool {
    [rustix::io::Errno::NOENT, rustix::io::Errno::SRCH]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
