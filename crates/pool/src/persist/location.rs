//! Where the state file is.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use super::{StateLocation, StateNote};

/// The variable that names the state file.
const VARIABLE: &str = "KEYWHEEL_STATE";
/// How the file is called where only its folder is named.
const NAME: &str = "pool.json";
/// What is wrong with what is neither file nor folder.
pub(crate) const NO_FILE: &str = "is a device, pipe or socket; a file is wanted";
/// More links than this in a row are a loop.
const MOST_LINKS: usize = 40;

/// The file that `location` means; `None` when it means no file. Of a folder that is there, it is
/// `pool.json` in it.
///
/// `lookup` reads the environment; an empty variable counts as absent. `state_folder` is the
/// platform's folder for the state of programs.
///
/// # Errors
/// [`StateNote::Unusable`] when there is no such folder, or something that is no file in the file's
/// place.
pub(super) fn resolve(
    location: &StateLocation,
    lookup: impl Fn(&str) -> Option<OsString>,
    state_folder: impl FnOnce() -> Option<PathBuf>,
) -> Result<Option<PathBuf>, StateNote> {
    let path = match location {
        StateLocation::Memory(_) | StateLocation::None => return Ok(None),
        StateLocation::File(path) => path.clone(),
        StateLocation::Default => match lookup(VARIABLE).filter(|value| !value.is_empty()) {
            Some(value) => value.into(),
            None => state_folder().ok_or_else(no_folder)?.join("keywheel").join(NAME),
        },
    };
    // A later change of the working directory must not move the file.
    let path = std::path::absolute(&path).unwrap_or(path);
    let mut path = follow(path);
    if path.is_dir() {
        path = follow(path.join(NAME));
    }
    usable(&path).map_err(|fault| StateNote::Unusable { path: Some(path.clone()), fault })?;
    Ok(Some(path))
}

/// `$XDG_STATE_HOME` or `~/.local/state` on Linux; elsewhere the local data folder.
pub(super) fn platform_state_folder() -> Option<PathBuf> {
    let folders = directories::BaseDirs::new()?;
    Some(folders.state_dir().unwrap_or_else(|| folders.data_local_dir()).to_path_buf())
}

fn no_folder() -> StateNote {
    let fault = format!("there is no home folder; set {VARIABLE} to a file");
    StateNote::Unusable { path: None, fault }
}

/// Follows symbolic links at the end of `path`, also to a file that is not there yet: the link
/// stays, and all who come through different links share one lock. A loop is left as it is; reading
/// it says so.
fn follow(path: PathBuf) -> PathBuf {
    let mut at = path.clone();
    for _ in 0..MOST_LINKS {
        let Ok(target) = fs::read_link(&at) else { return at };
        at = at.parent().unwrap_or(Path::new("")).join(target);
    }
    path
}

/// Only regular files, and links to them, are read and replaced: never a device (`/dev/null`), a
/// pipe, or a folder.
pub(crate) fn usable(path: &Path) -> Result<(), String> {
    if path.file_name().is_none() {
        return Err("names no file".to_owned());
    }
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err("is a folder; a file is wanted".to_owned()),
        Ok(found) if !found.is_file() => Err(NO_FILE.to_owned()),
        // Whatever else is wrong will be said when it is read or written.
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &str) -> Option<OsString> {
        None
    }

    fn home() -> Option<PathBuf> {
        Some(PathBuf::from("/home/someone/.local/state"))
    }

    #[test]
    fn by_default_the_file_is_in_the_platforms_state_folder() {
        let found = resolve(&StateLocation::Default, nothing, home).unwrap().unwrap();
        assert_eq!(found, Path::new("/home/someone/.local/state/keywheel/pool.json"));
    }

    #[test]
    fn the_variable_overrides_the_default_but_not_a_file_named_in_code() {
        let lookup = |name: &str| (name == "KEYWHEEL_STATE").then(|| "/srv/a.json".into());
        let found = resolve(&StateLocation::Default, lookup, home).unwrap().unwrap();
        assert_eq!(found, Path::new("/srv/a.json"));
        let named = StateLocation::File("/srv/b.json".into());
        assert_eq!(resolve(&named, lookup, home).unwrap().unwrap(), Path::new("/srv/b.json"));
    }

    #[test]
    fn an_empty_variable_counts_as_absent() {
        let found = resolve(&StateLocation::Default, |_| Some(OsString::new()), home).unwrap();
        assert_eq!(found, resolve(&StateLocation::Default, nothing, home).unwrap());
    }

    #[test]
    fn without_a_home_folder_it_says_which_variable_helps() {
        let note = resolve(&StateLocation::Default, nothing, || None).unwrap_err();
        assert!(note.to_string().contains("KEYWHEEL_STATE"), "{note}");
    }

    #[test]
    fn a_device_is_never_replaced() {
        for path in ["/dev/null", "/dev/zero"] {
            let location = StateLocation::File(path.into());
            assert!(resolve(&location, nothing, home).is_err(), "{path}");
        }
    }

    #[test]
    fn of_a_folder_it_is_the_file_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let found = |path: &Path| {
            let lookup = |name: &str| (name == "KEYWHEEL_STATE").then(|| path.into());
            resolve(&StateLocation::Default, lookup, home).unwrap().unwrap()
        };
        assert_eq!(found(&folder), folder.join("pool.json"));
        let here = std::env::current_dir().unwrap();
        assert_eq!(found(Path::new(".")), here.join("pool.json"));
        assert_eq!(found(Path::new("/")), Path::new("/pool.json"));
        // A folder of that name in the folder is no file, and stays.
        fs::create_dir(folder.join("pool.json")).unwrap();
        assert!(resolve(&StateLocation::File(folder.clone()), nothing, home).is_err());
        assert!(folder.join("pool.json").is_dir());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_followed_even_before_its_target_exists() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link.json");
        std::os::unix::fs::symlink("elsewhere.json", &link).unwrap();
        let found = resolve(&StateLocation::File(link), nothing, home).unwrap().unwrap();
        assert_eq!(found, folder.path().join("elsewhere.json"));
    }
}
