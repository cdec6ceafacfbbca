//! What stands between the daemon and a model: TLS with certificates of one's own, proxies that count, other addresses.
//!
//! All of it runs on one thread of its own, so that a test that blocks does not stop it, and ends when it is dropped.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rcgen::{BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).thread_name("network").enable_all().build().expect("a runtime for the network")
    })
}

/// Serves each connection to a free port of `host`; where it listens, and what to end it with.
fn serve<F>(host: &str, each: impl Fn(TcpStream) -> F + Send + 'static) -> (SocketAddr, JoinHandle<()>)
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let listener = StdListener::bind((host, 0)).expect("a free port");
    listener.set_nonblocking(true).expect("a listener");
    let address = listener.local_addr().expect("the address of the listener");
    let _entered = runtime().enter();
    let listener = TcpListener::from_std(listener).expect("a listener");
    let serving = runtime().spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let connection = each(stream);
            // Whoever hangs up in the middle is part of a test.
            tokio::spawn(async move { drop(connection.await) });
        }
    });
    (address, serving)
}

/// A web server: what it says to each path, head and body.
pub struct Pages {
    address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Pages {
    /// Serves what `answer` says for a path.
    pub fn start(answer: impl Fn(&str) -> Vec<u8> + Clone + Send + Sync + 'static) -> Self {
        let (address, serving) = serve("127.0.0.1", move |stream| {
            let answer = answer.clone();
            async move {
                let mut stream = BufReader::new(stream);
                let (mut first, mut line) = (String::new(), String::new());
                stream.read_line(&mut first).await?;
                while stream.read_line(&mut line).await? > 2 {
                    line.clear();
                }
                let path = first.split(' ').nth(1).unwrap_or_default();
                stream.write_all(&answer(path)).await?;
                stream.shutdown().await
            }
        });
        Self { address, serving }
    }

    /// The address of a page.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A certificate authority that only this test knows.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Default for Authority {
    fn default() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "linger's tests");
        let key = KeyPair::generate().expect("a key");
        Self { issuer: CertifiedIssuer::self_signed(params, key).expect("a certificate") }
    }
}

impl Authority {
    /// Writes its certificate into a file of `dir`.
    pub fn file(&self, dir: &Path) -> PathBuf {
        let file = dir.join("ca.pem");
        std::fs::write(&file, self.issuer.pem()).expect("the certificate can be written");
        file
    }

    /// What `openssl req -x509` makes: one certificate, an authority's, that a server for `names` shows itself.
    fn own(names: &[&str]) -> (TlsAcceptor, String) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        (acceptor(&certificate, &key), certificate.pem())
    }

    /// What a server for `names` shows; one that has expired if it is not `valid`.
    fn acceptor(&self, names: &[&str], valid: bool) -> TlsAcceptor {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        if !valid {
            (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        acceptor(&certificate, &key)
    }
}

fn acceptor(certificate: &Certificate, key: &KeyPair) -> TlsAcceptor {
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .expect("a certificate that fits its key");
    TlsAcceptor::from(Arc::new(config))
}

/// Another address of a model.
pub struct Front {
    /// Where it listens.
    pub address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Front {
    /// The model behind TLS, on a port of 127.0.0.1.
    pub fn tls(authority: &Authority, names: &[&str], model: SocketAddr) -> Self {
        Self::with(authority.acceptor(names, true), model)
    }

    /// As [`Self::tls`], with a certificate that has expired.
    pub fn expired(authority: &Authority, names: &[&str], model: SocketAddr) -> Self {
        Self::with(authority.acceptor(names, false), model)
    }

    /// As [`Self::tls`], with a certificate of the server's own as `openssl req -x509` makes it; and that as PEM.
    pub fn own(names: &[&str], model: SocketAddr) -> (Self, String) {
        let (acceptor, pem) = Authority::own(names);
        (Self::with(acceptor, model), pem)
    }

    fn with(acceptor: TlsAcceptor, model: SocketAddr) -> Self {
        let (address, serving) = serve("127.0.0.1", move |stream| {
            let acceptor = acceptor.clone();
            async move {
                let mut near = acceptor.accept(stream).await?;
                join(&mut near, &mut TcpStream::connect(model).await?).await
            }
        });
        Self { address, serving }
    }

    /// A server that says this to whoever says anything.
    pub fn saying(words: &'static [u8]) -> Self {
        let (address, serving) = serve("127.0.0.1", move |mut near| async move {
            near.read_u8().await?;
            near.write_all(words).await
        });
        Self { address, serving }
    }

    /// The model on a port of another address of this machine.
    pub fn at(host: &str, model: SocketAddr) -> Self {
        let (address, serving) =
            serve(host, move |mut near| async move { join(&mut near, &mut TcpStream::connect(model).await?).await });
        Self { address, serving }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn join(a: &mut (impl AsyncRead + AsyncWrite + Unpin), b: &mut TcpStream) -> io::Result<()> {
    tokio::io::copy_bidirectional(a, b).await.map(drop)
}

/// What a proxy does.
#[derive(Clone, Debug, Default)]
pub struct Manners {
    /// Who may use it: what `Proxy-Authorization` has to be.
    pub authorization: Option<String>,
    /// The status with which it refuses everybody.
    pub refuses: Option<u16>,
}

/// An HTTP proxy that leads every host to one address, and notes each request's head.
pub struct Proxy {
    /// Where it listens.
    pub address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    serving: JoinHandle<()>,
}

impl Proxy {
    /// A proxy that leads everybody to `target`.
    pub fn to(target: SocketAddr) -> Self {
        Self::with(target, Manners::default())
    }

    /// As [`Self::to`], with manners of its own.
    pub fn with(target: SocketAddr, manners: Manners) -> Self {
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let noted = heads.clone();
        let (address, serving) = serve("127.0.0.1", move |near| {
            let (noted, manners) = (noted.clone(), manners.clone());
            async move { pass(BufReader::new(near), target, &manners, &noted).await }
        });
        Self { address, heads, serving }
    }

    /// `http://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The heads of the requests so far, each as it came.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The first line of each request so far.
    pub fn asked(&self) -> Vec<String> {
        self.heads().iter().map(|head| head.lines().next().unwrap_or_default().to_owned()).collect()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// One connection of a proxy: a tunnel, or one request that is passed on.
async fn pass(
    mut near: BufReader<TcpStream>,
    target: SocketAddr,
    manners: &Manners,
    noted: &Mutex<Vec<String>>,
) -> io::Result<()> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if near.read_line(&mut head).await? == 0 {
            return Ok(());
        }
    }
    noted.lock().unwrap_or_else(PoisonError::into_inner).push(head.clone());
    let header = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
    };
    let known = manners.authorization.is_none() || header("proxy-authorization") == manners.authorization;
    let status = if known { manners.refuses } else { Some(407) };
    if let Some(status) = status {
        let refusal = format!("HTTP/1.1 {status} No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        return near.write_all(refusal.as_bytes()).await;
    }
    let mut far = TcpStream::connect(target).await?;
    if head.starts_with("CONNECT ") {
        near.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await?;
    } else {
        // To the server in the form in which it is asked directly, and without what was for the proxy alone.
        let (first, rest) = head.split_once("\r\n").unwrap_or_default();
        let path = first
            .split(' ')
            .nth(1)
            .and_then(|url| url.split_once("://"))
            .and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..]));
        let kept: Vec<&str> = rest.lines().filter(|line| !line.to_lowercase().starts_with("proxy-")).collect();
        let method = first.split(' ').next().unwrap_or_default();
        let head = format!("{method} {} HTTP/1.1\r\n{}\r\n", path.unwrap_or("/"), kept.join("\r\n"));
        far.write_all(head.as_bytes()).await?;
        let mut body = vec![0; header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0)];
        near.read_exact(&mut body).await?;
        far.write_all(&body).await?;
    }
    let left = near.buffer().to_vec();
    far.write_all(&left).await?;
    join(near.get_mut(), &mut far).await
}
