//! Which requests are let in: Host and Origin, before anything else is looked at; and the token that a request brings. Pure.
//!
//! A page of another site can make a browser send requests here. Host tells apart a name of that site's that leads to this
//! machine (DNS rebinding); Origin and Sec-Fetch-Site tell apart its scripts.

use hyper::header::{AUTHORIZATION, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use hyper::{Method, Request, StatusCode};

use linger_protocol::token::TOKEN;

use super::options::GatewayOptions;
use super::reply::Failure;

/// The cookie with the token.
pub(super) const COOKIE_NAME: &str = "linger";

/// The header in which browsers say where the page of a request is from.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The characters of that part: 32 bytes in base64url.
const TOKEN_LENGTH: usize = 43;

/// The names under which the gateway is reached, and the origins that may use it.
pub(super) struct Hosts {
    /// Names of this machine, with the port, as in `Host`.
    own: Vec<String>,
    /// Whether it listens on a Unix socket: then a forwarded port leads to it under a name of the other machine's own.
    is_unix: bool,
    /// The authority of `public_url`, and the URL.
    public: Option<(String, String)>,
    /// Other pages that may send requests with a token.
    origins: Vec<String>,
}

/// A request that is let in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// Whether it came by the name of `public_url`, and so through a proxy.
    pub(super) is_public: bool,
    /// The configured origin that it came from, if it is not of the gateway's own page.
    pub(super) origin: Option<String>,
}

/// The token of a request.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Token(String);

impl Token {
    /// The token itself, for the daemon.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    /// A text that is written like a token.
    fn parse(text: &str) -> Option<Self> {
        let random = text.strip_prefix(TOKEN)?;
        let is_token =
            random.len() == TOKEN_LENGTH && random.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
        is_token.then(|| Self(text.to_owned()))
    }
}

impl Hosts {
    /// `address` is where it listens: an address and port, or `unix:` and a path.
    pub(super) fn new(address: &str, options: &GatewayOptions) -> Self {
        let own = match address.rsplit_once(':') {
            _ if address.starts_with("unix:") => vec!["localhost".to_owned()],
            // The address first: it is the one of the URL.
            Some((_, port)) => {
                let mut own = vec![address.to_owned(), format!("localhost:{port}")];
                if port == "80" {
                    own.extend([address.trim_end_matches(":80").to_owned(), "localhost".to_owned()]);
                }
                own
            }
            None => Vec::new(),
        };
        let authority = |url: &String| url.split("://").nth(1).unwrap_or_default().to_owned();
        let public = options.public_url.as_ref().map(|url| (authority(url), url.clone()));
        Self { own, is_unix: address.starts_with("unix:"), public, origins: options.origins.clone() }
    }

    /// How browsers reach it; absent for a Unix socket without `public_url`.
    pub(super) fn url(&self) -> Option<String> {
        let own = self.own.first().filter(|host| host.contains(':')).map(|host| format!("http://{host}"));
        self.public.as_ref().map(|(_, url)| url.clone()).or(own)
    }

    /// Whether the page is reached by TLS under this entry.
    pub(super) fn is_secure(&self, entry: &Entry) -> bool {
        entry.is_public && self.public.as_ref().is_some_and(|(_, url)| url.starts_with("https://"))
    }

    /// Lets a request in, or refuses it.
    pub(super) fn check<B>(&self, request: &Request<B>) -> Result<Entry, Failure> {
        let headers = request.headers();
        let host = single(headers, &HOST).map_err(|()| Failure::bad_request("a request has one Host"))?;
        let host = host.unwrap_or_default().to_ascii_lowercase();
        let is_own = self.own.contains(&host) || (self.is_unix && is_loopback(&host));
        let is_public = !is_own && self.public.as_ref().is_some_and(|(authority, _)| *authority == host);
        // A request line may name a host too.
        let named = request.uri().authority().map(|named| named.as_str().to_ascii_lowercase());
        if named.is_some_and(|named| named != host) || !(is_public || is_own) {
            let failure = Failure::new(StatusCode::FORBIDDEN, "wrong_host", "this is not the gateway's name");
            return Err(failure.hint("use the address that `linger gateway status` prints, or set gateway.public_url"));
        }
        let origin = single(headers, &ORIGIN).map_err(|()| Failure::bad_request("a request has one Origin"))?;
        let Some(origin) = origin else { return Ok(Entry { is_public, origin: None }) };
        let own = match &self.public {
            Some((_, url)) if is_public => url.clone(),
            _ => format!("http://{host}"),
        };
        let origin = origin.to_ascii_lowercase();
        if origin == own {
            return Ok(Entry { is_public, origin: None });
        }
        if self.origins.contains(&origin) {
            Ok(Entry { is_public, origin: Some(origin) })
        } else {
            Err(Failure::new(StatusCode::FORBIDDEN, "wrong_origin", "other pages may not use the gateway")
                .hint("gateway.origins lists those that may"))
        }
    }
}

/// Whether a host is a name of the machine itself that needs no resolver: no other site has one.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name,
        _ => host,
    };
    matches!(name, "localhost" | "127.0.0.1" | "[::1]")
}

/// The value of a header that a request has once at most.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ()> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().map(|value| value.to_str().map_err(|_| ())).transpose()?;
    if values.next().is_some() { Err(()) } else { Ok(value) }
}

/// The token of a request: in `Authorization`, or in the page's cookie.
pub(super) fn token(headers: &HeaderMap, entry: &Entry) -> Result<Token, Failure> {
    let none = || Failure::unauthorized("this needs a token");
    let wrong = || Failure::unauthorized("that is no token");
    if let Some(value) = single(headers, &AUTHORIZATION).map_err(|()| wrong())? {
        let (scheme, token) = value.split_once(' ').ok_or_else(wrong)?;
        let token = Some(token).filter(|_| scheme.eq_ignore_ascii_case("bearer"));
        return token.and_then(|token| Token::parse(token.trim())).ok_or_else(wrong);
    }
    let pairs =
        headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(';'));
    let mut tokens = pairs.filter_map(|pair| pair.trim().strip_prefix(COOKIE_NAME)?.strip_prefix('='));
    let token = tokens.next().ok_or_else(none)?;
    if tokens.next().is_some() {
        return Err(wrong());
    }
    // Other ports of this machine are the same site to a browser, and cookies know no ports.
    let site = headers.get(FETCH_SITE).map(HeaderValue::as_bytes);
    if entry.origin.is_some() || site.is_some_and(|site| site != b"same-origin" && site != b"none") {
        return Err(
            Failure::forbidden("the page's cookie is for the page alone").hint("send `Authorization: Bearer TOKEN`")
        );
    }
    Token::parse(token).ok_or_else(wrong)
}

/// Whether a request asks what it may send from a configured origin.
pub(super) fn is_preflight<B>(request: &Request<B>, entry: &Entry) -> bool {
    request.method() == Method::OPTIONS && entry.origin.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "lng_0123456789012345678901234567890123456789-_x";

    fn hosts(words: &str) -> Hosts {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        Hosts::new("127.0.0.1:4000", &GatewayOptions::parse(&words).unwrap())
    }

    fn request(headers: &[(&str, &str)]) -> Request<()> {
        headers
            .iter()
            .fold(Request::builder().uri("/rpc"), |it, (name, value)| it.header(*name, *value))
            .body(())
            .unwrap()
    }

    #[test]
    fn only_the_exact_names_of_the_gateway_are_let_in() {
        let hosts = hosts("--public-url https://box.example");
        let check = |host: &str| hosts.check(&request(&[("host", host)])).map(|entry| entry.is_public);
        for (host, expect) in [
            ("127.0.0.1:4000", Some(false)),
            ("localhost:4000", Some(false)),
            ("LOCALHOST:4000", Some(false)),
            ("box.example", Some(true)),
            ("127.0.0.1", None),
            ("127.0.0.1:4001", None),
            ("evil.example:4000", None),
            ("box.example.evil", None),
            ("", None),
        ] {
            assert_eq!(check(host).ok(), expect, "{host}");
        }
        assert!(hosts.check(&request(&[])).is_err());
        assert!(hosts.check(&request(&[("host", "127.0.0.1:4000"), ("host", "127.0.0.1:4000")])).is_err());
        let absolute =
            Request::builder().uri("http://evil.example/").header("host", "127.0.0.1:4000").body(()).unwrap();
        assert!(hosts.check(&absolute).is_err());
    }

    #[test]
    fn a_unix_socket_is_reached_by_any_forwarded_port_of_this_machine_and_by_no_other_name() {
        let options = GatewayOptions::parse(&["--public-url=http://localhost:8080".to_owned()]).unwrap();
        let hosts = Hosts::new("unix:/run/gateway.sock", &options);
        let check = |host: &str, origin: &str| {
            let request = request(&[("host", host), ("origin", origin)]);
            hosts.check(&request).map(|entry| entry.is_public).ok()
        };
        for host in ["localhost:8080", "localhost", "127.0.0.1:9", "[::1]:443"] {
            assert_eq!(check(host, &format!("http://{host}")), Some(false), "{host}");
            assert_eq!(check(host, "http://localhost:3000"), None, "another page of that machine: {host}");
        }
        for host in ["evil.example:8080", "localhost.evil.example", "127.0.0.1.evil:8080", "localhost:x", "::1", ""] {
            assert_eq!(check(host, "http://localhost:8080"), None, "{host}");
        }
    }

    #[test]
    fn only_the_page_and_configured_origins_are_let_in() {
        let hosts = hosts("--public-url https://box.example --origin http://localhost:3000");
        let check = |host: &str, origin: &str| {
            hosts.check(&request(&[("host", host), ("origin", origin)])).map(|entry| entry.origin)
        };
        assert_eq!(check("127.0.0.1:4000", "http://127.0.0.1:4000").ok(), Some(None));
        assert_eq!(check("box.example", "https://box.example").ok(), Some(None));
        assert_eq!(
            check("127.0.0.1:4000", "http://localhost:3000").ok(),
            Some(Some("http://localhost:3000".to_owned()))
        );
        for (host, origin) in [
            ("127.0.0.1:4000", "null"),
            ("127.0.0.1:4000", "https://127.0.0.1:4000"),
            ("127.0.0.1:4000", "http://localhost:4000"),
            ("127.0.0.1:4000", "http://127.0.0.1:5000"),
            ("127.0.0.1:4000", "https://box.example"),
            ("box.example", "http://box.example"),
            ("box.example", "https://evil.example"),
        ] {
            assert!(check(host, origin).is_err(), "{host} {origin}");
        }
    }

    #[test]
    fn a_token_is_in_the_header_or_in_the_cookie_of_the_page_itself() {
        let check = |headers: &[(&str, &str)]| {
            token(request(headers).headers(), &Entry::default())
                .map(|it| it.0)
                .map_err(|failure| failure.status.as_u16())
        };
        let bearer = format!("Bearer {GOOD}");
        let cookie = format!("a=b; linger={GOOD}");
        assert_eq!(check(&[("authorization", &bearer)]).as_deref(), Ok(GOOD));
        assert_eq!(check(&[("cookie", &cookie)]).as_deref(), Ok(GOOD));
        assert_eq!(check(&[("cookie", &cookie), ("sec-fetch-site", "same-origin")]).as_deref(), Ok(GOOD));
        assert_eq!(check(&[("cookie", &cookie), ("sec-fetch-site", "same-site")]), Err(403));
        assert_eq!(check(&[("cookie", &cookie), ("sec-fetch-site", "cross-site")]), Err(403));
        let twice = format!("linger={GOOD}; linger={GOOD}");
        for headers in [
            &[][..],
            &[("authorization", "Bearer")],
            &[("authorization", "Bearer x")],
            &[("authorization", "Basic x")],
            &[("authorization", &bearer), ("authorization", &bearer)],
            &[("cookie", "linger=x")],
            &[("cookie", "lingers=x")],
            &[("cookie", &twice)],
        ] {
            assert_eq!(check(headers), Err(401), "{headers:?}");
        }
        let other = Entry { origin: Some("http://localhost:3000".to_owned()), ..Entry::default() };
        assert!(token(request(&[("cookie", &cookie)]).headers(), &other).is_err(), "a cookie is for no other page");
    }
}
