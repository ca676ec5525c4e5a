use std::{
    convert::Infallible,
    future::{Future as _, poll_fn},
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Poll},
};

use futures_util::{Stream, StreamExt as _, stream};
use http_body_util::{Full, StreamBody};
use hyper::body::Frame;

use super::*;

const MB: u64 = 1 << 20;

fn spool() -> Spool {
    Spool::new(SpoolLimits::default())
}

/// A body whose length is not announced.
fn body(
    pieces: impl Stream<Item = Bytes> + Send,
) -> impl hyper::body::Body<Data = Bytes, Error = Infallible> + Send {
    StreamBody::new(pieces.map(|piece| Ok(Frame::data(piece))))
}

fn pieces(count: usize, size: usize) -> impl Stream<Item = Bytes> + Send {
    stream::iter((0..count).map(move |i| Bytes::from(vec![b'a' + (i % 26) as u8; size])))
}

/// Announces its length, and never comes.
struct Announced<'r> {
    length: u64,
    /// How often somebody wanted to read of it.
    read: &'r AtomicUsize,
}

impl hyper::body::Body for Announced<'_> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.read.fetch_add(1, Ordering::Relaxed);
        Poll::Pending
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        hyper::body::SizeHint::with_exact(self.length)
    }
}

async fn all(pieces: impl Stream<Item = Bytes>) -> Vec<u8> {
    pieces.collect::<Vec<_>>().await.concat()
}

#[tokio::test]
async fn a_body_stays_in_memory_to_a_megabyte_and_goes_to_a_file_beyond_it() {
    for (count, size, in_memory) in [
        (0, 1, true),
        (1, 5, true),
        (1_024, 1_024, true),
        (1_025, 1_024, false),
        (3, 1 << 20, false),
    ] {
        let taken = spool().take(body(pieces(count, size)), 100 * MB).await.unwrap();
        assert_eq!(taken.bytes().is_some(), in_memory, "{count} × {size}");
        assert_eq!(taken.len(), (count * size) as u64);
        assert_eq!(taken.collect().await.unwrap(), all(pieces(count, size)).await);
    }
}

#[tokio::test]
async fn a_body_that_announces_too_much_is_not_read_at_all() {
    let read = AtomicUsize::new(0);
    let error = spool().take(Announced { length: 101, read: &read }, 100).await.unwrap_err();
    assert!(matches!(error, SpoolError::TooLarge { most: 100 }), "{error}");
    assert_eq!(read.into_inner(), 0, "it was read");
}

#[tokio::test]
async fn memory_is_taken_by_whole_pages_for_what_is_announced() {
    let spool = spool();
    let page = PAGE;
    for (length, pages) in [(1, 1), (page, 1), (page + 1, 2), (MB, MB / page), (MB + 1, 0)] {
        let read = AtomicUsize::new(0);
        let mut taking = pin!(spool.take(Announced { length, read: &read }, 100 * MB));
        while read.load(Ordering::Relaxed) == 0 {
            assert!(poll_fn(|cx| Poll::Ready(taking.as_mut().poll(cx).is_pending())).await);
            tokio::task::yield_now().await;
        }
        let taken = spool.limits.memory / page - spool.memory.available_permits() as u64;
        assert_eq!(taken, pages, "{length}");
    }
    let whole = Full::new(Bytes::from(vec![b'x'; MB as usize]));
    assert!(spool.take(whole, MB).await.unwrap().bytes().is_some());
}

#[tokio::test]
async fn a_body_that_turns_out_too_long_is_read_no_further() {
    for most in [100, 3 * MB] {
        let seen = AtomicUsize::new(0);
        let endless = stream::repeat_with(|| {
            seen.fetch_add(1_000, Ordering::Relaxed);
            Bytes::from_static(&[b'x'; 1_000])
        });
        let error = spool().take(body(endless), most).await.unwrap_err();
        assert!(matches!(error, SpoolError::TooLarge { .. }), "{error}");
        assert!((seen.into_inner() as u64) < most + 1_001);
    }
    let exact = Full::new(Bytes::from_static(b"12345"));
    assert_eq!(spool().take(exact, 5).await.unwrap(), "12345");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_falls_silent_or_drips_is_not_waited_for() {
    let limits = SpoolLimits::default();
    let began = Instant::now();
    let silent = pieces(3, 10).chain(stream::pending());
    let error = spool().take(body(silent), MB).await.unwrap_err();
    assert!(matches!(error, SpoolError::Slow), "{error}");
    assert_eq!(began.elapsed(), limits.idle);

    // However fast it was before.
    let began = Instant::now();
    let silent = pieces(1_000, 1_024).chain(stream::pending());
    let error = spool().take(body(silent), MB).await.unwrap_err();
    assert!(matches!(error, SpoolError::Slow), "{error}");
    assert_eq!(began.elapsed(), limits.idle);

    let drip = |size: usize| {
        stream::unfold((), move |()| async move {
            sleep(Duration::from_secs(1)).await;
            Some((Bytes::from(vec![b'x'; size]), ()))
        })
    };
    let began = Instant::now();
    let error = spool().take(body(drip(1_024)), 100 * MB).await.unwrap_err();
    assert!(matches!(error, SpoolError::Slow), "{error}");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());

    let slow_enough = drip(9 << 10).take(600);
    assert_eq!(spool().take(body(slow_enough), 100 * MB).await.unwrap().len(), 600 * (9 << 10));

    let as_slow_as_it_likes = Spool::new(SpoolLimits { slowest: 0, ..limits });
    assert_eq!(as_slow_as_it_likes.take(body(drip(1).take(600)), MB).await.unwrap().len(), 600);
}

#[tokio::test]
async fn a_long_body_is_written_while_it_comes() {
    let spool = spool();
    let mut kept = Kept::new(2 * MB, &spool.limits, &spool.memory).await.unwrap();
    for _ in 0..1_000 {
        kept.add(Bytes::from_static(&[b'x'; 1_000]), &spool.limits, &spool.memory).await.unwrap();
        let Kept::File { file, len, unwritten } = &kept else { panic!("it is in memory") };
        assert!(unwritten.len() < WRITE, "{} bytes are gathered", unwritten.len());
        assert_eq!(file.metadata().unwrap().len() + unwritten.len() as u64, *len);
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_is_an_error_and_not_a_short_body() {
    for count in [1, 2_000] {
        let gone = [Err(io::Error::from(io::ErrorKind::ConnectionReset))];
        let pieces = pieces(count, 1_024).map(|piece| Ok(Frame::data(piece)));
        let body = StreamBody::new(pieces.chain(stream::iter(gone)));
        let error = spool().take(body, 100 * MB).await.unwrap_err();
        assert!(matches!(error, SpoolError::Broken(_)), "{error}");
    }
}

#[tokio::test]
async fn trailers_are_passed_over() {
    let frames = [
        Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"abc"))),
        Ok(Frame::trailers(http::HeaderMap::new())),
    ];
    let taken = spool().take(StreamBody::new(stream::iter(frames)), MB).await.unwrap();
    assert_eq!(taken, "abc");
}

#[tokio::test]
async fn bodies_share_the_memory_and_give_it_back_with_their_last_handle() {
    let spool = Spool::new(SpoolLimits { memory: 2 * MB, ..SpoolLimits::default() });
    let take = || spool.take(body(pieces(1_000, 1_024)), 100 * MB);
    let (first, second) = (take().await.unwrap(), take().await.unwrap());
    assert!(first.bytes().is_some() && second.bytes().is_some());
    let third = take().await.unwrap();
    assert!(third.bytes().is_none(), "the memory is full");
    let half = first.bytes().unwrap().slice(1..2);
    drop(first);
    assert!(take().await.unwrap().bytes().is_none(), "a handle is left");
    drop(half);
    assert!(take().await.unwrap().bytes().is_some());
    drop((second, third));
    assert_eq!(spool.memory.available_permits() as u64, 2 * MB / PAGE);
}

#[tokio::test]
async fn a_body_given_up_half_way_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let limits = SpoolLimits { folder: Some(folder.path().into()), ..SpoolLimits::default() };
    let spool = Spool::new(limits);
    for count in [10, 3_000] {
        let hanging = pieces(count, 1_024).chain(stream::pending());
        let taking = timeout(Duration::from_millis(50), spool.take(body(hanging), 100 * MB));
        assert!(taking.await.is_err());
        assert_eq!(spool.memory.available_permits() as u64, spool.limits.memory / PAGE);
    }
    let kept = spool.take(body(pieces(3_000, 1_024)), 100 * MB).await.unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a file has a name");
    let length = io::copy(&mut kept.reader(), &mut io::sink()).unwrap();
    assert_eq!(length, 3_000 * 1_024);
}

#[tokio::test]
async fn a_folder_that_is_missing_or_a_disk_that_is_full_is_said_so() {
    let limits = SpoolLimits { folder: Some("/does/not/exist".into()), ..SpoolLimits::default() };
    let error = Spool::new(limits).take(body(pieces(3, 1 << 20)), 100 * MB).await.unwrap_err();
    assert!(matches!(error, SpoolError::Disk(_)), "{error}");

    #[cfg(target_os = "linux")]
    {
        let full = Arc::new(File::options().write(true).open("/dev/full").unwrap());
        let error = write(&full, b"x".to_vec()).await.unwrap_err();
        assert!(matches!(error, SpoolError::DiskFull), "{error}");
    }
}

#[test]
fn a_size_is_told_as_the_settings_write_it() {
    for (most, told) in [
        (128 << 20, "128 MB"),
        (2 << 30, "2 GB"),
        (1_536, "1536 bytes"),
        (4 << 10, "4 KB"),
        (0, "0 bytes"),
    ] {
        let error = SpoolError::TooLarge { most };
        assert_eq!(error.to_string(), format!("the body is larger than {told}"));
    }
}
