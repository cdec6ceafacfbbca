//! `git`: runs git; what only reads runs without asking.
//!
//! An [inspection](options) runs in a [private git directory](repository), in an environment of its own, and starts no program that
//! the repository, its configuration or the session's variables name. Every other call is a command like those of `bash`: it asks,
//! and runs git as a shell in the session's directory would.
//! Rules that keep a file from being read hold for its former contents too: an inspection leaves such files out, and shows no object
//! without knowing its path. What they cannot hold is a copy under another name.

mod options;
pub(super) mod repository;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use linger_protocol::event::ToolKind;
use linger_protocol::message::ContentBlock;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::access::Effects;
use super::invalid::Invalid;
use super::names::Takes;
use super::output::Output;
use super::types::{BoxFuture, Call, Context, Hidden, Tool, ToolOutput};
use super::workspace::Workspace;
use super::{args, command, path, text};
use crate::process::server::Spawn;
use crate::process::{End, Input, Stderr};
use crate::sys::task;
use options::{About, Inspection, Subcommand};
use repository::Mirror;

/// The longest arguments, in bytes: a commit message of some pages.
const ARGS_MAX: usize = 64 << 10;

/// What an inspection may take to find out what it would show, in bytes: about 100,000 names.
const NAMES_MAX: usize = 8 << 20;

/// Files left out that are named.
const NAMED: usize = 10;

/// Variables of the session that an inspection gets.
pub(super) const KEPT: [&str; 10] = [
    "HOME",
    "XDG_CONFIG_HOME",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "LC_MESSAGES",
    "LC_TIME",
    "TZ",
    crate::process::server::UMASK,
];

/// Variables that every inspection has.
pub(super) const OWN: [(&str, &str); 13] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_ALLOW_PROTOCOL", ""),
    ("GIT_PAGER", "cat"),
    ("GIT_EDITOR", "false"),
    ("GIT_SSH_COMMAND", "false"),
    ("GIT_ASKPASS", "false"),
    ("GIT_EXTERNAL_DIFF", ""),
];

/// The tool.
pub(super) struct Git;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Args {
    args: Vec<String>,
}

impl Tool for Git {
    fn name(&self) -> &str {
        "git"
    }

    fn description(&self) -> &str {
        include_str!("git.md")
    }

    fn schema(&self) -> Value {
        args::schema::<Args>()
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Execute
    }

    fn pattern(&self) -> Takes {
        Takes::Arguments
    }

    fn prepare(&self, input: &Value, workspace: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let Args { args } = args::parse(input)?;
        if args.is_empty() {
            return Err(Invalid("`args` is empty; name a subcommand, such as `status`".to_owned()));
        }
        if args.iter().any(|arg| arg.contains('\0')) {
            return Err(Invalid("`args` has a NUL in it".to_owned()));
        }
        let size: usize = args.iter().map(String::len).sum();
        if size > ARGS_MAX {
            return Err(Invalid(format!("`args` has {size} bytes, and may have {ARGS_MAX}")));
        }
        let depth = workspace.cwd.strip_prefix(&workspace.root).map(|below| below.components().count());
        let inspection = options::inspection(&args, depth.unwrap_or(0));
        Ok(Box::new(Running { args, inspection, workspace: workspace.clone() }))
    }
}

struct Running {
    args: Vec<String>,
    /// What it is, if it asks for nothing but a look.
    inspection: Option<Inspection>,
    workspace: Workspace,
}

impl Call for Running {
    fn action(&self) -> String {
        let words = self.args.iter().map(|arg| text::shell_word(arg));
        std::iter::once("git".into()).chain(words).collect::<Vec<_>>().join(" ")
    }

    fn effects(&self) -> Effects {
        match self.inspection {
            Some(_) => Effects::inspect(self.action(), &self.workspace.root),
            None => Effects::command(self.action()),
        }
    }

    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        Box::pin(async move {
            match &self.inspection {
                Some(inspection) => {
                    let root = context
                        .targets
                        .of(&self.workspace.root)
                        .map_or_else(|| self.workspace.root.clone(), Path::to_path_buf);
                    let looked = inspect(inspection, root, &self.workspace, context).await;
                    looked.unwrap_or_else(|why| ToolOutput::error(why.0))
                }
                None => self.execute(context).await,
            }
        })
    }
}

impl Running {
    async fn execute(&self, context: Context) -> ToolOutput {
        match context.spawn.command("git", &self.args, Input::Nothing, Stderr::Merged).await {
            Ok(process) => {
                command::collect(process, Output::to(context.output, context.blobs), self.workspace.timeout_s, "").await
            }
            Err(error) => command::not_started(&self.workspace, &error).await,
        }
    }
}

/// Runs an inspection; the error says what keeps it from running.
async fn inspect(
    inspection: &Inspection,
    root: PathBuf,
    workspace: &Workspace,
    context: Context,
) -> Result<ToolOutput, Invalid> {
    let env = context.spawn.env.clone();
    let cwd = workspace.cwd.clone();
    let at = root.clone();
    let prepared = task::spawn_blocking(move || {
        let mirror = Mirror::of(&at).map_err(|why| refuse(&why))?;
        let path = programs(env.get("PATH").map_or("", String::as_str), &at);
        Ok((mirror, path, cwd.canonicalize().unwrap_or(cwd)))
    });
    let (mirror, path, cwd) = prepared.await.map_err(|error| refuse(&error.to_string()))??;
    let spawn = Spawn { env: Arc::new(variables(&context.spawn.env, &path, &mirror, &root)), ..context.spawn.clone() };
    let git = Quiet { spawn, limit: Duration::from_secs(workspace.timeout_s) };

    let settings = git.run(&["config", "--file", "-", "--no-includes", "-z", "--list"], mirror.config.clone()).await?;
    let settings: Vec<(&str, &str)> = settings.split('\0').filter_map(|line| line.split_once('\n')).collect();
    mirror.configure(&settings).map_err(|error| refuse(&error.to_string()))?;

    let subject = Subject { inspection, root, cwd, hidden: context.hidden.clone() };
    subject.check_named().await?;
    let left_out = subject.left_out(&git).await?;
    let args = inspection.args(&left_out);
    let process = git.spawn.program("git", &args, Input::Nothing, Stderr::Merged).await;
    let process = process.map_err(|error| Invalid(format!("git could not be started: {error}")))?;
    let mut output =
        command::collect(process, Output::to(context.output, context.blobs), workspace.timeout_s, "").await;
    if !left_out.is_empty() {
        let names: Vec<String> = left_out.iter().take(NAMED).map(|name| text::one_line(name)).collect();
        let more = if left_out.len() > NAMED { ", …" } else { "" };
        let about = format!("[left out, for a rule keeps them from being read: {}{more}]", names.join(", "));
        output.content.push(ContentBlock::text(about));
    }
    Ok(output)
}

fn refuse(why: &str) -> Invalid {
    Invalid(format!("git cannot be run here without asking: {why}; run it with bash"))
}

/// The directories of `path` in which a program may be: nothing of the workspace runs unasked.
pub(super) fn programs(path: &str, root: &Path) -> String {
    let is_apart = |dir: &PathBuf| dir.is_absolute() && !dir.canonicalize().is_ok_and(|dir| dir.starts_with(root));
    let kept: Vec<PathBuf> = std::env::split_paths(path).filter(is_apart).collect();
    std::env::join_paths(kept).ok().and_then(|path| path.into_string().ok()).unwrap_or_default()
}

fn variables(env: &BTreeMap<String, String>, path: &str, mirror: &Mirror, root: &Path) -> BTreeMap<String, String> {
    let kept = KEPT.iter().filter_map(|name| Some(((*name).to_owned(), env.get(*name)?.clone())));
    let own = OWN.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let places = [("GIT_DIR", mirror.path()), ("GIT_WORK_TREE", root)];
    let places = places.map(|(name, path)| (name.to_owned(), path.to_string_lossy().into_owned()));
    kept.chain(own).chain(places).chain([("PATH".to_owned(), path.to_owned())]).collect()
}

/// Runs git for its output.
struct Quiet {
    spawn: Spawn,
    limit: Duration,
}

impl Quiet {
    async fn run<S: AsRef<std::ffi::OsStr>>(&self, args: &[S], input: Vec<u8>) -> Result<String, Invalid> {
        let process = self.spawn.program("git", args, Input::Bytes(input), Stderr::Apart).await;
        let process = process.map_err(|error| Invalid(format!("git could not be started: {error}")))?;
        let done = process.finish(self.limit, NAMES_MAX).await;
        let done = done.map_err(|error| Invalid(format!("the output of git could not be read: {error}")))?;
        match done.end {
            End::Status(status) if status.success() => Ok(String::from_utf8_lossy(&done.output).into_owned()),
            End::Status(_) if !done.stderr.trim().is_empty() => Err(Invalid(done.stderr.trim().to_owned())),
            End::Status(status) => Err(Invalid(format!("git failed: {status}"))),
            End::TooMuch => Err(Invalid("that is more than fits; name a path, or fewer commits (`-n`)".to_owned())),
            End::TooLate => Err(Invalid("git took too long; name a path, or fewer commits (`-n`)".to_owned())),
        }
    }
}

impl Inspection {
    /// The arguments of git, without these files.
    fn args(&self, left_out: &[String]) -> Vec<String> {
        let fixed: &[&str] = match self.subcommand {
            Subcommand::Status => &["--ignore-submodules=dirty"],
            Subcommand::Blame => &[],
            _ => &["--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty", "--submodule=short", "--no-color"],
        };
        let options = self.options.iter().flat_map(|option| &option.words).cloned();
        self.with(fixed, options, left_out)
    }

    /// The arguments that name every file whose content would be shown.
    fn listing(&self) -> Vec<String> {
        let fixed: &[&str] = match self.subcommand {
            Subcommand::Diff => &["--name-only", "-z", "--no-renames", "--ignore-submodules=dirty"],
            _ => &["--name-only", "-z", "--no-renames", "--ignore-submodules=dirty", "-m", "--format="],
        };
        let selecting = self.options.iter().filter(|it| matches!(it.about, About::Selects | About::Searches));
        self.with(fixed, selecting.flat_map(|option| &option.words).cloned(), &[])
    }

    fn with(&self, fixed: &[&str], options: impl Iterator<Item = String>, left_out: &[String]) -> Vec<String> {
        let mut args = vec!["--no-pager".to_owned(), self.subcommand.name().to_owned()];
        args.extend(fixed.iter().map(|word| (*word).to_owned()));
        args.extend(options.chain(self.words.iter().cloned()));
        if !self.paths.is_empty() {
            args.push("--".to_owned());
            args.extend(self.paths.iter().cloned());
        }
        args.extend(left_out.iter().map(|path| format!(":(top,exclude,literal){path}")));
        args
    }

    /// Whether it shows what is in files.
    fn shows_contents(&self) -> bool {
        let is_about = |about: About| self.options.iter().any(|option| option.about == about);
        match self.subcommand {
            Subcommand::Status | Subcommand::Blame => false,
            Subcommand::Diff | Subcommand::Show => true,
            Subcommand::Log => is_about(About::ShowsChanges) || is_about(About::Searches),
        }
    }
}

/// What an inspection is about, and what it must not show.
struct Subject<'a> {
    inspection: &'a Inspection,
    root: PathBuf,
    cwd: PathBuf,
    hidden: Hidden,
}

impl Subject<'_> {
    /// Which of these are hidden. Asks the disk.
    async fn hidden(&self, paths: Vec<PathBuf>) -> Result<Vec<bool>, Invalid> {
        let hidden = self.hidden.clone();
        let asked = task::spawn_blocking(move || paths.iter().map(|path| hidden(path)).collect());
        asked.await.map_err(|error| Invalid(format!("the rules could not be asked: {error}")))
    }

    /// Fails if a hidden file is named.
    async fn check_named(&self) -> Result<(), Invalid> {
        let Inspection { subcommand, words, paths, .. } = self.inspection;
        if *subcommand == Subcommand::Status {
            return Ok(());
        }
        let named: Vec<&String> = words.iter().chain(paths).collect();
        let at = named.iter().map(|word| path::normalise(&self.cwd.join(word))).collect();
        match named.iter().zip(self.hidden(at).await?).find(|(_, hidden)| *hidden) {
            Some((word, _)) => Err(kept_shut(word)),
            None => Ok(()),
        }
    }

    /// The files that are not shown, relative to the root. Fails if something would be shown whose path is not known.
    async fn left_out(&self, git: &Quiet) -> Result<Vec<String>, Invalid> {
        if !self.inspection.shows_contents() || self.is_contents(git).await? {
            return Ok(Vec::new());
        }
        let names = git.run(&self.inspection.listing(), Vec::new()).await?;
        // A commit's names may begin with a line of its own.
        let mut names: Vec<&str> = names.split('\0').map(|name| name.trim_start_matches('\n')).collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| !name.is_empty());
        let hidden = self.hidden(names.iter().map(|name| self.root.join(name)).collect()).await?;
        let hidden = names.iter().zip(hidden).filter(|(_, hidden)| *hidden);
        Ok(hidden.map(|(name, _)| (*name).to_owned()).collect())
    }

    /// Whether nothing but files and directories of a commit is shown, `HEAD:src/main.rs`.
    async fn is_contents(&self, git: &Quiet) -> Result<bool, Invalid> {
        let Inspection { subcommand, words, .. } = self.inspection;
        let types = types(git, words).await?;
        let mut contents = 0;
        for word in words {
            let own = types.get(word.as_str()).map_or("", String::as_str);
            let holds_file = parts(word).iter().any(|part| types.get(part.as_str()).is_some_and(|kind| kind == "blob"));
            match (own, file_of(word)) {
                ("blob", Some(file)) => {
                    let below = if file.starts_with("./") || file.starts_with("../") { &self.cwd } else { &self.root };
                    if self.hidden(vec![path::normalise(&below.join(file))]).await?.contains(&true) {
                        return Err(kept_shut(word));
                    }
                    contents += 1;
                }
                ("tree", _) if *subcommand == Subcommand::Show => contents += 1,
                ("tree", _) => {
                    return Err(Invalid(format!(
                        "{} is a directory: name commits, and the directory behind `--`",
                        text::one_line(word)
                    )));
                }
                _ if holds_file => {
                    return Err(Invalid(format!(
                        "{} is the content of a file: name it as COMMIT:PATH",
                        text::one_line(word)
                    )));
                }
                _ => {}
            }
        }
        match contents {
            0 => Ok(false),
            all if all == words.len() => Ok(true),
            _ => Err(Invalid("commits and contents of files are shown by calls of their own".to_owned())),
        }
    }
}

fn kept_shut(word: &str) -> Invalid {
    Invalid(format!("{}: a rule keeps it from being read", text::one_line(word)))
}

/// What git calls the objects that these words and their parts name.
async fn types(git: &Quiet, words: &[String]) -> Result<HashMap<String, String>, Invalid> {
    let asked: Vec<String> = words.iter().flat_map(|word| parts(word)).collect();
    if asked.is_empty() {
        return Ok(HashMap::new());
    }
    if asked.iter().any(|word| word.contains('\n')) {
        return Err(Invalid("a revision has no newline".to_owned()));
    }
    let lines: String = asked.iter().map(|word| format!("{word}\n")).collect();
    let said = git.run(&["cat-file", "--batch-check=%(objecttype)"], lines.into_bytes()).await?;
    Ok(asked.into_iter().zip(said.lines().map(str::to_owned)).collect())
}

/// All that a word may name: itself, what a tag leads to, and the ends of a range.
fn parts(word: &str) -> Vec<String> {
    let bare = word.trim_start_matches('^');
    let ends = bare.split("..").map(|end| end.trim_start_matches('.')).filter(|end| !end.is_empty());
    let all = [word, bare].into_iter().chain(ends).map(str::to_owned);
    all.flat_map(|part| [format!("{part}^{{}}"), part]).collect()
}

/// The path in `COMMIT:PATH`, `:PATH` and `:1:PATH`.
fn file_of(word: &str) -> Option<&str> {
    match word.strip_prefix(':') {
        Some(staged) => {
            let numbered = ["0:", "1:", "2:", "3:"].iter().find_map(|stage| staged.strip_prefix(stage));
            Some(numbered.unwrap_or(staged))
        }
        // What is in braces may have a colon too.
        None => word.split_once(':').filter(|(commit, _)| !commit.contains('{')).map(|(_, file)| file),
    }
}

#[cfg(test)]
mod tests;
