//! keywheel.toml as a file: nobody else changes it meanwhile, and its owner, permissions and line ends stay, as does
//! the mark that Windows editors put before the first line.

use std::{
    ffi::OsStr,
    fs::{self, File, Metadata},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use keywheel::settings::without_mark;
use tempfile::NamedTempFile;

use crate::{exit::Exit, fault::Fault};

/// A file that is being changed. Until it is dropped, other commands that would change it wait.
#[derive(Debug)]
pub(super) struct Held {
    named: PathBuf,
    /// Where it is: a link stays a link.
    target: PathBuf,
    /// What it begins with, and is no text.
    mark: String,
    text: String,
    /// Its folder, and not the file, in whose place another one is put.
    lock: Option<File>,
}

impl Held {
    /// Reads the file at `path`, as soon as nobody else changes one of its folder. Where folders cannot be locked, it
    /// waits for nobody.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn open(path: &Path) -> Result<Self, Fault> {
        let unread = |error: io::Error| Fault::unread(path, &error);
        let target = fs::canonicalize(path).map_err(unread)?;
        let lock = lock(folder_of(&target));
        let mut mark = fs::read_to_string(&target).map_err(unread)?;
        let text = mark.split_off(mark.len() - without_mark(&mark).len());
        Ok(Self { named: path.to_owned(), target, mark, text, lock })
    }

    /// As it was named.
    pub(super) fn path(&self) -> &Path {
        &self.named
    }

    /// What it holds.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Puts `text` in its place in one step.
    ///
    /// # Errors
    /// It cannot be written, or would be somebody else's then; it is as it was.
    pub(super) fn replace(self, text: String) -> Result<(), Fault> {
        let path = self.named.display();
        let unwritten = |error: io::Error| {
            Fault::new(Exit::Fault, format!("{path} cannot be written: {error}"))
        };
        let folder = folder_of(&self.target);
        // Who holds the folder is the only one that writes such a file now.
        if self.lock.is_some() {
            remove_left_over(folder);
        }
        let about = fs::metadata(&self.target).map_err(unwritten)?;
        let mut file = aside(folder).map_err(unwritten)?;
        let text = self.mark.clone() + &with_line_ends_of(&self.text, text);
        file.write_all(text.as_bytes()).map_err(unwritten)?;
        // Before the permissions, some of which go with the owner.
        keep_owner(file.as_file(), &about).map_err(|error| {
            let what = format!("{path} is as it was: it could not stay its owner's: {error}");
            Fault::new(Exit::Fault, what).hint("change it as its owner, or as root")
        })?;
        file.as_file().set_permissions(about.permissions()).map_err(unwritten)?;
        file.as_file().sync_all().map_err(unwritten)?;
        file.persist(&self.target).map_err(|error| unwritten(error.error))?;
        Ok(())
    }
}

fn folder_of(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new("/"))
}

/// How the names begin and end of what is written aside. Nobody else calls a file so.
const ASIDE: (&str, &str) = (".keywheel.toml.", ".edit");

/// A file that is written aside, and put into place when it is whole.
fn aside(folder: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(ASIDE.0).suffix(ASIDE.1).tempfile_in(folder)
}

/// Removes what a command left behind that was killed while it wrote: a copy of the configuration, whole or not, and of
/// the keys in it. What cannot be removed is in nobody's way.
fn remove_left_over(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && is_aside(&entry.file_name()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn is_aside(name: &OsStr) -> bool {
    let name = name.to_str().and_then(|name| name.strip_prefix(ASIDE.0)?.strip_suffix(ASIDE.1));
    name.is_some_and(|random| {
        random.len() == 6 && random.chars().all(|c| c.is_ascii_alphanumeric())
    })
}

/// `None` where folders cannot be opened, as on Windows, or not be locked, as on some network drives.
fn lock(folder: &Path) -> Option<File> {
    let folder = File::open(folder).ok()?;
    folder.lock().ok()?;
    Some(folder)
}

/// `new`, its lines ended as all those of `old` are. Those of a mixed text stay as they come.
fn with_line_ends_of(old: &str, new: String) -> String {
    let lines = old.matches('\n').count();
    if lines == 0 || old.matches("\r\n").count() < lines {
        return new;
    }
    new.replace("\r\n", "\n").replace('\n', "\r\n")
}

/// Gives `file` to the owner and the group that `about` tells of: the gateway may be another user than who changes its
/// configuration.
#[cfg(unix)]
fn keep_owner(file: &File, about: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, fchown};
    let own = file.metadata()?;
    let owner = Some(about.uid()).filter(|&owner| owner != own.uid());
    let group = Some(about.gid()).filter(|&group| group != own.gid());
    if owner.is_none() && group.is_none() {
        return Ok(());
    }
    fchown(file, owner, group)
}

/// Elsewhere a new file has the permissions of its folder.
#[cfg(not(unix))]
fn keep_owner(_: &File, _: &Metadata) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_as_all_of_them_did() {
        for (old, new, ended) in [
            ("a\r\nb\r\n", "a\nc\nb\n", "a\r\nc\r\nb\r\n"),
            ("a\r\nb", "a\r\nb\n", "a\r\nb\r\n"),
            ("a\nb\n", "a\n", "a\n"),
            ("a\r\nb\n", "a\nb\n", "a\nb\n"),
            ("", "a\n", "a\n"),
        ] {
            assert_eq!(with_line_ends_of(old, new.to_owned()), ended, "{old:?}");
        }
    }

    /// Other files may be called nearly so, and be somebody's only copy.
    #[test]
    fn what_is_removed_is_ours() {
        let folder = tempfile::tempdir().unwrap();
        let (_, left) = aside(folder.path()).unwrap().keep().unwrap();
        let others = [
            "keywheel.toml.edit",
            ".keywheel.toml.backup",
            ".keywheel.toml.old.edit",
            ".keywheel.toml.edit",
            ".keywheel.toml.AbCd-1.edit",
            ".keywheel.toml.AbCd12.edit~",
        ];
        others.iter().for_each(|name| fs::write(folder.path().join(name), "").unwrap());
        fs::create_dir(folder.path().join(".keywheel.toml.AbCd12.edit")).unwrap();
        remove_left_over(folder.path());
        assert!(!left.exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), others.len() + 1);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_is_its_owners_or_it_is_told() {
        use std::os::unix::fs::{MetadataExt as _, chown};

        let ids = |about: &Metadata| (about.uid(), about.gid());
        let (old, new) = (NamedTempFile::new().unwrap(), tempfile::tempfile().unwrap());
        let own = old.as_file().metadata().unwrap();
        keep_owner(&new, &own).unwrap();
        assert_eq!(ids(&new.metadata().unwrap()), ids(&own));

        // Only root can give files away; whoever else runs this cannot make one that is root's.
        if rustix::process::geteuid().is_root() {
            chown(old.path(), Some(65_534), Some(65_534)).unwrap();
            keep_owner(&new, &old.as_file().metadata().unwrap()).unwrap();
            assert_eq!(ids(&new.metadata().unwrap()), (65_534, 65_534));
        } else {
            keep_owner(&new, &fs::metadata("/").unwrap()).unwrap_err();
            assert_eq!(ids(&new.metadata().unwrap()), ids(&own));
        }
    }
}
