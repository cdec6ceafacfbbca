//! `[gateway]`: checked here, and read by `linger gateway`, which gives it to the gateway's process. The daemon does nothing with it.

use linger_protocol::gateway::{Listen, origin};
use serde::Deserialize;

/// The most connections that can be configured: each has a descriptor.
const MAX_CONNECTIONS: u32 = 100_000;

/// `[gateway]` as it is written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
pub(super) struct GatewayWritten {
    listen: Option<String>,
    public_url: Option<String>,
    origins: Vec<String>,
    max_connections: Option<u32>,
}

/// Checks the table; fails with the key and what is wrong with it.
pub(super) fn check(written: &GatewayWritten) -> Result<(), (&'static str, String)> {
    let listen = written.listen.as_deref().map_or(Ok(()), |listen| listen.parse::<Listen>().map(drop));
    listen.map_err(|error| ("listen", error))?;
    written.public_url.as_deref().map_or(Ok(()), |url| origin(url).map(drop)).map_err(|error| ("public_url", error))?;
    written.origins.iter().try_for_each(|it| origin(it).map(drop)).map_err(|error| ("origins", error))?;
    match written.max_connections {
        Some(most) if !(1..=MAX_CONNECTIONS).contains(&most) => {
            Err(("max_connections", format!("must be between 1 and {MAX_CONNECTIONS}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_refused_with_its_key() {
        let check = |text: &str| check(&toml::from_str(text).unwrap()).map_err(|(key, _)| key);
        assert_eq!(check(""), Ok(()));
        assert_eq!(
            check("listen = 'unix:/run/x'\npublic_url = 'https://b'\norigins = ['http://localhost:3000']"),
            Ok(())
        );
        for (text, key) in [
            ("listen = '0.0.0.0:80'", "listen"),
            ("public_url = 'b'", "public_url"),
            ("origins = ['https://a', '*']", "origins"),
            ("max_connections = 0", "max_connections"),
        ] {
            assert_eq!(check(text), Err(key), "{text}");
        }
    }
}
