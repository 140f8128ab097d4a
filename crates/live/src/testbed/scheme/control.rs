//! Congestion control of kernel TCP by name: what the kernel brings, and what we bring.

use std::fmt;

use crate::kernel::Law;

/// An algorithm of the kernel's TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// One that the kernel brings, by its own name.
    Kernel(&'static str),
    /// One of ours (BPF), registered while a run lasts.
    Ours(Law),
}

impl Control {
    /// What a host has whose kernel nobody has touched.
    pub const CUBIC: Control = Control::Kernel("cubic");

    /// In the order of listings: the kernel's, then ours.
    pub fn all() -> Vec<Control> {
        let kernel = ["reno", "cubic", "bbr"].into_iter().map(Control::Kernel);
        kernel.chain(Law::ALL.into_iter().map(Control::Ours)).collect()
    }

    /// The algorithm of that name.
    pub fn named(name: &str) -> Option<Control> {
        Control::all().into_iter().find(|control| control.name() == name)
    }

    /// The name in a scheme, such as `boost`.
    pub fn name(self) -> &'static str {
        match self {
            Control::Kernel(name) => name,
            Control::Ours(law) => law.name(),
        }
    }

    /// The name under which the kernel has it. Ours have a prefix so that they never hide one of the kernel's own.
    pub fn algorithm(self) -> &'static str {
        match self {
            Control::Kernel(name) => name,
            Control::Ours(law) => law.algorithm(),
        }
    }

    /// All names for messages: `reno, cubic, ...`.
    pub fn names() -> String {
        Control::all().into_iter().map(Control::name).collect::<Vec<_>>().join(", ")
    }
}

impl PartialOrd for Control {
    fn partial_cmp(&self, other: &Control) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Control {
    /// By their names.
    fn cmp(&self, other: &Control) -> std::cmp::Ordering {
        self.name().cmp(other.name())
    }
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_the_kernel_takes_them() {
        for control in Control::all() {
            // TCP_CA_NAME_MAX is 16 with the closing zero.
            assert!((1..=15).contains(&control.algorithm().len()), "{control}");
            assert_eq!(Control::named(control.name()), Some(control));
        }
        assert_eq!(Control::named("vegas"), None);
    }
}
