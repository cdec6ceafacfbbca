//! Attachments of a prompt: files, listings of directories, outputs of the user's commands. Each is a text block
//! whose first line is its heading, so that people are shown the heading alone, and the model what it is. Pure.

use linger_protocol::message::ContentBlock;

/// The start of a heading. The user's own words that start so are shown whole: they are the first block.
const MARKS: [&str; 3] = ["[file ", "[directory ", "[output of "];

/// A block of something that goes with a prompt; `what` is such as `file src/main.rs, lines 1 to 4 of 9`, without line feeds.
pub(crate) fn block(what: &str, body: &str) -> ContentBlock {
    ContentBlock::text(format!("[{what}]\n{body}"))
}

/// The words of a prompt, and what goes with them, each in a few words.
pub(crate) fn shown(content: &[ContentBlock]) -> (String, Vec<String>) {
    let (mut words, mut with): (Vec<&str>, Vec<String>) = (Vec::new(), Vec::new());
    for (at, text) in content.iter().filter_map(ContentBlock::as_text).filter(|text| !text.is_empty()).enumerate() {
        match heading(text).filter(|_| at > 0) {
            Some(heading) => with.push(heading.to_owned()),
            None => words.push(text),
        }
    }
    with.extend(content.iter().filter_map(|block| match block {
        ContentBlock::ResourceLink { uri, name, .. } if uri.ends_with(name.as_str()) => Some(format!("link {uri}")),
        ContentBlock::ResourceLink { uri, name, .. } => Some(format!("link {name} ({uri})")),
        ContentBlock::Resource { uri, .. } => Some(format!("text of {uri}")),
        _ => None,
    }));
    let pictures = content.iter().filter(|block| matches!(block, ContentBlock::Image { .. })).count();
    if pictures > 0 {
        with.push(format!("{pictures} picture{}", if pictures == 1 { "" } else { "s" }));
    }
    (words.join("\n\n"), with)
}

/// The heading of a block, without its brackets; none of a text that has none.
fn heading(text: &str) -> Option<&str> {
    let line = text.lines().next()?;
    MARKS.iter().any(|mark| line.starts_with(mark)).then(|| line.strip_prefix('[')?.strip_suffix(']')).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_shown_with_the_headings_of_what_goes_with_it() {
        let content = [
            ContentBlock::text("look\nat this"),
            block("file a.rs, 2 lines", "1\tone\n2\ttwo\n"),
            ContentBlock::text("piped"),
            ContentBlock::image("image/png", ""),
            ContentBlock::ResourceLink {
                uri: "db://1".to_owned(),
                name: "row".to_owned(),
                media_type: None,
                description: None,
            },
            ContentBlock::Resource { uri: "file:///a".to_owned(), media_type: None, text: "secret".to_owned() },
        ];
        let with =
            ["file a.rs, 2 lines", "link row (db://1)", "text of file:///a", "1 picture"].map(str::to_owned).to_vec();
        assert_eq!(shown(&content), ("look\nat this\n\npiped".to_owned(), with));
        let own = [ContentBlock::text("[file of mine]\nwords")];
        assert_eq!(shown(&own), ("[file of mine]\nwords".to_owned(), Vec::new()));
    }
}
