//! Absolute addresses in replies, and what of them may be followed.

use http::Uri;

use super::{
    Call, CallError, GOOGLE, Upstream,
    call::{check_path, is_credential},
};

impl Upstream {
    /// The API version that stands in paths. Empty if none does.
    #[must_use]
    pub fn version(&self) -> &str {
        self.root_and_version().1
    }

    /// The call that `url`, an address out of a reply, stands for: a GET of its path and query
    /// here.
    ///
    /// Google gives absolute addresses for uploads and downloads. Followed as they are, they would
    /// lead past a gateway, and a forged one would be handed the key. So an address counts only if
    /// it names Google's host or our own, and its host is then left out. A credential in its query
    /// is, too.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use keywheel_provider::{testing::Script, upstream::Upstream};
    ///
    /// let script = Arc::new(Script::new());
    /// let gateway = Upstream::new("http://gateway.internal/gemini", script).unwrap();
    /// let google = "https://generativelanguage.googleapis.com/upload/v1beta/files?upload_id=7";
    /// let call = gateway.localize(google).unwrap();
    /// assert_eq!(
    ///     gateway.url(&call).unwrap(),
    ///     "http://gateway.internal/gemini/upload/v1beta/files?upload_id=7",
    /// );
    /// assert!(gateway.localize("https://example.com/upload/v1beta/files?upload_id=7").is_err());
    /// ```
    ///
    /// # Errors
    /// It names another host, or its path or query cannot be sent on.
    pub fn localize(&self, url: &str) -> Result<Call, CallError> {
        let uri: Uri = url.parse().map_err(|_| CallError::Foreign)?;
        // What we send to ourselves was parsed when the upstream was made.
        let base: Uri = self.base.parse().map_err(|_| CallError::Foreign)?;
        let ours = same_place(&uri, &base);
        if !ours && !same_place(&uri, &Uri::from_static(GOOGLE)) {
            return Err(CallError::Foreign);
        }
        let mut path = uri.path();
        if ours {
            // Behind a path prefix the address begins with it, and so does every call's URL.
            let (root, _) = self.root_and_version();
            let prefix = root.parse::<Uri>().map_err(|_| CallError::Foreign)?;
            let prefix = prefix.path().trim_end_matches('/');
            path = path.strip_prefix(prefix).filter(|rest| rest.starts_with('/')).unwrap_or(path);
        }
        check_path(path)?;
        let mut call = Call::get(path);
        for field in uri.query().unwrap_or_default().split('&').filter(|field| !field.is_empty()) {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            let (Some(name), Some(value)) = (decode(name), decode(value)) else {
                return Err(CallError::Foreign);
            };
            if !is_credential(&name) {
                call = call.with_query(name, value);
            }
        }
        Ok(call)
    }
}

/// Whether both name the same host and port. Never true if one has a user name.
fn same_place(a: &Uri, b: &Uri) -> bool {
    let place = |uri: &Uri| {
        let default = match uri.scheme_str()? {
            "https" => 443,
            "http" => 80,
            _ => return None,
        };
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
        let host = authority.host().trim_end_matches('.').to_ascii_lowercase();
        Some((host, authority.port_u16().unwrap_or(default)))
    };
    place(a).is_some() && place(a) == place(b)
}

/// Reads a name or a value of a query. `None` if it is no text.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}
