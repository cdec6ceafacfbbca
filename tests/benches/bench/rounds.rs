//! Rounds of a turn with tools: what one costs, and whether it costs more the longer the turn is.
//!
//! Growth is too small beside what a machine does to a millisecond to be seen between the beginning and the end of one turn. So
//! two sessions of one daemon take turns: a long one that goes to 200 rounds, and a short one that begins anew after a few.
//! Whatever slows the machine down slows both; only the length of the history tells them apart. Beside each, a floor makes the
//! same round with the same body ([`BareRound`]), and grows as much as it costs to send more.
//!
//! Each side makes two rounds before the other has its turn, and the second one counts, so that it has its own kind before it.
//! Of the long session only the second hundred counts.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};

use linger_tests::floors::{commit_and_spawn, median};
use linger_tests::harness::{Client, Daemon, process};
use linger_tests::model::{ModelServer, Recorded, Reply};
use serde_json::json;

use super::bare::BareRound;
use super::figures::setup;
use super::{Figure, TRIES, least, median_between};

/// Rounds of the long turn.
const ROUNDS: usize = 200;

/// Rounds of a short one: even, as two belong together.
const SHORT: usize = 8;

/// Pairs of sessions that are measured: at least so many, and at most, while the growth is not known well enough.
const SERIES: [usize; 2] = [3, 8];

/// How well the growth is known in the end, if the machine lets it be: half of the interval, in milliseconds.
const PRECISE: f64 = 0.05;

/// How much growth is none, in milliseconds: 1 µs a round. It is beyond what the floor grows by, as 200 rounds send 43 KiB
/// more than the first, or for CPU time with it. Encoding these anew at each step is twice as much.
const GROWTH: f64 = 0.1;

/// A round that counts.
#[derive(Clone, Copy)]
struct Round {
    /// How many rounds of its turn were before it.
    before: usize,
    /// From the last byte of an answer to the next request, in milliseconds.
    gap: f64,
    /// CPU time of the daemon in between, in milliseconds.
    cpu: f64,
    /// The floor's gap with the same body.
    floor: f64,
}

/// One side: its model server, and what its rounds cost so far.
struct Lane {
    model: ModelServer,
    /// The number of the request, CPU time and floor of each round that counts.
    counted: Arc<Mutex<Vec<(usize, f64, f64)>>>,
    rounds: usize,
}

/// Whose turn it is: each side has one end, and waits for the other's word.
struct Baton(Sender<()>, Receiver<()>);

fn batons() -> (Baton, Baton) {
    let ((give, taken), (give_back, taken_back)) = (channel(), channel());
    (Baton(give, taken_back), Baton(give_back, taken))
}

impl Lane {
    /// Sessions whose turns have `rounds` rounds, of which those `after` so many count.
    fn new(rounds: usize, after: usize, baton: Baton, database: PathBuf, daemon: Arc<OnceLock<u32>>) -> Self {
        let counted: Arc<Mutex<Vec<_>>> = Arc::default();
        let kept = counted.clone();
        let mut floor = BareRound::new(&database);
        let mut baton = Some(baton);
        let mut cpu = 0.0;
        let model = ModelServer::scripted(move |request: &Recorded| {
            let pid = *daemon.get().expect("the daemon runs");
            let spent = process::cpu_of_threads(pid) - cpu;
            let before = request.number % (rounds + 1);
            let counts = before > after && before.is_multiple_of(2);
            if counts {
                floor.round(&request.body);
                let floor = floor.round(&request.body);
                kept.lock().expect("nobody panics with it").push((request.number, spent, floor));
            }
            // The long side has the baton first.
            if counts || (request.number == 0 && rounds == SHORT) {
                pass(&mut baton, counts, rounds == ROUNDS && before == ROUNDS);
            }
            let reply = if before == rounds { Reply::text("done") } else { tool_call(request.number) };
            cpu = process::cpu_of_threads(pid);
            reply
        });
        model.check_later();
        Self { model, counted, rounds }
    }

    fn rounds(&self) -> Vec<Round> {
        let requests = self.model.requests();
        let counted = self.counted.lock().expect("nobody panics with it");
        let round = |&(number, cpu, floor): &(usize, f64, f64)| {
            let gap = gap(&requests[number - 1], &requests[number]);
            Round { before: number % (self.rounds + 1), gap, cpu, floor }
        };
        counted.iter().map(round).collect()
    }
}

/// A call that does nothing, and is another one each time: a model that repeats itself is stopped with a question.
fn tool_call(number: usize) -> Reply {
    Reply::tool("bash", json!({ "command": format!("true {number:04}") }))
}

/// Gives the baton to the other side unless it was never here, and waits until it is back; drops it at the `end` of all.
fn pass(baton: &mut Option<Baton>, give: bool, end: bool) {
    let Some(Baton(other, own)) = baton else { return };
    let gone = (give && other.send(()).is_err()) || (!end && own.recv().is_err());
    if gone || end {
        *baton = None;
    }
}

/// From the last byte of an answer until the whole of the next request had arrived, in milliseconds.
fn gap(answered: &Recorded, next: &Recorded) -> f64 {
    let answered = answered.answered_at.expect("it was answered");
    next.at.saturating_duration_since(answered).as_secs_f64() * 1000.0
}

/// A long session and short ones beside it: the rounds that count, in pairs of neighbours.
async fn series() -> Vec<(Round, Round)> {
    let dir = tempfile::tempdir().expect("a directory");
    let pid: Arc<OnceLock<u32>> = Arc::default();
    let (first, second) = batons();
    let long = Lane::new(ROUNDS, ROUNDS / 2, first, dir.path().join("long.db"), pid.clone());
    let short = Lane::new(SHORT, 0, second, dir.path().join("short.db"), pid.clone());
    let config = format!("[providers.short]\nkind = \"openai\"\nbase_url = \"{}/v1\"\n", short.model.url());
    let daemon = Daemon::start_with(&long.model, linger_tests::harness::Setup { config, ..setup() }).await;
    pid.set(daemon.pid().await).expect("it is set once");
    let others = tokio::spawn(short_turns(daemon.client().await));
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    others.abort();
    long.rounds().into_iter().zip(short.rounds()).collect()
}

async fn short_turns(client: Client) {
    loop {
        let session = client.create_with(json!({ "model": "short/m" })).await;
        client.attach(&session).await;
        client.turn(&session, "go").await;
    }
}

/// A turn by itself: the first ten gaps, the last ten, and the floor of each.
async fn first_and_last() -> [f64; 3] {
    let model = ModelServer::scripted(|request| {
        let more = request.number < ROUNDS;
        if more { tool_call(request.number) } else { Reply::text("done") }
    });
    model.check_later();
    let daemon = Daemon::start_with(&model, setup()).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let gaps: Vec<f64> = model.requests().windows(2).map(|pair| gap(&pair[0], &pair[1])).collect();
    assert_eq!(gaps.len(), ROUNDS);
    let floor = commit_and_spawn(daemon.dirs.root());
    [median(gaps[..10].to_vec()), median(gaps[ROUNDS - 10..].to_vec()), floor]
}

/// What 200 rounds of history add to a round: the median over all pairs, and between what it lies with 95 % certainty.
fn growth(pairs: &[(Round, Round)], of: impl Fn(&Round) -> f64) -> (f64, (f64, f64)) {
    let slope =
        |(long, short): &(Round, Round)| (of(long) - of(short)) / (long.before - short.before) as f64 * ROUNDS as f64;
    let slopes = pairs.iter().map(slope);
    median_between(slopes.collect())
}

pub(super) async fn tool_rounds() -> Vec<Figure> {
    let mut turns = Vec::new();
    for _ in 0..TRIES {
        turns.push(first_and_last().await);
    }
    let [first, last, floor] = [0, 1, 2].map(|nth| least(turns.iter().map(|turn| turn[nth])));
    let mut pairs = Vec::new();
    let mut series_left = SERIES[1];
    let (gap, between) = loop {
        pairs.extend(series().await);
        series_left -= 1;
        let (gap, between) = growth(&pairs, |round| round.gap);
        let enough = series_left <= SERIES[1] - SERIES[0] && between.1 - between.0 <= 2.0 * PRECISE;
        if enough || series_left == 0 {
            break (gap, between);
        }
    };
    let (sent, _) = growth(&pairs, |round| round.floor);
    let (cpu, cpu_between) = growth(&pairs, |round| round.cpu);
    vec![
        Figure::new("tool round: last byte to next request, first ten", first, "ms", floor + 1.5).over(floor),
        Figure::new("tool round: the same, last ten of 200", last, "ms", floor + 1.5).over(floor),
        Figure::new("tool round: growth over 200 rounds", gap, "ms", sent + GROWTH).over(sent).between(between),
        Figure::new("the same, CPU of the daemon", cpu, "ms", GROWTH).between(cpu_between),
    ]
}
