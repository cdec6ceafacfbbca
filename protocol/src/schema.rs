//! The JSON Schema of the protocol, generated from its types: what `linger help schema` prints.

#[cfg(test)]
mod fields;

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::completion::{self, COMPLETION_EVENT};
use crate::error::{Code, RpcError};
use crate::event::{Notification, SESSION_EVENT};
use crate::events::{self, EVENTS_EVENT};
use crate::method::{Visitor, each_method};
use crate::transport::MAX_BATCH;

/// A schema that every line fits, in either direction. Beside it `methods` (each with `params` and `result`), `notifications`,
/// `error`, `errors` (the names of the codes), and all types in `$defs`.
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
    let any = collect.generator.subschema_for::<events::Notification>();
    let piece = collect.generator.subschema_for::<completion::Notification>();
    let error = collect.generator.subschema_for::<RpcError>();
    let mut types = collect.generator.take_definitions(true);
    types.extend(messages(&collect.methods, [&notification, &any, &piece], &error));
    types.values_mut().for_each(tidy);
    let codes: Map<String, Value> =
        Code::ALL.iter().map(|(_, number, name)| (number.to_string(), json!(name))).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "linger protocol",
        "description": "JSON-RPC 2.0 over a local socket, one message a line.",
        "$ref": "#/$defs/Message",
        "protocol": crate::PROTOCOL,
        "methods": collect.methods,
        "notifications": { SESSION_EVENT: notification, EVENTS_EVENT: any, COMPLETION_EVENT: piece },
        "error": error,
        "errors": codes,
        "$defs": types,
    })
}

/// The types of whole lines.
fn messages(methods: &Map<String, Value>, notifications: [&Schema; 3], error: &Schema) -> Map<String, Value> {
    let object = |description: &str, properties: Value, required: &[&str]| json!({ "type": "object", "description": description, "properties": properties, "required": required });
    let version = json!({ "const": "2.0" });
    let id = json!({ "description": "A string, a number, or null.", "type": ["string", "number", "null"] });
    let request = |(name, types): (&String, &Value)| {
        let params = json!({ "anyOf": [types["params"], { "type": "null" }, { "const": [] }] });
        let properties = json!({ "jsonrpc": version, "id": { "$ref": "#/$defs/Id" }, "method": { "const": name }, "params": params });
        object("A request; without an `id` it is not answered.", properties, &["jsonrpc", "method"])
    };
    let requests: Vec<Value> = methods.iter().map(request).collect();
    let mut results: Vec<&Value> = Vec::new();
    for result in methods.values().map(|types| &types["result"]) {
        if !results.contains(&result) {
            results.push(result);
        }
    }
    let answer = json!({ "jsonrpc": version, "id": { "$ref": "#/$defs/Id" }, "result": { "anyOf": results } });
    let refusal = json!({ "jsonrpc": version, "id": { "$ref": "#/$defs/Id" }, "error": error });
    let notification =
        |method: &str, params: &Schema| json!({ "jsonrpc": version, "method": { "const": method }, "params": params });
    let [event, any, piece] = notifications;
    let (event, any) = (notification(SESSION_EVENT, event), notification(EVENTS_EVENT, any));
    let piece = notification(COMPLETION_EVENT, piece);
    let batch = |of: Value| json!({ "type": "array", "minItems": 1, "maxItems": MAX_BATCH, "items": of });
    let [request, response, session_event, any_event, completion] =
        ["Request", "Response", "SessionEvent", "AnyEvent", "CompletionPiece"]
            .map(|name| json!({ "$ref": format!("#/$defs/{name}") }));
    let message = json!({
        "description": "One line: a request, a response, an event, or a batch of requests or responses.",
        "anyOf": [request, response, session_event, any_event, completion, batch(request.clone()), batch(response.clone())],
    });
    let response = json!({
        "description": "The answer to the request with this `id`; `methods` says which result belongs to which method.",
        "oneOf": [
            object("A success.", answer, &["jsonrpc", "id", "result"]),
            object("An error; `id` is null if the request was not understood.", refusal, &["jsonrpc", "id", "error"]),
        ],
    });
    let request = json!({ "description": "A request of a client.", "oneOf": requests });
    let session_event = object("An event of an attached session.", event, &["jsonrpc", "method", "params"]);
    let any_event =
        object("An event of any session, for a subscription to all of them.", any, &["jsonrpc", "method", "params"]);
    let piece = object("A piece of a completion without a session.", piece, &["jsonrpc", "method", "params"]);
    let types = [("Message", message), ("Request", request), ("Response", response), ("Id", id)];
    types
        .into_iter()
        .chain([("SessionEvent", session_event), ("AnyEvent", any_event), ("CompletionPiece", piece)])
        .map(|(name, schema)| (name.to_owned(), schema))
        .collect()
}

/// Makes the variant that stands for what this build does not know into what it is on the wire: any other word.
pub(crate) fn open(schema: &mut Schema) {
    let Some(Value::Array(variants)) = schema.get_mut("oneOf") else { return };
    // Where the word stands in a variant: it is the value itself, or one of its fields.
    let places = ["/const", "/properties/kind/const", "/properties/type/const"];
    let word = |variant: &Value| places.iter().find_map(|place| Some((*place, variant.pointer(place)?.clone())));
    let known: Vec<Value> =
        variants.iter().filter_map(word).map(|(_, word)| word).filter(|word| word != "unknown").collect();
    for variant in variants {
        let Some((place, _)) = word(variant).filter(|(_, word)| word == "unknown") else { continue };
        let holder = variant.pointer_mut(place.strip_suffix("/const").unwrap_or_default());
        if let Some(Value::Object(holder)) = holder {
            holder.remove("const");
            holder.insert("not".to_owned(), json!({ "enum": known }));
        }
    }
}

/// Takes the marks of Rust's documentation out of descriptions: ``[`Name`]`` becomes `` `Name` ``.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::String(text)) = fields.get_mut("description") {
                *text = text.replace("[`", "`").replace("`]", "`");
            }
            fields.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}
