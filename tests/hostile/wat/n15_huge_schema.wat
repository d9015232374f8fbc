;; A schema of a mebibyte.
(memory (export "memory") 40)
(func (export "tidegate:sink/plugin@0.1.0#describe") (result i32)
  (memory.fill (i32.const 65536) (i32.const 91) (i32.const 1048576))
  (i32.store (i32.const 1040) (i32.const 65536))
  (i32.store (i32.const 1044) (i32.const 1048576))
  (i32.const 1024))
