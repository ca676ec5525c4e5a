//! A reply's body, piece by piece, with a limit on each wait.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::Stream;
use hyper::body::Body;
use tokio::time::{Instant, Sleep, sleep};

use super::{failure, timed_out};
use crate::TransportError;

/// The data of a body, ended by an error when the next piece takes longer than `idle`. The time runs only
/// while somebody waits for the piece, so a slow reader does no harm.
pub(super) struct Pieces<B> {
    /// `None` once it has ended, well or not.
    body: Option<B>,
    idle: Duration,
    /// Made with the first wait: many a body is there with its head.
    limit: Option<Pin<Box<Sleep>>>,
    /// Whether `limit` is about the piece that is waited for now.
    waiting: bool,
}

impl<B> Pieces<B> {
    pub(super) fn new(body: B, idle: Duration) -> Self {
        Self { body: Some(body), idle, limit: None, waiting: false }
    }

    fn poll_limit(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let idle = self.idle;
        match &mut self.limit {
            Some(limit) if !self.waiting => {
                // Past the end of all time, the old end is as good.
                if let Some(end) = Instant::now().checked_add(idle) {
                    limit.as_mut().reset(end);
                }
            }
            Some(_) => {}
            None => self.limit = Some(Box::pin(sleep(idle))),
        }
        self.waiting = true;
        self.limit.as_mut().map_or(Poll::Pending, |limit| limit.as_mut().poll(cx))
    }
}

impl<B> Stream for Pieces<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    type Item = Result<Bytes, TransportError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        while let Some(body) = &mut this.body {
            match Pin::new(body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    this.waiting = false;
                    // Trailers say nothing that we read.
                    if let Ok(piece) = frame.into_data() {
                        return Poll::Ready(Some(Ok(piece)));
                    }
                }
                Poll::Ready(end) => {
                    this.body = None;
                    return Poll::Ready(
                        end.and_then(Result::err).map(|error| Err(failure(error, false))),
                    );
                }
                Poll::Pending => {
                    std::task::ready!(this.poll_limit(cx));
                    this.body = None;
                    let late = timed_out("nothing more of the reply", this.idle);
                    return Poll::Ready(Some(Err(late)));
                }
            }
        }
        Poll::Ready(None)
    }
}
