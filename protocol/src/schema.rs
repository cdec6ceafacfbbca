//! The JSON Schema of the protocol, generated from its types: what `linger help schema` prints.

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::error::{Code, RpcError};
use crate::event::{Notification, SESSION_EVENT};
use crate::method::{Visitor, each_method};

/// A schema with `methods` (each with `params` and `result`), `notifications`, `errors` and the shared `$defs`.
pub fn protocol() -> Value {
    struct Collect {
        generator: SchemaGenerator,
        methods: Map<String, Value>,
    }

    impl Visitor for Collect {
        fn method<P: JsonSchema, R: JsonSchema>(&mut self, name: &'static str) {
            let params = self.generator.subschema_for::<P>();
            let result = self.generator.subschema_for::<R>();
            self.methods.insert(name.to_owned(), json!({ "params": params, "result": result }));
        }
    }

    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut collect = Collect { generator, methods: Map::new() };
    each_method(&mut collect);
    let notification = collect.generator.subschema_for::<Notification>();
    let error = collect.generator.subschema_for::<RpcError>();
    let codes: Map<String, Value> =
        Code::ALL.iter().map(|(_, number, name)| (number.to_string(), json!(name))).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "linger protocol",
        "description": "JSON-RPC 2.0 over a local socket, one message a line.",
        "protocol": crate::PROTOCOL,
        "methods": collect.methods,
        "notifications": { SESSION_EVENT: notification },
        "error": error,
        "errors": codes,
        "$defs": collect.generator.take_definitions(true),
    })
}
