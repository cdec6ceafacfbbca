//! A small HTTP client: what it sends is what a test says, well formed or not.

use std::net::SocketAddr;

use linger_tests::TIMEOUT;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Http(SocketAddr);

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: String,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

pub(crate) fn get(path: &str) -> Request {
    Request { method: "GET".to_owned(), path: path.to_owned(), headers: Vec::new(), body: String::new() }
}

pub(crate) fn post(path: &str, body: Value) -> Request {
    let body = body.to_string();
    Request { body, ..get(path).method("POST") }.header("content-type", "application/json")
}

/// A request with this body as it is.
pub(crate) fn upload(path: &str, body: String) -> Request {
    Request { body, ..get(path).method("POST") }
}

impl Request {
    pub(crate) fn method(mut self, method: &str) -> Self {
        self.method = method.to_owned();
        self
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn token(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    /// Its lines up to the body; Host and the length as they should be, unless the test says others.
    pub(crate) fn head(&self, host: &str) -> String {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        let has = |name: &str| self.headers.iter().any(|(known, _)| known == name);
        if !has("host") {
            text += &format!("host: {host}\r\n");
        }
        if !has("content-length") && !self.body.is_empty() {
            text += &format!("content-length: {}\r\n", self.body.len());
        }
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        text + "connection: close\r\n\r\n"
    }
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }
}

impl Http {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self(address)
    }

    pub(crate) fn host(&self) -> String {
        self.0.to_string()
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        timeout(TIMEOUT, TcpStream::connect(self.0)).await.unwrap().unwrap()
    }

    async fn begin(&self, request: &Request) -> (BufReader<TcpStream>, Response) {
        let mut socket = self.connect().await;
        write(&mut socket, &format!("{}{}", request.head(&self.host()), request.body)).await;
        let mut socket = BufReader::new(socket);
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            timeout(TIMEOUT, socket.read_line(&mut line)).await.expect("an answer in time").unwrap();
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let status = lines.first().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let status = status.unwrap_or_else(|| panic!("{request:?}: {lines:?}"));
        let header = |line: &String| {
            line.split_once(':').map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        let headers = lines.iter().skip(1).filter_map(header).collect();
        (socket, Response { status, headers, body: Vec::new() })
    }

    pub(crate) async fn send(&self, request: Request) -> Response {
        let (mut socket, mut response) = self.begin(&request).await;
        let mut body = Vec::new();
        // A server that refuses a body before it has come may reset the connection.
        let _reset = timeout(TIMEOUT, socket.read_to_end(&mut body)).await.expect("an end in time");
        response.body = if response.header("transfer-encoding") == Some("chunked") { unchunked(&body) } else { body };
        response
    }

    /// A response of server-sent events.
    pub(crate) async fn stream(&self, request: Request) -> Events {
        let (socket, response) = self.begin(&request).await;
        assert_eq!(response.status, 200, "{request:?} {response:?}");
        assert_eq!(response.header("content-type"), Some("text/event-stream; charset=utf-8"));
        Events { socket, response }
    }
}

pub(crate) async fn write(socket: &mut TcpStream, text: &str) {
    // A server may have answered and hung up.
    let _refused = socket.write_all(text.as_bytes()).await;
}

fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|it| it == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        whole.extend_from_slice(&body[end + 2..end + 2 + size]);
        body = &body[end + 2 + size + 2..];
        if size == 0 {
            break;
        }
    }
    whole
}

/// A stream of events. Its chunks are whole events.
pub(crate) struct Events {
    socket: BufReader<TcpStream>,
    pub(crate) response: Response,
}

impl Events {
    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = timeout(TIMEOUT, self.socket.read_line(&mut line)).await.expect("the next line in time");
        // The end is a reset where the server was killed.
        (read.unwrap_or_default() > 0).then(|| line.trim_end().to_owned())
    }

    /// The next event with data: its id, its name and its data.
    pub(crate) async fn any(&mut self) -> Option<(String, String, String)> {
        let (mut id, mut name) = (String::new(), String::new());
        loop {
            let line = self.line().await?;
            if let Some(value) = line.strip_prefix("id: ") {
                id = value.to_owned();
            } else if let Some(value) = line.strip_prefix("event: ") {
                name = value.to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some((id, name, data.to_owned()));
            }
        }
    }

    /// The next event, which has no name.
    pub(crate) async fn next(&mut self) -> (String, Value) {
        let (id, _, data) = self.any().await.expect("another event");
        (id, serde_json::from_str(&data).unwrap())
    }

    /// The first event whose data has these words.
    pub(crate) async fn until(&mut self, words: &str) -> (String, Value) {
        loop {
            let (id, data) = self.next().await;
            if data.to_string().contains(words) {
                return (id, data);
            }
        }
    }

    /// Reads to the end of the stream.
    pub(crate) async fn end(&mut self) {
        while self.any().await.is_some() {}
    }
}
