use proptest::prelude::*;

use super::*;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// Days since 1970-01-01 of a date in the proleptic Gregorian calendar.
///
/// Counts leap days; shares nothing with chrono or its zone tables.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let leap_days = |year: i64| year / 4 - year / 100 + year / 400;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let before_month = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let in_year = before_month[month as usize - 1] + i64::from(month > 2 && is_leap) + day - 1;
    365 * (year - 1970) + leap_days(year - 1) - leap_days(1969) + in_year
}

/// The nth Sunday of a month, counted from 1, as days since the epoch.
fn nth_sunday(year: i64, month: i64, nth: i64) -> i64 {
    let first = days_from_civil(year, month, 1);
    // The epoch was a Thursday.
    let until_sunday = (3 - first).rem_euclid(7);
    first + until_sunday + 7 * (nth - 1)
}

/// When the clocks go forward and back in a year, as days since the epoch. Both happen at 2 in the
/// morning.
///
/// 1987 to 2006: first Sunday of April, last Sunday of October (15 U.S.C. 260a as amended in 1986).
/// Since 2007: second Sunday of March, first Sunday of November (Energy Policy Act of 2005).
fn changes(year: i64) -> (i64, i64) {
    if year >= 2007 {
        return (nth_sunday(year, 3, 2), nth_sunday(year, 11, 1));
    }
    let last_in_october = [5, 4].into_iter().map(|nth| nth_sunday(year, 10, nth));
    let november = days_from_civil(year, 11, 1);
    let last = last_in_october.into_iter().find(|day| *day < november);
    (nth_sunday(year, 4, 1), last.expect("October has four Sundays"))
}

/// The moment of midnight Pacific at the beginning of `day`, in milliseconds since the epoch.
fn pacific_midnight(year: i64, day: i64) -> i64 {
    let (forward, back) = changes(year);
    // At midnight the change of that day, if any, is still to come.
    let summer = forward < day && day <= back;
    day * DAY_MS + if summer { 7 } else { 8 } * HOUR_MS
}

fn ms(moment: DateTime<Utc>) -> i64 {
    moment.timestamp_millis()
}

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn date(text: &str) -> NaiveDate {
    text.parse().unwrap()
}

fn moment(unix_ms: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(unix_ms).unwrap()
}

#[test]
fn the_calendar_of_these_tests_is_right() {
    assert_eq!(days_from_civil(1970, 1, 1), 0);
    assert_eq!(days_from_civil(2000, 2, 29), 11_016);
    assert_eq!(days_from_civil(2026, 11, 30), 20_787);
    assert_eq!(nth_sunday(2026, 3, 2), days_from_civil(2026, 3, 8));
    assert_eq!(changes(2026), (days_from_civil(2026, 3, 8), days_from_civil(2026, 11, 1)));
    assert_eq!(changes(2006), (days_from_civil(2006, 4, 2), days_from_civil(2006, 10, 29)));
    assert_eq!(changes(2004).1, days_from_civil(2004, 10, 31));
}

#[test]
fn every_day_from_2000_to_2100_is_as_computed_by_hand() {
    let mut lengths = [0; 3];
    for year in 2000..=2100 {
        let (first, next_first) = (days_from_civil(year, 1, 1), days_from_civil(year + 1, 1, 1));
        for day in first..next_first {
            let start = pacific_midnight(year, day);
            let next_year = if day + 1 == next_first { year + 1 } else { year };
            let end = pacific_midnight(next_year, day + 1);
            let quota_day = QuotaDay::containing(moment(start));
            let expected_date = moment(day * DAY_MS).date_naive();
            assert_eq!(quota_day.date(), expected_date);
            assert_eq!(ms(quota_day.starts_at()), start, "{expected_date}");
            assert_eq!(ms(quota_day.ends_at()), end, "{expected_date}");
            assert_eq!(QuotaDay::containing(moment(end - 1)), quota_day, "{expected_date}");
            assert_eq!(QuotaDay::containing(moment(end)), quota_day.next(), "{expected_date}");
            assert!(!QuotaDay::straddles(moment(start), moment(end - 1)));
            assert!(QuotaDay::straddles(moment(end - 1), moment(end)));
            let hours = (end - start) / HOUR_MS;
            assert_eq!(quota_day.length(), Duration::hours(hours));
            lengths[usize::try_from(hours - 23).unwrap()] += 1;
        }
    }
    assert_eq!(lengths, [101, 36_890 - 202, 101], "one short and one long day a year");
}

#[test]
fn the_clocks_go_on_changing_after_the_tables_end() {
    for year in [2100, 2101, 2104, 2150, 2199, 2400, 9999] {
        let (forward, back) = changes(year);
        for (day, hours) in [(forward, 23), (back, 25), (forward + 1, 24), (back + 1, 24)] {
            let start = pacific_midnight(year, day);
            let quota_day = QuotaDay::containing(moment(start));
            assert_eq!(ms(quota_day.starts_at()), start, "{year}");
            assert_eq!(quota_day.length(), Duration::hours(hours), "{year}");
        }
    }
}

// https://github.com/diegosouzapw/OmniRoute/pull/13671: on the 25-hour day the reset overshot.
#[test]
fn the_day_of_25_hours_ends_at_midnight_and_not_24_hours_later() {
    let day = QuotaDay::containing(at("2026-11-01T12:00:00Z"));
    assert_eq!(day.date(), date("2026-11-01"));
    assert_eq!(day.starts_at(), at("2026-11-01T07:00:00Z"));
    assert_eq!(day.ends_at(), at("2026-11-02T08:00:00Z"));
    assert_eq!(day.length(), Duration::hours(25));
    // 01:30 comes twice in that night; both belong to the day.
    for twice in ["2026-11-01T08:30:00Z", "2026-11-01T09:30:00Z"] {
        assert_eq!(QuotaDay::containing(at(twice)), day);
    }
}

#[test]
fn the_day_of_23_hours_ends_at_midnight_and_not_24_hours_later() {
    let day = QuotaDay::containing(at("2026-03-08T20:00:00Z"));
    assert_eq!(day.starts_at(), at("2026-03-08T08:00:00Z"));
    assert_eq!(day.ends_at(), at("2026-03-09T07:00:00Z"));
    assert_eq!(day.length(), Duration::hours(23));
}

#[test]
fn the_days_before_and_after_a_change_have_24_hours() {
    for date in ["2026-03-07", "2026-03-09", "2026-10-31", "2026-11-02"] {
        let noon = format!("{date}T20:00:00Z");
        assert_eq!(QuotaDay::containing(at(&noon)).length(), Duration::hours(24), "{date}");
    }
}

// https://github.com/diegosouzapw/OmniRoute/pull/13440,
// https://github.com/Wei-Shaw/sub2api/issues/641 and /5443: the server's own midnight was used.
#[test]
fn in_india_the_day_turns_at_half_past_one_in_winter_and_half_past_twelve_in_summer() {
    let in_india = |text: &str| {
        let ends = QuotaDay::containing(at(text)).ends_at();
        ends.with_timezone(&chrono_tz::Asia::Kolkata).format("%H:%M").to_string()
    };
    assert_eq!(in_india("2026-01-15T12:00:00Z"), "13:30");
    assert_eq!(in_india("2026-07-15T12:00:00Z"), "12:30");
    assert_eq!(in_india("2026-03-07T12:00:00Z"), "13:30");
    assert_eq!(in_india("2026-03-08T12:00:00Z"), "12:30");
    assert_eq!(in_india("2026-10-31T12:00:00Z"), "12:30");
    assert_eq!(in_india("2026-11-01T12:00:00Z"), "13:30");
}

// https://github.com/BerriAI/litellm/issues/34896: the zone was lost, and the reset late by the
// offset.
#[test]
fn the_reset_is_the_same_instant_however_it_is_written() {
    let utc = at("2026-11-30T07:12:03Z");
    let written = DateTime::parse_from_rfc3339("2026-11-30T12:42:03+05:30").unwrap();
    assert_eq!(utc, written);
    let ends = QuotaDay::containing(written.into()).ends_at();
    assert_eq!(ends, QuotaDay::containing(utc).ends_at());
    assert_eq!(ends.to_rfc3339(), "2026-11-30T08:00:00+00:00");
}

#[test]
fn the_turn_is_exact_to_the_millisecond() {
    let before = at("2026-11-30T07:59:59.999Z");
    let after = at("2026-11-30T08:00:00Z");
    assert_eq!(QuotaDay::containing(before).date(), date("2026-11-29"));
    assert_eq!(QuotaDay::containing(after).date(), date("2026-11-30"));
    assert_eq!(QuotaDay::containing(before).ends_at(), after);
    assert_eq!(QuotaDay::containing(after).starts_at(), after);
}

#[test]
fn a_measurement_across_a_reset_straddles() {
    let evening = at("2026-11-30T07:30:00Z");
    for (to, straddles) in [
        ("2026-11-30T07:30:00Z", false),
        ("2026-11-30T07:59:59.999Z", false),
        ("2026-11-30T08:00:00Z", true),
        ("2026-12-05T07:30:00Z", true),
        ("2026-11-29T08:00:00Z", false),
        // A clock that was set back straddles too.
        ("2026-11-29T07:59:59.999Z", true),
    ] {
        assert_eq!(QuotaDay::straddles(evening, at(to)), straddles, "{to}");
    }
}

// https://github.com/BerriAI/litellm/issues/42241 and /10288: days of another zone than the one
// expected.
#[test]
fn a_day_of_another_zone_is_of_that_zone_throughout() {
    let moment = at("2026-11-30T20:00:00Z");
    let utc = QuotaDay::containing_in(moment, chrono_tz::UTC);
    assert_eq!(utc.ends_at(), at("2026-12-01T00:00:00Z"));
    let kolkata = QuotaDay::containing_in(moment, chrono_tz::Asia::Kolkata);
    assert_eq!(kolkata.date(), date("2026-12-01"));
    assert_eq!(kolkata.ends_at(), at("2026-12-01T18:30:00Z"));
    assert_eq!(kolkata.next().zone(), chrono_tz::Asia::Kolkata);
    assert_ne!(utc, QuotaDay::containing(moment));
}

#[test]
fn a_day_without_a_midnight_begins_when_it_begins() {
    // The clocks went from 00:00 to 01:00.
    let day = QuotaDay::containing_in(at("2018-11-04T12:00:00Z"), chrono_tz::America::Sao_Paulo);
    assert_eq!(day.starts_at(), at("2018-11-04T03:00:00Z"));
    assert_eq!(day.length(), Duration::hours(23));
    assert_eq!(QuotaDay::containing_in(day.starts_at(), day.zone()), day);
    // From 01:00 back to 00:00: the first of the two midnights.
    let day = QuotaDay::containing_in(at("2026-11-01T12:00:00Z"), chrono_tz::America::Havana);
    assert_eq!(day.starts_at(), at("2026-11-01T04:00:00Z"));
    assert_eq!(day.length(), Duration::hours(25));
    // Samoa left out the 30th.
    let day = QuotaDay::containing_in(at("2011-12-30T09:00:00Z"), chrono_tz::Pacific::Apia);
    assert_eq!(day.date(), date("2011-12-29"));
    assert_eq!(day.ends_at(), at("2011-12-30T10:00:00Z"));
    assert_eq!(QuotaDay::containing_in(day.ends_at(), day.zone()).date(), date("2011-12-31"));
}

#[test]
fn far_dates_do_not_panic() {
    for moment in [DateTime::<Utc>::MIN_UTC, DateTime::<Utc>::MAX_UTC] {
        for zone in
            [PACIFIC, chrono_tz::UTC, chrono_tz::Pacific::Kiritimati, chrono_tz::Etc::GMTPlus12]
        {
            let day = QuotaDay::containing_in(moment, zone);
            assert!(day.starts_at() < day.ends_at());
            assert!(day.length() <= Duration::hours(25));
        }
    }
}

proptest! {
    #[test]
    fn every_moment_lies_within_its_day(unix_ms in -4_000_000_000_000i64..10_000_000_000_000) {
        let moment = moment(unix_ms);
        for zone in [PACIFIC, chrono_tz::Europe::Berlin, chrono_tz::Australia::Lord_Howe, chrono_tz::Asia::Kathmandu] {
            let day = QuotaDay::containing_in(moment, zone);
            prop_assert!(day.starts_at() <= moment && moment < day.ends_at(), "{zone} {moment}");
            prop_assert_eq!(day.ends_at(), day.next().starts_at());
            prop_assert!(day.length() >= Duration::hours(22) && day.length() <= Duration::hours(26));
        }
    }
}
