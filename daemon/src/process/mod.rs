//! Children: the only place that spawns a process, and the guard that ends its whole process group.
//!
//! A [`Process`] leads its own process group. Its holder owns the group: dropping it kills the group, [`Process::end`] sends
//! SIGTERM first. A child gets exactly the environment and input it is given, and one pipe for its output. A long-lived child
//! with a two-way connection is a [`server::Server`].
//! A process that leaves the group (`setsid`) stays a descendant ([`adopt_orphans`]) and ends with its call ([`strays`]), or at the
//! next start: [`end_left_behind`] and [`ledger`] find it.

mod below;
mod child;
pub mod finish;
pub mod ledger;
pub mod mark;
mod oom;
mod running;
pub mod server;
mod spawn;
mod storm;
mod strays;

use std::io;

use rustix::process::{WaitId, WaitIdOptions, WaitOptions};
use tokio::signal::unix::{SignalKind, signal};

pub use below::children;
pub use child::{Input, Process, READ_SIZE, Stderr};
pub use finish::{End, Finished};
pub use mark::{OWNER, end_left_behind};
pub use strays::Stray;

/// Makes this process the sub-reaper of all its descendants, so that [`crate::sys::peer`] can trace each back to it.
/// The future reaps orphans that end, and ends those whose call has ended, until it is dropped.
pub fn adopt_orphans() -> io::Result<impl Future<Output = ()>> {
    let mut ended = signal(SignalKind::child())?;
    adopt()?;
    Ok(async move {
        loop {
            tokio::select! {
                _ = ended.recv() => {
                    // A [`Process`] reaps its own child, usually before this line; then there is nothing to do.
                    tokio::task::yield_now().await;
                    if !has_ended_child() {
                        continue;
                    }
                }
                () = running::ENDED.notified() => {}
            }
            // An orphan missed now is seen at the next SIGCHLD.
            for orphan in children().unwrap_or_default().into_iter().filter(|child| !running::is_own(*child)) {
                // NOHANG gives nothing for orphans that still run.
                if matches!(rustix::process::waitpid(Some(orphan), WaitOptions::NOHANG), Ok(None)) {
                    strays::end(orphan);
                }
            }
        }
    })
}

/// Makes this process the sub-reaper of its descendants. Does nothing on systems other than Linux.
pub fn adopt() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// Whether a child has ended and is not reaped.
fn has_ended_child() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    // Without children it fails with ECHILD.
    rustix::process::waitid(WaitId::All, options).is_ok_and(|ended| ended.is_some())
}

#[cfg(test)]
mod tests;
