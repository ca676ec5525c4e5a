//! A budget in the client's configuration file.

#![cfg(feature = "ledger")]
#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{fs, sync::Arc};

use common::{MODEL, bodies::part, key};
use keywheel::{Error, Gemini, GeminiBuilder, ledger::AccountId};
use keywheel_provider::testing::{Script, Scripted};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("client.toml"), text).unwrap();
        Self(folder)
    }

    fn read(&self) -> Result<GeminiBuilder, Error> {
        let variables = [
            ("GEMINI_API_KEY_1", key(1).expose().to_owned()),
            ("KEYWHEEL_STATE", self.0.path().join("pool.json").display().to_string()),
        ];
        GeminiBuilder::from_config_with(self.0.path().join("client.toml"), variables)
    }

    async fn build(&self) -> Result<Gemini, Error> {
        let script = Script::new();
        script.otherwise(|_| Scripted::json(200, part("Hello", Some("STOP"), (8, 1)).to_string()));
        self.read()?.transport(Arc::new(script)).build().await
    }

    fn fault(&self) -> String {
        self.read().unwrap_err().to_string()
    }
}

const ONE: &str = r#"
[ledger]
path = "budget.db"
storage = "ephemeral_ok"
[ledger.accounts.triage]
tokens_per_day = 300
default_max_output = 100
"#;

#[tokio::test]
async fn a_ledger_in_the_file_is_opened_beside_it_and_charged() {
    let folder = Folder::new(ONE);
    let gemini = folder.build().await.unwrap();
    gemini.generate(MODEL, "hi").await.unwrap();
    let ledger = gemini.ledger().unwrap().clone();
    assert_eq!(ledger.usage("triage").await.unwrap().day.tokens.used(), 9);
    assert!(folder.0.path().join("budget.db").exists());
    drop((gemini, ledger));

    // The next process goes on with the same budget.
    let gemini = folder.build().await.unwrap();
    let long = gemini.generate(MODEL, "word ".repeat(200)).await;
    assert!(matches!(long, Err(Error::OverBudget { .. })), "{long:?}");
}

#[tokio::test]
async fn the_account_is_the_one_that_is_named_or_the_only_one() {
    let two = format!("{ONE}[ledger.accounts.chat]\n");
    assert!(Folder::new(&two).fault().contains("whose budget"), "two, and none is named");
    let named = Folder::new(&format!("account = 'chat'\n{two}"));
    let gemini = named.build().await.unwrap();
    gemini.generate(MODEL, "hi").await.unwrap();
    let rows = gemini.ledger().unwrap().rows(Default::default()).await.unwrap();
    assert_eq!(rows[0].account, AccountId::new("chat").unwrap());

    let unknown = Folder::new(&format!("account = 'traige'\n{ONE}")).build().await.unwrap_err();
    assert!(unknown.to_string().contains("traige"), "{unknown}");
    let nowhere = Folder::new("account = 'triage'").fault();
    assert!(nowhere.contains("client.toml:1:11: account: needs a section [ledger]"), "{nowhere}");
}

#[test]
fn a_fault_in_the_budget_is_a_fault_of_the_file() {
    let wrong =
        ONE.replace("tokens_per_day", "tokens_a_day").replace("[ledger]\n", "[ledger]\nzone = 5\n");
    let fault = Folder::new(&wrong).fault();
    // Each at its own place, and both at once.
    for (line, setting) in wrong
        .lines()
        .enumerate()
        .filter(|(_, text)| text.contains("tokens_a_day") || text.contains("zone"))
    {
        let place = format!("client.toml:{}:", line + 1);
        let told =
            fault.lines().find(|told| told.contains(&place)).unwrap_or_else(|| panic!("{fault}"));
        let name = setting.split_whitespace().next().unwrap();
        assert!(told.contains(name), "{told}");
    }
}
