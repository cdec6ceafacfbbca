//! `[gateway]`: checked here, and read by `linger gateway`, which gives it to the gateway's process. The daemon needs of it the address
//! that notifications link to.

use std::collections::BTreeMap;

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
    models: BTreeMap<String, String>,
}

/// Checks the table: the address under which others reach the page, if one is named. Fails with the key and what is wrong with it.
pub(super) fn check(written: &GatewayWritten) -> Result<Option<String>, (&'static str, String)> {
    let listen = written.listen.as_deref().map_or(Ok(()), |listen| listen.parse::<Listen>().map(drop));
    listen.map_err(|error| ("listen", error))?;
    let public_url = written.public_url.as_deref().map(origin).transpose().map_err(|error| ("public_url", error))?;
    written.origins.iter().try_for_each(|it| origin(it).map(drop)).map_err(|error| ("origins", error))?;
    for (alias, model) in &written.models {
        if alias.trim() != alias || alias.is_empty() || alias.contains(['=', '|']) {
            return Err((
                "models",
                format!("{alias:?} cannot be the name of a model: it is empty, or has =, | or blanks around it"),
            ));
        }
        if model.trim().is_empty() {
            return Err(("models", format!("{alias} names no model")));
        }
    }
    match written.max_connections {
        Some(most) if !(1..=MAX_CONNECTIONS).contains(&most) => {
            Err(("max_connections", format!("must be between 1 and {MAX_CONNECTIONS}")))
        }
        _ => Ok(public_url),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_refused_with_its_key() {
        let check = |text: &str| check(&toml::from_str(text).unwrap()).map_err(|(key, _)| key);
        assert_eq!(check(""), Ok(None));
        assert_eq!(
            check("listen = 'unix:/run/x'\npublic_url = 'https://b/'\norigins = ['http://localhost:3000']"),
            Ok(Some("https://b".to_owned()))
        );
        for (text, key) in [
            ("listen = '0.0.0.0:80'", "listen"),
            ("public_url = 'b'", "public_url"),
            ("origins = ['https://a', '*']", "origins"),
            ("max_connections = 0", "max_connections"),
            ("models = { 'a|b' = 'demo' }", "models"),
            ("models = { a = '' }", "models"),
        ] {
            assert_eq!(check(text), Err(key), "{text}");
        }
    }
}
