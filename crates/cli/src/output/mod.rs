//! What goes to standard output: tables for people, JSON for programs.

mod bar;
mod paint;
mod table;

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

use crate::fault::Fault;

pub(crate) use self::{bar::bar, paint::Paint, table::Table};

/// The version of the JSON that reading commands print. Fields are added without a new number; one that is renamed,
/// removed or changes its meaning raises it.
pub(crate) const SCHEMA: u32 = 1;

/// What every JSON document begins with.
#[derive(Serialize)]
struct Document<'a, T> {
    schema: u32,
    command: &'a str,
    #[serde(flatten)]
    body: &'a T,
}

/// Prints `body` as the document of `command`.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn json(command: &str, body: &impl Serialize) -> Result<(), Fault> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &Document { schema: SCHEMA, command, body })?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// The same in one line, for those that follow.
///
/// # Errors
/// As [`json`].
pub(crate) fn json_line(command: &str, body: &impl Serialize) -> Result<(), Fault> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &Document { schema: SCHEMA, command, body })?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Prints one line or several.
///
/// # Errors
/// Standard output cannot be written; `println!` would panic.
pub(crate) fn print(text: impl std::fmt::Display) -> Result<(), Fault> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Prints a piece of text as it is, and at once.
///
/// # Errors
/// As [`print`].
pub(crate) fn write(text: &str) -> Result<(), Fault> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Says something to whoever sits there, on standard error.
pub(crate) fn say(text: impl std::fmt::Display) {
    // Nobody listens: no reason to end what is being done.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// True when standard output is somebody's terminal.
pub(crate) fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// True when standard error is somebody's terminal: only then does a progress bar move.
pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// True when talk may be coloured.
pub(crate) fn stderr_is_colored() -> bool {
    stderr_is_terminal() && !no_color()
}

/// True when data may be coloured.
pub(crate) fn stdout_is_colored() -> bool {
    stdout_is_terminal() && !no_color()
}

/// Set to anything but nothing (<https://no-color.org>).
fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}
