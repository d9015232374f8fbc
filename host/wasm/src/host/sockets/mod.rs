//! `wasi:sockets`, which every component of Python imports. Linked whole, and denied and counted, except for this: where a
//! TCP grant has TLS off, sockets may look its name up and connect to the addresses found, at its port. They are then the
//! same connections as those of `tcp`, with the same budgets and the same end. No listening, no UDP, no other names.

mod names;
mod tcp;

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use wasmtime::component::{HasSelf, Linker, Resource};
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::bindings::sockets;
use wasmtime_wasi::p2::bindings::sockets::network::{ErrorCode, IpAddressFamily, Network};
use wasmtime_wasi::p2::{Pollable, SocketError, SocketResult, UdpSocket};

use super::State;
use crate::grants::place::TlsStart;
use crate::net::address::Host;
use crate::net::place::TcpPlace;
use crate::net::traffic::Spent;
use crate::net::{NetError, Remedy};

const NAMES: &str = "wasi:sockets/ip-name-lookup";
const TCP: &str = "wasi:sockets/tcp";
const UDP: &str = "wasi:sockets/udp";

/// Takes the place of what `wasmtime-wasi` has linked.
pub(super) fn link(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let options = sockets::network::LinkOptions::default();
    sockets::network::add_to_linker::<_, HasSelf<State>>(linker, &options, State::counted)?;
    sockets::tcp_create_socket::add_to_linker::<_, HasSelf<State>>(linker, State::counted)?;
    sockets::tcp::add_to_linker::<_, HasSelf<State>>(linker, State::counted)?;
    sockets::udp_create_socket::add_to_linker::<_, HasSelf<State>>(linker, State::counted)?;
    sockets::ip_name_lookup::add_to_linker::<_, HasSelf<State>>(linker, State::counted)?;
    linker.allow_shadowing(false);
    Ok(())
}

/// An address that a granted name had, at that grant's port.
pub(crate) struct Approved {
    address: SocketAddr,
    place: Arc<TcpPlace>,
}

impl State {
    /// Grants that sockets may use, with the plugin's names for them.
    fn open_places(&self) -> impl Iterator<Item = (&String, &Arc<TcpPlace>)> {
        self.network.tcp.iter().filter(|(_, place)| place.tls == TlsStart::Off)
    }

    /// The grant by which sockets may connect to this address.
    fn place_at(&self, to: SocketAddr) -> Option<Arc<TcpPlace>> {
        let written = self
            .open_places()
            .find(|(_, place)| place.target.host == Host::Address(to.ip()) && place.target.port == to.port());
        let found = || self.network.approved.iter().find(|approved| approved.address == to);
        written.map(|(_, place)| place.clone()).or_else(|| found().map(|approved| approved.place.clone()))
    }

    /// What a lookup for a grant found replaces what earlier ones found.
    fn approve(&mut self, place: &Arc<TcpPlace>, addresses: &[IpAddr]) {
        let approved = &mut self.network.approved;
        approved.retain(|approved| !Arc::ptr_eq(&approved.place, place));
        approved.extend(
            addresses.iter().map(|address| Approved {
                address: SocketAddr::new(*address, place.target.port),
                place: place.clone(),
            }),
        );
    }

    fn deny(&mut self, what: &'static str) -> SocketError {
        self.network.tenant.count_denied(what);
        ErrorCode::AccessDenied.into()
    }
}

fn spent(spent: Spent) -> SocketError {
    SocketError::trap(spent)
}

fn code_of(error: &NetError) -> ErrorCode {
    match (error, error.remedy()) {
        (NetError::Lookup { .. }, _) => ErrorCode::NameUnresolvable,
        (NetError::ResolverBusy { .. }, _) => ErrorCode::TemporaryResolverFailure,
        (NetError::TimedOut { .. }, _) => ErrorCode::Timeout,
        (NetError::Connect { .. }, _) => ErrorCode::ConnectionRefused,
        (_, Remedy::Retry) => ErrorCode::Unknown,
        (_, Remedy::Deny | Remedy::Configure) => ErrorCode::AccessDenied,
    }
}

impl sockets::network::Host for State {
    fn convert_error_code(&mut self, error: SocketError) -> wasmtime::Result<ErrorCode> {
        error.downcast()
    }

    fn network_error_code(
        &mut self,
        error: Resource<wasmtime_wasi::p2::IoError>,
    ) -> wasmtime::Result<Option<ErrorCode>> {
        let error = self.table.get(&error)?;
        Ok(error.downcast_ref::<std::io::Error>().map(ErrorCode::from))
    }
}

impl sockets::network::HostNetwork for State {
    fn drop(&mut self, network: Resource<Network>) -> wasmtime::Result<()> {
        self.table.delete(network)?;
        Ok(())
    }
}

impl sockets::udp_create_socket::Host for State {
    async fn create_udp_socket(&mut self, _: IpAddressFamily) -> SocketResult<Resource<UdpSocket>> {
        Err(self.deny(UDP))
    }
}

/// Something that is under way, and can be waited for without being taken.
struct Work<T> {
    running: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    done: Option<T>,
}

impl<T> Work<T> {
    fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self { running: Some(Box::pin(work)), done: None }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(running) = &mut self.running {
            self.done = Some(ready!(running.as_mut().poll(cx)));
            self.running = None;
        }
        Poll::Ready(())
    }

    /// What came of it, once; `None` while it is under way.
    fn take(&mut self) -> Option<T> {
        let _ = self.poll(&mut Context::from_waker(Waker::noop()));
        self.done.take()
    }
}

#[async_trait]
impl<T: Send + 'static> Pollable for Work<T> {
    async fn ready(&mut self) {
        std::future::poll_fn(|cx| self.poll(cx)).await;
    }
}
