//! What this kernel and this process can do about controllers from BPF.

use super::Missing;
use std::fs;
use std::path::Path;

/// Where bpffs is mounted on every distribution.
pub const BPFFS: &str = "/sys/fs/bpf";
/// The kernel's description of its own types.
const BTF: &str = "/sys/kernel/btf/vmlinux";
/// BPF_FS_MAGIC of linux/magic.h.
const BPFFS_MAGIC: i64 = 0xcafe_4a11;
/// Bits of linux/capability.h. The administrator's stands for the two of BPF.
const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The kernel's release, as `uname -r` prints it.
    pub release: String,
    /// Whether this program has controllers to offer.
    pub built: bool,
    /// What the kernel's types say; nothing if it does not describe them or this program cannot read them.
    pub kernel: Option<Abilities>,
    /// Whether the kernel describes its types at all.
    pub btf: bool,
    /// Whether the process is outside of user namespaces.
    pub initial_user_namespace: bool,
    /// Whether it has CAP_BPF or CAP_SYS_ADMIN.
    pub cap_bpf: bool,
    /// Whether it has CAP_PERFMON or CAP_SYS_ADMIN.
    pub cap_perfmon: bool,
    /// Whether it has CAP_NET_ADMIN: routes need it, registering does not.
    pub cap_net_admin: bool,
    /// Whether a bpffs is mounted at [`BPFFS`]: installing needs it, the lab does not.
    pub bpffs: bool,
}

/// What the kernel can do, by its own types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Whether controllers can be held by links, which pins keep and updates replace (Linux 6.4); without, they stay
    /// registered until they are deleted.
    pub links: bool,
    /// Arguments of `cong_control`: 2 before Linux 6.10, then 4. A paced controller must know.
    pub cong_control_arguments: u32,
}

impl Probe {
    /// Looks.
    pub fn take() -> Probe {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let effective = effective(&status);
        let has = |bit: u32| effective & (1 << bit) != 0;
        Probe {
            release: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            built: cfg!(feature = "bpf"),
            kernel: super::load::abilities(),
            btf: Path::new(BTF).exists(),
            initial_user_namespace: fs::read_to_string("/proc/self/uid_map")
                .is_ok_and(|map| is_initial(&map)),
            cap_bpf: has(CAP_BPF) || has(CAP_SYS_ADMIN),
            cap_perfmon: has(CAP_PERFMON) || has(CAP_SYS_ADMIN),
            cap_net_admin: has(CAP_NET_ADMIN),
            bpffs: bpffs_mounted(),
        }
    }

    /// The first thing without which no controller can be registered.
    pub fn missing(&self) -> Option<Missing> {
        let conditions = [
            (self.built, Missing::Build),
            (self.btf, Missing::Btf),
            (self.kernel.is_some(), Missing::StructOps),
            (self.initial_user_namespace, Missing::UserNamespace),
            (self.cap_bpf, Missing::Capability("CAP_BPF")),
            (self.cap_perfmon, Missing::Capability("CAP_PERFMON")),
        ];
        conditions.into_iter().find(|(holds, _)| !holds).map(|(_, missing)| missing)
    }

    /// The first thing without which none can be installed for good.
    pub fn missing_to_install(&self) -> Option<Missing> {
        self.missing().or((!self.bpffs).then_some(Missing::Bpffs))
    }
}

/// Whether a bpffs is mounted at [`BPFFS`].
pub fn bpffs_mounted() -> bool {
    nix::sys::statfs::statfs(BPFFS)
        .is_ok_and(|found| i128::from(found.filesystem_type().0) & 0xffff_ffff == i128::from(BPFFS_MAGIC))
}

/// The effective capabilities in a /proc/PID/status, one bit each.
fn effective(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

/// Whether a /proc/PID/uid_map is that of the initial user namespace: every user is itself.
fn is_initial(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Probe {
        Probe {
            release: "6.18.0".to_owned(),
            built: true,
            kernel: Some(Abilities { links: true, cong_control_arguments: 4 }),
            btf: true,
            initial_user_namespace: true,
            cap_bpf: true,
            cap_perfmon: true,
            cap_net_admin: true,
            bpffs: true,
        }
    }

    #[test]
    fn the_first_missing_thing_is_named_with_its_remedy() {
        assert_eq!(good().missing_to_install(), None);
        let without_bpffs = Probe { bpffs: false, ..good() };
        assert_eq!(without_bpffs.missing(), None, "the lab pins nothing");
        assert_eq!(without_bpffs.missing_to_install(), Some(Missing::Bpffs));
        let old = Probe { btf: false, kernel: None, ..good() };
        assert_eq!(old.missing(), Some(Missing::Btf));
        assert_eq!(Probe { kernel: None, ..good() }.missing(), Some(Missing::StructOps));
        let user = Probe { cap_bpf: false, cap_perfmon: false, ..good() };
        assert_eq!(user.missing(), Some(Missing::Capability("CAP_BPF")));
        for (missing, remedy) in [
            (Missing::Build, "make build"),
            (Missing::Btf, "apt-get install"),
            (Missing::Bpffs, "mount -t bpf bpf /sys/fs/bpf"),
            (Missing::Capability("CAP_BPF"), "sudo"),
        ] {
            let text = missing.to_string();
            assert!(text.contains(remedy) && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn capabilities_and_user_namespaces_are_read_as_the_kernel_writes_them() {
        assert_eq!(
            effective("Name:\tx\nCapInh:\t0000000000000000\nCapEff:\t000000c000001000\n"),
            0xc0_0000_1000
        );
        assert_eq!(effective("no such line"), 0);
        assert!(is_initial("         0          0 4294967295\n"));
        assert!(!is_initial("         0       1000          1\n"));
    }
}
