//! Reading a typed configuration, with messages that name the key.

use serde::de::DeserializeOwned;

use crate::Error;

/// Parses the configuration object. With `#[serde(deny_unknown_fields)]` an unknown key is named together with the
/// known ones.
pub(crate) fn parse<T: DeserializeOwned>(json: &str) -> Result<T, Error> {
    let text = if json.trim().is_empty() { "{}" } else { json };
    serde_json::from_str(text).map_err(|error| {
        // The place in the JSON text says nothing to a person who wrote TOML.
        let message = error.to_string();
        let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(said, _)| said);
        Error::bad_config("config", message)
    })
}
