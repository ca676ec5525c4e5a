//! Settings of a TOML file, taken out one by one: every fault is noted with its line and column, and what is left at the
//! end is unknown.
