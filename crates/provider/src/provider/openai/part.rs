//! One part of a turn: what it is, and what of it has no place in a message.

use std::{borrow::Cow, fmt};

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use super::{fields::Fields, shorten, unsupported};
use crate::{
    api::{Content, Part},
    upstream::CallError,
};

/// Where a part stands, for errors.
pub(super) struct Place<'a> {
    content: &'a str,
    part: usize,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.parts[{}]", self.content, self.part)
    }
}

pub(super) fn parts<'a, 'p>(
    content: &'a Content,
    place: &'p str,
) -> impl Iterator<Item = (&'a Part, Place<'p>)> {
    let place = move |part| Place { content: place, part };
    content.parts.iter().enumerate().map(move |(at, part)| (part, place(at)))
}

/// What a part is.
pub(super) enum PartKind<'a> {
    Text(String),
    Media(Media<'a>),
    Call {
        call: CallJson<'a>,
        signature: Option<&'a RawValue>,
        extra: Map<String, Value>,
    },
    Result(ResultJson<'a>),
    /// A thought, or no kind at all.
    Nothing,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Media<'a> {
    #[serde(alias = "mimeType", borrow)]
    pub(super) mime_type: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) data: Cow<'a, str>,
    #[serde(alias = "displayName", default, borrow)]
    pub(super) display_name: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallJson<'a> {
    #[serde(default, borrow)]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    #[serde(default, borrow)]
    pub(super) args: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResultJson<'a> {
    #[serde(default, borrow)]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    #[serde(default, borrow)]
    pub(super) response: Option<&'a RawValue>,
}

impl<'a> PartKind<'a> {
    pub(super) fn read(part: &'a Part, place: &Place<'_>) -> Result<Self, CallError> {
        let fields = Fields::parse(part.json().get())
            .map_err(|error| CallError::Body(shorten(&format!("{place}: {error}"))))?;
        let mut kind = None;
        let mut signature = None;
        let mut others = Vec::new();
        for (name, value) in fields.iter() {
            let read = match name {
                "text" if part.is_thought() => Self::Nothing,
                "text" => Self::Text(field(place, name, value)?),
                "inlineData" | "inline_data" => Self::Media(field(place, name, value)?),
                "functionCall" | "function_call" => {
                    let call = field(place, name, value)?;
                    Self::Call { call, signature: None, extra: Map::new() }
                }
                "functionResponse" | "function_response" => {
                    Self::Result(field(place, name, value)?)
                }
                "thought" => continue,
                "thoughtSignature" | "thought_signature" => {
                    signature = Some(value);
                    continue;
                }
                _ => {
                    others.push((name, value));
                    continue;
                }
            };
            if kind.replace(read).is_some() {
                return Err(unsupported(format!("{place}.{name} beside another kind")));
            }
        }
        match (kind.unwrap_or(Self::Nothing), others.first()) {
            (Self::Call { call, .. }, _) => {
                let mut extra = Map::new();
                for (name, value) in others {
                    extra.insert(name.to_owned(), field(place, name, value)?);
                }
                Ok(Self::Call { call, signature, extra })
            }
            (_, Some((name, _))) => Err(unsupported(format!("{place}.{name}"))),
            (kind, None) => Ok(kind),
        }
    }

    pub(super) fn refused(&self, place: &Place<'_>) -> CallError {
        let name = match self {
            Self::Text(_) | Self::Nothing => "text",
            Self::Media(_) => "inlineData",
            Self::Call { .. } => "functionCall",
            Self::Result(_) => "functionResponse",
        };
        unsupported(format!("{place}.{name} in this turn"))
    }
}

/// Reads one field of a part. What it holds besides the fields that are known here is named.
fn field<'a, T: Deserialize<'a>>(
    place: &Place<'_>,
    name: &str,
    value: &'a RawValue,
) -> Result<T, CallError> {
    serde_json::from_str(value.get()).map_err(|error| {
        let text = error.to_string();
        // The words are those of `deny_unknown_fields`.
        match text.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`')) {
            Some((unknown, _)) => unsupported(format!("{place}.{name}.{unknown}")),
            None => CallError::Body(shorten(&format!("{place}.{name}: {text}"))),
        }
    })
}
