//! Which machine, and which boot of it, a process runs on.

/// Equal for two processes exactly when they can share memory: the kernel's boot id.
pub(crate) fn host_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}
