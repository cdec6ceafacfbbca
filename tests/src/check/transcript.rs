//! What one client saw, verbatim, and what it adds up to.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

/// One thing that a client did or saw.
#[derive(Clone, Debug)]
pub enum Entry {
    /// It attached, after this cursor or from the beginning.
    Attached {
        /// The session.
        session: String,
        /// The cursor that it gave.
        after: Option<String>,
        /// Whether it wanted deltas.
        deltas: bool,
    },
    /// A prompt of its own was accepted.
    Accepted {
        /// The session.
        session: String,
        /// The prompt.
        prompt: String,
        /// The `seq` of its `prompt_accepted`.
        seq: u64,
        /// The idempotency key, if it sent one.
        key: Option<String>,
    },
    /// Its answer to a permission or to another question won.
    Won {
        /// The permission or the question.
        permission: String,
        /// The decision, or the name of the option.
        decision: String,
        /// The digest that it gave, if it did.
        digest: Option<String>,
        /// The idempotency key, if it sent one.
        key: Option<String>,
    },
    /// It removed a session.
    Removed {
        /// The session.
        session: String,
    },
    /// An event came.
    Event(Seen),
}

/// An event as a client saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The session.
    pub session: String,
    /// The cursor that came with it.
    pub cursor: String,
    /// The `event` object, byte for byte.
    pub raw: String,
    /// The same, read.
    pub event: Value,
}

impl Seen {
    /// Reads the `params` of a notification; `raw` is its `event` as it stood on the wire.
    pub fn new(session: &str, cursor: &str, raw: &str) -> Self {
        let event = serde_json::from_str(raw).unwrap_or_else(|error| panic!("an event is not JSON: {error}: {raw}"));
        Self { session: session.to_owned(), cursor: cursor.to_owned(), raw: raw.to_owned(), event }
    }

    /// The kind of the event.
    pub fn kind(&self) -> &str {
        self.event["kind"].as_str().unwrap_or_default()
    }

    /// Its number, unless it is a delta.
    pub fn seq(&self) -> Option<u64> {
        self.event["seq"].as_u64()
    }

    /// How long after `began` it happened; both since 1970.
    pub fn after(&self, began: Duration) -> Duration {
        Duration::from_millis(self.event["at"].as_u64().unwrap_or_default()).saturating_sub(began)
    }

    /// A field that is a string; empty when it is absent.
    pub fn str(&self, field: &str) -> &str {
        self.event[field].as_str().unwrap_or_default()
    }

    /// Whether it is a piece of a message or of a tool's output.
    pub fn is_delta(&self) -> bool {
        self.kind().ends_with("_delta")
    }
}

/// Everything that one client did and saw, in order.
#[derive(Clone, Debug, Default)]
pub struct Transcript(pub Vec<Entry>);

impl Transcript {
    /// The events.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = &Seen> {
        self.0.iter().filter_map(|entry| if let Entry::Event(seen) = entry { Some(seen) } else { None })
    }

    /// The events of one kind.
    pub fn of<'a>(&'a self, kind: &'a str) -> impl DoubleEndedIterator<Item = &'a Seen> + 'a {
        self.events().filter(move |seen| seen.kind() == kind)
    }

    /// The kinds of the durable events of a session, in order.
    pub fn kinds(&self, session: &str) -> Vec<&str> {
        self.events().filter(|seen| seen.session == session && seen.seq().is_some()).map(Seen::kind).collect()
    }

    /// The cursor of the last event of a session.
    pub fn cursor(&self, session: &str) -> Option<&str> {
        self.events().rev().find(|seen| seen.session == session).map(|seen| seen.cursor.as_str())
    }

    /// One line an event, for people.
    pub fn outline(&self) -> String {
        let line = |seen: &Seen| {
            let seq = seen.seq().map_or_else(|| "-".to_owned(), |seq| seq.to_string());
            let raw: String = seen.raw.chars().take(200).collect();
            format!("  {} {seq:>4} [{}] {raw}\n", seen.session, seen.cursor)
        };
        self.events().map(line).collect()
    }
}

/// What the deltas of one stream add up to; tool output may have holes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream(pub BTreeMap<u64, String>);

impl Stream {
    /// Takes a delta; says what is wrong when it contradicts what came before.
    pub fn add(&mut self, offset: u64, text: &str) -> Result<(), String> {
        let Some((&start, last)) = self.0.range_mut(..=offset).next_back() else {
            self.0.insert(offset, text.to_owned());
            return Ok(());
        };
        let end = start + last.len() as u64;
        if offset > end {
            self.0.insert(offset, text.to_owned());
            return Ok(());
        }
        let at = (offset - start) as usize;
        let known = &last.as_bytes()[at..];
        let same = known.len().min(text.len());
        if known[..same] != text.as_bytes()[..same] {
            return Err(format!("bytes from {offset} were {:?}, then {text:?}", String::from_utf8_lossy(known)));
        }
        if text.len() > known.len() {
            last.push_str(text.get(known.len()..).ok_or_else(|| format!("a delta at {offset} cuts a character"))?);
        }
        Ok(())
    }

    /// The text, if there is no hole and it begins at the beginning.
    pub fn whole(&self) -> Option<&str> {
        match self.0.first_key_value() {
            Some((0, text)) if self.0.len() == 1 => Some(text),
            _ => None,
        }
    }
}

/// What a client has of one session in the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assembled {
    /// Durable events by `seq`, byte for byte.
    pub events: BTreeMap<u64, String>,
    /// Text and thinking by message, block and kind of delta.
    pub text: BTreeMap<(String, u64, String), Stream>,
    /// Output by tool call.
    pub output: BTreeMap<String, Stream>,
    /// It began at the beginning, wanted deltas, and always read on from its own cursor.
    pub whole: bool,
}

impl Assembled {
    /// All text of a message, block after block.
    pub fn message(&self, message: &str) -> String {
        let of = self.text.iter().filter(|((m, _, kind), _)| m == message && kind == "text_delta");
        of.flat_map(|(_, stream)| stream.0.values()).map(String::as_str).collect()
    }
}

/// What `transcript` has of `session`, and what in it contradicts itself (I3).
pub fn assemble(transcript: &Transcript, session: &str) -> (Assembled, Vec<String>) {
    let mut all = Assembled::default();
    let mut wrong = Vec::new();
    // What the client expects next; unknown after it attached with a cursor that is not its own.
    let mut next: Option<u64> = None;
    let mut last_cursor: Option<String> = None;
    for entry in &transcript.0 {
        let seen = match entry {
            Entry::Attached { session: of, after, deltas } if of == session => {
                let own = after.as_ref() == last_cursor.as_ref();
                all.whole = *deltas && (after.is_none() || (all.whole && own));
                match after {
                    // From here on it continues what comes now, not what it had.
                    None => (next, last_cursor) = (Some(1), None),
                    Some(_) if own => {}
                    Some(_) => next = None,
                }
                continue;
            }
            Entry::Event(seen) if seen.session == session => seen,
            _ => continue,
        };
        last_cursor = Some(seen.cursor.clone());
        if let Some(seq) = seen.seq() {
            if next.is_some_and(|next| next != seq) {
                wrong.push(format!("seq {seq} came where {} was due", next.unwrap_or_default()));
            }
            next = Some(seq + 1);
            let known = all.events.entry(seq).or_insert_with(|| seen.raw.clone());
            if *known != seen.raw {
                wrong.push(format!("event {seq} was {known}, then {}", seen.raw));
            }
        } else if seen.is_delta() {
            let (offset, text) = (seen.event["offset"].as_u64().unwrap_or_default(), seen.str("text"));
            let output = seen.kind() == "tool_output_delta";
            let stream = if output {
                all.output.entry(seen.str("call_id").to_owned()).or_default()
            } else {
                let block = seen.event["block"].as_u64().unwrap_or_default();
                all.text.entry((seen.str("message").to_owned(), block, seen.kind().to_owned())).or_default()
            };
            let holes = stream.0.len();
            if let Err(what) = stream.add(offset, text) {
                wrong.push(format!("{}: {what}", seen.raw));
            }
            let from_elsewhere = holes == 0 && offset > 0 && next.is_none();
            if !output && stream.0.len() > 1
                || (!output && holes == 0 && offset > 0 && !from_elsewhere && next.is_some())
            {
                wrong.push(format!("text is missing before {}", seen.raw));
            }
        }
    }
    (all, wrong)
}
