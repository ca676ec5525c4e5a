//! The contract of [`LedgerStore`] as tests, for everybody who writes a store.
//!
//! ```
//! # use std::sync::Arc;
//! # use keywheel_ledger::{LedgerError, LedgerStore, MemoryStore};
//! /// A new, empty store for each case.
//! async fn empty() -> Result<Arc<dyn LedgerStore>, LedgerError> {
//!     Ok(Arc::new(MemoryStore::new("2026-11-30T12:00:00Z".parse().unwrap())))
//! }
//!
//! keywheel_ledger::conformance_tests!(empty); // one test for each case
//! ```
//!
//! A case panics if the store breaks the contract. Cases run on tokio, and mean most with several
//! threads. They need no real time: the clock is moved by hand. What outlives a process, and what several
//! processes do at once, only the store's own tests can show.
//!
//! One case alone, for those who have a test harness of their own:
//!
//! ```
//! # use std::sync::Arc;
//! # use keywheel_ledger::MemoryStore;
//! use keywheel_ledger::conformance::{CASES, Case};
//!
//! # #[tokio::main] async fn main() {
//! # let now = "2026-11-30T12:00:00Z".parse().unwrap();
//! let case = Case::named("a_cap_of_1000_takes_600_once");
//! assert!(CASES.iter().any(|other| other.name() == case.name()));
//! case.run(Arc::new(MemoryStore::new(now))).await; // a new, empty store
//! # }
//! ```

mod concurrency;
mod desk;
mod idempotency;
mod random;
mod reading;
mod reserving;
mod settling;
mod sweeping;
mod time;

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use crate::LedgerStore;

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One case of the suite.
#[derive(Clone, Copy)]
pub struct Case {
    name: &'static str,
    run: fn(Arc<dyn LedgerStore>) -> Running,
}

impl Case {
    /// What it shows.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Runs it on a new, empty store.
    ///
    /// # Panics
    /// If the store breaks the contract.
    pub async fn run(&self, store: Arc<dyn LedgerStore>) {
        (self.run)(store).await;
    }

    /// The case of this name.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn named(name: &str) -> &'static Self {
        let found = CASES.iter().find(|case| case.name == name);
        found.unwrap_or_else(|| panic!("no case is called {name}"))
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! cases {
    ($($module:ident: $($name:ident)+;)+) => {
        /// Every case.
        pub const CASES: &[Case] = &[$($(Case {
            name: stringify!($name),
            run: |store| Box::pin($module::$name(store)),
        }),+),+];

        // `$` cannot be written by a macro, so the outer one only lists the names.
        #[doc(hidden)]
        #[macro_export]
        macro_rules! conformance_names {
            ($open:path, $one:ident) => { $($( $crate::$one!($open, $name); )+)+ };
        }
    };
}

/// Makes one test of each case. Takes the path of an `async fn() -> Result<Arc<dyn LedgerStore>, E>`
/// that makes a new, empty store. The calling crate needs tokio with `macros` and
/// `rt-multi-thread`.
#[macro_export]
macro_rules! conformance_tests {
    ($open:path) => {
        $crate::conformance_names!($open, conformance_test);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_test {
    ($open:path, $name:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
        async fn $name() {
            let store = $open().await.expect("an empty store can be made");
            $crate::conformance::Case::named(stringify!($name)).run(store).await;
        }
    };
}

cases! {
    reserving:
        a_cap_of_1000_takes_600_once
        what_a_settlement_gives_back_can_be_reserved_at_once
        a_denial_writes_nothing
        every_kind_of_limit_holds_alone
        a_limit_added_at_noon_knows_the_morning
        a_cap_lowered_under_open_rows_denies_and_takes_nothing_back
        an_ask_larger_than_the_cap_never_fits
        of_several_limits_the_one_that_holds_longest_is_named
        a_grant_names_the_fullest_limit_with_itself_counted_in
        numbers_near_the_largest_neither_wrap_nor_slip_through
        an_unknown_account_is_an_error_and_writes_nothing
        a_row_keeps_what_was_asked;
    settling:
        settled_again_at_the_same_figure_nothing_changes
        settled_again_at_another_figure_is_an_error
        more_than_was_reserved_is_charged_and_told
        a_release_charges_neither_tokens_nor_the_call
        an_id_that_no_row_has_is_an_error
        every_outcome_is_charged_by_the_table
        estimates_wrong_by_twice_either_way_leave_the_actual_sum
        a_turnover_has_room_for_what_it_gives_back
        a_turnover_moves_the_logical_call_on
        a_turnover_that_is_denied_settles_all_the_same
        a_turnover_in_error_changes_nothing;
    sweeping:
        a_silent_row_is_charged_at_its_estimate
        a_row_that_is_renewed_is_left_alone
        a_late_settlement_books_the_true_figure_once
        two_sweepers_end_each_row_once
        a_sweep_racing_settlements_leaves_the_true_figures
        a_sweep_of_many_rows_comes_in_batches
        pruning_changes_no_total
        pruning_keeps_what_may_still_be_needed;
    idempotency:
        a_repeat_is_told_and_never_granted
        a_repeat_is_recognised_for_24_hours_after_settlement
        the_same_key_for_something_else_is_an_error
        of_many_repeats_at_once_one_is_granted
        a_key_moves_on_with_its_call;
    time:
        a_row_counts_in_the_day_in_which_it_was_reserved
        a_new_day_and_a_new_month_need_no_job
        at_the_moment_it_names_the_same_ask_fits
        the_days_of_23_and_25_hours_are_one_day_each
        days_turn_where_the_rules_say
        a_clock_that_steps_leaves_the_sums_right;
    concurrency:
        ten_callers_of_300_get_exactly_three
        sixty_four_tasks_never_pass_a_cap_and_leave_no_unit_unusable
        every_limit_holds_at_once_under_load
        a_denial_spoils_nothing_beside_it
        callers_who_go_away_leave_nothing_behind;
    reading:
        rows_are_found_by_what_they_are
        rows_come_in_pages
        the_newest_answers_come_first
        totals_come_in_the_order_asked_for
        the_store_knows_where_it_lies;
    random:
        a_random_history_agrees_with_the_model;
}
