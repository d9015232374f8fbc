//! Which encoding each source hands out and each sink's plugin is handed.

use std::collections::BTreeMap;

use tidegate_protocol::ids::{SinkId, SourceId};
use tidegate_protocol::plugin::Encoding;

use crate::config::{PipelineFile, Route, SinkFormat, SinkSection};
use crate::error::ServerError;

/// The choice for a pipeline.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Encodings {
    pub(crate) sources: BTreeMap<SourceId, Encoding>,
    pub(crate) sinks: BTreeMap<SinkId, Encoding>,
}

/// Chooses for every sink the best encoding that the plugin accepts and all of the sink's sources can serve, and for every
/// source the best one that serves all of its sinks.
///
/// # Errors
/// There is none; names who wants what.
pub(crate) fn choose(
    file: &PipelineFile,
    offered: &BTreeMap<SourceId, Vec<Encoding>>,
    accepted: &BTreeMap<SinkId, Vec<Encoding>>,
) -> Result<Encodings, ServerError> {
    let mut chosen = Encodings::default();
    let none = Vec::new();
    for (id, section, dead_letter) in file.all_sinks() {
        let accepted = accepted.get(&id).unwrap_or(&none);
        let wanted = wanted(&id, section, accepted, dead_letter)?;
        let offers: Vec<_> =
            section.sources.iter().map(|source| (source, offered.get(source).unwrap_or(&none))).collect();
        let fits =
            |encoding: &Encoding| offers.iter().all(|(_, offer)| offer.iter().any(|&from| serves(from, *encoding)));
        // Best is what the sources have without work: the first one that they offer as it is.
        let natural = |encoding: &Encoding| offers.iter().all(|(_, offer)| offer.first() == Some(encoding));
        let best = wanted.iter().copied().find(natural).or_else(|| wanted.iter().copied().find(fits));
        let Some(encoding) = best else {
            let offers: Vec<_> =
                offers.iter().map(|(source, offer)| format!("source `{source}` offers {}", list(offer))).collect();
            return Err(ServerError::Fit {
                problem: format!("sink `{id}` takes {}, but {}", list(&wanted), offers.join(", ")),
                hints: vec!["change `format` of the sink or of the source".to_owned()],
            });
        };
        chosen.sinks.insert(id, encoding);
    }
    for source in file.sources.keys() {
        let takers: Vec<_> = file
            .sinks
            .iter()
            .filter(|(_, section)| section.sources.contains(source))
            .filter_map(|(id, _)| Some((id, *chosen.sinks.get(id)?)))
            .collect();
        let offer = offered.get(source).unwrap_or(&none);
        let exact = |from: &Encoding| takers.iter().all(|&(_, to)| *from == to);
        let serves_all = |from: &Encoding| takers.iter().all(|&(_, to)| serves(*from, to));
        let found = offer.iter().copied().find(exact).or_else(|| offer.iter().copied().find(serves_all));
        let Some(encoding) = found else {
            let takers: Vec<_> = takers.iter().map(|(id, to)| format!("sink `{id}` takes {}", to)).collect();
            return Err(ServerError::Fit {
                problem: format!("source `{source}` is read once and cannot serve both: {}", takers.join(", ")),
                hints: vec!["give these sinks the same `format`, or read the rows with two sources".to_owned()],
            });
        };
        chosen.sources.insert(source.clone(), encoding);
    }
    Ok(chosen)
}

/// Lines of JSON are opaque records, too.
fn serves(from: Encoding, to: Encoding) -> bool {
    from == to || (from == Encoding::JsonLines && to == Encoding::Raw)
}

/// What the sink may be handed, best first: the plugin's list, narrowed by the file.
fn wanted(
    id: &SinkId,
    section: &SinkSection,
    accepted: &[Encoding],
    dead_letter: bool,
) -> Result<Vec<Encoding>, ServerError> {
    let named = section.format.map(|format| match format {
        SinkFormat::JsonLines => Encoding::JsonLines,
        SinkFormat::Csv => Encoding::Csv,
        SinkFormat::Raw => Encoding::Raw,
        SinkFormat::ArrowStream => Encoding::ArrowStream,
        SinkFormat::Parquet => Encoding::Files,
    });
    let keyed = matches!(section.route, Route::Key(_));
    let only_json = |why: &str| ServerError::Fit {
        problem: format!("sink `{id}` must be handed json-lines, because {why}"),
        hints: vec!["remove `format`, or choose a plugin that accepts json-lines".to_owned()],
    };
    let wanted: Vec<_> = accepted
        .iter()
        .copied()
        .filter(|encoding| named.is_none_or(|named| named == *encoding))
        .filter(|encoding| !(keyed || dead_letter) || *encoding == Encoding::JsonLines)
        .collect();
    match (wanted.is_empty(), named) {
        (false, _) => Ok(wanted),
        (true, _) if dead_letter => Err(only_json("dead letters are JSON")),
        (true, _) if keyed => Err(only_json("it routes by a field")),
        (true, Some(named)) => Err(ServerError::Fit {
            problem: format!("sink `{id}` has format = \"{}\", but its plugin accepts {}", named, list(accepted)),
            hints: vec![],
        }),
        (true, None) => Err(ServerError::Fit {
            problem: format!("the plugin of sink `{id}` accepts no encoding at all"),
            hints: vec![],
        }),
    }
}

fn list(encodings: &[Encoding]) -> String {
    let names: Vec<_> = encodings.iter().map(|encoding| encoding.as_str()).collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(" or ") }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use Encoding::{Csv, JsonLines, Raw};

    use super::*;

    fn chosen(
        more: &str,
        offers: &[(&str, &[Encoding])],
        accepts: &[(&str, &[Encoding])],
    ) -> Result<Encodings, String> {
        let sources: String = offers.iter().map(|(id, _)| format!("[sources.{id}]\nkind = \"generate\"\n")).collect();
        let text = format!("[pipeline]\nname = \"p\"\nstate = \"s\"\n{sources}{more}");
        let file = crate::config::parse(&text, Path::new("p.toml"), Path::new("/b")).unwrap();
        let offered = offers.iter().map(|(id, list)| (SourceId::new(*id).unwrap(), list.to_vec())).collect();
        let accepted = accepts.iter().map(|(id, list)| (SinkId::new(*id).unwrap(), list.to_vec())).collect();
        choose(&file, &offered, &accepted).map_err(|error| error.to_string())
    }

    #[test]
    fn what_needs_no_work_is_chosen() {
        let sink = "[sinks.out]\nplugin = \"x\"\n";
        let encodings = chosen(sink, &[("a", &[Csv, JsonLines])], &[("out", &[JsonLines, Csv])]).unwrap();
        assert_eq!(encodings.sinks.values().copied().collect::<Vec<_>>(), [Csv]);
        let encodings = chosen(sink, &[("a", &[Csv, JsonLines])], &[("out", &[JsonLines, Raw])]).unwrap();
        assert_eq!(encodings.sources.values().copied().collect::<Vec<_>>(), [JsonLines]);
    }

    #[test]
    fn json_lines_may_be_called_raw() {
        let sink = "[sinks.out]\nplugin = \"x\"\nformat = \"raw\"\n";
        let encodings = chosen(sink, &[("a", &[JsonLines])], &[("out", &[JsonLines, Raw])]).unwrap();
        assert_eq!(encodings.sinks.values().copied().collect::<Vec<_>>(), [Raw]);
        assert_eq!(encodings.sources.values().copied().collect::<Vec<_>>(), [JsonLines]);
    }

    #[test]
    fn what_does_not_fit_is_said_in_words() {
        let sink = "[sinks.out]\nplugin = \"x\"\n";
        let said = chosen(sink, &[("a", &[Raw])], &[("out", &[JsonLines])]).unwrap_err();
        assert_eq!(said, "sink `out` takes json-lines, but source `a` offers raw");
        let said = chosen(&format!("{sink}format = \"csv\""), &[("a", &[Csv])], &[("out", &[JsonLines])]).unwrap_err();
        assert_eq!(said, "sink `out` has format = \"csv\", but its plugin accepts json-lines");
        let keyed = format!("{sink}route = {{ key = \"k\" }}");
        let said = chosen(&keyed, &[("a", &[Csv])], &[("out", &[Csv])]).unwrap_err();
        assert!(said.contains("because it routes by a field"), "{said}");
        let two = "[sinks.x]\nplugin = \"x\"\n[sinks.y]\nplugin = \"y\"\n";
        let said = chosen(two, &[("a", &[Csv, JsonLines])], &[("x", &[Csv]), ("y", &[JsonLines])]).unwrap_err();
        assert_eq!(
            said,
            "source `a` is read once and cannot serve both: sink `x` takes csv, sink `y` takes json-lines"
        );
    }
}
