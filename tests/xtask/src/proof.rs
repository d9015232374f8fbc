//! The programs of the proof: built in the profile made for them, run, and asked for their summary.
//!
//! Each talks on standard error, prints one line of JSON for each violation and, last, one line that sums up, on
//! standard output. It exits with 1 when it found something; then the summary is there all the same. It exits with 2
//! when it was asked for what makes no sense, and then there is none.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value};

use crate::product::target_directory;

/// With this code a program ends that was asked for what is not there, or cannot be done.
const MADE_NO_SENSE: i32 = 2;

/// What a program of the proof said.
#[derive(Debug)]
pub(crate) struct Said {
    /// Each names at least the `promise` that was broken.
    pub(crate) violations: Vec<Value>,
    /// What it counted, by name.
    pub(crate) summary: Map<String, Value>,
}

impl Said {
    /// A number of the summary.
    pub(crate) fn number(&self, name: &str) -> Result<f64> {
        let value = self.summary.get(name).and_then(Value::as_f64);
        value.with_context(|| format!("the summary has no number `{name}`: {:?}", self.summary))
    }
}

/// Builds the program of this package, and says where it is.
pub(crate) fn program(package: &str) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--profile", "proof", "--quiet", "--package", package])
        .current_dir(crate::workspace())
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "`cargo build --profile proof --package {package}` failed");
    let path = target_directory()?.join("proof").join(package);
    ensure!(path.is_file(), "the build left no `{}`", path.display());
    Ok(path)
}

/// Builds a program of the proof and runs it to its end.
pub(crate) fn run(package: &str, arguments: &[String]) -> Result<Said> {
    run_program(&program(package)?, arguments)
}

/// Runs a program that speaks like those of the proof to its end.
pub(crate) fn run_program(program: &Path, arguments: &[String]) -> Result<Said> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(crate::workspace())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{}`", program.display()))?;
    if output.status.code() == Some(MADE_NO_SENSE) {
        bail!("`{}` could not do what was asked for, and says above why", program.display());
    }
    let said = read(&String::from_utf8_lossy(&output.stdout))
        .with_context(|| format!("`{} {}` ended with {}", program.display(), arguments.join(" "), output.status))?;
    ensure!(
        output.status.success() || !said.violations.is_empty(),
        "`{} {}` ended with {} and told of no violation",
        program.display(),
        arguments.join(" "),
        output.status
    );
    Ok(said)
}

fn read(output: &str) -> Result<Said> {
    let lines = output.lines().map(serde_json::from_str::<Value>);
    let mut lines: Vec<Value> = lines.collect::<Result<_, _>>().context("its output is not all lines of JSON")?;
    let Some(Value::Object(summary)) = lines.pop() else { bail!("it printed no summary") };
    ensure!(!summary.contains_key("promise"), "it ended before its summary");
    ensure!(lines.iter().all(|line| line.get("promise").is_some()), "a violation names no promise");
    Ok(Said { violations: lines, summary })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_comes_last_and_violations_name_their_promise() {
        let said = read("{\"promise\":\"P5\",\"seed\":7}\n{\"seeds\":12}\n").expect("as agreed");
        assert_eq!((said.violations.len(), said.number("seeds").expect("a number")), (1, 12.0));
        assert!(said.number("epochs").is_err());
    }

    #[test]
    fn output_that_breaks_off_is_refused() {
        for output in ["", "{\"promise\":\"P1\"}\n", "{\"seed\":7}\n{\"seeds\":1}\n", "words\n{\"seeds\":1}\n"] {
            assert!(read(output).is_err(), "{output:?}");
        }
    }
}
