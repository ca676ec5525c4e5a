//! What can be embedded: one text or many, however they are held.

use std::sync::Arc;

/// One text or several, in their order.
///
/// ```
/// use keywheel::embed::Texts;
///
/// let owned = vec!["one".to_owned(), "two".to_owned()];
/// assert_eq!(Texts::from(&owned).as_slice().len(), 2);
/// assert_eq!(Texts::from("one").as_slice().len(), 1);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts(Vec<Arc<str>>);

impl Texts {
    /// The texts.
    #[must_use]
    pub fn as_slice(&self) -> &[Arc<str>] {
        &self.0
    }
}

impl<T: Into<Arc<str>>> FromIterator<T> for Texts {
    fn from_iter<I: IntoIterator<Item = T>>(texts: I) -> Self {
        Self(texts.into_iter().map(Into::into).collect())
    }
}

impl From<&str> for Texts {
    fn from(text: &str) -> Self {
        Self(vec![text.into()])
    }
}

impl From<String> for Texts {
    fn from(text: String) -> Self {
        Self(vec![text.into()])
    }
}

impl From<&String> for Texts {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl<T: Into<Arc<str>>> From<Vec<T>> for Texts {
    fn from(texts: Vec<T>) -> Self {
        texts.into_iter().collect()
    }
}

impl<T: Into<Arc<str>>, const N: usize> From<[T; N]> for Texts {
    fn from(texts: [T; N]) -> Self {
        texts.into_iter().collect()
    }
}

impl<T: AsRef<str>> From<&[T]> for Texts {
    fn from(texts: &[T]) -> Self {
        texts.iter().map(AsRef::as_ref).collect()
    }
}

impl<T: AsRef<str>> From<&Vec<T>> for Texts {
    fn from(texts: &Vec<T>) -> Self {
        texts.as_slice().into()
    }
}

impl<T: AsRef<str>, const N: usize> From<&[T; N]> for Texts {
    fn from(texts: &[T; N]) -> Self {
        texts.as_slice().into()
    }
}
