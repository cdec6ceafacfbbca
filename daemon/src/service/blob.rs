//! `blob/*`: reading blobs piece by piece.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use linger_protocol::RpcError;
use linger_protocol::blob::{Get, Piece};
use linger_protocol::error::Code;

use super::{Caller, Services};

use crate::sys::task;

/// The most bytes in an answer of `blob/get`: large enough to be quick, small enough to share a connection.
const MAX_PIECE: u64 = 1 << 20;

/// A piece of a blob that some session uses.
pub async fn get(services: &Services, caller: &Caller, params: Get) -> Result<Piece, RpcError> {
    let readable = caller.readable(services).await?;
    let store = &services.store;
    if !store.uses(params.blob.clone(), readable).await? {
        let error = RpcError::new(Code::UnknownBlob, format!("no session uses a blob '{}'", params.blob));
        return Err(error.hint("the ids of blobs are in events"));
    };
    let offset = params.offset.unwrap_or_default();
    let length = params.length.unwrap_or(MAX_PIECE).min(MAX_PIECE);
    let (blobs, blob) = (store.blobs.clone(), params.blob.clone());
    let read = move || blobs.check(&blob).and_then(|()| Ok((blobs.size(&blob)?, blobs.read(&blob, offset, length)?)));
    let read = task::spawn_blocking(read).await;
    let read = read.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    let (size, bytes) = read.map_err(|error| store.lost_blob(&params.blob, error))?;
    store.found.blob_is_well(&params.blob);
    let end = offset.saturating_add(bytes.len() as u64);
    // An empty piece has no `next`, so that a client that follows it comes to an end.
    let next = (end < size && !bytes.is_empty()).then_some(end);
    Ok(Piece { data: BASE64.encode(bytes), size, next })
}
