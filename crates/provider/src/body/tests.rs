use std::io::{Read as _, Write as _};

use futures_util::FutureExt as _;
use proptest::prelude::*;

use super::*;

/// `bytes` in a file without a name, which ends a little later than the body.
fn in_file(bytes: &[u8]) -> Body {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.write_all(b"and more").unwrap();
    Body::from_file(Arc::new(file), bytes.len() as u64)
}

fn all_of(body: &Body) -> Vec<u8> {
    let mut out = Vec::new();
    body.reader().read_to_end(&mut out).unwrap();
    out
}

#[derive(Debug, Clone)]
struct Cut {
    at: (prop::sample::Index, prop::sample::Index),
    with: Vec<u8>,
}

fn cut() -> impl Strategy<Value = Cut> {
    (any::<(prop::sample::Index, prop::sample::Index)>(), prop::collection::vec(any::<u8>(), 0..9))
        .prop_map(|(at, with)| Cut { at, with })
}

proptest! {
    #[test]
    fn spliced_bodies_hold_what_spliced_bytes_do(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        cuts in prop::collection::vec(cut(), 0..8),
    ) {
        let mut expected = bytes.clone();
        let mut bodies = [Body::from(bytes.clone()), in_file(&bytes)];
        for Cut { at: (a, b), with } in cuts {
            let (a, b) = (a.index(expected.len() + 1), b.index(expected.len() + 1));
            let range = a.min(b)..a.max(b);
            bodies = bodies.map(|body| {
                body.splice(range.start as u64..range.end as u64, with.clone())
            });
            expected.splice(range, with);
        }
        for body in bodies {
            prop_assert_eq!(body.len(), expected.len() as u64);
            prop_assert_eq!(body.is_empty(), expected.is_empty());
            prop_assert_eq!(&all_of(&body), &expected);
            if let Some(bytes) = body.bytes() {
                prop_assert_eq!(bytes, &expected);
            }
        }
    }
}

#[tokio::test]
async fn a_long_file_comes_in_pieces_of_64_kib_from_its_start_each_time() {
    let bytes: Vec<u8> = (0..200_000_u32).map(|i| (i % 251) as u8).collect();
    let body = in_file(&bytes);
    for _ in 0..2 {
        let pieces: Vec<Bytes> = body.clone().into_stream().try_collect().await.unwrap();
        let lengths: Vec<usize> = pieces.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [65_536, 65_536, 65_536, 3_392]);
        assert_eq!(pieces.concat(), bytes);
    }
    assert_eq!(body.collect().await.unwrap(), bytes);
}

#[tokio::test]
async fn a_file_that_was_cut_is_an_error_and_not_a_short_body() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(70_000).unwrap();
    let body = Body::from_file(Arc::new(file.try_clone().unwrap()), 70_000);
    file.set_len(69_999).unwrap();
    let error = body.clone().collect().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    let mut pieces = Box::pin(body.clone().into_stream());
    assert_eq!(pieces.try_next().await.unwrap().map(|piece| piece.len()), Some(65_536));
    assert!(pieces.try_next().await.is_err());
    assert_eq!(pieces.try_next().await.unwrap(), None);
    assert!(body.reader().read_to_end(&mut Vec::new()).is_err());
}

#[test]
fn bytes_in_memory_are_at_hand_at_once_and_never_copied() {
    let bytes = Bytes::from(vec![7; 100_000]);
    let body = Body::from(bytes.clone());
    assert_eq!(body.bytes().map(|own| own.as_ptr()), Some(bytes.as_ptr()));
    let collected = body.clone().collect().now_or_never().unwrap().unwrap();
    assert_eq!(collected.as_ptr(), bytes.as_ptr());
    let pieces = body.into_stream().try_collect::<Vec<_>>().now_or_never().unwrap().unwrap();
    assert_eq!(pieces.len(), 1);
    assert_eq!(pieces[0].as_ptr(), bytes.as_ptr());
}

#[test]
fn printing_shows_the_length_only() {
    assert_eq!(format!("{:?}", Body::from("secret")), "Body (6 bytes)");
    assert_eq!(format!("{:?}", in_file(b"secret")), "Body in a file (6 bytes)");
}

#[test]
#[should_panic(expected = "is not within")]
fn splicing_beyond_the_end_is_refused() {
    let _ = Body::from("abc").splice(2..4, "x");
}
