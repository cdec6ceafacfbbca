//! Revisions of MCP that linger's servers speak: one list for both, the tools of `lingerd` and the sessions of `linger`.
//!
//! Source: MCP 2025-11-25 (a handshake) and 2026-07-28 (each request says its version; `server/discover`; a result may want
//! input). A host of either era is served on the same pipe.

use serde_json::{Value, json};

/// The revisions that begin with a handshake, newest first.
pub const HANDSHAKE: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The revision in which each request says its own.
pub const PER_REQUEST: &str = "2026-07-28";

/// The keys of `_meta` that a request of [`PER_REQUEST`] has.
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";

/// Where a server says what it is.
const INFO_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// How long a list of tools may be kept, in milliseconds: it never changes.
const LIST_TTL_MS: u64 = 3_600_000;

/// How a request says what it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// By a handshake before.
    Handshake,
    /// In its `_meta`.
    PerRequest,
}

/// A request whose revision is not spoken: the JSON-RPC error that it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRevision {
    /// The code of the error.
    pub code: i64,
    /// The sentence for people.
    pub message: String,
    /// The revisions to choose from, and the one that was asked for.
    pub data: Option<Value>,
}

impl Era {
    /// The era of a request with these params. Fails if its revision is not known.
    pub fn of(params: &Value) -> Result<Self, RefusedRevision> {
        match meta(params, VERSION_KEY) {
            None => Ok(Self::Handshake),
            Some(version) if version == PER_REQUEST => match meta(params, CAPABILITIES_KEY) {
                Some(Value::Object(_)) => Ok(Self::PerRequest),
                _ => {
                    let message = format!("`_meta` needs {CAPABILITIES_KEY}, an object");
                    Err(RefusedRevision { code: -32602, message, data: None })
                }
            },
            Some(version) => {
                let data = Some(json!({ "supported": [PER_REQUEST], "requested": version }));
                let message = "this version of the protocol is not supported".to_owned();
                Err(RefusedRevision { code: -32022, message, data })
            }
        }
    }

    /// Marks a result as complete where results say so.
    pub fn complete(self, mut result: Value) -> Value {
        if let (Self::PerRequest, Some(result)) = (self, result.as_object_mut()) {
            result.insert("resultType".to_owned(), "complete".into());
        }
        result
    }

    /// The result of `tools/list`.
    pub fn listed(self, tools: &Value) -> Value {
        match self {
            Self::Handshake => json!({ "tools": tools }),
            Self::PerRequest => self.complete(json!({ "tools": tools, "ttlMs": LIST_TTL_MS, "cacheScope": "public" })),
        }
    }
}

/// The revision that a handshake agrees on: the one that the host wants, or else the newest.
pub fn agreed(params: &Value) -> &'static str {
    let wanted = params.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
    HANDSHAKE.into_iter().find(|revision| *revision == wanted).unwrap_or(HANDSHAKE[0])
}

/// The result of `server/discover`.
pub fn discovered(capabilities: &Value, info: &Value, instructions: Option<&str>) -> Value {
    let versions: Vec<&str> = std::iter::once(PER_REQUEST).chain(HANDSHAKE).collect();
    let mut result = json!({
        "supportedVersions": versions, "capabilities": capabilities, "serverInfo": info, "_meta": { INFO_KEY: info },
        "ttlMs": LIST_TTL_MS, "cacheScope": "public", "resultType": "complete",
    });
    if let (Some(instructions), Some(result)) = (instructions, result.as_object_mut()) {
        result.insert("instructions".to_owned(), instructions.into());
    }
    result
}

/// Whether the host can show forms, by the capabilities in the params: of a handshake, or of a request that has its own.
pub fn takes_forms(params: &Value) -> bool {
    let capabilities = meta(params, CAPABILITIES_KEY).or_else(|| params.get("capabilities"));
    let forms = capabilities.and_then(|all| all.get("elicitation")).and_then(Value::as_object);
    // Empty, it means forms.
    forms.is_some_and(|forms| forms.is_empty() || forms.contains_key("form"))
}

fn meta<'a>(params: &'a Value, key: &str) -> Option<&'a Value> {
    params.get("_meta").and_then(|meta| meta.get(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_revision_with_a_handshake_is_agreed_on_and_an_unknown_one_is_answered_with_the_newest() {
        for revision in HANDSHAKE {
            assert_eq!(agreed(&json!({ "protocolVersion": revision })), revision);
        }
        for params in
            [json!({}), json!({ "protocolVersion": "1999-01-01" }), json!({ "protocolVersion": 5 }), json!(null)]
        {
            assert_eq!(agreed(&params), HANDSHAKE[0], "{params}");
        }
    }

    #[test]
    fn a_request_says_its_revision_and_capabilities_or_relies_on_the_handshake() {
        let with = |version: &str, capabilities: Value| json!({ "_meta": { VERSION_KEY: version, CAPABILITIES_KEY: capabilities } });
        assert_eq!(Era::of(&json!({})), Ok(Era::Handshake));
        assert_eq!(Era::of(&with(PER_REQUEST, json!({}))), Ok(Era::PerRequest));
        assert_eq!(Era::of(&with(PER_REQUEST, json!(null))).unwrap_err().code, -32602);
        let unknown = Era::of(&with("2030-01-01", json!({}))).unwrap_err();
        assert_eq!((unknown.code, &unknown.data.unwrap()["supported"]), (-32022, &json!([PER_REQUEST])));
        assert!(takes_forms(&with(PER_REQUEST, json!({ "elicitation": {} }))));
        assert!(!takes_forms(&with(PER_REQUEST, json!({ "elicitation": { "url": {} } }))));
        assert!(takes_forms(&json!({ "capabilities": { "elicitation": { "form": {} } } })));
        assert!(!takes_forms(&json!({ "capabilities": { "elicitation": true } })));
    }
}
