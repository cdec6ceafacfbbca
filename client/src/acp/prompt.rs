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
        Block::ResourceLink(ResourceLink { uri, name, mime_type, description, .. }) => {
            Ok(ContentBlock::ResourceLink { uri, name, media_type: mime_type, description })
        }
        Block::Resource(embedded) => match embedded.resource {
            EmbeddedResourceResource::TextResourceContents(it) => {
                Ok(ContentBlock::Resource { uri: it.uri, media_type: it.mime_type, text: it.text })
            }
            EmbeddedResourceResource::BlobResourceContents(it) => match it.mime_type {
                Some(kind) if kind.starts_with("image/") => Ok(ContentBlock::image(kind, it.blob)),
                _ => Err(format!("{} is neither text nor an image", it.uri)),
            },
            _ => Err("an unknown kind of resource".to_owned()),
        },
        Block::Audio(_) => Err("linger does not accept audio".to_owned()),
        _ => Err("an unknown kind of content".to_owned()),
    }
}
