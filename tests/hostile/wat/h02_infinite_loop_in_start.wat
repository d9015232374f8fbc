;; The loop runs while the component is instantiated, before any call.
(func $forever (loop $again (br $again)))
(start $forever)
