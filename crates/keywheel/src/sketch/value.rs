//! What a value means by its kind, and what becomes of it.

use super::{Shape, feed::Feed, place::Place};

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Object,
    Array,
    String,
    Atom,
}

/// What becomes of a string or atom.
#[derive(Debug)]
pub(super) enum Sink {
    /// It counts as it came.
    Raw,
    /// It means this.
    Word(Place),
    /// The same of one that does not count as it came.
    Length(Place),
    Text(Place, Feed),
}

impl Kind {
    /// What a value of this kind means at `place`, and whether it is weighed by itself.
    ///
    /// What has another form than the API knows is weighed as it came, if it stands where something is read: `within`
    /// what is weighed.
    pub(super) const fn at(self, place: Place, shape: Shape, within: bool) -> (Place, bool) {
        match (self, place) {
            (Self::Object, Place::Root) => (Place::Root, matches!(shape, Shape::Other)),
            (Self::Array | Self::String | Self::Atom, Place::Root | Place::Inner)
            | (_, Place::Counted) => (Place::Within, true),

            (Self::Object, Place::Turns | Place::Turn) => (Place::Turn, false),
            (Self::Object, Place::Messages | Place::Message) => (Place::Message, false),
            (Self::Object, Place::Batch | Place::BatchItem) => (Place::BatchItem, false),
            (Self::Object, Place::Parts | Place::Part) => (Place::Part, true),
            (Self::Object, Place::Tools | Place::Tool) => (Place::Tool, true),
            (Self::Object, Place::Inputs | Place::Input) => (Place::Within, true),
            (
                Self::Object,
                Place::Inner
                | Place::Config
                | Place::Extra
                | Place::Blob
                | Place::File
                | Place::DataUrl
                | Place::Within
                | Place::Ignored,
            ) => (place, false),

            (
                Self::Array,
                Place::Turns
                | Place::Messages
                | Place::Batch
                | Place::Parts
                | Place::Tools
                | Place::Inputs
                | Place::Input,
            ) => (place, false),
            (
                Self::Array,
                Place::Turn | Place::Message | Place::BatchItem | Place::Part | Place::Tool,
            ) => (Place::Within, true),

            (
                Self::String,
                Place::Turns
                | Place::Turn
                | Place::Messages
                | Place::Message
                | Place::Batch
                | Place::BatchItem
                | Place::Tools,
            )
            | (Self::String | Self::Atom, Place::Part | Place::Tool) => (Place::Within, true),
            (Self::String | Self::Atom, _) => (place, false),
            (Self::Object | Self::Array, _) if within => (Place::Within, false),
            (Self::Object | Self::Array, _) => (Place::Ignored, false),
        }
    }

    /// What becomes of a string or atom that means `place`.
    pub(super) fn sink(self, place: Place) -> Sink {
        match (self, place) {
            (Self::String, Place::Text | Place::Parts | Place::Inputs | Place::Input) => {
                Sink::Text(place, Feed::default())
            }
            (Self::String, Place::Data | Place::DataUrl) => Sink::Length(place),
            (
                Self::String,
                Place::Mime
                | Place::Uri
                | Place::ToolType
                | Place::Model
                | Place::Agent
                | Place::Cached
                | Place::Before,
            )
            | (
                Self::Atom,
                Place::Stream
                | Place::Background
                | Place::Agent
                | Place::Config
                | Place::Inputs
                | Place::Input
                | Place::InputTokens,
            )
            | (_, Place::MaxOutput | Place::Candidates) => Sink::Word(place),
            _ => Sink::Raw,
        }
    }
}
