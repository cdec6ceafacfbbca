//! A server's tool as a [`Tool`]: a call finds the instance for its session, and its result is bounded like that of any tool.

use std::sync::Arc;
use std::time::Duration;

use linger_protocol::event::Outcome;
use linger_protocol::message::ContentBlock;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::connection::{CallError, Hears};
use super::listing::ToolInfo;
use super::peer::{Failure, Progress, ServerRequest};
use super::result::CallResult;
use super::schema::mended;
use super::server::Server;
use crate::sys::task;
use crate::tool::output::Output;
use crate::tool::set::Takes;
use crate::tool::{
    Access, Ask, BoxFuture, Call, Choice, Chosen, Context, Effects, Invalid, Tool, ToolOutput, Wants, Workspace, text,
};

/// The time between two lines of progress: each is a row in the store.
const PROGRESS_PAUSE: Duration = Duration::from_millis(250);

/// JSON-RPC's codes of requests that are not run: what cannot be read, what makes no sense, an unknown method, bad arguments.
const REFUSALS: [i64; 4] = [-32700, -32600, -32601, -32602];

/// The longest message of progress, in bytes: a line.
const MAX_PROGRESS: usize = 512;

/// A tool of a server.
pub(super) struct McpTool {
    server: Arc<Server>,
    info: ToolInfo,
    version: String,
    description: String,
}

impl McpTool {
    /// `about`: when to use the server, as its file says.
    pub(super) fn new(server: Arc<Server>, info: ToolInfo, about: Option<&str>) -> Self {
        let version = info.version();
        let description = match about {
            Some(about) => format!("[about all tools of {}: {about}]\n{}", server.name, info.description),
            None => info.description.clone(),
        };
        Self { server, info, version, description }
    }
}

impl Tool for McpTool {
    fn name(&self) -> &str {
        &self.info.name
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn schema(&self) -> Value {
        self.info.schema.clone()
    }

    fn server(&self) -> Option<&str> {
        Some(&self.server.name)
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn pattern(&self) -> Takes {
        Takes::Version
    }

    fn prepare(&self, input: &Value, workspace: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        if !input.is_object() {
            return Err(Invalid("the arguments are not a JSON object".to_owned()));
        }
        let (server, tool, version) = (self.server.clone(), self.info.clone(), self.version.clone());
        let (input, workspace) = (input.clone(), workspace.clone());
        Ok(Box::new(McpCall { server, tool, version, input, workspace }))
    }
}

struct McpCall {
    server: Arc<Server>,
    tool: ToolInfo,
    version: String,
    input: Value,
    workspace: Workspace,
}

impl Call for McpCall {
    fn action(&self) -> String {
        match self.input.as_object() {
            Some(fields) if fields.is_empty() => format!("{}: {}", self.server.name, text::one_line(&self.tool.tool)),
            _ => format!("{}: {} {}", self.server.name, text::one_line(&self.tool.tool), self.input),
        }
    }

    fn effects(&self) -> Effects {
        // That it only reads is the server's own word: it lets calls overlap, and allows nothing.
        let (server, tool) = (self.server.name.clone(), self.tool.tool.clone());
        let access = Access::Other { server, tool, version: self.version.clone() };
        Effects { overlaps: self.tool.read_only, ..Effects::change(access) }
    }

    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        Box::pin(async move { self.execute(context).await })
    }
}

impl McpCall {
    async fn execute(&self, context: Context) -> ToolOutput {
        let session = context.call.split('/').next().unwrap_or_default().to_owned();
        let ask = context.ask.clone();
        let mut output = Output::to(context.output, context.blobs);
        let name = &self.server.name;
        let mut following = Following { server: &self.server, ask, output: &mut output, shown: Shown::default() };
        let result = match self.called(&session, &mut following).await {
            Ok(mut result) => {
                if result.is_error && result.text.trim().is_empty() {
                    result.text = format!("[the tool failed without a reason: the MCP server {name} gave none]");
                }
                result
            }
            Err(failed) => {
                let (outcome, text) = failed.told(name, self.server.config.timeout());
                return ToolOutput { outcome, ..ToolOutput::error(self.server.redacted(&text)) };
            }
        };
        let (result, misfit) = self.checked(result).await;
        // Before it is stored or a model reads it: the variables of a server are for its process alone.
        let result = result.redacted(|text| self.server.redacted(text));
        let CallResult { text, images, links, made, is_error, .. } = result;
        if !text.is_empty() {
            output.push(text.as_bytes()).await;
        }
        let mut kept = output.finish().await;
        if text.is_empty() && !(images.is_empty() && links.is_empty()) {
            kept.content.clear();
        }
        kept.content.extend(images);
        kept.content.extend(links);
        let mut notices = Vec::new();
        if let Some(why) = misfit {
            // The result is kept: what it says may serve all the same.
            let why = self.server.redacted(&why);
            kept.content
                .push(ContentBlock::text(format!("[this result does not fit the output schema of the tool: {why}]")));
            let tool = text::one_line(&self.tool.name);
            notices.push(format!("a result of {tool} does not fit its output schema: {}", text::one_line(&why)));
        }
        let (content, output, whole) = (kept.content, kept.segments, kept.whole);
        ToolOutput { content, is_error, output, whole, notices, made, ..ToolOutput::text("") }
    }

    /// The server's result. A call that a server has not taken because it has forgotten the session is made once more in a new one.
    async fn called(&self, session: &str, following: &mut Following<'_>) -> Result<CallResult, Failed> {
        let limit = self.server.config.timeout();
        let mut again = true;
        loop {
            let connection = self.server.connection(&self.workspace, session).await.map_err(Failed::NoConnection)?;
            match connection.call(&self.tool, &self.input, limit, following).await {
                Err(CallError::Failure(Failure::Forgotten)) if std::mem::take(&mut again) => {}
                called => return called.map_err(Failed::Call),
            }
        }
    }

    /// The result, and what is wrong with it by the tool's output schema.
    async fn checked(&self, result: CallResult) -> (CallResult, Option<String>) {
        let Some(schema) = self.tool.output_schema.clone() else { return (result, None) };
        let check = move || {
            let misfit = result.misfit(&schema);
            (result, misfit)
        };
        // A large value takes a while.
        task::spawn_blocking(check).await.unwrap_or_else(|error| {
            let text = format!("the result cannot be checked: {error}");
            (CallResult { text, is_error: true, ..CallResult::default() }, None)
        })
    }
}

/// Why a call has no result of its tool.
enum Failed {
    /// The server cannot be started or reached.
    NoConnection(String),
    Call(CallError),
}

impl Failed {
    /// The outcome of the call as far as it is known, and the text for the model.
    fn told(self, name: &str, limit: Duration) -> (Outcome, String) {
        let error = match self {
            Self::NoConnection(why) => {
                return (Outcome::Ran, format!("not run: the MCP server {name} cannot be started: {why}"));
            }
            Self::Call(error) => error,
        };
        let failure = match error {
            CallError::TimedOut => {
                let text = format!("[timed out: the MCP server {name} said nothing for {} s]", limit.as_secs());
                return (Outcome::TimedOut, text);
            }
            CallError::Unfit(why) => return (Outcome::Ran, format!("the call of the MCP server {name} failed: {why}")),
            CallError::Failure(failure) => failure,
        };
        match failure {
            Failure::Refused { code, message } if REFUSALS.contains(&code) => {
                (Outcome::Ran, format!("the MCP server {name} refused the call: {message}"))
            }
            Failure::Refused { message, .. } => {
                (Outcome::Ran, format!("the MCP server {name} answered with an error: {message}"))
            }
            Failure::Unreadable(text) => {
                let text = format!("the MCP server {name} answered, but not so that the answer can be read: {text}");
                (Outcome::Ran, text)
            }
            Failure::NotTaken(why) => {
                (Outcome::Ran, format!("not run: the MCP server {name} did not take the call: {why}"))
            }
            Failure::Forgotten => {
                (Outcome::Ran, format!("not run: the MCP server {name} knows neither its session nor the new one"))
            }
            Failure::Lost(why) => {
                (Outcome::Unknown, format!("interrupted, outcome unknown: the MCP server {name}: {why}"))
            }
            Failure::Ended(why) => {
                (Outcome::Unknown, format!("interrupted, outcome unknown: the MCP server {name} is gone: {why}"))
            }
        }
    }
}

/// Shows the progress of a call as output.
struct Following<'a> {
    server: &'a Server,
    ask: Ask,
    output: &'a mut Output,
    shown: Shown,
}

impl Hears for Following<'_> {
    fn progress(&mut self, progress: Progress) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Some(line) = self.shown.line(&progress, Instant::now()) {
                self.output.aside(&self.server.redacted(&line)).await;
            }
        })
    }

    fn asked(&mut self, asked: ServerRequest) -> BoxFuture<'static, ()> {
        let ServerRequest { method, params, is_certain, reply } = asked;
        let text = params.get("message").and_then(Value::as_str).unwrap_or_default();
        let whose = if is_certain { "" } else { " (perhaps because of a call of another session)" };
        let text = self.server.redacted(&format!("the MCP server {} asks{whose}: {text}", self.server.name));
        let schema = params
            .get("requestedSchema")
            .filter(|schema| !schema.is_null())
            .map(|schema| self.server.redacted(&schema.to_string()));
        let schema = schema.and_then(|schema| serde_json::from_str(&schema).ok());
        let schema = match schema {
            // Where `null` is what is absent, it would be no schema.
            Some(Value::Object(fields)) => Value::Object(mended(fields).0),
            _ => json!({ "type": "object" }),
        };
        // An address to visit cannot be shown.
        let is_form = params.get("mode").is_none_or(|mode| mode.is_null() || mode == "form");
        let usual = defaults(&schema);
        let asking = is_form.then(|| (self.ask)(Choice { text, wants: Wants::Fields(schema) }));
        Box::pin(async move {
            let chosen = match asking {
                Some(asking) => asking.await,
                None => Err(Invalid(format!("{method} is no form"))),
            };
            let answer = match chosen {
                Ok(Chosen { value: Some(value), .. }) => json!({ "action": "accept", "content": filled(value, usual) }),
                Ok(Chosen { value: None, .. }) => json!({ "action": "decline" }),
                Err(why) => {
                    tracing::debug!(target: "mcp", %why, "a question is cancelled");
                    json!({ "action": "cancel" })
                }
            };
            let _gone = reply.send(answer);
        })
    }
}

/// The values that a form has of itself.
fn defaults(schema: &Value) -> Map<String, Value> {
    let fields = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    fields.filter_map(|(name, field)| Some((name.clone(), field.get("default")?.clone()))).collect()
}

/// The answer with the form's own values where it says nothing.
fn filled(answer: Value, usual: Map<String, Value>) -> Value {
    match answer {
        Value::Object(given) => {
            let missing = usual.into_iter().filter(|(name, _)| !given.contains_key(name)).collect::<Vec<_>>();
            Value::Object(given.into_iter().chain(missing).collect())
        }
        other => other,
    }
}

/// The progress of a call that was shown.
#[derive(Default)]
struct Shown {
    at: Option<Instant>,
    line: String,
}

impl Shown {
    /// The line to show, unless it would be the same or too soon.
    fn line(&mut self, progress: &Progress, now: Instant) -> Option<String> {
        let line = described(progress);
        if line == self.line || self.at.is_some_and(|at| now - at < PROGRESS_PAUSE) {
            return None;
        }
        (self.at, self.line) = (Some(now), line.clone());
        Some(line)
    }
}

/// A line for people.
fn described(Progress { progress, total, message }: &Progress) -> String {
    let done = match total {
        Some(total) => format!("{progress}/{total}"),
        None => progress.to_string(),
    };
    match message.as_deref().map(|text| text::one_line(text::head(text.trim(), MAX_PROGRESS))) {
        Some(message) if !message.is_empty() => format!("[{done}] {message}\n"),
        _ => format!("[{done}]\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_is_left_out_has_the_value_of_the_form() {
        let schema = json!({ "properties": { "a": { "default": 1 }, "b": { "default": false }, "c": {} } });
        let check = |answer: Value, expect: Value| assert_eq!(filled(answer, defaults(&schema)), expect);
        check(json!({}), json!({ "a": 1, "b": false }));
        check(json!({ "a": 2, "c": "x" }), json!({ "a": 2, "c": "x", "b": false }));
    }

    #[tokio::test(start_paused = true)]
    async fn progress_is_shown_in_lines_that_do_not_flood() {
        let progress =
            |progress, message: &str| Progress { progress, total: Some(3.0), message: Some(message.to_owned()) };
        let mut shown = Shown::default();
        let now = Instant::now();
        assert_eq!(shown.line(&progress(1.0, "one"), now).as_deref(), Some("[1/3] one\n"));
        assert_eq!(shown.line(&progress(2.0, "two"), now), None);
        let later = now + PROGRESS_PAUSE;
        assert_eq!(shown.line(&progress(1.0, "one"), later), None);
        assert_eq!(shown.line(&progress(2.5, ""), later).as_deref(), Some("[2.5/3]\n"));
    }
}
