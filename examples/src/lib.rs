//! What the examples share: a small simulated world, and how moments are printed.

pub mod demo;
pub mod live;
pub mod show;
