// SPDX-License-Identifier: MIT
//
// panics.go - goroutines use null pointers in functions without a defer, and their callers
// recover: gccgo's runtime unwinds from the instruction that has faulted.
//
// Waits for the end of its input half-way; prints sums, and how many lines it has read.
package main

import (
	"bufio"
	"fmt"
	"os"
)

type node struct {
	a, b, c int
	next    *node
}

//go:noinline
func leaf(n *node, k int) int { return n.a*k + n.b - n.next.c }

//go:noinline
func middle(n *node, k int) int {
	sum := k * 3
	sum += leaf(n, k)
	return sum ^ leaf(n, k+1)
}

func try(n *node, k int) (result int) {
	defer func() {
		if recover() != nil {
			result = 7
		}
	}()
	return middle(n, k)
}

func work(from, rounds int, sums chan int) {
	whole := &node{1, 2, 3, nil}
	broken := &node{1, 2, 3, nil}
	sum := 0
	whole.next = whole
	for i := 0; i < rounds; i++ {
		switch {
		case i%50 == 0:
			sum += try(broken, i+from)
		case i%77 == 0:
			sum += try(nil, i+from)
		default:
			sum += try(whole, i+from)
		}
	}
	sums <- sum
}

func round(rounds int) {
	sums := make(chan int, 4)
	sum := 0
	for g := 0; g < 4; g++ {
		go work(g, rounds, sums)
	}
	for g := 0; g < 4; g++ {
		sum += <-sums
	}
	fmt.Println(sum)
}

func main() {
	round(20000)
	lines := 0
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		lines++
	}
	fmt.Println(lines)
	round(40000)
}
