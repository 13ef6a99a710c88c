-- SPDX-License-Identifier: MIT
--
-- jit.lua - loops for LuaJIT's traces, with side exits, coroutines, errors and
-- calls into libc through its FFI, some of them back. Reads how many rounds.
local ffi = require("ffi")
ffi.cdef [[
int abs(int);
void qsort(void *base, size_t count, size_t size, int (*compare)(const int *, const int *));
]]
local rounds = tonumber(io.read("*l"))
local compare = ffi.cast("int (*)(const int *, const int *)", function(a, b) return a[0] - b[0] end)
local state, sum = 12345, 0

local function random()
	state = (state * 1103515245 + 12345) % 2147483648
	return state
end

local function half()
	for r = 1, rounds do
		local t = {}
		for i = 1, 300 do
			t[i] = random() % 1000
			sum = sum + ffi.C.abs(-t[i])
			if t[i] % 17 == 3 then sum = sum - #tostring(t[i]) end
		end
		local co = coroutine.wrap(function() for i = 1, #t do coroutine.yield(t[i]) end end)
		for i = 1, 100 do sum = sum + co() end
		if r % 10 == 0 then
			local a = ffi.new("int[50]", {})
			for i = 0, 49 do a[i] = t[i + 1] end
			ffi.C.qsort(a, 50, 4, compare)
			for i = 1, 49 do assert(a[i - 1] <= a[i]) end
		end
		local ok, e = pcall(error, {r})
		sum = (sum + e[1]) % 1000000007
	end
end

half()
local rest = #io.read("*a")
half()
print(sum, rest)
