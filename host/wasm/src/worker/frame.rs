//! Messages between the host and a worker: a length of four bytes, then that many bytes.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes that are asked for at once, whatever length the other side claims.
const STEP: usize = 1 << 20;

/// Sends a message.
pub(crate) fn write<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    write_bytes(to, &postcard::to_stdvec(message).map_err(io::Error::other)?)
}

/// Receives a message of at most `max` bytes.
pub(crate) fn read<T: DeserializeOwned>(from: &mut impl Read, max: usize) -> io::Result<T> {
    postcard::from_bytes(&read_bytes(from, max)?).map_err(io::Error::other)
}

/// Sends bytes as they are.
pub(crate) fn write_bytes(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(bytes)
}

/// Receives at most `max` bytes. Memory grows with what arrives, not with what is announced.
pub(crate) fn read_bytes(from: &mut impl Read, max: usize) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > max {
        return Err(io::Error::other(format!("a message of {length} bytes; at most {max} are taken")));
    }
    let mut bytes = Vec::new();
    while bytes.len() < length {
        let have = bytes.len();
        let step = (length - have).min(STEP.max(have));
        bytes.try_reserve_exact(step).map_err(io::Error::other)?;
        bytes.resize(have + step, 0);
        from.read_exact(bytes.get_mut(have..).unwrap_or_default())?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_arrives_and_no_more_than_is_allowed() {
        let sent = vec![7; 3 * STEP + 5];
        let mut wire = Vec::new();
        write_bytes(&mut wire, &sent).unwrap();
        assert_eq!(read_bytes(&mut wire.as_slice(), sent.len()).unwrap(), sent);
        assert!(read_bytes(&mut wire.as_slice(), sent.len() - 1).is_err());
        assert!(read_bytes(&mut &wire[..wire.len() - 1], sent.len()).is_err(), "cut short");
    }

    #[test]
    fn an_announced_length_takes_no_memory() {
        let mut wire = u32::MAX.to_le_bytes().to_vec();
        wire.extend([0; 10]);
        assert_eq!(read_bytes(&mut wire.as_slice(), usize::MAX).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
