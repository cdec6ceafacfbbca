//! Gemini's `streamGenerateContent`.

use serde_json::{Value, json};

use super::{Check, list};

const FIELDS: &[&str] = &["systemInstruction", "contents", "tools", "toolConfig", "generationConfig"];

/// What a part may be.
const PART: &[&str] = &["text", "inlineData", "functionCall", "functionResponse", "thought", "thoughtSignature"];

impl Check {
    pub(super) fn gemini(&mut self, body: &Value) {
        self.fields("body", body, &["contents"], FIELDS);
        let generation = &body["generationConfig"];
        let known = ["maxOutputTokens", "thinkingConfig", "responseMimeType", "responseJsonSchema"];
        self.fields("generationConfig", generation, &[], &known);
        let thinking = &generation["thinkingConfig"];
        self.fields("thinkingConfig", thinking, &[], &["includeThoughts", "thinkingBudget", "thinkingLevel"]);
        self.word("thinkingLevel", &thinking["thinkingLevel"], &["MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH"]);
        let is_json = generation["responseMimeType"] == "application/json";
        self.that(is_json == generation["responseJsonSchema"].is_object(), || {
            "generationConfig: a schema without its type, or a type without its schema".to_owned()
        });
        let mut hosted = false;
        for tool in list(&body["tools"]) {
            self.fields("tools", tool, &[], &["functionDeclarations", "googleSearch", "codeExecution"]);
            let kinds = tool.as_object().map_or(0, serde_json::Map::len);
            self.that(kinds == 1, || format!("tools: {kinds} kinds in one tool"));
            hosted |= tool.get("functionDeclarations").is_none();
            for function in list(&tool["functionDeclarations"]) {
                let known = ["name", "description", "parametersJsonSchema"];
                self.fields("tools", function, &["name"], &known);
                self.name("tools", &function["name"]);
            }
        }
        let beside = body["toolConfig"] == json!({"includeServerSideToolInvocations": true});
        self.that(beside == hosted, || format!("toolConfig: {} with these tools", body["toolConfig"]));
        list(&body["systemInstruction"]["parts"]).iter().for_each(|part| self.string("system", &part["text"]));
        let contents = list(&body["contents"]);
        self.that(contents.first().is_some_and(|first| first["role"] == "user"), || {
            "the first message is not a user's".to_owned()
        });
        let mut open: Vec<(&str, &str)> = Vec::new();
        let mut before = "";
        for (n, content) in contents.iter().enumerate() {
            let at = format!("contents[{n}]");
            self.fields(&at, content, &["role", "parts"], &["role", "parts"]);
            let role = content["role"].as_str().unwrap_or_default();
            self.that(matches!(role, "user" | "model"), || format!("{at}: unknown role"));
            self.that(role != before, || format!("{at}: same role as before"));
            before = role;
            let parts = list(&content["parts"]);
            self.that(!parts.is_empty(), || format!("{at}: no parts"));
            let responses = parts.iter().filter_map(|part| part.get("functionResponse"));
            self.in_order(&at, &mut open, responses.map(name_and_id).collect());
            let mut others = false;
            for part in parts {
                self.part(&at, role, part);
                let result = part.get("functionResponse").is_some();
                self.that(!(result && others), || format!("{at}: a result after something else"));
                others |= !result;
            }
            open.extend(parts.iter().filter_map(|part| part.get("functionCall")).map(name_and_id));
        }
        self.in_order("the end", &mut open, Vec::new());
    }

    /// What is neither text nor of a tool of ours.
    fn other(&mut self, at: &str, user: bool, part: &Value) {
        self.that(!user && part.is_object(), || format!("{at}: an empty part"));
        for (call, result) in [("toolCall", "toolResponse"), ("executableCode", "codeExecutionResult")] {
            self.that(part.get(call).is_none() || part.get(result).is_none(), || {
                format!("{at}: a part that is {call} and {result}")
            });
        }
    }

    fn part(&mut self, at: &str, role: &str, part: &Value) {
        let user = role == "user";
        let kinds: Vec<&str> = PART[..4].iter().filter(|name| part.get(name).is_some()).copied().collect();
        match kinds.as_slice() {
            // What a model said beside the known goes back as it came.
            [] => return self.other(at, user, part),
            ["text"] => {
                let signed = part.get("thoughtSignature").is_some();
                self.that(part["text"].is_string(), || format!("{at}: text is no text"));
                if !signed {
                    self.string(at, &part["text"]);
                }
            }
            ["inlineData"] => {
                self.string(&format!("{at}: data"), &part["inlineData"]["data"]);
                self.string(&format!("{at}: mimeType"), &part["inlineData"]["mimeType"]);
            }
            ["functionCall"] => {
                self.that(!user, || format!("{at}: a call of a user"));
                self.name(at, &part["functionCall"]["name"]);
                self.that(part["functionCall"]["args"].is_object(), || format!("{at}: args are no object"));
            }
            ["functionResponse"] => {
                self.that(user, || format!("{at}: a result that is not a user's"));
                self.name(at, &part["functionResponse"]["name"]);
                self.that(part["functionResponse"]["response"].is_object(), || format!("{at}: response is no object"));
            }
            _ => self.problems.push(format!("{at}: a part that is {}", kinds.join(" and "))),
        }
        self.fields(at, part, &[], PART);
    }
}

fn name_and_id(call: &Value) -> (&str, &str) {
    (call["name"].as_str().unwrap_or_default(), call["id"].as_str().unwrap_or_default())
}
