//! Looking names up: those that are granted, and no others, so that a name cannot carry anything out.

use std::net::IpAddr;
use std::sync::Arc;

use wasmtime::component::Resource;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::bindings::sockets::ip_name_lookup::{
    Host as Lookups, HostResolveAddressStream, ResolveAddressStream,
};
use wasmtime_wasi::p2::bindings::sockets::network::{ErrorCode, IpAddress, Network};
use wasmtime_wasi::p2::{DynPollable, Pollable, SocketResult, subscribe};

use super::{NAMES, State, Work, code_of, spent};
use crate::net::NetError;
use crate::net::address::Host;
use crate::net::place::TcpPlace;

/// A lookup behind a handle.
struct Answers {
    work: Work<Result<Vec<IpAddr>, NetError>>,
    /// The grants with that name, and the plugin's names for them.
    places: Vec<(String, Arc<TcpPlace>)>,
    /// What is still to be told; `None` before the lookup ended.
    left: Option<Result<std::vec::IntoIter<IpAddr>, ErrorCode>>,
}

#[async_trait]
impl Pollable for Answers {
    async fn ready(&mut self) {
        self.work.ready().await;
    }
}

fn ours(theirs: &Resource<ResolveAddressStream>) -> Resource<Answers> {
    Resource::new_borrow(theirs.rep())
}

impl Lookups for State {
    fn resolve_addresses(
        &mut self,
        network: Resource<Network>,
        name: String,
    ) -> SocketResult<Resource<ResolveAddressStream>> {
        self.table.get(&network)?;
        let host = Host::parse(&name).map_err(|_| ErrorCode::InvalidArgument)?;
        let answers = match host {
            // Nobody is asked; whether it may be dialled is another question.
            Host::Address(address) => {
                Answers { work: Work::new(std::future::ready(Ok(vec![address]))), places: Vec::new(), left: None }
            }
            Host::Name(_) => {
                let places: Vec<_> = self
                    .open_places()
                    .filter(|(_, place)| place.target.host == host)
                    .map(|(name, place)| (name.clone(), place.clone()))
                    .collect();
                let Some((_, first)) = places.first() else { return Err(self.deny(NAMES)) };
                self.network.traffic.lookup().map_err(spent)?;
                let (place, deadline) = (first.clone(), first.deadline());
                Answers { work: Work::new(async move { place.target.lookup(deadline).await }), places, left: None }
            }
        };
        let resource = self.table.push(answers)?;
        Ok(Resource::new_own(resource.rep()))
    }
}

impl State {
    /// Checks the answer for every grant with that name. An address is told when one of them takes the whole answer.
    fn judge(&mut self, places: &[(String, Arc<TcpPlace>)], found: Vec<IpAddr>) -> Result<Vec<IpAddr>, ErrorCode> {
        let mut verdict = if places.is_empty() { Ok(found.clone()) } else { Err(ErrorCode::AccessDenied) };
        for (name, place) in places {
            match place.target.check(&found) {
                Ok(checked) => {
                    self.approve(place, &checked);
                    verdict = Ok(checked);
                }
                Err(error) => {
                    self.approve(place, &[]);
                    self.unreached(name, &error);
                }
            }
        }
        verdict
    }
}

impl HostResolveAddressStream for State {
    fn resolve_next_address(&mut self, stream: Resource<ResolveAddressStream>) -> SocketResult<Option<IpAddress>> {
        let answers = self.table.get_mut(&ours(&stream))?;
        if answers.left.is_none() {
            let places = answers.places.clone();
            let left = match answers.work.take() {
                None => return Err(ErrorCode::WouldBlock.into()),
                Some(Ok(found)) => self.judge(&places, found).map(Vec::into_iter),
                Some(Err(error)) => {
                    let name = places.first().map_or("", |(name, _)| name.as_str());
                    self.unreached(name, &error);
                    Err(code_of(&error))
                }
            };
            self.table.get_mut(&ours(&stream))?.left = Some(left);
        }
        match &mut self.table.get_mut(&ours(&stream))?.left {
            Some(Ok(left)) => Ok(left.next().map(IpAddress::from)),
            Some(Err(code)) => Err((*code).into()),
            None => Err(ErrorCode::WouldBlock.into()),
        }
    }

    fn subscribe(&mut self, stream: Resource<ResolveAddressStream>) -> wasmtime::Result<Resource<DynPollable>> {
        subscribe(&mut self.table, ours(&stream))
    }

    fn drop(&mut self, stream: Resource<ResolveAddressStream>) -> wasmtime::Result<()> {
        self.table.delete(Resource::<Answers>::new_own(stream.rep()))?;
        Ok(())
    }
}
