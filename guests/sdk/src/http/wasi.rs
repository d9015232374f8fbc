//! Requests through the host.

use std::io::{self, Read, Write};

use super::Request;
use crate::guest::bindings::wasi::http::outgoing_handler;
use crate::guest::bindings::wasi::http::types::{
    ErrorCode, Fields, FutureIncomingResponse, HeaderError, IncomingBody, IncomingResponse, Method, OutgoingBody,
    OutgoingRequest, Scheme, http_error_code,
};
use crate::guest::bindings::wasi::io::streams::{InputStream, OutputStream, StreamError};
use crate::{Batch, Error};

/// A request whose body is being sent. Fields are dropped in this order, as the host wants it.
pub struct Upload {
    stream: Option<OutputStream>,
    body: Option<OutgoingBody>,
    answer: FutureIncomingResponse,
}

/// The answer to a request.
pub struct Response {
    stream: Option<InputStream>,
    body: Option<IncomingBody>,
    head: IncomingResponse,
}

impl Request {
    /// Sends it with this body and waits for the head of the answer.
    ///
    /// # Errors
    /// `denied`: no grant covers it, or the service may not be reached. `bad-config`: its grant cannot be used.
    /// `retryable`: there is no answer; the server may have carried it out.
    pub fn send(self, body: &[u8]) -> Result<Response, Error> {
        let bodiless = body.is_empty();
        let request = self.into_outgoing()?;
        let mut upload = Upload::begin(request, !bodiless)?;
        if !bodiless {
            upload.write_all(body).map_err(super::super::tcp::lost)?;
        }
        upload.finish()
    }

    /// Sends its head. The body is what is written then.
    ///
    /// # Errors
    /// Like [`Request::send`].
    pub fn begin(self) -> Result<Upload, Error> {
        Upload::begin(self.into_outgoing()?, true)
    }

    fn into_outgoing(self) -> Result<OutgoingRequest, Error> {
        let fields = Fields::new();
        for (name, value) in &self.headers {
            fields.append(name, value).map_err(|error| refused_field(name, error))?;
        }
        let bad = |what: &str| Error::permanent("bad-request", format!("{what} cannot be sent"));
        let (scheme, rest) = self.url.split_once("://").ok_or_else(|| bad("a URL without scheme"))?;
        let split = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(split);
        let request = OutgoingRequest::new(fields);
        request.set_method(&method(&self.method)).map_err(|()| bad("this method"))?;
        let scheme = match scheme {
            "https" => Scheme::Https,
            "http" => Scheme::Http,
            other => Scheme::Other(other.to_owned()),
        };
        request.set_scheme(Some(&scheme)).map_err(|()| bad("this scheme"))?;
        request.set_authority(Some(authority)).map_err(|()| bad("this authority"))?;
        request.set_path_with_query(Some(path)).map_err(|()| bad("this path"))?;
        Ok(request)
    }
}

fn method(name: &str) -> Method {
    match name {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "OPTIONS" => Method::Options,
        "PATCH" => Method::Patch,
        other => Method::Other(other.to_owned()),
    }
}

fn refused_field(name: &str, error: HeaderError) -> Error {
    match error {
        HeaderError::Forbidden => Error::denied("forbidden-field", format!("the field {name} is the host's")),
        HeaderError::InvalidSyntax => Error::permanent("bad-field", format!("the field {name} cannot be sent")),
        HeaderError::Immutable => Error::permanent("bad-field", format!("the field {name} cannot be changed")),
    }
}

impl Upload {
    fn begin(request: OutgoingRequest, with_body: bool) -> Result<Self, Error> {
        let twice = |()| Error::permanent("bad-request", "its content-length is none");
        let body = if with_body { Some(request.body().map_err(twice)?) } else { None };
        let stream = body.as_ref().map(OutgoingBody::write).transpose().map_err(twice)?;
        let answer = outgoing_handler::handle(request, None).map_err(|code| told(&code))?;
        Ok(Self { stream, body, answer })
    }

    /// The host moves the rows into the body and returns when the connection has taken them, with the number of bytes
    /// moved. They do not pass through the plugin's memory.
    ///
    /// # Errors
    /// `epoch-lost`: some of the rows may be there; the request is dead.
    pub fn write_batch(&mut self, rows: &Batch) -> Result<u64, Error> {
        match &self.stream {
            Some(stream) => rows.inner.write_to(stream).map_err(Error::from),
            None => Err(super::super::tcp::lost(closed())),
        }
    }

    /// Ends the body and waits for the head of the answer.
    ///
    /// # Errors
    /// Like [`Request::send`].
    pub fn finish(self) -> Result<Response, Error> {
        self.end(None)
    }

    /// Ends the body with trailers and waits for the head of the answer.
    ///
    /// # Errors
    /// Like [`Request::send`]; the trailers are not allowed, and the request is broken off.
    pub fn finish_with(self, trailers: &[(String, Vec<u8>)]) -> Result<Response, Error> {
        let fields = Fields::new();
        for (name, value) in trailers {
            fields.append(name, value).map_err(|error| refused_field(name, error))?;
        }
        self.end(Some(fields))
    }

    fn end(mut self, trailers: Option<Fields>) -> Result<Response, Error> {
        self.stream = None;
        if let Some(body) = self.body.take() {
            OutgoingBody::finish(body, trailers).map_err(|code| told(&code))?;
        }
        loop {
            match self.answer.get() {
                Some(Ok(Ok(head))) => return Response::new(head),
                Some(Ok(Err(code))) => return Err(told(&code)),
                Some(Err(())) => return Err(super::super::tcp::lost(closed())),
                None => self.answer.subscribe().block(),
            }
        }
    }
}

impl Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let stream = self.stream.as_ref().ok_or_else(closed)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        loop {
            let permit = usize::try_from(stream.check_write().map_err(failed)?).unwrap_or(usize::MAX);
            if permit > 0 {
                let now = &bytes[..bytes.len().min(permit)];
                stream.write(now).map_err(failed)?;
                return Ok(now.len());
            }
            stream.subscribe().block();
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.as_ref().ok_or_else(closed)?.blocking_flush().map_err(failed)
    }
}

impl Response {
    fn new(head: IncomingResponse) -> Result<Self, Error> {
        let gone = |()| super::super::tcp::lost(closed());
        let body = head.consume().map_err(gone)?;
        let stream = body.stream().map_err(gone)?;
        Ok(Self { stream: Some(stream), body: Some(body), head })
    }

    /// Its status.
    pub fn status(&self) -> u16 {
        self.head.status()
    }

    /// The values of a field.
    pub fn header(&self, name: &str) -> Vec<Vec<u8>> {
        self.head.headers().get(name)
    }

    /// The rest of the body.
    ///
    /// # Errors
    /// `retryable`: it breaks off, or has more than `most` bytes.
    pub fn body(&mut self, most: usize) -> Result<Vec<u8>, Error> {
        let mut read = Vec::new();
        let mut chunk = vec![0; 64 << 10];
        loop {
            match self.read(&mut chunk).map_err(super::super::tcp::lost)? {
                0 => return Ok(read),
                n if read.len() + n > most => {
                    return Err(Error::retryable("too-long", format!("the answer has more than {most} bytes")));
                }
                n => read.extend_from_slice(&chunk[..n]),
            }
        }
    }

    /// What followed the body, which is read to its end.
    ///
    /// # Errors
    /// `retryable`: the answer breaks off.
    pub fn trailers(mut self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        self.stream = None;
        let Some(body) = self.body.take() else { return Ok(Vec::new()) };
        let trailers = IncomingBody::finish(body);
        loop {
            match trailers.get() {
                Some(Ok(Ok(Some(fields)))) => return Ok(fields.entries()),
                Some(Ok(Ok(None))) => return Ok(Vec::new()),
                Some(Ok(Err(code))) => return Err(told(&code)),
                Some(Err(())) => return Err(super::super::tcp::lost(closed())),
                None => trailers.subscribe().block(),
            }
        }
    }
}

impl Read for Response {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(stream) = &self.stream else { return Ok(0) };
        if buffer.is_empty() {
            return Ok(0);
        }
        match stream.blocking_read(buffer.len() as u64) {
            Ok(bytes) => {
                buffer[..bytes.len()].copy_from_slice(&bytes);
                Ok(bytes.len())
            }
            Err(StreamError::Closed) => Ok(0),
            Err(error) => Err(failed(error)),
        }
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the request or its answer is over")
}

fn failed(error: StreamError) -> io::Error {
    match error {
        StreamError::Closed => closed(),
        StreamError::LastOperationFailed(error) => match http_error_code(&error) {
            Some(code) => io::Error::other(told(&code).message),
            None => io::Error::other(error.to_debug_string()),
        },
    }
}

fn told(code: &ErrorCode) -> Error {
    let message = match code {
        ErrorCode::InternalError(Some(detail)) => detail.clone(),
        other => format!("{other:?}"),
    };
    match code {
        ErrorCode::HttpRequestDenied | ErrorCode::HttpRequestMethodInvalid => Error::denied("not-granted", message),
        ErrorCode::DestinationIpProhibited => Error::denied("destination-prohibited", message),
        ErrorCode::TlsCertificateError => Error::denied("certificate-refused", message),
        ErrorCode::ConfigurationError => Error::bad_config("bad-grant", message),
        ErrorCode::HttpRequestBodySize(_) | ErrorCode::HttpRequestUriInvalid => {
            Error::permanent("bad-request", message)
        }
        _ => Error::retryable("no-answer", message),
    }
}
