//! The subcommands, one file each.

mod answer;
mod artifact;
mod attach;
mod attention;
mod cancel;
mod compact;
mod compactions;
mod complete;
mod config;
mod confirm;
mod create;
mod daemon;
mod deadline;
mod diff;
mod doctor;
mod env;
mod events;
mod export;
mod files;
mod find;
mod gateway;
mod habit;
mod help;
mod import;
mod inbox;
mod init;
mod init_file;
mod init_model;
mod key;
mod log;
mod login;
mod ls;
mod mcp;
mod memory;
mod merge;
mod models;
mod new;
mod output;
mod permissions;
mod prompt;
mod prune;
mod queue;
mod rename;
mod rm;
mod run;
mod search;
mod send;
mod serve;
mod set;
mod since;
mod status;
mod token;
mod tools;
mod tree;
mod trust;
mod uncertain;
mod undo;
mod usage;
mod validate;
mod wait;

pub(crate) use habit::option_hint;

use crate::acp;
use crate::arguments::{Arguments, Command, Doctor, Env, ToolsOf, Validate};
use crate::error::{Exit, Failure};

/// Runs the command that was given.
pub(crate) fn dispatch(arguments: Arguments) -> Result<Exit, Failure> {
    match arguments.command {
        None => attach::bare(arguments.bare),
        Some(Command::Chat(args)) => attach::bare(args),
        // Work
        Some(Command::Run(args)) => run::run(args),
        Some(Command::Send(args)) => send::run(args),
        Some(Command::Attach(args)) => attach::run(&args),
        Some(Command::Wait(args)) => wait::run(&args),
        Some(Command::Inbox(args)) => inbox::run(&args),
        Some(Command::Answer(args)) => answer::run(args),
        Some(Command::Cancel(args)) => cancel::run(&args),
        Some(Command::Queue(args)) => queue::run(args),
        Some(Command::Unqueue(args)) => queue::unqueue(args),
        Some(Command::Continue(args)) => queue::resume(&args),
        Some(Command::Merge(args)) => merge::run(&args),
        // Sessions
        Some(Command::Ls(args)) => ls::run(&args),
        Some(Command::New(args)) => new::run(args),
        Some(Command::Log(args)) => log::run(&args),
        Some(Command::Search(args)) => search::run(&args),
        Some(Command::Export(args)) => export::run(&args),
        Some(Command::Diff(args)) => diff::run(args),
        Some(Command::Undo(args)) => undo::undo(args),
        Some(Command::Redo(args)) => undo::redo(args),
        Some(Command::Rewind(args)) => tree::rewind(args),
        Some(Command::Fork(args)) => tree::fork(args),
        Some(Command::Compact(args)) => compact::run(args),
        Some(Command::Uncompact(args)) => compactions::uncompact(args),
        Some(Command::Set(args)) => set::run(args),
        Some(Command::Rename(args)) => rename::run(args),
        Some(Command::Rm(args)) => rm::run(&args),
        Some(Command::Restore(args)) => rm::restore(&args.session, args.json),
        Some(Command::Prune(args)) => prune::run(&args),
        // Setup
        Some(Command::Init(args)) => init::run(args),
        Some(Command::Key(command)) => key::run(command),
        Some(Command::Login(args)) => key::set(args.provider, args.json, &args.extra),
        Some(Command::Models(args)) => models::run(&args),
        Some(Command::Usage(args)) => usage::run(&args),
        Some(Command::Config(args)) => config::run(args),
        Some(Command::Trust(args)) => trust::run(args),
        Some(Command::Permissions(args)) => permissions::run(args),
        Some(Command::Import(args)) => import::run(&args),
        Some(Command::Doctor(args)) => doctor(&args),
        Some(Command::Env(args)) => env::run(&args),
        Some(Command::Validate(args)) => validate::run(&args),
        Some(Command::Completions(args)) => complete::completions(&args),
        Some(Command::Complete(args)) => complete::complete(&args),
        Some(Command::Help(args)) => help::run(&args),
        // Extend
        Some(Command::Files(args)) => files::all(args),
        Some(Command::Skills(command)) => files::run(&files::SKILLS, command),
        Some(Command::Commands(command)) => files::run(&files::COMMANDS, command),
        Some(Command::Agents(command)) => files::run(&files::AGENTS, command),
        Some(Command::Tools(ToolsOf { files: Some(command), .. })) => files::run(&files::TOOLS, command),
        Some(Command::Tools(args)) => tools::run(&args),
        Some(Command::Mcp(command)) => mcp::run(command),
        Some(Command::Memory(command)) => memory::run(command),
        // Serve, and for programs
        Some(Command::Daemon(command)) => daemon::run(&command),
        Some(Command::Gateway(command)) => gateway::run(&command),
        Some(Command::Acp(args)) => acp::run(args),
        Some(Command::Status(args)) => status::run(&args),
        Some(Command::Events(args)) => events::run(&args),
        Some(Command::Token(command)) => token::run(command),
        Some(Command::Artifact(command)) => artifact::run(command),
    }
}

/// `linger doctor`, or one of the two checks that have it as an option.
fn doctor(args: &Doctor) -> Result<Exit, Failure> {
    let json = args.json;
    match (&args.env, &args.files) {
        (Some(session), _) => env::run(&Env { session: session.clone(), json }),
        (None, Some(directory)) => validate::run(&Validate { directory: directory.clone(), json }),
        (None, None) => doctor::run(args),
    }
}
