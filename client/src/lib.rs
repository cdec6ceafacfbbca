//! linger, the thin client: commands that talk to the daemon over its socket, and a readline front end.
//!
//! Reads the command line, runs one command, and says how it ended. Deliberately absent: everything that has to outlive
//! this process. There is no runtime here: a few threads put what happens into one channel of [`input::Event`], and each
//! command is one loop over it.

mod cli;
mod command;
mod connect;
mod error;
mod follow;
mod holder;
mod input;
mod picture;
mod question;
mod reach;
mod render;
mod repl;
mod room;
mod start;
mod terminal;
mod typed;

use std::process::ExitCode;

use clap::Parser as _;

/// What the program `linger` does: reads its command line, runs one command, and gives its exit code.
///
/// Threads that still read stdin or the socket are left to end with the process.
pub fn main() -> ExitCode {
    seal();
    let cli = cli::Cli::parse();
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        terminal::restore();
        default(info);
    }));
    let exit = command::dispatch(cli).unwrap_or_else(|failure| {
        let exit = failure.exit;
        // Nobody is left to tell that stderr cannot be written.
        let _ = terminal::Terminal::new().complain(failure);
        exit
    });
    terminal::restore();
    ExitCode::from(exit.0)
}

/// No process of the same user can take this one's connection, over which permissions are answered, or read its environment, where
/// keys are: what a tool runs is such a process.
fn seal() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable) {
        eprintln!("warning: other processes of this user can read this one's memory: {error}");
    }
}
