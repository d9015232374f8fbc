//! One file that is being written.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::writer::{FileWriter as IpcFileWriter, StreamWriter as IpcStreamWriter};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression as Codec, GzipLevel, ZstdLevel};
use parquet::file::properties::WriterProperties;
use tidegate_protocol::plugin::{Batch, Encoding, FileChunk};

use crate::files::compress::Compressor;
use crate::files::options::{Compression, FileFormat, FileOptions};
use crate::{ColumnsError, Result};

/// Encoded bytes are handed out when there are so many, in pieces of at most so many.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;
/// Encoded rows of at least so many bytes are handed on without being copied together.
const WORTH_PASSING: usize = 64 << 10;
/// Rows after which a Parquet column cuts a page; from then on its codec holds memory of its own.
const PAGE_ROWS: usize = 20_000;
/// What such a codec takes for pages of a usual size.
const CODEC_BYTES: usize = 128 << 10;

/// A file that is being written, and its bytes that are not handed out yet.
pub(crate) struct OpenFile {
    pub(crate) number: u32,
    folder: Arc<str>,
    extension: Arc<str>,
    body: Body,
    /// Encoded and not handed out.
    out: Vec<u8>,
    /// Bytes handed out.
    handed: u64,
    /// Rows that no piece accounts for yet.
    rows: u64,
}

enum Body {
    Text(FileFormat, Compressor),
    Parquet(Box<ArrowWriter<Vec<u8>>>, usize),
    Arrow(Box<IpcFileWriter<Vec<u8>>>),
    ArrowStream(Box<IpcStreamWriter<Vec<u8>>>, Compressor),
}

impl OpenFile {
    pub(crate) fn new(
        options: &FileOptions,
        schema: Option<&SchemaRef>,
        number: u32,
        folder: Arc<str>,
        extension: Arc<str>,
    ) -> Result<OpenFile> {
        let mut file = OpenFile {
            number,
            folder,
            extension,
            body: Body::new(options, schema)?,
            out: Vec::new(),
            handed: 0,
            rows: 0,
        };
        if let (Body::Text(FileFormat::Csv, compressor), Some(schema)) = (&mut file.body, schema) {
            compressor.push(&crate::encode::csv_header(schema), &mut file.out)?;
        }
        Ok(file)
    }

    /// Adds typed rows.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        match &mut self.body {
            Body::Text(format, compressor) => {
                let encoding = match format {
                    FileFormat::Csv => Encoding::Csv,
                    _ => Encoding::JsonLines,
                };
                compressor.push(&crate::encode::encode(batch, encoding)?, &mut self.out)?;
            }
            Body::Parquet(writer, _) => {
                writer.write(batch).map_err(|error| not_written("Parquet", &error))?;
                self.out.append(writer.inner_mut());
            }
            Body::Arrow(writer) => {
                writer.write(batch).map_err(|error| not_written("Arrow", &error))?;
                self.out.append(writer.get_mut());
            }
            Body::ArrowStream(writer, compressor) => {
                writer.write(batch).map_err(|error| not_written("Arrow", &error))?;
                compressor.push(&std::mem::take(writer.get_mut()), &mut self.out)?;
            }
        }
        self.rows = self.rows.saturating_add(batch.num_rows() as u64);
        Ok(())
    }

    /// Adds rows that have the file's encoding already. Pieces that are ready are added to `ready`.
    pub(crate) fn pass(&mut self, bytes: &Bytes, rows: u64, ready: &mut Vec<Batch>) -> Result<()> {
        let Body::Text(_, compressor) = &mut self.body else {
            return Err(ColumnsError::internal("encoded rows for a format that needs columns"));
        };
        self.rows = self.rows.saturating_add(rows);
        if matches!(compressor, Compressor::None) && bytes.len() >= WORTH_PASSING {
            self.hand_out(ready);
            self.cut(bytes, false, ready);
            return Ok(());
        }
        compressor.push(bytes, &mut self.out)
    }

    /// Hands out what is encoded, if that is much.
    pub(crate) fn hand_out_if_much(&mut self, ready: &mut Vec<Batch>) {
        if self.out.len() >= CHUNK_BYTES {
            self.hand_out(ready);
        }
    }

    fn hand_out(&mut self, ready: &mut Vec<Batch>) {
        if !self.out.is_empty() {
            let bytes = Bytes::from(std::mem::take(&mut self.out));
            self.cut(&bytes, false, ready);
        }
    }

    /// Frees memory: ends the row group, hands out what is encoded.
    pub(crate) fn relieve(&mut self, ready: &mut Vec<Batch>) -> Result<()> {
        if let Body::Parquet(writer, _) = &mut self.body {
            writer.flush().and_then(|()| Ok(writer.sync()?)).map_err(|error| not_written("Parquet", &error))?;
            self.out.append(writer.inner_mut());
        }
        self.hand_out(ready);
        Ok(())
    }

    /// Ends the file.
    pub(crate) fn end(mut self, ready: &mut Vec<Batch>) -> Result<()> {
        // What replaces the body is never used: the file goes with this call.
        match std::mem::replace(&mut self.body, Body::Text(FileFormat::Raw, Compressor::None)) {
            Body::Text(_, compressor) => compressor.end(&mut self.out)?,
            Body::Parquet(writer, _) => {
                let mut rest = writer.into_inner().map_err(|error| not_written("Parquet", &error))?;
                self.out.append(&mut rest);
            }
            Body::Arrow(mut writer) => {
                writer.finish().map_err(|error| not_written("Arrow", &error))?;
                self.out.append(writer.get_mut());
            }
            Body::ArrowStream(mut writer, mut compressor) => {
                writer.finish().map_err(|error| not_written("Arrow", &error))?;
                compressor.push(&std::mem::take(writer.get_mut()), &mut self.out)?;
                compressor.end(&mut self.out)?;
            }
        }
        let bytes = Bytes::from(std::mem::take(&mut self.out));
        self.cut(&bytes, true, ready);
        Ok(())
    }

    /// Cuts bytes into pieces. The first accounts for all rows that came since the last one.
    fn cut(&mut self, bytes: &Bytes, last: bool, ready: &mut Vec<Batch>) {
        let mut at = 0;
        loop {
            let end = bytes.len().min(at + CHUNK_BYTES);
            let ended = end == bytes.len();
            ready.push(Batch {
                bytes: bytes.slice(at..end),
                rows: std::mem::take(&mut self.rows),
                encoding: Encoding::Files,
                schema: 0,
                file: Some(FileChunk {
                    number: self.number,
                    folder: self.folder.clone(),
                    extension: self.extension.clone(),
                    last: last && ended,
                }),
            });
            at = end;
            if ended {
                break;
            }
        }
        self.handed = self.handed.saturating_add(bytes.len() as u64);
    }

    /// Its encoded size so far, as far as that is known.
    pub(crate) fn encoded_bytes(&self) -> u64 {
        let in_progress = match &self.body {
            Body::Parquet(writer, _) => writer.in_progress_size(),
            _ => 0,
        };
        self.handed.saturating_add(self.out.len() as u64).saturating_add(in_progress as u64)
    }

    /// Bytes of memory that [`OpenFile::relieve`] frees.
    pub(crate) fn relievable(&self) -> usize {
        let in_progress = match &self.body {
            Body::Parquet(writer, _) if writer.in_progress_rows() == 0 => 0,
            Body::Parquet(writer, codec_bytes) => {
                let paged = writer.in_progress_rows() >= PAGE_ROWS;
                writer.memory_size() + if paged { *codec_bytes } else { 0 }
            }
            _ => 0,
        };
        self.out.len() + in_progress
    }

    /// Bytes of memory that are freed only when it ends.
    pub(crate) fn held(&self) -> usize {
        match &self.body {
            Body::Text(_, compressor) | Body::ArrowStream(_, compressor) => compressor.memory(),
            Body::Parquet(..) | Body::Arrow(_) => 0,
        }
    }
}

impl Body {
    fn new(options: &FileOptions, schema: Option<&SchemaRef>) -> Result<Body> {
        let schema = || schema.ok_or_else(|| ColumnsError::internal("a file of columns without a schema"));
        Ok(match options.format {
            FileFormat::JsonLines | FileFormat::Csv | FileFormat::Raw => {
                Body::Text(options.format, Compressor::new(options.compression())?)
            }
            FileFormat::Parquet => {
                let schema = schema()?;
                let properties = WriterProperties::builder()
                    .set_compression(codec(options.compression())?)
                    .set_created_by(concat!("tidegate ", env!("CARGO_PKG_VERSION")).to_owned())
                    .build();
                let writer = ArrowWriter::try_new(Vec::new(), schema.clone(), Some(properties)).map_err(|error| {
                    ColumnsError::bad_schema(format!("these columns cannot be written as Parquet: {error}"))
                })?;
                Body::Parquet(Box::new(writer), schema.flattened_fields().len().saturating_mul(CODEC_BYTES))
            }
            FileFormat::Arrow => Body::Arrow(Box::new(
                IpcFileWriter::try_new(Vec::new(), schema()?).map_err(|error| not_written("Arrow", &error))?,
            )),
            FileFormat::ArrowStream => Body::ArrowStream(
                Box::new(
                    IpcStreamWriter::try_new(Vec::new(), schema()?).map_err(|error| not_written("Arrow", &error))?,
                ),
                Compressor::new(options.compression())?,
            ),
        })
    }
}

fn codec(compression: Compression) -> Result<Codec> {
    let bad = |error: parquet::errors::ParquetError| ColumnsError::bad_option(error.to_string());
    Ok(match compression {
        Compression::None => Codec::UNCOMPRESSED,
        Compression::Snappy => Codec::SNAPPY,
        Compression::Gzip(level) => Codec::GZIP(GzipLevel::try_new(level.unwrap_or(6)).map_err(bad)?),
        Compression::Zstd(level) => Codec::ZSTD(ZstdLevel::try_new(level.unwrap_or(1)).map_err(bad)?),
    })
}

fn not_written(format: &str, error: &dyn std::fmt::Display) -> ColumnsError {
    ColumnsError::bad_value(format!("rows could not be written as {format}: {error}"))
}
