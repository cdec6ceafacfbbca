//! The events of a database whose tables cannot be walked, read page by page.
//!
//! A table is a tree of pages: one damaged page hides all pages below it, although their rows are intact. Each page says where its
//! rows begin, and each row which columns it has (<https://sqlite.org/fileformat.html>, 1.6 and 2.1). A row counts if it has the
//! columns of `event` and its checksum is right, so no other bytes pass for an event.
//! Free pages hold removed rows and are skipped. No input makes this panic, and each page is read a few times at most.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use crate::store::event_row::sum;

/// The page size of every linger database, in bytes: SQLite's default. All of it is usable for rows.
pub(super) const PAGE_SIZE: usize = 4096;
const USABLE: u64 = PAGE_SIZE as u64;

/// If a row continues on other pages, at least this much of it is on its own page, and at most this much (1.6).
const LEAST: u64 = (USABLE - 12) * 32 / 255 - 23;
const MOST: u64 = USABLE - 35;

/// The type of a leaf page of a table (1.6).
const TABLE_LEAF: u8 = 0x0d;

/// The longest row, in bytes; the longest event has an eighth of it.
const MAX_ROW: u64 = 256 << 20;

/// Columns of `event`.
const COLUMNS: usize = 8;

/// How often an overflow page may be read, on average: once, unless damaged rows share one.
const READS: u64 = 4;

/// The pointer map's entry of a free page, and how many pages one page of the map describes (1.8).
const FREE: [u8; 5] = [2, 0, 0, 0, 0];
const POINTERS: u32 = PAGE_SIZE as u32 / 5;

/// Copies every event in the database `file` to `target`. Fails if nothing can be written.
pub(super) fn gather(file: &Path, target: &Connection) -> anyhow::Result<()> {
    let mut pages = Pages::open(file)?;
    let mut insert = target.prepare(
        "INSERT OR IGNORE INTO event (session, seq, at, kind, stream, data, sum) VALUES (?, ?, ?, ?, ?, ?, ?)",
    )?;
    // The first page has the schema. An unreadable page counts as damaged.
    for number in 2..=pages.count {
        let Some(page) = pages.read(number).filter(|_| !pages.is_free(number)) else { continue };
        for at in cells(&page) {
            let row = pages.row(&page, at);
            if let Some([_, session, seq, at, kind, stream, data, written]) = row.as_deref()
                && let (Value::Text(id), Value::Text(text), Value::Integer(written_sum)) = (session, data, written)
                && sum(id.as_bytes(), text) == *written_sum
            {
                insert.execute(params_from_iter([session, seq, at, kind, stream, data, written]))?;
            }
        }
    }
    Ok(())
}

/// The pages of a database.
struct Pages {
    file: File,
    count: u32,
    /// How many overflow pages may still be read.
    reads: u64,
}

impl Pages {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let count = u32::try_from(file.metadata()?.len() / USABLE).unwrap_or(u32::MAX);
        Ok(Self { file, count, reads: u64::from(count) * READS })
    }

    fn read(&self, number: u32) -> Option<Vec<u8>> {
        let mut page = vec![0; PAGE_SIZE];
        let read = self.file.read_exact_at(&mut page, u64::from(number.checked_sub(1)?) * USABLE);
        read.ok().map(|()| page)
    }

    /// Whether the pointer map says that a page is free.
    fn is_free(&self, number: u32) -> bool {
        let place = (number - 2) % (POINTERS + 1);
        let entry = || {
            let page = self.read(number - place)?;
            let at = (place as usize).checked_sub(1)? * FREE.len();
            Some(page.get(at..at + FREE.len())? == FREE)
        };
        entry().unwrap_or(false)
    }

    /// The row at this place of a page, if it has the columns of an event.
    fn row(&mut self, page: &[u8], at: usize) -> Option<Vec<Value>> {
        let (length, at) = varint(page, at)?;
        let (_number, at) = varint(page, at)?;
        if length > MAX_ROW {
            return None;
        }
        let split = LEAST + length.saturating_sub(LEAST) % (USABLE - 4);
        let here = if length <= MOST { length } else { Some(split).filter(|here| *here <= MOST).unwrap_or(LEAST) };
        let end = at.checked_add(usize::try_from(here).ok()?)?;
        let mut row = page.get(at..end)?.to_vec();
        // The types are at the beginning of a row, always on this page.
        let (types, mut at) = types(&row)?;
        if types.iter().try_fold(at as u64, |sum, kind| sum.checked_add(size(*kind))) != Some(length) {
            return None;
        }
        let mut next = if here < length { number_at(page, end)? } else { 0 };
        while (row.len() as u64) < length {
            self.reads = self.reads.checked_sub(1)?;
            let more = self.read(next).filter(|_| (2..=self.count).contains(&next))?;
            let wanted = usize::try_from((length - row.len() as u64).min(USABLE - 4)).ok()?;
            row.extend_from_slice(more.get(4..4 + wanted)?);
            next = number_at(&more, 0)?;
        }
        let mut values = Vec::with_capacity(COLUMNS);
        for kind in types {
            let end = at.checked_add(usize::try_from(size(kind)).ok()?)?;
            values.push(value(kind, row.get(at..end)?)?);
            at = end;
        }
        Some(values)
    }
}

/// The places of a leaf page where its rows begin.
fn cells(page: &[u8]) -> Vec<usize> {
    let two = |at: usize| Some(usize::from(u16::from_be_bytes(page.get(at..at + 2)?.try_into().ok()?)));
    let count = two(3).filter(|_| page.first() == Some(&TABLE_LEAF)).unwrap_or(0);
    (0..count).map_while(|n| two(8 + n * 2)).collect()
}

/// The types of a row's columns, and where the first column begins (2.1), if they are those of an event.
fn types(row: &[u8]) -> Option<(Vec<u64>, usize)> {
    let (length, mut at) = varint(row, 0)?;
    let end = usize::try_from(length).ok().filter(|end| *end <= row.len())?;
    let mut types = Vec::with_capacity(COLUMNS);
    while at < end && types.len() < COLUMNS {
        let (kind, next) = varint(row, at)?;
        types.push(kind);
        at = next;
    }
    let is_text = |kind: u64| kind >= 13 && kind % 2 == 1;
    let is_number = |kind: u64| matches!(kind, 1..=6 | 8 | 9);
    let is_event = matches!(types[..], [0, session, seq, at, kind, stream, data, sum]
        if [session, kind, data].into_iter().all(is_text) && [seq, at, sum].into_iter().all(is_number)
            && (stream == 0 || is_text(stream)));
    (at == end && is_event).then_some((types, end))
}

/// How many bytes a column of this type has.
fn size(kind: u64) -> u64 {
    match kind {
        ..=4 => kind,
        5 => 6,
        6 => 8,
        _ => kind.saturating_sub(13) / 2,
    }
}

fn value(kind: u64, bytes: &[u8]) -> Option<Value> {
    let first = bytes.first().map_or(0, |byte| i64::from(*byte as i8));
    match kind {
        0 => Some(Value::Null),
        8 | 9 => Some(Value::Integer(i64::from(kind == 9))),
        1..=6 => Some(Value::Integer(bytes.iter().skip(1).fold(first, |sum, byte| sum << 8 | i64::from(*byte)))),
        _ => std::str::from_utf8(bytes).ok().map(|text| Value::Text(text.to_owned())),
    }
}

/// A number of one to nine bytes, and where the next field begins (1.6).
fn varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut number = 0;
    for n in 0..8 {
        let byte = *bytes.get(at.checked_add(n)?)?;
        number = number << 7 | u64::from(byte & 0x7f);
        if byte < 0x80 {
            return Some((number, at + n + 1));
        }
    }
    let last = *bytes.get(at + 8)?;
    Some((number << 8 | u64::from(last), at + 9))
}

fn number_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

#[cfg(test)]
#[path = "pages_tests.rs"]
mod tests;
