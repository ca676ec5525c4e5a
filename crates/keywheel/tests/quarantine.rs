//! A key that somebody has to mend is said so, once, with what there is to do: in the attempt, the status and the log.

mod common;

use common::{
    MODEL, OTHER_MODEL, Rig,
    bodies::{error, invalid_key, leaked_key, reply},
    fingerprint, label,
    log::Log,
};
use keywheel_provider::testing::Scripted;
use serde_json::json;

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

/// <https://github.com/snailyp/gemini-balance/issues/372>: nothing said which account a bad key was of.
#[test]
fn the_way_to_mend_a_key_is_told_in_the_attempt_the_status_and_the_log_once() {
    for dead in [invalid_key, leaked_key, service_off] {
        let rig = Rig::new(2);
        rig.script.reply(dead());
        rig.script.otherwise(|_| Scripted::text("Hello"));
        let (log, guard) = Log::start(tracing::Level::WARN);
        let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
        for model in [MODEL, OTHER_MODEL].repeat(3) {
            rig.run(rig.gemini.generate(model, "hi")).unwrap();
        }
        drop(guard);
        let attempt = &reply.attempts()[0];
        let fix = attempt.fix.expect("somebody has to act");
        assert!(!fix.is_empty() && !attempt.message.is_empty());
        assert_eq!(reply.attempts()[1].fix, None);

        let status = rig.gemini.status();
        let quarantine = status.keys[0].quarantine.as_ref().unwrap();
        assert!(quarantine.detail.contains(fix), "{}", quarantine.detail);

        let log = log.text();
        let [line] = log.lines().collect::<Vec<_>>()[..] else { panic!("not one line:\n{log}") };
        let named = [fix, &label(1), &fingerprint(1).to_string(), quarantine.cause.as_str()];
        for part in named {
            assert!(line.contains(part), "{part:?} is not in {line}");
        }
        assert!(line.contains("WARN"), "{line}");
    }
}
