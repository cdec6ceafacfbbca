//! What the tests of `usage` share, whether they need a program or not.

use crate::Daemon;
use linger_tests::harness::{Client, Setup};
use linger_tests::model::{Format, ModelServer};
use serde_json::{Value, json};

/// The provider that speaks a format, as `provider/model`.
pub(crate) fn name(format: Format) -> &'static str {
    match format {
        Format::Anthropic => "claude/c",
        Format::OpenAi => "work/w",
        Format::Responses => "gpt/g",
        Format::Gemini => "google/ge",
        Format::Ollama => "llama/l",
    }
}

/// A daemon with a provider for each format, whose models cost the same: 2 dollars a million tokens in, 10 out, 0.5 from the
/// cache, 3 into it.
pub(crate) async fn start(model: &ModelServer) -> Daemon {
    let url = model.url();
    let mut config = format!(
        "[providers.gpt]\nkind = \"openai-responses\"\nbase_url = \"{url}/v1\"\n\
         [providers.google]\nkind = \"gemini\"\nbase_url = \"{url}/v1beta\"\n\
         [providers.llama]\nkind = \"ollama\"\nbase_url = \"{url}\"\n",
    );
    for format in Format::ALL {
        config += &format!(
            "[models.\"{}\"]\ninput_price = 2\noutput_price = 10\ncache_read_price = 0.5\ncache_write_price = 3\n",
            name(format)
        );
    }
    Daemon::start_with(model, Setup { mode: "auto", config, ..Setup::default() }).await
}

/// The totals of `usage/list`.
pub(crate) async fn total(client: &Client) -> Value {
    client.call("usage/list", json!({})).await["total"].clone()
}

/// The row of a session.
pub(crate) async fn row(client: &Client, session: &str) -> Value {
    client.call("session/list", json!({ "matching": session })).await[0].clone()
}
