//! An answer in pieces, as it is written to the client.

use hyper::body::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Duration, timeout};

use super::piece::{AnswerPiece, AnswerStream};
use crate::face::gateway::events::{ALIVE, COMMENT};
use crate::face::gateway::reply::Failure;

/// How long a stream waits for its first piece before it begins: what fails until then has a status of its own.
const FIRST: Duration = Duration::from_secs(10);

/// The first piece of a stream that is not only an event, if it comes soon, with the events before it; a failure has its own status then.
pub(super) async fn first(running: &mut AnswerStream) -> Result<Vec<AnswerPiece>, Failure> {
    let mut pieces = Vec::new();
    let begun = async {
        while let Some(piece) = running.pieces.recv().await {
            match piece {
                AnswerPiece::Failed(failure) => return Err(failure),
                piece @ AnswerPiece::Event(_) => pieces.push(piece),
                piece => {
                    pieces.push(piece);
                    break;
                }
            }
        }
        Ok(())
    };
    // A model that thinks for longer gets its stream all the same.
    timeout(FIRST, begun).await.unwrap_or(Ok(()))?;
    Ok(pieces)
}

/// The next piece of a stream; says meanwhile that it is alive. `None` at its end, and when the client has gone.
pub(super) async fn next(
    first: &mut Vec<AnswerPiece>,
    running: &mut AnswerStream,
    sender: &mpsc::Sender<Bytes>,
) -> Option<AnswerPiece> {
    if !first.is_empty() {
        return Some(first.remove(0));
    }
    loop {
        tokio::select! {
            piece = running.pieces.recv() => return piece,
            () = tokio::time::sleep(ALIVE) => sender.send(Bytes::from_static(COMMENT)).await.ok()?,
            () = sender.closed() => return None,
        }
    }
}

/// One of linger's events within a stream, by a name that strict clients do not know. `first` is the field that lets OpenAI's own
/// clients pass over it: they read the data of each event, whatever its name.
pub(super) fn event_line(event: &serde_json::value::RawValue, first: &str) -> Bytes {
    let fields = event.get().strip_prefix('{').unwrap_or("}");
    Bytes::from(format!("event: linger\ndata: {{{first},{fields}\n\n"))
}
