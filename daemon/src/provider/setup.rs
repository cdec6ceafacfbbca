//! What requests to a model have beside the conversation: the tools, the system prompt, and how its provider is spoken to.
//!
//! While that stays, each request begins as the one before it did, and the provider's cache hits; an event names the change.
//! Pure. Deliberately absent: what a session's own events say of it (model, instructions, effort, a schema).

use linger_protocol::session::{Effort, Setup};
use sha2::{Digest as _, Sha256};

use super::ToolSpec;
use super::catalogue::Kind;
use super::compat::Compat;

/// Characters of a digest: 64 bits tell apart the few setups that a session ever has.
const DIGEST: usize = 16;

/// What linger itself adds to every request.
#[derive(Debug)]
pub struct Own(String);

impl Own {
    /// Of this build, with this system prompt and these tools.
    pub fn new(system: &str, tools: &[ToolSpec]) -> Self {
        let tools = tools.iter().map(|tool| format!("{}\0{}\0{}\0", tool.name, tool.description, tool.input_schema));
        Self(short(&format!("{}\0{system}\0{}", env!("CARGO_PKG_VERSION"), tools.collect::<String>())))
    }
}

/// The setup of a model: its provider's wire format and flags, and how hard it thinks unless a session says otherwise.
pub fn setup(own: &Own, origin: &str, kind: Kind, compat: Compat, effort: Effort) -> Setup {
    // The debug form names every flag: one that is added changes the digest, as a new build does anyway.
    let digest = short(&format!("{}\0{origin}\0{compat:?}\0{}", own.0, effort.name()));
    Setup { kind: kind.name().to_owned(), hosted_tools: compat.hosted.tools(), digest }
}

fn short(text: &str) -> String {
    let mut hex = Sha256::digest(text.as_bytes()).iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    hex.truncate(DIGEST);
    hex
}

#[cfg(test)]
mod tests {
    use linger_protocol::message::HostedTool;
    use serde_json::json;

    use super::super::hosted::Hosted;
    use super::*;

    #[test]
    fn a_setup_is_another_one_when_anything_of_it_is() {
        let tool = |description: &str| ToolSpec {
            name: "ls".into(),
            description: description.into(),
            input_schema: json!({ "type": "object" }),
        };
        let own = Own::new("You are", &[tool("Lists")]);
        let hosted = Compat { hosted: Hosted { web_search: true, code_execution: false }, ..Compat::NONE };
        let plain = setup(&own, "a/b", Kind::Anthropic, Compat::NONE, Effort::Auto);
        assert_eq!(plain, setup(&own, "a/b", Kind::Anthropic, Compat::NONE, Effort::Auto));
        assert_eq!((plain.kind.as_str(), plain.digest.len()), ("anthropic", DIGEST));
        let others = [
            setup(&Own::new("You were", &[tool("Lists")]), "a/b", Kind::Anthropic, Compat::NONE, Effort::Auto),
            setup(&Own::new("You are", &[tool("Shows")]), "a/b", Kind::Anthropic, Compat::NONE, Effort::Auto),
            setup(&own, "a/c", Kind::Anthropic, Compat::NONE, Effort::Auto),
            setup(&own, "a/b", Kind::Openai, Compat::NONE, Effort::Auto),
            setup(&own, "a/b", Kind::Anthropic, Compat { thinking_budget: Some(true), ..Compat::NONE }, Effort::Auto),
            setup(&own, "a/b", Kind::Anthropic, hosted, Effort::Auto),
            setup(&own, "a/b", Kind::Anthropic, Compat::NONE, Effort::High),
        ];
        assert!(others.iter().all(|other| *other != plain), "{others:?}");
        assert_eq!(others[5].hosted_tools, [HostedTool::WebSearch]);
    }
}
