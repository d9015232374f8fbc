//! Opening connections: what was checked is what is dialled.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::address::{self, Host};
use super::resolve::{Resolve, ResolveError};
use super::{Deadline, NetError};

/// Before the next address is tried beside those that have not answered.
const STAGGER: Duration = Duration::from_millis(250);
/// Addresses of one name that are tried.
const MAX_TRIED: usize = 8;

/// A granted host and port, and where it may lead.
#[derive(Clone)]
pub(crate) struct Target {
    /// Canonical.
    pub(crate) host: Host,
    pub(crate) port: u16,
    /// Special ranges that the grant allows.
    pub(crate) allow: Vec<IpNet>,
    /// On whose behalf names are looked up.
    pub(crate) tenant: String,
    pub(crate) resolver: Arc<dyn Resolve>,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Target {
    /// Whether reaching it takes a lookup, which has a budget.
    pub(crate) fn needs_lookup(&self) -> bool {
        matches!(self.host, Host::Name(_))
    }

    /// Its addresses as the resolver knows them now, not yet checked.
    pub(crate) async fn lookup(&self, deadline: Deadline) -> Result<Vec<IpAddr>, NetError> {
        let name = match &self.host {
            Host::Address(address) => return Ok(vec![*address]),
            Host::Name(name) => name,
        };
        let lookup = async {
            let host = || name.clone();
            match self.resolver.resolve(name, &self.tenant).await {
                Ok(answers) if answers.is_empty() => {
                    Err(NetError::Lookup { host: host(), detail: "there is no address".to_owned() })
                }
                Ok(answers) => Ok(answers),
                Err(ResolveError::Busy) => Err(NetError::ResolverBusy { host: host() }),
                Err(ResolveError::Failed(detail)) => Err(NetError::Lookup { host: host(), detail }),
            }
        };
        deadline.within(self, "the name's lookup", lookup).await
    }

    /// The answers of one lookup as they may be dialled. One refused answer refuses them all: a name that leads inside and
    /// outside at once is a mistake or an attack (rebinding), and which of the two would be dialled must not depend on
    /// who answers first. An operator who means it grants the range.
    pub(crate) fn check(&self, answers: &[IpAddr]) -> Result<Vec<IpAddr>, NetError> {
        let mut checked = Vec::with_capacity(answers.len());
        for &answer in answers {
            let address = address::check(answer, &self.allow).map_err(|range| NetError::Prohibited {
                host: self.host.to_string(),
                address: answer,
                range,
            })?;
            if !checked.contains(&address) {
                checked.push(address);
            }
        }
        Ok(checked)
    }
}

/// Looks up, checks and connects. Dropped before [`end_well`], the connection is reset.
pub(crate) async fn connect(target: &Target, deadline: Deadline) -> Result<TcpStream, NetError> {
    let addresses = target.check(&target.lookup(deadline).await?)?;
    let order = alternating(addresses).into_iter().take(MAX_TRIED);
    let order = order.map(|address| SocketAddr::new(address, target.port)).collect();
    connect_checked(target, order, deadline).await
}

/// Connects to the first of these addresses that answers.
pub(crate) async fn connect_checked(
    place: &impl fmt::Display,
    addresses: Vec<SocketAddr>,
    deadline: Deadline,
) -> Result<TcpStream, NetError> {
    let race = async {
        let failed = |error: io::Error| NetError::Connect { place: place.to_string(), detail: error.to_string() };
        race(addresses).await.map_err(failed)
    };
    deadline.within(place, "the connection", race).await
}

/// The best address first, then one of the other family, and so on: a family that leads nowhere costs little.
fn alternating(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let first_is_v4 = addresses.first().is_some_and(IpAddr::is_ipv4);
    let (ours, others): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|address| address.is_ipv4() == first_is_v4);
    let (mut ours, mut others) = (ours.into_iter(), others.into_iter());
    let mut order = Vec::new();
    loop {
        let pair = [ours.next(), others.next()];
        if pair.iter().all(Option::is_none) {
            return order;
        }
        order.extend(pair.into_iter().flatten());
    }
}

async fn race(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut tries = JoinSet::new();
    let mut waiting = addresses.into_iter();
    let mut last = io::Error::other("there is no address to try");
    loop {
        match waiting.next() {
            Some(address) => drop(tries.spawn(open(address))),
            None if tries.is_empty() => return Err(last),
            None => {}
        }
        tokio::select! {
            Some(ended) = tries.join_next() => match ended {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = error,
                Err(error) => last = io::Error::other(error),
            },
            () = tokio::time::sleep(STAGGER), if waiting.len() > 0 => {}
        }
    }
}

async fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    // The host's writes are batches already.
    stream.set_nodelay(true)?;
    stream.set_zero_linger()?;
    Ok(stream)
}

/// From now on the other side sees an orderly end when the connection is closed.
pub(crate) fn end_well(stream: &TcpStream) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_linger(stream, None)?)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use tidegate_protocol::plugin::BoxFuture;
    use tokio::net::TcpListener;

    use super::super::Remedy;
    use super::*;

    /// Gives its answers one after the other.
    struct Scripted(Mutex<VecDeque<Vec<&'static str>>>);

    impl Resolve for Scripted {
        fn resolve<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, ResolveError>> {
            let answer = self.0.lock().unwrap().pop_front();
            Box::pin(async move {
                let answer = answer.ok_or_else(|| ResolveError::Failed("no such name".to_owned()))?;
                Ok(answer.into_iter().map(|address| address.parse().unwrap()).collect())
            })
        }
    }

    fn target(answers: &[&[&'static str]], port: u16, allow: &[&str]) -> Target {
        Target {
            host: Host::parse("db.example").unwrap(),
            port,
            allow: allow.iter().map(|net| net.parse().unwrap()).collect(),
            tenant: "t".to_owned(),
            resolver: Arc::new(Scripted(Mutex::new(answers.iter().map(|a| a.to_vec()).collect()))),
        }
    }

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(60))
    }

    #[tokio::test]
    async fn h41_one_lookup_per_connection_and_a_second_answer_is_checked_again() {
        let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = target(&[&["127.0.0.2"], &["127.0.0.1"]], port, &["127.0.0.2/32"]);
        let stream = connect(&target, soon()).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap().ip(), IpAddr::from([127, 0, 0, 2]));
        let rebound = connect(&target, soon()).await.unwrap_err();
        assert!(matches!(rebound, NetError::Prohibited { .. }), "{rebound}");
    }

    #[tokio::test]
    async fn h41_one_bad_address_refuses_the_whole_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for answer in [&["8.8.8.8", "127.0.0.1"], &["127.0.0.1", "8.8.8.8"], &["2606:4700::1", "::ffff:127.0.0.1"]] {
            let error = connect(&target(&[answer], port, &[]), soon()).await.unwrap_err();
            assert_eq!((error.remedy(), error.code()), (Remedy::Deny, "destination-prohibited"));
            assert!(!error.for_plugin().contains("127.0.0.1"), "{}", error.for_plugin());
        }
        // They are accepted in the order in which they came.
        let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let first = listener.accept().await.unwrap().1;
        assert_eq!(first, ours.local_addr().unwrap(), "no refused address was dialled");
    }

    #[tokio::test]
    async fn an_address_that_refuses_is_followed_by_the_next() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = target(&[&["127.0.0.3", "::1", "127.0.0.1"]], port, &["127.0.0.0/8", "::1/128"]);
        let stream = connect(&target, soon()).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap().ip(), IpAddr::from([127, 0, 0, 1]));
    }

    #[tokio::test]
    async fn a_name_without_address_may_have_one_later() {
        let error = connect(&target(&[], 1, &[]), soon()).await.unwrap_err();
        assert_eq!((error.remedy(), error.code()), (Remedy::Retry, "name-not-resolved"));
        let error = connect(&target(&[&[]], 1, &[]), soon()).await.unwrap_err();
        assert_eq!(error.code(), "name-not-resolved");
    }

    #[test]
    fn families_alternate() {
        let order = alternating(["1.1.1.1", "1.0.0.1", "::2", "::3"].map(|a| a.parse().unwrap()).to_vec());
        assert_eq!(order, ["1.1.1.1", "::2", "1.0.0.1", "::3"].map(|a| a.parse::<IpAddr>().unwrap()));
    }
}
