//! The reference of pipeline files, made from the tables that the reader uses.

use super::reader::{Absent, Key, Shape, Table};
use super::tables;
use super::units::show_duration;

/// Every table and key with type, default and meaning, as comments of a TOML file.
pub fn reference() -> String {
    let mut text = String::from(
        "# Every table and key of a pipeline file. NAME stands for a name of your choice: lower-case letters,\n\
         # digits and `-`. Relative paths are relative to the pipeline file.\n",
    );
    for table in tables::ALL {
        text.push('\n');
        text.push_str(&heading(table));
        for key in table.keys {
            text.push_str(&lines(key));
        }
    }
    text
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

    #[test]
    fn the_reference_names_every_key_with_its_default_and_is_toml() {
        let text = reference();
        assert!(text.parse::<toml::Table>().is_ok_and(|table| table.is_empty()), "{text}");
        for table in tables::ALL {
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
        assert!(text.contains("# interval: time between two barriers\n#   a duration such as"), "{text}");
    }
}
