//! The process at the other end of a connection: for the daemon, which lets no process of its own answer a question or widen what
//! may happen, whatever token that has found.
//!
//! On loopback the system tells it by the socket: `/proc/net/tcp` has the number and the user of the client's socket, and one process
//! has a descriptor of that number. A Unix socket knows its peer.
//! A process of this user can hide its descriptors (`PR_SET_DUMPABLE`), pass the socket on while it is looked for, or close it early.
//! So one that is not found counts as one of the daemon's own. Only what the system shows to be another user's is told apart.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;

use serde_json::{Value, json};

use crate::sys::peer;

/// The longest list of sockets that is read, in bytes: some 400,000 of them.
const MAX_LIST: usize = 64 << 20;

/// How often the processes are read, at most, until one of them is found.
const LOOKS: usize = 3;

/// The process at the other end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Peer {
    /// Its id and its start.
    Process(u32, u64),
    /// One of this user's, another than the gateway's own.
    OtherUser(u32),
    /// Not found: it may be one that the daemon started.
    #[default]
    Hidden,
}

/// Addresses or credentials that identify the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ends {
    /// The client's address and ours.
    Tcp(SocketAddr, SocketAddr),
    /// The client's process and its start.
    Unix(Option<(u32, u64)>),
}

impl Peer {
    /// Finds it; reads all processes' descriptors, which takes some milliseconds.
    pub(super) fn find(ends: Ends) -> Self {
        let process = |pid: Option<u32>| pid.and_then(|pid| Some(Self::Process(pid, peer::started(pid)?)));
        match ends {
            Ends::Unix(process) => process.map_or(Self::Hidden, |(pid, began)| Self::Process(pid, began)),
            Ends::Tcp(client, own) => {
                let Some(found) = socket(client, own) else { return Self::Hidden };
                process(holder(found.inode)).unwrap_or_else(|| Self::without_process(found.user))
            }
        }
    }

    /// The holder of a socket of this user's that is in no list of descriptors.
    fn without_process(user: u32) -> Self {
        if user == rustix::process::geteuid().as_raw() { Self::Hidden } else { Self::OtherUser(user) }
    }

    /// The process, if it is still the same.
    pub(super) fn pid(self) -> Option<u32> {
        match self {
            Self::Process(pid, began) => Some(pid).filter(|pid| peer::started(*pid) == Some(began)),
            Self::OtherUser(_) | Self::Hidden => None,
        }
    }

    /// As `daemon/hello` takes it.
    pub(super) fn behind(self) -> Value {
        match (self, self.pid()) {
            (_, Some(pid)) => json!({ "pid": pid }),
            (Self::OtherUser(user), None) => json!({ "user": user }),
            (Self::Process(..) | Self::Hidden, None) => json!({}),
        }
    }
}

/// A client's socket in the system's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClientSocket {
    inode: u64,
    user: u32,
}

/// Whether a request that came through a proxy comes from this machine, or may: any of its processes can use the proxy too. The last
/// address in `X-Forwarded-For` is the proxy's own word.
pub(super) fn is_from_here(forwarded: Option<&str>) -> bool {
    let last = forwarded.and_then(|list| list.rsplit(',').next()).map(str::trim);
    let Some(address) = last.and_then(|text| text.parse::<IpAddr>().ok()) else { return true };
    // Only an address of this machine can be bound.
    address.is_loopback() || address.is_unspecified() || UdpSocket::bind((address, 0)).is_ok()
}

/// The client's socket; none if it is closed.
fn socket(client: SocketAddr, own: SocketAddr) -> Option<ClientSocket> {
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|list| {
        let text = std::fs::read(list).ok().filter(|text| text.len() <= MAX_LIST)?;
        find(std::str::from_utf8(&text).ok()?, client, own)
    })
}

/// The socket with these two ends, in a list as proc_pid_net(5) has it:
/// `0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000  0 12345 …`. One that its process has closed has
/// the inode 0 and no user of its own.
fn find(list: &str, client: SocketAddr, own: SocketAddr) -> Option<ClientSocket> {
    list.lines().skip(1).find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let is_it = address(words.next()?)? == canonical(client) && address(words.next()?)? == canonical(own);
        if !is_it {
            return None;
        }
        let user = words.nth(4)?.parse().ok()?;
        let inode = words.nth(1)?.parse().ok().filter(|inode| *inode != 0)?;
        Some(ClientSocket { inode, user })
    })
}

/// An address of that list: words of four bytes as this machine keeps them, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |n: usize| Some(u32::from_str_radix(ip.get(n * 8..n * 8 + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::from(word(0)?),
        32 => {
            let bytes: Vec<u8> = (0..4).map(word).collect::<Option<Vec<_>>>()?.concat();
            IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?)
        }
        _ => return None,
    };
    Some(canonical(SocketAddr::new(ip, port)))
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The process with a descriptor of this socket; of several, the one from which the others descend, as they inherited it. `None` if
/// there is no such process, or it belongs to another user.
fn holder(inode: u64) -> Option<u32> {
    let name = format!("socket:[{inode}]");
    // A process that is just being started has all of its parent's, and may be gone before it is known whose child it is.
    (0..LOOKS).find_map(|_| {
        let processes = std::fs::read_dir("/proc").ok()?.flatten();
        let pid = |entry: &std::fs::DirEntry| entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let holders = processes.filter(|entry| pid(entry).is_some() && has(&entry.path().join("fd"), &name));
        eldest(&holders.filter_map(|entry| pid(&entry)).collect::<Vec<_>>(), peer::descends_from)
    })
}

/// The process from which all others descend. What is true of its family is true of theirs.
fn eldest(holders: &[u32], descends: impl Fn(u32, u32) -> Option<bool>) -> Option<u32> {
    let is_eldest = |elder: &&u32| holders.iter().all(|pid| pid == *elder || descends(*pid, **elder) == Some(true));
    holders.iter().find(is_eldest).copied()
}

fn has(descriptors: &Path, name: &str) -> bool {
    let links = std::fs::read_dir(descriptors).into_iter().flatten().flatten();
    links.filter_map(|link| std::fs::read_link(link.path()).ok()).any(|target| target.as_os_str() == name)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_socket_is_found_in_the_systems_list() {
        let v4 = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1 0\n   \
                  1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 22 1 0\n   \
                  2: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 33 1 0\n";
        let (client, own) = ("127.0.0.1:50000".parse().unwrap(), "127.0.0.1:8080".parse().unwrap());
        let found = |inode, user| Some(ClientSocket { inode, user });
        assert_eq!((find(v4, client, own), find(v4, own, client)), (found(33, 1000), found(22, 1000)));
        let closed = v4.replace("1000        0 33", "   0        0 0");
        assert_eq!(find(&closed, client, own), None, "a closed socket shows neither its process nor its user");
        let v6 = "head\n 0: 0000000000000000FFFF00000100007F:C350 0000000000000000FFFF00000100007F:1F90 01 0:0 0:0 0 1000 0 44 1\n \
                  1: 00000000000000000000000001000000:C350 00000000000000000000000001000000:1F90 01 0:0 0:0 0 1000 0 55 1\n";
        assert_eq!(find(v6, client, own), found(44, 1000), "an IPv4 address in the other list");
        assert_eq!(find(v6, "[::1]:50000".parse().unwrap(), "[::1]:8080".parse().unwrap()), found(55, 1000));
        assert_eq!(find("head\nnonsense\n1: x y\n", client, own), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_process_at_the_other_end_is_found_though_a_child_inherited_its_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_accepted, from) = listener.accept().unwrap();
        let ends = Ends::Tcp(from, listener.local_addr().unwrap());
        assert_eq!(Peer::find(ends).pid(), Some(std::process::id()));
        // A child with the same socket on its standard input.
        #[allow(clippy::disallowed_methods)] // A real child.
        let mut child = std::process::Command::new("/bin/sleep")
            .arg("60")
            .stdin(std::os::fd::OwnedFd::from(client.try_clone().unwrap()))
            .spawn()
            .unwrap();
        assert_eq!(Peer::find(ends).pid(), Some(std::process::id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(Peer::find(ends).behind(), json!({ "pid": std::process::id() }));
        drop(client);
        assert_eq!(Peer::find(ends).behind(), json!({}));
    }

    #[test]
    fn a_socket_of_two_processes_is_the_elders_and_of_two_strangers_nobodys() {
        let descends = |pid, ancestor| Some((pid, ancestor) == (9, 5) || (pid, ancestor) == (8, 5) || pid == ancestor);
        assert_eq!(eldest(&[9, 5, 8], descends), Some(5));
        assert_eq!(eldest(&[9, 8], descends), None);
        assert_eq!(eldest(&[5, 7], descends), None);
        assert_eq!(eldest(&[9, 5], |_, _| None), None, "nothing is known of them");
        assert_eq!((eldest(&[7], |_, _| None), eldest(&[], descends)), (Some(7), None));
    }

    #[test]
    fn what_comes_through_a_proxy_from_this_machine_is_known_for_that() {
        for here in
            [None, Some(""), Some("x"), Some("127.0.0.1"), Some("::1"), Some("203.0.113.9, 127.0.0.1"), Some("0.0.0.0")]
        {
            assert!(is_from_here(here), "{here:?}");
        }
        assert!(!is_from_here(Some("203.0.113.9")) && !is_from_here(Some("127.0.0.1, 203.0.113.9")));
    }
}
