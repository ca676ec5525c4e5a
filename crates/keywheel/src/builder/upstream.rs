//! Settings of where requests go, and what is spoken there.

use std::sync::Arc;

use keywheel_provider::{
    Dialect, Provider, Transport,
    http::{HttpTransport, Timeouts},
    upstream::Upstream,
};

use super::setting;
use crate::{Error, GeminiBuilder};

impl GeminiBuilder {
    /// How requests reach the network. Defaults to HTTPS by [`HttpTransport`].
    pub fn transport(mut self, transport: Arc<dyn Transport>) -> Self {
        self.transport = Some(transport);
        self
    }

    /// Who is asked, and so what is spoken. Defaults to Gemini's own API; with another one a
    /// [`base_url`](Self::base_url) has to be set.
    ///
    /// Files, caches and token counts are Gemini's alone.
    ///
    /// ```
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use keywheel::OpenAiApi;
    ///
    /// let groq = Gemini::builder()
    ///     .provider(OpenAiApi::new())
    ///     .base_url("https://api.groq.com/openai/v1")
    ///     .keys([KeySpec::new(ApiKey::new("gsk-EXAMPLE")?, "GROQ_KEY")])
    ///     .state(StateLocation::None)
    ///     .build()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn provider(mut self, provider: impl Provider + 'static) -> Self {
        self.provider = Some(Arc::new(provider));
        self
    }

    /// Where the API is. Defaults to `GEMINI_BASE_URL`, then `GOOGLE_GEMINI_BASE_URL`, then Google.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// The API version in the path. Defaults to `v1beta`.
    pub fn api_version(mut self, version: impl Into<String>) -> Self {
        self.api_version = Some(version.into());
        self
    }

    /// Connect, first-byte and idle time limits of one attempt. Defaults to 10 s, 90 s and 90 s.
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    pub(super) fn upstream(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Upstream, Error> {
        let transport = match &self.transport {
            Some(transport) => Arc::clone(transport),
            None => Arc::new(HttpTransport::new(&self.timeouts).map_err(setting)?),
        };
        let upstream = match (&self.provider, &self.base_url) {
            (Some(provider), Some(url)) => {
                let upstream = Upstream::new(url, transport).map_err(setting)?;
                upstream.with_provider(Arc::clone(provider))
            }
            (Some(provider), None) if provider.dialect() != Dialect::Gemini => {
                // The variables name a place where Gemini is spoken.
                let name = provider.name();
                return Err(Error::Setting(format!(
                    "{name} needs a base URL: nobody can guess it"
                )));
            }
            (provider, url) => {
                let url = url.clone().or_else(|| Upstream::base_url_from(variable));
                let upstream = match &url {
                    Some(url) => Upstream::new(url, transport).map_err(setting)?,
                    None => Upstream::google(transport),
                };
                match provider {
                    Some(provider) => upstream.with_provider(Arc::clone(provider)),
                    None => upstream,
                }
            }
        };
        match &self.api_version {
            Some(version) => upstream.with_version(version).map_err(setting),
            None => Ok(upstream),
        }
    }
}
