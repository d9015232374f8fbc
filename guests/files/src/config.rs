//! The sink's configuration.

use serde::Deserialize;
use tidegate_sdk::{Ctx, Encoding, Error};

/// JSON Schema of [`Config`].
pub(crate) const SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "extension": {
      "type": "string",
      "pattern": "^[A-Za-z0-9]([A-Za-z0-9.]{0,14}[A-Za-z0-9])?$",
      "description": "Ends the names of published files. Default: jsonl for json-lines, txt for raw, csv for csv; whole files have what their format and compression say."
    },
    "file-prefix": {
      "type": "string",
      "pattern": "^([A-Za-z0-9][A-Za-z0-9._-]{0,63})?$",
      "description": "Begins the names of published files. Default: nothing, so that names sort by epoch."
    }
  }
}"#;

/// What an operator may set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Config {
    extension: Option<String>,
    file_prefix: String,
}

impl Config {
    /// Reads and checks the configuration of a call.
    pub(crate) fn of(ctx: &Ctx) -> Result<Config, Error> {
        let config: Config = ctx.config()?;
        if let Some(extension) = &config.extension {
            let plain = |c: char| c.is_ascii_alphanumeric();
            let legal = (1..=16).contains(&extension.len())
                && extension.chars().all(|c| plain(c) || c == '.')
                && extension.starts_with(plain)
                && extension.ends_with(plain);
            if !legal {
                return Err(Error::bad_config(
                    "extension",
                    format!(
                        "`extension` is `{extension}`: expected 1 to 16 letters, digits or dots, such as `jsonl`, \
                         not starting or ending with a dot"
                    ),
                ));
            }
        }
        let prefix = &config.file_prefix;
        let legal = prefix.len() <= 64
            && prefix.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
            && (prefix.is_empty() || prefix.starts_with(|c: char| c.is_ascii_alphanumeric()));
        if !legal {
            return Err(Error::bad_config(
                "file-prefix",
                format!(
                    "`file-prefix` is `{prefix}`: expected at most 64 letters, digits, dots, `_` or `-`, \
                     starting with a letter or digit"
                ),
            ));
        }
        Ok(config)
    }

    /// What published names begin with.
    pub(crate) fn prefix(&self) -> &str {
        &self.file_prefix
    }

    /// What names of files end with that the host writes.
    pub(crate) fn file_extension<'a>(&'a self, of_format: &'a str) -> &'a str {
        self.extension.as_deref().unwrap_or(of_format)
    }

    /// What published names end with.
    pub(crate) fn extension(&self, encoding: Encoding) -> &str {
        self.extension.as_deref().unwrap_or(match encoding {
            Encoding::JsonLines => "jsonl",
            Encoding::Raw => "txt",
            Encoding::Csv => "csv",
            Encoding::ArrowStream => "arrows",
            Encoding::Files => "bin",
        })
    }
}
