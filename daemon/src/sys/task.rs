//! Tasks and blocking work in boxes.
//!
//! The compiler copies Tokio's machinery, some 4 KB, for each type of future and closure. A box is one type for all; it saves half a
//! megabyte of the daemon.

use std::future::Future;
use std::pin::Pin;

use tokio::task::{self, JoinHandle};

/// As [`tokio::spawn`].
#[track_caller]
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let future: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(future);
    task::spawn(future)
}

/// As [`tokio::task::spawn_blocking`].
#[track_caller]
pub fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let work: Box<dyn FnOnce() -> T + Send> = Box::new(work);
    task::spawn_blocking(work)
}
