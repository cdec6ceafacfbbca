//! `lingerd-faults`: the program `lingerd`, built with the feature `faults`; see [`lingerd::fault`].

#[path = "src/main.rs"]
mod main;

fn main() -> std::process::ExitCode {
    main::main()
}
