//! A user's prompt: content, and the schema of its answer.
//!
//! A request may have megabytes, and JSON takes many times its length once it is taken apart. So here nothing is taken apart
//! that a prompt cannot have: blocks are looked at one by one, and a schema only if it is not too long.

use schemars::JsonSchema;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::id::BlobId;
use crate::message::{ContentBlock, ImageSource};

/// The most blocks of one prompt; a prompt with many pictures has a hundred.
pub const MAX_BLOCKS: usize = 1000;

/// The longest text of a schema that is taken apart, in bytes: with white space, a few times what a schema may have without.
pub const MAX_SCHEMA_TEXT: usize = 256 << 10;

const CONTENT: &str = "content is a text, or a list of blocks of text and images";

/// A user's prompt: a string, or content blocks (text, images, resources and links to them).
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum PromptContent {
    /// Text alone.
    Text(String),
    /// Text, images, resources and links.
    Blocks(Vec<ContentBlock>),
}

impl PromptContent {
    /// The content as blocks.
    pub fn into_blocks(self) -> Vec<ContentBlock> {
        match self {
            Self::Text(text) => vec![ContentBlock::Text { text }],
            Self::Blocks(blocks) => blocks,
        }
    }
}

impl<'de> Deserialize<'de> for PromptContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Content;
        impl<'de> Visitor<'de> for Content {
            type Value = PromptContent;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(CONTENT)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<PromptContent, E> {
                self.visit_string(text.to_owned())
            }

            fn visit_string<E: Error>(self, text: String) -> Result<PromptContent, E> {
                Ok(PromptContent::Text(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<PromptContent, A::Error> {
                let mut blocks = Vec::new();
                while let Some(raw) = seq.next_element::<Box<RawValue>>()? {
                    if blocks.len() == MAX_BLOCKS {
                        return Err(A::Error::custom(format!("a prompt may have {MAX_BLOCKS} blocks")));
                    }
                    blocks.push(block(&raw).map_err(|error| A::Error::custom(format!("{CONTENT}: {error}")))?);
                }
                Ok(PromptContent::Blocks(blocks))
            }
        }
        deserializer.deserialize_any(Content)
    }
}

/// A block of a prompt; one that a prompt cannot have is [`ContentBlock::Unknown`].
fn block(raw: &RawValue) -> serde_json::Result<ContentBlock> {
    #[derive(Deserialize)]
    struct BlockType {
        r#type: String,
    }
    #[derive(Deserialize)]
    struct Text {
        text: String,
    }
    #[derive(Deserialize)]
    struct Image {
        media_type: String,
        data: Option<String>,
        blob: Option<BlobId>,
    }
    #[derive(Deserialize)]
    struct Link {
        uri: String,
        name: String,
        media_type: Option<String>,
        description: Option<String>,
    }
    #[derive(Deserialize)]
    struct Resource {
        uri: String,
        media_type: Option<String>,
        text: String,
    }
    if !raw.get().starts_with('{') {
        return Err(serde_json::Error::custom("a block is an object with a `type`"));
    }
    match serde_json::from_str::<BlockType>(raw.get())?.r#type.as_str() {
        "text" => serde_json::from_str(raw.get()).map(|Text { text }| ContentBlock::Text { text }),
        "image" => {
            let Image { media_type, data, blob } = serde_json::from_str(raw.get())?;
            let source = match (data, blob) {
                (Some(data), _) => ImageSource::Data { data },
                (None, Some(blob)) => ImageSource::Blob { blob, bytes: 0 },
                (None, None) => return Err(serde_json::Error::custom("an image has `data` or a `blob`")),
            };
            Ok(ContentBlock::Image { media_type, source })
        }
        "resource_link" => serde_json::from_str(raw.get()).map(|Link { uri, name, media_type, description }| {
            ContentBlock::ResourceLink { uri, name, media_type, description }
        }),
        "resource" => serde_json::from_str(raw.get())
            .map(|Resource { uri, media_type, text }| ContentBlock::Resource { uri, media_type, text }),
        _ => Ok(ContentBlock::Unknown),
    }
}

/// A schema, unless its text is too long.
pub(crate) fn schema<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    let Some(raw) = Option::<Box<RawValue>>::deserialize(deserializer)? else { return Ok(None) };
    let length = raw.get().len();
    if length > MAX_SCHEMA_TEXT {
        return Err(D::Error::custom(format!("a schema may have {MAX_SCHEMA_TEXT} bytes, and this one has {length}")));
    }
    serde_json::from_str(raw.get()).map(Some).map_err(D::Error::custom)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A panic is how a test speaks.
mod tests {
    use super::*;
    use crate::session::Prompt;

    fn content(json: &str) -> Result<PromptContent, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn content_is_text_or_blocks_of_text_and_images() {
        assert_eq!(content(r#""a\u00e4""#), Ok(PromptContent::Text("aä".to_owned())));
        let blocks = r#"[{"type":"text","text":"x","new":[1]},{"media_type":"image/png","data":"AA==","type":"image"},
            {"type":"image","media_type":"image/png","blob":"sha256:1","bytes":7},
            {"type":"tool_use","input":[1,2,3]},{"type":"brand_new"}]"#;
        let data = ImageSource::Data { data: "AA==".to_owned() };
        let blob = ImageSource::Blob { blob: "sha256:1".into(), bytes: 0 };
        let image = |source| ContentBlock::Image { media_type: "image/png".to_owned(), source };
        let expected =
            [ContentBlock::text("x"), image(data), image(blob), ContentBlock::Unknown, ContentBlock::Unknown];
        assert_eq!(content(blocks), Ok(PromptContent::Blocks(expected.to_vec())));
    }

    #[test]
    fn what_is_wrong_with_content_is_said() {
        for (json, why) in [
            ("7", CONTENT),
            (r#"{"type":"text"}"#, CONTENT),
            ("[7]", "a block is an object with a `type`"),
            ("[[]]", "a block is an object"),
            (r#"[{"text":"x"}]"#, "missing field `type`"),
            (r#"[{"type":"text","text":7}]"#, "expected a string"),
            (r#"[{"type":"image","media_type":"image/png"}]"#, "an image has `data` or a `blob`"),
        ] {
            let error = content(json).unwrap_err();
            assert!(error.contains(why), "{json}: {error}");
        }
        let many = |n: usize| format!("[{}]", vec![r#"{"type":"text","text":"x"}"#; n].join(","));
        assert!(content(&many(MAX_BLOCKS)).is_ok());
        assert!(content(&many(MAX_BLOCKS + 1)).unwrap_err().contains("may have 1000 blocks"));
    }

    #[test]
    fn a_schema_that_is_too_long_is_not_taken_apart() {
        let prompt = |schema: &str| {
            let json = format!(r#"{{"session":"s","content":"x","schema":{schema}}}"#);
            serde_json::from_str::<Prompt>(&json).map(|prompt| prompt.schema).map_err(|error| error.to_string())
        };
        assert_eq!(prompt("null"), Ok(None));
        assert_eq!(prompt(r#"{"a":1}"#), Ok(Some(serde_json::json!({ "a": 1 }))));
        let long = format!("[{}1]", "1,".repeat(MAX_SCHEMA_TEXT / 2));
        assert!(prompt(&long).unwrap_err().contains("a schema may have 262144 bytes, and this one has 262147"));
    }
}
