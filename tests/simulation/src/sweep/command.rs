//! `sweep` on the command line.

use std::fmt::Write as _;
use std::time::Instant;

use serde_json::json;

use super::effect::{Between, Mode};
use super::execution::{self, Plan};
use super::modes::modes;
use super::points::{Hits, Point, points};
use super::scenario::{self, SCENARIOS, Scenario};
use super::sweeping::{self, Extent, Summary, Violation};
use crate::said::{print, say};

const USAGE: &str = "sweep [--quick] [--scenario NAME] [--seed N] [--threads N]
sweep --scenario NAME --effect N [--mode MODE] [--image K] [--again M[,M]]   one alone, with its whole trace";

/// More threads than this help nobody.
const MOST_THREADS: u64 = 256;

/// What was asked for.
#[derive(Debug, Default)]
struct Arguments {
    quick: bool,
    scenario: Option<String>,
    effect: Option<u64>,
    mode: Option<String>,
    image: Option<usize>,
    again: Vec<u64>,
    seed: Option<u64>,
    threads: Option<usize>,
}

fn parse(given: &[String]) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    let mut words = given.iter();
    while let Some(word) = words.next() {
        if word == "--quick" {
            arguments.quick = true;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("`{word}` needs a value, or is not known\n{USAGE}"))?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("`{word}` needs a number, not `{text}`"));
        let some = |number: u64| if number == 0 { Err(format!("`{word}` counts from 1")) } else { Ok(number) };
        match word.as_str() {
            "--scenario" => arguments.scenario = Some(value.clone()),
            "--effect" => arguments.effect = Some(some(number(value)?)?),
            "--mode" => arguments.mode = Some(value.clone()),
            "--image" => arguments.image = Some(number(value)? as usize),
            "--again" => arguments.again = value.split(',').map(number).collect::<Result<_, _>>()?,
            "--seed" => arguments.seed = Some(number(value)?),
            "--threads" => arguments.threads = Some(some(number(value)?)?.min(MOST_THREADS) as usize),
            _ => return Err(format!("`{word}` is not known\n{USAGE}")),
        }
    }
    let of_one = arguments.mode.is_some() || arguments.image.is_some() || !arguments.again.is_empty();
    if arguments.effect.is_none() && of_one {
        return Err(format!("`--mode`, `--image` and `--again` are about one effect: name it with --effect\n{USAGE}"));
    }
    if arguments.again.len() > 2 {
        return Err("`--again` takes at most two numbers: crashes nest twice".to_owned());
    }
    Ok(arguments)
}

/// Does what is asked. True if everything holds.
///
/// # Errors
/// What is asked makes no sense, or cannot be done.
pub fn command(given: &[String]) -> Result<bool, String> {
    let arguments = parse(given)?;
    // A plugin that panics is part of the sweep, and need not be told of.
    std::panic::set_hook(Box::new(|_| {}));
    let chosen: Vec<&'static Scenario> = match &arguments.scenario {
        Some(name) => {
            let names: Vec<_> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
            let found = scenario::named(name);
            vec![found.ok_or_else(|| format!("there is no scenario `{name}`; there are {}", names.join(", ")))?]
        }
        None => SCENARIOS.iter().collect(),
    };
    match (arguments.effect, chosen.as_slice()) {
        (Some(effect), [scenario]) => one(scenario, effect, &arguments),
        (Some(_), _) => Err("one effect is of one scenario: name it with --scenario".to_owned()),
        (None, _) => all(&chosen, &arguments),
    }
}

fn all(chosen: &[&'static Scenario], arguments: &Arguments) -> Result<bool, String> {
    let threads = arguments.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let extent = Extent { quick: arguments.quick, threads, seed: arguments.seed.unwrap_or(1) };
    let began = Instant::now();
    let points = points();
    let mut total = Summary::default();
    for scenario in chosen {
        let since = Instant::now();
        let summary = sweeping::sweep(scenario, extent).map_err(|why| format!("{}: {why}", scenario.name))?;
        say(format!(
            "{:<15} {:>6} effects {:>8} recoveries {:>8} images {:>5} violations {:>6.1} s{}",
            scenario.name,
            summary.effects,
            summary.recoveries,
            summary.images,
            summary.broken,
            since.elapsed().as_secs_f64(),
            if summary.clean == 1 { "" } else { "  NO CLEAN PASS" },
        ));
        say(format!("  {}", scenario.about));
        summary.violations.iter().for_each(tell);
        total = joined(total, summary);
    }
    say(table(&points, &total.hits));
    let whole = arguments.scenario.is_none();
    let least = total.hits.least(&points);
    let clean = total.clean == chosen.len() as u64;
    let holds = total.broken == 0 && clean && (least > 0 || !whole);
    if whole {
        for name in missed(&points, &total.hits) {
            say(format!("never hit: {name}"));
            print(json!({"promise": "sweep", "what": format!("{name} was never hit")}));
        }
    }
    if !clean {
        print(json!({"promise": "sweep", "what": "a scenario did not end with a clean pass"}));
    }
    let hits: serde_json::Map<String, serde_json::Value> = total
        .hits
        .0
        .iter()
        .map(|((name, category, label), hits)| (form(name, category.as_str(), label), json!(hits)))
        .collect();
    print(json!({
        "scenarios": chosen.len(),
        "clean-passes": total.clean,
        "effects": total.effects,
        "recoveries": total.recoveries,
        "images": total.images,
        "failure-points-minimum-hits": least,
        "violations": total.broken,
        "seconds": began.elapsed().as_secs_f64(),
        "by-mode": total.by_mode,
        "hits": hits,
    }));
    Ok(holds)
}

fn joined(mut one: Summary, other: Summary) -> Summary {
    one.join(other);
    one
}

fn form(name: &str, category: &str, label: &str) -> String {
    if label.is_empty() { format!("{name} {category}") } else { format!("{name} {category} ({label})") }
}

fn missed(points: &[Point], hits: &Hits) -> Vec<String> {
    let forms = points.iter().flat_map(|point| point.forms.iter().map(move |form| (point, form)));
    let never = forms.filter(|(point, form)| hits.of(point, form) == 0);
    never.map(|(point, f)| form(point.name, f.category.as_str(), f.label)).collect()
}

/// A line per point: how often each of its forms was hit.
fn table(points: &[Point], hits: &Hits) -> String {
    let mut text = String::new();
    for point in points {
        let forms: Vec<String> = point
            .forms
            .iter()
            .map(|f| {
                let label = if f.label.is_empty() { String::new() } else { format!(" ({})", f.label) };
                format!("{}{label} {}", f.category.as_str(), hits.of(point, f))
            })
            .collect();
        // Writing into a string does not fail.
        let _ = writeln!(text, "{:<4} {:<62} {}", point.name, point.what, forms.join(", "));
    }
    text
}

fn again(violation: &Violation) -> String {
    let mut line = format!(
        "sweep --scenario {} --effect {} --mode {}",
        violation.scenario, violation.plan.effect, violation.plan.mode
    );
    if let Some(image) = violation.image {
        let _ = write!(line, " --image {image}");
    }
    let more: Vec<String> = violation.plan.again.iter().flatten().map(ToString::to_string).collect();
    if !more.is_empty() {
        let _ = write!(line, " --again {}", more.join(","));
    }
    line
}

/// The end of the trace is where it went wrong.
const SHOWN: usize = 60;

fn tell(violation: &Violation) {
    let mut text = format!("VIOLATION: {}\n", again(violation));
    for what in &violation.what {
        let _ = writeln!(text, "  {what}");
    }
    let from = violation.trace.iter().position(|line| line.starts_with("**")).unwrap_or(0).saturating_sub(SHOWN / 4);
    for line in violation.trace[from..].iter().take(SHOWN) {
        let _ = writeln!(text, "    {line}");
    }
    say(text);
    let promise = violation.what.iter().find_map(|what| {
        let (name, _) = what.split_once(": ")?;
        (name.starts_with('P') && name[1..].parse::<u8>().is_ok()).then(|| name.to_owned())
    });
    print(json!({
        "promise": promise.unwrap_or_else(|| "sweep".to_owned()),
        "what": violation.what,
        "again": again(violation),
    }));
}

/// One disturbance, or all of one effect, with everything that happened.
fn one(scenario: &'static Scenario, effect: u64, arguments: &Arguments) -> Result<bool, String> {
    let dry = execution::dry(scenario)?;
    let what = dry.effects.get(effect.saturating_sub(1) as usize);
    let what = what.ok_or_else(|| format!("scenario `{}` has {} effects", scenario.name, dry.effects.len()))?;
    let mut known = modes(scenario, what);
    known.extend((1..=dry.effects.len() as u32).map(Mode::Together));
    known.push(Mode::Kill(Between::Nothing));
    let wanted: Vec<Mode> = match &arguments.mode {
        None => modes(scenario, what),
        Some(name) => known.into_iter().find(|mode| mode.to_string() == *name).into_iter().collect(),
    };
    if wanted.is_empty() {
        let fitting: Vec<String> = modes(scenario, what).iter().map(ToString::to_string).collect();
        return Err(format!(
            "mode `{}` does not apply to effect {effect}, {what}; there are {}",
            arguments.mode.as_deref().unwrap_or(""),
            fitting.join(", ")
        ));
    }
    let mut holds = true;
    let mut done = 0u64;
    for mode in wanted {
        let plan = Plan { effect, mode, again: [arguments.again.first().copied(), arguments.again.get(1).copied()] };
        execution::execute(scenario, plan, true, arguments.image, &mut |outcome| {
            // Where there is no power cut there is no image either, and the mode was not asked for.
            if arguments.image.is_some() && outcome.image.is_none() {
                return;
            }
            done += 1;
            say(format!("== {mode}, image {:?}", outcome.image));
            if arguments.mode.is_some() {
                outcome.facts.iter().for_each(say);
            }
            for violation in &outcome.violations {
                holds = false;
                say(format!("VIOLATION: {violation}"));
            }
        });
    }
    if done == 0 {
        let image = arguments.image.unwrap_or_default();
        return Err(format!("no power cut at effect {effect} of `{}` leaves an image {image}", scenario.name));
    }
    print(
        json!({"scenario": scenario.name, "effect": effect, "what": what.to_string(), "recoveries": done, "holds": holds}),
    );
    Ok(holds)
}
