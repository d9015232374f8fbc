//! Runs explorations, two at a time. Talks on standard error; on standard output one line of JSON for each broken
//! promise and, last, one that sums up.
//!
//! `tidegate-model [--quick] [--config NAME]… [--without RULE]… [--shortest] [--most STATES]`
//! `tidegate-model --counter-example N [--taken-out]`

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use serde_json::json;
use tidegate_model::coverage::{Branch, Coverage};
use tidegate_model::explore::{Failure, Order, Report, explore};
use tidegate_model::judge::Promise;
use tidegate_model::plan::{Plan, Without};
use tidegate_model::plans;

struct Arguments {
    quick: bool,
    configs: Vec<String>,
    counter_example: Option<u32>,
    taken_out: bool,
    without: Without,
    order: Order,
    most: u64,
}

fn arguments() -> Result<Arguments, String> {
    let mut read = Arguments {
        quick: false,
        configs: Vec::new(),
        counter_example: None,
        taken_out: false,
        without: Without::default(),
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
            "--taken-out" => read.taken_out = true,
            "--config" => read.configs.push(value()?),
            "--most" => read.most = number(value()?)?,
            "--counter-example" => read.counter_example = u32::try_from(number(value()?)?).ok(),
            "--without" => {
                let rule = value()?;
                if !read.without.take_out(&rule) {
                    return Err(format!("there is no rule `{rule}`; there are {}", Without::NAMES.join(", ")));
                }
            }
            other => return Err(format!("`{other}` is not known")),
        }
    }
    Ok(read)
}

/// What is explored.
fn chosen(arguments: &Arguments) -> Result<Vec<Plan>, String> {
    if let Some(number) = arguments.counter_example {
        let found = plans::counter_examples().into_iter().find(|example| example.number == number);
        let mut example = found.ok_or(format!("there is no counter-example {number}"))?;
        if let (Some(rule), true) = (example.rule, arguments.taken_out) {
            example.plan.without.take_out(rule);
        }
        return Ok(vec![example.plan]);
    }
    let mut chosen = if arguments.quick { plans::quick() } else { plans::full() };
    if !arguments.configs.is_empty() {
        chosen.retain(|plan| arguments.configs.iter().any(|name| name == plan.name));
    }
    for plan in &mut chosen {
        plan.without = arguments.without;
    }
    if chosen.is_empty() { Err("no exploration has that name".to_owned()) } else { Ok(chosen) }
}

fn main() -> ExitCode {
    let plans = arguments().and_then(|arguments| Ok((chosen(&arguments)?, arguments)));
    match plans {
        Ok((plans, arguments)) => run(plans, &arguments),
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

/// What became of all explorations.
#[derive(Default)]
struct Results {
    reports: Vec<Report>,
    /// So many were cut short, or showed that the model is wrong.
    unfinished: u32,
    broken: u32,
}

/// Two explorations at a time, the first of the list first: each has its own pools, and nothing is shared.
fn run(plans: Vec<Plan>, arguments: &Arguments) -> ExitCode {
    let began = Instant::now();
    let waiting = Mutex::new(plans.into_iter());
    let results: Mutex<Results> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().ok().and_then(|mut plans| plans.next());
                    let Some(plan) = next else { break };
                    one(plan, arguments, &results);
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_default();
    sum_up(&results, arguments, began.elapsed().as_secs_f64())
}

fn one(plan: Plan, arguments: &Arguments, results: &Mutex<Results>) {
    let name = plan.name;
    let directed = arguments.counter_example.is_some();
    let order = if directed { Order::ShortestFirst } else { arguments.order };
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
                    // A log that does not fold cannot be restored, as often as one tries.
                    let promise = match violation.promise {
                        Promise::History => "P6".to_owned(),
                        // As the simulation names a pipeline that, without faults, neither goes on nor ends.
                        Promise::Liveness => "P10".to_owned(),
                        other => format!("{other:?}"),
                    };
                    say(&json!({
                        "promise": promise, "exploration": name, "steps": trace.len(),
                        "what": violation.message.chars().take(600).collect::<String>(),
                    }));
                }
                Failure::Broken(..) | Failure::TooLarge(_) => results.unfinished += 1,
            }
        }
    }
}

#[expect(clippy::print_stdout, reason = "lines for machines")]
fn say(line: &serde_json::Value) {
    println!("{line}");
}

fn sum_up(results: &Results, arguments: &Arguments, seconds: f64) -> ExitCode {
    let mut coverage = Coverage::default();
    results.reports.iter().for_each(|report| coverage.add(&report.coverage));
    let all = arguments.configs.is_empty() && arguments.counter_example.is_none();
    let unreached: Vec<&Branch> = Branch::ALL.iter().filter(|branch| coverage.count(**branch) == 0).collect();
    if arguments.counter_example.is_none() {
        for branch in Branch::ALL {
            eprintln!("{:12}  {branch:?}", coverage.count(*branch));
        }
        if all && !unreached.is_empty() {
            eprintln!("never reached: {unreached:?}");
        }
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
