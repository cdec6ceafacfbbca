//! The program `linger`; what it does is in the library.

fn main() -> std::process::ExitCode {
    linger::main()
}
