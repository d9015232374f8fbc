//! TCP sockets that connect, and do nothing else.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;
use wasmtime::component::Resource;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::bindings::sockets::network::{ErrorCode, IpAddressFamily, IpSocketAddress, Network};
use wasmtime_wasi::p2::bindings::sockets::tcp::{self, HostTcpSocket, ShutdownType};
use wasmtime_wasi::p2::bindings::sockets::tcp_create_socket;
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, DynPollable, Pollable, SocketResult, TcpSocket, subscribe};

use super::{State, TCP, Work, code_of, spent};
use crate::net::link::{Io, Link};
use crate::net::traffic::Slot;
use crate::net::{NetError, dial};

/// A socket behind a handle.
struct Socket {
    family: IpAddressFamily,
    stage: Stage,
    keep_alive: KeepAlive,
}

enum Stage {
    Fresh,
    Connecting { work: Work<Result<TcpStream, NetError>>, slot: Option<Slot>, to: SocketAddr, name: String },
    Connected { link: Arc<Link>, to: SocketAddr },
    Closed,
}

/// Asked for before the connection is there, and set on it then.
#[derive(Clone, Copy)]
struct KeepAlive {
    enabled: bool,
    idle: Duration,
    interval: Duration,
    count: u32,
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self { enabled: false, idle: Duration::from_secs(7200), interval: Duration::from_secs(75), count: 9 }
    }
}

impl KeepAlive {
    /// What the system does not take is left as it is.
    fn set_on(self, stream: &TcpStream) {
        if self.enabled {
            let _ = sockopt::set_socket_keepalive(stream, true);
            let _ = sockopt::set_tcp_keepidle(stream, self.idle);
            let _ = sockopt::set_tcp_keepintvl(stream, self.interval);
            let _ = sockopt::set_tcp_keepcnt(stream, self.count);
        }
    }
}

#[async_trait]
impl Pollable for Socket {
    async fn ready(&mut self) {
        if let Stage::Connecting { work, .. } = &mut self.stage {
            work.ready().await;
        }
    }
}

fn ours(theirs: &Resource<TcpSocket>) -> Resource<Socket> {
    Resource::new_borrow(theirs.rep())
}

impl State {
    fn socket(&mut self, theirs: &Resource<TcpSocket>) -> SocketResult<&mut Socket> {
        Ok(self.table.get_mut(&ours(theirs))?)
    }
}

impl tcp_create_socket::Host for State {
    fn create_tcp_socket(&mut self, family: IpAddressFamily) -> SocketResult<Resource<TcpSocket>> {
        if self.open_places().next().is_none() {
            return Err(self.deny(TCP));
        }
        let socket = Socket { family, stage: Stage::Fresh, keep_alive: KeepAlive::default() };
        let resource = self.table.push(socket)?;
        Ok(Resource::new_own(resource.rep()))
    }
}

impl tcp::Host for State {}

impl HostTcpSocket for State {
    async fn start_bind(
        &mut self,
        _: Resource<TcpSocket>,
        _: Resource<Network>,
        _: IpSocketAddress,
    ) -> SocketResult<()> {
        Err(self.deny(TCP))
    }

    fn finish_bind(&mut self, _: Resource<TcpSocket>) -> SocketResult<()> {
        Err(ErrorCode::NotInProgress.into())
    }

    fn start_connect(
        &mut self,
        socket: Resource<TcpSocket>,
        network: Resource<Network>,
        remote: IpSocketAddress,
    ) -> SocketResult<()> {
        self.table.get(&network)?;
        let to = SocketAddr::from(remote);
        // Without what only IPv6 has, as grants have it neither.
        let to = SocketAddr::new(to.ip(), to.port());
        let of_family = matches!(
            (self.socket(&socket)?.family, to.ip()),
            (IpAddressFamily::Ipv4, IpAddr::V4(_)) | (IpAddressFamily::Ipv6, IpAddr::V6(_))
        );
        if !of_family || to.port() == 0 {
            return Err(ErrorCode::InvalidArgument.into());
        }
        match self.socket(&socket)?.stage {
            Stage::Fresh => {}
            Stage::Connecting { .. } => return Err(ErrorCode::ConcurrencyConflict.into()),
            Stage::Connected { .. } | Stage::Closed => return Err(ErrorCode::InvalidState.into()),
        }
        let Some(place) = self.place_at(to) else { return Err(self.deny(TCP)) };
        let traffic = &self.network.traffic;
        traffic.request().map_err(spent)?;
        let slot = traffic.open().map_err(spent)?.ok_or(ErrorCode::NewSocketLimit)?;
        let (name, deadline) = (place.target.to_string(), place.deadline());
        let work = {
            let name = name.clone();
            Work::new(async move { dial::connect_checked(&name, vec![to], deadline).await })
        };
        self.socket(&socket)?.stage = Stage::Connecting { work, slot: Some(slot), to, name };
        Ok(())
    }

    fn finish_connect(
        &mut self,
        socket: Resource<TcpSocket>,
    ) -> SocketResult<(Resource<DynInputStream>, Resource<DynOutputStream>)> {
        let traffic = self.network.traffic.clone();
        let Socket { stage, keep_alive, .. } = self.socket(&socket)?;
        let Stage::Connecting { work, slot, to, name } = stage else { return Err(ErrorCode::NotInProgress.into()) };
        let Some(connected) = work.take() else { return Err(ErrorCode::WouldBlock.into()) };
        let (to, name, slot) = (*to, name.clone(), slot.take());
        let (Ok(stream), Some(slot)) = (&connected, slot) else {
            *stage = Stage::Closed;
            let Err(error) = connected else { return Err(ErrorCode::InvalidState.into()) };
            self.unreached(&name, &error);
            return Err(code_of(&error).into());
        };
        keep_alive.set_on(stream);
        let Ok(stream) = connected else { return Err(ErrorCode::InvalidState.into()) };
        let link = Link::new(Io::Plain(stream), traffic, slot);
        let (input, output) = link.streams(true);
        *stage = Stage::Connected { link, to };
        Ok((self.table.push(input)?, self.table.push(output)?))
    }

    async fn start_listen(&mut self, _: Resource<TcpSocket>) -> SocketResult<()> {
        Err(self.deny(TCP))
    }

    fn finish_listen(&mut self, _: Resource<TcpSocket>) -> SocketResult<()> {
        Err(ErrorCode::NotInProgress.into())
    }

    fn accept(
        &mut self,
        _: Resource<TcpSocket>,
    ) -> SocketResult<(Resource<TcpSocket>, Resource<DynInputStream>, Resource<DynOutputStream>)> {
        Err(ErrorCode::InvalidState.into())
    }

    /// The host's own address is not the plugin's business.
    fn local_address(&mut self, _: Resource<TcpSocket>) -> SocketResult<IpSocketAddress> {
        Err(ErrorCode::NotSupported.into())
    }

    fn remote_address(&mut self, socket: Resource<TcpSocket>) -> SocketResult<IpSocketAddress> {
        match &self.socket(&socket)?.stage {
            Stage::Connected { to, .. } => Ok((*to).into()),
            _ => Err(ErrorCode::InvalidState.into()),
        }
    }

    fn is_listening(&mut self, _: Resource<TcpSocket>) -> wasmtime::Result<bool> {
        Ok(false)
    }

    fn address_family(&mut self, socket: Resource<TcpSocket>) -> wasmtime::Result<IpAddressFamily> {
        Ok(self.table.get(&ours(&socket))?.family)
    }

    fn set_listen_backlog_size(&mut self, _: Resource<TcpSocket>, _: u64) -> SocketResult<()> {
        Err(ErrorCode::NotSupported.into())
    }

    fn keep_alive_enabled(&mut self, socket: Resource<TcpSocket>) -> SocketResult<bool> {
        Ok(self.socket(&socket)?.keep_alive.enabled)
    }

    fn set_keep_alive_enabled(&mut self, socket: Resource<TcpSocket>, enabled: bool) -> SocketResult<()> {
        self.change_keep_alive(&socket, |keep_alive| keep_alive.enabled = enabled)
    }

    fn keep_alive_idle_time(&mut self, socket: Resource<TcpSocket>) -> SocketResult<u64> {
        Ok(nanos(self.socket(&socket)?.keep_alive.idle))
    }

    fn set_keep_alive_idle_time(&mut self, socket: Resource<TcpSocket>, time: u64) -> SocketResult<()> {
        let time = some_seconds(time)?;
        self.change_keep_alive(&socket, |keep_alive| keep_alive.idle = time)
    }

    fn keep_alive_interval(&mut self, socket: Resource<TcpSocket>) -> SocketResult<u64> {
        Ok(nanos(self.socket(&socket)?.keep_alive.interval))
    }

    fn set_keep_alive_interval(&mut self, socket: Resource<TcpSocket>, time: u64) -> SocketResult<()> {
        let time = some_seconds(time)?;
        self.change_keep_alive(&socket, |keep_alive| keep_alive.interval = time)
    }

    fn keep_alive_count(&mut self, socket: Resource<TcpSocket>) -> SocketResult<u32> {
        Ok(self.socket(&socket)?.keep_alive.count)
    }

    fn set_keep_alive_count(&mut self, socket: Resource<TcpSocket>, count: u32) -> SocketResult<()> {
        if count == 0 {
            return Err(ErrorCode::InvalidArgument.into());
        }
        self.change_keep_alive(&socket, |keep_alive| keep_alive.count = count.min(127))
    }

    fn hop_limit(&mut self, _: Resource<TcpSocket>) -> SocketResult<u8> {
        Err(ErrorCode::NotSupported.into())
    }

    fn set_hop_limit(&mut self, _: Resource<TcpSocket>, _: u8) -> SocketResult<()> {
        Err(ErrorCode::NotSupported.into())
    }

    fn receive_buffer_size(&mut self, _: Resource<TcpSocket>) -> SocketResult<u64> {
        Err(ErrorCode::NotSupported.into())
    }

    fn set_receive_buffer_size(&mut self, _: Resource<TcpSocket>, _: u64) -> SocketResult<()> {
        Err(ErrorCode::NotSupported.into())
    }

    fn send_buffer_size(&mut self, _: Resource<TcpSocket>) -> SocketResult<u64> {
        Err(ErrorCode::NotSupported.into())
    }

    fn set_send_buffer_size(&mut self, _: Resource<TcpSocket>, _: u64) -> SocketResult<()> {
        Err(ErrorCode::NotSupported.into())
    }

    fn subscribe(&mut self, socket: Resource<TcpSocket>) -> wasmtime::Result<Resource<DynPollable>> {
        subscribe(&mut self.table, ours(&socket))
    }

    fn shutdown(&mut self, socket: Resource<TcpSocket>, how: ShutdownType) -> SocketResult<()> {
        let Stage::Connected { link, .. } = &self.socket(&socket)?.stage else {
            return Err(ErrorCode::InvalidState.into());
        };
        if matches!(how, ShutdownType::Receive | ShutdownType::Both) {
            link.end_input();
        }
        if matches!(how, ShutdownType::Send | ShutdownType::Both) {
            link.end_output();
        }
        Ok(())
    }

    fn drop(&mut self, socket: Resource<TcpSocket>) -> wasmtime::Result<()> {
        self.table.delete(Resource::<Socket>::new_own(socket.rep()))?;
        Ok(())
    }
}

impl State {
    fn change_keep_alive(
        &mut self,
        socket: &Resource<TcpSocket>,
        change: impl FnOnce(&mut KeepAlive),
    ) -> SocketResult<()> {
        let Socket { stage, keep_alive, .. } = self.socket(socket)?;
        change(keep_alive);
        if let Stage::Connected { link, .. } = stage {
            let keep_alive = *keep_alive;
            link.with_tcp(|stream| keep_alive.set_on(stream));
        }
        Ok(())
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// In what the system takes: from a second to some hours.
fn some_seconds(nanos: u64) -> Result<Duration, ErrorCode> {
    match nanos {
        0 => Err(ErrorCode::InvalidArgument),
        _ => Ok(Duration::from_secs(nanos.div_ceil(1_000_000_000).min(32_767))),
    }
}
