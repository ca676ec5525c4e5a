//! A key that somebody has to mend is said so, once, with what there is to do: in the attempt, the status and the log.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{
    io,
    sync::{Arc, Mutex},
};

use common::{
    MODEL, OTHER_MODEL, Rig,
    bodies::{error, invalid_key, leaked_key, reply},
    fingerprint, label,
};
use keywheel_provider::testing::Scripted;
use serde_json::json;
use tracing_subscriber::fmt::MakeWriter;

/// What was logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn service_off() -> Scripted {
    let details = json!([{
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "SERVICE_DISABLED",
        "domain": "googleapis.com",
    }]);
    let message =
        "Generative Language API has not been used in project 12 before or it is disabled.";
    reply(403, &error(403, "PERMISSION_DENIED", message, details))
}

#[test]
fn the_way_to_mend_a_key_is_told_in_the_attempt_the_status_and_the_log_once() {
    for dead in [invalid_key, leaked_key, service_off] {
        let rig = Rig::new(2);
        rig.script.reply(dead());
        rig.script.otherwise(|_| Scripted::text("Hello"));
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_ansi(false)
            .with_writer(log.clone())
            .finish();
        let reply = tracing::subscriber::with_default(subscriber, || {
            let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
            for model in [MODEL, OTHER_MODEL].repeat(3) {
                rig.run(rig.gemini.generate(model, "hi")).unwrap();
            }
            reply
        });
        let attempt = &reply.attempts()[0];
        let fix = attempt.fix.expect("somebody has to act");
        assert!(!fix.is_empty() && !attempt.message.is_empty());
        assert_eq!(reply.attempts()[1].fix, None);

        let status = rig.gemini.status();
        let quarantine = status.keys[0].quarantine.as_ref().unwrap();
        assert!(quarantine.detail.contains(fix), "{}", quarantine.detail);

        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let [line] = log.lines().collect::<Vec<_>>()[..] else { panic!("not one line:\n{log}") };
        let named = [fix, &label(1), &fingerprint(1).to_string(), quarantine.cause.as_str()];
        for part in named {
            assert!(line.contains(part), "{part:?} is not in {line}");
        }
        assert!(line.contains("WARN"), "{line}");
    }
}
