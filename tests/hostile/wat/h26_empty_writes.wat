;; Writes nothing to standard output, again and again.
(import "wasi:cli/stdout@0.2.12" "get-stdout" (func $stdout (result i32)))
(import "wasi:io/streams@0.2.12" "[method]output-stream.check-write" (func $check (param i32 i32)))
(import "wasi:io/streams@0.2.12" "[method]output-stream.write" (func $write (param i32 i32 i32 i32)))
(func (export "tidegate:sink/writer@0.1.0#write") (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32) (result i32)
  (local $out i32)
  (local.set $out (call $stdout))
  (loop $forever
    (call $check (local.get $out) (i32.const 4800))
    (call $write (local.get $out) (i32.const 6000) (i32.const 0) (i32.const 4816))
    (br $forever))
  unreachable)
