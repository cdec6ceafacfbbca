//! Addresses: where a request goes, given a provider's base URL and a codec's path. Pure.

use std::net::IpAddr;

use reqwest::Url;

/// Joins `path` to `base_url`. The base may end in a slash, and in the beginning of the path: a version (any), or `/api`.
/// The base's query comes before the path's; a fragment is dropped.
pub fn join(base_url: &str, path: &str) -> Result<Url, String> {
    let mut url = Url::parse(base_url).map_err(|error| format!("base_url {base_url}: {error}"))?;
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let base = url.path().trim_end_matches('/').to_owned();
    let start = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    let end = base.rsplit('/').next().unwrap_or_default();
    let is_version = |segment: &str| segment.starts_with("v1");
    let doubled = start == "api" && end == "api" || is_version(start) && is_version(end);
    let path = if doubled { path.get(1 + start.len()..).unwrap_or(path) } else { path };
    url.set_path(&format!("{base}{path}"));
    let queries = [url.query(), query].into_iter().flatten().filter(|query| !query.is_empty()).collect::<Vec<_>>();
    let query = queries.join("&");
    url.set_query(Some(query.as_str()).filter(|query| !query.is_empty()));
    url.set_fragment(None);
    Ok(url)
}

/// A URL of the web; else what is wrong with it.
pub fn web(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("is not a URL: {error}"))?;
    if matches!(url.scheme(), "http" | "https") {
        Ok(url)
    } else {
        Err("must begin with http:// or https://".to_owned())
    }
}

/// Scheme, host and port, which a key is bound to; `None` if it is not a URL.
pub fn origin(base_url: &str) -> Option<String> {
    let origin = Url::parse(base_url).ok()?.origin();
    origin.is_tuple().then(|| origin.ascii_serialization())
}

/// Whether `url` is on this machine.
pub fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    match bare(host).parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => {
            let name = host.trim_end_matches('.');
            name == "localhost" || name.ends_with(".localhost")
        }
    }
}

/// A host without the brackets that an IPv6 address has in a URL.
pub fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Host and port for messages; the port only if it is not the scheme's default.
pub fn authority(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}{port}", url.host_str().unwrap_or_default())
}

/// `url` for messages, without possible secrets: user, password, query and fragment.
pub fn shown(url: &Url) -> String {
    format!("{}://{}{}", url.scheme(), authority(url), url.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_joined_to_whatever_base_people_write() {
        fn check(base_url: &str, path: &str, expect: &str) {
            assert_eq!(join(base_url, path).unwrap().as_str(), expect, "{base_url} {path}");
        }
        let chat = "/v1/chat/completions";
        for base in ["https://h", "https://h/", "https://h/v1", "https://h/v1/", "https://h//", "https://h/#x"] {
            check(base, chat, "https://h/v1/chat/completions");
        }
        check("https://h/proxy/openai/", chat, "https://h/proxy/openai/v1/chat/completions");
        check("https://h/proxy/openai/v1/", chat, "https://h/proxy/openai/v1/chat/completions");
        check("https://h/v1beta/", "/v1beta/models/m:f?alt=sse", "https://h/v1beta/models/m:f?alt=sse");
        check("https://h/v1?a=b", "/v1beta/models/m:f?alt=sse", "https://h/v1/models/m:f?a=b&alt=sse");
        check("https://h/d/v1?api-version=2", chat, "https://h/d/v1/chat/completions?api-version=2");
        check("https://h/v1?", chat, "https://h/v1/chat/completions");
        check("http://[::1]:11434/api/", "/api/chat", "http://[::1]:11434/api/chat");
        check("http://[2001:db8::1]", "/api/chat", "http://[2001:db8::1]/api/chat");
        check("https://h:443/v1", chat, "https://h/v1/chat/completions");
        check("https://h/a b", "/chat", "https://h/a%20b/chat");
        check("https://api.v1", chat, "https://api.v1/v1/chat/completions");
        check("https://api.anthropic.com", "/v1/messages", "https://api.anthropic.com/v1/messages");
        check("http://h/v1/", "/v1/messages", "http://h/v1/messages");
        check("http://h/v1", "/chat/completions", "http://h/v1/chat/completions");
        check("http://h/api/anthropic", "/v1/messages", "http://h/api/anthropic/v1/messages");
        check("http://h", "/v1beta/models/m:x?alt=sse", "http://h/v1beta/models/m:x?alt=sse");
        check("http://h/v1beta", "/v1beta/models/m:x", "http://h/v1beta/models/m:x");
        check("http://h/v1", "/v1beta/models/m:x", "http://h/v1/models/m:x");
        check("http://h/v1/projects/p", "/publishers/m", "http://h/v1/projects/p/publishers/m");
        check("http://h:11434/api", "/api/chat", "http://h:11434/api/chat");
        check("http://h:11434", "/api/chat", "http://h:11434/api/chat");
        check("http://v1", "/v1/messages", "http://v1/v1/messages");
        assert_eq!(join("h:80/v1 x", "/p").map(drop), Ok(()), "a scheme that nobody speaks is refused elsewhere");
        assert_eq!(join("/v1", "/p").unwrap_err(), "base_url /v1: relative URL without a base");
    }

    #[test]
    fn this_machine_has_many_names() {
        fn check(url: &str, expect: bool) {
            assert_eq!(is_loopback(&Url::parse(url).unwrap()), expect, "{url}");
        }
        for local in
            ["localhost", "LOCALHOST", "a.localhost", "localhost.", "127.0.0.1", "127.9.9.9", "[::1]", "0x7f.1"]
        {
            check(&format!("http://{local}:80/v1"), true);
        }
        check("http://[::ffff:127.0.0.1]/", true);
        for other in
            ["localhost.example.org", "notlocalhost", "10.0.0.1", "[::2]", "[fe80::1]", "127.0.0.1.example.org"]
        {
            check(&format!("http://{other}/v1"), false);
        }
    }

    #[test]
    fn a_key_belongs_to_scheme_host_and_port() {
        assert_eq!(origin("https://API.example.com:443/v1?x=y").as_deref(), Some("https://api.example.com"));
        assert_eq!(origin("http://[::1]:8080").as_deref(), Some("http://[::1]:8080"));
        assert_eq!(origin("data:x"), None);
        assert_eq!(origin("nonsense"), None);
        let url = Url::parse("https://u:p@h:1/a?key=k#f").unwrap();
        assert_eq!((shown(&url), authority(&url)), ("https://h:1/a".to_owned(), "h:1".to_owned()));
    }
}
