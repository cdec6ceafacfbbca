//! Whether git run as a command only reads, in this repository: no program that the repository names runs, and nothing outside of it
//! is read. Blocks on the disk.
//!
//! Unlike an [inspection](super::inspection), such a git reads the repository's configuration. So each of its settings has to be on
//! the list of [harmless ones](HARMLESS), and everything else asks: includes, filters, textconv, external diff, fsmonitor, pagers,
//! gpg, aliases. The user's own configuration is the user's.

use std::path::{Path, PathBuf};

use super::options;
use super::places::{Places, if_there, only_files, small};
use super::private::{SUBMODULE, check};

/// The arguments of a git command that only reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitLook {
    /// Its words that may be paths, revisions among them.
    pub words: Vec<String>,
    /// Whether it shows what is in files.
    pub shows_contents: bool,
}

/// Settings that name no program and no other place, by section; a `*` stands for any name.
const HARMLESS: &str = "core.filemode core.logallrefupdates core.ignorecase core.symlinks \
    core.precomposeunicode core.autocrlf core.eol core.safecrlf core.quotepath core.abbrev core.compression core.bigfilethreshold \
    core.sparsecheckout core.sparsecheckoutcone core.untrackedcache core.preloadindex core.commitgraph \
    core.longpaths core.trustctime core.checkstat extensions.objectformat extensions.worktreeconfig user.name user.email \
    user.signingkey author.name author.email committer.name committer.email remote.*.url remote.*.pushurl remote.*.fetch \
    remote.*.push remote.*.tagopt remote.*.prune remote.*.mirror remote.*.gh-resolved branch.*.remote branch.*.merge \
    branch.*.rebase branch.*.description branch.*.pushremote branch.*.gh-merge-base branch.*.vscode-merge-base \
    branch.autosetuprebase branch.autosetupmerge init.defaultbranch pull.rebase pull.ff push.default push.autosetupremote \
    push.followtags fetch.prune fetch.prunetags merge.ff merge.conflictstyle rebase.autostash rebase.autosquash rerere.enabled \
    commit.gpgsign tag.gpgsign color.ui color.status color.diff color.branch diff.renames diff.algorithm diff.colormoved \
    diff.mnemonicprefix gc.auto gc.autodetach maintenance.auto maintenance.strategy status.short status.branch \
    status.showuntrackedfiles log.decorate log.abbrevcommit index.version feature.manyfiles advice.* \
    lfs.repositoryformatversion lfs.*.access pack.threads http.postbuffer";

/// The parts of these arguments, if git only reads with them; `depth` is how far the directory is below the workspace.
pub fn look(args: &[String], depth: usize) -> Option<GitLook> {
    let args = args.strip_prefix(&["--no-pager".to_owned()]).unwrap_or(args);
    let found = options::inspection(args, depth)?;
    let shows_contents = found.subcommand != options::Subcommand::Status;
    Some(GitLook { words: found.words.into_iter().chain(found.paths).collect(), shows_contents })
}

/// Whether the repository whose worktree is `root`, which has no link in it, names no program that reading commands run, and leads
/// nowhere else; `cwd` is the directory that git starts in, below it.
pub fn is_plain(root: &Path, cwd: &Path) -> bool {
    let Ok(Places { own, common }) = Places::of(root) else { return false };
    // Another repository on the way up would be the one that git takes, also a bare one.
    let between = cwd.ancestors().take_while(|dir| *dir != root);
    let has_own = |dir: &Path| [".git", "HEAD"].iter().any(|name| dir.join(name).symlink_metadata().is_ok());
    let are_below = cwd.starts_with(root) && !between.into_iter().any(has_own);
    // A directory that git does not take for a repository would make it look for one elsewhere.
    let is_taken = root.join("HEAD").symlink_metadata().is_err()
        && has_head(&own)
        && ["refs/.", "objects/."].iter().all(|part| common.join(part).metadata().is_ok());
    are_below
        && is_taken
        && check(&common).is_ok()
        && only_files(vec![common.clone()]).is_ok()
        && has_plain_settings(root, &own, &common)
        && has_no_submodules(&own)
}

/// Whether the git directory has a HEAD as git writes it.
fn has_head(own: &Path) -> bool {
    let Some(head) = small(&own.join("HEAD")).and_then(|head| String::from_utf8(head).ok()) else { return false };
    let head = head.trim_end_matches('\n');
    let is_id = [40, 64].contains(&head.len()) && head.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id || head.strip_prefix("ref: refs/").is_some_and(|rest| !rest.is_empty() && !rest.contains(['\n', ' ']))
}

fn has_plain_settings(root: &Path, own: &Path, common: &Path) -> bool {
    let mut hooks = vec![common.join("hooks")];
    for file in [common.join("config"), own.join("config.worktree")] {
        let Ok(text) = if_there(&file) else { return false };
        let Some(settings) = String::from_utf8(text.unwrap_or_default()).ok().and_then(|text| settings(&text)) else {
            return false;
        };
        for (name, value) in settings {
            if !is_plain_setting(&name, &value) {
                return false;
            }
            if name == "core.hookspath" {
                hooks.push(root.join(value));
            }
        }
    }
    // The one that status and diff run, when they write the index anew.
    let is_absent = |path: PathBuf| path.symlink_metadata().is_err();
    hooks.iter().all(|hooks| ["post-index-change", "fsmonitor-watchman"].iter().all(|name| is_absent(hooks.join(name))))
}

/// Whether the index has no submodule, into which git would look with the configuration that it has there.
fn has_no_submodules(own: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(own) else { return false };
    let is_shared = |name: &str| name.starts_with("sharedindex.");
    if entries.flatten().any(|entry| entry.file_name().to_str().is_none_or(is_shared)) {
        return false;
    }
    match std::fs::symlink_metadata(own.join("index")) {
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        Ok(status) if !status.is_file() || status.len() > INDEX_MAX => false,
        // By chance other bytes look like this mode once in ten thousand indexes: then it asks.
        Ok(_) => std::fs::read(own.join("index"))
            .is_ok_and(|index| !index.windows(SUBMODULE.len()).any(|bytes| bytes == SUBMODULE)),
    }
}

/// The longest index that is looked through, in bytes: some hundred thousand files.
const INDEX_MAX: u64 = 32 << 20;

/// The settings of a configuration as git writes it, names in lower case; absent if a line is anything else.
fn settings(text: &str) -> Option<Vec<(String, String)>> {
    let (mut section, mut found) = (None, Vec::new());
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';'])) {
        if line.ends_with('\\') {
            return None;
        }
        if let Some(name) = line.strip_prefix('[') {
            let name = name.strip_suffix(']').filter(|name| !name.contains([']', '\\']))?;
            section = Some(match name.split_once(" \"") {
                Some((name, of)) => format!("{}.{}", plain(name)?, of.strip_suffix('"')?),
                None => plain(name)?,
            });
            continue;
        }
        let (key, value) = line.split_once('=').map_or((line, "true"), |(key, value)| (key.trim(), value.trim()));
        found.push((format!("{}.{}", section.as_ref()?, plain(key)?), value.to_owned()));
    }
    Some(found)
}

/// The name of a section or key in lower case, if it is a plain one.
fn plain(name: &str) -> Option<String> {
    let is_plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    is_plain.then(|| name.to_ascii_lowercase())
}

/// Whether a setting names no program, no other place, and nothing that git reads in another way than this.
fn is_plain_setting(name: &str, value: &str) -> bool {
    match name {
        "core.bare" => value == "false",
        "core.repositoryformatversion" => ["0", "1"].contains(&value),
        // A format could ask for gigabytes of blanks.
        "log.date" => value.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'),
        // No `~`, `%(prefix)`, quotes or comments.
        "core.hookspath" => value.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c)),
        name => is_harmless(name),
    }
}

fn is_harmless(name: &str) -> bool {
    HARMLESS.split_whitespace().any(|known| match known.split_once('*') {
        None => known == name,
        Some((start, end)) => name.len() > known.len() && name.starts_with(start) && name.ends_with(end),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_name_a_program_or_a_place_are_not_harmless() {
        let is_plain = |text: &str| {
            settings(text).is_some_and(|found| found.iter().all(|(name, value)| is_plain_setting(name, value)))
        };
        for text in [
            "",
            "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n",
            "[remote \"origin\"]\n\turl = git@x:y.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n",
            "[log]\n\tdate = iso-strict\n[core]\n\thooksPath = .husky/_\n",
            "# comment\n[branch \"a/b.c\"]\n\tremote = origin\n\tmerge = refs/heads/a\n",
            "[user]\n\tname = \"A B\"\n",
        ] {
            assert!(is_plain(text), "{text}");
        }
        for text in [
            "[core]\n\tfsmonitor = ./x\n",
            "[core]\n\tFSMonitor=./x\n",
            "[CORE]\n\tpager = x\n",
            "[core] fsmonitor = x\n",
            "[core]\n\tfilemode = true \\\n\tfsmonitor = x\n",
            "[diff]\n\texternal = x\n",
            "[diff \"a\"]\n\ttextconv = x\n",
            "[diff \"a\"]\n\tcommand = x\n",
            "[filter \"a\"]\n\tclean = x\n",
            "[filter \"a\"]\n\tprocess = x\n",
            "[include]\n\tpath = x\n",
            "[includeIf \"gitdir:x\"]\n\tpath = x\n",
            "[alias]\n\tstatus = !x\n",
            "[pager]\n\tstatus = x\n",
            "[gpg]\n\tprogram = x\n",
            "[log]\n\tshowSignature = true\n",
            "[log]\n\tdate = format:%900000000d\n",
            "[core]\n\thooksPath = ~/evil\n",
            "[core]\n\thooksPath = evil # c\n",
            "[core]\n\thooksPath = ev\"il\"\n",
            "[core]\n\thooksPath = %(prefix)/evil\n",
            "[core]\n\tbare = true\n",
            "[core]\n\tbare\n",
            "[core]\n\trepositoryformatversion = 5\n",
            "[format]\n\tpretty = %G?\n",
            "[core]\n\tworktree = /\n",
            "[core]\n\tattributesFile = /etc/passwd\n",
            "[core]\n\texcludesFile = /etc/passwd\n",
            "[remote \"origin\"]\n\tpromisor = true\n",
            "[remote \"origin\"]\n\tuploadpack = x\n",
            "[extensions]\n\tpartialClone = origin\n",
            "[submodule \"x\"]\n\tactive = true\n",
            "[core.x]\n\ty = z\n",
            "[diff \"renames\"]\n\ttextconv = x\n",
            "no section = 1\n",
            "[core\n",
        ] {
            assert!(!is_plain(text), "{text}");
        }
    }
}
