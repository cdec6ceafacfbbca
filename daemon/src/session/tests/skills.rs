//! Skills with `allowed-tools`: what a turn may do once it has read one.

use super::*;
use crate::session::messages::Named;
use linger_protocol::agent::SkillLimit;

const ECHO: &str = "---\nname: echo\ndescription: Echoes\nallowed-tools: Bash(echo:*)\n---\nEcho it.\n";

impl Scene {
    fn skill(&self, name: &str, text: &str) {
        let skill = self.env.places.config.join("skills").join(name);
        std::fs::create_dir_all(&skill).unwrap();
        std::fs::write(skill.join("SKILL.md"), text).unwrap();
        std::fs::write(skill.join("more.md"), "More.\n").unwrap();
    }

    /// A prompt that a person began with `/name`, with a check.
    async fn sends(&self, typed: &str, check: Option<&str>) {
        let (session, content) = (self.id.clone(), PromptContent::Text("Echo it.".to_owned()));
        let until = check.map(|command| session::Until { command: command.to_owned(), tries: Some(1) });
        let (when, schema, env) = (Some(When::Queue), None, BTreeMap::new());
        let prompt =
            session::Prompt { session, content, when, schema, until, expand: true, awaited: false, env, key: None };
        let allowed = vec!["bash(echo:*)".to_owned()];
        let limit = typed.starts_with("/echo").then(|| SkillLimit { skill: "echo".to_owned(), allowed });
        let named = Some(Named { typed: typed.to_owned(), runs: Vec::new(), limit });
        self.send(|reply| PromptRequest::command(prompt, named, "someone", reply)).await.unwrap();
    }
}

fn runs(command: &str) -> Answer {
    Answer::call("bash", json!({ "command": command }))
}

fn writes(path: &str) -> Answer {
    Answer::call("write", json!({ "path": path, "content": "x" }))
}

#[tokio::test]
async fn a_turn_that_has_read_a_skill_does_what_that_lists_also_after_a_crash_and_the_next_one_does_anything() {
    let read = Answer::call("skill", json!({ "name": "echo" })).says("reading");
    let answers = [
        runs("touch before"),
        read,
        runs("echo one"),
        runs("touch two"),
        Answer::default().waits(&gate()),
        writes("three"),
        Answer::call("ls", json!({ "path": "." })),
        Answer::text("done"),
        writes("four"),
        Answer::text("free"),
    ];
    let mut scene = Scene::auto(answers).await;
    scene.skill("echo", ECHO);
    scene.prompt("echo", When::Queue).await;
    scene.until("tool_finished c4", 1).await;
    while scene.script.asked().len() < 5 {
        tokio::task::yield_now().await;
    }
    scene.crash().await;
    scene.ends(1).await;
    scene.turn("more").await;
    let transcript = scene.transcript().await;
    let finished: Vec<&str> = transcript.lines().filter(|line| line.contains("tool_finished c")).collect();
    let refused = "not run: the skill `echo` limits this turn to `bash(echo:*)`";
    assert_eq!(finished.len(), 7, "{transcript}");
    for (line, expect) in finished.iter().zip([
        "c1 ran",
        "c2 ran \"---/name: echo",
        "c3 ran \"one/",
        &format!("c4 denied \"{refused}"),
        &format!("c5 denied \"{refused}"),
        "c6 ran",
        "c7 ran \"created four",
    ]) {
        assert!(line.contains(&format!("tool_finished {expect}")), "{expect}\n{transcript}");
    }
    assert!(scene.path("before").exists() && scene.path("four").exists());
    assert!(!scene.path("two").exists() && !scene.path("three").exists());
}

#[tokio::test]
async fn a_skill_that_was_read_limits_its_turn_after_a_crash_as_it_was_then_whatever_became_of_its_file() {
    for now in [None, Some(ECHO.replace("allowed-tools: Bash(echo:*)", "allowed-tools: Write"))] {
        let read = Answer::call("skill", json!({ "name": "echo" }));
        let answers = [
            read,
            Answer::default().waits(&gate()),
            writes("one"),
            runs("echo two"),
            Answer::text("done"),
            writes("three"),
            Answer::text("free"),
        ];
        let mut scene = Scene::auto(answers).await;
        scene.skill("echo", ECHO);
        scene.prompt("echo", When::Queue).await;
        scene.until("tool_finished c1", 1).await;
        while scene.script.asked().len() < 2 {
            tokio::task::yield_now().await;
        }
        match &now {
            Some(text) => scene.skill("echo", text),
            None => std::fs::remove_dir_all(scene.env.places.config.join("skills")).unwrap(),
        }
        scene.crash().await;
        scene.ends(1).await;
        let transcript = scene.transcript().await;
        let refused = "tool_finished c2 denied \"not run: the skill `echo` limits this turn to `bash(echo:*)`";
        assert!(transcript.contains(refused) && transcript.contains("tool_finished c3 ran \"two"), "{transcript}");
        scene.turn("more").await;
        assert!(!scene.path("one").exists() && scene.path("three").exists());
    }
}

#[tokio::test]
async fn a_prompt_that_names_a_skill_limits_its_turn_whether_or_not_models_are_told_of_it() {
    let answers = [writes("one"), Answer::text("no"), writes("two"), Answer::text("yes")];
    let mut scene = Scene::auto(answers).await;
    scene.skill("echo", &ECHO.replace("allowed-tools", "disable-model-invocation: true\nallowed-tools"));
    scene.sends("/echo this", None).await;
    scene.ends(1).await;
    scene.turn("/etc is no name, and names no skill").await;
    assert!(!scene.path("one").exists() && scene.path("two").exists(), "{}", scene.transcript().await);
}

#[tokio::test]
async fn a_skill_without_a_list_and_another_file_of_one_with_a_list_limit_nothing() {
    let answers = [
        Answer::call("skill", json!({ "name": "free" })),
        Answer::call("skill", json!({ "name": "echo", "file": "more.md" })),
        writes("one"),
        Answer::text("done"),
    ];
    let mut scene = Scene::auto(answers).await;
    scene.skill("echo", ECHO);
    scene.skill("free", "---\nname: free\ndescription: Anything\n---\nDo it.\n");
    scene.turn("do it").await;
    assert!(scene.path("one").exists(), "{}", scene.transcript().await);
}

#[tokio::test]
async fn a_call_that_waits_for_an_answer_is_refused_once_a_skill_that_leaves_it_out_is_read() {
    let both =
        Answer::call("skill", json!({ "name": "echo" })).calls("write", json!({ "path": "one", "content": "x" }));
    let mut scene = Scene::ask([both, Answer::text("done")]).await;
    scene.skill("echo", ECHO);
    scene.turn("do both").await;
    let transcript = scene.transcript().await;
    let refused = "permission_resolved q1 reject_once by the rules: the skill `echo` limits this turn";
    assert!(transcript.contains(refused), "{transcript}");
    assert!(!scene.path("one").exists());
}

#[tokio::test]
async fn the_check_of_a_turn_is_a_persons_and_no_skill_limits_it() {
    let mut scene = Scene::auto([Answer::text("done")]).await;
    scene.skill("echo", ECHO);
    scene.sends("/echo this", Some("touch checked")).await;
    scene.ends(1).await;
    assert!(scene.path("checked").exists(), "{}", scene.transcript().await);
}
