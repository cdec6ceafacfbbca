//! The command line of the gateway; `linger gateway` makes it of `[gateway]` in the configuration in force.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use linger_protocol::gateway::{Listen, origin};

/// The most connections unless configured: more than one user has, few enough for the usual limit of descriptors.
const MAX_CONNECTIONS: usize = 1000;

/// The parsed command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GatewayOptions {
    pub(super) listen: Listen,
    /// How others reach it, through a proxy of the user's: scheme, host and perhaps a port.
    pub(super) public_url: Option<String>,
    /// Other pages that may use it with a token, as browsers write an origin.
    pub(super) origins: Vec<String>,
    pub(super) max_connections: usize,
    /// Models by the other names that requests may have for them.
    pub(super) models: BTreeMap<String, String>,
    /// Whether it leaves the terminal.
    pub(super) background: bool,
}

impl GatewayOptions {
    pub(super) fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let mut options = Self {
            listen: Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0))),
            public_url: None,
            origins: Vec::new(),
            max_connections: MAX_CONNECTIONS,
            models: BTreeMap::new(),
            background: false,
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            if word == "--background" {
                options.background = true;
                continue;
            }
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None => (word.as_str(), words.next().cloned().unwrap_or_default()),
            };
            let wrong = |error: String| anyhow::anyhow!("{name}: {error}");
            match name {
                "--listen" => options.listen = value.parse().map_err(wrong)?,
                "--public-url" => options.public_url = Some(origin(&value).map_err(wrong)?),
                "--origin" => options.origins.push(origin(&value).map_err(wrong)?),
                "--model" => {
                    let (alias, model) =
                        value.split_once('=').ok_or_else(|| wrong(format!("'{value}' is no alias")))?;
                    options.models.insert(alias.to_owned(), model.to_owned());
                }
                "--max-connections" => {
                    let most = value.parse().ok().filter(|most| *most > 0);
                    options.max_connections =
                        most.ok_or_else(|| wrong(format!("'{value}' is no number of connections")))?;
                }
                _ => anyhow::bail!("unknown argument '{name}'"),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<GatewayOptions, String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        GatewayOptions::parse(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn the_command_line_is_read() {
        let options =
            parse("--listen=[::1]:80 --public-url https://b --origin http://c --origin http://d --background");
        let options = options.unwrap();
        assert_eq!((options.listen, options.background), (Listen::Tcp("[::1]:80".parse().unwrap()), true));
        assert_eq!((options.public_url.as_deref(), options.origins.len()), (Some("https://b"), 2));
        let aliases = parse("--model=gpt-4o=openai/gpt-5 --model m=demo|read").unwrap().models;
        assert_eq!(
            aliases.into_iter().map(|(alias, model)| alias + "=" + &model).collect::<Vec<_>>(),
            ["gpt-4o=openai/gpt-5", "m=demo|read"]
        );
        for (words, why) in [
            ("--model x", "'x' is no alias"),
            ("--listen", "--listen: '' is no address"),
            ("--max-connections 0", "no number of connections"),
            ("--x 1", "unknown argument '--x'"),
        ] {
            assert!(parse(words).unwrap_err().contains(why), "{words}");
        }
    }
}
