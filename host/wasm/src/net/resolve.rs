//! From names to addresses. Lookups of the system block, so they have a few threads of their own: neither can they hold
//! up anything else, nor can one tenant's hold up all others'.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use tidegate_protocol::plugin::BoxFuture;
use tokio::sync::oneshot;

/// Looks names up.
pub trait Resolve: Send + Sync {
    /// All addresses of a name, best first. The name is canonical and granted; every address is checked afterwards.
    /// `tenant` is on whose behalf.
    ///
    /// # Errors
    /// There are none now.
    fn resolve<'a>(&'a self, name: &'a str, tenant: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, ResolveError>>;
}

/// Why a name has no addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolveError {
    /// Too many lookups wait already.
    Busy,
    /// The name does not exist, or nobody who knows it answers.
    Failed(String),
}

/// Lookups that run at once.
const THREADS: usize = 8;
/// Of these, how many may be one tenant's.
const OF_ONE_TENANT: usize = 4;
/// Lookups that may wait.
const QUEUE: usize = 1024;
/// Of these, how many may be one tenant's.
const QUEUE_OF_ONE_TENANT: usize = 256;
const STACK_BYTES: usize = 512 << 10;

type Lookup = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// Asks the system: its hosts file, its name servers, whatever it is set up to ask.
pub struct SystemResolver(Arc<Pool>);

impl SystemResolver {
    /// The one of this process.
    pub fn shared() -> Arc<dyn Resolve> {
        static SHARED: OnceLock<Arc<SystemResolver>> = OnceLock::new();
        SHARED.get_or_init(|| Arc::new(Self::with(Box::new(ask_system)))).clone()
    }

    fn with(lookup: Box<Lookup>) -> Self {
        Self(Arc::new(Pool { lookup, queue: Mutex::default(), work: Condvar::new() }))
    }
}

impl Drop for SystemResolver {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.work.notify_all();
    }
}

fn ask_system(name: &str) -> io::Result<Vec<IpAddr>> {
    Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str, tenant: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, ResolveError>> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            Pool::submit(&self.0, Job { name: name.to_owned(), tenant: tenant.to_owned(), reply })?;
            match answer.await {
                Ok(Ok(addresses)) => Ok(addresses),
                Ok(Err(error)) => Err(ResolveError::Failed(error.to_string())),
                Err(_) => Err(ResolveError::Failed("the lookup's thread is gone".to_owned())),
            }
        })
    }
}

struct Job {
    name: String,
    tenant: String,
    reply: oneshot::Sender<io::Result<Vec<IpAddr>>>,
}

struct Pool {
    lookup: Box<Lookup>,
    queue: Mutex<Queue>,
    work: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Job>,
    /// Lookups that run, by tenant.
    running: BTreeMap<String, usize>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Queue {
    /// The first job of a tenant that has not too many running. Those nobody waits for any more are dropped.
    fn next(&mut self) -> Option<Job> {
        self.waiting.retain(|job| !job.reply.is_closed());
        let running = &self.running;
        let first = self.waiting.iter().position(|job| running.get(&job.tenant).is_none_or(|n| *n < OF_ONE_TENANT))?;
        let job = self.waiting.remove(first)?;
        *self.running.entry(job.tenant.clone()).or_default() += 1;
        Some(job)
    }

    fn done(&mut self, tenant: &str) {
        if let Some(running) = self.running.get_mut(tenant) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(tenant);
            }
        }
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(pool: &Arc<Pool>, job: Job) -> Result<(), ResolveError> {
        let mut queue = pool.lock();
        let of_tenant = |queue: &Queue| queue.waiting.iter().filter(|other| other.tenant == job.tenant).count();
        if queue.waiting.len() >= QUEUE || of_tenant(&queue) >= QUEUE_OF_ONE_TENANT {
            queue.waiting.retain(|job| !job.reply.is_closed());
            if queue.waiting.len() >= QUEUE || of_tenant(&queue) >= QUEUE_OF_ONE_TENANT {
                return Err(ResolveError::Busy);
            }
        }
        if queue.idle == 0 && queue.threads < THREADS {
            let worker = pool.clone();
            let spawned = thread::Builder::new()
                .name("tidegate-names".to_owned())
                .stack_size(STACK_BYTES)
                .spawn(move || worker.work());
            match spawned {
                Ok(_) => queue.threads += 1,
                Err(_) if queue.threads > 0 => {}
                Err(error) => return Err(ResolveError::Failed(format!("no thread for lookups: {error}"))),
            }
        }
        queue.waiting.push_back(job);
        drop(queue);
        pool.work.notify_one();
        Ok(())
    }

    fn work(&self) {
        let mut queue = self.lock();
        while !queue.closed {
            let Some(job) = queue.next() else {
                queue.idle += 1;
                queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
                queue.idle -= 1;
                continue;
            };
            drop(queue);
            let answer = (self.lookup)(&job.name);
            // Nobody listens if the connection was given up meanwhile.
            let _ = job.reply.send(answer);
            queue = self.lock();
            queue.done(&job.tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Lookups of names that begin with `slow` wait until the returned sender is dropped.
    fn held() -> (Arc<SystemResolver>, mpsc::Sender<()>) {
        let (release, held) = mpsc::channel::<()>();
        let held = Mutex::new(held);
        let answer = move |name: &str| {
            if name.starts_with("slow") {
                let _ = held.lock().unwrap().recv();
            }
            Ok(vec![IpAddr::from([8, 8, 8, 8])])
        };
        (Arc::new(SystemResolver::with(Box::new(answer))), release)
    }

    #[tokio::test]
    async fn h48_slow_names_of_one_tenant_do_not_hold_up_another() {
        let (resolver, release) = held();
        let mut slow = tokio::task::JoinSet::new();
        for i in 0..QUEUE_OF_ONE_TENANT {
            let resolver = resolver.clone();
            slow.spawn(async move { resolver.resolve(&format!("slow{i}"), "a").await });
        }
        while resolver.0.lock().running.get("a").copied() != Some(OF_ONE_TENANT) {
            tokio::task::yield_now().await;
        }
        assert!(resolver.resolve("quick", "b").await.is_ok());
        drop(release);
        while let Some(answer) = slow.join_next().await {
            assert!(answer.unwrap().is_ok());
        }
    }

    #[tokio::test]
    async fn h48_a_hundred_thousand_names_are_refused_and_not_kept() {
        let (resolver, release) = held();
        let mut kept = Vec::new();
        let mut refused = 0;
        for i in 0..100_000 {
            let resolver = resolver.clone();
            let mut lookup: BoxFuture<'static, _> =
                Box::pin(async move { resolver.resolve(&format!("slow{i}"), "a").await });
            match poll_once(&mut lookup).await {
                None => kept.push(lookup),
                Some(answer) => {
                    assert_eq!(answer, Err(ResolveError::Busy));
                    refused += 1;
                }
            }
        }
        assert!(kept.len() <= QUEUE_OF_ONE_TENANT + OF_ONE_TENANT, "{}", kept.len());
        assert_eq!(refused, 100_000 - kept.len());
        assert!(resolver.0.lock().threads <= THREADS);
        assert!(resolver.resolve("quick", "b").await.is_ok(), "another tenant's are looked up");
        drop(release);
        for lookup in kept {
            assert!(lookup.await.is_ok());
        }
    }

    async fn poll_once<T>(future: &mut BoxFuture<'_, T>) -> Option<T> {
        std::future::poll_fn(|cx| {
            std::task::Poll::Ready(match future.as_mut().poll(cx) {
                std::task::Poll::Ready(answer) => Some(answer),
                std::task::Poll::Pending => None,
            })
        })
        .await
    }

    #[tokio::test]
    async fn a_lookup_that_nobody_waits_for_is_not_begun() {
        let (resolver, release) = held();
        let blockers: Vec<_> = (0..OF_ONE_TENANT)
            .map(|i| {
                let resolver = resolver.clone();
                tokio::spawn(async move { resolver.resolve(&format!("slow{i}"), "a").await })
            })
            .collect();
        while resolver.0.lock().running.get("a").copied() != Some(OF_ONE_TENANT) {
            tokio::task::yield_now().await;
        }
        let given_up = tokio::spawn({
            let resolver = resolver.clone();
            async move { resolver.resolve("given-up", "a").await }
        });
        while resolver.0.lock().waiting.is_empty() {
            tokio::task::yield_now().await;
        }
        given_up.abort();
        let _ = given_up.await;
        assert!(resolver.resolve("other", "b").await.is_ok());
        assert!(resolver.0.lock().waiting.is_empty());
        drop(release);
        for blocker in blockers {
            assert!(blocker.await.unwrap().is_ok());
        }
    }
}
