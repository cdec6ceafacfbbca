//! Is a request body one that a provider would take (I4)? Written apart from the product's own idea of it.
//!
//! [`well_formed`] looks at one body; [`Continuity`] holds it against what the server itself said and was sent before.

mod gemini;
mod named;
mod ollama;
mod plain;
mod ran;
mod responses;
mod shape;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::wire::{Format, Issued};
use named::{Break, By};

/// How many cache breakpoints Anthropic takes in one request.
const MAX_BREAKPOINTS: usize = 4;

/// What is wrong with one body.
pub fn well_formed(format: Format, body: &[u8]) -> Vec<String> {
    let Ok(text) = std::str::from_utf8(body) else { return vec!["the body is not UTF-8".to_owned()] };
    let json: Value = match serde_json::from_str(text) {
        Ok(json) => json,
        Err(error) => return vec![format!("the body is not JSON: {error}")],
    };
    let mut wrong = Wrong::default();
    wrong.unless(!has_nul(&json), || "a string has NUL".to_owned());
    if format != Format::Gemini {
        wrong.unless(json["stream"] == true, || "stream is not true".to_owned());
        wrong.unless(json["model"].as_str().is_some_and(|model| !model.is_empty()), || "no model".to_owned());
    }
    let messages = messages(&json);
    wrong.unless(!messages.is_empty(), || "no messages".to_owned());
    unique_tools(format, &json, &mut wrong);
    match format {
        Format::Anthropic => anthropic(&json, messages, &mut wrong),
        Format::OpenAi => openai(messages, &mut wrong),
        Format::Responses => responses::check(&json, messages, &mut wrong),
        Format::Gemini => gemini::check(messages, &mut wrong),
        Format::Ollama => ollama::check(&json, messages, &mut wrong),
    }
    wrong.0
}

/// The messages, or what a format has in their place.
pub(super) fn messages(json: &Value) -> &[Value] {
    let lists = ["messages", "input", "contents"].iter().filter_map(|name| json[name].as_array());
    lists.map(Vec::as_slice).next().unwrap_or_default()
}

#[derive(Default)]
struct Wrong(Vec<String>);

impl Wrong {
    fn unless(&mut self, good: bool, what: impl FnOnce() -> String) {
        if !good {
            self.0.push(what());
        }
    }
}

fn unique_tools(format: Format, json: &Value, wrong: &mut Wrong) {
    let Some(tools) = json["tools"].as_array() else { return };
    let tools = match format {
        Format::Gemini => tools.iter().flat_map(|tool| tool["functionDeclarations"].as_array()).flatten().collect(),
        _ => tools.iter().collect::<Vec<_>>(),
    };
    let name = |tool: &Value| match format {
        Format::OpenAi | Format::Ollama => tool["function"]["name"].as_str().map(str::to_owned),
        // What runs at the server has a kind alone.
        Format::Responses if tool["type"] != "function" => tool["type"].as_str().map(str::to_owned),
        _ => tool["name"].as_str().map(str::to_owned),
    };
    let names: BTreeSet<_> = tools.iter().map(|tool| name(tool)).collect();
    wrong.unless(!names.contains(&None), || "a tool has no name".to_owned());
    wrong.unless(names.len() == tools.len(), || "two tools have one name".to_owned());
    wrong.unless(!tools.is_empty(), || "tools is an empty list".to_owned());
}

fn anthropic(json: &Value, messages: &[Value], wrong: &mut Wrong) {
    wrong.unless(json["max_tokens"].as_u64().is_some_and(|n| n > 0), || "no max_tokens".to_owned());
    let breakpoints = json.to_string().matches("\"cache_control\":{").count();
    wrong.unless(breakpoints <= MAX_BREAKPOINTS, || format!("{breakpoints} cache breakpoints"));
    wrong.unless(messages.first().is_some_and(|m| m["role"] == "user"), || {
        "the first message is not a user's".to_owned()
    });
    // What was paused goes on.
    let at_work =
        |message: &Value| !ran::all(Format::Anthropic, &serde_json::json!({ "messages": [message] })).is_empty();
    wrong.unless(messages.last().is_some_and(|m| m["role"] == "user" || at_work(m)), || {
        "the last message is not a user's".to_owned()
    });
    ran::anthropic(messages, wrong);
    let mut seen = BTreeSet::new();
    let mut open: Vec<String> = Vec::new();
    for (n, message) in messages.iter().enumerate() {
        let blocks = blocks(&message["content"]);
        wrong.unless(!blocks.is_empty(), || format!("message {n} has no content"));
        wrong.unless(matches!(message["role"].as_str(), Some("user" | "assistant")), || {
            format!("message {n} has no role")
        });
        let results: Vec<&Value> = blocks.iter().filter(|block| block["type"] == "tool_result").collect();
        if message["role"] == "user" {
            let answered: Vec<String> = results.iter().map(|result| text(&result["tool_use_id"])).collect();
            pairs(n, &open, &answered, wrong);
            let leading = blocks.iter().take_while(|block| block["type"] == "tool_result").count();
            wrong.unless(leading == results.len(), || format!("message {n}: results are not first"));
            open.clear();
        } else {
            wrong
                .unless(open.is_empty(), || format!("message {n}: calls {open:?} have no results in the next message"));
            wrong.unless(results.is_empty(), || format!("message {n}: an assistant's message has results"));
        }
        for block in &blocks {
            match block["type"].as_str() {
                Some("text") => wrong.unless(!blank(&block["text"]), || format!("message {n} has empty text")),
                Some("tool_result") => blocks_of_result(n, &block["content"], wrong),
                Some("tool_use") => {
                    let id = text(&block["id"]);
                    wrong.unless(block["input"].is_object(), || format!("message {n}: the input of {id} is no object"));
                    wrong.unless(id_fits(&id), || format!("message {n}: bad call id '{id}'"));
                    wrong.unless(seen.insert(id.clone()), || format!("message {n}: call id {id} is used twice"));
                    open.push(id);
                }
                Some("thinking") => wrong.unless(block["signature"].as_str().is_some_and(|s| !s.is_empty()), || {
                    format!("message {n} has thinking without a signature")
                }),
                Some("image" | "redacted_thinking") => {}
                Some("server_tool_use") => {}
                Some(kind) if kind.ends_with("_tool_result") => {}
                other => wrong.unless(false, || format!("message {n} has a block of type {other:?}")),
            }
        }
    }
    wrong.unless(open.is_empty(), || format!("calls {open:?} have no results"));
}

fn blocks_of_result(n: usize, content: &Value, wrong: &mut Wrong) {
    // A result may have no content at all; what it has must not be empty.
    for block in blocks(content) {
        if block["type"] == "text" {
            wrong.unless(!block["text"].as_str().unwrap_or_default().is_empty(), || {
                format!("message {n} has a result with empty text")
            });
        }
    }
}

fn openai(messages: &[Value], wrong: &mut Wrong) {
    let first = messages.iter().find(|m| !matches!(m["role"].as_str(), Some("system" | "developer")));
    wrong.unless(first.is_some_and(|m| m["role"] == "user"), || "the first message is not a user's".to_owned());
    let last = messages.last().map(|m| text(&m["role"])).unwrap_or_default();
    wrong.unless(matches!(last.as_str(), "user" | "tool"), || format!("the last message is of role '{last}'"));
    let mut seen = BTreeSet::new();
    let mut open: Vec<String> = Vec::new();
    let mut answered: Vec<String> = Vec::new();
    for (n, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role != "tool" {
            pairs(n, &open, &answered, wrong);
            open.clear();
            answered.clear();
        }
        let calls = message["tool_calls"].as_array();
        wrong.unless(calls.is_none_or(|calls| !calls.is_empty()), || format!("message {n}: tool_calls is empty"));
        let blocks = blocks(&message["content"]);
        let empty = blocks.is_empty() || blocks.iter().any(|block| block["type"] == "text" && blank(&block["text"]));
        let may_be_empty = role == "assistant" && calls.is_some();
        wrong.unless(!empty || may_be_empty, || format!("message {n} ({role}) has no content"));
        match role {
            "system" | "developer" | "user" => {}
            "assistant" => {
                for call in calls.into_iter().flatten() {
                    let id = text(&call["id"]);
                    wrong.unless(id_fits(&id), || format!("message {n}: bad call id '{id}'"));
                    wrong.unless(seen.insert(id.clone()), || format!("message {n}: call id {id} is used twice"));
                    wrong.unless(call["type"] == "function", || format!("message {n}: {id} is no function"));
                    wrong.unless(call["function"]["arguments"].is_string(), || {
                        format!("message {n}: the arguments of {id} are no string")
                    });
                    open.push(id);
                }
            }
            "tool" => answered.push(text(&message["tool_call_id"])),
            other => wrong.unless(false, || format!("message {n} has role '{other}'")),
        }
    }
    pairs(messages.len(), &open, &answered, wrong);
}

/// Every call has exactly one result, and every result its call.
fn pairs(n: usize, calls: &[String], results: &[String], wrong: &mut Wrong) {
    for call in calls {
        let count = results.iter().filter(|result| *result == call).count();
        wrong.unless(count == 1, || format!("message {n}: call {call} has {count} results in the next message"));
    }
    for result in results {
        wrong.unless(calls.contains(result), || format!("message {n}: the result of {result} has no call before it"));
    }
}

/// Content as blocks, whichever way it is written.
fn blocks(content: &Value) -> Vec<Value> {
    match content {
        Value::String(text) => vec![serde_json::json!({ "type": "text", "text": text })],
        Value::Array(blocks) => blocks.clone(),
        _ => Vec::new(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn blank(value: &Value) -> bool {
    value.as_str().is_none_or(|text| text.trim().is_empty())
}

fn id_fits(id: &str) -> bool {
    !id.is_empty() && id.len() <= 64 && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(fields) => fields.iter().any(|(key, value)| key.contains('\0') || has_nul(value)),
        _ => false,
    }
}

/// What was sent and said so far, by model.
#[derive(Debug, Default)]
pub struct Continuity {
    chains: BTreeMap<(Format, String), Vec<Chain>>,
    issued: Vec<Issued>,
    /// Whether something that a test did (another model, a new build) makes the prefix change.
    pub rewrites: bool,
    /// Where the prefix changed, until an event is found that names the change.
    breaks: Vec<Break>,
    /// The events that have excused all that they can.
    spent: BTreeSet<String>,
}

/// A system prompt without the day on which its session was started.
fn undated(preamble: &str) -> String {
    const DAY: &str = "Session started: ";
    let Some((before, after)) = preamble.split_once(DAY) else { return preamble.to_owned() };
    let rest = after.get("2026-01-01".len()..).unwrap_or_default();
    format!("{before}{DAY}{rest}")
}

/// The last request of one session.
#[derive(Debug)]
struct Chain {
    /// What goes before the messages.
    preamble: String,
    items: Vec<String>,
}

impl Continuity {
    /// Remembers what a response said.
    pub fn issue(&mut self, issued: Issued) {
        self.issued.push(issued);
    }

    /// What is wrong with a body in the light of what came before; remembers it.
    pub fn admit(&mut self, format: Format, model: &str, json: &Value) -> Vec<String> {
        let mut wrong = Wrong::default();
        self.comes_back(format, json, &mut wrong);
        let (asked, bare) = shape::taken_out(format, json);
        let (preamble, items) = flatten(format, &bare);
        if let Some(schema) = &asked {
            let what = format!("{model}: the answer is held to a schema that no prompt has: {schema}");
            self.breaks.push(Break { what, by: By::Prompt(schema.clone()) });
        }
        let summarised = named::begins_with_summary(json, &items);
        let first = !summarised && !items.iter().any(|item| item.starts_with("assistant "));
        let chains = self.chains.entry((format, model.to_owned())).or_default();
        let overtaken = !first && chains.iter().any(|chain| chain.items.starts_with(&items));
        // Of two that began with the same words, the one that was asked in the same way.
        let nearest = |chain: &&mut Chain| (chain.items.len(), chain.preamble == preamble);
        let before = chains.iter_mut().filter(|chain| items.starts_with(&chain.items)).max_by_key(nearest);
        match before {
            // Another session may begin with the same words, perhaps on another day; either may go on.
            Some(chain) if first && chain.items == items && undated(&chain.preamble) == undated(&preamble) => {
                chains.push(Chain { preamble, items });
            }
            Some(chain) => {
                // The last step of such a turn may have no tools, in the formats that have no other way.
                let alone = asked.is_some() && json["tools"].is_null();
                let preamble = if alone { chain.preamble.clone() } else { preamble };
                if chain.preamble != preamble && !self.rewrites {
                    let what = format!("system prompt or tools changed{}", difference(&chain.preamble, &preamble));
                    self.breaks.push(Break { what: format!("{model}: {what}"), by: By::Setup });
                }
                *chain = Chain { preamble, items };
            }
            // It was sent before the last one and has been overtaken by it: its turn was interrupted, and the next request came over
            // another connection. Nobody may go on from its answer.
            None if overtaken => {}
            None => {
                if !first && !self.rewrites {
                    let nearest = chains.last().map(|chain| diverges(&chain.items, &items)).unwrap_or_default();
                    let what = format!("the messages do not continue those of any request before{nearest}");
                    let before = chains.iter().map(|chain| chain.items.clone()).collect();
                    let by = By::Room { items: items.clone(), before };
                    self.breaks.push(Break { what: format!("{model}: {what}"), by });
                }
                chains.push(Chain { preamble, items });
            }
        }
        wrong.0
    }

    /// Takes the events of the sessions: those that change the prefix excuse what they changed.
    pub fn named(&mut self, events: &[&Value]) {
        let Self { breaks, spent, .. } = self;
        breaks.retain(|found| {
            let named = events.iter().find(|event| found.is_named_by(event) && !spent.contains(&event.to_string()));
            // A compaction is what several requests go on from; another setup begins once.
            spent.extend(named.filter(|_| matches!(found.by, By::Setup)).map(ToString::to_string));
            named.is_none()
        });
    }

    /// Where the prefix changed, and nothing names the change.
    pub fn unnamed(&self) -> impl Iterator<Item = &String> {
        self.breaks.iter().map(|found| &found.what)
    }

    /// Forgets where the prefix changed.
    pub fn forgive(&mut self) {
        self.breaks.clear();
    }

    /// Signed thinking and calls are as the server wrote them.
    fn comes_back(&self, format: Format, json: &Value, wrong: &mut Wrong) {
        for block in ran::all(format, json).iter().filter(|block| !ran::is_given_up(block)) {
            let block = block.to_string();
            let known = self.issued.iter().any(|issued| issued.ran.contains(&block));
            wrong.unless(known, || format!("what ran at the provider came back changed: {block}"));
        }
        // Thinking that no one signs is a text like any other, and no request has NUL.
        let text_of = |(text, signature): &(String, String)| match format {
            Format::OpenAi => (text.replace('\0', "\u{fffd}"), String::new()),
            Format::Ollama => (text.replace('\0', "\u{fffd}"), signature.clone()),
            Format::Anthropic | Format::Responses | Format::Gemini => (text.clone(), signature.clone()),
        };
        for (thinking, calls) in answers(format, json) {
            let known = |pair: &(String, String)| {
                let plain = text_of(pair);
                self.issued.iter().flat_map(|issued| &issued.thinking).any(|issued| text_of(issued) == plain)
            };
            for pair in thinking.iter().filter(|pair| !known(pair)) {
                wrong.0.push(format!("thinking came back changed: {pair:?}"));
            }
            let source = calls.iter().find_map(|(id, ..)| {
                let has = |issued: &&Issued| issued.calls.iter().any(|(known, ..)| known == id && !id.is_empty());
                self.issued.iter().find(has)
            });
            let Some(source) = source else { continue };
            let keeps = matches!(format, Format::Anthropic | Format::Responses | Format::Gemini);
            // What has NUL cannot come back as it was. A format's whole item is JSON.
            let said = |text: &String| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text.as_str()));
            let due: Vec<_> = source.thinking.iter().filter(|(text, _)| !has_nul(&said(text))).cloned().collect();
            if keeps && thinking != due {
                wrong.0.push(format!("thinking before calls came back as {thinking:?}, was {:?}", source.thinking));
            }
            for (id, name, arguments) in &calls {
                let Some((_, n, a)) = source.calls.iter().find(|(known, ..)| known == id) else { continue };
                // Arguments that are no JSON object have no form of their own in every format.
                let object = serde_json::from_str::<Value>(a).is_ok_and(|a| a.is_object());
                if n != name || (object && a != arguments) {
                    wrong.0.push(format!("call {id} came back as {name}({arguments}), was {n}({a})"));
                }
            }
        }
    }
}

type Said = (Vec<(String, String)>, Vec<(String, String, String)>);

/// The thinking and the calls of each of a model's messages.
fn answers(format: Format, json: &Value) -> Vec<Said> {
    match format {
        Format::Responses => responses::answers(messages(json)),
        Format::Gemini => gemini::answers(messages(json)),
        Format::Ollama => ollama::answers(messages(json)),
        Format::Anthropic | Format::OpenAi => {
            let own = messages(json).iter().filter(|message| message["role"] == "assistant");
            own.map(|message| said(format, message)).collect()
        }
    }
}

/// The thinking and the calls of a message of the first two formats.
fn said(format: Format, message: &Value) -> Said {
    if format == Format::Anthropic {
        let blocks = blocks(&message["content"]);
        let of = |kind: &str| blocks.iter().filter(move |b| b["type"] == kind).cloned().collect::<Vec<_>>();
        let thinking = of("thinking").iter().map(|b| (text(&b["thinking"]), text(&b["signature"]))).collect();
        let calls = of("tool_use").iter().map(|b| (text(&b["id"]), text(&b["name"]), b["input"].to_string())).collect();
        return (thinking, calls);
    }
    let thinking = text(&message["reasoning_content"]);
    let thinking = if thinking.is_empty() { Vec::new() } else { vec![(thinking, String::new())] };
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    let calls = calls.map(|c| (text(&c["id"]), text(&c["function"]["name"]), text(&c["function"]["arguments"])));
    (thinking, calls.collect())
}

/// What goes before the messages, and the messages as a list of `role block`; a provider joins messages of one role.
fn flatten(format: Format, json: &Value) -> (String, Vec<String>) {
    let mut json = json.clone();
    without_cache_control(&mut json);
    let mut preamble =
        format!("{}{}{}{}", json["system"], json["tools"], json["instructions"], json["systemInstruction"]);
    let mut items = Vec::new();
    for message in messages(&json) {
        let role = text(&message["role"]);
        if matches!(role.as_str(), "system" | "developer") {
            preamble.push_str(&message.to_string());
            continue;
        }
        match format {
            Format::Anthropic | Format::OpenAi => {}
            Format::Responses => {
                let own = matches!(message["type"].as_str(), Some("function_call" | "reasoning"));
                let role = if own { "assistant" } else { role.as_str() };
                items.push(format!("{role} {message}"));
                continue;
            }
            Format::Gemini => {
                let role = if role == "model" { "assistant" } else { "user" };
                items.extend(message["parts"].as_array().into_iter().flatten().map(|part| format!("{role} {part}")));
                continue;
            }
            Format::Ollama => {
                items.push(format!("{role} {message}"));
                continue;
            }
        }
        items.extend(
            blocks(&message["content"])
                .iter()
                .map(|block| format!("{role} {} {block}", text(&message["tool_call_id"]))),
        );
        for key in ["tool_calls", "reasoning_content"] {
            if !message[key].is_null() {
                items.push(format!("{role} {key} {}", message[key]));
            }
        }
    }
    (preamble, items)
}

fn without_cache_control(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("cache_control");
            fields.values_mut().for_each(without_cache_control);
        }
        Value::Array(items) => items.iter_mut().for_each(without_cache_control),
        _ => {}
    }
}

fn difference(old: &str, new: &str) -> String {
    let at = old.bytes().zip(new.bytes()).take_while(|(a, b)| a == b).count();
    let excerpt = |s: &str| s.get(at..).map(|s| s.chars().take(80).collect::<String>()).unwrap_or_default();
    format!(" at byte {at}: was '{}', is '{}'", excerpt(old), excerpt(new))
}

fn diverges(old: &[String], new: &[String]) -> String {
    let at = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    format!("; the last one had item {at} as {:?}, now {:?}", old.get(at), new.get(at))
}

#[cfg(test)]
mod tests;
