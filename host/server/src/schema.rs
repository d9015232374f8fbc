//! A sink's `config` table against the JSON Schema that its plugin declares.
//!
//! Checked is what stands at the top level: names, types, choices, lengths, patterns, what is required. The plugin itself
//! checks the rest when it opens.

use regex_automata::meta;
use serde_json::{Map, Value};
use tidegate_protocol::ids::SinkId;

use crate::config::{PipelineFile, Problem, SinkSection, of_sink, suggest};

/// Everything in `sink`'s configuration that the schema does not allow.
pub(crate) fn check(file: &PipelineFile, id: &SinkId, sink: &SinkSection, schema: &Value) -> Vec<Problem> {
    let table = of_sink(id, &["config"]).join(".");
    let empty = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    let known: Vec<_> = properties.keys().map(String::as_str).collect();
    let open = schema.get("additionalProperties").is_some_and(|more| more != &Value::Bool(false));
    let mut problems = Vec::new();
    for (key, written) in &sink.config {
        let path = of_sink(id, &["config", key]);
        let (value, key_at) = (file.places.at(&path), file.places.key_at(&path));
        let mut say = |at, message: String, hints: Vec<String>| problems.push(Problem::new(at, message, hints));
        match properties.get(key) {
            None if open => {}
            None => say(
                key_at,
                format!("unknown key `{key}` in [{table}]; the plugin does not know it"),
                vec![suggest(key, &known)],
            ),
            Some(property) if is_secret(property) => say(
                key_at,
                format!(
                    "`{key}` in [{table}] holds a secret; in this file it would end up in backups and version control"
                ),
                vec![format!("name it in the secrets table instead: {key} = {{ env = \"NAME\" }}")],
            ),
            Some(property) => {
                if let Some(expected) = mismatch(property, written) {
                    say(value, format!("`{key}` in [{table}] is {}, expected {expected}", a_kind(written)), vec![]);
                }
            }
        }
    }
    let required = schema.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for key in required.iter().filter_map(Value::as_str).filter(|key| !sink.config.contains_key(*key)) {
        let about = properties.get(key).and_then(|p| p.get("description")).and_then(Value::as_str);
        let about = about.map(|about| format!(": {about}")).unwrap_or_default();
        let at = file.places.at(&of_sink(id, &["config"]));
        problems.push(Problem::new(
            at,
            format!("[{table}] lacks `{key}`{about}"),
            vec!["the plugin requires it".into()],
        ));
    }
    problems
}

fn is_secret(property: &Value) -> bool {
    property.get("writeOnly") == Some(&Value::Bool(true))
        || property.get("format").and_then(Value::as_str) == Some("password")
}

/// What was expected, if `value` is not that.
fn mismatch(property: &Value, value: &Value) -> Option<String> {
    if let Some(choices) = property.get("enum").and_then(Value::as_array)
        && !choices.contains(value)
    {
        let choices: Vec<_> = choices.iter().map(Value::to_string).collect();
        return Some(format!("one of {}", choices.join(", ")));
    }
    let types: Vec<&str> = match property.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !types.is_empty() && !types.iter().any(|name| is_of_type(name, value)) {
        return Some(types.iter().map(|name| type_words(name)).collect::<Vec<_>>().join(" or "));
    }
    if let Some(text) = value.as_str() {
        return text_mismatch(property, text);
    }
    let number = value.as_f64()?;
    let bound = |name| property.get(name).and_then(Value::as_f64);
    match (bound("minimum"), bound("maximum")) {
        (Some(min), _) if number < min => Some(format!("at least {min}")),
        (_, Some(max)) if number > max => Some(format!("at most {max}")),
        _ => None,
    }
}

fn text_mismatch(property: &Value, text: &str) -> Option<String> {
    let bound = |name| property.get(name).and_then(Value::as_u64);
    let length = text.chars().count() as u64;
    if let Some(min) = bound("minLength").filter(|min| length < *min) {
        return Some(format!("at least {min} characters"));
    }
    if let Some(max) = bound("maxLength").filter(|max| length > *max) {
        return Some(format!("at most {max} characters"));
    }
    let pattern = property.get("pattern").and_then(Value::as_str)?;
    // The pattern is the plugin's: one that needs too much is left to the plugin, as is one of another dialect.
    let limits = meta::Config::new().nfa_size_limit(Some(1 << 20)).hybrid_cache_capacity(1 << 20);
    let regex = meta::Builder::new().configure(limits).build(pattern).ok()?;
    (!regex.is_match(text)).then(|| format!("a text that matches {pattern}"))
}

fn is_of_type(name: &str, value: &Value) -> bool {
    match name {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        // A type that this version does not know is the plugin's to check.
        _ => true,
    }
}

fn type_words(name: &str) -> &str {
    match name {
        "string" => "a text",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        "array" => "a list",
        "object" => "a table",
        other => other,
    }
}

fn a_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(number) if number.is_f64() => "a number with a fraction",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    fn said(config: &str, schema: &serde_json::Value) -> String {
        let text = format!(
            "[pipeline]\nname = \"p\"\nstate = \"s\"\n[sources.g]\nkind = \"generate\"\n[sinks.out]\nplugin = \
             \"x.wasm\"\n[sinks.out.config]\n{config}\n"
        );
        let file = crate::config::parse(&text, Path::new("p.toml"), Path::new("/b")).unwrap();
        let (id, sink) = file.sinks.iter().next().unwrap();
        let problems = super::check(&file, id, sink, schema);
        let lines = problems.iter().map(|p| {
            let (line, column) = p.at.unwrap_or_default();
            format!("{line}:{column} {} | {}", p.message, p.hints.join(" | "))
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_plugins_schema_decides_over_its_table() {
        let schema = json!({
            "properties": {
                "prefix": {"type": "string"},
                "level": {"type": "integer", "minimum": 1, "maximum": 9},
                "mode": {"enum": ["a", "b"]},
                "token": {"type": "string", "writeOnly": true},
                "suffix": {"type": "string", "pattern": "^[a-z.]*$", "minLength": 2, "maxLength": 4},
                "odd": {"type": "string", "pattern": "(?=x)"},
            },
            "required": ["prefix"],
        });
        assert_eq!(said("prefix = \"x\"\nlevel = 3\nmode = \"a\"", &schema), "");
        assert_eq!(
            said("perfix = \"x\"", &schema),
            "9:1 unknown key `perfix` in [sinks.out.config]; the plugin does not know it | did you mean \
             `prefix`?\n8:12 [sinks.out.config] lacks `prefix` | the plugin requires it"
        );
        assert!(said("prefix = 1", &schema).contains("`prefix` in [sinks.out.config] is a number, expected a text"));
        assert!(said("prefix = \"x\"\nlevel = 10", &schema).contains("expected at most 9"));
        assert!(said("prefix = \"x\"\nlevel = 1.5", &schema).contains("expected a whole number"));
        assert!(said("prefix = \"x\"\nmode = \"c\"", &schema).contains("expected one of \"a\", \"b\""));
        assert_eq!(said("prefix = \"x\"\nsuffix = \".gz\"\nodd = \"y\"", &schema), "");
        assert!(
            said("prefix = \"x\"\nsuffix = \"../x\"", &schema).contains("is a text, expected a text that matches ^[")
        );
        assert!(said("prefix = \"x\"\nsuffix = \"a\"", &schema).contains("expected at least 2 characters"));
        assert!(said("prefix = \"x\"\nsuffix = \"abcde\"", &schema).contains("expected at most 4 characters"));
        let secret = said("prefix = \"x\"\ntoken = \"canary\"", &schema);
        assert!(secret.contains("holds a secret") && !secret.contains("canary"));
    }

    #[test]
    fn a_schema_that_allows_more_is_left_to_the_plugin() {
        assert_eq!(said("x = 1", &json!({"additionalProperties": true})), "");
        assert!(said("x = 1", &json!({})).contains("unknown key"));
    }
}
