//! `fetch`: what is at an address of the web, as text that a model can read.
//!
//! Permission is for a host, so a redirect is followed only within it. The client decides which addresses are dialled ([`Web`]).

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use linger_protocol::event::ToolKind;
use linger_protocol::message::{ContentBlock, MAX_IMAGE, image_type};
use reqwest::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use reqwest::{Response, StatusCode, Url};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::access::Effects;
use super::charset::Decoded;
use super::invalid::Invalid;
use super::names::Takes;
use super::output::{Kept, Output};
use super::types::{BoxFuture, Call, Context, Tool, ToolOutput, Web};
use super::workspace::Workspace;
use super::{args, charset, page};

/// The longest address, in bytes: browsers and servers take about as much.
const MAX_URL: usize = 8 << 10;

/// The most that is read, in bytes: more than any page that a model could use.
const MAX_BODY: usize = 5 << 20;

/// How long all of it may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Redirects that are followed.
const MAX_REDIRECTS: usize = 5;

/// A NUL in this much of the beginning makes it binary, as for grep and git.
const PROBE: usize = 8 << 10;

/// The content types that a server is asked for.
const ACCEPTED: &str =
    "text/html, application/xhtml+xml, text/*;q=0.9, application/json;q=0.9, image/*;q=0.8, */*;q=0.5";

pub(super) struct Fetch;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Args {
    url: String,
    #[serde(default)]
    raw: bool,
}

impl Tool for Fetch {
    fn name(&self) -> &str {
        "fetch"
    }

    fn description(&self) -> &str {
        include_str!("fetch.md")
    }

    fn schema(&self) -> Value {
        args::schema::<Args>()
    }

    fn changes(&self) -> bool {
        false
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Fetch
    }

    fn pattern(&self) -> Takes {
        Takes::Host
    }

    fn prepare(&self, input: &Value, _: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let Args { url, raw } = args::parse(input)?;
        if url.len() > MAX_URL {
            return Err(Invalid(format!("`url` may have {MAX_URL} bytes")));
        }
        let url = parse(&url).map_err(|problem| Invalid(format!("`url` {problem}")))?;
        Ok(Box::new(Fetching { url, raw }))
    }
}

/// An address that can be fetched, without its fragment, or why it is none.
fn parse(text: &str) -> Result<Url, String> {
    let mut url =
        Url::parse(text.trim()).map_err(|error| format!("is not an address, such as https://example.org: {error}"))?;
    if !["http", "https"].contains(&url.scheme()) {
        return Err(format!("begins with `{}:`; only http and https can be fetched", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("has a user or a password in it, which is not sent".to_owned());
    }
    url.set_fragment(None);
    Ok(url)
}

struct Fetching {
    url: Url,
    raw: bool,
}

impl Call for Fetching {
    fn action(&self) -> String {
        format!("fetch {}", self.url)
    }

    fn effects(&self) -> Effects {
        Effects::fetch(self.url.host_str().unwrap_or_default())
    }

    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        Box::pin(async move {
            let got = tokio::time::timeout(TIMEOUT, get(&context.web, self.url.clone())).await;
            match got.unwrap_or_else(|_| Err(format!("{}: no whole answer within {} s", self.url, TIMEOUT.as_secs()))) {
                Ok(got) => got.show(self.raw, context).await,
                Err(problem) => ToolOutput::error(problem),
            }
        })
    }
}

/// The content at an address.
struct Got {
    /// Where it is, after redirects.
    url: Url,
    status: StatusCode,
    /// Its type as the server says it, in lower case; empty if it does not.
    media_type: String,
    body: Vec<u8>,
    /// Whether there is more than `body`.
    is_cut: bool,
}

async fn get(web: &Web, asked: Url) -> Result<Got, String> {
    let mut url = asked.clone();
    for _ in 0..=MAX_REDIRECTS {
        let client = web(url.clone()).await?;
        let answer = client.get(url.clone()).header(ACCEPT, ACCEPTED).send().await;
        let answer = answer.map_err(|error| format!("{url}: {}", innermost(&error)))?;
        match redirect(&answer, &url)? {
            None => return Got::read(answer, url).await,
            Some(next) if next.host_str() == asked.host_str() => url = next,
            Some(next) => return Err(format!("{url} redirects to another host: fetch {next} if that is wanted")),
        }
    }
    Err(format!("{asked} redirects more than {MAX_REDIRECTS} times"))
}

/// Where an answer sends on to, if it does.
fn redirect(answer: &Response, url: &Url) -> Result<Option<Url>, String> {
    let sends_on = [301, 302, 303, 307, 308].contains(&answer.status().as_u16());
    let Some(target) = answer.headers().get(LOCATION).filter(|_| sends_on) else { return Ok(None) };
    let target = target.to_str().ok().and_then(|target| url.join(target).ok());
    let target = target.ok_or_else(|| format!("{url} redirects to what is not an address"))?;
    parse(target.as_str()).map(Some).map_err(|problem| format!("{url} redirects to an address that {problem}"))
}

/// The cause at the bottom of an error of the HTTP library; those above only say that a request failed.
fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(below) = cause.source() {
        cause = below;
    }
    cause.to_string()
}

impl Got {
    async fn read(mut answer: Response, url: Url) -> Result<Self, String> {
        let media_type = answer.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = media_type.unwrap_or_default().to_ascii_lowercase();
        let (mut body, mut is_cut) = (Vec::new(), false);
        while let Some(piece) = answer.chunk().await.map_err(|error| format!("{url}: {}", innermost(&error)))? {
            let fits = piece.get(..MAX_BODY - body.len()).unwrap_or(&piece);
            body.extend_from_slice(fits);
            if fits.len() < piece.len() {
                is_cut = true;
                break;
            }
        }
        Ok(Self { url, status: answer.status(), media_type, body, is_cut })
    }

    async fn show(self, raw: bool, context: Context) -> ToolOutput {
        let head = self.head();
        let is_error = !self.status.is_success();
        if let Some(image) = self.image() {
            let content = vec![ContentBlock::text(head), image];
            return ToolOutput { content, is_error, ..ToolOutput::text("") };
        }
        let decoded = self.decoded();
        let has_nul = memchr::memchr(0, self.body.get(..PROBE).unwrap_or(&self.body)).is_some();
        if has_nul && !(decoded.is_wide && decoded.warning.is_none()) {
            let (size, kind) = (self.body.len(), &self.media_type);
            return ToolOutput::error(format!("{head}\n[{size} bytes of {kind}, which is no text]"));
        }
        let is_page = !raw && self.is_page();
        let Decoded { text: source, warning, .. } = decoded;
        let head = warning.map_or(head.clone(), |warning| format!("{head}\n[{warning}]"));
        let text = if is_page {
            page::text(&context.spawn, source.clone()).await.unwrap_or_else(|why| {
                format!("[this is the source of the page; its text cannot be told: {why}]\n{source}")
            })
        } else {
            source
        };
        let mut output = Output::to(context.output, context.blobs);
        output.push(format!("{head}\n\n{text}").as_bytes()).await;
        let Kept { content, segments, whole } = output.finish().await;
        ToolOutput { content, is_error, output: segments, whole, ..ToolOutput::text("") }
    }

    /// It as text.
    fn decoded(&self) -> Decoded {
        let mut body = self.body.as_slice();
        if self.is_cut
            && let Some(last) = body.utf8_chunks().last()
            && last.invalid().len() < 4
        {
            // A character that was cut is no error.
            body = body.get(..body.len() - last.invalid().len()).unwrap_or_default();
        }
        charset::decode(body, &self.media_type)
    }

    /// One line about it.
    fn head(&self) -> String {
        let status = if self.status.is_success() { String::new() } else { format!(" {}", self.status) };
        let cut = if self.is_cut { format!(", cut at {} MiB", MAX_BODY >> 20) } else { String::new() };
        format!("[{}{status}{cut}]", self.url)
    }

    fn image(&self) -> Option<ContentBlock> {
        let fits = !self.is_cut && self.body.len() as u64 <= MAX_IMAGE;
        let media_type = image_type(&self.body).filter(|_| fits)?;
        Some(ContentBlock::image(media_type, BASE64.encode(&self.body)))
    }

    /// Whether it is HTML.
    fn is_page(&self) -> bool {
        let kind = self.media_type.split(';').next().unwrap_or_default().trim();
        ["text/html", "application/xhtml+xml"].contains(&kind) || (kind.is_empty() && begins_as_page(&self.body))
    }
}

fn begins_as_page(body: &[u8]) -> bool {
    let start = String::from_utf8_lossy(body.get(..512).unwrap_or(body)).trim_start().to_ascii_lowercase();
    start.starts_with("<!doctype html") || start.starts_with("<html")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tool::tests::test_workspace;

    #[test]
    fn only_addresses_of_the_web_are_fetched() {
        let (_dir, workspace) = test_workspace();
        let check = |url: &str, expect: &str| {
            let problem = Fetch.prepare(&json!({ "url": url }), &workspace).err().unwrap().0;
            assert!(problem.contains(expect), "{url}: {problem}");
        };
        check("file:///etc/passwd", "begins with `file:`");
        check("example.org", "is not an address, such as https://example.org");
        check("http://user:secret@example.org/", "has a user or a password in it");
        check(&format!("http://example.org/{}", "x".repeat(MAX_URL)), "`url` may have 8192 bytes");
        let call = Fetch.prepare(&json!({ "url": " HTTPS://Example.ORG/a?b#c" }), &workspace).unwrap();
        assert_eq!(call.action(), "fetch https://example.org/a?b");
        assert_eq!(call.effects(), Effects::fetch("example.org"));
    }
}
