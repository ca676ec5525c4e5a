//! Whose budget it is.

use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{ErrorKind, LedgerError};

/// The name of an account: an app, a job, a team. 1 to 128 bytes, without control characters and
/// others that cannot be seen, and without white space at either end. Names are compared byte by
/// byte: letters that only look alike are different names.
///
/// ```
/// use keywheel_ledger::AccountId;
///
/// let account: AccountId = "triage".parse()?;
/// assert_eq!(account.as_str(), "triage");
/// assert!(AccountId::new("").is_err());
/// # Ok::<(), keywheel_ledger::LedgerError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AccountId(Arc<str>);

impl AccountId {
    /// The account called `name`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a name that is empty, too long, or hard to see.
    pub fn new(name: &str) -> Result<Self, LedgerError> {
        check_name("an account's name", name).map(Self)
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `name` as it is kept, if it can be told from others by eye. `what` names it in the error.
pub(crate) fn check_name(what: &str, name: &str) -> Result<Arc<str>, LedgerError> {
    let fault = if name.is_empty() {
        "is empty"
    } else if name.len() > 128 {
        "is longer than 128 bytes"
    } else if name.chars().any(char::is_control) {
        "has a control character inside"
    } else if name.chars().any(is_invisible) {
        "has a character inside that cannot be seen"
    } else if name.trim() != name {
        "has white space at an end"
    } else {
        return Ok(name.into());
    };
    Err(LedgerError::new(ErrorKind::Invalid, format!("{what} {fault}")))
}

/// Characters without a shape of their own: joiners, marks of direction, tags. With one of them a name
/// looks like another account's and has a budget of its own.
const fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

impl fmt::Debug for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for AccountId {
    type Err = LedgerError;

    fn from_str(name: &str) -> Result<Self, LedgerError> {
        Self::new(name)
    }
}

impl TryFrom<&str> for AccountId {
    type Error = LedgerError;

    fn try_from(name: &str) -> Result<Self, LedgerError> {
        Self::new(name)
    }
}

impl TryFrom<String> for AccountId {
    type Error = LedgerError;

    fn try_from(name: String) -> Result<Self, LedgerError> {
        Self::new(&name)
    }
}

// Equal, ordered and hashed as the name is, so maps can be asked by name.
impl Borrow<str> for AccountId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<AccountId> for String {
    fn from(account: AccountId) -> Self {
        account.as_str().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_cannot_be_told_from_another_by_eye_is_refused() {
        let long = "x".repeat(10_000);
        let names = ["", " a", "a\u{a0}", "a\0", "a\n", &long];
        for name in names {
            assert_eq!(AccountId::new(name).unwrap_err().kind(), ErrorKind::Invalid, "{name:?}");
        }
        for c in ['\u{200b}', '\u{200d}', '\u{202e}', '\u{feff}', '\u{ad}', '\u{e0041}', '\u{3164}']
        {
            let error = AccountId::new(&format!("tri{c}age")).unwrap_err();
            assert!(error.to_string().contains("cannot be seen"), "{c:?}");
        }
        for name in ["triage", "Größe 2", "账户", "a/b:c.d", &"x".repeat(128)] {
            assert_eq!(AccountId::new(name).unwrap().as_str(), name);
        }
    }
}
