//! Several projects, each with its own budget, on one shared allowance: a gateway for apps in any language.

mod respond;
mod server;
mod stream_end;
