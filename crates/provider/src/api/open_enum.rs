//! Enumerations that the API may add names to.

/// Declares an enum of the API's names with a variant for names it does not know, which come back
/// exactly as they came. A variant's documentation stands above it.
macro_rules! open_enum {
    ($(#[$doc:meta])* $enum:ident { $($(#[$variant_doc:meta])* $variant:ident = $name:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(from = "String", into = "String")]
        #[non_exhaustive]
        pub enum $enum {
            $($(#[$variant_doc])* $variant,)+
            /// A name that this version does not know.
            Other(Box<str>),
        }

        impl $enum {
            /// The name the API uses.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $name,)+
                    Self::Other(name) => name,
                }
            }
        }

        impl From<&str> for $enum {
            fn from(name: &str) -> Self {
                match name {
                    $($name => Self::$variant,)+
                    _ => Self::Other(name.into()),
                }
            }
        }

        impl From<String> for $enum {
            fn from(name: String) -> Self {
                Self::from(name.as_str())
            }
        }

        impl From<$enum> for String {
            fn from(name: $enum) -> Self {
                name.as_str().to_owned()
            }
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

pub(super) use open_enum;
