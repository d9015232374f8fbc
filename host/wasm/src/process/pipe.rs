//! The socket between parent and child: frames, and locks that travel along.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use bytes::Bytes;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::Serialize;

use super::lease::Lease;
use super::wire::MAX_BODY_BYTES;

/// One message on its way, ready to be sent.
pub(crate) struct Parcel {
    frame: Vec<u8>,
    /// Follows in a frame of its own.
    body: Option<Bytes>,
    lease: Option<Lease>,
}

impl Parcel {
    pub(crate) fn new<T: Serialize>(message: &T) -> io::Result<Self> {
        let mut frame = postcard::to_extend(message, vec![0; 4]).map_err(io::Error::other)?;
        let length = u32::try_from(frame.len() - 4).map_err(io::Error::other)?;
        if let Some(place) = frame.first_chunk_mut() {
            *place = length.to_le_bytes();
        }
        Ok(Self { frame, body: None, lease: None })
    }

    /// Bytes that follow as they are.
    pub(crate) fn with_body(mut self, body: Bytes) -> io::Result<Self> {
        let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= MAX_BODY_BYTES);
        let length = length.ok_or_else(|| {
            io::Error::other(format!("{} bytes in one piece; at most {MAX_BODY_BYTES} are sent", body.len()))
        })?;
        self.frame.extend(length.to_le_bytes());
        self.body = Some(body);
        Ok(self)
    }

    pub(crate) fn with_lease(mut self, lease: Option<Lease>) -> Self {
        self.lease = lease;
        self
    }

    pub(crate) fn send(self, mut socket: &UnixStream) -> io::Result<()> {
        let sent = match &self.lease {
            Some(lease) => send_with(socket, &self.frame, lease)?,
            None => 0,
        };
        socket.write_all(self.frame.get(sent..).unwrap_or_default())?;
        socket.write_all(self.body.as_deref().unwrap_or_default())
    }
}

/// Sends some of the bytes, and the lease with the first of them.
fn send_with(socket: &UnixStream, bytes: &[u8], lease: &Lease) -> io::Result<usize> {
    let fds = [lease.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("no room for a file descriptor"));
    }
    loop {
        match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            sent => return Ok(sent?),
        }
    }
}

/// The child's reading end.
pub(crate) struct Inbox {
    socket: UnixStream,
    arrived: VecDeque<OwnedFd>,
}

impl Inbox {
    pub(crate) fn new(socket: UnixStream) -> Self {
        Self { socket, arrived: VecDeque::new() }
    }

    /// The lock that came along with a message that was read.
    pub(crate) fn lease(&mut self) -> Option<OwnedFd> {
        self.arrived.pop_front()
    }
}

impl Read for Inbox {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(&self.socket, &mut [IoSliceMut::new(into)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.arrived.extend(fds);
            }
        }
        Ok(received.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::wire::{Down, MAX_DOWN_BYTES};
    use super::*;
    use crate::worker::frame;

    #[test]
    fn messages_bytes_and_leases_arrive_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lease");
        let lease = Lease::take(&path, Duration::ZERO).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let body = Bytes::from(vec![7; 3 << 20]);
        let sent = body.clone();
        let sender = std::thread::spawn(move || {
            let code = Parcel::new(&Down::Code { digest: "d".to_owned() }).unwrap();
            code.with_body(sent).unwrap().with_lease(Some(lease)).send(&ours).unwrap();
            Parcel::new(&Down::Close { instance: 3 }).unwrap().send(&ours).unwrap();
        });
        let mut inbox = io::BufReader::new(Inbox::new(theirs));
        let first: Down = frame::read(&mut inbox, MAX_DOWN_BYTES).unwrap();
        assert!(matches!(first, Down::Code { digest } if digest == "d"));
        assert_eq!(frame::read_bytes(&mut inbox, MAX_BODY_BYTES).unwrap(), body);
        let second: Down = frame::read(&mut inbox, MAX_DOWN_BYTES).unwrap();
        assert!(matches!(second, Down::Close { instance: 3 }));
        sender.join().unwrap();
        let held = inbox.get_mut().lease().expect("it came along");
        assert!(Lease::take(&path, Duration::ZERO).is_err(), "the other end holds it");
        drop(held);
        Lease::take(&path, Duration::ZERO).unwrap();
    }
}
