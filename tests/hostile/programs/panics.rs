// SPDX-License-Identifier: MIT
//
// panics.rs - panics that unwind through frames with destructors and are caught
// at different depths, in several threads, and one that ends a thread. Built
// with -C panic=abort, a child that panics must die of SIGABRT instead. Reads
// how many rounds, does half of its work before the rest of its input and half
// behind it; prints what was caught and dropped.
use std::cell::Cell;
use std::io::{self, BufRead};
use std::panic;
use std::thread;

thread_local!(static DROPPED: Cell<u64> = Cell::new(0));

struct Guard(u64);

impl Drop for Guard {
    fn drop(&mut self) {
        DROPPED.with(|d| d.set(d.get() + self.0));
    }
}

#[inline(never)]
fn deep(n: u64, to: u64) -> u64 {
    let _guard = Guard(n);
    if n == to {
        panic!("at {}", n);
    }
    deep(n + 1, to) + 1
}

#[inline(never)]
fn catch(to: u64) -> u64 {
    let _guard = Guard(1000);
    match panic::catch_unwind(|| deep(0, to)) {
        Ok(_) => 0,
        Err(e) => e.downcast_ref::<String>().map_or(0, |s| s.len() as u64),
    }
}

#[inline(never)]
fn index(values: &[u64], i: u64) -> u64 {
    values[i as usize]
}

fn work(rounds: u64) -> (u64, u64) {
    let values: Vec<u64> = (0..16).collect();
    let mut sum = 0;
    for r in 0..rounds {
        sum += catch(r % 20);
        sum += panic::catch_unwind(|| index(&values, r % 32)).unwrap_or(100);
        let parsed: Result<u64, _> = format!("{}x", r).parse::<u64>();
        sum += parsed.is_err() as u64;
    }
    (sum, DROPPED.with(|d| d.get()))
}

extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
}

fn aborts(rounds: u64) -> u64 {
    let mut aborted = 0;
    for r in 0..rounds {
        let mut status = 0;
        let pid = unsafe { fork() };
        if pid == 0 {
            deep(0, r % 10);
            std::process::exit(0);
        }
        unsafe { waitpid(pid, &mut status, 0) };
        aborted += (status & 0x7f == 6) as u64;
    }
    aborted
}

fn half(rounds: u64) {
    if cfg!(panic = "abort") {
        println!("aborted {}", aborts(rounds / 100));
        return;
    }
    let threads: Vec<_> = (0..3).map(|t| thread::spawn(move || work(rounds + t))).collect();
    for t in threads {
        println!("{:?}", t.join().unwrap());
    }
    println!("{}", thread::spawn(|| deep(0, 5)).join().is_err());
}

fn main() {
    let input = io::stdin();
    let mut lines = input.lock().lines();
    let rounds: u64 = lines.next().unwrap().unwrap().trim().parse().unwrap();
    panic::set_hook(Box::new(|_| {}));
    half(rounds);
    println!("{}", lines.count());
    half(rounds);
}
