//! What a scripted model answers: built part by part, rendered to the wire format that was asked.

use serde_json::Value;

use super::gate::Gate;

/// One answer. Its parts are sent in order; text parts that follow each other are deltas of one block.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    pub(super) head: Head,
    pub(super) parts: Vec<Part>,
    pub(super) stop: Option<&'static str>,
    pub(super) usage: ReplyUsage,
    pub(super) chunk: Option<usize>,
}

/// What is said about tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyUsage {
    /// Tokens of the request that no cache had, and none took.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
    /// Tokens of the request that were cached.
    pub cached: u64,
    /// Tokens of the request that were written to the cache, in formats that tell them from others.
    pub written: u64,
    /// Tokens of the answer that were thinking, in formats that tell them from others.
    pub reasoning: u64,
}

impl ReplyUsage {
    /// All tokens of the request.
    pub fn prompt(&self) -> u64 {
        self.input + self.cached + self.written
    }
}

impl Default for ReplyUsage {
    fn default() -> Self {
        Self { input: 10, output: 5, cached: 0, written: 0, reasoning: 0 }
    }
}

/// What a tool of the provider's own was asked, gave, or both. Formats without such tools do not say it.
#[derive(Clone, Debug)]
pub(super) struct Ran {
    pub(super) what: What,
    /// The query or the code: what a result belongs to.
    pub(super) asked: String,
    /// Whether the call is said.
    pub(super) call: bool,
    /// Whether the result is said.
    pub(super) result: bool,
}

/// What ran at the provider.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// A search: titles and addresses.
    Search(Vec<(String, String)>),
    /// Code: its output.
    Code(String),
}

impl Ran {
    /// A word that names the call whatever response it is said in.
    pub(super) fn id(&self) -> String {
        self.asked.chars().filter(char::is_ascii_alphanumeric).take(40).collect()
    }

    /// What only the provider reads of a result.
    pub(super) fn secret(&self) -> String {
        format!("RW5jcnlwdGVk{}", self.id())
    }
}

/// How the response begins.
#[derive(Clone, Debug, Default)]
pub(super) enum Head {
    /// `200`, an event stream.
    #[default]
    Stream,
    /// A plain response. Without a body it says in its format that `error` happened.
    Plain { status: u16, headers: Vec<(String, String)>, body: Option<Vec<u8>>, error: &'static str },
    /// `200` with this content type, then the parts as usual.
    Typed(&'static str),
    /// The connection is reset before a byte was written.
    Reset,
}

/// One thing that happens in a stream.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Text(String),
    Thinking {
        text: String,
        signature: Option<String>,
    },
    /// With a gate the server waits there before it sends the second half of the arguments.
    Tool {
        name: String,
        arguments: String,
        gate: Option<Gate>,
    },
    Ran(Ran),
    Gate(Gate),
    Raw(Vec<u8>),
    Error {
        kind: String,
        message: String,
    },
    Cut,
    Stall,
}

impl Reply {
    /// An answer without parts yet; as it is, a model that says nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// An answer that begins with text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new().and_text(text)
    }

    /// An answer that asks for a tool.
    pub fn tool(name: &str, input: Value) -> Self {
        Self::new().and_tool(name, input)
    }

    /// A plain response with this status, as a provider sends when something is wrong.
    pub fn status(status: u16) -> Self {
        let kind = match status {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            529 => "overloaded_error",
            400..500 => "invalid_request_error",
            _ => "api_error",
        };
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Self { head: Head::Plain { status, headers, body: None, error: kind }, ..Self::default() }
    }

    /// `200` with a web page, as captive portals and wrong base URLs give.
    pub fn html() -> Self {
        let headers = vec![("content-type".to_owned(), "text/html; charset=utf-8".to_owned())];
        let body = Some(b"<!doctype html><html><body>Please log in</body></html>".to_vec());
        Self { head: Head::Plain { status: 200, headers, body, error: "" }, ..Self::default() }
    }

    /// `200` with a page that does not say so, as some portals give.
    pub fn unnamed_page() -> Self {
        let body = Some(b"\r\n<!doctype html><html><body>Please log in</body></html>".to_vec());
        let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
        Self { head: Head::Plain { status: 200, headers, body, error: "" }, ..Self::default() }
    }

    /// `200` with a whole answer, as servers and proxies give that do not stream.
    pub fn at_once() -> Self {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let body = Some(br#"{"choices":[{"message":{"content":"Good day"}}]}"#.to_vec());
        Self { head: Head::Plain { status: 200, headers, body, error: "" }, ..Self::default() }
    }

    /// The connection is reset before the response begins.
    pub fn reset() -> Self {
        Self { head: Head::Reset, ..Self::default() }
    }

    /// A proper stream under a content type that does not say so.
    pub fn wrong_content_type(mut self) -> Self {
        self.head = Head::Typed("application/octet-stream");
        self
    }

    /// A header of a plain response.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let Head::Plain { headers, .. } = &mut self.head {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// The body of a plain response.
    pub fn body(mut self, text: &str) -> Self {
        if let Head::Plain { body, .. } = &mut self.head {
            *body = Some(text.as_bytes().to_vec());
        }
        self
    }

    fn part(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    /// A delta of text.
    pub fn and_text(self, text: impl Into<String>) -> Self {
        self.part(Part::Text(text.into()))
    }

    /// A tool call.
    pub fn and_tool(self, name: &str, input: Value) -> Self {
        self.and_raw_tool(name, &input.to_string())
    }

    /// A tool call with arguments that may be anything.
    pub fn and_raw_tool(self, name: &str, arguments: &str) -> Self {
        self.part(Part::Tool { name: name.to_owned(), arguments: arguments.to_owned(), gate: None })
    }

    /// A tool call that waits within its arguments until the test opens the gate, in the formats that stream them: Anthropic's and
    /// Chat Completions.
    pub fn and_tool_with_gate(self, name: &str, arguments: &str, gate: &Gate) -> Self {
        let (name, arguments, gate) = (name.to_owned(), arguments.to_owned(), Some(gate.clone()));
        self.part(Part::Tool { name, arguments, gate })
    }

    /// Thinking, signed in the format that signs.
    pub fn thinking(self, text: &str, signature: &str) -> Self {
        self.part(Part::Thinking { text: text.to_owned(), signature: Some(signature.to_owned()) })
    }

    /// A search of the provider's own, and what it found: titles and addresses. What text follows cites it.
    pub fn and_search(self, query: &str, found: &[(&str, &str)]) -> Self {
        self.searched(query, found, true, true)
    }

    /// A search that is asked for, and not done in this response.
    pub fn and_search_begun(self, query: &str) -> Self {
        self.searched(query, &[], true, false)
    }

    /// What a search found that an earlier response asked for.
    pub fn and_search_done(self, query: &str, found: &[(&str, &str)]) -> Self {
        self.searched(query, found, false, true)
    }

    fn searched(self, query: &str, found: &[(&str, &str)], call: bool, result: bool) -> Self {
        let found = found.iter().map(|(title, url)| ((*title).to_owned(), (*url).to_owned())).collect();
        self.part(Part::Ran(Ran { what: What::Search(found), asked: query.to_owned(), call, result }))
    }

    /// Code that ran at the provider, and its output.
    pub fn and_code(self, code: &str, output: &str) -> Self {
        let what = What::Code(output.to_owned());
        self.part(Part::Ran(Ran { what, asked: code.to_owned(), call: true, result: true }))
    }

    /// `text` as deltas of `chars` characters.
    pub fn text_in_deltas(mut self, text: &str, chars: usize) -> Self {
        let all: Vec<char> = text.chars().collect();
        self.parts.extend(all.chunks(chars.max(1)).map(|piece| Part::Text(piece.iter().collect())));
        self
    }

    /// Waits here until the test opens the gate.
    pub fn gate(self, gate: &Gate) -> Self {
        self.part(Part::Gate(gate.clone()))
    }

    /// Bytes in the middle of the stream that no provider would send.
    pub fn garbage(self) -> Self {
        self.raw(b"data: {\"this is\": not json\n\n")
    }

    /// A line of `bytes` bytes.
    pub fn huge_line(self, bytes: usize) -> Self {
        let mut line = b": ".to_vec();
        line.resize(bytes, b'x');
        line.extend(b"\n\n");
        self.raw(&line)
    }

    /// These bytes, as they are.
    pub fn raw(self, bytes: &[u8]) -> Self {
        self.part(Part::Raw(bytes.to_vec()))
    }

    /// An error event in the middle of the stream.
    pub fn error_event(self, kind: &str, message: &str) -> Self {
        self.part(Part::Error { kind: kind.to_owned(), message: message.to_owned() })
    }

    /// The connection ends here, without an end of the body.
    pub fn cut(self) -> Self {
        self.part(Part::Cut)
    }

    /// Nothing more comes; the connection stays open until the other side gives up.
    pub fn stall(self) -> Self {
        self.part(Part::Stall)
    }

    /// The stop reason in Anthropic's words (`max_tokens`, `refusal`); by default what the parts imply.
    pub fn stop(mut self, reason: &'static str) -> Self {
        self.stop = Some(reason);
        self
    }

    /// What is said about tokens.
    pub fn usage(mut self, input: u64, output: u64, cached: u64) -> Self {
        self.usage = ReplyUsage { input, output, cached, ..self.usage };
        self
    }

    /// How many tokens were written to the cache, and how many of the answer's were thinking.
    pub fn details(mut self, written: u64, reasoning: u64) -> Self {
        self.usage = ReplyUsage { written, reasoning, ..self.usage };
        self
    }

    /// Cuts the bytes into HTTP chunks of `bytes`, wherever that is; by default a chunk is an event.
    pub fn chunks_of(mut self, bytes: usize) -> Self {
        self.chunk = Some(bytes.max(1));
        self
    }

    pub(super) fn stop_reason(&self) -> &'static str {
        let calls = self.parts.iter().any(|part| matches!(part, Part::Tool { .. }));
        self.stop.unwrap_or(if calls { "tool_use" } else { "end_turn" })
    }
}
