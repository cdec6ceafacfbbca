//! The page's files, which lie in `page/` and are built in: each is served under its name, without a token.

use hyper::Response;
use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};

use super::reply::{Body, Failure, Reply};

/// Each file's name and bytes, as `build.rs` found them.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/page_files.rs"));

/// The page's policy: it runs its own scripts, talks to this gateway, and does nothing else.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'",
);

/// A file of the page.
pub(super) fn file(name: &str) -> Result<Reply, Failure> {
    let file = FILES.iter().find(|(known, _)| *known == name).map(|(_, bytes)| *bytes);
    let bytes = file.ok_or_else(|| Failure::not_found(format!("the page has no file '{}'", name.escape_default())))?;
    let mut response = Response::new(Body::full(bytes));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type(name)));
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    // The next version of linger has others.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

/// The media type of a file, by the end of its name.
fn media_type(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "json" | "webmanifest" => "application/json",
        "txt" | "md" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_file_of_the_folder_is_served_under_its_name_with_its_type() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/face/gateway/page");
        let names = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let names: BTreeSet<String> = names.collect();
        assert_eq!(FILES.iter().map(|(name, _)| (*name).to_owned()).collect::<BTreeSet<_>>(), names);
        assert!(names.contains("index.html"));
        for name in &names {
            let response = file(name).unwrap();
            assert_ne!(response.headers()[CONTENT_TYPE], "application/octet-stream", "{name}");
            assert!(response.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap().contains("script-src 'self';"));
        }
        assert!(file("../mod.rs").is_err() && file("").is_err());
    }
}
