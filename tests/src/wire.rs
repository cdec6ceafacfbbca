//! What every line of the wire must be.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::OnceLock;

use boon::{Compiler, SchemaIndex, Schemas};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// What the schema is called while it is read.
const NAME: &str = "schema:/";

/// JSON whose objects have each field once; what stands in it is not kept.
struct Once;

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Once {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        let mut seen = BTreeSet::new();
        while let Some((field, Self)) = map.next_entry::<String, Self>()? {
            if let Some(twice) = seen.replace(field) {
                return Err(A::Error::custom(format!("field `{twice}` stands there twice")));
            }
        }
        Ok(Self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self, A::Error> {
        while let Some(Self) = seq.next_element()? {}
        Ok(Self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(Self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(Self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(Self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(Self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(Self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(Self)
    }
}

/// Fails if `line` is no JSON, or an object in it has a field twice: libraries differ in which of the two they take.
pub fn fields_once(line: &str) -> Result<(), String> {
    serde_json::from_str::<Once>(line).map(|_| ()).map_err(|error| error.to_string())
}

/// Fails if a message is not one of those that `linger help schema` describes.
pub fn fits_schema(message: &Value) -> Result<(), String> {
    static SCHEMA: OnceLock<(Schemas, SchemaIndex)> = OnceLock::new();
    let (schemas, whole) = SCHEMA.get_or_init(|| {
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.add_resource(NAME, linger_protocol::schema::protocol()).expect("a schema");
        let whole = compiler.compile(NAME, &mut schemas).expect("a schema that is good");
        (schemas, whole)
    });
    schemas.validate(message, *whole).map_err(|error| format!("{message} does not fit: {error:#}"))
}

/// As [`fits_schema`], for what stands in an event's notification.
pub fn event_fits_schema(session: &str, cursor: &str, event: &Value) -> Result<(), String> {
    let params = serde_json::json!({ "session": session, "cursor": cursor, "event": event });
    fits_schema(&serde_json::json!({ "jsonrpc": "2.0", "method": "session/event", "params": params }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_schema_takes_what_is_a_message_and_nothing_else() {
        let check = |message: Value, expect: bool| assert_eq!(fits_schema(&message).is_ok(), expect, "{message}");
        let request =
            |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": -3, "method": method, "params": params});
        check(request("session/attach", json!({"session": "s1"})), true);
        check(request("session/attach", json!({"session": 1})), false);
        check(request("session/attach", json!({})), false);
        check(request("no/such", json!({})), false);
        check(json!([request("daemon/status", json!({})), request("model/list", json!(null))]), true);
        check(json!([]), false);
        check(json!({"jsonrpc": "2.0", "id": "a", "result": {"cursor": "1"}}), true);
        check(json!({"jsonrpc": "2.0", "id": "a", "result": 7}), false);
        check(json!({"jsonrpc": "2.0", "id": "a"}), false);
        check(json!({"jsonrpc": "2.0", "result": {}}), false);
        let error = |error: Value| json!({"jsonrpc": "2.0", "id": null, "error": error});
        check(error(json!({"code": -32602, "message": "m", "data": {"path": "session", "hint": "h"}})), true);
        check(error(json!({"code": -32602, "message": "m", "data": {"path": 7}})), false);
        check(
            error(json!({"code": -31001, "message": "m", "data": {"decision": "allow_once", "by": "a", "at": 1}})),
            true,
        );
        check(error(json!({"code": -31001, "message": "m", "data": {"hint": "h"}})), false);
    }

    #[test]
    fn an_event_of_a_kind_that_is_not_known_fits_and_a_wrong_one_of_a_known_kind_does_not() {
        let check =
            |event: Value, expect: bool| assert_eq!(event_fits_schema("s", "1", &event).is_ok(), expect, "{event}");
        check(json!({"kind": "new_thing", "at": 1, "x": []}), true);
        check(json!({"kind": "caught_up", "at": 1}), true);
        check(json!({"kind": "caught_up"}), false);
        check(json!({"at": 1}), false);
        check(json!({"kind": "turn_started", "at": 1, "seq": 2}), false);
        check(json!({"kind": "turn_started", "at": 1, "seq": 2, "prompt": "p1"}), true);
        let block =
            |block: Value| json!({"kind": "message", "at": 1, "message": "m", "role": "user", "content": [block]});
        check(block(json!({"type": "video", "data": "x"})), true);
        check(block(json!({"type": "text"})), false);
        let notice = |code: &str| json!({"kind": "notice", "at": 1, "level": "info", "code": code, "text": "t"});
        check(notice("retry"), true);
        check(notice("something_new"), true);
        let schema = linger_protocol::schema::protocol().to_string();
        assert!(!schema.contains("[`"), "marks of Rust's documentation");
    }
}
