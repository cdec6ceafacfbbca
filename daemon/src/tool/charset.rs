//! Text of the web in the encoding that it has: as its server or it itself says, else UTF-8, else windows-1252 (WHATWG Encoding, and
//! "determining the character encoding" of WHATWG HTML). Pure.

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

use super::text::brief;

/// How much of the beginning may say the encoding, in bytes; browsers look at a quarter of it.
const PROBE: usize = 4096;

/// Text as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decoded {
    pub(super) text: String,
    /// A note for the reader: an unknown encoding, or bytes that could not be read.
    pub(super) warning: Option<String>,
    /// Whether it has two bytes for each character, so that a NUL does not make it binary.
    pub(super) is_wide: bool,
}

/// The text of a body with this `content-type`.
pub(super) fn decode(body: &[u8], content_type: &str) -> Decoded {
    if let Some((encoding, mark)) = Encoding::for_bom(body) {
        return read(body.get(mark..).unwrap_or_default(), encoding, None);
    }
    let mut unknown = None;
    let mut known = |label: Option<String>| {
        let label = label?;
        let encoding = Encoding::for_label_no_replacement(label.as_bytes());
        if encoding.is_none() {
            unknown.get_or_insert(label);
        }
        encoding
    };
    let said = known(charset(content_type));
    let is_utf8 = std::str::from_utf8(body).is_ok();
    let encoding = match said {
        // Servers say one of these two of everything.
        Some(encoding) if encoding == WINDOWS_1252 && is_utf8 => UTF_8,
        Some(encoding) if encoding == UTF_8 && !is_utf8 => known(declared(body)).unwrap_or(UTF_8),
        Some(encoding) => encoding,
        None => {
            let declared = wide(body).or_else(|| known(declared(body)));
            declared.filter(|encoding| *encoding != WINDOWS_1252 || !is_utf8).unwrap_or(if is_utf8 {
                UTF_8
            } else {
                WINDOWS_1252
            })
        }
    };
    read(body, encoding, unknown)
}

fn read(body: &[u8], encoding: &'static Encoding, unknown: Option<String>) -> Decoded {
    let (text, had_errors) = encoding.decode_without_bom_handling(body);
    let name = encoding.name();
    let mut warnings: Vec<String> = Vec::new();
    if let Some(label) = unknown {
        warnings.push(format!("its encoding `{}` is unknown, it was read as {name}", brief(&label)));
    }
    if had_errors {
        warnings.push(format!("not all of it is {name}"));
    }
    let warning = Some(warnings.join("; ")).filter(|warning| !warning.is_empty());
    Decoded { text: text.into_owned(), warning, is_wide: encoding == UTF_16LE || encoding == UTF_16BE }
}

/// The charset of a content type.
fn charset(content_type: &str) -> Option<String> {
    label(&content_type.to_ascii_lowercase(), "charset")
}

/// UTF-16 without a mark that begins like XML.
fn wide(body: &[u8]) -> Option<&'static Encoding> {
    match body.get(..4)? {
        [b'<', 0, b'?', 0] => Some(UTF_16LE),
        [0, b'<', 0, b'?'] => Some(UTF_16BE),
        _ => None,
    }
}

/// The encoding that the text itself declares: in an XML declaration, a `<meta>` of HTML, or the first rule of a style sheet. One that
/// is readable here is no UTF-16, whatever it says.
fn declared(body: &[u8]) -> Option<String> {
    let head =
        body.get(..PROBE).unwrap_or(body).iter().map(|byte| char::from(byte.to_ascii_lowercase())).collect::<String>();
    let found = if let Some(declaration) = head.trim_start().strip_prefix("<?xml") {
        label(declaration.split("?>").next()?, "encoding").or_else(|| meta(&head))
    } else if let Some(rule) = head.strip_prefix("@charset \"") {
        rule.split('"').next().map(ToOwned::to_owned)
    } else {
        meta(&head)
    };
    found.map(|label| if label.starts_with("utf-16") { "utf-8".to_owned() } else { label })
}

fn meta(head: &str) -> Option<String> {
    let mut rest = head;
    loop {
        let at = rest.find('<')?;
        rest = rest.get(at..)?;
        if rest.starts_with("<!--") {
            rest = rest.split_once("-->")?.1;
        } else if let Some(tag) =
            rest.strip_prefix("<meta").filter(|tag| tag.starts_with([' ', '\t', '\n', '\r', '\x0c', '/']))
        {
            if let Some(label) = label(tag.split('>').next()?, "charset") {
                return Some(label);
            }
            rest = tag;
        } else {
            rest = rest.get(1..)?;
        }
    }
}

/// The value behind `name` and `=` in a text of small letters, without quotes.
fn label(text: &str, name: &str) -> Option<String> {
    let mut rest = text;
    loop {
        rest = rest.get(rest.find(name)? + name.len()..)?;
        let Some(value) = rest.trim_start().strip_prefix('=') else { continue };
        let value = value.trim_start();
        let end = |c: char| c.is_whitespace() || matches!(c, ';' | '"' | '\'' | '>' | '?' | ',');
        let label = match value.strip_prefix(['"', '\'']) {
            Some(quoted) => quoted.split(['"', '\'']).next(),
            None => value.split(end).next(),
        };
        return label.map(str::trim).filter(|label| !label.is_empty()).map(ToOwned::to_owned);
    }
}

/// UTF-16 by its mark, or because one byte of each two in its beginning is a NUL; absent for other bytes.
pub(super) fn utf16(beginning: &[u8]) -> Option<&'static Encoding> {
    match beginning {
        // UTF-32 begins so too.
        [0xff, 0xfe, 0, 0, ..] => return None,
        [0xff, 0xfe, ..] => return Some(UTF_16LE),
        [0xfe, 0xff, ..] => return Some(UTF_16BE),
        _ => {}
    }
    let nuls = |from: usize| beginning.iter().skip(from).step_by(2).filter(|byte| **byte == 0).count();
    let (even, odd, pairs) = (nuls(0), nuls(1), beginning.len() / 2);
    let encoding = match (even, odd) {
        (0, odd) if 2 * odd > pairs => UTF_16LE,
        (even, 0) if 2 * even > pairs => UTF_16BE,
        _ => return None,
    };
    let whole = beginning.get(..2 * pairs).unwrap_or_default();
    let (text, _) = encoding.decode_without_bom_handling(whole);
    // The last character may be half of a pair.
    let is_text = text
        .trim_end_matches('\u{fffd}')
        .chars()
        .all(|c| matches!(c, '\n' | '\r' | '\t' | '\x0c') || !(c.is_control() || c == '\u{fffd}'));
    (pairs > 1 && is_text).then_some(encoding)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &[u8], content_type: &str, expect: &str) {
        let decoded = decode(body, content_type);
        assert_eq!((decoded.text.as_str(), decoded.warning), (expect, None), "{content_type}");
    }

    #[test]
    fn text_is_read_in_the_encoding_that_its_server_or_it_itself_says() {
        check("ä".as_bytes(), "text/plain", "ä");
        check("ä".as_bytes(), "text/plain; charset=iso-8859-1", "ä");
        check(b"\xe4", "text/plain; charset=iso-8859-1", "ä");
        check(b"\xe4 \x80", "text/plain", "ä €");
        check(b"\x93\xfa\x96{", "text/html; charset=Shift_JIS", "日本");
        check(b"\xc6\xfc\xcb\xdc", "text/html;charset = \"EUC-JP\"", "日本");
        check(b"\xd6\xd0", "text/plain; format=flowed; charset='gb2312'", "中");
        check(b"<meta charset=\"windows-1251\">\xcf\xf0", "text/html", "<meta charset=\"windows-1251\">Пр");
        check(
            b"<!-- <meta charset=utf-8> --><META http-equiv=Content-Type content='text/html; charset=koi8-r'/>\xd0",
            "",
            "<!-- <meta charset=utf-8> --><META http-equiv=Content-Type content='text/html; charset=koi8-r'/>п",
        );
        check(b"<metadata charset=koi8-r>\xe4", "text/html", "<metadata charset=koi8-r>ä");
        check(
            b"<?xml version='1.0' encoding='iso-8859-2'?>\xb1",
            "application/xml",
            "<?xml version='1.0' encoding='iso-8859-2'?>ą",
        );
        check(b"@charset \"iso-8859-7\";\xe1", "text/css", "@charset \"iso-8859-7\";α");
        check(b"<meta charset=utf-16>\xc3\xa4", "text/html", "<meta charset=utf-16>ä");
        check(b"\xef\xbb\xbf\xc3\xa4", "text/html; charset=shift_jis", "ä");
        check(b"\xff\xfea\0\xe4\0", "text/plain; charset=utf-8", "aä");
        check(b"\xfe\xff\0a\0\xe4", "", "aä");
        check(b"a\0\xe4\0", "text/plain; charset=utf-16le", "aä");
        check(b"<\0?\0x\0m\0l\0", "text/xml", "<?xml");
        check(b"<meta charset=koi8-r>\xd0", "text/html; charset=utf-8", "<meta charset=koi8-r>п");
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let warning = |body: &[u8], content_type: &str| decode(body, content_type).warning.unwrap_or_default();
        assert_eq!(
            warning(b"\xe4", "text/plain; charset=klingon"),
            "its encoding `klingon` is unknown, it was read as windows-1252"
        );
        assert_eq!(warning(b"<meta charset=x-y>a", "text/html"), "its encoding `x-y` is unknown, it was read as UTF-8");
        assert_eq!(
            warning(b"a", "text/plain; charset=iso-2022-kr"),
            "its encoding `iso-2022-kr` is unknown, it was read as UTF-8"
        );
        assert_eq!(warning(b"\xe4", "text/plain; charset=utf-8"), "not all of it is UTF-8");
        assert_eq!(warning(b"\x81", "text/plain; charset=shift_jis"), "not all of it is Shift_JIS");
        assert_eq!(warning(b"a", "text/plain; charset="), "");
    }

    #[test]
    fn utf16_is_known_by_its_mark_or_its_nuls() {
        let wide = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        let broad = |text: &str| text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<u8>>();
        for (bytes, expect) in [
            (wide("\u{feff}日本"), Some(UTF_16LE)),
            (broad("\u{feff}x"), Some(UTF_16BE)),
            (wide("one\r\ntwo"), Some(UTF_16LE)),
            (broad("one\ntwo"), Some(UTF_16BE)),
            (b"\xff\xfe\0\0a\0\0\0".to_vec(), None),
            (b"\x7fELF\0\0\0\0".to_vec(), None),
            (wide("a\u{1}b"), None),
            (b"plain".to_vec(), None),
            (b"a\0".to_vec(), None),
            (vec![0; 100], None),
        ] {
            assert_eq!(utf16(&bytes), expect, "{bytes:?}");
        }
    }
}
