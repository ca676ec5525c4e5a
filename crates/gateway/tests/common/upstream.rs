//! A provider that says exactly what a test wants, byte by byte, and tells what it heard.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

/// One thing that the provider does with a request.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Sends these bytes, at once.
    Send(Vec<u8>),
    /// Waits until the test says [`Upstream::go_on`].
    Wait,
    /// Sends zeros, as fast as they are taken, without an end.
    Flood,
    /// Ends the connection by a reset.
    Reset,
}

#[derive(Debug, Default)]
struct Seen {
    requests: Mutex<Vec<String>>,
    open: AtomicUsize,
    sent: AtomicUsize,
}

/// A provider on a port.
#[derive(Debug)]
pub(crate) struct Upstream {
    address: SocketAddr,
    seen: Arc<Seen>,
    go: Arc<Semaphore>,
    task: tokio::task::JoinHandle<()>,
}

impl Upstream {
    /// Does these steps with every request; then the connection is kept, or closed if the last step was a reset.
    pub(crate) async fn that(steps: impl Into<Vec<Step>>) -> Self {
        let steps = Arc::new(steps.into());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, go) = (Arc::new(Seen::default()), Arc::new(Semaphore::new(0)));
        let (of_task, going) = (Arc::clone(&seen), Arc::clone(&go));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (seen, go) = (Arc::clone(&of_task), Arc::clone(&going));
                let steps = Arc::clone(&steps);
                tokio::spawn(async move {
                    seen.open.fetch_add(1, Ordering::SeqCst);
                    serve(stream, &steps, &seen, &go).await;
                    seen.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, seen, go, task }
    }

    /// One answer with this body, whole.
    pub(crate) async fn answering(kind: &str, body: &str) -> Self {
        Self::that([Step::Send(answer(kind, body))]).await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Lets one wait end.
    pub(crate) fn go_on(&self) {
        self.go.add_permits(1);
    }

    /// Every request so far, its head and its body.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen.requests.lock().unwrap().clone()
    }

    /// How many bytes of a flood were taken.
    pub(crate) fn sent(&self) -> usize {
        self.seen.sent.load(Ordering::SeqCst)
    }

    /// Waits until a request has come.
    pub(crate) async fn asked(&self) {
        super::eventually("no request came", || !self.requests().is_empty()).await;
    }

    /// Waits until every connection is closed.
    pub(crate) async fn left_alone(&self) {
        let open = || self.seen.open.load(Ordering::SeqCst) == 0;
        super::eventually("a connection is still open", open).await;
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The bytes of an answer with a length.
pub(crate) fn answer(kind: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}")
        .into()
}

/// The head of an answer that comes in chunks.
pub(crate) fn head(kind: &str) -> Step {
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n");
    Step::Send(head.into())
}

pub(crate) fn chunk(bytes: &str) -> Step {
    Step::Send(format!("{:x}\r\n{bytes}\r\n", bytes.len()).into())
}

pub(crate) fn end() -> Step {
    Step::Send(b"0\r\n\r\n".to_vec())
}

async fn serve(mut stream: TcpStream, steps: &[Step], seen: &Seen, go: &Semaphore) {
    while let Some(request) = request(&mut stream).await {
        seen.requests.lock().unwrap().push(request);
        for step in steps {
            let gone = match step {
                Step::Send(bytes) => stream.write_all(bytes).await.is_err(),
                Step::Wait => tokio::select! {
                    permit = go.acquire() => { permit.unwrap().forget(); false }
                    () = until_gone(&stream) => true,
                },
                Step::Flood => {
                    let zeros = [0; 16 << 10];
                    while stream.write_all(&zeros).await.is_ok() {
                        seen.sent.fetch_add(zeros.len(), Ordering::SeqCst);
                    }
                    true
                }
                Step::Reset => {
                    let _ = stream.set_zero_linger();
                    true
                }
            };
            if gone {
                return;
            }
        }
    }
}

/// Ends when the other side has closed.
async fn until_gone(stream: &TcpStream) {
    let mut byte = [0];
    loop {
        match stream.peek(&mut byte).await {
            Ok(0) | Err(_) => return,
            Ok(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

async fn request(stream: &mut TcpStream) -> Option<String> {
    let mut all = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&all);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
            });
            if body.len() >= length.unwrap_or(0) {
                return Some(text.into_owned());
            }
        }
        if stream.read_buf(&mut all).await.ok()? == 0 {
            return None;
        }
    }
}
