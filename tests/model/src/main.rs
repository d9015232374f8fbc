//! Runs explorations, two at a time, and prints what they found.
//!
//! `tidegate-model [--quick] [--config NAME]… [--without RULE]… [--shortest] [--most STATES]`

use std::process::ExitCode;
use std::sync::Mutex;

use tidegate_model::coverage::{Branch, Coverage};
use tidegate_model::explore::{Order, Report, explore};
use tidegate_model::plan::{Plan, Without};
use tidegate_model::plans;

struct Arguments {
    quick: bool,
    configs: Vec<String>,
    without: Without,
    order: Order,
    most: u64,
}

fn arguments() -> Result<Arguments, String> {
    let mut read = Arguments {
        quick: false,
        configs: Vec::new(),
        without: Without::default(),
        order: Order::NewestFirst,
        most: 60_000_000,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--quick" => read.quick = true,
            "--shortest" => read.order = Order::ShortestFirst,
            "--config" => read.configs.push(value()?),
            "--most" => read.most = value()?.parse().map_err(|_| "--most needs a number".to_owned())?,
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

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("error: {message}");
            return ExitCode::FAILURE;
        }
    };
    let mut chosen = if arguments.quick { plans::quick() } else { plans::full() };
    if !arguments.configs.is_empty() {
        chosen.retain(|plan| arguments.configs.iter().any(|name| name == plan.name));
    }
    for plan in &mut chosen {
        plan.without = arguments.without;
    }
    if chosen.is_empty() {
        eprintln!("error: no exploration has that name");
        return ExitCode::FAILURE;
    }
    run(chosen, &arguments)
}

/// Two explorations at a time, the largest first: each has its own pools, and nothing is shared.
fn run(plans: Vec<Plan>, arguments: &Arguments) -> ExitCode {
    let waiting = Mutex::new(plans);
    let results: Mutex<(Vec<Report>, u32)> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().ok().and_then(|mut plans| plans.pop());
                    let Some(plan) = next else { break };
                    let name = plan.name;
                    let found = explore(plan, arguments.order, arguments.most);
                    let Ok(mut results) = results.lock() else { break };
                    match found {
                        Ok(report) => {
                            eprintln!("{report}");
                            results.0.push(report);
                        }
                        Err(failure) => {
                            eprintln!("{name}:\n{failure}");
                            results.1 += 1;
                        }
                    }
                }
            });
        }
    });
    let (reports, failures) = results.into_inner().unwrap_or_default();
    let mut coverage = Coverage::default();
    reports.iter().for_each(|report| coverage.add(&report.coverage));
    for branch in Branch::ALL {
        eprintln!("{:10}  {branch:?}", coverage.count(*branch));
    }
    let states: u64 = reports.iter().map(|report| report.states).sum();
    eprintln!("{states} states in {} complete explorations, {failures} failed", reports.len());
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
