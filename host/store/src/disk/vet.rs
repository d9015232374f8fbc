//! Which file systems a log may live on.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{fstat, fstatfs, major, minor};

use crate::StoreError;

/// Kinds on which a lock may be held twice, or a flush may end before the bytes are safe, by the number that `statfs`
/// gives.
const NETWORK: &[(u32, &str)] = &[
    (0x0000_6969, "NFS"),
    (0x0000_517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB2"),
    (0x0102_1997, "9p"),
    (0x00C3_6400, "Ceph"),
    (0x0BD0_0BD0, "Lustre"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0000_564C, "NCP"),
    (0x7461_636F, "OCFS2"),
    (0x0116_1970, "GFS2"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x2003_0528, "OrangeFS"),
    (0x786F_4256, "a VirtualBox shared folder"),
    (0xBACB_ACBC, "a VMware shared folder"),
    (0x0000_0187, "an automounter's directory"),
];
const FUSE: u32 = 0x6573_5546;
/// FUSE file systems that sit on a local disk and pass flushes on.
const LOCAL_FUSE: &[&str] = &["fuseblk", "fuse.fuse-overlayfs"];

/// Refuses a directory on a network file system.
pub(crate) fn refuse_network(dir: &impl AsFd, path: &Path) -> Result<(), StoreError> {
    let number =
        fstatfs(dir).map_err(|error| StoreError::io(path, "examine the file system of", &error.into()))?.f_type;
    // The type's width and sign differ between targets; the numbers have 32 bits.
    let number = (number as u64 & 0xFFFF_FFFF) as u32;
    let mounted_as = if number == FUSE { mounted_as(dir) } else { None };
    match network_kind(number, mounted_as.as_deref()) {
        Some(kind) => Err(StoreError::NetworkFileSystem { dir: path.to_owned(), kind }),
        None => Ok(()),
    }
}

fn network_kind(number: u32, mounted_as: Option<&str>) -> Option<String> {
    if number == FUSE {
        return match mounted_as {
            Some(name) if LOCAL_FUSE.contains(&name) => None,
            Some(name) => Some(format!("FUSE ({name})")),
            None => Some("FUSE".to_owned()),
        };
    }
    NETWORK.iter().find(|(known, _)| *known == number).map(|(_, name)| (*name).to_owned())
}

/// The name of the file system's kind as mounted.
fn mounted_as(dir: &impl AsFd) -> Option<String> {
    let device = fstat(dir).ok()?.st_dev;
    let device = format!("{}:{}", major(device), minor(device));
    kind_in_mountinfo(&std::fs::read_to_string("/proc/self/mountinfo").ok()?, &device)
}

fn kind_in_mountinfo(mountinfo: &str, device: &str) -> Option<String> {
    let line = mountinfo.lines().find(|line| line.split(' ').nth(2) == Some(device))?;
    let kind = line.split_once(" - ")?.1.split(' ').next()?;
    Some(kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_named_and_local_ones_pass() {
        assert_eq!(network_kind(0x6969, None).as_deref(), Some("NFS"));
        assert_eq!(network_kind(0xFF53_4D42, None).as_deref(), Some("CIFS"));
        assert_eq!(network_kind(FUSE, Some("fuse.sshfs")).as_deref(), Some("FUSE (fuse.sshfs)"));
        assert_eq!(network_kind(FUSE, None).as_deref(), Some("FUSE"));
        assert_eq!(network_kind(FUSE, Some("fuseblk")), None);
        for local in [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x794C_7630, 0x2FC1_2FC1] {
            assert_eq!(network_kind(local, None), None, "{local:#x}");
        }
    }

    #[test]
    fn the_kind_of_a_mount_is_found_by_its_device() {
        let mountinfo = "29 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                         41 29 0:52 / /mnt/far rw,nosuid - fuse.sshfs host:/ rw,user_id=0\n";
        assert_eq!(kind_in_mountinfo(mountinfo, "0:52").as_deref(), Some("fuse.sshfs"));
        assert_eq!(kind_in_mountinfo(mountinfo, "254:0").as_deref(), Some("ext4"));
        assert_eq!(kind_in_mountinfo(mountinfo, "0:53"), None);
    }
}
