//! The tokens that programs show to the gateway, and what is kept of them.

use std::{fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use keywheel::ApiKey;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// What every token of ours begins with, so that scanners for secrets and people know one.
const PREFIX: &str = "kw_";

/// A token: who shows it is the project, or one of the projects, that it stands for.
///
/// `Debug` shows the beginning of its hash. It reaches a file or a screen only through [`expose`](Self::expose).
///
/// ```
/// use keywheel_gateway::Token;
///
/// let token = Token::random()?;
/// assert_eq!((token.expose().len(), &token.expose()[..3]), (46, "kw_"));
/// assert!(!format!("{token:?}").contains(token.expose()));
/// assert_eq!(token.hash(), token.hash().to_string().parse()?, "what stands in the file");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Token(ApiKey);

impl Token {
    /// A new one: 256 bits of the operating system's randomness.
    ///
    /// # Errors
    /// The operating system has none to give.
    pub fn random() -> Result<Self, NoRandomness> {
        let mut bytes = [0_u8; 32];
        getrandom::fill(&mut bytes).map_err(|error| NoRandomness(error.to_string()))?;
        let text = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
        Ok(Self(ApiKey::new(text).expect("base64 is printable ASCII")))
    }

    /// One that somebody chose. At least 16 characters: what is shorter is guessed.
    ///
    /// ```
    /// use keywheel_gateway::Token;
    ///
    /// assert!(Token::chosen("a-token-of-my-own-EXAMPLE").is_ok());
    /// assert_eq!(Token::chosen("hunter2").unwrap_err(), "must have 16 characters at least");
    /// ```
    ///
    /// # Errors
    /// What is wrong with it, never what it was.
    pub fn chosen(text: &str) -> Result<Self, String> {
        const SHORTEST: usize = 16;
        let text = text.trim();
        if text.len() < SHORTEST {
            return Err(format!("must have {SHORTEST} characters at least"));
        }
        ApiKey::new(text).map(Self).map_err(|fault| fault.to_string())
    }

    /// The token itself, to be shown once.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose()
    }

    /// What is kept of it.
    #[must_use]
    pub fn hash(&self) -> TokenHash {
        TokenHash::of(self.expose())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.0.fingerprint())
    }
}

/// The operating system has no randomness to give.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no randomness for a token: {0}")]
pub struct NoRandomness(String);

/// A token's SHA-256: what the file keeps, and what a token that is shown is looked up by.
///
/// No salt and no slow hash: 256 random bits cannot be guessed, and every request would pay for it. Equality takes the
/// same time wherever two differ. In a table a lookup by hash says nothing of the token: its bits are not to be steered.
///
/// ```
/// use keywheel_gateway::TokenHash;
///
/// let hash = TokenHash::of("abc"); // as `printf abc | sha256sum` prints it
/// assert!(hash.to_string().starts_with("ba7816bf8f01cfea"));
/// ```
#[derive(Clone, Copy)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// Of `token`, as it was shown.
    #[must_use]
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }
}

impl PartialEq for TokenHash {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for TokenHash {}

impl std::hash::Hash for TokenHash {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// As it stands in the file: 64 hexadecimal digits.
impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The first 12 digits, which tell tokens apart and are of no other use.
impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(")?;
        self.0[..6].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

impl FromStr for TokenHash {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if text.starts_with(PREFIX) {
            return Err("is the token itself; its SHA-256 belongs here, and the token is to be \
                        replaced: it was in a file"
                .to_owned());
        }
        let fault = || "must be 64 hexadecimal digits, the SHA-256 of a token".to_owned();
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(fault());
        }
        let mut bytes = [0_u8; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |digit: u8| char::from(digit).to_digit(16).ok_or_else(fault);
            *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).map_err(|_| fault())?;
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_256_bits_and_no_two_are_alike() {
        let tokens: std::collections::HashSet<_> =
            (0..100).map(|_| Token::random().expect("randomness").expose().to_owned()).collect();
        assert_eq!(tokens.len(), 100);
        for token in &tokens {
            let bits = URL_SAFE_NO_PAD.decode(&token[PREFIX.len()..]).expect("base64");
            assert!(bits.len() == 32, "as many bytes as bits asked for");
        }
    }

    #[test]
    fn the_hash_in_the_file_is_what_sha256sum_prints() {
        let hash = TokenHash::of("abc");
        let wanted = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash.to_string(), wanted);
        assert_eq!(wanted.to_uppercase().parse(), Ok(hash));
        assert_eq!(format!("{hash:?}"), "TokenHash(ba7816bf8f01)");
    }

    #[test]
    fn what_is_no_hash_is_refused_without_being_repeated() {
        let own = "kw_EXAMPLE";
        for text in ["", "abc", own, &"g".repeat(64), &"é".repeat(32)] {
            let fault = text.parse::<TokenHash>().expect_err("no hash");
            assert!(text.len() < 4 || !fault.contains(text), "it repeats what it refuses");
        }
        assert!(own.parse::<TokenHash>().expect_err("a token").contains("replaced"));
    }
}
