//! Collects what a body says while the scanner walks through it: which container means what.

use std::{borrow::Cow, time::Duration};

use keywheel_core::scrub;

use super::{
    body::{Facts, MOST, Violation},
    delay, rpc_status,
    scan::{self, Container, Raw, Sink},
    speech,
};

/// How deep JSON inside strings inside JSON is followed. Three levels have been seen.
const MOST_LEVELS: u8 = 5;
/// How long a name may be.
const LONGEST_NAME: usize = 200;
/// How deep containers are told apart; what lies deeper is skipped.
const MOST_DEPTH: usize = 32;

/// What `text` says. `success` when the HTTP status claims it: then only what stands where errors
/// stand is read.
pub(super) fn collect(text: &str, success: bool) -> Facts {
    let mut collector = Collector::new(success, 0);
    scan::scan(text, &mut collector);
    collector.finish()
}

/// What the container being read is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The list around the error, or around the events of a stream.
    List,
    /// The outermost object, and whatever is not known better.
    Doc,
    Error,
    Detail,
    Violation,
    /// `quotaDimensions`
    Dimensions,
    Metadata,
    Headers,
    /// `retryDelay` as a message of its own.
    Delay,
    /// The `errors` of Google's older APIs.
    Legacy,
    Skip,
}

struct Collector {
    success: bool,
    level: u8,
    roles: [Role; MOST_DEPTH],
    depth: usize,
    facts: Facts,
    /// What earlier events of a successful stream said, and how deep the event at hand began.
    kept: Facts,
    event_depth: usize,
    violation: Violation,
    metadata: Violation,
    /// The `key` of a protobuf map entry, whose `value` follows.
    entry: String,
    seconds: Option<Duration>,
}

impl Collector {
    fn new(success: bool, level: u8) -> Self {
        Self {
            success,
            level,
            roles: [Role::Skip; MOST_DEPTH],
            depth: 0,
            facts: Facts::default(),
            kept: Facts::default(),
            event_depth: 0,
            violation: Violation::default(),
            metadata: Violation::default(),
            entry: String::new(),
            seconds: None,
        }
    }

    fn finish(&mut self) -> Facts {
        while self.depth > 0 {
            self.close();
        }
        let metadata = std::mem::take(&mut self.metadata);
        let known = self.facts.violations.iter().any(|violation| violation.id == metadata.id);
        if metadata.names_a_quota() && !known {
            self.facts.violations.push(metadata);
        }
        self.facts.error |= !self.success && self.facts.says_something();
        std::mem::take(&mut self.facts)
    }

    const fn role(&self) -> Option<Role> {
        match self.depth {
            0 => None,
            MOST_DEPTH.. => Some(Role::Skip),
            depth => Some(self.roles[depth - 1]),
        }
    }

    fn role_of(&self, parent: Option<Role>, key: Option<&str>, container: Container) -> Role {
        let Some(parent) = parent else {
            return if container == Container::Object { Role::Doc } else { Role::List };
        };
        if matches!(parent, Role::Skip) {
            return Role::Skip;
        }
        let Some(key) = key else {
            return match (parent, container) {
                (Role::List, Container::Object) => Role::Doc,
                (parent, _) => parent,
            };
        };
        let outermost = matches!(parent, Role::Doc | Role::List);
        match key {
            "error" if outermost || parent == Role::Error => Role::Error,
            "response" if outermost => Role::Doc,
            _ if outermost && self.success => Role::Skip,
            "violations" => Role::Violation,
            "quotaDimensions" | "quota_dimensions" => Role::Dimensions,
            "metadata" => Role::Metadata,
            "headers" if parent == Role::Metadata => Role::Headers,
            "retryDelay" | "retry_delay" => Role::Delay,
            "errors" => Role::Legacy,
            "details" => Role::Detail,
            "links" | "fieldViolations" | "field_violations" => Role::Skip,
            _ if matches!(parent, Role::Doc | Role::List | Role::Error) => Role::Doc,
            _ if parent == Role::Detail => Role::Detail,
            _ => Role::Skip,
        }
    }

    /// A text that may hold a whole reply of its own, as SDKs and gateways nest them.
    fn text(&mut self, text: Cow<'_, str>) {
        let holds_json = memchr::memchr(b'{', text.as_bytes()).is_some();
        if self.level < MOST_LEVELS
            && holds_json
            && let Some(embedded) = speech::embedded(&text)
        {
            let mut inner = Self::new(false, self.level + 1);
            scan::scan(embedded, &mut inner);
            let inner = inner.finish();
            if inner.says_something() {
                let speaks = !inner.messages.is_empty();
                self.facts.merge_inner(inner);
                if speaks {
                    return;
                }
            }
        }
        self.facts.push_message(text);
    }

    fn word(&mut self, value: Raw<'_>) {
        if !value.is_null() && self.facts.words.len() < MOST {
            self.facts.words.push(name(value));
        }
    }

    fn error_field(&mut self, role: Role, key: &str, value: Raw<'_>) {
        match key {
            "message" | "detail" | "msg" | "error_description" => {
                if value.quoted {
                    self.text(value.unescaped());
                }
            }
            "error" if role != Role::Detail && !value.is_null() => {
                self.facts.error = true;
                self.text(value.unescaped());
            }
            "code" | "status" => self.code(key, value),
            "type" | "event_type" | "error_type" => {
                if matches!(value.text, "error" | "response.failed") {
                    self.facts.error = true;
                } else {
                    self.word(value);
                }
            }
            // Mistral's errors say so of themselves.
            "object" if value.text == "error" => self.facts.error = true,
            "reason" => self.reason(value),
            _ => self.wait_field(key, value),
        }
    }

    fn code(&mut self, key: &str, value: Raw<'_>) {
        if let Ok(code) = value.text.parse::<u16>() {
            if (100..600).contains(&code) {
                self.facts.code = self.facts.code.or(Some(code));
            }
        } else if let Some(rpc) = rpc_status::named(value.text) {
            self.facts.rpc = self.facts.rpc.or(Some(rpc));
        } else if key == "code" {
            self.word(value);
        }
    }

    fn reason(&mut self, value: Raw<'_>) {
        if self.facts.reasons.len() < MOST {
            self.facts.reasons.push(name(value));
        }
    }

    fn wait_field(&mut self, key: &str, value: Raw<'_>) {
        let wait = match key {
            "retryDelay"
            | "retry_delay"
            | "quotaResetDelay"
            | "retry_after"
            | "retryAfter"
            | "retry_after_seconds" => delay::seconds_or_compound(value.text),
            "retry_after_ms" => delay::milliseconds(value.text),
            _ => return,
        };
        self.facts.retry_info = self.facts.retry_info.max(wait);
    }

    fn violation_field(&mut self, key: &str, value: Raw<'_>) {
        match key {
            "quotaId" | "quota_id" => self.violation.id = some_name(value),
            "quotaMetric" | "quota_metric" => self.violation.metric = some_name(value),
            "quotaValue" | "quota_value" => self.violation.value = value.text.parse().ok(),
            "description" => self.text(value.unescaped()),
            _ => {}
        }
    }

    fn metadata_field(&mut self, key: &str, value: Raw<'_>) {
        match key {
            "quota_limit" => self.metadata.id = some_name(value),
            "quota_metric" => self.metadata.metric = some_name(value),
            "quota_limit_value" => self.metadata.value = value.text.parse().ok(),
            "quota_unit" => self.metadata.unit = some_name(value),
            "consumer" => self.project(value.text),
            "raw" => self.text(value.unescaped()),
            "limit_source" | "error_type" => self.word(value),
            _ => self.wait_field(key, value),
        }
    }

    /// The consumer is a project, or, in some bodies, the caller's key: which must not be kept.
    fn project(&mut self, consumer: &str) {
        let number = consumer.strip_prefix("projects/").unwrap_or("");
        if !number.is_empty() && number.len() <= 20 && number.bytes().all(|b| b.is_ascii_digit()) {
            self.facts.project = Some(consumer.to_owned());
        }
    }

    fn delay_field(&mut self, key: &str, value: Raw<'_>) {
        let part = match key {
            "seconds" => delay::seconds_or_compound(value.text),
            "nanos" => value.text.parse().ok().map(Duration::from_nanos),
            _ => return,
        };
        // Negative seconds state nothing, whatever the nanoseconds are.
        self.seconds = match (self.seconds, part) {
            (Some(sum), Some(part)) => Some(sum.saturating_add(part)),
            (None, Some(part)) if key == "seconds" => Some(part),
            (sum, _) => sum,
        };
    }
}

impl Sink for Collector {
    fn open(&mut self, key: Option<&str>, container: Container) {
        let parent = self.role();
        let role = self.role_of(parent, key, container);
        if self.depth < MOST_DEPTH {
            self.roles[self.depth] = role;
        }
        self.depth += 1;
        self.facts.field_violations |=
            role == Role::Skip && matches!(key, Some("fieldViolations" | "field_violations"));
        match role {
            Role::Error => self.facts.error = true,
            Role::Doc if self.success && self.event_depth == 0 => {
                self.event_depth = self.depth;
                self.kept = std::mem::take(&mut self.facts);
            }
            Role::Delay => self.seconds = None,
            _ => {}
        }
    }

    fn close(&mut self) {
        let role = self.role();
        match role {
            Some(Role::Violation) if self.violation.names_a_quota() => {
                let violation = std::mem::take(&mut self.violation);
                if self.facts.violations.len() < MOST {
                    self.facts.violations.push(violation);
                }
            }
            Some(Role::Delay) => {
                self.facts.retry_info = self.facts.retry_info.max(self.seconds.take());
            }
            _ => {}
        }
        if self.event_depth == self.depth && self.event_depth > 0 {
            self.event_depth = 0;
            // Of a stream that claims success only the events that are errors count, and the last
            // that says something.
            let says_more = self.facts.error && (self.facts.says_something() || !self.kept.error);
            let kept = std::mem::take(&mut self.kept);
            if !says_more {
                self.facts = kept;
            }
        }
        self.depth = self.depth.saturating_sub(1);
    }

    fn scalar(&mut self, key: Option<&str>, value: Raw<'_>) {
        let (Some(role), Some(key)) = (self.role(), key) else { return };
        match role {
            Role::Doc | Role::Error | Role::List | Role::Detail => {
                self.error_field(role, key, value)
            }
            Role::Violation => self.violation_field(key, value),
            Role::Dimensions | Role::Metadata if key == "key" => self.entry = name(value),
            Role::Dimensions => {
                if key == "model" || key == "value" && self.entry == "model" {
                    self.violation.model = some_name(value);
                }
            }
            Role::Metadata if key == "value" => {
                let entry = std::mem::take(&mut self.entry);
                self.metadata_field(&entry, value);
            }
            Role::Metadata => self.metadata_field(key, value),
            Role::Headers => {
                if self.facts.headers.len() < MOST {
                    self.facts.headers.push((key.to_owned(), name(value)));
                }
            }
            Role::Delay => self.delay_field(key, value),
            Role::Legacy => {
                if key == "reason" {
                    self.reason(value);
                }
            }
            Role::Skip => {}
        }
    }
}

/// A value as it is kept: of bounded length, and never a key, which a hostile body might put
/// anywhere.
fn name(value: Raw<'_>) -> String {
    let text = value.unescaped();
    let end = match text.len() {
        ..=LONGEST_NAME => text.len(),
        _ => text.char_indices().nth(LONGEST_NAME).map_or(text.len(), |(end, _)| end),
    };
    scrub::scrub(&text[..end], &[]).into_owned()
}

fn some_name(value: Raw<'_>) -> Option<String> {
    (!value.is_null()).then(|| name(value))
}
