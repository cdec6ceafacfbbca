//! Generates the man pages in `contrib/man` from the command line; a test compares them.
//!
//! `UPDATE_DOCUMENTS=1 cargo test -p linger man_pages` writes them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _};

use super::Arguments;

/// Adds the page of a command and of its subcommands, hidden ones excepted.
fn pages(command: &Command, name: &str, found: &mut BTreeMap<String, String>) {
    let shown = |command: &&Command| !command.is_hide_set();
    // Leaked: clap wants static names, and a test may leak a few.
    let given: &'static str = name.to_owned().leak();
    let page = command.clone().name(given).display_name(name.to_owned()).bin_name(name.replace('-', " "));
    let page = page.version(linger_protocol::VERSION);
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with(".ie") || text.contains(".TH"), "{name} is no page");
    found.insert(format!("{name}.1"), text);
    for below in command.get_subcommands().filter(shown) {
        pages(below, &format!("{name}-{}", below.get_name()), found);
    }
}

#[test]
fn the_man_pages_describe_the_command_line() {
    let mut root = Arguments::command();
    root.build();
    let mut made = BTreeMap::new();
    pages(&root, "linger", &mut made);
    let dir: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib/man");
    if std::env::var_os("UPDATE_DOCUMENTS").is_some() {
        let _gone = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        for (name, text) in &made {
            std::fs::write(dir.join(name), text).unwrap();
        }
        return;
    }
    let names: Vec<String> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    let hint = "`UPDATE_DOCUMENTS=1 cargo test -p linger man_pages` writes them";
    assert_eq!(names.iter().find(|name| !made.contains_key(*name)), None, "a page without a command; {hint}");
    for (name, text) in made {
        let there = std::fs::read_to_string(dir.join(&name)).unwrap_or_default();
        assert!(there == text, "contrib/man/{name} differs from the command line; {hint}");
    }
}
