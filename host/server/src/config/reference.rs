//! The reference of pipeline files, made from the tables that the reader uses.

use super::reader::{Absent, Key, Shape, Table};
use super::units::show_duration;
use super::{host_tables, tables};

/// Every table and key with type, default and meaning, as comments of a TOML file.
pub fn reference() -> String {
    let mut text = String::from(
        "# Every table and key of a pipeline file. NAME stands for a name of your choice: lower-case letters,\n\
         # digits and `-`. Relative paths are relative to the pipeline file.\n\
         #\n\
         # Lines without a blank behind their `#` are an example: without it they are a pipeline file that says every\n\
         # key. It is there to be read and cut down, not to be run.\n",
    );
    list(tables::ALL, &mut text);
    text
}

/// Every table and key of a host file, likewise.
pub fn host_reference() -> String {
    let mut text = String::from(
        "# Every table and key of a host file, as given with --host or in TIDEGATE_HOST: what a process gives to the\n\
         # plugins of its tenants. NAME stands for a tenant's name: lower-case letters, digits and `-`. A pipeline says\n\
         # its tenant with `tenant` in [pipeline]. Without a host file every tenant has more than one pipeline needs.\n\
         #\n\
         # Lines without a blank behind their `#` are an example.\n",
    );
    list(host_tables::ALL, &mut text);
    text
}

fn list(tables: &[Table], text: &mut String) {
    for table in tables {
        text.push('\n');
        text.push_str(&heading(table));
        let block = block(table);
        if let Some(block) = block.filter(|block| !block.is_empty()) {
            text.push_str(&format!("#[{block}]\n"));
        }
        for key in table.keys {
            text.push_str(&lines(key));
            if let Some(value) = block.and_then(|block| value(block, key)) {
                text.push_str(&format!("#{} = {value}\n", key.name));
            }
        }
    }
}

/// The table of the example; `None` for those that are written within another.
fn block(table: &Table) -> Option<&'static str> {
    Some(match table.path {
        "sources.NAME" if table.about.starts_with("kind = \"files\"") => "sources.flights",
        "sources.NAME" if table.about.starts_with("kind = \"generate\"") => "sources.made",
        "sources.NAME" => "sources.lines",
        "sources.NAME.csv" => "sources.flights.csv",
        "sinks.NAME" => "sinks.out",
        "sinks.NAME.files" => "sinks.out.files",
        "sinks.NAME.transform" => "sinks.out.transform",
        "sinks.NAME.limits" => "sinks.out.limits",
        "tenants.NAME" => "tenants.acme",
        "sinks.NAME.tcp.NAME" => "sinks.out.tcp.server",
        "sinks.NAME.http.NAME" => "sinks.out.http.api",
        path if path.starts_with("sinks.NAME.http.NAME.auth") => return None,
        "sinks.NAME.route" | "sinks.NAME.dirs.NAME" | "sinks.NAME.secrets.NAME" => return None,
        path => path,
    })
}

/// What the example says where the default would say nothing, or would not go with the rest.
const EXAMPLES: &[(&str, &str, &str)] = &[
    ("pipeline", "name", "\"flights\""),
    ("pipeline", "state", "\"state\""),
    ("checkpoint", "retain-age", "\"24h\""),
    ("sources.flights", "kind", "\"files\""),
    ("sources.flights", "paths", "[\"data/*.csv\"]"),
    ("sources.flights", "format", "\"csv\""),
    ("sources.flights", "follow", "true"),
    ("sources.made", "kind", "\"generate\""),
    ("sources.made", "rows", "1000000"),
    ("sources.made", "row-bytes", "[120, 200]"),
    ("sources.lines", "kind", "\"stdin\""),
    ("sources.lines", "format", "\"csv\""),
    ("sources.lines", "csv", "{ header = true }"),
    ("sources", "schema", "\"carrier TEXT NOT NULL, month INT, dep_delay INT\""),
    ("sources", "tasks", "4"),
    ("sources", "rate", "100000"),
    ("sources.flights.csv", "header", "false"),
    ("sources.flights.csv", "columns", "[\"carrier\", \"month\", \"dep_delay\"]"),
    ("sinks.out", "plugin", "\"builtin:files\""),
    ("sinks.out", "format", "\"parquet\""),
    ("sinks.out", "columns", "[\"_epoch\", \"_part\", \"_emitted_at\"]"),
    ("sinks.out", "route", "{ key = \"carrier\" }"),
    ("sinks.out", "sources", "[\"flights\", \"made\", \"lines\"]"),
    ("sinks.out", "dirs", "{ output = { path = \"out\", quota = \"10GiB\", max-files = 100000 } }"),
    ("sinks.out", "config", "{}"),
    ("sinks.out", "secrets", "{ token = { env = \"TOKEN\" } }"),
    ("sinks.out.tcp.server", "address", "\"db.example:5432\""),
    ("sinks.out.tcp.server", "tls", "\"at-once\""),
    ("sinks.out.tcp.server", "roots", "\"authorities.pem\""),
    ("sinks.out.tcp.server", "client-cert", "\"client.pem\""),
    ("sinks.out.tcp.server", "client-key", "\"client.key\""),
    ("sinks.out.tcp.server", "server-name", "\"db.example\""),
    ("sinks.out.tcp.server", "allow", "[\"10.0.0.0/8\"]"),
    ("sinks.out.http.api", "url", "\"https://api.example/v1/\""),
    ("sinks.out.http.api", "auth", "{ bearer = { env = \"TOKEN\" } }"),
    ("sinks.out.http.api", "roots", "\"authorities.pem\""),
    ("sinks.out.http.api", "client-cert", "\"client.pem\""),
    ("sinks.out.http.api", "client-key", "\"client.key\""),
    ("sinks.out.http.api", "server-name", "\"api.example\""),
    ("sinks.out.http.api", "allow", "[\"10.0.0.0/8\"]"),
    ("sinks.out.files", "compression", "\"zstd\""),
    ("sinks.out.files", "level", "3"),
    ("sinks.out.files", "folder", "\"carrier={carrier}/\""),
    ("sinks.out.limits", "cpu-time", "\"30s\""),
    ("host", "memory", "\"12GiB\""),
    ("host", "cpu-millis", "6000"),
    ("tenants.acme", "memory", "\"4GiB\""),
    ("tenants.acme", "instances", "200"),
    ("tenants.acme", "connections", "500"),
    ("tenants.acme", "cpu-millis", "2000"),
    ("sinks.out.transform", "filter", "\"dep_delay > 15\""),
    ("sinks.out.transform", "cast", "{ dep_delay = \"BIGINT\" }"),
    ("sinks.out.transform", "add", "{ late = \"dep_delay > 60\" }"),
    ("sinks.out.transform", "select", "[\"carrier\", \"month\", \"dep_delay\", \"late\"]"),
    ("sinks.out.transform", "drop", "[\"month\"]"),
    ("sinks.out.transform", "rename", "{ dep_delay = \"delay\" }"),
];

/// A key's value in the example; `None` for tables that have a block of their own.
fn value(block: &str, key: &Key) -> Option<String> {
    let says = |at: &str| EXAMPLES.iter().find(|(of, name, _)| *of == at && *name == key.name);
    let said = says(block).or_else(|| says(block.split('.').next().unwrap_or(block)));
    match (said, key.absent) {
        (Some((_, _, value)), _) => Some((*value).to_owned()),
        (None, Absent::Default(text)) => Some(literal(key.shape, text)),
        (None, _) => None,
    }
}

fn heading(table: &Table) -> String {
    let title = match table.path {
        "" => "the top level".to_owned(),
        "sinks.NAME" => "[sinks.NAME], and [dead-letter] with the same keys".to_owned(),
        path => format!("[{path}]"),
    };
    format!("# ---- {title}: {}\n", table.about)
}

fn lines(key: &Key) -> String {
    let absent = match key.absent {
        Absent::Required => "required".to_owned(),
        Absent::Default(text) => format!("default {}", literal(key.shape, text)),
        Absent::Means(text) => format!("without it: {text}"),
    };
    format!("#\n# {}: {}\n#   {}; {absent}\n", key.name, key.about, expected(key.shape))
}

/// As [`Shape::expected`], with the range where a message tells it only when it is left.
fn expected(shape: Shape) -> String {
    let millis = |millis| show_duration(std::time::Duration::from_millis(millis));
    match shape {
        Shape::Integer(0, u64::MAX) => "a whole number".to_owned(),
        Shape::Integer(min, u64::MAX) => format!("a whole number from {min}"),
        Shape::Duration(min, max) => format!("{}, from {} to {}", shape.expected(), millis(min), millis(max)),
        Shape::Size(min, max) => format!("{}, from {min} to {max} bytes", shape.expected()),
        other => other.expected(),
    }
}

/// A default as it would be written.
fn literal(shape: Shape, text: &str) -> String {
    match shape {
        Shape::Integer(..) | Shape::Boolean => text.to_owned(),
        _ => format!("\"{}\"", text.replace('"', "\\\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_every_key(text: &str, tables: &[Table]) {
        assert!(text.parse::<toml::Table>().is_ok_and(|table| table.is_empty()), "{text}");
        for table in tables {
            let section = text.split_once(&heading(table)).expect(table.path).1;
            let section = section.split("# ---- ").next().unwrap_or_default();
            for key in table.keys {
                let place = section.find(&format!("# {}: {}\n", key.name, key.about)).expect(key.name);
                if let Absent::Default(default) = key.absent {
                    let line = section[place..].lines().nth(1).unwrap_or_default();
                    assert!(line.ends_with(&format!("; default {}", literal(key.shape, default))), "{line}");
                }
            }
        }
    }

    /// The example of a reference, which says every key.
    fn example(text: &str, tables: &[Table]) -> String {
        let example: String = text
            .lines()
            .filter_map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')))
            .map(|line| format!("{line}\n"))
            .collect();
        let written: toml::Table = example.parse().unwrap_or_else(|error| panic!("{error}\n{example}"));
        for table in tables {
            let Some(block) = block(table) else { continue };
            let mut at = &written;
            for name in block.split('.').filter(|name| !name.is_empty()) {
                at = at[name].as_table().expect(block);
            }
            for key in table.keys.iter().filter(|key| !(table.path.is_empty() && key.name == "dead-letter")) {
                assert!(at.contains_key(key.name), "give an example of `{}` in [{block}]", key.name);
            }
        }
        example
    }

    #[test]
    fn the_reference_names_every_key_with_its_default_and_is_toml() {
        let text = reference();
        names_every_key(&text, tables::ALL);
        assert!(text.contains("# interval: time between two barriers\n#   a duration such as"), "{text}");
        names_every_key(&host_reference(), host_tables::ALL);
    }

    #[test]
    fn the_example_says_every_key_and_is_a_pipeline_file() {
        let example = example(&reference(), tables::ALL);
        let parsed = crate::config::parse(&example, "reference.toml".as_ref(), "/base".as_ref());
        assert!(parsed.is_ok(), "{:#?}\n{example}", parsed.err().map(|error| error.problems));
    }

    #[test]
    fn the_hosts_example_says_every_key_and_is_a_host_file() {
        let example = example(&host_reference(), host_tables::ALL);
        let parsed = crate::config::parse_host(&example, "reference.toml".as_ref());
        assert!(parsed.is_ok(), "{:#?}\n{example}", parsed.err().map(|error| error.problems));
    }
}
