//! A request of a caller that speaks Responses itself: sent as it is, and its events come back as they are.
//!
//! Only the model, `stream` and `store` are linger's; what the caller leaves open is the configuration's.

use std::collections::BTreeMap;

use linger_protocol::message::Usage;
use linger_protocol::session::Effort;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::super::own_fields;
use super::super::types::{Decoder, HttpRequest, StreamEvent};
use super::decode::ResponsesDecoder;

/// The part of `include` that makes reasoning come in a form that can go back.
const ENCRYPTED: &str = "reasoning.encrypted_content";

/// The configuration's part of a forwarded request.
#[derive(Clone, Copy, Debug)]
pub struct ForwardDefaults<'a> {
    /// The model's name at its provider.
    pub model: &'a str,
    /// The most tokens of the answer, where the caller does not say; 0 leaves it to the provider.
    pub max_tokens: u32,
    /// How hard the model thinks, where the caller does not say.
    pub effort: Effort,
    /// Whether reasoning is asked for in encrypted form.
    pub has_encrypted_reasoning: bool,
    /// The user's own fields of the body.
    pub own_fields: &'a Map<String, Value>,
}

/// The request for `text`, a JSON object; every value that stays is sent byte for byte. Fails with the reason.
pub fn request(text: &str, defaults: &ForwardDefaults<'_>) -> Result<HttpRequest, String> {
    let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    fields.retain(|_, value| value.get() != "null");
    let value = |fields: &BTreeMap<String, Box<RawValue>>, name: &str| -> Option<Value> {
        serde_json::from_str(fields.get(name)?.get()).ok()
    };
    let mut own = defaults.own_fields.clone();
    if defaults.max_tokens > 0 {
        own.insert("max_output_tokens".to_owned(), defaults.max_tokens.into());
    }
    if !defaults.effort.is_auto() {
        own_fields::merge(
            &mut own,
            &Map::from_iter([("reasoning".to_owned(), json!({ "effort": defaults.effort.name() }))]),
        );
    }
    let mut set = BTreeMap::new();
    for (name, own) in own {
        match (own, value(&fields, &name)) {
            (own, None) => drop(set.insert(name, own)),
            (Value::Object(mut own), Some(Value::Object(said))) => {
                own_fields::merge(&mut own, &said);
                set.insert(name, own.into());
            }
            (_, Some(_)) => {}
        }
    }
    let mut include = match value(&fields, "include") {
        Some(Value::Array(include)) => include,
        _ => Vec::new(),
    };
    if defaults.has_encrypted_reasoning && !include.iter().any(|part| part == ENCRYPTED) {
        include.push(ENCRYPTED.into());
    }
    if !include.is_empty() {
        set.insert("include".to_owned(), include.into());
    }
    set.extend([
        ("model".to_owned(), defaults.model.into()),
        ("stream".to_owned(), true.into()),
        // What is stored at a provider is out of the user's hands.
        ("store".to_owned(), false.into()),
    ]);
    for (name, value) in set {
        fields.insert(name, to_raw_value(&value).map_err(|error| error.to_string())?);
    }
    let body = serde_json::to_vec(&fields).map_err(|error| error.to_string())?;
    Ok(HttpRequest { path: "/responses".to_owned(), headers: Vec::new(), body })
}

/// Gives each event as it came, and the end as the decoder of the format finds it.
#[derive(Debug, Default)]
pub(super) struct ForwardDecoder {
    inner: ResponsesDecoder,
    /// The events of the inner decoder for one event.
    read: Vec<StreamEvent>,
}

impl ForwardDecoder {
    /// Passes the end on, if there is one.
    fn end(&mut self, out: &mut Vec<StreamEvent>) {
        out.extend(self.read.drain(..).filter(|event| matches!(event, StreamEvent::Done(_) | StreamEvent::Failed(_))));
    }
}

impl Decoder for ForwardDecoder {
    fn feed(&mut self, event: &str, data: &str, out: &mut Vec<StreamEvent>) {
        self.inner.feed(event, data, &mut self.read);
        let has_failed = self.read.iter().any(|event| matches!(event, StreamEvent::Failed(_)));
        if !has_failed && data.trim_start().starts_with('{') {
            out.push(StreamEvent::Native(data.to_owned()));
        }
        self.end(out);
    }

    fn finish(&mut self, out: &mut Vec<StreamEvent>) {
        self.inner.finish(&mut self.read);
        self.end(out);
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }

    fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }

    fn gathered(&self) -> usize {
        self.inner.gathered()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(text: &str, own: &Value) -> Result<String, String> {
        let own_fields = own.as_object().unwrap();
        let defaults = ForwardDefaults {
            model: "gpt",
            max_tokens: 9,
            effort: Effort::Low,
            has_encrypted_reasoning: true,
            own_fields,
        };
        request(text, &defaults).map(|request| String::from_utf8(request.body).unwrap())
    }

    #[test]
    fn every_value_of_the_caller_stays_byte_for_byte() {
        let items = r#"[ {"type":"custom_tool_call","input":"\u00e4\u0000 1e2","n":1e2, "big":123456789012345678901234567890},{"z":1,"a":2,"z":3} ]"#;
        let tools = r#"[{"type":"namespace","tools":[ ]},{"type":"web_search"}]"#;
        let text = format!(r#"{{"model":"p/x","tools":{tools},"input":{items},"store":true,"user":null}}"#);
        let body = sent(&text, &json!({})).unwrap();
        assert!(
            body.contains(&format!(r#""input":{items}"#)) && body.contains(&format!(r#""tools":{tools}"#)),
            "{body}"
        );
        let value: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((&value["model"], &value["store"], &value["stream"]), (&json!("gpt"), &json!(false), &json!(true)));
        assert_eq!(value["include"], json!([ENCRYPTED]));
        assert!(!body.contains("null"), "{body}");
    }

    #[test]
    fn the_configuration_fills_what_the_caller_leaves_open() {
        let value = |text: &str| -> Value {
            let own = json!({ "reasoning": { "summary": "auto" }, "service_tier": "flex", "temperature": 0.5 });
            serde_json::from_str(&sent(text, &own).unwrap()).unwrap()
        };
        let open = value(r#"{"input":"x"}"#);
        assert_eq!(open["reasoning"], json!({ "summary": "auto", "effort": "low" }));
        assert_eq!((&open["max_output_tokens"], &open["service_tier"]), (&json!(9), &json!("flex")));
        let said = value(r#"{"input":"x","reasoning":{"effort":"high"},"max_output_tokens":5,"temperature":0}"#);
        assert_eq!(said["reasoning"], json!({ "summary": "auto", "effort": "high" }));
        assert_eq!((&said["max_output_tokens"], &said["temperature"]), (&json!(5), &json!(0)));
        assert!(sent("[]", &json!({})).is_err());
    }

    #[test]
    fn events_come_as_they_are_and_a_failure_only_as_one() {
        let mut decoder = ForwardDecoder::default();
        let mut out = Vec::new();
        let unknown = r#"{"type":"response.custom_tool_call_input.delta", "delta":"\u00e4"}"#;
        let end =
            r#"{"type":"response.completed","response":{"status":"completed","output":[],"usage":{"input_tokens":3}}}"#;
        decoder.feed("x", unknown, &mut out);
        decoder.feed("x", end, &mut out);
        decoder.feed("", "[DONE]", &mut out);
        assert_eq!(out[..2], [StreamEvent::Native(unknown.to_owned()), StreamEvent::Native(end.to_owned())]);
        assert!(matches!(&out[2..], [StreamEvent::Done(response)] if response.usage.input_tokens == 3), "{out:?}");
        let (mut decoder, mut out) = (ForwardDecoder::default(), Vec::new());
        let failed = r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"slow"}}}"#;
        decoder.feed("x", failed, &mut out);
        assert!(matches!(&out[..], [StreamEvent::Failed(_)]), "{out:?}");
    }
}
