//! How `lingerd` is linked; and the list of the files of the gateway's page, which are built in.

use std::path::{Path, PathBuf};
use std::{env, fs};

mod linker;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=linker.rs");
    linker::shrink();
    let directory = |name: &str| PathBuf::from(env::var_os(name).unwrap_or_default());
    page(&directory("CARGO_MANIFEST_DIR").join("src/face/gateway/page"), &directory("OUT_DIR"));
}

/// Writes the list of the page's files as an expression of Rust: names and bytes.
fn page(folder: &Path, to: &Path) {
    println!("cargo::rerun-if-changed={}", folder.display());
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|file| file.path());
    let mut files: Vec<_> = files.filter(|file| file.is_file()).collect();
    files.sort();
    let row = |file: &PathBuf| {
        let name = file.file_name().unwrap_or_default();
        format!("({name:?}, include_bytes!({file:?}).as_slice()),")
    };
    let rows: String = files.iter().map(row).collect();
    if let Err(error) = fs::write(to.join("page_files.rs"), format!("&[{rows}]")) {
        println!("cargo::error=the list of the page's files cannot be written: {error}");
    }
}
