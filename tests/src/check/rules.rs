//! The invariants, one function each (or one for two that look at the same things).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use linger_protocol::transport::line::{Framing, encode};
use memchr::memmem;
use serde_json::Value;

use super::database::{Row, Stored};
use super::transcript::{Assembled, Entry, Stream, Transcript, assemble};
use super::{Found, Trace};
use crate::wire;

/// I2: `seq` is 1, 2, 3 …, in the column and in the event.
pub(super) fn sequence(session: &str, rows: &[Row], found: &mut Found) {
    for (n, row) in rows.iter().enumerate() {
        let due = n as u64 + 1;
        found.unless(row.seq == due, "I2", || format!("{session}: event {} stands where {due} is due", row.seq));
        let inner = row.event["seq"].as_u64();
        found.unless(inner == Some(row.seq), "I2", || format!("{session}: row {} holds event {inner:?}", row.seq));
        let kind = row.str("kind");
        found
            .unless(kind == row.kind, "I2", || format!("{session}: row {} of kind {} holds {kind}", row.seq, row.kind));
    }
    let first = rows.first().is_none_or(|row| matches!(row.kind.as_str(), "session_created" | "lost"))
        // The daemon's own log is no session.
        || session == "daemon";
    found.unless(first, "I2", || format!("{session}: the first event is no session_created"));
}

/// How long a cancel may take to end its turn (I13).
const CANCEL: Duration = Duration::from_secs(2);

/// How much the daemon may grow under what it must not keep, in KiB (I10): what all its buffers and the allocator may take.
const GROWTH: u64 = 8 << 10;

/// I1 and I3 of one client: what it saw is stored, and does not contradict itself.
pub(super) fn seen_is_stored(session: &str, client: &Transcript, rows: &[Row], settled: bool, found: &mut Found) {
    let (all, wrong) = assemble(client, session);
    wrong.into_iter().for_each(|what| found.add("I3", format!("{session}: {what}")));
    for (seq, raw) in &all.events {
        let stored = rows.iter().find(|row| row.seq == *seq).map(|row| row.raw.as_str());
        // Sent as a line, which some characters of a string could cut in two.
        let sent = stored.map(|stored| {
            let mut line = Vec::new();
            encode(Framing::Lines, stored, &mut line);
            String::from_utf8_lossy(&line).trim_end().to_owned()
        });
        found.unless(sent.as_ref() == Some(raw), "I1", || {
            format!("{session}: a client saw {raw}, stored is {stored:?}")
        });
    }
    let messages: BTreeMap<&str, &Value> =
        rows.iter().filter(|row| row.kind == "message").map(|row| (row.str("message"), &row.event)).collect();
    for ((message, block, kind), stream) in &all.text {
        let Some(stored) = messages.get(message.as_str()) else {
            found.unless(!settled, "I1", || format!("{session}: text of message {message} was shown, none is stored"));
            continue;
        };
        let stored = &stored["content"][*block as usize];
        let (shown_as, text) = streamed(stored);
        // What the model wrote in place of an object was shown as far as it is one.
        if shown_as == "tool_call_delta" && stored["input"].is_string() {
            continue;
        }
        found.unless(shown_as == kind, "I1", || {
            format!("{session}: block {block} of {message} was shown as {kind}, stored is {stored}")
        });
        overlaps(stream, 0, &text, true)
            .into_iter()
            .for_each(|what| found.add("I1", format!("{session}: {message}: {what}")));
    }
    for seen in client.of("hosted_delta").filter(|seen| seen.session == session) {
        let Some(stored) = messages.get(seen.str("message")) else { continue };
        let block = &stored["content"][seen.event["block"].as_u64().unwrap_or_default() as usize];
        let same = ["tool", "part"].iter().all(|name| block[name] == seen.event[name]);
        found.unless(same, "I1", || format!("{session}: {} was shown, stored is {block}", seen.raw));
    }
    for seen in client.of("tool_call_delta").filter(|seen| seen.session == session) {
        let Some(stored) = messages.get(seen.str("message")) else { continue };
        let block = &stored["content"][seen.event["block"].as_u64().unwrap_or_default() as usize];
        let same = ["call_id", "name"].iter().all(|name| block[name] == seen.event[name]);
        found.unless(same, "I1", || format!("{session}: {} was shown, stored is {block}", seen.raw));
    }
    if all.whole {
        rows.iter().filter(|row| all.events.contains_key(&row.seq)).for_each(|row| all_text(session, row, &all, found));
    }
    for row in rows.iter().filter(|row| row.kind == "tool_finished") {
        let Some(stream) = all.output.get(row.str("call_id")) else { continue };
        for segment in row.event["output"].as_array().into_iter().flatten() {
            let block = segment["block"].as_u64().unwrap_or_default() as usize;
            let text = row.event["content"][block]["text"].as_str().unwrap_or_default();
            let wrong = overlaps(stream, segment["offset"].as_u64().unwrap_or_default(), text, false);
            wrong.into_iter().for_each(|what| found.add("I1", format!("{session}: {}: {what}", row.str("call_id"))));
        }
    }
}

/// The kind of the deltas of a block, and their text; empty if it has none.
pub(crate) fn streamed(block: &Value) -> (&'static str, String) {
    let kind = match block["type"].as_str() {
        Some("text") => "text_delta",
        Some("thinking") => "thinking_delta",
        Some("hosted") => "hosted_delta",
        Some("cut_tool_use") => "tool_call_delta",
        Some("tool_use") => return ("tool_call_delta", block["input"].to_string()),
        _ => return ("", String::new()),
    };
    (kind, block["text"].as_str().unwrap_or_default().to_owned())
}

/// I3: a client that saw a message closed has had all its text, as one that never left.
fn all_text(session: &str, row: &Row, all: &Assembled, found: &mut Found) {
    if row.kind != "message" || row.str("role") != "assistant" {
        return;
    }
    for (block, content) in (0u64..).zip(row.event["content"].as_array().into_iter().flatten()) {
        let (kind, stored) = streamed(content);
        if content["input"].is_string() {
            continue;
        }
        let seen = all.text.get(&(row.str("message").to_owned(), block, kind.to_owned()));
        let seen = seen.and_then(Stream::whole).unwrap_or_default();
        found.unless(seen == stored, "I3", || {
            format!("{session}: of block {block} of {} a client had {seen:?}, stored is {stored:?}", row.str("message"))
        });
    }
}

/// Where a stream differs from the stored text that begins at `start`; `all` of it must be stored, or what overlaps.
fn overlaps(stream: &Stream, start: u64, stored: &str, all: bool) -> Vec<String> {
    let end = start + stored.len() as u64;
    let mut wrong = Vec::new();
    for (offset, text) in &stream.0 {
        let (from, to) = ((*offset).max(start), (offset + text.len() as u64).min(end));
        if all && offset + text.len() as u64 > end {
            wrong.push(format!("{} bytes were shown, {} are stored", offset + text.len() as u64, end));
        }
        if from >= to {
            continue;
        }
        let seen = &text.as_bytes()[(from - offset) as usize..(to - offset) as usize];
        let kept = &stored.as_bytes()[(from - start) as usize..(to - start) as usize];
        if seen != kept {
            let (seen, kept) = (String::from_utf8_lossy(seen), String::from_utf8_lossy(kept));
            wrong.push(format!("shown from byte {from} was {seen:?}, stored is {kept:?}"));
        }
    }
    wrong
}

/// I5: a prompt is accepted once, said once, answered by one turn.
pub(super) fn prompts(session: &str, rows: &[Row], found: &mut Found) {
    for kind in ["prompt_accepted", "message", "turn_started"] {
        let mut known = BTreeSet::new();
        for row in rows.iter().filter(|row| row.kind == kind && !row.str("prompt").is_empty()) {
            let prompt = row.str("prompt");
            found.unless(known.insert(prompt), "I5", || format!("{session}: prompt {prompt} has two {kind}"));
        }
    }
    drafts(session, rows, found);
}

/// I5: a draft was queued, and starts no turn before it is sent; what was taken back starts none; and a cancel leaves nothing in the
/// queue that would come before the user's next prompt.
fn drafts(session: &str, rows: &[Row], found: &mut Found) {
    let (mut queued, mut drafts) = (BTreeSet::new(), BTreeSet::new());
    for row in rows {
        let prompt = row.str("prompt");
        match row.kind.as_str() {
            // Words of a child wait for the user's next prompt, and a lost event may be any.
            "prompt_accepted" if row.event["child"].is_null() => drop(queued.insert(prompt)),
            "prompt_drafted" => {
                found.unless(queued.remove(prompt), "I5", || format!("{session}: draft {prompt} was not queued"));
                drafts.insert(prompt);
            }
            "draft_sent" => {
                found.unless(drafts.remove(prompt), "I5", || format!("{session}: {prompt} was sent and was no draft"));
                queued.insert(prompt);
            }
            "prompt_unqueued" => {
                let waits = queued.remove(prompt) | drafts.remove(prompt);
                found.unless(waits, "I5", || format!("{session}: {prompt} was taken back and did not wait"));
            }
            "turn_started" | "message" => {
                let is_draft = drafts.contains(prompt);
                found.unless(!is_draft, "I5", || format!("{session}: draft {prompt} started and was not sent"));
                queued.remove(prompt);
            }
            "compacted" | "compaction_failed" => drop(queued.remove(prompt)),
            "turn_finished" if row.str("stop_reason") == "cancelled" => {
                let left = queued.iter().find(|left| **left != prompt);
                found.unless(left.is_none(), "I5", || format!("{session}: {left:?} is queued after a cancel"));
            }
            "lost" | "forked" => (queued, drafts) = Default::default(),
            _ => {}
        }
    }
}

/// I5: what was acknowledged to a client is in the log; one key is one prompt.
pub(super) fn acknowledged(clients: &[Transcript], stored: &Stored, found: &mut Found) {
    let mut keys: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for entry in clients.iter().flat_map(|client| &client.0) {
        let Entry::Accepted { session, prompt, seq, key } = entry else { continue };
        if removed(clients, session) {
            continue;
        }
        let rows = stored.0.get(session).map(Vec::as_slice).unwrap_or_default();
        let there =
            rows.iter().any(|row| row.seq == *seq && row.kind == "prompt_accepted" && row.str("prompt") == prompt);
        found.unless(there, "I5", || format!("{session}: prompt {prompt} was acknowledged at {seq} and is not there"));
        let Some(key) = key else { continue };
        let known = keys.entry((session, key)).or_insert(prompt);
        found.unless(known == prompt, "I5", || format!("{session}: key {key} made prompts {known} and {prompt}"));
    }
}

/// Whether a client removed it: then nothing of it need be there.
pub(super) fn removed(clients: &[Transcript], session: &str) -> bool {
    let mut all = clients.iter().flat_map(|client| &client.0);
    all.any(|entry| matches!(entry, Entry::Removed { session: removed } if removed == session))
}

/// Whether something of a session was lost to damage.
fn lossy(rows: &[Row]) -> bool {
    rows.iter().any(|row| row.kind == "lost")
}

/// I6: a turn starts once, finishes once, nothing of it comes later, and no two run at once.
pub(super) fn turns(session: &str, rows: &[Row], settled: bool, found: &mut Found) {
    let mut open: Option<&str> = None;
    let mut done = BTreeSet::new();
    // What was lost may have begun or ended any turn.
    let mut lost = false;
    for row in rows {
        lost |= row.kind == "lost";
        let turn = row.str("turn");
        if turn.is_empty() {
            found.unless(!row.kind.starts_with("turn_"), "I6", || format!("{session}: {} names no turn", row.raw));
            continue;
        }
        if std::mem::take(&mut lost) && open != Some(turn) && !done.contains(turn) {
            open = (row.kind != "turn_started").then_some(turn);
        }
        found
            .unless(!done.contains(turn), "I6", || format!("{session}: turn {turn} has ended, then comes {}", row.raw));
        match row.kind.as_str() {
            "turn_started" => {
                found.unless(open.is_none(), "I6", || format!("{session}: turn {turn} starts while {open:?} runs"));
                open = Some(turn);
            }
            _ => found.unless(open == Some(turn) || done.contains(turn), "I6", || {
                format!("{session}: turn {turn} has not started, then comes {}", row.raw)
            }),
        }
        if row.kind == "turn_finished" {
            done.insert(turn);
            open = None;
        }
    }
    found.unless(!settled || open.is_none() || lost, "I6", || {
        format!("{session}: turn {} never finished", open.unwrap_or_default())
    });
}

/// I7: a call starts at most once, and what was asked has one result.
pub(super) fn calls(session: &str, rows: &[Row], settled: bool, found: &mut Found) {
    let count =
        |kind: &str, call: &str| rows.iter().filter(|row| row.kind == kind && row.str("call_id") == call).count();
    let of_kind = |kind: &'static str| rows.iter().filter(move |row| row.kind == kind);
    let started: BTreeSet<&str> = of_kind("tool_started").map(|row| row.str("call_id")).collect();
    for call in started {
        let starts = count("tool_started", call);
        found.unless(starts <= 1, "I7", || format!("{session}: call {call} started {starts} times"));
    }
    let asked = of_kind("message").filter(|row| row.event["interrupted"] != true);
    let asked = asked.flat_map(|row| row.event["content"].as_array().into_iter().flatten());
    for call in asked.clone().filter(|block| block["type"] == "tool_use").filter_map(|block| block["call_id"].as_str())
    {
        let finished = count("tool_finished", call);
        found.unless(finished <= 1, "I7", || format!("{session}: call {call} has {finished} tool_finished"));
        let results = asked.clone().filter(|block| block["type"] == "tool_result" && block["call_id"] == call).count();
        let good = if settled && !lossy(rows) { results == 1 } else { results <= 1 };
        found.unless(good, "I7", || format!("{session}: call {call} has {results} results"));
    }
}

/// I7 over parent and child: a call makes one child, and the answer that a parent has is that of its child.
pub(super) fn children(stored: &Stored, found: &mut Found) {
    let mut made: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for (session, rows) in &stored.0 {
        let Some(created) = rows.first().filter(|row| row.event["delegated"].is_object()) else { continue };
        let call = created.event["delegated"]["call"].as_str().unwrap_or_default();
        let parent = created.str("parent");
        if let Some(other) = made.insert((parent, call), session) {
            found.add("I7", format!("{parent}: call {call} made {other} and {session}"));
        }
        let by = format!("session {parent}");
        let tasks = rows.iter().filter(|row| row.kind == "prompt_accepted" && row.str("by") == by).count();
        found.unless(tasks <= 1, "I5", || format!("{session}: it was given its task {tasks} times"));
    }
    for (parent, rows) in &stored.0 {
        for row in rows.iter().filter(|row| row.kind == "tool_finished" && row.event["is_error"] != true) {
            let text = row.event["content"][0]["text"].as_str().unwrap_or_default();
            let Ok(result) = serde_json::from_str::<Value>(text) else { continue };
            let (Some(child), true) = (result["session"].as_str(), result["agent"].is_string()) else { continue };
            let call = row.str("call_id");
            found.unless(made.get(&(parent, call)) == Some(&child), "I7", || {
                format!("{parent}: call {call} has the answer of {child}, which it did not make")
            });
        }
    }
}

/// I9: one decision; nothing that was asked for runs before it or without it, and what runs is what was shown.
pub(super) fn permissions(session: &str, rows: &[Row], found: &mut Found) {
    let input_of = |call: &str| {
        let blocks = rows.iter().filter(|row| row.kind == "message");
        let mut blocks = blocks.flat_map(|row| row.event["content"].as_array().into_iter().flatten());
        blocks.find(|block| block["type"] == "tool_use" && block["call_id"] == call).map(|block| &block["input"])
    };
    let mut digests: BTreeMap<&str, String> = BTreeMap::new();
    for asked in rows.iter().filter(|row| row.kind == "permission_requested") {
        let (permission, call) = (asked.str("permission"), asked.str("call_id"));
        let decisions: Vec<&Row> = rows
            .iter()
            .filter(|row| row.kind == "permission_resolved" && row.str("permission") == permission)
            .collect();
        found.unless(decisions.len() <= 1, "I9", || {
            format!("{session}: {permission} has {} decisions", decisions.len())
        });
        let input = &asked.event["input"];
        let called = input_of(call);
        found.unless(called == Some(input) || (called.is_none() && lossy(rows)), "I9", || {
            format!("{session}: {permission} shows {input}, the call has another")
        });
        let shown = format!("{} {input} {}", asked.str("tool"), asked.str("cwd"));
        let known = digests.entry(asked.str("digest")).or_insert_with(|| shown.clone());
        found.unless(*known == shown, "I9", || format!("{session}: one digest for {known} and {shown}"));
        let Some(started) = rows.iter().find(|row| row.kind == "tool_started" && row.str("call_id") == call) else {
            continue;
        };
        let allowed = decisions.iter().any(|row| row.seq < started.seq && row.str("decision").starts_with("allow"));
        found.unless(allowed, "I9", || format!("{session}: call {call} ran without a decision on {permission}"));
    }
}

/// I9: a question has one answer, which is one of its options, after it was asked.
pub(super) fn questions(session: &str, rows: &[Row], found: &mut Found) {
    for asked in rows.iter().filter(|row| row.kind == "question_asked") {
        let question = asked.str("question");
        let answers = rows.iter().filter(|row| row.kind == "question_resolved" && row.str("question") == question);
        let answers: Vec<&Row> = answers.collect();
        found.unless(answers.len() <= 1, "I9", || format!("{session}: {question} has {} answers", answers.len()));
        let options = asked.event["asked"]["options"].as_array().into_iter().flatten();
        let names: Vec<&str> = options.filter_map(|option| option["name"].as_str()).collect();
        for answer in answers {
            let name = answer.event["answer"].as_str();
            let good = answer.seq > asked.seq && name.is_none_or(|name| names.contains(&name));
            found.unless(good, "I9", || format!("{session}: {question} has the answer {name:?} among {names:?}"));
        }
    }
}

/// I9 across clients: one winner a permission or question, and the log says what the winner said.
pub(super) fn winners(clients: &[Transcript], stored: &Stored, found: &mut Found) {
    let mut won: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    for entry in clients.iter().flat_map(|client| &client.0) {
        let Entry::Won { permission, decision, digest, key } = entry else { continue };
        // The same answer sent again has won again, and not another.
        let earlier = won.insert(permission, key.as_deref());
        let alone = earlier.is_none_or(|earlier| earlier.is_some() && earlier == key.as_deref());
        found.unless(alone, "I9", || format!("two clients won {permission}"));
        let is = |row: &&Row| [row.str("permission"), row.str("question")].contains(&permission.as_str());
        let rows = || stored.0.values().flatten().filter(is);
        let logged = rows().find_map(|row| match row.kind.as_str() {
            "permission_resolved" => Some(row.str("decision")),
            "question_resolved" => Some(row.str("answer")),
            _ => None,
        });
        found.unless(logged == Some(decision), "I9", || format!("{decision} won {permission}, the log has {logged:?}"));
        let shown = rows().find_map(|row| match row.kind.as_str() {
            "permission_requested" => Some(row.str("digest")),
            "question_asked" => row.event["asked"]["digest"].as_str(),
            _ => None,
        });
        found.unless(digest.is_none() || digest.as_deref() == shown, "I9", || {
            format!("{permission} was won with digest {digest:?}, shown was {shown:?}")
        });
    }
}

/// I7: what tools did to the world, they did once.
pub(super) fn side_effects(trace: &Trace, found: &mut Found) {
    let Some(path) = &trace.side_effects else { return };
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut known = BTreeSet::new();
    for line in text.lines() {
        found.unless(known.insert(line), "I7", || format!("the side effect '{line}' happened twice"));
    }
    let started = || trace.stored.0.values().flatten().filter(|row| row.kind == "tool_started");
    for line in &known {
        let word = line.split_whitespace().next().unwrap_or_default();
        let recorded = started().any(|row| row.str("action").contains(word));
        found
            .unless(recorded, "I7", || format!("the side effect '{line}' is of no call that is known to have started"));
    }
}

/// I11: no secret in what was stored or shown.
pub(super) fn secrets(trace: &Trace, found: &mut Found) {
    let holds = |bytes: &[u8], canary: &str| memmem::find(bytes, canary.as_bytes()).is_some();
    for canary in trace.canaries.iter().filter(|canary| !canary.is_empty()) {
        for path in &trace.files {
            let bytes = std::fs::read(path).unwrap_or_default();
            found.unless(!holds(&bytes, canary), "I11", || format!("a secret is in {}", path.display()));
        }
        let shown = trace.clients.iter().flat_map(Transcript::events).any(|seen| seen.raw.contains(canary.as_str()));
        found.unless(!shown, "I11", || "a secret was sent to a client".to_owned());
        let stored = trace.stored.0.values().flatten().any(|row| row.raw.contains(canary.as_str()));
        found.unless(!stored, "I11", || "a secret is in the log of a session".to_owned());
    }
}

/// I6, I1 and I9 in what is folded from the log: it says what the log says, and at rest nothing is left over.
pub(super) fn folded(trace: &Trace, found: &mut Found) {
    let Some(folded) = &trace.folded else { return };
    let rows = || trace.stored.0.values().flatten();
    for asked in rows().filter(|row| row.kind == "permission_requested") {
        let permission = asked.str("permission");
        let logged = rows().find(|row| row.kind == "permission_resolved" && row.str("permission") == permission);
        let logged = logged.map(|row| row.str("decision").to_owned());
        let known = folded.questions.get(permission);
        found.unless(known == Some(&logged), "I9", || {
            format!("{permission}: the log says {logged:?}, the table of questions {known:?}")
        });
        found.unless(!trace.settled || logged.is_some(), "I9", || {
            format!("{permission} waits, and nothing is under way")
        });
    }
    for asked in rows().filter(|row| row.kind == "question_asked") {
        let question = asked.str("question");
        let logged = rows().find(|row| row.kind == "question_resolved" && row.str("question") == question);
        let logged = logged.map(|row| row.event["answer"].as_str().unwrap_or("cancelled").to_owned());
        let known = folded.questions.get(question);
        found.unless(known == Some(&logged), "I9", || {
            format!("{question}: the log says {logged:?}, the table of questions {known:?}")
        });
        // What holds up nothing may wait for ever.
        let waits = asked.event["asked"]["blocks"] == "nothing";
        found.unless(!trace.settled || logged.is_some() || waits, "I9", || {
            format!("{question} waits, and nothing is under way")
        });
    }
    for (session, size) in &folded.miscounted {
        found.add("fold", format!("{session} says that it has {size} bytes, its events and blobs have others"));
    }
    if !trace.settled {
        return;
    }
    for (session, state) in &folded.states {
        let rests = matches!(state.as_str(), "idle" | "offered" | "binned");
        found.unless(rests, "I6", || format!("{session} is {state}, and nothing is under way"));
    }
    for (session, rows) in &trace.stored.0 {
        // What a fork shares was paid for by its origin.
        let own = rows.iter().rposition(|row| row.kind == "forked").unwrap_or_default();
        let answers = rows.iter().skip(own).filter(|row| match row.kind.as_str() {
            "message" => row.str("role") == "assistant",
            "compacted" => true,
            "compaction_failed" => row.event["usage"].is_object(),
            "session_changed" => row.event["title_cost"].is_object(),
            "tool_finished" => row.event["model_cost"].is_object(),
            _ => false,
        });
        let logged = answers.fold((0, 0), |(answers, input), row| {
            let of = |field: &str| row.event[field].get("usage");
            let usage = row.event.get("usage").or_else(|| of("title_cost")).or_else(|| of("model_cost"));
            let usage = usage.unwrap_or(&Value::Null);
            (answers + 1, input + usage["input_tokens"].as_u64().unwrap_or_default())
        });
        let paid = folded.paid.get(session).copied().unwrap_or_default();
        // Of an answer that damage took away it is still known what it has cost.
        // At the end of a session without its state, that there was one may not be known: a notice says so.
        let is_lost = rows.iter().any(|row| row.kind == "lost" || row.str("code") == "damaged");
        let is_more = is_lost && paid.0 >= logged.0 && paid.1 >= logged.1;
        found.unless(paid == logged || is_more, "fold", || {
            format!("{session}: the log has paid for {logged:?} (answers, tokens), its days for {paid:?}")
        });
    }
    for (session, stream) in &folded.scratch {
        found.add("I1", format!("{session}: text of {stream} is left that no event has closed"));
    }
}

/// I8, I10, I12, I13 and I14: what is measured or seen from outside.
pub(super) fn limits(trace: &Trace, found: &mut Found) {
    trace.left.iter().for_each(|process| found.add("I8", format!("left behind: {process}")));
    if let Some((before, after)) = trace.grown {
        found.unless(after <= before + GROWTH, "I10", || format!("{before} KiB before, {after} KiB after"));
    }
    for text in &trace.printed {
        let control = text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t'));
        found.unless(control.is_none(), "I12", || format!("{control:?} was printed in {text:?}"));
    }
    for took in &trace.cancels {
        found.unless(*took <= CANCEL, "I13", || format!("a cancel took {took:?}"));
    }
    trace.refused.iter().for_each(|why| found.add("I14", format!("lingerd does not start: {why}")));
}

/// The first event of each shape, that is kind and fields, is as the schema says.
pub(super) fn schema(clients: &[Transcript], found: &mut Found) {
    let mut shapes = BTreeSet::new();
    for seen in clients.iter().flat_map(Transcript::events) {
        let fields = seen.event.as_object().map(|event| event.keys().cloned().collect::<Vec<_>>());
        if shapes.insert((seen.kind().to_owned(), fields))
            && let Err(problem) = wire::event_fits_schema(&seen.session, &seen.cursor, &seen.event)
        {
            found.add("schema", problem);
        }
    }
}
