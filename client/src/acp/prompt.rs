//! The editor's content blocks as a prompt.

use agent_client_protocol_schema::v1::{ContentBlock as Block, EmbeddedResourceResource, ResourceLink};
use linger_protocol::message::ContentBlock;
use linger_protocol::prompt::PromptContent;

/// The prompt that these blocks are. Fails, in words, on a block that prompts do not have.
pub(super) fn content(blocks: Vec<Block>) -> Result<PromptContent, String> {
    let blocks = blocks.into_iter().map(block).collect::<Result<Vec<_>, _>>()?;
    match blocks.as_slice() {
        // A text alone may name a command.
        [ContentBlock::Text { text }] => Ok(PromptContent::Text(text.clone())),
        _ => Ok(PromptContent::Blocks(blocks)),
    }
}

fn block(block: Block) -> Result<ContentBlock, String> {
    match block {
        Block::Text(text) => Ok(ContentBlock::text(text.text)),
        Block::Image(image) => Ok(ContentBlock::image(image.mime_type, image.data)),
        Block::ResourceLink(link) => Ok(ContentBlock::text(named(&link))),
        Block::Resource(embedded) => match embedded.resource {
            EmbeddedResourceResource::TextResourceContents(it) => {
                Ok(ContentBlock::text(format!("{}:\n{}", path(&it.uri), fenced(&it.text))))
            }
            EmbeddedResourceResource::BlobResourceContents(it) => match it.mime_type {
                Some(kind) if kind.starts_with("image/") => Ok(ContentBlock::image(kind, it.blob)),
                _ => Err(format!("{} is neither text nor an image", it.uri)),
            },
            _ => Err("a kind of resource that linger does not know".to_owned()),
        },
        Block::Audio(_) => Err("linger takes no audio".to_owned()),
        _ => Err("a kind of content that linger does not know".to_owned()),
    }
}

/// A link, as the model reads it: it may read the file itself.
fn named(link: &ResourceLink) -> String {
    let at = path(&link.uri);
    if at.ends_with(&link.name) { format!("@{at}") } else { format!("@{at} ({})", link.name) }
}

/// The path of a file's address, or the address.
fn path(uri: &str) -> &str {
    uri.strip_prefix("file://").unwrap_or(uri)
}

/// A text between fences that it does not have itself.
fn fenced(text: &str) -> String {
    let longest = text.lines().map(|line| line.len() - line.trim_start_matches('`').len()).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}")
}
