;; Behaves well. There are only very many of it.
