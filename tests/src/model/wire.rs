//! Renders a [`Reply`] to the exact bytes of a wire format. Pure.

use serde_json::{Value, json};

use super::gate::Gate;
use super::reply::{Part, Reply};

/// The wire formats that the server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// `POST /v1/messages`.
    Anthropic,
    /// `POST /v1/chat/completions`.
    OpenAi,
}

/// What the server does next in a response.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    Bytes(Vec<u8>),
    Gate(Gate),
    Cut,
    Stall,
}

/// What was said in a response and must come back unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Issued {
    /// Thinking with its signature, in order.
    pub thinking: Vec<(String, String)>,
    /// Calls: identifier, tool, arguments as written.
    pub calls: Vec<(String, String, String)>,
}

/// The pieces of a response, and what it said.
pub(super) fn render(reply: &Reply, format: Format, model: &str, number: usize) -> (Vec<Piece>, Issued) {
    let mut out = Out { format, model, number, pieces: Vec::new(), issued: Issued::default(), block: None, blocks: 0 };
    out.begin(reply);
    let mut ended = false;
    for part in &reply.parts {
        match part {
            Part::Text(text) => out.text(text),
            Part::Thinking { text, signature } => out.thinking(text, signature.as_deref()),
            Part::Tool { name, arguments } => out.tool(name, arguments),
            Part::Gate(gate) => out.pieces.push(Piece::Gate(gate.clone())),
            Part::Raw(bytes) => out.pieces.push(Piece::Bytes(bytes.clone())),
            Part::Error { kind, message } => {
                out.error(kind, message);
                ended = true;
            }
            Part::Cut => out.pieces.push(Piece::Cut),
            Part::Stall => out.pieces.push(Piece::Stall),
        }
    }
    if !ended {
        out.end(reply);
    }
    (rechunk(out.pieces, reply.chunk), out.issued)
}

/// Joins the bytes between two gates and cuts them into chunks of `size`.
fn rechunk(pieces: Vec<Piece>, size: Option<usize>) -> Vec<Piece> {
    let Some(size) = size else { return pieces };
    let mut out = Vec::new();
    let mut run = Vec::new();
    let flush = |run: &mut Vec<u8>, out: &mut Vec<Piece>| {
        out.extend(run.chunks(size).map(|chunk| Piece::Bytes(chunk.to_vec())));
        run.clear();
    };
    for piece in pieces {
        match piece {
            Piece::Bytes(bytes) => run.extend(bytes),
            other => {
                flush(&mut run, &mut out);
                out.push(other);
            }
        }
    }
    flush(&mut run, &mut out);
    out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Text,
}

struct Out<'a> {
    format: Format,
    model: &'a str,
    number: usize,
    pieces: Vec<Piece>,
    issued: Issued,
    /// The block that is open, in the format that has blocks.
    block: Option<Open>,
    blocks: usize,
}

impl Out<'_> {
    fn event(&mut self, name: &str, data: &Value) {
        self.pieces.push(Piece::Bytes(format!("event: {name}\ndata: {data}\n\n").into_bytes()));
    }

    fn chunk(&mut self, choices: Value, usage: Option<Value>) {
        let mut data = json!({
            "id": format!("chatcmpl-{:06}", self.number), "object": "chat.completion.chunk", "created": 1_760_000_000,
            "model": self.model, "service_tier": "default", "system_fingerprint": null, "choices": choices,
        });
        data["usage"] = usage.unwrap_or(Value::Null);
        self.pieces.push(Piece::Bytes(format!("data: {data}\n\n").into_bytes()));
    }

    fn delta(&mut self, delta: Value) {
        self.chunk(json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": null }]), None);
    }

    fn begin(&mut self, reply: &Reply) {
        match self.format {
            Format::Anthropic => {
                let usage = json!({
                    "input_tokens": reply.usage.input, "cache_creation_input_tokens": 0,
                    "cache_read_input_tokens": reply.usage.cached, "output_tokens": 1, "service_tier": "standard",
                });
                let message = json!({
                    "id": format!("msg_{:06}", self.number), "type": "message", "role": "assistant", "model": self.model,
                    "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage,
                });
                self.event("message_start", &json!({ "type": "message_start", "message": message }));
                self.event("ping", &json!({ "type": "ping" }));
            }
            Format::OpenAi => self.delta(json!({ "role": "assistant", "content": "", "refusal": null })),
        }
    }

    fn start_block(&mut self, block: Value) {
        let index = self.blocks;
        self.event(
            "content_block_start",
            &json!({ "type": "content_block_start", "index": index, "content_block": block }),
        );
    }

    fn block_delta(&mut self, delta: Value) {
        let index = self.blocks;
        self.event("content_block_delta", &json!({ "type": "content_block_delta", "index": index, "delta": delta }));
    }

    fn stop_block(&mut self) {
        let index = self.blocks;
        self.event("content_block_stop", &json!({ "type": "content_block_stop", "index": index }));
        self.blocks += 1;
    }

    fn close(&mut self) {
        if self.block.take().is_some() {
            self.stop_block();
        }
    }

    fn text(&mut self, text: &str) {
        if self.format == Format::OpenAi {
            return self.delta(json!({ "content": text }));
        }
        if self.block.is_none() {
            self.start_block(json!({ "type": "text", "text": "" }));
            self.block = Some(Open::Text);
        }
        self.block_delta(json!({ "type": "text_delta", "text": text }));
    }

    fn thinking(&mut self, text: &str, signature: Option<&str>) {
        self.issued.thinking.push((text.to_owned(), signature.unwrap_or_default().to_owned()));
        if self.format == Format::OpenAi {
            return self.delta(json!({ "reasoning_content": text }));
        }
        self.close();
        self.start_block(json!({ "type": "thinking", "thinking": "", "signature": "" }));
        self.block_delta(json!({ "type": "thinking_delta", "thinking": text }));
        if let Some(signature) = signature {
            self.block_delta(json!({ "type": "signature_delta", "signature": signature }));
        }
        self.stop_block();
    }

    /// The arguments come in two pieces, as they do in life.
    fn tool(&mut self, name: &str, arguments: &str) {
        let nth = self.issued.calls.len();
        let middle = (0..=arguments.len() / 2).rev().find(|at| arguments.is_char_boundary(*at)).unwrap_or(0);
        let (first, second) = arguments.split_at(middle);
        let id = match self.format {
            Format::Anthropic => format!("toolu_{:06}x{nth}", self.number),
            Format::OpenAi => format!("call_{:06}x{nth}", self.number),
        };
        self.issued.calls.push((id.clone(), name.to_owned(), arguments.to_owned()));
        if self.format == Format::OpenAi {
            let function = json!({ "name": name, "arguments": "" });
            self.delta(json!({ "tool_calls": [{ "index": nth, "id": id, "type": "function", "function": function }] }));
            for piece in [first, second] {
                self.delta(json!({ "tool_calls": [{ "index": nth, "function": { "arguments": piece } }] }));
            }
            return;
        }
        self.close();
        self.start_block(json!({ "type": "tool_use", "id": id, "name": name, "input": {} }));
        for piece in ["", first, second] {
            self.block_delta(json!({ "type": "input_json_delta", "partial_json": piece }));
        }
        self.stop_block();
    }

    fn error(&mut self, kind: &str, message: &str) {
        let error = json!({ "type": kind, "message": message });
        match self.format {
            Format::Anthropic => self.event("error", &json!({ "type": "error", "error": error })),
            Format::OpenAi => {
                let data = json!({ "error": { "message": message, "type": kind, "code": kind } });
                self.pieces.push(Piece::Bytes(format!("data: {data}\n\n").into_bytes()));
            }
        }
    }

    fn end(&mut self, reply: &Reply) {
        let reason = reply.stop_reason();
        let usage = reply.usage;
        match self.format {
            Format::Anthropic => {
                self.close();
                self.event(
                    "message_delta",
                    &json!({
                        "type": "message_delta", "delta": { "stop_reason": reason, "stop_sequence": null },
                        "usage": { "input_tokens": usage.input, "cache_read_input_tokens": usage.cached, "output_tokens": usage.output },
                    }),
                );
                self.event("message_stop", &json!({ "type": "message_stop" }));
            }
            Format::OpenAi => {
                let finish = match reason {
                    "tool_use" => "tool_calls",
                    "max_tokens" => "length",
                    "refusal" => "content_filter",
                    _ => "stop",
                };
                self.chunk(json!([{ "index": 0, "delta": {}, "logprobs": null, "finish_reason": finish }]), None);
                let input = usage.input + usage.cached;
                let tokens = json!({
                    "prompt_tokens": input, "completion_tokens": usage.output, "total_tokens": input + usage.output,
                    "prompt_tokens_details": { "cached_tokens": usage.cached }, "completion_tokens_details": { "reasoning_tokens": 0 },
                });
                self.chunk(json!([]), Some(tokens));
                self.pieces.push(Piece::Bytes(b"data: [DONE]\n\n".to_vec()));
            }
        }
    }
}
