//! The rows of a database whose tables cannot be walked: each page of the file by itself.
//!
//! A table is a tree of pages, and one page that is damaged hides all that lies below it. The rows themselves are whole: each page
//! says where its own begin, and each row which columns it has (<https://sqlite.org/fileformat.html>, 1.5, 1.6 and 2.1). A row of
//! [`Table`] is taken if its columns have that table's types and fill the row to the byte, and an event only if it is what its
//! columns say; nothing that is read can make this panic, and each page is read a few times at most.
//! Pages that are free are left out, or what was deleted would come back: which ones are, the pages of pointers say.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use serde::Deserialize;

use crate::store::event_row;

/// The size of a page in every linger database, in bytes: SQLite's own.
pub(super) const PAGE_SIZE: usize = 4096;

/// What of a page rows use: linger's databases keep nothing at its end.
const USABLE: u64 = PAGE_SIZE as u64;

/// How much of a row is on its own page at least if it goes on elsewhere, and at most: in an index, which is what a table by key is
/// too, and in a table by number (same place, 1.6).
const LEAST: u64 = (USABLE - 12) * 32 / 255 - 23;
const MOST_OF_INDEX: u64 = (USABLE - 12) * 64 / 255 - 23;
const MOST_OF_TABLE: u64 = USABLE - 35;

/// Kinds of pages that have rows.
const INDEX_INTERIOR: u8 = 0x02;
const INDEX_LEAF: u8 = 0x0a;
const TABLE_LEAF: u8 = 0x0d;

/// The longest row, in bytes; the longest event has an eighth of it.
const MAX_ROW: u64 = 256 << 20;

/// Columns of the table with most of them, and some.
const MAX_COLUMNS: usize = 16;

/// How often a page that rows go on in may be read: once, but for those that two damaged rows point to.
const READS: u64 = 4;

/// What a page of pointers says of a page that is free (same place, 1.8), and how many pages it speaks of.
const FREE: [u8; 5] = [2, 0, 0, 0, 0];
const POINTERS: u32 = PAGE_SIZE as u32 / 5;

/// The tables whose rows are wanted; whatever else is stored of a session follows from its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Table {
    Event,
    Scratch,
    Session,
    Outcome,
    Usage,
}

impl Table {
    /// The one that has rows of these columns: `t` text, `i` a number, `n` nothing. A column that numbers its rows has nothing.
    fn of(columns: &str) -> Option<Self> {
        match columns {
            "ntiitnti" | "ntiittti" => Some(Self::Event),
            "ttiitt" => Some(Self::Scratch),
            "ntttti" => Some(Self::Outcome),
            "ittiiiiiini" | "ittiiiiiiii" => Some(Self::Usage),
            _ => {
                let fixed = columns.get(..8).filter(|_| columns.len() == 11)?;
                matches!(fixed, "tnttitti" | "ttttitti").then_some(Self::Session)
            }
        }
    }

    /// Takes a row into a database of today's schema, unless it is there. Names come from the events.
    fn sql(self) -> &'static str {
        match self {
            Self::Event => {
                "INSERT OR IGNORE INTO event (session, seq, at, kind, stream, data, sum)
                 VALUES (?2, ?3, ?4, ?5, ?6, ?7, ?8)"
            }
            Self::Scratch => "INSERT OR IGNORE INTO scratch VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            Self::Session => {
                "INSERT INTO session (id, cwd, state, updated_at, env, fold, size, parent, origin, origin_seq)
                 VALUES (?1, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
                 ON CONFLICT (id) DO UPDATE SET state = ?4, updated_at = ?5, fold = ?7, size = ?8 WHERE ?5 > updated_at"
            }
            Self::Outcome => {
                "INSERT OR IGNORE INTO outcome (key, session, params, result, at) VALUES (?2, ?3, ?4, ?5, ?6)"
            }
            Self::Usage => "INSERT OR IGNORE INTO usage VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        }
    }

    /// Whether its rows are in a table by number, and not in one by key.
    fn is_numbered(self) -> bool {
        matches!(self, Self::Event | Self::Outcome)
    }
}

/// Puts every row that can be found in the database `file` into `target`; how many there are.
pub(super) fn gather(file: &Path, target: &Connection) -> anyhow::Result<u64> {
    let mut pages = Pages::open(file)?;
    let transaction = target.unchecked_transaction()?;
    let mut found = 0;
    // The first one has the schema.
    for number in 2..=pages.count {
        // What the disk cannot give back is as good as damaged.
        let Some(page) = pages.read(number).filter(|_| !pages.is_free(number)) else { continue };
        for at in cells(&page) {
            let Some((table, row)) = pages.row(&page, at) else { continue };
            // Of two that have one number the one that is as it was written is wanted; the other tells that there was one.
            let sql = match is_as_written(&row) {
                true => table.sql().replace("OR IGNORE", "OR REPLACE"),
                false => table.sql().to_owned(),
            };
            let mut insert = transaction.prepare_cached(&sql)?;
            let columns = row.iter().chain([&Value::Null]).take(insert.parameter_count());
            found += insert.execute(params_from_iter(columns))? as u64;
        }
    }
    transaction.commit()?;
    Ok(found)
}

/// The pages of a database.
struct Pages {
    file: File,
    count: u32,
    /// How many pages may yet be read that rows go on in.
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

    /// Whether nothing lives on this page any more.
    fn is_free(&self, number: u32) -> bool {
        let place = (number - 2) % (POINTERS + 1);
        let entry = || {
            let page = self.read(number - place)?;
            let at = (place as usize).checked_sub(1)? * FREE.len();
            Some(page.get(at..at + FREE.len())? == FREE)
        };
        entry().unwrap_or(false)
    }

    /// The row at this place of a page, if it is one of those that are wanted.
    fn row(&mut self, page: &[u8], at: usize) -> Option<(Table, Vec<Value>)> {
        let kind = *page.first()?;
        let (length, at) = varint(page, if kind == INDEX_INTERIOR { at.checked_add(4)? } else { at })?;
        let (at, most) = match kind {
            TABLE_LEAF => (varint(page, at)?.1, MOST_OF_TABLE),
            _ => (at, MOST_OF_INDEX),
        };
        if length > MAX_ROW {
            return None;
        }
        let here = match length {
            ..=LEAST => length,
            _ if length <= most => length,
            _ => Some(LEAST + (length - LEAST) % (USABLE - 4)).filter(|here| *here <= most).unwrap_or(LEAST),
        };
        let end = at.checked_add(usize::try_from(here).ok()?)?;
        let mut row = page.get(at..end)?.to_vec();
        // Which columns there are is always at the beginning, on this page.
        let (types, body) = types(&row)?;
        let columns: String = types.iter().map(|kind| letter(*kind)).collect();
        let table = Table::of(&columns).filter(|table| table.is_numbered() == (kind == TABLE_LEAF))?;
        let whole = types.iter().try_fold(body as u64, |sum, kind| sum.checked_add(size(*kind)));
        if whole != Some(length) {
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
        let mut at = body;
        let mut values = Vec::with_capacity(types.len());
        for kind in types {
            let end = at.checked_add(usize::try_from(size(kind)).ok()?)?;
            values.push(value(kind, row.get(at..end)?)?);
            at = end;
        }
        makes_sense(table, &values).then_some((table, values))
    }
}

/// Whether an event is what its columns say; of other rows whoever uses them finds out.
fn makes_sense(table: Table, row: &[Value]) -> bool {
    #[derive(Deserialize)]
    struct Head {
        seq: i64,
        #[serde(rename = "kind")]
        _kind: String,
    }
    match (table, row) {
        (Table::Event, [_, _, Value::Integer(seq), _, Value::Text(_), _, Value::Text(data), ..]) => {
            serde_json::from_str::<Head>(data).is_ok_and(|head| head.seq == *seq)
        }
        (Table::Event, _) => false,
        _ => true,
    }
}

/// Whether a row is an event with the checksum of what it has.
fn is_as_written(row: &[Value]) -> bool {
    match row {
        [_, Value::Text(session), _, _, _, _, Value::Text(data), Value::Integer(sum)] => {
            *sum == event_row::sum(session.as_bytes(), data)
        }
        _ => false,
    }
}

/// Where the rows of a page begin.
fn cells(page: &[u8]) -> Vec<usize> {
    let array = match page.first() {
        Some(&INDEX_INTERIOR) => 12,
        Some(&(INDEX_LEAF | TABLE_LEAF)) => 8,
        _ => return Vec::new(),
    };
    let two = |at: usize| Some(usize::from(u16::from_be_bytes(page.get(at..at + 2)?.try_into().ok()?)));
    let count = two(3).unwrap_or(0);
    // Of an array that is longer than the page as much as there is.
    (0..count).map_while(|n| two(array + n * 2)).collect()
}

/// The types of a row's columns, and where the first one begins (same place, 2.1).
fn types(row: &[u8]) -> Option<(Vec<u64>, usize)> {
    let (length, mut at) = varint(row, 0)?;
    let end = usize::try_from(length).ok().filter(|end| *end <= row.len())?;
    let mut types = Vec::new();
    while at < end && types.len() <= MAX_COLUMNS {
        let (kind, next) = varint(row, at)?;
        types.push(kind);
        at = next;
    }
    (at == end).then_some((types, end))
}

/// What [`Table::of`] calls a column of this type; no table has fractions or bytes.
fn letter(kind: u64) -> char {
    match kind {
        0 => 'n',
        1..=6 | 8 | 9 => 'i',
        13.. if kind % 2 == 1 => 't',
        _ => '?',
    }
}

/// How many bytes a column of this type has.
fn size(kind: u64) -> u64 {
    match kind {
        ..=4 => kind,
        5 => 6,
        6 => 8,
        7..=12 => 0,
        _ => (kind - 13) / 2,
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

/// A number of one to nine bytes, and where the next thing begins (same place, 1.6).
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
