//! What the tests of `providers` share, whether they need a program or not.

use linger_tests::harness::{Client, Setup};
use linger_tests::model::{Format, ModelServer, PATIENCE};

use crate::Daemon;

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

pub(crate) const GPT_KEY: &str = "canary-of-gpt-0123456789";
pub(crate) const GOOGLE_KEY: &str = "canary-of-google-0123456789";

/// A daemon with a provider for each format, which does not ask.
pub(crate) async fn start(model: &ModelServer) -> Daemon {
    start_with(model, "").await
}

/// As [`start`], with more of a configuration.
pub(crate) async fn start_with(model: &ModelServer, more: &str) -> Daemon {
    let url = model.url();
    let config = format!(
        "[providers.gpt]\nkind = \"openai-responses\"\nbase_url = \"{url}/v1\"\napi_key_env = \"GPT_KEY\"\npatience = \"{PATIENCE}\"\n\
         [providers.google]\nkind = \"gemini\"\nbase_url = \"{url}/v1beta\"\napi_key_env = \"GOOGLE_KEY\"\npatience = \"{PATIENCE}\"\n\
         [providers.llama]\nkind = \"ollama\"\nbase_url = \"{url}\"\npatience = \"{PATIENCE}\"\n{more}",
    );
    let env = [("GPT_KEY", GPT_KEY), ("GOOGLE_KEY", GOOGLE_KEY)];
    let env = env.map(|(name, key)| (name.to_owned(), key.to_owned())).to_vec();
    Daemon::start_with(model, Setup { mode: "auto", top: "titles = \"off\"\n", config, env, ..Setup::default() }).await
}

/// Nothing that must always hold was broken, and no key is anywhere but in its header.
pub(crate) fn check(daemon: &Daemon, clients: &[&Client], model: &ModelServer) {
    let mut trace = daemon.trace(clients, model);
    trace.canaries.extend([GPT_KEY.to_owned(), GOOGLE_KEY.to_owned()]);
    linger_tests::check::assert_holds(&trace);
    model.verify();
}
