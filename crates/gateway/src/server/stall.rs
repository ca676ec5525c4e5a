//! A socket whose reader may not fall asleep.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

/// A stream that fails when nothing of what is to be written could be for `patience`.
#[derive(Debug)]
pub(crate) struct Stalling<T> {
    stream: T,
    patience: Duration,
    /// Made with the first stall: most connections never have one.
    timer: Option<Pin<Box<Sleep>>>,
    stalled: bool,
}

impl<T> Stalling<T> {
    pub(crate) const fn new(stream: T, patience: Duration) -> Self {
        Self { stream, patience, timer: None, stalled: false }
    }

    /// Passes on what became of a write, and counts the time while it is nothing.
    fn watch<R>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.stalled = false;
            return written;
        }
        let patience = self.patience;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        if !self.stalled {
            self.stalled = true;
            timer.as_mut().reset(Instant::now() + patience);
        }
        ready!(timer.as_mut().poll(cx));
        let fault = "the client reads nothing of what is sent to it";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, fault)))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Stalling<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Stalling<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_stands_still_ends_the_writing() {
        let (near, _far) = tokio::io::duplex(16);
        let mut near = Stalling::new(near, Duration::from_secs(60));
        let began = Instant::now();
        let error = near.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed(), Duration::from_secs(60));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_is_waited_for_as_long_as_it_reads() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut near = Stalling::new(near, Duration::from_secs(60));
        let reader = tokio::spawn(async move {
            let mut piece = [0; 16];
            for _ in 0..8 {
                tokio::time::sleep(Duration::from_secs(50)).await;
                far.read_exact(&mut piece).await.unwrap();
            }
        });
        near.write_all(&[0; 128]).await.unwrap();
        reader.await.unwrap();
    }
}
