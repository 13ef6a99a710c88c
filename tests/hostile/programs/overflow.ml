(* SPDX-License-Identifier: MIT *)
(* overflow.ml - stack overflows, exceptions and collections: prints how many were caught, and a sum. *)
exception Stop of int
let rec deep n = if n = 0 then 0 else 1 + deep (n - 1)
let rec build n = if n = 0 then [] else n :: build (n-1)
let rec fib n = if n < 2 then n else fib (n-1) + fib (n-2)
let rec raiser n = if n = 0 then raise (Stop 7) else 1 + raiser (n-1)
let () =
  let rounds = int_of_string (input_line stdin) in
  let over = ref 0 and sum = ref 0 in
  (try while true do
    let line = input_line stdin in
    let k = int_of_string line in
    for _ = 1 to rounds do
      sum := !sum + fib 12 + k;
      (try ignore (raiser (k mod 50)) with Stop n -> sum := !sum + n);
      let h = Hashtbl.create 16 in
      for i = 1 to 100 do Hashtbl.replace h (string_of_int i) i done;
      sum := !sum + Hashtbl.fold (fun _ v a -> v + a) h 0;
      sum := !sum + List.length (build 1000);
      sum := !sum + String.length (Printf.sprintf "%d %s %f" k "x" (float k))
    done;
    if k mod 50 = 0 then
      (try ignore (deep 100_000_000) with Stack_overflow -> incr over)
  done with End_of_file -> ());
  Printf.printf "%d %d\n" !over !sum
