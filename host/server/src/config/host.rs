//! Host files: what a process gives to the plugins of its tenants, and to each of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tidegate_protocol::ids::SinkId;
pub use tidegate_wasm::Isolation;
use tidegate_wasm::{CompileLimits, ConfinementPolicy, HostLimits, TenantLimits, Unit, processors};
use toml::de::DeTable;

use super::error::ConfigError;
use super::reader::{Document, Entry, Section};
use super::{budgets, host_tables};

/// A host as its file describes it: checked, and with everything shared out.
#[derive(Debug, Clone, PartialEq)]
pub struct HostFile {
    /// The file it was read from.
    pub path: PathBuf,
    /// `[host]`
    pub host: HostSection,
    /// `[tenants.*]`; never empty.
    pub tenants: BTreeMap<String, TenantSection>,
}

/// `[host]`
#[derive(Debug, Clone, PartialEq)]
pub struct HostSection {
    /// Of all tenants together.
    pub memory_bytes: u64,
    /// Of all tenants together.
    pub connections: u64,
    /// Of all tenants together.
    pub cpu_millis: u64,
    /// What the sandbox itself looks after.
    pub limits: HostLimits,
    /// What compiling a plugin may take.
    pub compile: CompileLimits,
    /// What happens where child processes cannot be confined.
    pub confinement: ConfinementPolicy,
}

/// `[tenants.NAME]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantSection {
    /// Its budgets.
    pub limits: TenantLimits,
    /// Where its plugins run.
    pub isolation: Isolation,
}

/// Reads and checks a host file.
///
/// # Errors
/// Everything that is wrong with it, with place and hints.
pub fn load_host(path: &Path) -> Result<HostFile, ConfigError> {
    let text = super::read_text(path, "host file", "tidegate run --host host.toml pipeline.toml")?;
    parse_host(&text, path)
}

/// Checks a host file given as text. `name` stands for it in messages.
///
/// # Errors
/// Everything that is wrong with it, with place and hints.
pub fn parse_host(text: &str, name: &Path) -> Result<HostFile, ConfigError> {
    let document = Document::of_host(text);
    let file = match DeTable::parse(text) {
        Ok(root) => Reading { document: &document }.file(root.get_ref(), name),
        Err(error) => {
            document.problem(error.span().unwrap_or(0..0), format!("not TOML: {}", error.message()), vec![]);
            None
        }
    };
    let problems = document.into_problems();
    match file {
        Some(file) if problems.is_empty() => Ok(file),
        _ => Err(ConfigError { file: name.to_owned(), problems, unreadable: false }),
    }
}

struct Reading<'d, 'i> {
    document: &'d Document<'i>,
}

/// One budget of the host that its tenants share.
struct Shared {
    key: &'static str,
    unit: Unit,
    of_host: fn(&HostSection) -> u64,
    of_tenant: fn(&mut TenantLimits) -> &mut u64,
    /// The least that a tenant can do anything with.
    least: u64,
}

const SHARED: &[Shared] = &[
    Shared {
        key: "memory",
        unit: Unit::Bytes,
        of_host: |host| host.memory_bytes,
        of_tenant: |tenant| &mut tenant.memory_bytes,
        least: 1 << 20,
    },
    Shared {
        key: "instances",
        unit: Unit::Count,
        of_host: |host| host.limits.instances,
        of_tenant: |tenant| &mut tenant.instances,
        least: 1,
    },
    Shared {
        key: "connections",
        unit: Unit::Count,
        of_host: |host| host.connections,
        of_tenant: |tenant| &mut tenant.connections,
        least: 1,
    },
    Shared {
        key: "cpu-millis",
        unit: Unit::Count,
        of_host: |host| host.cpu_millis,
        of_tenant: |tenant| &mut tenant.cpu_millis,
        least: 1,
    },
];

impl<'d, 'i> Reading<'d, 'i> {
    fn file(&self, root: &'d DeTable<'i>, name: &Path) -> Option<HostFile> {
        let top = Section::new(self.document, "", 0..0, root, host_tables::TOP);
        let empty = DeTable::new();
        let host = match top.table("host", host_tables::HOST) {
            Some(section) => host(&section),
            None => host(&Section::new(self.document, "host", 0..0, &empty, host_tables::HOST)),
        };
        let mut tenants = Vec::new();
        for entry in top.entries("tenants") {
            if let Err(error) = SinkId::new(entry.name.clone()) {
                entry.problem(error.to_string(), &[]);
            }
            let section = entry.section(host_tables::TENANT)?;
            let tenant = tenant(&section);
            tenants.push((entry, section, tenant?));
        }
        if top.has("tenants") && tenants.is_empty() {
            top.problem("tenants", "[tenants] is empty: a host needs at least one tenant", &["add [tenants.default]"]);
        }
        let host = host?;
        for shared in SHARED {
            share(&top, &host, shared, &mut tenants);
        }
        let tenants = tenants.into_iter().map(|(entry, _, tenant)| (entry.name, tenant)).collect();
        Some(HostFile { path: name.to_owned(), host, tenants })
    }
}

/// Gives every tenant that does not say how much it may have an equal share of what the others leave; refuses when there is
/// not so much.
fn share<'d, 'i>(
    top: &Section<'d, 'i>,
    host: &HostSection,
    shared: &Shared,
    tenants: &mut [(Entry<'d, 'i>, Section<'d, 'i>, TenantSection)],
) {
    let has = (shared.of_host)(host);
    let (mut written, mut said, mut silent) = (0u64, Vec::new(), 0u64);
    for (entry, section, tenant) in tenants.iter_mut() {
        if section.has(shared.key) {
            let amount = *(shared.of_tenant)(&mut tenant.limits);
            written = written.saturating_add(amount);
            said.push(format!("{} {}", entry.name, shared.unit.show(amount)));
        } else {
            silent += 1;
        }
    }
    let each = has.saturating_sub(written).checked_div(silent);
    if written > has || each.is_some_and(|each| each < shared.least) {
        let (key, has) = (shared.key, shared.unit.show(has));
        let sum = shared.unit.show(written);
        let rest = match silent {
            0 => String::new(),
            1 => ", and one tenant without a figure is to get a share".to_owned(),
            silent => format!(", and {silent} tenants without a figure are to get a share"),
        };
        let message = format!("`{key}` of all tenants comes to {sum} ({}){rest}; [host] has {has}", said.join(", "));
        let hints = [format!("lower `{key}` of some tenants"), format!("or write more `{key}` into [host]")];
        top.problem("tenants", message, &[&hints[0], &hints[1]]);
        return;
    }
    for (_, section, tenant) in tenants {
        if !section.has(shared.key) {
            *(shared.of_tenant)(&mut tenant.limits) = each.unwrap_or_default();
        }
    }
}

fn host(section: &Section<'_, '_>) -> Option<HostSection> {
    let memory = match section.has("memory") {
        true => section.size("memory"),
        false => Some(machine_memory() / 4 * 3),
    };
    let cpu_millis = match section.has("cpu-millis") {
        true => section.integer("cpu-millis"),
        false => Some(processors().saturating_mul(750)),
    };
    let (instances, connections) = (section.integer("instances"), section.integer("connections"));
    let stack = section.size("stack").and_then(|stack| usize::try_from(stack).ok());
    let compile = compile(section);
    let confinement = section.word("confinement").map(|word| match word.as_str() {
        "if-possible" => ConfinementPolicy::IfPossible,
        _ => ConfinementPolicy::Required,
    });
    Some(HostSection {
        memory_bytes: memory?,
        connections: connections?,
        cpu_millis: cpu_millis?,
        limits: HostLimits { instances: instances?, stack_bytes: stack? },
        compile: compile?,
        confinement: confinement?,
    })
}

fn compile(section: &Section<'_, '_>) -> Option<CompileLimits> {
    let (memory, code) = (section.size("compile-memory"), section.size("compile-code"));
    let (cpu_time, wall_time) = (section.duration("compile-cpu-time"), section.duration("compile-time"));
    let (workers, queue) = (section.small("compile-workers"), section.small("compile-queue"));
    Some(CompileLimits {
        memory_bytes: memory?,
        cpu_time: cpu_time?,
        wall_time: wall_time?,
        code_bytes: usize::try_from(code?).ok()?,
        workers: usize::try_from(workers?).ok()?,
        queue: usize::try_from(queue?).ok()?,
        ..CompileLimits::default()
    })
}

fn tenant(section: &Section<'_, '_>) -> Option<TenantSection> {
    let isolation = section.word("isolation").map(|word| match word.as_str() {
        "process" => Isolation::Process,
        _ => Isolation::Shared,
    });
    Some(TenantSection { limits: budgets::tenant(section)?, isolation: isolation? })
}

/// Bytes of memory of this machine, or of what the control group of this process allows, if that is less.
fn machine_memory() -> u64 {
    /// Where nothing can be read.
    const UNKNOWN: u64 = 8 << 30;
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.trim();
        line.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    });
    let group = read("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse::<u64>().ok());
    let least = machine.unwrap_or(UNKNOWN).min(group.unwrap_or(u64::MAX));
    least.max(4 << 20)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn read(text: &str) -> HostFile {
        parse_host(text, "host.toml".as_ref()).unwrap_or_else(|error| panic!("{error}"))
    }

    fn said(text: &str) -> String {
        let error = parse_host(text, "host.toml".as_ref()).expect_err(text);
        let lines = error.problems.iter().flat_map(|problem| {
            let hints = problem.hints.iter().map(|hint| format!("hint: {hint}"));
            [format!("{}: {}", error.place(problem), problem.message)].into_iter().chain(hints)
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn tenants_get_what_they_say_and_the_others_share_the_rest() {
        let file = read(
            "[host]\nmemory = \"10GiB\"\ninstances = 100\nconnections = 90\ncpu-millis = 1500\n\
             [tenants.a]\nmemory = \"4GiB\"\nisolation = \"process\"\n[tenants.b]\ncpu-millis = 1000\n[tenants.c]\n",
        );
        let of = |name: &str| {
            let TenantLimits { memory_bytes, instances, connections, cpu_millis, .. } = file.tenants[name].limits;
            (memory_bytes >> 30, instances, connections, cpu_millis)
        };
        assert_eq!([of("a"), of("b"), of("c")], [(4, 33, 30, 250), (3, 33, 30, 1000), (3, 33, 30, 250)]);
        assert_eq!(file.tenants["a"].isolation, Isolation::Process);
        assert_eq!(file.tenants["b"].isolation, Isolation::Shared);
    }

    #[test]
    fn one_tenant_without_figures_gets_all_that_there_is() {
        let file = read("[tenants.default]\n");
        let limits = &file.tenants["default"].limits;
        assert_eq!((limits.memory_bytes, limits.cpu_millis), (file.host.memory_bytes, file.host.cpu_millis));
        assert_eq!(file.host.cpu_millis, processors() * 750);
        assert_eq!(file.host.limits, HostLimits::default());
        assert_eq!(file.host.compile, CompileLimits::default());
        assert_eq!(limits.flushes, TenantLimits::default().flushes);
    }

    #[test]
    fn a_host_that_promises_more_than_it_has_is_refused_with_the_figures() {
        let text = "[host]\nmemory = \"10GiB\"\n[tenants.a]\nmemory = \"8GiB\"\n[tenants.b]\nmemory = \"4GiB\"\n";
        assert_eq!(
            said(text),
            "host.toml:3:2: `memory` of all tenants comes to 12 GiB (a 8 GiB, b 4 GiB); [host] has 10 GiB\n\
             hint: lower `memory` of some tenants\nhint: or write more `memory` into [host]"
        );
        let text = "[host]\ninstances = 5\n[tenants.a]\ninstances = 5\n[tenants.b]\n";
        assert!(
            said(text).contains("comes to 5 (a 5), and one tenant without a figure is to get a share; [host] has 5")
        );
    }

    #[test]
    fn unknown_keys_are_told_with_the_nearest_known_one() {
        assert_eq!(
            said("[tenants.a]\nmemroy = \"1GiB\"\n"),
            "host.toml:2:1: unknown key `memroy` in [tenants.a]\nhint: did you mean `memory`?\n\
             hint: `tidegate config reference --host` lists every key"
        );
        assert!(said("[tenant.a]\n").contains("did you mean `tenants`?"));
        assert!(said("[tenants]\n").contains("[tenants] is empty"));
        assert!(said("[tenants.A]\n").contains("`A` is not a valid name"));
        assert!(said("[tenants.a]\nisolation = \"proces\"\n").contains("did you mean \"process\"?"));
        assert!(said("[host]\n").contains("lacks `tenants`"));
        assert!(said("x = ").contains("not TOML"));
    }

    #[test]
    fn the_hosts_own_settings_are_read() {
        let file = read(
            "[host]\nstack = \"2MiB\"\ncompile-time = \"1m\"\ncompile-code = \"10MiB\"\ncompile-queue = 0\n\
             confinement = \"if-possible\"\n[tenants.default]\n",
        );
        assert_eq!(file.host.limits.stack_bytes, 2 << 20);
        assert_eq!(file.host.compile.wall_time, Duration::from_secs(60));
        assert_eq!((file.host.compile.code_bytes, file.host.compile.queue), (10 << 20, 0));
        assert_eq!(file.host.confinement, ConfinementPolicy::IfPossible);
    }
}
