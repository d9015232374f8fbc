//! Random numbers: an instance's own, and only so many.

use wasmtime_wasi::p2::bindings::random::{insecure, insecure_seed, random};

use super::State;

/// Bytes of one number.
const NUMBER: u64 = 8;

impl random::Host for State {
    fn get_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        self.meter.take_random(len)?;
        random::Host::get_random_bytes(self.wasi.random(), len)
    }

    fn get_random_u64(&mut self) -> wasmtime::Result<u64> {
        self.meter.take_random(NUMBER)?;
        random::Host::get_random_u64(self.wasi.random())
    }
}

impl insecure::Host for State {
    fn get_insecure_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        self.meter.take_random(len)?;
        insecure::Host::get_insecure_random_bytes(self.wasi.random(), len)
    }

    fn get_insecure_random_u64(&mut self) -> wasmtime::Result<u64> {
        self.meter.take_random(NUMBER)?;
        insecure::Host::get_insecure_random_u64(self.wasi.random())
    }
}

impl insecure_seed::Host for State {
    fn insecure_seed(&mut self) -> wasmtime::Result<(u64, u64)> {
        self.meter.check()?;
        insecure_seed::Host::insecure_seed(self.wasi.random())
    }
}
