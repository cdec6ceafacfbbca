//! How `linger` is linked; and what `linger help` prints, compressed: the manual, and the schema, as the code that makes one of the
//! protocol's types would be a seventh of the program.

use std::path::Path;
use std::{env, error, fs};

#[path = "../daemon/linker.rs"]
mod linker;

/// The best that the library offers: the documents are compressed once and read seldom.
const LEVEL: u8 = 9;

fn main() -> Result<(), Box<dyn error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../daemon/linker.rs");
    linker::shrink();
    let out = env::var_os("OUT_DIR").ok_or("cargo names no OUT_DIR")?;
    fs::write(Path::new(&out).join("documents.z"), miniz_oxide::deflate::compress_to_vec(&documents()?, LEVEL))?;
    Ok(())
}

/// Each topic of the manual, and the schema: its name, NUL, its text, NUL.
fn documents() -> Result<Vec<u8>, Box<dyn error::Error>> {
    const MANUAL: &str = "../daemon/manual";
    println!("cargo::rerun-if-changed={MANUAL}");
    let mut documents = Vec::new();
    let mut add = |name: &[u8], text: &[u8]| documents.extend([name, b"\0", text, b"\0"].concat());
    let mut files = fs::read_dir(MANUAL)?.map(|file| Ok(file?.path())).collect::<Result<Vec<_>, std::io::Error>>()?;
    files.sort();
    for file in files {
        add(file.file_stem().unwrap_or_default().as_encoded_bytes(), &fs::read(&file)?);
    }
    let schema = serde_json::to_string_pretty(&linger_protocol::schema::protocol())? + "\n";
    add(b"schema", schema.as_bytes());
    Ok(documents)
}
