//! Outside of the sandbox there is no HTTP.

use std::io::{self, Read, Write};

use super::Request;
use crate::{Batch, Error};

/// A request whose body is being sent.
#[derive(Debug)]
pub enum Upload {}

/// The answer to a request.
#[derive(Debug)]
pub enum Response {}

impl Request {
    /// There is no HTTP outside of the sandbox.
    ///
    /// # Errors
    /// Always.
    pub fn send(self, _: &[u8]) -> Result<Response, Error> {
        Err(Error::unsupported("HTTP outside of the sandbox"))
    }

    /// There is no HTTP outside of the sandbox.
    ///
    /// # Errors
    /// Always.
    pub fn begin(self) -> Result<Upload, Error> {
        Err(Error::unsupported("HTTP outside of the sandbox"))
    }
}

impl Upload {
    /// Moves the rows into the body.
    ///
    /// # Errors
    /// None: there is no such upload.
    pub fn write_batch(&mut self, _: &Batch) -> Result<u64, Error> {
        match *self {}
    }

    /// Ends the body and waits for the answer.
    ///
    /// # Errors
    /// None: there is no such upload.
    pub fn finish(self) -> Result<Response, Error> {
        match self {}
    }

    /// Ends the body with trailers and waits for the answer.
    ///
    /// # Errors
    /// None: there is no such upload.
    pub fn finish_with(self, _: &[(String, Vec<u8>)]) -> Result<Response, Error> {
        match self {}
    }
}

impl Write for Upload {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match *self {}
    }
}

impl Response {
    /// Its status.
    pub fn status(&self) -> u16 {
        match *self {}
    }

    /// The values of a field.
    pub fn header(&self, _: &str) -> Vec<Vec<u8>> {
        match *self {}
    }

    /// The rest of the body, of at most `most` bytes.
    ///
    /// # Errors
    /// None: there is no such answer.
    pub fn body(&mut self, _: usize) -> Result<Vec<u8>, Error> {
        match *self {}
    }

    /// What followed the body.
    ///
    /// # Errors
    /// None: there is no such answer.
    pub fn trailers(self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        match self {}
    }
}

impl Read for Response {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }
}
