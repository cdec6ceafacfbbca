//! `completion/*`: a model is asked once, without a session: what the caller sends, and nothing of linger's. Nothing is kept.
//!
//! One attempt: a caller that asks so has its own way to try again. Dropping a [`Completion`] aborts it.
//!
//! | file | owns |
//! |---|---|
//! | `conversation` | what is refused, and how a conversation opens |
//! | `answer` | what is done to an answer before its caller gets it |
//! | `stop` | texts that end an answer |
//! | `forced` | a call that must be made, where a provider cannot be told so |
//! | `failure` | a failure as HTTP and OpenAI have it |

mod answer;
mod conversation;
mod failure;
mod forced;
mod stop;

use std::time::Duration;

use linger_protocol::RpcError;
use linger_protocol::completion::{CompletionEvent, Message, Start, Started, Tool, ToolChoice};
use linger_protocol::error::Code;
use linger_protocol::id::CompletionId;
use linger_protocol::message::{ContentBlock, Usage};
use linger_protocol::session::Effort;
use serde_json::{Number, Value};

use super::{Caller, Services};
use crate::provider::catalogue::{Catalogue, Resolved};
use crate::provider::key_source::Lack;
use crate::provider::models::Prices;
use crate::provider::output_schema::{OutputSchema, SchemaStrategy};
use crate::provider::own_fields::merge;
use crate::provider::schema;
use crate::provider::tools::ToolSpecs;
use crate::provider::{
    AnswerOptions, CallChoice, ConversationStart, EncodedOptions, Encoding, Forcing, Images, Message as ContextMessage,
    Provider, Request, Response, Sampling, Stop, Stream, StreamEvent, ToolSpec,
};
use answer::AnswerForm;
use failure::failed;
use forced::ForcedCall;
use stop::StopCut;

/// How long the source of a key may take: a keychain may ask a person.
const KEY_WAIT: Duration = Duration::from_secs(60);

/// A completion that is under way.
pub struct Completion {
    /// Its id within the connection.
    pub id: CompletionId,
    stream: Stream,
    prices: Prices,
    form: AnswerForm,
    /// The text so far, by blocks, where stop texts may cut it.
    said: Vec<Said>,
    /// Events that came and were not taken yet.
    pieces: Vec<CompletionEvent>,
    has_ended: bool,
}

/// A block of text, as far as the caller has it.
struct Said {
    block: u32,
    text: String,
}

/// Begins to ask a model.
pub async fn start(
    services: &Services,
    caller: &Caller,
    id: u64,
    params: Start,
) -> Result<(Started, Completion), RpcError> {
    let resolved = services.providers.model(params.model.as_deref())?;
    let is_forwarded = params.responses.is_some() && resolved.codec().is_some_and(|codec| codec.forwarding().is_some());
    if !is_forwarded {
        conversation::check(&params)?;
        if let Some(schema) = &params.schema {
            schema::check(schema).map_err(|error| RpcError::new(Code::BadSchema, error))?;
        }
    }
    let catalogue = services.providers.catalogue()?;
    let provider = open(services, &resolved).await?;
    let id = CompletionId(format!("k{id}"));
    tracing::info!(target: "request", caller = caller.name(), model = resolved.origin, "completion");
    let mut started = Started { completion: id.clone(), model: resolved.origin.clone(), ..Started::default() };
    let forwarded = params.responses.as_deref().and_then(|text| provider.forward(text, &resolved.forward_defaults()));
    let (stream, form) = match forwarded {
        Some(stream) => {
            started.native = true;
            let stream = stream.map_err(|why| RpcError::new(Code::BadPrompt, format!("responses: {why}")))?;
            (stream, AnswerForm::default())
        }
        None => {
            let (stream, form, ignored) = ask(&catalogue, &resolved, &provider, params);
            started.ignored = ignored.into_iter().map(str::to_owned).collect();
            (stream, form)
        }
    };
    let prices = resolved.facts.prices;
    Ok((started, Completion { id, stream, prices, form, said: Vec::new(), pieces: Vec::new(), has_ended: false }))
}

/// The provider of a model, with its key.
async fn open(services: &Services, resolved: &Resolved) -> Result<Provider, RpcError> {
    let key = tokio::time::timeout(KEY_WAIT, services.providers.key_sources.obtain_all(resolved)).await;
    let lack = match key {
        Ok(Ok(key)) => Ok(key),
        Ok(Err(Lack::Failed(why) | Lack::Waits(why))) => Err(why),
        Ok(Err(lack @ Lack::Gone)) => Err(lack.to_string()),
        Err(_) => Err(format!("not there within {} s", KEY_WAIT.as_secs())),
    };
    let key = lack.map_err(|why| {
        RpcError::new(Code::KeyMissing, format!("the key of {}: {why}", resolved.provider))
            .hint(format!("`linger key list` shows its source, `linger key set {}` stores one", resolved.provider))
    })?;
    Ok(services.providers.open(resolved, key))
}

/// Sends the request in the provider's format; gives the names of the options that have no effect, too.
fn ask(
    catalogue: &Catalogue,
    resolved: &Resolved,
    provider: &Provider,
    params: Start,
) -> (Stream, AnswerForm, Vec<&'static str>) {
    let encoded = options(resolved, &params);
    let Start { mut system, messages, mut tools, schema, max_tokens, effort, tool_choice, forced_tool, .. } = params;
    let is_forced = tool_choice == ToolChoice::Required || forced_tool.is_some();
    // A call has a schema of its own.
    let schema = schema.filter(|_| !is_forced);
    let forced =
        (is_forced && encoded.forcing == Forcing::Schema).then(|| ForcedCall::new(&tools, forced_tool.as_deref()));
    let forced_schema = forced.as_ref().map(ForcedCall::schema);
    if let Some(forced) = &forced {
        add(&mut system, &forced.instruction());
        tools.clear();
    }
    if is_forced && encoded.forcing == Forcing::Words {
        add(&mut system, &call_in_words(forced_tool.as_deref()));
    }
    if tool_choice == ToolChoice::None && encoded.forcing == Forcing::Schema {
        // The format cannot say that none may be called.
        tools.clear();
    }
    let strategy = schema.as_ref().map(|schema| catalogue.schema_strategy(&resolved.origin, schema));
    let asks = match strategy {
        Some(SchemaStrategy::WithTools) => true,
        Some(SchemaStrategy::WithoutTools) => tools.is_empty(),
        Some(SchemaStrategy::PromptOnly) | None => false,
    };
    if let Some(schema) = schema.as_ref().filter(|_| !asks) {
        add(&mut system, &in_words(schema));
    }
    let enforced = schema.as_ref().filter(|_| asks).or(forced_schema.as_ref());
    let due = tools.is_empty();
    let tools = ToolSpecs::new(tools.into_iter().map(spec).collect());
    let opening = resolved.codec().map_or(ConversationStart::Nothing, |codec| codec.opening());
    let context = conversation::opened(messages.into_iter().map(context).collect(), &mut system, opening);
    let effort = if effort.is_auto() { resolved.facts.effort } else { effort };
    let mut own_fields = resolved.body.clone();
    merge(&mut own_fields, &encoded.fields);
    let request = Request {
        model: &resolved.model,
        origin: &resolved.origin,
        system: &system,
        tools: &tools,
        messages: &context,
        max_tokens: max_tokens.unwrap_or(resolved.max_tokens),
        cache_key: "",
        images: &Images::new(),
        output_schema: enforced.map(|schema| OutputSchema { schema, due }),
        effort: if encoded.stops_thinking { Effort::None } else { effort },
        own_fields: Some(&own_fields),
    };
    let stream = provider.start(&request, &mut Encoding::default());
    let form = AnswerForm {
        schema: schema.map(|schema| wrapping(catalogue, &resolved.origin, schema)),
        forced,
        is_single: params.parallel_tool_calls == Some(false),
        stop: (!params.stop.is_empty()).then(|| StopCut::new(params.stop)),
    };
    (stream, form, encoded.ignored)
}

/// The caller's options in the provider's format; the scripted model has none.
fn options(resolved: &Resolved, params: &Start) -> EncodedOptions {
    let decimal = |value: Option<f64>| value.and_then(Number::from_f64);
    let sampling = [
        ("temperature", decimal(params.temperature)),
        ("top_p", decimal(params.top_p)),
        ("seed", params.seed.map(Number::from)),
        ("frequency_penalty", decimal(params.frequency_penalty)),
        ("presence_penalty", decimal(params.presence_penalty)),
    ];
    let sampling: Vec<Sampling> =
        sampling.into_iter().filter_map(|(name, value)| Some(Sampling { name, value: value? })).collect();
    let calls = match (&params.forced_tool, params.tool_choice) {
        (Some(name), _) => CallChoice::Tool(name),
        (None, ToolChoice::Auto) => CallChoice::Auto,
        (None, ToolChoice::None) => CallChoice::None,
        (None, ToolChoice::Required) => CallChoice::Any,
    };
    let options = AnswerOptions {
        calls,
        has_tools: !params.tools.is_empty(),
        has_schema: params.schema.is_some(),
        is_single: params.parallel_tool_calls == Some(false),
        stop: &params.stop,
        sampling: &sampling,
        thinks: resolved.thinks(params.effort),
    };
    match resolved.codec() {
        Some(codec) => codec.options(&resolved.model, &options),
        None => EncodedOptions {
            ignored: sampling.iter().map(|option| option.name).collect(),
            forcing: Forcing::Words,
            ..EncodedOptions::default()
        },
    }
}

fn wrapping(catalogue: &Catalogue, model: &str, schema: Value) -> (Value, bool) {
    let wraps = catalogue.wraps(model, &schema);
    (schema, wraps)
}

impl Completion {
    /// Waits until something came; false at the end. A call that is dropped loses nothing.
    pub async fn ready(&mut self) -> bool {
        while self.pieces.is_empty() && !self.has_ended {
            for event in self.stream.next().await {
                self.take_event(event);
                if self.has_ended {
                    break;
                }
            }
        }
        !self.pieces.is_empty()
    }

    /// Takes the events that came.
    pub fn take(&mut self) -> Vec<CompletionEvent> {
        std::mem::take(&mut self.pieces)
    }

    fn take_event(&mut self, event: StreamEvent) {
        match event {
            // It may be wrapped, or a call, and is no answer before it is whole.
            StreamEvent::Text { .. } if self.form.schema.is_some() || self.form.forced.is_some() => {}
            StreamEvent::Text { block, text } => self.text(block, text),
            StreamEvent::Thinking { block, text } => self.pieces.push(CompletionEvent::Thinking { block, text }),
            StreamEvent::Native(data) => self.pieces.push(CompletionEvent::Native { data }),
            StreamEvent::Call { .. } | StreamEvent::Hosted { .. } | StreamEvent::Counted => {}
            StreamEvent::Done(response) => {
                self.flush();
                let completed = self.form.completed(response, &self.prices);
                self.end(completed);
            }
            StreamEvent::Failed(failure) => {
                self.flush();
                self.end(failed(failure));
            }
        }
    }

    /// A piece of text, up to a stop text in it.
    fn text(&mut self, block: u32, text: String) {
        if self.form.stop.is_none() {
            self.pieces.push(CompletionEvent::Text { block, text });
            return;
        }
        if self.said.last().is_none_or(|last| last.block != block) {
            self.flush();
            self.said.push(Said { block, text: String::new() });
        }
        let Some((piece, is_last)) = self.form.stop.as_mut().map(|stop| stop.push(&text)) else { return };
        self.say(piece);
        if is_last {
            let blocks = self.said.iter().filter(|said| !said.text.is_empty());
            let content = blocks.map(|said| ContentBlock::text(said.text.as_str())).collect();
            // The rest is neither read nor counted.
            let usage = Usage { cost_at_least: true, ..self.stream.usage() };
            let response = Response { content, stop: Stop::End, usage };
            let completed = self.form.completed(response, &self.prices);
            self.end(completed);
        }
    }

    /// Gives the caller what was held back of the last block.
    fn flush(&mut self) {
        let held = self.form.stop.as_mut().map(StopCut::finish).unwrap_or_default();
        self.say(held);
    }

    fn say(&mut self, piece: String) {
        if let Some(said) = self.said.last_mut().filter(|_| !piece.is_empty()) {
            said.text.push_str(&piece);
            self.pieces.push(CompletionEvent::Text { block: said.block, text: piece });
        }
    }

    fn end(&mut self, event: CompletionEvent) {
        self.pieces.push(event);
        self.has_ended = true;
    }
}

/// Adds an instruction to the system prompt.
fn add(system: &mut String, instruction: &str) {
    if !system.is_empty() {
        system.push_str("\n\n");
    }
    system.push_str(instruction);
}

/// The instruction for a model that cannot be forced to call a tool.
fn call_in_words(tool: Option<&str>) -> String {
    match tool {
        Some(tool) => format!("Answer with a call of the tool `{tool}`."),
        None => "Answer with a call of one of the tools.".to_owned(),
    }
}

/// The instruction for a model whose provider cannot be held to a schema.
fn in_words(schema: &Value) -> String {
    format!("Give the answer as JSON alone, without a word before or after it, that fits this JSON Schema:\n{schema}")
}

fn spec(tool: Tool) -> ToolSpec {
    ToolSpec { name: tool.name, description: tool.description, input_schema: tool.input_schema }
}

fn context(message: Message) -> ContextMessage {
    // Whose model wrote it is unknown: nothing of it is any provider's own.
    ContextMessage { role: message.role, content: message.content, origin: None }
}
