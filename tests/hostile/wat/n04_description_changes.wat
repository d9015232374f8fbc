;; Says something else each time it is asked.
(global $asked (mut i32) (i32.const 0))
(func (export "tidegate:sink/plugin@0.1.0#describe") (result i32)
  (if (global.get $asked) (then (i32.store8 (i32.const 1056) (i32.const 0))))
  (global.set $asked (i32.const 1))
  (i32.const 1024))
