//! The call of a method as its handler gets it, and the answer that it gives.

use std::sync::Arc;

use jsonrpsee::core::{JsonRawValue, to_json_raw_value};
use jsonrpsee::types::{ErrorObjectOwned, Params};
use jsonrpsee::{Extensions, ResponsePayload};
use linger_protocol::RpcError;
use linger_protocol::error::Code;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::conn::{Conn, make_room};
use crate::service::Services;

/// The answer of a method: its result, already as JSON.
pub(super) type Answer = Result<ResponsePayload<'static, Box<JsonRawValue>>, ErrorObjectOwned>;

/// A request with its connection and the services, as its handler gets it.
pub(super) struct MethodCall {
    pub(super) services: Arc<Services>,
    pub(super) conn: Arc<Conn>,
    pub(super) extensions: Extensions,
    pub(super) params: Params<'static>,
}

impl MethodCall {
    /// The parameters; fails if they do not fit.
    pub(super) fn read<P: DeserializeOwned>(&self) -> Result<P, ErrorObjectOwned> {
        self.params.sequence().next()
    }

    /// Waits for capacity for a large answer.
    pub(super) async fn make_room(&self, bytes: usize) -> Result<(), RpcError> {
        make_room(&self.extensions, bytes).await
    }
}

/// A result as the payload of an answer.
pub(super) fn payload(result: &impl Serialize) -> Answer {
    let json = to_json_raw_value(result).map_err(|error| RpcError::new(Code::Internal, error.to_string()))?;
    Ok(ResponsePayload::success(json))
}
