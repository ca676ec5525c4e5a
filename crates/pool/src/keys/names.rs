//! Which variables hold keys, and what each is for.

/// The prefix that is used unless another is set.
pub(super) const DEFAULT_PREFIX: &str = "GEMINI_API_KEY";
/// Google's own SDKs read this one; it is read here only with the default prefix.
const GOOGLE: &str = "GOOGLE_API_KEY";
/// Settings of this library, and of tools that stand beside it: never a key, whatever the prefix.
const NOT_KEYS: [&str; 7] = [
    "GEMINI_BASE_URL",
    "GEMINI_MODEL",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_LOCATION",
    "GOOGLE_CLOUD_PROJECT",
    "GOOGLE_GEMINI_BASE_URL",
    "KEYWHEEL_STATE",
];

/// Those of them, and of the gateway's, that are read from the environment alone.
const ENVIRONMENT_ONLY: [&str; 7] = [
    "GEMINI_BASE_URL",
    "GOOGLE_GEMINI_BASE_URL",
    "KEYWHEEL_LEDGER",
    "KEYWHEEL_LISTEN",
    "KEYWHEEL_STATE",
    "KEYWHEEL_TOKENS_PER_DAY",
    "LEDGER_DB",
];

/// The names that follow from a prefix.
#[derive(Debug, Clone)]
pub(super) struct Names {
    single: String,
    list: String,
    paid: String,
    project: String,
    google: Option<&'static str>,
    /// Only `single` counts, whatever else its name would give.
    alone: bool,
}

/// What a variable is for. `suffix` is empty for the name without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role<'a> {
    /// One free key.
    Key { suffix: &'a str },
    /// Several free keys.
    List,
    /// Google's variable.
    Google,
    /// One paid key.
    Paid { suffix: &'a str },
    /// The quota project of the keys with the same suffix.
    Project { suffix: &'a str },
    /// A name that ends in `_` where the suffix should be.
    NoSuffix,
    /// Close to one of the above, so probably meant to be one.
    NearMiss,
    /// Somebody else's.
    Other,
}

impl Names {
    /// The names for `prefix`, with or without its last underscore.
    ///
    /// `ACME_API_KEY` gives `ACME_PAID_API_KEY` and `ACME_PROJECT`, `ACME_KEY` gives
    /// `ACME_PAID_KEY`; any other prefix gets `_PAID` and `_PROJECT` at its end.
    pub(super) fn new(prefix: &str) -> Self {
        let single = prefix.trim().trim_end_matches('_');
        let ending = ["_API_KEY", "_KEY"].into_iter().find(|ending| single.ends_with(ending));
        let stem = ending.and_then(|ending| single.strip_suffix(ending)).unwrap_or(single);
        Self {
            single: single.into(),
            list: format!("{single}S"),
            paid: format!("{stem}_PAID{}", ending.unwrap_or_default()),
            project: format!("{stem}_PROJECT"),
            google: (single == DEFAULT_PREFIX).then_some(GOOGLE),
            alone: false,
        }
    }

    /// The one variable `name`, for one key.
    pub(super) fn only(name: &str) -> Self {
        Self { single: name.into(), alone: true, ..Self::new(name) }
    }

    /// What `name` is for. Case counts, as it does for environment variables on most systems.
    pub(super) fn role<'a>(&self, name: &'a str) -> Role<'a> {
        if self.alone {
            return if name == self.single { Role::Key { suffix: "" } } else { Role::Other };
        }
        if name == self.list {
            return Role::List;
        }
        if Some(name) == self.google {
            return Role::Google;
        }
        // With a prefix like `GEMINI` these would be keys.
        if NOT_KEYS.contains(&name) {
            return Role::Other;
        }
        // The longer names first: with a prefix like `ACME` they all begin with it.
        if let Some(suffix) = suffix_after(name, &self.paid) {
            return suffix.map_or(Role::NoSuffix, |suffix| Role::Paid { suffix });
        }
        if let Some(suffix) = suffix_after(name, &self.project) {
            return suffix.map_or(Role::NoSuffix, |suffix| Role::Project { suffix });
        }
        if let Some(suffix) = suffix_after(name, &self.single) {
            return suffix.map_or(Role::NoSuffix, |suffix| Role::Key { suffix });
        }
        let close =
            |to: &str| name.get(..to.len()).is_some_and(|head| head.eq_ignore_ascii_case(to));
        if close(&self.single) || close(&self.paid) { Role::NearMiss } else { Role::Other }
    }

    /// True if `name` is a setting that does nothing in a `.env` file.
    pub(super) fn is_for_the_environment(&self, name: &str) -> bool {
        !self.alone && self.role(name) == Role::Other && ENVIRONMENT_ONLY.contains(&name)
    }

    /// What the reader of an error should know was looked for.
    pub(super) fn looked_for(&self) -> Vec<String> {
        let Self { single, list, paid, google, .. } = self;
        if self.alone {
            return vec![single.clone()];
        }
        let mut names = vec![format!("{single}_<ANY SUFFIX>"), single.clone(), list.clone()];
        names.extend(google.map(String::from));
        names.extend([format!("{paid}_<ANY SUFFIX>"), paid.clone()]);
        names
    }

    /// How to give several keys.
    pub(super) fn several(&self) -> String {
        if self.alone {
            return "a variable for each".into();
        }
        format!("{} for a list of them, or a suffix for each (_1, _2, ...)", self.list)
    }
}

/// `Some(Some("7"))` for `<base>_7`, `Some(Some(""))` for `<base>` itself, `Some(None)` for
/// `<base>_`.
fn suffix_after<'a>(name: &'a str, base: &str) -> Option<Option<&'a str>> {
    match name.strip_prefix(base)? {
        "" => Some(Some("")),
        "_" => Some(None),
        rest => rest.strip_prefix('_').map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_role() {
        let names = Names::new("GEMINI_API_KEY");
        for (name, role) in [
            ("GEMINI_API_KEY", Role::Key { suffix: "" }),
            ("GEMINI_API_KEY_2", Role::Key { suffix: "2" }),
            ("GEMINI_API_KEY__2", Role::Key { suffix: "_2" }),
            ("GEMINI_API_KEY_work_A", Role::Key { suffix: "work_A" }),
            ("GEMINI_API_KEY_", Role::NoSuffix),
            ("GEMINI_API_KEYS", Role::List),
            ("GEMINI_API_KEYS_2", Role::NearMiss),
            ("GEMINI_API_KEY2", Role::NearMiss),
            ("gemini_api_key_2", Role::NearMiss),
            ("GEMINI_PAID_API_KEY", Role::Paid { suffix: "" }),
            ("GEMINI_PAID_API_KEY_2", Role::Paid { suffix: "2" }),
            ("GEMINI_PAID_API_KEY_", Role::NoSuffix),
            ("GEMINI_PAID_API_KEYS", Role::NearMiss),
            ("GEMINI_PROJECT_2", Role::Project { suffix: "2" }),
            ("GEMINI_PROJECT", Role::Project { suffix: "" }),
            ("GEMINI_PROJECTS", Role::Other),
            ("GOOGLE_API_KEY", Role::Google),
            ("GOOGLE_API_KEY_2", Role::Other),
            ("OPENAI_API_KEY", Role::Other),
            ("", Role::Other),
            ("GEMINI_API_KÉY", Role::Other),
        ] {
            assert_eq!(names.role(name), role, "{name}");
        }
    }

    #[test]
    fn another_prefix_has_names_of_its_own() {
        let acme = Names::new("ACME_KEY_");
        assert_eq!(acme.role("ACME_KEY_1"), Role::Key { suffix: "1" });
        assert_eq!(acme.role("ACME_KEYS"), Role::List);
        assert_eq!(acme.role("ACME_PAID_KEY_1"), Role::Paid { suffix: "1" });
        assert_eq!(acme.role("ACME_PROJECT_1"), Role::Project { suffix: "1" });
        assert_eq!(acme.role("GEMINI_API_KEY_1"), Role::Other);
        assert_eq!(acme.role("GOOGLE_API_KEY"), Role::Other, "belongs to the default prefix");

        let gemini = Names::new("GEMINI");
        assert_eq!(gemini.role("GEMINI_API_KEY_1"), Role::Key { suffix: "API_KEY_1" });
        for (prefix, name) in [
            ("GEMINI", "GEMINI_BASE_URL"),
            ("GEMINI", "GEMINI_MODEL"),
            ("GOOGLE", "GOOGLE_GEMINI_BASE_URL"),
            ("GOOGLE", "GOOGLE_CLOUD_PROJECT"),
            ("KEYWHEEL", "KEYWHEEL_STATE"),
        ] {
            assert_eq!(Names::new(prefix).role(name), Role::Other, "{name}");
        }

        let bare = Names::new("ACME");
        assert_eq!(bare.role("ACME_1"), Role::Key { suffix: "1" });
        assert_eq!(bare.role("ACME_PAID_1"), Role::Paid { suffix: "1" });
        assert_eq!(bare.role("ACME_PROJECT_1"), Role::Project { suffix: "1" });
    }
}
