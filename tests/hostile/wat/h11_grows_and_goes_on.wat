;; As the other, but takes no for an answer and goes on.
(func (export "tidegate:sink/writer@0.1.0#write") (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32) (result i32)
  (loop $more
    (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
  (global.get $ok))
