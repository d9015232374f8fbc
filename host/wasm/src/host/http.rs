//! `wasi:http`: requests to granted places, sent by [`crate::net::http`].
//!
//! The types and most functions are wasmtime's. Ours are the only way out (its hook for sending), and those functions of
//! request bodies in which the end of an instance would look like the end of a body, or empty writes pile up.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, Method, Request, Response};
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::{DynOutputStream, OutputStream, Pollable, StreamError, StreamResult};
use wasmtime_wasi_http::p2::bindings::http::types::{ErrorCode, Trailers};
use wasmtime_wasi_http::p2::body::HostOutgoingBody;
use wasmtime_wasi_http::{
    Error, FieldMap, ForbiddenHeaderFilter, RequestOptions, WasiBody, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks,
    WasiHttpView,
};

use super::State;
use super::log::{LogLevel, PluginLog};
use crate::limits::{Limits, budget};
use crate::net::http::HTTP;
use crate::net::http::destination::Destination;
use crate::net::http::exchange::{Service, Unanswered, exchange};
use crate::net::http::headers;
use crate::net::http::place::HttpPlace;
use crate::net::http::pool::Pool;
use crate::net::traffic::Traffic;
use crate::tenant::Tenant;
use crate::text::{MAX_NAME, Redactor, clean};

/// Name and version of the interface as wasmtime links it; every 0.2 version finds it.
const TYPES: &str = "wasi:http/types@0.2.12";
/// Bytes of a request's body that wait for the connection, at most.
const CHUNK: usize = 64 << 10;
/// Calls between two looks at how much all fields come to. Each can add one set of fields.
const WEIGHED_EVERY: u32 = 64;
/// Bytes that one set of header fields takes, as wasmtime counts them.
const FIELDS_BYTES: usize = 64 << 10;
/// What a field takes beside its name and value.
const FIELD_OVERHEAD: usize = 128;

/// HTTP as one instance has it.
pub(crate) struct HttpState {
    ctx: WasiHttpCtx,
    hooks: Hooks,
    fields_limit: usize,
    calls: u32,
}

impl HttpState {
    pub(crate) fn new(
        places: Vec<Arc<HttpPlace>>,
        tenant: Tenant,
        traffic: Traffic,
        log: Arc<PluginLog>,
        redactor: Redactor,
        limits: &Limits,
    ) -> Self {
        let mut ctx = WasiHttpCtx::new();
        ctx.set_field_size_limit(FIELDS_BYTES.min(limits.header_bytes));
        let service = Service { traffic, pool: Pool::default(), redactor, log, unanswered: Unanswered::default() };
        Self { ctx, hooks: Hooks { places, tenant, service }, fields_limit: limits.header_bytes, calls: 0 }
    }

    /// Whether it was granted anything, and needs a runtime on its own thread.
    pub(crate) fn is_granted(&self) -> bool {
        !self.hooks.places.is_empty()
    }
}

impl WasiHttpView for State {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        self.meter.count_host_call();
        self.weigh_fields();
        WasiHttpCtxView { ctx: &mut self.http.ctx, table: &mut self.table, hooks: &mut self.http.hooks }
    }
}

impl State {
    /// Every set of fields is bounded, and so is their number; together that could be too much.
    fn weigh_fields(&mut self) {
        self.http.calls += 1;
        if self.http.calls < WEIGHED_EVERY {
            return;
        }
        self.http.calls = 0;
        let weight = |fields: &FieldMap| {
            let written: usize = fields.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
            written + fields.capacity().max(fields.len()) * FIELD_OVERHEAD
        };
        let sum: usize = self.table.iter_mut().filter_map(|entry| entry.downcast_ref::<FieldMap>()).map(weight).sum();
        if sum > self.http.fields_limit {
            // The next tick ends the call.
            self.meter.overdraw(budget::HEADERS);
        }
    }
}

/// What wasmtime asks us.
struct Hooks {
    places: Vec<Arc<HttpPlace>>,
    tenant: Tenant,
    service: Service,
}

type Sending = Box<dyn Future<Output = Result<(Response<WasiBody>, Sent), Error>> + Send>;
type Sent = Box<dyn Future<Output = Result<(), Error>> + Send>;

impl WasiHttpHooks for Hooks {
    fn is_forbidden_header(&mut self, name: &HeaderName) -> bool {
        headers::is_forbidden(name)
    }

    fn forbidden_header_filter(&mut self) -> ForbiddenHeaderFilter {
        Arc::new(headers::is_forbidden)
    }

    /// The grant's own is set.
    fn set_host_header(&mut self) -> bool {
        false
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        CHUNK
    }

    fn send_request(&mut self, request: Request<WasiBody>, options: Option<RequestOptions>, _: Sent) -> Sending {
        match self.granted(&request) {
            Ok(place) => {
                // A spent budget ends the call.
                if let Err(spent) = self.service.traffic.request() {
                    self.service.pool.running().overdrawn(spent);
                    return Box::new(async { Err(Error::ConnectionLimitReached) });
                }
                let service = self.service.clone();
                Box::new(async move {
                    let (answer, watch) = exchange(service, place, request, options.unwrap_or_default()).await?;
                    let watch: Sent = Box::new(watch);
                    Ok((answer, watch))
                })
            }
            Err(error) => Box::new(async { Err(error) }),
        }
    }
}

impl Hooks {
    /// The place that takes a request. Without one it is denied, counted and told to the operator.
    fn granted(&self, request: &Request<WasiBody>) -> Result<Arc<HttpPlace>, Error> {
        let refuse = |why: &str, error: Error| {
            self.tenant.count_denied(HTTP);
            let uri = request.uri();
            let to = format!(
                "{} {}://{}{}",
                request.method(),
                uri.scheme_str().unwrap_or("-"),
                uri.authority().map_or("-", |authority| authority.as_str()),
                uri.path()
            );
            self.service.log.write(LogLevel::Warn, &format!("denied: {}: {why}", clean(&to, MAX_NAME)), &[]);
            Err(error)
        };
        let method = request.method().as_str();
        if [Method::CONNECT.as_str(), Method::TRACE.as_str(), "TRACK"].iter().any(|no| method.eq_ignore_ascii_case(no))
        {
            return refuse("no request may use this method", Error::HttpRequestMethodInvalid);
        }
        let to = match Destination::of(request.uri()) {
            Ok(to) => to,
            Err(why) => return refuse(why, Error::HttpRequestDenied),
        };
        if let Err(name) = headers::check_request(request.headers()) {
            return refuse(&format!("the field {name} is the host's"), Error::HttpRequestDenied);
        }
        let places = self.places.iter().filter(|place| place.takes(&to));
        match places.max_by_key(|place| place.narrowness()) {
            Some(place) => Ok(place.clone()),
            None => refuse("nothing that is granted in this role covers it", Error::HttpRequestDenied),
        }
    }
}

impl Drop for Hooks {
    /// What was sent may have its effect, and nobody will read the answer.
    fn drop(&mut self) {
        self.service.pool.close();
        let unanswered = self.service.unanswered.count();
        if unanswered > 0 {
            let message = format!("the instance ended with {unanswered} HTTP requests sent and not answered");
            self.service.log.write(LogLevel::Warn, &message, &[]);
        }
    }
}

/// Links all of `wasi:http` that a plugin can import, with our functions in place of three.
pub(crate) fn link(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)?;
    linker.allow_shadowing(true);
    let mut types = linker.instance(TYPES)?;
    types.func_wrap("[method]outgoing-body.write", |store, (body,)| write(store, body).map(|answer| (answer,)))?;
    types.func_wrap("[static]outgoing-body.finish", |store, (body, trailers)| {
        finish(store, body, trailers).map(|answer| (answer,))
    })?;
    linker.allow_shadowing(false);
    Ok(())
}

/// Hands out the stream of a request's body, once.
fn write(
    mut store: StoreContextMut<'_, State>,
    body: Resource<HostOutgoingBody>,
) -> wasmtime::Result<Result<Resource<DynOutputStream>, ()>> {
    let view = store.data_mut().http();
    let Some(inner) = view.table.get_mut(&body)?.take_output_stream() else { return Ok(Err(())) };
    let stream: DynOutputStream = Box::new(BodyStream { inner });
    Ok(Ok(view.table.push_child(stream, &body)?))
}

/// Finishes a request's body, and says so with trailers even if there are none: see
/// [`crate::net::http::body::RequestBody`].
fn finish(
    mut store: StoreContextMut<'_, State>,
    body: Resource<HostOutgoingBody>,
    trailers: Option<Resource<Trailers>>,
) -> wasmtime::Result<Result<(), ErrorCode>> {
    let state = store.data_mut();
    let view = state.http();
    let body = view.table.delete(body)?;
    let trailers = match trailers {
        Some(trailers) => view.table.delete(trailers)?,
        None => FieldMap::default(),
    };
    if let Err(name) = headers::check_trailers(&trailers) {
        body.abort();
        state.network.tenant.count_denied(HTTP);
        let message = format!("denied: the trailer {name} is the host's, or must be said before the body");
        state.log.write(LogLevel::Warn, &message, &[]);
        return Ok(Err(ErrorCode::HttpRequestDenied));
    }
    Ok(body.finish(Some(trailers)))
}

/// wasmtime's stream of a body, without its empty writes, each of which would wait in the connection's queue.
struct BodyStream {
    inner: Box<dyn OutputStream>,
}

#[async_trait]
impl Pollable for BodyStream {
    async fn ready(&mut self) {
        self.inner.ready().await;
    }
}

#[async_trait]
impl OutputStream for BodyStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        match bytes.is_empty() {
            true => self.inner.check_write().map(drop),
            false => self.inner.write(bytes),
        }
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.inner.flush()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.inner.check_write()
    }

    /// Returns when the connection has taken all of it, which is not when the server has.
    async fn blocking_write_and_flush(&mut self, mut bytes: Bytes) -> StreamResult<()> {
        while !bytes.is_empty() {
            let permit = self.inner.write_ready().await?;
            let chunk = bytes.split_to(permit.min(bytes.len()));
            self.inner.write(chunk)?;
        }
        match self.inner.write_ready().await {
            // Sent, and the server wants no more.
            Ok(_) | Err(StreamError::Closed) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn cancel(&mut self) {
        self.inner.cancel().await;
    }
}
