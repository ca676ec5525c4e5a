//! Compresses replies, so that streams still arrive event by event.

use std::io::Write as _;

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderValue, header};

use crate::reply::{HttpReply, Piece};

/// Compresses the body piece by piece: what was sent so far can be read so far.
pub(crate) fn compress(reply: &mut HttpReply) {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let mut whole = true;
    for piece in &mut reply.body {
        match piece {
            Piece::Bytes(bytes) => *bytes = squeezed(&mut encoder, bytes),
            Piece::Pause(_) => {}
            Piece::Stall | Piece::Break => whole = false,
        }
    }
    if whole {
        let end = encoder.finish().expect("writing to memory cannot fail");
        reply.body.push(Piece::Bytes(end.into()));
    }
    reply.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
}

fn squeezed(encoder: &mut GzEncoder<Vec<u8>>, bytes: &[u8]) -> Bytes {
    let written = encoder.write_all(bytes).and_then(|()| encoder.flush());
    written.expect("writing to memory cannot fail");
    std::mem::take(encoder.get_mut()).into()
}
