//! `linger help`: commands, topics of the manual, and the protocol as JSON Schema.
//!
//! The manual is the Markdown in `daemon/manual`, printed as it stands. Deliberately absent: a pager.

use clap::CommandFactory as _;

use crate::arguments::{Arguments, Help};
use crate::error::{Exit, Failure};
use crate::render::near::nearest;
use crate::render::table::columns;
use crate::terminal::Terminal;

/// The manual: a topic, and what it is about.
pub(super) const TOPICS: [(&str, &str); 17] = [
    ("sessions", "prompts, attaching, summaries, pictures"),
    ("rules", "modes, rules and answers: what may run"),
    ("workspaces", "what a repository may set, and trust"),
    ("extending", "skills, agents, tools … as Markdown"),
    ("notes", "notes that outlive sessions"),
    ("hooks", "commands of yours around calls and prompts"),
    ("attention", "notifications when a session needs you"),
    ("providers", "models, cost, servers of your own"),
    ("keys", "provider keys, proxies, certificates"),
    ("servers", "MCP servers, which give the agent more tools"),
    ("editors", "linger in an editor that speaks ACP"),
    ("http", "the gateway: browsers, OpenAI clients"),
    ("configuration", "every key of config.toml"),
    ("tokens", "access for other programs and machines"),
    ("scripts", "pipes, JSON, exit codes, the socket"),
    ("background", "the daemon, its files, crashes, logging out"),
    ("limits", "what is too much"),
];

/// The topic that is made and not written.
const SCHEMA: (&str, &str) = ("schema", "the protocol as JSON Schema");

/// How many near names an error suggests.
const NEAR: usize = 3;

/// The fewest letters that are taken for the beginning of a name.
const BEGINNING: usize = 3;

pub(super) fn run(args: &Help) -> Result<Exit, Failure> {
    let words: Vec<&str> = args.about.iter().map(String::as_str).collect();
    let text = match words.as_slice() {
        [] => format!("{}\n{}", Arguments::command().render_long_help(), topics()),
        [topic] if TOPICS.iter().chain([&SCHEMA]).any(|(name, _)| name == topic) => document(topic)?,
        words => command(words)?,
    };
    Terminal::new().text(&text)?;
    Ok(Exit::GOOD)
}

/// The list of topics.
fn topics() -> String {
    let names = TOPICS.iter().copied().chain([SCHEMA]);
    let rows: Vec<_> = names.map(|(name, about)| vec![format!("  {name}"), about.to_owned()]).collect();
    format!("Topics, for `linger help TOPIC`:\n{}\n", columns(&rows).join("\n"))
}

/// A topic, or the schema, as `build.rs` keeps them.
fn document(topic: &str) -> Result<String, Failure> {
    let damaged = |why: &dyn std::fmt::Display| Failure::new(Exit::FAILED, format!("{topic} cannot be read: {why}"));
    let compressed = include_bytes!(concat!(env!("OUT_DIR"), "/documents.z"));
    let bytes = miniz_oxide::inflate::decompress_to_vec(compressed).map_err(|error| damaged(&error))?;
    let text = String::from_utf8(bytes).map_err(|error| damaged(&error))?;
    let mut parts = text.split('\0').skip_while(|part| *part != topic).skip(1);
    parts.next().map(str::to_owned).ok_or_else(|| damaged(&"it is not there"))
}

/// The help of a command. Fails if there is neither such a command nor such a topic.
fn command(words: &[&str]) -> Result<String, Failure> {
    let mut command = Arguments::command();
    command.build();
    for (depth, word) in words.iter().enumerate() {
        let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
        command = match command.find_subcommand(word) {
            Some(found) => found.clone(),
            None => return Err(unknown(word, &names, depth == 0)),
        };
    }
    Ok(command.render_long_help().to_string())
}

/// An unknown name, with the names that are like it: those that it begins, or that are spelt nearly so.
fn unknown(word: &str, commands: &[String], top: bool) -> Failure {
    let topics = TOPICS.iter().map(|(name, _)| *name).chain([SCHEMA.0]).filter(|_| top);
    let names: Vec<&str> = topics.chain(commands.iter().map(String::as_str)).collect();
    let long = word.chars().count() >= BEGINNING;
    let begun = names.iter().copied().filter(|name| long && name.starts_with(word));
    let mut near: Vec<&str> = begun.collect();
    near.extend(nearest(word, names.iter().copied().filter(|name| !near.contains(name)), NEAR));
    near.truncate(NEAR);
    let failure = Failure::usage(format!("no topic or command is called '{word}'"));
    match near.as_slice() {
        [] => failure.hint("`linger help` lists topics and commands"),
        near => failure.hint(format!("did you mean {}? `linger help` lists all", near.join(" or "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_that_is_printed_is_that_of_the_types() {
        let printed: serde_json::Value = serde_json::from_str(&document(SCHEMA.0).unwrap()).unwrap();
        assert_eq!(printed, linger_protocol::schema::protocol());
    }

    #[test]
    fn an_unknown_topic_names_the_nearest() {
        let hint = |words: &[&str]| command(words).unwrap_err().hint.unwrap();
        assert_eq!(hint(&["configu"]), "did you mean configuration or config? `linger help` lists all");
        assert_eq!(hint(&["permisions"]), "did you mean permissions? `linger help` lists all");
        assert_eq!(hint(&["key-"]), "did you mean key or keys? `linger help` lists all");
        assert_eq!(hint(&["frobnicate"]), "`linger help` lists topics and commands");
        assert_eq!(hint(&["daemon", "stat"]), "did you mean status or start? `linger help` lists all");
        assert_eq!(command(&["nothing"]).unwrap_err().exit, Exit::USAGE);
    }

    #[test]
    fn a_topic_fits_a_terminal_and_is_not_a_command() {
        let commands = Arguments::command();
        for (name, about) in TOPICS {
            let text = document(name).unwrap();
            assert!(text.starts_with("# ") && text.ends_with('\n') && !about.is_empty(), "{name}");
            let wide: Vec<_> = text.lines().filter(|line| line.chars().count() > 80).collect();
            assert!(wide.is_empty(), "{name}: {wide:?}");
            assert!(commands.find_subcommand(name).is_none(), "{name} is a command too");
        }
    }
}
