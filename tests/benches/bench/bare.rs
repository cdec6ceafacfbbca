//! Floors that are clients: what every agent has to do in a turn and in a round with a tool, and nothing else.
//!
//! [`BareRound`] is a client over bare HTTP and a server on a thread of its own that stays one answer behind: a round begins with
//! the server's answer and ends when it has the whole of the next request, as the scripted model server measures it.
//! [`BareTurn`] asks the scripted model server itself.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use linger_tests::floors::{Commits, ms};

/// What the server answers.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Reads an answer to its end, commits, runs the command, sends the next body.
pub(super) struct BareRound {
    stream: TcpStream,
    commits: Commits,
    /// Lets the server answer.
    answer: Sender<()>,
    /// From the answer to the request that followed it, in milliseconds.
    took: Receiver<f64>,
}

impl BareRound {
    /// Its commits go to a database at `path`.
    pub(super) fn new(path: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("an address")).expect("the server listens");
        stream.set_nodelay(true).expect("no delay");
        let ((answer, answers), (tell, took)) = (channel(), channel());
        std::thread::spawn(move || serve(&listener, &answers, &tell));
        Self { stream, commits: Commits::new(path), answer, took }
    }

    /// One round that ends in sending `body`: milliseconds.
    pub(super) fn round(&mut self, body: &[u8]) -> f64 {
        self.answer.send(()).expect("the server is there");
        self.stream.read_exact(&mut [0; ANSWER.len()]).expect("an answer");
        self.commits.commit_and_spawn();
        let head = format!("POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n", body.len());
        self.stream.write_all(&[head.as_bytes(), body].concat()).expect("the server reads");
        self.took.recv().expect("the server is there")
    }
}

/// Writes a prompt down, has it answered over a connection that is there, and writes the answer down.
pub(super) struct BareTurn {
    stream: TcpStream,
    commits: Commits,
    request: Vec<u8>,
}

impl BareTurn {
    /// Its commits go to a database at `path`; it sends `body` to the `url` of the scripted model.
    pub(super) fn new(path: &Path, url: &str, body: &[u8]) -> Self {
        let (host, route) = url.trim_start_matches("http://").split_once('/').expect("an address with a path");
        let stream = TcpStream::connect(host).expect("the model listens");
        stream.set_nodelay(true).expect("no delay");
        let head = format!(
            "POST /{route} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        Self { stream, commits: Commits::new(path), request: [head.as_bytes(), body].concat() }
    }

    /// One turn: milliseconds.
    pub(super) fn turn(&mut self) -> f64 {
        let start = Instant::now();
        self.commits.commit();
        self.stream.write_all(&self.request).expect("the model reads");
        let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
        while !answer.ends_with(b"0\r\n\r\n") {
            let read = self.stream.read(&mut buffer).expect("an answer");
            assert!(read > 0, "the model hung up: {}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&buffer[..read]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
        self.commits.commit();
        ms(start)
    }
}

fn serve(listener: &TcpListener, answers: &Receiver<()>, tell: &Sender<f64>) {
    let (stream, _) = listener.accept().expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    let mut stream = BufReader::new(stream);
    // Ends when the other side does.
    while answers.recv().is_ok() {
        stream.get_mut().write_all(ANSWER).expect("the client reads");
        let answered = Instant::now();
        read_request(&mut stream);
        if tell.send(ms(answered)).is_err() {
            return;
        }
    }
}

fn read_request(stream: &mut BufReader<TcpStream>) {
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).expect("a header");
        match line.trim_end().split_once(": ") {
            Some(("content-length", value)) => length = value.parse().expect("a number"),
            None if line.trim_end().is_empty() => break,
            _ => {}
        }
    }
    stream.read_exact(&mut vec![0; length]).expect("a body");
}
