//! The tool on a real directory.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};

use serde_json::json;

use super::*;
use crate::tool::read::Read;
use crate::tool::tests::{run, test_context, test_workspace};

async fn read(workspace: &Workspace, path: &str) {
    run(&Read, workspace, json!({ "path": path })).await;
}

fn patch(body: &str) -> Value {
    json!({ "input": format!("*** Begin Patch\n{body}\n*** End Patch") })
}

fn text(workspace: &Workspace, path: &str) -> Option<String> {
    fs::read_to_string(workspace.cwd.join(path)).ok()
}

#[tokio::test]
async fn one_patch_makes_changes_renames_and_removes_files() {
    let (_dir, workspace) = test_workspace();
    for (name, content) in [("a", "one\ntwo\n"), ("b", "b\n"), ("c", "c\n")] {
        fs::write(workspace.cwd.join(name), content).unwrap();
    }
    for name in ["a", "c"] {
        fs::set_permissions(workspace.cwd.join(name), Permissions::from_mode(0o750)).unwrap();
    }
    let body = "*** Update File: a\n one\n-two\n+2\n*** Add File: new/d\n+d\n*** Delete File: b\n\
                *** Update File: c\n*** Move to: moved\n-c\n+C";
    let unread = run(&ApplyPatch, &workspace, patch(body)).await;
    assert_eq!(unread, ("nothing is changed: a: you have not read it; read it first".to_owned(), true));
    for name in ["a", "b", "c"] {
        read(&workspace, name).await;
    }
    let call = ApplyPatch.prepare(&patch(body), &workspace).unwrap();
    assert_eq!(call.action(), "patch a, new/d, b, c and 1 more");
    assert_eq!(call.locations().len(), 5);
    let (output, _receiver) = tokio::sync::mpsc::channel(1);
    let output = call.run(test_context(&workspace, output)).await;
    let said = "edited a, line 2\ncreated new/d\ndeleted b\ndeleted c\ncreated moved";
    assert_eq!(output.content, ToolOutput::text(said).content);
    assert_eq!(output.changes.len(), 5);
    assert!(output.diff.unwrap().starts_with("--- a\n+++ a\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"));
    let left = ["a", "new/d", "b", "c", "moved"].map(|path| text(&workspace, path));
    assert_eq!(left, [Some("one\n2\n".into()), Some("d\n".into()), None, None, Some("C\n".into())]);
    for name in ["a", "moved"] {
        assert_eq!(workspace.cwd.join(name).metadata().unwrap().permissions().mode() & 0o777, 0o750);
    }
    // What it wrote, it knows.
    assert!(!run(&ApplyPatch, &workspace, patch("*** Update File: a\n-one\n+1")).await.1);
}

#[tokio::test]
async fn a_piece_that_does_not_fit_changes_nothing_of_any_file() {
    let (_dir, workspace) = test_workspace();
    fs::write(workspace.cwd.join("a"), "one\n").unwrap();
    fs::write(workspace.cwd.join("b"), "fn two() {}\n").unwrap();
    read(&workspace, "a").await;
    read(&workspace, "b").await;
    let body = "*** Update File: a\n-one\n+1\n*** Update File: b\n-fn tow() {}\n+x";
    let (said, failed) = run(&ApplyPatch, &workspace, patch(body)).await;
    assert!(failed && said.starts_with("nothing is changed: b: the piece at line 6 of the patch"), "{said}");
    assert!(said.contains("1\tfn two() {}"), "{said}");
    fs::write(workspace.cwd.join("b"), "changed\n").unwrap();
    let (said, _) = run(&ApplyPatch, &workspace, patch("*** Delete File: a\n*** Delete File: b")).await;
    assert_eq!(said, "nothing is changed: b: it has changed since you read or wrote it; read it again");
    assert_eq!(text(&workspace, "a").as_deref(), Some("one\n"));
}

#[tokio::test]
async fn what_was_written_is_put_back_when_a_later_file_cannot_be() {
    let (_dir, workspace) = test_workspace();
    fs::write(workspace.cwd.join("a"), "one\n").unwrap();
    fs::write(workspace.cwd.join("file"), "x\n").unwrap();
    read(&workspace, "a").await;
    // The directory of the second is a file: only writing finds out.
    let planned = {
        let call = Patching {
            steps: vec![FileStep { path: workspace.cwd.join("a"), what: What::Add("1\n".into()) }],
            workspace: workspace.clone(),
        };
        let mut planned = call.plan(&|path: &Path| path.to_path_buf(), true).unwrap();
        let path = workspace.cwd.join("file/x");
        let change = Change { path: path.clone(), before: Content::Missing, after: Content::Known(b"x".to_vec()) };
        planned.push(Planned { path, change, places: Vec::new(), mode: None });
        call.write(planned, &Blobs::of(&workspace.cwd.join("out/linger.db"))).unwrap_err()
    };
    assert!(planned.starts_with("file/x"), "{planned}");
    assert_eq!(text(&workspace, "a").as_deref(), Some("one\n"));
}

#[tokio::test]
async fn bad_patches_are_refused_with_what_to_do() {
    let (_dir, workspace) = test_workspace();
    fs::write(workspace.cwd.join("a"), "one\n").unwrap();
    symlink("a", workspace.cwd.join("link")).unwrap();
    fs::create_dir(workspace.cwd.join("dir")).unwrap();
    read(&workspace, "a").await;
    for (body, expect) in [
        ("*** Delete File: none", "nothing is changed: none does not exist"),
        ("*** Update File: none\n-a\n+b", "nothing is changed: none does not exist"),
        ("*** Delete File: link", "nothing is changed: link is a link; name the file that it leads to"),
        ("*** Update File: dir\n-a\n+b", "nothing is changed: dir is a directory; use ls"),
        ("*** Update File: a\n*** Move to: a\n-one\n+two", "edited a"),
        ("*** Add File: a\n+two", "nothing is changed: the files have this content already"),
    ] {
        let (said, _) = run(&ApplyPatch, &workspace, patch(body)).await;
        assert!(said.starts_with(expect), "{body}: {said}");
    }
    fs::write(workspace.cwd.join("b"), "b\n").unwrap();
    let (said, _) = run(&ApplyPatch, &workspace, patch("*** Update File: a\n*** Move to: b\n-two\n+x")).await;
    assert!(said.contains("b: you have not read it"), "{said}");
    read(&workspace, "b").await;
    let (said, _) = run(&ApplyPatch, &workspace, patch("*** Update File: a\n*** Move to: b\n-two\n+x")).await;
    assert!(said.contains("b exists already"), "{said}");
}

#[test]
fn each_path_is_decided_on_and_several_sections_are_one_file() {
    let (_dir, workspace) = test_workspace();
    let body = "*** Add File: a\n+x\n*** Update File: a\n-x\n+y\n*** Add File: ../out\n+z";
    let call = ApplyPatch.prepare(&patch(body), &workspace).unwrap();
    let Access::Several(parts) = call.effects().access else { panic!("one") };
    let out = workspace.cwd.parent().unwrap().join("out");
    assert_eq!(parts, [Access::Write(workspace.cwd.join("a")), Access::Write(out)]);
    let one = ApplyPatch.prepare(&patch("*** Add File: a\n+x"), &workspace).unwrap();
    assert_eq!(one.effects().access, Access::Write(workspace.cwd.join("a")));
    let targets = Targets::from_iter([(workspace.cwd.join("a"), workspace.cwd.join("a"))]);
    assert_eq!(one.preview(&targets)[0].after, Content::Known(b"x\n".to_vec()));
}
