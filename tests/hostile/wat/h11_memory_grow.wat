;; Grows its memory and writes to all of it until nothing more is given, and trips over that.
(func (export "tidegate:sink/writer@0.1.0#write") (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32) (result i32)
  (local $at i32)
  (loop $more
    (local.set $at (memory.grow (i32.const 16)))
    (if (i32.eq (local.get $at) (i32.const -1)) (then unreachable))
    (memory.fill (i32.shl (local.get $at) (i32.const 16)) (i32.const 1) (i32.const 1048576))
    (br $more))
  unreachable)
