//! Gemini's `streamGenerateContent`: each event is a whole response, and the stream simply ends.

use serde_json::{Value, json};

use super::super::reply::{Ran, Reply, What};
use super::{Out, Piece, Voice, google, object};

/// One response.
#[derive(Default)]
pub(super) struct Gemini {
    prompt: u64,
    /// The signature that the first call of the response carries: that of the thoughts before it.
    signature: Option<String>,
    /// What was searched for and found.
    grounding: Option<Value>,
}

impl Gemini {
    fn chunk(&self, out: &mut Out<'_>, parts: Value, finish: Option<(&str, Option<&Value>)>, usage: Value) {
        let mut candidate = json!({ "content": { "parts": parts, "role": "model" } });
        if let Some((finish, grounding)) = finish {
            candidate["finishReason"] = finish.into();
            if let Some(grounding) = grounding {
                candidate["groundingMetadata"] = grounding.clone();
            }
        }
        candidate["index"] = 0.into();
        let data = json!({
            "candidates": [candidate], "usageMetadata": usage, "modelVersion": out.model,
            "responseId": format!("resp{:06}", out.number),
        });
        // Lines end as Google's do.
        out.pieces.push(Piece::Bytes(format!("data: {data}\r\n\r\n").into_bytes()));
    }

    fn part(&self, out: &mut Out<'_>, part: Value) {
        let usage = json!({ "promptTokenCount": self.prompt, "totalTokenCount": self.prompt });
        self.chunk(out, json!([part]), None, usage);
    }
}

impl Voice for Gemini {
    fn begin(&mut self, _out: &mut Out<'_>, reply: &Reply) {
        self.prompt = reply.usage.prompt();
    }

    fn text(&mut self, out: &mut Out<'_>, text: &str) {
        self.part(out, json!({ "text": text }));
    }

    fn thinking(&mut self, out: &mut Out<'_>, text: &str, signature: Option<&str>) {
        let mut part = json!({ "text": text, "thought": true });
        if let Some(signature) = signature {
            part["thoughtSignature"] = signature.into();
            self.signature = Some(signature.to_owned());
            out.issued.thinking.push((part.to_string(), String::new()));
        }
        self.part(out, part);
    }

    /// Every other response names its calls.
    fn tool(&mut self, out: &mut Out<'_>, name: &str, arguments: &str) {
        let (nth, args) = (out.calls(), object(arguments));
        let id = if out.number.is_multiple_of(2) { format!("fc{:06}x{nth}", out.number) } else { String::new() };
        let mut call = json!({ "name": name, "args": args });
        if !id.is_empty() {
            call["id"] = id.as_str().into();
        }
        let mut part = json!({ "functionCall": call });
        if nth == 0 {
            let signature = self.signature.clone().unwrap_or_else(|| format!("c2lnbmVk{:04}", out.number));
            out.issued.thinking.push((part.to_string(), signature.clone()));
            part["thoughtSignature"] = signature.into();
        }
        out.issue_call(&id, name, &args.to_string());
        self.part(out, part);
    }

    /// The call is signed, as all that a model of the third generation does by itself may be.
    fn ran(&mut self, out: &mut Out<'_>, ran: &Ran) {
        let id = ran.id();
        let (mut call, result) = match &ran.what {
            What::Search(found) => {
                let chunk = |(title, url): &(String, String)| json!({ "web": { "uri": url, "title": title } });
                self.grounding = Some(
                    json!({ "webSearchQueries": [ran.asked], "searchEntryPoint": { "renderedContent": "<b>x</b>" },
                    "groundingChunks": found.iter().map(chunk).collect::<Value>() }),
                );
                let kind = "GOOGLE_SEARCH_WEB";
                (
                    json!({ "toolCall": { "toolType": kind, "args": { "queries": [ran.asked] }, "id": id } }),
                    json!({ "toolResponse": { "toolType": kind, "response": { "search_suggestions": ran.secret() }, "id": id } }),
                )
            }
            What::Code(output) => (
                json!({ "executableCode": { "language": "PYTHON", "code": ran.asked, "id": id } }),
                json!({ "codeExecutionResult": { "outcome": "OUTCOME_OK", "output": output, "id": id } }),
            ),
        };
        call["thoughtSignature"] = format!("c2ln{:04}", out.number).into();
        out.issued.thinking.push((call.to_string(), String::new()));
        for part in [call, result] {
            out.issued.ran.push(part.to_string());
            self.part(out, part);
        }
    }

    fn error(&mut self, out: &mut Out<'_>, kind: &str, message: &str) {
        let error = json!({ "error": { "code": 503, "message": message, "status": google(kind) } });
        out.pieces.push(Piece::Bytes(format!("data: {error}\r\n\r\n").into_bytes()));
    }

    /// A call too ends in `STOP`.
    fn end(&mut self, out: &mut Out<'_>, reply: &Reply) {
        let finish = match reply.stop_reason() {
            "max_tokens" => "MAX_TOKENS",
            "refusal" => "SAFETY",
            _ => "STOP",
        };
        let usage = reply.usage;
        let tokens = json!({
            "promptTokenCount": self.prompt, "candidatesTokenCount": usage.output - usage.reasoning,
            "thoughtsTokenCount": usage.reasoning, "totalTokenCount": self.prompt + usage.output,
            "cachedContentTokenCount": usage.cached, "promptTokensDetails": [{ "modality": "TEXT", "tokenCount": self.prompt }],
        });
        self.chunk(out, json!([{ "text": "" }]), Some((finish, self.grounding.as_ref())), tokens);
    }
}
