//! stub
use linger_protocol::place::Places; pub struct Lock; #[derive(Debug)] pub struct Held; impl std::fmt::Display for Held { fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { Ok(()) } }
impl Lock { pub fn take(_: &Places) -> Result<Self, Held> { Ok(Self) } }
