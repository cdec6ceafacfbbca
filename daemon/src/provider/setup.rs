//! The fingerprint of a request's prefix: tools, system prompt, and the provider's wire format and flags.
//!
//! While it stays, each request begins like the one before it, and the provider's cache hits; an event names each change.
//! Pure. Deliberately absent: parts with their own events (model, instructions, effort, a schema).

use linger_protocol::session::{Effort, PrefixFingerprint};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::compat::Compat;
use super::kind::ProviderKind;
use super::types::RequestPrefix;

/// The length of a digest, in characters: 64 bits distinguish the few prefixes of a session.
const DIGEST: usize = 16;

/// The fingerprint of requests that begin with `prefix`, for the wire format and flags of the provider, the model's default effort,
/// and the user's own fields of the body.
pub fn setup(
    prefix: &RequestPrefix<'_>,
    kind: ProviderKind,
    compat: &Compat,
    effort: Effort,
    own_fields: &Map<String, Value>,
) -> PrefixFingerprint {
    let hosted_tools = compat.hosted.tools();
    let hosted: Vec<&str> = hosted_tools.iter().map(|tool| tool.name()).collect();
    let (hosted, flags) = (hosted.join(" "), compat.encoded());
    let RequestPrefix { origin, system, tools } = prefix;
    let (version, tools, effort) = (env!("CARGO_PKG_VERSION"), tools.digest(), effort.name());
    let own_fields = if own_fields.is_empty() { String::new() } else { Value::from(own_fields.clone()).to_string() };
    let digest = short(&format!("{version}\0{system}\0{tools}\0{origin}\0{flags}\0{hosted}\0{effort}{own_fields}"));
    PrefixFingerprint { kind: kind.name().to_owned(), hosted_tools, digest }
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
    use super::super::types::{ToolSpec, ToolSpecs};
    use super::*;

    #[test]
    fn a_setup_is_another_one_when_anything_of_it_is() {
        let tools = |description: &str| {
            let input_schema = json!({ "type": "object" });
            ToolSpecs::new(vec![ToolSpec { name: "ls".into(), description: description.into(), input_schema }])
        };
        let (system, lists, shows) = ("You are", tools("Lists"), tools("Shows"));
        let own = RequestPrefix { origin: "a/b", system, tools: &lists };
        let none = Map::new();
        let of = |prefix: RequestPrefix<'_>, kind, compat: Compat, effort| setup(&prefix, kind, &compat, effort, &none);
        let format = (ProviderKind::Anthropic, Compat::NONE);
        let usual = |prefix: RequestPrefix<'_>| of(prefix, format.0, format.1, Effort::Auto);
        let hosted = Compat { hosted: Hosted { web_search: true, code_execution: false }, ..Compat::NONE };
        let thinking = Compat { thinking_budget: Some(true), ..Compat::NONE };
        let plain = usual(own);
        assert_eq!(plain, usual(RequestPrefix { tools: &tools("Lists"), ..own }));
        assert_eq!((plain.kind.as_str(), plain.digest.len()), ("anthropic", DIGEST));
        let cool = json!({ "temperature": 0 });
        let others = [
            usual(RequestPrefix { system: "You were", ..own }),
            usual(RequestPrefix { tools: &shows, ..own }),
            usual(RequestPrefix { origin: "a/c", ..own }),
            of(own, ProviderKind::Openai, Compat::NONE, Effort::Auto),
            of(own, ProviderKind::Anthropic, thinking, Effort::Auto),
            of(own, ProviderKind::Anthropic, hosted, Effort::Auto),
            of(own, ProviderKind::Anthropic, Compat::NONE, Effort::High),
            setup(&own, ProviderKind::Anthropic, &Compat::NONE, Effort::Auto, cool.as_object().unwrap()),
        ];
        assert!(others.iter().all(|other| *other != plain), "{others:?}");
        assert_eq!(others[5].hosted_tools, [HostedTool::WebSearch]);
    }
}
