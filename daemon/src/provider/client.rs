//! HTTP clients: created on first use, and shared by all requests with the same route.
//!
//! Creating one for TLS reads certificates for milliseconds, so that happens on a blocking thread.
//! None follows redirects, because the key would be sent along.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::{Certificate, Client};

use super::public::{PrivateHosts, PublicNames};
use super::route::{Proxy, Roots, Route};
use super::transport_error::{failed, failure_of};
use super::types::{Failure, FailureClass};

use crate::sys::task;

/// How long bytes may be unacknowledged: a changed network leaves dead connections behind, on which a request would wait in vain.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);

/// Idle connections kept per provider; each holds a file descriptor.
const MAX_IDLE: usize = 16;

/// The most clients; a configuration that is edited often would leave one for each route.
const MAX_CLIENTS: usize = 16;

/// The largest file of certificates, in bytes: all public authorities take a few hundred KiB.
const MAX_FILE: u64 = 8 << 20;

/// The properties that distinguish clients.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Traits {
    connect_timeout: Duration,
    /// Whether it speaks TLS.
    secure: bool,
    route: Route,
    /// The exceptions of a client that connects to public addresses alone.
    private: Option<PrivateHosts>,
}

/// The clients of one daemon.
#[derive(Clone, Debug, Default)]
pub struct Clients(Arc<Mutex<BTreeMap<Traits, Client>>>);

impl Clients {
    fn map(&self) -> MutexGuard<'_, BTreeMap<Traits, Client>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shared client for this route; `secure`: the other end speaks TLS.
    pub(super) async fn client(
        &self,
        route: &Route,
        secure: bool,
        connect_timeout: Duration,
    ) -> Result<Client, Failure> {
        self.with(route, secure, connect_timeout, None).await
    }

    /// As [`Self::client`], but it connects to public addresses and to `private` ones alone. Behind a proxy, that looks names up.
    pub(super) async fn public_client(
        &self,
        route: &Route,
        secure: bool,
        connect_timeout: Duration,
        private: PrivateHosts,
    ) -> Result<Client, Failure> {
        let private = Some(private).filter(|_| route.proxy.is_none());
        self.with(route, secure, connect_timeout, private).await
    }

    async fn with(
        &self,
        route: &Route,
        secure: bool,
        connect_timeout: Duration,
        private: Option<PrivateHosts>,
    ) -> Result<Client, Failure> {
        let secure = secure || route.proxy.as_ref().is_some_and(Proxy::is_secure);
        let roots = if secure { route.roots.clone() } else { Roots::default() };
        let route = Route { proxy: route.proxy.clone(), roots };
        let traits = Traits { connect_timeout, secure, route, private };
        if let Some(client) = self.map().get(&traits) {
            return Ok(client.clone());
        }
        let client = if secure {
            let traits = traits.clone();
            let built = task::spawn_blocking(move || build(&traits)).await;
            built.map_err(|error| failed(FailureClass::Network, error))??
        } else {
            build(&traits)?
        };
        let mut clients = self.map();
        if clients.len() >= MAX_CLIENTS {
            clients.clear();
        }
        // If two tasks raced, the first client is kept, with its connections.
        Ok(clients.entry(traits).or_insert(client).clone())
    }

    /// Drops the clients with the same certificates as this route, so that these are read again.
    pub(super) fn forget(&self, route: &Route) {
        self.map().retain(|known, _| !known.secure || known.route.roots != route.roots);
    }
}

fn build(Traits { connect_timeout, secure, route, private }: &Traits) -> Result<Client, Failure> {
    // An error means that a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .user_agent(concat!("linger/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .pool_max_idle_per_host(MAX_IDLE)
        .connect_timeout(*connect_timeout);
    #[cfg(target_os = "linux")]
    let builder = builder.tcp_user_timeout(UNACKNOWLEDGED);
    let builder =
        if *secure { builder.tls_certs_merge(certificates(&route.roots)?) } else { builder.tls_certs_only([]) };
    let builder = match private {
        Some(private) => builder.dns_resolver(Arc::new(PublicNames(private.clone()))),
        None => builder,
    };
    let failed = |error: reqwest::Error| not_made(&error, route);
    let builder = match &route.proxy {
        Some(proxy) => builder.proxy(reqwest::Proxy::all(proxy.reveal().clone()).map_err(failed)?),
        // Ignores the proxy variables of this process.
        None => builder.no_proxy(),
    };
    builder.build().map_err(failed)
}

/// The failure of creating a client.
fn not_made(error: &reqwest::Error, route: &Route) -> Failure {
    let failure = failure_of(FailureClass::Network, error, route);
    if failure.message.contains("No CA certificates were loaded") {
        let advice = "install the package ca-certificates, or set ca_file in [network]";
        return failed(FailureClass::Network, format!("no CA certificates found on this machine; {advice}"));
    }
    failure
}

/// The certificates of `roots`; the verifier adds the system's.
fn certificates(roots: &Roots) -> Result<Vec<Certificate>, Failure> {
    let mut all = Vec::new();
    for (file, named_by) in &roots.files {
        let wrong = |why: String| failed(FailureClass::Network, format!("{named_by}: {}: {why}", file.display()));
        let certificates = read(file).map_err(|error| wrong(error.to_string()))?;
        if certificates.is_empty() {
            return Err(wrong("has no certificate in it; a PEM file is wanted".to_owned()));
        }
        all.extend(certificates);
    }
    for (directory, named_by) in &roots.directories {
        let wrong = |error: std::io::Error| {
            failed(FailureClass::Network, format!("{named_by}: {}: {error}", directory.display()))
        };
        for entry in std::fs::read_dir(directory).map_err(wrong)? {
            let path = entry.map_err(wrong)?.path();
            // A directory may contain other files, such as lists and notes.
            all.extend(read(&path).unwrap_or_default());
        }
    }
    all.extend(system());
    Ok(all)
}

/// The certificates in a file.
fn read(path: &Path) -> anyhow::Result<Vec<Certificate>> {
    let file = std::fs::File::open(path)?;
    anyhow::ensure!(file.metadata()?.is_file(), "is not a file");
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    anyhow::ensure!(bytes.len() as u64 <= MAX_FILE, "is larger than {MAX_FILE} bytes");
    Ok(Certificate::from_pem_bundle(&bytes)?)
}

/// The system's own certificates, for the case that `SSL_CERT_FILE` or `SSL_CERT_DIR` replaces them in the verifier.
#[cfg(all(unix, not(target_vendor = "apple")))]
fn system() -> Vec<Certificate> {
    if ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().all(|name| std::env::var_os(name).is_none()) {
        return Vec::new();
    }
    let found = openssl_probe::candidate_cert_dirs()
        .flat_map(|directory| rustls_native_certs::load_certs_from_paths(None, Some(directory)).certs);
    found.filter_map(|certificate| Certificate::from_der(&certificate).ok()).collect()
}

#[cfg(not(all(unix, not(target_vendor = "apple"))))]
fn system() -> Vec<Certificate> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn problem(files: &[&Path], directories: &[&Path]) -> String {
        let named = |paths: &[&Path]| -> Vec<(PathBuf, String)> {
            paths.iter().map(|path| (path.to_path_buf(), "network.ca_file".to_owned())).collect()
        };
        let route = Route { proxy: None, roots: Roots { files: named(files), directories: named(directories) } };
        build(&Traits { connect_timeout: Duration::from_secs(1), secure: true, route, private: None })
            .unwrap_err()
            .message
    }

    #[test]
    fn certificates_that_cannot_be_read_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("notes"), "no certificate").unwrap();
        std::fs::write(at("broken"), "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n").unwrap();
        let said = problem(&[&at("gone.pem")], &[]);
        assert!(said.starts_with(&format!("network.ca_file: {}: No such file", at("gone.pem").display())), "{said}");
        assert!(problem(&[&at("notes")], &[]).ends_with("has no certificate in it; a PEM file is wanted"));
        assert!(problem(&[dir.path()], &[]).ends_with("is not a file"));
        let said = problem(&[&at("broken")], &[]);
        assert!(said.starts_with(&format!("network.ca_file: {}: ", at("broken").display())), "{said}");
        assert!(problem(&[], &[&at("nowhere")]).contains("No such file"));
    }
}
