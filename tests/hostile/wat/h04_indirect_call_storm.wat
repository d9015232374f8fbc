;; Calls through a table and jumps through a br_table without end.
(type $one (func (param i32) (result i32)))
(table 4 funcref)
(elem (i32.const 0) $a $b $a $b)
(func $a (type $one) (i32.add (local.get 0) (i32.const 1)))
(func $b (type $one)
  (block $x (block $y (block $z
    (br_table $x $y $z (i32.rem_u (local.get 0) (i32.const 3))))))
  (i32.add (local.get 0) (i32.const 3)))
(func (export "tidegate:sink/writer@0.1.0#write") (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32) (result i32)
  (local $n i32)
  (loop $forever
    (local.set $n (call_indirect (type $one) (local.get $n) (i32.and (local.get $n) (i32.const 3))))
    (br $forever))
  unreachable)
