//! A message of JSON-RPC where both ends may ask, as in MCP: a request, a notification, or an answer.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// A line that is read; `R` is what an answer gives, `E` how one fails. Unknown fields are ignored.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "R: Deserialize<'de>, E: Deserialize<'de>"))]
pub struct Message<R = Value, E = IgnoredAny> {
    /// The id of the request, or of the one that is answered; absent in a notification.
    #[serde(default)]
    pub id: Option<Value>,
    /// Absent in an answer.
    #[serde(default)]
    pub method: Option<String>,
    /// Null if there are none.
    #[serde(default)]
    pub params: Value,
    /// Present in an answer; absent if it is null.
    #[serde(default)]
    pub result: Option<R>,
    /// Present in an answer to a request that failed.
    #[serde(default)]
    pub error: Option<E>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_line_is_can_be_told_by_what_it_has() {
        let read = |line: &str| serde_json::from_str::<Message<Value, Value>>(line).unwrap();
        let request = read(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
        assert_eq!(
            (request.id, request.method.as_deref(), request.params),
            (Some(json!(1)), Some("ping"), json!(null))
        );
        let told = read(r#"{"method":"notifications/x","params":{"a":1},"more":true}"#);
        assert_eq!((told.id, told.params), (None, json!({ "a": 1 })));
        let answer = read(r#"{"id":"s1","result":{"b":2}}"#);
        assert_eq!((answer.method, answer.result, answer.error), (None, Some(json!({ "b": 2 })), None));
        let failed = read(r#"{"id":"s1","error":{"code":-1,"message":"no"}}"#);
        assert!(failed.result.is_none() && failed.error.is_some());
        assert!(serde_json::from_str::<Message>("7").is_err());
    }
}
