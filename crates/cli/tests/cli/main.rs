//! The program as people and scripts meet it: real processes, real files, a simulator in the place of Google.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod ask;
mod books;
mod check;
mod common;
mod explain;
mod help;
mod projects;
mod serve;
mod smoke;
mod state;
mod window;
