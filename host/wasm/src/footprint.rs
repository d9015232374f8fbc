//! What an instance of a component begins with, read from its bytes, and whether that is within its budgets. Nothing is
//! compiled for it and nothing runs.

use tidegate_protocol::plugin::Need;
use wasmparser::{
    ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentOuterAliasKind, ComponentTypeRef, Instance,
    Parser, Payload,
};

use crate::error::AdmitError;
use crate::limits::{BUDGETS, Budget, Limits};
use crate::text::clean;

const PAGE_BYTES: u64 = 64 << 10;

/// The least that an instance of a component holds: sums over all core modules that it instantiates, as often as it does.
/// A module that a component gets from an inner one's exports counts as nothing here; it counts when it is instantiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Footprint {
    /// Core modules instantiated.
    pub core_instances: u64,
    /// Linear memories.
    pub memories: u64,
    /// Tables.
    pub tables: u64,
    /// Bytes of all memories.
    pub memory_bytes: u64,
    /// Entries of all tables.
    pub table_entries: u64,
}

impl Footprint {
    fn add(&mut self, other: Self) {
        self.core_instances = self.core_instances.saturating_add(other.core_instances);
        self.memories = self.memories.saturating_add(other.memories);
        self.tables = self.tables.saturating_add(other.tables);
        self.memory_bytes = self.memory_bytes.saturating_add(other.memory_bytes);
        self.table_entries = self.table_entries.saturating_add(other.table_entries);
    }

    /// Of a component; of a damaged one, of what could be read.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut walk = Walk::default();
        for payload in Parser::new(0).parse_all(bytes) {
            if payload.and_then(|payload| walk.step(payload)).is_err() {
                break;
            }
        }
        walk.whole
    }

    /// Refuses a component that begins with more than it may have.
    pub(crate) fn check(&self, plugin: &str, limits: &Limits) -> Result<(), AdmitError> {
        let begins = [
            ("core-instances", self.core_instances),
            ("memories", self.memories),
            ("tables", self.tables),
            ("memory", self.memory_bytes),
            ("table-entries", self.table_entries),
        ];
        for budget in BUDGETS {
            let Some((_, needs)) = begins.iter().find(|(key, _)| *key == budget.key) else { continue };
            refuse_more(plugin, budget, *needs, limits, "an instance begins with")?;
        }
        Ok(())
    }
}

/// Refuses a plugin that says it needs more than it may have, or names what is no budget.
pub(crate) fn check_needs(plugin: &str, needs: &[Need], limits: &Limits) -> Result<(), AdmitError> {
    for Need { budget: key, at_least } in needs {
        match BUDGETS.iter().find(|budget| budget.key == key) {
            Some(budget) => refuse_more(plugin, budget, *at_least, limits, "it asks for at least")?,
            None => {
                let known = BUDGETS.iter().map(|budget| budget.key).collect::<Vec<_>>().join(", ");
                let detail = format!("it needs some `{}`, which is no budget; there are {known}", clean(key, 64));
                return Err(AdmitError::Description { plugin: plugin.to_owned(), detail });
            }
        }
    }
    Ok(())
}

fn refuse_more(plugin: &str, budget: &Budget, needs: u64, limits: &Limits, how: &str) -> Result<(), AdmitError> {
    let has = budget.of(limits);
    if needs <= has {
        return Ok(());
    }
    let (key, unit) = (budget.key, budget.unit);
    let detail = format!("of `{key}` {how} {}, and {} are allowed", unit.show(needs), unit.show(has));
    Err(AdmitError::Budget { plugin: plugin.to_owned(), budget: key, detail })
}

/// A component that is being read, or a core module.
#[derive(Default)]
struct Scope {
    /// What one instance of it costs.
    cost: Footprint,
    /// The index spaces of core modules and components.
    modules: Vec<Footprint>,
    components: Vec<Footprint>,
    is_module: bool,
}

#[derive(Default)]
struct Walk {
    scopes: Vec<Scope>,
    /// What the next [`Payload::Version`] begins.
    next_is_module: bool,
    whole: Footprint,
}

impl Walk {
    fn step(&mut self, payload: Payload<'_>) -> wasmparser::Result<()> {
        match payload {
            Payload::ModuleSection { .. } => self.next_is_module = true,
            Payload::ComponentSection { .. } => self.next_is_module = false,
            Payload::Version { .. } => {
                let cost = Footprint { core_instances: u64::from(self.next_is_module), ..Footprint::default() };
                self.scopes.push(Scope { is_module: self.next_is_module, cost, ..Scope::default() });
            }
            Payload::End(_) => self.end(),
            other => {
                if let Some(scope) = self.scopes.last_mut() {
                    match scope.is_module {
                        true => scope.in_module(other)?,
                        false => self.in_component(other)?,
                    }
                }
            }
        }
        Ok(())
    }

    fn end(&mut self) {
        let Some(scope) = self.scopes.pop() else { return };
        match self.scopes.last_mut() {
            Some(outer) if scope.is_module => outer.modules.push(scope.cost),
            Some(outer) => outer.components.push(scope.cost),
            None => self.whole = scope.cost,
        }
    }

    fn in_component(&mut self, payload: Payload<'_>) -> wasmparser::Result<()> {
        match payload {
            Payload::ComponentAliasSection(section) => {
                for alias in section {
                    self.alias(&alias?);
                }
            }
            other => {
                if let Some(scope) = self.scopes.last_mut() {
                    scope.in_component(other)?;
                }
            }
        }
        Ok(())
    }

    fn alias(&mut self, alias: &ComponentAlias<'_>) {
        let at = |outward: u32| self.scopes.len().checked_sub(1)?.checked_sub(outward as usize);
        let found = |outward: u32, index: u32, pick: fn(&Scope) -> &Vec<Footprint>| {
            let scope = at(outward).and_then(|at| self.scopes.get(at))?;
            pick(scope).get(index as usize).copied()
        };
        let (module, component) = match alias {
            ComponentAlias::Outer { kind: ComponentOuterAliasKind::CoreModule, count, index } => {
                (Some(found(*count, *index, |scope| &scope.modules)), None)
            }
            ComponentAlias::Outer { kind: ComponentOuterAliasKind::Component, count, index } => {
                (None, Some(found(*count, *index, |scope| &scope.components)))
            }
            ComponentAlias::InstanceExport { kind: ComponentExternalKind::Module, .. } => (Some(None), None),
            ComponentAlias::InstanceExport { kind: ComponentExternalKind::Component, .. } => (None, Some(None)),
            _ => (None, None),
        };
        if let Some(scope) = self.scopes.last_mut() {
            scope.modules.extend(module.map(Option::unwrap_or_default));
            scope.components.extend(component.map(Option::unwrap_or_default));
        }
    }
}

impl Scope {
    fn in_module(&mut self, payload: Payload<'_>) -> wasmparser::Result<()> {
        match payload {
            Payload::MemorySection(section) => {
                for memory in section {
                    let bytes = memory?.initial.saturating_mul(PAGE_BYTES);
                    self.cost.add(Footprint { memories: 1, memory_bytes: bytes, ..Footprint::default() });
                }
            }
            Payload::TableSection(section) => {
                for table in section {
                    let entries = table?.ty.initial;
                    self.cost.add(Footprint { tables: 1, table_entries: entries, ..Footprint::default() });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn in_component(&mut self, payload: Payload<'_>) -> wasmparser::Result<()> {
        match payload {
            Payload::InstanceSection(section) => {
                for instance in section {
                    if let Instance::Instantiate { module_index, .. } = instance? {
                        self.cost.add(self.modules.get(module_index as usize).copied().unwrap_or_default());
                    }
                }
            }
            Payload::ComponentInstanceSection(section) => {
                for instance in section {
                    if let ComponentInstance::Instantiate { component_index, .. } = instance? {
                        self.cost.add(self.components.get(component_index as usize).copied().unwrap_or_default());
                    }
                }
            }
            Payload::ComponentImportSection(section) => {
                for import in section {
                    match import?.ty {
                        ComponentTypeRef::Module(_) => self.modules.push(Footprint::default()),
                        ComponentTypeRef::Component(_) => self.components.push(Footprint::default()),
                        _ => {}
                    }
                }
            }
            // What is exported has an index of its own from then on.
            Payload::ComponentExportSection(section) => {
                for export in section {
                    let export = export?;
                    let of = |all: &[Footprint]| all.get(export.index as usize).copied().unwrap_or_default();
                    match export.kind {
                        ComponentExternalKind::Module => self.modules.push(of(&self.modules)),
                        ComponentExternalKind::Component => self.components.push(of(&self.components)),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Footprint {
        Footprint::of(&wat::parse_str(text).unwrap())
    }

    #[test]
    fn modules_count_as_often_as_they_are_instantiated() {
        let footprint = of(r"(component
            (core module $a (memory 3) (table 10 funcref))
            (core module $unused (memory 100))
            (core instance (instantiate $a))
            (core instance (instantiate $a)))");
        let expected =
            Footprint { core_instances: 2, memories: 2, tables: 2, memory_bytes: 6 * PAGE_BYTES, table_entries: 20 };
        assert_eq!(footprint, expected);
    }

    #[test]
    fn inner_components_count_with_what_they_take_from_outside() {
        let footprint = of(r"(component
            (core module $m (memory 1))
            (component $inner
                (alias outer 1 $m (core module $n))
                (core instance (instantiate $n)))
            (component $twice
                (alias outer 1 $inner (component $again))
                (instance (instantiate $again))
                (instance (instantiate $again)))
            (instance (instantiate $twice))
            (instance (instantiate $inner)))");
        assert_eq!((footprint.core_instances, footprint.memory_bytes), (3, 3 * PAGE_BYTES));
    }

    #[test]
    fn instances_that_double_with_every_layer_are_counted_and_not_made() {
        let mut text = "(component $c0 (core module $m (memory 1)) (core instance (instantiate $m)))".to_owned();
        for layer in 1..90 {
            let below = layer - 1;
            text.push_str(&format!("(component $c{layer} "));
            for _ in 0..2 {
                text.push_str(&format!("(alias outer 1 $c{below} (component)) "));
            }
            text.push_str("(instance (instantiate 0)) (instance (instantiate 1)))");
        }
        let footprint = of(&format!("(component {text} (instance (instantiate 89)))"));
        assert_eq!(footprint.core_instances, u64::MAX);
        let error = footprint.check("x.wasm", &Limits::default()).unwrap_err();
        assert!(matches!(error, AdmitError::Budget { budget: "memory", .. }), "{error}");
    }

    #[test]
    fn needs_are_compared_by_the_keys_of_the_configuration() {
        let need = |budget: &str, at_least| [Need { budget: budget.to_owned(), at_least }];
        let limits = Limits { connections: 4, ..Limits::default() };
        assert!(check_needs("x", &need("connections", 4), &limits).is_ok());
        let error = check_needs("x", &need("connections", 5), &limits).unwrap_err().to_string();
        assert!(error.contains("`connections` it asks for at least 5, and 4 are allowed"), "{error}");
        let error = check_needs("x", &need("conections", 5), &limits).unwrap_err().to_string();
        assert!(error.contains("`conections`, which is no budget; there are memory, "), "{error}");
    }
}
