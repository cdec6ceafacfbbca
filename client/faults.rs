//! `linger-faults`: the program `linger`, built with the feature `faults`.

fn main() -> std::process::ExitCode {
    linger::main()
}
