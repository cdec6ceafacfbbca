//! The model server by itself: bytes, gates, faults, records.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

async fn ask(server: &ModelServer, path: &str, body: &Value) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nanthropic-version: 2023-06-01\r\n\
         x-api-key: k\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Reads a response in chunks to its end; gives the head, the body and the sizes of the chunks.
async fn response(stream: &mut TcpStream) -> (String, String, Vec<usize>) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while !bytes.ends_with(b"0\r\n\r\n") {
        let n = stream.read(&mut buffer).await.unwrap();
        if n == 0 {
            break;
        }
        bytes.extend(&buffer[..n]);
    }
    let text = String::from_utf8(bytes).unwrap();
    let (head, mut rest) = text.split_once("\r\n\r\n").unwrap();
    let (mut body, mut sizes) = (String::new(), Vec::new());
    while let Some((size, after)) = rest.split_once("\r\n") {
        let Ok(size) = usize::from_str_radix(size, 16) else { break };
        if size == 0 || after.len() < size {
            break;
        }
        body.push_str(&after[..size]);
        sizes.push(size);
        rest = &after[size + 2..];
    }
    (head.to_owned(), body, sizes)
}

fn claude() -> Value {
    let content = json!([{ "type": "text", "text": "hi" }]);
    json!({ "model": "m", "max_tokens": 9, "stream": true, "messages": [{ "role": "user", "content": content }] })
}

fn gpt() -> Value {
    json!({ "model": "m", "stream": true, "messages": [{ "role": "user", "content": "hi" }] })
}

#[tokio::test]
async fn an_anthropic_stream_has_these_bytes() {
    let server = ModelServer::with([Reply::new()
        .thinking("hm", "c2ln")
        .and_text("Good d")
        .and_text("ay")
        .and_tool("bash", json!({"command": "ls"}))]);
    let (head, body, _) = response(&mut ask(&server, "/v1/messages", &claude()).await).await;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream"), "{head}");
    let want = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_000000","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":1,"service_tier":"standard"}}}

event: ping
data: {"type":"ping"}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Good d"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"ay"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_000000x0","name":"bash","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"comman"}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"d\":\"ls\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":10,"cache_read_input_tokens":0,"output_tokens":5,"output_tokens_details":{"thinking_tokens":0}}}

event: message_stop
data: {"type":"message_stop"}

"#;
    assert_eq!(body, want);
}

#[tokio::test]
async fn a_chat_completion_stream_has_these_bytes() {
    let server = ModelServer::with([Reply::text("hi")]);
    let (_, body, _) = response(&mut ask(&server, "/v1/chat/completions", &gpt()).await).await;
    let head = r#"data: {"id":"chatcmpl-000000","object":"chat.completion.chunk","created":1760000000,"model":"m","service_tier":"default","system_fingerprint":null,"choices":"#;
    let want = [
        r#"[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null}"#,
        r#"[{"index":0,"delta":{"content":"hi"},"logprobs":null,"finish_reason":null}],"usage":null}"#,
        r#"[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null}"#,
        r#"[],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}"#,
    ];
    let want: String = want.iter().map(|rest| format!("{head}{rest}\n\n")).collect();
    assert_eq!(body, want + "data: [DONE]\n\n");
}

/// What a story of thinking, text and a call looks like at this path.
async fn said(path: &str, body: &Value) -> String {
    let reply = Reply::new().thinking("hm", "c2ln").and_text("Good d").and_text("ay").and_tool("ls", json!({"a": 1}));
    let server = ModelServer::with([reply]);
    response(&mut ask(&server, path, body).await).await.1
}

#[tokio::test]
async fn a_responses_stream_has_these_events() {
    let content = json!([{ "type": "input_text", "text": "hi" }]);
    let input = json!([{ "role": "user", "content": content }]);
    let body = json!({ "model": "m", "stream": true, "store": false, "input": input });
    let stream = said("/v1/responses", &body).await;
    let mut lines = Vec::new();
    for (event, n) in stream.trim_end().split("\n\n").zip(0..) {
        let (name, data) = event.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(data["sequence_number"], n);
        let kind = data["type"].as_str().unwrap();
        assert_eq!(name, format!("event: {kind}"));
        let piece = ["delta", "arguments", "text"].iter().find_map(|field| data[field].as_str());
        let piece = piece.or(data["item"]["type"].as_str()).or(data["response"]["status"].as_str()).unwrap_or_default();
        lines.push(format!("{} {} {piece}", kind.strip_prefix("response.").unwrap(), data["output_index"]));
    }
    let want = [
        "created null in_progress",
        "in_progress null in_progress",
        "output_item.added 0 reasoning",
        "reasoning_summary_part.added 0 ",
        "reasoning_summary_text.delta 0 hm",
        "reasoning_summary_text.done 0 hm",
        "reasoning_summary_part.done 0 ",
        "output_item.done 0 reasoning",
        "output_item.added 1 message",
        "content_part.added 1 ",
        "output_text.delta 1 Good d",
        "output_text.delta 1 ay",
        "output_text.done 1 Good day",
        "content_part.done 1 ",
        "output_item.done 1 message",
        "output_item.added 2 function_call",
        "function_call_arguments.delta 2 {\"a",
        "function_call_arguments.delta 2 \":1}",
        "function_call_arguments.done 2 {\"a\":1}",
        "output_item.done 2 function_call",
        "completed null completed",
    ];
    assert_eq!(lines, want);
    let item = r#""item":{"id":"rs_000000x0","type":"reasoning","encrypted_content":"gAAAAAc2ln","summary":[{"type":"summary_text","text":"hm"}]}"#;
    assert!(stream.contains(item), "{stream}");
}

#[tokio::test]
async fn a_gemini_stream_has_these_bytes() {
    let body = json!({ "contents": [{ "role": "user", "parts": [{ "text": "hi" }] }] });
    let stream = said("/v1beta/models/m:streamGenerateContent?alt=sse", &body).await;
    let usage =
        r#""usageMetadata":{"promptTokenCount":10,"totalTokenCount":10},"modelVersion":"m","responseId":"resp000000"}"#;
    let part = |part: &str| {
        let content = format!(r#"{{"content":{{"parts":[{part}],"role":"model"}},"index":0}}"#);
        format!("data: {{\"candidates\":[{content}],{usage}\r\n\r\n")
    };
    let end = r#"data: {"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":5,"thoughtsTokenCount":0,"totalTokenCount":15,"cachedContentTokenCount":0,"promptTokensDetails":[{"modality":"TEXT","tokenCount":10}]},"modelVersion":"m","responseId":"resp000000"}"#;
    let want = [
        part(r#"{"text":"hm","thought":true,"thoughtSignature":"c2ln"}"#),
        part(r#"{"text":"Good d"}"#),
        part(r#"{"text":"ay"}"#),
        part(r#"{"functionCall":{"name":"ls","args":{"a":1},"id":"fc000000x0"},"thoughtSignature":"c2ln"}"#),
        format!("{end}\r\n\r\n"),
    ];
    assert_eq!(stream, want.concat());
}

#[tokio::test]
async fn an_ollama_stream_has_these_bytes() {
    let messages = json!([{ "role": "user", "content": "hi" }]);
    let body = json!({ "model": "m", "stream": true, "options": { "num_ctx": 32768 }, "messages": messages });
    let stream = said("/api/chat", &body).await;
    let line = |fields: &str| {
        let message = format!(r#"{{"role":"assistant",{fields}}}"#);
        format!(r#"{{"model":"m","created_at":"2026-11-01T08:00:00.123456789Z","message":{message},"done":false}}"#)
            + "\n"
    };
    let end = r#"{"model":"m","created_at":"2026-11-01T08:00:01.123456789Z","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":1000000000,"load_duration":100000000,"prompt_eval_count":10,"prompt_eval_duration":200000000,"eval_count":5,"eval_duration":700000000}"#;
    let want = [
        line(r#""content":"","thinking":"hm""#),
        line(r#""content":"Good d""#),
        line(r#""content":"ay""#),
        line(r#""content":"","tool_calls":[{"function":{"name":"ls","arguments":{"a":1}}}]"#),
        format!("{end}\n"),
    ];
    assert_eq!(stream, want.concat());
}

#[tokio::test]
async fn cutting_into_chunks_changes_no_byte() {
    let reply = Reply::text("Grüße, Welt").and_tool("bash", json!({"command": "é"}));
    let server = ModelServer::with([reply.clone(), reply.chunks_of(7)]);
    let (_, whole, _) = response(&mut ask(&server, "/v1/messages", &claude()).await).await;
    let mut stream = ask(&server, "/v1/messages", &claude()).await;
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while !bytes.ends_with(b"\r\n0\r\n\r\n") {
        let n = stream.read(&mut buffer).await.unwrap();
        bytes.extend(&buffer[..n]);
    }
    // Chunks of 7 cut characters: put the bytes together before reading them as text.
    let start = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    let (mut rest, mut body) = (&bytes[start..], Vec::new());
    loop {
        let end = rest.iter().position(|b| *b == b'\r').unwrap();
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            break;
        }
        assert!(size <= 7);
        body.extend(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 4 + size..];
    }
    let body = String::from_utf8(body).unwrap();
    assert_eq!(body, whole.replace("msg_000000", "msg_000001").replace("toolu_000000", "toolu_000001"));
}

#[tokio::test]
async fn a_gate_holds_the_stream_until_it_is_opened() {
    let gate = Gate::new();
    let server = ModelServer::with([Reply::text("before").gate(&gate).and_text("after")]);
    let mut stream = ask(&server, "/v1/chat/completions", &gpt()).await;
    gate.reached().await;
    let mut buffer = vec![0; 1 << 16];
    let n = stream.read(&mut buffer).await.unwrap();
    let first = String::from_utf8_lossy(&buffer[..n]).into_owned();
    assert!(first.contains("before") && !first.contains("after"), "{first}");
    gate.open();
    let mut rest = String::new();
    while !rest.contains("[DONE]") {
        let n = stream.read(&mut buffer).await.unwrap();
        rest.push_str(&String::from_utf8_lossy(&buffer[..n]));
    }
    assert!(rest.contains("after"), "{rest}");
}

#[tokio::test]
async fn faults_look_as_they_do_in_life() {
    let server = ModelServer::with([
        Reply::status(429).header("retry-after", "1"),
        Reply::reset(),
        Reply::text("part").cut(),
        Reply::text("part").error_event("overloaded_error", "Overloaded"),
        Reply::html(),
        Reply::text("x").wrong_content_type(),
    ]);
    let mut all = Vec::new();
    let mut stream = ask(&server, "/v1/messages", &claude()).await;
    stream.shutdown().await.unwrap();
    stream.read_to_end(&mut all).await.unwrap();
    let text = String::from_utf8_lossy(&all).into_owned();
    assert!(
        text.starts_with("HTTP/1.1 429 Too Many Requests\r\n") && text.contains("\r\nretry-after: 1\r\n"),
        "{text}"
    );
    let mut stream = ask(&server, "/v1/messages", &claude()).await;
    let reset = stream.read(&mut [0; 8]).await.unwrap_err();
    assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
    let (_, body, _) = response(&mut ask(&server, "/v1/messages", &claude()).await).await;
    assert!(body.ends_with("\"text\":\"part\"}}\n\n"), "{body}");
    let (_, body, _) = response(&mut ask(&server, "/v1/messages", &claude()).await).await;
    assert!(body.ends_with("{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"), "{body}");
    let mut stream = ask(&server, "/v1/messages", &claude()).await;
    stream.shutdown().await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.contains("text/html") && text.contains("Please log in"), "{text}");
    let (head, ..) = response(&mut ask(&server, "/v1/messages", &claude()).await).await;
    assert!(head.contains("application/octet-stream"), "{head}");
}

#[tokio::test]
async fn a_stall_ends_when_the_other_side_gives_up() {
    let server = ModelServer::with([Reply::text("part").stall()]);
    let mut stream = ask(&server, "/v1/messages", &claude()).await;
    assert!(stream.read(&mut [0; 64]).await.unwrap() > 0);
    drop(stream);
    assert_eq!(server.wait_requests(1).await.len(), 1);
}

#[tokio::test]
async fn a_request_without_a_script_or_with_a_bad_body_is_remembered() {
    let server = ModelServer::start();
    let bad = json!({ "model": "m", "stream": true, "messages": [] });
    let mut stream = ask(&server, "/v1/chat/completions", &bad).await;
    stream.shutdown().await.unwrap();
    stream.read_to_end(&mut Vec::new()).await.unwrap();
    let violations = server.violations();
    assert!(violations.iter().any(|v| v.contains("no messages")), "{violations:?}");
    assert!(violations.iter().any(|v| v.contains("nothing was scripted")), "{violations:?}");
    assert_eq!(server.requests()[0].header("x-api-key"), Some("k"));
    server.forgive();
}

#[tokio::test]
async fn a_wrong_key_is_answered_with_401() {
    let server = ModelServer::with([Reply::text("x")]);
    server.require_key("other");
    let mut stream = ask(&server, "/v1/messages", &claude()).await;
    stream.shutdown().await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 401 "), "{text}");
}

#[tokio::test]
async fn what_is_checked_later_is_checked() {
    let server = ModelServer::with([Reply::text("one"), Reply::text("two"), Reply::text("three")]);
    server.check_later();
    let mut empty = gpt();
    empty["messages"][0]["content"] = json!("");
    for body in [gpt(), empty] {
        response(&mut ask(&server, "/v1/chat/completions", &body).await).await;
    }
    assert_eq!(server.requests()[0].json, gpt());
    // By the server's own look, and by the product's.
    let wrong =
        ["request 1 (m): message 0 (user) has no content", "request 1 (m): messages[0]: no text, or an empty one"];
    assert_eq!(server.violations(), wrong);
    response(&mut ask(&server, "/v1/chat/completions", &gpt()).await).await;
    assert_eq!(server.violations().len(), 2, "each is checked once");
    server.forgive();
}
