//! Running an [inspection](super::options): in a mirror of the repository, and without what may not be read unasked.
//!
//! Rules that keep a file from being read hold for its former contents too: an inspection leaves such files out, and shows no object
//! without knowing its path. What they cannot hold is a copy under another name.
//! Paths are taken literally ([`super::paths`]), and git gets them from the root of the worktree, so that none means another file to
//! git than to the check.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use linger_protocol::message::ContentBlock;

use super::options::{About, Inspection, Subcommand};
use super::paths::{self, NamedPath, PathBase};
use super::private::Private;
use super::process::{Git, GitError};
use crate::sys::task;
use crate::tool::invalid::Invalid;
use crate::tool::output::Output;
use crate::tool::types::{Context, Hidden, ToolOutput};
use crate::tool::workspace::Workspace;
use crate::tool::{command, path, text};

/// The most bytes that an inspection reads to find out which files it would show: about 100,000 names.
const NAMES_MAX: usize = 8 << 20;

/// Files left out that are named.
const NAMED: usize = 10;

/// Runs an inspection of the worktree at `root`, which has no link in it; the error says what keeps it from running.
pub(super) async fn inspect(
    inspection: &Inspection,
    root: PathBuf,
    workspace: &Workspace,
    context: Context,
) -> Result<ToolOutput, Invalid> {
    let (at, cwd, spawn) = (root.clone(), workspace.cwd.clone(), context.spawn.clone());
    let prepared = task::spawn_blocking(move || (Git::of_call(&at, &spawn), cwd.canonicalize().unwrap_or(cwd))).await;
    let (git, cwd) = prepared.map_err(|error| refuse(&error.to_string()))?;
    let git = git.within(Duration::from_secs(workspace.timeout_s), NAMES_MAX);
    let private = Private::of(git).await.map_err(|why| refuse(&why))?;

    let place = PathBase { root, cwd };
    let filtered = FilteredInspection::of(inspection, place, context.hidden.clone(), &private).await?;
    filtered.check_paths().await?;
    let left_out = filtered.left_out(&private.git).await?;
    let process = private.git.start(&filtered.args(&left_out)).await?;
    let output = Output::to(context.output, context.blobs);
    let mut output = command::RunningCommand::within(workspace, workspace.timeout_s).collect(process, output).await;
    let mut say = |text: String| output.content.push(ContentBlock::text(text));
    if !left_out.is_empty() {
        let names: Vec<String> = left_out.iter().take(NAMED).map(|name| text::one_line(name)).collect();
        let more = if left_out.len() > NAMED { ", …" } else { "" };
        say(format!("[left out, for a rule keeps them from being read: {}{more}]", names.join(", ")));
    }
    for path in filtered.paths.iter().filter(|path| path.looks_like_a_pattern) {
        let word = text::one_line(&path.word);
        say(format!("[{word} is taken literally, and there is no such file: name files and directories]"));
    }
    Ok(output)
}

fn refuse(why: &str) -> Invalid {
    Invalid(format!("git cannot be run here without asking: {why}; run it with bash"))
}

impl From<GitError> for Invalid {
    fn from(error: GitError) -> Self {
        Self(match error {
            GitError::Failed(_, why) => why,
            GitError::TooMuch(_) => "that is more than fits; name a path, or fewer commits (`-n`)".to_owned(),
            GitError::TooLate(..) => "git took too long; name a path, or fewer commits (`-n`)".to_owned(),
            error => error.to_string(),
        })
    }
}

impl Inspection {
    /// Whether it looks at files of the worktree, and so at submodules.
    fn looks_at_worktree(&self) -> bool {
        matches!(self.subcommand, Subcommand::Status | Subcommand::Diff)
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

/// An inspection whose words are told apart, and the files that it must not show.
struct FilteredInspection<'a> {
    inspection: &'a Inspection,
    place: PathBase,
    hidden: Hidden,
    /// The revisions among its words.
    revisions: Vec<String>,
    /// The files and directories that it names.
    paths: Vec<NamedPath>,
}

impl<'a> FilteredInspection<'a> {
    /// Tells revisions from paths. Fails if a path may not be shown.
    async fn of(
        inspection: &'a Inspection,
        place: PathBase,
        hidden: Hidden,
        private: &Private,
    ) -> Result<Self, Invalid> {
        let Inspection { subcommand, words, paths, .. } = inspection;
        let revisions = match subcommand {
            Subcommand::Status => 0,
            _ if !paths.is_empty() => words.len(),
            Subcommand::Blame => words.len().saturating_sub(1),
            _ => paths::revisions(&private.git, words).await?,
        };
        let (revisions, before) = words.split_at_checked(revisions).unwrap_or((words, &[]));
        if *subcommand == Subcommand::Blame && (before.len() + paths.len() != 1 || revisions.len() > 1) {
            return Err(Invalid("`blame` takes one file: [REVISION] -- FILE".to_owned()));
        }
        let words: Vec<String> = before.iter().chain(paths).cloned().collect();
        let at = place.clone();
        let named = task::spawn_blocking(move || words.into_iter().map(|word| NamedPath::of(word, &at)).collect());
        let paths: Result<Vec<NamedPath>, Invalid> =
            named.await.map_err(|error| Invalid(format!("the paths could not be looked up: {error}")))?;
        if inspection.looks_at_worktree() {
            private.check_submodules().await.map_err(|why| refuse(&why))?;
        }
        let revisions = revisions.to_vec();
        Ok(Self { inspection, place, hidden, revisions, paths: paths? })
    }

    /// The arguments of git, without these files.
    fn args(&self, left_out: &[String]) -> Vec<String> {
        let fixed: &[&str] = match self.inspection.subcommand {
            Subcommand::Status => &["--ignore-submodules=dirty"],
            Subcommand::Blame => &[],
            _ => &["--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty", "--submodule=short", "--no-color"],
        };
        let options = self.inspection.options.iter().flat_map(|option| &option.words).cloned();
        self.with(fixed, options, left_out)
    }

    /// The arguments that name every file whose content would be shown.
    fn listing(&self) -> Vec<String> {
        let fixed: &[&str] = match self.inspection.subcommand {
            Subcommand::Diff => &["--name-only", "-z", "--no-renames", "--ignore-submodules=all"],
            _ => &["--name-only", "-z", "--no-renames", "--ignore-submodules=all", "-m", "--format="],
        };
        let selecting =
            self.inspection.options.iter().filter(|it| matches!(it.about, About::Selects | About::Searches));
        self.with(fixed, selecting.flat_map(|option| &option.words).cloned(), &[])
    }

    fn with(&self, fixed: &[&str], options: impl Iterator<Item = String>, left_out: &[String]) -> Vec<String> {
        let mut args = vec!["--no-pager".to_owned(), self.inspection.subcommand.name().to_owned()];
        args.extend(fixed.iter().map(|word| (*word).to_owned()));
        args.extend(options.chain(self.revisions.iter().cloned()));
        args.push("--".to_owned());
        // `blame` takes a path and no pattern.
        let is_plain = self.inspection.subcommand == Subcommand::Blame;
        args.extend(self.paths.iter().map(|path| if is_plain { path.plain(&self.place) } else { path.pattern() }));
        args.extend(left_out.iter().map(|path| format!(":(top,exclude,literal){path}")));
        args
    }

    /// Whether each of these paths is hidden. Asks the disk.
    async fn hidden(&self, paths: Vec<PathBuf>) -> Result<Vec<bool>, Invalid> {
        let hidden = self.hidden.clone();
        let asked = task::spawn_blocking(move || paths.iter().map(|path| hidden(path)).collect());
        asked.await.map_err(|error| Invalid(format!("the rules could not be asked: {error}")))
    }

    /// Fails if a path is named that may not be read.
    async fn check_paths(&self) -> Result<(), Invalid> {
        if self.inspection.subcommand == Subcommand::Status {
            return Ok(());
        }
        let at = self.paths.iter().map(|path| self.place.root.join(&path.below)).collect();
        match self.paths.iter().zip(self.hidden(at).await?).find(|(_, hidden)| *hidden) {
            Some((path, _)) => Err(kept_shut(&path.word)),
            None => Ok(()),
        }
    }

    /// The files that are not shown, relative to the root. Fails if something would be shown whose path is not known.
    async fn left_out(&self, git: &Git) -> Result<Vec<String>, Invalid> {
        if self.inspection.subcommand == Subcommand::Blame {
            return self.check_working_file().await.map(|()| Vec::new());
        }
        if !self.inspection.shows_contents() || self.is_contents(git).await? {
            return Ok(Vec::new());
        }
        let names = git.run(&self.listing()).await?;
        // A commit's names may begin with a line of its own.
        let mut names: Vec<&str> = names.split('\0').map(|name| name.trim_start_matches('\n')).collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| !name.is_empty());
        let hidden = self.hidden(names.iter().map(|name| self.place.root.join(name)).collect()).await?;
        let hidden = names.iter().zip(hidden).filter(|(_, hidden)| *hidden);
        Ok(hidden.map(|(name, _)| (*name).to_owned()).collect())
    }

    /// Whether nothing but files and directories of a commit is shown, `HEAD:src/main.rs`, or one is compared with a working file.
    async fn is_contents(&self, git: &Git) -> Result<bool, Invalid> {
        let (subcommand, words) = (self.inspection.subcommand, &self.revisions);
        let types = types(git, words).await?;
        let (mut contents, mut files) = (0, 0);
        for word in words {
            let own = types.get(word.as_str()).map_or("", String::as_str);
            let holds_file = parts(word).iter().any(|part| types.get(part.as_str()).is_some_and(|kind| kind == "blob"));
            match (own, file_of(word)) {
                ("blob", Some(file)) => {
                    let is_relative = file.starts_with("./") || file.starts_with("../");
                    let below = if is_relative { &self.place.cwd } else { &self.place.root };
                    if self.hidden(vec![path::normalise(&below.join(file))]).await?.contains(&true) {
                        return Err(kept_shut(word));
                    }
                    (contents, files) = (contents + 1, files + 1);
                }
                ("tree", _) if subcommand == Subcommand::Show => contents += 1,
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
        // Git opens the working file itself, by its name.
        if subcommand == Subcommand::Diff && files == 1 {
            self.check_working_file().await?;
        }
        match contents {
            0 => Ok(false),
            all if all == words.len() => Ok(true),
            _ => Err(Invalid("commits and contents of files are shown by calls of their own".to_owned())),
        }
    }

    /// Fails unless the one path that git opens by name is a file, so that git waits for nothing and reads nothing else.
    async fn check_working_file(&self) -> Result<(), Invalid> {
        let [path] = self.paths.as_slice() else {
            return Err(Invalid(
                "the content of a file is compared with one working file: name it behind `--`".to_owned(),
            ));
        };
        let file = self.place.root.join(&path.below);
        let looked = task::spawn_blocking(move || file.symlink_metadata()).await;
        let looked = looked.map_err(|error| Invalid(format!("the file could not be looked up: {error}")))?;
        match looked {
            // One that is gone can be of a commit.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Ok(status) if status.is_file() => Ok(()),
            Ok(_) => Err(Invalid(format!("{} is not a regular file", text::one_line(&path.word)))),
            Err(error) => Err(Invalid(format!("{}: {error}", text::one_line(&path.word)))),
        }
    }
}

fn kept_shut(word: &str) -> Invalid {
    Invalid(format!("{}: a rule keeps it from being read", text::one_line(word)))
}

/// The types of the objects that these words and their parts name.
async fn types(git: &Git, words: &[String]) -> Result<HashMap<String, String>, Invalid> {
    let asked: Vec<String> = words.iter().flat_map(|word| parts(word)).collect();
    if asked.is_empty() {
        return Ok(HashMap::new());
    }
    if asked.iter().any(|word| word.contains('\n')) {
        return Err(Invalid("a revision has no newline".to_owned()));
    }
    let lines: String = asked.iter().map(|word| format!("{word}\n")).collect();
    let said = git.run_with(&["cat-file", "--batch-check=%(objecttype)"], lines.into_bytes()).await?;
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
