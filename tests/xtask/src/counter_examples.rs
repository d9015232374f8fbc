//! The counter-examples of `tests/model`: each is impossible while its rule stands, and breaks the promise that it names,
//! and no other one, when that rule is taken out.
//!
//! The model takes rules of the environment out by itself. Each rule of the protocol is a patch, with which the model is
//! built once more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::figure::{Figure, Figures, Op};
use crate::model::PACKAGE;
use crate::mutants::copy::{Build, Copy};
use crate::mutants::patch::Mutant;
use crate::proof::{self, Said};

/// Rules of the protocol, each as the patch that takes it out.
const RULES: &str = "tests/model/rules";
/// So many counter-examples shaped the design; some have several forms.
const COUNTER_EXAMPLES: u64 = 12;

pub(crate) fn run(figures: &mut Figures) -> Result<()> {
    let began = Instant::now();
    let tree = crate::workspace();
    let rules = Mutant::all(&tree.join(RULES))?;
    let mut explored = told(&proof::run(PACKAGE, &["--counter-examples".to_owned()])?)?;
    let used: BTreeSet<&str> = explored.iter().filter_map(|one| one.patch.as_deref()).collect();
    let there: BTreeSet<&str> = rules.iter().map(|rule| rule.name.as_str()).collect();
    ensure!(used == there, "`{RULES}` has {there:?}, and the counter-examples use {used:?}");
    let copy = Copy::of_model(&tree, &crate::product::target_directory()?)?;
    for rule in &rules {
        let before = copy.plant(rule)?;
        let arguments = ["--taken-out".to_owned(), rule.name.clone()];
        let said = copy.build(&Build::Program(PACKAGE)).and_then(|program| proof::run_program(&program, &arguments));
        copy.clean(&before)?;
        explored.extend(said.and_then(|said| told(&said)).with_context(|| format!("rule `{}`", rule.name))?);
    }
    let promised = rules.iter().map(|rule| (rule.name.clone(), rule.breaks.clone())).collect();
    let tally = tally(&explored, &promised);
    for fault in &tally.faults {
        eprintln!("{fault}");
    }
    let count = |number: usize| number as f64;
    figures.show(Figure::new("model-counter-examples", count(tally.shown), Op::Exactly, COUNTER_EXAMPLES as f64))?;
    figures.show(Figure::new(
        "model-counter-example-forms",
        count(tally.forms_shown),
        Op::Exactly,
        count(tally.forms),
    ))?;
    figures.show(Figure::new("model-counter-examples-seconds", began.elapsed().as_secs_f64(), Op::AtLeast, 0.0))
}

/// One exploration of a counter-example, with its rule or without.
#[derive(Debug, Clone)]
struct Explored {
    name: String,
    number: u64,
    breaks: String,
    patch: Option<String>,
    taken_out: bool,
    /// The promise that was broken.
    broken: Option<String>,
    /// It came out as it must, says the model.
    holds: bool,
}

fn told(said: &Said) -> Result<Vec<Explored>> {
    for violation in &said.violations {
        eprintln!("{violation}");
    }
    let list = said.summary.get("counter-examples").and_then(Value::as_array);
    let list = list.filter(|list| !list.is_empty()).context("the model explored no counter-example")?;
    list.iter().map(|one| explored(one).with_context(|| format!("not as agreed: {one}"))).collect()
}

fn explored(one: &Value) -> Option<Explored> {
    let text = |key: &str| one.get(key).and_then(Value::as_str).map(str::to_owned);
    Some(Explored {
        name: text("name")?,
        number: one.get("number")?.as_u64()?,
        breaks: text("breaks")?,
        patch: text("patch"),
        taken_out: one.get("taken-out")?.as_bool()?,
        broken: text("broken"),
        holds: one.get("holds")?.as_bool()?,
    })
}

#[derive(Debug, PartialEq, Eq)]
struct Tally {
    /// Numbers of the design of which every form was shown.
    shown: usize,
    forms_shown: usize,
    forms: usize,
    faults: Vec<String>,
}

/// Which were shown in both ways. `promised` is what the patches say that they break.
fn tally(explored: &[Explored], promised: &BTreeMap<String, String>) -> Tally {
    let mut forms: BTreeMap<&str, (u64, Vec<String>)> = BTreeMap::new();
    for one in explored {
        let (_, faults) = forms.entry(&one.name).or_insert((one.number, Vec::new()));
        let rule = if one.taken_out { "without its rule" } else { "with its rule" };
        let expected = one.taken_out.then_some(&one.breaks);
        if !one.holds || one.broken.as_ref() != expected {
            faults.push(format!("{rule} {:?} is broken", one.broken));
        }
        if one.patch.as_ref().is_some_and(|patch| promised.get(patch) != Some(&one.breaks)) {
            faults.push(format!("its patch does not say that it breaks {}", one.breaks));
        }
    }
    for (name, (_, faults)) in &mut forms {
        for taken_out in [false, true] {
            if !explored.iter().any(|one| one.name == *name && one.taken_out == taken_out) {
                faults.push(format!("it was not explored {}", if taken_out { "without its rule" } else { "with it" }));
            }
        }
    }
    let all: BTreeSet<u64> = forms.values().map(|(number, _)| *number).collect();
    let bad: BTreeSet<u64> =
        forms.values().filter(|(_, faults)| !faults.is_empty()).map(|(number, _)| *number).collect();
    Tally {
        shown: all.difference(&bad).count(),
        forms_shown: forms.values().filter(|(_, faults)| faults.is_empty()).count(),
        forms: forms.len(),
        faults: forms
            .iter()
            .flat_map(|(name, (_, faults))| faults.iter().map(move |fault| format!("counter-example {name}: {fault}")))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_can_be_taken_out_of_the_tree() {
        let tree = crate::workspace();
        let rules = Mutant::all(&tree.join(RULES)).expect("all can be read");
        assert!(!rules.is_empty());
        for rule in rules {
            rule.planted(&tree).unwrap_or_else(|error| panic!("{error:#}"));
        }
    }

    fn one(name: &str, taken_out: bool, broken: Option<&str>) -> Explored {
        Explored {
            name: name.to_owned(),
            number: 12,
            breaks: "P1".to_owned(),
            patch: Some("12-x".to_owned()),
            taken_out,
            broken: broken.map(str::to_owned),
            holds: true,
        }
    }

    fn of(explored: &[Explored], says: &str) -> (usize, usize, usize) {
        let tally = tally(explored, &BTreeMap::from([("12-x".to_owned(), says.to_owned())]));
        assert_eq!(tally.faults.is_empty(), tally.forms == tally.forms_shown, "{tally:?}");
        (tally.shown, tally.forms_shown, tally.forms)
    }

    #[test]
    fn a_counter_example_counts_when_it_is_shown_in_both_ways_and_all_its_forms() {
        let (with, without) = (one("12-a", false, None), one("12-a", true, Some("P1")));
        let both = [with.clone(), without.clone()];
        assert_eq!(of(&both, "P1"), (1, 1, 1));
        assert_eq!(of(&both, "P2"), (0, 0, 1), "the patch says something else");
        assert_eq!(of(&both[..1], "P1"), (0, 0, 1), "the rule was not taken out");
        assert_eq!(of(&both[1..], "P1"), (0, 0, 1), "nobody looked with the rule in place");
        for bad in [one("12-a", true, Some("P6")), one("12-a", true, None), one("12-a", false, Some("P1"))] {
            assert_eq!(of(&[with.clone(), without.clone(), bad.clone()], "P1"), (0, 0, 1), "{bad:?}");
        }
        let cut_short = Explored { holds: false, ..with.clone() };
        assert_eq!(of(&[cut_short, without.clone()], "P1"), (0, 0, 1));
        assert_eq!(of(&[with, without, one("12-b", false, None)], "P1"), (0, 1, 2), "the other form is missing");
    }
}
