//! Where the ledger's file is.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use crate::{ErrorKind, LedgerError};

/// The variables that name the file; the first that is set wins. The second is what many already
/// set.
const VARIABLES: [&str; 2] = ["KEYWHEEL_LEDGER", "LEDGER_DB"];
/// How the file is called where only its folder is named.
const NAME: &str = "ledger.db";
/// More links than this in a row are a loop.
const MOST_LINKS: usize = 40;

/// The file to use: `named` in code, else what a variable names, else `keywheel/ledger.db` in the
/// platform's folder for the state of programs. Of a folder that is there, it is `ledger.db` in it.
///
/// `lookup` reads the environment; an empty variable counts as absent.
///
/// # Errors
/// [`ErrorKind::Invalid`] when there is no such folder, or something that is no file in the file's
/// place.
pub(super) fn resolve(
    named: Option<&Path>,
    lookup: impl Fn(&str) -> Option<OsString>,
    state_folder: impl FnOnce() -> Option<PathBuf>,
) -> Result<PathBuf, LedgerError> {
    let variable = || VARIABLES.into_iter().filter_map(&lookup).find(|value| !value.is_empty());
    let path = match named.map(Path::to_path_buf).or_else(|| variable().map(PathBuf::from)) {
        Some(path) => path,
        None => state_folder().ok_or_else(no_folder)?.join("keywheel").join(NAME),
    };
    // A later change of the working directory must not move the file.
    let path = std::path::absolute(&path).unwrap_or(path);
    let mut path = follow(path);
    if path.is_dir() {
        path = follow(path.join(NAME));
    }
    usable(&path).map(|()| path)
}

/// `$XDG_STATE_HOME` or `~/.local/state` on Linux; elsewhere the local data folder.
pub(super) fn platform_state_folder() -> Option<PathBuf> {
    let folders = directories::BaseDirs::new()?;
    Some(folders.state_dir().unwrap_or_else(|| folders.data_local_dir()).to_path_buf())
}

fn no_folder() -> LedgerError {
    let what = format!("there is no home folder; set {} to a file", VARIABLES[0]);
    LedgerError::new(ErrorKind::Invalid, what)
}

/// Follows symbolic links at the end of `path`, also to a file that is not there yet: SQLite names
/// its `-wal` and we our lock files after it, and all who come through different links must share
/// them. A loop is left as it is; opening it says so.
fn follow(path: PathBuf) -> PathBuf {
    let mut at = path.clone();
    for _ in 0..MOST_LINKS {
        let Ok(target) = fs::read_link(&at) else { return at };
        at = at.parent().unwrap_or(Path::new("")).join(target);
    }
    path
}

/// Never a device (`/dev/null` would take every reservation and keep none), a pipe, or a folder.
fn usable(path: &Path) -> Result<(), LedgerError> {
    let fault = match fs::metadata(path) {
        _ if path.file_name().is_none() => "names no file",
        Ok(found) if found.is_dir() => "is a folder; a file is wanted",
        Ok(found) if !found.is_file() => "is a device, pipe or socket; a file is wanted",
        Ok(found) if has_other_names(&found) => {
            "has another name as well (a hard link), and those who come by different names would \
             not see what the others write; remove one of them"
        }
        // Whatever else is wrong will be said when it is opened.
        Ok(_) | Err(_) => return Ok(()),
    };
    Err(LedgerError::new(ErrorKind::Invalid, format!("{} {fault}", path.display())))
}

/// SQLite names its log after the name by which a file was opened: with two names it has two logs.
#[cfg(unix)]
fn has_other_names(found: &fs::Metadata) -> bool {
    std::os::unix::fs::MetadataExt::nlink(found) > 1
}

/// Elsewhere the standard library does not tell.
#[cfg(not(unix))]
fn has_other_names(_: &fs::Metadata) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> Option<PathBuf> {
        Some(PathBuf::from("/home/someone/.local/state"))
    }

    fn nothing(_: &str) -> Option<OsString> {
        None
    }

    #[test]
    fn by_default_the_file_is_in_the_platforms_state_folder() {
        let found = resolve(None, nothing, home).unwrap();
        assert_eq!(found, Path::new("/home/someone/.local/state/keywheel/ledger.db"));
    }

    #[test]
    fn the_variables_override_the_default_but_not_a_file_named_in_code() {
        let both = |name: &str| match name {
            "KEYWHEEL_LEDGER" => Some("/srv/own.db".into()),
            "LEDGER_DB" => Some("/srv/other.db".into()),
            _ => None,
        };
        assert_eq!(resolve(None, both, home).unwrap(), Path::new("/srv/own.db"));
        let second = |name: &str| match name {
            "KEYWHEEL_LEDGER" => Some(OsString::new()),
            "LEDGER_DB" => Some("/srv/other.db".into()),
            _ => None,
        };
        assert_eq!(resolve(None, second, home).unwrap(), Path::new("/srv/other.db"));
        let named = Path::new("/srv/named.db");
        assert_eq!(resolve(Some(named), both, home).unwrap(), named);
    }

    #[test]
    fn without_a_home_folder_it_says_which_variable_helps() {
        let error = resolve(None, nothing, || None).unwrap_err();
        assert!(error.to_string().contains("KEYWHEEL_LEDGER"), "{error}");
    }

    #[test]
    fn a_device_is_never_a_ledger() {
        let error = resolve(Some(Path::new("/dev/null")), nothing, home).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }

    #[test]
    fn of_a_folder_it_is_the_file_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        assert_eq!(resolve(Some(&folder), nothing, home).unwrap(), folder.join("ledger.db"));
        // A folder of that name in the folder is no file.
        fs::create_dir(folder.join("ledger.db")).unwrap();
        assert!(resolve(Some(&folder), nothing, home).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_followed_even_before_its_target_exists() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link.db");
        std::os::unix::fs::symlink("elsewhere.db", &link).unwrap();
        let found = resolve(Some(&link), nothing, home).unwrap();
        assert_eq!(found, folder.path().join("elsewhere.db"));
    }

    /// Two processes that came by two names gave out 1,800 of 1,000.
    #[cfg(unix)]
    #[test]
    fn a_file_with_two_names_is_refused_under_either() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["one.db", "other.db"].map(|name| folder.path().join(name));
        fs::write(&names[0], "").unwrap();
        assert!(resolve(Some(&names[0]), nothing, home).is_ok());
        fs::hard_link(&names[0], &names[1]).unwrap();
        for name in &names {
            let error = resolve(Some(name), nothing, home).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains("hard link"), "{error}");
        }
    }
}
