use std::io::Write;

use linger_protocol::message::ContentBlock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::super::client::Clients;
use super::super::compat::Compat;
use super::super::network::{Network, Variables};
use super::super::openai::OpenAi;
use super::super::support::{text, user};
use super::super::types::{Images, Response, StreamEvent};
use super::*;

const KEY: &str = "sk-very-secret";
const SILENCE: Duration = Duration::from_millis(1500);

/// How long what has to end may take on a busy machine.
const SOON: Duration = Duration::from_secs(60);

fn endpoint(base_url: String) -> Endpoint {
    let redactor = Redactor::default();
    redactor.add(&Secret::new(KEY));
    Endpoint {
        name: "work".to_owned(),
        base_url,
        codec: Arc::new(OpenAi::new(Compat::NONE)),
        fields: Arc::default(),
        key: Some(Secret::new(KEY)),
        limits: Timeouts { first_byte: SILENCE, idle: SILENCE, ..Timeouts::default() },
        network: Arc::default(),
        redactor,
    }
}

fn start(endpoint: &Endpoint) -> HttpStream {
    let messages = [user(vec![ContentBlock::text("hi")])];
    let origin = "work/m";
    HttpStream::start(
        endpoint,
        &Request {
            model: "m",
            origin,
            system: "",
            tools: crate::provider::tools::ToolSpecs::none(),
            messages: &messages,
            max_tokens: 0,
            cache_key: "",
            images: &Images::new(),
            output_schema: None,
            effort: linger_protocol::session::Effort::Auto,
            own_fields: None,
        },
        &mut Encoding::default(),
    )
}

async fn all(stream: &mut HttpStream) -> Vec<StreamEvent> {
    let mut events = Vec::new();
    loop {
        let next = stream.next().await;
        if next.is_empty() {
            return events;
        }
        events.extend(next);
    }
}

/// What comes of a server that answers with `head` and `body`, and then closes, or stays silent. Also the request's head.
async fn exchange(head: &str, body: &str, close: bool) -> (Vec<StreamEvent>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/v1/", listener.local_addr().unwrap());
    let mut answer = Vec::new();
    write!(answer, "HTTP/1.1 {head}\r\nconnection: close\r\n\r\n{body}").unwrap();
    let server = async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 64 << 10];
        let n = socket.read(&mut request).await.unwrap();
        socket.write_all(&answer).await.unwrap();
        if !close {
            let _ = socket.read(&mut [0; 1]).await; // Until the client goes.
        }
        String::from_utf8_lossy(&request[..n]).into_owned()
    };
    let client = async {
        let mut stream = start(&endpoint(address));
        all(&mut stream).await
    };
    tokio::join!(client, server)
}

const STREAM: &str = "200 OK\r\ncontent-type: text/event-stream; charset=utf-8";
const HI: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":null}]}\n\n";
const STOP: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

async fn check(head: &str, body: &str, class: FailureClass, message: &str) -> Failure {
    let (mut events, _) = exchange(head, body, true).await;
    let Some(StreamEvent::Failed(failure)) = events.pop() else { panic!("{events:?}") };
    let said = match failure.message.split_once("http://127.0.0.1:") {
        Some((before, after)) => format!("{before}http://HOST{}", after.trim_start_matches(char::is_numeric)),
        None => failure.message.clone(),
    };
    assert_eq!((failure.class, said.as_str()), (class, message));
    failure
}

#[tokio::test]
async fn an_answer_is_streamed_and_ends_once() {
    let (events, request) = exchange(STREAM, &format!("{HI}{STOP}"), true).await;
    let response = Response { content: vec![ContentBlock::text("hi")], ..Response::default() };
    assert_eq!(events, [text(0, "hi"), StreamEvent::Done(response)]);
    assert!(request.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{request}");
    assert!(request.contains(&format!("authorization: Bearer {KEY}\r\n")), "{request}");
}

// The clock stands until nothing is left to do: each pause ends when the other side has done its part.
#[tokio::test(start_paused = true)]
async fn the_next_step_uses_the_same_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let long = Duration::from_secs(3600);
    let limits = Timeouts { connect: long, first_byte: long, idle: long, ..Timeouts::default() };
    let endpoint = Endpoint { limits, ..endpoint(format!("http://{}", listener.local_addr().unwrap())) };
    let server = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        for _ in 0..2 {
            assert_ne!(socket.read(&mut [0; 64 << 10]).await.unwrap(), 0, "the connection was closed");
            let body = format!("{HI}{STOP}data: [DONE]\n\n");
            let chunk =
                format!("HTTP/1.1 {STREAM}\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n", body.len());
            socket.write_all(chunk.as_bytes()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await; // The end comes when the client is done.
            socket.write_all(b"0\r\n\r\n").await.unwrap();
        }
    };
    let client = async {
        for _ in 0..2 {
            assert!(matches!(all(&mut start(&endpoint)).await.last(), Some(StreamEvent::Done(_))));
            tokio::time::sleep(Duration::from_millis(60)).await; // A tool runs.
        }
    };
    tokio::join!(client, server);
}

const TOKENS: usize = 500;

/// A server that sends many tokens, each in a chunk, at once.
async fn many_chunks(listener: TcpListener) {
    let (mut socket, _) = listener.accept().await.unwrap();
    assert_ne!(socket.read(&mut [0; 64 << 10]).await.unwrap(), 0);
    let mut answer = format!("HTTP/1.1 {STREAM}\r\ntransfer-encoding: chunked\r\n\r\n");
    for event in std::iter::repeat_n(HI, TOKENS).chain([STOP, "data: [DONE]\n\n"]) {
        answer += &format!("{:x}\r\n{event}\r\n", event.len());
    }
    socket.write_all(format!("{answer}0\r\n\r\n").as_bytes()).await.unwrap();
}

fn many_tokens() -> [StreamEvent; 2] {
    let content = "hi".repeat(TOKENS);
    let response = Response { content: vec![ContentBlock::text(&content)], ..Response::default() };
    [text(0, &content), StreamEvent::Done(response)]
}

#[tokio::test]
async fn what_has_come_goes_on_together() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut stream = start(&endpoint(format!("http://{}", listener.local_addr().unwrap())));
    let ((), events) = tokio::join!(many_chunks(listener), stream.next());
    assert_eq!(events, many_tokens());
}

#[tokio::test]
async fn a_call_that_is_dropped_while_it_takes_what_has_come_loses_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut stream = start(&endpoint(format!("http://{}", listener.local_addr().unwrap())));
    let client = async {
        loop {
            match poll_once(stream.next()).await {
                Poll::Ready(events) => return events,
                Poll::Pending => tokio::task::yield_now().await,
            }
        }
    };
    let ((), events) = tokio::join!(many_chunks(listener), client);
    assert_eq!(events.len(), 2, "{events:?}");
    assert_eq!(events, many_tokens());
}

#[tokio::test]
async fn silence_is_a_timeout_unless_the_answer_was_complete() {
    let (events, _) = exchange(STREAM, HI, false).await;
    let silent = failed(FailureClass::Timeout, "the provider was silent for 1.5 seconds");
    assert_eq!(events, [text(0, "hi"), StreamEvent::Failed(silent)]);
    let (events, _) = exchange(STREAM, &format!("{HI}{STOP}"), false).await;
    assert!(matches!(&events[..], [_, StreamEvent::Done(_)]), "{events:?}");
}

#[tokio::test]
async fn an_answer_that_is_over_does_not_wait_for_the_end_of_its_stream() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let patient = Timeouts { idle: Duration::from_secs(600), ..Timeouts::default() };
    let endpoint = Endpoint { limits: patient, ..endpoint(format!("http://{}/v1", listener.local_addr().unwrap())) };
    let server = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        let _request = socket.read(&mut vec![0; 64 << 10]).await.unwrap();
        socket.write_all(format!("HTTP/1.1 {STREAM}\r\n\r\n{HI}{STOP}").as_bytes()).await.unwrap();
        let _ = socket.read(&mut [0; 1]).await; // Until the client goes.
    };
    let client = async {
        let began = Instant::now();
        let mut stream = start(&endpoint);
        (all(&mut stream).await, began.elapsed())
    };
    let ((events, took), ()) = tokio::join!(client, server);
    assert!(matches!(events.last(), Some(StreamEvent::Done(_))), "{events:?}");
    assert!(took >= LAST_PIECE && took < SOON, "{took:?}");
}

#[tokio::test]
async fn a_compressed_answer_is_told_as_what_it_is() {
    let head = "200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: br";
    check(head, "\u{1f}\u{8b}", FailureClass::Rejected, "the answer is compressed (br), which was not asked for").await;
    let (events, _) = exchange(&format!("{STREAM}\r\ncontent-encoding: identity"), &format!("{HI}{STOP}"), true).await;
    assert!(matches!(events.last(), Some(StreamEvent::Done(_))), "{events:?}");
}

#[tokio::test]
async fn calls_that_are_dropped_lose_nothing_and_do_not_extend_the_silence() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut stream = start(&endpoint(format!("http://{}", listener.local_addr().unwrap())));
    let began = Instant::now();
    loop {
        if let Ok(events) = tokio::time::timeout(Duration::from_millis(20), stream.next()).await {
            let silent = failed(FailureClass::Timeout, "the provider was silent for 1.5 seconds");
            assert_eq!(events, [StreamEvent::Failed(silent)]);
            break;
        }
        assert!(began.elapsed() < SOON, "the silence never ends");
    }
}

/// How the answer of a server fails that sends `head`, and then a comment again and again for as long as it is listened to.
async fn endless_failure(head: &'static [u8], limits: Timeouts) -> Failure {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint { limits, ..endpoint(format!("http://{}", listener.local_addr().unwrap())) };
    let server = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        assert_ne!(socket.read(&mut [0; 1024]).await.unwrap(), 0, "it asks");
        let mut said = head;
        while !said.is_empty() && socket.write_all(said).await.is_ok() {
            said = b"6\r\n: ok\n\n\r\n";
            tokio::task::yield_now().await;
        }
        std::future::pending::<()>().await
    };
    let client = async {
        let mut events = all(&mut start(&endpoint)).await;
        let Some(StreamEvent::Failed(failure)) = events.pop() else { panic!("{events:?}") };
        failure
    };
    tokio::select! {
        failure = client => failure,
        () = server => unreachable!("it waits for ever"),
    }
}

#[tokio::test]
async fn an_answer_that_never_ends_and_is_never_silent_has_its_time() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let began = Instant::now();
    let failure = endless_failure(head, Timeouts { total: Duration::from_millis(500), ..Timeouts::default() }).await;
    assert_eq!(failure, failed(FailureClass::Timeout, "the answer was not complete after 0.5 seconds"));
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

/// A quarter of an hour passes in a moment: the clock stands still but where all wait.
#[tokio::test(start_paused = true)]
async fn what_only_says_that_it_lives_is_given_up_and_what_still_answers_is_not() {
    const PING: &str = ": ping\n\n";
    // A call in the making shows nothing, and is an answer.
    const CALL: &str = r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"ls","arguments":" "}}]},"finish_reason":null}]}"#;
    let minutes = |n: u64| Duration::from_secs(60 * n);
    // What a server says each minute, when it ends, and how the answer ends.
    for (said, event, after) in [(PING, "no piece of an answer came for 900 seconds", 15), (CALL, "not complete", 60)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let usual = Timeouts { connect: minutes(600), ..Timeouts::default() };
        let endpoint = Endpoint { limits: usual, ..endpoint(format!("http://{}", listener.local_addr().unwrap())) };
        let server = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            assert_ne!(socket.read(&mut [0; 1024]).await.unwrap(), 0, "it asks");
            socket.write_all(format!("HTTP/1.1 {STREAM}\r\n\r\n").as_bytes()).await.unwrap();
            while socket.write_all(format!("{said}\n\n").as_bytes()).await.is_ok() {
                tokio::time::sleep(minutes(1)).await;
            }
            std::future::pending::<()>().await
        };
        let began = Instant::now();
        let mut stream = start(&endpoint);
        let events = tokio::select! {
            events = all(&mut stream) => events,
            () = server => unreachable!("it waits for ever"),
        };
        let Some(StreamEvent::Failed(failure)) = events.last() else { panic!("{events:?}") };
        assert_eq!(failure.class, FailureClass::Timeout);
        assert!(failure.message.contains(event), "{failure:?}");
        let took = began.elapsed();
        assert!(took >= minutes(after) && took < minutes(after + 2), "{took:?}");
    }
}

#[tokio::test]
async fn a_response_that_does_not_begin_has_its_own_time() {
    let short = Timeouts { first_byte: Duration::from_millis(200), ..Timeouts::default() };
    let silent = failed(FailureClass::Timeout, "the provider was silent for 0.2 seconds");
    assert_eq!(endless_failure(b"", short).await, silent);
    let short = Timeouts { total: Duration::from_millis(200), ..Timeouts::default() };
    let late = failed(FailureClass::Timeout, "the answer was not complete after 0.2 seconds");
    assert_eq!(endless_failure(b"", short).await, late);
}

/// A server whose queue is full does not answer the next one who knocks.
#[tokio::test]
async fn a_connection_that_is_not_made_has_its_time() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&server, 0).unwrap();
    let address = server.local_addr().unwrap();
    let _queued = std::net::TcpStream::connect(address).unwrap();
    let limits = Timeouts { connect: Duration::from_millis(200), ..Timeouts::default() };
    let endpoint = Endpoint { limits, ..endpoint(format!("http://{address}")) };
    let began = Instant::now();
    let events = all(&mut start(&endpoint)).await;
    let [StreamEvent::Failed(failure)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(failure.class, FailureClass::Connect, "{failure:?}");
    assert!(failure.message.starts_with(&format!("cannot connect to {address}: ")), "{failure:?}");
    assert!(began.elapsed() >= limits.connect, "{:?}", began.elapsed());
}

/// A proxy makes the tunnel, and nothing speaks TLS at its end.
#[tokio::test]
async fn silence_behind_a_tunnel_is_not_blamed_on_the_proxy() {
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = proxy.local_addr().unwrap();
    let config = toml::from_str(&format!("proxy = 'http://{address}'")).unwrap();
    let network = Arc::new(Network::new(&config, &Variables::read(|_| None), Clients::default()));
    let limits = Timeouts { connect: SILENCE, ..Timeouts::default() };
    let endpoint = Endpoint { limits, network, ..endpoint("https://model.test/v1".to_owned()) };
    let tunnel = async {
        let (mut socket, _) = proxy.accept().await.unwrap();
        let _asked = socket.read(&mut [0; 4096]).await.unwrap();
        socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let _ = socket.read_to_end(&mut Vec::new()).await; // Until the client goes.
    };
    let (events, ()) = tokio::join!(async { all(&mut start(&endpoint)).await }, tunnel);
    let [StreamEvent::Failed(failure)] = &events[..] else { panic!("{events:?}") };
    let expect = format!("no connection to model.test through the proxy http://{address} (network.proxy): timed out");
    assert_eq!((failure.class, failure.message.as_str()), (FailureClass::Connect, expect.as_str()));
}

#[tokio::test]
async fn errors_say_what_the_provider_said_without_the_key() {
    let body = format!("{{\"error\":{{\"message\":\"no such key: {KEY}\"}}}}");
    check("401 Unauthorized", &body, FailureClass::Auth, "401: no such key: <redacted>").await;
    let page = "answered with a web page instead of a stream; asked http://HOST/v1/chat/completions";
    check("200 OK\r\ncontent-type: text/html", "<html>", FailureClass::NotFound, page).await;
    let named = "answered with a web page instead of a stream, \"Log in\"; asked http://HOST/v1/chat/completions";
    let body = "<html><title>\nLog in</title>";
    check("200 OK\r\ncontent-type: text/html", body, FailureClass::NotFound, named).await;
    let gone = "404: 404 page not found; asked http://HOST/v1/chat/completions";
    check("404 Not Found", "404 page not found", FailureClass::NotFound, gone).await;
    let plain = "answered without streaming: 200: no";
    check("200 OK\r\ncontent-type: application/json", "{\"error\":\"no\"}", FailureClass::Stream, plain).await;
    let cut = "the answer broke off";
    check(STREAM, HI, FailureClass::Stream, cut).await;
}

#[tokio::test]
async fn no_part_of_a_key_is_left_where_an_error_is_cut() {
    for before in 585..600 {
        let body = format!("{{\"error\":{{\"message\":\"{} {KEY}\"}}}}", "x".repeat(before));
        for (head, body) in [("401 Unauthorized", body.clone()), (STREAM, format!("data: {body}\n\n"))] {
            let (mut events, _) = exchange(head, &body, true).await;
            let Some(StreamEvent::Failed(failure)) = events.pop() else { panic!("{events:?}") };
            assert!(failure.message.contains("xxx") && !failure.message.contains("sk"), "{head}: {failure:?}");
            assert!(failure.message.chars().count() <= 601, "{head}: {failure:?}");
        }
    }
}

#[tokio::test]
async fn an_error_whose_body_does_not_end_is_what_its_status_and_its_beginning_say() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let server = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        assert_ne!(socket.read(&mut [0; 64 << 10]).await.unwrap(), 0);
        socket.write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 100\r\n\r\nno such key").await.unwrap();
        let _ = socket.read(&mut [0; 1]).await; // Until the client goes.
    };
    let client = async {
        let limits = Timeouts { first_byte: Duration::from_secs(4), ..Timeouts::default() };
        all(&mut start(&Endpoint { limits, ..endpoint(address) })).await
    };
    let (mut events, ()) = tokio::join!(client, server);
    let Some(StreamEvent::Failed(failure)) = events.pop() else { panic!("{events:?}") };
    assert_eq!((failure.class, failure.message.as_str()), (FailureClass::Auth, "401: no such key"));
}

#[tokio::test]
async fn an_event_that_is_too_large_is_not_paid_for_again() {
    let body = format!("{HI}data: {}", "x".repeat(9 << 20));
    check(STREAM, &body, FailureClass::Rejected, "an event of the stream is larger than 8 MiB").await;
}

const JSON: &str = "200 OK\r\ncontent-type: application/json";

#[tokio::test]
async fn a_web_page_is_known_by_its_first_byte_whatever_it_is_called() {
    let page = "answered with a web page instead of a stream; asked http://HOST/v1/chat/completions";
    for head in [STREAM, JSON, "200 OK", "200 OK\r\ncontent-type: application/xhtml+xml; charset=utf-8"] {
        for body in ["<!doctype html><html>", "\r\n \u{feff}<?xml version=\"1.0\"?>\n<html>"] {
            check(head, body, FailureClass::NotFound, page).await;
        }
    }
}

#[tokio::test]
async fn an_answer_that_comes_at_once_is_not_asked_for_again_and_an_error_is_what_it_says() {
    let whole = r#"{"id":"x","choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}"#;
    let long = format!("{{\"choices\":[{{\"message\":{{\"content\":\"{}\"}}}}]}}", "x".repeat(1 << 20));
    let said = "answered all at once instead of streaming: the server, or a proxy before it, has to heed `stream`, or set \
                `streaming = false` in [providers.NAME.compat]";
    for head in [STREAM, JSON, "200 OK"] {
        check(head, whole, FailureClass::Rejected, said).await;
        check(head, &format!("\n [{whole}]"), FailureClass::Rejected, said).await;
        check(head, &long, FailureClass::Rejected, said).await;
        check(head, r#"{"error":null,"output":[]}"#, FailureClass::Rejected, said).await;
        let busy = r#"{"error":{"code":429,"message":"slow down"}}"#;
        check(head, busy, FailureClass::RateLimited, "answered without streaming: 200: slow down").await;
        let cut = "answered without streaming: 200: {\"id\":";
        check(head, "{\"id\":", FailureClass::Stream, cut).await;
    }
    // One that nobody ends is not waited for.
    let (events, _) = exchange(JSON, whole, false).await;
    assert_eq!(events, [StreamEvent::Failed(failed(FailureClass::Rejected, said))]);
    // A stream under a name that says otherwise is one.
    let (events, _) = exchange(JSON, &format!("{HI}{STOP}"), true).await;
    assert!(matches!(events.last(), Some(StreamEvent::Done(_))), "{events:?}");
}

/// What a client with this endpoint sends, and gets of a server that answers with `body`.
async fn exchange_as(change: impl FnOnce(Endpoint) -> Endpoint, head: &str, body: &str) -> (Vec<StreamEvent>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = change(endpoint(format!("http://{}/v1", listener.local_addr().unwrap())));
    let answer = format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n{body}");
    let server = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 64 << 10];
        let n = socket.read(&mut request).await.unwrap();
        socket.write_all(answer.as_bytes()).await.unwrap();
        drop(socket);
        String::from_utf8_lossy(&request[..n]).into_owned()
    };
    let client = async { all(&mut start(&endpoint)).await };
    tokio::join!(client, server)
}

#[tokio::test]
async fn an_answer_that_is_asked_for_as_a_whole_is_taken_so() {
    let unstreamed = |endpoint: Endpoint| {
        let compat = Compat { streaming: Some(false), ..Compat::NONE };
        Endpoint { codec: Arc::new(OpenAi::new(compat)), ..endpoint }
    };
    let whole = r#"{"choices":[{"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9}}"#;
    let (mut events, request) = exchange_as(unstreamed, JSON, whole).await;
    let Some(StreamEvent::Done(response)) = events.pop() else { panic!("{events:?}") };
    assert_eq!((response.content, response.usage.input_tokens), (vec![ContentBlock::text("hi")], 9));
    assert_eq!(events, [text(0, "hi")]);
    assert!(request.contains("\"stream\":false") && !request.contains("stream_options"), "{request}");
    // One that is streamed all the same is taken too, and an error is one.
    let (events, _) = exchange_as(unstreamed, STREAM, &format!("{HI}{STOP}")).await;
    assert!(matches!(events.last(), Some(StreamEvent::Done(_))), "{events:?}");
    let (events, _) = exchange_as(unstreamed, JSON, r#"{"error":{"code":429,"message":"slow down"}}"#).await;
    assert!(matches!(events.last(), Some(StreamEvent::Failed(failure)) if failure.message.contains("slow down")));
}

#[tokio::test]
async fn headers_and_parameters_of_ones_own_are_sent_and_their_secrets_not_shown() {
    let own = |endpoint: Endpoint| {
        let secret = Secret::new("a-canary");
        endpoint.redactor.add(&secret);
        let fields = vec![
            (FieldPlace::Header, "x-team".to_owned(), FieldText::Plain("blue".to_owned())),
            (FieldPlace::Header, "api-key".to_owned(), FieldText::Secret(secret.clone())),
            (FieldPlace::Query, "api-version".to_owned(), FieldText::Plain("2024 10".to_owned())),
            (FieldPlace::Query, "sig".to_owned(), FieldText::Secret(secret)),
        ];
        Endpoint { fields: Arc::new(fields), ..endpoint }
    };
    let (events, request) = exchange_as(own, "404 Not Found", "no a-canary here").await;
    assert!(
        request.starts_with("POST /v1/chat/completions?api-version=2024+10&sig=a-canary HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(request.contains("x-team: blue\r\n") && request.contains("api-key: a-canary\r\n"), "{request}");
    let [StreamEvent::Failed(failure)] = &events[..] else { panic!("{events:?}") };
    assert!(failure.message.starts_with("404: no <redacted> here; asked http://"), "{}", failure.message);
    assert!(!failure.message.contains("canary") && !failure.message.contains("sig"), "{}", failure.message);
}

#[tokio::test]
async fn a_redirect_is_an_error_that_says_where_it_leads() {
    for status in ["301 Moved", "302 Found", "307 Moved", "308 Moved"] {
        let head = format!("{status}\r\nlocation: https://example.com/v1?x={KEY}");
        let (events, _) = exchange(&head, "", true).await;
        let [StreamEvent::Failed(failure)] = &events[..] else { panic!("{events:?}") };
        assert_eq!(failure.class, FailureClass::NotFound);
        let said = format!("answers {}, a redirect to https://example.com/v1; it is not followed", &status[..3]);
        assert!(failure.message.contains(&said) && !failure.message.contains(KEY), "{}", failure.message);
    }
}

#[tokio::test]
async fn headers_say_whether_and_when_to_try_again() {
    let failure = check("429 Slow\r\nretry-after: 7", "busy", FailureClass::RateLimited, "429: busy").await;
    assert_eq!(failure.retry_after, Some(Duration::from_secs(7)));
    let limited = "429 Slow\r\nx-ratelimit-remaining-requests: 0\r\nx-ratelimit-reset-requests: 1m9s";
    let failure = check(limited, "busy", FailureClass::RateLimited, "429: busy").await;
    assert_eq!(failure.retry_after, Some(Duration::from_secs(69)));
    check("503 No\r\nx-should-retry: false", "busy", FailureClass::Rejected, "503: busy").await;
    check("400 No\r\nx-should-retry: true", "busy", FailureClass::Overloaded, "400: busy").await;
}

#[tokio::test]
async fn nobody_there_is_a_connection_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let events = all(&mut start(&endpoint(format!("http://{address}")))).await;
    let [StreamEvent::Failed(failure)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(failure.class, FailureClass::Refused);
    let expect = format!("cannot connect to {address}: Connection refused");
    assert!(failure.message.starts_with(&expect), "{}", failure.message);
}

#[test]
fn waits_are_read_in_every_form() {
    const NOW: u64 = 784_111_777_000; // Sun, 06 Nov 1994 08:49:37 GMT
    fn check(millis: Option<&str>, text: Option<&str>, expect: Option<u64>) {
        assert_eq!(retry_after(millis, text, NOW), expect.map(Duration::from_millis), "{millis:?} {text:?}");
    }
    check(None, None, None);
    check(Some("250"), Some("9"), Some(250));
    check(None, Some("1.5"), Some(1500));
    check(None, Some("-3"), Some(0));
    check(None, Some("1e300"), Some(30 * 86_400_000));
    check(None, Some("Sun, 06 Nov 1994 08:50:07 GMT"), Some(30_000));
    check(None, Some("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0));
    check(None, Some("soon"), None);
}

#[test]
fn an_exhausted_limit_says_when_it_is_over() {
    const NOW: u64 = 1_795_392_000_000;
    let check = |headers: &[(&str, &str)], expect: Option<u64>| {
        let header = |name: &str| headers.iter().find(|(it, _)| *it == name).map(|(_, value)| *value);
        assert_eq!(limit_reset(header, NOW), expect.map(Duration::from_millis), "{headers:?}");
    };
    check(&[("x-ratelimit-reset-requests", "6m0s"), ("x-ratelimit-remaining-requests", "0")], Some(360_000));
    check(&[("x-ratelimit-reset-tokens", "750ms"), ("x-ratelimit-remaining-tokens", "0")], Some(750));
    check(&[("x-ratelimit-reset-tokens", "12.5")], Some(12_500));
    // One that is not used up does not matter; of two that are, the later.
    let both = [
        ("x-ratelimit-reset-requests", "1h"),
        ("x-ratelimit-remaining-requests", "7"),
        ("x-ratelimit-reset-tokens", "2s"),
    ];
    check(&both, Some(2000));
    check(&[("x-ratelimit-reset-requests", "3s"), ("x-ratelimit-reset-tokens", "2s")], Some(3000));
    // Moments, in milliseconds and in seconds.
    check(&[("x-ratelimit-reset", "1795392030000"), ("x-ratelimit-remaining", "0")], Some(30_000));
    check(&[("x-ratelimit-reset", "1795392030")], Some(30_000));
    check(&[("x-ratelimit-reset", "1795391000")], Some(0));
    check(&[("x-ratelimit-reset", "soon")], None);
    check(&[], None);
}
