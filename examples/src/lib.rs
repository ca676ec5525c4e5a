//! What the examples share: small simulated worlds, and how moments are printed.

pub mod demo;
pub mod live;
pub mod show;
pub mod sim;
pub mod stand;
pub mod virtual_time;
