//! `GET /blob/HASH`: an image or a whole output that an event names, piece by piece from the daemon.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hyper::Response;
use hyper::body::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue,
};
use linger_protocol::blob::Piece;
use linger_protocol::message::image_type;
use serde_json::json;

use super::client::Client;
use super::reply::{Body, Failure, Reply};

use crate::sys::task;

/// The policy for content that a model or a tool wrote: a browser may save it, and runs nothing of it.
pub(super) const SANDBOX: HeaderValue = HeaderValue::from_static("default-src 'none'; sandbox");

/// The bytes of a blob that the token may read. `id` may lack `sha256:`, which is awkward in a path.
pub(super) async fn get(client: Client, id: &str) -> Result<Reply, Failure> {
    let id = if id.contains(':') { id.to_owned() } else { format!("sha256:{id}") };
    let mut wire = client.wire;
    let first: Piece = wire.get("blob/get", json!({ "blob": id })).await?;
    let bytes = decode(&first)?;
    let kind = image_type(&bytes).unwrap_or("application/octet-stream");
    let (sender, body) = Body::stream();
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(first.size));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(CONTENT_SECURITY_POLICY, SANDBOX);
    // What has this name never changes.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, max-age=31536000, immutable"));
    task::spawn(async move {
        let (mut next, mut bytes) = (first.next, bytes);
        // A client that has gone needs no more, and one that gets less than was promised knows.
        while sender.send(Bytes::from(bytes)).await.is_ok() {
            let Some(offset) = next else { return };
            let Ok(piece) = wire.get::<Piece>("blob/get", json!({ "blob": id, "offset": offset })).await else {
                return;
            };
            let Ok(more) = decode(&piece) else { return };
            (next, bytes) = (piece.next, more);
        }
    });
    Ok(response)
}

fn decode(piece: &Piece) -> Result<Vec<u8>, Failure> {
    BASE64
        .decode(&piece.data)
        .map_err(|error| Failure::unavailable(format!("the daemon's answer makes no sense: {error}")))
}
