//! Settings of a TOML file, taken out one by one: every fault is noted with its line and column, and what is left at the
//! end is unknown.
//!
//! No fault repeats a value: any of them may be a key that somebody put in the wrong place.
//!
//! ```
//! use keywheel_settings::{read, words};
//!
//! struct Retry { most: u64, pause_ms: u128 }
//!
//! let retry = |text| read(text, |mut whole| {
//!     let mut most = None;
//!     let pause = whole.text("pause", words::DURATION, words::some_time);
//!     if let Some(mut retry) = whole.table("retry") {
//!         most = retry.number("most", 0);
//!         retry.end();
//!     }
//!     whole.end();
//!     Retry { most: most.unwrap_or(2), pause_ms: pause.map_or(1_000, |pause| pause.as_millis()) }
//! });
//!
//! let read = retry("pause = \"1m30s\"\n[retry]\nmost = 5").unwrap();
//! assert_eq!((read.most, read.pause_ms), (5, 90_000));
//!
//! let faults = retry("pase = \"1s\"\n[retry]\nmost = -1").err().unwrap();
//! let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
//! assert_eq!(faults, [
//!     "1:1: pase: is not a setting; did you mean \"pause\"?",
//!     "3:8: retry.most: must be a whole number from 0 on, without quotes",
//! ]);
//! ```

mod faults;
mod section;
pub mod words;

pub use self::{
    faults::{Fault, Faults, position},
    section::Section,
};

/// Reads `text` by `read`, which takes the settings out of the whole of it.
///
/// # Errors
/// Everything that is wrong, in the order of the text; never empty.
pub fn read<T>(text: &str, read: impl FnOnce(Section<'_>) -> T) -> Result<T, Vec<Fault>> {
    let text = without_mark(text);
    let faults = Faults::new(text);
    let value = Section::parse(&faults).map(read);
    let found = faults.take();
    value.filter(|_| found.is_empty()).ok_or(found)
}

/// `text` without what Windows editors put before the first line.
///
/// ```
/// assert_eq!(keywheel_settings::without_mark("\u{feff}a = 1"), "a = 1");
/// ```
#[must_use]
pub fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}
