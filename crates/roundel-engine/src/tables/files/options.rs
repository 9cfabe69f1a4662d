//! The OPTIONS of CREATE EXTERNAL TABLE, by the names that DataFusion and DuckDB give them.

use std::collections::HashMap;
use std::str::FromStr as _;

use datafusion::catalog::Session;
use datafusion::common::config::CsvOptions;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::FileFormatFactory as _;
use datafusion::datasource::file_format::arrow::ArrowFormat;
use datafusion::datasource::file_format::avro::AvroFormat;
use datafusion::datasource::file_format::csv::{CsvFormat, CsvFormatFactory};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::json::{JsonFormat, JsonFormatFactory};
use datafusion::datasource::file_format::parquet::ParquetFormatFactory;
use std::sync::Arc;

use super::csv::{CsvSettings, Form, NullText};
use super::format::{Format, Shape};
use crate::{EngineError, Result};

/// Records of JSON from which types are inferred, unless a user says otherwise. As many as DuckDB takes.
pub(super) const JSON_SAMPLE: usize = 20_480;

/// The options of files that a statement gives, by DataFusion's names.
#[derive(Debug, Clone, Default)]
pub(super) struct Options(HashMap<String, String>);

/// DuckDB's names, and DataFusion's for the same.
const ALIASES: [(&str, &str); 11] = [
    ("delim", "delimiter"),
    ("sep", "delimiter"),
    ("separator", "delimiter"),
    ("header", "has_header"),
    ("nullstr", "nullstr"),
    ("sample_size", "schema_infer_max_rec"),
    ("null_padding", "truncated_rows"),
    ("new_line", "terminator"),
    ("compression", "compression"),
    ("comment", "comment"),
    ("quotechar", "quote"),
];

fn usage(reason: String) -> EngineError {
    EngineError::Usage(reason)
}

impl Options {
    pub(super) fn new(given: &HashMap<String, String>) -> Result<Self> {
        let mut options: HashMap<String, String> = HashMap::new();
        let mut said: HashMap<String, &str> = HashMap::new();
        for (key, value) in given {
            let lower = key.to_ascii_lowercase();
            let plain = lower.strip_prefix("format.").unwrap_or(&lower);
            let alias = ALIASES.iter().find(|(alias, _)| *alias == plain);
            let name = alias.map_or(plain, |(_, name)| *name);
            if let Some(other) = said.insert(name.to_owned(), key) {
                return Err(usage(format!(
                    "the options '{other}' and '{key}' say the same; give one of them"
                )));
            }
            options.insert(name.to_owned(), value.clone());
        }
        Ok(Self(options))
    }

    fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    /// The compression that a statement declares.
    pub(super) fn compression(&self) -> Result<Option<FileCompressionType>> {
        match self
            .0
            .get("compression")
            .map(|text| text.to_ascii_lowercase())
        {
            None => Ok(None),
            Some(text) if text == "auto" || text == "auto_detect" => Ok(None),
            Some(text) if text == "none" || text.is_empty() => {
                Ok(Some(FileCompressionType::UNCOMPRESSED))
            }
            Some(text) => FileCompressionType::from_str(&text).map(Some).map_err(|_| {
                usage(format!(
                    "the option 'compression' is '{text}'; give gzip, zstd, bzip2, xz or none"
                ))
            }),
        }
    }

    /// What DataFusion makes of the options of a format, under the names that it knows.
    fn known(&self) -> HashMap<String, String> {
        let known = self.0.iter();
        let known = known.filter(|(key, _)| *key != "compression" && *key != "nullstr");
        known
            .map(|(key, value)| (format!("format.{key}"), value.clone()))
            .collect()
    }

    /// How CSV files are read.
    pub(super) fn csv(&self, state: &dyn Session) -> Result<Csv> {
        let mut own = self.clone();
        let nulls = match (own.take("nullstr"), self.0.get("null_regex")) {
            (Some(_), Some(_)) => {
                return Err(usage(
                    "the options 'nullstr' and 'null_regex' say the same; give one of them"
                        .to_owned(),
                ));
            }
            (Some(texts), None) => NullText::Any(list(&texts)),
            (None, Some(regex)) if !regex.is_empty() => NullText::Regex(regex.clone()),
            (None, _) => NullText::Empty,
        };
        for name in ["delimiter", "quote", "escape", "comment", "terminator"] {
            if let Some(text) = own.0.get_mut(name) {
                *text = character(name, text)?;
                // DuckDB's word for "nothing quotes" and "nothing escapes".
                if text.is_empty() {
                    own.0.remove(name);
                }
            }
        }
        let said = |name: &str| own.0.contains_key(name);
        let unquoted = self.0.get("quote").is_some_and(String::is_empty);
        let format = CsvFormatFactory::new().create(state, &own.known())?;
        let Some(format) = format.downcast_ref::<CsvFormat>() else {
            return Err(EngineError::Query("no CSV format".to_owned()));
        };
        let mut options = format.options().clone();
        if unquoted {
            // No text has it.
            options.quote = 0;
        }
        let catalog = &state.config_options().catalog;
        let header = match options.has_header {
            None if !catalog.has_header => Some(false),
            header => header,
        };
        options.null_regex = nulls.to_regex();
        let settings = CsvSettings {
            delimiter: said("delimiter").then_some(options.delimiter),
            quote: (said("quote") || unquoted).then_some(options.quote),
            escape: options.escape,
            comment: options.comment,
            terminator: options.terminator,
            header,
            ragged: options.truncated_rows.unwrap_or(false),
            nulls,
            sample_records: options.schema_infer_max_rec,
        };
        Ok(Csv { settings, options })
    }

    /// DataFusion's format for files of a shape; CSV's options are those that [`Csv::read_as`] gives.
    pub(super) fn format(
        &self,
        state: &dyn Session,
        shape: Shape,
        csv: Option<&CsvOptions>,
    ) -> Result<Arc<dyn FileFormat>> {
        Ok(match shape.format {
            Format::Csv => {
                let options = csv.cloned().unwrap_or_default();
                Arc::new(CsvFormat::default().with_options(options))
            }
            Format::Ndjson | Format::JsonArray => {
                let mut own = self.clone();
                own.take("newline_delimited");
                let format = JsonFormatFactory::new().create(state, &own.known())?;
                let Some(format) = format.downcast_ref::<JsonFormat>() else {
                    return Err(EngineError::Query("no JSON format".to_owned()));
                };
                let mut options = format.options().clone();
                options.schema_infer_max_rec.get_or_insert(JSON_SAMPLE);
                let format = JsonFormat::default().with_options(options);
                Arc::new(
                    format
                        .with_newline_delimited(shape.format == Format::Ndjson)
                        .with_file_compression_type(shape.compression),
                )
            }
            Format::Parquet => ParquetFormatFactory::new().create(state, &self.known())?,
            Format::ArrowFile | Format::ArrowStream => Arc::new(ArrowFormat),
            Format::Avro => Arc::new(AvroFormat),
        })
    }
}

/// What was said of CSV files, in this module's words and in DataFusion's.
#[derive(Debug, Clone)]
pub(super) struct Csv {
    pub(super) settings: CsvSettings,
    pub(super) options: CsvOptions,
}

impl Csv {
    /// What a reader and a writer of files of a form must know.
    pub(super) fn read_as(&self, form: Form, compression: FileCompressionType) -> CsvOptions {
        CsvOptions {
            has_header: Some(form.header),
            delimiter: form.dialect.delimiter,
            quote: form.dialect.quote,
            escape: form.dialect.escape,
            comment: form.dialect.comment,
            terminator: form.dialect.terminator,
            compression: *compression.get_variant(),
            ..self.options.clone()
        }
    }
}

/// One text, or several as DuckDB writes a list: `['NA', '-']`.
fn list(text: &str) -> Vec<String> {
    let inner = text.trim().strip_prefix('[');
    let Some(inner) = inner.and_then(|text| text.strip_suffix(']')) else {
        return vec![text.to_owned()];
    };
    let items = inner.split(',').map(str::trim);
    let bare = |item: &str| item.trim_matches(|c| c == '\'' || c == '"').to_owned();
    items.map(bare).collect()
}

fn character(name: &str, text: &str) -> Result<String> {
    match text {
        "\\t" => Ok("\t".to_owned()),
        "\\n" => Ok("\n".to_owned()),
        "\\r" => Ok("\r".to_owned()),
        // Both kinds of line break end a record unless another terminator is named.
        "\\r\\n" | "\r\n" if name == "terminator" => Ok(String::new()),
        "" if name != "delimiter" => Ok(String::new()),
        one if one.len() == 1 => Ok(one.to_owned()),
        // DataFusion takes a byte's number, too.
        number if number.parse::<u8>().is_ok() => Ok(number.to_owned()),
        other => Err(usage(format!(
            "the option '{name}' is '{other}'; give one ASCII character"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::prelude::SessionContext;

    fn options(given: &[(&str, &str)]) -> Result<Csv> {
        let given = given
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        Options::new(&given.collect())?.csv(&SessionContext::new().state())
    }

    #[test]
    fn both_names_of_an_option_are_known() {
        for name in [
            "delimiter",
            "delim",
            "sep",
            "format.delimiter",
            "FORMAT.DELIM",
        ] {
            let csv = options(&[(name, ";")]).expect("known");
            assert_eq!(csv.settings.delimiter, Some(b';'), "{name}");
        }
        let csv = options(&[("sep", "\\t"), ("header", "false"), ("sample_size", "7")]);
        let settings = csv.expect("known").settings;
        assert_eq!(settings.delimiter, Some(b'\t'));
        assert_eq!(settings.header, Some(false));
        assert_eq!(settings.sample_records, Some(7));
        assert_eq!(options(&[]).expect("none").settings.delimiter, None);
        let twice = options(&[("delim", ";"), ("sep", "|")]).expect_err("twice");
        assert!(twice.to_string().contains("say the same"), "{twice}");
        let long = options(&[("delim", "||")]).expect_err("too long");
        assert!(long.to_string().contains("one ASCII character"), "{long}");
        assert!(options(&[("no_such_option", "1")]).is_err());
    }

    #[test]
    fn null_texts() {
        let nulls = |text: &str| {
            options(&[("nullstr", text)])
                .expect("known")
                .options
                .null_regex
        };
        assert_eq!(nulls("NA").as_deref(), Some("^(?:NA)$"));
        assert_eq!(nulls("['NA', '']").as_deref(), Some("^(?:NA|)$"));
        let regex = options(&[("null_regex", "^-+$")]).expect("known");
        assert_eq!(regex.options.null_regex.as_deref(), Some("^-+$"));
    }

    #[test]
    fn compressions() {
        let of = |text: &str| {
            let given = HashMap::from([("compression".to_owned(), text.to_owned())]);
            Options::new(&given).and_then(|options| options.compression())
        };
        assert_eq!(of("gzip").expect("known"), Some(FileCompressionType::GZIP));
        assert_eq!(
            of("none").expect("known"),
            Some(FileCompressionType::UNCOMPRESSED)
        );
        assert_eq!(of("auto").expect("known"), None);
        assert!(of("rar").is_err());
    }
}
