//! The result of a server's tool: its text and its images.
//!
//! Pure. Deliberately absent: how much of the text a model reads (`tool::output`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use linger_protocol::message::{ContentBlock, MAX_IMAGE, image_type};
use serde::Deserialize;
use serde::de::DeserializeOwned;
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

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ToolResult {
    content: Vec<Content>,
    structured_content: Option<Value>,
    is_error: bool,
}

/// A block of any kind: what it is, its `type` says.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Content {
    r#type: String,
    text: String,
    data: String,
    mime_type: String,
    uri: String,
    name: String,
    description: String,
    blob: Option<String>,
    resource: Option<Box<Content>>,
}

impl CallResult {
    /// Reads the result of a server; fails if it is none.
    pub(super) fn parse(json: &str) -> Result<Self, String> {
        let written: ToolResult = read(json)?;
        let mut result = Self { is_error: written.is_error, ..Self::default() };
        for block in written.content {
            result.add(block);
        }
        // A server that gives structured content should give it as text too.
        if let Some(structured) = written.structured_content.as_ref().filter(|_| result.text.trim().is_empty()) {
            result.say(&structured.to_string());
        }
        result.structured = written.structured_content;
        Ok(result)
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

    /// Parses the result of `resources/read`.
    pub(super) fn of_resource(json: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct ReadResource {
            contents: Vec<Content>,
        }
        let ReadResource { contents } = read(json)?;
        let mut result = Self::default();
        for content in contents {
            match content.blob {
                Some(data) => result.image(&content.mime_type, data),
                None => result.say(&content.text),
            }
        }
        Ok(result)
    }

    /// Parses the result of `prompts/get`; text that the model is to have said is marked.
    pub(super) fn of_prompt(json: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct GotPrompt {
            messages: Vec<Message>,
        }
        #[derive(Deserialize)]
        struct Message {
            #[serde(default)]
            role: String,
            content: Content,
        }
        let GotPrompt { messages } = read(json)?;
        let mut result = Self::default();
        for Message { role, content } in messages {
            if role == "assistant" {
                result.say("[the model's answer:]");
            }
            result.add(content);
        }
        Ok(result)
    }

    fn add(&mut self, block: Content) {
        match (block.r#type.as_str(), block.resource) {
            ("text", _) => self.say(&block.text),
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
                    None => self.say(&resource.text),
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
        let Ok(bytes) = BASE64.decode(data) else { return };
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
        match BASE64.decode(&data).ok().as_deref().and_then(image_type) {
            Some(media_type) => self.images.push(ContentBlock::image(media_type, data)),
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

/// Reads an object that a server gave.
fn read<T: DeserializeOwned>(json: &str) -> Result<T, String> {
    // Serde would read a list as fields in their order.
    let is_object = json.trim_start().starts_with('{');
    let read =
        if is_object { serde_json::from_str(json) } else { Err(serde::de::Error::custom("it is not an object")) };
    read.map_err(|error: serde_json::Error| format!("the server's result cannot be read: {error}"))
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
        let parsed = CallResult::parse(&result.to_string()).unwrap();
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
        let links = CallResult::parse(&json!({ "content": [link] }).to_string()).unwrap().links;
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
        let made = CallResult::parse(&json!({ "content": [pdf, image] }).to_string()).unwrap().made;
        let made: Vec<_> = made.iter().map(|it| (&*it.name, &*it.content_type, it.bytes.len())).collect();
        assert_eq!(made, [("a.pdf", "application/pdf", 4), ("image.png", "image/png", 9)]);
        let audio = json!({ "type": "audio", "data": "AAAAAA==", "mimeType": "audio/wav" });
        check(json!({ "content": [audio] }), "[audio audio/wav of 4 bytes, left out]", 0, false);
        check(json!({ "content": [{ "type": "video" }] }), "[content of type `video`, left out]", 0, false);
    }

    #[test]
    fn a_link_is_as_long_as_all_its_fields() {
        // The text of a file's link leaves some of them out.
        let link = |mime: usize, description: usize| {
            let (mime, description) = ("m".repeat(mime), "d".repeat(description));
            let link = json!({ "type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": mime, "description": description });
            CallResult::parse(&json!({ "content": [link] }).to_string()).unwrap().links.len()
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
        let result = CallResult::parse(&json!({ "content": content }).to_string()).unwrap();
        let result = result.redacted(|text| text.replace("hunter2", "<redacted>"));
        let made: Vec<_> = result.made.iter().map(|it| (&*it.name, &*it.content_type, &*it.bytes)).collect();
        let expect = |bytes: &'static [u8]| ("<redacted>.txt", "text/<redacted>", bytes);
        assert_eq!(made, [expect(b"TOKEN=<redacted>\n"), expect(b"\xff\x00")]);
    }

    #[test]
    fn structured_content_is_held_against_the_schema_of_the_tool() {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
        let misfit = |result: Value| CallResult::parse(&result.to_string()).unwrap().misfit(&schema);
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
        check(json!({ "content": said, "structuredContent": structured }), "said", 0, false);
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

    #[test]
    fn what_is_no_result_is_an_error() {
        assert!(CallResult::parse("[]").is_err() && CallResult::parse(r#"{"content": 5}"#).is_err());
        assert_eq!(CallResult::parse("{}").unwrap(), CallResult::default());
    }
}
