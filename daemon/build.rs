//! How `lingerd` is linked.

mod linker;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=linker.rs");
    linker::shrink();
}
