//! `keywheel serve` and `keywheel reload`.
