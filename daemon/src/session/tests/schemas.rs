//! Answers that have to fit a schema.

use super::*;
use crate::provider::parameter::Parameter;

fn schema() -> Value {
    json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] })
}

impl Scene {
    async fn asks_for_json(&mut self) {
        self.prompted(PromptContent::Text("how many?".to_owned()), When::Queue, Some(schema())).await.unwrap();
        self.ends(1).await;
    }
}

#[tokio::test]
async fn an_answer_that_fits_is_given_with_the_end_of_the_turn() {
    let mut scene = Scene::auto([Answer::text("{\"n\": 3}")]).await;
    scene.asks_for_json().await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue schema "how many?"
    t1 turn_started p1
    t1 message m1 user: "how many?"
    t1 message m2 model: "{\"n\": 3}"
    t1 turn_finished end_turn after 1 = {"n":3}
    "#);
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_asked_for_again() {
    let mut scene = Scene::auto([Answer::text("three"), Answer::text("{\"n\": 3}")]).await;
    scene.asks_for_json().await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue schema "how many?"
    t1 turn_started p1
    t1 message m1 user: "how many?"
    t1 message m2 model: "three"
    t1 message m3 user asks again: "That answer does not fit the JSON Schema: it is not JSON alone: expected ident at line 1 column 2/Gi..."
    t1 message m4 model: "{\"n\": 3}"
    t1 turn_finished end_turn after 2 = {"n":3}
    "#);
}

#[tokio::test]
async fn answers_that_never_fit_end_the_turn() {
    let mut scene = Scene::auto([Answer::text("three"), Answer::text("3"), Answer::text("III")]).await;
    scene.asks_for_json().await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue schema "how many?"
    t1 turn_started p1
    t1 message m1 user: "how many?"
    t1 message m2 model: "three"
    t1 message m3 user asks again: "That answer does not fit the JSON Schema: it is not JSON alone: expected ident at line 1 column 2/Gi..."
    t1 message m4 model: "3"
    t1 turn_finished error after 2: the answer does not fit the schema: 3 is not of type "object"
    "#);
}

#[tokio::test]
async fn a_schema_that_is_none_is_refused() {
    let scene = Scene::auto([]).await;
    let content = PromptContent::Text("how many?".to_owned());
    let error = scene.prompted(content, When::Queue, Some(json!({ "type": 3 }))).await.unwrap_err();
    assert!(error.message.starts_with("invalid schema"), "{}", error.message);
    assert_eq!(scene.transcript().await, "");
}

#[tokio::test]
async fn a_server_that_takes_no_schema_is_told_in_words() {
    let refuses = Answer::fails(FailureClass::Parameter(Parameter::Schema), "no response_format");
    let mut scene = Scene::auto([refuses, Answer::text("{\"n\": 3}")]).await;
    scene.asks_for_json().await;
    insta::assert_snapshot!(format!("{}\n{}", scene.transcript().await, scene.last_request()), @r#"
    prompt_accepted p1 queue schema "how many?"
    t1 turn_started p1
    t1 message m1 user: "how many?"
    t1 notice retry: mock: no response_format; asking again without it, and from now on: `json_schema = false` in [providers.mock.compat] settles it
    t1 message m2 user asks schema: "When everything is done, give the final answer as JSON alone, without a word before or after it, tha..."
    t1 session_changed setup
    t1 message m3 model: "{\"n\": 3}"
    t1 turn_finished end_turn after 1 = {"n":3}
    user: how many?
    user: When everything is done, give the final answer as JSON alone, without a word before or after it, that fits this JSON Schema:
    {"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}
    "#);
}
