//! Detaching from the terminal that started this process, and its name in process lists.

use std::io;

use rustix::io::Errno;

/// Sets the name of this process: one that was started by descriptor has none.
/// Only on Linux; other systems start it by its file.
pub fn set_process_name(name: &str) {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::set_name(&std::ffi::CString::new(name).unwrap_or_default()) {
        eprintln!("warning: the daemon cannot be named: {error}");
    }
    #[cfg(not(target_os = "linux"))]
    let _by_its_file = name;
}

/// Leaves the session of the terminal: neither its hangup nor its keys reach this process, and children find no `/dev/tty`.
/// Does nothing if this process already leads a session.
pub fn leave_terminal() -> io::Result<()> {
    match rustix::process::setsid() {
        Err(Errno::PERM) if leads_session() => Ok(()),
        left => Ok(left.map(drop)?),
    }
}

fn leads_session() -> bool {
    // SAFETY: only reads a number. In a container it is 0 if the leader is outside, which rustix's type cannot hold.
    #[allow(unsafe_code)]
    let leader = unsafe { libc::getsid(0) };
    leader == rustix::process::getpid().as_raw_nonzero().get()
}

/// Points standard input, output and error at `/dev/null`.
pub fn detach_stdio() -> io::Result<()> {
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(rustix::stdio::dup2_stderr(&null)?)
}
