//! How `linger` is linked; and what `linger help schema` prints, compressed: the code that makes a schema of the protocol's types
//! would be a seventh of the program.

use std::path::Path;
use std::{env, error, fs};

#[path = "../daemon/linker.rs"]
mod linker;

/// The best that the library offers: the schema is compressed once and read seldom.
const LEVEL: u8 = 9;

fn main() -> Result<(), Box<dyn error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../daemon/linker.rs");
    linker::shrink();
    let schema = serde_json::to_vec_pretty(&linger_protocol::schema::protocol())?;
    let out = env::var_os("OUT_DIR").ok_or("cargo names no OUT_DIR")?;
    fs::write(Path::new(&out).join("schema.z"), miniz_oxide::deflate::compress_to_vec(&schema, LEVEL))?;
    Ok(())
}
