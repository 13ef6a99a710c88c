// SPDX-License-Identifier: MIT
//
// server.go - an HTTP server whose answers can be checked, and a client that
// does so from many connections.
//
//	server ADDRESS           prints "ready"; ends with 0 at SIGTERM
//	server ask ADDRESS N     N requests; ends with 1 at the first wrong answer
package main

import (
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

//go:noinline
func digest(text string) uint64 {
	h := fnv.New64a()
	io.WriteString(h, text)
	return h.Sum64()
}

//go:noinline
func nested(words map[string]*int, n int) (result int) {
	defer func() {
		if recover() != nil {
			result = n + 1
		}
	}()
	// Every third is a fault that the runtime makes a panic of.
	if n%3 == 0 {
		return *words["absent"]
	}
	return n
}

//go:noinline
func answer(n int) string {
	words := map[string]*int{}
	for i := 0; i < 20; i++ {
		v := i * n
		words[strconv.Itoa(v)] = &v
	}
	return fmt.Sprintf("%d %d %x", n, nested(words, n), digest(strings.Repeat(strconv.Itoa(n), 50)))
}

func serve(address string) {
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Path[1:])
		io.WriteString(w, answer(n))
	})
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	listener, err := net.Listen("tcp", address)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	go http.Serve(listener, nil)
	fmt.Println("ready")
	<-stop
}

func ask(address string, count int) {
	var wait sync.WaitGroup
	const clients = 8
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	client := &http.Client{Transport: transport}
	for c := 0; c < clients; c++ {
		wait.Add(1)
		go func(c int) {
			defer wait.Done()
			for n := c; n < count; n += clients {
				response, err := client.Get(fmt.Sprintf("http://%s/%d", address, n))
				if err != nil {
					fmt.Println(err)
					os.Exit(1)
				}
				body, _ := io.ReadAll(response.Body)
				response.Body.Close()
				if string(body) != answer(n) {
					fmt.Printf("%d: %q instead of %q\n", n, body, answer(n))
					os.Exit(1)
				}
			}
		}(c)
	}
	wait.Wait()
}

func main() {
	if len(os.Args) == 4 && os.Args[1] == "ask" {
		count, _ := strconv.Atoi(os.Args[3])
		ask(os.Args[2], count)
	} else {
		serve(os.Args[1])
	}
}
