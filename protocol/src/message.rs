//! Messages: a role and content blocks, and what a provider says when it ends one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{BlobId, CallId};

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The user, and the results of tool calls.
    User,
    /// The model.
    Assistant,
}

/// One piece of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::open)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentBlock {
    /// Plain text, usually Markdown.
    Text {
        /// The text, UTF-8 without NUL.
        text: String,
    },
    /// A model's thinking before its answer.
    Thinking {
        /// The readable part; may be empty when the provider hides it.
        text: String,
        /// Data that the provider wants back unchanged (a signature, encrypted reasoning), in the provider's own form.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        native: Option<Value>,
    },
    /// An image that a user sent, or a tool read.
    Image {
        /// Such as `image/png`.
        media_type: String,
        /// Its bytes, or where they are.
        #[serde(flatten)]
        source: ImageSource,
    },
    /// Something that lies elsewhere, which a user or a tool points to; a model reads its name and address.
    ResourceLink {
        /// Where it is: `file:///home/u/p/a.rs`, or an address of an MCP server's own.
        uri: String,
        /// The name of a file, or a title.
        name: String,
        /// Such as `text/plain`, if it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        media_type: Option<String>,
        /// A description in a few words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
    },
    /// A text that is here, and where it is from; a model reads both.
    Resource {
        /// Where it is from.
        uri: String,
        /// Such as `text/plain`, if it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        media_type: Option<String>,
        /// The whole content.
        text: String,
    },
    /// The model's request to run a tool.
    ToolUse {
        /// The daemon's name for the call.
        call_id: CallId,
        /// The tool.
        name: String,
        /// The arguments: an object, or whatever the model wrote instead (the call then fails, and says so).
        input: Value,
        /// The provider's own identifier and, where they are not canonical JSON, the arguments as it wrote them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        native: Option<Value>,
    },
    /// A request to run a tool that broke off while the model wrote it: it never runs, and no model reads it.
    CutToolUse {
        /// The daemon's name for it.
        call_id: CallId,
        /// The tool.
        name: String,
        /// The beginning of the arguments, as JSON.
        text: String,
    },
    /// The answer to a tool call.
    ToolResult {
        /// The call that is answered.
        call_id: CallId,
        /// Whether the call failed, was denied or did not run.
        #[serde(default)]
        is_error: bool,
        /// The result as the model reads it.
        content: Vec<ContentBlock>,
    },
    /// A call of a provider's own tool, which ran there, or its result.
    Hosted {
        /// The provider's own tool.
        tool: HostedTool,
        /// Which of the two it is.
        part: HostedPart,
        /// For people, and for models of other providers: the query or code, or the sources or output; cut if it is long.
        text: String,
        /// Data that the provider wants back unchanged, in the provider's own form; absent if it was cut.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        native: Option<Value>,
    },
    /// Something that only its provider understands; kept, and given back unchanged.
    Opaque {
        /// The block in the provider's own form.
        native: Value,
    },
    /// A kind of block that this build does not know.
    #[serde(other)]
    Unknown,
}

/// A tool that a provider runs itself, by the name that it has here whatever the provider calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::open)]
#[serde(rename_all = "snake_case")]
pub enum HostedTool {
    /// Looks on the web.
    WebSearch,
    /// Runs code in a sandbox of the provider's.
    CodeExecution,
    /// A tool that this build does not know.
    #[serde(other)]
    Unknown,
}

impl HostedTool {
    /// The tools that can be switched on.
    pub const ALL: [Self; 2] = [Self::WebSearch, Self::CodeExecution];

    /// Its name, in the configuration and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::WebSearch => "web_search",
            Self::CodeExecution => "code_execution",
            Self::Unknown => "unknown",
        }
    }
}

/// A part of a [`ContentBlock::Hosted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::open)]
#[serde(rename_all = "snake_case")]
pub enum HostedPart {
    /// The model's request.
    Call,
    /// The provider's result.
    Result,
    /// Why nothing came of it.
    Error,
    /// Something that this build does not know.
    #[serde(other)]
    Unknown,
}

impl HostedPart {
    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Result => "result",
            Self::Error => "error",
            Self::Unknown => "unknown",
        }
    }
}

/// The bytes of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "an image has `data` (base64) or `blob`")]
pub enum ImageSource {
    /// Here, as a client sends them.
    Data {
        /// The bytes in base64.
        data: String,
    },
    /// Stored, as events have them; `blob/get` gives them.
    Blob {
        /// Their name.
        blob: BlobId,
        /// How many there are; what a client says here is not looked at.
        #[serde(default)]
        bytes: u64,
    },
}

impl ContentBlock {
    /// An image whose bytes are here, in base64.
    pub fn image(media_type: impl Into<String>, data: impl Into<String>) -> Self {
        Self::Image { media_type: media_type.into(), source: ImageSource::Data { data: data.into() } }
    }

    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// The blob that an image is in.
    pub fn blob(&self) -> Option<&BlobId> {
        match self {
            Self::Image { source: ImageSource::Blob { blob, .. }, .. } => Some(blob),
            _ => None,
        }
    }

    /// A resource, or a link to one, as a model reads it: a mention of a file, which it may read, or a text under its address.
    pub fn resource_text(&self) -> Option<String> {
        match self {
            Self::ResourceLink { uri, name, media_type, description } => {
                let path = path_of(uri);
                if path.len() < uri.len() && path.ends_with(name.as_str()) && description.is_none() {
                    return Some(format!("@{path}"));
                }
                let more = [Some(name), media_type.as_ref(), description.as_ref()];
                let more: String =
                    more.into_iter().flatten().filter(|it| !it.is_empty()).map(|it| format!(", {it}")).collect();
                Some(format!("[resource {path}{more}]"))
            }
            Self::Resource { uri, text, .. } => Some(format!("{}:\n{}", path_of(uri), fenced(text))),
            _ => None,
        }
    }

    /// The text of a text block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            _ => None,
        }
    }
}

/// The path of a file's address, or the address.
fn path_of(uri: &str) -> &str {
    uri.strip_prefix("file://").filter(|path| path.starts_with('/')).unwrap_or(uri)
}

/// A text between fences that it does not have itself.
fn fenced(text: &str) -> String {
    let longest = text.lines().map(|line| line.len() - line.trim_start_matches('`').len()).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}")
}

/// The largest image that a client or a tool sends, in bytes; providers refuse about 5 MB in base64.
pub const MAX_IMAGE: u64 = 4 << 20;

/// The media type of an image that models take, by its first bytes; twelve are enough.
pub fn image_type(probe: &[u8]) -> Option<&'static str> {
    match probe {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// The text blocks of `content`, joined by empty lines.
pub fn text_of(content: &[ContentBlock]) -> String {
    // One that is empty stands for what was between others.
    let texts: Vec<&str> = content.iter().filter_map(ContentBlock::as_text).filter(|text| !text.is_empty()).collect();
    texts.join("\n\n")
}

/// How an answer ended, as [`crate::event::EventBody::Message`] says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerEnd {
    /// It is whole.
    #[default]
    Whole,
    /// It was cut off before its end.
    Interrupted,
    /// It was cut at the token limit.
    Cut,
    /// Its provider stopped in the middle of what it runs itself; the next step goes on with it.
    Paused,
}

/// Why a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::open)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model had nothing more to do.
    EndTurn,
    /// The model's answer was cut at its token limit.
    MaxTokens,
    /// The turn took as many steps as the configuration allows.
    MaxSteps,
    /// The provider or the model refused to answer.
    Refusal,
    /// A user cancelled the turn.
    Cancelled,
    /// Something failed; `turn_finished` says what in `detail`.
    Error,
    /// A reason that this build does not know.
    #[serde(other)]
    Unknown,
}

/// How long a provider took for an answer, in milliseconds from when the request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Times {
    /// Until the first byte of the answer.
    pub first_byte_ms: u64,
    /// Until its end.
    pub total_ms: u64,
}

/// Tokens, as the provider counted them, and what they cost; of one step, or the sum over some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Tokens of the request, cached ones included.
    #[serde(default)]
    pub input_tokens: u64,
    /// Tokens of the answer, thinking included.
    #[serde(default)]
    pub output_tokens: u64,
    /// The part of `input_tokens` that was read from the provider's cache.
    #[serde(default)]
    pub cached_tokens: u64,
    /// The part of `input_tokens` that was written to the provider's cache.
    #[serde(default)]
    pub cache_write_tokens: u64,
    /// The part of `output_tokens` that was thinking.
    #[serde(default)]
    pub reasoning_tokens: u64,
    /// The cost in millionths of a US dollar, at the prices of the time; absent if nothing is known of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
    /// Some of what is summed has a cost that is not known, or was cut before its provider counted it: it is at least this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cost_at_least: bool,
}

impl Usage {
    /// The share of an answer in a sum, from its event. An answer that was cut, or not counted, cost more than is known.
    pub fn of_answer(said: Option<Self>, interrupted: bool) -> Self {
        let usage = said.unwrap_or_default();
        let whole = !interrupted && !usage.is_uncounted();
        Self { cost_at_least: usage.cost_at_least || !whole, ..usage }
    }

    /// Whether no token was counted; every request has some.
    pub fn is_uncounted(&self) -> bool {
        self.input_tokens == 0 && self.output_tokens == 0
    }

    /// Whether the cost is more than `cost_micros`, by nobody knows how much. Sums of early builds have no cost at all.
    pub fn costs_more(&self) -> bool {
        self.cost_at_least || (self.cost_micros.is_none() && !self.is_uncounted())
    }
}

impl Usage {
    /// The difference to an earlier sum of the same.
    pub fn since(&self, earlier: &Self) -> Self {
        let cost_micros = self.cost_micros.map(|cost| cost.saturating_sub(earlier.cost_micros.unwrap_or_default()));
        Self {
            input_tokens: self.input_tokens.saturating_sub(earlier.input_tokens),
            output_tokens: self.output_tokens.saturating_sub(earlier.output_tokens),
            cached_tokens: self.cached_tokens.saturating_sub(earlier.cached_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_sub(earlier.cache_write_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_sub(earlier.reasoning_tokens),
            cost_micros,
            cost_at_least: self.cost_at_least,
        }
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.cost_at_least = self.costs_more() || other.costs_more();
        self.cost_micros = match (self.cost_micros, other.cost_micros) {
            (Some(one), Some(two)) => Some(one.saturating_add(two)),
            (one, two) => one.or(two),
        };
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(other.cache_write_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(other.reasoning_tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paid(input_tokens: u64, cost_micros: Option<u64>) -> Usage {
        Usage { input_tokens, cost_micros, ..Usage::default() }
    }

    #[test]
    fn a_sum_with_unknown_parts_is_a_least_one() {
        fn check(parts: &[Usage], expect: (u64, Option<u64>, bool)) {
            for parts in [parts.to_vec(), parts.iter().rev().copied().collect()] {
                let mut sum = Usage::default();
                parts.iter().for_each(|part| sum += *part);
                assert_eq!((sum.input_tokens, sum.cost_micros, sum.costs_more()), expect, "{parts:?}");
            }
        }
        check(&[], (0, None, false));
        check(&[paid(1, Some(0)), paid(2, Some(7))], (3, Some(7), false));
        check(&[paid(1, None), paid(2, Some(7)), paid(3, Some(1))], (6, Some(8), true));
        check(&[paid(1, None), paid(2, None)], (3, None, true));
        check(&[paid(u64::MAX, Some(u64::MAX)), paid(2, Some(1))], (u64::MAX, Some(u64::MAX), false));
        let cut = Usage::of_answer(Some(paid(1, Some(5))), true);
        check(&[cut, paid(2, Some(7))], (3, Some(12), true));
        check(&[Usage::of_answer(None, false), paid(2, Some(7))], (2, Some(7), true));
        check(&[Usage::of_answer(Some(paid(1, Some(5))), false)], (1, Some(5), false));
    }

    #[test]
    fn a_model_reads_of_a_resource_where_it_is_and_what_it_says() {
        let link = |uri: &str, name: &str, about: Option<&str>| ContentBlock::ResourceLink {
            uri: uri.to_owned(),
            name: name.to_owned(),
            media_type: about.map(|_| "text/plain".to_owned()),
            description: about.map(str::to_owned),
        };
        let check = |block: ContentBlock, expect: &str| assert_eq!(block.resource_text().as_deref(), Some(expect));
        check(link("file:///p/a.rs", "a.rs", None), "@/p/a.rs");
        check(link("file:///p/a.rs", "main", None), "[resource /p/a.rs, main]");
        check(link("db://rows/1", "1", Some("a row")), "[resource db://rows/1, 1, text/plain, a row]");
        check(link("https://x/y", "", None), "[resource https://x/y]");
        let text = "a\n```\n".to_owned();
        check(
            ContentBlock::Resource { uri: "file:///a".to_owned(), media_type: None, text },
            "/a:\n````\na\n```\n````",
        );
        assert_eq!(ContentBlock::text("x").resource_text(), None);
    }

    #[test]
    fn usage_of_early_builds_is_read_and_has_no_cost() {
        let old: Usage = serde_json::from_str(r#"{"input_tokens":5,"output_tokens":1}"#).unwrap();
        assert_eq!((old.cost_micros, old.cost_at_least, old.costs_more()), (None, false, true));
        assert_eq!(serde_json::from_str::<Usage>("{}").unwrap(), Usage::default());
        assert!(!serde_json::to_string(&old).unwrap().contains("cost"));
    }
}
