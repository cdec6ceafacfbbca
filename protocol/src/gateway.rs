//! The gateway's settings, as the configuration and its command line write them; and what a running one says of itself to the
//! daemon.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A gateway that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunningGateway {
    /// Its process.
    pub pid: u32,
    /// Where it listens: an address and a port, or `unix:` and a path.
    pub listen: String,
    /// How browsers reach it: its `public_url`, or its address; absent for a Unix socket without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The version of its program.
    pub version: String,
    /// Its start, in Unix milliseconds.
    pub started_at: u64,
}

/// Where a gateway listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// An address of this machine alone; port 0 is any that is free.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXAMPLE: &str = "write an address of this machine, such as 127.0.0.1:8080, or unix:/path/of/a/socket";
        let text = text.escape_default().to_string();
        if let Some(path) = text.strip_prefix("unix:").map(PathBuf::from) {
            return if path.is_absolute() {
                Ok(Self::Unix(path))
            } else {
                Err(format!("'{text}' is no absolute path: {EXAMPLE}"))
            };
        }
        let address: SocketAddr = text.parse().map_err(|_| format!("'{text}' is no address and port: {EXAMPLE}"))?;
        if address.ip().is_loopback() {
            Ok(Self::Tcp(address))
        } else {
            Err(format!(
                "other machines would reach {}: {EXAMPLE}; a proxy of yours may let others in (`public_url`)",
                address.ip()
            ))
        }
    }
}

/// An origin as browsers write it: scheme, host, perhaps a port, and nothing else. Fails with what is wrong.
pub fn origin(text: &str) -> Result<String, String> {
    let origin = text.strip_suffix('/').unwrap_or(text).to_ascii_lowercase();
    let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://")).unwrap_or_default();
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    if !host.is_empty() && host.chars().all(is_host) {
        Ok(origin)
    } else {
        let text = text.escape_default();
        Err(format!("'{text}' is no origin: write one such as https://linger.example.org, without a path"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A panic is how a test speaks.
mod tests {
    use super::*;

    #[test]
    fn it_listens_for_this_machine_alone_wherever_that_is() {
        assert_eq!("[::1]:80".parse(), Ok(Listen::Tcp("[::1]:80".parse().unwrap())));
        assert_eq!("unix:/run/x".parse(), Ok(Listen::Unix("/run/x".into())));
        for (text, why) in [
            ("0.0.0.0:80", "other machines would reach 0.0.0.0"),
            ("[::]:80", "other machines would reach ::"),
            ("80", "no address and port"),
            ("unix:x", "no absolute path"),
            ("", "no address and port"),
        ] {
            assert!(text.parse::<Listen>().unwrap_err().contains(why), "{text}");
        }
    }

    #[test]
    fn origins_are_as_browsers_write_them() {
        assert_eq!(origin("https://Box.example/").as_deref(), Ok("https://box.example"));
        assert_eq!(origin("http://localhost:3000").as_deref(), Ok("http://localhost:3000"));
        for wrong in ["*", "null", "https://x/y", "x", "https://", "ftp://x", "https://x@y"] {
            assert!(origin(wrong).is_err(), "{wrong}");
        }
    }
}
