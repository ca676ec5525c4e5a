//! A process without a file left. In a program of its own, since the limit is the whole process's.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{
    fs,
    io::{Read as _, Seek as _},
    net::TcpStream,
    os::fd::AsRawFd as _,
    sync::Arc,
    time::Duration,
};

use common::Setup;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// How long there is no file.
const WITHOUT: Duration = Duration::from_millis(500);

/// The number that the next file gets: a limit as low leaves none.
fn next_file() -> u64 {
    fs::File::open("/dev/null").unwrap().as_raw_fd().try_into().unwrap()
}

/// What this process has used of the processor, in hundredths of a second.
fn ticks() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let fields = fields.split(' ').skip(11).take(2);
    fields.map(|field| field.parse::<u64>().unwrap()).sum()
}

#[tokio::test]
async fn a_connection_that_no_file_is_left_for_is_taken_when_there_is_one() {
    let served = Setup::default().text("[serve]\nthreads = 1\n").start().await;
    let mut log = Arc::new(tempfile::tempfile().unwrap());
    let to_log = tracing_subscriber::fmt().with_ansi(false).with_writer(Arc::clone(&log));
    let _logs = tracing::subscriber::set_default(to_log.finish());

    // In the kernel's queue: what would take it is this very thread.
    let client = TcpStream::connect(served.running.address()).unwrap();
    let used_before = ticks();
    let limit = getrlimit(Resource::Nofile);
    let none_left = Rlimit { current: Some(next_file()), ..limit };
    setrlimit(Resource::Nofile, none_left).unwrap();
    tokio::time::sleep(WITHOUT).await;
    setrlimit(Resource::Nofile, limit).unwrap();
    let used = ticks() - used_before;
    assert!(used < 25, "it tried without a pause: {used} hundredths of a second in half of one");

    client.set_nonblocking(true).unwrap();
    let mut client = tokio::net::TcpStream::from_std(client).unwrap();
    client.write_all(b"GET /healthz HTTP/1.0\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    let mut text = String::new();
    log.rewind().unwrap();
    log.read_to_string(&mut text).unwrap();
    let said = text.lines().filter(|line| line.contains("could not be accepted"));
    assert_eq!(said.count(), 1, "{text}");
}
