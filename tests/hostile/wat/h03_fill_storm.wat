;; Fills and copies sixteen mebibytes again and again: few instructions, much memory traffic.
(memory (export "memory") 257)
(func (export "tidegate:sink/writer@0.1.0#write") (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32) (result i32)
  (loop $forever
    (memory.fill (i32.const 65536) (i32.const 7) (i32.const 8388608))
    (memory.copy (i32.const 8454144) (i32.const 65536) (i32.const 8388608))
    (br $forever))
  unreachable)
