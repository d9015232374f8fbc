//! Planted bugs: each is built into a copy of the source, and one of the checks must name the promise that it breaks.
//!
//! A unit test, a panic, a debug assertion or a pipeline that hangs is no finding: what counts is that an oracle of
//! P1 to P12 speaks. First the source as it is must pass the same checks: one that finds fault with it finds nothing.

mod checks;
pub(crate) mod copy;
pub(crate) mod patch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::figure::{Figure, Figures, Op};
use checks::{Check, Verdict};
use copy::{Build, Copy};
use patch::Mutant;

/// Where the patches are.
const FOLDER: &str = "tests/mutants";

#[derive(Debug, Default, Args)]
pub(crate) struct Arguments {
    /// Only mutants whose names contain this, as often as it is given.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Only every Nth mutant, beginning with the Kth, such as 2/3.
    #[arg(long, value_name = "K/N")]
    share: Option<Share>,
    /// Only this check (known-bugs, simulate, model, sweep), as often as it is given.
    #[arg(long, value_name = "CHECK", value_parser = checks::known)]
    check: Vec<String>,
    /// Only build each.
    #[arg(long, conflicts_with = "check")]
    build_only: bool,
}

/// The Kth of N shares.
#[derive(Debug, Clone, Copy)]
struct Share {
    which: usize,
    of: usize,
}

impl FromStr for Share {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("`{text}` is no share: expected K/N with K from 1 to N");
        let (which, of) = text.split_once('/').ok_or_else(expected)?;
        let (which, of) = (which.parse().map_err(|_| expected())?, of.parse().map_err(|_| expected())?);
        if (1..=of).contains(&which) { Ok(Self { which, of }) } else { Err(expected()) }
    }
}

impl Arguments {
    fn chosen(&self, all: Vec<Mutant>) -> Result<Vec<Mutant>> {
        for name in &self.only {
            let known = || all.iter().map(|mutant| mutant.name.as_str()).collect::<Vec<_>>().join(", ");
            let there = all.iter().any(|mutant| mutant.name.contains(name));
            ensure!(there, "no mutant has `{name}` in its name; there are: {}", known());
        }
        let named = |mutant: &Mutant| self.only.is_empty() || self.only.iter().any(|name| mutant.name.contains(name));
        let shared = |at: usize| self.share.is_none_or(|share| at % share.of == share.which - 1);
        let chosen = all.into_iter().filter(named).enumerate().filter(|(at, _)| shared(*at));
        let chosen: Vec<Mutant> = chosen.map(|(_, mutant)| mutant).collect();
        ensure!(!chosen.is_empty(), "this share of so few mutants is empty: with it nothing would be planted");
        Ok(chosen)
    }

    fn checks(&self, first: &[String]) -> Vec<&'static Check> {
        let wanted = |check: &&Check| self.check.is_empty() || self.check.iter().any(|name| name == check.name);
        checks::in_order(first).into_iter().filter(wanted).collect()
    }

    fn all(&self) -> bool {
        self.only.is_empty() && self.share.is_none() && self.check.is_empty()
    }
}

/// What became of one mutant.
struct Fate {
    name: String,
    /// By which check, and the promise that it named.
    caught: Option<(&'static str, String)>,
    seconds: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let began = Instant::now();
    let tree = crate::workspace();
    let mutants = arguments.chosen(Mutant::all(&tree.join(FOLDER))?)?;
    let copy = Copy::of(&tree, &crate::product::target_directory()?)?;
    if arguments.build_only {
        return build_all(&copy, &mutants);
    }
    let mut programs = Programs::default();
    // Every check must pass without a bug: those that come first, before anything; the others once they were used.
    let first = |mutant: &Mutant| arguments.checks(&mutant.tries).first().map(|check| check.name);
    let first: BTreeSet<&str> = mutants.iter().filter_map(first).collect();
    clean(&copy, &mut programs, &first)?;

    let mut used = BTreeSet::new();
    let mut fates = Vec::new();
    for mutant in &mutants {
        let before = copy.plant(mutant)?;
        programs.forget();
        let checks = arguments.checks(&mutant.tries);
        let fate = fate(mutant, &copy, &mut programs, &checks, &mut used)
            .with_context(|| format!("mutant `{}`", mutant.name))?;
        copy.clean(&before)?;
        fates.push(fate);
    }
    programs.forget();
    clean(&copy, &mut programs, &used.difference(&first).copied().collect())?;
    tell(&fates);
    figures(arguments, &mutants, &fates, began.elapsed().as_secs_f64())
}

/// Programs built of the source as it is at the moment.
#[derive(Default)]
struct Programs(BTreeMap<Build, PathBuf>);

impl Programs {
    fn get(&mut self, build: &Build, copy: &Copy) -> Result<PathBuf> {
        if let Some(path) = self.0.get(build) {
            return Ok(path.clone());
        }
        let path = copy.build(build)?;
        self.0.insert(build.clone(), path.clone());
        Ok(path)
    }

    fn forget(&mut self) {
        self.0.clear();
    }
}

/// Whether each compiles, and how long that takes.
fn build_all(copy: &Copy, mutants: &[Mutant]) -> Result<()> {
    let mut broken = Vec::new();
    for mutant in mutants {
        let began = Instant::now();
        let before = copy.plant(mutant)?;
        let built = copy.build(&Build::Program("tidegate-simulation"));
        copy.clean(&before)?;
        eprintln!("{}: {:.1} s", mutant.name, began.elapsed().as_secs_f64());
        if let Err(error) = built {
            eprintln!("{error:#}");
            broken.push(mutant.name.clone());
        }
    }
    ensure!(broken.is_empty(), "these do not compile: {}", broken.join(", "));
    Ok(())
}

/// These checks pass without any bug planted.
fn clean(copy: &Copy, programs: &mut Programs, names: &BTreeSet<&str>) -> Result<()> {
    for check in checks::in_order(&[]).into_iter().filter(|check| names.contains(check.name)) {
        let began = Instant::now();
        let program = programs.get(&check.build, copy)?;
        let built = began.elapsed().as_secs_f64();
        match check.run(&program, copy.folder(), "")? {
            Verdict::Clean => {
                let all = began.elapsed().as_secs_f64();
                eprintln!("nothing planted: {} finds nothing, {all:.0} s ({built:.0} s to build)", check.name);
            }
            Verdict::Broken { line, .. } => bail!("{} finds fault with the source as it is: {line}", check.name),
            Verdict::Otherwise(why) => bail!("{}, with nothing planted: {why}", check.name),
        }
    }
    Ok(())
}

fn fate(
    mutant: &Mutant,
    copy: &Copy,
    programs: &mut Programs,
    checks: &[&'static Check],
    used: &mut BTreeSet<&'static str>,
) -> Result<Fate> {
    let began = Instant::now();
    eprintln!("{}: {}", mutant.name, mutant.plants);
    let mut caught = None;
    for check in checks {
        let program = programs.get(&check.build, copy)?;
        used.insert(check.name);
        let ran = Instant::now();
        let verdict = check.run(&program, copy.folder(), &mutant.breaks)?;
        let seconds = ran.elapsed().as_secs_f64();
        match verdict {
            Verdict::Broken { promise, line } => {
                eprintln!("  {} after {seconds:.1} s: {}", check.name, shown(&line));
                if promise != mutant.breaks {
                    eprintln!("  ({} was expected)", mutant.breaks);
                }
                caught = Some((check.name, promise));
                break;
            }
            Verdict::Clean => eprintln!("  {}: nothing found, {seconds:.1} s", check.name),
            Verdict::Otherwise(why) => eprintln!("  {}: no finding: {why}", check.name),
        }
    }
    if caught.is_none() {
        eprintln!("  SURVIVED, though it goes against: {}", mutant.rule);
    }
    Ok(Fate { name: mutant.name.clone(), caught, seconds: began.elapsed().as_secs_f64() })
}

fn shown(line: &str) -> String {
    const SHOWN: usize = 400;
    line.chars().take(SHOWN).collect()
}

fn tell(fates: &[Fate]) {
    eprintln!("\n{:<55} {:<11} {:<7} {:>7}", "mutant", "caught by", "promise", "seconds");
    for Fate { name, caught, seconds } in fates {
        let (by, promise) = caught.as_ref().map_or(("SURVIVED", "-"), |(by, promise)| (*by, promise.as_str()));
        eprintln!("{name:<55} {by:<11} {promise:<7} {seconds:>7.1}");
    }
}

fn figures(arguments: &Arguments, mutants: &[Mutant], fates: &[Fate], seconds: f64) -> Result<()> {
    let (planted, known) = if arguments.all() { (40.0, 20.0) } else { (1.0, 0.0) };
    let bugs: BTreeSet<String> = mutants.iter().filter_map(Mutant::known_bug).collect();
    let survived = fates.iter().filter(|fate| fate.caught.is_none()).count();
    let slowest = fates.iter().map(|fate| fate.seconds).fold(0.0, f64::max);
    let mut figures = Figures::default();
    figures.show(Figure::new("mutants-planted", fates.len() as f64, Op::AtLeast, planted))?;
    figures.show(Figure::new("mutants-of-known-bugs", bugs.len() as f64, Op::AtLeast, known))?;
    figures.show(Figure::new("mutants-survived", survived as f64, Op::Exactly, 0.0))?;
    figures.show(Figure::new("mutants-slowest-seconds", slowest, Op::AtMost, 600.0))?;
    figures.show(Figure::new("mutants-seconds", seconds, Op::AtMost, 3600.0))?;
    figures.verdict()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_every_mutant_once_and_what_names_none_is_refused() {
        let mutant = |n: usize| {
            let text = "Plants: x\nRule: y\nBreaks: P1\nTry: model\n\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n";
            Mutant::parse(&format!("{n:02}-x"), text).expect("a mutant")
        };
        let chosen = |share: &str| {
            let arguments =
                Arguments { only: Vec::new(), share: Some(share.parse().expect("a share")), ..Arguments::default() };
            let chosen = arguments.chosen((0..10).map(mutant).collect()).expect("there are some");
            chosen.into_iter().map(|mutant| mutant.name).collect::<Vec<_>>()
        };
        let mut all = [chosen("1/3"), chosen("2/3"), chosen("3/3")].concat();
        all.sort();
        assert_eq!(all.len(), 10);
        assert_eq!(chosen("1/3"), ["00-x", "03-x", "06-x", "09-x"]);
        let named = |only: &[&str], share: Option<&str>| {
            let only = only.iter().map(|name| (*name).to_owned()).collect();
            let share = share.map(|share| share.parse().expect("a share"));
            Arguments { only, share, ..Arguments::default() }.chosen((0..10).map(mutant).collect())
        };
        assert_eq!(named(&["03", "07"], None).expect("both are there").len(), 2);
        // Each name must be there: of two, a wrong one would go unnoticed.
        let error = named(&["03", "nonsense"], None).expect_err("one is not").to_string();
        assert!(error.contains("`nonsense`") && error.contains("09-x"), "{error}");
        assert!(named(&["03"], Some("2/2")).is_err());
        assert!("0/3".parse::<Share>().is_err() && "4/3".parse::<Share>().is_err() && "1".parse::<Share>().is_err());
    }
}
