use proptest::prelude::*;

use super::*;

/// 2026-11-29T12:00:00Z, whose Pacific day ends at 2026-11-30T08:00:00Z.
const NOW_MS: i64 = 1_795_953_600_000;

fn facts(strategies: &Strategies, now_ms: i64, sent_ms: i64) -> Facts<'_> {
    Facts {
        now_ms,
        sent_ms,
        named_quota: true,
        day: strategies.day(now_ms),
        day_is_spent: false,
        jitter_ms: 2_000,
        strategies,
    }
}

fn decided(cause: Cause, wait: Wait) -> Option<Cooldown> {
    let strategies = Strategies::default();
    let effect = Effect::new(keywheel_core::Scope::Bucket, cause, wait);
    let facts = facts(&strategies, NOW_MS, NOW_MS - 500);
    decide(&effect, None, &mut Trouble::default(), &facts).map(|decision| decision.cooldown)
}

#[test]
fn each_wait_becomes_its_moment() {
    let day_end = 20 * HOUR;
    let stated = |seconds| Wait::Stated(Duration::from_secs(seconds));
    for (cause, wait, after_ms, source) in [
        (Cause::PerMinuteRequests, stated(45), 45 * SECOND, Source::Stated),
        (Cause::PerMinuteTokens, Wait::Reset(Window::Minute), MINUTE, Source::Derived),
        (Cause::PerDayRequests, Wait::Reset(Window::Day), day_end + 2_000, Source::Derived),
        (Cause::PerDayTokens, Wait::Reset(Window::Day), day_end + 2_000, Source::Derived),
        (Cause::PerDayRequests, stated(17 * 3_600), 17 * HOUR + 2_000, Source::Stated),
        (Cause::PerDayRequests, stated(30), 30 * SECOND, Source::Stated),
        (Cause::UnspecifiedQuota, stated(90), 90 * SECOND, Source::Stated),
        (Cause::UnspecifiedQuota, Wait::Ladder, MINUTE, Source::Guessed),
        (Cause::ToolQuota, Wait::Reset(Window::Hour), HOUR + 2_000, Source::Derived),
        (Cause::Billing, Wait::Reset(Window::Hour), HOUR + 2_000, Source::Derived),
    ] {
        let cooldown = decided(cause, wait).unwrap();
        assert_eq!(cooldown.until_ms - NOW_MS, after_ms, "{cause} {wait:?}");
        assert_eq!((cooldown.cause, cooldown.source), (cause, source), "{wait:?}");
    }
    assert_eq!(decided(Cause::FreeTierNotAvailable, Wait::None).unwrap().until_ms, FOREVER);
    assert_eq!(decided(Cause::BadRequest, Wait::None), None);
}

#[test]
fn a_stated_day_near_the_known_reset_is_that_reset() {
    let strategies = Strategies::default();
    let near = Wait::Stated(Duration::from_secs(20 * 3_600 + 300));
    let far = Wait::Stated(Duration::from_secs(9 * 3_600));
    for (wait, turns) in [(near, Turns::WithThePool), (far, Turns::At(NOW_MS + 9 * HOUR))] {
        let effect = Effect::new(keywheel_core::Scope::Bucket, Cause::PerDayRequests, wait);
        let facts = facts(&strategies, NOW_MS, NOW_MS);
        let decision = decide(&effect, None, &mut Trouble::default(), &facts).unwrap();
        assert_eq!(decision.turns, turns);
    }
}

#[test]
fn an_unspecified_wait_that_proves_wrong_again_and_again_climbs_the_ladder() {
    // https://github.com/tashfeenahmed/freellmapi/issues/92
    let strategies = Strategies::default();
    let wait = Wait::Stated(Duration::from_secs(34));
    let effect = Effect::new(keywheel_core::Scope::Bucket, Cause::UnspecifiedQuota, wait);
    let (mut trouble, mut now_ms, mut waits) = (Trouble::default(), NOW_MS, Vec::new());
    for _ in 0..4 {
        let facts = facts(&strategies, now_ms, now_ms);
        let cooldown = decide(&effect, None, &mut trouble, &facts).unwrap().cooldown;
        waits.push((cooldown.until_ms - now_ms) / SECOND);
        // The guess that stands behind a shorter stated wait has to have ended, too.
        now_ms = cooldown.until_ms.max(trouble.guess_until_ms);
    }
    assert_eq!(waits, [34, 300, 1_800, 7_200]);
}

#[test]
fn a_refusal_sent_while_a_guess_holds_is_no_step_up() {
    // An exploratory request, or another process'.
    let strategies = Strategies::default();
    let effect = Effect::new(keywheel_core::Scope::Bucket, Cause::UnspecifiedQuota, Wait::Ladder);
    let mut trouble = Trouble::default();
    let mut steps = Vec::new();
    for now_ms in [NOW_MS, NOW_MS + 30 * SECOND, NOW_MS + 30 * SECOND + MINUTE] {
        let facts = facts(&strategies, now_ms, now_ms);
        let decision = decide(&effect, None, &mut trouble, &facts).unwrap();
        steps.push(decision.cooldown.step);
    }
    assert_eq!(steps, [1, 1, 2]);
}

proptest! {
    /// Whatever comes, the moment lies in the future and no further than is legal.
    #[test]
    fn no_cooldown_is_over_before_it_begins_or_longer_than_legal(
        cause in prop::sample::select(&Cause::ALL[..]),
        wait in prop_oneof![
            any::<u64>().prop_map(|seconds| Wait::Stated(Duration::from_secs(seconds))),
            (0u64..200_000).prop_map(|seconds| Wait::Stated(Duration::from_secs(seconds))),
            prop::sample::select(vec![
                Wait::Reset(Window::Minute), Wait::Reset(Window::Hour), Wait::Reset(Window::Day),
                Wait::Ladder, Wait::None,
            ]),
        ],
        // The years 1970 to 2100.
        now_ms in 0i64..4_102_444_800_000,
        ago in 0i64..100_000,
        named_quota: bool,
        day_is_spent: bool,
        jitter_ms in 1_000i64..=5_000,
        again in 0usize..8,
    ) {
        // No classifier says "until the hour" of a minute's quota.
        prop_assume!(!matches!(wait, Wait::Reset(Window::Hour | Window::Day))
            || longest_ms(cause) >= 25 * HOUR);
        let strategies = Strategies::default();
        let effect = Effect::new(keywheel_core::Scope::Bucket, cause, wait);
        let (mut trouble, mut now_ms) = (Trouble::default(), now_ms);
        let mut current = None;
        for _ in 0..=again {
            let facts = Facts {
                named_quota,
                day_is_spent,
                jitter_ms,
                ..facts(&strategies, now_ms, now_ms - ago)
            };
            let Some(decision) = decide(&effect, current.as_ref(), &mut trouble, &facts) else { break };
            let cooldown = decision.cooldown;
            prop_assert!(cooldown.until_ms > now_ms);
            if cooldown.until_ms == FOREVER {
                break;
            }
            prop_assert!(cooldown.until_ms - now_ms <= longest_ms(cooldown.cause) + 5 * SECOND);
            current = Some(cooldown);
            now_ms = cooldown.until_ms + ago;
        }
    }

    /// A refusal of a request that was sent before the current cooldown began changes nothing.
    #[test]
    fn what_was_in_flight_is_no_news(ago in 0i64..1_000_000, later in 0i64..1_000_000) {
        let strategies = Strategies::default();
        let wait = Wait::Reset(Window::Day);
        let effect = Effect::new(keywheel_core::Scope::Bucket, Cause::PerDayRequests, wait);
        let mut trouble = Trouble::default();
        let first = decide(&effect, None, &mut trouble, &facts(&strategies, NOW_MS, NOW_MS - ago));
        let current = first.unwrap().cooldown;
        let before = trouble;
        let next = facts(&strategies, NOW_MS + later, NOW_MS - ago);
        prop_assert_eq!(decide(&effect, Some(&current), &mut trouble, &next), None);
        prop_assert_eq!(trouble, before);
    }
}
