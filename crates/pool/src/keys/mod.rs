//! The keys a pool is built from, and where they come from.
//!
//! [`KeyLoader`] reads them; the table of variables stands there. Nothing in this module prints a
//! key: errors and notes name variables, files and lines.

mod dotenv;
mod load;
mod loader;
mod names;
mod natural;
mod report;
#[cfg(test)]
mod tests;
mod value;

use keywheel_core::{ApiKey, Fingerprint, Tier};

pub use loader::KeyLoader;
pub use report::{KeyFault, KeyNote, KeySource, KeysError, NoKeys, Place, Problem, SourceKind};

/// One key, with what its owner told about it.
///
/// ```
/// use keywheel_core::{ApiKey, Tier};
/// use keywheel_pool::keys::KeySpec;
///
/// let key = ApiKey::new("AQ.EXAMPLE-key-1").unwrap();
/// let spec = KeySpec::new(key, "chat").with_project("my-project");
/// assert_eq!(spec.tier, Tier::Free);
/// ```
///
/// A paid key, and what it is called where it must not be printed:
///
/// ```
/// # use keywheel_core::{ApiKey, Fingerprint, Tier};
/// # use keywheel_pool::keys::KeySpec;
/// let paid = KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-2").unwrap(), "overflow").paid();
/// assert_eq!(paid.tier, Tier::Paid);
/// assert_eq!(paid.fingerprint(), Fingerprint::of("AQ.EXAMPLE-key-2"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySpec {
    /// The key itself.
    pub key: ApiKey,
    /// What people call it: the variable or the file line it came from, or a name given in code.
    pub label: String,
    /// The quota project it belongs to. `None`: not told, so the key is taken to be alone in its
    /// own.
    pub project: Option<String>,
    /// `Free` unless its owner marked it as paid.
    pub tier: Tier,
}

impl KeySpec {
    /// A free key called `label` whose quota project is not known.
    #[must_use]
    pub fn new(key: ApiKey, label: impl Into<String>) -> Self {
        Self { key, label: label.into(), project: None, tier: Tier::Free }
    }

    /// The same key in the quota project `name`. Keys with the same name share one quota.
    #[must_use]
    pub fn with_project(self, name: impl Into<String>) -> Self {
        Self { project: Some(name.into()), ..self }
    }

    /// The same key, marked as paid: used only where a caller allows overflow.
    #[must_use]
    pub fn paid(self) -> Self {
        Self { tier: Tier::Paid, ..self }
    }

    /// What logs, the state file and metrics call this key.
    #[must_use]
    pub const fn fingerprint(&self) -> Fingerprint {
        self.key.fingerprint()
    }
}

/// What a [`KeyLoader`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedKeys {
    /// In the order in which they are to be used. Never empty, no key twice.
    pub keys: Vec<KeySpec>,
    /// What the owner should know.
    pub notes: Vec<KeyNote>,
    /// Where the loader looked, and how many keys came from each place.
    pub sources: Vec<KeySource>,
}
