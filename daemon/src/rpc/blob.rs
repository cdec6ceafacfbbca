//! `blob/*`: what is too large for an event, a piece at a time.

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jsonrpsee::Extensions;
use jsonrpsee::core::RpcResult;
use linger_protocol::RpcError;
use linger_protocol::api::BlobApiServer;
use linger_protocol::blob::{Get, Piece};
use linger_protocol::error::Code;

use super::{Rpc, conn};

/// Bytes in an answer of `blob/get`: large enough to be quick, small enough to be one of many on a connection.
const MAX_PIECE: u64 = 1 << 20;

/// About how large such an answer is, in bytes: base64 has a third more.
const PIECE_ROOM: usize = 3 << 19;

#[async_trait]
impl BlobApiServer for Rpc {
    async fn get(&self, extensions: &Extensions, params: Get) -> RpcResult<Piece> {
        let conn = conn(extensions)?;
        let store = &self.0.store;
        if !conn.query(store.uses(params.blob.clone())).await? {
            let error = RpcError::new(Code::UnknownBlob, format!("no session uses a blob '{}'", params.blob));
            return Err(error.hint("events name the blobs that there are").into());
        };
        let offset = params.offset.unwrap_or_default();
        let length = params.length.unwrap_or(MAX_PIECE).min(MAX_PIECE);
        let blobs = store.blobs.clone();
        let read = async {
            let blob = params.blob.clone();
            let read =
                move || blobs.check(&blob).and_then(|()| Ok((blobs.size(&blob)?, blobs.read(&blob, offset, length)?)));
            let read = tokio::task::spawn_blocking(read).await;
            let read = read.unwrap_or_else(|error| Err(std::io::Error::other(error)));
            let (size, bytes) = read.map_err(|error| store.lost_blob(&params.blob, error))?;
            store.found.blob_is_well(&params.blob);
            Ok((size, bytes.len() as u64, BASE64.encode(bytes)))
        };
        let (size, read, data) = conn.query_large(extensions, PIECE_ROOM, read).await?;
        let end = offset.saturating_add(read);
        // A piece of nothing has nothing after it: whoever follows `next` must come to an end.
        let next = (end < size && read > 0).then_some(end);
        Ok(Piece { data, size, next })
    }
}
