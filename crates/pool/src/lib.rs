//! DOC
