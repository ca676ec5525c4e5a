//! By which methods a route is asked.

use http::Method;

use super::{Dialect, Route};
use crate::refusal::{Reason, Refusal};

/// Refuses a method that the route has not. What is charged, and what is refused to a budget, is told by `POST`: whatever
/// else began something would pass both.
///
/// # Errors
/// [`Reason::WrongMethod`], with the methods that it has.
pub(super) fn check(route: &Route) -> Result<(), Refusal> {
    let allowed = allowed(route);
    if allowed.split(", ").any(|method| method == route.method.as_str()) {
        return Ok(());
    }
    let told = format!("the route has no method {}; it has {allowed}", shown(&route.method));
    let refusal = Refusal::new(Reason::WrongMethod, told).should_retry(false);
    Err(Refusal { allow: Some(allowed), ..refusal })
}

/// As `Allow` lists them.
fn allowed(route: &Route) -> &'static str {
    match (route.verb.as_deref(), route.dialect) {
        // The one verb that reads.
        (Some("download"), _) => "GET, HEAD",
        // Its later pieces come by either.
        (_, Dialect::Native) if route.is_upload && route.goes_on() => {
            "GET, HEAD, POST, PUT, DELETE"
        }
        (Some(_), _) => "POST",
        (None, Dialect::Native) => "GET, HEAD, POST, PUT, PATCH, DELETE",
        (None, Dialect::OpenAi) => "GET, HEAD, POST, DELETE",
    }
}

/// A method is any word, of any length.
fn shown(method: &Method) -> &str {
    method.as_str().get(..16).unwrap_or(method.as_str())
}
