//! A provider that answers requests, and one attempt at one request.
//!
//! [`Stream`] ends in exactly one [`StreamEvent::Done`] or [`StreamEvent::Failed`]; failures are data.
//! Deliberately absent: retries (the turn decides, with [`super::retry`]) and anything about sessions.

use linger_protocol::message::Usage;

use super::encoding::Encoding;
use super::responses::{ForwardDefaults, forwarded_request};
#[cfg(test)]
use super::scripted;
use super::types::{Request, RequestPrefix, StreamEvent};
use super::{demo, driver};
use crate::diagnostics::secret::Secret;

/// Something that answers requests.
#[derive(Clone, Debug)]
pub enum Provider {
    /// A model behind HTTP.
    Http(driver::Endpoint),
    /// The scripted model that needs no network.
    Demo,
    /// A test's script, with the key that it is asked with.
    #[cfg(test)]
    Scripted(scripted::Script, Option<Secret>),
}

impl Provider {
    /// How many of the first messages of a context `encoding` has, so that their images are not needed again; for a request that
    /// begins with `prefix`.
    pub fn encoded(&self, prefix: &RequestPrefix<'_>, encoding: &Encoding) -> usize {
        match self {
            Self::Http(endpoint) => encoding.encoded(endpoint.codec.as_ref(), prefix),
            Self::Demo => usize::MAX,
            #[cfg(test)]
            Self::Scripted(..) => usize::MAX,
        }
    }

    /// The key that it is asked with.
    pub fn key(&self) -> Option<&Secret> {
        match self {
            Self::Http(endpoint) => endpoint.key.as_ref(),
            Self::Demo => None,
            #[cfg(test)]
            Self::Scripted(_, key) => key.as_ref(),
        }
    }

    /// Begins one attempt at `request`; nothing happens before [`Stream::next`] is called.
    /// `encoding` keeps what was encoded of the context; it is the same for all requests that extend each other.
    pub fn start(&self, request: &Request<'_>, encoding: &mut Encoding) -> Stream {
        match self {
            Self::Http(endpoint) => Stream::Http(driver::HttpStream::start(endpoint, request, encoding)),
            Self::Demo => Stream::Demo(demo::DemoStream::start(request)),
            #[cfg(test)]
            Self::Scripted(script, _) => Stream::Scripted(script.start(request)),
        }
    }

    /// Begins one attempt at a caller's own request in the format of OpenAI's Responses, `text`. Absent if the provider speaks another
    /// format; fails with what is wrong with the text.
    pub fn forward(&self, text: &str, defaults: &ForwardDefaults<'_>) -> Option<Result<Stream, String>> {
        let Self::Http(endpoint) = self else { return None };
        let codec = endpoint.codec.forwarding()?;
        let begin =
            |request| Stream::Http(driver::HttpStream::with(driver::Endpoint { codec, ..endpoint.clone() }, request));
        Some(forwarded_request(text, defaults).map(begin))
    }
}

/// One attempt at one request; dropping it aborts the attempt.
#[derive(Debug)]
pub enum Stream {
    /// Over HTTP.
    Http(driver::HttpStream),
    /// From the script.
    Demo(demo::DemoStream),
    /// From a test's script.
    #[cfg(test)]
    Scripted(scripted::ScriptedStream),
}

impl Stream {
    /// The next events: never empty until `Done` or `Failed` came, which is the last of all; then always empty.
    /// A call that is dropped before it answers loses nothing.
    pub async fn next(&mut self) -> Vec<StreamEvent> {
        match self {
            Self::Http(stream) => stream.next().await,
            Self::Demo(stream) => stream.next().await,
            #[cfg(test)]
            Self::Scripted(stream) => stream.next().await,
        }
    }

    /// The tokens counted so far; an attempt that fails was paid for too.
    pub fn usage(&self) -> Usage {
        match self {
            Self::Http(stream) => stream.usage(),
            Self::Demo(stream) => stream.usage(),
            #[cfg(test)]
            Self::Scripted(stream) => stream.usage(),
        }
    }

    /// Whether anything of an answer came, shown or not: what fails before that was refused, what fails after it was cut.
    pub fn has_begun(&self) -> bool {
        match self {
            Self::Http(stream) => stream.has_begun(),
            // The script does not fail.
            Self::Demo(_) => true,
            #[cfg(test)]
            Self::Scripted(stream) => stream.has_begun(),
        }
    }
}
