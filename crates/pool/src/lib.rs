//! DOC

pub mod keys;

pub use keys::KeySpec;
