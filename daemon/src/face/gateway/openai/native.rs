//! An answer that is the provider's own: events of OpenAI's Responses, byte for byte.

use std::collections::BTreeMap;

use hyper::StatusCode;
use hyper::body::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::piece::{AnswerPiece, AnswerStream};
use crate::face::gateway::reply::{Failure, Reply, json_of, text_json};

/// An event, as far as it is read.
#[derive(Deserialize)]
struct NativeEvent<'a> {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
    #[serde(borrow)]
    item: Option<&'a RawValue>,
}

/// An event as a stream has it.
pub(super) fn lines(data: &str) -> Bytes {
    let event: Option<NativeEvent<'_>> = serde_json::from_str(data).ok();
    let kind = event.map(|event| event.kind).unwrap_or_default();
    let mut text = if kind.is_empty() { String::new() } else { format!("event: {kind}\n") };
    for line in data.lines() {
        text.push_str("data: ");
        text.push_str(line);
        text.push('\n');
    }
    text.push('\n');
    Bytes::from(text)
}

/// The response of the last event, which is the whole answer.
pub(super) async fn whole(running: &mut AnswerStream) -> Result<Reply, Failure> {
    let mut items: Vec<Box<RawValue>> = Vec::new();
    let mut last: Option<Box<RawValue>> = None;
    loop {
        match running.pieces.recv().await {
            Some(AnswerPiece::Native(data)) => {
                let Ok(event) = serde_json::from_str::<NativeEvent<'_>>(&data) else { continue };
                if let Some(response) = event.response {
                    last = Some(response.to_owned());
                }
                items.extend(event.item.filter(|_| event.kind == "response.output_item.done").map(ToOwned::to_owned));
            }
            Some(AnswerPiece::Finished(_)) => {
                let last = last.ok_or_else(|| Failure::unavailable("the provider sent no response"))?;
                return with_items(&last, items);
            }
            Some(AnswerPiece::Failed(failure)) => return Err(failure),
            Some(_) => {}
            None => return Err(Failure::unavailable("the answer was cut off")),
        }
    }
}

/// A response with its items, which some servers send before it only.
fn with_items(response: &RawValue, items: Vec<Box<RawValue>>) -> Result<Reply, Failure> {
    let mut fields: BTreeMap<&str, &RawValue> = serde_json::from_str(response.get()).unwrap_or_default();
    let output = fields.get("output").map(|output| output.get());
    if items.is_empty() || !matches!(output, None | Some("[]" | "null")) {
        return Ok(text_json(StatusCode::OK, response.get().to_owned()));
    }
    let failed = |error: serde_json::Error| Failure::unavailable(error.to_string());
    let items = serde_json::value::to_raw_value(&items).map_err(failed)?;
    fields.insert("output", &items);
    json_of(&fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_keeps_its_bytes() {
        let data = "{\"type\":\"response.x\", \"a\":\"\\u00e4\"}";
        assert_eq!(lines(data), format!("event: response.x\ndata: {data}\n\n"));
        assert_eq!(lines("{\n1"), "data: {\ndata: 1\n\n");
    }
}
