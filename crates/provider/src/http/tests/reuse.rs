//! A connection that is used again may have ended in the meantime: what was sent, and what was not.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    thread,
};

use super::*;

/// Reads a request with its body; its length in bytes.
fn read(stream: &mut TcpStream) -> usize {
    let mut seen = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&seen).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let wanted = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= wanted.map_or(0, |length| length.parse().unwrap()) {
                return seen.len();
            }
        }
        let mut buffer = [0; 4096];
        let length = stream.read(&mut buffer).unwrap();
        assert!(length > 0, "half a request: {text}");
        seen.extend_from_slice(&buffer[..length]);
    }
}

// The runtime has one thread, which this test holds until the server has closed the connection and then spoken up: it
// sees both at once, and the request is put on the connection before that notices its end.
#[tokio::test(flavor = "current_thread")]
async fn a_request_that_a_dead_connection_had_not_taken_goes_out_on_a_new_one() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (mut speaks_up, hears) = {
        let ears = TcpListener::bind("127.0.0.1:0").unwrap();
        (TcpStream::connect(ears.local_addr().unwrap()).unwrap(), ears.accept().unwrap().0)
    };
    hears.set_nonblocking(true).unwrap();
    let hears = tokio::net::TcpStream::from_std(hears).unwrap();
    let (answered, go_on) = mpsc::channel();
    let (closed, is_closed) = mpsc::channel();
    let server = thread::spawn(move || {
        let (mut first, _) = listener.accept().unwrap();
        read(&mut first);
        first.write_all(OK).unwrap();
        go_on.recv().unwrap();
        drop(first);
        speaks_up.write_all(b"!").unwrap();
        closed.send(()).unwrap();
        let (mut second, _) = listener.accept().unwrap();
        read(&mut second);
        second.write_all(OK).unwrap();
        listener.set_nonblocking(true).unwrap();
        listener.accept().is_err()
    });

    let transport = transport();
    assert_eq!(send(&transport, address).await.unwrap().bytes(9).await.unwrap(), "ok");
    // The connection goes back for the next request.
    tokio::task::yield_now().await;
    answered.send(()).unwrap();
    is_closed.recv().unwrap();
    hears.readable().await.unwrap();
    assert_eq!(send(&transport, address).await.unwrap().bytes(9).await.unwrap(), "ok");
    assert!(server.join().unwrap(), "a third connection");
}

#[tokio::test]
async fn a_request_that_a_reused_connection_had_taken_is_not_sent_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut first, _) = listener.accept().unwrap();
        read(&mut first);
        first.write_all(OK).unwrap();
        // One byte of the next request is enough: the rest may be on its way.
        first.read_exact(&mut [0]).unwrap();
        drop(first);
        listener
    });
    let transport = transport();
    assert_eq!(send(&transport, address).await.unwrap().bytes(9).await.unwrap(), "ok");
    let error = send(&transport, address).await.unwrap_err();
    assert_eq!((error.kind, error.sent), (TransportKind::Interrupted, Sent::Maybe), "{error}");
    let listener = server.join().unwrap();
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "it was sent again");
}

// A program that asks from a runtime of its own for each call, as wrappers for blocking code do. What drives a connection
// sleeps while its runtime does, so a request of another one would wait for ever.
#[test]
fn runtimes_that_take_turns_have_connections_of_their_own() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (accepted, connections) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            accepted.send(()).unwrap();
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                loop {
                    read(&mut stream);
                    stream.write_all(OK).unwrap();
                }
            });
        }
    });
    let transport = transport();
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let ask = |runtime: &tokio::runtime::Runtime| {
        runtime.block_on(async {
            let reply = timeout(Duration::from_secs(20), send(&transport, address)).await;
            let reply = reply.expect("it hangs").unwrap();
            assert_eq!(reply.bytes(9).await.unwrap(), "ok");
            // The connection goes back for the next request.
            tokio::task::yield_now().await;
        });
    };
    let (one, other) = (runtime(), runtime());
    [&one, &other, &one, &other].into_iter().for_each(ask);
    drop(one);
    ask(&other);
    assert_eq!(connections.try_iter().count(), 2);
}
