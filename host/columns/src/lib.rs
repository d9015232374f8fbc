//! Typed rows as Arrow record batches: schemas, decoding and encoding, whole files, and light transforms.
//!
//! Knows no runtime, no sandbox and no barriers: bytes in, columns out, and the other way round.

pub mod added;
pub mod decode;
pub mod encode;
pub mod files;
pub mod fit;
pub mod parquet;
pub mod rows;
pub mod schema;
pub mod transform;

mod error;
mod sql;
mod temporal;

pub use error::{ColumnsError, ColumnsErrorKind, Result};
pub use schema::Schema;
