//! What a called function returns.

use std::collections::BTreeMap;

use keywheel_provider::api::Json;
use serde_json::{Value, json};

/// The result of a function that a model had called: any JSON.
///
/// The API wants an object, so anything else goes as `{"result": …}`.
///
/// ```
/// use keywheel::chat::FunctionResult;
/// use serde_json::json;
///
/// let found = FunctionResult::from(json!({"temperature": 7}));
/// let failed = FunctionResult::error("no such city");
/// # let _ = (found, failed);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionResult(Json);

impl FunctionResult {
    /// Tells the model that the function failed, and why.
    #[must_use]
    pub fn error(why: impl Into<String>) -> Self {
        Self(json!({ "error": why.into() }).into())
    }

    pub(super) fn into_json(self) -> Json {
        if self.0.get().trim_start().starts_with('{') {
            return self.0;
        }
        let object = BTreeMap::from([("result", &self.0)]);
        Json::new(&object).expect("JSON always has a JSON form")
    }
}

impl From<Json> for FunctionResult {
    fn from(json: Json) -> Self {
        Self(json)
    }
}

impl From<Value> for FunctionResult {
    fn from(value: Value) -> Self {
        Self(value.into())
    }
}

impl From<&str> for FunctionResult {
    fn from(text: &str) -> Self {
        Self(Value::from(text).into())
    }
}

impl From<String> for FunctionResult {
    fn from(text: String) -> Self {
        Self(Value::from(text).into())
    }
}

impl<T: Into<Self>, E: std::fmt::Display> From<Result<T, E>> for FunctionResult {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(value) => value.into(),
            Err(error) => Self::error(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_that_is_no_object_is_put_into_one() {
        let sent = |result: FunctionResult| result.into_json().get().to_owned();
        assert_eq!(sent(json!({"a": 1}).into()), r#"{"a":1}"#);
        assert_eq!(sent(json!([1, 2]).into()), r#"{"result":[1,2]}"#);
        let odd = "[1e400, 1.0, 123456789012345678901234567890]";
        let told = sent(serde_json::from_str::<Json>(odd).unwrap().into());
        assert_eq!(told, format!(r#"{{"result":{odd}}}"#), "as it is, whatever the number");
        assert_eq!(sent("rain".into()), r#"{"result":"rain"}"#);
        assert_eq!(sent(Err::<&str, _>("no such city").into()), r#"{"error":"no such city"}"#);
    }
}
