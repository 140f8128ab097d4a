//! Loading, registering and replacing controllers with libbpf.

use super::probe::Abilities;
use super::{objects, KernelError, Law};
use libbpf_rs::btf::types::{FuncProto, MemberAttr, Ptr, Struct};
use libbpf_rs::btf::{types, Btf, ReferencesType};
use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, MapInfoIter, ProgInfoIter};
use libbpf_rs::{
    AsRawLibbpf, ErrorKind, Link, MapCore, MapHandle, Object, ObjectBuilder, OpenObject, PrintLevel,
    ProgramType,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

pub use maps::{clear, paths, watch};
pub use pinned::{install, remove, running};

mod maps;
mod pinned;

/// Maps that all controllers share: learnt paths, events, and whether anybody wants these.
const SHARED: [&str; 3] = [PATHS, EVENTS, WATCHED];
const PATHS: &str = "sky_paths";
const EVENTS: &str = "sky_events";
const WATCHED: &str = "sky_watched";
/// Where a controller keeps what the loader may set: `struct tun`, whose first field is `abi4`.
const TUNABLES: &str = ".rodata.tun";
/// TCP_CONG_NON_RESTRICTED of the kernel's net/tcp.h: everybody may choose the controller.
const NON_RESTRICTED: u32 = 1;
/// How often to look again for a registration that is just going away, and how long to wait in between.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// What libbpf said since loading began; and only one thread loads at a time, so that it is about its object.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
static LOADING: Mutex<()> = Mutex::new(());

/// What the kernel's types say. Nothing if there are none or they have no TCP controllers from BPF.
pub fn abilities() -> Option<Abilities> {
    let said = Said::begin();
    let types = Btf::from_vmlinux().ok()?;
    types.type_by_name::<Struct<'_>>("bpf_struct_ops_tcp_congestion_ops")?;
    let operations: Struct<'_> = types.type_by_name("tcp_congestion_ops")?;
    let hook = operations.iter().find(|member| member.name == Some(OsStr::new("cong_control")))?;
    let pointer: Ptr<'_> = types.type_by_id(hook.ty)?;
    let hook = FuncProto::try_from(pointer.referenced_type().skip_mods_and_typedefs()).ok()?;
    let links = types.type_by_name::<types::Func<'_>>("bpf_struct_ops_link_create").is_some();
    drop(said);
    Some(Abilities { links, cong_control_arguments: u32::try_from(hook.len()).ok()? })
}

/// Whether this program has the object of `law`.
pub fn is_built(law: Law) -> bool {
    objects::find(law).is_some()
}

/// How to load.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// What the kernel can do.
    pub abilities: Abilities,
    /// Whether every user and namespace may choose the controller.
    pub for_everybody: bool,
}

impl Manner {
    /// By what this kernel can do, for the administrator only.
    pub fn here() -> Result<Manner, KernelError> {
        let abilities = abilities().ok_or(super::Missing::StructOps)?;
        Ok(Manner { abilities, for_everybody: false })
    }
}

/// Maps by name that controllers are to share instead of having their own.
pub type Shared = BTreeMap<String, MapHandle>;

/// A controller in the kernel, checked by the verifier, that no connection can choose yet.
pub struct Loaded {
    law: Law,
    object: Object,
}

/// A controller that connections can choose for as long as this lives.
pub struct Registration {
    // In this order they are dropped: without links, unregistering takes the object's map.
    _link: Option<Link>,
    _object: Option<Object>,
    _others_link: Option<OwnedFd>,
}

/// Opens, adjusts and loads the object of `law`. Its maps that are not in `shared` yet are added.
pub fn load(law: Law, manner: Manner, shared: &mut Shared) -> Result<Loaded, KernelError> {
    let bytes = objects::find(law).ok_or(KernelError::NotBuilt(law))?;
    let said = Said::begin();
    let refused = |error: libbpf_rs::Error| KernelError::Refused { law, reason: said.reason(&error) };
    let mut builder = ObjectBuilder::default();
    // Maps in the kernel are called after the object; without a name that would be an address.
    let mut open =
        builder.name(law.name()).and_then(|builder| builder.open_memory(bytes)).map_err(refused)?;
    adjust(law, &mut open, manner, shared)?;
    let object = open.load().map_err(refused)?;
    for map in object.maps() {
        let name = map.name().to_string_lossy().into_owned();
        if SHARED.contains(&name.as_str()) && !shared.contains_key(&name) {
            shared.insert(name, MapHandle::try_from(&map).map_err(refused)?);
        }
    }
    Ok(Loaded { law, object })
}

/// Writes into an open object what depends on the kernel and the request.
fn adjust(law: Law, open: &mut OpenObject, manner: Manner, shared: &Shared) -> Result<(), KernelError> {
    let refused = |reason: String| KernelError::Refused { law, reason };
    let flags = offset_of_flags(open);
    let operations = operations(law);
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name == TUNABLES {
            let four = u32::from(manner.abilities.cong_control_arguments >= 4);
            write_u32(map.initial_value_mut(), 0, four)
                .ok_or_else(|| refused(format!("{TUNABLES} has no room for abi4")))?;
        } else if name == operations {
            if manner.for_everybody {
                flags
                    .and_then(|offset| write_u32(map.initial_value_mut(), offset, NON_RESTRICTED))
                    .ok_or_else(|| refused(format!("{operations} has no flags")))?;
            }
            if !manner.abilities.links {
                map.set_map_flags(0).map_err(|error| refused(error.to_string()))?;
            }
        } else if let Some(existing) = shared.get(&name) {
            map.reuse_fd(existing.as_fd()).map_err(|error| refused(error.to_string()))?;
        }
    }
    Ok(())
}

/// Where the object's own type of the operations has its flags, in bytes.
fn offset_of_flags(open: &OpenObject) -> Option<usize> {
    // SAFETY: the pointer is that of an open object, which we borrow for as long as the types live.
    let object = unsafe { open.as_libbpf_object().as_ref() };
    let types = Btf::from_bpf_object(object).ok()??;
    let operations: Struct<'_> = types.type_by_name("tcp_congestion_ops")?;
    let flags = operations.iter().find(|member| member.name == Some(OsStr::new("flags")))?;
    match flags.attr {
        MemberAttr::Normal { offset } => usize::try_from(offset / u8::BITS).ok(),
        MemberAttr::BitField { .. } => None,
    }
}

fn write_u32(into: Option<&mut [u8]>, offset: usize, value: u32) -> Option<()> {
    into?.get_mut(offset..offset + size_of::<u32>())?.copy_from_slice(&value.to_ne_bytes());
    Some(())
}

/// The map in the object that holds its operations.
fn operations(law: Law) -> String {
    format!("{}_ops", law.name())
}

impl Loaded {
    /// Registers it. `None` when the name is taken.
    pub fn attach(&mut self) -> Result<Option<Link>, KernelError> {
        let law = self.law;
        let wanted = operations(law);
        let said = Said::begin();
        let mut map =
            self.object.maps_mut().find(|map| map.name() == OsStr::new(&wanted)).ok_or_else(|| {
                KernelError::Refused { law, reason: format!("its object has no map {wanted}") }
            })?;
        match map.attach_struct_ops() {
            Ok(link) => Ok(Some(link)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(KernelError::Refused { law, reason: said.reason(&error) }),
        }
    }

    /// The map with the operations.
    fn operations(&self) -> Option<libbpf_rs::Map<'_>> {
        let wanted = operations(self.law);
        self.object.maps().find(|map| map.name() == OsStr::new(&wanted))
    }

    /// The kernel's number of that map.
    fn map_id(&self) -> Option<u32> {
        libbpf_rs::MapInfo::new(self.operations()?.as_fd()).ok().map(|info| info.info.id)
    }

    /// Whether `map_id` belongs to the same code.
    fn has_code_of(&self, map_id: u32) -> bool {
        match (self.map_id().and_then(code), code(map_id)) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => false,
        }
    }
}

/// Names and hashes of the programs that came with a map.
fn code(map_id: u32) -> Option<Vec<(String, [u8; 8])>> {
    let types = MapInfoIter::default().find(|map| map.id == map_id)?.btf_id;
    let mut programs: Vec<_> = ProgInfoIter::default()
        .filter(|program| program.ty == ProgramType::StructOps && program.btf_id == types)
        .map(|program| (program.name.to_string_lossy().into_owned(), program.tag.0))
        .collect();
    programs.sort();
    (!programs.is_empty()).then_some(programs)
}

/// Registers controllers until the results are dropped.
pub fn temporarily(laws: &[Law]) -> Result<Vec<Registration>, KernelError> {
    let manner = Manner::here()?;
    let mut shared = Shared::new();
    let mut loaded = Vec::new();
    for &law in laws {
        loaded.push(load(law, manner, &mut shared)?);
    }
    loaded.into_iter().map(register).collect()
}

/// Registers a controller, or shares the registration of the same code.
fn register(mut loaded: Loaded) -> Result<Registration, KernelError> {
    for _ in 0..TRIES {
        if let Some(link) = loaded.attach()? {
            let object = Some(loaded.object);
            return Ok(Registration { _link: Some(link), _object: object, _others_link: None });
        }
        if let Some((link, map)) = registered_link(loaded.law) {
            if !loaded.has_code_of(map) {
                return Err(KernelError::taken(loaded.law));
            }
            return Ok(Registration { _link: None, _object: None, _others_link: Some(link) });
        }
        // Taken but no longer there: it was just being removed.
        thread::sleep(PAUSE);
    }
    Err(KernelError::taken(loaded.law))
}

/// The link that holds a controller, and the number of its map.
fn registered_link(law: Law) -> Option<(OwnedFd, u32)> {
    let wanted = operations(law);
    LinkInfoIter::default().find_map(|link| {
        let LinkTypeInfo::StructOps(operations) = &link.info else { return None };
        let map = MapHandle::from_map_id(operations.map_id).ok()?;
        if map.name() != OsStr::new(&wanted) {
            return None;
        }
        // SAFETY: takes a number and returns a descriptor or an error.
        let fd = unsafe { libbpf_sys::bpf_link_get_fd_by_id(link.id) };
        if fd < 0 {
            return None;
        }
        // SAFETY: the kernel has just given us this descriptor.
        Some((unsafe { OwnedFd::from_raw_fd(fd) }, operations.map_id))
    })
}

/// Has the kernel count calls and run time of all BPF programs until the descriptor is closed.
pub fn count_run_time() -> Result<OwnedFd, KernelError> {
    // SAFETY: takes a number and returns a descriptor or an error.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    if fd < 0 {
        let error = std::io::Error::last_os_error();
        return Err(KernelError::Request(format!("the kernel does not count BPF run time: {error}")));
    }
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Collects what libbpf prints, for as long as it lives.
struct Said(#[allow(dead_code, reason = "held, not read")] MutexGuard<'static, ()>);

impl Said {
    fn begin() -> Said {
        let guard = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
        SAID.lock().unwrap_or_else(PoisonError::into_inner).clear();
        libbpf_rs::set_print(Some((PrintLevel::Warn, |_, line| {
            tracing::debug!("libbpf: {}", line.trim_end());
            SAID.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        })));
        Said(guard)
    }

    /// Why something failed, on one line: the verifier's last word where there is one, and the error.
    fn reason(&self, error: &libbpf_rs::Error) -> String {
        let said = SAID.lock().unwrap_or_else(PoisonError::into_inner).concat();
        reason(&said, &error.to_string())
    }
}

/// The verifier's last word before its statistics, and the error.
fn reason(said: &str, error: &str) -> String {
    let log = said.split_once("BEGIN PROG LOAD LOG --").map(|(_, log)| log);
    let log = log.and_then(|log| log.split_once("-- END PROG LOAD LOG").map(|(log, _)| log));
    let last = log.and_then(|log| {
        log.lines().map(str::trim).rfind(|line| {
            !line.is_empty() && !line.starts_with("processed ") && !line.starts_with("verification time")
        })
    });
    match last {
        Some(last) => format!("{last} ({error})"),
        None => error.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_verifiers_log_the_last_word_is_kept() {
        let said = "libbpf: prog 'x': BPF program load failed: EACCES\nlibbpf: prog 'x': -- BEGIN PROG LOAD LOG --\n\
            0: R1=ctx()\nmath between ctx pointer and register is not allowed\n\
            processed 4 insns (limit 1000000) max_states_per_insn 0\n-- END PROG LOAD LOG --\nlibbpf: failed\n";
        assert_eq!(
            reason(said, "Permission denied"),
            "math between ctx pointer and register is not allowed (Permission denied)"
        );
        assert_eq!(reason("libbpf: nothing of note", "Invalid argument"), "Invalid argument");
    }
}
