//! Providers that cannot be reached for a while: the turn waits, visibly, and goes on by itself.

use linger_protocol::patience::Patience;

use super::*;

/// Tokio's clock, which stands still until it is moved. The parked blocking thread keeps the runtime from moving it.
pub(super) struct Clock(#[expect(dead_code, reason = "dropped with the clock")] std::sync::mpsc::Sender<()>);

impl Clock {
    pub(super) fn stop() -> Self {
        let (parked, end) = std::sync::mpsc::channel();
        tokio::task::spawn_blocking(move || end.recv());
        tokio::time::pause();
        Self(parked)
    }

    /// Moves on by so many seconds, once the provider was asked so often.
    async fn pass(&self, scene: &Scene, seconds: u64, asked: usize) {
        while scene.script.asked().len() < asked {
            tokio::task::yield_now().await;
        }
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    /// Moves on until the provider was asked so often.
    async fn until(&self, scene: &Scene, asked: usize) {
        while scene.script.asked().len() < asked {
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        tokio::time::resume();
    }
}

fn refuses() -> Answer {
    Answer::fails(FailureClass::Refused, "nobody listens")
}

/// A pause that no test outlasts.
fn busy() -> Answer {
    Answer::fails(FailureClass::Overloaded, "busy").retry_after(3000)
}

impl Scene {
    /// A session whose provider has answered before.
    async fn answered(model: &str, answers: impl IntoIterator<Item = Answer>) -> Self {
        let first = Answer::text("hello");
        let mut scene = Self::with("", model, Mode::Auto, std::iter::once(first).chain(answers)).await;
        scene.turn("hi").await;
        scene
    }

    /// The transcript of the second turn.
    async fn second_turn(&self) -> String {
        let transcript = self.transcript().await;
        transcript[transcript.find("t2 message").unwrap()..].to_owned()
    }
}

#[tokio::test]
async fn an_outage_is_waited_out_and_said_less_and_less_often() {
    let mut scene = Scene::answered("mock/m", (0..6).map(|_| refuses()).chain([Answer::text("back")])).await;
    let clock = Clock::stop();
    scene.prompt("talk", When::Queue).await;
    for asked in 2..8 {
        clock.pass(&scene, 30, asked).await;
    }
    drop(clock);
    scene.ends(2).await;
    insta::assert_snapshot!(scene.second_turn().await, @r#"
    t2 message m3 user: "talk"
    t2 notice retry: nobody listens; trying again in N s
    t2 notice retry: nobody listens; waiting for N seconds, trying again in N s
    t2 notice retry: nobody listens; waiting for N seconds, trying again in N s
    t2 notice retry: nobody listens; waiting for N minutes, trying again in N s
    t2 notice reached: mock answers again after N minutes
    t2 message m4 model: "back"
    t2 turn_finished end_turn after 1
    "#);
}

#[tokio::test]
async fn a_wait_goes_on_after_restarts_and_counts_as_no_crash() {
    let mut scene = Scene::answered("mock/m", (0..6).map(|_| busy()).chain([Answer::text("back")])).await;
    scene.prompt("talk", When::Queue).await;
    scene.until("notice retry", 1).await;
    let before = scene.state().await.turn.into_value().unwrap().wait.provider.unwrap();
    assert_eq!(before.reason, "busy");
    for crash in 1..=5 {
        scene.crash().await;
        scene.until("notice retry", crash + 1).await;
    }
    let info = scene.state().await.info(scene.id.clone());
    assert_eq!((info.state, info.provider_wait.unwrap().since_at), (session::State::Running, before.since_at));
    scene.go_on().await.unwrap();
    scene.ends(2).await;
    assert_eq!((scene.count("notice offered").await, scene.count("notice reached").await), (0, 1));
    assert!(scene.state().await.turn.is_none());
}

#[tokio::test]
async fn a_prompt_that_steers_is_asked_with_the_next_try_which_is_now() {
    let mut scene = Scene::answered("mock/m", [busy(), Answer::text("both")]).await;
    scene.prompt("talk", When::Queue).await;
    scene.until("notice retry", 1).await;
    scene.prompt("and be brief", When::Steer).await;
    scene.ends(2).await;
    insta::assert_snapshot!(scene.last_request(), @r"
    user: hi
    model: hello
    user: talk
    user: and be brief
    ");
}

#[tokio::test]
async fn a_prompt_that_queues_and_a_continue_end_the_pause() {
    let mut scene = Scene::answered("mock/m", [busy(), busy(), Answer::text("one"), Answer::text("two")]).await;
    scene.prompt("talk", When::Queue).await;
    scene.until("notice retry", 1).await;
    scene.go_on().await.unwrap();
    scene.until("notice retry", 2).await;
    scene.prompt("and then", When::Queue).await;
    scene.ends(3).await;
    assert_eq!(scene.count("notice reached").await, 1);
}

#[tokio::test]
async fn another_model_ends_the_pause() {
    let mut scene = Scene::answered("mock/m", [busy(), Answer::text("here")]).await;
    scene.prompt("talk", When::Queue).await;
    scene.until("notice retry", 1).await;
    scene.set(session::Set { model: Some("mock/other".to_owned()), ..session::Set::default() }).await;
    scene.ends(2).await;
    assert!(scene.second_turn().await.ends_with("t2 message m4 model: \"here\"\nt2 turn_finished end_turn after 1"));
}

#[tokio::test]
async fn cancel_ends_a_long_wait() {
    let mut scene = Scene::answered("mock/m", [busy()]).await;
    scene.prompt("talk", When::Queue).await;
    scene.until("notice retry", 1).await;
    scene.cancel().await;
    assert_eq!(scene.count("turn_finished cancelled").await, 1);
}

#[tokio::test]
async fn an_address_that_never_answered_is_given_up_after_ten_seconds() {
    let mut scene = Scene::auto([refuses(), refuses(), refuses()]).await;
    let clock = Clock::stop();
    scene.prompt("hi", When::Queue).await;
    clock.pass(&scene, 5, 1).await;
    clock.pass(&scene, 5, 2).await;
    scene.ends(1).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "hi"
    t1 turn_started p1
    t1 message m1 user: "hi"
    t1 notice retry: nobody listens; trying again in N s
    t1 notice retry: nobody listens; waiting for N seconds, trying again in N s
    t1 turn_finished error after 0: mock: nobody listens; gave up after 10 seconds
    "#);
}

#[tokio::test]
async fn that_an_address_answered_is_known_to_the_next_daemon() {
    let scene = Scene::answered("mock/m", []).await;
    let file = scene.env.places.reached();
    while std::fs::read_to_string(&file).unwrap_or_default().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "127.0.0.1:1\n");
}

#[tokio::test]
async fn patience_may_be_none_or_without_end() {
    let mut scene = Scene::answered("hasty/m", [refuses()]).await;
    scene.turn("talk").await;
    insta::assert_snapshot!(scene.second_turn().await, @r#"
    t2 message m3 user: "talk"
    t2 turn_finished error after 0: hasty: nobody listens
    "#);
    let mut scene = Scene::answered("patient/m", [refuses(), refuses(), Answer::text("back")]).await;
    let clock = Clock::stop();
    scene.prompt("talk", When::Queue).await;
    clock.pass(&scene, 7 * 24 * 3600, 2).await;
    clock.pass(&scene, 30, 3).await;
    drop(clock);
    scene.ends(2).await;
    assert_eq!(scene.count("reached: patient answers again after").await, 1);
}

#[tokio::test]
async fn an_answer_that_breaks_off_after_an_outage_is_asked_for_again_soon() {
    let cut = Answer::text("hel").then_fails(FailureClass::Stream, "the stream was cut");
    let mut scene = Scene::answered("mock/m", (0..6).map(|_| refuses()).chain([cut, Answer::text("back")])).await;
    let clock = Clock::stop();
    scene.prompt("talk", When::Queue).await;
    for asked in 2..8 {
        clock.pass(&scene, 30, asked).await;
    }
    // The first pause of a failure, and not the one that an outage of three minutes has.
    clock.pass(&scene, 1, 8).await;
    drop(clock);
    scene.ends(2).await;
    insta::assert_snapshot!(scene.second_turn().await, @r#"
    t2 message m3 user: "talk"
    t2 notice retry: nobody listens; trying again in N s
    t2 notice retry: nobody listens; waiting for N seconds, trying again in N s
    t2 notice retry: nobody listens; waiting for N seconds, trying again in N s
    t2 notice retry: nobody listens; waiting for N minutes, trying again in N s
    t2 notice reached: mock answers again after N minutes
    t2 message m4 model interrupted: "hel"
    t2 notice retry: the stream was cut; trying again in N s
    t2 message_superseded m4
    t2 message m5 model: "back"
    t2 turn_finished end_turn after 1
    "#);
}

#[tokio::test]
async fn answers_that_break_off_are_repeated_five_times() {
    let cut = || Answer::text("hel").then_fails(FailureClass::Stream, "the stream was cut");
    let mut scene = Scene::answered("patient/m", (0..6).map(|_| cut())).await;
    let clock = Clock::stop();
    scene.prompt("talk", When::Queue).await;
    clock.until(&scene, 7).await;
    drop(clock);
    scene.ends(2).await;
    assert_eq!((scene.count("interrupted").await, scene.count("message_superseded").await), (6, 5));
    let transcript = scene.second_turn().await;
    assert!(transcript.ends_with("patient: the stream was cut; gave up after 6 attempts"), "{transcript}");
}

#[tokio::test]
async fn answers_that_broke_off_before_a_crash_count_after_it() {
    let cut = || Answer::text("hel").then_fails(FailureClass::Stream, "the stream was cut");
    let last = cut().retry_after(3000);
    let answers = [cut(), cut(), last, cut(), cut(), cut(), Answer::text("too late")];
    let mut scene = Scene::answered("patient/m", answers).await;
    let clock = Clock::stop();
    scene.prompt("talk", When::Queue).await;
    clock.until(&scene, 4).await;
    drop(clock);
    scene.until("notice retry", 3).await;
    scene.crash().await;
    let clock = Clock::stop();
    clock.until(&scene, 7).await;
    drop(clock);
    scene.ends(2).await;
    let transcript = scene.second_turn().await;
    assert!(transcript.ends_with("patient: the stream was cut; gave up after 6 attempts"), "{transcript}");
}

#[tokio::test]
async fn a_provider_that_asks_for_a_longer_pause_than_the_patience_is_not_waited_for() {
    let busy = Answer::fails(FailureClass::Overloaded, "busy").retry_after(7200);
    let mut scene = Scene::answered("mock/m", [busy]).await;
    scene.turn("talk").await;
    insta::assert_snapshot!(scene.second_turn().await, @r#"
    t2 message m3 user: "talk"
    t2 turn_finished error after 0: mock: busy; the provider asks to wait 2 hours
    "#);
}

#[tokio::test]
async fn a_fallback_stands_in_after_a_minute_and_the_next_turn_goes_back() {
    let answers = [refuses(), refuses(), refuses(), Answer::text("the second"), Answer::text("the first")];
    let mut scene = Scene::answered("mock/first", answers).await;
    let clock = Clock::stop();
    scene.prompt("talk", When::Queue).await;
    clock.pass(&scene, 30, 2).await;
    clock.pass(&scene, 30, 3).await;
    drop(clock);
    scene.ends(2).await;
    scene.turn("again").await;
    insta::assert_snapshot!(scene.second_turn().await, @r#"
    t2 message m3 user: "talk"
    t2 notice retry: nobody listens; trying again in N s
    t2 notice retry: nobody listens; waiting for N seconds, trying again in N s
    t2 notice fallback: mock: nobody listens; gave up after 60 seconds; the turn continues with mock/second
    t2 session_changed mock/second setup
    t2 message m4 model: "the second"
    t2 turn_finished end_turn after 1
    prompt_accepted p3 queue "again"
    session_changed mock/first setup
    t3 turn_started p3
    t3 message m5 user: "again"
    t3 message m6 model: "the first"
    t3 turn_finished end_turn after 1
    "#);
}

#[tokio::test]
async fn a_fallback_stands_in_at_once_for_a_refused_key_and_an_empty_account() {
    for failure in [
        Answer::fails(FailureClass::Auth, "wrong key"),
        Answer::fails(FailureClass::Forbidden, "not for this key"),
        Answer::fails(FailureClass::Quota, "402 insufficient_quota: pay"),
        Answer::fails(FailureClass::Overloaded, "busy").retry_after(61),
    ] {
        let mut scene = Scene::answered("mock/first", [failure, Answer::text("the second")]).await;
        scene.turn("talk").await;
        assert_eq!(scene.count("the turn continues with mock/second").await, 1);
        assert_eq!(scene.count("message m4 model: \"the second\"").await, 1);
    }
    let mut scene = Scene::answered("mock/first", [Answer::fails(FailureClass::NotFound, "no such model")]).await;
    scene.turn("talk").await;
    assert_eq!(scene.count("turn_finished error after 0: mock: no such model").await, 1);
}

#[tokio::test]
async fn the_last_fallback_fails_the_turn_and_a_session_may_have_its_own() {
    let mut scene = Scene::answered("mock/first", [Answer::fails(FailureClass::Auth, "wrong key")]).await;
    let fallback = Some(vec!["hasty/other".to_owned()]);
    scene.set(session::Set { fallback, patience: Some(Patience::Forever), ..session::Set::default() }).await;
    scene.script.push(Answer::fails(FailureClass::Auth, "wrong too"));
    scene.turn("talk").await;
    insta::assert_snapshot!(scene.second_turn().await, @r#"
    t2 message m3 user: "talk"
    t2 notice fallback: mock: wrong key; no key was sent: api_key_env in [providers.mock] names the variable of one; the turn continues with hasty/other
    t2 session_changed hasty/other setup
    t2 turn_finished error after 0: hasty: wrong too; no key was sent: api_key_env in [providers.hasty] names the variable of one
    "#);
    let unknown = session::Set { fallback: Some(vec!["nowhere/m".to_owned()]), ..session::Set::default() };
    let refused = scene.asked(|asked| Command::Set(unknown, Ok(()), asked)).await.unwrap_err();
    assert!(refused.message.contains("nowhere"), "{}", refused.message);
}

#[tokio::test]
async fn patience_that_is_set_counts_at_once() {
    let mut scene = Scene::answered("patient/m", [busy(), refuses()]).await;
    scene.prompt("talk", When::Queue).await;
    scene.until("notice retry", 1).await;
    scene.set(session::Set { patience: Some(Patience::Millis(0)), ..session::Set::default() }).await;
    scene.ends(2).await;
    assert_eq!(scene.count("turn_finished error after 0: patient: nobody listens").await, 1);
}
