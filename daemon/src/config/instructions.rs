//! Instruction files (`AGENTS.md` and similar): which apply to a session, and how a model sees them.
//!
//! The user's own comes first, then one per directory from the workspace's root to the session's directory; the nearest comes
//! last and has precedence. The total is bounded: the files share it, so that a large one does not push out small ones.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use linger_protocol::event::Instruction;
use rustix::process::geteuid;
use sha2::{Digest, Sha256};

use crate::question::permission::{OpenedFile, Unasked};
use crate::sys::disk;
use crate::tool::handle::Entry;
use crate::tool::text;

/// File names by precedence; a directory contributes at most one file.
pub(crate) const NAMES: [&str; 3] = ["AGENTS.md", "AGENT.md", "CLAUDE.md"];

/// The most bytes of all files together: about 8,000 tokens, sent with every request.
const BYTES_MAX: usize = 32 * 1024;

/// How many directories are searched, nearest first; a session is a few levels below its root.
const DIRECTORIES_MAX: usize = 32;

/// The owner of a file; tests substitute it.
type Owner = dyn Fn(&Path, &Metadata) -> u32;

/// The root of a session's workspace: the nearest directory at or above `cwd` with a `.git`, symlinks resolved; else `cwd`.
/// Never HOME or a directory above it, where a `.git` keeps dot files.
/// As with git's `safe.directory`, a `.git` of another user, or in another user's directory, does not count: in a directory like
/// `/tmp` every user can create one.
pub fn workspace_root(cwd: &Path, home: Option<&Path>) -> PathBuf {
    root_by(cwd, home, &|_, metadata| metadata.uid())
}

fn root_by(cwd: &Path, home: Option<&Path>, owner: &Owner) -> PathBuf {
    let cwd = cwd.canonicalize().unwrap_or_else(|_| cwd.to_path_buf());
    let home = home.map(|home| home.canonicalize().unwrap_or_else(|_| home.to_path_buf()));
    let above_home = |dir: &Path| home.as_ref().is_some_and(|home| home.starts_with(dir));
    let is_ours = |path: &Path| path.symlink_metadata().is_ok_and(|metadata| is_trusted(owner(path, &metadata)));
    cwd.ancestors()
        .take_while(|dir| !above_home(dir))
        .find(|dir| is_ours(&dir.join(".git")) && is_ours(dir))
        .unwrap_or(&cwd)
        .to_path_buf()
}

/// Whether the owner is this user or root.
pub(crate) fn is_trusted(owner: u32) -> bool {
    owner == geteuid().as_raw() || owner == 0
}

/// The instruction files of a session in `cwd`, farthest first, each with the text for the model.
/// `config` is the user's configuration directory. A file of the workspace counts if `unasked` lets it be read. Another user's
/// file counts only if `cwd` belongs to that user too, because the session was created there on purpose.
pub fn load(config: Option<&Path>, root: &Path, cwd: &Path, unasked: &Unasked) -> Vec<(Instruction, String)> {
    load_by(config, root, cwd, unasked, &|_, metadata| metadata.uid())
}

fn load_by(
    config: Option<&Path>,
    root: &Path,
    cwd: &Path,
    unasked: &Unasked,
    owner: &Owner,
) -> Vec<(Instruction, String)> {
    let mut below: Vec<&Path> = cwd.ancestors().take_while(|dir| dir.starts_with(root)).take(DIRECTORIES_MAX).collect();
    if below.is_empty() {
        below.push(cwd);
    }
    let here = cwd.metadata().ok().map(|metadata| owner(cwd, &metadata));
    let is_ours = |path: &Path, metadata: &Metadata| {
        let owner = owner(path, metadata);
        is_trusted(owner) || here == Some(owner)
    };
    let mut seen = Vec::new();
    let mut loaded = Vec::new();
    // Nearest first: if two names are one file, the nearer counts.
    for directory in below.into_iter().chain(config) {
        let found = NAMES.iter().find_map(|name| {
            let path = directory.join(name);
            if Some(directory) == config {
                let real = disk::canonicalize(&path).ok()?;
                let (file, metadata) = Entry::at(&real).and_then(|entry| entry.open()).ok()?;
                return Some((path, file, metadata));
            }
            let OpenedFile { real, file, metadata } = match unasked.open(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    tracing::info!(target: "instructions", path = %path.display(), %error, "not read");
                    return None;
                }
                opened => opened.ok()?,
            };
            (is_ours(&path, &metadata) && is_instructions(&real)).then_some((path, file, metadata))
        });
        let Some((path, file, metadata)) = found else { continue };
        let identity = (metadata.dev(), metadata.ino());
        if seen.contains(&identity) {
            continue;
        }
        seen.push(identity);
        loaded.extend(take(path, file, metadata.len()));
    }
    share(&mut loaded);
    loaded.reverse();
    loaded
}

/// Whether a link of a repository may lead to this file: to another instruction file, and into no git directory.
fn is_instructions(real: &Path) -> bool {
    let is_named = |name: &OsStr| NAMES.iter().any(|known| name == *known);
    real.file_name().is_some_and(is_named)
        && !real.components().any(|part| part.as_os_str().eq_ignore_ascii_case(".git"))
}

/// Cuts the files, nearest first, to [`BYTES_MAX`] bytes together. Each has an equal share; what small ones leave of theirs, the
/// nearest of the others get.
fn share(loaded: &mut [(Instruction, String)]) {
    let equal = BYTES_MAX / loaded.len().max(1);
    let mut left = BYTES_MAX - loaded.iter().map(|(_, text)| text.len().min(equal)).sum::<usize>();
    for (instruction, text) in loaded {
        let more = text.len().saturating_sub(equal).min(left);
        left -= more;
        let kept = text::head(text, text.len().min(equal) + more).len();
        instruction.cut += (text.len() - kept) as u64;
        instruction.bytes = kept as u64;
        text.truncate(kept);
    }
}

/// Reads at most [`BYTES_MAX`] bytes; `None` if the file is unreadable or blank.
fn take(path: PathBuf, file: std::fs::File, size: u64) -> Option<(Instruction, String)> {
    let mut bytes = Vec::new();
    file.take(BYTES_MAX as u64).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes).replace('\0', "");
    if text.trim().is_empty() {
        return None;
    }
    let cut = size.saturating_sub(bytes.len() as u64);
    let digest = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let instruction = Instruction { path, bytes: text.len() as u64, cut, digest: format!("sha256:{digest}") };
    Some((instruction, text))
}

/// The part of the system prompt with the files; empty without any.
pub fn render(loaded: &[(Instruction, String)]) -> String {
    if loaded.is_empty() {
        return String::new();
    }
    let mut prompt = "Instructions from files; where they differ, the later one counts.\n".to_owned();
    for (Instruction { path, cut, .. }, text) in loaded {
        let path = text::one_line(&path.to_string_lossy());
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        let left_out = if *cut > 0 {
            format!("[… {cut} bytes left out; read the file if you need them]\n")
        } else {
            String::new()
        };
        prompt.push_str(&format!("\n<instructions path=\"{path}\">\n{text}{end}{left_out}</instructions>\n"));
    }
    prompt
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::question::permission::{Rule, Rules};
    use crate::tool::Workspace;
    use crate::tool::set::ToolSet;

    /// The check of a session in `w/a/b`, with these rules in `deny`.
    fn unasked(root: &Path, deny: &[&str]) -> Unasked {
        let names = ToolSet::new(crate::tool::builtin()).names().clone();
        let deny = deny.iter().map(|rule| Rule::parse(rule, &names).unwrap()).collect();
        let workspace = Workspace::of_files(&root.join("w"), &root.join("w/a/b"));
        Unasked::of(&Rules { deny, ..Rules::default() }, "read", &root.join("w"), &workspace)
    }

    /// A directory with these files in it; its real path.
    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for (path, content) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        (dir, root)
    }

    /// What is loaded for `w/a/b`, by path below `root`, with its text.
    fn loaded(root: &Path) -> Vec<(String, String)> {
        loaded_with(root, &[])
    }

    fn loaded_with(root: &Path, deny: &[&str]) -> Vec<(String, String)> {
        load(Some(&root.join("config")), &root.join("w"), &root.join("w/a/b"), &unasked(root, deny))
            .into_iter()
            .map(|(file, text)| (file.path.strip_prefix(root).unwrap().display().to_string(), text))
            .collect()
    }

    fn check(files: &[(&str, &str)], expect: &[(&str, &str)]) {
        let (_dir, root) = tree(files);
        fs::create_dir_all(root.join("w/a/b")).unwrap();
        let expect: Vec<_> = expect.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        assert_eq!(loaded(&root), expect);
    }

    #[test]
    fn each_directory_gives_one_file_and_the_nearest_comes_last() {
        check(&[], &[]);
        check(
            &[
                ("AGENTS.md", "above the root"),
                ("config/AGENTS.md", "user"),
                ("w/CLAUDE.md", "other"),
                ("w/AGENTS.md", "root"),
                ("w/a/AGENT.md", " \n"),
                ("w/a/b/CLAUDE.md", "ne\0ar"),
                ("w/a/b/c/AGENTS.md", "below"),
            ],
            &[("config/AGENTS.md", "user"), ("w/AGENTS.md", "root"), ("w/a/b/CLAUDE.md", "near")],
        );
    }

    #[test]
    fn the_nearest_file_survives_and_what_is_cut_shows() {
        let line = "123456789\n";
        let (_dir, root) = tree(&[
            ("config/AGENTS.md", "user"),
            ("w/AGENTS.md", &line.repeat(3000)),
            ("w/a/b/AGENTS.md", &line.repeat(1000)),
        ]);
        let loaded = load(Some(&root.join("config")), &root.join("w"), &root.join("w/a/b"), &unasked(&root, &[]));
        let sizes: Vec<_> = loaded.iter().map(|(file, text)| (file.bytes, file.cut, text.len())).collect();
        assert_eq!(sizes, [(4, 0, 4), (22_760, 7_240, 22_760), (10_000, 0, 10_000)]);
        assert!(
            render(&loaded)
                .contains("123456789\n[… 7240 bytes left out; read the file if you need them]\n</instructions>")
        );
        let digest = "sha256:04f8996da763b7a969b1028ee3007569eaf3a635486ddab211d512c85b9df8fb";
        assert_eq!(loaded[0].0.digest, digest);
    }

    #[test]
    fn a_large_file_does_not_push_out_small_ones() {
        let line = "123456789\n";
        let check = |sizes: [usize; 3], expect: [u64; 3]| {
            let (_dir, root) = tree(&[
                ("config/AGENTS.md", &line.repeat(sizes[0])),
                ("w/AGENTS.md", &line.repeat(sizes[1])),
                ("w/a/b/AGENTS.md", &line.repeat(sizes[2])),
            ]);
            let loaded = load(Some(&root.join("config")), &root.join("w"), &root.join("w/a/b"), &unasked(&root, &[]));
            assert_eq!(loaded.iter().map(|(file, _)| file.bytes).collect::<Vec<_>>(), expect);
        };
        check([100, 100, 5000], [1000, 1000, 30_760]);
        check([100, 5000, 5000], [1000, 10_920, 20_840]);
        check([5000, 5000, 5000], [10_920, 10_920, 10_920]);
    }

    #[test]
    fn one_file_with_two_names_counts_once_and_a_link_brings_no_secret() {
        let (_dir, root) =
            tree(&[("secret", "key"), ("mine/AGENTS.md", "dot files"), ("w/CLAUDE.md", "same"), ("w/a/b/x", "")]);
        symlink("CLAUDE.md", root.join("w/AGENTS.md")).unwrap();
        symlink("../AGENTS.md", root.join("w/a/AGENTS.md")).unwrap();
        symlink("../../../secret", root.join("w/a/b/AGENTS.md")).unwrap();
        assert_eq!(loaded(&root), [("w/a/AGENTS.md".to_owned(), "same".to_owned())]);
        symlink("../../../mine/AGENTS.md", root.join("w/a/b/AGENT.md")).unwrap();
        assert_eq!(loaded(&root).last().unwrap().1, "same", "what lies outside is not read, whatever its name");
    }

    #[test]
    fn a_link_to_another_kind_of_file_and_a_file_that_a_rule_hides_are_no_instructions() {
        let secrets = [("w/.env", "key"), ("w/.git/config", "token"), ("w/.git/AGENTS.md", "in git"), ("w/a/b/x", "")];
        for target in ["../../.env", "../../.git/config", "../../.git/AGENTS.md", "x"] {
            let (_dir, root) = tree(&secrets);
            symlink(target, root.join("w/a/b/AGENTS.md")).unwrap();
            assert_eq!(loaded(&root), [], "{target}");
        }
        let (_dir, root) =
            tree(&[("w/AGENTS.md", "root"), ("w/private/CLAUDE.md", "hidden"), ("w/a/b/CLAUDE.md", "near")]);
        symlink("../../private/CLAUDE.md", root.join("w/a/b/AGENTS.md")).unwrap();
        symlink("private", root.join("w/open")).unwrap();
        let texts = |deny: &[&str]| loaded_with(&root, deny).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
        assert_eq!(texts(&[]), ["root", "hidden"]);
        for rule in ["read(**/private/**)", "read(/**/private/CLAUDE.md)", "read(AGENTS.md)"] {
            assert_eq!(texts(&[rule]), ["root", "near"], "{rule}");
        }
        assert_eq!(texts(&["read(**/CLAUDE.md)"]), ["root"]);
        assert_eq!(texts(&["read"]), [""; 0]);
    }

    #[test]
    fn a_fifo_is_no_instruction() {
        let (_dir, root) = tree(&[("w/a/b/CLAUDE.md", "near")]);
        let fifo = root.join("w/a/b/AGENTS.md");
        rustix::fs::mkfifoat(rustix::fs::CWD, fifo, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        assert_eq!(loaded(&root), [("w/a/b/CLAUDE.md".to_owned(), "near".to_owned())]);
    }

    #[test]
    fn the_root_is_a_repository_below_home() {
        let (_dir, root) =
            tree(&[("home/.git/x", ""), ("home/w/.git", "gitdir: x"), ("home/w/a/x", ""), ("home/v/x", "")]);
        let check = |cwd: &str, expect: &str| {
            assert_eq!(workspace_root(&root.join(cwd), Some(&root.join("home"))), root.join(expect));
        };
        check("home/w/a", "home/w");
        check("home/w", "home/w");
        check("home/v", "home/v");
        check("home", "home");
        assert_eq!(workspace_root(&root.join("home/v"), None), root.join("home"));
    }

    /// Everything is the user's own, but for what lies below `theirs`.
    fn owner(theirs: Vec<PathBuf>) -> impl Fn(&Path, &Metadata) -> u32 {
        let me = geteuid().as_raw();
        move |path, _| if theirs.iter().any(|their| path.starts_with(their)) { me + 1 } else { me }
    }

    #[test]
    fn what_another_user_made_is_no_root() {
        let (_dir, root) =
            tree(&[("t/.git/x", ""), ("t/mine/x", ""), ("t/mine/repo/.git/x", ""), ("t/mine/repo/a/x", "")]);
        let check = |cwd: &str, theirs: &[&str], expect: &str| {
            let theirs = theirs.iter().map(|path| root.join(path)).collect();
            assert_eq!(root_by(&root.join(cwd), None, &owner(theirs)), root.join(expect), "{cwd} {expect}");
        };
        check("t/mine", &[], "t");
        check("t/mine", &["t/.git"], "t/mine");
        check("t/mine/repo/a", &["t/.git"], "t/mine/repo");
        check("t/mine/repo/a", &["t/mine/repo/.git"], "t");
        check("t/mine/repo/a", &["t"], "t/mine/repo/a");
    }

    #[test]
    fn what_another_user_wrote_is_no_instruction_unless_that_user_owns_the_session_s_directory() {
        let (_dir, root) = tree(&[("w/AGENTS.md", "theirs"), ("w/CLAUDE.md", "mine"), ("w/a/b/AGENTS.md", "near")]);
        let check = |theirs: &[&str], expect: &[&str]| {
            let theirs = theirs.iter().map(|path| root.join(path)).collect();
            let loaded = load_by(None, &root.join("w"), &root.join("w/a/b"), &unasked(&root, &[]), &owner(theirs));
            assert_eq!(loaded.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>(), expect);
        };
        check(&[], &["theirs", "near"]);
        check(&["w/AGENTS.md"], &["mine", "near"]);
        check(&["w/AGENTS.md", "w/a/b/AGENTS.md"], &["mine"]);
        check(&["w"], &["theirs", "near"]);
    }
}
