//! The manual (`daemon/manual`, printed by `linger help TOPIC`) and the README agree with the programs.
//!
//! The keys of the configuration come from the daemon itself: its error about an unknown key lists
//! those that it accepts. The limits come from the constants in the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use linger_tests::harness::{Client, Daemon, until};
use linger_tests::model::ModelServer;
use serde_json::json;

/// A key that no table accepts and that is like none that one does.
const UNKNOWN: &str = "zzzzzzzzzzzz";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn manual() -> Vec<(String, String)> {
    let entries = std::fs::read_dir(root().join("daemon/manual")).unwrap();
    let name = |path: &Path| path.file_stem().unwrap().to_string_lossy().into_owned();
    let files = entries.map(|entry| entry.unwrap().path());
    files.map(|path| (name(&path), std::fs::read_to_string(&path).unwrap())).collect()
}

/// The keys that the text names, by the head of their table: bullets that begin with a name, below a
/// heading `[table]`, or below `Top level`.
fn documented(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let (mut tables, mut table) = (BTreeMap::<String, BTreeSet<String>>::new(), None);
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            let head = heading.trim_matches('`');
            table = (head == "Top level" || head.starts_with('[')).then(|| head.trim_start_matches("Top level"));
            table.iter().for_each(|head: &&str| {
                tables.entry((*head).to_owned()).or_default();
            });
        } else if let (Some(head), Some(rest)) = (table, line.strip_prefix("- `")) {
            let key = rest.split('`').next().unwrap().to_owned();
            tables.get_mut(head).unwrap().insert(key);
        }
    }
    tables
}

/// The keys that the daemon accepts in the table with this head, as its error lists them.
async fn accepted(daemon: &Daemon, client: &Client, head: &str, nth: usize) -> BTreeSet<String> {
    // Another name each time, so that the error is of this file and not of the one before.
    let unknown = format!("{UNKNOWN}{nth}");
    std::fs::write(daemon.dirs.config(), format!("{head}\n{unknown} = 1\n")).unwrap();
    let error = until("the daemon has read it", async || {
        let status = client.call("daemon/status", json!({})).await;
        status["config_error"].as_str().filter(|error| error.contains(&unknown)).map(str::to_owned)
    })
    .await;
    let (_, listed) = error.split_once(", expected ").unwrap_or_else(|| panic!("no list of keys: {error}"));
    listed.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[tokio::test]
async fn the_manual_names_every_key_of_the_configuration_and_no_other() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let text = format!("{}\n{}", read("daemon/manual/configuration.md"), read("daemon/manual/providers.md"));
    let tables = documented(&text);
    for (nth, (table, keys)) in tables.iter().enumerate() {
        // A name that a table may have: a provider of its own needs its kind, a model its provider.
        let head = table.replace("PROVIDER/MODEL", "openai/gpt-5");
        let mut accepted = accepted(&daemon, &client, &head, nth).await;
        if table.is_empty() {
            // These have a heading of their own.
            let heads = tables.keys().filter_map(|head| head.trim_start_matches('[').split(['.', ']']).next());
            let heads = heads.filter(|head| !head.is_empty());
            let heads: BTreeSet<_> = heads.map(str::to_owned).collect();
            let here = |key: &String| !heads.contains(key);
            assert_eq!(heads.difference(&accepted).next(), None, "a heading of a table that there is not");
            accepted = accepted.into_iter().filter(here).collect();
        }
        assert_eq!(*keys, accepted, "{table}: the manual, and what the daemon accepts");
    }
    assert_eq!(tables.len(), 14, "{:?}", tables.keys());
}

/// The values of the constants in the sources of daemon and protocol, by name.
fn constants() -> BTreeMap<String, Vec<u64>> {
    let (mut constants, mut left) = (BTreeMap::<String, Vec<u64>>::new(), vec![]);
    left.extend(["daemon/src", "protocol/src"].map(|dir| root().join(dir)));
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let Some((_, rest)) = line.split_once("const ") else { continue };
            let Some((name, rest)) = rest.split_once(": ") else { continue };
            let value = rest.split_once(" = ").and_then(|(_, value)| number(value.trim_end_matches(';')));
            value.into_iter().for_each(|value| constants.entry(name.to_owned()).or_default().push(value));
        }
    }
    constants
}

/// What an expression of literals, `*`, `<<` and `Duration::from_secs` is.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    if let Some(inner) = text.strip_prefix("Duration::from_secs(") {
        return number(inner.strip_suffix(')')?);
    }
    if let Some((left, right)) = text.split_once("<<") {
        return number(left)?.checked_shl(u32::try_from(number(right)?).ok()?);
    }
    if let Some((left, right)) = text.split_once('*') {
        return number(left)?.checked_mul(number(right)?);
    }
    text.replace('_', "").parse().ok()
}

#[test]
fn the_limits_of_the_manual_are_those_of_the_sources() {
    let (text, constants) = (read("daemon/manual/limits.md"), constants());
    let items: Vec<&str> = text.split("\n- ").skip(1).collect();
    for item in &items {
        let (amount, _) = item.split_once(':').unwrap();
        let said = match amount.split_once(' ') {
            None => number(amount),
            Some((n, "s")) => number(n),
            Some((n, "KiB")) => number(n).map(|n| n << 10),
            Some((n, "MiB")) => number(n).map(|n| n << 20),
            Some((n, "GiB")) => number(n).map(|n| n << 30),
            Some(_) => None,
        };
        let name = item.split("(`").nth(1).and_then(|rest| rest.split('`').next()).unwrap();
        let known = constants.get(name).unwrap_or_else(|| panic!("no constant is called {name}"));
        assert!(
            said.is_some_and(|said| known.contains(&said)),
            "{name}: the manual has {amount}, the sources {known:?}"
        );
    }
    assert!(items.len() > 15, "{items:?}");
    assert_eq!(
        ["1 << 4", "2 * 1_000", "Duration::from_secs(7)", "X"].map(number),
        [Some(16), Some(2000), Some(7), None]
    );
}

#[tokio::test]
async fn every_topic_is_printed_as_it_is_written_and_every_command_named_exists() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let help = daemon.cli(&["help"]).run().await.exits(0).stdout;
    let (_, topics) = help.split_once("Topics").expect("a list of topics");
    let commands = daemon.cli(&["help", "commands"]).run().await.exits(0).stdout;
    let listed = |list: &str, name: &str| list.lines().any(|line| line.split_whitespace().next() == Some(name));
    let pages = manual();
    for (name, text) in &pages {
        assert!(listed(topics, name), "{name} is not in the list:\n{topics}");
        assert_eq!(daemon.cli(&["help", name]).run().await.exits(0).stdout, *text);
    }
    let readme = ("README".to_owned(), read("README.md"));
    for (name, text) in pages.iter().chain([&readme]) {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let (blocks, spans): (Vec<_>, Vec<_>) = text.split("```").enumerate().partition(|(nth, _)| nth % 2 == 1);
        let spans = spans.iter().flat_map(|(_, text)| text.split('`').skip(1).step_by(2)).map(words);
        let lines = blocks.iter().flat_map(|(_, text)| text.lines()).map(words);
        for words in spans.chain(lines).filter(|words| words.first().is_some_and(|word| word == "linger")) {
            let command = words.get(1).map_or("help", String::as_str).split('|').next().unwrap();
            let known = command.starts_with(['-', '#', '…', '[', '"']) || listed(&commands, command);
            assert!(known, "{name}: `{}`", words.join(" "));
            if command == "help"
                && let Some(topic) = words.get(2).filter(|topic| *topic != "TOPIC")
            {
                assert!(listed(topics, topic) || topic == "commands", "{name}: no topic is called {topic}");
            }
        }
    }
    let wrong = daemon.cli(&["help", "configurations"]).run().await;
    wrong.fails_with_hint(2).says("did you mean configuration?");
    daemon.check(&[], &model);
}

#[test]
fn the_readme_is_short() {
    let lines = read("README.md").lines().count();
    assert!(lines <= 150, "{lines} lines");
}
