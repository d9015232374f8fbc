//! Steps past the SDK: sockets of the standard library, and streams without its care.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, ToSocketAddrs as _, UdpSocket};

/// Steps with sockets of the standard library, as plugins in other languages have them.
pub(crate) fn take(word: &str, rest: &str) -> String {
    let done = match word {
        "std" => talk(rest),
        "std-loop" => begin(rest),
        "raw-connect" => TcpStream::connect(rest).map(|_| "connected".to_owned()),
        "resolve" => rest.to_socket_addrs().map(|found| {
            let found: Vec<_> = found.map(|address| address.ip().to_string()).collect();
            found.join(" ")
        }),
        "resolve-many" => {
            let count: u32 = rest.parse().expect("a number");
            let failed = (0..count).filter(|i| format!("secret-{i}.example:80").to_socket_addrs().is_err()).count();
            Ok(format!("{failed} failed"))
        }
        "listen" => TcpListener::bind(rest).map(|_| "listening".to_owned()),
        _ => UdpSocket::bind(rest).map(|_| "bound".to_owned()),
    };
    done.unwrap_or_else(|error| format!("{:?}", error.kind()))
}

/// Begins to talk, and then computes for ever.
fn begin(place: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(place)?;
    stream.write_all(b"hello")?;
    stream.read_exact(&mut [0; 2])?;
    loop {
        std::hint::black_box(0);
    }
}

/// Says what follows the place, and what comes back until the end.
fn talk(rest: &str) -> std::io::Result<String> {
    let (place, words) = rest.split_once(' ').unwrap_or((rest, ""));
    let mut stream = TcpStream::connect(place)?;
    stream.write_all(words.as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Writes nothing, very often, then one byte.
#[cfg(target_family = "wasm")]
pub(crate) fn empty_writes(rest: &str) -> String {
    use tidegate_sdk::guest::bindings::tidegate::sink::tcp;
    let (name, count) = rest.split_once(' ').expect("a name and a number");
    let connection = tcp::connect(name).expect("granted");
    let (_input, output) = connection.streams().expect("once");
    for _ in 0..count.parse::<u64>().expect("a number") {
        output.write(&[]).expect("open");
    }
    output.blocking_write_and_flush(b"x").expect("open");
    "written".to_owned()
}

#[cfg(not(target_family = "wasm"))]
pub(crate) fn empty_writes(_: &str) -> String {
    String::new()
}
