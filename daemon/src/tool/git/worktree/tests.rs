//! Real git: worktrees are made, kept, removed and merged, and nothing that a repository names runs.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use super::*;
use crate::process::{Input, Stderr};
use crate::tool::tests::test_workspace;

/// A repository with a commit, and a program that leaves a file when it runs.
struct House {
    /// Holds `w`, the workspace; `trees`; `canary`, the program; and `ran`, if it ran.
    dir: tempfile::TempDir,
    workspace: Workspace,
    worktrees: Worktrees,
}

impl House {
    async fn new() -> Self {
        let (dir, mut workspace) = test_workspace();
        let home = dir.path().canonicalize().unwrap();
        let root = home.join("w");
        fs::create_dir(&root).unwrap();
        let canary = home.join("canary");
        fs::write(&canary, "#!/bin/sh\n: > \"$(dirname \"$0\")/ran\"\ncat\n").unwrap();
        fs::set_permissions(&canary, fs::Permissions::from_mode(0o755)).unwrap();
        let mut env = (*workspace.env).clone();
        for (name, value) in [("HOME", &home), ("C", &canary)] {
            env.insert(name.to_owned(), value.to_str().unwrap().to_owned());
        }
        (workspace.cwd, workspace.root, workspace.env) = (root.clone(), root, Arc::new(env));
        let worktrees = Worktrees::below(home.join("trees"), Children::default());
        let it = Self { dir, workspace, worktrees };
        it.sh("git config --global user.name Ann; git config --global user.email ann@example.org; git init -q -b main
            mkdir sub; printf 'one\\ntwo\\nthree\\n' > a.txt; echo b > sub/b.txt; echo build > .gitignore
            git add .; git commit -q -m first")
            .await;
        it
    }

    async fn run(&self, place: &Path, script: &str) -> String {
        let mut spawn = self.workspace.spawn(Default::default(), None);
        spawn.cwd = place.to_path_buf();
        let process = spawn.shell(script, Input::Nothing, Stderr::Merged).await.unwrap();
        let done = process.finish(Duration::from_secs(60), 1 << 20).await.unwrap();
        String::from_utf8_lossy(&done.output).trim().to_owned()
    }

    /// Runs a script in the workspace.
    async fn sh(&self, script: &str) -> String {
        self.run(&self.workspace.root, script).await
    }

    async fn make(&self, child: &str) -> Worktree {
        self.worktrees.make(&self.workspace, &child.into()).await.unwrap()
    }

    /// The workspace of a child.
    fn of(&self, worktree: &Worktree) -> Workspace {
        Workspace { cwd: worktree.path.clone(), root: worktree.path.clone(), ..self.workspace.clone() }
    }

    async fn tidy(&self, worktree: &Worktree) -> bool {
        self.worktrees.tidy(worktree, &self.of(worktree)).await.unwrap()
    }

    async fn merge(&self, worktree: &Worktree) -> Result<MergeDone, MergeError> {
        let commit = self.worktrees.commit(worktree, &self.of(worktree), "work\n\nof an agent").await.unwrap().commit;
        self.worktrees.merge(&commit, &worktree.branch, &self.workspace, "Merge it").await
    }

    /// Whether the canary ran since the last time.
    fn ran(&self) -> bool {
        fs::remove_file(self.dir.path().join("ran")).is_ok()
    }
}

#[tokio::test]
async fn a_worktree_has_the_last_commit_and_a_branch_and_is_removed_without_changes() {
    let house = House::new().await;
    house.sh("echo new >> a.txt; echo x > untracked").await;
    let before = house.sh("git status --porcelain").await;
    let worktree = house.make("c1").await;
    assert_eq!(house.run(&worktree.path, "git status --porcelain --branch; ls").await, "## linger/c1\na.txt\nsub");
    assert_eq!(house.sh("git status --porcelain").await, before, "the user's own files and index are as they were");
    assert_eq!(house.make("c1").await, worktree, "it is made once");
    assert!(house.tidy(&worktree).await);
    assert!(!worktree.path.exists());
    assert_eq!(house.sh("git branch --format='%(refname:short)'; git worktree list | wc -l").await, "main\n1");
    assert_eq!(house.make("c1").await, worktree, "and can be made again");
}

#[tokio::test]
async fn what_is_nowhere_else_is_kept() {
    let house = House::new().await;
    for (child, script, is_removed) in [
        ("edited", "echo x >> a.txt", false),
        ("untracked", "echo x > new", false),
        ("committed", "echo x > new; git add new; git commit -q -m x", false),
        ("detached", "git checkout -q --detach; echo x > new; git add new; git commit -q -m detached", false),
        ("ignored", "mkdir build; echo x > build/x", true),
        ("elsewhere", "git commit -q --allow-empty -m x; git branch of-the-user", true),
    ] {
        let worktree = house.make(child).await;
        house.run(&worktree.path, script).await;
        assert_eq!(house.tidy(&worktree).await, is_removed, "{child}");
        assert_eq!(worktree.path.exists(), !is_removed, "{child}");
    }
}

#[tokio::test]
async fn one_without_a_session_goes_once_it_is_old_unless_it_has_work() {
    let house = House::new().await;
    let (empty, full, new) = (house.make("empty").await, house.make("full").await, house.make("new").await);
    fs::write(full.path.join("x"), "x").unwrap();
    let age = |worktree: &Worktree| {
        let before = clock::system() - STRAY_AGE;
        fs::File::open(worktree.path.join(".git")).unwrap().set_modified(before).unwrap();
    };
    [&empty, &full].into_iter().for_each(age);
    // The main branch has gone on since.
    house.sh("git commit -q --allow-empty -m on").await;
    let mut old = house.worktrees.made_before().await;
    old.sort();
    assert_eq!(old, ["empty".into(), "full".into()]);
    assert_eq!(house.worktrees.made_before().await, [], "not all the time");
    for (worktree, child, is_gone) in [(&empty, "empty", true), (&full, "full", false), (&new, "new", false)] {
        let gone = house.worktrees.tidy_stray(&child.into(), &house.workspace).await.unwrap();
        assert_eq!((gone, worktree.path.exists()), (is_gone, !is_gone), "{child}");
    }
    assert_eq!(house.sh("git branch --list 'linger/*' | wc -l").await, "2");
    // A call that is joined takes up what was begun, however long ago.
    let joined = house.make("again").await;
    age(&joined);
    house.make("again").await;
    assert!(!house.worktrees.tidy_stray(&"again".into(), &house.workspace).await.unwrap());
}

#[tokio::test]
async fn one_that_a_crash_left_half_made_is_made_whole() {
    let house = House::new().await;
    let place = house.dir.path().canonicalize().unwrap().join("trees");
    linger_protocol::place::private_directory(&place).unwrap();
    let add = |more: &str| format!("git worktree add --no-checkout {more} ../trees/c 2>&1");
    for (what, script) in [
        ("a directory", "mkdir ../trees/c; echo x > ../trees/c/a.txt".to_owned()),
        ("a branch", "git branch linger/c".to_owned()),
        ("no checkout", add("-b linger/c")),
        ("a part of it", add("-b linger/c") + "; echo x > ../trees/c/a.txt"),
        ("no directory", add("-b linger/c") + "; rm -r ../trees/c"),
    ] {
        house.sh(&script).await;
        let worktree = house.make("c").await;
        assert_eq!(house.run(&worktree.path, "git status --porcelain --branch").await, "## linger/c", "{what}");
        assert!(house.tidy(&worktree).await, "{what}");
    }
}

#[tokio::test]
async fn without_a_repository_or_a_commit_the_reason_says_what_to_do() {
    let house = House::new().await;
    fs::rename(house.workspace.root.join(".git"), house.dir.path().join("git")).unwrap();
    let why = house.worktrees.make(&house.workspace, &"c".into()).await.unwrap_err();
    assert!(why.ends_with("w is no git repository"), "{why}");
    house.sh("git init -q").await;
    let why = house.worktrees.make(&house.workspace, &"c".into()).await.unwrap_err();
    assert!(why.contains("no commit yet") && why.contains("commit something first"), "{why}");
}

/// What would run the canary.
const TRAPS: [(&str, &str); 6] = [
    (
        "hooks",
        "for h in post-checkout reference-transaction post-index-change pre-commit post-commit commit-msg post-merge; do hook .git/hooks $h; done",
    ),
    (
        "core.hooksPath",
        "mkdir ../hooks; for h in post-checkout reference-transaction post-index-change; do hook ../hooks $h; done; git config core.hooksPath $PWD/../hooks",
    ),
    (
        "filter",
        "echo '* filter=x' > .gitattributes; git add .; git commit -q -m x; git config filter.x.smudge $C; git config filter.x.clean $C; git config filter.x.required true",
    ),
    (
        "filter.process",
        "echo '* filter=x' > .gitattributes; git add .; git commit -q -m x; git config filter.x.process \"$C < /dev/null\"",
    ),
    ("fsmonitor", "git config core.fsmonitor $C; git config core.untrackedCache true; git update-index --fsmonitor"),
    (
        "merge driver",
        "echo '* merge=x' > .gitattributes; git add .; git commit -q -m x; git config merge.x.driver $C; git config merge.default x",
    ),
];

#[tokio::test]
async fn nothing_that_the_repository_names_runs() {
    for (what, script) in TRAPS {
        let house = House::new().await;
        let hook = "hook() { printf '#!/bin/sh\\nexec %s < /dev/null\\n' $C > $1/$2; chmod +x $1/$2; }";
        house.sh(&format!("{hook}\n{script}")).await;
        house.ran();
        let idle = house.make("idle").await;
        assert!(house.tidy(&idle).await, "{what}");
        let worktree = house.make("c").await;
        fs::write(worktree.path.join("a.txt"), "ONE\ntwo\nthree\n").unwrap();
        assert!(!house.tidy(&worktree).await, "{what}");
        // Both sides have a commit, so that files are merged.
        fs::write(house.workspace.root.join("c.txt"), "c\n").unwrap();
        let spawn = "git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c filter.x.process= -c filter.x.clean= \
                     -c filter.x.required=false";
        house.sh(&format!("sed -i s/three/THREE/ a.txt; {spawn} add .; {spawn} commit -q -m second")).await;
        house.ran();
        let merged = house.merge(&worktree).await;
        assert!(merged.is_ok(), "{what}: {merged:?}");
        assert!(!house.ran(), "{what} ran");
        assert_eq!(fs::read_to_string(house.workspace.root.join("a.txt")).unwrap(), "ONE\ntwo\nTHREE\n", "{what}");
        // The trap works: plain git steps into it.
        house.sh("git worktree add -q ../plain; git -C ../plain status; sed -i s/ONE/First/ a.txt; git commit -q -a -m x").await;
        house
            .sh("git checkout -q -b y HEAD~1; sed -i s/THREE/Third/ a.txt; git commit -q -a -m y; git merge -q -m z main")
            .await;
        assert!(house.ran(), "{what} is no trap");
    }
}

#[tokio::test]
async fn a_merge_commits_what_was_left_and_goes_forward_or_has_two_parents() {
    let house = House::new().await;
    let worktree = house.make("c").await;
    house.run(&worktree.path, "echo more >> sub/b.txt; echo new > new.txt; mkdir build; echo x > build/x").await;
    let done = house.merge(&worktree).await.unwrap();
    let files = vec![PathBuf::from("new.txt"), PathBuf::from("sub/b.txt")];
    assert_eq!((done.files.clone(), done.count), (files, 2));
    assert_eq!(
        house.sh("git log -1 --format='%H %an %s'; git status --porcelain").await,
        format!("{} Ann work", done.commit)
    );
    let again = house.merge(&worktree).await;
    assert_eq!(again, Err(MergeError::Nothing(Some(Box::new(done)))), "what was done can be told again");
    assert!(house.tidy(&worktree).await, "what was merged is not only there");

    let worktree = house.make("d").await;
    house.run(&worktree.path, "echo x > x.txt").await;
    // Changes that are not committed stay, also staged ones.
    house
        .sh("echo other > other.txt; git add .; git commit -q -m other; echo mine >> a.txt; echo y > y; git add y")
        .await;
    let done = house.merge(&worktree).await.unwrap();
    assert_eq!(house.sh("git log -1 --format='%s: %p' | wc -w; git status --porcelain").await, "4\n M a.txt\nA  y");
    assert_eq!(
        house.sh("git reset -q --keep ORIG_HEAD; git rev-parse HEAD; ls x.txt 2>&1 | wc -l").await,
        format!("{}\n1", done.before)
    );
}

#[tokio::test]
async fn a_conflict_changes_nothing_and_names_the_files() {
    let house = House::new().await;
    let worktree = house.make("c").await;
    house.run(&worktree.path, "echo theirs > a.txt; echo theirs > sub/b.txt; echo n > n").await;
    house.sh("echo ours > a.txt; echo ours > sub/b.txt; git commit -q -a -m ours").await;
    let before = house.sh("git rev-parse HEAD; git status --porcelain; cat a.txt").await;
    assert_eq!(house.merge(&worktree).await, Err(MergeError::Conflict("a.txt, sub/b.txt".to_owned())));
    assert_eq!(house.sh("git rev-parse HEAD; git status --porcelain; cat a.txt").await, before);
}

#[tokio::test]
async fn changes_that_are_not_committed_are_never_written_over() {
    let house = House::new().await;
    for (what, script, expect) in [
        ("edited", "echo mine >> a.txt", "a.txt"),
        ("staged", "echo mine >> a.txt; git add a.txt", "a.txt"),
        ("staged and taken back", "echo mine >> a.txt; git add a.txt; git show HEAD:a.txt > a.txt", "a.txt"),
        ("untracked", "echo mine > new.txt", "new.txt"),
        ("ignored", "echo new.txt >> .gitignore; echo mine > new.txt", "new.txt"),
    ] {
        let worktree = house.make(&what.replace(' ', "-")).await;
        house.run(&worktree.path, "echo theirs >> a.txt; echo theirs > new.txt").await;
        house.sh(script).await;
        let before = house.sh("git rev-parse HEAD; git diff HEAD; cat new.txt").await;
        assert_eq!(house.merge(&worktree).await, Err(MergeError::Dirty(expect.to_owned())), "{what}");
        assert_eq!(house.sh("git rev-parse HEAD; git diff HEAD; cat new.txt").await, before, "{what}");
        house.sh("git reset -q --hard; rm -f new.txt").await;
    }
}

#[tokio::test]
async fn a_merge_that_a_kill_cut_off_goes_on_with_the_next_and_takes_nothing_of_the_users_along() {
    let house = House::new().await;
    for (n, what, cut) in [
        (0, "before the branch", "git update-ref HEAD ORIG_HEAD"),
        (1, "before the index", "git update-ref HEAD ORIG_HEAD; git reset -q"),
        (2, "in some files", "git reset -q --hard ORIG_HEAD; echo theirs > new.txt; rm sub/b.txt; ln -s a.txt link"),
    ] {
        let worktree = house.make(&format!("c{n}")).await;
        house.run(&worktree.path, "echo more >> a.txt; echo theirs > new.txt; rm sub/b.txt; ln -s a.txt link").await;
        house.sh("echo other >> .gitignore; git commit -q -a -m other").await;
        let whole = house.merge(&worktree).await.unwrap();
        house.sh(cut).await;
        // A change of the user's in one of these files is in the way as ever.
        house.sh("cp a.txt ../kept; echo mine >> a.txt").await;
        assert_eq!(house.merge(&worktree).await, Err(MergeError::Dirty("a.txt".to_owned())), "{what}");
        house.sh("cp ../kept a.txt; echo mine > mine").await;
        let done = house.merge(&worktree).await.unwrap();
        assert_eq!((done.before, done.files), (whole.before, whole.files), "{what}");
        assert_eq!(house.sh("git status --porcelain; git log -1 --format=%s").await, "?? mine\nMerge it", "{what}");
        house.sh("git reset -q --hard ORIG_HEAD; rm mine").await;
    }
}

#[tokio::test]
async fn links_and_executable_files_are_merged_as_they_are() {
    let house = House::new().await;
    let worktree = house.make("c").await;
    house.run(&worktree.path, "ln -s a.txt link; echo x > run; chmod +x run; rm sub/b.txt").await;
    house.merge(&worktree).await.unwrap();
    let seen = house.sh("readlink link; test -x run && echo runs; ls sub 2>&1 | wc -l; git status --porcelain").await;
    assert_eq!(seen, "a.txt\nruns\n1");
}

#[tokio::test]
async fn one_in_the_middle_of_something_is_left_to_a_person() {
    let house = House::new().await;
    let worktree = house.make("c").await;
    house.run(&worktree.path, "echo x > x; git add x; git commit -q -m x").await;
    house.sh("echo y > y; git add y; git commit -q -m y; git merge -q --no-commit linger/c 2>&1").await;
    let Err(MergeError::Failed(why)) = house.merge(&worktree).await else { panic!("it was merged") };
    assert!(why.ends_with("is in the middle of a merge: end it first"), "{why}");
}

#[tokio::test]
async fn a_merge_whose_branch_cannot_move_leaves_the_users_own_files() {
    for (what, own, is_put_back) in [("an untracked file", "echo theirs > new.txt", false), ("nothing", "true", true)] {
        let house = House::new().await;
        let worktree = house.make("c").await;
        house.run(&worktree.path, "echo more >> a.txt; echo theirs > new.txt").await;
        house.sh(&format!("{own}; touch .git/refs/heads/main.lock")).await;
        let Err(MergeError::Failed(why)) = house.merge(&worktree).await else { panic!("{what}: it was merged") };
        assert_eq!(why.ends_with("; its files stay, staged: new.txt were there before it"), !is_put_back);
        assert_eq!(house.workspace.root.join("new.txt").exists(), !is_put_back, "{what}: {why}");
        let seen = house.sh("git status --porcelain; ls .git/index.lock .git/linger-index 2> /dev/null").await;
        assert_eq!(seen, if is_put_back { "" } else { "M  a.txt\nA  new.txt" }, "{what}");
        house.sh("rm .git/refs/heads/main.lock").await;
        house.merge(&worktree).await.unwrap();
        assert_eq!(house.sh("cat new.txt; git status --porcelain").await, "theirs", "{what}");
    }
}

#[tokio::test]
async fn a_kill_while_files_are_merged_leaves_a_lock_that_the_next_merge_removes_and_no_other_one_goes() {
    let house = House::new().await;
    let worktree = house.make("c").await;
    house.run(&worktree.path, "echo more >> a.txt; echo theirs > new.txt").await;
    // Git waits at a gate with the files written in part, and is killed there.
    let bin = house.dir.path().canonicalize().unwrap().join("bin");
    fs::create_dir(&bin).unwrap();
    house.sh("mkfifo ../reached ../gate").await;
    let script = format!(
        "#!/bin/sh\nPATH=${{PATH#*:}}\ncase \"$*\" in *sparseCheckout*read-tree*) cd {0}/w; echo theirs > new.txt; \
         : > \"$GIT_INDEX_FILE.lock\"; echo > {0}/reached; read x < {0}/gate ;; esac\nexec git \"$@\"\n",
        bin.parent().unwrap().display()
    );
    fs::write(bin.join("git"), script).unwrap();
    fs::set_permissions(bin.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut env = (*house.workspace.env).clone();
    env.insert("PATH".to_owned(), format!("{}:{}", bin.display(), env["PATH"]));
    let slow = Workspace { env: Arc::new(env), ..house.workspace.clone() };
    let commit = house.worktrees.commit(&worktree, &house.of(&worktree), "work").await.unwrap().commit;
    let reached = house.dir.path().join("reached");
    let lock = house.workspace.root.join(".git/index.lock");
    let seen = lock.clone();
    let look = move || fs::read(reached).and_then(|_| fs::read(seen));
    let held = tokio::select! {
        done = house.worktrees.merge(&commit, &worktree.branch, &slow, "Merge it") => panic!("no gate: {done:?}"),
        held = tokio::task::spawn_blocking(look) => held.unwrap().unwrap(),
    };
    assert!(!lock.exists(), "one that is given up goes by itself");
    // What a kill of the daemon leaves.
    fs::write(&lock, &held).unwrap();
    house.sh("cp .git/index .git/linger-index; : > .git/linger-index.lock").await;
    house.merge(&worktree).await.unwrap();
    assert_eq!(house.sh("git status --porcelain; git log -1 --format=%s; ls .git/*index*").await, "work\n.git/index");

    let other = house.make("d").await;
    house.run(&other.path, "echo d > d.txt").await;
    fs::write(&lock, "").unwrap();
    let Err(MergeError::Failed(why)) = house.merge(&other).await else { panic!("it was merged") };
    assert!(why.starts_with("another git process is at work") && lock.exists(), "{why}");
}
