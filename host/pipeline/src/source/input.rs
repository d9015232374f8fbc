//! Bytes of a file, decompressed if need be, block by block.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;
use rustix::buffer::spare_capacity;

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Told by the first bytes. A name that says otherwise (`.gz`, `.zst` and no such bytes) is an error.
    #[default]
    Auto,
    /// Not at all.
    None,
    /// gzip, of one or more members.
    Gzip,
    /// Zstandard, of one or more frames.
    Zstd,
}

impl Compression {
    /// The name as used in messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::None => "plain",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// What the first bytes of a file say.
    pub(super) fn of(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            // A skippable frame, as parallel compressors write it first.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            _ => Self::None,
        }
    }
}

/// How much is asked of a decompressor at once.
const DECODE_STEP: usize = 64 * 1024;

/// Where blocks come from.
pub(super) enum Input {
    Plain(File),
    Gzip(MultiGzip<BufReader<File>>),
    Zstd(zstd::stream::read::Decoder<'static, BufReader<File>>),
    /// Anything else, read as it comes.
    Stream(Box<dyn Read + Send>),
}

impl Input {
    /// Wraps a file that stands at its start.
    pub(super) fn new(file: File, compression: Compression) -> io::Result<Self> {
        Ok(match compression {
            Compression::Auto | Compression::None => Self::Plain(file),
            Compression::Gzip => Self::Gzip(MultiGzip::new(BufReader::with_capacity(DECODE_STEP, file))),
            Compression::Zstd => {
                Self::Zstd(zstd::stream::read::Decoder::with_buffer(BufReader::with_capacity(DECODE_STEP, file))?)
            }
        })
    }

    /// Reads once, behind what `block` holds and at most up to its capacity, which must not be used up. 0 is the end.
    pub(super) fn read_into(&mut self, block: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            let result = match self {
                Self::Plain(file) => rustix::io::read(file, spare_capacity(block)).map_err(io::Error::from),
                Self::Gzip(input) => read_some(input, block),
                Self::Zstd(input) => read_some(input, block),
                Self::Stream(input) => read_some(input, block),
            };
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Whether what is read was decompressed.
    pub(super) fn compressed(&self) -> bool {
        matches!(self, Self::Gzip(_) | Self::Zstd(_))
    }

    /// Whether a read gives all there is room for, so that waiting for a full block delays nothing.
    pub(super) fn fills_blocks(&self) -> bool {
        !matches!(self, Self::Stream(_))
    }
}

fn read_some(input: &mut impl Read, block: &mut Vec<u8>) -> io::Result<usize> {
    let before = block.len();
    let room = (block.capacity() - before).min(DECODE_STEP);
    block.resize(before + room, 0);
    let result = input.read(&mut block[before..]);
    block.truncate(before + *result.as_ref().unwrap_or(&0));
    result
}

/// gzip members one after the other. A member that ends early is an error; zero padding behind the last one is not.
pub(super) struct MultiGzip<R> {
    state: GzipState<R>,
}

enum GzipState<R> {
    Member(Box<GzDecoder<R>>),
    Between(R),
    End,
}

impl<R: BufRead> MultiGzip<R> {
    fn new(input: R) -> Self {
        Self { state: GzipState::Member(Box::new(GzDecoder::new(input))) }
    }
}

impl<R: BufRead> Read for MultiGzip<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match std::mem::replace(&mut self.state, GzipState::End) {
                GzipState::Member(mut member) => {
                    let read = member.read(into)?;
                    if read > 0 || into.is_empty() {
                        self.state = GzipState::Member(member);
                        return Ok(read);
                    }
                    self.state = GzipState::Between(member.into_inner());
                }
                GzipState::Between(mut input) => {
                    skip_padding(&mut input)?;
                    match input.fill_buf()?.first() {
                        None => return Ok(0),
                        Some(0x1f) => self.state = GzipState::Member(Box::new(GzDecoder::new(input))),
                        Some(_) => {
                            let message = "bytes that are not gzip follow the end of the gzip data";
                            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
                        }
                    }
                }
                GzipState::End => return Ok(0),
            }
        }
    }
}

/// Skips zero bytes.
fn skip_padding(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        let zeros = buffer.iter().take_while(|&&byte| byte == 0).count();
        let more = zeros > 0 && zeros == buffer.len();
        input.consume(zeros);
        if !more {
            return Ok(());
        }
    }
}
