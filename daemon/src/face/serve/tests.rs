//! Conversations of a host with the server, over pipes in memory.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};

use super::calls::Calls;
use super::{host, served};
use crate::process::server::Children;
use crate::question::permission::{Rule, Rules};
use crate::store::blob::Blobs;
use crate::tool::tests::test_workspace;

struct Talk {
    dir: tempfile::TempDir,
    input: WriteHalf<DuplexStream>,
    output: Lines<BufReader<ReadHalf<DuplexStream>>>,
}

impl Talk {
    fn new(deny: &[&str], allow: &[&str]) -> Self {
        let (dir, workspace) = test_workspace();
        let tools = served();
        let parse = |rules: &[&str]| rules.iter().map(|rule| Rule::parse(rule, tools.names()).unwrap()).collect();
        let rules = Rules { deny: parse(deny), allow: parse(allow), ..Rules::default() };
        let owner = dir.path().join("serve");
        let calls = Calls::new(tools, rules, workspace, Children::of(&owner), Blobs::of(&owner));
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let (read, write) = tokio::io::split(theirs);
        tokio::spawn(host::serve(read, write, Arc::new(calls)));
        let (output, input) = tokio::io::split(ours);
        Self { dir, input, output: BufReader::new(output).lines() }
    }

    async fn say(&mut self, message: Value) {
        self.input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn hear(&mut self) -> Value {
        serde_json::from_str(&self.output.next_line().await.unwrap().unwrap()).unwrap()
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.say(json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })).await;
        self.hear().await
    }

    async fn begin(&mut self, capabilities: Value) {
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": capabilities });
        assert_eq!(self.ask("initialize", params).await["result"]["protocolVersion"], "2025-06-18");
        self.say(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    }

    async fn bash(&mut self, command: &str) -> Value {
        self.ask("tools/call", json!({ "name": "bash", "arguments": { "command": command } })).await
    }
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap()
}

#[tokio::test]
async fn a_host_that_cannot_ask_gets_what_needs_no_permission_and_what_a_rule_allows() {
    let mut talk = Talk::new(&["bash(echo no:*)"], &["bash(echo:*)"]);
    std::fs::write(talk.dir.path().join("note"), "a note").unwrap();
    talk.begin(json!({})).await;
    let tools = talk.ask("tools/list", json!({})).await;
    assert_eq!(tools["result"]["tools"][0]["name"], "bash");
    let read = talk.ask("tools/call", json!({ "name": "read", "arguments": { "path": "note" } })).await;
    assert!(text(&read).contains("a note") && read["result"]["isError"] == false, "{read}");
    assert!(text(&talk.bash("echo yes").await).contains("yes"));
    let refused = talk.bash("touch made").await;
    assert!(refused["result"]["isError"] == true && text(&refused).contains("--allow 'bash(touch made)'"), "{refused}");
    assert!(text(&talk.bash("echo no luck").await).contains("the rule bash(echo no:*) forbids it"));
    assert!(!talk.dir.path().join("made").exists());
    let unknown = talk.ask("tools/call", json!({ "name": "raed" })).await;
    assert!(unknown["error"]["message"].as_str().unwrap().contains("did you mean `read`?"), "{unknown}");
    assert_eq!(talk.ask("resources/list", json!({})).await["error"]["code"], -32601);
}

#[tokio::test]
async fn a_host_is_told_of_no_command_in_the_background_and_starts_none() {
    let mut talk = Talk::new(&[], &["bash"]);
    talk.begin(json!({})).await;
    let listed = talk.ask("tools/list", json!({})).await;
    let bash = listed["result"]["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "bash").unwrap();
    let description = bash["description"].as_str().unwrap();
    assert!(description.contains("Background processes are ended with the command.\n"), "{description}");
    assert!(!bash.to_string().contains("bash_output") && !bash.to_string().contains("`background`"), "{bash}");
    assert!(bash["inputSchema"]["properties"].get("background").is_none(), "{bash}");
    let arguments = json!({ "command": "touch made", "background": true });
    let answer = talk.ask("tools/call", json!({ "name": "bash", "arguments": arguments })).await;
    assert!(text(&answer).ends_with("no command can run in the background here"), "{answer}");
    let arguments = json!({ "command": "echo hi", "background": false });
    assert_eq!(text(&talk.ask("tools/call", json!({ "name": "bash", "arguments": arguments })).await), "hi\n");
}

#[tokio::test]
async fn a_host_that_can_ask_asks_its_user_once_or_for_all_time() {
    let mut talk = Talk::new(&[], &[]);
    talk.begin(json!({ "elicitation": {} })).await;
    let answer = |question: &Value, decision: &str| {
        let result = json!({ "action": "accept", "content": { "answer": decision } });
        json!({ "jsonrpc": "2.0", "id": question["id"], "result": result })
    };
    let question = talk.bash("echo one > made").await;
    assert_eq!(question["method"], "elicitation/create");
    assert!(question["params"]["message"].as_str().unwrap().contains("bash: echo one > made"), "{question}");
    talk.say(json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "decline" } })).await;
    assert!(text(&talk.hear().await).contains("does not allow it"));
    let question = talk.bash("echo one > made").await;
    let denied = json!({ "action": "accept", "content": { "answer": "reject_once", "reason": "not here" } });
    talk.say(json!({ "jsonrpc": "2.0", "id": question["id"], "result": denied })).await;
    assert!(text(&talk.hear().await).contains("does not allow it: not here"));
    assert!(!talk.dir.path().join("made").exists());
    let question = talk.bash("echo one > made").await;
    talk.say(answer(&question, "allow_session")).await;
    assert_eq!(talk.hear().await["result"]["isError"], false);
    assert!(talk.dir.path().join("made").exists());
    assert_eq!(talk.bash("echo one > made").await["result"]["isError"], false, "it does not ask again");
}

#[tokio::test]
async fn a_host_without_a_handshake_calls_again_with_the_answer_to_the_very_call() {
    let mut talk = Talk::new(&[], &[]);
    let found = talk.ask("server/discover", json!({})).await;
    assert_eq!(
        (&found["result"]["supportedVersions"][0], &found["result"]["resultType"]),
        (&json!("2026-07-28"), &json!("complete"))
    );
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } } });
    let call = |command: &str, more: Value| {
        let mut params = json!({ "name": "bash", "arguments": { "command": command }, "_meta": meta });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    let wanted = talk.ask("tools/call", call("touch made", json!({}))).await;
    assert_eq!(wanted["result"]["resultType"], "input_required", "{wanted}");
    assert_eq!(wanted["result"]["inputRequests"]["permission"]["method"], "elicitation/create");
    let accepted = json!({ "permission": { "action": "accept", "content": { "answer": "allow_once" } } });
    let again = json!({ "inputResponses": accepted, "requestState": wanted["result"]["requestState"] });
    let other = talk.ask("tools/call", call("touch other", again.clone())).await;
    assert_eq!(other["result"]["resultType"], "input_required", "the answer was to another call");
    let done = talk.ask("tools/call", call("touch made", again)).await;
    assert_eq!((&done["result"]["resultType"], &done["result"]["isError"]), (&json!("complete"), &json!(false)));
    assert!(talk.dir.path().join("made").exists() && !talk.dir.path().join("other").exists());
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2031-01-01" });
    assert_eq!(talk.ask("tools/list", json!({ "_meta": meta })).await["error"]["code"], -32022);
}

#[tokio::test]
async fn a_call_that_is_cancelled_ends_what_it_started_and_output_is_progress() {
    let mut talk = Talk::new(&[], &["bash"]);
    talk.begin(json!({})).await;
    let arguments = json!({ "command": "echo begun; echo $$ > pid; sleep 1000" });
    let params = json!({ "name": "bash", "arguments": arguments, "_meta": { "progressToken": "t" } });
    talk.say(json!({ "jsonrpc": "2.0", "id": "slow", "method": "tools/call", "params": params })).await;
    let progress = talk.hear().await;
    assert_eq!((&progress["params"]["progressToken"], &progress["params"]["message"]), (&json!("t"), &json!("begun")));
    talk.say(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": "slow" } })).await;
    // Commands run alone: this one runs only if the other has gone.
    assert!(text(&talk.bash("echo next").await).contains("next"));
    talk.say(Value::from("no message")).await;
    assert_eq!(talk.hear().await["error"]["code"], -32700);
}
