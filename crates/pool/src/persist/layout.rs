//! How the file looks: one line per key, one short paragraph per bucket.
//!
//! Indenting everything would make 50,000 buckets twice as large; one line for everything could not
//! be read.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Serializer, ser::Formatter};

use super::{format::StateFile, words::Name};

/// Writes `file` as JSON.
///
/// # Errors
/// Those of `out`.
pub(crate) fn write(file: &StateFile, out: &mut impl Write) -> io::Result<()> {
    write!(out, "{{\n  \"version\": {},\n  \"saved_at\": ", file.version)?;
    value(&file.saved_at, out, 0)?;
    section("writers", file.writers.iter().map(|(name, entry)| (name.text(), entry)), out, 0)?;
    section("keys", &file.keys, out, 0)?;
    section("projects", &file.projects, out, 0)?;
    section("buckets", &file.buckets, out, 1)?;
    for (name, extra) in file.extra.iter() {
        out.write_all(b",\n  ")?;
        value(name, out, 0)?;
        out.write_all(b": ")?;
        value(extra, out, 0)?;
    }
    out.write_all(b"\n}\n")
}

fn section<K: Serialize, V: Serialize>(
    title: &str,
    entries: impl IntoIterator<Item = (K, V)>,
    out: &mut impl Write,
    broken: usize,
) -> io::Result<()> {
    write!(out, ",\n  \"{title}\": {{")?;
    let mut any = false;
    for (name, entry) in entries {
        out.write_all(if any { b",\n    " } else { b"\n    " })?;
        any = true;
        value(&name, out, 0)?;
        out.write_all(b": ")?;
        value(&entry, out, broken)?;
    }
    out.write_all(if any { b"\n  }" } else { b"}" })
}

/// Writes one value; the outermost `broken` levels of objects get a line per field.
fn value(value: &impl Serialize, out: &mut impl Write, broken: usize) -> io::Result<()> {
    let mut serializer = Serializer::with_formatter(out, Lines { broken, depth: 0 });
    value.serialize(&mut serializer).map_err(io::Error::from)
}

struct Lines {
    broken: usize,
    depth: usize,
}

impl Lines {
    fn line<W: ?Sized + Write>(&self, out: &mut W, depth: usize) -> io::Result<()> {
        out.write_all(b"\n    ")?;
        (0..depth).try_for_each(|_| out.write_all(b"  "))
    }
}

impl Formatter for Lines {
    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth += 1;
        out.write_all(b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        if self.depth <= self.broken {
            self.line(out, self.depth - 1)?;
        }
        self.depth -= 1;
        out.write_all(b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if !first {
            out.write_all(b",")?;
        }
        if self.depth <= self.broken {
            return self.line(out, self.depth);
        }
        if first { Ok(()) } else { out.write_all(b" ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }
}
