//! Runs explorations, two at a time. Talks on standard error; on standard output one line of JSON for each broken
//! promise and, last, one that sums up.
//!
//! See [`USAGE`].

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use serde_json::json;
use tidegate_model::coverage::{Branch, Coverage};
use tidegate_model::examples::{CounterExample, Rule, counter_examples};
use tidegate_model::explore::{Failure, Order, Report, explore};
use tidegate_model::judge::Promise;
use tidegate_model::plan::{Plan, Without};
use tidegate_model::plans;

const USAGE: &str = "tidegate-model [--quick] [--config NAME]… [--without RULE]… [--shortest] [--most STATES]
tidegate-model --counter-examples [--counter-example NAME]…
tidegate-model --taken-out PATCH   the counter-examples of the rule that this patch took out of this program";

struct Arguments {
    quick: bool,
    configs: Vec<String>,
    counter_examples: bool,
    only: Vec<String>,
    taken_out: Option<String>,
    /// Names of rules that are taken out, besides those that an exploration does without.
    without: Vec<String>,
    order: Order,
    most: u64,
}

fn arguments() -> Result<Arguments, String> {
    let mut read = Arguments {
        quick: false,
        configs: Vec::new(),
        counter_examples: false,
        only: Vec::new(),
        taken_out: None,
        without: Vec::new(),
        order: Order::NewestFirst,
        most: 60_000_000,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number = |text: String| text.parse().map_err(|_| format!("{word} needs a number, not `{text}`"));
        match word.as_str() {
            "--quick" => read.quick = true,
            "--shortest" => read.order = Order::ShortestFirst,
            "--counter-examples" => read.counter_examples = true,
            "--taken-out" => read.taken_out = Some(value()?),
            "--config" => read.configs.push(value()?),
            "--most" => read.most = number(value()?)?,
            "--counter-example" => read.only.push(value()?),
            "--without" => {
                let rule = value()?;
                if !Without::NAMES.contains(&rule.as_str()) {
                    return Err(format!("there is no rule `{rule}`; there are {}", Without::NAMES.join(", ")));
                }
                read.without.push(rule);
            }
            other => return Err(format!("`{other}` is not known\n{USAGE}")),
        }
    }
    Ok(read)
}

/// What is explored.
fn chosen(arguments: &Arguments) -> Result<Vec<Plan>, String> {
    let mut chosen = if arguments.quick { plans::quick() } else { plans::full() };
    if !arguments.configs.is_empty() {
        let known: Vec<&str> = chosen.iter().map(|plan| plan.name).collect();
        if let Some(name) = arguments.configs.iter().find(|name| !known.contains(&name.as_str())) {
            let set = if arguments.quick { "quick" } else { "full" };
            return Err(format!("the {set} set has no exploration `{name}`; it has {}", known.join(", ")));
        }
        chosen.retain(|plan| arguments.configs.iter().any(|name| name == plan.name));
    }
    for plan in &mut chosen {
        for rule in &arguments.without {
            plan.without.take_out(rule);
        }
    }
    Ok(chosen)
}

/// Counter-examples to be explored, each with whether its rule is taken out: rules of the environment at once, one of
/// the protocol only in a program that was made without it.
fn examples(arguments: &Arguments) -> Result<Vec<(CounterExample, bool)>, String> {
    let known: Vec<&str> = counter_examples().iter().map(|example| example.name).collect();
    if let Some(name) = arguments.only.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("there is no counter-example `{name}`; there are {}", known.join(", ")));
    }
    let mut jobs = Vec::new();
    for taken_out in [false, true] {
        let wanted = |example: &CounterExample| {
            let named = arguments.only.is_empty() || arguments.only.iter().any(|name| name == example.name);
            let here = match (&arguments.taken_out, example.rule) {
                (Some(patch), Rule::Protocol(name)) => taken_out && name == patch,
                (Some(_), Rule::Environment(_)) => false,
                (None, Rule::Protocol(_)) => !taken_out,
                (None, Rule::Environment(_)) => true,
            };
            named && here
        };
        jobs.extend(counter_examples().into_iter().filter(wanted).map(|example| (example, taken_out)));
    }
    if jobs.is_empty() { Err("no counter-example has that name, or that rule".to_owned()) } else { Ok(jobs) }
}

fn main() -> ExitCode {
    let began = arguments().and_then(|arguments| {
        let directed = arguments.counter_examples || !arguments.only.is_empty() || arguments.taken_out.is_some();
        if directed {
            Ok(show(examples(&arguments)?, arguments.most))
        } else {
            Ok(run(chosen(&arguments)?, &arguments))
        }
    });
    began.unwrap_or_else(|message| {
        eprintln!("error: {message}");
        ExitCode::from(2)
    })
}

/// Does all of this, two at a time, the first of the list first.
fn two_at_a_time<T: Send>(jobs: Vec<T>, each: impl Fn(T) + Sync) {
    let waiting = Mutex::new(jobs.into_iter());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(job) = waiting.lock().ok().and_then(|mut jobs| jobs.next()) {
                    each(job);
                }
            });
        }
    });
}

/// Explores counter-examples and says whether each came out as it must.
fn show(jobs: Vec<(CounterExample, bool)>, most: u64) -> ExitCode {
    let began = Instant::now();
    let (count, shown) = (jobs.len(), Mutex::new(Vec::new()));
    two_at_a_time(jobs, |(example, taken_out)| {
        let explored = example.explored(taken_out, most);
        let objection = example.objection(taken_out, &explored);
        let (states, broken) = match &explored {
            Ok(report) => (Some(report.states), None),
            Err(Failure::Broken(violation, _)) => (None, Some(violation.promise.name())),
            Err(Failure::TooLarge(states)) => (Some(*states), None),
        };
        let line = json!({
            "name": example.name, "number": example.number, "tells": example.tells, "breaks": example.breaks.name(),
            "patch": if let Rule::Protocol(patch) = example.rule { Some(patch) } else { None },
            "taken-out": taken_out, "states": states, "broken": broken, "holds": objection.is_none(),
        });
        let Ok(mut shown) = shown.lock() else { return };
        let rule = if taken_out { "without its rule" } else { "with its rule" };
        match &explored {
            Ok(report) => eprintln!("{rule}: {report}"),
            Err(failure) => eprintln!("counter-example {} {rule}, {}:\n{failure}", example.name, example.tells),
        }
        if let Some(objection) = objection {
            let promise = broken.unwrap_or(example.breaks.name());
            let what: String = objection.chars().take(600).collect();
            say(&json!({ "promise": promise, "counter-example": example.name, "taken-out": taken_out, "what": what }));
        }
        shown.push(line);
    });
    let shown = shown.into_inner().unwrap_or_default();
    let held = shown.len() == count && shown.iter().all(|line| line["holds"] == true);
    say(&json!({ "counter-examples": shown, "seconds": began.elapsed().as_secs_f64() }));
    if held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What became of all explorations.
#[derive(Default)]
struct Results {
    reports: Vec<Report>,
    /// So many were cut short, or showed that the model is wrong.
    unfinished: u32,
    broken: u32,
}

/// Each exploration has its own pools, and nothing is shared.
fn run(plans: Vec<Plan>, arguments: &Arguments) -> ExitCode {
    let began = Instant::now();
    let results: Mutex<Results> = Mutex::default();
    two_at_a_time(plans, |plan| one(plan, arguments, &results));
    let results = results.into_inner().unwrap_or_default();
    sum_up(&results, arguments, began.elapsed().as_secs_f64())
}

fn one(plan: Plan, arguments: &Arguments, results: &Mutex<Results>) {
    let name = plan.name;
    let order = arguments.order;
    let found = explore(plan.clone(), order, arguments.most);
    // A way that was found going deep is long; a short one is easier to read.
    const SHORT: u64 = 400_000;
    let found = match found {
        Err(Failure::Broken(..)) if order == Order::NewestFirst => match explore(plan, Order::ShortestFirst, SHORT) {
            Err(Failure::TooLarge(_)) => found,
            shorter => shorter,
        },
        found => found,
    };
    let Ok(mut results) = results.lock() else { return };
    match found {
        Ok(report) => {
            eprintln!("{report}");
            results.reports.push(report);
        }
        Err(failure) => {
            eprintln!("{name}:\n{failure}");
            match &failure {
                Failure::Broken(violation, trace) if violation.promise != Promise::Model => {
                    results.broken += 1;
                    say(&json!({
                        "promise": violation.promise.name(), "exploration": name, "steps": trace.len(),
                        "what": violation.message.chars().take(600).collect::<String>(),
                    }));
                }
                Failure::Broken(..) | Failure::TooLarge(_) => results.unfinished += 1,
            }
        }
    }
}

/// A line for machines. That nobody listens any more is no reason to panic.
fn say(line: &serde_json::Value) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

fn sum_up(results: &Results, arguments: &Arguments, seconds: f64) -> ExitCode {
    let mut coverage = Coverage::default();
    results.reports.iter().for_each(|report| coverage.add(&report.coverage));
    let all = arguments.configs.is_empty();
    let unreached: Vec<&Branch> = Branch::ALL.iter().filter(|branch| coverage.count(**branch) == 0).collect();
    for branch in Branch::ALL {
        eprintln!("{:12}  {branch:?}", coverage.count(*branch));
    }
    if all && !unreached.is_empty() {
        eprintln!("never reached: {unreached:?}");
    }
    let sum = |number: fn(&Report) -> u64| results.reports.iter().map(number).sum::<u64>();
    let longest = results.reports.iter().map(|report| report.longest).max();
    say(&json!({
        "states": sum(|report| report.states),
        "transitions": sum(|report| report.transitions),
        "configurations": results.reports.len(),
        "unfinished": results.unfinished,
        "branches": Branch::ALL.len(),
        "branches-unreached": if all { unreached.len() } else { 0 },
        "longest-way-to-an-end": longest.unwrap_or(0),
        "seconds": seconds,
    }));
    let whole = results.unfinished == 0 && results.broken == 0 && (!all || unreached.is_empty());
    if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
