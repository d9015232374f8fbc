//! How large and how intricate a component may be, before anything but a reader of its sections has seen it.
//!
//! What a trivial sink has when componentize-js 0.23 or componentize-py 0.25 made it, beside the default:
//!
//! | | JavaScript | Python | default |
//! |---|---|---|---|
//! | core modules, instances of them | 4, 4 | 14, 14 | 64, 128 |
//! | imports, exports | 234, 134 | 2,439, 4,300 | 20,000, 50,000 |
//! | functions | 12,789 | 13,417 | 200,000 |
//! | bytes of the largest function | 171,628 | 426,843 | 2 MiB |
//! | variables of one function, of all | 118, 51,995 | 271, 48,025 | 20,000, 5,000,000 |
//! | blocks within each other | 456 | 781 | 5,000 |
//! | targets of one branch table | 453 | 3,202 | 20,000 |
//! | data segments | 10,000 | 1,963 | 50,000 |
//! | elements | 7,777 | 5,817 | 500,000 |

use std::fmt;

/// Bounds on the structure of a component, summed over all that is nested in it unless said otherwise. The defaults let
/// in what toolchains make of JavaScript and Python, several times over; what they keep out costs a compiler or an
/// instance much more than its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComponentCaps {
    /// Core modules.
    pub core_modules: u64,
    /// Components within it.
    pub components: u64,
    /// Components within each other.
    pub depth: u64,
    /// Types of components and of core modules.
    pub types: u64,
    /// Bytes of the types of components.
    pub component_type_bytes: u64,
    /// Imports of components and of core modules.
    pub imports: u64,
    /// Exports of components and of core modules.
    pub exports: u64,
    /// Bytes of one name of an import, an export or an argument.
    pub name_bytes: u64,
    /// Aliases, lifted and lowered functions, and arguments of instances.
    pub definitions: u64,
    /// Functions of core modules.
    pub functions: u64,
    /// Bytes of one function's body.
    pub function_bytes: u64,
    /// Local variables of one function.
    pub locals: u64,
    /// Local variables of all functions together.
    pub total_locals: u64,
    /// Blocks of one function that lie in each other.
    pub block_depth: u64,
    /// Targets of one branch table.
    pub branch_targets: u64,
    /// Targets of all branch tables of one function together.
    pub function_branch_targets: u64,
    /// Globals.
    pub globals: u64,
    /// Data segments.
    pub data_segments: u64,
    /// Bytes of all data segments.
    pub data_bytes: u64,
    /// Element segments.
    pub element_segments: u64,
    /// Items of all element segments.
    pub elements: u64,
    /// Bytes of all custom sections: names of functions, what made it.
    pub custom_bytes: u64,
    /// Core modules that are instantiated together with it. A module that is instantiated twice counts twice, and so for
    /// what an instance has.
    pub core_instances: u64,
    /// Memories of an instance.
    pub memories: u64,
    /// Least sizes of all memories of an instance, in bytes.
    pub memory_bytes: u64,
    /// Tables of an instance.
    pub tables: u64,
    /// Least sizes of all tables of an instance, in entries.
    pub table_entries: u64,
}

impl Default for ComponentCaps {
    fn default() -> Self {
        Self {
            core_modules: 64,
            components: 64,
            depth: 8,
            types: 50_000,
            component_type_bytes: 1 << 20,
            imports: 20_000,
            exports: 50_000,
            name_bytes: 16 << 10,
            definitions: 50_000,
            functions: 200_000,
            function_bytes: 2 << 20,
            locals: 20_000,
            total_locals: 5_000_000,
            block_depth: 5_000,
            branch_targets: 20_000,
            function_branch_targets: 100_000,
            globals: 50_000,
            data_segments: 50_000,
            data_bytes: 64 << 20,
            element_segments: 20_000,
            elements: 500_000,
            custom_bytes: 32 << 20,
            core_instances: 128,
            memories: 32,
            memory_bytes: 1 << 30,
            tables: 64,
            table_entries: 1_000_000,
        }
    }
}

/// A figure of a component that is above its cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Excess {
    /// What there is too much of, as in "5 functions".
    pub what: &'static str,
    /// How much of it was counted; counting ends where it is too much.
    pub found: u64,
    /// How much of it may be there.
    pub max: u64,
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} or more; at most {} are accepted", self.found, self.what, self.max)
    }
}
