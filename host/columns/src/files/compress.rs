//! Compression of a file as one stream: many readers stop at the end of the first of several.

use std::io::Write as _;

use flate2::GzBuilder;
use flate2::write::GzEncoder;
use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd::zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

use crate::files::options::Compression;
use crate::{ColumnsError, Result};

/// Zstandard looks back 2^20 bytes: more would multiply the memory of every open file.
const WINDOW_LOG: u32 = 20;
/// From this level on its tables would grow to tens and hundreds of megabytes per file.
const LARGE_LEVEL: i32 = 10;
/// Entries of its tables from that level on; smaller ones are left as they are.
const TABLE_LOG: u32 = 20;
/// What a deflate state takes.
const GZIP_BYTES: usize = 300 << 10;
/// The first room for output of Zstandard.
const STEP: usize = 128 << 10;

/// The compression of one file.
pub(crate) enum Compressor {
    None,
    Gzip(Box<GzEncoder<Vec<u8>>>),
    Zstd(CCtx<'static>),
}

impl Compressor {
    pub(crate) fn new(compression: Compression) -> Result<Compressor> {
        Ok(match compression {
            Compression::None | Compression::Snappy => Compressor::None,
            // The same header everywhere: no time, no name, an unknown system.
            Compression::Gzip(level) => Compressor::Gzip(Box::new(
                GzBuilder::new().operating_system(255).write(Vec::new(), flate2::Compression::new(level.unwrap_or(6))),
            )),
            Compression::Zstd(level) => {
                let level = level.unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL);
                let mut parameters = vec![
                    CParameter::CompressionLevel(level),
                    CParameter::WindowLog(WINDOW_LOG),
                    CParameter::ChecksumFlag(true),
                ];
                if level >= LARGE_LEVEL {
                    parameters.extend([CParameter::HashLog(TABLE_LOG), CParameter::ChainLog(TABLE_LOG)]);
                }
                let mut context = CCtx::create();
                for parameter in parameters {
                    context.set_parameter(parameter).map_err(zstd_failed)?;
                }
                Compressor::Zstd(context)
            }
        })
    }

    /// Compresses bytes; what comes out is added to `out`, now or later.
    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        match self {
            Compressor::None => out.extend_from_slice(bytes),
            Compressor::Gzip(encoder) => {
                encoder.write_all(bytes).map_err(gzip_failed)?;
                out.append(encoder.get_mut());
            }
            Compressor::Zstd(context) => {
                let mut input = InBuffer::around(bytes);
                while input.pos() < bytes.len() {
                    step(context, &mut input, out, ZSTD_EndDirective::ZSTD_e_continue)?;
                }
            }
        }
        Ok(())
    }

    /// Ends the stream.
    pub(crate) fn end(self, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Compressor::None => {}
            Compressor::Gzip(encoder) => out.append(&mut encoder.finish().map_err(gzip_failed)?),
            Compressor::Zstd(mut context) => {
                let mut nothing = InBuffer::around(&[]);
                while step(&mut context, &mut nothing, out, ZSTD_EndDirective::ZSTD_e_end)? > 0 {}
            }
        }
        Ok(())
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Compressor::None => 0,
            Compressor::Gzip(_) => GZIP_BYTES,
            Compressor::Zstd(context) => context.sizeof(),
        }
    }
}

/// Returns how much there is still to come.
fn step(
    context: &mut CCtx<'static>,
    input: &mut InBuffer<'_>,
    out: &mut Vec<u8>,
    directive: ZSTD_EndDirective,
) -> Result<usize> {
    out.reserve(STEP);
    let used = out.len();
    let mut output = OutBuffer::around_pos(out, used);
    context.compress_stream2(&mut output, input, directive).map_err(zstd_failed)
}

fn zstd_failed(code: usize) -> ColumnsError {
    ColumnsError::internal(format!("zstd failed: {}", zstd::zstd_safe::get_error_name(code)))
}

fn gzip_failed(error: std::io::Error) -> ColumnsError {
    ColumnsError::internal(format!("gzip failed: {error}"))
}
