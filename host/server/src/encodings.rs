//! Which encoding each source hands out and each sink's plugin is handed.

use std::collections::BTreeMap;

use tidegate_protocol::ids::{SinkId, SourceId};
use tidegate_protocol::plugin::Encoding;

use crate::config::{
    ConfigError, Format, PipelineFile, Route, SinkFormat, SinkSection, TransformSection, of_sink, of_source,
};

/// The choice for a pipeline.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Encodings {
    pub(crate) sources: BTreeMap<SourceId, Encoding>,
    pub(crate) sinks: BTreeMap<SinkId, Encoding>,
    /// The sources whose rows travel as columns, and what needs them.
    pub(crate) typed: BTreeMap<SourceId, String>,
}

/// Chooses whose rows travel as columns: where anything needs them, or nothing else fits. For the others, chooses for
/// every sink the best encoding that the plugin accepts and all of the sink's sources can serve, and for every source
/// the best one that serves all of its sinks.
///
/// # Errors
/// There is none; names who wants what.
pub(crate) fn choose(
    file: &PipelineFile,
    offered: &BTreeMap<SourceId, Vec<Encoding>>,
    accepted: &BTreeMap<SinkId, Vec<Encoding>>,
) -> Result<Encodings, ConfigError> {
    let mut typed = BTreeMap::new();
    for (id, section) in &file.sources {
        let Some(rows) = section.kind.rows() else { continue };
        if rows.schema.is_some() {
            typed.insert(id.clone(), format!("source `{id}` has `schema`"));
        } else if rows.format == Format::Parquet {
            typed.insert(id.clone(), format!("source `{id}` has format = \"parquet\""));
        }
    }
    for (id, section) in &file.sinks {
        let Some(key) = needs_columns(section) else { continue };
        for source in &section.sources {
            typed.entry(source.clone()).or_insert_with(|| format!("sink `{id}` has {key}"));
        }
    }
    settle(file, offered, accepted, typed)
}

fn settle(
    file: &PipelineFile,
    offered: &BTreeMap<SourceId, Vec<Encoding>>,
    accepted: &BTreeMap<SinkId, Vec<Encoding>>,
    mut typed: BTreeMap<SourceId, String>,
) -> Result<Encodings, ConfigError> {
    spread(file, &mut typed)?;
    let Misfit { error, sources, cause } = match attempt(file, offered, accepted, &typed) {
        Ok(encodings) => return Ok(Encodings { typed, ..encodings }),
        Err(misfit) => *misfit,
    };
    let more: Vec<_> = sources.into_iter().filter(|source| !typed.contains_key(source)).collect();
    if more.is_empty() {
        return Err(error);
    }
    // Columns can be written in every encoding that has fields.
    typed.extend(more.into_iter().map(|source| (source, cause.clone())));
    settle(file, offered, accepted, typed).map_err(|_| error)
}

/// What in a sink's section is about columns.
fn needs_columns(section: &SinkSection) -> Option<&'static str> {
    let whole = section.files.as_ref();
    match section.format {
        _ if section.transform.as_ref().is_some_and(|transform| *transform != TransformSection::default()) => {
            Some("`transform`")
        }
        _ if !section.columns.is_empty() => Some("`columns`"),
        _ if whole.is_some_and(|files| files.folder.is_some()) => Some("`folder`"),
        Some(SinkFormat::Parquet) => Some("format = \"parquet\""),
        Some(SinkFormat::ArrowStream) => Some("format = \"arrow-stream\""),
        Some(SinkFormat::Csv) if whole.is_some() => Some("format = \"csv\" for whole files"),
        _ => None,
    }
}

/// All rows of a sink travel in the same way.
///
/// # Errors
/// A source's rows have no columns.
fn spread(file: &PipelineFile, typed: &mut BTreeMap<SourceId, String>) -> Result<(), ConfigError> {
    loop {
        let before = typed.len();
        for (id, section) in &file.sinks {
            let Some((source, cause)) = section.sources.iter().find_map(|source| typed.get_key_value(source)) else {
                continue;
            };
            let cause = format!("{cause}, and sink `{id}` takes source `{source}` together with others");
            for source in &section.sources {
                typed.entry(source.clone()).or_insert_with(|| cause.clone());
            }
        }
        if typed.len() == before {
            break;
        }
    }
    for (id, cause) in typed {
        let (key, why) = match file.sources.get(id).map(|section| section.kind.rows()) {
            Some(Some(rows)) if rows.format == Format::Raw => ("format", "its rows are raw"),
            Some(None) => ("kind", "its rows are made from a seed"),
            _ => continue,
        };
        return Err(file.wrong(
            &of_source(id, &[key]),
            format!("{cause}: this needs rows with columns, and source `{id}` has none, since {why}"),
            vec![format!("take a source with a format that has columns, such as json-lines, instead of `{id}`")],
        ));
    }
    Ok(())
}

/// Why there is no encoding, and the sources for which there may be one if their rows travel as columns.
struct Misfit {
    error: ConfigError,
    sources: Vec<SourceId>,
    cause: String,
}

fn attempt(
    file: &PipelineFile,
    offered: &BTreeMap<SourceId, Vec<Encoding>>,
    accepted: &BTreeMap<SinkId, Vec<Encoding>>,
    typed: &BTreeMap<SourceId, String>,
) -> Result<Encodings, Box<Misfit>> {
    let mut chosen = Encodings::default();
    // What sources are asked for; whole files are made from it by the host.
    let mut asked = BTreeMap::new();
    let none = Vec::new();
    for (id, section, dead_letter) in file.all_sinks() {
        let accepted = accepted.get(&id).unwrap_or(&none);
        let misfit = |error| {
            let cause = format!("sink `{id}` takes another encoding than its sources offer");
            Box::new(Misfit { error, sources: section.sources.clone(), cause })
        };
        let files = section.files.is_some();
        if files && !accepted.contains(&Encoding::Files) {
            let (key, what) = match file.places.is_there(&of_sink(&id, &["files"])) {
                true => ("files", "`files`"),
                false => ("format", "format = \"parquet\""),
            };
            let error = file.wrong(
                &of_sink(&id, &[key]),
                format!("sink `{id}` has {what}, but its plugin takes no whole files: it accepts {}", list(accepted)),
                vec!["choose a plugin that accepts files, or one of the formats that this one accepts".to_owned()],
            );
            return Err(Box::new(Misfit { error, sources: Vec::new(), cause: String::new() }));
        }
        if section.sources.iter().any(|source| typed.contains_key(source)) {
            let encoding =
                if files { Encoding::Files } else { of_columns(file, &id, section, accepted).map_err(misfit)? };
            chosen.sinks.insert(id, encoding);
            continue;
        }
        let wanted = match (files, section.format) {
            (true, Some(SinkFormat::Raw)) => vec![Encoding::Raw],
            (true, _) => vec![Encoding::JsonLines],
            (false, _) => wanted(file, &id, section, accepted, dead_letter).map_err(misfit)?,
        };
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
            return Err(misfit(file.wrong(
                &of_sink(&id, &["format"]),
                format!("sink `{id}` takes {}, but {}", list(&wanted), offers.join(", ")),
                vec!["change `format` of the sink or of the source".to_owned()],
            )));
        };
        asked.insert(id.clone(), encoding);
        chosen.sinks.insert(id, if files { Encoding::Files } else { encoding });
    }
    for source in file.sources.keys() {
        let takers: Vec<_> = file
            .sinks
            .iter()
            .filter(|(_, section)| section.sources.contains(source))
            .filter_map(|(id, _)| Some((id, *asked.get(id)?)))
            .collect();
        let offer = offered.get(source).unwrap_or(&none);
        let exact = |from: &Encoding| takers.iter().all(|&(_, to)| *from == to);
        let serves_all = |from: &Encoding| takers.iter().all(|&(_, to)| serves(*from, to));
        let found = offer.iter().copied().find(exact).or_else(|| offer.iter().copied().find(serves_all));
        let Some(encoding) = found else {
            let takers: Vec<_> = takers.iter().map(|(id, to)| format!("sink `{id}` takes {}", to)).collect();
            return Err(Box::new(Misfit {
                error: file.wrong(
                    &of_source(source, &["format"]),
                    format!("source `{source}` is read once and cannot serve both: {}", takers.join(", ")),
                    vec!["give these sinks the same `format`, or read the rows with two sources".to_owned()],
                ),
                sources: vec![source.clone()],
                cause: format!("the sinks of source `{source}` take different encodings"),
            }));
        };
        chosen.sources.insert(source.clone(), encoding);
    }
    Ok(chosen)
}

/// The encoding in which a plugin is handed rows that travel as columns: the first that it accepts, or the one that the
/// file names. Lines of JSON stand for opaque records.
fn of_columns(
    file: &PipelineFile,
    id: &SinkId,
    section: &SinkSection,
    accepted: &[Encoding],
) -> Result<Encoding, ConfigError> {
    let named = section.format.map(|format| match format {
        SinkFormat::Csv => Encoding::Csv,
        SinkFormat::ArrowStream => Encoding::ArrowStream,
        SinkFormat::JsonLines | SinkFormat::Raw | SinkFormat::Parquet => Encoding::JsonLines,
    });
    let written = [Encoding::JsonLines, Encoding::Csv, Encoding::ArrowStream];
    let mut fit = accepted.iter().copied().filter(|encoding| written.contains(encoding));
    fit.find(|encoding| named.is_none_or(|named| named == *encoding)).ok_or_else(|| {
        let message = format!(
            "the rows of sink `{id}` have columns and can be handed over as {}, but its plugin accepts {}",
            list(named.as_ref().map_or(&written[..], std::slice::from_ref)),
            list(accepted)
        );
        let or = "change `format` of the sink, or choose another plugin";
        file.wrong(&of_sink(id, &["format"]), message, whole_files(id, accepted, or))
    })
}

/// How to mend a format that a plugin does not accept row by row: `or`, if whole files do not do.
fn whole_files(id: &SinkId, accepted: &[Encoding], or: &str) -> Vec<String> {
    let table = of_sink(id, &["files"]).join(".");
    let files = format!("add the table [{table}]: then the host writes whole files in this format, which it accepts");
    let files = accepted.contains(&Encoding::Files).then_some(files);
    files.into_iter().chain([or.to_owned()]).collect()
}

/// Lines of JSON are opaque records, too.
fn serves(from: Encoding, to: Encoding) -> bool {
    from == to || (from == Encoding::JsonLines && to == Encoding::Raw)
}

/// What the sink may be handed, best first: the plugin's list, narrowed by the file.
fn wanted(
    file: &PipelineFile,
    id: &SinkId,
    section: &SinkSection,
    accepted: &[Encoding],
    dead_letter: bool,
) -> Result<Vec<Encoding>, ConfigError> {
    let named = section.format.map(|format| match format {
        SinkFormat::JsonLines => Encoding::JsonLines,
        SinkFormat::Csv => Encoding::Csv,
        SinkFormat::Raw => Encoding::Raw,
        SinkFormat::ArrowStream => Encoding::ArrowStream,
        SinkFormat::Parquet => Encoding::Files,
    });
    let keyed = matches!(section.route, Route::Key(_));
    let wrong = |problem: String, hints| Err(file.wrong(&of_sink(id, &["format"]), problem, hints));
    let only_json = |why: &str| {
        let hint = "remove `format`, or choose a plugin that accepts json-lines";
        wrong(format!("sink `{id}` must be handed json-lines, because {why}"), vec![hint.to_owned()])
    };
    let wanted: Vec<_> = accepted
        .iter()
        .copied()
        .filter(|encoding| *encoding != Encoding::Files)
        .filter(|encoding| named.is_none_or(|named| named == *encoding))
        .filter(|encoding| !(keyed || dead_letter) || *encoding == Encoding::JsonLines)
        .collect();
    match (wanted.is_empty(), named) {
        (false, _) => Ok(wanted),
        (true, _) if dead_letter => only_json("dead letters are JSON"),
        (true, _) if keyed => only_json("it routes by a field"),
        (true, Some(named)) => wrong(
            format!("sink `{id}` has format = \"{}\", but its plugin accepts {}", named, list(accepted)),
            whole_files(id, accepted, "change `format` of the sink, or choose another plugin"),
        ),
        (true, None) if accepted.contains(&Encoding::Files) => wrong(
            format!("the plugin of sink `{id}` accepts whole files only"),
            vec![format!("add the table [{}]", of_sink(id, &["files"]).join("."))],
        ),
        (true, None) => wrong(format!("the plugin of sink `{id}` accepts no encoding at all"), vec![]),
    }
}

fn list(encodings: &[Encoding]) -> String {
    let names: Vec<_> = encodings.iter().map(|encoding| encoding.as_str()).collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(" or ") }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use Encoding::{ArrowStream, Csv, Files, JsonLines, Raw};

    use super::*;

    fn chosen(
        more: &str,
        offers: &[(&str, &[Encoding])],
        accepts: &[(&str, &[Encoding])],
    ) -> Result<Encodings, String> {
        let sources: String = offers.iter().map(|(id, _)| format!("[sources.{id}]\nkind = \"generate\"\n")).collect();
        chosen_of(&format!("{sources}{more}"), offers, accepts)
    }

    fn chosen_of(
        tables: &str,
        offers: &[(&str, &[Encoding])],
        accepts: &[(&str, &[Encoding])],
    ) -> Result<Encodings, String> {
        let text = format!("[pipeline]\nname = \"p\"\nstate = \"s\"\n{tables}");
        let file = crate::config::parse(&text, Path::new("p.toml"), Path::new("/b")).unwrap();
        let offered = offers.iter().map(|(id, list)| (SourceId::new(*id).unwrap(), list.to_vec())).collect();
        let accepted = accepts.iter().map(|(id, list)| (SinkId::new(*id).unwrap(), list.to_vec())).collect();
        let said = |error: ConfigError| match error.problems.first() {
            Some(problem) if problem.at.is_some() => problem.message.clone(),
            _ => format!("without a place: {error}"),
        };
        choose(&file, &offered, &accepted).map_err(said)
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

    const LINES: &str = "[sources.a]\nkind = \"files\"\npaths = [\"a\"]\nformat = \"json-lines\"\n";
    const RAW: &str = "[sources.b]\nkind = \"files\"\npaths = [\"b\"]\nformat = \"raw\"\n";
    const OUT: &str = "[sinks.out]\nplugin = \"x\"\n";
    const JSON: &[Encoding] = &[JsonLines, Raw];

    fn typed(encodings: &Encodings) -> Vec<&str> {
        encodings.typed.keys().map(SourceId::as_str).collect()
    }

    #[test]
    fn rows_travel_as_columns_where_anything_needs_them() {
        for more in [
            "transform = { filter = \"n > 1\" }",
            "columns = [\"_epoch\"]",
            "files = { folder = \"n={n}\" }",
            "format = \"parquet\"",
            "format = \"arrow-stream\"",
            "format = \"csv\"\nfiles = {}",
        ] {
            let accepts: &[Encoding] = &[Raw, JsonLines, ArrowStream, Files];
            let encodings = chosen_of(&format!("{LINES}{OUT}{more}"), &[("a", JSON)], &[("out", accepts)]).unwrap();
            assert_eq!(typed(&encodings), ["a"], "{more}");
        }
        let declared = format!("{LINES}schema = \"n BIGINT\"\n{OUT}");
        let encodings = chosen_of(&declared, &[("a", JSON)], &[("out", &[Csv, JsonLines])]).unwrap();
        assert_eq!((typed(&encodings), encodings.sinks.values().copied().collect()), (vec!["a"], vec![Csv]));
    }

    #[test]
    fn rows_stay_bytes_where_nothing_needs_columns() {
        for (more, encoding) in [("", JsonLines), ("format = \"raw\"", Raw), ("files = {}", Files)] {
            let text = format!("{LINES}{OUT}{more}");
            let encodings = chosen_of(&text, &[("a", JSON)], &[("out", &[JsonLines, Raw, Files])]).unwrap();
            assert_eq!(typed(&encodings), Vec::<&str>::new(), "{more}");
            assert_eq!(encodings.sinks.values().copied().collect::<Vec<_>>(), [encoding], "{more}");
        }
    }

    #[test]
    fn columns_join_what_has_no_encoding_in_common() {
        let encodings = chosen_of(&format!("{LINES}{OUT}"), &[("a", JSON)], &[("out", &[Csv])]).unwrap();
        assert_eq!((typed(&encodings), encodings.sinks.values().copied().collect()), (vec!["a"], vec![Csv]));
        // The other sinks of the source get them as well.
        let two = format!("{LINES}{OUT}[sinks.raw]\nplugin = \"y\"\nformat = \"raw\"\n");
        let encodings = chosen_of(&two, &[("a", JSON)], &[("out", &[Csv]), ("raw", &[Raw, JsonLines])]).unwrap();
        assert_eq!(encodings.sinks.values().copied().collect::<Vec<_>>(), [Csv, JsonLines]);
        let said = chosen_of(&two, &[("a", JSON)], &[("out", &[Csv]), ("raw", &[Raw])]).unwrap_err();
        assert_eq!(said, "sink `out` takes csv, but source `a` offers json-lines or raw");
    }

    #[test]
    fn rows_without_columns_are_refused_where_columns_are_needed() {
        let accepts: &[(&str, &[Encoding])] = &[("out", &[JsonLines, Raw])];
        let epochs = format!("{OUT}columns = [\"_epoch\"]\n");
        let said = chosen(&epochs, &[("a", JSON)], accepts).unwrap_err();
        assert_eq!(
            said,
            "sink `out` has `columns`: this needs rows with columns, and source `a` has none, since its rows are made \
             from a seed"
        );
        let said = chosen_of(&format!("{RAW}{epochs}"), &[("b", &[Raw])], accepts).unwrap_err();
        assert!(said.contains("source `b` has none, since its rows are raw"), "{said}");
        let both = format!("{LINES}schema = \"infer\"\n{RAW}{OUT}");
        let said = chosen_of(&both, &[("a", JSON), ("b", &[Raw])], accepts).unwrap_err();
        assert!(said.starts_with("source `a` has `schema`, and sink `out` takes source `a` together"), "{said}");
        let said = chosen_of(&format!("{LINES}{OUT}files = {{}}\n"), &[("a", JSON)], accepts).unwrap_err();
        assert_eq!(said, "sink `out` has `files`, but its plugin takes no whole files: it accepts json-lines or raw");
    }
}
