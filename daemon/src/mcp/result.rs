//! The result of a server's tool: its text and its images.
//!
//! Pure. Deliberately absent: how much of the text a model reads (`tool::output`).

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD as BASE64, STANDARD_NO_PAD as BASE64_LENIENT};
use linger_protocol::message::{ContentBlock, MAX_IMAGE, image_type};
use serde_json::Value;

use crate::provider::schema::fits;
use crate::tool::Made;

/// The most images of one result.
const MAX_IMAGES: usize = 8;

/// The most links of one result.
const MAX_LINKS: usize = 64;

/// The longest link, in bytes of all its fields: an address with a name and a sentence.
const MAX_LINK: usize = 2 << 10;

/// The result of `tools/call`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct CallResult {
    /// All text, blocks on lines of their own.
    pub(super) text: String,
    /// The images, after the text.
    pub(super) images: Vec<ContentBlock>,
    /// The links, after those.
    pub(super) links: Vec<ContentBlock>,
    /// The files that came as bytes, images among them.
    pub(super) made: Vec<Made>,
    /// Whether the tool failed.
    pub(super) is_error: bool,
    /// The structured content, if it has some.
    pub(super) structured: Option<Value>,
}

/// The most bytes of a string in a block that is shown as its JSON; a longer one is a picture or a file.
const MAX_STRING: usize = 1 << 10;

/// The most values of structured content that are looked for in the text.
const MAX_VALUES: usize = 1000;

/// A block of any kind: what it is, its `type` says.
#[derive(Default)]
struct Content {
    r#type: String,
    text: Option<String>,
    data: String,
    mime_type: String,
    uri: String,
    name: String,
    description: String,
    blob: Option<String>,
    resource: Option<Box<Content>>,
}

impl Content {
    /// Reads a block, where `null` is what is absent. Fails on a field that is no text.
    fn of(block: &Value) -> Option<Self> {
        let fields = block.as_object()?;
        let text = |name: &str| match fields.get(name) {
            None | Some(Value::Null) => Some(None),
            Some(Value::String(text)) => Some(Some(text.clone())),
            Some(_) => None,
        };
        let resource = match fields.get("resource") {
            None | Some(Value::Null) => None,
            Some(inner) => Some(Box::new(Self::of(inner)?)),
        };
        let mime_type = text("mimeType")?.or(text("mime_type")?).unwrap_or_default();
        Some(Self {
            r#type: text("type")?.unwrap_or_default(),
            text: text("text")?,
            data: text("data")?.unwrap_or_default(),
            mime_type,
            uri: text("uri")?.unwrap_or_default(),
            name: text("name")?.unwrap_or_default(),
            description: text("description")?.unwrap_or_default(),
            blob: text("blob")?,
            resource,
        })
    }

    /// The kind of block; some servers leave out the type of a text.
    fn kind(&self) -> &str {
        match self.r#type.as_str() {
            "" if self.text.is_some() => "text",
            kind => kind,
        }
    }
}

impl CallResult {
    /// Reads the result of a server. What cannot be read of it is shown as it is.
    pub(super) fn parse(json: &str) -> Self {
        let mut result = Self::default();
        let mut written: Value = serde_json::from_str(json).unwrap_or_else(|_| json.into());
        let Some(fields) = written.as_object_mut() else {
            result.value(&written);
            return result;
        };
        let mut take = |name: &str| fields.remove(name).filter(|value| !value.is_null());
        result.is_error = match take("isError") {
            Some(Value::Bool(is_error)) => is_error,
            Some(Value::String(text)) => text.eq_ignore_ascii_case("true"),
            Some(Value::Number(number)) => number.as_f64() != Some(0.0),
            _ => false,
        };
        let structured = take("structuredContent");
        let has_content = match take("content") {
            Some(content) => {
                result.blocks(content);
                true
            }
            None => false,
        };
        // A server that gives structured content should give it as text too.
        if let Some(structured) = structured.as_ref().filter(|structured| !is_said(structured, &result.text)) {
            result.say(&structured.to_string());
        }
        // The result of another protocol, or of an older revision: all of it is what there is.
        let others = fields.keys().any(|key| !key.starts_with('_') && key != "resultType");
        if !has_content && structured.is_none() && others {
            result.value(&written);
        }
        result.structured = structured;
        result
    }

    /// Adds all blocks of a `content`: a list, or only one of them.
    fn blocks(&mut self, content: Value) {
        match content {
            Value::Array(blocks) => {
                for block in blocks {
                    self.block(block);
                }
            }
            // Some languages write an empty list so.
            Value::Object(fields) if fields.is_empty() => {}
            block => self.block(block),
        }
    }

    /// Adds a block; one that cannot be read is shown as its JSON.
    fn block(&mut self, block: Value) {
        let known = Content::of(&block).filter(|it| match it.kind() {
            "text" => it.text.is_some(),
            "resource" => it.resource.is_some(),
            "image" | "audio" => !it.data.is_empty(),
            "resource_link" => !it.uri.is_empty() || !it.name.is_empty(),
            _ => false,
        });
        match known {
            Some(known) => self.add(known),
            None if is_empty_text(&block) => {}
            None => self.value(&block),
        }
    }

    /// Shows a value: a string as it is, anything else as JSON without its long strings.
    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => {}
            Value::String(text) => self.say(text),
            other => self.say(&shortened(other).to_string()),
        }
    }

    /// The same with `redact` applied to each text that people or models read, and to each file that is text.
    pub(super) fn redacted(mut self, redact: impl Fn(&str) -> String) -> Self {
        self.text = redact(&self.text);
        for made in &mut self.made {
            made.name = redact(&made.name);
            made.content_type = redact(&made.content_type);
            if let Ok(text) = std::str::from_utf8(&made.bytes) {
                made.bytes = redact(text).into_bytes();
            }
        }
        for link in &mut self.links {
            if let ContentBlock::ResourceLink { uri, name, media_type, description } = link {
                let texts = [Some(uri), Some(name), media_type.as_mut(), description.as_mut()];
                texts.into_iter().flatten().for_each(|text| *text = redact(text));
            }
        }
        self
    }

    /// How the structured content of a success differs from the schema that the tool has for it.
    pub(super) fn misfit(&self, schema: &Value) -> Option<String> {
        match &self.structured {
            _ if self.is_error => None,
            None => Some("it has no structured content".to_owned()),
            Some(structured) => fits(schema, structured).err(),
        }
    }

    /// Parses the result of `resources/read`; fails if it has no contents.
    pub(super) fn of_resource(json: &str) -> Result<Self, String> {
        let mut result = Self::default();
        for content in list(json, "contents")? {
            match Content::of(&content) {
                Some(Content { blob: Some(data), mime_type, .. }) => result.image(&mime_type, data),
                Some(Content { text: Some(text), .. }) => result.say(&text),
                _ => result.value(&content),
            }
        }
        Ok(result)
    }

    /// Parses the result of `prompts/get`, where text that the model is to have said is marked; fails if it has no messages.
    pub(super) fn of_prompt(json: &str) -> Result<Self, String> {
        let mut result = Self::default();
        for mut message in list(json, "messages")? {
            if message.get("role").is_some_and(|role| role == "assistant") {
                result.say("[the model's answer:]");
            }
            match message.get_mut("content").map(Value::take) {
                Some(content) => result.blocks(content),
                None => result.value(&message),
            }
        }
        Ok(result)
    }

    fn add(&mut self, block: Content) {
        let kind = block.kind().to_owned();
        match (kind.as_str(), block.resource) {
            ("text", _) => self.say(&block.text.unwrap_or_default()),
            ("image", _) => {
                self.keep(String::new(), &block.mime_type, &block.data);
                self.image(&block.mime_type, block.data);
            }
            ("resource", Some(resource)) => {
                self.say(&format!("[resource {}]", resource.uri));
                match resource.blob {
                    Some(data) => {
                        let name = resource.uri.rsplit('/').next().unwrap_or_default().to_owned();
                        self.keep(name, &resource.mime_type, &data);
                        self.image(&resource.mime_type, data);
                    }
                    None => self.say(&resource.text.unwrap_or_default()),
                }
            }
            ("resource_link", _) => {
                let said = |text: String| (!text.is_empty()).then(|| text.replace('\0', "\u{fffd}"));
                let size = [&block.uri, &block.name, &block.mime_type, &block.description].map(String::len);
                let link = ContentBlock::ResourceLink {
                    uri: said(block.uri).unwrap_or_default(),
                    name: said(block.name).unwrap_or_default(),
                    media_type: said(block.mime_type),
                    description: said(block.description),
                };
                // Too many, or one that is too long, are text, which is cut.
                let long = link.resource_text().unwrap_or_default();
                if self.links.len() < MAX_LINKS && size.iter().sum::<usize>() <= MAX_LINK {
                    self.links.push(link)
                } else {
                    self.say(&long)
                }
            }
            ("audio", _) => {
                self.keep(String::new(), &block.mime_type, &block.data);
                self.say(&format!("[audio {} of {} bytes, left out]", block.mime_type, bytes(&block.data)));
            }
            (other, _) => self.say(&format!("[content of type `{other}`, left out]")),
        }
    }

    /// Keeps a file; without a name it is called what it is.
    fn keep(&mut self, name: String, content_type: &str, data: &str) {
        let Some(bytes) = decoded(data) else { return };
        if bytes.is_empty() || self.made.len() >= MAX_IMAGES {
            return;
        }
        let (kind, ending) = content_type.split_once('/').unwrap_or(("file", "bin"));
        let name = if name.is_empty() { format!("{kind}.{ending}") } else { name };
        self.made.push(Made { name, content_type: content_type.to_owned(), bytes });
    }

    /// Adds an image, if models take it.
    fn image(&mut self, mime_type: &str, data: String) {
        let what = if mime_type.is_empty() { "content" } else { mime_type };
        let size = bytes(&data);
        if size as u64 > MAX_IMAGE || self.images.len() >= MAX_IMAGES {
            return self.say(&format!("[{what} of {size} bytes, left out]"));
        }
        let decoded = decoded(&data);
        match decoded.as_deref().and_then(|bytes| Some((image_type(bytes)?, BASE64.encode(bytes)))) {
            Some((media_type, data)) => self.images.push(ContentBlock::image(media_type, data)),
            None => self.say(&format!("[{what} of {size} bytes, left out]")),
        }
    }

    fn say(&mut self, text: &str) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.text.push_str(&text.replace('\0', "\u{fffd}"));
    }
}

/// Whether a block is a text that says nothing.
fn is_empty_text(block: &Value) -> bool {
    let says_nothing = || block.get("text").is_some_and(Value::is_null);
    block.is_null() || block.get("type").is_some_and(|kind| kind == "text") && says_nothing()
}

/// The items of a list in a result; one alone may stand without it.
fn list(json: &str, name: &str) -> Result<Vec<Value>, String> {
    let mut written: Value =
        serde_json::from_str(json).map_err(|error| format!("the server's result cannot be read: {error}"))?;
    match written.get_mut(name).map(Value::take) {
        Some(Value::Array(items)) => Ok(items),
        Some(Value::Object(fields)) if fields.is_empty() => Ok(Vec::new()),
        Some(item @ Value::Object(_)) => Ok(vec![item]),
        _ => Err(format!("the server's result has no `{name}`")),
    }
}

/// A value without its long strings.
fn shortened(value: &Value) -> Value {
    match value {
        Value::String(text) if text.len() > MAX_STRING => format!("[{} bytes, left out]", text.len()).into(),
        Value::Array(items) => items.iter().map(shortened).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, value)| (name.clone(), shortened(value))).collect())
        }
        other => other.clone(),
    }
}

/// Whether the text says the structured content too: as JSON, or with all its values in other words.
fn is_said(structured: &Value, text: &str) -> bool {
    if text.trim().is_empty() {
        return false;
    }
    if serde_json::from_str::<Value>(text).is_ok_and(|said| said == *structured) {
        return true;
    }
    let (mut values, lower) = (Vec::new(), text.to_lowercase());
    collect(structured, &mut values);
    let has = |value: &&Value| match value {
        Value::String(said) => {
            let quoted = Value::from(said.as_str()).to_string();
            text.contains(said.as_str()) || text.contains(quoted.trim_matches('"'))
        }
        Value::Number(number) => {
            text.contains(&number.to_string()) || number.as_f64().is_some_and(|it| text.contains(&it.to_string()))
        }
        other => lower.contains(&other.to_string()),
    };
    values.len() <= MAX_VALUES && values.iter().all(has)
}

/// The values in a value that are no lists or objects, and not `null`.
fn collect<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::Null => {}
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Object(fields) => fields.values().for_each(|value| collect(value, found)),
        leaf => found.push(leaf),
    }
}

/// The bytes of a file: base64, perhaps on several lines, without padding, for addresses, or in a `data:` address.
fn decoded(data: &str) -> Option<Vec<u8>> {
    let data = data.trim_start();
    let data = match data.strip_prefix("data:") {
        Some(address) => address.split_once(";base64,")?.1,
        None => data,
    };
    let letters: String = data
        .chars()
        .filter(|c| !c.is_whitespace() && *c != '=')
        .map(|c| match c {
            '-' => '+',
            '_' => '/',
            c => c,
        })
        .collect();
    BASE64_LENIENT.decode(letters).ok()
}

/// How many bytes these are in base64.
fn bytes(data: &str) -> usize {
    data.trim_end_matches('=').len() / 4 * 3 + data.trim_end_matches('=').len() % 4 * 3 / 4
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PNG: &str = "iVBORw0KGgoA";

    fn check(result: Value, text: &str, images: usize, is_error: bool) {
        let parsed = CallResult::parse(&result.to_string());
        assert_eq!((parsed.text.as_str(), parsed.images.len(), parsed.is_error), (text, images, is_error));
    }

    #[test]
    fn every_kind_of_content_is_read_or_named() {
        check(json!({ "content": [] }), "", 0, false);
        let two = json!([{ "type": "text", "text": "a" }, { "type": "text", "text": "b\0" }]);
        check(json!({ "content": two, "isError": true }), "a\nb\u{fffd}", 0, true);
        check(json!({ "content": [{ "type": "image", "data": PNG, "mimeType": "image/png" }] }), "", 1, false);
        let bad = json!({ "type": "image", "data": "AAAA", "mimeType": "image/png" });
        check(json!({ "content": [bad] }), "[image/png of 3 bytes, left out]", 0, false);
        let link = json!({ "type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": "text/plain" });
        let links = CallResult::parse(&json!({ "content": [link] }).to_string()).links;
        let expect = ContentBlock::ResourceLink {
            uri: "file:///a".to_owned(),
            name: "a".to_owned(),
            media_type: Some("text/plain".to_owned()),
            description: None,
        };
        assert_eq!(links, [expect]);
        let many: Vec<Value> =
            (0..=MAX_LINKS).map(|n| json!({ "type": "resource_link", "uri": format!("u{n}") })).collect();
        check(json!({ "content": many }), "[resource u64]", 0, false);
        let long = json!({ "type": "resource_link", "uri": "u", "name": "n".repeat(MAX_LINK) });
        check(json!({ "content": [long] }), &format!("[resource u, {}]", "n".repeat(MAX_LINK)), 0, false);
        let text = json!({ "type": "resource", "resource": { "uri": "file:///a", "text": "words" } });
        check(json!({ "content": [text] }), "[resource file:///a]\nwords", 0, false);
        let blob = json!({ "type": "resource", "resource": { "uri": "u", "blob": PNG, "mimeType": "image/png" } });
        check(json!({ "content": [blob] }), "[resource u]", 1, false);
        let pdf = json!({ "type": "resource", "resource": { "uri": "x://d/a.pdf", "blob": "JVBERg==", "mimeType": "application/pdf" } });
        let image = json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
        let made = CallResult::parse(&json!({ "content": [pdf, image] }).to_string()).made;
        let made: Vec<_> = made.iter().map(|it| (&*it.name, &*it.content_type, it.bytes.len())).collect();
        assert_eq!(made, [("a.pdf", "application/pdf", 4), ("image.png", "image/png", 9)]);
        let audio = json!({ "type": "audio", "data": "AAAAAA==", "mimeType": "audio/wav" });
        check(json!({ "content": [audio] }), "[audio audio/wav of 4 bytes, left out]", 0, false);
    }

    #[test]
    fn a_link_is_as_long_as_all_its_fields() {
        // The text of a file's link leaves some of them out.
        let link = |mime: usize, description: usize| {
            let (mime, description) = ("m".repeat(mime), "d".repeat(description));
            let link = json!({ "type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": mime, "description": description });
            CallResult::parse(&json!({ "content": [link] }).to_string()).links.len()
        };
        let room = MAX_LINK - "file:///aa".len();
        assert_eq!((link(room, 0), link(room + 1, 0)), (1, 0));
        assert_eq!((link(room / 2, room - room / 2), link(room / 2, room)), (1, 0));
    }

    #[test]
    fn files_of_text_and_their_types_are_redacted() {
        let blob = |bytes: &[u8]| {
            let resource =
                json!({ "uri": "x://hunter2.txt", "blob": BASE64.encode(bytes), "mimeType": "text/hunter2" });
            json!({ "type": "resource", "resource": resource })
        };
        let content = json!([blob(b"TOKEN=hunter2\n"), blob(b"\xff\x00")]);
        let result = CallResult::parse(&json!({ "content": content }).to_string());
        let result = result.redacted(|text| text.replace("hunter2", "<redacted>"));
        let made: Vec<_> = result.made.iter().map(|it| (&*it.name, &*it.content_type, &*it.bytes)).collect();
        let expect = |bytes: &'static [u8]| ("<redacted>.txt", "text/<redacted>", bytes);
        assert_eq!(made, [expect(b"TOKEN=<redacted>\n"), expect(b"\xff\x00")]);
    }

    #[test]
    fn structured_content_is_held_against_the_schema_of_the_tool() {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
        let misfit = |result: Value| CallResult::parse(&result.to_string()).misfit(&schema);
        assert_eq!(misfit(json!({ "content": [], "structuredContent": { "n": 1 } })), None);
        let wrong = misfit(json!({ "content": [], "structuredContent": { "n": "one" } })).unwrap();
        assert!(wrong.contains("integer"), "{wrong}");
        let none = misfit(json!({ "content": [{ "type": "text", "text": "1" }] }));
        assert_eq!(none.as_deref(), Some("it has no structured content"));
        assert_eq!(misfit(json!({ "content": [], "isError": true })), None, "a failure has another form");
    }

    #[test]
    fn structured_content_is_text_where_there_is_no_other() {
        let structured = json!({ "b": 1, "a": [2] });
        check(json!({ "content": [], "structuredContent": structured }), r#"{"b":1,"a":[2]}"#, 0, false);
        let said = json!([{ "type": "text", "text": "said" }]);
        check(json!({ "content": said, "structuredContent": structured }), "said\n{\"b\":1,\"a\":[2]}", 0, false);
        // What the text says already in other words is not said again.
        let content = json!({ "rows": [{ "town": "Chur", "m": 593.0, "old": true }], "next": null });
        let said = |text: &str| json!({ "content": [{ "type": "text", "text": text }], "structuredContent": content });
        for text in ["Chur (True): 593 m", r#"{"next":null,"rows":[{"m":593.0,"old":true,"town":"Ch\u0075r"}]}"#] {
            check(said(text), text, 0, false);
        }
        check(said("1 town"), &format!("1 town\n{content}"), 0, false);
    }

    #[test]
    fn a_block_that_cannot_be_read_is_shown_as_its_json_and_the_rest_stays() {
        let good = json!({ "type": "text", "text": "good", "annotations": null, "_meta": null });
        let with = |block: Value, shown: &str| {
            let expect = if shown.is_empty() { "good".to_owned() } else { format!("{shown}\ngood") };
            check(json!({ "content": [block, good], "isError": null, "structuredContent": null }), &expect, 0, false);
        };
        with(json!(null), "");
        with(json!({ "type": "text", "text": null }), "");
        with(json!("bare"), "bare");
        with(json!({ "text": "untyped" }), "untyped");
        with(json!({ "type": "text", "text": 7 }), r#"{"type":"text","text":7}"#);
        with(json!({ "type": "text" }), r#"{"type":"text"}"#);
        with(json!({ "type": "table", "rows": [1] }), r#"{"type":"table","rows":[1]}"#);
        with(json!({ "type": "resource", "resource": null }), r#"{"type":"resource","resource":null}"#);
        with(json!({ "type": "image", "data": [1] }), r#"{"type":"image","data":[1]}"#);
        with(json!({ "type": "audio", "data": null }), r#"{"type":"audio","data":null}"#);
        with(json!([1, 2]), "[1,2]");
        with(json!({ "type": "film", "data": "x".repeat(2000) }), r#"{"type":"film","data":"[2000 bytes, left out]"}"#);
        let resource = json!({ "uri": "u", "text": "words", "blob": null, "mimeType": null });
        with(json!({ "type": "resource", "resource": resource }), "[resource u]\nwords");
        check(json!({ "content": { "type": "text", "text": "alone" } }), "alone", 0, false);
        check(json!({ "content": "bare", "isError": "true" }), "bare", 0, true);
        check(json!({ "content": null, "isError": 1 }), "", 0, true);
        check(json!({ "content": {} }), "", 0, false);
        check(json!({ "toolResult": "old" }), r#"{"toolResult":"old"}"#, 0, false);
        check(json!({ "_meta": {}, "resultType": "complete" }), "", 0, false);
        check(json!("done"), "done", 0, false);
        check(json!([1]), "[1]", 0, false);
        check(json!(null), "", 0, false);
    }

    #[test]
    fn an_image_is_read_however_its_base64_is_written() {
        let (head, tail) = PNG.split_at(5);
        for data in [format!("{head}\n{tail}\r\n"), format!("data:image/png;base64,{PNG}"), PNG.replace('=', "")] {
            let result = CallResult::parse(
                &json!({ "content": [{ "type": "image", "data": data, "mimeType": "image/png" }] }).to_string(),
            );
            assert_eq!(result.images, [ContentBlock::image("image/png", PNG.to_owned())], "{data:?}");
        }
    }

    #[test]
    fn resources_and_prompts_are_text_and_images() {
        let image = json!({ "uri": "v", "blob": PNG, "mimeType": "image/png" });
        let contents = json!([{ "uri": "u", "text": "a" }, image, { "uri": "w", "blob": "AAAA" }]);
        let read = CallResult::of_resource(&json!({ "contents": contents }).to_string()).unwrap();
        assert_eq!((read.text.as_str(), read.images.len()), ("a\n[content of 3 bytes, left out]", 1));
        let said = |role: &str, text: &str| json!({ "role": role, "content": { "type": "text", "text": text } });
        let messages = json!({ "messages": [said("user", "ask"), said("assistant", "sure")] });
        let got = CallResult::of_prompt(&messages.to_string()).unwrap();
        assert_eq!(got.text, "ask\n[the model's answer:]\nsure");
        assert!(CallResult::of_prompt("{}").is_err() && CallResult::of_resource("[]").is_err());
    }
}
