//! Makes the released programs smaller where the linker can: relative relocations in a tenth of the room, functions that are the
//! same byte for byte once, and no symbols. A linker is asked by linking a program that does nothing, as it can be chosen in many places.

use std::path::Path;
use std::process::{Command, Stdio};

/// Relocations need glibc 2.36 where the program runs; a linker on an older system does not know that, and the program is then
/// built for the system that it is built on, as any other.
///
/// Cargo does not strip a package that has settings of its own in the profile.
const ARGUMENTS: [&str; 3] = ["-Wl,-z,pack-relative-relocs", "-Wl,--icf=all", "-Wl,--strip-all"];

/// Tells cargo to link the programs of the package so.
pub(crate) fn shrink() {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    if variable("PROFILE") != "release" || variable("CARGO_CFG_TARGET_OS") != "linux" {
        return;
    }
    let directory = variable("OUT_DIR");
    for argument in ARGUMENTS.into_iter().filter(|argument| links(Path::new(&directory), argument)) {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
}

/// Whether a program links with `argument`, without a word about it, and runs.
#[allow(clippy::disallowed_methods)] // It is a tool of the build.
fn links(directory: &Path, argument: &str) -> bool {
    let (source, program) = (directory.join("probe.rs"), directory.join("probe"));
    if std::fs::write(&source, "fn main() {}").is_err() {
        return false;
    }
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let mut rustc = Command::new(variable("RUSTC"));
    rustc.args(["--edition=2024", "--target", &variable("TARGET"), "-Clink-arg=-Wl,--fatal-warnings"]);
    rustc.arg(format!("-Clink-arg={argument}")).arg(&source).arg("-o").arg(&program).stderr(Stdio::null());
    if !variable("RUSTC_LINKER").is_empty() {
        rustc.arg(format!("-Clinker={}", variable("RUSTC_LINKER")));
    }
    rustc.args(variable("CARGO_ENCODED_RUSTFLAGS").split('\x1f').filter(|flag| !flag.is_empty()));
    let is_linked = rustc.status().is_ok_and(|status| status.success());
    // A program for another machine does not run here, and is linked by a tool chain that is made for that machine.
    let runs =
        variable("HOST") != variable("TARGET") || Command::new(&program).status().is_ok_and(|status| status.success());
    is_linked && runs
}
