//! Changes of files: what is shown of them before and after, and how they are undone.

use linger_protocol::event::{ChangeKind, FileChange, Location, PermissionRequested, ToolFinished, UndoStarted};
use linger_protocol::id::BlobId;

use super::*;

/// The changes and the places of the events of this kind.
async fn shown(scene: &Scene, kind: &str) -> Vec<(Vec<FileChange>, Vec<Location>)> {
    let of = |event: Event| match event.body {
        EventBody::PermissionRequested(PermissionRequested { changes, locations, .. })
            if kind == "permission_requested" =>
        {
            Some((changes, locations))
        }
        EventBody::ToolFinished(ToolFinished { changes, locations, .. }) if kind == "tool_finished" => {
            Some((changes, locations))
        }
        _ => None,
    };
    scene.events().await.into_iter().filter_map(of).collect()
}

fn blob(scene: &Scene, id: Option<&BlobId>) -> String {
    let bytes = id.map(|id| scene.env.store.blobs.read(id, 0, u64::MAX).unwrap());
    String::from_utf8(bytes.unwrap_or_default()).unwrap()
}

#[tokio::test]
async fn a_change_of_a_file_is_shown_when_it_asks_and_when_it_is_done() {
    let edit = Answer::call("edit", json!({ "path": "a", "old": "two", "new": "2" }));
    let write = Answer::call("write", json!({ "path": "new/b", "content": "b\n" }));
    let read = Answer::call("read", json!({ "path": "a", "offset": 2 }));
    let mut scene = Scene::ask([read, edit, write, Answer::text("done")]).await;
    std::fs::write(scene.path("a"), "one\ntwo\n").unwrap();
    let real = |name: &str| scene.path("").canonicalize().unwrap().join(name);
    let (a, b) = (real("a"), real("new/b"));
    scene.prompt("go", When::Queue).await;
    for n in [1, 2] {
        scene.until("permission_requested", n).await;
        scene.answer(n, Decision::AllowOnce, None).await.unwrap();
    }
    scene.ends(1).await;
    let asked = shown(&scene, "permission_requested").await;
    let done = shown(&scene, "tool_finished").await;
    let at = |path: &PathBuf, line| vec![Location { path: path.clone(), line }];
    assert_eq!(done[0], (Vec::new(), at(&a, Some(2))));
    assert_eq!(asked, done[1..], "nothing changed in between");
    let expect = [(&a, ChangeKind::Edit, "one\ntwo\n", "one\n2\n", Some(2)), (&b, ChangeKind::Create, "", "b\n", None)];
    for ((changes, locations), (path, kind, before, after, line)) in asked.iter().zip(expect) {
        let [change] = &changes[..] else { panic!("{changes:?}") };
        assert_eq!((&change.path, change.kind), (path, kind));
        assert_eq!(blob(&scene, change.before.as_ref()), before);
        assert_eq!(blob(&scene, change.after.as_ref()), after);
        assert_eq!(*locations, at(path, line));
    }
}

fn write(name: &str, content: &str) -> Answer {
    Answer::call("write", json!({ "path": name, "content": content }))
}

impl Scene {
    async fn undo(&self, undo: session::Undo) -> Result<session::Restored, RpcError> {
        self.send(|reply| Command::Undo(undo, None, Author::named("someone"), reply)).await
    }

    async fn redo(&self) -> Result<session::Restored, RpcError> {
        self.send(|reply| Command::Redo(session::Redo::default(), None, Author::named("someone"), reply)).await
    }

    fn text(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.path(name)).ok()
    }
}

#[tokio::test]
async fn turns_are_undone_and_done_again_and_the_model_is_told() {
    let both = write("a", "one\n").calls("write", json!({ "path": "b", "content": "b\n" }));
    let second = Answer::call("edit", json!({ "path": "a", "old": "one", "new": "two" }));
    let mut scene =
        Scene::auto([both, Answer::text("1"), second, Answer::text("2"), Answer::text("I see"), Answer::text("ok")])
            .await;
    scene.turn("first").await;
    scene.turn("second").await;
    assert_eq!(scene.text("a").as_deref(), Some("two\n"));
    let undone = scene.undo(session::Undo::default()).await.unwrap();
    assert_eq!((undone.step.unwrap().as_str(), undone.changes.len()), ("t2", 1));
    assert_eq!(scene.text("a").as_deref(), Some("one\n"));
    scene.undo(session::Undo::default()).await.unwrap();
    assert_eq!((scene.text("a"), scene.text("b")), (None, None));
    let nothing = scene.undo(session::Undo::default()).await.unwrap_err();
    assert_eq!(nothing.message, "session scene has no file changes to undo");
    scene.redo().await.unwrap();
    assert_eq!((scene.text("a").as_deref(), scene.text("b").as_deref()), (Some("one\n"), Some("b\n")));
    // A restart loses nothing of it.
    scene.crash().await;
    scene.redo().await.unwrap();
    assert_eq!(scene.text("a").as_deref(), Some("two\n"));
    assert_eq!(scene.redo().await.unwrap_err().message, "session scene has nothing to do again");
    let only = session::Undo { file: Some("b".into()), ..session::Undo::default() };
    assert_eq!(scene.undo(only).await.unwrap().step, None);
    assert_eq!((scene.text("a").as_deref(), scene.text("b")), (Some("two\n"), None));
    scene.turn("go on").await;
    let told = scene.last_request();
    assert!(told.contains("the user undid your changes of these files: DIR/a, DIR/b"), "{told}");
    scene.turn("once more").await;
    let undos = scene.transcript().await.lines().filter(|line| line.contains("is told")).count();
    assert_eq!(undos, 1);
}

#[tokio::test]
async fn a_file_that_was_changed_since_is_not_overwritten_without_force() {
    let mut scene = Scene::auto([write("a", "model\n"), Answer::text("1")]).await;
    scene.turn("go").await;
    std::fs::write(scene.path("a"), "user\n").unwrap();
    let refused = scene.undo(session::Undo::default()).await.unwrap_err();
    assert_eq!(refused.message, "a changed since; nothing was undone");
    assert_eq!(scene.text("a").as_deref(), Some("user\n"));
    scene.undo(session::Undo { force: true, ..session::Undo::default() }).await.unwrap();
    assert_eq!(scene.text("a"), None);
    scene.redo().await.unwrap();
    assert_eq!(scene.text("a").as_deref(), Some("user\n"), "what was overwritten is kept");
}

#[tokio::test]
async fn nothing_is_undone_while_a_turn_runs() {
    let mut scene = Scene::ask([write("a", "model\n"), Answer::text("1")]).await;
    scene.prompt("go", When::Queue).await;
    scene.until("permission_requested", 1).await;
    let busy = scene.undo(session::Undo::default()).await.unwrap_err();
    assert_eq!(busy.message, "session scene has an unfinished turn");
}

#[tokio::test]
async fn an_undo_that_a_crash_cut_is_finished_when_the_session_is_loaded() {
    let both = write("a", "a\n").calls("write", json!({ "path": "b", "content": "b\n" }));
    let mut scene = Scene::auto([both, Answer::text("1")]).await;
    scene.turn("go").await;
    let changes = shown(&scene, "tool_finished").await.into_iter().flat_map(|(changes, _)| changes);
    let back =
        |change: FileChange| FileChange { kind: ChangeKind::Delete, before: change.after, after: None, ..change };
    let changes: Vec<FileChange> = changes.map(back).collect();
    // The daemon dies after the event and the first file.
    scene.actor.abort();
    let row = scene.env.store.session(scene.id.clone()).await.unwrap().unwrap();
    let mut state = crate::session::state::State::from_stored(&row.fold).unwrap();
    let body = EventBody::UndoStarted(UndoStarted {
        redo: false,
        step: Some("t1".into()),
        call: None,
        file: None,
        files: Vec::new(),
        changes,
        uncertain: Vec::new(),
        by: None,
        process: None,
    });
    let event = Event { body, seq: Some(state.progress.head + 1), at: 1, turn: None };
    state.apply(&event);
    let (done, committed) = oneshot::channel();
    let append = crate::store::Append {
        log: Log::new(scene.id.clone(), state.progress.head - 1, Vec::new()),
        events: vec![Arc::new(crate::session::actor::stored(&event).unwrap())],
        turn: None,
        pieces: Vec::new(),
        folds: vec![state.to_fold()],
        sync: true,
        done: Some(done),
    };
    scene.env.store.append(append);
    committed.await.unwrap().unwrap();
    std::fs::remove_file(scene.path("a")).unwrap();
    scene.crash().await;
    assert_eq!((scene.text("a"), scene.text("b")), (None, None));
    assert!(scene.transcript().await.ends_with("undone undo t1 2 files, 0 failed"), "{}", scene.transcript().await);
    scene.redo().await.unwrap();
    assert_eq!((scene.text("a").as_deref(), scene.text("b").as_deref()), (Some("a\n"), Some("b\n")));
}
