//! `@picture.png` in what a user writes: from the command line and the terminal to the model, in every format.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use linger_tests::model::{Format, ModelServer, Reply};
use serde_json::{Value, json};

use crate::providers::{PICTURE, check, name, start};

fn picture() -> Vec<u8> {
    STANDARD.decode(PICTURE).unwrap()
}

#[tokio::test]
async fn a_picture_that_a_prompt_names_reaches_the_model_in_every_format() {
    let model = ModelServer::scripted(|_| Reply::text("One pixel."));
    let daemon = start(&model).await;
    let client = daemon.client().await;
    fs::write(daemon.workspace().join("a pixel.png"), picture()).unwrap();
    for format in Format::ALL {
        let run = daemon.cli(&["run", "-m", name(format), "what is @\"a pixel.png\"? mail me@x.png"]);
        assert_eq!(run.cwd(daemon.workspace()).run().await.exits(0).stdout, "One pixel.\n");
        let request = model.requests().last().unwrap().clone();
        assert_eq!(request.format, format);
        assert!(request.messages().contains(PICTURE), "{format:?}: {}", request.messages());
        assert!(request.messages().contains("a pixel.png\\\"? mail me@x.png"), "{format:?}: {}", request.messages());
    }
    check(&daemon, &[&client], &model);
}

#[tokio::test]
async fn a_picture_that_cannot_be_sent_is_named_before_anything_is_started() {
    let model = ModelServer::scripted(|_| Reply::text("so"));
    let daemon = start(&model).await;
    let write = |name: &str, bytes: &[u8]| fs::write(daemon.workspace().join(name), bytes).unwrap();
    write("text.png", b"no picture");
    write("large.png", &[picture(), vec![0; 4 << 20]].concat());
    let run = async |words: &[&str]| daemon.cli(words).cwd(daemon.workspace()).run().await;
    run(&["run", "what is @gone.png?"]).await.fails_with_hint(2).says("gone.png is not there");
    run(&["run", "-d", "what is @text.png?"]).await.fails_with_hint(2).says("text.png is no PNG");
    run(&["run", "what is @large.png?"]).await.fails_with_hint(2).says("large.png is larger than 4 MiB");
    assert_eq!(daemon.client().await.call("session/list", json!({})).await, json!([]));
    // What is piped in may be by anybody: it names no files.
    let piped = daemon.cli(&["run", "-m", "work/w"]).stdin("look at @text.png and @gone.png").run().await;
    assert_eq!(piped.exits(0).stdout, "so\n");
    // A picture is also found where the session works, and one that is refused leaves the session as it was.
    write("there.png", &picture());
    let client = daemon.client().await;
    let session = client.create_with(json!({ "model": "work/w" })).await;
    let elsewhere = daemon.dirs.root();
    let send = async |words: &str| daemon.cli(&["send", &session, words]).cwd(elsewhere).run().await;
    send("@gone.png").await.fails_with_hint(2).says("gone.png is not there");
    client.attach(&session).await;
    send("@there.png").await.exits(0);
    client.first(&session, "turn_finished").await;
    let rejected = daemon.cli(&["run", "-s", &session, "--mode", "plan", "@gone.png"]).run().await;
    rejected.fails_with_hint(2);
    assert_eq!(client.transcript().of("session_changed").count(), 0);
    assert!(model.requests().last().unwrap().messages().contains(PICTURE));
    check(&daemon, &[&client], &model);
}

#[tokio::test]
async fn the_terminal_says_how_many_pictures_go_with_a_line_and_stays_open_when_one_is_missing() {
    let model = ModelServer::scripted(|_| Reply::text("Good day"));
    let daemon = start(&model).await;
    for name in ["one.png", "with space.png"] {
        fs::write(daemon.workspace().join(name), picture()).unwrap();
    }
    let mut terminal = daemon.pty(&[]);
    terminal.prompts().await;
    terminal.line("what is @none.png");
    terminal.shows("none.png is not there").await;
    terminal.shows("backquotes").await;
    // Tab completes the name of a file, with what the shell would write for a space.
    terminal.keys("compare @on\t and @with\t");
    terminal.shows("@with\\ space.png").await;
    terminal.line("");
    terminal.shows("with 2 pictures").await;
    terminal.shows("Good day").await;
    assert_eq!(terminal.leaves().await, 0);
    let body: Value = model.requests().last().unwrap().json.clone();
    assert_eq!(body.to_string().matches(PICTURE).count(), 2, "{body}");
    check(&daemon, &[], &model);
}

/// What a provider would refuse is in the history for good, and would be refused with every later prompt.
#[tokio::test]
async fn what_no_model_takes_does_not_come_into_the_history_whoever_sends_it() {
    let model = ModelServer::scripted(|request| match request.last_words().as_str() {
        "say much" if !request.after_tool() => Reply::tool("bash", json!({ "command": "seq 1 40000" })),
        _ => Reply::text("so"),
    });
    let daemon = start(&model).await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "model": "work/w" })).await;
    client.attach(&session).await;
    client.turn(&session, "say much").await;
    let finished = client.transcript().of("tool_finished").next().cloned().unwrap();
    let output = finished.event["blob"].as_str().unwrap_or_else(|| panic!("{}", finished.raw)).to_owned();
    let send = |image: Value| json!({ "session": session, "content": [image] });
    let image = |bytes: &[u8]| json!({ "type": "image", "media_type": "image/png", "data": STANDARD.encode(bytes) });
    let large = [picture(), vec![0; 4 << 20]].concat();
    for (wrong, code) in [
        (image(b"<svg/>"), -31019),
        (json!({ "type": "image", "media_type": "image/png", "blob": output }), -31019),
        (image(&large), -31015),
    ] {
        let refused = client.refused("session/prompt", send(wrong)).await;
        assert_eq!((refused.code, refused.get_hint().is_some()), (code, true), "{refused:?}");
    }
    // What it is called does not matter.
    client.call("session/prompt", send(image(b"\xff\xd8\xff\xe0"))).await;
    client.nth(&session, "turn_finished", 2).await;
    let shown = client.transcript().of("prompt_accepted").last().cloned().unwrap();
    assert_eq!(shown.event["content"][0]["media_type"], "image/jpeg", "{}", shown.raw);
    assert!(model.requests().last().unwrap().messages().contains("image/jpeg"));
    check(&daemon, &[&client], &model);
}

/// How each format's servers refuse images, with what status.
fn refusal(format: Format) -> (u16, Value) {
    let said = match format {
        Format::Anthropic => {
            let error = json!({ "type": "invalid_request_error", "message": "messages.0.content.1.image: no image can be processed" });
            return (400, json!({ "type": "error", "error": error }));
        }
        Format::OpenAi => "messages[1]: unknown variant `image_url`, expected `text`",
        Format::Responses => "Invalid content type. image_url is only supported by certain models.",
        Format::Gemini => "Image input modality is not enabled for models/x",
        Format::Ollama => return (500, json!({ "error": "this model is missing data required for image input" })),
    };
    (400, json!({ "error": { "message": said } }))
}

#[tokio::test]
async fn images_that_a_model_refuses_do_not_stop_a_session_for_ever() {
    let model = ModelServer::scripted(|request| {
        let (status, error) = refusal(request.format);
        if request.messages().contains(PICTURE) {
            Reply::status(status).body(&error.to_string())
        } else {
            Reply::text("I see none.")
        }
    });
    let daemon = start(&model).await;
    fs::write(daemon.workspace().join("a.png"), picture()).unwrap();
    let mut seen = Vec::new();
    for format in Format::ALL {
        let asked = model.requests().len();
        let run = daemon.cli(&["run", "-m", name(format), "what is @a.png?"]).cwd(daemon.workspace()).run().await;
        assert_eq!(run.stdout, "I see none.\n", "{run:?}");
        assert!(run.stderr.contains("refused the images"), "{run:?}");
        assert_eq!(model.requests().len(), asked + 2, "{format:?}: refused once, and asked without it");
        let client = daemon.client().await;
        let rows = client.call("session/list", json!({})).await;
        let session = rows[0]["session"].as_str().unwrap().to_owned();
        client.attach(&session).await;
        let trimmed = client.first(&session, "trimmed").await;
        assert_eq!(trimmed.event["images"], json!(["m1"]), "{trimmed:?}");
        // What is said next is answered at once, also by a daemon that has read it all from the log.
        client.prompt(&session, "and now?").await;
        assert_eq!(client.nth(&session, "turn_finished", 2).await.str("stop_reason"), "end_turn");
        daemon.kill_and_restart().await;
        let back = daemon.client().await;
        back.attach(&session).await;
        back.prompt(&session, "and now?").await;
        assert_eq!(back.nth(&session, "turn_finished", 3).await.str("stop_reason"), "end_turn");
        assert_eq!(model.requests().len(), asked + 4, "{format:?}");
        seen.extend([client, back]);
    }
    check(&daemon, &seen.iter().collect::<Vec<_>>(), &model);
}
