//! What a disk may hold after a power cut: pure, from the journal of what was asked of it.
//!
//! What was synced before the cut is there. Of everything else a random part is: each write, truncation and change of a name
//! may have reached the disk or not, in any order; a write may be torn at its sectors, and a sector under the head may hold
//! anything. A name is on disk when its directory was synced.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use crate::Rng;

/// What a disk writes at once, in bytes.
const SECTOR: u64 = 512;

/// Bytes of a record before its path.
const HEAD: usize = 21;

/// Something that was asked of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Create,
    Directory,
    Write(u64, Range<usize>),
    Truncate(u64),
    Sync,
    Remove,
    Rename(String),
}

/// An [`Op`], what it was asked of, and where in the journal its record ends.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) end: usize,
    pub(super) path: String,
    pub(super) op: Op,
}

/// Everything that was asked, in order.
pub(super) struct Journal {
    pub(super) bytes: Vec<u8>,
    pub(super) records: Vec<Record>,
}

impl Journal {
    /// Reads what the shim wrote.
    pub(super) fn parse(bytes: Vec<u8>) -> Self {
        let mut records = Vec::new();
        let mut at = 0;
        while let Some(head) = bytes.get(at..at + HEAD) {
            let number = |range: Range<usize>| u64::from_le_bytes(head[range].try_into().expect("eight bytes"));
            let (offset, length) = (number(0..8), number(8..16) as usize);
            let path = u32::from_le_bytes(head[16..20].try_into().expect("four bytes")) as usize;
            let (names, data) = (at + HEAD, at + HEAD + path);
            let end = data + length;
            if end > bytes.len() {
                break;
            }
            let text = |range: Range<usize>| String::from_utf8_lossy(&bytes[range]).into_owned();
            let op = match head[20] {
                b'c' => Op::Create,
                b'd' => Op::Directory,
                b'w' => Op::Write(offset, data..end),
                b't' => Op::Truncate(offset),
                b's' => Op::Sync,
                b'u' => Op::Remove,
                b'r' => Op::Rename(text(data..end)),
                other => panic!("the journal has a record of kind {other}"),
            };
            records.push(Record { end, path: text(names..data), op });
            at = end;
        }
        Self { bytes, records }
    }

    /// Takes a record off the end that a kill has cut: what the next life appends could not be read behind it. Its change was not
    /// synced, and nothing that depends on it was said.
    pub(super) fn drop_torn(file: &Path) {
        let whole = Self::parse(std::fs::read(file).expect("the shim keeps a journal"));
        let end = whole.records.last().map_or(0, |record| record.end as u64);
        let journal = std::fs::OpenOptions::new().write(true).open(file);
        journal.and_then(|journal| journal.set_len(end)).expect("the journal can be shortened");
    }
}

/// A change of a file that was not synced.
#[derive(Clone, Debug)]
enum Change {
    Write(u64, Range<usize>),
    Truncate(u64),
}

#[derive(Clone, Debug, Default)]
struct File {
    directory: bool,
    /// What is certainly there.
    durable: Vec<u8>,
    pending: Vec<Change>,
}

/// A change of a directory that was not synced.
#[derive(Clone, Debug)]
enum Naming {
    Add(String, usize),
    Remove(String),
    Rename(String, String),
}

impl Naming {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Add(path, file) => names.extend([(path.clone(), *file)]),
            Self::Remove(path) => names.retain(|known, _| known != path),
            Self::Rename(from, to) => {
                let file = names.remove(from);
                names.extend(file.map(|file| (to.clone(), file)));
            }
        }
    }
}

/// A disk at some moment of the journal.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    files: Vec<File>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// With the directory that each is about.
    pending_names: Vec<(String, Naming)>,
}

/// The files of a disk: nothing stands for a directory.
pub(super) type Image = BTreeMap<String, Option<Vec<u8>>>;

/// How much of what was not synced is there.
#[derive(Clone, Copy, Debug)]
enum Luck {
    None,
    All,
    /// What came first, and then nothing.
    Prefix,
    Some,
}

impl Disk {
    /// An empty disk whose directory `root` is there.
    pub(super) fn new(root: &str) -> Self {
        let names = BTreeMap::from([(root.to_owned(), 0)]);
        let files = vec![File { directory: true, ..File::default() }];
        Self { files, names: names.clone(), durable_names: names, pending_names: Vec::new() }
    }

    /// Takes the next record.
    pub(super) fn apply(&mut self, record: &Record, bytes: &[u8]) {
        let Record { path, op, .. } = record;
        let parent = path.rsplit_once('/').map(|(parent, _)| parent.to_owned()).unwrap_or_default();
        let named = |disk: &mut Self, naming: Naming| {
            naming.apply(&mut disk.names);
            disk.pending_names.push((parent.clone(), naming));
        };
        match op {
            Op::Create | Op::Directory => {
                self.files.push(File { directory: *op == Op::Directory, ..File::default() });
                let file = self.files.len() - 1;
                named(self, Naming::Add(path.clone(), file));
            }
            Op::Remove => named(self, Naming::Remove(path.clone())),
            Op::Rename(to) => named(self, Naming::Rename(path.clone(), to.clone())),
            Op::Write(offset, data) => self.change(path, Change::Write(*offset, data.clone())),
            Op::Truncate(size) => self.change(path, Change::Truncate(*size)),
            Op::Sync => self.sync(path, bytes),
        }
    }

    fn change(&mut self, path: &str, change: Change) {
        let file = self.names.get(path).unwrap_or_else(|| panic!("{path} is changed and was never made"));
        self.files[*file].pending.push(change);
    }

    fn sync(&mut self, path: &str, bytes: &[u8]) {
        let file = self.names.get(path).unwrap_or_else(|| panic!("{path} is synced and was never made"));
        let file = &mut self.files[*file];
        for change in std::mem::take(&mut file.pending) {
            apply(&mut file.durable, &change, bytes);
        }
        if !file.directory {
            return;
        }
        for (parent, naming) in std::mem::take(&mut self.pending_names) {
            if parent == path {
                naming.apply(&mut self.durable_names);
            } else {
                self.pending_names.push((parent, naming));
            }
        }
    }

    /// What the files hold while the power is on.
    pub(super) fn live(&self, bytes: &[u8]) -> Image {
        let content = |file: &File| {
            let mut content = file.durable.clone();
            file.pending.iter().for_each(|change| apply(&mut content, change, bytes));
            content
        };
        let entry = |(path, file): (&String, &usize)| {
            let file = &self.files[*file];
            (path.clone(), (!file.directory).then(|| content(file)))
        };
        self.names.iter().map(entry).collect()
    }

    /// What may be there after a power cut now, and how many changes are lost or torn.
    pub(super) fn after_cut(&self, bytes: &[u8], rng: &mut Rng) -> (Image, usize) {
        let luck = [Luck::None, Luck::All, Luck::Prefix, Luck::Some, Luck::Some][rng.below(5)];
        let mut lost = 0;
        let mut names = self.durable_names.clone();
        let kept = keep(luck, self.pending_names.len(), rng);
        for ((_, naming), kept) in self.pending_names.iter().zip(kept) {
            if kept { naming.apply(&mut names) } else { lost += 1 }
        }
        let mut image = Image::new();
        for (path, file) in &names {
            let file = &self.files[*file];
            let mut content = file.durable.clone();
            let kept = keep(luck, file.pending.len(), rng);
            let last = kept.iter().rposition(|kept| *kept);
            for (n, (change, kept)) in file.pending.iter().zip(kept).enumerate() {
                if !kept {
                    lost += 1;
                    continue;
                }
                let torn = match luck {
                    Luck::None | Luck::All => false,
                    Luck::Prefix => Some(n) == last,
                    Luck::Some => rng.below(4) == 0,
                };
                match change {
                    Change::Write(offset, data) if torn => {
                        tear(&mut content, *offset, &bytes[data.clone()], rng);
                        lost += 1;
                    }
                    change => apply(&mut content, change, bytes),
                }
            }
            image.insert(path.clone(), (!file.directory).then_some(content));
        }
        // What lies in a directory that is not there cannot be found.
        let there: BTreeSet<String> = image.keys().cloned().collect();
        let parent = |path: &str| path.rsplit_once('/').map(|(parent, _)| parent.to_owned()).unwrap_or_default();
        image.retain(|path, _| self.names.get(path) == Some(&0) || there.contains(&parent(path)));
        (image, lost)
    }
}

fn keep(luck: Luck, changes: usize, rng: &mut Rng) -> Vec<bool> {
    let first = rng.below(changes + 1);
    let one = |n: usize| match luck {
        Luck::None => false,
        Luck::All => true,
        Luck::Prefix => n < first,
        Luck::Some => rng.below(2) == 0,
    };
    (0..changes).map(one).collect()
}

fn apply(content: &mut Vec<u8>, change: &Change, bytes: &[u8]) {
    match change {
        Change::Write(offset, data) => put(content, *offset, &bytes[data.clone()]),
        Change::Truncate(size) => content.resize(*size as usize, 0),
    }
}

fn put(content: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let (from, to) = (offset as usize, offset as usize + data.len());
    if content.len() < to {
        content.resize(to, 0);
    }
    content[from..to].copy_from_slice(data);
}

/// Writes some of the sectors of a write: those up to one that the power did not suffice for, or any.
fn tear(content: &mut Vec<u8>, offset: u64, data: &[u8], rng: &mut Rng) {
    let end = offset + data.len() as u64;
    let sectors = end.div_ceil(SECTOR) - offset / SECTOR;
    let (in_order, upto) = (rng.below(2) == 0, rng.below(sectors as usize + 1) as u64);
    for n in 0..sectors {
        let from = (offset / SECTOR + n) * SECTOR;
        let (from, to) = (from.max(offset), (from + SECTOR).min(end));
        let piece = &data[(from - offset) as usize..(to - offset) as usize];
        let written = if in_order { n < upto } else { rng.below(2) == 0 };
        if written {
            put(content, from, piece);
        } else if in_order && n == upto && rng.below(4) == 0 {
            let noise: Vec<u8> = piece.iter().map(|_| rng.next_u64() as u8).collect();
            put(content, from, &noise);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(ops: &[(&str, Op)], data: &[u8]) -> Disk {
        let mut disk = Disk::new("/d");
        for (path, op) in ops {
            disk.apply(&Record { end: 0, path: (*path).to_owned(), op: op.clone() }, data);
        }
        disk
    }

    #[test]
    fn what_follows_a_record_that_a_kill_has_cut_can_be_read() {
        let record = |data: &[u8]| {
            let numbers = [0u64.to_le_bytes(), (data.len() as u64).to_le_bytes()].concat();
            [&numbers[..], &4u32.to_le_bytes(), b"w", b"/d/x", data].concat()
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        let [first, cut, next] = [b"one".as_slice(), b"two", b"three"].map(record);
        std::fs::write(file.path(), [&first[..], &cut[..cut.len() - 2]].concat()).unwrap();
        Journal::drop_torn(file.path());
        let journal = Journal::parse([std::fs::read(file.path()).unwrap(), next].concat());
        let said = journal.records.iter().map(|record| match &record.op {
            Op::Write(_, range) => journal.bytes[range.clone()].to_vec(),
            other => panic!("{other:?}"),
        });
        assert_eq!(said.collect::<Vec<_>>(), [b"one".to_vec(), b"three".to_vec()]);
    }

    #[test]
    fn what_was_synced_is_there_however_unlucky_one_is_and_the_rest_is_sometimes() {
        let data = [vec![b'a'; 2000], vec![b'b'; 2000]].concat();
        let disk = disk(
            &[
                ("/d/x", Op::Create),
                ("/d/x", Op::Write(0, 0..2000)),
                ("/d/x", Op::Sync),
                ("/d", Op::Sync),
                ("/d/x", Op::Write(1000, 2000..4000)),
                ("/d/y", Op::Create),
                ("/d/x", Op::Rename("/d/z".to_owned())),
            ],
            &data,
        );
        let (mut torn, mut whole, mut renamed, mut made) = (0, 0, 0, 0);
        for seed in 0..1000 {
            let (image, _) = disk.after_cut(&data, &mut Rng(seed));
            let (x, z) = (image.get("/d/x"), image.get("/d/z"));
            assert!(x.is_some() != z.is_some(), "a file has one of its names");
            let content = x.or(z).unwrap().as_ref().unwrap();
            assert_eq!(content[..1000], data[..1000], "what was synced and not written again");
            let later = content.get(1000..).unwrap_or_default();
            whole += usize::from(later.len() == 2000 && later.iter().all(|byte| *byte == b'b'));
            torn += usize::from(later.contains(&b'b') && later[..1000].contains(&b'a'));
            renamed += usize::from(z.is_some());
            made += usize::from(image.contains_key("/d/y"));
        }
        assert!(torn > 50 && whole > 100 && renamed > 300 && made > 300, "{torn} {whole} {renamed} {made}");
    }

    #[test]
    fn a_file_whose_directory_was_not_synced_may_be_gone_although_it_was() {
        let data = b"text";
        let disk = disk(&[("/d/x", Op::Create), ("/d/x", Op::Write(0, 0..4)), ("/d/x", Op::Sync)], data);
        let images: Vec<Image> = (0..100).map(|seed| disk.after_cut(data, &mut Rng(seed)).0).collect();
        assert!(images.iter().any(|image| !image.contains_key("/d/x")));
        assert!(images.iter().filter_map(|image| image.get("/d/x")).all(|x| x.as_deref() == Some(data)));
    }
}
