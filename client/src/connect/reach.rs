//! Reaches the daemon's socket: dials it, starts a daemon if there is none, and waits for one that is starting.
//!
//! When the daemon dies, its keeper starts the next one within a second and holds the lock meanwhile.
//! So a client that lost its connection first waits a moment before it starts a daemon itself. A start
//! that comes too early, or together with others, does no harm: a process that finds the lock taken
//! says `running` and ends, and the client dials on until the holder accepts or is gone.
//! [`Search`] decides when to do what; it is pure.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use linger_protocol::listener::holder;
use linger_protocol::place::{PlaceError, Places, check_socket};
use linger_protocol::transport::blocking::{self, Reader, Writer};

use super::far;
use super::start::{self, Started};
use crate::error::Failure;

/// How long after a loss to leave the restart to the keeper.
pub(super) const KEEPER: Duration = Duration::from_millis(500);

/// How long a process may hold the lock without accepting: a daemon takes 5 s to end, and one that starts reads its database.
const ACCEPT: Duration = Duration::from_secs(10);

/// How long to search for a daemon, and start one, after a loss.
const COME_BACK: Duration = Duration::from_secs(15);

/// The time from one start to the next: the holder of the lock may be gone by then.
const AGAIN: Duration = Duration::from_secs(1);

/// The first and the longest pause between two attempts to connect. Each is shortened by up to a half
/// at random, since all clients of a daemon lose it at the same moment.
const PAUSE: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(200)];

/// Both ends of a connection.
pub(crate) struct Stream {
    pub(super) reader: Reader,
    pub(super) writer: Writer,
    /// Whether this process started the daemon.
    pub(super) started: bool,
}

/// Connects if there is a daemon.
pub(crate) fn dial(places: &Places) -> Result<Option<Stream>, Failure> {
    match check_socket(&places.socket) {
        Ok(()) => {}
        Err(PlaceError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    match blocking::connect(&places.socket) {
        Ok((reader, writer)) => Ok(Some(Stream { reader, writer, started: false })),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(None),
        Err(error) => {
            Err(Failure::unreachable(format!("cannot connect to the daemon at {}: {error}", places.socket.display()))
                .hint("`linger doctor` says what is wrong"))
        }
    }
}

/// Connects, and starts the daemon if there is none; `pause` waits, and may end the search.
pub(super) fn reach(
    places: &Places,
    mut search: Search,
    mut pause: impl FnMut(Duration) -> Result<(), Failure>,
) -> Result<Stream, Failure> {
    let began = Instant::now();
    let (mut held, mut is_ours) = (false, false);
    loop {
        if let Some(stream) = dial(places)? {
            return Ok(Stream { started: is_ours, ..stream });
        }
        match search.next(began.elapsed()) {
            Step::Wait(time) => pause(jittered(time))?,
            Step::Start if !far::is_here(places) => {
                search.leave_elsewhere(began.elapsed(), far::nothing_there(places))?;
            }
            Step::Start if search.waits && was_stopped(places) => search.leave(began.elapsed()),
            Step::Start => {
                let started = start::daemon(places);
                is_ours |= matches!(started, Ok(Started::Ready));
                // A daemon that is about to bind its socket has a second for it.
                if std::mem::replace(&mut held, matches!(started, Ok(Started::Running)))
                    && held
                    && let Some(holder) = holder::find(places)
                {
                    if let Some(other) = holder.other_socket(places) {
                        return Err(elsewhere(holder.pid, other, places));
                    }
                    // Its directory may have been renamed without a notice to it. Fails if it is gone, which is fine.
                    let _gone = holder.miss_socket();
                }
                search.started(began.elapsed(), started)?;
            }
            Step::GiveUp(why) => return Err(why.unwrap_or_else(|| not_accepting(places))),
        }
    }
}

/// The failure if this machine's daemon listens on another socket than that of `places`.
pub(crate) fn elsewhere(pid: u32, other: &Path, places: &Places) -> Failure {
    let (other, socket) = (other.display(), places.socket.display());
    Failure::unreachable(format!("the daemon (process {pid}) listens at {other}, not at {socket}"))
        .hint("LINGER_SOCKET moves the socket: set it for the daemon and for the client alike")
}

fn not_accepting(places: &Places) -> Failure {
    let message = match holder::find(places) {
        Some(holder) => format!("the daemon (process {}) does not accept connections", holder.pid),
        None => "the daemon was started but does not accept connections".to_owned(),
    };
    Failure::unreachable(message)
        .hint(format!("see {}; `linger daemon stop` ends a daemon that hangs", places.log().display()))
}

/// Whether the daemon ended in good order: its socket is removed and its lock is free. A killed daemon leaves its socket.
fn was_stopped(places: &Places) -> bool {
    !places.socket.exists() && holder::find(places).is_none()
}

fn jittered(pause: Duration) -> Duration {
    // Without entropy there is no jitter.
    let random = f64::from(getrandom::u32().unwrap_or_default()) / f64::from(u32::MAX);
    pause.mul_f64(1.0 - random / 2.0)
}

/// A search for the daemon; times count from its beginning.
#[derive(Debug)]
pub(super) struct Search {
    /// Whether a daemon was lost: then a start that fails may succeed later.
    after_loss: bool,
    /// Whether a daemon that somebody stopped is left alone.
    waits: bool,
    start_at: Duration,
    give_up_at: Duration,
    pause: Duration,
    /// Why the last start failed.
    failed: Option<Failure>,
}

/// The next step of a search.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Wait(Duration),
    Start,
    GiveUp(Option<Failure>),
}

impl Search {
    /// For a new command.
    pub(super) fn first() -> Self {
        let [pause, _] = PAUSE;
        Self { after_loss: false, waits: false, start_at: Duration::ZERO, give_up_at: ACCEPT, pause, failed: None }
    }

    /// For a client that lost its daemon.
    pub(super) fn retry() -> Self {
        Self { after_loss: true, start_at: KEEPER, give_up_at: COME_BACK, ..Self::first() }
    }

    /// For a terminal whose session was attached: one that somebody stopped is awaited, and not started.
    pub(super) fn attached() -> Self {
        Self { waits: true, ..Self::retry() }
    }

    fn next(&mut self, now: Duration) -> Step {
        if now >= self.give_up_at {
            return Step::GiveUp(self.failed.take());
        }
        if now >= self.start_at {
            return Step::Start;
        }
        let pause = self.pause;
        let [_, longest] = PAUSE;
        self.pause = (pause * 2).min(longest);
        Step::Wait(pause.min(self.start_at - now).min(self.give_up_at - now))
    }

    /// Starts nothing for now.
    fn leave(&mut self, now: Duration) {
        self.start_at = now + AGAIN;
        self.failed = Some(
            Failure::unreachable("the daemon was stopped")
                .hint("any command starts it again; running turns then continue"),
        );
    }

    /// Starts nothing at a socket that is not this machine's; after a loss, the tunnel may be opened again. Fails if it ends the search.
    fn leave_elsewhere(&mut self, now: Duration, failure: Failure) -> Result<(), Failure> {
        self.start_at = now + AGAIN;
        if !self.after_loss {
            return Err(failure);
        }
        self.failed = Some(failure);
        Ok(())
    }

    /// Takes the outcome of a start. Fails if it ends the search.
    fn started(&mut self, now: Duration, outcome: Result<Started, Failure>) -> Result<(), Failure> {
        self.start_at = now + AGAIN;
        let [pause, _] = PAUSE;
        self.pause = pause;
        match outcome {
            // The time that the start took does not count against the daemon that is there now.
            Ok(Started::Ready) => self.give_up_at = self.give_up_at.max(now + AGAIN),
            Ok(Started::Running) => self.failed = None,
            Err(failure) if self.after_loss => self.failed = Some(failure),
            Err(failure) => return Err(failure),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The steps of a search in which each start ends as said: when, and what.
    fn steps(mut search: Search, start: impl Fn() -> Result<Started, Failure>) -> (Vec<u128>, Result<Step, Failure>) {
        let (mut now, mut starts) = (Duration::ZERO, Vec::new());
        loop {
            match search.next(now) {
                Step::Wait(pause) => now += pause,
                Step::Start => {
                    starts.push(now.as_millis());
                    now += ms(10);
                    if let Err(failure) = search.started(now, start()) {
                        return (starts, Err(failure));
                    }
                }
                end @ Step::GiveUp(_) => return (starts, Ok(end)),
            }
        }
    }

    #[test]
    fn a_new_command_starts_a_daemon_at_once() {
        assert_eq!(Search::first().next(Duration::ZERO), Step::Start);
    }

    #[test]
    fn after_a_loss_a_keeper_has_time_to_bring_the_daemon_back() {
        let mut search = Search::retry();
        assert_eq!(search.next(Duration::ZERO), Step::Wait(ms(1)));
        assert_eq!(search.next(ms(1)), Step::Wait(ms(2)));
        assert_eq!(search.next(ms(490)), Step::Wait(ms(4)));
        assert_eq!(search.next(KEEPER), Step::Start);
    }

    #[test]
    fn the_holder_of_the_lock_is_dialled_for_a_while_and_started_again_if_it_is_gone() {
        let (starts, end) = steps(Search::first(), || Ok(Started::Running));
        assert_eq!((starts.len(), starts[..3].to_vec()), (10, vec![0, 1010, 2020]));
        assert_eq!(end, Ok(Step::GiveUp(None)));
    }

    #[test]
    fn nothing_is_started_at_the_end_of_a_tunnel_and_after_a_loss_it_may_come_back() {
        let dead = || Failure::unreachable("nothing listens");
        assert_eq!(Search::first().leave_elsewhere(Duration::ZERO, dead()), Err(dead()));
        let mut search = Search::attached();
        assert_eq!(search.next(KEEPER), Step::Start);
        assert_eq!(search.leave_elsewhere(KEEPER, dead()), Ok(()));
        assert!(matches!(search.next(KEEPER), Step::Wait(_)));
        assert_eq!(search.next(COME_BACK), Step::GiveUp(Some(dead())));
    }

    #[test]
    fn a_daemon_that_was_stopped_is_awaited() {
        let mut search = Search::attached();
        assert_eq!(search.next(KEEPER), Step::Start);
        search.leave(KEEPER);
        assert!(matches!(search.next(KEEPER), Step::Wait(_)));
        let Step::GiveUp(Some(failure)) = search.next(COME_BACK) else { panic!("it waits for ever") };
        assert_eq!(failure.message.as_deref(), Some("the daemon was stopped"));
    }

    #[test]
    fn a_start_that_fails_ends_a_command_and_is_tried_again_after_a_loss() {
        let full = || Err(Failure::unreachable("the disk is full"));
        assert_eq!(steps(Search::first(), full).1, full().map(|_: Started| Step::Start));
        let (starts, end) = steps(Search::retry(), full);
        assert_eq!((starts.len(), end), (15, Ok(Step::GiveUp(full().err()))));
    }
}
