use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::BodyExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::Notify,
    task::JoinHandle,
};

use super::*;

/// Answers with the length of the body; `/wait` when it is told to.
#[derive(Default)]
struct Echo {
    asked: AtomicUsize,
    go: Notify,
    waits: Notify,
}

impl Service for Echo {
    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        _peer: SocketAddr,
    ) -> Response<AnswerBody> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if request.uri().path() == "/wait" {
            self.waits.notify_one();
            self.go.notified().await;
        }
        let length = request.into_body().collect().await.map_or(0, |body| body.to_bytes().len());
        Response::new(AnswerBody::whole(format!("{length} bytes")))
    }
}

struct Served {
    address: SocketAddr,
    echo: Arc<Echo>,
    phases: Phases,
    task: JoinHandle<()>,
}

impl Served {
    async fn with(limits: ServerLimits) -> Self {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (echo, phases) = (Arc::new(Echo::default()), Phases::new());
        let (service, stage) = (Arc::clone(&echo), phases.stage());
        let task = tokio::spawn(async move {
            serve(listener, service, limits, stage, &Lanes::here()).await;
        });
        Self { address, echo, phases, task }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Everything that the server sends back, to the end of the connection.
    async fn say(&self, text: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(text.as_bytes()).await.unwrap();
        rest(&mut stream).await
    }
}

async fn rest(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    // A reset ends a connection, too.
    let _ = timeout(Duration::from_secs(20), stream.read_to_end(&mut all)).await.expect("it ends");
    String::from_utf8_lossy(&all).into_owned()
}

fn quick() -> ServerLimits {
    let soon = Duration::from_millis(150);
    ServerLimits { head: soon, stall: soon, ..ServerLimits::default() }
}

#[tokio::test]
async fn a_request_is_answered_over_either_version() {
    let served = Served::with(ServerLimits::default()).await;
    let url = format!("http://{}/x", served.address);
    let one = reqwest::Client::builder().http1_only().build().unwrap();
    let answer = one.post(&url).body("abc").send().await.unwrap();
    assert_eq!(answer.version(), http::Version::HTTP_11);
    assert_eq!(answer.text().await.unwrap(), "3 bytes");
    let two = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    let answer = two.post(&url).body("abcd").send().await.unwrap();
    assert_eq!(answer.version(), http::Version::HTTP_2);
    assert_eq!(answer.text().await.unwrap(), "4 bytes");
}

#[tokio::test]
async fn a_connection_that_says_nothing_ends() {
    let served = Served::with(quick()).await;
    assert_eq!(served.say("").await, "");
    // As do the beginning of HTTP/2's preface and half a head.
    assert_eq!(served.say("PR").await, "");
    served.say("POST /x HTTP/1.1\r\nhost: a\r\n").await;
    assert_eq!(served.echo.asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_head_that_is_too_long_or_has_too_many_lines_is_answered_with_431() {
    let served = Served::with(ServerLimits::default()).await;
    let long = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "a".repeat(400_000));
    assert!(served.say(&long).await.starts_with("HTTP/1.1 431"));
    let many = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: y\r\n".repeat(MAX_HEADERS + 1));
    assert!(served.say(&many).await.starts_with("HTTP/1.1 431"));
    assert_eq!(served.echo.asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn beyond_the_cap_connections_wait_for_one_to_end() {
    let limits = ServerLimits { connections: 1, ..ServerLimits::default() };
    let served = Served::with(limits).await;
    let mut first = served.connect().await;
    first.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut head = [0; 12];
    first.read_exact(&mut head).await.unwrap();
    let second = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let mut second_saying = Box::pin(served.say(second));
    let early = timeout(Duration::from_millis(100), &mut second_saying).await;
    assert!(early.is_err(), "served beyond the cap");
    assert_eq!(served.echo.asked.load(Ordering::SeqCst), 1);
    drop(first);
    assert!(second_saying.await.starts_with("HTTP/1.1 200"));
}

/// Those who came first and go on asking would keep all others out.
#[tokio::test]
async fn while_somebody_waits_an_answer_is_the_last_of_its_connection() {
    let limits = ServerLimits { connections: 1, ..ServerLimits::default() };
    let served = Served::with(limits).await;
    let mut first = served.connect().await;
    for asked in 1..=2 {
        first.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"0 bytes") {
            assert!(first.read_buf(&mut answer).await.unwrap() > 0, "it is kept");
        }
        assert_eq!(served.echo.asked.load(Ordering::SeqCst), asked);
    }
    first.write_all(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    served.echo.waits.notified().await;
    let second = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let mut second_saying = Box::pin(served.say(second));
    let early = timeout(Duration::from_millis(100), &mut second_saying).await;
    assert!(early.is_err(), "served beyond the cap");
    served.echo.go.notify_one();
    let last = rest(&mut first).await;
    assert!(last.contains("\r\nconnection: close\r\n"), "{last}");
    assert!(second_saying.await.starts_with("HTTP/1.1 200"));
}

#[tokio::test(start_paused = true)]
async fn while_somebody_waits_a_connection_without_requests_ends() {
    let limits = ServerLimits { connections: 1, ..ServerLimits::default() };
    let served = Served::with(limits).await;
    let mut first = served.connect().await;
    first.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut head = [0; 12];
    first.read_exact(&mut head).await.unwrap();
    let began = tokio::time::Instant::now();
    let second = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    assert!(served.say(second).await.starts_with("HTTP/1.1 200"));
    assert!(began.elapsed() < limits.idle, "only when it was idle for long");
}

#[tokio::test]
async fn one_connection_of_http_2_holds_no_more_requests_than_there_may_be() {
    let limits = ServerLimits { requests: 1, ..ServerLimits::default() };
    let served = Served::with(limits).await;
    let client = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    let ask = || tokio::spawn(client.get(format!("http://{}/wait", served.address)).send());
    let asked = [ask(), ask(), ask()];
    for count in 1..=3 {
        served.echo.waits.notified().await;
        let early = timeout(Duration::from_millis(50), served.echo.waits.notified()).await;
        assert!(early.is_err(), "more than one at a time");
        assert_eq!(served.echo.asked.load(Ordering::SeqCst), count);
        served.echo.go.notify_one();
    }
    for one in asked {
        assert_eq!(one.await.unwrap().unwrap().text().await.unwrap(), "0 bytes");
    }
}

/// Whoever asks without a token is answered, too, and need not read what it says.
#[tokio::test]
async fn an_answer_of_http_2_that_nobody_reads_keeps_no_request_waiting() {
    let limits = ServerLimits { requests: 1, ..ServerLimits::default() };
    let served = Served::with(limits).await;
    let url = format!("http://{}/", served.address);
    let client = || reqwest::Client::builder().http2_prior_knowledge();
    let unread = client().http2_initial_stream_window_size(0).build().unwrap();
    let unread = unread.get(&url).send().await.unwrap();
    assert_eq!(unread.status(), 200);
    let asked = client().build().unwrap().get(&url).send();
    let answer = timeout(Duration::from_secs(20), asked).await.expect("a place is free").unwrap();
    assert_eq!(answer.text().await.unwrap(), "0 bytes");
    drop(unread);
}

/// The socket does not stand still: there is nothing that could be written to it.
#[tokio::test(start_paused = true)]
async fn while_somebody_waits_an_answer_of_http_2_that_nobody_reads_is_given_up() {
    let limits = ServerLimits { connections: 1, ..ServerLimits::default() };
    let served = Served::with(limits).await;
    let client = reqwest::Client::builder().http2_prior_knowledge();
    let client = client.http2_initial_stream_window_size(0).build().unwrap();
    let unread = client.get(format!("http://{}/", served.address)).send().await.unwrap();
    let began = tokio::time::Instant::now();
    let mut second = served.connect().await;
    second.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    let answered = timeout(8 * limits.stall, second.read_to_string(&mut answer)).await;
    answered.expect("the place is given up").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let waited = began.elapsed();
    assert!((limits.stall..4 * limits.stall).contains(&waited), "{waited:?}");
    drop(unread);
}

#[tokio::test]
async fn a_drain_ends_idle_connections_and_waits_for_requests_under_way() {
    let served = Served::with(ServerLimits::default()).await;
    let mut idle = served.connect().await;
    idle.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut head = [0; 12];
    idle.read_exact(&mut head).await.unwrap();
    let mut busy = served.connect().await;
    busy.write_all(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    served.echo.waits.notified().await;

    served.phases.reach(Phase::Draining);
    rest(&mut idle).await;
    assert!(!served.task.is_finished(), "a request is under way");
    assert!(TcpStream::connect(served.address).await.is_err(), "nothing new is accepted");
    served.echo.go.notify_one();
    let answer = rest(&mut busy).await;
    assert!(answer.ends_with("0 bytes"), "{answer}");
    served.task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn at_the_end_of_the_drain_what_is_left_is_cut_off() {
    let served = Served::with(ServerLimits::default()).await;
    let mut busy = served.connect().await;
    busy.write_all(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    served.echo.waits.notified().await;
    served.phases.reach(Phase::Draining);
    served.phases.reach(Phase::Ending);
    served.task.await.unwrap();
    assert_eq!(rest(&mut busy).await, "");
}
