//! Commands in the background: they outlive their turn, and the model is told of their end.

use tokio::net::unix::pipe;

use super::*;

/// A command that says `up`, and ends with code 3 when the FIFO `go` is written to.
const SERVER: &str = "echo up; read line < go; echo $line; exit 3";

/// A call that starts `command` in the background.
fn starts(command: &str) -> Answer {
    Answer::call("bash", json!({ "command": command, "background": true }))
}

fn fifo(scene: &Scene, name: &str) {
    rustix::fs::mkfifoat(rustix::fs::CWD, scene.path(name), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
}

async fn rows(scene: &Scene) -> Vec<String> {
    let row = scene.env.store.session(scene.id.clone()).await.unwrap().unwrap();
    let state = crate::session::state::State::from_stored(&row.fold).unwrap();
    state.info(scene.id.clone()).background.iter().map(|job| format!("{} {}", job.background, job.command)).collect()
}

#[tokio::test]
async fn a_command_in_the_background_outlives_its_turn_and_the_model_is_told_of_its_end() {
    let read = Answer::call("bash_output", json!({ "handle": "b1", "wait_s": 60 }));
    let mut scene = Scene::auto([starts(SERVER), Answer::text("started"), read, Answer::text("seen")]).await;
    fifo(&scene, "go");
    scene.turn("start").await;
    assert_eq!(rows(&scene).await, [format!("b1 {SERVER}")]);
    // The shell opens the other end.
    let go = scene.path("go");
    tokio::task::spawn_blocking(move || std::fs::write(go, "down\n").unwrap()).await.unwrap();
    scene.until("background_ended", 1).await;
    assert_eq!(rows(&scene).await, [""; 0]);
    scene.turn("and now?").await;
    insta::assert_snapshot!(scene.last_request(), @r"
    user: start
    model: <c1 bash>
    user: <c1: b1 runs in the background>
    model: started
    user: and now?
    user: [b1 has ended: exit code 3 (`echo up; read line < go; echo $line; exit 3`)]
    up
    down

    model: <c2 bash_output>
    user: <c2: up
    down


    [b1 has ended: exit code 3]>
    ");
    let transcript = scene.transcript().await;
    let of_background: Vec<&str> = transcript.lines().filter(|line| line.contains("background_")).collect();
    let expect =
        [format!("t1 background_started b1 c1 {SERVER}"), r#"background_ended b1 exit 3 "up\ndown\n""#.to_owned()];
    assert_eq!(of_background, expect);
}

#[tokio::test]
async fn a_cancel_ends_commands_in_the_background_only_if_it_says_so() {
    let mut scene = Scene::auto([starts("sleep 1000"), Answer::text("half").waits(&gate())]).await;
    scene.prompt("start", When::Queue).await;
    scene.shows("half").await;
    scene.cancel().await;
    assert_eq!(rows(&scene).await, ["b1 sleep 1000"]);
    scene.asked(|asked| Command::Cancel(true, asked)).await.unwrap();
    scene.until("background_ended b1 ended by the user", 1).await;
    assert_eq!(rows(&scene).await, [""; 0]);
    assert!(scene.asked(|asked| Command::Cancel(true, asked)).await.is_err(), "nothing is left to end");
}

#[tokio::test]
async fn after_a_restart_the_model_is_told_that_its_command_has_ended() {
    let mut scene = Scene::auto([starts("exec 3>witness; sleep 1000"), Answer::text("one"), Answer::text("two")]).await;
    fifo(&scene, "witness");
    let mut witness = pipe::OpenOptions::new().open_receiver(scene.path("witness")).unwrap();
    scene.turn("start").await;
    scene.crash().await;
    scene.until("background_ended b1 the daemon was restarted", 1).await;
    // It ends when no process has the other end.
    let mut nothing = Vec::new();
    timeout(LONG, tokio::io::AsyncReadExt::read_to_end(&mut witness, &mut nothing)).await.unwrap().unwrap();
    scene.turn("and now?").await;
    insta::assert_snapshot!(scene.last_request(), @r"
    user: start
    model: <c1 bash>
    user: <c1: b1 runs in the background>
    model: one
    user: and now?
    user: [b1 has ended: the daemon was restarted (`exec 3>witness; sleep 1000`)]
    ");
}

#[tokio::test]
async fn a_session_runs_so_many_commands_in_the_background_and_bash_kill_makes_room() {
    let nine = (0..9).fold(Answer::text(""), |answer, _| {
        answer.calls("bash", json!({ "command": "sleep 1000", "background": true }))
    });
    let kill = Answer::call("bash_kill", json!({ "handle": "b3" }));
    let mut scene = Scene::auto([nine, kill, starts("sleep 1000"), Answer::text("done")]).await;
    scene.turn("start").await;
    let said = scene.last_request();
    assert!(said.contains("8 commands run in the background already"), "{said}");
    assert!(said.contains("b9 runs in the background"), "{said}");
    assert_eq!(rows(&scene).await.len(), 8);
}

#[tokio::test]
async fn mode_plan_starts_nothing_in_the_background() {
    let mut scene = Scene::with("", "mock/m", Mode::Plan, [starts("touch made"), Answer::text("no")]).await;
    scene.turn("start").await;
    assert_eq!((scene.count("c1 denied").await, scene.count("background_started").await), (1, 0));
}
