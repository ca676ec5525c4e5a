//! Projects: the apps that share the allowance, each with its own budget.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use keywheel::ledger::{AccountId, AccountRules, Limit};

use crate::{route::Kind, token::TokenHash};

/// What a project is called that nobody named.
pub const DEFAULT_PROJECT: &str = "default";

/// An app that uses the gateway, and what it may use.
///
/// ```
/// use keywheel_gateway::{Config, Unbounded};
///
/// let text = r#"
///     [projects.triage]
///     models = ["gemini-3.6-flash", "gemini-3.5-flash-lite"]
///     unbounded = { images = 2_000 }
///     [projects.batch]
/// "#;
/// let config = Config::parse("keywheel.toml", text, [("", ""); 0])?;
/// let projects = &config.settings.projects;
/// let triage = projects.named("triage").unwrap();
/// assert!(triage.allows("models/gemini-3.6-flash") && !triage.allows("gemini-3-pro"));
/// assert_eq!(triage.fixed_charges[&Unbounded::Images], 2_000);
/// assert_eq!(Unbounded::Images.as_str(), "images");
///
/// assert!(!config.settings.asks_for_tokens());
/// assert_eq!(projects.default().unwrap().name.as_str(), "triage", "whoever names none is the first");
/// assert_eq!(projects.iter().count(), 2);
/// # Ok::<(), keywheel::ConfigErrors>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Project {
    /// What it is called: also the ledger's account.
    pub name: AccountId,
    /// Which tokens stand for it. None while the gateway asks for no tokens.
    pub tokens: Vec<TokenHash>,
    /// Its caps in tokens and calls. None: the allowance alone limits it.
    pub limits: Vec<Limit>,
    /// How many requests a minute it may make. `None`: as many as it likes.
    pub requests_per_minute: Option<u32>,
    /// How many of its requests may be under way at once. `None`: as many as it likes.
    pub in_flight: Option<usize>,
    /// Which project's queued requests go first: those with the highest number. Defaults to 0.
    pub priority: u8,
    /// The models it may use, and the order in which another one takes over from the one asked for. Empty: all, and
    /// nobody takes over.
    pub models: Vec<String>,
    /// How much output is reserved for a request that does not bound it. `None`: the ledger's default.
    pub default_max_output: Option<u64>,
    /// True if paid keys may answer where free ones cannot.
    pub allow_paid: bool,
    /// What one call of a route costs whose tokens cannot be bounded. A route that is not here is refused, if the
    /// project has a budget.
    pub fixed_charges: BTreeMap<Unbounded, u64>,
}

impl Project {
    /// One of this name without limits and tokens.
    #[must_use]
    pub(crate) const fn new(name: AccountId) -> Self {
        Self {
            name,
            tokens: Vec::new(),
            limits: Vec::new(),
            requests_per_minute: None,
            in_flight: None,
            priority: 0,
            models: Vec::new(),
            default_max_output: None,
            allow_paid: false,
            fixed_charges: BTreeMap::new(),
        }
    }

    /// The account of a project that is called `name`. The name stands in paths (`/p/<name>/`), headers, logs and numbers.
    ///
    /// ```
    /// use keywheel_gateway::Project;
    ///
    /// assert_eq!(Project::check_name("triage-2").unwrap().as_str(), "triage-2");
    /// assert!(Project::check_name("a b").unwrap_err().starts_with("a project's name is made of"));
    /// assert!(Project::check_name("kw_EXAMPLE").unwrap_err().contains("looks like a token"));
    /// ```
    ///
    /// # Errors
    /// What is wrong with it, without repeating it: it may be a token or a key that was put in the wrong place.
    pub fn check_name(name: &str) -> Result<AccountId, String> {
        if name.starts_with("kw_") || name.starts_with("AIza") {
            return Err(
                "it looks like a token or a key, and a project's name is seen by many".to_owned()
            );
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let id = AccountId::new(name).ok();
        id.filter(|_| name.chars().all(plain) && !name.starts_with('.')).ok_or_else(|| {
            "a project's name is made of letters (a-z, A-Z), digits, dots, dashes and underscores, has 128 of them at \
             most, and begins with no dot"
                .to_owned()
        })
    }

    /// What the ledger has to know of it.
    #[must_use]
    pub(crate) fn rules(&self) -> AccountRules {
        AccountRules { limits: self.limits.clone(), default_max_output: self.default_max_output }
    }

    /// True if `model` may be used. A name with `models/` in front is the same model.
    #[must_use]
    pub fn allows(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|own| own == bare(model))
    }

    /// The models that may answer instead of `model`, in their order. They are those behind it in the list.
    #[must_use]
    pub(crate) fn instead_of(&self, model: &str) -> &[String] {
        let place = self.models.iter().position(|own| own == bare(model));
        place.map_or(&[], |place| &self.models[place + 1..])
    }
}

/// `x` and `models/x` are the same model.
pub(crate) fn bare(model: &str) -> &str {
    model.strip_prefix("models/").unwrap_or(model)
}

/// A route whose tokens cannot be told beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Unbounded {
    /// Many requests in one, answered later.
    Batches,
    /// Pictures by Imagen (`:predict`).
    Images,
    /// Films by Veo (`:predictLongRunning`).
    Videos,
    /// Interactions that go on in the background.
    Interactions,
    /// Files that are put into a store to be searched.
    FileSearch,
    /// Tokens with which clients talk to Google past the gateway.
    AuthTokens,
    /// Verbs and collections that are not known here.
    Other,
}

impl Unbounded {
    /// All of them, by the names that they have in the file.
    pub const ALL: [(&'static str, Self); 7] = [
        ("batches", Self::Batches),
        ("images", Self::Images),
        ("videos", Self::Videos),
        ("interactions", Self::Interactions),
        ("file_search", Self::FileSearch),
        ("auth_tokens", Self::AuthTokens),
        ("other", Self::Other),
    ];

    /// Its name in the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        let own = Self::ALL.iter().find(|(_, it)| *it == self);
        own.map_or("other", |(name, _)| name)
    }

    /// Which of them a route of `kind` is, if it is one.
    pub(crate) const fn of(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Batch => Some(Self::Batches),
            Kind::Image => Some(Self::Images),
            Kind::Video => Some(Self::Videos),
            Kind::Interactions => Some(Self::Interactions),
            Kind::FileSearch => Some(Self::FileSearch),
            Kind::AuthToken => Some(Self::AuthTokens),
            Kind::OtherVerb | Kind::Other => Some(Self::Other),
            _ => None,
        }
    }
}

/// All projects, and which token stands for which.
#[derive(Debug, Clone, Default)]
pub struct Projects {
    all: Vec<Arc<Project>>,
    by_token: HashMap<TokenHash, Vec<usize>>,
}

impl Projects {
    /// These, in the order in which a token stands for them.
    #[must_use]
    pub(crate) fn new(projects: impl IntoIterator<Item = Project>) -> Self {
        let all: Vec<_> = projects.into_iter().map(Arc::new).collect();
        let mut by_token: HashMap<_, Vec<_>> = HashMap::new();
        for (place, project) in all.iter().enumerate() {
            for token in &project.tokens {
                let own = by_token.entry(*token).or_default();
                if !own.contains(&place) {
                    own.push(place);
                }
            }
        }
        Self { all, by_token }
    }

    /// The projects that `token` stands for, the first one first. Empty for an unknown token.
    pub(crate) fn of_token(&self, token: TokenHash) -> impl Iterator<Item = &Arc<Project>> {
        self.by_token.get(&token).into_iter().flatten().map(|place| &self.all[*place])
    }

    /// The project of this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Arc<Project>> {
        self.all.iter().find(|project| project.name.as_str() == name)
    }

    /// All of them, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Project>> {
        self.all.iter()
    }

    /// Who it is when no tokens are asked for and nobody is named: `default`, else the first.
    #[must_use]
    pub fn default(&self) -> Option<&Arc<Project>> {
        self.named(DEFAULT_PROJECT).or_else(|| self.all.first())
    }
}
