//! The daemon's end of one connection: reads requests, runs them in order, writes answers and events.
//!
//! Two loops share the socket. The reader polls each handler once where it stands, so that requests take effect in the order
//! in which they came; a handler that has to wait goes on as a task of its own and answers later. The writer takes what is in
//! the [`Outbox`], which is bounded: a client that does not read stops its own forwarders and its own reader, and nobody
//! else. The connection ends when the client closes its writing side and every request is answered, or when writing fails.
//!
//! jsonrpsee dispatches (`Methods`), but its own entry point for raw requests does not fit: it knows one connection only and
//! takes ids that it cannot parse for notifications.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use jsonrpsee::core::server::{MethodCallback, MethodResponse, MethodResponseNotifyTx, Methods};
use jsonrpsee::types::{ErrorObjectOwned, Id, Params};
use jsonrpsee::{ConnectionId, Extensions};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::unconstrained;
use tokio::time::{sleep, timeout};

use super::line::{Decoder, Frame, Framing, encode};
use super::outbox::{Batch, Gone, MAX_WAITING, Outbox, Outgoing};
use super::request::{AnswerTo, Entries, Envelope, params, plain};
use super::room::{AnswerRoom, Holder, LargeRoom, Together};
use super::{MAX_BATCH, MAX_REQUEST};
use crate::error::{Code, RpcError};

/// Up to this size, in bytes, a request is taken as it comes; all but those with a file or an image in them are smaller.
const SMALL: usize = 64 << 10;

/// How long a client may not read what holds room that others wait for; then it is hung up, and loses nothing: it reads on from
/// its cursor.
const STUCK: Duration = Duration::from_secs(2);

/// How long the rest of a large request may keep its client silent before what came of it is given up: on a local socket the
/// next piece is there in microseconds, and others may want the room.
const HALF: Duration = Duration::from_secs(10);

/// How much is written at once, in bytes: a quarter of Linux' default socket buffer.
const WRITE_CHUNK: usize = 32 << 10;

/// How much is read at once, in bytes: a request is a few hundred.
const READ_CHUNK: usize = 4 << 10;

/// The largest response, in bytes; jsonrpsee answers with an error beyond.
const MAX_RESPONSE: usize = super::MAX_EVENT;

const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
pub(super) const INVALID_PARAMS: i32 = -32602;
const OVERSIZED_REQUEST: i32 = -32007;

/// Whether the method with this name may run.
type MayRun = dyn Fn(&str) -> Result<(), RpcError> + Send + Sync;

/// Decides by its name whether a method may run, when its turn has come; in the extensions of a connection.
#[derive(Clone)]
pub struct Gate(pub Arc<MayRun>);

/// Serves one connection until it ends.
pub async fn serve<S>(stream: S, methods: Methods, extensions: Extensions, outbox: Outbox, outgoing: Outgoing)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (read, write) = tokio::io::split(stream);
    let counted = Arc::new(AtomicBool::new(false));
    let (finish, finished) = oneshot::channel();
    let connection = Connection { methods, extensions, outbox, counted: counted.clone() };
    let reader = async move {
        connection.read(read).await;
        // Everything that was asked is answered before the connection ends.
        drop(connection.outbox.activity.waiting.acquire_many(MAX_WAITING).await);
        drop(finish);
    };
    let writer = write_lines(write, outgoing, counted, finished);
    tokio::pin!(reader, writer);
    tokio::select! {
        () = &mut reader => writer.await,
        () = &mut writer => {}
    }
}

async fn write_lines(
    mut write: impl AsyncWrite + Unpin,
    mut outgoing: Outgoing,
    counted: Arc<AtomicBool>,
    mut finished: oneshot::Receiver<()>,
) {
    let mut bytes = Vec::new();
    let mut finishing = false;
    loop {
        let batch = if finishing {
            outgoing.lines.try_recv().ok()
        } else {
            tokio::select! {
                biased;
                batch = outgoing.lines.recv() => batch,
                _ = &mut finished => {
                    finishing = true;
                    continue;
                }
            }
        };
        let Some(batch) = batch else { return };
        let framing = if counted.load(Ordering::Relaxed) { Framing::ContentLength } else { Framing::Lines };
        let mut next = Some(batch);
        let mut rooms = Vec::new();
        let mut taken = 0;
        while let Some(batch) = next {
            taken += batch.size();
            rooms.extend(batch.rooms);
            batch.lines.iter().for_each(|message| encode(framing, message, &mut bytes));
            next = if bytes.len() < WRITE_CHUNK { outgoing.lines.try_recv().ok() } else { None };
        }
        outgoing.activity.writing.store(outgoing.activity.now(), Ordering::Relaxed);
        if write_whole(&mut write, &bytes, &outgoing.activity.holder).await.is_err() {
            return;
        }
        drop(rooms);
        outgoing.activity.written(taken);
        outgoing.activity.writing.store(0, Ordering::Relaxed);
        bytes.clear();
        bytes.shrink_to(READ_CHUNK);
    }
}

/// Writes all of it. A client that does not read may take its time, unless it holds room that others wait for: in what is being
/// written, or in what waits behind it.
async fn write_whole(write: &mut (impl AsyncWrite + Unpin), bytes: &[u8], holder: &Holder) -> Result<(), Gone> {
    let mut rest = bytes;
    while !rest.is_empty() {
        // Nothing runs, and no timer either, while a client that holds none does not read.
        let stuck = async {
            holder.holds().await;
            sleep(STUCK).await;
        };
        tokio::select! {
            biased;
            written = write.write(rest) => match written {
                Ok(written @ 1..) => rest = rest.get(written..).unwrap_or_default(),
                Ok(_) | Err(_) => return Err(Gone),
            },
            () = stuck => if holder.capacity.contended() { return Err(Gone) },
        }
    }
    Ok(())
}

struct Connection {
    methods: Methods,
    extensions: Extensions,
    outbox: Outbox,
    counted: Arc<AtomicBool>,
}

/// Room that one large request takes.
#[derive(Default)]
struct Room(Option<OwnedSemaphorePermit>);

impl Room {
    /// Whether there is room for `bytes`.
    fn grow(&mut self, bytes: usize, all: &Arc<Semaphore>) -> bool {
        let have = self.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        // What is small needs none.
        let more = (bytes / SMALL).saturating_sub(have);
        let Ok(more @ 1..) = u32::try_from(more) else { return more == 0 };
        match (all.clone().try_acquire_many_owned(more), &mut self.0) {
            (Err(_), _) => return false,
            (Ok(permit), Some(held)) => held.merge(permit),
            (Ok(permit), held @ None) => *held = Some(permit),
        }
        true
    }
}

/// A handler's result: the response, the notification that it is on its way, and the room that it takes.
type Answer = (Box<RawValue>, Option<MethodResponseNotifyTx>, Vec<LargeRoom>);
type Handler = Pin<Box<dyn Future<Output = Option<Answer>> + Send>>;

/// The request in one message.
enum MessageHandlers {
    One(Handler),
    /// At most [`MAX_BATCH`], which is no more than may wait.
    Batch(Vec<Handler>),
}

impl Connection {
    async fn read(&self, mut read: impl AsyncRead + Unpin) {
        let mut decoder = Decoder::new(MAX_REQUEST);
        let mut chunk = [0; READ_CHUNK];
        let mut room = Room::default();
        loop {
            while let Some(frame) = decoder.next_frame() {
                self.counted.store(decoder.framing() == Framing::ContentLength, Ordering::Relaxed);
                let broken = frame == Frame::Broken;
                if self.run(self.handle_frame(frame), std::mem::take(&mut room)).await.is_err() || broken {
                    return;
                }
            }
            if !room.grow(decoder.held(), &self.outbox.activity.holder.capacity.requests) {
                decoder.give_up_message();
                room = Room::default();
            }
            let read = read.read(&mut chunk);
            // Only what holds room has a timer: a client may be silent for as long as it likes.
            let read = match room.0 {
                None => read.await,
                Some(_) => match timeout(HALF, read).await {
                    Ok(read) => read,
                    Err(_) => {
                        decoder.give_up_message();
                        room = Room::default();
                        continue;
                    }
                },
            };
            match read {
                Ok(n) if n > 0 => decoder.feed(chunk.get(..n).unwrap_or_default()),
                _ => return,
            }
        }
    }

    /// Polls once: a ready response is sent in place, any other becomes a task and keeps its room.
    async fn run(&self, asked: MessageHandlers, room: Room) -> Result<(), Gone> {
        let activity = &self.outbox.activity;
        activity.asked.store(activity.now(), Ordering::Relaxed);
        let (requests, mut handler) = match asked {
            MessageHandlers::One(handler) => (1, handler),
            MessageHandlers::Batch(handlers) => (handlers.len() as u32, together(handlers)),
        };
        let Ok(permit) = activity.waiting.clone().acquire_many_owned(requests).await else { return Err(Gone) };
        // Without Tokio's budget, of which a crowd of requests could take all: then a later one would overtake this one.
        let first = unconstrained(poll_fn(|context| Poll::Ready(handler.as_mut().poll(context)))).await;
        let outbox = self.outbox.clone();
        match first {
            Poll::Ready(answer) => deliver(&outbox, answer).await,
            Poll::Pending => {
                tokio::spawn(async move {
                    // A client that has gone needs no answer.
                    let _gone = deliver(&outbox, handler.await).await;
                    drop((permit, room));
                });
                Ok(())
            }
        }
    }

    fn handle_frame(&self, frame: Frame) -> MessageHandlers {
        let line = match frame {
            Frame::Message(line) => line,
            Frame::Oversize => {
                let message = format!("a message may have {MAX_REQUEST} bytes at most");
                return MessageHandlers::One(fault(OVERSIZED_REQUEST, message, Id::Null));
            }
            Frame::GivenUp => {
                let error = RpcError::new(Code::TooMuch, "a large request was given up before its end");
                let error = error.hint("it came too slowly, or too many large requests came at once; send it again");
                let (json, _, _) = MethodResponse::error(Id::Null, ErrorObjectOwned::from(error)).into_parts();
                return MessageHandlers::One(Box::pin(std::future::ready(Some((json, None, Vec::new())))));
            }
            Frame::Broken => {
                return MessageHandlers::One(fault(PARSE_ERROR, "no Content-Length header".to_owned(), Id::Null));
            }
        };
        if line.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'[') {
            return MessageHandlers::One(self.handle_one(&line, &Arc::default()));
        }
        match serde_json::from_slice(&line) {
            Ok(Entries(entries)) => {
                let together = Arc::default();
                let handle = |entry: &RawValue| self.handle_one(entry.get().as_bytes(), &together);
                MessageHandlers::Batch(entries.into_iter().map(handle).collect())
            }
            Err(error) if error.is_data() => {
                let message = format!("a batch has 1 to {MAX_BATCH} requests");
                MessageHandlers::One(fault(INVALID_REQUEST, message, Id::Null))
            }
            Err(error) => MessageHandlers::One(fault(PARSE_ERROR, error.to_string(), Id::Null)),
        }
    }

    fn handle_one(&self, line: &[u8], together: &Arc<Together>) -> Handler {
        // serde would take it for a struct's fields.
        if line.first() == Some(&b'[') {
            return fault(INVALID_REQUEST, "a request is an object, not an array".to_owned(), Id::Null);
        }
        let request: Envelope<'_> = match serde_json::from_slice(line) {
            Ok(request) => request,
            Err(error) if error.is_data() => return fault(INVALID_REQUEST, error.to_string(), Id::Null),
            Err(error) => return fault(PARSE_ERROR, error.to_string(), Id::Null),
        };
        let answer_to = match request.id.map(AnswerTo::of) {
            None => None,
            Some(Some(id)) => Some(id),
            Some(None) => {
                return fault(INVALID_REQUEST, "an id is a string, a number or null".to_owned(), Id::Null);
            }
        };
        let id = answer_to.as_ref().map_or(Id::Null, AnswerTo::stand_in);
        let refuse = |message: &str, answer_to: Option<AnswerTo>| {
            fault(INVALID_REQUEST, message.to_owned(), answer_to.unwrap_or(Id::Null.into()))
        };
        let (Some("2.0"), Some(name)) = (request.jsonrpc.as_deref(), request.method.as_deref()) else {
            return refuse("a request has \"jsonrpc\":\"2.0\" and a \"method\"", answer_to);
        };
        let Some(params) = params(request.params) else {
            return refuse("params is an object", answer_to);
        };
        // To name the field that does not fit.
        let asked: Option<Box<str>> = match request.params.map(RawValue::get) {
            Some(params) if params.len() > SMALL => None,
            Some(params) if params.starts_with('{') => Some(params.into()),
            _ => Some("{}".into()),
        };
        let room = AnswerRoom::of(self.outbox.activity.holder.clone(), together.clone());
        let response = self.call(name, params, id, room.clone());
        Box::pin(async move {
            let response = response.await;
            let misfit = response.as_error_code() == Some(INVALID_PARAMS);
            let (json, notify, _) = response.into_parts();
            let json = if misfit { plain(json, asked.as_deref()) } else { json };
            let room = room.finish(json.get().len());
            // A request without an id is a notification: it happens, and is not answered.
            if let Some(answer_to) = answer_to {
                return Some((answer_to.put_into(json), notify, Vec::from_iter(room)));
            }
            // What was to follow the answer follows nevertheless.
            if let Some(then) = notify {
                then.notify(true);
            }
            None
        })
    }

    fn call(
        &self,
        name: &str,
        params: Params<'static>,
        id: Id<'static>,
        room: AnswerRoom,
    ) -> Pin<Box<dyn Future<Output = MethodResponse> + Send>> {
        let mut extensions = self.extensions.clone();
        extensions.insert(room);
        let (gate, name) = (extensions.get::<Gate>().cloned(), name.to_owned());
        let method = self.methods.method(&name).cloned();
        // Asked when the requests before it have taken effect, in a batch too.
        Box::pin(async move {
            if let Some(Err(error)) = gate.map(|Gate(may)| may(&name))
                // An unknown method needs no right, but a valid token.
                && (method.is_some() || error.code() == Some(Code::Unauthorized))
            {
                return MethodResponse::error(id, ErrorObjectOwned::from(error));
            }
            match method {
                Some(MethodCallback::Sync(method)) => method(id, params, MAX_RESPONSE, extensions),
                Some(MethodCallback::Async(method)) => {
                    method(id, params, ConnectionId(0), MAX_RESPONSE, extensions).await
                }
                Some(MethodCallback::Subscription(_) | MethodCallback::Unsubscription(_)) | None => {
                    let hint = json!({ "hint": "`linger help schema` lists the methods" });
                    let text = format!("unknown method '{name}'");
                    MethodResponse::error(id, ErrorObjectOwned::owned(METHOD_NOT_FOUND, text, Some(hint)))
                }
            }
        })
    }
}

/// The answers of a batch, as one.
fn together(handlers: Vec<Handler>) -> Handler {
    Box::pin(async move {
        let mut answers = Vec::new();
        let mut notify = Vec::new();
        let mut rooms = Vec::new();
        for (answer, then, room) in side_by_side(handlers).await.into_iter().flatten() {
            answers.push(answer);
            notify.extend(then);
            rooms.extend(room);
        }
        // Every subscriber that a batch made may start: its response goes out with the batch or not at all.
        for then in notify {
            then.notify(true);
        }
        if answers.is_empty() {
            return None;
        }
        let texts: Vec<&str> = answers.iter().map(|answer| answer.get()).collect();
        let whole = RawValue::from_string(format!("[{}]", texts.join(","))).ok()?;
        Some((whole, None, rooms))
    })
}

/// Polls each once, in order, so that they take effect in that order, and then waits for all.
async fn side_by_side(mut handlers: Vec<Handler>) -> Vec<Option<Answer>> {
    let mut answers: Vec<Option<Option<Answer>>> = handlers.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (handler, answer) in handlers.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(ready) = handler.as_mut().poll(context)
            {
                *answer = Some(ready);
            }
        }
        if answers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    answers.into_iter().flatten().collect()
}

fn fault(code: i32, message: String, answer_to: impl Into<AnswerTo>) -> Handler {
    let answer_to = answer_to.into();
    let error = ErrorObjectOwned::owned(code, message, None::<()>);
    let (json, _, _) = MethodResponse::error(answer_to.stand_in(), error).into_parts();
    Box::pin(std::future::ready(Some((answer_to.put_into(json), None, Vec::new()))))
}

async fn deliver(outbox: &Outbox, answer: Option<Answer>) -> Result<(), Gone> {
    let Some((json, notify, rooms)) = answer else { return Ok(()) };
    let sent = outbox.send_batch(Batch { lines: vec![String::from(Box::<str>::from(json))], rooms }).await;
    if let Some(notify) = notify {
        notify.notify(sent.is_ok());
    }
    sent
}
