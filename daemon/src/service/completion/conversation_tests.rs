use serde_json::json;

use super::*;

fn say(role: Role, content: Vec<ContentBlock>) -> Message {
    Message { role, content }
}

fn call(id: &str) -> ContentBlock {
    ContentBlock::ToolUse { call_id: id.into(), name: "f".to_owned(), input: json!({}), native: None }
}

fn result(id: &str) -> ContentBlock {
    ContentBlock::ToolResult { call_id: id.into(), is_error: false, content: vec![ContentBlock::text("x")] }
}

fn refusal(params: &Start) -> String {
    check(params).err().map(|error| error.message).unwrap_or_default()
}

#[test]
fn a_conversation_that_a_provider_would_refuse_is_refused_with_the_place() {
    let (user, model, text) = (Role::User, Role::Assistant, || ContentBlock::text("x"));
    let check = |messages: &[Message], expect: Option<&str>| {
        let found = refusal(&Start { messages: messages.to_vec(), ..Start::default() });
        assert_eq!(!found.is_empty(), expect.is_some(), "{found}");
        assert!(found.contains(expect.unwrap_or_default()), "{expect:?}: {found}");
    };
    let asked = || say(user, vec![text()]);
    check(&[asked()], None);
    check(&[asked(), say(model, vec![call("a"), call("b")]), say(user, vec![result("b"), result("a")])], None);
    check(&[say(model, vec![text()])], None);
    check(&[asked(), say(model, vec![text()])], None);
    check(&[], Some("there is none"));
    check(&[asked(), asked()], Some("messages[1]: user and assistant take turns"));
    check(&[say(user, vec![])], Some("says nothing"));
    check(&[say(user, vec![ContentBlock::text("")])], Some("messages[0].content[0]"));
    check(&[asked(), say(model, vec![call("a")]), asked()], Some("the call a has no result"));
    check(&[asked(), say(model, vec![call("a")])], Some("the call a has no result"));
    check(&[asked(), say(model, vec![call("a"), call("a")]), asked()], Some("`call_id` of its own"));
    check(&[say(user, vec![result("a")])], Some("no such call"));
    check(&[say(user, vec![call("a")])], Some("is no block"));
    assert_eq!(refusal(&Start { system: "be brief".to_owned(), ..Start::default() }), "");
}

#[test]
fn the_names_of_tools_are_ones_that_every_provider_takes() {
    let check = |names: &[&str], good: bool| {
        let tool = |name: &&str| Tool { name: (*name).to_owned(), description: String::new(), input_schema: json!({}) };
        let messages = vec![say(Role::User, vec![ContentBlock::text("x")])];
        let found = refusal(&Start { messages, tools: names.iter().map(tool).collect(), ..Start::default() });
        assert_eq!(found.is_empty(), good, "{names:?}: {found}");
    };
    check(&["a", "b-2"], true);
    check(&["a", "a"], false);
    check(&["a.b"], false);
    check(&[&"x".repeat(65)], false);
}

#[test]
fn a_call_can_only_be_forced_of_a_tool_that_is_there() {
    let tool = |name: &str| Tool { name: name.to_owned(), description: String::new(), input_schema: json!({}) };
    let start = |tool_choice, forced: Option<&str>, tools: &[Tool]| Start {
        messages: vec![say(Role::User, vec![ContentBlock::text("x")])],
        tools: tools.to_vec(),
        tool_choice,
        forced_tool: forced.map(str::to_owned),
        ..Start::default()
    };
    let tools = [tool("f")];
    assert_eq!(refusal(&start(ToolChoice::Required, None, &tools)), "");
    assert_eq!(refusal(&start(ToolChoice::Auto, Some("f"), &tools)), "");
    assert_eq!(refusal(&start(ToolChoice::None, None, &[])), "");
    assert!(refusal(&start(ToolChoice::Auto, Some("g"), &tools)).contains("there is no tool `g`"));
    assert!(refusal(&start(ToolChoice::None, Some("f"), &tools)).contains("no tool is called"));
    assert!(refusal(&start(ToolChoice::Required, None, &[])).contains("there are no tools"));
    let stop = |stop: Vec<String>| refusal(&Start { stop, ..start(ToolChoice::Auto, None, &[]) });
    assert_eq!(stop(vec!["x".to_owned(); 16]), "");
    assert!(stop(vec!["x".to_owned(); 17]).contains("16 stop texts"));
    assert!(stop(vec![String::new()]).contains("is empty"));
}

#[test]
fn a_conversation_opens_as_its_format_wants_it() {
    let message = |role, text: &str| ContextMessage { role, content: vec![ContentBlock::text(text)], origin: None };
    let (hello, hi) = (message(Role::Assistant, "hello"), message(Role::User, "hi"));
    let check = |messages: &[ContextMessage], opening, expect: &[ContextMessage], system: &str| {
        let mut said = "be brief".to_owned();
        assert_eq!(opened(messages.to_vec(), &mut said, opening), expect, "{opening:?}");
        assert_eq!(said, system, "{opening:?}");
    };
    let brief = "be brief";
    let greeted = [hello.clone(), hi.clone()];
    check(&greeted, ConversationStart::Nothing, &greeted, brief);
    check(&greeted, ConversationStart::Message, &greeted, brief);
    check(&greeted, ConversationStart::User, &[message(Role::User, BEGUN), hello.clone(), hi.clone()], brief);
    check(&[], ConversationStart::Nothing, &[], brief);
    check(&[], ConversationStart::Message, &[message(Role::User, brief)], "");
    check(&[], ConversationStart::User, &[message(Role::User, brief)], "");
    let begun = [hi.clone(), message(Role::Assistant, "so: \n")];
    check(&begun, ConversationStart::Message, &begun, brief);
    check(&begun, ConversationStart::User, &[hi, message(Role::Assistant, "so:")], brief);
}
