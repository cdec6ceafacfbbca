//! stub
use std::collections::BTreeMap; use tokio::sync::watch; use linger_protocol::daemon::Model; use super::*;
#[derive(Debug,Clone,Default)] pub struct ProviderConfig;
pub struct Keys;
impl Keys { pub fn changed(&self) -> watch::Receiver<()> { watch::channel(()).1 } pub fn put(&self, _: &str, _: &str) {} pub fn from_environment(_: crate::secret::Redactor) -> Self { Self } }
#[derive(Debug,thiserror::Error)] pub enum ResolveError { #[error("")] NoModel{a:u8}, #[error("")] UnknownProvider{a:u8}, #[error("")] KeyMissing{provider:String,variable:String}, #[error("")] Config(String) }
impl ResolveError { pub fn hint(&self) -> Option<String> { None } }
pub struct Resolved { pub model: String, pub max_tokens: u32 }
pub struct Stream; impl Stream { pub async fn next(&mut self) -> Vec<StreamEvent> { vec![] } }
impl Resolved { pub fn start(&self, _: &Request<'_>) -> Stream { Stream } }
pub type P = BTreeMap<String, ProviderConfig>;
pub fn canonical(_: &P, _: &Keys, _: Option<&str>) -> Result<String, ResolveError> { Ok(String::new()) }
pub fn resolve(_: &P, _: &Keys, _: Option<&str>) -> Result<Resolved, ResolveError> { Err(ResolveError::Config(String::new())) }
pub fn wanted(_: &P, _: &Keys) -> Vec<String> { vec![] }
pub fn models(_: &P, _: &Keys, _: Option<&str>) -> Vec<Model> { vec![] }
