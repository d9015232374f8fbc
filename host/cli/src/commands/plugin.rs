//! `tidegate plugin inspect|quarantine`

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_server::{
    Description, Encoding, Inspection, Role, SinkId, imports_not_asked_for, quarantine, requests_not_imported,
};

use super::{Outcome, load, plain_host};
use crate::args::{InspectArgs, PluginCommand, QuarantineArgs};
use crate::exit::Exit;
use crate::output::{Failure, one_line, print, print_json, say, table};
use crate::words::{count, counted, span, time};

pub(crate) fn run(command: &PluginCommand) -> Outcome {
    match command {
        PluginCommand::Inspect(args) => inspect(args),
        PluginCommand::Quarantine(args) => quarantined(args),
    }
}

/// How long a running pipeline may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

fn quarantined(args: &QuarantineArgs) -> Outcome {
    let file = load(&args.file)?;
    let report = quarantine(&file, args.lift.then_some(args.sink.as_ref()), PATIENCE)?;
    if args.output.json {
        print_json(&report);
        return Ok(Exit::Done);
    }
    let mut rows = vec![["SINK", "TENANT", "PLUGIN", "SINCE", "FAULTS", "TRIAL", "WHY"].map(str::to_owned).to_vec()];
    rows.extend(report.plugins.iter().map(|plugin| {
        let sinks: Vec<_> = plugin.sinks.iter().map(SinkId::as_str).collect();
        let trial = match plugin.trial_in_ms {
            _ if args.lift => "lifted".to_owned(),
            Some(left) => format!("in {}", span(left)),
            None => "now".to_owned(),
        };
        let name = one_line(&plugin.plugin);
        let faults = count(u64::from(plugin.faults));
        vec![sinks.join(","), plugin.tenant.clone(), name, time(plugin.since), faults, trial, one_line(&plugin.why)]
    }));
    if !report.plugins.is_empty() {
        print(&table(&rows));
    }
    say(&match (report.running, args.lift) {
        (false, _) => "the pipeline is not running; a quarantine ends with the process that runs it".to_owned(),
        (true, true) => format!("lifted the quarantine of {}", counted(report.plugins.len() as u64, "plugin")),
        (true, false) => format!("{} in quarantine", counted(report.plugins.len() as u64, "plugin")),
    });
    Ok(Exit::Done)
}

fn inspect(args: &InspectArgs) -> Outcome {
    let inspection = plain_host()?.inspect(&args.plugin)?;
    let refused = inspection.description.as_ref().err().map(|error| Failure::new(Exit::Usage, error.to_string()));
    if args.output.json {
        // Says itself that it is refused, and why.
        print_json(&json(&inspection));
        refused.iter().flat_map(Failure::lines).for_each(|line| say(&line));
        return Ok(refused.map_or(Exit::Done, |failure| failure.exit));
    }
    print(&text(&inspection));
    refused.map_or(Ok(Exit::Done), Err)
}

fn json(inspection: &Inspection) -> Value {
    json!({
        "interface": inspection.interface,
        "digest": inspection.digest,
        "bytes": inspection.bytes,
        "imports": inspection.imports,
        "imports-not-asked-for": inspection.description.as_ref().ok().map(|description| {
            let lone = imports_not_asked_for(&inspection.imports, description);
            lone.into_iter().map(|(import, kind)| json!({"import": import, "kind": kind.as_str()})).collect::<Vec<_>>()
        }),
        "exports": inspection.exports,
        "admitted": inspection.description.is_ok(),
        "refused": inspection.description.as_ref().err().map(ToString::to_string),
        "description": inspection.description.as_ref().ok().map(described),
    })
}

/// With the spelling that all other keys have.
fn described(description: &Description) -> Value {
    let mut value = kebab(serde_json::to_value(description).unwrap_or_default());
    value["abilities"] = kebab(value["abilities"].take());
    value
}

fn kebab(value: Value) -> Value {
    match value {
        Value::Object(map) => map.into_iter().map(|(key, value)| (key.replace('_', "-"), value)).collect(),
        other => other,
    }
}

fn text(inspection: &Inspection) -> String {
    let interface = inspection.interface.as_deref().unwrap_or("none");
    let mut lines = vec![
        format!("digest     {}", inspection.digest),
        format!("size       {} bytes", count(inspection.bytes)),
        format!("interface  tidegate:sink@{interface}"),
    ];
    if let Ok(description) = &inspection.description {
        lines.extend(describe(description, &inspection.imports));
    }
    lines.push("imports".to_owned());
    let description = inspection.description.as_ref().ok();
    let lone = description.map(|description| imports_not_asked_for(&inspection.imports, description));
    for name in &inspection.imports {
        let kind = lone.iter().flatten().find(|(import, _)| import == name).map(|(_, kind)| kind);
        let mark = kind.map(|kind| format!("  (asks for no {kind}: every use is denied)")).unwrap_or_default();
        lines.push(format!("  {}{mark}", one_line(name)));
    }
    lines.join("\n") + "\n"
}

/// What the plugin asks for, by role, and the budgets below which it does not work.
fn asked_for(description: &Description, imports: &[String]) -> Vec<String> {
    let idle = requests_not_imported(imports, description);
    let mut lines =
        vec![if description.grants.is_empty() { "grants     none asked for" } else { "grants asked for" }.to_owned()];
    for role in [Role::Writer, Role::Committer, Role::Janitor] {
        let of_role: Vec<_> = description.grants.iter().filter(|grant| grant.role == role).collect();
        if !of_role.is_empty() {
            lines.push(format!("  as {role}"));
        }
        for grant in of_role {
            let mark = if idle.contains(&grant) { "  (it imports nothing that could use it)" } else { "" };
            let (kind, name, reason) = (one_line(&grant.kind), one_line(&grant.name), one_line(&grant.reason));
            lines.push(format!("    {kind} `{name}`: {reason}{mark}"));
        }
    }
    if !description.needs.is_empty() {
        lines.push("needs at least".to_owned());
        lines.extend(
            description.needs.iter().map(|need| format!("  {} {}", one_line(&need.budget), count(need.at_least))),
        );
    }
    lines
}

fn describe(description: &Description, imports: &[String]) -> Vec<String> {
    let abilities = &description.abilities;
    let yes = |can: bool| if can { "yes" } else { "no" };
    let mut lines = vec![
        format!("plugin     {} {}", one_line(&description.name), one_line(&description.version)),
        format!("encodings  {}", Encoding::names(&description.encodings)),
        "abilities".to_owned(),
        format!("  rows wait unseen until commit       {}", yes(abilities.staging)),
        format!("  a commit can be repeated            {}", yes(abilities.idempotent_commit)),
        format!("  the position can be observed        {}", yes(abilities.observe)),
        format!("  older runs are fenced               {}", yes(abilities.fence)),
        format!("  a lost answer can be asked about    {}", yes(abilities.reconcile)),
        format!("  epochs open at once                 {}", abilities.max_open_epochs),
    ];
    if let Some(ttl) = abilities.prepared_ttl {
        lines.push(format!("  prepared work lives                 {}", span(ttl)));
    }
    if let Some(kept) = abilities.marker_retention {
        lines.push(format!("  a commit is remembered for          {}", span(kept)));
    }
    if let Some(names) = abilities.names_per_day {
        lines.push(format!("  new names a day at most             {}", count(names)));
    }
    lines.extend(asked_for(description, imports));
    let schema: Value = serde_json::from_str(&description.config_schema).unwrap_or_default();
    if let Some(properties) = schema["properties"].as_object().filter(|properties| !properties.is_empty()) {
        lines.push("configuration".to_owned());
        for (name, property) in properties {
            let about = property["description"].as_str().unwrap_or_default();
            lines.push(format!("  {}  {}", one_line(name), one_line(about)).trim_end().to_owned());
        }
    }
    lines
}
