//! Real git: what a repository, its configuration or the environment names does not run, and what rules hide is not shown.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use linger_protocol::message::ContentBlock;
use serde_json::json;
use tokio::sync::mpsc;

use super::*;
use crate::tool::access::Access;
use crate::tool::git::private::Mirror;
use crate::tool::git::scratch::Repository;
use crate::tool::tests::test_context;
use crate::tool::types::Hidden;

/// It runs as gpg, too.
const CANARY: &str = "#!/bin/sh\n: > \"$(dirname \"$0\")/ran\"\n\
    echo '[GNUPG:] SIG_CREATED ' >&2\necho '-----BEGIN PGP SIGNATURE-----'\necho '-----END PGP SIGNATURE-----'\n";

/// A repository with a file `a.txt` that has two commits and a change.
async fn repository() -> Repository {
    let script = "echo one > a.txt; git add .; git commit -q -m first
        echo two >> a.txt; git commit -q -a -m second; echo three >> a.txt";
    Repository::new(CANARY, script).await
}

impl Repository {
    /// Runs an inspection where these paths are hidden: its text, and whether it failed.
    async fn look_past(&self, line: &str, hidden: &[&str]) -> (String, bool) {
        let call = GitTool.prepare(&json!({ "args": words(line) }), &self.workspace).unwrap();
        assert!(!call.effects().changes, "{line} asks");
        let (sender, _receiver) = mpsc::channel(4096);
        let hidden: Vec<PathBuf> = hidden.iter().map(|name| self.path(name)).collect();
        let hidden: Hidden = Arc::new(move |path| hidden.iter().any(|hidden| path == hidden));
        let root = self.workspace.root.clone();
        let targets = [(root.clone(), root)].into_iter().collect();
        let context = Context { hidden, targets, ..test_context(&self.workspace, sender) };
        let output = call.run(context).await;
        (output.content.iter().filter_map(ContentBlock::as_text).collect::<Vec<_>>().join("|"), output.is_error)
    }

    async fn look(&self, line: &str) -> String {
        let (text, is_error) = self.look_past(line, &[]).await;
        assert!(!is_error, "{line}: {text}");
        text
    }
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

#[tokio::test]
async fn inspections_show_what_git_shows() {
    let it = repository().await;
    it.sh("mkdir d; echo x > d/new").await;
    for line in [
        "status",
        "status --porcelain=v2 --branch",
        "diff",
        "diff HEAD~1 -- a.txt",
        "diff HEAD~1..main",
        "log --oneline",
        "log -p -n 1",
        "log --all --graph --format=%h%x09%s",
        "show",
        "show HEAD~1:a.txt",
        "show --stat HEAD~1",
        "show HEAD:",
        "blame HEAD a.txt",
        "blame -L 2,2 HEAD -- a.txt",
        "log -S two --oneline",
    ] {
        assert_eq!(it.look(line).await, it.sh(&format!("git {line}")).await, "{line}");
    }
    let (text, is_error) = it.look_past("show nothing", &[]).await;
    assert!(is_error && text.contains("unknown revision"), "{text}");
    let mut below = it;
    below.workspace.cwd = below.path("d");
    assert_eq!(below.look("status -s").await, below.sh("git status -s").await, "paths are relative to the directory");
}

#[tokio::test]
async fn an_inspection_changes_nothing_in_the_repository() {
    let it = repository().await;
    // The index is to be refreshed.
    it.sh("git commit -q -a -m third; cp a.txt b; mv b a.txt").await;
    let files = || {
        let mut files: Vec<(PathBuf, SystemTime)> = Vec::new();
        let mut dirs = vec![it.path(".git")];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_dir() {
                    dirs.push(entry.path())
                } else {
                    files.push((entry.path(), entry.metadata().unwrap().modified().unwrap()))
                }
            }
        }
        files.sort();
        files
    };
    let before = files();
    for line in ["status", "diff", "log -p", "show", "blame a.txt"] {
        it.look(line).await;
    }
    assert_eq!(files(), before);
}

#[tokio::test]
async fn the_copy_of_the_index_is_as_old_as_the_index() {
    let it = repository().await;
    let index = fs::File::options().write(true).open(it.path(".git/index")).unwrap();
    // Git trusts what it knows of files that are older than its index, so a newer copy would hide a change made right after it.
    let old = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    index.set_modified(old).unwrap();
    let mirror = Mirror::of(&it.workspace.root).unwrap();
    assert_eq!(mirror.path.join("index").metadata().unwrap().modified().unwrap(), old);
}

/// What would run the canary: a name, the setup, and the inspections; the last one runs it in plain git.
const TRAPS: [(&str, &str, &[&str]); 15] = [
    ("filter.clean", "git commit -q -a -m x; cp a.txt b; mv b a.txt; echo '* filter=x' > .gitattributes; git config filter.x.clean $C", &["diff", "status"]),
    ("filter.process", "git commit -q -a -m x; cp a.txt b; mv b a.txt; echo '* filter=x' > .gitattributes; git config filter.x.process \"$C < /dev/null\"", &["diff", "status"]),
    (
        "filter of .git/info/attributes",
        "git commit -q -a -m x; cp a.txt b; mv b a.txt; echo '* filter=x' > .git/info/attributes; git config filter.x.clean $C",
        &["status"],
    ),
    (
        "textconv",
        "echo '* diff=x' > .gitattributes; git config diff.x.textconv $C",
        &["show", "log -p", "blame a.txt", "show HEAD:a.txt", "diff"],
    ),
    ("diff.x.command", "echo '* diff=x' > .gitattributes; git config diff.x.command $C", &["show", "log -p", "diff"]),
    ("diff.external", "git config diff.external $C", &["diff"]),
    (
        "gpg.program",
        "git config gpg.program $C; git config log.showSignature true; git commit -q -a -S -m signed; rm -f ../ran",
        &["show", "log"],
    ),
    ("core.fsmonitor", "git config core.fsmonitor $C", &["diff", "status"]),
    (
        "hooks",
        "cp $C .git/hooks/post-index-change; sed -i 's:.(dirname .*)/:../:' .git/hooks/post-index-change; git commit -q -a -m x
        rm -f ../ran; cp a.txt b; mv b a.txt",
        &["diff", "status"],
    ),
    ("core.hooksPath", "mkdir h; cp $C h/post-index-change; sed -i 's:.(dirname .*)/:../:' h/post-index-change
        git config core.hooksPath h; git commit -q -a -m x; rm -f ../ran; cp a.txt b; mv b a.txt", &["status"]),
    ("include.path", "git config include.path ../more; git config -f more core.fsmonitor $C", &["status"]),
    ("includeIf", "git config includeIf.gitdir:**.path ../more; git config -f more core.fsmonitor $C", &["status"]),
    (
        "config.worktree",
        "git config extensions.worktreeConfig true; git config --worktree core.fsmonitor $C",
        &["status"],
    ),
    (
        "a submodule",
        "git init -q sub; cd sub; git commit -q --allow-empty -m x; cd ..; git add sub 2> /dev/null; git commit -q -m sub
        git -C sub config core.fsmonitor $C; rm -f ../ran; echo x > sub/x",
        &["diff", "log -p", "status"],
    ),
    (
        "a partial clone",
        "git config remote.o.url \"ext::$C\"; git config protocol.ext.allow always; git config remote.o.promisor true
        git config core.repositoryformatversion 1; git config extensions.partialClone o
        b=$(git rev-parse HEAD~1:a.txt); rm -f .git/objects/$(echo $b | cut -c1-2)/$(echo $b | cut -c3-)",
        &["log -p", "diff HEAD~1", "show HEAD~1:a.txt"],
    ),
];

#[tokio::test]
async fn no_program_that_a_repository_names_runs() {
    let mut wrong = Vec::new();
    for (name, setup, lines) in TRAPS {
        let it = repository().await;
        let said = it.sh(&format!("{setup}\nrm -f ../ran")).await;
        for line in lines {
            let _text = it.look_past(line, &[]).await;
            wrong.extend(it.ran().then(|| format!("{name}: {line} ran it")));
        }
        let plain = it.sh(&format!("git {}", lines.last().unwrap())).await;
        wrong.extend((!it.ran()).then(|| format!("{name}: the canary is none: {said} {plain}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn no_program_that_the_environment_or_the_users_configuration_names_runs() {
    let it = repository().await;
    it.sh("git config -f ../global core.fsmonitor $C; echo '* diff=x' > .gitattributes").await;
    let canary = it.workspace.env["C"].clone();
    let global = it.dir.path().join("global").to_string_lossy().into_owned();
    for env in [
        vec![("GIT_EXTERNAL_DIFF", canary.as_str())],
        vec![("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "core.fsmonitor"), ("GIT_CONFIG_VALUE_0", &canary)],
        vec![("GIT_CONFIG_PARAMETERS", &format!("'diff.x.command'='{canary}'"))],
        vec![("GIT_CONFIG_GLOBAL", &global)],
        vec![("GIT_CONFIG_SYSTEM", &global)],
    ] {
        let mut all = (*it.workspace.env).clone();
        all.extend(env.iter().copied().map(owned));
        let it = Repository {
            workspace: Workspace { env: Arc::new(all), ..it.workspace.clone() },
            dir: tempfile::tempdir().unwrap(),
        };
        let ran = Path::new(&canary).with_file_name("ran");
        for line in ["status", "diff"] {
            let _text = it.look_past(line, &[]).await;
            assert!(!ran.exists(), "{env:?}: {line}");
        }
        it.sh("git status; git diff").await;
        assert!(fs::remove_file(&ran).is_ok(), "{env:?}: the canary is none");
    }
    it.sh("git config --global core.fsmonitor $C").await;
    it.look("status").await;
    assert!(!it.ran());
}

#[tokio::test]
async fn a_git_of_the_workspace_does_not_run() {
    let mut it = repository().await;
    it.sh("mkdir bin; cp $C bin/git; cp $C git").await;
    let mut env = (*it.workspace.env).clone();
    let path = format!(".::bin:{}:{}", it.path("bin").display(), env["PATH"]);
    env.insert("PATH".to_owned(), path);
    it.workspace.env = Arc::new(env);
    assert!(it.look("status").await.contains("On branch main"));
    assert!(!it.ran() && !it.path("ran").exists() && !it.path("bin/ran").exists());
}

#[tokio::test]
async fn what_leads_out_of_the_workspace_is_refused() {
    let check = async |setup: &str, expect: &str| {
        let it = repository().await;
        it.sh(&format!(
            "git init -q ../other; cd ../other; echo secret > s; git add s; git commit -q -m s; cd ../w\n{setup}"
        ))
        .await;
        let (text, is_error) = it.look_past("log -p --all", &[]).await;
        assert!(is_error && text.contains(expect) && !text.contains("secret"), "{setup}: {text}");
        assert!(text.ends_with("; run it with bash"), "{text}");
    };
    check("mv .git ../real; ln -s ../real .git", "neither a directory nor a small file").await;
    check("rm -r .git; echo \"gitdir: ../other/.git\" > .git", "does not name this directory").await;
    check("rm -r .git; mkdir x; echo ../other/.git > x/commondir; echo ../.git > x/gitdir; cp ../other/.git/HEAD x; echo 'gitdir: x' > .git", "does not name this directory").await;
    check("echo ../../other/.git > .git/commondir", "leads elsewhere").await;
    check("echo $PWD/../other/.git/objects > .git/objects/info/alternates", "borrows objects").await;
    check("rm -r .git/objects; ln -s ../../other/.git/objects .git/objects", "is no directory").await;
    check("rm -r .git/refs; ln -s ../../other/.git/refs .git/refs", "is no directory").await;
    check("ln -s ../../../other/.git/objects/pack .git/objects/zz", "is a link").await;
    check("rm -rf .git/objects/pack; ln -s ../../../other/.git/objects/pack .git/objects/pack", "is no directory")
        .await;
    check("rm .git/HEAD; mkfifo .git/HEAD", "no readable .git/HEAD").await;
    check("rm -r .git", "no git repository").await;
}

#[tokio::test]
async fn files_that_git_reads_and_links_in_them_show_nothing_of_another_directory() {
    let it = repository().await;
    it.sh("git init -q ../other; echo secret > ../other/s; git config core.worktree ../../other").await;
    let status = it.look("status --porcelain").await;
    assert_eq!(status, " M a.txt\n", "the worktree is the workspace, whatever the configuration says");
    it.sh("git config --unset core.worktree; mkdir -p .git/rebase-merge; git checkout -q -f main").await;
    for name in [".git/rebase-merge/done", ".git/packed-refs", ".git/info/exclude", ".git/MERGE_HEAD", ".git/shallow"] {
        let _absent = fs::remove_file(it.path(name));
        symlink(it.dir.path().join("other/s"), it.path(name)).unwrap();
    }
    symlink(it.dir.path().join("other"), it.path("link")).unwrap();
    for line in ["status", "log --all", "diff -- link/s a.txt", "show --stat"] {
        let (text, _) = it.look_past(line, &[]).await;
        assert!(!text.contains("secret"), "{line}: {text}");
    }
    for line in ["diff -- /etc/hostname /etc/passwd", "diff /dev/null ../other/s", "diff --no-index a.txt a.txt"] {
        let call = GitTool.prepare(&json!({ "args": words(line) }), &it.workspace).unwrap();
        assert!(matches!(call.effects().access, Access::Command(_)), "{line} does not ask");
    }
}

#[tokio::test]
async fn a_worktree_and_a_submodule_are_looked_at_like_any_repository() {
    let mut it = repository().await;
    it.sh("git worktree add -q ../tree -b side; cd ../tree; echo x > n; git add n; git commit -q -m side").await;
    let main = it.workspace.root.clone();
    it.workspace.root = main.with_file_name("tree");
    it.workspace.cwd = it.workspace.root.clone();
    for line in ["status", "log --oneline", "log -g --oneline", "diff main"] {
        assert_eq!(it.look(line).await, it.sh(&format!("git {line}")).await, "{line}");
    }
    it.workspace.cwd = main.clone();
    it.sh("git init -q ../lib; cd ../lib; echo x > n; git add n; git commit -q -m lib; cd ../w
        git -c protocol.file.allow=always submodule --quiet add ../lib sub")
        .await;
    (it.workspace.root, it.workspace.cwd) = (main.join("sub"), main.join("sub"));
    assert_eq!(it.look("log --oneline").await, it.sh("git log --oneline").await);
}

#[tokio::test]
async fn what_a_rule_keeps_from_being_read_is_in_no_output() {
    let it = repository().await;
    it.sh("mkdir d; echo needle > .env; echo needle > d/key; echo fine > b; git add .; git commit -q -m keys
        git tag -a -m t blob $(git rev-parse HEAD:.env); echo needle2 >> .env; echo changed >> b
        git checkout -q -b side; git add .env; git commit -q -m 'on side'; git checkout -q main; echo needle3 >> .env")
        .await;
    let hidden = [".env", "d/key"];
    let blob = it.sh("git rev-parse HEAD:.env").await.trim().to_owned();
    for line in [
        "diff",
        "diff side",
        "diff main..side -- .",
        "diff --word-diff side",
        "log -p --all",
        "log -p --all -m",
        "log -S needle --all",
        "show",
        "show side",
        "show HEAD~1 HEAD side",
        "show HEAD:.env",
        "show :.env",
        "show :0:.env",
        "show HEAD:./.env",
        "show HEAD:d/key",
        "show HEAD:d/../d/key",
        "show blob",
        "show blob^{}",
        "diff HEAD:.env side:.env",
        "diff HEAD:.env..side:.env",
        "diff HEAD:d main~1:d",
        "diff -- .env",
        "diff -- :(top).env",
        "diff .env",
        "blame .env",
        "blame side -- d/key",
        "status",
        &format!("show {blob}"),
        &format!("show {}", &blob[..8]),
        &format!("diff {blob} HEAD:b"),
        &format!("diff {blob}..{blob}"),
        &format!("diff {blob} b"),
        &format!("show HEAD {blob}"),
    ] {
        let (text, _) = it.look_past(line, &hidden).await;
        assert!(!text.contains("needle"), "{line}: {text}");
    }
    let (text, _) = it.look_past("diff", &hidden).await;
    assert!(
        text.contains("+changed") && text.ends_with("[left out, for a rule keeps them from being read: .env]"),
        "{text}"
    );
    let (text, _) = it.look_past("show HEAD:.env", &hidden).await;
    assert_eq!(text, "HEAD:.env: a rule keeps it from being read");
    assert!(it.look("log -p --all").await.contains("+needle"), "without a rule it is shown");
}

/// A secret beside the workspace, links to it that came with the repository, and one that a rule hides.
const SECRETS: &str = "mkdir ../outside d; echo TOPSECRET > ../outside/secret; echo TOPSECRET > ../.hidden
    mkdir h; echo tracked > h/secret; echo TOPSECRET > d/key; echo TOPSECRET > .env; git add -f h d; git commit -q -m links
    rm -r h; ln -s ../outside h; ln -s / rootl; ln -s h twice; ln -s d inside; ln -s d/key filelink";

#[tokio::test]
async fn no_path_leads_git_through_a_link_to_a_file_that_was_not_checked() {
    let it = repository().await;
    it.sh(SECRETS).await;
    let at = it.dir.path().canonicalize().unwrap();
    let out = at.join("outside/secret");
    for path in [
        "h/secret".to_owned(),
        "h//secret".to_owned(),
        "./h/./secret".to_owned(),
        "d/../h/secret".to_owned(),
        "twice/secret".to_owned(),
        format!("rootl{}", out.display()),
        format!("rootl/proc/self/root{}", out.display()),
        "inside/key".to_owned(),
        "h/secret/".to_owned(),
    ] {
        for line in [
            format!("diff HEAD:a.txt -- {path}"),
            format!("diff HEAD:a.txt {path}"),
            format!("diff --text HEAD:a.txt -- {path}"),
            format!("diff -R HEAD:a.txt -- {path}"),
            format!("diff HEAD~1:a.txt -- {path}"),
            format!("blame {path}"),
            format!("blame -p -- {path}"),
            format!("diff -- {path} a.txt"),
            format!("log -p -- {path}"),
        ] {
            let (text, _) = it.look_past(&line, &["d/key"]).await;
            assert!(!text.contains("TOPSECRET"), "{line}: {text}");
        }
    }
    let (text, is_error) = it.look_past("diff HEAD:a.txt -- h/secret", &[]).await;
    let link = it.path("h").display().to_string();
    assert_eq!((text, is_error), (format!("h/secret: its directory {link} is a link; name the file without it"), true));
    // A file that is compared with a working file of its own is shown.
    assert!(it.look("diff HEAD:h/secret -- a.txt").await.contains("+three"));
    assert!(it.look("blame a.txt").await.contains("three"));
}

#[tokio::test]
async fn a_path_is_taken_literally_whatever_magic_it_has() {
    let it = repository().await;
    it.sh(SECRETS).await;
    let mut below = Repository { workspace: it.workspace.clone(), dir: tempfile::tempdir().unwrap() };
    below.workspace.cwd = it.path("d");
    for magic in [
        ":(top).env",
        ":(literal).env",
        ":(top,literal).env",
        ":(icase).ENV",
        ":(glob).en?",
        ":(glob)**/.env",
        ":/.env",
        ":.env",
        ":(attr:!x).env",
        ":(prefix:0).env",
        ":!a.txt",
        ":^a.txt",
        ":(exclude)a.txt",
        ".en?",
        ".e*",
        "[.]env",
        "*",
    ] {
        for line in [
            format!("diff HEAD:a.txt -- {magic}"),
            format!("diff HEAD:a.txt {magic}"),
            format!("blame {magic}"),
            format!("blame -- {magic}"),
            format!("diff -- {magic}"),
            format!("log -p -- {magic}"),
        ] {
            for it in [&it, &below] {
                let (text, _) = it.look_past(&line, &[".env", "d/key"]).await;
                assert!(!text.contains("TOPSECRET") && !text.contains("BUG"), "{line}: {text}");
            }
        }
    }
    let (text, is_error) = it.look_past("diff -- *.txt", &[]).await;
    let note = "[*.txt is taken literally, and there is no such file: name files and directories]";
    assert!(!is_error && text.ends_with(note), "{text}");
    it.sh("echo x > ':odd'; echo y > '[a]'; git add -f .; git commit -q -m odd; echo z >> ':odd'; echo z >> '[a]'")
        .await;
    for line in [
        "diff -- :odd",
        "diff HEAD -- [a]",
        "diff HEAD~1 -- d/../a.txt",
        "log --oneline -- ./a.txt",
        "status -s -- :odd",
    ] {
        assert_eq!(it.look(line).await, it.sh(&format!("git --literal-pathspecs {line}")).await, "{line}");
    }
    assert_eq!(below.look("diff HEAD~1 -- ../a.txt").await, it.sh("cd d; git diff HEAD~1 -- ../a.txt").await);
    assert_eq!(below.look("blame ../a.txt").await, it.sh("cd d; git blame ../a.txt").await);
    assert_eq!(below.look("log --oneline HEAD -- .").await, it.sh("cd d; git log --oneline HEAD -- .").await);
}

#[tokio::test]
async fn what_cannot_be_read_of_a_repository_is_refused_and_not_taken_for_absent() {
    let check = async |setup: &str, expect: &str| {
        let it = repository().await;
        it.sh("git init -q ../other; cd ../other; echo TOPSECRET > s; git add s; git commit -q -m TOPSECRET; cd ../w
            git -C ../other rev-parse HEAD > ../commit; mkdir -p .git/objects/info; echo $PWD/../other/.git/objects > ../lent")
            .await;
        it.sh(setup).await;
        let commit = fs::read_to_string(it.dir.path().join("commit")).unwrap();
        for line in ["log -p --all".to_owned(), format!("show {}", commit.trim()), "status".to_owned()] {
            let (text, is_error) = it.look_past(&line, &[]).await;
            assert!(is_error && text.contains(expect) && !text.contains("TOPSECRET"), "{setup}: {line}: {text}");
        }
    };
    check("ln -s ../../../../lent .git/objects/info/alternates", "is a link").await;
    check("(cat ../lent; yes '' | head -c 1100000) > .git/objects/info/alternates", "has more than").await;
    check("(yes '' | head -c 2000000; cat ../lent) > .git/objects/info/alternates", "has more than").await;
    check("mkfifo .git/objects/info/alternates", "is not a regular file").await;
    check("mkdir .git/objects/info/alternates; touch .git/objects/info/alternates/x", "cannot be read").await;
    check("rm -r .git/objects/info; ln -s ../../../lent .git/objects/info", "is no directory").await;
    check("ln -s $PWD/../other/.git .git/commondir", "leads elsewhere").await;
    check("ln -s nowhere .git/commondir", "leads elsewhere").await;
    check("rm .git/config; ln -s ../../other/.git/config .git/config", "config cannot be read").await;
    check("ln -s ../../../other/.git/refs/heads .git/refs/other", "is a link").await;
    check("ln -s ../../other/.git/packed-refs .git/packed-refs", "packed-refs cannot be read").await;
    check("ln -s ../../other/.git/shallow .git/shallow", "shallow cannot be read").await;
}

#[tokio::test]
async fn git_does_not_wait_for_a_fifo() {
    for fifo in [
        "objects/info/alternates",
        "objects/info/commit-graph",
        "objects/info/commit-graphs/commit-graph-chain",
        "objects/pack/multi-pack-index",
        "objects/pack/pack-1.idx",
        "objects/aa/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
        "refs/heads/side",
        "refs/tags/v1",
        "logs/refs/heads/side",
        "logs/HEAD",
        "packed-refs",
        "shallow",
        "config",
        "config.worktree",
        "index",
        "commondir",
    ] {
        let it = repository().await;
        it.sh(&format!("cd .git; mkdir -p $(dirname {fifo}); rm -f {fifo}; mkfifo {fifo}")).await;
        let began = std::time::Instant::now();
        let (text, is_error) = it.look_past("log --all", &[]).await;
        assert!(is_error && text.ends_with("; run it with bash"), "{fifo}: {text}");
        assert!(began.elapsed() < std::time::Duration::from_secs(20), "{fifo}");
    }
}

#[tokio::test]
async fn a_submodule_that_leads_elsewhere_is_refused() {
    let setup = "git init -q ../other; cd ../other; git commit -q --allow-empty -m x; cd ../w; git init -q sub; cd sub
        git commit -q --allow-empty -m x; cd ..; git add sub 2> /dev/null; git commit -q -m sub; cd sub
        git commit -q --allow-empty -m y; cd ..";
    let it = repository().await;
    it.sh(setup).await;
    assert_eq!(it.look("diff -- sub").await, it.sh("git diff -- sub").await);
    let other = it.sh("git -C ../other rev-parse --short HEAD").await.trim().to_owned();
    for lead in [
        "rm -rf sub/.git; echo \"gitdir: $PWD/../other/.git\" > sub/.git",
        "rm -rf sub/.git; ln -s ../../other/.git sub/.git",
        "rm -rf sub/.git/refs; ln -s ../../../other/.git/refs sub/.git/refs",
        "rm sub/.git/HEAD; mkfifo sub/.git/HEAD",
    ] {
        let it = repository().await;
        it.sh(&format!("{setup}\n{lead}")).await;
        let began = std::time::Instant::now();
        for line in ["diff", "status", "diff HEAD~1"] {
            let (text, is_error) = it.look_past(line, &[]).await;
            assert!(!text.contains(&other), "{lead}: {line}: {text}");
            assert!(is_error && text.contains("of its submodule "), "{lead}: {line}: {text}");
        }
        assert!(began.elapsed() < std::time::Duration::from_secs(20), "{lead}");
    }
}

#[tokio::test]
async fn a_submodule_is_no_way_into_another_repository() {
    let mut it = repository().await;
    it.sh("for n in a b; do git init -q ../$n; (cd ../$n; git commit -q --allow-empty -m secret-of-$n)
        git -c protocol.file.allow=always submodule --quiet add ../$n $n; done; git init -q ../c
        (cd ../c; git commit -q --allow-empty -m secret-of-c)")
        .await;
    let main = it.workspace.root.clone();
    (it.workspace.root, it.workspace.cwd) = (main.join("a"), main.join("a"));
    assert!(it.look("log").await.contains("secret-of-a"));
    for lead in [
        "echo 'gitdir: ../.git/modules/b' > .git".to_owned(),
        "echo 'gitdir: ../.git/modules/a/../b' > .git".to_owned(),
        "echo 'gitdir: ../.git' > .git".to_owned(),
        "mv ../.git/modules ../gone; ln -s ../../c/.git ../.git/modules; echo 'gitdir: ../.git/modules' > .git"
            .to_owned(),
    ] {
        it.sh(&lead).await;
        let (text, is_error) = it.look_past("log --all", &[]).await;
        assert!(is_error && text.contains("does not name this directory"), "{lead}: {text}");
    }
}

#[tokio::test]
async fn every_other_subcommand_is_a_command_of_words_and_no_shell() {
    let it = repository().await;
    let args = json!({ "args": ["commit", "-a", "-m", "it's $(touch x); `y`"] });
    let call = GitTool.prepare(&args, &it.workspace).unwrap();
    let shown = r"git commit -a -m 'it'\''s $(touch x); `y`'";
    assert_eq!((call.action(), call.effects()), (shown.to_owned(), Effects::command(shown)));
    let (sender, _receiver) = mpsc::channel(4096);
    let output = call.run(test_context(&it.workspace, sender)).await;
    assert!(!output.is_error, "{output:?}");
    assert_eq!(it.look("log -n 1 --format=%s").await, "it's $(touch x); `y`\n");
    for (args, expect) in [
        (json!([]), "`args` is empty; name a subcommand, such as `status`"),
        (json!(["log\0"]), "`args` has a NUL in it"),
        (json!(["x".repeat(70_000)]), "`args` has 70000 bytes, and may have 65536"),
    ] {
        assert_eq!(GitTool.prepare(&json!({ "args": args }), &it.workspace).err().unwrap().0, expect);
    }
}
