//! Looks around.

use tidegate_sdk::{Ctx, Error, Position};

pub(crate) struct Attack;

impl crate::Guest for Attack {
    fn observe(&self, _: &Ctx) -> Result<Position, Error> {
        let (env, args) = (std::env::vars().count(), std::env::args().count());
        let mut line = String::new();
        let stdin = std::io::stdin().read_line(&mut line).unwrap_or(0);
        let root = std::fs::read_dir("/").is_err();
        let here = std::fs::read_dir(".").is_err();
        let tcp = std::net::TcpStream::connect(("127.0.0.1", 1)).is_err();
        crate::position(format!("env={env} args={args} stdin={stdin} root={root} here={here} tcp={tcp}"))
    }
}
