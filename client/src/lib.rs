//! linger, the thin client: commands that talk to the daemon over its socket, and a readline front end.
//!
//! Reads the command line, runs one command, and returns its exit code. Deliberately absent: anything
//! that has to outlive this process, and an async runtime. A few threads send [`input::Event`]s into
//! one channel, and each command is one loop over it. `README.md` has the order of the rooms.

mod acp;
mod arguments;
mod attachable;
mod capacity;
mod command;
mod connect;
mod difference;
mod environment;
mod error;
mod follow;
mod idempotency;
mod input;
#[cfg(test)]
mod layers;
mod mention;
mod picture;
mod question;
mod render;
mod repl;
mod terminal;

use std::process::ExitCode;

use clap::Parser as _;

/// The program `linger`: reads its command line, runs one command, returns its exit code.
///
/// Threads that still read stdin or the socket end with the process.
pub fn main() -> ExitCode {
    if let Some(error) = terminal::command::as_helper() {
        eprintln!("error: the command cannot be run: {error}");
        // As shells have it.
        return ExitCode::from(126);
    }
    forbid_inspection();
    let arguments = match arguments::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return misused(&error),
    };
    terminal::choose(arguments.display.color, arguments.display.raw);
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        terminal::restore();
        default(info);
    }));
    let exit = command::dispatch(arguments).unwrap_or_else(|failure| {
        let exit = failure.exit;
        // If stderr cannot be written, there is no place to report it.
        let _ = terminal::Terminal::new().complain(failure);
        exit
    });
    terminal::restore();
    ExitCode::from(exit.0)
}

/// Shows the text of a model, piece by piece, on a terminal of so many columns; for the benchmark.
#[doc(hidden)]
pub fn answer(columns: usize) -> impl FnMut(&str) -> String {
    let layout = render::markdown::Layout { width: columns, markdown: true, color: true, unicode: true, dim: false };
    let mut prose = render::markdown::Prose::new(layout);
    move |text| prose.push(&terminal::clean(text))
}

/// Prints what clap says about the command line. Its errors repeat arguments, which may have come from anywhere.
fn misused(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        error.exit();
    }
    let option = match error.get(clap::error::ContextKind::InvalidArg) {
        Some(clap::error::ContextValue::String(option)) => command::option_hint(option),
        _ => None,
    };
    let text = error.to_string();
    // In place of the tip, which names whatever is spelt like it.
    let said = option.map(|hint| format!("{}\nhint: {hint}", text.lines().next().unwrap_or_default()));
    // If stderr cannot be written, there is no place to report it.
    let _ = terminal::Terminal::new().say(said.as_deref().unwrap_or(&text).trim_end());
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Keeps other processes of this user, such as those of tools, from taking over the connection, which
/// answers permissions, and from reading the environment, which has keys.
fn forbid_inspection() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable) {
        eprintln!("warning: other processes of this user can read this one's memory: {error}");
    }
}
