//! Commands that only read run without asking, inside the workspace: which these are, what they open, and whether all of that may be
//! read.
//!
//! [`CommandReads::of`] looks at the disk once, when a call is resolved: the [`table`] knows each option, the words are literal,
//! no variable steers the programs, these lie outside the workspace, and each path is a file or directory. [`CommandReads::is_allowed`]
//! then compares the paths with the rules, as for a call of `read`. A command that reads a whole tree is allowed only where no rule
//! can hide a file below its start. Whatever is not known asks.

mod arguments;
mod find;
mod git;
mod line;
mod pattern;
mod sed;
mod surroundings;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::Rules;
use super::rule::{CallInfo, Effect, PathBases, Rule, Target};
use crate::tool::{Access, Workspace};
use line::{ReadStep, StepWord};
use table::Operands;

/// Tools whose rules hide files from commands, too.
const READING: [&str; 4] = ["read", "grep", "ls", "glob"];

/// The longest line that is looked at, in bytes: models write a few hundred.
const LINE_MAX: usize = 4 << 10;

/// Begins a word that stands for several file names; no word that a program gets has it.
const MARK: char = '\0';

/// The files that a command line which only reads opens.
#[derive(Debug)]
pub(super) struct CommandReads {
    /// The programs, each once, for people.
    programs: Vec<String>,
    /// The files and directories.
    targets: Vec<Target>,
    /// The directories of which all is read.
    trees: Vec<Target>,
}

impl CommandReads {
    /// The files that this command line opens; absent if it is not known only to read. Blocks on the disk.
    pub(super) fn of(line: &str, workspace: &Workspace) -> Option<Self> {
        if line.len() > LINE_MAX || !surroundings::are_plain(&workspace.env) {
            return None;
        }
        // The shell that reads the line is one more program.
        if !cfg!(target_os = "linux") || !surroundings::is_foreign("bash", workspace) {
            return None;
        }
        let mut place = WorkingPlace { base: workspace.cwd.canonicalize().ok()?, workspace };
        let mut this = Self { programs: Vec::new(), targets: Vec::new(), trees: Vec::new() };
        for (at, step) in line::steps(line)?.iter().enumerate() {
            this.add("", &step.inputs, false, &place)?;
            if step.words.first() == Some(&StepWord::Literal("cd".to_owned())) {
                let [_, StepWord::Literal(dir)] = step.words.as_slice() else { return None };
                // Only the first command runs for certain, and in the shell itself; a file that is missing would keep it from running.
                if at > 0 || step.in_pipeline || !step.inputs.is_empty() {
                    return None;
                }
                place.base = place.directory(dir)?;
                this.add("cd", &[".".to_owned()], false, &place)?;
                continue;
            }
            this.step(step, &place)?;
        }
        Some(this)
    }

    fn step(&mut self, step: &ReadStep, place: &WorkingPlace<'_>) -> Option<()> {
        let (StepWord::Literal(name), args) = step.words.split_first()? else { return None };
        if name == "git" {
            let args = args.iter().map(StepWord::literal).collect::<Option<Vec<String>>>()?;
            let is_found = surroundings::is_foreign(name, place.workspace);
            let seen = git::read(&args, &place.base, place.workspace).filter(|_| is_found)?;
            self.add("git", &seen.paths, false, place)?;
            if seen.shows_contents {
                self.trees.push(place.target(place.workspace.root.to_str()?)??);
            }
            return Some(());
        }
        let row = table::row(name)?;
        if !row.is_builtin && !surroundings::is_foreign(name, place.workspace) {
            return None;
        }
        let mut patterns = BTreeMap::new();
        let mut words = Vec::new();
        for arg in args {
            match arg {
                StepWord::Literal(word) => words.push(word.clone()),
                StepWord::Pattern(text) => {
                    let found = pattern::expand(text, &place.base)?;
                    self.add(name, &found.directories, false, place)?;
                    // Where no name matches, a shell leaves the word as it is.
                    let is_literal = found.names == [text.clone()];
                    let word = if is_literal { text.clone() } else { format!("{MARK}{text}") };
                    patterns.extend((!is_literal).then_some((word.clone(), found.names)));
                    words.push(word);
                }
            }
        }
        let marks = words.iter().filter(|word| word.starts_with(MARK)).count();
        let opened = arguments::read(row, &words)?;
        let (marked, mut paths): (Vec<String>, Vec<String>) =
            opened.paths.into_iter().partition(|path| path.starts_with(MARK));
        // File names may only stand where each operand is a file.
        if marked.len() != marks || marks > 0 && row.operands == Operands::OnePath {
            return None;
        }
        let names: Vec<String> = marked.iter().filter_map(|path| patterns.get(path)).flatten().cloned().collect();
        // A name could be read as an option, or as a part of an expression of `find`.
        if names.iter().any(|name| name.starts_with(['-', '(', ')', '!', ','])) {
            return None;
        }
        paths.extend(names);
        // One file a hundred times is more than the memory of a command that keeps what it reads.
        let distinct: BTreeSet<&String> = paths.iter().collect();
        if distinct.len() < paths.len() {
            return None;
        }
        let others: Vec<String> = opened.others.into_iter().filter(|word| place.exists(word)).collect();
        self.add(name, &others, opened.walks, place)?;
        self.add(name, &paths, opened.walks, place)
    }

    /// Adds these paths of a program, or of the shell itself.
    fn add(&mut self, name: &str, paths: &[String], walks: bool, place: &WorkingPlace<'_>) -> Option<()> {
        if !name.is_empty() && !self.programs.iter().any(|it| it == name) {
            self.programs.push(name.to_owned());
        }
        for path in paths {
            let Some(target) = place.target(path)? else { continue };
            if walks {
                self.trees.push(target);
            } else {
                self.targets.push(target);
            }
        }
        Some(())
    }

    /// Whether all of it may be read without asking.
    pub(super) fn is_allowed(&self, rules: &Rules, bases: &PathBases) -> bool {
        let hiding: Vec<&Rule> = rules.deny.iter().chain(&rules.ask).collect();
        let is_open = |target: &Target| {
            let hides = |tool: &str| {
                let call = CallInfo { tool, changes: false, access: Access::Read(target.resolved.clone()) };
                hiding.iter().any(|rule| rule.matches(&call, Some(target), None, bases, Effect::Narrow))
            };
            bases.has(&target.resolved) && !READING.iter().any(|tool| hides(tool))
        };
        let hides_none_below = |target: &Target| {
            let may_hide = |rule: &&Rule| READING.contains(&rule.tool()) && rule.may_narrow_below(target, bases);
            !hiding.iter().any(may_hide)
        };
        !rules.ask_reads
            && self.targets.iter().chain(&self.trees).all(is_open)
            && self.trees.iter().all(hides_none_below)
    }

    /// The rows that let it run: `ls, head`.
    pub(super) fn said(&self) -> String {
        self.programs.join(", ")
    }
}

/// Where a command runs.
struct WorkingPlace<'a> {
    /// Its directory, without links.
    base: PathBuf,
    workspace: &'a Workspace,
}

impl WorkingPlace<'_> {
    /// The directory that `cd` changes to, without links.
    fn directory(&self, word: &str) -> Option<PathBuf> {
        // Behind a link the shell goes up by the words, and not by the disk.
        let goes_up_late = Path::new(word)
            .components()
            .skip_while(|part| matches!(part, Component::ParentDir | Component::CurDir))
            .any(|part| part == Component::ParentDir);
        let is_plain = !word.is_empty() && !word.starts_with('-') && !goes_up_late;
        let real = is_plain.then(|| self.base.join(word).canonicalize().ok())??;
        (real.is_dir() && self.workspace.contains(&real)).then_some(real)
    }

    /// Whether there is a file with this name.
    fn exists(&self, word: &str) -> bool {
        self.base.join(word).symlink_metadata().is_ok()
    }

    /// The file that a word of a command means, with no target for standard input and `/dev/null`; absent if it is not known, or is
    /// neither a file nor a directory.
    fn target(&self, word: &str) -> Option<Option<Target>> {
        if word == "/dev/null" || word == "-" && !self.exists(word) {
            return Some(None);
        }
        let is_system = ["/dev", "/proc", "/sys"].iter().any(|dir| Path::new(word).starts_with(dir));
        if word.is_empty() || word.contains('\0') || is_system {
            return None;
        }
        let written = self.base.join(word);
        let target = Target::of(&Access::Read(written.clone()), self.workspace)?;
        // The system goes through links before it goes up.
        let real = written.canonicalize().ok();
        if real.as_ref().is_some_and(|real| *real != target.resolved) {
            return None;
        }
        let climbs = Path::new(word).components().any(|part| part == Component::ParentDir);
        match target.resolved.symlink_metadata() {
            Ok(status) if status.is_file() || status.is_dir() => Some(Some(target)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !climbs => Some(Some(target)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
