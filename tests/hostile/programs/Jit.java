/* SPDX-License-Identifier: MIT */
/*
 * Jit.java - keeps a Java machine's compilers, collector, locks and exceptions busy:
 * reads how many rounds, prints one number that depends on all. A null pointer
 * and a division by zero are faults that the machine turns into exceptions.
 */
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;

public class Jit {
	interface Shape { long area(long n); }

	static final class Cell { long value; Cell next; }

	static long divide(long a, long b) { return a / b; }

	static long load(Cell c) { return c.value; }

	static long work(int thread, int rounds) {
		Shape[] shapes = {n -> n * n, n -> 3 * n, n -> n ^ 0x55};
		long sum = 0;
		long state = 12345 + thread;

		for (int r = 0; r < rounds; r++) {
			Map<Long, Cell> cells = new HashMap<>();
			for (int i = 0; i < 400; i++) {
				state = (state * 1103515245L + 12345) & 0x7fffffff;
				Cell c = new Cell();
				c.value = state & 0xffff;
				cells.put(c.value, c);
				sum += shapes[(int)(state % 3)].area(c.value);
				try {
					sum += load(i % 3 == 0 ? null : c);
				} catch (NullPointerException e) {
					sum += 7;
				}
				try {
					sum += divide(c.value, i % 5);
				} catch (ArithmeticException e) {
					sum += 11;
				}
			}
			StringBuilder text = new StringBuilder();
			for (long k : new TreeSet<>(cells.keySet()))
				text.append(Long.toHexString(k));
			sum = (sum + text.toString().hashCode()) % 1000000007L;
		}
		return sum;
	}

	public static void main(String[] args) throws Exception {
		Scanner in = new Scanner(System.in);
		int rounds = in.nextInt();
		int rest = 0;
		long sum = half(rounds);

		while (in.hasNextInt())
			rest += in.nextInt() & 1;
		System.out.println(sum + " " + rest + " " + half(rounds));
	}

	static long half(int rounds) throws Exception {
		ExecutorService pool = Executors.newFixedThreadPool(3);
		List<Future<Long>> results = new ArrayList<>();
		long sum = 0;

		for (int t = 0; t < 3; t++) {
			int thread = t;
			results.add(pool.submit(() -> work(thread, rounds)));
		}
		for (Future<Long> f : results)
			sum += f.get();
		pool.shutdown();
		return sum;
	}
}
