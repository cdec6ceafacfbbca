//! Which field of a request's `params` is wrong, from what serde says: it counts bytes up to the fault. Pure.

/// An open container at a place in JSON: an object with its last key, or an array with the number of its entry.
#[derive(Debug)]
enum Open {
    Object(String),
    Array(usize),
}

/// Serde's complaint about the object `params`, without the place, and the path of the field where that can be told, such as
/// `content[0].text`.
pub(super) fn wrong_field(params: &str, found: &str) -> (String, Option<String>) {
    let place = found.rsplit_once(" at line ").and_then(|(what, place)| {
        let (line, column) = place.split_once(" column ")?;
        let (line, column): (usize, usize) = (line.parse().ok()?, column.parse().ok()?);
        let above: usize = params.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum();
        Some((what, above.checked_add(column)?))
    });
    let Some((what, end)) = place else { return (found.to_owned(), None) };
    let named = ["missing field `", "duplicate field `"];
    let named = named.iter().find_map(|begin| what.strip_prefix(begin)?.strip_suffix('`'));
    let mut open = open_at(params, end);
    if let Some(field) = named {
        // The place is at the last brace of its object, or behind it.
        let within = params.get(..end).unwrap_or_default().trim_end_matches('}').len();
        open = open_at(params, within);
        if let Some(Open::Object(key)) = open.last_mut() {
            field.clone_into(key);
        }
    }
    let path = open.iter().fold(String::new(), |path, part| match part {
        Open::Object(key) if key.is_empty() => path,
        Open::Object(key) if path.is_empty() => key.clone(),
        Open::Object(key) => format!("{path}.{key}"),
        Open::Array(entry) => format!("{path}[{entry}]"),
    });
    (what.to_owned(), Some(path).filter(|path| !path.is_empty()))
}

/// The containers that are open in `json` after `end` bytes.
fn open_at(json: &str, end: usize) -> Vec<Open> {
    let mut open = Vec::new();
    let mut bytes = json.bytes().enumerate().take(end);
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'{' => open.push(Open::Object(String::new())),
            b'[' => open.push(Open::Array(0)),
            b'}' | b']' => drop(open.pop()),
            b',' => match open.last_mut() {
                Some(Open::Object(key)) => key.clear(),
                Some(Open::Array(entry)) => *entry += 1,
                None => {}
            },
            b'"' => {
                let mut escaped = false;
                let close = bytes.find(|(_, byte)| {
                    let closes = *byte == b'"' && !escaped;
                    escaped = *byte == b'\\' && !escaped;
                    closes
                });
                if let (Some(Open::Object(key)), Some((close, _))) = (open.last_mut(), close)
                    && key.is_empty()
                {
                    *key = json.get(at..=close).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
                }
            }
            _ => {}
        }
    }
    open
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Attach;
    use crate::session::Prune;
    use serde::de::DeserializeOwned;

    fn check<P: DeserializeOwned + std::fmt::Debug>(params: &str, what: &str, path: Option<&str>) {
        let Err(error) = serde_json::from_str::<P>(params) else { panic!("{params} fits") };
        assert_eq!(wrong_field(params, &error.to_string()), (what.to_owned(), path.map(str::to_owned)), "{params}");
    }

    #[test]
    fn the_field_that_is_wrong_is_named() {
        check::<Attach>(r#"{"session":7}"#, "invalid type: integer `7`, expected a string", Some("session"));
        check::<Attach>("{}", "missing field `session`", Some("session"));
        check::<Attach>(r#"{"after":"1"}"#, "missing field `session`", Some("session"));
        check::<Attach>(r#"{"session":["a"],"key":"b"}"#, "invalid type: sequence, expected a string", Some("session"));
        let flag = "invalid type: string \"\\\"}\", expected a boolean";
        check::<Attach>("{\"session\":\"a\",\n \"deltas\" : \"\\\"}\" }", flag, Some("deltas"));
        let number = "invalid type: floating point `1.5`, expected u64";
        check::<Prune>(r#"{"dry_run":true,"older_than_ms":1.5,"force":true}"#, number, Some("older_than_ms"));
        let nested = "invalid type: integer `5`, expected a string";
        check::<Vec<Attach>>(r#"[{"session":"a"},{"session":5}]"#, nested, Some("[1].session"));
        check::<Vec<Attach>>(r#"[{"session":"a"},{}]"#, "missing field `session`", Some("[1].session"));
        check::<Attach>("7", "invalid type: integer `7`, expected struct Attach", None);
    }
}
