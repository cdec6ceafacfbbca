//! `artifact/*`: files that clients put here, and what of them goes into prompts.
//!
//! An upload belongs to its connection and ends with it; its bytes are in a file that is nobody's until `artifact/finish` makes it a
//! blob. Deliberately absent: what a content type means. It is what the client said, and only the bytes tell what a model gets.

use std::collections::BTreeSet;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use linger_protocol::RpcError;
use linger_protocol::artifact::{
    Artifact, Begin, Begun, Finish, List, MAX_ARTIFACT, MAX_PIECE, MENTION, Named, Read, UNKNOWN_TYPE, Write, Written,
};
use linger_protocol::blob::Piece;
use linger_protocol::daemon::Empty;
use linger_protocol::error::Code;
use linger_protocol::id::{ArtifactId, UploadId};
use linger_protocol::message::{ContentBlock, ImageSource, image_type};
use linger_protocol::token::Can;
use sha2::{Digest as _, Sha256};

use super::upload::Upload;
use super::{Caller, Services};
use crate::store::artifact::{self, MAX_NAME, NoRoom, blob_of, is_name, is_type};
use crate::store::blob::id_of;
use crate::sys::clock;
use crate::sys::task;
use crate::tool::text::one_line;

/// The most uploads of one connection at a time; each has an open file.
const MAX_UPLOADS: usize = 8;

/// The most rows of `artifact/list`.
const MAX_ROWS: u32 = 1000;

/// The most artifacts that a prompt names.
const MAX_MENTIONS: usize = 32;

/// The largest text that goes into a prompt, in bytes: about 24,000 tokens.
const MAX_TEXT: u64 = 96 << 10;

/// How many first bytes identify an image.
const PROBE: u64 = 16;

/// The length of a UUID in text.
const UUID: usize = 36;

/// Begins to put an artifact here.
pub async fn begin(services: &Services, caller: &Caller, params: Begin) -> Result<Begun, RpcError> {
    let Begin { name, content_type, size } = params;
    let name = name.unwrap_or_else(|| "artifact".to_owned());
    if !is_name(&name) {
        return Err(RpcError::new(
            Code::BadName,
            format!("an artifact has the name of a file, of at most {MAX_NAME} bytes"),
        )
        .hint("leave the directories out"));
    }
    let content_type = content_type.unwrap_or_else(|| UNKNOWN_TYPE.to_owned());
    if !is_type(&content_type) {
        return Err(
            RpcError::new(Code::BadValue, "that is no content type").hint("write it as text/plain or image/png")
        );
    }
    has_room(services, size.unwrap_or_default()).await?;
    let blobs = services.store.blobs.clone();
    let file = task::spawn_blocking(move || blobs.begin()).await.map_err(failed)?.map_err(failed)?;
    let id = UploadId(clock::random_word(20));
    let upload = Upload { id: id.clone(), name, content_type, file: Some(file), hash: Sha256::new(), size: 0 };
    let mut uploads = caller.uploads();
    if uploads.len() >= MAX_UPLOADS {
        let error = RpcError::new(Code::TooMuch, format!("this connection has {MAX_UPLOADS} uploads already"));
        return Err(error.hint("finish some, or open another connection"));
    }
    uploads.push(upload);
    Ok(Begun { upload: id })
}

/// Writes the next piece.
pub async fn write(_: &Services, caller: &Caller, params: Write) -> Result<Written, RpcError> {
    let Write { upload, offset, data } = params;
    let bytes = BASE64.decode(data).map_err(|_| RpcError::new(Code::BadValue, "the piece is not base64"))?;
    if bytes.len() as u64 > MAX_PIECE {
        return Err(
            RpcError::new(Code::TooMuch, format!("a piece may have {MAX_PIECE} bytes")).hint("send it in smaller ones")
        );
    }
    let mut file = {
        let mut uploads = caller.uploads();
        let found = uploads.iter_mut().find(|it| it.id == upload).ok_or_else(|| unknown_upload(&upload))?;
        if offset != found.size {
            let text = format!("the piece is for byte {offset}, and {} came before it", found.size);
            return Err(RpcError::new(Code::BadValue, text).hint("send the pieces one after the other"));
        }
        if found.size + bytes.len() as u64 > MAX_ARTIFACT {
            return Err(too_large());
        }
        found.file.take().ok_or_else(|| {
            RpcError::new(Code::Busy, "another piece of this upload is being written").hint("wait for its answer")
        })?
    };
    let wrote = task::spawn_blocking(move || file.write_all(&bytes).map(|()| (file, bytes))).await;
    let wrote = wrote.map_err(failed).and_then(|wrote| wrote.map_err(failed));
    let mut uploads = caller.uploads();
    let Some(at) = uploads.iter().position(|it| it.id == upload) else { return Err(unknown_upload(&upload)) };
    match (wrote, uploads.get_mut(at)) {
        (Ok((file, bytes)), Some(found)) => {
            found.file = Some(file);
            found.hash.update(&bytes);
            found.size += bytes.len() as u64;
            Ok(Written { size: found.size })
        }
        // A part of the piece may be in the file.
        (Err(error), _) => {
            uploads.remove(at);
            Err(error)
        }
        (Ok(_), None) => Err(unknown_upload(&upload)),
    }
}

/// Makes an artifact of what was written.
pub async fn finish(services: &Services, caller: &Caller, params: Finish) -> Result<Artifact, RpcError> {
    let Finish { upload, sha256 } = params;
    let found = {
        let mut uploads = caller.uploads();
        let at = uploads.iter().position(|it| it.id == upload && it.file.is_some());
        at.map(|at| uploads.remove(at)).ok_or_else(|| unknown_upload(&upload))?
    };
    let Upload { name, content_type, file, hash, size, .. } = found;
    let Some(file) = file else { return Err(unknown_upload(&upload)) };
    let blob = id_of(&hash.finalize());
    let hash = blob.as_str().strip_prefix("sha256:").unwrap_or_default().to_owned();
    if let Some(expected) = sha256.filter(|expected| !expected.eq_ignore_ascii_case(&hash)) {
        let text = format!("the bytes have the SHA-256 {hash}, and not {}", one_line(&expected));
        return Err(RpcError::new(Code::WrongDigest, text).hint("begin again: nothing was kept"));
    }
    has_room(services, size).await?;
    let (blobs, of) = (services.store.blobs.clone(), blob.clone());
    let held = task::spawn_blocking(move || blobs.adopt(file.into_temp_path(), of, size)).await;
    let held = held.map_err(failed)?.map_err(failed)?;
    let id = ArtifactId(artifact::uuid().map_err(failed)?);
    let artifact = Artifact { id, name, content_type, size, sha256: hash, created_at: clock::now(), by: caller.name() };
    services.store.add_artifact(artifact.clone(), held).await?.map_err(no_room)?;
    tracing::info!(target: "artifact", id = %artifact.id, size, by = artifact.by, "stored");
    Ok(artifact)
}

/// The description of an artifact, without its bytes.
pub async fn get(services: &Services, caller: &Caller, params: Named) -> Result<Artifact, RpcError> {
    find(services, caller, params.id).await
}

/// A piece of an artifact.
pub async fn read(services: &Services, caller: &Caller, params: Read) -> Result<Piece, RpcError> {
    let artifact = find(services, caller, params.id).await?;
    let length = params.length.unwrap_or(MAX_PIECE).min(MAX_PIECE);
    let offset = params.offset.unwrap_or_default();
    let bytes = bytes(services, &artifact, offset, length).await?;
    let end = offset.saturating_add(bytes.len() as u64);
    let next = (end < artifact.size && !bytes.is_empty()).then_some(end);
    Ok(Piece { data: BASE64.encode(bytes), size: artifact.size, next })
}

/// The artifacts, the latest first.
pub async fn list(services: &Services, caller: &Caller, params: List) -> Result<Vec<Artifact>, RpcError> {
    let limit = params.limit.unwrap_or(MAX_ROWS).min(MAX_ROWS);
    Ok(services.store.artifacts(limit, params.before, caller.only_own()).await?)
}

/// Deletes an artifact.
pub async fn delete(services: &Services, caller: &Caller, params: Named) -> Result<Empty, RpcError> {
    let artifact = find(services, caller, params.id).await?;
    if caller.token().is_some_and(|token| !token.grant.may(Can::Administer)) && artifact.by != caller.name() {
        return Err(RpcError::new(Code::NotAllowed, "another client put this artifact here")
            .hint("a token that may `administer`, or `linger artifact rm` in a terminal, deletes it"));
    }
    tracing::info!(target: "artifact", id = %artifact.id, by = caller.name(), "deleted");
    services.store.delete_artifact(artifact).await?;
    Ok(Empty {})
}

/// The blocks that a prompt's mentions stand for, which follow what it says.
pub(super) async fn mentioned(
    services: &Services,
    caller: &Caller,
    blocks: &[ContentBlock],
) -> Result<Vec<ContentBlock>, RpcError> {
    let texts = blocks.iter().filter_map(ContentBlock::as_text);
    let named: Vec<ArtifactId> = texts.flat_map(mentions).collect();
    let (mut seen, mut added) = (BTreeSet::new(), Vec::new());
    for id in named {
        if !seen.insert(id.clone()) {
            continue;
        }
        if seen.len() > MAX_MENTIONS {
            return Err(RpcError::new(Code::TooMuch, format!("a prompt may name {MAX_MENTIONS} artifacts")));
        }
        caller.must_be_outside(services, "read an artifact")?;
        let artifact = find(services, caller, id).await?;
        added.push(block(services, &artifact).await?);
    }
    Ok(added)
}

/// Whether the texts name an artifact.
pub(super) fn are_mentioned(blocks: &[ContentBlock]) -> bool {
    blocks.iter().filter_map(ContentBlock::as_text).any(|text| mentions(text).next().is_some())
}

/// The ids that stand behind `artifact:` in a text.
fn mentions(text: &str) -> impl Iterator<Item = ArtifactId> {
    text.match_indices(MENTION).filter_map(|(at, _)| {
        let id = text.get(at + MENTION.len()..)?.get(..UUID)?;
        let groups: Vec<usize> = id.split('-').map(str::len).collect();
        let is_uuid = groups == [8, 4, 4, 4, 12] && id.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
        is_uuid.then(|| ArtifactId(id.to_ascii_lowercase()))
    })
}

/// The block for a model: a picture, or a text file.
async fn block(services: &Services, artifact: &Artifact) -> Result<ContentBlock, RpcError> {
    let probe = bytes(services, artifact, 0, PROBE).await?;
    if let Some(media_type) = image_type(&probe) {
        let source = ImageSource::Blob { blob: blob_of(artifact), bytes: artifact.size };
        return Ok(ContentBlock::Image { media_type: media_type.to_owned(), source });
    }
    let bad = |why: String| RpcError::new(Code::BadPrompt, format!("artifact {}: {why}", artifact.id));
    if artifact.size > MAX_TEXT {
        return Err(bad(format!(
            "{} bytes are too many for a prompt, which takes {MAX_TEXT} of a text",
            artifact.size
        ))
        .hint("`linger artifact get` writes it to a file, which the agent can read"));
    }
    let bytes = bytes(services, artifact, 0, MAX_TEXT).await?;
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    let text = text.ok_or_else(|| {
        bad("is neither text nor a picture that models take".to_owned())
            .hint("`linger artifact get` writes it to a file, which the agent can read")
    })?;
    let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
    let name = one_line(&artifact.name);
    Ok(ContentBlock::text(format!("<file artifact=\"{}\" name=\"{name}\">\n{text}{end}</file>", artifact.id)))
}

async fn bytes(services: &Services, artifact: &Artifact, offset: u64, length: u64) -> Result<Vec<u8>, RpcError> {
    let (blobs, blob) = (services.store.blobs.clone(), blob_of(artifact));
    let of = blob.clone();
    let read = task::spawn_blocking(move || blobs.check(&of).and_then(|()| blobs.read(&of, offset, length))).await;
    let read = read.map_err(failed)?.map_err(|error| services.store.lost_blob(&blob, error))?;
    services.store.found.blob_is_well(&blob);
    Ok(read)
}

/// An artifact that the caller may see.
async fn find(services: &Services, caller: &Caller, id: ArtifactId) -> Result<Artifact, RpcError> {
    let found = services.store.artifact(ArtifactId(id.0.to_ascii_lowercase())).await?;
    let is_seen = |artifact: &Artifact| caller.only_own().is_none_or(|own| artifact.by == own);
    found.filter(is_seen).ok_or_else(|| {
        RpcError::new(Code::UnknownArtifact, format!("there is no artifact '{}'", id.0.escape_default()))
            .hint("`linger artifact ls` lists them")
    })
}

async fn has_room(services: &Services, size: u64) -> Result<(), RpcError> {
    let all = services.store.artifact_bytes().await?;
    artifact::fits(size, all).map_err(no_room)
}

fn no_room(why: NoRoom) -> RpcError {
    match why {
        NoRoom::Each => too_large(),
        NoRoom::All => RpcError::new(Code::TooMuch, why.to_string()).hint("`linger artifact rm` deletes some"),
    }
}

fn too_large() -> RpcError {
    RpcError::new(Code::TooMuch, NoRoom::Each.to_string())
}

fn unknown_upload(upload: &UploadId) -> RpcError {
    RpcError::new(Code::UnknownArtifact, format!("this connection has no upload '{}'", upload.0.escape_default()))
        .hint("an upload ends with its connection: begin again with artifact/begin")
}

fn failed(error: impl std::fmt::Display) -> RpcError {
    RpcError::new(Code::Storage, format!("the artifact cannot be stored: {error}"))
        .hint("check whether the disk is full; `linger doctor` reports more")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_uuid_of_version_4_and_is_found_in_a_text() {
        for _ in 0..100 {
            let id = artifact::uuid().unwrap();
            assert!(id.len() == UUID && id.as_bytes()[14] == b'4' && b"89ab".contains(&id.as_bytes()[19]), "{id}");
            let text = format!("look at artifact:{id}, and artifact:{}", id.to_uppercase());
            assert_eq!(mentions(&text).map(|it| it.0).collect::<Vec<_>>(), [id.clone(), id]);
        }
        for text in ["artifact:", "artifact:x", "artifact:00000000-0000-0000-0000-00000000000g", "artifact: é"] {
            assert_eq!(mentions(text).count(), 0, "{text}");
        }
    }
}
