//! Counts what a component consists of, in one pass over its bytes, and stops where a figure passes its cap.
//!
//! The pass takes time in proportion to the bytes and memory in proportion to the caps. Types of components are not
//! read, only counted: they nest, and their reader is recursive. The worker that compiles reads them.

use wasmparser::{
    ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentOuterAliasKind, ElementItems, FunctionBody,
    Instance, MemoryType, Operator, Payload, SectionLimited,
};

use crate::caps::{ComponentCaps, Excess};

/// Why counting ended early.
#[derive(Debug)]
pub(crate) enum Stop {
    Damaged(usize),
    Excess(Excess),
}

impl From<wasmparser::BinaryReaderError> for Stop {
    fn from(error: wasmparser::BinaryReaderError) -> Self {
        Stop::Damaged(error.offset())
    }
}

impl From<Excess> for Stop {
    fn from(excess: Excess) -> Self {
        Stop::Excess(excess)
    }
}

/// A figure and its cap.
#[derive(Debug, Clone, Copy)]
struct Count {
    what: &'static str,
    sum: u64,
    max: u64,
}

impl Count {
    fn new(what: &'static str, max: u64) -> Self {
        Self { what, sum: 0, max }
    }

    fn add(&mut self, more: impl Into<u64>) -> Result<(), Excess> {
        self.sum = self.sum.saturating_add(more.into());
        match self.sum <= self.max {
            true => Ok(()),
            false => Err(Excess { what: self.what, found: self.sum, max: self.max }),
        }
    }

    /// For a figure that counts by itself: the largest one is kept.
    fn see(&mut self, one: impl Into<u64>) -> Result<(), Excess> {
        self.sum = self.sum.max(one.into());
        self.add(0u64)
    }
}

/// What one instance of a module or component has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) core_instances: u64,
    pub(crate) memories: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) tables: u64,
    pub(crate) table_entries: u64,
}

impl Needs {
    fn with(self, other: Self, combine: fn(u64, u64) -> u64) -> Self {
        Self {
            core_instances: combine(self.core_instances, other.core_instances),
            memories: combine(self.memories, other.memories),
            memory_bytes: combine(self.memory_bytes, other.memory_bytes),
            tables: combine(self.tables, other.tables),
            table_entries: combine(self.table_entries, other.table_entries),
        }
    }

    fn and(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    fn check(&self, caps: &ComponentCaps) -> Result<(), Excess> {
        for (what, found, max) in [
            ("instances of core modules", self.core_instances, caps.core_instances),
            ("memories", self.memories, caps.memories),
            ("bytes of memory to begin with", self.memory_bytes, caps.memory_bytes),
            ("tables", self.tables, caps.tables),
            ("table entries to begin with", self.table_entries, caps.table_entries),
        ] {
            Count::new(what, max).add(found)?;
        }
        Ok(())
    }
}

/// A module or component that is being read.
#[derive(Debug, Default)]
struct Frame {
    is_component: bool,
    needs: Needs,
    /// The index spaces of a component.
    modules: Vec<Needs>,
    components: Vec<Needs>,
}

/// The counts so far.
#[derive(Debug)]
pub(crate) struct Shape {
    caps: ComponentCaps,
    frames: Vec<Frame>,
    /// The most that any module or component needs: taken for one that comes from elsewhere than its own definition.
    heaviest: Needs,
    core_modules: Count,
    components: Count,
    types: Count,
    component_type_bytes: Count,
    imports: Count,
    exports: Count,
    name_bytes: Count,
    definitions: Count,
    functions: Count,
    function_bytes: Count,
    locals: Count,
    total_locals: Count,
    block_depth: Count,
    branch_targets: Count,
    function_branch_targets: Count,
    globals: Count,
    data_segments: Count,
    data_bytes: Count,
    element_segments: Count,
    elements: Count,
    custom_bytes: Count,
}

impl Shape {
    pub(crate) fn new(caps: &ComponentCaps) -> Self {
        Self {
            frames: vec![Frame { is_component: true, ..Frame::default() }],
            heaviest: Needs::default(),
            core_modules: Count::new("core modules", caps.core_modules),
            components: Count::new("components within it", caps.components),
            types: Count::new("types", caps.types),
            component_type_bytes: Count::new("bytes of component types", caps.component_type_bytes),
            imports: Count::new("imports", caps.imports),
            exports: Count::new("exports", caps.exports),
            name_bytes: Count::new("bytes in one name", caps.name_bytes),
            definitions: Count::new("aliases, lifted and lowered functions, and arguments", caps.definitions),
            functions: Count::new("functions", caps.functions),
            function_bytes: Count::new("bytes in one function", caps.function_bytes),
            locals: Count::new("local variables in one function", caps.locals),
            total_locals: Count::new("local variables", caps.total_locals),
            block_depth: Count::new("blocks within each other", caps.block_depth),
            branch_targets: Count::new("targets of one branch table", caps.branch_targets),
            function_branch_targets: Count::new("branch targets in one function", caps.function_branch_targets),
            globals: Count::new("globals", caps.globals),
            data_segments: Count::new("data segments", caps.data_segments),
            data_bytes: Count::new("bytes of data", caps.data_bytes),
            element_segments: Count::new("element segments", caps.element_segments),
            elements: Count::new("elements", caps.elements),
            custom_bytes: Count::new("bytes of custom sections", caps.custom_bytes),
            caps: caps.clone(),
        }
    }

    /// Counts one part. The parts of a component come in the order of its bytes.
    pub(crate) fn count(&mut self, payload: &Payload<'_>) -> Result<(), Stop> {
        match payload {
            Payload::ModuleSection { .. } => {
                self.core_modules.add(1u64)?;
                self.frames.push(Frame::default());
            }
            Payload::ComponentSection { .. } => {
                self.components.add(1u64)?;
                Count::new("components within each other", self.caps.depth).add(self.frames.len() as u64)?;
                self.frames.push(Frame { is_component: true, ..Frame::default() });
            }
            Payload::End(_) => self.end()?,
            Payload::CustomSection(section) => self.custom_bytes.add(section.data().len() as u64)?,
            Payload::UnknownSection { contents, .. } => self.custom_bytes.add(contents.len() as u64)?,
            _ if self.frames.last().is_some_and(|frame| frame.is_component) => self.count_component(payload)?,
            _ => self.count_module(payload)?,
        }
        Ok(())
    }

    /// What an instance of the whole has. Complete once everything was counted.
    pub(crate) fn needs(&self) -> Needs {
        self.frames.first().map(|frame| frame.needs).unwrap_or_default()
    }

    fn end(&mut self) -> Result<(), Stop> {
        if self.frames.len() < 2 {
            return Ok(self.needs().check(&self.caps)?);
        }
        let Some(done) = self.frames.pop() else { return Ok(()) };
        self.heaviest = self.heaviest.with(done.needs, u64::max);
        if let Some(outer) = self.frames.last_mut() {
            let space = if done.is_component { &mut outer.components } else { &mut outer.modules };
            space.push(done.needs);
        }
        Ok(())
    }

    fn count_component(&mut self, payload: &Payload<'_>) -> Result<(), Stop> {
        match payload {
            Payload::CoreTypeSection(section) => {
                self.component_type_bytes.add(bytes(section))?;
                self.types.add(section.count())?;
            }
            Payload::ComponentTypeSection(section) => {
                self.component_type_bytes.add(bytes(section))?;
                self.types.add(section.count())?;
            }
            Payload::ComponentImportSection(section) => {
                self.imports.add(section.count())?;
                for import in section.clone() {
                    let import = import?;
                    self.name_bytes.see(import.name.name.len() as u64)?;
                    self.elsewhere(import.ty.kind());
                }
            }
            Payload::ComponentExportSection(section) => {
                self.exports.add(section.count())?;
                for export in section.clone() {
                    let export = export?;
                    self.name_bytes.see(export.name.name.len() as u64)?;
                    self.elsewhere(export.kind);
                }
            }
            Payload::ComponentAliasSection(section) => {
                self.definitions.add(section.count())?;
                for alias in section.clone() {
                    match alias? {
                        ComponentAlias::InstanceExport { kind, .. } => self.elsewhere(kind),
                        ComponentAlias::Outer { kind: ComponentOuterAliasKind::CoreModule, .. } => {
                            self.elsewhere(ComponentExternalKind::Module);
                        }
                        ComponentAlias::Outer { kind: ComponentOuterAliasKind::Component, .. } => {
                            self.elsewhere(ComponentExternalKind::Component);
                        }
                        _ => {}
                    }
                }
            }
            Payload::ComponentCanonicalSection(section) => self.definitions.add(section.count())?,
            Payload::InstanceSection(section) => self.core_instances(section)?,
            Payload::ComponentInstanceSection(section) => self.instances(section)?,
            _ => {}
        }
        Ok(())
    }

    /// A module or component enters the index space, and where it was defined is not followed.
    fn elsewhere(&mut self, kind: ComponentExternalKind) {
        let heaviest = self.heaviest;
        let Some(frame) = self.frames.last_mut() else { return };
        match kind {
            ComponentExternalKind::Module => frame.modules.push(heaviest),
            ComponentExternalKind::Component => frame.components.push(heaviest),
            _ => {}
        }
    }

    fn core_instances(&mut self, section: &SectionLimited<'_, Instance<'_>>) -> Result<(), Stop> {
        for instance in section.clone() {
            self.definitions.add(1u64)?;
            match instance? {
                Instance::Instantiate { module_index, args } => {
                    self.definitions.add(args.len() as u64)?;
                    let one = Needs { core_instances: 1, ..Needs::default() };
                    let needs = self.space(module_index, |frame| &frame.modules).and(one);
                    self.instantiate(needs);
                }
                Instance::FromExports(exports) => self.definitions.add(exports.len() as u64)?,
            }
        }
        Ok(())
    }

    fn instances(&mut self, section: &SectionLimited<'_, ComponentInstance<'_>>) -> Result<(), Stop> {
        for instance in section.clone() {
            self.definitions.add(1u64)?;
            match instance? {
                ComponentInstance::Instantiate { component_index, args } => {
                    self.definitions.add(args.len() as u64)?;
                    let needs = self.space(component_index, |frame| &frame.components);
                    self.instantiate(needs);
                }
                ComponentInstance::FromExports(exports) => self.definitions.add(exports.len() as u64)?,
            }
        }
        Ok(())
    }

    fn space(&self, index: u32, space: fn(&Frame) -> &Vec<Needs>) -> Needs {
        let frame = self.frames.last();
        frame.and_then(|frame| space(frame).get(index as usize)).copied().unwrap_or(self.heaviest)
    }

    fn instantiate(&mut self, needs: Needs) {
        if let Some(frame) = self.frames.last_mut() {
            frame.needs = frame.needs.and(needs);
        }
    }

    fn count_module(&mut self, payload: &Payload<'_>) -> Result<(), Stop> {
        match payload {
            Payload::TypeSection(section) => self.types.add(section.count())?,
            Payload::ImportSection(section) => {
                for import in section.clone().into_imports() {
                    let import = import?;
                    self.imports.add(1u64)?;
                    self.name_bytes.see(import.module.len().max(import.name.len()) as u64)?;
                }
            }
            Payload::ExportSection(section) => {
                self.exports.add(section.count())?;
                for export in section.clone() {
                    self.name_bytes.see(export?.name.len() as u64)?;
                }
            }
            Payload::FunctionSection(section) => self.functions.add(section.count())?,
            Payload::GlobalSection(section) => self.globals.add(section.count())?,
            Payload::DataSection(section) => {
                self.data_segments.add(section.count())?;
                self.data_bytes.add(bytes(section))?;
            }
            Payload::ElementSection(section) => {
                self.element_segments.add(section.count())?;
                for element in section.clone() {
                    self.elements.add(match element?.items {
                        ElementItems::Functions(items) => items.count(),
                        ElementItems::Expressions(_, items) => items.count(),
                    })?;
                }
            }
            Payload::MemorySection(section) => {
                for memory in section.clone() {
                    let memory_bytes = least_bytes(&memory?);
                    self.instantiate(Needs { memories: 1, memory_bytes, ..Needs::default() });
                    self.check_own()?;
                }
            }
            Payload::TableSection(section) => {
                for table in section.clone() {
                    let table_entries = table?.ty.initial;
                    self.instantiate(Needs { tables: 1, table_entries, ..Needs::default() });
                    self.check_own()?;
                }
            }
            Payload::CodeSectionEntry(body) => self.function(body)?,
            _ => {}
        }
        Ok(())
    }

    /// A module that nobody could instantiate is refused whether it is instantiated or not.
    fn check_own(&self) -> Result<(), Excess> {
        self.frames.last().map_or(Ok(()), |frame| frame.needs.check(&self.caps))
    }

    fn function(&mut self, body: &FunctionBody<'_>) -> Result<(), Stop> {
        self.function_bytes.see(body.as_bytes().len() as u64)?;
        let mut locals = Count::new(self.locals.what, self.locals.max);
        for local in body.get_locals_reader()? {
            locals.add(local?.0)?;
        }
        self.locals.see(locals.sum)?;
        self.total_locals.add(locals.sum)?;
        let (mut depth, mut targets) =
            (0u64, Count::new(self.function_branch_targets.what, self.function_branch_targets.max));
        let mut operators = body.get_operators_reader()?;
        while !operators.eof() {
            match operators.read()? {
                Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } | Operator::TryTable { .. } => {
                    depth += 1;
                    self.block_depth.see(depth)?;
                }
                Operator::End => depth = depth.saturating_sub(1),
                Operator::BrTable { targets: table } => {
                    self.branch_targets.see(table.len())?;
                    targets.add(table.len())?;
                }
                _ => {}
            }
        }
        Ok(self.function_branch_targets.see(targets.sum)?)
    }
}

fn bytes<T>(section: &SectionLimited<'_, T>) -> u64 {
    section.range().len() as u64
}

fn least_bytes(memory: &MemoryType) -> u64 {
    let page = memory.page_size_log2.unwrap_or(16);
    1u64.checked_shl(page).map_or(u64::MAX, |page| memory.initial.saturating_mul(page))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(text: &str) -> Needs {
        let bytes = wat::parse_str(text).unwrap();
        let mut shape = Shape::new(&ComponentCaps::default());
        for payload in wasmparser::Parser::new(0).parse_all(&bytes) {
            shape.count(&payload.unwrap()).unwrap();
        }
        shape.needs()
    }

    #[test]
    fn what_is_instantiated_twice_counts_twice_and_what_is_not_does_not() {
        let one = "(core module $m (memory 2) (table 3 funcref)) (core instance (instantiate $m))";
        let component = format!("(component $c {one} (core instance (instantiate $m)))");
        let twice = format!("(component {component} (instance (instantiate $c)) (instance (instantiate $c)))");
        let expected = Needs { core_instances: 4, memories: 4, memory_bytes: 8 << 16, tables: 4, table_entries: 12 };
        assert_eq!(needs(&twice), expected);
        assert_eq!(needs(&format!("(component {component})")), Needs::default());
    }

    #[test]
    fn a_component_that_comes_elsewhere_counts_as_the_heaviest_one() {
        let outer = "(component
            (component $c (core module $m (memory 2)) (core instance (instantiate $m)))
            (component $d (alias outer 1 $c (component $e)) (instance (instantiate $e)))
            (instance (instantiate $d)))";
        assert_eq!(needs(outer), Needs { core_instances: 1, memories: 1, memory_bytes: 2 << 16, ..Needs::default() });
    }
}
