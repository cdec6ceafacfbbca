//! Tools that a provider runs itself: which are switched on, and what is said of their calls and results. Pure.
//!
//! What a provider wants back of them is in the `native` part of their blocks and goes to the model that it came from; another
//! model reads what people read, in [`readable`].
//! Deliberately absent: what each wire format calls them, which its codec knows; permissions, as nothing happens here.

use linger_protocol::message::{ContentBlock, HostedPart, HostedTool};
use serde_json::Value;

use super::types::tools::is_among;
use super::wire;

/// How much of what came of a call is written down for people, in bytes; the provider's own form of it has all.
const MAX_EXCERPT: usize = 4 << 10;

/// How many sources of a search are named.
const MAX_SOURCES: usize = 12;

/// The longest title or address of a source, in characters.
const MAX_SOURCE: usize = 300;

/// The hosted tools that are switched on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hosted {
    /// The model may search the web.
    pub web_search: bool,
    /// The model may run code at its provider.
    pub code_execution: bool,
}

impl Hosted {
    /// Nothing; in constants, where `Default` cannot be used.
    pub const NONE: Self = Self { web_search: false, code_execution: false };

    /// All tools, for tests and fuzz targets.
    pub const ALL: Self = Self { web_search: true, code_execution: true };

    /// Keeps the tools that are among `only`, the tools of a session.
    pub fn limited(self, only: Option<&[String]>) -> Self {
        let has = |tool: HostedTool| is_among(only, tool.name());
        let (web_search, code_execution) = (has(HostedTool::WebSearch), has(HostedTool::CodeExecution));
        Self { web_search: self.web_search && web_search, code_execution: self.code_execution && code_execution }
    }

    /// The tools that are switched on.
    pub fn tools(self) -> Vec<HostedTool> {
        let on = [(self.web_search, HostedTool::WebSearch), (self.code_execution, HostedTool::CodeExecution)];
        on.into_iter().filter_map(|(on, tool)| on.then_some(tool)).collect()
    }

    /// Whether this tool is switched on. The work of one that is not is told in words.
    pub fn has(self, tool: HostedTool) -> bool {
        self.tools().contains(&tool)
    }

    /// Whether no tool is switched on.
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }
}

/// The text that stands for a block where its native form cannot go: for another model, or if that form is lost.
pub(crate) fn readable(block: &ContentBlock) -> Option<String> {
    let ContentBlock::Hosted { tool, part, text, .. } = block else { return None };
    let (tool, text) = (tool.name(), wire::visible(text)?);
    Some(match part {
        HostedPart::Call => format!("[{tool}: {text}]"),
        HostedPart::Error => format!("[{tool} failed: {text}]"),
        HostedPart::Result | HostedPart::Unknown => format!("[{tool} gave: {text}]"),
    })
}

/// The text that is kept of a tool's input or output, cut to [`MAX_EXCERPT`].
pub(super) fn excerpt(text: &str) -> String {
    let text = wire::without_nul(text.trim());
    if text.len() <= MAX_EXCERPT {
        return text.into_owned();
    }
    let end = (0..=MAX_EXCERPT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    let kept = text.get(..end).unwrap_or_default();
    format!("{kept}\n(and {} more bytes)", text.len() - end)
}

/// Queries of a search in one line.
pub(super) fn queries<'a>(queries: impl IntoIterator<Item = &'a str>) -> String {
    excerpt(&queries.into_iter().collect::<Vec<_>>().join("; "))
}

/// The result of a search: the count, then a line for each source with its title, if it has one, and address.
pub(super) fn sources<'a>(found: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let short = |text: &str| -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MAX_SOURCE).collect()
    };
    let lines: Vec<String> = found
        .into_iter()
        .map(|(title, address)| match (short(title), short(address)) {
            (title, address) if title.is_empty() || title == address => address,
            (title, address) => format!("{title}: {address}"),
        })
        .collect();
    let count = match lines.len() {
        0 => return "nothing found".to_owned(),
        1 => "1 source".to_owned(),
        n => format!("{n} sources"),
    };
    let rest = lines.len().saturating_sub(MAX_SOURCES);
    let more = if rest > 0 { format!("\n(and {rest} more)") } else { String::new() };
    let named: Vec<String> = lines.into_iter().take(MAX_SOURCES).collect();
    excerpt(&format!("{count}\n{}{more}", named.join("\n")))
}

/// The output of code, and its exit code if that is not 0.
pub(super) fn output(output: &str, errors: &str, status: i64) -> (HostedPart, String) {
    let parts = [output.trim(), errors.trim()];
    let text = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n");
    match (status, text.is_empty()) {
        (0, true) => (HostedPart::Result, "no output".to_owned()),
        (0, false) => (HostedPart::Result, excerpt(&text)),
        (status, true) => (HostedPart::Error, format!("exit code {status}")),
        (status, false) => (HostedPart::Error, excerpt(&format!("exit code {status}\n{text}"))),
    }
}

/// A text in `value`; empty if there is none.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_a_line_each_and_not_too_many() {
        assert_eq!(sources([]), "nothing found");
        assert_eq!(sources([("", "a")]), "1 source\na");
        assert_eq!(sources([("T\n  t", "a"), ("b", "b")]), "2 sources\nT t: a\nb");
        let many = vec![("t", "u"); MAX_SOURCES + 3];
        assert!(sources(many).ends_with("t: u\n(and 3 more)"));
        let (title, address) = ("x".repeat(1 << 20), "y".repeat(1 << 20));
        let cut = sources(vec![(title.as_str(), address.as_str()); 9]);
        assert!(cut.len() < MAX_EXCERPT + 30 && cut.ends_with("more bytes)"), "{}", cut.len());
    }

    #[test]
    fn what_is_said_is_bounded_and_clean() {
        assert_eq!(excerpt(" a\0b\n"), "a\u{fffd}b");
        let long = "ä".repeat(MAX_EXCERPT);
        assert!(
            excerpt(&long).starts_with('ä') && excerpt(&long).ends_with(&format!("(and {MAX_EXCERPT} more bytes)"))
        );
    }

    #[test]
    fn another_model_reads_what_people_read() {
        fn check(part: HostedPart, text: &str, expect: Option<&str>) {
            let block = ContentBlock::Hosted { tool: HostedTool::WebSearch, part, text: text.to_owned(), native: None };
            assert_eq!(readable(&block).as_deref(), expect);
        }
        check(HostedPart::Call, "rust", Some("[web_search: rust]"));
        check(HostedPart::Result, "1 source\na", Some("[web_search gave: 1 source\na]"));
        check(HostedPart::Error, "unavailable", Some("[web_search failed: unavailable]"));
        check(HostedPart::Result, "", None);
        assert_eq!(readable(&ContentBlock::text("x")), None);
    }
}
