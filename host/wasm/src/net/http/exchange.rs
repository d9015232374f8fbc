//! One request and its answer.

use std::error::Error as _;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use http::header::{self, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::time::Instant;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody};

use super::auth::{self, AuthError, ToSign};
use super::body::{AnswerBody, Claim, RequestBody};
use super::headers::{self, MAX_HEAD_BYTES, MAX_HEAD_FIELDS, Withheld};
use super::place::{HttpPlace, Version};
use super::pool::{Line, NoConnection, Outgoing, Pool};
use super::wire::EndlessHead;
use crate::host::log::{LogLevel, PluginLog};
use crate::net::traffic::Traffic;
use crate::net::{Deadline, NetError};
use crate::text::{MAX_NAME, Redactor, clean};

/// Longest time in which nothing of an answer's body arrives.
const IDLE: Duration = Duration::from_secs(30);
/// As good as for ever.
const FAR: Duration = Duration::from_secs(365 * 86_400);
/// Connections that turn out to be closed before anything was sent on them.
const TRIES: usize = 3;
/// Bytes of an answer's head and of all interim answers before it.
const HEAD_AND_INTERIM: u64 = 4 * MAX_HEAD_BYTES as u64;

/// What one instance sends requests with.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) traffic: Traffic,
    pub(crate) pool: Pool,
    pub(crate) redactor: Redactor,
    pub(crate) log: Arc<PluginLog>,
    pub(crate) unanswered: Unanswered,
}

/// How many requests have been sent, at least in part, and have no answer yet.
#[derive(Clone, Default)]
pub(crate) struct Unanswered(Arc<AtomicUsize>);

impl Unanswered {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn begin(&self) -> Self {
        self.0.fetch_add(1, Ordering::Relaxed);
        self.clone()
    }

    fn end(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The connection of a request until its answer is over, shared by who reads the answer and who watches the clock.
#[derive(Clone)]
pub(crate) struct Lease(Arc<Mutex<Option<(Line, Claim)>>>, Pool);

impl Lease {
    fn new(line: Line, claim: Claim, pool: Pool) -> Self {
        Self(Arc::new(Mutex::new(Some((line, claim)))), pool)
    }

    fn take(&self) -> Option<(Line, Claim)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The answer is over and whole. A request that is not breaks off.
    pub(crate) fn done(&self) {
        if let Some((line, claim)) = self.take()
            && claim.is_sent()
        {
            self.1.give_back(line);
        }
    }

    /// Nobody may wait for the rest.
    pub(crate) fn cut(&self) {
        drop(self.take());
    }
}

/// Cuts the connection when the time for the whole exchange is over, whether anybody reads the answer or not.
pub(crate) type Watch = std::pin::Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// Sends a request to the place that takes it, and waits for the head of the answer.
///
/// # Errors
/// In WASI's words. What concerns the operator is in the log.
pub(crate) async fn exchange(
    service: Service,
    place: Arc<HttpPlace>,
    request: Request<WasiBody>,
    options: RequestOptions,
) -> Result<(Response<WasiBody>, Watch), Error> {
    let start = Instant::now();
    let end = start + place.grant.request_time.min(FAR);
    let head_end = options.first_byte_timeout.map_or(end, |most| end.min(start + most.min(FAR)));
    let asked = ask(&service, &place, request, &options);
    let asked = tokio::select! {
        answered = tokio::time::timeout_at(head_end, asked) => answered,
        () = service.pool.running().stopped() => return Err(Error::ConnectionTerminated),
    };
    let (answer, lease, withheld) = match asked {
        Ok(answered) => answered?,
        Err(_) => {
            let allowed = head_end - start;
            service.tell(LogLevel::Warn, &place, &format_args!("no answer within {allowed:?} (`request-time`)"));
            return Err(Error::HttpResponseTimeout);
        }
    };
    let (mut head, body) = answer.into_parts();
    check_head(&head).inspect_err(|_| service.tell(LogLevel::Warn, &place, &"the head of the answer is refused"))?;
    headers::clean_answer(&mut head.headers, &withheld);
    let idle = options.between_bytes_timeout.map_or(IDLE, |most| most.min(IDLE));
    let body = AnswerBody::new(body, place.grant.response_bytes, idle, end, withheld, lease.clone());
    let watch = Box::pin(async move {
        tokio::time::sleep_until(end).await;
        lease.cut();
        Ok(())
    });
    Ok((Response::from_parts(head, body.boxed_unsync()), watch))
}

/// Sends it, on a fresh connection if one that was kept turns out to be closed.
async fn ask(
    service: &Service,
    place: &HttpPlace,
    request: Request<WasiBody>,
    options: &RequestOptions,
) -> Result<(Response<Incoming>, Lease, Withheld), Error> {
    let (mut head, body) = request.into_parts();
    let declared = declared_length(&head.headers);
    let most = place.grant.request_bytes;
    if declared.is_some_and(|declared| declared > most) {
        return Err(Error::HttpRequestBodySize(declared));
    }
    let url = sent_url(place, &head.uri)?;
    let withheld = sign(service, place, &mut head, &url, body.is_end_stream() || declared == Some(0))?;
    let (mut body, claim) = RequestBody::new(body, declared, most);

    let connect_time = place.grant.connect_time.min(options.connect_timeout.unwrap_or(FAR));
    let deadline = Deadline::after(connect_time);
    let (mut line, mut fresh) = connected(service, place, deadline).await?;
    let version = line.version();
    address(&mut head, place, &url, version)?;
    if version == Version::Http1 {
        body.announce(announced(&head.headers));
    }
    let mut request = Request::from_parts(head, Outgoing::new(body));
    for _ in 0..TRIES {
        line.head.begin(if version == Version::Http1 { HEAD_AND_INTERIM } else { u64::MAX });
        let unanswered = Begun(service.unanswered.begin());
        let answer = line.send(request).await;
        drop(unanswered);
        line.head.end();
        let mut error = match answer {
            Ok(answer) => return Ok((answer, Lease::new(line, claim, service.pool.clone()), withheld)),
            Err(error) => error,
        };
        match error.take_message() {
            // A connection that was kept; nothing of the request was sent.
            Some(unsent) if !fresh => request = unsent,
            _ => return Err(failed(service, place, &error.into_error())),
        }
        (line, fresh) = connected(service, place, deadline).await?;
        if line.version() != version {
            break;
        }
    }
    Err(Error::ConnectionTerminated)
}

/// A request that has begun; its time without an answer is over when this is dropped.
struct Begun(Unanswered);

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.end();
    }
}

async fn connected(service: &Service, place: &HttpPlace, deadline: Deadline) -> Result<(Line, bool), Error> {
    let error = match service.pool.line(place, &service.traffic, deadline).await {
        Ok(line) => return Ok(line),
        Err(error) => error,
    };
    match error {
        NoConnection::Net(error) => {
            service.tell(LogLevel::Warn, place, &error);
            if let NetError::Prohibited { .. } = error {
                service.traffic.tenant().count_denied(super::HTTP);
            }
            Err(in_wasi_words(&error))
        }
        // The call ends over it.
        NoConnection::Spent(spent) => {
            service.pool.running().overdrawn(spent);
            Err(Error::ConnectionLimitReached)
        }
        NoConnection::TenantFull => Err(Error::ConnectionLimitReached),
        NoConnection::Protocol(error) => {
            service.tell(LogLevel::Warn, place, &error);
            Err(Error::HttpProtocolError)
        }
    }
}

impl Service {
    fn tell(&self, level: LogLevel, place: &HttpPlace, what: &dyn fmt::Display) {
        self.log.write(level, &format!("http `{}`: {what}", place.name), &[]);
    }
}

/// What the plugin may learn: nothing of files and addresses.
fn in_wasi_words(error: &NetError) -> Error {
    match error {
        NetError::BadHost { .. } | NetError::BadPath { .. } | NetError::Trust { .. } | NetError::TrustLost { .. } => {
            Error::ConfigurationError
        }
        NetError::Prohibited { .. } => Error::DestinationIpProhibited,
        NetError::Certificate { .. } => Error::TlsCertificateError,
        NetError::ClientRefused { .. } => Error::TlsAlertReceived { alert_id: None, alert_message: None },
        NetError::Lookup { .. } => Error::DnsError { rcode: None, info_code: None },
        NetError::ResolverBusy { .. } => Error::DnsTimeout,
        NetError::Connect { .. } => Error::ConnectionRefused,
        NetError::Tls { .. } => Error::TlsProtocolError,
        NetError::TimedOut { .. } => Error::ConnectionTimeout,
    }
}

fn declared_length(fields: &http::HeaderMap) -> Option<u64> {
    fields.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn announced(fields: &http::HeaderMap) -> Vec<HeaderName> {
    let named = fields.get_all(header::TRAILER).iter().filter_map(|value| value.to_str().ok());
    named.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok()).collect()
}

/// The request's address with the authority of the grant, however the plugin wrote it.
fn sent_url(place: &HttpPlace, asked: &Uri) -> Result<Uri, Error> {
    let path = asked.path_and_query().map_or("/", |path| path.as_str());
    let scheme = if place.grant.secure { "https" } else { "http" };
    Uri::builder()
        .scheme(scheme)
        .authority(place.authority())
        .path_and_query(path)
        .build()
        .map_err(|_| Error::HttpRequestUriInvalid)
}

fn sign(
    service: &Service,
    place: &HttpPlace,
    head: &mut http::request::Parts,
    url: &Uri,
    bodiless: bool,
) -> Result<Withheld, Error> {
    let url = url.to_string();
    #[allow(clippy::disallowed_methods, reason = "a service compares the time of a signature with its own clock")]
    let now = SystemTime::now();
    let to_sign = ToSign { method: &head.method, url: &url, secure: place.grant.secure, bodiless, now };
    let added = auth::authorize(&place.grant.auth, &to_sign, &mut head.headers, &service.redactor);
    added.map_err(|error| {
        service.tell(LogLevel::Error, place, &error);
        match error {
            AuthError::Unusable(_) => Error::ConfigurationError,
            AuthError::Unsigned(what) => Error::InternalError(Some(what.to_owned())),
        }
    })
}

/// Puts the address where the version of HTTP has it.
fn address(head: &mut http::request::Parts, place: &HttpPlace, url: &Uri, version: Version) -> Result<(), Error> {
    head.headers.remove(header::HOST);
    match version {
        Version::Http1 => {
            let path = url.path_and_query().map_or("/", |path| path.as_str());
            head.uri = path.parse().map_err(|_| Error::HttpRequestUriInvalid)?;
            let host = HeaderValue::from_str(place.authority()).map_err(|_| Error::ConfigurationError)?;
            head.headers.insert(header::HOST, host);
        }
        Version::Http2 => head.uri = url.clone(),
    }
    Ok(())
}

fn check_head(head: &http::response::Parts) -> Result<(), Error> {
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(Error::HttpUpgradeFailed);
    }
    let bytes: usize = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    match head.headers.len() > MAX_HEAD_FIELDS || bytes > MAX_HEAD_BYTES {
        true => Err(Error::HttpResponseHeaderSectionSize(u32::try_from(bytes).ok())),
        false => Ok(()),
    }
}

/// Why there was no answer.
fn failed(service: &Service, place: &HttpPlace, error: &hyper::Error) -> Error {
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(own) = inner.downcast_ref::<Error>() {
            return repeated(own);
        }
        let io = inner.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if io.is_some_and(|inner| inner.is::<EndlessHead>()) {
            service.tell(LogLevel::Warn, place, &EndlessHead);
            return Error::HttpResponseHeaderSectionSize(None);
        }
        cause = inner.source();
    }
    service.tell(LogLevel::Warn, place, &clean(&full(error), MAX_NAME));
    if error.is_parse_too_large() {
        Error::HttpResponseHeaderSectionSize(None)
    } else if error.is_parse() {
        Error::HttpProtocolError
    } else {
        Error::ConnectionTerminated
    }
}

/// With all causes.
fn full(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text
}

/// What a request's own body said.
fn repeated(error: &Error) -> Error {
    match error {
        Error::HttpRequestBodySize(size) => Error::HttpRequestBodySize(*size),
        Error::HttpRequestDenied => Error::HttpRequestDenied,
        Error::InternalError(detail) => Error::InternalError(detail.clone()),
        _ => Error::ConnectionTerminated,
    }
}
