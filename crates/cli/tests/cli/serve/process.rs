//! A gateway as a process.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Ended, Place};

/// More than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A gateway that runs. Killed when dropped.
pub(crate) struct Gateway {
    child: Child,
    base: String,
    said: Arc<Said>,
    reader: Option<JoinHandle<()>>,
}

/// What it said so far on standard error.
#[derive(Default)]
struct Said {
    text: Mutex<(String, bool)>,
    more: Condvar,
    /// The next line is the last that is read.
    is_enough: AtomicBool,
}

impl Gateway {
    pub(crate) fn start(place: &Place) -> Self {
        Self::start_with(place, &["serve"])
    }

    pub(crate) fn start_with(place: &Place, arguments: &[&str]) -> Self {
        Self::of(place.command(arguments))
    }

    /// Starts it, and waits until it says where it listens.
    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let said = Arc::new(Said::default());
        let reader = thread::spawn({
            let said = Arc::clone(&said);
            move || {
                for line in stderr.lines().map_while(Result::ok) {
                    let mut text = said.text.lock().unwrap();
                    text.0 += &line;
                    text.0.push('\n');
                    said.more.notify_all();
                    if said.is_enough.load(Ordering::SeqCst) {
                        break;
                    }
                }
                said.text.lock().unwrap().1 = true;
                said.more.notify_all();
            }
        });
        let mut gateway = Self { child, base: String::new(), said, reader: Some(reader) };
        let said = gateway.until_it_says("listens on http://");
        let (_, rest) = said.split_once("listens on http://").unwrap();
        let address = rest.lines().next().unwrap().trim();
        gateway.base = format!("http://{}", address.replace("localhost", "127.0.0.1"));
        // The rest of what it says at the start: clients are pointed somewhere in the last line.
        gateway.until_it_says("curl http://");
        gateway
    }

    /// Where it listens.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Waits for it, and returns all that was said.
    #[track_caller]
    pub(crate) fn until_it_says(&self, wanted: &str) -> String {
        let text = self.said.text.lock().unwrap();
        let waits = |text: &mut (String, bool)| !text.0.contains(wanted) && !text.1;
        let (text, _) = self.said.more.wait_timeout_while(text, PATIENCE, waits).unwrap();
        assert!(text.0.contains(wanted), "it never said {wanted:?}:\n{}", text.0);
        text.0.clone()
    }

    /// Closes its standard error as soon as `speaks` has made it say something more.
    pub(crate) fn turn_away(&self, speaks: impl FnOnce()) {
        self.said.is_enough.store(true, Ordering::SeqCst);
        speaks();
        let text = self.said.text.lock().unwrap();
        let listens = |text: &mut (String, bool)| !text.1;
        let (text, _) = self.said.more.wait_timeout_while(text, PATIENCE, listens).unwrap();
        assert!(text.1, "it said nothing more:\n{}", text.0);
    }

    pub(crate) fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Sends `signal`, and waits for its end.
    pub(crate) fn end(mut self, signal: Signal) -> Ended {
        self.send(signal);
        let status: ExitStatus = self.child.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
        let mut stdout = Vec::new();
        std::io::Read::read_to_end(&mut self.child.stdout.take().unwrap(), &mut stdout).unwrap();
        let stderr = self.said.text.lock().unwrap().0.clone().into_bytes();
        Ended::of(std::process::Output { status, stdout, stderr })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Gone already when it was ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
