//! The arguments of a call that the model still writes, as a value: what is complete of them so far. Pure.

use serde_json::Value;

/// Parses the beginning of a compact JSON object: a text that is cut ends where it was cut, and a key without a value is
/// left out.
pub(super) fn so_far(text: &str) -> Option<Value> {
    let mut closing = Vec::new();
    // Up to where it is complete but for brackets, and whether that is within a string.
    let mut whole = (0, false);
    let mut expects_key = false;
    let mut chars = text.char_indices().map(|(at, c)| (at + c.len_utf8(), c));
    while let Some((end, c)) = chars.next() {
        match c {
            '"' => {
                let is_key = expects_key;
                let mut ended = false;
                while let Some((end, c)) = chars.next() {
                    match c {
                        '"' => ended = true,
                        '\\' => {
                            let Some((end, escaped)) = chars.next() else { break };
                            let digits = if escaped == 'u' { 4 } else { 0 };
                            let Some(end) = (0..digits).try_fold(end, |_, _| Some(chars.next()?.0)) else { break };
                            whole = if is_key { whole } else { (end, true) };
                            continue;
                        }
                        _ => {}
                    }
                    whole = if is_key { whole } else { (end, !ended) };
                    if ended {
                        break;
                    }
                }
            }
            '{' | '[' => {
                closing.push(if c == '{' { '}' } else { ']' });
                (whole, expects_key) = ((end, false), c == '{');
            }
            '}' | ']' => {
                closing.pop();
                (whole, expects_key) = ((end, false), false);
            }
            ',' => (whole, expects_key) = ((end - 1, false), closing.last() == Some(&'}')),
            ':' => expects_key = false,
            _ => {}
        }
    }
    let mut value = text.get(..whole.0)?.to_owned();
    value.extend(whole.1.then_some('"').into_iter().chain(closing.into_iter().rev()));
    serde_json::from_str(&value).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_that_are_cut_anywhere_are_a_value() {
        let all = json!({"path": "a \"b\"\n\u{1}ä", "n": [1, -2.5, {"x": null}, []], "deep": {"y": "z"}, "last": true});
        let text = all.to_string();
        let mut sizes = Vec::new();
        for end in (1..=text.len()).filter(|end| text.is_char_boundary(*end)) {
            let value = so_far(&text[..end]).unwrap_or_else(|| panic!("{}", &text[..end]));
            sizes.push(value.to_string().len());
        }
        assert!(sizes.is_sorted(), "{sizes:?}");
        assert_eq!(so_far(&text), Some(all));
    }

    #[test]
    fn what_has_no_value_yet_is_left_out() {
        let check = |text: &str, expect: Value| assert_eq!(so_far(text), Some(expect), "{text}");
        check("{", json!({}));
        check(r#"{"pa"#, json!({}));
        check(r#"{"path""#, json!({}));
        check(r#"{"path":"#, json!({}));
        check(r#"{"path":"a.t"#, json!({"path": "a.t"}));
        check(r#"{"path":"a\"#, json!({"path": "a"}));
        check(r#"{"path":"a\u00"#, json!({"path": "a"}));
        check(r#"{"path":"a","n":1"#, json!({"path": "a"}));
        check(r#"{"n":[1,2"#, json!({"n": [1]}));
        assert_eq!(so_far(""), None);
    }
}
