//! What variables say, besides keys.

use std::net::{Ipv4Addr, SocketAddr};

use keywheel::{ApiKey, ConfigFault, ConfigFile};

use super::sections::address;
use crate::token::Token;

/// What variables say, besides keys.
#[derive(Debug, Default)]
pub(super) struct Surroundings {
    /// The address, and the variable that says it.
    pub(super) listen: Option<(SocketAddr, &'static str)>,
    pub(super) token: Option<Token>,
    pub(super) tokens_per_day: Option<u64>,
    pub(super) ledger: Option<String>,
}

impl Surroundings {
    pub(super) fn read(file: &ConfigFile, faults: &mut Vec<ConfigFault>) -> Self {
        let mut fault = |name: &str, what: &str| {
            faults.push(ConfigFault::new(None, format!("{name}: {what}")));
        };
        let ledger = file.variable("KEYWHEEL_LEDGER").or_else(|| file.variable("LEDGER_DB"));
        let mut read = Self { ledger, ..Self::default() };
        if let Some(port) = file.variable("PORT") {
            match port.parse() {
                Ok(port) => {
                    read.listen =
                        Some((SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port), "PORT"));
                }
                Err(_) => fault("PORT", "must be a port, a number from 0 to 65535"),
            }
        }
        if let Some(listen) = file.variable("KEYWHEEL_LISTEN") {
            match address(&listen) {
                Ok(listen) => read.listen = Some((listen, "KEYWHEEL_LISTEN")),
                Err(what) => fault("KEYWHEEL_LISTEN", &what),
            }
        }
        match file.secret("KEYWHEEL_TOKEN").map(|token| token.as_ref().map(chosen)) {
            Ok(None) => {}
            Ok(Some(Ok(token))) => read.token = Some(token),
            Ok(Some(Err(what))) | Err(what) => fault("KEYWHEEL_TOKEN", &what),
        }
        if let Some(tokens) = file.variable("KEYWHEEL_TOKENS_PER_DAY") {
            match tokens.replace('_', "").parse() {
                Ok(tokens) => read.tokens_per_day = Some(tokens),
                Err(_) => fault("KEYWHEEL_TOKENS_PER_DAY", "must be a whole number"),
            }
        }
        read
    }
}

fn chosen(token: &ApiKey) -> Result<Token, String> {
    Token::chosen(token.expose())
}
