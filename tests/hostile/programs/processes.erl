% SPDX-License-Identifier: MIT
%
% processes.erl - compiled by the runtime, which keeps its processes' stacks in
% heaps that it moves: throws, faults and collections in many. Reads how many rounds.
-module(processes).
-export([main/0]).

main() ->
	{ok, [Rounds]} = io:fread("", "~d"),
	A = half(Rounds),
	B = rest(0),
	io:format("~p ~p ~p~n", [A, B, half(Rounds)]),
	halt(0).

rest(N) -> case io:get_line("") of eof -> N; L -> rest(N + length(L)) end.

half(Rounds) -> lists:sum([work() || _ <- lists:seq(1, Rounds)]).

fib(N) when N<2 -> N; fib(N) -> fib(N-1)+fib(N-2).
work() ->
	Self=self(),
	Pids=[spawn(fun() -> Self ! {self(), catch part(K)} end) || K <- lists:seq(1,60)],
	S=lists:sum([receive {P,R} -> R end || P <- Pids]),
	T=ets:new(t,[set]), [ets:insert(T,{I,integer_to_binary(I)}) || I<-lists:seq(1,2000)],
	L=length(ets:tab2list(T)), ets:delete(T),
	{match,_}=re:run(<<"abcdefg123">>,"(\\d+)"),
	erlang:garbage_collect(),
	S+L+fib(15)+erlang:crc32(term_to_binary(lists:seq(1,3000),[compressed]))+erlang:phash2(binary:compile_pattern(<<"a">>)=/=x).
part(K) ->
	X=lists:foldl(fun(I,A)-> try if I rem 3==0 -> throw(I); true -> A+I end catch throw:V -> A-V; error:_ -> 1 end end, 0, lists:seq(1,300)),
	Y=try K div (K-K) catch error:badarith -> 5 end,
	B=binary:copy(<<K>>,10000), X+Y+byte_size(B)+length([ [a|b] || _ <- lists:seq(1,500)]) + (1 bsl (K*20)) rem 1000003.
