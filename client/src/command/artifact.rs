//! `linger artifact`: files kept by the daemon, for prompts and other programs.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use linger_protocol::artifact::{self, Begin, Finish, MAX_ARTIFACT, MAX_PIECE, Named, UNKNOWN_TYPE, Write};
use linger_protocol::method::{
    ArtifactBegin, ArtifactDelete, ArtifactFinish, ArtifactList, ArtifactRead, ArtifactWrite,
};

use super::output::print_value;
use crate::arguments::Artifact;
use crate::connect::Client;
use crate::environment::now;
use crate::error::{Exit, Failure};
use crate::render::table::{age, columns, size};
use crate::terminal::{Terminal, clean_line};

/// Characters that a prefix of an id needs: with a thousand artifacts, four match one by chance in 60.
const MIN_PREFIX: usize = 4;

/// Media types by file extension; other files are plain bytes.
const TYPES: &[(&str, &str)] = &[
    ("txt", "text/plain"),
    ("log", "text/plain"),
    ("md", "text/markdown"),
    ("csv", "text/csv"),
    ("json", "application/json"),
    ("html", "text/html"),
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("pdf", "application/pdf"),
    ("zip", "application/zip"),
    ("gz", "application/gzip"),
];

pub(super) fn run(command: Artifact) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    match command {
        Artifact::Put { file, name, content_type, json } => put(&mut client, &file, name, content_type, json),
        Artifact::Get { artifact, output } => get(&mut client, &artifact, output),
        Artifact::Ls(args) => list(&mut client, args.json),
        Artifact::Rm { artifacts, json } => remove(&mut client, &artifacts, json),
    }
}

fn put(
    client: &mut Client,
    file: &Path,
    name: Option<String>,
    content_type: Option<String>,
    json: bool,
) -> Result<Exit, Failure> {
    let shown = clean_line(&file.to_string_lossy()).into_owned();
    let failed = |error: io::Error| Failure::new(Exit::FAILED, format!("{shown}: {error}"));
    let is_stdin = file == Path::new("-");
    let (mut source, bytes): (Box<dyn io::Read>, Option<u64>) = if is_stdin {
        (Box::new(io::stdin()), None)
    } else {
        let opened = File::open(file).map_err(failed)?;
        let meta = opened.metadata().map_err(failed)?;
        if meta.is_dir() {
            return Err(Failure::usage(format!("{shown} is a directory")).hint("pack it first, such as with tar"));
        }
        (Box::new(opened), meta.is_file().then_some(meta.len()))
    };
    let own = || file.file_name().filter(|_| !is_stdin).map(|name| name.to_string_lossy().into_owned());
    let name = name.or_else(own);
    let content_type = content_type.unwrap_or_else(|| type_of(name.as_deref().unwrap_or_default()).to_owned());
    let begin = Begin { name, content_type: Some(content_type), size: bytes };
    let upload = client.call(&ArtifactBegin(begin))?.upload;
    let (mut offset, mut piece) = (0, Vec::new());
    loop {
        piece.clear();
        source.by_ref().take(MAX_PIECE).read_to_end(&mut piece).map_err(failed)?;
        if piece.is_empty() {
            break;
        }
        if offset + piece.len() as u64 > MAX_ARTIFACT {
            return Err(Failure::new(Exit::FAILED, format!("{shown} has more than {}", size(MAX_ARTIFACT)))
                .hint("an artifact can have 64 MiB; nothing was stored"));
        }
        let write = Write { upload: upload.clone(), offset, data: BASE64.encode(&piece) };
        offset = client.call(&ArtifactWrite(write))?.size;
    }
    let stored = client.call(&ArtifactFinish(Finish { upload, sha256: None }))?;
    if json {
        print_value(&stored)?;
        return Ok(Exit::GOOD);
    }
    let mut terminal = Terminal::new();
    terminal.data(stored.id.as_str())?;
    terminal.say(&format!(
        "{}, {}; in a prompt, write artifact:{}",
        clean_line(&stored.name),
        size(stored.size),
        stored.id
    ))?;
    Ok(Exit::GOOD)
}

fn get(client: &mut Client, named: &str, output: Option<PathBuf>) -> Result<Exit, Failure> {
    let found = find(client, named)?;
    let mut terminal = Terminal::new();
    if output.is_none() && terminal.is_shown() {
        return Err(Failure::usage("binary data is not printed on a terminal")
            .hint(format!("`linger artifact get {named} -o FILE` writes them to a file")));
    }
    let mut file = match &output {
        None => None,
        Some(path) => {
            let file = OpenOptions::new().write(true).create_new(true).open(path);
            let shown = clean_line(&path.to_string_lossy()).into_owned();
            Some(file.map_err(|error| Failure::new(Exit::FAILED, format!("{shown}: {error}")))?)
        }
    };
    let mut offset = Some(0);
    while offset.is_some() {
        let read = artifact::Read { id: found.id.clone(), offset, length: None };
        let piece = client.call(&ArtifactRead(read))?;
        let bytes =
            BASE64.decode(&piece.data).map_err(|_| Failure::new(Exit::FAILED, "the daemon's answer is not base64"))?;
        match &mut file {
            Some(file) => file.write_all(&bytes)?,
            None => terminal.bytes(&bytes)?,
        }
        offset = piece.next;
    }
    Ok(Exit::GOOD)
}

fn list(client: &mut Client, json: bool) -> Result<Exit, Failure> {
    let rows = all(client)?;
    let mut terminal = Terminal::new();
    if json {
        for row in &rows {
            print_value(row)?;
        }
        return Ok(Exit::GOOD);
    }
    if rows.is_empty() {
        terminal.say("no artifacts yet; `linger artifact put FILE` stores one")?;
    }
    let now = now();
    let cells = |row: &artifact::Artifact| {
        let made = format!("{} ago by {}", age(row.created_at, now), row.by);
        vec![row.id.0.clone(), size(row.size), row.content_type.clone(), row.name.clone(), made]
    };
    for line in columns(&rows.iter().map(cells).collect::<Vec<_>>()) {
        terminal.line(&clean_line(&line))?;
    }
    Ok(Exit::GOOD)
}

fn remove(client: &mut Client, named: &[String], json: bool) -> Result<Exit, Failure> {
    // Resolve all names before deleting anything.
    let found = named.iter().map(|named| find(client, named)).collect::<Result<Vec<_>, Failure>>()?;
    for artifact in found {
        client.call(&ArtifactDelete(Named { id: artifact.id.clone() }))?;
        if json {
            print_value(&artifact)?;
        }
    }
    Ok(Exit::GOOD)
}

/// All artifacts, page by page.
fn all(client: &mut Client) -> Result<Vec<artifact::Artifact>, Failure> {
    let (mut rows, mut before) = (Vec::new(), None);
    loop {
        let page = client.call(&ArtifactList(artifact::List { limit: None, before }))?;
        let Some(last) = page.last() else { return Ok(rows) };
        before = Some(artifact::Before { created_at: last.created_at, id: last.id.clone() });
        rows.extend(page);
    }
}

fn find(client: &mut Client, named: &str) -> Result<artifact::Artifact, Failure> {
    let shown = clean_line(named).into_owned();
    if named.chars().count() < MIN_PREFIX {
        return Err(Failure::usage(format!("'{shown}' is too short: write at least four characters of the id")));
    }
    let begins = |row: &artifact::Artifact| row.id.as_str().starts_with(&named.to_ascii_lowercase());
    let mut found: Vec<artifact::Artifact> = all(client)?.into_iter().filter(begins).collect();
    match (found.pop(), found.len()) {
        (Some(one), 0) => Ok(one),
        (Some(_), more) => {
            Err(Failure::usage(format!("'{shown}' matches {} artifacts", more + 1)).hint("write more of the id"))
        }
        (None, _) => {
            Err(Failure::new(Exit::FAILED, format!("no artifact '{shown}'")).hint("`linger artifact ls` lists them"))
        }
    }
}

/// The media type of a file, by its extension.
fn type_of(name: &str) -> &'static str {
    let ending = Path::new(name).extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    let known = TYPES.iter().find(|(known, _)| ending.as_deref() == Some(known));
    known.map_or(UNKNOWN_TYPE, |(_, content_type)| content_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_tells_the_media_type() {
        let types = ["a.TXT", "b.tar.gz", "c", ".png", "d.png"].map(type_of);
        assert_eq!(types, ["text/plain", "application/gzip", UNKNOWN_TYPE, UNKNOWN_TYPE, "image/png"]);
    }
}
