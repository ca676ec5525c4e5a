//! On what kind of file system a file lies, and whether a restart wipes it.

use std::{fs, path::Path};

use crate::StorageKind;

/// On what the file at `path` lies, or would lie. The file itself need not exist; its folder must.
///
/// A disk is no promise: a volume that is thrown away with its container looks like any other. It
/// can be told on Linux alone.
pub(super) fn kind(path: &Path) -> StorageKind {
    let name = || {
        let folder = path.parent()?.canonicalize().ok()?;
        name_in(&fs::read_to_string("/proc/self/mountinfo").ok()?, &folder)
    };
    name().map_or(StorageKind::Unknown, named)
}

fn named(name: String) -> StorageKind {
    match name.as_str() {
        "overlay" | "overlayfs" | "aufs" | "fuse-overlayfs" | "fuse.fuse-overlayfs" => {
            StorageKind::Overlay
        }
        "tmpfs" | "ramfs" | "rootfs" | "devtmpfs" => StorageKind::Tmpfs,
        "nfs" | "nfs4" | "cifs" | "smb3" | "smbfs" | "ceph" | "afs" | "lustre" | "glusterfs"
        | "fuse.glusterfs" | "fuse.sshfs" | "fuse.s3fs" | "fuse.gcsfuse" => {
            StorageKind::Network(name)
        }
        _ => StorageKind::Disk(name),
    }
}

/// Reads the lines of `mountinfo` (proc(5)): of the mount points that contain `folder` the longest
/// counts, and of several mounts at one place the last, which lies on top.
fn name_in(mounts: &str, folder: &Path) -> Option<String> {
    let mut found: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        // 36 35 98:0 /root /mount/point rw,noatime master:1 - ext4 /dev/root rw
        let Some((fields, after)) = line.split_once(" - ") else { continue };
        let (Some(point), Some(kind)) = (fields.split(' ').nth(4), after.split(' ').next()) else {
            continue;
        };
        let point = unescaped(point);
        let depth = Path::new(&point).components().count();
        let on_top = found.is_none_or(|(best, _)| depth >= best);
        if on_top && folder.starts_with(&point) {
            found = Some((depth, kind));
        }
    }
    found.map(|(_, kind)| kind.to_owned())
}

/// A mount point with its white space and backslashes, which the kernel writes as octal.
fn unescaped(point: &str) -> String {
    let replaced = [(r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", r"\")];
    replaced.iter().fold(point.to_owned(), |text, (code, plain)| text.replace(code, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTAINER: &str = r"
707 571 0:54 / / rw,relatime master:299 - overlay overlay rw,lowerdir=/var/lib/docker/overlay2
708 707 0:57 / /proc rw,nosuid - proc proc rw
713 707 254:1 /var/lib/docker/volumes/d/_data /data rw,relatime master:1 - ext4 /dev/vda1 rw
714 713 0:60 / /data/scratch rw shared:7 master:1 - tmpfs tmpfs rw,size=65536k
715 707 254:1 /x /my\040files rw - xfs /dev/vda2 rw
716 707 0:61 / /twice rw - ext4 /dev/vda3 rw
717 707 0:62 / /twice rw - tmpfs tmpfs rw
a line that nobody expected
";

    fn at(folder: &str) -> String {
        name_in(CONTAINER, Path::new(folder)).unwrap()
    }

    #[test]
    fn the_innermost_mount_counts_and_the_last_of_those_at_one_place() {
        assert_eq!(at("/home/app/.local/state/keywheel"), "overlay");
        assert_eq!(at("/data"), "ext4");
        assert_eq!(at("/data/keywheel"), "ext4");
        assert_eq!(at("/data/scratch/deep"), "tmpfs");
        // The name only begins like a mount point.
        assert_eq!(at("/data-of-another"), "overlay");
        assert_eq!(at("/my files/here"), "xfs");
        assert_eq!(at("/twice"), "tmpfs");
    }

    #[test]
    fn what_a_restart_wipes_is_told_from_a_disk() {
        for gone in ["overlay", "tmpfs", "ramfs", "aufs", "rootfs"] {
            assert!(named(gone.to_owned()).vanishes(), "{gone}");
        }
        for stays in ["ext4", "xfs", "btrfs", "zfs", "virtiofs", "9p", "fuseblk"] {
            assert_eq!(named(stays.to_owned()), StorageKind::Disk(stays.to_owned()));
        }
        for far in ["nfs4", "cifs", "fuse.gcsfuse"] {
            assert_eq!(named(far.to_owned()), StorageKind::Network(far.to_owned()));
            assert!(!named(far.to_owned()).vanishes());
        }
    }

    #[test]
    fn without_a_list_of_mounts_nothing_is_claimed() {
        assert_eq!(name_in("", Path::new("/data")), None);
        assert_eq!(kind(Path::new("/no/such/folder/ledger.db")), StorageKind::Unknown);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_says_what_is_under_its_shared_memory() {
        if Path::new("/dev/shm").is_dir() {
            assert_eq!(kind(Path::new("/dev/shm/ledger.db")), StorageKind::Tmpfs);
        }
    }
}
