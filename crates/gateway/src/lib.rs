//! Several projects, each with its own budget, on one shared allowance: a gateway for apps in any language.

mod admit;
mod auth;
mod budget;
mod config;
mod cors;
mod gateway;
mod handle;
mod headers;
mod health;
mod metrics;
mod pinned;
mod project;
mod refusal;
mod reload;
mod respond;
mod route;
mod server;
mod spool;
mod stream_end;
mod token;
mod upload;

pub use self::{
    config::{Config, Cors, Limits, Queue, Settings},
    gateway::{Gateway, Running, StartError},
    project::{DEFAULT_PROJECT, Project, Projects, Unbounded},
    reload::{ReloadError, Reloaded},
    route::Dialect,
    token::{NoRandomness, Token, TokenHash},
};
