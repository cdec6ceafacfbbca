//! Transport errors: failures of the HTTP library, of TLS and of proxies, with the host at fault and the next thing to do.

use std::error::Error;
use std::io;

use reqwest::Url;
use reqwest::header::HeaderMap;
use rustls::CertificateError;

use super::address::{authority, shown};
use super::route::{Proxy, Route};
use super::types::{Failure, FailureClass};

/// The most names of a certificate in a message.
const NAMED: usize = 3;

/// How a server that speaks TLS answers plain HTTP, in the words of the HTTP library and the system.
const SPEAKS_TLS: [&str; 3] = ["reset by peer", "invalid HTTP version", "connection closed before message completed"];

/// How the HTTP library says that a body ended too early.
const BROKEN_OFF: [&str; 2] = ["unexpected EOF during chunk size line", "end of file before message length reached"];

/// The longest address of a redirect that is shown, in characters.
const MAX_SHOWN: usize = 200;

/// A failure without `retry_after`.
pub(super) fn failed(class: FailureClass, message: impl ToString) -> Failure {
    Failure { class, message: message.to_string(), retry_after: None }
}

impl Failure {
    /// With the address that was asked, where that may be wrong.
    pub(super) fn asked(self, url: &Url) -> Self {
        match self.class {
            FailureClass::NotFound => Self { message: format!("{}; asked {}", self.message, shown(url)), ..self },
            _ => self,
        }
    }
}

/// An error of the HTTP library, with its innermost cause.
pub(super) fn failure_of(class: FailureClass, error: &reqwest::Error, route: &Route) -> Failure {
    let host = error.url().map(authority).unwrap_or_default();
    let tunnel = causes(error).map(ToString::to_string).find(|text| text.starts_with("tunnel error: "));
    if let Some(tls) = causes(error).find_map(|cause| cause.downcast_ref::<rustls::Error>()) {
        // Within a tunnel, the server speaks TLS, not the proxy.
        let end = route.proxy.as_ref().filter(|_| tunnel.is_some()).map(|proxy| format!("the proxy {proxy}"));
        return tls_failure(tls, &end.unwrap_or(host));
    }
    let reason = causes(error).last().map(ToString::to_string).unwrap_or_default();
    let refused = causes(error)
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    let class = if refused { FailureClass::Refused } else { class };
    let plain = error.url().is_some_and(|url| url.scheme() == "http") && !error.is_connect();
    let speaks_tls = plain && SPEAKS_TLS.iter().any(|text| reason.contains(text));
    let at = if host.is_empty() { String::new() } else { format!(" {host}") };
    match (class, &route.proxy) {
        (FailureClass::Connect | FailureClass::Refused, Some(proxy)) if error.is_connect() => match tunnel.as_deref() {
            None if error.is_timeout() => {
                failed(class, format!("no connection to{at} through the proxy {proxy}: timed out"))
            }
            Some(text) if text.ends_with("proxy authorization required") => proxy_auth_required(proxy),
            Some(text) if text.ends_with("unsuccessful") => {
                failed(FailureClass::Refused, format!("the proxy {proxy} does not connect to{at}"))
            }
            _ => failed(class, format!("cannot connect to the proxy {proxy}: {reason}")),
        },
        (FailureClass::Connect | FailureClass::Refused, _) if error.is_connect() => {
            failed(class, format!("cannot connect to{at}: {reason}"))
        }
        (FailureClass::Connect | FailureClass::Refused, _) if speaks_tls => {
            failed(class, format!("no answer from{at}: {reason}; should base_url begin with https://?"))
        }
        (FailureClass::Connect | FailureClass::Refused, _) => failed(class, format!("no answer from{at}: {reason}")),
        _ if BROKEN_OFF.iter().any(|text| reason.contains(text)) => {
            failed(class, "the answer broke off: the connection was closed in the middle")
        }
        _ => failed(class, format!("the answer broke off: {reason}")),
    }
}

/// The proxy requires other credentials.
pub(super) fn proxy_auth_required(proxy: &Proxy) -> Failure {
    let way = "start the daemon with them in its environment, such as HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT";
    failed(FailureClass::Network, format!("the proxy {proxy} refuses user and password, or wants some: {way}"))
}

/// A redirect, which is not followed: the key would go along.
pub(super) fn redirect_failure(name: &str, status: u16, headers: &HeaderMap, asked: &Url) -> Failure {
    let location = headers.get("location").and_then(|location| location.to_str().ok());
    let target = match location.map(|location| asked.join(location)) {
        Some(Ok(url)) => shown(&url).chars().take(MAX_SHOWN).collect(),
        Some(Err(_)) => "an address that is none".to_owned(),
        None => "an address that it does not say".to_owned(),
    };
    let message = format!(
        "{name} at {} answers {status}, a redirect to {target}; it is not followed, as the key would go along: if that is \
         where the provider is, write it as base_url",
        authority(asked)
    );
    failed(FailureClass::NotFound, message)
}

/// A failed TLS handshake.
fn tls_failure(error: &rustls::Error, host: &str) -> Failure {
    let of = format!("the certificate of {host}");
    let message = match error {
        rustls::Error::InvalidCertificate(wrong) => match wrong {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
                "{of} is not trusted: no authority that this machine trusts has signed it; if it is your own authority's, name \
                 that one's file: ca_file in [network], or SSL_CERT_FILE where the daemon is started"
            ),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                format!("{of} is not trusted: it has expired, or this machine's clock is wrong")
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                format!("{of} is not trusted: it is not valid yet, or this machine's clock is wrong")
            }
            CertificateError::NotValidForNameContext { presented, .. } if !presented.is_empty() => {
                let names: Vec<&str> = presented.iter().take(NAMED).map(|name| bare_name(name)).collect();
                format!("{of} is not trusted: it is for {}; see whether base_url is right", names.join(", "))
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("{of} is not trusted: it is for another name; see whether base_url is right")
            }
            CertificateError::Other(why) if format!("{why:?}").contains("CaUsedAsEndEntity") => format!(
                "{of} is not trusted: it is made as an authority's (CA:TRUE), also where ca_file names it; make it again with \
                 `openssl req -x509 -addext basicConstraints=critical,CA:FALSE …`"
            ),
            CertificateError::Revoked => format!("{of} is not trusted: it was revoked"),
            other => format!("{of} is not trusted: {other}"),
        },
        rustls::Error::InvalidMessage(_) => {
            format!("{host} does not speak TLS at this port: should base_url begin with http://?")
        }
        rustls::Error::AlertReceived(alert) => format!("{host} refuses the TLS connection: {alert:?}"),
        other => format!("no TLS connection to {host}: {other}"),
    };
    failed(FailureClass::Network, message)
}

/// A name of a certificate, which comes as `DnsName("example.org")` or `IpAddress(…)`.
fn bare_name(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inner.trim_matches('"')
}

/// An error and its sources, including those wrapped in an `io::Error`.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| source_of(*error))
}

fn source_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_says_where_it_leads_and_no_more() {
        fn check(location: Option<&str>, expect: &str) {
            let mut headers = HeaderMap::new();
            location.into_iter().for_each(|location| drop(headers.insert("location", location.parse().unwrap())));
            let asked = Url::parse("https://h:1/v1/x?key=secret").unwrap();
            let said = redirect_failure("work", 302, &headers, &asked).message;
            assert!(said.starts_with(&format!("work at h:1 answers 302, a redirect to {expect}; ")), "{said}");
        }
        check(Some("https://other/v2?token=secret#x"), "https://other/v2");
        check(Some("http://user:secret@other/"), "http://other/");
        check(Some("/elsewhere"), "https://h:1/elsewhere");
        check(Some("http://["), "an address that is none");
        check(None, "an address that it does not say");
    }

    #[test]
    fn what_is_wrapped_is_found() {
        let tls = rustls::Error::InvalidCertificate(CertificateError::Revoked);
        let wrapped = io::Error::other(io::Error::other(tls));
        let found = causes(&wrapped).find_map(|cause| cause.downcast_ref::<rustls::Error>()).unwrap();
        let failure = tls_failure(found, "h:1");
        assert_eq!(failure.message, "the certificate of h:1 is not trusted: it was revoked");
        assert_eq!(failure.class, FailureClass::Network);
    }
}
