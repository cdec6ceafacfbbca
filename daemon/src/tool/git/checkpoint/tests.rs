//! Real git: what a checkpoint has, what it does not touch, and what does not run.

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::SystemTime;

use linger_protocol::checkpoint::Checkpoint;
use linger_protocol::event::{ChangeKind, FileType};

use super::*;
use crate::store::blob::Blobs;
use crate::tool::git::scratch::Repository;

/// A repository with a committed file `a`, and checkpoints of it.
struct Scene {
    /// Its directory holds `data` too.
    repository: Repository,
    checkpoints: Checkpoints,
}

impl Deref for Scene {
    type Target = Repository;

    fn deref(&self) -> &Repository {
        &self.repository
    }
}

/// The record of a daemon that ran on each of the last 30 days.
fn ran_for_a_month() -> Arc<Days> {
    let days = Days::default();
    let now = crate::sys::clock::now();
    (0..=30).rev().for_each(|ago| days.note(now - ago * crate::sys::clock::DAY_MS));
    Arc::new(days)
}

impl Scene {
    async fn new() -> Self {
        let canary = "#!/bin/sh\n: > \"$(dirname \"$0\")/ran\"\ncat\n";
        let repository = Repository::new(canary, "echo one > a; git add .; git commit -q -m first").await;
        let home = repository.dir.path().canonicalize().unwrap();
        fs::create_dir(home.join("data")).unwrap();
        let checkpoints = Checkpoints::below(home.join("data/checkpoints"), Children::default(), ran_for_a_month());
        Self { repository, checkpoints }
    }

    /// Takes a checkpoint, however long that takes on a busy machine.
    async fn take(&self) -> String {
        loop {
            match self.checkpoints.take(&self.workspace).await {
                Err(Skip::TooMuch(why)) if why.contains("longer than 2 s") => {}
                taken => return taken.unwrap(),
            }
        }
    }

    /// The changes between two checkpoints, as undo needs them.
    async fn restorable(&self, since: &str, after: &str, blobs: &Blobs) -> Result<Restorable, String> {
        let (checkpoint, root) = (after.to_owned(), self.workspace.root.clone());
        let taken = Checkpoint { checkpoint, root, ..Checkpoint::default() };
        self.checkpoints.restorable(&self.workspace, CommandChanges { taken: &taken, since }, blobs).await
    }

    /// The names that differ between two checkpoints, each with `+`, `-` or `~`.
    async fn between(&self, before: &str, after: &str) -> Vec<String> {
        let changes = self.checkpoints.between(&self.workspace, &self.workspace.root, before, after).await.unwrap();
        let name = |change: &TreeChange| change.path.strip_prefix(&self.workspace.root).unwrap().display().to_string();
        let sign = |change: &TreeChange| match (&change.before, &change.after) {
            (None, _) => '+',
            (_, None) => '-',
            _ => '~',
        };
        changes.iter().map(|change| format!("{}{}", sign(change), name(change))).collect()
    }

    /// The files of the repository, each with its time and content.
    fn repository(&self) -> Vec<(PathBuf, SystemTime, Vec<u8>)> {
        let (mut files, mut dirs) = (Vec::new(), vec![self.path(".git")]);
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_dir() {
                    dirs.push(entry.path())
                } else {
                    let time = entry.metadata().unwrap().modified().unwrap();
                    files.push((entry.path(), time, fs::read(entry.path()).unwrap()));
                }
            }
        }
        files.sort();
        files
    }
}

#[tokio::test]
async fn what_differs_between_two_checkpoints_is_what_was_changed() {
    let it = Scene::new().await;
    it.sh("mkdir d; echo x > d/b; echo 'ignored/' > .gitignore; mkdir ignored; echo y > ignored/y").await;
    let first = it.take().await;
    assert_eq!(it.take().await, first, "nothing has changed");
    it.sh("echo two >> a; rm d/b; echo c > 'c\nc'; ln -s a link; echo z > ignored/z; chmod +x .gitignore").await;
    let second = it.take().await;
    assert_eq!(it.between(&first, &second).await, ["~.gitignore", "~a", "+c\nc", "-d/b", "+link"]);
    it.sh("rm -r 'c\nc' link; git checkout -q a; echo x > d/b; chmod -x .gitignore").await;
    assert_eq!(it.take().await, first, "everything is as it was");
    // The daemon is started again.
    let again = Checkpoints::below(it.checkpoints.dir.clone(), Children::default(), ran_for_a_month());
    let it = Scene { checkpoints: again, ..it };
    assert_eq!(it.take().await, first);
}

#[tokio::test]
async fn contents_are_kept_as_they_are_on_disk_whatever_attributes_say() {
    let it = Scene::new().await;
    it.sh(r"printf '* text=auto eol=crlf ident\n*.x filter=x\n*.u working-tree-encoding=UTF-16\n' > .gitattributes
        printf 'a\r\nb\r\n$Id$\n' > crlf; printf '\377\376a\000' > e.u; echo x > f.x; git add .; git commit -q -m more")
        .await;
    let before = it.take().await;
    it.sh("for f in crlf e.u f.x; do : > $f; done").await;
    let after = it.take().await;
    let blobs = Blobs::of(&it.dir.path().join("data/linger.db"));
    let made = it.restorable(&before, &after, &blobs).await.unwrap();
    let contents: Vec<Vec<u8>> =
        made.changes.iter().map(|change| blobs.read(change.before.as_ref().unwrap(), 0, 99).unwrap()).collect();
    assert_eq!(contents, [b"a\r\nb\r\n$Id$\n".to_vec(), b"\xff\xfea\0".to_vec(), b"x\n".to_vec()]);
}

#[tokio::test]
async fn what_the_repository_has_is_not_stored_again_and_the_repository_is_not_touched() {
    let it = Scene::new().await;
    it.sh("for n in $(seq 400); do seq $n 2000 > f$n; done; git add .; git commit -q -m many; git gc -q; echo new > n")
        .await;
    let before = it.repository();
    let first = it.take().await;
    assert_eq!(it.repository(), before, "no file of the repository is written, no time of one changed");
    let kept = |dir: &Path| {
        let shelves = fs::read_dir(dir.join("objects")).unwrap().map(Result::unwrap);
        shelves.map(|shelf| fs::read_dir(shelf.path()).unwrap().count()).sum::<usize>()
    };
    let dir = it.checkpoints.git(&it.workspace, &it.workspace.root).dir;
    // The tree, and the new file.
    assert_eq!(kept(&dir), 2);
    it.sh("rm f7").await;
    let second = it.take().await;
    assert_eq!(it.between(&first, &second).await, ["-f7"]);
    let blobs = Blobs::of(&it.dir.path().join("data/linger.db"));
    let made = it.restorable(&first, &second, &blobs).await.unwrap();
    assert_eq!(made.changes[0].kind, ChangeKind::Delete);
    let content = blobs.read(made.changes[0].before.as_ref().unwrap(), 0, u64::MAX).unwrap();
    assert!(content.starts_with(b"7\n8\n"));
    assert_eq!(it.repository(), before);
}

#[tokio::test]
async fn a_lock_in_the_repository_is_not_waited_for_and_one_that_a_crash_left_here_is_removed() {
    let it = Scene::new().await;
    fs::write(it.path(".git/index.lock"), "").unwrap();
    let first = it.take().await;
    let dir = it.checkpoints.git(&it.workspace, &it.workspace.root).dir;
    fs::write(dir.join("index.lock"), "half").unwrap();
    fs::write(it.path("a"), "two\n").unwrap();
    let second = it.take().await;
    assert_eq!(it.between(&first, &second).await, ["~a"]);
    // A crash of the machine: an index that is not whole, an object that is empty.
    fs::write(dir.join("index"), "DIRC").unwrap();
    let (shelf, rest) = second.split_at(2);
    let object = dir.join("objects").join(shelf).join(rest);
    fs::remove_file(&object).unwrap();
    fs::write(&object, "").unwrap();
    fs::write(dir.join("boot"), "before").unwrap();
    let it = Scene {
        checkpoints: Checkpoints::below(it.checkpoints.dir.clone(), Children::default(), ran_for_a_month()),
        ..it
    };
    assert_eq!(it.take().await, second);
    assert_eq!(it.between(&first, &second).await, ["~a"]);
}

/// Each line names a program in a way of its own.
const HOSTILE: &[&str] = &[
    "git config core.fsmonitor $C",
    "git config core.hooksPath $(dirname $C)/hooks; mkdir -p ../hooks; for h in post-index-change pre-commit reference-transaction; do cp $C ../hooks/$h; done",
    "for h in post-index-change pre-commit reference-transaction post-checkout; do cp $C .git/hooks/$h; done",
    "git config filter.x.clean $C; git config filter.x.smudge $C; git config filter.x.required true; echo '* filter=x' > .gitattributes",
    "git config filter.x.process $C; echo '* filter=x' > .git/info/attributes",
    "git config diff.x.textconv $C; git config diff.x.command $C; echo '* diff=x' >> .gitattributes",
    "git config diff.external $C",
    "git config core.pager $C; git config core.editor $C; git config core.sshCommand $C; git config core.askPass $C",
    "git config alias.ls-files \"!$C\"; git config alias.write-tree \"!$C\"",
    "git config gpg.program $C; git config commit.gpgSign true",
    "printf '[core]\n\tfsmonitor = %s\n' $C > ../included; git config include.path ../../included",
    "printf '[core]\n\tfsmonitor = %s\n' $C > ../included; git config includeIf.gitdir:/**.path ../../included",
    "git config extensions.partialClone origin; git config remote.origin.promisor true; git config remote.origin.url ext::$C",
    "git config --global core.fsmonitor $C; git config --global core.hooksPath ../hooks",
    "mkdir bin; cp $C bin/git",
    "git config core.alternateRefsCommand $C; git config core.gitProxy $C; git config credential.helper \"!$C\"",
    "git config merge.x.driver $C; git config trailer.x.cmd $C; git config uploadpack.packObjectsHook $C",
];

#[tokio::test]
async fn nothing_that_the_repository_names_runs() {
    for line in HOSTILE {
        let mut it = Scene::new().await;
        it.sh(line).await;
        let _by_the_setting_itself = it.ran();
        let mut env = (*it.workspace.env).clone();
        let path = format!("{}:{}", it.path("bin").display(), env.get("PATH").unwrap());
        env.insert("PATH".to_owned(), path);
        for name in ["GIT_EXTERNAL_DIFF", "GIT_SSH_COMMAND", "GIT_EDITOR", "GIT_PAGER", "GIT_FSMONITOR_TEST"] {
            env.insert(name.to_owned(), it.dir.path().join("canary").to_string_lossy().into_owned());
        }
        it.repository.workspace.env = Arc::new(env);
        fs::write(it.path("b"), "b\n").unwrap();
        let first = it.take().await;
        fs::write(it.path("a"), "changed\n").unwrap();
        let second = it.take().await;
        let blobs = Blobs::of(&it.dir.path().join("data/linger.db"));
        let made = it.restorable(&first, &second, &blobs).await;
        assert_eq!(made.unwrap().changes.len(), 1, "{line}");
        assert!(!it.ran(), "{line}");
    }
}

#[tokio::test]
async fn what_is_no_file_or_lies_outside_is_not_read() {
    let it = Scene::new().await;
    let secret = it.dir.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    symlink(&secret, it.path("link")).unwrap();
    symlink(it.dir.path(), it.path("up")).unwrap();
    it.sh("mkfifo pipe; git init -q nested; echo n > nested/n; echo x > shut; chmod 0 shut").await;
    let first = it.take().await;
    let git = it.checkpoints.git(&it.workspace, &it.workspace.root);
    let names = git.run(&["ls-tree", "-r", "--name-only", &first], Vec::new()).await.unwrap();
    let names = String::from_utf8(names).unwrap();
    // Root reads what is shut.
    let names: Vec<&str> = names.lines().filter(|name| *name != "shut").collect();
    assert_eq!(names, ["a", "link", "up"]);
    it.sh("rm link; echo file > link").await;
    let second = it.take().await;
    let blobs = Blobs::of(&it.dir.path().join("data/linger.db"));
    let made = it.restorable(&first, &second, &blobs).await.unwrap();
    let change = &made.changes[0];
    assert_eq!((change.before_type, change.after_type), (Some(FileType::Link), Some(FileType::File)));
    let kept = blobs.read(change.before.as_ref().unwrap(), 0, 9999).unwrap();
    assert_eq!(kept, secret.as_os_str().as_encoded_bytes(), "where it leads, and not what is there");
}

#[test]
fn a_workspace_with_too_many_files_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let listed = |count: usize| (0..count).flat_map(|n| format!("{n}\0").into_bytes()).collect::<Vec<u8>>();
    assert_eq!(snapshot::measure(dir.path(), &listed(MAX_FILES)).unwrap().count(), MAX_FILES);
    let Err(Skip::TooMuch(why)) = snapshot::measure(dir.path(), &listed(MAX_FILES + 1)) else { panic!("it is taken") };
    assert_eq!(why, "it has more than 50000 files that git does not ignore");
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_two_seconds_for_its_checkpoint_and_no_longer() {
    let it = Scene::new().await;
    let root = it.checkpoints.root(&it.workspace.root);
    let held = root.lock().await;
    let began = tokio::time::Instant::now();
    let Err(Skip::TooMuch(why)) = it.checkpoints.take(&it.workspace).await else { panic!("it was taken") };
    assert_eq!((why.as_str(), began.elapsed().as_secs()), ("it takes longer than 2 s", 2));
    drop(held);
}

#[tokio::test]
async fn without_a_repository_or_git_there_is_none_and_a_large_workspace_says_why() {
    let it = Scene::new().await;
    let mut bare = it.workspace.clone();
    bare.root = it.dir.path().canonicalize().unwrap().join("data");
    assert_eq!(it.checkpoints.take(&bare).await, Err(Skip::NotHere));
    let mut without = it.workspace.clone();
    without.env = Arc::new([("PATH".to_owned(), "/nowhere".to_owned())].into());
    assert_eq!(it.checkpoints.take(&without).await, Err(Skip::NotHere));
    let large = fs::File::create(it.path("large")).unwrap();
    large.set_len(MAX_BYTES + 1).unwrap();
    let Err(Skip::TooMuch(why)) = it.checkpoints.take(&it.workspace).await else { panic!("it was taken") };
    assert_eq!(why, "more than 1024 MB in it are new or changed");
}

#[tokio::test]
async fn old_checkpoints_go_and_the_others_stay_whole() {
    let it = Scene::new().await;
    let mut taken = Vec::new();
    for n in 0..4 {
        fs::write(it.path("a"), format!("{n}\n")).unwrap();
        taken.push(it.take().await);
    }
    let git = it.checkpoints.git(&it.workspace, &it.workspace.root);
    let old = crate::sys::clock::system() - Duration::from_secs(15 * 24 * 3600);
    for tree in &taken[..2] {
        fs::File::open(git.dir.join(directory::REFS).join(tree)).unwrap().set_modified(old).unwrap();
    }
    let root = it.checkpoints.root(&it.workspace.root);
    let before = upkeep::before(&ran_for_a_month());
    upkeep::prune(&git, &mut *root.lock().await, before).await;
    assert_eq!(it.between(&taken[2], &taken[3]).await, ["~a"]);
    let gone = it.checkpoints.between(&it.workspace, &it.workspace.root, &taken[0], &taken[1]).await.unwrap_err();
    assert!(gone.contains("14 days"), "{gone}");
    assert_eq!(it.take().await, taken[3]);
    // Half of them, when they take too much.
    assert_eq!(upkeep::forget(&git.dir, before, 0), 1);
    // A workspace that was not used.
    let unused = it.checkpoints.dir.join("unused");
    fs::create_dir(&unused).unwrap();
    fs::File::create(unused.join("used")).unwrap().set_modified(old).unwrap();
    // Not while no time was seen to pass.
    upkeep::sweep(&it.checkpoints.dir, upkeep::before(&Days::default()));
    assert!(unused.exists());
    upkeep::sweep(&it.checkpoints.dir, before);
    assert!(!unused.exists() && git.dir.exists());
}

/// Prints what checkpoints of 20,000 files take: `cargo test -p lingerd --lib -- --ignored --nocapture figures_of_checkpoints`.
#[tokio::test]
#[ignore = "figures, for a machine that does nothing else"]
async fn figures_of_checkpoints_of_20000_files() {
    let it = Scene::new().await;
    for n in 0..20_000 {
        let dir = it.path(&format!("d{}/e{}", n % 40, n % 400));
        fs::create_dir_all(&dir).unwrap();
        let text = format!("// file {n}\n{}", "let x = 1; // some text of a line\n".repeat(100 + n % 200));
        fs::write(dir.join(format!("f{n}.rs")), text).unwrap();
    }
    it.sh("git add -A; git commit -q -m all; git gc -q").await;
    let timed = async |what: &str| {
        let began = Instant::now();
        let taken = it.checkpoints.take(&it.workspace).await;
        println!("{what}: {} ms, {taken:?}", began.elapsed().as_millis());
        taken
    };
    if timed("first").await.is_err() {
        let began = Instant::now();
        it.take().await;
        println!("ready after another {} ms", began.elapsed().as_millis());
    }
    for _ in 0..3 {
        timed("unchanged").await.unwrap();
    }
    let before = it.take().await;
    it.sh("for n in 1 2 3 4 5 6 7 8 9; do echo x >> d$n/e$n/f$n.rs; done").await;
    let after = timed("9 files changed").await.unwrap();
    let began = Instant::now();
    assert_eq!(it.between(&before, &after).await.len(), 9);
    println!("compared: {} ms", began.elapsed().as_millis());
    let size = it.sh("du -sk ../data/checkpoints | cut -f1").await;
    println!("on disk: {} KB", size.trim());
}

#[tokio::test]
async fn the_permissions_of_what_a_call_changes_are_known() {
    let it = Scene::new().await;
    it.sh(
        "mkdir -p open secret/deep; echo k > key; echo s > secret/deep/s; echo x > run; echo o > open/o; echo l > late
        chmod 600 key; chmod 700 secret; chmod 750 run; chmod 664 open/o",
    )
    .await;
    let first = it.take().await;
    // Git sees nothing of this.
    it.sh("chmod 400 late").await;
    let second = it.take().await;
    assert_eq!(first, second);
    let modes = it.checkpoints.modes(&it.workspace.root, &second).await.unwrap();
    it.sh("rm -r key late secret run open a").await;
    let third = it.take().await;
    let root = &it.workspace.root;
    let changes = it.checkpoints.between(&it.workspace, root, &second, &third).await.unwrap();
    let of = modes.of_changes(root, &changes);
    let seen: Vec<String> = of.iter().map(|(name, mode)| format!("{} {mode:o}", name.display())).collect();
    assert_eq!(seen, ["key 600", "late 400", "open/o 664", "run 750", "secret 700"]);
    // An index of another form tells nothing, so nothing is taken for public.
    let unknown = Modes::of_index(root, b"DIRC\0\0\0\x02\0\0\0\x01");
    assert!(unknown.of_changes(root, &changes).values().all(|mode| mode & 0o77 == 0));
}
