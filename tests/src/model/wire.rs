//! Renders a [`Reply`] to the exact bytes of a wire format, a file each. Pure.

mod anthropic;
mod gemini;
mod ollama;
mod openai;
mod responses;

use lingerd::provider::catalogue::ProviderKind;
use serde_json::{Value, json};

use super::gate::Gate;
use super::reply::{Part, Ran, Reply};

/// The patience of providers in tests, as the configuration has it: an outage that no test means ends within their timeout.
pub const PATIENCE: &str = "45s";

/// The wire formats that the server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// `POST /v1/messages`.
    Anthropic,
    /// `POST /v1/chat/completions`.
    OpenAi,
    /// `POST /v1/responses`.
    Responses,
    /// `POST …/models/MODEL:streamGenerateContent?alt=sse`.
    Gemini,
    /// `POST /api/chat`.
    Ollama,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Anthropic, Self::OpenAi, Self::Responses, Self::Gemini, Self::Ollama];

    /// The one that is spoken at this path.
    pub fn at(path: &str) -> Option<Self> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let ends = |end: &str| path.ends_with(end);
        match () {
            () if ends("/messages") => Some(Self::Anthropic),
            () if ends("/chat/completions") => Some(Self::OpenAi),
            () if ends("/responses") => Some(Self::Responses),
            () if ends(":streamGenerateContent") && query == "alt=sse" => Some(Self::Gemini),
            () if ends("/api/chat") => Some(Self::Ollama),
            () => None,
        }
    }

    /// Its name in the configuration.
    pub fn kind(self) -> &'static str {
        self.product_kind().name()
    }

    /// What the daemon calls it.
    pub fn product_kind(self) -> ProviderKind {
        match self {
            Self::Anthropic => ProviderKind::Anthropic,
            Self::OpenAi => ProviderKind::Openai,
            Self::Responses => ProviderKind::OpenaiResponses,
            Self::Gemini => ProviderKind::Gemini,
            Self::Ollama => ProviderKind::Ollama,
        }
    }

    /// What its addresses begin with, after the server's own.
    pub fn path(self) -> &'static str {
        match self {
            Self::Anthropic | Self::Ollama => "",
            Self::OpenAi | Self::Responses => "/v1",
            Self::Gemini => "/v1beta",
        }
    }

    /// A provider `name` at `url` that speaks it, with [`PATIENCE`], as a table of the configuration; more lines may follow.
    pub fn provider(self, name: &str, url: &str) -> String {
        format!(
            "[providers.{name}]\nkind = \"{}\"\nbase_url = \"{url}{}\"\npatience = \"{PATIENCE}\"\n",
            self.kind(),
            self.path()
        )
    }

    /// What a stream says that it is.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Ollama => "application/x-ndjson",
            Self::Gemini => "text/event-stream",
            _ => "text/event-stream; charset=utf-8",
        }
    }

    /// What a plain response says that failed.
    pub fn error_body(self, status: u16, kind: &str, message: &str) -> Value {
        match self {
            Self::Gemini => json!({ "error": { "code": status, "message": message, "status": google(kind) } }),
            Self::Ollama => json!({ "error": message }),
            Self::OpenAi | Self::Responses => {
                json!({ "error": { "message": message, "type": kind, "param": null, "code": null } })
            }
            Self::Anthropic => json!({ "type": "error", "error": { "type": kind, "message": message } }),
        }
    }
}

/// Google's word for a kind of error.
fn google(kind: &str) -> &'static str {
    match kind {
        "authentication_error" => "UNAUTHENTICATED",
        "permission_error" => "PERMISSION_DENIED",
        "not_found_error" => "NOT_FOUND",
        "rate_limit_error" => "RESOURCE_EXHAUSTED",
        "overloaded_error" => "UNAVAILABLE",
        "invalid_request_error" => "INVALID_ARGUMENT",
        _ => "INTERNAL",
    }
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
    /// Thinking with its signature, in order; where a format has a whole item or part, that.
    pub thinking: Vec<(String, String)>,
    /// Calls: identifier (empty where the format has none), tool, arguments as written.
    pub calls: Vec<(String, String, String)>,
    /// What is of tools of the provider's own, each as it was written.
    pub ran: Vec<String>,
}

/// How a format says things. Each may be said in any order, and `end` once.
trait Voice {
    fn begin(&mut self, out: &mut Out<'_>, reply: &Reply);
    fn text(&mut self, out: &mut Out<'_>, text: &str);
    fn thinking(&mut self, out: &mut Out<'_>, text: &str, signature: Option<&str>);
    fn tool(&mut self, out: &mut Out<'_>, name: &str, arguments: &str);
    /// What a tool of the provider's own did; a format without any says nothing.
    fn ran(&mut self, _out: &mut Out<'_>, _ran: &Ran) {}
    fn error(&mut self, out: &mut Out<'_>, kind: &str, message: &str);
    fn end(&mut self, out: &mut Out<'_>, reply: &Reply);
}

fn voice(format: Format) -> Box<dyn Voice> {
    match format {
        Format::Anthropic => Box::<anthropic::Messages>::default(),
        Format::OpenAi => Box::<openai::Chat>::default(),
        Format::Responses => Box::<responses::Responses>::default(),
        Format::Gemini => Box::<gemini::Gemini>::default(),
        Format::Ollama => Box::<ollama::Ollama>::default(),
    }
}

/// The pieces of a response, and what it said.
pub(super) fn render(reply: &Reply, format: Format, model: &str, number: usize) -> (Vec<Piece>, Issued) {
    let mut voice = voice(format);
    let mut out = Out { model, number, pieces: Vec::new(), issued: Issued::default() };
    voice.begin(&mut out, reply);
    let mut ended = false;
    for part in &reply.parts {
        match part {
            Part::Text(text) => voice.text(&mut out, text),
            Part::Thinking { text, signature } => voice.thinking(&mut out, text, signature.as_deref()),
            Part::Tool { name, arguments, gate } => {
                voice.tool(&mut out, name, arguments);
                // Behind it are the second half and, in Anthropic's format, the end of the block.
                let behind = if format == Format::Anthropic { 2 } else { 1 };
                let at = out.pieces.len().saturating_sub(behind);
                gate.iter().for_each(|gate| out.pieces.insert(at, Piece::Gate(gate.clone())));
            }
            Part::Ran(ran) => voice.ran(&mut out, ran),
            Part::Gate(gate) => out.pieces.push(Piece::Gate(gate.clone())),
            Part::Raw(bytes) => out.pieces.push(Piece::Bytes(bytes.clone())),
            Part::Error { kind, message } => {
                voice.error(&mut out, kind, message);
                ended = true;
            }
            Part::Cut => out.pieces.push(Piece::Cut),
            Part::Stall => out.pieces.push(Piece::Stall),
        }
    }
    if !ended {
        voice.end(&mut out, reply);
    }
    (rechunk(out.pieces, reply.chunk), out.issued)
}

/// The bytes of a response, an event each, as the server would write them; gates, cuts and stalls are left out.
pub fn events(reply: &Reply, format: Format) -> Vec<Vec<u8>> {
    let (pieces, _) = render(reply, format, "m", 1);
    let bytes = |piece| if let Piece::Bytes(bytes) = piece { Some(bytes) } else { None };
    pieces.into_iter().filter_map(bytes).collect()
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

/// What a voice says goes here.
struct Out<'a> {
    model: &'a str,
    number: usize,
    pieces: Vec<Piece>,
    issued: Issued,
}

impl Out<'_> {
    /// An event with a name.
    fn event(&mut self, name: &str, data: &Value) {
        self.pieces.push(Piece::Bytes(format!("event: {name}\ndata: {data}\n\n").into_bytes()));
    }

    /// An event without one.
    fn data(&mut self, data: &Value) {
        self.pieces.push(Piece::Bytes(format!("data: {data}\n\n").into_bytes()));
    }

    /// How many calls there were.
    fn calls(&self) -> usize {
        self.issued.calls.len()
    }

    fn issue_call(&mut self, id: &str, name: &str, arguments: &str) {
        self.issued.calls.push((id.to_owned(), name.to_owned(), arguments.to_owned()));
    }
}

/// Arguments in two pieces, as they come in life.
fn halves(arguments: &str) -> (&str, &str) {
    let middle = (0..=arguments.len() / 2).rev().find(|at| arguments.is_char_boundary(*at)).unwrap_or(0);
    arguments.split_at(middle)
}

/// Arguments as an object, in the formats that have them so; what is none cannot be said there.
fn object(arguments: &str) -> Value {
    serde_json::from_str(arguments).ok().filter(Value::is_object).unwrap_or_else(|| json!({ "unsaid": arguments }))
}
