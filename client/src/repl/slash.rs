//! The commands that begin with a slash: a line to its meaning. Pure.

use linger_protocol::permission::Mode;
use linger_protocol::session::Effort;
use linger_protocol::unattended::Unattended;

use super::menu::Choice;
use crate::input::Names;
use crate::render::Thinking;
use crate::render::near::distance;

/// A subcommand of `linger` whose output is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subcommand {
    Usage,
    /// `tools` of the session.
    Tools,
    Answer,
    Inbox,
    /// `log` of the session.
    Log,
}

/// The changes that `/undo` takes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UndoMeans {
    /// Nothing that something else may have changed while a command ran: then it asks.
    Certain,
    /// Such files stay, the others are undone.
    Keep,
    /// Everything.
    Force,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Slash {
    /// Shows the commands, or one of them.
    Help(Option<String>),
    /// Starts a fresh session in the same directory.
    New,
    /// Goes over to another session.
    Resume(Option<String>),
    /// Starts a fresh session with an agent.
    Agent(Option<String>),
    /// Gives the session a name.
    Rename(String),
    /// Has the model write instructions for itself; the words say more about them.
    Init(Option<String>),
    /// Shows what the session changed.
    Diff(Option<String>),
    /// Writes the session to a file.
    Export(Option<String>),
    /// Shows how the session is.
    Status,
    /// Shows what a subcommand prints.
    Subcommand(Subcommand, Vec<String>),
    /// Shows or sets the mode.
    Mode(Option<Mode>),
    /// Shows or sets what to do with unanswered questions.
    Unattended(Option<Unattended>),
    /// Shows or sets the model.
    Model(Option<String>),
    /// Shows or sets how hard the model thinks.
    Effort(Option<Effort>),
    /// Shows or sets how much of the thinking to show.
    Thinking(Option<Thinking>),
    /// Lists the providers, or changes to the default model of one.
    Provider(Option<String>),
    /// Sends a prompt that steers the turn: before its next step.
    Steer(String),
    /// Sends a prompt that interrupts the running step.
    Interrupt(String),
    /// Lists the queued prompts and the drafts.
    Queue,
    /// Takes back a queued prompt or a draft: the last one, or the N-th of the list.
    Unqueue(Option<usize>),
    /// Shows the whole output of a tool call: of the last one, or the N-th before.
    Output(Option<usize>),
    /// Cancels the running turn.
    Cancel,
    /// Resumes an interrupted turn, starts queued prompts, or sends drafts: all, or the N-th of the list.
    Continue(Option<usize>),
    /// Replaces older messages by a summary; the argument says what to keep.
    Compact(Option<String>),
    /// Undoes the latest changes of files.
    Undo(UndoMeans),
    /// Makes the undone changes again; true also those that were changed since.
    Redo(bool),
    /// Makes a fork, at a message or a prompt, and enters it.
    Fork(Option<String>),
    /// Goes back to a prompt of the list, perhaps with the files; alone lists them.
    Rewind(Option<usize>, bool),
    /// Takes back the latest summary.
    Uncompact,
    /// Shows the forks of the session, or changes to one.
    Tree(Option<usize>),
    /// Merges what a child did in its git worktree.
    Merge(Option<String>),
    /// Leaves; the work continues.
    Detach,
    Sessions,
    /// Lists the MCP servers.
    Mcp,
    /// Sends a prompt that an MCP server has ready.
    ServerPrompt {
        server: String,
        prompt: String,
        /// The arguments.
        words: String,
    },
    /// Lists the rules that answers added.
    Permissions,
    /// Adds a directory, or takes it away again; alone lists them.
    Dir(bool, Option<String>),
}

/// The kind of words that follow a command, for Tab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Argument {
    /// One of these words.
    Words(&'static [&'static str]),
    Mode,
    /// A name that the daemon knows.
    Names(Names),
    Directory,
    Command,
}

/// A command, its argument, what it does, and what its words are.
type Row = (&'static str, &'static str, &'static str, Option<Argument>);

const COMMANDS: &[Row] = &[
    ("/help", "[COMMAND]", "list the commands, or explain one", Some(Argument::Command)),
    ("/new", "", "start a new session here; this one stays", None),
    ("/clear", "", "same as /new", None),
    ("/resume", "[SESSION]", "switch to another session; alone: choose", Some(Argument::Names(Names::Sessions))),
    ("/rename", "NAME", "rename this session", None),
    ("/model", "[[PROVIDER/]MODEL]", "change the model; alone: choose", Some(Argument::Names(Names::Models))),
    ("/agent", "[AGENT]", "start a new session with an agent; alone: choose", Some(Argument::Names(Names::Agents))),
    ("/mode", "[ask|edit|auto|plan]", "set what runs without asking", Some(Argument::Mode)),
    ("/effort", "[LEVEL]", "thinking effort: none to max, or auto", Some(Argument::Names(Names::Efforts))),
    ("/provider", "[PROVIDER]", "use its default model; alone: list the providers", None),
    (
        "/unattended",
        "[hold|deny[:TIME]]",
        "what to do with unanswered questions",
        Some(Argument::Words(&["hold", "deny"])),
    ),
    ("/add-dir", "[DIR]", "add a working directory; alone: list", Some(Argument::Directory)),
    ("/remove-dir", "DIR", "remove an added directory", Some(Argument::Directory)),
    (
        "/thinking",
        "[show|hide|summary]",
        "how much of the thinking to show",
        Some(Argument::Words(&["show", "hide", "summary"])),
    ),
    ("/steer", "TEXT", "send a prompt before the next step (Alt-S)", None),
    ("/interrupt", "TEXT", "send a prompt now; cancels the running step", None),
    ("/queue", "", "list the queued prompts and the drafts", None),
    ("/unqueue", "[N]", "remove the last queued prompt, or the N-th", None),
    ("/cancel", "", "cancel the running turn", None),
    ("/continue", "[N]", "resume a turn, or send the drafts, or the N-th", None),
    ("/compact", "[WHAT TO KEEP]", "replace older messages with a summary", None),
    ("/uncompact", "", "undo the last summary, if it all still fits", None),
    ("/init", "[WORDS]", "have the model write AGENTS.md", None),
    ("/diff", "[TURN]", "show this session's file changes", None),
    ("/undo", "[--keep|--force]", "undo the last turn's file changes", Some(Argument::Words(&["--keep", "--force"]))),
    ("/redo", "[--force]", "redo the undone changes", Some(Argument::Words(&["--force"]))),
    ("/fork", "[MESSAGE]", "continue in a fork, from here or from a message", None),
    ("/rewind", "[N [--files]]", "go back before prompt N, 1 the latest; or list", Some(Argument::Words(&["--files"]))),
    ("/tree", "[N]", "list this session's forks, or switch to one", None),
    ("/merge", "[CHILD]", "merge a child's git worktree; alone: choose", Some(Argument::Names(Names::Merges))),
    ("/output", "[N]", "show the last tool's full output, or the N-th", None),
    ("/log", "[OPTIONS]", "show the whole session in the pager", Some(Argument::Words(&["--last", "-n", "--times"]))),
    ("/export", "[FILE]", "export the session as Markdown", None),
    ("/status", "", "show this session's model, mode, context, cost", None),
    ("/usage", "[OPTIONS]", "show tokens and cost per day", Some(Argument::Words(&["--by", "--since"]))),
    ("/sessions", "", "list all sessions", None),
    ("/inbox", "", "list open questions of all sessions", None),
    ("/answer", "QUESTION ANSWER", "answer a question of any session", None),
    ("/permissions", "", "list what is always allowed or denied", None),
    ("/tools", "", "list this session's tools", None),
    ("/mcp", "", "list MCP servers and their state", None),
    ("/detach", "", "leave; the work continues (also /quit, Ctrl-D)", None),
    ("/quit", "", "same as /detach", None),
];

/// The command in `line`; `None` if it is a prompt, an error text if the command is wrong.
pub(crate) fn parse(line: &str) -> Option<Result<Slash, String>> {
    let mut words = line.split_whitespace();
    let name = words.next()?;
    // A path is no command.
    if !name.starts_with('/') || name.get(1..)?.contains('/') {
        return None;
    }
    let rest = line.trim().get(name.len()..).map(str::trim).filter(|rest| !rest.is_empty()).map(str::to_owned);
    let all: Vec<String> = words.clone().map(str::to_owned).collect();
    let argument = words.next().map(str::to_owned);
    if let Some((server, prompt)) =
        name.get(1..)?.split_once(':').filter(|(server, prompt)| !server.is_empty() && !prompt.is_empty())
    {
        let (server, prompt, words) = (server.to_owned(), prompt.to_owned(), rest.unwrap_or_default());
        return Some(Ok(Slash::ServerPrompt { server, prompt, words }));
    }
    Some(match name {
        "/help" | "/?" => Ok(Slash::Help(argument)),
        "/new" | "/clear" => none(argument, name).map(|()| Slash::New),
        "/resume" => Ok(Slash::Resume(argument)),
        "/agent" => Ok(Slash::Agent(argument)),
        "/rename" => rest.map(Slash::Rename).ok_or_else(|| "add a name: /rename NAME".to_owned()),
        "/init" => Ok(Slash::Init(rest)),
        "/diff" => Ok(Slash::Diff(argument)),
        "/export" => Ok(Slash::Export(rest)),
        "/status" => none(argument, name).map(|()| Slash::Status),
        "/usage" => Ok(Slash::Subcommand(Subcommand::Usage, all)),
        "/tools" => none(argument, name).map(|()| Slash::Subcommand(Subcommand::Tools, Vec::new())),
        "/answer" if all.len() < 2 => {
            Err("usage: /answer QUESTION allow|session|always|deny; /inbox lists them".to_owned())
        }
        "/answer" => Ok(Slash::Subcommand(Subcommand::Answer, all)),
        "/inbox" => none(argument, name).map(|()| Slash::Subcommand(Subcommand::Inbox, Vec::new())),
        "/log" if all.iter().any(|word| matches!(word.as_str(), "-f" | "--follow" | "--forever")) => {
            Err("/log shows the past; new output appears here anyway".to_owned())
        }
        "/log" => Ok(Slash::Subcommand(Subcommand::Log, all)),
        "/mode" => argument.map(|mode| mode.parse()).transpose().map(Slash::Mode),
        "/unattended" => argument.map(|unattended| unattended.parse()).transpose().map(Slash::Unattended),
        "/effort" => argument.map(|effort| effort.parse()).transpose().map(Slash::Effort),
        "/thinking" => argument.map(|thinking| thinking.parse()).transpose().map(Slash::Thinking),
        "/model" => Ok(Slash::Model(argument)),
        "/provider" => match argument {
            Some(name) if name.contains('/') => Err(format!("{name} is a model: /model {name}")),
            name => Ok(Slash::Provider(name)),
        },
        "/add-dir" => Ok(Slash::Dir(true, rest)),
        "/remove-dir" => {
            rest.map(|dir| Slash::Dir(false, Some(dir))).ok_or_else(|| "add the directory: /remove-dir DIR".to_owned())
        }
        "/steer" => needs(rest, "/steer").map(Slash::Steer),
        "/interrupt" => needs(rest, "/interrupt").map(Slash::Interrupt),
        "/queue" => none(argument, name).map(|()| Slash::Queue),
        "/unqueue" => number(argument).map(Slash::Unqueue),
        "/output" => number(argument).map(Slash::Output),
        "/cancel" => none(argument, name).map(|()| Slash::Cancel),
        "/continue" => number(argument).map(Slash::Continue),
        "/compact" => Ok(Slash::Compact(rest)),
        "/uncompact" => none(argument, name).map(|()| Slash::Uncompact),
        "/undo" => undo(argument.as_deref()).map(Slash::Undo),
        "/redo" => force(argument).map(Slash::Redo),
        "/fork" => Ok(Slash::Fork(argument)),
        "/rewind" => rewind(rest.as_deref()),
        "/tree" => number(argument).map(Slash::Tree),
        "/merge" => Ok(Slash::Merge(argument)),
        "/detach" | "/quit" | "/exit" => Ok(Slash::Detach),
        "/sessions" => none(argument, name).map(|()| Slash::Sessions),
        "/mcp" => none(argument, name).map(|()| Slash::Mcp),
        "/permissions" => none(argument, name).map(|()| Slash::Permissions),
        _ => Err(unknown(name)),
    })
}

/// Refuses an argument.
fn none(argument: Option<String>, command: &str) -> Result<(), String> {
    argument.map_or(Ok(()), |argument| Err(format!("{command} takes no argument (got '{argument}')")))
}

fn needs(text: Option<String>, command: &str) -> Result<String, String> {
    text.ok_or_else(|| format!("{command} needs text: {command} use the other branch"))
}

/// A number from 1 on.
fn number(argument: Option<String>) -> Result<Option<usize>, String> {
    let parse =
        |text: String| text.parse().ok().filter(|n| *n > 0).ok_or_else(|| format!("not a positive number: {text}"));
    argument.map(parse).transpose()
}

/// `[N [--files]]`.
fn rewind(rest: Option<&str>) -> Result<Slash, String> {
    let words: Vec<&str> = rest.unwrap_or_default().split_whitespace().collect();
    match words.as_slice() {
        [] => Ok(Slash::Rewind(None, false)),
        [n] | [n, "--files"] | ["--files", n] if *n != "--files" => {
            let files = words.len() == 2;
            number(Some((*n).to_owned())).map(|n| Slash::Rewind(n, files))
        }
        ["--files"] => Err("add the prompt's number: /rewind N --files; /rewind lists them".to_owned()),
        _ => Err("usage: /rewind N [--files]; /rewind alone lists the prompts".to_owned()),
    }
}

fn undo(argument: Option<&str>) -> Result<UndoMeans, String> {
    match argument {
        None => Ok(UndoMeans::Certain),
        Some("--keep") => Ok(UndoMeans::Keep),
        Some("--force") => Ok(UndoMeans::Force),
        Some(other) => Err(format!("unknown option {other}; `linger undo` in a shell takes --call and --file")),
    }
}

fn force(argument: Option<String>) -> Result<bool, String> {
    match argument.as_deref() {
        None => Ok(false),
        Some("--force") => Ok(true),
        Some(other) => Err(format!("unknown option {other}; only --force is known")),
    }
}

/// The text of `/help`: the list and the keys, or one command.
pub(crate) fn help(command: Option<&str>) -> String {
    let row = |(name, argument, what, _): &Row| vec![format!("{name} {argument}"), (*what).to_owned()];
    if let Some(command) = command {
        let named = |(name, ..): &&Row| name.trim_start_matches('/') == command.trim_start_matches('/');
        return COMMANDS
            .iter()
            .find(named)
            .map_or_else(|| unknown(&format!("/{}", command.trim_start_matches('/'))), |found| row(found).join("  "));
    }
    let rows: Vec<_> = COMMANDS.iter().map(row).collect();
    let mut lines = crate::render::table::columns(&rows);
    lines.extend(KEYS.map(str::to_owned));
    lines.join("\n")
}

/// Other input, and the keys.
const KEYS: [&str; 11] = [
    "",
    "@src/main.rs sends a file, @src/main.rs:10-40 lines of it, @src/ a listing",
    "@picture.png sends a picture, @SERVER:URI a resource of an MCP server",
    "/NAME sends a command or a skill, /SERVER:PROMPT a prompt of an MCP server",
    "!COMMAND runs in this terminal; its output is sent with the next prompt",
    "Tab completes and lists; Ctrl-R searches the history",
    "Alt-Enter, Ctrl-J or a trailing \\ adds a line; Ctrl-X Ctrl-E opens $EDITOR",
    "while a turn runs: Enter queues, Alt-S steers, Esc or Ctrl-C stops it",
    "at a question: y once, s session, a always, n no; ? lists the keys",
    "Shift-Tab: next mode; vi keys: `set editing-mode vi` in ~/.inputrc",
    "Ctrl-D, exit, quit or :q leave; the work continues",
];

/// The commands, with what they do.
pub(super) fn names() -> Vec<Choice> {
    COMMANDS.iter().map(|(name, _, what, _)| Choice::new(*name, *what)).collect()
}

/// The kind of words that follow a command; `None` if Tab knows none.
pub(super) fn argument(command: &str) -> Option<Argument> {
    COMMANDS.iter().find(|(name, ..)| *name == command)?.3
}

fn unknown(name: &str) -> String {
    let near = COMMANDS.iter().map(|(known, ..)| (distance(name, known), *known)).min();
    match near {
        // Not one that is as near as anything.
        Some((far @ 0..=3, known)) if far < name.chars().count() => {
            format!("unknown command {name}; did you mean {known}?")
        }
        _ => format!("unknown command {name}; /help lists them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_told_from_a_prompt_and_a_path() {
        assert_eq!(parse("/mode plan"), Some(Ok(Slash::Mode(Some(Mode::Plan)))));
        assert_eq!(parse("/unattended deny:1m"), Some(Ok(Slash::Unattended(Some(Unattended::DenyAfter(60_000))))));
        assert_eq!(parse("/effort xhigh"), Some(Ok(Slash::Effort(Some(Effort::Xhigh)))));
        assert!(parse("/effort hihg").unwrap().unwrap_err().contains("none, minimal"));
        assert_eq!(parse("/thinking hide"), Some(Ok(Slash::Thinking(Some(Thinking::Hide)))));
        assert!(parse("/thinking no").unwrap().unwrap_err().contains("show, hide or summary"));
        assert_eq!(parse("/model"), Some(Ok(Slash::Model(None))));
        for command in ["/mcp", "/queue", "/cancel", "/uncompact", "/sessions", "/permissions"] {
            assert!(parse(command).unwrap().is_ok(), "{command}");
            let refused = parse(&format!("{command} and then")).unwrap().unwrap_err();
            assert!(refused.contains("takes no argument"), "{refused}");
        }
        assert_eq!(
            parse(" /compact  the two  reasons "),
            Some(Ok(Slash::Compact(Some("the two  reasons".to_owned()))))
        );
        assert_eq!(parse("/compact "), Some(Ok(Slash::Compact(None))));
        assert_eq!(parse("/provider work"), Some(Ok(Slash::Provider(Some("work".to_owned())))));
        assert_eq!(parse("/provider work/m"), Some(Err("work/m is a model: /model work/m".to_owned())));
        let (server, prompt, words) = ("git".to_owned(), "review".to_owned(), "a b".to_owned());
        assert_eq!(parse("/git:review a b"), Some(Ok(Slash::ServerPrompt { server, prompt, words })));
        assert_eq!(parse("/rewind"), Some(Ok(Slash::Rewind(None, false))));
        assert_eq!(parse("/rewind 2 --files"), Some(Ok(Slash::Rewind(Some(2), true))));
        assert_eq!(parse("/rewind --files 2"), Some(Ok(Slash::Rewind(Some(2), true))));
        for wrong in ["/rewind 0", "/rewind --files", "/rewind 1 2", "/rewind p3"] {
            assert!(parse(wrong).unwrap().is_err(), "{wrong}");
        }
        assert_eq!(parse("/etc/passwd is odd"), None);
        assert_eq!(parse("hello /help"), None);
        assert!(parse("/mode x").unwrap().is_err());
    }

    #[test]
    fn the_list_of_commands_fits_a_terminal() {
        let wide: Vec<_> = help(None).lines().filter(|line| line.chars().count() > 80).map(str::to_owned).collect();
        assert!(wide.is_empty(), "{wide:?}");
    }

    #[test]
    fn every_command_of_the_list_is_one_and_help_has_it() {
        for (name, argument, what, _) in COMMANDS {
            let needed = argument.split(' ').filter(|word| !word.is_empty() && !word.starts_with('['));
            let words = " x".repeat(needed.count());
            assert!(matches!(parse(&format!("{name}{words}")), Some(Ok(_))), "{name}");
            assert_eq!(help(Some(name)), format!("{name} {argument}  {what}"));
        }
        assert_eq!(help(Some("mod")), "unknown command /mod; did you mean /mode?");
        assert_eq!(parse("/new x"), Some(Err("/new takes no argument (got 'x')".to_owned())));
        assert!(parse("/log -f").unwrap().is_err());
        assert_eq!(
            parse("/usage --by model"),
            Some(Ok(Slash::Subcommand(Subcommand::Usage, vec!["--by".to_owned(), "model".to_owned()])))
        );
    }

    #[test]
    fn an_unknown_command_names_the_nearest() {
        assert_eq!(parse("/"), Some(Err("unknown command /; /help lists them".to_owned())));
        assert_eq!(parse("/cancle"), Some(Err("unknown command /cancle; did you mean /cancel?".to_owned())));
        assert_eq!(parse("/frobnicate"), Some(Err("unknown command /frobnicate; /help lists them".to_owned())));
    }
}
