;; Does not end after its answer.
(func (export "cabi_post_tidegate:sink/writer@0.1.0#write") (param i32)
  (loop $forever (br $forever)))
