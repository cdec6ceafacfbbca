//! `apply_patch`: changes, makes, removes and renames files by one patch, for models that are trained on its format.
//!
//! All of it or nothing: everything is read, checked and computed before anything is written, and what is written is put back if
//! something fails. A file that a crash leaves half of the patch in has its former content in the log, as for any change.

mod format;
mod hunks;

use std::io;
use std::path::{Path, PathBuf};

use linger_protocol::event::ToolKind;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::access::{Access, Effects, Targets};
use super::change::{Change, Content, KeptChange};
use super::handle::Entry;
use super::invalid::Invalid;
use super::names::Takes;
use super::types::{BoxFuture, Call, Context, SessionTraits, Tool, ToolOutput, blocking};
use super::workspace::Workspace;
use super::{args, file, patching, path, text};
use crate::store::blob::Blobs;
use format::Section;

/// Name in lists of tools and in rules.
pub const NAME: &str = patching::APPLY_PATCH;

/// The longest diff that is shown of all files together, in bytes: four times that of one file.
const DIFF_MAX: usize = 32 << 10;

/// How much the files of one patch may have together, in bytes: they are in memory before and after.
const TOTAL_MAX: usize = 64 << 20;

/// The most paths that the description of a call names; the question shows all.
const NAMED: usize = 4;

#[derive(Debug)]
pub(crate) struct ApplyPatch;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Args {
    /// the whole patch
    #[serde(alias = "patch")]
    input: String,
}

impl Tool for ApplyPatch {
    fn name(&self) -> &str {
        NAME
    }

    fn description(&self) -> &str {
        include_str!("apply_patch.md")
    }

    fn schema(&self) -> Value {
        args::schema::<Args>()
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Edit
    }

    fn pattern(&self) -> Takes {
        Takes::Path
    }

    fn offered(&self, session: &SessionTraits<'_>) -> bool {
        patching::has_patches(session)
    }

    fn prepare(&self, input: &Value, workspace: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let Args { input } = args::parse(input)?;
        let sections = format::parse(&input).map_err(Invalid)?;
        let steps: Result<Vec<FileStep>, Invalid> =
            sections.into_iter().map(|section| FileStep::of(section, workspace)).collect();
        Ok(Box::new(Patching { steps: steps?, workspace: workspace.clone() }))
    }
}

/// A section of the patch; paths are absolute.
struct FileStep {
    path: PathBuf,
    what: What,
}

enum What {
    Add(String),
    Delete,
    Update { to: Option<PathBuf>, hunks: Vec<format::Hunk> },
}

impl FileStep {
    fn of(section: Section, workspace: &Workspace) -> Result<Self, Invalid> {
        let absolute = |path: &str| workspace.absolute(path);
        let (path, what) = match section {
            Section::Add { path, content } => (path, What::Add(content)),
            Section::Delete { path } => (path, What::Delete),
            Section::Update { path, to, hunks } => {
                let to = to.as_deref().map(absolute).transpose()?;
                (path, What::Update { to, hunks })
            }
        };
        Ok(Self { path: absolute(&path)?, what })
    }

    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        let to = match &self.what {
            What::Update { to, .. } => to.as_ref(),
            What::Add(_) | What::Delete => None,
        };
        [&self.path].into_iter().chain(to)
    }
}

struct Patching {
    steps: Vec<FileStep>,
    workspace: Workspace,
}

/// A file that the patch changes.
struct Planned {
    /// As the patch names it.
    path: PathBuf,
    change: Change,
    /// The new lines of an edit.
    places: Vec<(usize, usize)>,
    /// The mode that the file had under another name.
    mode: Option<u32>,
}

/// Where the paths of a call lead to.
type Reached<'a> = dyn Fn(&Path) -> PathBuf + 'a;

impl Call for Patching {
    fn action(&self) -> String {
        let paths = self.paths();
        let named: Vec<String> = paths.iter().take(NAMED).map(|path| self.show(path)).collect();
        let more = paths.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("patch {}{more}", named.join(", "))
    }

    fn effects(&self) -> Effects {
        let mut parts: Vec<Access> = self.paths().into_iter().cloned().map(Access::Write).collect();
        match (parts.pop(), parts.is_empty()) {
            (Some(one), true) => Effects::change(one),
            (last, _) => Effects::several(parts.into_iter().chain(last).collect()),
        }
    }

    fn preview(&self, targets: &Targets) -> Vec<Change> {
        let planned = self.plan(&permitted(targets), false).unwrap_or_default();
        planned.into_iter().map(|planned| planned.change).collect()
    }

    fn refusal(&self, targets: &Targets) -> Option<String> {
        self.plan(&permitted(targets), true).err().map(unchanged)
    }

    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        blocking(move |_| {
            let reached = |path: &Path| context.reached(&self.workspace, path);
            let done = self.plan(&reached, true).and_then(|planned| self.write(planned, &context.blobs));
            done.unwrap_or_else(|why| ToolOutput::error(unchanged(why)))
        })
    }
}

/// Where a permission says that the paths of a call lead to.
fn permitted(targets: &Targets) -> impl Fn(&Path) -> PathBuf {
    |path| targets.of(path).unwrap_or(path).to_path_buf()
}

fn unchanged(why: String) -> String {
    format!("nothing is changed: {why}")
}

impl Patching {
    /// Each path once, in the order of the patch.
    fn paths(&self) -> Vec<&PathBuf> {
        let mut paths: Vec<&PathBuf> = Vec::new();
        for path in self.steps.iter().flat_map(FileStep::paths) {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        paths
    }

    fn show(&self, path: &Path) -> String {
        path::show(&self.workspace.cwd, path)
    }

    /// The change to each file; several sections may be about one. `checks`: fails unless the model knows what it changes.
    fn plan(&self, reached: &Reached<'_>, checks: bool) -> Result<Vec<Planned>, String> {
        let mut planned: Vec<Planned> = Vec::new();
        for step in &self.steps {
            let shown = self.show(&step.path);
            let wrong = |why: String| format!("{shown}: {why}");
            let at = self.look(&mut planned, &step.path, reached, checks)?;
            let Some(file) = planned.get_mut(at) else { continue };
            match &step.what {
                What::Add(content) => file.change.after = Content::Known(content.clone().into()),
                What::Delete => {
                    self.is_no_link(&step.path)?;
                    if file.change.after == Content::Missing {
                        return Err(self.missing(&step.path, &file.change.path));
                    }
                    file.change.after = Content::Missing;
                }
                What::Update { to, hunks } => {
                    let bytes = match &file.change.after {
                        Content::Missing => return Err(self.missing(&step.path, &file.change.path)),
                        Content::Known(bytes) => bytes.clone(),
                        Content::Unknown => return Err(wrong("is longer than 16 MiB, or cannot be read".into())),
                    };
                    let (content, places) = if hunks.is_empty() {
                        (Content::Known(bytes), Vec::new())
                    } else {
                        let text = std::str::from_utf8(&bytes).map_err(|_| wrong("is not UTF-8 text".into()))?;
                        let patched = hunks::apply(text, hunks).map_err(wrong)?;
                        (Content::Known(patched.text.into()), patched.places)
                    };
                    let Some(to) = to else {
                        file.change.after = content;
                        file.places.extend(places);
                        continue;
                    };
                    self.is_no_link(&step.path)?;
                    file.change.after = Content::Missing;
                    let mode =
                        Entry::at(&file.change.path).and_then(|entry| entry.status()).map(|it| it.st_mode & 0o7777);
                    let at = self.look(&mut planned, to, reached, checks)?;
                    let Some(moved) = planned.get_mut(at) else { continue };
                    if moved.change.after != Content::Missing {
                        return Err(format!(
                            "{} exists already; delete it first, or choose another path",
                            self.show(to)
                        ));
                    }
                    (moved.change.after, moved.mode) = (content, mode.ok());
                }
            }
        }
        planned.retain(|file| file.change.before != file.change.after);
        if planned.is_empty() { Err("the files have this content already".to_owned()) } else { Ok(planned) }
    }

    /// The place of a file in the plan, with its content.
    fn look(
        &self,
        planned: &mut Vec<Planned>,
        path: &Path,
        reached: &Reached<'_>,
        checks: bool,
    ) -> Result<usize, String> {
        let target = reached(path);
        if let Some(at) = planned.iter().position(|file| file.change.path == target) {
            return Ok(at);
        }
        let before = match Entry::at(&target).and_then(|entry| Content::of(&entry)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Content::Missing,
            content => content.map_err(|error| file::explain(&self.workspace, path, &target, &error))?,
        };
        if checks && let Err(why) = self.workspace.seen.check(&target, &before) {
            return Err(format!("{}: {why}", self.show(path)));
        }
        let size = |content: &Content| content.bytes().map_or(0, <[u8]>::len);
        let total = planned.iter().map(|file| size(&file.change.before)).sum::<usize>() + size(&before);
        if total > TOTAL_MAX {
            return Err(format!("the files have more than {} MiB together; make several patches", TOTAL_MAX >> 20));
        }
        let (path, after) = (path.to_path_buf(), before.clone());
        let change = Change { path: target, before, after };
        planned.push(Planned { path, change, places: Vec::new(), mode: None });
        Ok(planned.len() - 1)
    }

    fn missing(&self, path: &Path, target: &Path) -> String {
        file::explain(&self.workspace, path, target, &io::ErrorKind::NotFound.into())
    }

    /// To remove what a link leads to would leave the link.
    fn is_no_link(&self, path: &Path) -> Result<(), String> {
        match path.symlink_metadata() {
            Ok(status) if status.is_symlink() => {
                Err(format!("{} is a link; name the file that it leads to", self.show(path)))
            }
            _ => Ok(()),
        }
    }

    /// Makes the changes; what was made is put back if one fails.
    fn write(&self, planned: Vec<Planned>, blobs: &Blobs) -> Result<ToolOutput, String> {
        if !self.workspace.cwd.is_dir() {
            return Err(file::gone(&self.workspace));
        }
        let failed =
            |file: &Planned, error: &io::Error| file::explain(&self.workspace, &file.path, &file.change.path, error);
        let mut kept = Vec::new();
        for file in &planned {
            kept.push(file.change.keep(blobs).map_err(|error| failed(file, &error))?);
        }
        for (at, file) in planned.iter().enumerate() {
            let made = put(&file.change.path, &file.change.before, &file.change.after, file.mode);
            let Err(error) = made else { continue };
            let why = failed(file, &error);
            let made = planned.iter().zip(&kept).take(at).rev();
            let back = |made: &Planned, kept: &KeptChange| {
                put(&made.change.path, &made.change.after, &made.change.before, kept.change.before_mode)
            };
            let stuck: Vec<String> =
                made.filter(|(made, kept)| back(made, kept).is_err()).map(|(made, _)| self.show(&made.path)).collect();
            return if stuck.is_empty() {
                Err(why)
            } else {
                // Not the usual words, which say that nothing is changed.
                Ok(ToolOutput::error(format!(
                    "{why}; what was changed before could not be put back in {}: look at these files",
                    stuck.join(", ")
                )))
            };
        }
        let mut said: Vec<String> = planned.iter().map(|file| self.summary(file)).collect();
        for file in &planned {
            if let Content::Known(bytes) = &file.change.after {
                let diff = self.file_diff(file);
                said.extend(self.workspace.seen.wrote(&file.change.path, bytes, diff.as_deref()));
            } else {
                self.workspace.seen.left(&file.change.path, None);
            }
        }
        Ok(ToolOutput { diff: self.diff(&planned), changes: kept, ..ToolOutput::text(said.join("\n")) })
    }

    fn summary(&self, file: &Planned) -> String {
        let shown = self.show(&file.path);
        match (&file.change.before, &file.change.after) {
            (Content::Missing, _) => format!("created {shown}"),
            (_, Content::Missing) => format!("deleted {shown}"),
            _ => {
                let place = |(from, to): &(usize, usize)| {
                    if from == to { format!(", line {from}") } else { format!(", lines {from}-{to}") }
                };
                format!("edited {shown}{}", file.places.iter().map(place).collect::<String>())
            }
        }
    }

    fn file_diff(&self, file: &Planned) -> Option<String> {
        let text = |content: &Content| match content {
            Content::Missing => Some(String::new()),
            Content::Known(bytes) => String::from_utf8(bytes.clone()).ok(),
            Content::Unknown => None,
        };
        file::diff(&self.show(&file.path), &text(&file.change.before)?, &text(&file.change.after)?)
    }

    fn diff(&self, planned: &[Planned]) -> Option<String> {
        let whole: String = planned.iter().filter_map(|file| self.file_diff(file)).collect();
        let kept = text::head(&whole, DIFF_MAX);
        match whole.len() - kept.len() {
            0 => Some(whole).filter(|whole| !whole.is_empty()),
            cut => Some(format!("{kept}[… {cut} bytes left out]\n")),
        }
    }
}

/// Puts a content in the place of another, unless the file is not as it was seen; `mode`: that of the new file.
fn put(path: &Path, before: &Content, after: &Content, mode: Option<u32>) -> io::Result<()> {
    let entry = match after {
        Content::Known(_) => Entry::make(path)?,
        Content::Missing | Content::Unknown => Entry::at(path)?,
    };
    let now = match Content::of(&entry) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Content::Missing,
        content => content?,
    };
    if now != *before {
        return Err(io::Error::other("was changed meanwhile; read it again"));
    }
    match after {
        Content::Known(bytes) => {
            // A new file has its permissions from the beginning.
            if mode.is_some() && now == Content::Missing {
                entry.restore(bytes, None, mode)
            } else {
                entry.replace(bytes)
            }
        }
        Content::Missing => entry.remove(),
        Content::Unknown => Ok(()),
    }
}

#[cfg(test)]
mod tests;
