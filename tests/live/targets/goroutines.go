// SPDX-License-Identifier: MIT
//
// goroutines.go - goroutines that the runtime takes off their threads at any
// moment, whose stacks it moves, and a garbage collector that walks them.
//
// Prints "ready"; "go N" makes 8 goroutines do N rounds and prints "done"; "profile N" does the same
// while the runtime's own profiler looks at their stacks in signal handlers.
// Exits with 1 if a result was wrong.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
)

//go:noinline
func leaf(n uint64) uint64 { return n*7 + 3 }

//go:noinline
func spin(n uint64) uint64 {
	s := uint64(0)
	for i := uint64(0); i < n; i++ {
		s += leaf(i)
	}
	return s
}

//go:noinline
func tight(n uint64) uint64 {
	s := uint64(1)
	for i := uint64(0); i < n; i++ {
		s = s*31 + i
	}
	return s
}

//go:noinline
func grow(n int) int {
	var b [256]byte
	b[n&255] = 1
	if n == 0 {
		return int(b[0])
	}
	return grow(n-1) + int(b[n&255])
}

// Does not look whether there is enough stack.
//
//go:nosplit
//go:noinline
func flat(n int) int {
	var b [32]int
	b[n&31] = n
	return b[(n+1)&31] + b[n&31]
}

func main() {
	want, wantT := spin(20000), tight(200000)
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	bad := false
	for in.Scan() {
		var rounds int
		if n, _ := fmt.Sscanf(in.Text(), "profile %d", &rounds); n == 1 {
			if pprof.StartCPUProfile(io.Discard) != nil {
				bad = true
			}
		} else {
			fmt.Sscanf(in.Text(), "go %d", &rounds)
		}
		var wg sync.WaitGroup
		for g := 0; g < 8; g++ {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for r := 0; r < rounds; r++ {
					if spin(20000) != want || tight(200000) != wantT || grow(100) != 101 || flat(r+1) != r+1 {
						bad = true
					}
					x := make([]byte, 100000)
					x[5] = 1
					if r%10 == 0 {
						runtime.GC()
					}
				}
			}()
		}
		wg.Wait()
		pprof.StopCPUProfile()
		fmt.Println("done")
	}
	if bad {
		os.Exit(1)
	}
}
