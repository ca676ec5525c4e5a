//! What variables say, besides keys.

use std::net::{Ipv4Addr, SocketAddr};

use keywheel::{
    ApiKey, ConfigFault, ConfigFile,
    settings::{
        Section,
        words::{meant, shown},
    },
};

use super::sections::address;
use crate::token::Token;

/// What the names of our variables begin with.
const OURS: &str = "KEYWHEEL_";

/// All of them, the client's and the program's, too: what follows, in small letters.
const KNOWN: [&str; 7] =
    ["config", "ledger", "listen", "model", "state", "token", "tokens_per_day"];

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

/// What is told of variables that look like ours and are none, by their names alone.
pub(super) fn unknown(file: &ConfigFile, at: &Section<'_>) -> Vec<String> {
    let prefixes = [at.peek_text("upstream", "key_prefix"), at.peek_text("keys", "prefix")];
    if prefixes.iter().flatten().any(|prefix| prefix.trim().starts_with(OURS)) {
        // The owner has names of his own there.
        return Vec::new();
    }
    let told = |name: String| {
        let rest = name.strip_prefix(OURS)?;
        let is_named = at.faults().text().contains(&*name);
        if KNOWN.contains(&&*rest.to_ascii_lowercase())
            || is_named
            || is_of_a_service(rest, &file.variable(&name)?)
        {
            return None;
        }
        let near = meant(rest, &KNOWN);
        let near = near.map(|near| format!("; did you mean {OURS}{}?", near.to_ascii_uppercase()));
        let near = near.unwrap_or_default();
        Some(format!("{OURS}{}: is not a variable that is read{near}", shown(rest)))
    };
    file.names_with(OURS).into_iter().filter_map(told).collect()
}

/// Whether Kubernetes sets it for a service that is called as we are.
fn is_of_a_service(rest: &str, value: &str) -> bool {
    let rest = format!("_{rest}");
    ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT_"].iter().any(|part| rest.contains(part))
        || (rest.ends_with("_PORT") && value.contains("://"))
}

fn chosen(token: &ApiKey) -> Result<Token, String> {
    Token::chosen(token.expose())
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;
    use crate::Config;

    fn warnings(text: &str, variables: &[(&str, &str)]) -> Vec<String> {
        Config::parse("keywheel.toml", text, variables.iter().copied()).unwrap().warnings
    }

    /// A cap that is mistyped is no cap.
    #[test]
    fn a_mistyped_variable_is_told_by_its_name_with_what_was_meant() {
        let told = warnings(
            "",
            &[
                ("KEYWHEEL_TOKEN_PER_DAY", "1000"),
                ("KEYWHEEL_LISTN", "0.0.0.0:1"),
                ("KEYWHEEL_OTHER", "AQ.EXAMPLE-other"),
                ("KEYWHEEL_TOKENS_PER_DAY", "5"),
                ("KEYWHEEL_EMPTY", ""),
                ("OTHER", "1"),
            ],
        );
        let wanted = [
            "KEYWHEEL_LISTN: is not a variable that is read; did you mean KEYWHEEL_LISTEN?",
            "KEYWHEEL_OTHER: is not a variable that is read",
            "KEYWHEEL_TOKEN_PER_DAY: is not a variable that is read; did you mean KEYWHEEL_TOKENS_PER_DAY?",
        ];
        assert_eq!(told, wanted);
    }

    #[test]
    fn what_others_call_so_is_not_told() {
        let service = [
            ("KEYWHEEL_SERVICE_HOST", "10.0.0.1"),
            ("KEYWHEEL_SERVICE_PORT_HTTP", "8787"),
            ("KEYWHEEL_PORT", "tcp://10.0.0.1:8787"),
            ("KEYWHEEL_PORT_8787_TCP_ADDR", "10.0.0.1"),
        ];
        assert_eq!(warnings("", &service), [""; 0]);
        assert_eq!(warnings("", &[("KEYWHEEL_PORT", "8787")]).len(), 1, "it is called PORT");
        let prefix = "[keys]\nprefix = \"KEYWHEEL_KEY\"";
        assert_eq!(warnings(prefix, &[("KEYWHEEL_KEY_1", "AQ.EXAMPLE-key-1")]), [""; 0]);
    }

    #[test]
    fn the_known_variables_are_the_documented_ones() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let mut documented = BTreeSet::new();
        for page in ["configuration.md", "cli.md"] {
            // A published crate stands alone.
            let Ok(text) = fs::read_to_string(docs.join(page)) else { return };
            for rest in text.split(OURS).skip(1) {
                let end = rest.find(|c: char| c != '_' && !c.is_ascii_uppercase());
                documented.insert(rest[..end.unwrap_or(rest.len())].to_ascii_lowercase());
            }
        }
        assert_eq!(documented, KNOWN.map(str::to_owned).into());
    }
}
