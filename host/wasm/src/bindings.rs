//! Generated from `wit/0.1`. Private: the rest of the crate speaks the protocol's words, see `convert`.
#![allow(missing_docs, unreachable_pub, clippy::all)]

wasmtime::component::bindgen!({
    path: "../../wit/0.1",
    world: "sink",
    imports: { default: async | trappable },
    exports: { default: async },
    with: {
        "wasi:io": wasmtime_wasi::p2::bindings::io,
        "tidegate:sink/rows.batch": crate::host::rows::HostBatch,
        "tidegate:sink/tcp.connection": crate::host::tcp::HostConnection,
        "tidegate:sink/secrets.secret": crate::host::secrets::HostSecret,
    },
});

pub(crate) use self::exports::tidegate::sink as exported;
pub(crate) use self::tidegate::sink as imported;
