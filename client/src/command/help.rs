//! `linger help`: the manual, the list of commands, the help of one command, and the protocol as JSON Schema.
//!
//! The manual is the Markdown in `daemon/manual`, printed as it is. Deliberately absent: a pager.

use clap::CommandFactory as _;

use crate::arguments::overview::GROUPS;
use crate::arguments::{Arguments, Help};
use crate::error::{Exit, Failure};
use crate::render::near::nearest;
use crate::render::table::columns;
use crate::terminal::Terminal;

/// The topics of the manual and what each covers.
pub(super) const TOPICS: [(&str, &str); 19] = [
    ("start", "a first task, from a key to undo: read this first"),
    ("sessions", "prompts, attaching, queue, summaries, pictures, undo"),
    ("rules", "modes, rules and answers: what may run"),
    ("workspaces", "what a repository may configure, and trust"),
    ("extending", "agents, skills, commands and tools in Markdown"),
    ("notes", "notes that outlive sessions"),
    ("hooks", "your own commands around calls and prompts"),
    ("attention", "notifications when a session needs you"),
    ("providers", "models, cost, your own model servers"),
    ("keys", "provider keys, proxies, certificates"),
    ("servers", "MCP servers: more tools for the agent"),
    ("editors", "linger in an editor that speaks ACP"),
    ("http", "the gateway: browsers, OpenAI clients"),
    ("configuration", "every key of config.toml"),
    ("tokens", "access for other programs and machines"),
    ("another-machine", "sessions on a server, through ssh"),
    ("scripts", "pipes, JSON, exit codes, the socket"),
    ("background", "the daemon, its files, crashes, logging out"),
    ("limits", "sizes and counts that linger enforces"),
];

/// The topic that is generated.
const SCHEMA: (&str, &str) = ("schema", "the protocol as JSON Schema");

/// The word after `help` that lists all commands.
const COMMANDS: &str = "commands";

/// Names that an error suggests, at most.
const NEAR: usize = 3;

/// Letters that a prefix of a name needs to count as a match.
const BEGINNING: usize = 3;

pub(super) fn run(args: &Help) -> Result<Exit, Failure> {
    let words: Vec<&str> = args.about.iter().map(String::as_str).collect();
    let text = match words.as_slice() {
        [] => start(),
        [COMMANDS] => commands(),
        [topic] if TOPICS.iter().chain([&SCHEMA]).any(|(name, _)| name == topic) => document(topic)?,
        words => command(words)?,
    };
    Terminal::new().text(&text)?;
    Ok(Exit::GOOD)
}

/// The text of `linger help`: where to read on, and the topics.
fn start() -> String {
    let rows = [
        ("linger help start", "a first task, step by step"),
        ("linger --help", "the commands and options that people use"),
        ("linger help commands", "all commands and options"),
        ("linger COMMAND --help", "one command"),
        ("linger help TOPIC", "a page of the manual"),
    ];
    let rows: Vec<_> = rows.iter().map(|(what, about)| vec![format!("  {what}"), (*about).to_owned()]).collect();
    let names = TOPICS.iter().chain([&SCHEMA]);
    let topics: Vec<_> = names.map(|(name, about)| vec![format!("  {name}"), (*about).to_owned()]).collect();
    format!("{}\n\nTopics:\n{}\n", columns(&rows).join("\n"), columns(&topics).join("\n"))
}

/// All listed commands by group, and the options of `linger` without a command.
fn commands() -> String {
    let mut root = Arguments::command();
    root.build();
    let mut text = String::new();
    for (group, names) in GROUPS {
        let about = |name: &str| {
            let about = root.find_subcommand(name).and_then(clap::Command::get_about);
            vec![format!("  {name}"), about.map(ToString::to_string).unwrap_or_default()]
        };
        let rows: Vec<_> = names.iter().map(|name| about(name)).collect();
        text += &format!("{group}:\n{}\n\n", columns(&rows).join("\n"));
    }
    // The first page overrides the whole help.
    let options =
        Arguments::command().override_help(None::<&'static str>).help_template("{options}").render_long_help();
    format!("{text}Options of `linger` without a command; most also work with `run` and `new`:\n{options}")
}

/// The text of a topic or the schema, from what `build.rs` packed. Fails if that is damaged.
fn document(topic: &str) -> Result<String, Failure> {
    let damaged =
        |why: &dyn std::fmt::Display| Failure::new(Exit::FAILED, format!("the page {topic} cannot be read: {why}"));
    let compressed = include_bytes!(concat!(env!("OUT_DIR"), "/documents.z"));
    let bytes = miniz_oxide::inflate::decompress_to_vec(compressed).map_err(|error| damaged(&error))?;
    let text = String::from_utf8(bytes).map_err(|error| damaged(&error))?;
    let mut parts = text.split('\0').skip_while(|part| *part != topic).skip(1);
    parts.next().map(str::to_owned).ok_or_else(|| damaged(&"it is missing"))
}

/// The help of a command. Fails if neither a command nor a topic has this name.
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

/// The error for an unknown name, with similar names: names with this prefix, then names with a similar spelling.
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
        [] => failure.hint("`linger help` lists the topics, `linger --help` the commands"),
        near => failure.hint(format!(
            "did you mean {}? `linger help` lists the topics, `linger --help` the commands",
            near.join(" or ")
        )),
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
        assert_eq!(
            hint(&["configu"]),
            "did you mean configuration or config? `linger help` lists the topics, `linger --help` the commands"
        );
        assert_eq!(
            hint(&["permisions"]),
            "did you mean permissions? `linger help` lists the topics, `linger --help` the commands"
        );
        assert_eq!(
            hint(&["key-"]),
            "did you mean key or keys? `linger help` lists the topics, `linger --help` the commands"
        );
        assert_eq!(hint(&["frobnicate"]), "`linger help` lists the topics, `linger --help` the commands");
        assert_eq!(
            hint(&["daemon", "stat"]),
            "did you mean status or start? `linger help` lists the topics, `linger --help` the commands"
        );
        assert_eq!(command(&["nothing"]).unwrap_err().exit, Exit::USAGE);
    }

    #[test]
    fn the_page_of_help_itself_fits_a_screen_and_names_the_first_page_of_the_manual() {
        let text = start();
        assert!(text.lines().count() <= 30 && text.contains("linger help start"), "{text}");
    }

    #[test]
    fn all_commands_and_the_options_of_linger_alone_are_listed() {
        let text = commands();
        for name in ["run", "artifact", "permissions", "--max-steps", "--add-dir", "--resume"] {
            assert!(text.contains(name), "{name}: {text}");
        }
        assert!(!text.contains("uncompact") && !text.contains("unqueue"), "{text}");
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
