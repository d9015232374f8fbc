//! Proof that the protocol asks nothing of its surroundings: built for `wasm32-unknown-unknown` with nothing thrown
//! away, it imports nothing.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::figure::{Figure, Figures, Op};
use crate::product::target_directory;

/// Fewer functions than this would mean that the linker threw the protocol away and nothing was proved.
const LEAST_FUNCTIONS: f64 = 300.0;

/// Runs it.
pub(crate) fn run() -> Result<()> {
    let target = target_directory()?.join("xtask/protocol-wasm");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["rustc", "--quiet", "--package", "tidegate-protocol", "--lib", "--crate-type", "cdylib"])
        .args(["--target", "wasm32-unknown-unknown", "--target-dir"])
        .arg(&target)
        .args(["--", "-Clink-dead-code", "-Clink-arg=--no-gc-sections"])
        .current_dir(crate::workspace())
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "the protocol does not build (missing target? rustup target add wasm32-unknown-unknown)");
    let path = target.join("wasm32-unknown-unknown/debug/tidegate_protocol.wasm");
    let module = std::fs::read(&path).with_context(|| format!("the build left no `{}`", path.display()))?;
    let counts = count(&module)?;
    if !counts.imports.is_empty() {
        eprintln!("the protocol imports: {}", counts.imports.join(", "));
    }
    let mut figures = Figures::default();
    figures.show(Figure::new("protocol-wasm-functions", counts.functions as f64, Op::AtLeast, LEAST_FUNCTIONS))?;
    figures.show(Figure::new("protocol-wasm-imports", counts.imports.len() as f64, Op::Exactly, 0.0))?;
    figures.verdict()
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    /// `module.name` of each import.
    imports: Vec<String>,
    /// Functions with a body whose name says that they are the protocol's.
    functions: u64,
}

/// Reads as much of a module as is needed: the import section and the functions' names.
fn count(module: &[u8]) -> Result<Counts> {
    ensure!(module.starts_with(b"\0asm\x01\0\0\0"), "not a WebAssembly module");
    let mut reader = Reader(&module[8..]);
    let mut counts = Counts::default();
    while !reader.0.is_empty() {
        let id = reader.byte()?;
        let size = reader.number()?;
        let mut section = Reader(reader.take(size)?);
        match id {
            2 => {
                for _ in 0..section.number()? {
                    counts.imports.push(section.import()?);
                }
            }
            0 if section.name()? == "name" => counts.functions += section.protocol_names()?,
            _ => {}
        }
    }
    Ok(counts)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Result<u8> {
        let (first, rest) = self.0.split_first().context("the module is cut short")?;
        self.0 = rest;
        Ok(*first)
    }

    fn take(&mut self, size: u64) -> Result<&'a [u8]> {
        let size = usize::try_from(size)?;
        ensure!(size <= self.0.len(), "the module is cut short");
        let (taken, rest) = self.0.split_at(size);
        self.0 = rest;
        Ok(taken)
    }

    /// An unsigned LEB128 number.
    fn number(&mut self) -> Result<u64> {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
            shift += 7;
            ensure!(shift < 63, "a number is too long");
        }
    }

    fn name(&mut self) -> Result<String> {
        let size = self.number()?;
        Ok(String::from_utf8_lossy(self.take(size)?).into_owned())
    }

    fn import(&mut self) -> Result<String> {
        let name = format!("{}.{}", self.name()?, self.name()?);
        match self.byte()? {
            0 => {
                self.number()?;
            }
            1 => {
                self.byte()?;
                self.limits()?;
            }
            2 => self.limits()?,
            3 => {
                self.take(2)?;
            }
            kind => bail!("`{name}` is an import of the unknown kind {kind}"),
        }
        Ok(name)
    }

    /// In a section of names: how many functions are the protocol's.
    fn protocol_names(&mut self) -> Result<u64> {
        let mut found = 0;
        while !self.0.is_empty() {
            let kind = self.byte()?;
            let size = self.number()?;
            let mut names = Reader(self.take(size)?);
            if kind == 1 {
                for _ in 0..names.number()? {
                    names.number()?;
                    found += u64::from(names.name()?.contains("tidegate_protocol"));
                }
            }
        }
        Ok(found)
    }

    fn limits(&mut self) -> Result<()> {
        let flags = self.byte()?;
        self.number()?;
        if flags & 1 == 1 {
            self.number()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_and_functions_are_counted() {
        let mut module = b"\0asm\x01\0\0\0".to_vec();
        // One type, an imported function `m.f`, an imported memory `m.g`, and the names of two functions.
        module.extend(b"\x01\x04\x01\x60\0\0\x02\x0e\x02\x01m\x01f\0\0\x01m\x01g\x02\0\x01");
        module.extend(b"\0\x20\x04name\x01\x19\x02\0\x01f\x01\x13tidegate_protocol:g");
        let counts = count(&module).expect("the module is whole");
        assert_eq!(counts, Counts { imports: vec!["m.f".to_owned(), "m.g".to_owned()], functions: 1 });
        assert!(count(&module[..16]).is_err());
        assert!(count(b"#!/bin/sh").is_err());
    }
}
