//! The example that embeds the daemon does what it says.
#![allow(clippy::unwrap_used)]

#[path = "../examples/embed.rs"]
#[allow(dead_code)] // Its `main` is the program's.
mod embed;

#[tokio::test]
async fn the_model_of_an_embedding_program_calls_a_tool_of_that_program() {
    let said = embed::converse("run: hello").await.unwrap();
    assert!(said.contains("HELLO"), "{said}");
}
