//! A socket that the user pointed this client at (`LINGER_SOCKET`), and that is not this machine's own: the end of a tunnel to
//! another machine, or of a container. Nothing is started, stopped or repaired on its behalf.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use linger_protocol::listener::holder::{self, Holder};
use linger_protocol::place::{Places, private_directory};

use crate::error::Failure;

/// The sockets that are remembered to have been warned about, at most: a user has a few tunnels.
const REMEMBERED: usize = 16;

/// Whether a daemon of this machine belongs at the socket: it is that of the user's state directory, or the one of the daemon that
/// holds the lock.
pub(crate) fn is_here(places: &Places) -> bool {
    let is_announced = |holder: Holder| holder.socket.as_ref() == Some(&places.socket);
    places.is_own_socket() || holder::find(places).is_some_and(is_announced)
}

/// The failure when nothing listens at a socket elsewhere.
pub(crate) fn nothing_there(places: &Places) -> Failure {
    let socket = places.socket.display();
    Failure::unreachable(format!("nothing listens at {socket} (LINGER_SOCKET)")).hint(way_out(places))
}

/// The failure when every connection is closed before an answer: the tunnel is open, and its other end leads nowhere.
pub(super) fn closed_there(places: &Places) -> Failure {
    let socket = places.socket.display();
    Failure::unreachable(format!("{socket} (LINGER_SOCKET) closes each connection: no daemon is at its other end"))
        .hint("`linger daemon status` on that machine says whether one runs, and prints its socket")
}

/// The failure of a command that only the daemon's own machine can do.
pub(crate) fn not_from_here(places: &Places, what: &str) -> Failure {
    let socket = places.socket.display();
    Failure::unreachable(format!("{socket} (LINGER_SOCKET) is not a socket of this machine's daemon: {what}"))
        .hint(format!("do it on the machine of that daemon; {}", local(places)))
}

fn way_out(places: &Places) -> String {
    format!(
        "if it is the end of a tunnel, open that again; {}; `LINGER_SOCKET={} lingerd --background` starts one there",
        local(places),
        places.socket.display()
    )
}

/// How to reach the daemon of this machine.
fn local(places: &Places) -> String {
    match holder::find(places).and_then(|holder| holder.socket) {
        Some(socket) => format!("this machine's daemon listens at {}", socket.display()),
        None => "unset LINGER_SOCKET for a daemon of this machine".to_owned(),
    }
}

/// Whether this socket was not warned about before; a tunnel that was opened again is another one. Without a file to note it in,
/// it counts as new.
pub(super) fn is_new(places: &Places) -> bool {
    let Ok(meta) = fs::symlink_metadata(&places.socket) else { return true };
    let line = format!("{}:{} {}", meta.ino(), meta.ctime(), places.socket.display());
    let file = places.state.join("linger.tunnels");
    let known = fs::read_to_string(&file).unwrap_or_default();
    if known.lines().any(|known| known == line) {
        return false;
    }
    // What cannot be noted is said again.
    let _unnoted = note(&file, &known, &line);
    true
}

fn note(file: &Path, known: &str, line: &str) -> std::io::Result<()> {
    let directory = file.parent().unwrap_or(Path::new("/"));
    private_directory(directory).map_err(|error| std::io::Error::other(error.to_string()))?;
    let kept = known.lines().rev().take(REMEMBERED - 1).collect::<Vec<_>>();
    let lines: Vec<&str> = kept.into_iter().rev().chain([line]).collect();
    fs::write(file, lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_elsewhere_is_mentioned_once_and_again_when_it_was_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let own = Places::below(dir.path()).unwrap();
        let far = Places { socket: dir.path().join("far.sock"), ..own.clone() };
        assert!(is_here(&own) && !is_here(&far));
        let _listener = std::os::unix::net::UnixListener::bind(&far.socket).unwrap();
        assert!(is_new(&far));
        assert!(!is_new(&far) && !is_new(&far));
        for n in 0..40 {
            let other = Places { socket: dir.path().join(format!("{n}.sock")), ..own.clone() };
            fs::write(&other.socket, "").unwrap();
            assert!(is_new(&other), "{n}");
        }
        assert_eq!(fs::read_to_string(own.state.join("linger.tunnels")).unwrap().lines().count(), REMEMBERED);
        assert!(is_new(&far), "it was forgotten for others");
    }

    #[test]
    fn the_own_socket_is_known_by_another_spelling() {
        let dir = tempfile::tempdir().unwrap();
        let own = Places::below(dir.path()).unwrap();
        std::os::unix::fs::symlink(&own.state, dir.path().join("link")).unwrap();
        for (path, expect) in
            [("link/lingerd.sock", true), ("state/../state/lingerd.sock", true), ("link/other.sock", false)]
        {
            let places = Places { socket: dir.path().join(path), ..own.clone() };
            assert_eq!(places.is_own_socket(), expect, "{path}");
        }
    }
}
