//! The login that a server at an address asks for: the header `WWW-Authenticate`.
//!
//! Sources: RFC 6750, 3 (`error`, `scope`), RFC 9728, 5.1 (`resource_metadata`). Pure.

use std::collections::BTreeSet;

use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};

/// The longest list of scopes that is used, in bytes: it goes into the address of a page.
const MAX_SCOPE: usize = 2 << 10;

/// A parsed refusal.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Challenge {
    /// Where the metadata of the resource is.
    pub(super) metadata: Option<String>,
    /// The scopes that the request needs, separated by spaces.
    pub(super) scope: Option<String>,
    /// There is a login, whose scopes do not allow the request.
    pub(super) is_insufficient: bool,
}

impl Challenge {
    /// Parses the headers of a refusal.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let said = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        said.map(parameters).fold(Self::default(), |all, one| Self {
            metadata: all.metadata.or(one.metadata),
            scope: all.scope.or(one.scope),
            is_insufficient: all.is_insufficient || one.is_insufficient,
        })
    }

    /// The scopes to ask for, which with a login are those that it has, and more.
    pub(super) fn scope_with(&self, granted: Option<&str>) -> Option<String> {
        let wanted = self.scope.as_deref()?;
        match granted {
            Some(granted) if self.is_insufficient => Some(union(granted, wanted)),
            _ => Some(wanted.to_owned()),
        }
    }
}

/// Both lists of scopes, each scope once.
pub(super) fn union(one: &str, more: &str) -> String {
    let mut seen = BTreeSet::new();
    let all = one.split_whitespace().chain(more.split_whitespace()).filter(|scope| seen.insert(*scope));
    all.collect::<Vec<_>>().join(" ")
}

/// The parameters of a `WWW-Authenticate` that matter here.
fn parameters(header: &str) -> Challenge {
    let value = |name: &str| {
        let name = format!("{name}=");
        let at = header.match_indices(&name).map(|(at, _)| at);
        // Another parameter's name may end in this one.
        let mut at = at.filter(|at| header.get(..*at).is_some_and(|before| before.ends_with([' ', ','])));
        let rest = header.get(at.next()? + name.len()..)?;
        let value = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next()?,
            None => rest.split([',', ' ']).next()?,
        };
        (!value.is_empty()).then(|| value.to_owned())
    };
    let is_insufficient = value("error").as_deref() == Some("insufficient_scope");
    let scope = value("scope").filter(|scope| scope.len() <= MAX_SCOPE);
    Challenge { metadata: value("resource_metadata"), scope, is_insufficient }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_names_the_metadata_and_what_is_missing() {
        let check = |header: &str, metadata: Option<&str>, scope: Option<&str>, is_insufficient: bool| {
            let expect =
                Challenge { metadata: metadata.map(str::to_owned), scope: scope.map(str::to_owned), is_insufficient };
            assert_eq!(parameters(header), expect, "{header}");
        };
        check("Bearer", None, None, false);
        check("Bearer resource_metadata=\"https://h/m\", scope=\"a b\"", Some("https://h/m"), Some("a b"), false);
        check("Bearer error=\"invalid_token\", resource_metadata=https://h/m", Some("https://h/m"), None, false);
        check("Bearer x_scope=\"y\", error=\"insufficient_scope\",scope=\"w\"", None, Some("w"), true);
        check(&format!("Bearer scope=\"{}\"", "s".repeat(MAX_SCOPE + 1)), None, None, false);
    }

    #[test]
    fn a_wider_login_keeps_what_the_old_one_has() {
        let challenge = |scope: Option<&str>, is_insufficient| Challenge {
            scope: scope.map(str::to_owned),
            is_insufficient,
            ..Challenge::default()
        };
        assert_eq!(challenge(Some("w r"), true).scope_with(Some("r x")).as_deref(), Some("r x w"));
        assert_eq!(challenge(Some("w"), true).scope_with(None).as_deref(), Some("w"));
        assert_eq!(challenge(Some("w"), false).scope_with(Some("r")).as_deref(), Some("w"));
        assert_eq!(challenge(None, true).scope_with(Some("r")), None);
    }
}
