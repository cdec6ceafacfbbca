//! A request in the form that both interfaces have in common. Pure.

use linger_protocol::completion::{Message, Start, Tool, ToolChoice};
use linger_protocol::id::{CallId, SessionId};
use linger_protocol::message::{ContentBlock, Role, text_of};
use linger_protocol::session::Effort;
use serde_json::{Map, Value, json};

use super::super::reply::Failure;

/// A request, in the form that both interfaces share.
#[derive(Debug, Default)]
pub(super) struct ApiRequest {
    /// As the caller wrote it.
    pub(super) model: String,
    /// Instructions, one a message.
    pub(super) system: Vec<String>,
    pub(super) messages: Vec<Message>,
    pub(super) tools: Vec<Tool>,
    pub(super) schema: Option<Value>,
    pub(super) max_tokens: Option<u32>,
    pub(super) effort: Effort,
    pub(super) is_stream: bool,
    /// The options of the answer; no other field is set.
    pub(super) options: Start,
    /// Whether the answer must be a JSON object of any form.
    pub(super) wants_object: bool,
    /// The parts of the request that have no effect, as the caller knows them.
    pub(super) ignored: Vec<String>,
    /// The whole request, for a provider that speaks Responses itself.
    pub(super) responses: Option<String>,
    /// The fault of the request for all other providers.
    pub(super) unless_native: Option<Failure>,
    /// The calls without a result so far.
    pub(super) open: Vec<OpenCall>,
    /// How many calls there were.
    pub(super) calls: usize,
}

/// A call of the model's whose result was not seen yet.
#[derive(Debug)]
pub(super) struct OpenCall {
    /// As the caller wrote it; other calls may have the same, and it may be empty.
    said: String,
    /// A name of its own.
    id: CallId,
    name: String,
}

/// Whom a request asks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A model, with nothing of linger's.
    Plain,
    /// A session that is there.
    Bound(SessionId),
    /// A session that is made for it: the model, the tools, the agent.
    Made { model: Option<String>, tools: Option<Vec<String>>, agent: Option<String> },
}

/// The fields that change an answer in a way that nothing here can, with the values that change nothing.
const UNKNOWN: [(&str, &[&str]); 8] = [
    ("n", &["1"]),
    ("logit_bias", &["{}"]),
    ("logprobs", &["false"]),
    ("audio", &[]),
    ("functions", &["[]"]),
    ("previous_response_id", &[]),
    ("conversation", &[]),
    ("background", &["false"]),
];

impl ApiRequest {
    /// The fields that both interfaces write the same way.
    pub(super) fn of(body: &Map<String, Value>) -> Result<Self, Failure> {
        for (name, harmless) in UNKNOWN {
            let value = body.get(name).filter(|value| !value.is_null()).map(Value::to_string);
            if value.is_some_and(|value| !harmless.contains(&value.as_str())) {
                let hint = match name {
                    "previous_response_id" | "conversation" => {
                        "the header X-Linger-Session binds a request to a session"
                    }
                    "functions" => "write them as `tools`",
                    _ => "leave it out",
                };
                return Err(Failure::bad_request(format!("`{name}` is not supported")).hint(hint));
            }
        }
        let model = body.get("model").and_then(Value::as_str).unwrap_or_default().to_owned();
        if model.is_empty() {
            return Err(
                Failure::bad_request("`model` is missing").hint("`GET /v1/models` lists those that can be used")
            );
        }
        let is_stream = body.get("stream").and_then(Value::as_bool).unwrap_or_default();
        Ok(Self { model, is_stream, ..Self::default() })
    }

    /// Adds what someone says; what follows from the same one is part of it.
    pub(super) fn say(&mut self, role: Role, content: Vec<ContentBlock>) {
        let content: Vec<ContentBlock> = content.into_iter().filter(|block| block.as_text() != Some("")).collect();
        match self.messages.last_mut().filter(|last| last.role == role) {
            Some(last) => last.content.extend(content),
            None if content.is_empty() => {}
            None => self.messages.push(Message { role, content }),
        }
    }

    /// Adds a call of the model's, with its arguments as text.
    pub(super) fn call(&mut self, id: &str, name: &str, arguments: &str) {
        let arguments = if arguments.trim().is_empty() { "{}" } else { arguments };
        let input = serde_json::from_str(arguments).unwrap_or_else(|_| arguments.into());
        self.calls += 1;
        let is_taken = id.is_empty() || self.open.iter().any(|call| call.id.as_str() == id);
        let call_id = if is_taken { CallId(format!("call_{}", self.calls)) } else { CallId::from(id) };
        self.open.push(OpenCall { said: id.to_owned(), id: call_id.clone(), name: name.to_owned() });
        self.say(Role::Assistant, vec![ContentBlock::ToolUse { call_id, name: name.to_owned(), input, native: None }]);
    }

    /// Adds what came of a call: the first one with this id that has no result.
    pub(super) fn result(&mut self, id: &str, content: Vec<ContentBlock>) -> Result<(), Failure> {
        let Some(n) = self.open.iter().position(|call| call.said == id) else {
            let text = format!("no call before it has the id '{}', or it has its result", id.escape_default());
            return Err(Failure::bad_request(text));
        };
        let call_id = self.open.remove(n).id;
        self.say(Role::User, vec![ContentBlock::ToolResult { call_id, is_error: false, content }]);
        Ok(())
    }

    /// Adds what came of a function, by its name, as OpenAI's first form of calls has it; without a call it is the user's words.
    pub(super) fn function_result(&mut self, name: &str, content: Vec<ContentBlock>) {
        match self.open.iter().position(|call| call.name == name) {
            Some(n) => {
                let call_id = self.open.remove(n).id;
                self.say(Role::User, vec![ContentBlock::ToolResult { call_id, is_error: false, content }]);
            }
            None => {
                let text = format!("The function {name} returned: {}", text_of(&content));
                self.say(Role::User, vec![ContentBlock::text(text)]);
            }
        }
    }

    /// Adds a tool of the caller's: `{name, description, parameters}`.
    pub(super) fn tool(&mut self, function: &Value) -> Result<(), Failure> {
        let text = |name: &str| function.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = text("name");
        if name.is_empty() {
            return Err(Failure::bad_request("a tool has no name"));
        }
        let parameters = function.get("parameters").filter(|it| !it.is_null()).cloned();
        let input_schema = parameters.unwrap_or_else(|| json!({ "type": "object", "properties": {} }));
        self.tools.push(Tool { name, description: text("description"), input_schema });
        Ok(())
    }

    /// The shape of the answer: `{type: "json_schema", schema}`, `json_object` or `text`.
    pub(super) fn format(&mut self, format: Option<&Value>, schema: Option<&Value>) -> Result<(), Failure> {
        let Some(format) = format.filter(|format| !format.is_null()) else { return Ok(()) };
        self.schema = match (format.get("type").and_then(Value::as_str), schema) {
            (Some("text"), _) => None,
            (Some("json_object"), _) => {
                self.wants_object = true;
                Some(json!({ "type": "object" }))
            }
            (Some("json_schema"), Some(schema)) => Some(schema.clone()),
            (Some("json_schema"), None) => return Err(Failure::bad_request("the format has no `schema`")),
            _ => {
                return Err(Failure::bad_request(
                    "the format's type can be \"text\", \"json_object\" or \"json_schema\"",
                ));
            }
        };
        Ok(())
    }

    /// A number of tokens, and how hard the model thinks.
    pub(super) fn limits(&mut self, most: Option<&Value>, effort: Option<&Value>) -> Result<(), Failure> {
        if let Some(most) = most.filter(|most| !most.is_null()) {
            let number = most.as_u64().and_then(|most| u32::try_from(most).ok()).filter(|most| *most > 0);
            self.max_tokens =
                Some(number.ok_or_else(|| Failure::bad_request(format!("{most} is no number of tokens")))?);
        }
        if let Some(effort) = effort.filter(|effort| !effort.is_null()) {
            let effort = effort.as_str().unwrap_or_default();
            self.effort = effort.parse().map_err(Failure::bad_request)?;
        }
        Ok(())
    }

    /// Whom it asks. The caller's tools do not go together with linger's.
    pub(super) fn target(&self, session: Option<SessionId>) -> Result<Target, Failure> {
        let target = match (session, self.model.strip_prefix("agent/"), self.model.split_once('|')) {
            (Some(session), ..) => Target::Bound(session),
            (None, Some(""), _) => return Err(Failure::bad_request("`agent/` lacks a name")),
            (None, Some(agent), _) => Target::Made { model: None, tools: None, agent: Some(agent.to_owned()) },
            (None, None, Some((model, tools))) => {
                let tools: Vec<String> =
                    tools.split('|').map(str::trim).filter(|tool| !tool.is_empty()).map(str::to_owned).collect();
                // `MODEL|` is all of linger's tools.
                let tools = Some(tools).filter(|tools| !tools.is_empty());
                Target::Made {
                    model: Some(model.trim().to_owned()).filter(|model| !model.is_empty()),
                    tools,
                    agent: None,
                }
            }
            (None, None, None) => Target::Plain,
        };
        if target == Target::Plain {
            return Ok(target);
        }
        if let Some(failure) = &self.unless_native {
            return Err(failure.clone());
        }
        if !self.options.stop.is_empty() {
            let failure = Failure::bad_request("`stop` in a request for a session");
            return Err(failure.hint("leave it out, or name a model alone"));
        }
        if !self.tools.is_empty() && self.options.tool_choice != ToolChoice::None {
            let failure = Failure::bad_request("tools of the caller and tools of linger in one request");
            return Err(failure.hint("leave `tools` out, or name a model alone"));
        }
        Ok(target)
    }

    /// The parts of the request that have no effect in a session.
    pub(super) fn ignored_in_session(&self) -> Vec<String> {
        let options = &self.options;
        let given = [
            ("temperature", options.temperature.is_some()),
            ("top_p", options.top_p.is_some()),
            ("seed", options.seed.is_some()),
            ("frequency_penalty", options.frequency_penalty.is_some()),
            ("presence_penalty", options.presence_penalty.is_some()),
            ("max_tokens", self.max_tokens.is_some()),
        ];
        let given = given.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name.to_owned());
        self.ignored.iter().cloned().chain(given).collect()
    }

    /// The prompt for a session: the user's last message, or instructions that stand alone. In a new session the earlier messages come before it.
    pub(super) fn prompt(&self, is_bound: bool) -> Result<Vec<ContentBlock>, Failure> {
        if self.messages.is_empty() && !self.system.is_empty() {
            return Ok(vec![ContentBlock::text(self.system.join("\n\n"))]);
        }
        let Some((last, before)) = self.messages.split_last().filter(|(last, _)| last.role == Role::User) else {
            let failure = Failure::bad_request(
                "a session goes on after the user's words, and the last message is not the user's",
            );
            return Err(failure.hint("name a model alone to have the model's own words continued"));
        };
        let is_plain = |block: &ContentBlock| matches!(block, ContentBlock::Text { .. } | ContentBlock::Image { .. });
        if !self.messages.iter().flat_map(|message| &message.content).all(is_plain) {
            return Err(Failure::bad_request("calls of the caller's tools go to a model alone").hint("leave them out"));
        }
        let mut blocks = Vec::new();
        if !(is_bound || before.is_empty() && self.system.is_empty()) {
            blocks.push(ContentBlock::text(self.so_far(before)));
            let images = before.iter().flat_map(|message| &message.content).filter(|block| block.as_text().is_none());
            blocks.extend(images.cloned());
        }
        blocks.extend(last.content.iter().cloned());
        Ok(blocks)
    }

    /// Instructions and what was said before, as a text.
    fn so_far(&self, before: &[Message]) -> String {
        let mut text = String::new();
        if !self.system.is_empty() {
            text.push_str(&format!("Instructions of the program that asks:\n\n{}\n\n", self.system.join("\n\n")));
        }
        if !before.is_empty() {
            text.push_str("What was said before:\n\n");
        }
        for message in before {
            let by = if message.role == Role::User { "User" } else { "Assistant" };
            let texts: Vec<&str> = message.content.iter().filter_map(ContentBlock::as_text).collect();
            text.push_str(&format!("{by}: {}\n\n", texts.join("\n\n")));
        }
        text.push_str("What the user says now:");
        text
    }
}

/// An image of a request, which is in it: nothing is fetched.
pub(super) fn image(url: &str) -> Result<ContentBlock, Failure> {
    let wrong = || {
        Failure::bad_request("an image is a data URL, such as data:image/png;base64,…")
            .hint("nothing is fetched for a request")
    };
    let (media_type, data) = url.strip_prefix("data:").and_then(|url| url.split_once(";base64,")).ok_or_else(wrong)?;
    Ok(ContentBlock::image(media_type, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(model: &str) -> ApiRequest {
        ApiRequest { model: model.to_owned(), ..ApiRequest::default() }
    }

    #[test]
    fn a_models_name_says_whom_a_request_asks() {
        let made = |model: Option<&str>, tools: Option<&[&str]>, agent: Option<&str>| Target::Made {
            model: model.map(str::to_owned),
            tools: tools.map(|tools| tools.iter().map(|tool| (*tool).to_owned()).collect()),
            agent: agent.map(str::to_owned),
        };
        let check = |model: &str, expect: Target| assert_eq!(asked(model).target(None).unwrap(), expect, "{model}");
        check("openai/gpt-5", Target::Plain);
        check("openrouter/openai/gpt-5", Target::Plain);
        check("agent/reviewer", made(None, None, Some("reviewer")));
        check("demo|read|bash", made(Some("demo"), Some(&["read", "bash"]), None));
        check("demo|", made(Some("demo"), None, None));
        check("|read", made(None, Some(&["read"]), None));
        assert_eq!(asked("x").target(Some("s1".into())).unwrap(), Target::Bound("s1".into()));
        assert!(asked("agent/").target(None).is_err());
        let mut both = asked("demo|read");
        both.tool(&json!({ "name": "mine" })).unwrap();
        assert_eq!(both.target(None).unwrap_err().status.as_u16(), 400);
        assert_eq!(ApiRequest { model: "demo".to_owned(), ..both }.target(None).unwrap(), Target::Plain);
    }

    #[test]
    fn a_session_gets_the_last_word_and_a_new_one_what_was_said_before() {
        let mut it = asked("demo|");
        it.system.push("be brief".to_owned());
        it.say(Role::User, vec![ContentBlock::text("one")]);
        it.say(Role::Assistant, vec![ContentBlock::text("two")]);
        it.say(Role::User, vec![ContentBlock::text("three")]);
        let before = "Instructions of the program that asks:\n\nbe brief\n\nWhat was said before:\n\nUser: one\n\n\
                      Assistant: two\n\nWhat the user says now:";
        assert_eq!(it.prompt(false).unwrap(), [ContentBlock::text(before), ContentBlock::text("three")]);
        assert_eq!(it.prompt(true).unwrap(), [ContentBlock::text("three")]);
        it.say(Role::Assistant, vec![ContentBlock::text("four")]);
        assert!(it.prompt(true).is_err());
    }

    #[test]
    fn what_cannot_be_done_is_refused_and_what_changes_nothing_is_not() {
        let of = |body: Value| ApiRequest::of(body.as_object().unwrap()).map(drop).map_err(|failure| failure.message);
        assert_eq!(of(json!({ "model": "m", "n": 1, "stop": null, "logit_bias": {}, "temperature": 0.5 })), Ok(()));
        assert!(of(json!({ "model": "m", "n": 2 })).unwrap_err().contains("`n`"));
        assert!(of(json!({ "model": "m", "logprobs": true })).unwrap_err().contains("`logprobs`"));
        assert!(of(json!({})).unwrap_err().contains("`model`"));
        assert!(image("https://example.org/x.png").is_err() && image("data:image/png;base64,AA==").is_ok());
        assert!(asked("m").tool_choice(Some(&json!("required"))).is_err());
        assert!(
            asked("m").limits(Some(&json!(0)), None).is_err() && asked("m").limits(None, Some(&json!("huge"))).is_err()
        );
    }
}
