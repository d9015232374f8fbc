//! What the tests of sources share.

pub(crate) mod followed;
pub(crate) mod lives;
pub(crate) mod told;
pub(crate) mod told_apart;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use tidegate_pipeline::source::files::{FilesOptions, FilesSource, Format};
use tidegate_pipeline::source::{BadRow, Read, Reader, Source, SourceError};
use tidegate_protocol::plugin::Encoding;
use tidegate_protocol::record::SourceCut;

/// Everything a source gave, until its end.
#[derive(Debug, Default)]
pub(crate) struct All {
    /// The bytes handed out, per partition, in order.
    pub(crate) bytes: BTreeMap<String, Vec<u8>>,
    pub(crate) rows: u64,
    pub(crate) bad: Vec<BadRow>,
    pub(crate) positions: BTreeMap<String, String>,
    /// Positions and per-partition bytes so far, after each batch.
    pub(crate) cuts: Vec<(SourceCut, BTreeMap<String, Vec<u8>>, usize)>,
}

impl All {
    pub(crate) fn text(&self, partition: &str) -> String {
        String::from_utf8_lossy(self.bytes.get(partition).map_or(&[], Vec::as_slice)).into_owned()
    }

    pub(crate) fn cut(&self) -> SourceCut {
        cut(&self.positions)
    }
}

pub(crate) fn cut(positions: &BTreeMap<String, String>) -> SourceCut {
    SourceCut {
        partitions: positions.clone().into(),
        ended: false,
        watermark: None,
        rows: 0,
        dead_lettered: 0,
        schema: None,
    }
}

pub(crate) async fn drain(readers: &mut [Box<dyn Reader>], max_bytes: usize) -> Result<All, SourceError> {
    let mut all = All::default();
    for reader in readers.iter() {
        all.positions.extend(reader.initial_positions());
    }
    for reader in readers {
        loop {
            match reader.next(max_bytes).await? {
                Read::End => break,
                Read::Idle => {}
                Read::Rows(batch) => {
                    assert_eq!(memchr::memchr_iter(b'\n', &batch.bytes).count() == 0, batch.rows == 0);
                    assert!(batch.bytes.is_empty() || batch.bytes.ends_with(b"\n"));
                    assert!(!batch.positions.is_empty(), "a batch always moves");
                    let last = batch.positions.last().expect("not empty").0.clone();
                    all.bytes.entry(last).or_default().extend_from_slice(&batch.bytes);
                    all.rows += batch.rows;
                    all.bad.extend(batch.bad);
                    all.positions.extend(batch.positions);
                    all.cuts.push((cut(&all.positions), all.bytes.clone(), all.bad.len()));
                }
            }
        }
        assert_eq!(reader.next(1).await.expect("an end stays"), Read::End);
    }
    all.bad.sort_by(|a, b| (&a.partition, a.line).cmp(&(&b.partition, b.line)));
    Ok(all)
}

pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

pub(crate) fn read_from(
    source: &dyn Source,
    encoding: Encoding,
    restored: Option<&SourceCut>,
    tasks: u32,
    max_bytes: usize,
) -> Result<All, SourceError> {
    run(async { drain(&mut source.open(encoding, restored, tasks)?, max_bytes).await })
}

pub(crate) fn files(dir: &Path, pattern: &str, format: Format) -> FilesSource {
    let mut options = FilesOptions::new(dir, vec![pattern.to_owned()], format);
    // So that it is known whose rows a batch has.
    options.files_per_batch = 1;
    FilesSource::new(options).expect("good options")
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).expect("memory")
}

pub(crate) fn write(dir: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().expect("inside")).expect("directory");
    fs::write(path, bytes).expect("written");
}

pub(crate) fn append(dir: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    let mut file = fs::OpenOptions::new().append(true).open(dir.join(name)).expect("there");
    file.write_all(bytes.as_ref()).expect("written");
}
