//! The codec for Gemini (`POST …/models/MODEL:streamGenerateContent?alt=sse`), at Google's own address or on Vertex AI.
//!
//! On Vertex AI only address and key differ. Signatures go back on their parts, to the same model; calls of other models get the
//! placeholder that Google documents.
//! Source: the types of Google's own SDK 3.4, and ai.google.dev on thought signatures and on combining tools.
//! Deliberately absent: arguments in fragments (Vertex AI sends them only if asked), and cached contents.

mod decode;
mod encode;
mod hosted;
mod image;
mod options;

use super::compat::Compat;
use super::kind::ProviderKind;
use super::think_decoder::ThinkDecoder;
use super::types::{AnswerOptions, Codec, Decoder, EncodedOptions, Encoder, Failure, Framing, HttpRequest, ImageCodec};
use crate::diagnostics::secret::Secret;
use image::GeminiImages;

/// The fields of a body that linger sets itself.
const OWN_FIELDS: &[&str] = &[
    "contents",
    "systemInstruction",
    "system_instruction",
    "tools",
    "toolConfig",
    "tool_config",
    "cachedContent",
    "generation_config",
    "generationConfig.maxOutputTokens",
    "generationConfig.candidateCount",
    "generationConfig.responseMimeType",
    "generationConfig.responseSchema",
    "generationConfig.responseJsonSchema",
    "generationConfig.thinkingConfig",
];

/// The flags that this format reads.
const FLAGS: &[&str] = &[
    "think_open",
    "json_schema",
    "schema_with_tools",
    "thinking_budget",
    "thinking",
    "hosted_with_tools",
    "vertex",
    "signature_placeholder",
];

/// The wire format with one server's deviations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gemini(Compat);

impl Gemini {
    /// The format with these flags.
    pub fn new(compat: Compat) -> Self {
        Self(compat)
    }
}

impl Codec for Gemini {
    fn encoder(&self) -> Box<dyn Encoder> {
        Box::new(encode::GeminiEncoder::new(self.0))
    }

    fn authorize(&self, key: &Secret) -> (&'static str, String) {
        match self.0.vertex {
            Some(true) => ("authorization", format!("Bearer {}", key.reveal())),
            _ => ("x-goog-api-key", key.reveal().to_owned()),
        }
    }

    fn framing(&self) -> Framing {
        Framing::Sse
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(ThinkDecoder::new(decode::GeminiDecoder::default(), self.0.think_open == Some(true)))
    }

    fn failure(&self, status: u16, body: &[u8]) -> Failure {
        Failure::of_response(status, body)
    }

    fn options(&self, _model: &str, options: &AnswerOptions<'_>) -> EncodedOptions {
        options::encode(options)
    }

    fn kind(&self) -> ProviderKind {
        ProviderKind::Gemini
    }

    fn own_fields(&self) -> &'static [&'static str] {
        OWN_FIELDS
    }

    fn flags(&self) -> &'static [&'static str] {
        FLAGS
    }

    fn has_hosted_tools(&self) -> Result<(), &'static str> {
        Ok(())
    }

    fn combines_hosted_tools(&self, model: &str) -> bool {
        hosted::combines(&self.0, model)
    }

    fn takes_schema_with_tools(&self, model: &str) -> bool {
        self.0.schema_with_tools.unwrap_or_else(|| encode::is_third(model))
    }

    fn images(&self) -> Option<&dyn ImageCodec> {
        Some(&GeminiImages)
    }

    fn listing(&self) -> Option<HttpRequest> {
        // Vertex AI has no list of usable models.
        (self.0.vertex != Some(true)).then(|| HttpRequest::listing("/v1beta/models?pageSize=1000"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::address::join;

    #[test]
    fn models_are_listed_where_they_are_asked() {
        let path = Gemini::default().listing().unwrap().path;
        for (base_url, expect) in [
            ("https://h", "https://h/v1beta/models?pageSize=1000"),
            ("https://h/proxy/", "https://h/proxy/v1beta/models?pageSize=1000"),
            ("https://h/v1beta", "https://h/v1beta/models?pageSize=1000"),
            ("https://h/v1", "https://h/v1/models?pageSize=1000"),
        ] {
            assert_eq!(join(base_url, &path).unwrap().as_str(), expect);
        }
    }
}
