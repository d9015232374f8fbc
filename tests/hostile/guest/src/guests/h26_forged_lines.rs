//! Prints what could pass for other lines, moves cursors and turns text around.

use tidegate_sdk::{Ctx, Error, Position};

pub(crate) struct Attack;

impl crate::Guest for Attack {
    fn observe(&self, _: &Ctx) -> Result<Position, Error> {
        println!("one\x1b[2J\u{202e}two\r\n{{\"level\":\"error\"}}\0");
        print!("{}", "x".repeat(100_000));
        crate::position("")
    }
}
