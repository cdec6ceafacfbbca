//! Calls that touch several files, and decisions that last: what they show, grant, refuse and undo.

use linger_protocol::event::PermissionRequested;
use linger_protocol::question;

use super::*;

const PATCH: &str = "*** Begin Patch\n*** Update File: a\n-one\n+1\n*** Add File: new/b\n+b\n*** End Patch";

fn patch(text: &str) -> Answer {
    Answer::call("apply_patch", json!({ "input": text }))
}

fn read(name: &str) -> Answer {
    Answer::call("read", json!({ "path": name }))
}

/// A session whose model writes patches, with a file.
async fn scene(mode: Mode, answers: impl IntoIterator<Item = Answer>) -> Scene {
    let scene = Scene::with("", "mock/gpt-5", mode, answers).await;
    std::fs::write(scene.path("a"), "one\n").unwrap();
    scene
}

/// The fields of the last permission that was asked.
async fn asked(scene: &Scene) -> Value {
    let events = scene.events().await;
    let asked = events.iter().rfind(|event| matches!(event.body, EventBody::PermissionRequested(_)));
    serde_json::to_value(asked.unwrap()).unwrap()
}

#[tokio::test]
async fn a_patch_of_two_files_is_one_question_with_both_changes_and_one_step_to_undo() {
    let again = PATCH.replace("-one\n+1", "-1\n+one").replace("Add File: new/b\n+b", "Delete File: new/b");
    let mut scene = scene(Mode::Ask, [read("a"), patch(PATCH), patch(&again), Answer::text("done")]).await;
    scene.prompt("go", When::Queue).await;
    scene.until("permission_requested", 1).await;
    let shown = asked(&scene).await;
    assert_eq!((shown["action"].as_str(), shown["tool"].as_str()), (Some("patch a, new/b"), Some("apply_patch")));
    assert_eq!(shown["grants"], json!(["edit(a)", "edit(new/b)"]));
    assert_eq!(shown["grant"], "edit(a) and edit(new/b)");
    let kinds: Vec<&str> = shown["changes"].as_array().unwrap().iter().map(|it| it["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["edit", "create"]);
    let lines: Vec<&Value> = shown["locations"].as_array().unwrap().iter().map(|it| &it["line"]).collect();
    assert_eq!(lines, [&json!(1), &Value::Null]);
    scene.answer(1, Decision::AllowSession, None).await.unwrap();
    scene.ends(1).await;
    // The second one needed no answer, and took the first back.
    assert_eq!(scene.count("permission_requested").await, 1);
    assert_eq!(std::fs::read_to_string(scene.path("a")).unwrap(), "one\n");
    assert!(!scene.path("new/b").exists());
    let undone = scene.send(|reply| Command::Undo(session::Undo::default(), None, Author::named("me"), reply)).await;
    assert_eq!(undone.unwrap().changes, []);
}

#[tokio::test]
async fn a_patch_of_a_file_that_the_model_has_not_read_asks_nobody() {
    let mut scene = scene(Mode::Ask, [patch(PATCH), Answer::text("I see")]).await;
    scene.turn("go").await;
    let transcript = scene.transcript().await;
    let refused = "tool_finished c1 invalid \"nothing is changed: a: you have not read it; read it first\"";
    assert!(transcript.contains(refused) && !transcript.contains("permission_requested"), "{transcript}");
}

#[tokio::test]
async fn a_rule_about_one_of_the_files_decides_on_the_whole_patch() {
    let scene_of = |rules: &'static str| async move {
        let config = format!("permissions.{rules}");
        let scene = Scene::with(&config, "mock/gpt-5", Mode::Edit, [read("a"), patch(PATCH), Answer::text("ok")]).await;
        std::fs::write(scene.path("a"), "one\n").unwrap();
        scene.prompt("go", When::Queue).await;
        scene
    };
    let mut denied = scene_of("deny = [\"write(new/**)\"]").await;
    denied.ends(1).await;
    assert!(denied.last_request().contains("the rule write(new/**) forbids it"), "{}", denied.last_request());
    assert_eq!(std::fs::read_to_string(denied.path("a")).unwrap(), "one\n");
    let mut asks = scene_of("ask = [\"edit(a)\"]").await;
    asks.until("permission_requested", 1).await;
    assert_eq!(asked(&asks).await["rule"], "edit(a)");
    let mut runs = scene_of("ask = [\"edit(c)\"]").await;
    runs.ends(1).await;
    assert_eq!(std::fs::read_to_string(runs.path("new/b")).unwrap(), "b\n");
}

#[tokio::test]
async fn models_that_write_patches_have_the_tool_in_the_place_of_two() {
    let mut scene = scene(Mode::Ask, [Answer::text("hello")]).await;
    scene.turn("hello").await;
    let names = |scene: &Scene| {
        let basis = scene.env.toolbox.tools_of(
            "mock/gpt-5",
            &scene.path(""),
            &SessionId::default(),
            None,
            scene.env.toolbox.offered(false, 0),
        );
        basis.specs().iter().map(|spec| spec.name.clone()).collect::<Vec<_>>()
    };
    let names = names(&scene);
    assert!(
        names.contains(&"apply_patch".to_owned())
            && !names.iter().any(|name| ["edit", "write"].contains(&name.as_str()))
    );
    let only = |list: &[&str]| {
        let list: Vec<String> = list.iter().map(|name| (*name).to_owned()).collect();
        let set = scene.env.toolbox.tools_of(
            "mock/gpt-5",
            &scene.path(""),
            &SessionId::default(),
            Some(&list),
            scene.env.toolbox.offered(false, 0),
        );
        set.specs().iter().map(|spec| spec.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(only(&["read", "edit"]), ["read", "edit"], "it can do more than edit");
    assert_eq!(only(&["read", "edit", "write"]), ["read", "apply_patch"]);
    let config = "models.\"mock/gpt-5\".apply_patch = false\nmodels.\"mock/own\".apply_patch = true\n";
    let other = Scene::with(config, "mock/gpt-5", Mode::Ask, []).await;
    let has = |model: &str| {
        let set = other.env.toolbox.tools_of(
            model,
            &other.path(""),
            &SessionId::default(),
            None,
            other.env.toolbox.offered(false, 0),
        );
        set.get("apply_patch").is_some()
    };
    assert_eq!((has("mock/gpt-5"), has("mock/own"), has("mock/other")), (false, true, false));
}

#[tokio::test]
async fn the_rules_of_an_answer_may_allow_what_those_in_force_leave() {
    let answers = [bash("git status && make one"), Answer::text("done")];
    let config = "permissions.allow = [\"bash(git status)\"]\n";
    let mut scene = Scene::with(config, "mock/m", Mode::Ask, answers).await;
    scene.prompt("go", When::Queue).await;
    scene.until("permission_requested", 1).await;
    let refused = scene.decide(1, Decision::AllowSession, &["bash(cmake:*)"]).await.unwrap_err();
    assert!(refused.message.contains("does not allow this call"), "{}", refused.message);
    scene.decide(1, Decision::AllowSession, &["bash(make one)"]).await.unwrap();
    scene.ends(1).await;
}

fn bash(command: &str) -> Answer {
    Answer::call("bash", json!({ "command": command }))
}

impl Scene {
    async fn decide(&self, n: usize, decision: Decision, rules: &[&str]) -> Result<(), RpcError> {
        let asked = self.events().await.into_iter().filter_map(|event| match event.body {
            EventBody::PermissionRequested(PermissionRequested { permission, .. }) => Some(permission),
            _ => None,
        });
        let question = asked.into_iter().nth(n - 1).unwrap();
        let (answer, rules) = (decision.name().to_owned(), rules.iter().map(|rule| (*rule).to_owned()).collect());
        let answer = question::Answer { question, answer, value: None, reason: None, digest: None, rules, key: None };
        self.asked(|reply| Command::Answer(answer, Author::named("someone"), AnswerLimit::None, reply)).await
    }

    fn config(&self) -> String {
        std::fs::read_to_string(self.env.places.config_file()).unwrap()
    }
}

#[tokio::test]
async fn what_is_denied_always_is_refused_from_then_on_and_after_a_restart() {
    let answers = [bash("rm a"), bash("rm a"), Answer::text("I see"), bash("rm a"), Answer::text("still")];
    let mut scene = Scene::ask(answers).await;
    scene.prompt("go", When::Queue).await;
    scene.until("permission_requested", 1).await;
    scene.decide(1, Decision::RejectAlways, &[]).await.unwrap();
    scene.ends(1).await;
    assert_eq!(scene.count("permission_requested").await, 1);
    assert!(scene.last_request().contains("the rule bash(rm a) forbids it"), "{}", scene.last_request());
    assert!(scene.config().contains("deny = [\"bash(rm a)\"]"), "{}", scene.config());
    scene.crash().await;
    scene.turn("again").await;
    assert_eq!(scene.count("permission_requested").await, 1);
}

#[tokio::test]
async fn the_rules_of_an_answer_are_taken_in_the_place_of_those_shown_if_they_can_match() {
    let answers = [bash("make one"), bash("make two"), Answer::text("done")];
    let mut scene = Scene::ask(answers).await;
    scene.prompt("go", When::Queue).await;
    scene.until("permission_requested", 1).await;
    for (decision, rules, expect) in [
        (Decision::AllowOnce, vec!["bash(make:*)"], "the answer allow_once adds no rule"),
        (Decision::AllowAlways, vec!["bash(make"], "is not a rule"),
        (Decision::AllowAlways, vec!["bsh(make:*)"], "no tool is called `bsh`"),
        (Decision::AllowAlways, vec!["bash(sudo:*)"], "bash(sudo:*)"),
        (Decision::AllowAlways, vec!["bash(cmake:*)"], "`bash(cmake:*)` does not allow this call; no rule is stored"),
        (Decision::AllowAlways, vec!["edit(a)", "read(a)"], "`edit(a)` and `read(a)` do not allow this call"),
        (Decision::RejectAlways, vec!["bash(make two)"], "`bash(make two)` does not refuse this call"),
    ] {
        let refused = scene.decide(1, decision, &rules).await.unwrap_err();
        assert!(refused.message.contains(expect), "{rules:?}: {}", refused.message);
    }
    scene.decide(1, Decision::AllowAlways, &["bash(make:*)"]).await.unwrap();
    scene.ends(1).await;
    assert_eq!(scene.count("permission_requested").await, 1);
    assert!(scene.config().contains("allow = [\"bash(make:*)\"]"), "{}", scene.config());
}
