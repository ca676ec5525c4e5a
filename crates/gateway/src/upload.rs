//! Upload addresses: they lead to the gateway, and are signed, for whoever uses them may bring no key.
//!
//! An upload begins with one request that has a key; its reply names an address for the bytes. Python's client goes to
//! that address as it is and without a key, JavaScript's and Go's put their own base URL before it. So what is handed
//! out is this gateway's address with Google's query and a token. The token says for which project and whose quota the
//! upload was begun, and until when it holds; it is signed together with the path and the query that it belongs to.
//!
//! Read from google-genai 3.6.1 for Python, 3.3.0 for JavaScript and 1.69 for Go.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    path::Path,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use chrono::{DateTime, Utc};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// The token's name in a query.
pub(crate) const TOKEN: &str = "kw_upload";

/// How long an address holds. Google keeps an upload that was begun for some days; a client that uploads 2 GB over a
/// slow line needs hours.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// The secret's file in the state folder.
const FILE: &str = "upload-secret";

/// What a signed address says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Begun {
    /// The project that began the upload.
    pub(crate) project: String,
    /// The quota project whose key began it: no other can go on.
    pub(crate) owner: String,
}

/// Signs upload addresses, and knows those it signed.
pub(crate) struct Signer {
    secret: [u8; 32],
}

impl Signer {
    /// A secret that ends with this process, for a gateway without a state folder.
    pub(crate) fn fleeting() -> io::Result<Self> {
        Ok(Self { secret: random()? })
    }

    /// The secret of a state folder; made if it is not there. Gateways that share a folder share it, so either can
    /// go on with an upload that the other began.
    ///
    /// # Errors
    /// The file cannot be made or read.
    pub(crate) fn of(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let path = folder.join(FILE);
        if let Some(secret) = read(&path)? {
            return Ok(Self { secret });
        }
        // Written aside and linked into place, so that nobody ever reads half of it, and of two that make one at
        // the same moment both use the first's.
        let mut aside = tempfile::NamedTempFile::new_in(folder)?;
        aside.write_all(&random()?)?;
        aside.as_file().sync_all()?;
        match aside.persist_noclobber(&path) {
            Ok(_) => {}
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.error),
        }
        let secret = read(&path)?.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { secret })
    }

    /// The token for an upload at `path` with `query`, the upstream's own.
    pub(crate) fn sign(
        &self,
        begun: &Begun,
        path: &str,
        query: &str,
        now: DateTime<Utc>,
    ) -> String {
        let until = now.timestamp().saturating_add(LIFETIME.as_secs().cast_signed());
        let says = format!("{until}\n{}\n{}", begun.project, begun.owner);
        let mac = self.mac(&says, path, query).finalize().into_bytes();
        format!("{}.{}", URL_SAFE_NO_PAD.encode(says), URL_SAFE_NO_PAD.encode(mac))
    }

    /// What `token` says, if this gateway signed it for this very address and its time is not over.
    pub(crate) fn read(
        &self,
        token: &str,
        path: &str,
        query: &str,
        now: DateTime<Utc>,
    ) -> Option<Begun> {
        let (says, mac) = token.split_once('.')?;
        let says = String::from_utf8(URL_SAFE_NO_PAD.decode(says).ok()?).ok()?;
        let mac = URL_SAFE_NO_PAD.decode(mac).ok()?;
        // In constant time, and before anything of it is believed.
        self.mac(&says, path, query).verify_slice(&mac).ok()?;
        let mut parts = says.splitn(3, '\n');
        let until: i64 = parts.next()?.parse().ok()?;
        let (project, owner) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        (now.timestamp() < until).then_some(Begun { project, owner })
    }

    fn mac(&self, says: &str, path: &str, query: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret).expect("any length will do");
        // None of them has a zero byte, so no two sets of parts are the same bytes.
        for part in [says, path, query] {
            mac.update(part.as_bytes());
            mac.update(&[0]);
        }
        mac
    }
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer(..)")
    }
}

/// An address out of a reply, cut up: `x-goog-upload-url` as Google sends it.
///
/// ```text
/// https://generativelanguage.googleapis.com/upload/v1beta/files?upload_id=X&upload_protocol=resumable
/// ```
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) path: String,
    /// Without a key, should one stand in it.
    pub(crate) query: String,
}

impl Address {
    /// `None`: no address that this gateway could stand for.
    pub(crate) fn of(url: &str) -> Option<Self> {
        let uri: http::Uri = url.parse().ok()?;
        uri.authority()?;
        if !uri.path().starts_with("/upload/") {
            return None;
        }
        Some(Self { path: uri.path().to_owned(), query: without(uri.query()?, &["key", TOKEN]) })
    }

    /// The same on this gateway.
    pub(crate) fn on(&self, base: &str, token: &str) -> String {
        let Self { path, query } = self;
        let and = if query.is_empty() { "" } else { "&" };
        format!("{base}{path}?{query}{and}{TOKEN}={token}")
    }
}

/// The token in a query, and the rest of it.
pub(crate) fn token_of(query: &str) -> Option<(&str, String)> {
    let token = query
        .split('&')
        .find_map(|pair| pair.strip_prefix(TOKEN).and_then(|rest| rest.strip_prefix('=')))?;
    // JavaScript's and Go's clients bring their key along.
    Some((token, without(query, &["key", TOKEN])))
}

/// A query without some of its fields, every other byte as it was.
fn without(query: &str, names: &[&str]) -> String {
    let named = |pair: &&str| !names.contains(&pair.split('=').next().unwrap_or_default());
    query.split('&').filter(named).collect::<Vec<_>>().join("&")
}

fn read(path: &Path) -> io::Result<Option<[u8; 32]>> {
    let mut file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut secret = [0; 32];
    file.read_exact(&mut secret)?;
    Ok(Some(secret))
}

fn random() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/upload/v1beta/files";
    const QUERY: &str = "upload_id=A%2Bb&upload_protocol=resumable";

    fn now() -> DateTime<Utc> {
        "2026-11-30T12:00:00Z".parse().unwrap()
    }

    fn begun() -> Begun {
        Begun { project: "triage".to_owned(), owner: "key:3fa1c09be2d4".to_owned() }
    }

    #[test]
    fn a_token_tells_its_project_for_its_own_address_until_its_time() {
        let signer = Signer::fleeting().unwrap();
        let token = signer.sign(&begun(), PATH, QUERY, now());
        assert_eq!(signer.read(&token, PATH, QUERY, now()), Some(begun()));
        let late = now() + LIFETIME;
        assert_eq!(signer.read(&token, PATH, QUERY, late - Duration::from_secs(1)), Some(begun()));
        assert_eq!(signer.read(&token, PATH, QUERY, late), None);
    }

    #[test]
    fn a_token_is_good_for_no_other_upload_and_from_no_other_gateway() {
        let signer = Signer::fleeting().unwrap();
        let token = signer.sign(&begun(), PATH, QUERY, now());
        let read = |token: &str, path: &str, query: &str| signer.read(token, path, query, now());
        assert_eq!(read(&token, PATH, "upload_id=B"), None);
        assert_eq!(read(&token, "/upload/v1beta/fileSearchStores/x", QUERY), None);
        assert_eq!(Signer::fleeting().unwrap().read(&token, PATH, QUERY, now()), None);
        let (says, mac) = token.split_once('.').unwrap();
        let other = URL_SAFE_NO_PAD.encode("9999999999\nother\nkey:3fa1c09be2d4");
        assert_eq!(read(&format!("{other}.{mac}"), PATH, QUERY), None);
        for broken in ["", ".", "a.b", says, &format!("{says}."), &format!("{says}.{}", &mac[1..])]
        {
            assert_eq!(read(broken, PATH, QUERY), None, "{broken}");
        }
    }

    #[test]
    fn an_address_leads_to_the_gateway_and_back_without_a_key() {
        let signer = Signer::fleeting().unwrap();
        let url = "https://generativelanguage.googleapis.com/upload/v1beta/files\
                   ?upload_id=A%2Bb&key=AQ.EXAMPLE-1&upload_protocol=resumable";
        let address = Address::of(url).unwrap();
        assert_eq!(address, Address { path: PATH.to_owned(), query: QUERY.to_owned() });
        let token = signer.sign(&begun(), &address.path, &address.query, now());
        let ours: http::Uri = address.on("http://127.0.0.1:8787", &token).parse().unwrap();
        assert_eq!(ours.authority().unwrap(), "127.0.0.1:8787");
        // A client that puts its key after it changes nothing.
        let query = format!("{}&key=gateway-token", ours.query().unwrap());
        let (token, rest) = token_of(&query).unwrap();
        assert_eq!(rest, QUERY);
        assert_eq!(signer.read(token, ours.path(), &rest, now()), Some(begun()));
    }

    #[test]
    fn an_address_that_is_no_upload_is_not_stood_for() {
        for url in ["", "/upload/v1beta/files?x=y", "https://x.example/download/v1beta/files?x=y"] {
            assert_eq!(Address::of(url), None, "{url}");
        }
    }

    #[test]
    fn gateways_with_one_state_folder_know_each_others_tokens() {
        let folder = tempfile::tempdir().unwrap();
        let token = Signer::of(folder.path()).unwrap().sign(&begun(), PATH, QUERY, now());
        let other = Signer::of(folder.path()).unwrap();
        assert_eq!(other.read(&token, PATH, QUERY, now()), Some(begun()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left lying about");
    }

    #[cfg(unix)]
    #[test]
    fn nobody_else_can_read_the_secret() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        Signer::of(folder.path()).unwrap();
        let mode = fs::metadata(folder.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn the_secret_is_not_printed() {
        let signer = Signer { secret: [65; 32] };
        assert_eq!(format!("{signer:?}"), "Signer(..)");
    }
}
