//! A web page as text. A hostile page can keep any layout busy for hours and fill any memory, so a helper process does it, with
//! bounds on time, memory and output: this program with [`ARGUMENT`], the page on standard input, its text on standard output.

use std::io::{Read as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};

use crate::process::server::Spawn;
use crate::process::{End, Input};

/// The argument that makes the program a helper.
pub const ARGUMENT: &str = "--page-as-text";

/// How long a layout may take; a page of some MiB takes two seconds.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The helper's memory, in bytes: many times what a large page takes.
const MAX_MEMORY: u64 = 1 << 30;

/// The longest text, in bytes: links and tables make it longer than the page.
const MAX_TEXT: usize = 16 << 20;

/// The width of the text, in characters: links and tables are wrapped seldom, and lines stay short enough for `read`.
const WIDTH: usize = 120;

/// The text of a page; fails with the reason if a helper cannot tell it within the bounds.
pub(super) async fn text(spawn: &Spawn, html: String) -> Result<String, String> {
    let spawn = Spawn { cwd: "/".into(), env: Arc::default(), ..spawn.clone() };
    let helper = spawn.helper(&[ARGUMENT], Input::Bytes(html.into_bytes())).map_err(|error| error.to_string())?;
    let finished = helper.finish(TIMEOUT, MAX_TEXT).await.map_err(|error| error.to_string())?;
    match finished.end {
        End::Status(status) if status.success() => {
            String::from_utf8(finished.output).map_err(|_| "its text is not UTF-8".to_owned())
        }
        End::Status(status) => Err(format!("the helper ended with {status}")),
        End::TooMuch => Err(format!("its text is longer than {} MiB", MAX_TEXT >> 20)),
        End::TooLate => Err(format!("it took more than {} s", TIMEOUT.as_secs())),
    }
}

/// The helper.
pub fn main() -> ExitCode {
    let limited = [(Resource::As, MAX_MEMORY), (Resource::Cpu, TIMEOUT.as_secs()), (Resource::Core, 0)];
    for (resource, most) in limited {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        if let Err(error) = setrlimit(resource, limit) {
            eprintln!("error: cannot limit this process: {error}");
            return ExitCode::FAILURE;
        }
    }
    let mut page = Vec::new();
    let laid_out = std::io::stdin().read_to_end(&mut page).map_err(|error| error.to_string());
    let written = laid_out
        .and_then(|_| lay_out(&page))
        .and_then(|text| std::io::stdout().write_all(text.as_bytes()).map_err(|error| error.to_string()));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A page as text, with its links at the end.
fn lay_out(html: &[u8]) -> Result<String, String> {
    let layout = html2text::config::plain().link_footnotes(true).no_table_borders().allow_width_overflow();
    layout.string_from_read(html, WIDTH).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_text_with_its_links() {
        let page = "<html><head><title>T</title><style>p{}</style><script>alert(1)</script></head><body><h1>Head</h1>\
                    <p>One <a href='/x'>link</a> &amp; more.</p><ul><li>a<li>b</ul><pre>  code\n</pre></body></html>";
        let text = "# Head\n\nOne [link][1] & more.\n* a\n* b\n\n  code\n\n[1]: /x\n";
        assert_eq!(lay_out(page.as_bytes()).unwrap(), text);
        assert_eq!(lay_out(b"\xff<p>x").unwrap().trim(), "\u{fffd}\n\nx");
    }
}
