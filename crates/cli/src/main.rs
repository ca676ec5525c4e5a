//! The program `keywheel`.

fn main() {}
