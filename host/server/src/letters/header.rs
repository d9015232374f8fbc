//! The header of a CSV file: letters hold a record alone, and its columns are named at the file's start.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use crate::config::CsvSection;

/// Longest header that is read, in bytes.
const LONGEST: u64 = 1 << 20;

/// The first record of a file, with its line end, as it stands there.
///
/// # Errors
/// Why it cannot be had.
pub(super) fn of_file(path: &Path, csv: &CsvSection) -> Result<Vec<u8>, String> {
    let cannot = |what: String| format!("the columns' names are in {}, which {what}", path.display());
    let io = |error: std::io::Error| cannot(format!("cannot be read: {error}"));
    let mut file = BufReader::new(File::open(path).map_err(io)?);
    let start = file.fill_buf().map_err(io)?;
    let mut text = Vec::new();
    match start {
        [0x1f, 0x8b, ..] => flate2::bufread::MultiGzDecoder::new(file).take(LONGEST).read_to_end(&mut text),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => match zstd::Decoder::with_buffer(file) {
            Ok(decoder) => decoder.take(LONGEST).read_to_end(&mut text),
            Err(error) => Err(error),
        },
        _ => file.take(LONGEST).read_to_end(&mut text),
    }
    .map_err(io)?;
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
    let text = &text[text.iter().take_while(|byte| matches!(byte, b'\n' | b'\r')).count()..];
    match record_length(text, csv) {
        Some(length) => {
            let record = text[..length].strip_suffix(b"\n").unwrap_or(&text[..length]);
            Ok([record.strip_suffix(b"\r").unwrap_or(record), b"\n"].concat())
        }
        None => Err(cannot("has no whole record at its start".to_owned())),
    }
}

/// How many bytes the first record takes, its line end among them; `None` if it does not end.
pub(super) fn record_length(text: &[u8], csv: &CsvSection) -> Option<usize> {
    record(text, csv).map(|(length, _)| length)
}

/// Length and number of fields of the first record.
pub(super) fn record(text: &[u8], csv: &CsvSection) -> Option<(usize, usize)> {
    let mut parser = csv_core::ReaderBuilder::new().delimiter(csv.delimiter).quote(csv.quote).build();
    let (mut fields, mut ends) = ([0u8; 1024], [0usize; 64]);
    let (mut read, mut count) = (0, 0);
    loop {
        if read == text.len() {
            return None;
        }
        let (result, nin, _, found) = parser.read_record(&text[read..], &mut fields, &mut ends);
        read += nin;
        count += found;
        match result {
            csv_core::ReadRecordResult::Record => return Some((read, count)),
            csv_core::ReadRecordResult::OutputFull | csv_core::ReadRecordResult::OutputEndsFull => {}
            csv_core::ReadRecordResult::InputEmpty | csv_core::ReadRecordResult::End => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const CSV: CsvSection = CsvSection { header: true, delimiter: b',', quote: b'"', columns: None };

    #[test]
    fn records_end_where_their_quotes_say() {
        assert_eq!(record(b"a,\"b\nc\",d\ne\n", &CSV), Some((10, 3)));
        assert_eq!(record(b"a,\"b\n", &CSV), None);
        assert_eq!(record(b"a", &CSV), None);
        let wide = format!("{}\n", "field,".repeat(500));
        assert_eq!(record(wide.as_bytes(), &CSV), Some((wide.len(), 501)));
    }

    #[test]
    fn headers_are_found_in_compressed_files_too() {
        let dir = tempfile::tempdir().expect("a folder");
        let text = b"\xef\xbb\xbf\r\na,\"b c\"\r\n1,2\r\n";
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(text).expect("into memory");
        let gzip = gzip.finish().expect("into memory");
        let zstd = zstd::encode_all(&text[..], 1).expect("into memory");
        for (name, bytes) in [("plain", &text[..]), ("gzip", &gzip), ("zstd", &zstd)] {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).expect("can be written");
            assert_eq!(of_file(&path, &CSV).as_deref(), Ok(&b"a,\"b c\"\n"[..]), "{name}");
        }
        assert!(of_file(&dir.path().join("none"), &CSV).is_err_and(|error| error.contains("none")));
    }
}
