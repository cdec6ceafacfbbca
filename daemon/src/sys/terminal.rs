//! How this process leaves the terminal that started it, and the name under which process lists show it.

use std::io;

use rustix::io::Errno;

/// Gives this process the name by which people look for it: one that was started by descriptor has none.
/// Elsewhere than on Linux it is started by its file.
pub fn set_process_name(name: &str) {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::set_name(&std::ffi::CString::new(name).unwrap_or_default()) {
        eprintln!("warning: the daemon cannot be named: {error}");
    }
    #[cfg(not(target_os = "linux"))]
    let _by_its_file = name;
}

/// Leaves the session of the terminal, which then is nobody's here: neither its hangup nor its keys reach this process, and what
/// this process starts finds no `/dev/tty` to write to. Whoever leads a session already has left.
pub fn leave_terminal() -> io::Result<()> {
    match rustix::process::setsid() {
        Err(Errno::PERM) if leads_session() => Ok(()),
        left => Ok(left.map(drop)?),
    }
}

fn leads_session() -> bool {
    // SAFETY: it reads a number. In a container that is 0 if whoever leads the session is outside, which rustix's type cannot hold.
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
