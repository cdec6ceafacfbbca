//! How one address is reached: through which proxy, and which certificates are trusted.
//!
//! A password in a proxy's address is a secret: [`Proxy`] does not show it.

use std::fmt;
use std::path::PathBuf;

use reqwest::Url;

use super::address::authority;

/// A proxy. Two are equal if address, password and origin are.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Proxy {
    url: Url,
    /// Its origin: a variable, or `network.proxy`.
    pub named_by: String,
}

impl Proxy {
    /// The proxy at `url`; `named_by` is the variable or the key that names it.
    pub(super) fn new(url: Url, named_by: String) -> Self {
        Self { url, named_by }
    }

    /// Its address with the password, for the connection.
    pub fn reveal(&self) -> &Url {
        &self.url
    }

    /// Whether the connection to it is encrypted.
    pub fn is_secure(&self) -> bool {
        self.url.scheme() == "https"
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{} ({})", self.url.scheme(), authority(&self.url), self.named_by)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Certificates to trust in addition to the system's.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Roots {
    /// Files, each with the variable or key that names it.
    pub files: Vec<(PathBuf, String)>,
    /// Directories, likewise.
    pub directories: Vec<(PathBuf, String)>,
}

/// How one address is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// The proxy; absent for a direct connection.
    pub proxy: Option<Proxy>,
    /// Extra root certificates.
    pub roots: Roots,
}
