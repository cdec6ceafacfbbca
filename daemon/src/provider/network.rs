//! The route of a request: its proxy and the certificates that are trusted. Pure: `[network]` and the daemon's environment in,
//! the route of one address out.
//!
//! `[network]` wins over the environment, key by key. The environment is the daemon's own at its start: the route of a turn must
//! not depend on the attached clients.
//! A password in a proxy's address is a secret: [`Proxy`] does not show it, and the file may not have one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{Client, Url};
use serde::Deserialize;

use super::address::is_loopback;
use super::client::Clients;
use super::public::PrivateHosts;
use super::route::{Proxy, Roots, Route};
use crate::diagnostics::secret::Secret;

/// The value of `proxy` that turns proxies off, whatever the environment has.
const DIRECT: &str = "direct";

/// The supported schemes of a proxy.
const SCHEMES: [&str; 6] = ["http", "https", "socks4", "socks4a", "socks5", "socks5h"];

/// `[network]` as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
pub struct NetworkConfig {
    /// The proxy for everything, or `direct`.
    pub proxy: Option<String>,
    /// Hosts, domains and networks that are reached directly.
    pub no_proxy: Option<Vec<String>>,
    /// Whether loopback addresses go through the proxy too.
    pub proxy_loopback: bool,
    /// Certificates to trust in addition to the system's.
    pub ca_file: Option<PathBuf>,
}

impl NetworkConfig {
    /// Fails with the bad key and the reason, which never repeats an address that may hold a password.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if let Some(proxy) = self.proxy.as_deref().filter(|proxy| *proxy != DIRECT) {
            let url = parse(proxy).map_err(|problem| ("proxy", problem))?;
            if !url.username().is_empty() || url.password().is_some() {
                let advice = "a password is never written here: start the daemon with HTTPS_PROXY=http://USER:PASSWORD@… \
                           in its environment, and leave `proxy` out";
                return Err(("proxy", advice.to_owned()));
            }
        }
        let is_host = |entry: &String| {
            let (host, port) = host_and_port(entry.trim());
            let bare = !host.contains(['[', ']', ',']) && !entry.contains("://");
            bare && port.is_none_or(|port| port.parse::<u16>().is_ok())
        };
        if !self.no_proxy.iter().flatten().all(is_host) {
            return Err((
                "no_proxy",
                "write a list of hosts, domains and networks, such as \"10.0.0.0/8\", or with a port \"host:8000\""
                    .to_owned(),
            ));
        }
        match &self.ca_file {
            Some(file) if !file.is_absolute() => {
                Err(("ca_file", "must be an absolute path, or begin with ~/".to_owned()))
            }
            _ => Ok(()),
        }
    }
}

/// The variables of the daemon's environment that matter here.
#[derive(Clone, Default)]
pub struct Variables(Vec<(&'static str, String)>);

impl Variables {
    /// The lower-case spelling wins over the upper-case one, as everywhere.
    const NAMES: [&str; 10] = [
        "https_proxy",
        "HTTPS_PROXY",
        "http_proxy",
        "HTTP_PROXY",
        "all_proxy",
        "ALL_PROXY",
        "no_proxy",
        "NO_PROXY",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
    ];

    /// Reads them with `get`; an empty one counts as absent.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Self {
        let found =
            |name| get(name).map(|value| (name, value.trim().to_owned())).filter(|(_, value)| !value.is_empty());
        Self(Self::NAMES.into_iter().filter_map(found).collect())
    }

    /// The first of `names` that is set, with its name.
    fn first(&self, names: &[&str]) -> Option<(&'static str, &str)> {
        let get = |wanted: &&str| self.0.iter().find(|(name, _)| name == wanted);
        names.iter().find_map(get).map(|(name, value)| (*name, value.as_str()))
    }
}

/// Proxies and certificates of all routes.
#[derive(Debug, Default)]
pub struct Network {
    /// `network.proxy` turns proxies off.
    is_direct: bool,
    http: Option<Result<Proxy, String>>,
    https: Option<Result<Proxy, String>>,
    /// The hosts that are reached directly, some for one port only.
    no_proxy: Vec<(Option<u16>, Matcher)>,
    proxy_loopback: bool,
    roots: Roots,
    /// The clients that requests go through.
    pub(super) clients: Clients,
}

impl Network {
    /// Combines `config` and `variables`.
    pub fn new(config: &NetworkConfig, variables: &Variables, clients: Clients) -> Self {
        let of = |names: &[&str]| {
            let (name, value) = match config.proxy.as_deref() {
                Some(DIRECT) => return None,
                Some(proxy) => ("network.proxy", proxy),
                None => variables.first(names)?,
            };
            let named_by = name.to_owned();
            Some(parse(value).map(|url| Proxy::new(url, named_by)).map_err(|problem| format!("{name}: {problem}")))
        };
        let listed = variables.first(&["no_proxy", "NO_PROXY"]).map(|(_, list)| list.to_owned());
        let listed = config.no_proxy.as_ref().map(|list| list.join(",")).or(listed);
        let mut roots = Roots::default();
        roots.files.extend(config.ca_file.clone().map(|file| (file, "network.ca_file".to_owned())));
        if let Some((name, file)) = variables.first(&["SSL_CERT_FILE"]) {
            roots.files.push((PathBuf::from(file), name.to_owned()));
        }
        if let Some((name, list)) = variables.first(&["SSL_CERT_DIR"]) {
            let directories = std::env::split_paths(list).filter(|path| path != Path::new(""));
            roots.directories.extend(directories.map(|directory| (directory, name.to_owned())));
        }
        Self {
            is_direct: config.proxy.as_deref() == Some(DIRECT),
            http: of(&["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]),
            https: of(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]),
            no_proxy: matchers(listed.as_deref().unwrap_or_default()),
            proxy_loopback: config.proxy_loopback,
            roots,
            clients,
        }
    }

    /// The route to `url`. Fails if its proxy has a bad address: a direct connection might show the request to others.
    pub fn route(&self, url: &Url) -> Result<Route, String> {
        let proxy = if url.scheme() == "https" { &self.https } else { &self.http };
        let proxy = match proxy.as_ref().filter(|_| !self.bypasses_proxy(url)) {
            Some(Err(problem)) => return Err(problem.clone()),
            Some(Ok(proxy)) => Some(proxy.clone()),
            None => None,
        };
        Ok(Route { proxy, roots: self.roots.clone() })
    }

    /// The client for `url`, on its route; fails if the route cannot be used.
    pub async fn client(&self, url: &Url, connect_timeout: Duration) -> Result<Client, String> {
        let route = self.route(url)?;
        let client = self.clients.client(&route, url.scheme() == "https", connect_timeout).await;
        client.map_err(|failure| failure.message)
    }

    /// As [`Self::client`], for a page of the web: it connects to public addresses and to `private` ones alone.
    pub async fn public_client(
        &self,
        url: &Url,
        connect_timeout: Duration,
        private: PrivateHosts,
    ) -> Result<Client, String> {
        if let Some(refusal) = private.refusal(url) {
            return Err(refusal);
        }
        let route = self.route(url)?;
        let client = self.clients.public_client(&route, url.scheme() == "https", connect_timeout, private).await;
        client.map_err(|failure| failure.message)
    }

    /// Whether `url` is reached directly.
    fn bypasses_proxy(&self, url: &Url) -> bool {
        if is_loopback(url) {
            return !self.proxy_loopback;
        }
        // A bad address goes through the proxy; the request reports it.
        let uri = url.as_str().parse::<http::Uri>().ok();
        let matches = |matcher: &Matcher| uri.as_ref().is_some_and(|uri| matcher.intercept(uri).is_none());
        let at = |port: Option<u16>| port.is_none() || port == url.port_or_known_default();
        self.no_proxy.iter().any(|(port, matcher)| at(*port) && matches(matcher))
    }

    /// The proxies, a line each: scheme, address, origin.
    pub fn proxies(&self) -> Vec<String> {
        let said = |proxy: &Result<Proxy, String>| match proxy {
            Ok(proxy) => proxy.to_string(),
            Err(problem) => problem.clone(),
        };
        match (&self.https, &self.http) {
            _ if self.is_direct => vec!["none (network.proxy is \"direct\")".to_owned()],
            (Some(https), Some(http)) if https == http => vec![said(https)],
            (https, http) => [("https", https), ("http", http)]
                .into_iter()
                .filter_map(|(scheme, proxy)| Some(format!("for {scheme}: {}", said(proxy.as_ref()?))))
                .collect(),
        }
    }

    /// The passwords of proxies, in each form to redact.
    pub fn secrets(&self) -> Vec<Secret> {
        let proxies = [&self.http, &self.https].into_iter().flatten().flatten();
        proxies.flat_map(|proxy| passwords(proxy.reveal())).map(|password| Secret::new(&password)).collect()
    }
}

/// Matchers for a list as in `NO_PROXY`.
fn matchers(list: &str) -> Vec<(Option<u16>, Matcher)> {
    let list = list.to_lowercase();
    let mut ports: Vec<(Option<u16>, String)> = Vec::new();
    for entry in list.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (host, port) = host_and_port(entry);
        // A bad entry matches nothing, as everywhere.
        let Ok(port) = port.map(str::parse).transpose() else { continue };
        match ports.iter_mut().find(|(known, _)| *known == port) {
            Some((_, hosts)) => hosts.extend([",", host]),
            None => ports.push((port, host.to_owned())),
        }
    }
    // The proxy's address does not matter here.
    let matcher = |hosts: String| Matcher::builder().all("http://proxy").no(hosts).build();
    ports.into_iter().map(|(port, hosts)| (port, matcher(hosts))).collect()
}

/// Whether this is a host, a domain or a network, without a port.
pub fn is_host(entry: &str) -> bool {
    let (host, port) = host_and_port(entry.trim());
    !host.is_empty() && port.is_none() && !host.contains(['[', ']', ',', ' ']) && !entry.contains("://")
}

/// Splits an entry into host, domain or network, and port. An IPv6 address needs brackets if a port follows.
fn host_and_port(entry: &str) -> (&str, Option<&str>) {
    match entry.strip_prefix('[').and_then(|entry| entry.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) if rest.starts_with(':') => (host, rest.get(1..)),
        Some(_) => (entry, None),
        None if entry.matches(':').count() == 1 => entry.split_once(':').map_or((entry, None), |(h, p)| (h, Some(p))),
        None => (entry, None),
    }
}

/// The password in `url`: as written, decoded, and as in a `Proxy-Authorization` header.
fn passwords(url: &Url) -> Vec<String> {
    use base64::Engine as _;
    let Some(password) = url.password() else { return Vec::new() };
    let decoded = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    let pair = format!("{}:{}", decoded(url.username()), decoded(password));
    let header = base64::engine::general_purpose::STANDARD.encode(pair);
    vec![password.to_owned(), decoded(password), header]
}

/// Parses the address of a proxy, with or without `http://`. The error does not repeat it.
fn parse(text: &str) -> Result<Url, String> {
    let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let problem =
        |why: &str| Err(format!("is not the address of a proxy, such as \"http://proxy.example:3128\": {why}"));
    match Url::parse(&whole) {
        Err(error) => problem(&error.to_string()),
        Ok(url) if !SCHEMES.contains(&url.scheme()) => {
            problem("it may be http, https, socks4, socks4a, socks5 or socks5h")
        }
        Ok(url) if !url.has_host() || url.host_str() == Some("") => problem("it has no host"),
        Ok(url) => Ok(url),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(set: &[(&str, &str)]) -> Variables {
        Variables::read(|wanted| set.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned()))
    }

    fn config(text: &str) -> NetworkConfig {
        toml::from_str(text).unwrap()
    }

    /// The way to `url`, in a word.
    fn route(config_text: &str, set: &[(&str, &str)], url: &str) -> String {
        let config = config(config_text);
        assert_eq!(config.check(), Ok(()), "{config_text}");
        let route = Network::new(&config, &variables(set), Clients::default()).route(&Url::parse(url).unwrap());
        match route {
            Ok(Route { proxy: None, .. }) => "direct".to_owned(),
            Ok(Route { proxy: Some(proxy), .. }) => proxy.to_string(),
            Err(problem) => problem,
        }
    }

    const HTTPS: &str = "https://api.example.com/v1";
    const HTTP: &str = "http://model.example.com:8000/v1";

    #[test]
    fn the_environment_names_proxies_as_everywhere() {
        fn check(set: &[(&str, &str)], https: &str, http: &str) {
            assert_eq!((route("", set, HTTPS).as_str(), route("", set, HTTP).as_str()), (https, http), "{set:?}");
        }
        check(&[], "direct", "direct");
        check(&[("HTTPS_PROXY", "http://p:1")], "http://p:1 (HTTPS_PROXY)", "direct");
        check(&[("http_proxy", "p:1")], "direct", "http://p:1 (http_proxy)");
        check(&[("HTTPS_PROXY", "http://p:1"), ("https_proxy", "http://q:2")], "http://q:2 (https_proxy)", "direct");
        check(&[("HTTPS_PROXY", "http://p:1"), ("https_proxy", " ")], "http://p:1 (HTTPS_PROXY)", "direct");
        let all = ("ALL_PROXY", "socks5h://s");
        check(&[all], "socks5h://s (ALL_PROXY)", "socks5h://s (ALL_PROXY)");
        check(&[all, ("HTTP_PROXY", "https://p")], "socks5h://s (ALL_PROXY)", "https://p (HTTP_PROXY)");
        let unknown = "HTTPS_PROXY: is not the address of a proxy, such as \"http://proxy.example:3128\": it may be http, \
                       https, socks4, socks4a, socks5 or socks5h";
        check(&[("HTTPS_PROXY", "ftp://user:hunter2@p")], unknown, "direct");
    }

    #[test]
    fn the_configuration_wins() {
        let direct =
            Network::new(&config("proxy = 'direct'"), &variables(&[("HTTP_PROXY", "http://p:1")]), Clients::default());
        assert_eq!(direct.proxies(), ["none (network.proxy is \"direct\")"]);
        let set = [("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", "example.com")];
        assert_eq!(route("", &set, HTTPS), "direct");
        assert_eq!(route("no_proxy = []", &set, HTTPS), "http://p:1 (HTTPS_PROXY)");
        assert_eq!(route("proxy = 'http://c:3'\nno_proxy = []", &set, HTTP), "http://c:3 (network.proxy)");
        assert_eq!(route("proxy = 'http://c:3'", &set, HTTP), "direct");
        assert_eq!(route("proxy = 'direct'\nno_proxy = []", &set, HTTPS), "direct");
    }

    #[test]
    fn hosts_domains_and_networks_are_spared() {
        fn check(list: &str, url: &str, bypasses_proxy: bool) {
            let set = [("ALL_PROXY", "http://p:1"), ("NO_PROXY", list)];
            assert_eq!(route("", &set, url) == "direct", bypasses_proxy, "{list} {url}");
        }
        check("example.com", "https://api.example.com/v1", true);
        check(".example.com", "https://api.example.com/v1", true);
        check("Example.COM", "https://api.example.com/v1", true);
        check("ample.com", "https://api.example.com/v1", false);
        check("a.org, 10.0.0.0/8", "http://10.1.2.3:8000/v1", true);
        check("10.0.0.0/8", "http://11.1.2.3/v1", false);
        check("fd00::/8", "http://[fd00::1]:8000/v1", true);
        check("*", "https://api.example.com/v1", true);
        check("[fd00::1]", "http://[fd00::1]:8000/v1", true);
        check("[fd00::1]", "http://[fd00::2]:8000/v1", false);
        check("[fd00::1]:8000", "http://[fd00::1]:8000/v1", true);
        check("[fd00::1]:8000", "http://[fd00::1]/v1", false);
        check("fd00::1", "http://[fd00::1]/v1", true);
        check("a.org, Example.com:443", "https://api.example.com/v1", true);
        check("example.com:443", "https://api.example.com:8443/v1", false);
        check("example.com:8443,example.com:80", "http://example.com/v1", true);
        check("example.com:http", "http://example.com/v1", false);
        check("", "https://api.example.com/v1", false);
    }

    #[test]
    fn this_machine_needs_no_proxy_unless_somebody_says_so() {
        let set = [("ALL_PROXY", "http://p:1")];
        for local in ["http://127.0.0.1:8000/v1", "http://localhost/v1", "https://[::1]:1/v1"] {
            assert_eq!(route("", &set, local), "direct");
            assert_eq!(route("proxy = 'http://c:3'", &set, local), "direct");
            assert_eq!(route("proxy_loopback = true", &set, local), "http://p:1 (ALL_PROXY)");
        }
    }

    #[test]
    fn a_password_is_used_and_not_shown() {
        let set = [("HTTPS_PROXY", "http://user:hunter%402hunter@p:1")];
        let network = Network::new(&NetworkConfig::default(), &variables(&set), Clients::default());
        let route = network.route(&Url::parse(HTTPS).unwrap()).unwrap();
        assert_eq!(route.proxy.as_ref().unwrap().reveal().password(), Some("hunter%402hunter"));
        for shown in [format!("{route:?} {network:?}"), network.proxies().concat()] {
            assert!(!shown.contains("hunter"), "{shown}");
        }
        let secrets: Vec<_> = network.secrets().iter().map(|secret| secret.reveal().to_owned()).collect();
        assert_eq!(secrets, ["hunter%402hunter", "hunter@2hunter", "dXNlcjpodW50ZXJAMmh1bnRlcg=="]);
        assert_eq!(network.proxies(), ["for https: http://p:1 (HTTPS_PROXY)"]);
    }

    #[test]
    fn mistakes_in_the_table_are_named_and_not_repeated() {
        fn check(text: &str, key: &str, problem: &str) {
            let (at, said) = config(text).check().unwrap_err();
            assert!(at == key && said.contains(problem) && !said.contains("hunter2"), "{text}: {at}: {said}");
        }
        check("proxy = 'http://u:hunter2@p'", "proxy", "a password is never written here");
        check("proxy = 'u:hunter2@p:1'", "proxy", "a password is never written here");
        check("proxy = 'ftp://hunter2'", "proxy", "it may be http, https");
        check("proxy = 'http://'", "proxy", "empty host");
        check("no_proxy = ['a, b']", "no_proxy", "a list of hosts");
        check("no_proxy = ['http://a']", "no_proxy", "a list of hosts");
        check("no_proxy = ['a:http']", "no_proxy", "a list of hosts");
        check("no_proxy = ['[fd00::1']", "no_proxy", "a list of hosts");
        for good in ["a:8000", "[fd00::1]", "[fd00::1]:80", "fd00::/8", "*", ".example.com"] {
            assert_eq!(config(&format!("no_proxy = ['{good}']")).check(), Ok(()), "{good}");
        }
        check("ca_file = 'ca.pem'", "ca_file", "must be an absolute path");
        assert!(toml::from_str::<NetworkConfig>("proxies = 1").is_err());
    }

    #[test]
    fn certificates_of_all_sources_are_trusted_together() {
        let set = [("SSL_CERT_FILE", "/a.pem"), ("SSL_CERT_DIR", "/b::/c")];
        let network = Network::new(&config("ca_file = '/mine.pem'"), &variables(&set), Clients::default());
        let roots = network.route(&Url::parse(HTTPS).unwrap()).unwrap().roots;
        let named = |list: &[(&str, &str)]| -> Vec<(PathBuf, String)> {
            list.iter().map(|(path, by)| (PathBuf::from(path), (*by).to_owned())).collect()
        };
        assert_eq!(roots.files, named(&[("/mine.pem", "network.ca_file"), ("/a.pem", "SSL_CERT_FILE")]));
        assert_eq!(roots.directories, named(&[("/b", "SSL_CERT_DIR"), ("/c", "SSL_CERT_DIR")]));
    }
}
