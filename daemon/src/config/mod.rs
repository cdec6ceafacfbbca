//! stub
use std::sync::Arc; use std::collections::BTreeMap; use std::path::{Path,PathBuf};
use linger_protocol::place::Places;
use linger_protocol::permission::Mode;
use crate::provider::catalogue::ProviderConfig;
#[derive(Default,Debug,Clone)] pub struct Tools { pub bash_timeout_s: u64 }
#[derive(Default,Debug,Clone)] pub struct EnvC { }
impl EnvC { pub fn names(&self) -> impl Iterator<Item=&str> { ["PATH"].into_iter() } }
#[derive(Default,Debug,Clone)] pub struct Ws { pub allow: Vec<String> }
#[derive(Default,Debug)] pub struct Config { pub model: Option<String>, pub mode: Mode, pub max_steps: u32, pub idle_unload_s: u64, pub tools: Tools, pub env: EnvC, pub workspaces: BTreeMap<PathBuf, Ws>, pub rules: crate::permission::Rules, pub providers: BTreeMap<String, ProviderConfig>, pub warnings: Vec<String> }
#[derive(Debug,Clone,thiserror::Error)] #[error("x")] pub struct ConfigError;
pub struct ConfigStore;
impl ConfigStore { pub fn open(_: &Places) -> anyhow::Result<Arc<Self>> { Ok(Arc::new(Self)) } pub fn current(&self) -> Result<Arc<Config>, ConfigError> { Err(ConfigError) } pub fn error(&self) -> Option<ConfigError> { None } pub fn grant(&self, _: &Path, _: &str) -> Result<(), ConfigError> { Ok(()) } }
