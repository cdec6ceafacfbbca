//! Just enough of HTTP/1.1 to be byte-exact and to stop anywhere: requests with a length, responses in chunks.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// The largest body that is read: far beyond what a test sends.
const MAX_BODY: usize = 64 << 20;

/// A request as it came.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

/// Reads one request; nothing when the connection has ended.
pub(super) async fn read_request(stream: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length").map_or("0", |(_, value)| value);
    let length: usize = length.parse().map_err(|_| io::Error::other("content-length is no number"))?;
    if length > MAX_BODY {
        return Err(io::Error::other("the body is too large"));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(Some(Request { method, path, headers, body }))
}

/// Writes a response whose length is known.
pub(super) async fn write_plain(
    stream: &mut BufReader<TcpStream>,
    status: u16,
    headers: &[(String, String)],
    body: &[u8],
) -> io::Result<()> {
    let mut out = format!("HTTP/1.1 {status} {}\r\ncontent-length: {}\r\n", reason(status), body.len());
    headers.iter().for_each(|(name, value)| out.push_str(&format!("{name}: {value}\r\n")));
    out.push_str("\r\n");
    let mut bytes = out.into_bytes();
    bytes.extend(body);
    stream.write_all(&bytes).await?;
    stream.flush().await
}

/// Begins a response in chunks.
pub(super) async fn write_head(stream: &mut BufReader<TcpStream>, content_type: &str) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await
}

/// One chunk; an empty one ends the body.
pub(super) fn chunk(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend(format!("{:x}\r\n", bytes.len()).as_bytes());
    out.extend(bytes);
    out.extend(b"\r\n");
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        _ => "Scripted",
    }
}
