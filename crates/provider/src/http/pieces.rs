//! A reply's body, piece by piece, with a limit on each wait.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
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
                    ready!(this.poll_limit(cx));
                    this.body = None;
                    let late = timed_out("nothing more of the reply", this.idle);
                    return Poll::Ready(Some(Err(late)));
                }
            }
        }
        Poll::Ready(None)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{StreamExt as _, stream};
    use http::HeaderMap;
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use tokio::sync::mpsc;

    use super::*;
    use crate::TransportKind;

    const IDLE: Duration = Duration::from_secs(90);

    type Given = mpsc::UnboundedSender<Frame<Bytes>>;

    /// A body of the frames that are given to it.
    fn body(idle: Duration) -> (Given, impl Stream<Item = Result<Bytes, TransportError>> + Unpin) {
        let (give, mut frames) = mpsc::unbounded_channel();
        let frames =
            stream::poll_fn(move |cx| frames.poll_recv(cx).map(|f| f.map(Ok::<_, Infallible>)));
        (give, Pieces::new(StreamBody::new(frames), idle))
    }

    fn data(text: &'static str) -> Frame<Bytes> {
        Frame::data(text.into())
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_piece_runs_only_while_somebody_waits() {
        let (give, mut pieces) = body(IDLE);
        let mut came = within(&mut pieces, IDLE / 2).await;
        assert!(came.is_none());
        for _ in 0..3 {
            // It has waited for this one half of its time, and nobody asks for the next for a long one.
            give.send(data("piece")).unwrap();
            assert_eq!(pieces.next().await.unwrap().unwrap(), "piece");
            sleep(IDLE * 3).await;
            came = within(&mut pieces, IDLE - Duration::from_millis(10)).await;
            assert!(came.is_none(), "it counted the time of the reader");
        }
        let error = pieces.next().await.unwrap().unwrap_err();
        assert_eq!(error.kind, TransportKind::Timeout);
        assert!(pieces.next().await.is_none());
        assert!(give.is_closed(), "the connection is kept, though nobody reads on");
    }

    /// What comes within `time`.
    async fn within(
        pieces: &mut (impl Stream<Item = Result<Bytes, TransportError>> + Unpin),
        time: Duration,
    ) -> Option<Result<Bytes, TransportError>> {
        tokio::time::timeout(time, pieces.next()).await.ok().flatten()
    }

    #[tokio::test(start_paused = true)]
    async fn trailers_are_no_piece_and_the_end_is_the_end() {
        let (give, mut pieces) = body(IDLE);
        give.send(data("all")).unwrap();
        give.send(Frame::trailers(HeaderMap::new())).unwrap();
        drop(give);
        assert_eq!(pieces.next().await.unwrap().unwrap(), "all");
        assert!(pieces.next().await.is_none());
        assert!(pieces.next().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_beyond_all_time_is_none() {
        let (give, mut pieces) = body(Duration::MAX);
        for _ in 0..2 {
            assert!(within(&mut pieces, IDLE).await.is_none());
            give.send(data("piece")).unwrap();
            assert_eq!(pieces.next().await.unwrap().unwrap(), "piece");
        }
    }
}
