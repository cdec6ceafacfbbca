//! `/artifact/`: files that people and programs put here, take back and name in prompts.
//!
//! Bytes go to the daemon and come from it piece by piece: the gateway keeps none of them.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    HeaderMap, HeaderValue, RANGE,
};
use hyper::{Response, StatusCode};
use linger_protocol::artifact::{Artifact, Begun, MAX_ARTIFACT, MAX_PIECE, UNKNOWN_TYPE};
use linger_protocol::blob::Piece;
use linger_protocol::message::image_type;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::blob::SANDBOX;
use super::body;
use super::client::{Client, Query};
use super::reply::{Body, Failure, Reply, json_of, text_json};
use super::wire::Wire;

use crate::sys::task;

/// How long an upload may take in all: the largest one at 110 KB a second.
const TIME: Duration = Duration::from_secs(600);

/// The name of the file, percent-encoded where it is no plain ASCII.
const FILENAME: &str = "x-original-filename";

/// Takes the body as an artifact, and answers with its row.
pub(super) async fn put(client: Client, headers: &HeaderMap, mut body: Incoming) -> Result<Reply, Failure> {
    let size = body.size_hint().exact();
    if body.size_hint().lower() > MAX_ARTIFACT {
        return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "too_much", "an artifact may have 64 MiB"));
    }
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let name = text(FILENAME).map(|name| percent_decode_str(name).decode_utf8_lossy().into_owned());
    let kind = text(CONTENT_TYPE.as_str());
    let deadline = Instant::now() + TIME;
    let mut wire = client.wire;
    let begun: Begun = wire.get("artifact/begin", json!({ "name": name, "content_type": kind, "size": size })).await?;
    let (mut offset, mut piece) = (0, Vec::new());
    while let Some(data) = body::next(&mut body, deadline).await? {
        for part in data.chunks(MAX_PIECE as usize) {
            piece.extend_from_slice(part);
            if piece.len() >= MAX_PIECE as usize {
                let rest = piece.split_off(MAX_PIECE as usize);
                offset = write(&mut wire, &begun, offset, &piece).await?;
                piece = rest;
            }
        }
    }
    if !piece.is_empty() {
        write(&mut wire, &begun, offset, &piece).await?;
    }
    let made: Artifact = wire.get("artifact/finish", json!({ "upload": begun.upload })).await?;
    let mut reply = json_of(&made)?;
    *reply.status_mut() = StatusCode::CREATED;
    Ok(reply)
}

/// Sends a piece; gives where the next one begins.
async fn write(wire: &mut Wire, begun: &Begun, offset: u64, piece: &[u8]) -> Result<u64, Failure> {
    let data = BASE64.encode(piece);
    wire.ask("artifact/write", json!({ "upload": begun.upload, "offset": offset, "data": data })).await?;
    Ok(offset + piece.len() as u64)
}

/// The rows, the latest first: `?limit=N&before=CREATED_AT,ID`.
pub(super) async fn list(client: Client, query: &Query) -> Result<Reply, Failure> {
    let wrong = || Failure::bad_request("`before` is CREATED_AT,ID of the last row, `limit` a number");
    let limit = query.get("limit").map(str::parse::<u32>).transpose().map_err(|_| wrong())?;
    let before = match query.get("before") {
        None => Value::Null,
        Some(before) => {
            let (at, id) = before.split_once(',').ok_or_else(wrong)?;
            json!({ "created_at": at.parse::<u64>().map_err(|_| wrong())?, "id": id })
        }
    };
    let mut wire = client.wire;
    let rows = wire.ask("artifact/list", json!({ "limit": limit, "before": before })).await?;
    Ok(text_json(StatusCode::OK, rows.get().to_owned()))
}

/// The row of an artifact.
pub(super) async fn meta(client: Client, id: &str) -> Result<Reply, Failure> {
    let mut wire = client.wire;
    let row = wire.ask("artifact/get", json!({ "id": id })).await?;
    Ok(text_json(StatusCode::OK, row.get().to_owned()))
}

/// Deletes an artifact.
pub(super) async fn delete(client: Client, id: &str) -> Result<Reply, Failure> {
    let mut wire = client.wire;
    wire.ask("artifact/delete", json!({ "id": id })).await?;
    let mut reply = Response::new(Body::full(""));
    *reply.status_mut() = StatusCode::NO_CONTENT;
    Ok(reply)
}

/// The bytes of an artifact, or one range of them.
pub(super) async fn get(client: Client, id: &str, headers: &HeaderMap) -> Result<Reply, Failure> {
    let mut wire = client.wire;
    let row: Artifact = wire.get("artifact/get", json!({ "id": id })).await?;
    let range = headers.get(RANGE).and_then(|range| range.to_str().ok());
    let (from, to, is_part) = match range.map(|range| part(range, row.size)) {
        None | Some(RangeRequest::All) => (0, row.size, false),
        Some(RangeRequest::Part(from, to)) => (from, to, true),
        Some(RangeRequest::Nothing) => {
            let failure = Failure::new(StatusCode::RANGE_NOT_SATISFIABLE, "range", "the artifact ends before this");
            let mut reply = failure.reply(failure.json());
            reply.headers_mut().insert(CONTENT_RANGE, header(&format!("bytes */{}", row.size))?);
            return Ok(reply);
        }
    };
    let id = id.to_owned();
    // Of what it is the first bytes tell, and not who put it here.
    let first = read(&mut wire, &id, 0, MAX_PIECE.min(row.size)).await?;
    let (kind, how) = shown(&row, &first.0);
    let (sender, body) = Body::stream();
    let mut response = Response::new(body);
    if is_part {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let of = format!("bytes {from}-{}/{}", to.saturating_sub(1), row.size);
        response.headers_mut().insert(CONTENT_RANGE, header(&of)?);
    }
    let named = utf8_percent_encode(&row.name, NON_ALPHANUMERIC);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(CONTENT_LENGTH, HeaderValue::from(to - from));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(CONTENT_DISPOSITION, header(&format!("{how}; filename*=UTF-8''{named}"))?);
    headers.insert(CONTENT_SECURITY_POLICY, SANDBOX);
    task::spawn(async move {
        let mut at = from;
        // A client that has gone needs no more, and one that gets less than was promised knows.
        while at < to {
            let Ok((bytes, _)) = read(&mut wire, &id, at, (to - at).min(MAX_PIECE)).await else { return };
            at += bytes.len() as u64;
            if bytes.is_empty() || sender.send(Bytes::from(bytes)).await.is_err() {
                return;
            }
        }
    });
    Ok(response)
}

/// A piece, and where the next one begins.
async fn read(wire: &mut Wire, id: &str, offset: u64, length: u64) -> Result<(Vec<u8>, Option<u64>), Failure> {
    let piece: Piece = wire.get("artifact/read", json!({ "id": id, "offset": offset, "length": length })).await?;
    let bytes = BASE64.decode(&piece.data);
    let bytes = bytes.map_err(|error| Failure::unavailable(format!("the daemon's answer makes no sense: {error}")))?;
    Ok((bytes, piece.next))
}

/// The type for a browser, and whether it shows the content: real pictures and plain text. It saves all else.
fn shown(row: &Artifact, first: &[u8]) -> (HeaderValue, &'static str) {
    if let Some(kind) = image_type(first) {
        return (HeaderValue::from_static(kind), "inline");
    }
    if row.content_type.split(';').next().map(str::trim) == Some("text/plain") {
        return (HeaderValue::from_static("text/plain; charset=utf-8"), "inline");
    }
    let kind = HeaderValue::from_str(&row.content_type).unwrap_or(HeaderValue::from_static(UNKNOWN_TYPE));
    (kind, "attachment")
}

fn header(text: &str) -> Result<HeaderValue, Failure> {
    HeaderValue::from_str(text)
        .map_err(|error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string()))
}

/// The bytes that a `Range` asks for.
#[derive(Debug, PartialEq, Eq)]
enum RangeRequest {
    /// All: the header is no range of bytes, or several (RFC 9110, 14.2 allows this).
    All,
    /// From a byte to another, which is not in it.
    Part(u64, u64),
    /// A range behind the end.
    Nothing,
}

fn part(range: &str, size: u64) -> RangeRequest {
    let Some((from, to)) = range.strip_prefix("bytes=").and_then(|range| range.split_once('-')) else {
        return RangeRequest::All;
    };
    let number = |text: &str| text.trim().parse::<u64>().ok();
    match (from.trim(), to.trim()) {
        ("", last) => match number(last) {
            None => RangeRequest::All,
            Some(0) => RangeRequest::Nothing,
            Some(_) if size == 0 => RangeRequest::Nothing,
            Some(last) => RangeRequest::Part(size.saturating_sub(last), size),
        },
        (from, to) => match (number(from), to.is_empty().then_some(u64::MAX).or_else(|| number(to))) {
            (Some(from), Some(to)) if to < from => RangeRequest::All,
            (Some(from), Some(_)) if from >= size => RangeRequest::Nothing,
            (Some(from), Some(to)) => RangeRequest::Part(from, to.saturating_add(1).min(size)),
            _ => RangeRequest::All,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_one_part_of_what_is_there() {
        assert_eq!(part("bytes=0-9", 100), RangeRequest::Part(0, 10));
        assert_eq!(part("bytes=90-", 100), RangeRequest::Part(90, 100));
        assert_eq!(part("bytes=90-500", 100), RangeRequest::Part(90, 100));
        assert_eq!(part("bytes=-5", 100), RangeRequest::Part(95, 100));
        assert_eq!(part("bytes=-500", 100), RangeRequest::Part(0, 100));
        assert_eq!(part("bytes=100-", 100), RangeRequest::Nothing);
        assert_eq!(part("bytes=-0", 100), RangeRequest::Nothing);
        assert_eq!(part("bytes=-1", 0), RangeRequest::Nothing);
        for all in ["bytes=5-2", "bytes=0-1,5-6", "bytes=x-", "lines=1-2", "bytes=", "bytes=-"] {
            assert_eq!(part(all, 100), RangeRequest::All, "{all}");
        }
    }

    #[test]
    fn only_pictures_that_are_such_and_plain_text_are_shown() {
        let of = |kind: &str, first: &[u8]| {
            let (kind, how) = shown(&Artifact { content_type: kind.to_owned(), ..Artifact::default() }, first);
            format!("{} {how}", kind.to_str().unwrap())
        };
        assert_eq!(of("text/html", b"<script>"), "text/html attachment");
        assert_eq!(of("image/png", b"<script>"), "image/png attachment");
        assert_eq!(of("image/svg+xml", b"<svg>"), "image/svg+xml attachment");
        assert_eq!(of("text/html", b"\x89PNG\r\n\x1a\n"), "image/png inline");
        assert_eq!(of("text/plain; charset=x", b"hi"), "text/plain; charset=utf-8 inline");
        assert_eq!(of("a\nb", b"hi"), "application/octet-stream attachment");
    }
}
