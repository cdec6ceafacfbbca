//! Public addresses: what the tool `fetch` may connect to unless the configuration names the host or the network.
//!
//! A name is looked up once, by the connection itself, and only the addresses that pass are dialled: no second answer of the DNS
//! can lead elsewhere. Deliberately absent: who may fetch what ([`crate::question::permission`]).

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::address::{bare, is_loopback};

/// The hosts, domains and networks that may be fetched from although they are private, written as in `no_proxy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PrivateHosts(Vec<String>);

impl PrivateHosts {
    /// The private hosts of a configuration.
    pub fn new(hosts: &[String]) -> Self {
        let mut hosts: Vec<String> = hosts.iter().map(|host| host.trim().to_lowercase()).collect();
        hosts.sort_unstable();
        Self(hosts)
    }

    /// Why `url` is not fetched, as far as that can be told without the DNS.
    pub fn refusal(&self, url: &Url) -> Option<String> {
        let host = url.host_str().unwrap_or_default();
        let is_private = match bare(host).parse::<IpAddr>() {
            Ok(address) => !is_public(address),
            Err(_) => is_loopback(url),
        };
        (is_private && !self.has(host)).then(|| refused(host))
    }

    /// Whether this host is one of them.
    fn has(&self, host: &str) -> bool {
        if self.0.iter().any(|known| known == "*") {
            return true;
        }
        let matcher = Matcher::builder().all("http://proxy").no(self.0.join(",")).build();
        let uri = format!("http://{}/", host.trim_end_matches('.')).parse::<http::Uri>().ok();
        !self.0.is_empty() && uri.is_some_and(|uri| matcher.intercept(&uri).is_none())
    }

    /// Whether this address may be dialled.
    fn permit(&self, address: IpAddr) -> bool {
        let host = match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        is_public(address) || self.has(&host)
    }
}

fn refused(host: &str) -> String {
    format!("{host} is not a public address; only a user can allow it, by `fetch_private` in [tools] of config.toml")
}

/// Looks names up, and gives only the addresses that may be dialled.
#[derive(Debug)]
pub(super) struct PublicNames(pub(super) PrivateHosts);

impl Resolve for PublicNames {
    fn resolve(&self, name: Name) -> Resolving {
        let private = self.0.clone();
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            let allows_all = private.has(&host);
            let kept: Vec<SocketAddr> =
                found.into_iter().filter(|found| allows_all || private.permit(found.ip())).collect();
            if kept.is_empty() {
                return Err(Box::<dyn Error + Send + Sync>::from(refused(&host)));
            }
            Ok(Box::new(kept.into_iter()) as Addrs)
        })
    }
}

/// Whether an address is one of the public Internet, by IANA's registries of special-purpose addresses (RFC 6890 and later). An
/// address that carries another one is as public as that.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_shared = a == 100 && (64..128).contains(&b);
    let is_special = matches!((a, b, c), (192, 0, 0) | (192, 88, 99) | (198, 18..=19, _));
    let is_reserved = a == 0 || a >= 240;
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || is_shared
        || is_special
        || is_reserved)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let [a, b, c, d, e, f, g, h] = segments;
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match (a, b) {
        // NAT64, well-known prefix.
        (0x64, 0xff9b) if (c, d, e, f) == (0, 0, 0, 0) => embedded(g, h),
        // 6to4.
        (0x2002, _) => embedded(b, c),
        // Protocol assignments, Teredo among them; documentation.
        (0x2001, ..0x200 | 0xdb8) | (0x3fff, ..0x1000) => false,
        (0x2000..=0x3fff, _) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_internet_are_public() {
        let check = |address: &str, expect: bool| {
            assert_eq!(is_public(address.parse().unwrap()), expect, "{address}");
        };
        for address in ["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "192.0.1.1", "2606:4700::1111", "2a00::1"] {
            check(address, true);
        }
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "192.168.1.1",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
        ] {
            check(address, false);
            check(&format!("::ffff:{address}"), false);
        }
        for address in [
            "::",
            "::1",
            "::7f00:1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            check(address, false);
        }
        check("::ffff:1.1.1.1", true);
        check("64:ff9b::101:101", true);
        check("2002:101:101::", true);
    }

    #[test]
    fn a_private_host_is_refused_unless_it_is_configured() {
        let check = |hosts: &[&str], url: &str, is_refused: bool| {
            let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
            let refusal = PrivateHosts::new(&hosts).refusal(&Url::parse(url).unwrap());
            assert_eq!(refusal.is_some(), is_refused, "{hosts:?} {url}: {refusal:?}");
        };
        for url in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://0x7f.1/",
            "http://2130706433/",
            "http://[::1]:80/",
            "http://[::ffff:10.0.0.1]/",
            "http://localhost:8080/",
            "http://a.localhost./",
            "https://169.254.169.254/latest/meta-data/",
        ] {
            check(&[], url, true);
            check(&["*"], url, false);
        }
        check(&["10.0.0.0/8"], "http://10.1.2.3/", false);
        check(&["10.0.0.0/8"], "http://192.168.1.1/", true);
        check(&["LOCALHOST"], "http://localhost:8080/", false);
        check(&["fd00::/8"], "http://[fd00::1]/", false);
        check(&["fd00::/8"], "http://[::1]/", true);
        check(&[], "https://example.com/", false);
    }

    #[tokio::test]
    async fn a_name_of_a_private_address_is_not_dialled_unless_it_is_configured() {
        let resolve = |hosts: &[&str]| {
            let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
            PublicNames(PrivateHosts::new(&hosts)).resolve("localhost".parse().unwrap())
        };
        let refused = resolve(&[]).await.err().unwrap().to_string();
        assert!(refused.starts_with("localhost is not a public address"), "{refused}");
        for hosts in [["localhost"].as_slice(), &["127.0.0.0/8", "::1"]] {
            assert!(resolve(hosts).await.unwrap().all(|found| found.ip().is_loopback()), "{hosts:?}");
        }
    }
}
