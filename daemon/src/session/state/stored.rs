//! The stored form of the state: a head with what changes always, and a row for each family that differs from the default.
//!
//! The head is JSON and ends with a checksum of itself and of all rows, so a state with a missing, changed or stale row is not
//! loaded. Up to schema 4 the whole state was one JSON object with a checksum of its own; it is still read, and its next append
//! writes it in rows.

use linger_protocol::path;
use serde::Deserialize;

use super::family::{Family, FamilyValue};
use super::{
    Background, Children, DaemonSettings, History, Identity, Prefix, Progress, PromptQueue, Questions, Settings,
};
use super::{State, Task, Title, Turn, UndoState};
use crate::store::{Fold, StateRow};

/// Before the checksum at the end of a head.
const SUM: &str = ",\"sums\":\"";

/// Before the checksum at the end of a whole state.
const WHOLE_SUM: &str = ",\"sum\":\"";

/// Does the same with each family.
trait Visitor {
    fn visit<T: FamilyValue>(&mut self, name: &'static str, family: &mut Family<T>);
}

impl State {
    /// Visits the families in the order in which the checksum has them; a name is that of a row, and never changes.
    fn visit(&mut self, visitor: &mut impl Visitor) {
        visitor.visit("identity", &mut self.identity);
        visitor.visit("settings", &mut self.settings);
        visitor.visit("prefix", &mut self.prefix);
        visitor.visit("title", &mut self.title);
        visitor.visit("history", &mut self.history);
        visitor.visit("queue", &mut self.queue);
        visitor.visit("turn", &mut self.turn);
        visitor.visit("questions", &mut self.questions);
        visitor.visit("task", &mut self.task);
        visitor.visit("children", &mut self.children);
        visitor.visit("background", &mut self.background);
        visitor.visit("undo", &mut self.undo);
        visitor.visit("daemon", &mut self.daemon);
    }

    /// The whole state for the store.
    pub fn to_fold(&self) -> Fold {
        self.clone().fold_of(true)
    }

    /// Takes the changes since the last call, for the store. If they cannot be written, the state must be loaded again.
    pub fn take_changes(&mut self) -> Fold {
        self.fold_of(false)
    }

    /// The head and the rows of the whole state.
    pub fn to_rows(&self) -> serde_json::Result<(String, Vec<StateRow>)> {
        self.clone().write(true)
    }

    /// The text of the whole state, as it is read from the store.
    #[cfg(test)]
    pub fn to_stored(&self) -> String {
        let (head, rows) = self.to_rows().unwrap();
        let rows = rows.into_iter().filter_map(|(name, text)| Some(format!("\n{name} {}", text?)));
        head + &rows.collect::<String>()
    }

    fn fold_of(&mut self, all: bool) -> Fold {
        let (head, rows) = match self.write(all) {
            Ok(written) => written,
            Err(error) => return Fold::Unencodable(format!("the state cannot be encoded: {error}")),
        };
        Fold::Session {
            // In the bin it leaves its name to others.
            name: self.settings.name.clone().filter(|_| self.settings.binned_at.is_none()),
            cwd: path::text(&self.identity.cwd).into_owned(),
            state: self.stored_name(),
            updated_at: self.progress.updated_at,
            head,
            rows,
            parent: self.identity.parent.as_ref().map(ToString::to_string),
        }
    }

    fn write(&mut self, all: bool) -> serde_json::Result<(String, Vec<StateRow>)> {
        let mut head = serde_json::to_string(&self.progress)?;
        head.truncate(head.len().saturating_sub(1));
        let mut writer = RowWriter { all, rows: Vec::new(), sums: crc32fast::Hasher::new(), failed: None };
        writer.sums.update(head.as_bytes());
        self.visit(&mut writer);
        let sum = writer.sums.finalize();
        match writer.failed {
            None => Ok((head + SUM + &format!("{sum:08x}\"}}"), writer.rows)),
            Some(error) => Err(error),
        }
    }

    /// Parses what [`crate::store::SessionRow::fold`] has; `None` if it is malformed or a checksum is wrong.
    pub fn from_stored(text: &str) -> Option<Self> {
        let mut lines = text.split('\n');
        let head = lines.next()?;
        let Some((body, sum)) = head.rsplit_once(SUM) else { return from_whole(text) };
        let rows = lines.map(|line| line.split_once(' ')).collect::<Option<Vec<_>>>()?;
        let mut reader = RowReader { rows, sums: crc32fast::Hasher::new(), is_well: true };
        reader.sums.update(body.as_bytes());
        let mut state = Self { progress: serde_json::from_str(head).ok()?, ..Self::default() };
        state.visit(&mut reader);
        let is_whole = reader.is_well && reader.rows.is_empty() && read_sum(sum)? == reader.sums.finalize();
        is_whole.then_some(state)
    }
}

/// Writes families, and sums up all.
struct RowWriter {
    all: bool,
    rows: Vec<StateRow>,
    sums: crc32fast::Hasher,
    /// Why a family cannot be encoded.
    failed: Option<serde_json::Error>,
}

impl Visitor for RowWriter {
    fn visit<T: FamilyValue>(&mut self, name: &'static str, family: &mut Family<T>) {
        match family.take_row(self.all) {
            Ok((text, sum)) => {
                self.sums.update(&sum.to_le_bytes());
                self.rows.extend(text.map(|text| (name, text)));
            }
            Err(error) => self.failed = Some(error),
        }
    }
}

/// Reads families from rows that are left, and sums up all.
struct RowReader<'a> {
    rows: Vec<(&'a str, &'a str)>,
    sums: crc32fast::Hasher,
    is_well: bool,
}

impl Visitor for RowReader<'_> {
    fn visit<T: FamilyValue>(&mut self, name: &'static str, family: &mut Family<T>) {
        let at = self.rows.iter().position(|(of, _)| *of == name);
        let text = at.map(|at| self.rows.swap_remove(at).1);
        let sum = text.map_or(0, |text| crc32fast::hash(text.as_bytes()));
        self.sums.update(&sum.to_le_bytes());
        match Family::from_row(text) {
            Some(read) => *family = read,
            None => self.is_well = false,
        }
    }
}

fn read_sum(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_suffix("\"}")?, 16).ok()
}

/// A whole state, as builds up to schema 4 stored it.
#[derive(Deserialize)]
struct Whole {
    #[serde(flatten)]
    progress: Progress,
    #[serde(flatten)]
    identity: Identity,
    #[serde(flatten)]
    settings: Settings,
    #[serde(flatten)]
    prefix: Prefix,
    #[serde(flatten)]
    title: Title,
    #[serde(flatten)]
    history: History,
    #[serde(flatten)]
    queue: PromptQueue,
    turn: Option<Turn>,
    #[serde(flatten)]
    questions: Questions,
    #[serde(flatten)]
    task: Task,
    #[serde(flatten)]
    children: Children,
    #[serde(flatten)]
    background: Background,
    #[serde(default)]
    undo: UndoState,
    #[serde(flatten)]
    daemon: DaemonSettings,
}

/// Parses a whole state; all families count as changed.
fn from_whole(text: &str) -> Option<State> {
    let (body, sum) = text.rsplit_once(WHOLE_SUM)?;
    if read_sum(sum)? != crc32fast::hash(body.as_bytes()) {
        return None;
    }
    let whole: Whole = serde_json::from_str(text).ok()?;
    Some(State {
        progress: whole.progress,
        identity: whole.identity.into(),
        settings: whole.settings.into(),
        prefix: whole.prefix.into(),
        title: whole.title.into(),
        history: whole.history.into(),
        queue: whole.queue.into(),
        turn: whole.turn.into(),
        questions: whole.questions.into(),
        task: whole.task.into(),
        children: whole.children.into(),
        background: whole.background.into(),
        undo: whole.undo.into(),
        daemon: whole.daemon.into(),
    })
}
