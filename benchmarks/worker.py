"""A contender's process: prepares one side of one workload and times it when told. Started by harness.Contender.

    python -m benchmarks.worker MODULE WORKLOAD CONTENDER CORES

One JSON request a line on standard input, one answer a line on standard output:
    {"do": "warm", "variant": V, "seconds": S}  ->  seconds a call
    {"do": "time", "variant": V, "calls": N}    ->  [nanoseconds of each call]
    {"do": "result", "variant": V}              ->  what a call gives
"""

import gc
import importlib
import json
import os
import sys
import time

CPU_CLOCK = "TRANSFORMER_C_BENCH_CPU_CLOCK"  # "1": the process's own time on the cores, for one thread on a machine that does other things


def time_calls(call, calls):
    clock, times = time.process_time_ns if os.environ.get(CPU_CLOCK) == "1" else time.perf_counter_ns, [0] * calls
    gc.collect()
    if calls > 1:  # a single call is a long one
        call()  # the other contender has used the caches since
    gc.disable()
    try:
        for i in range(calls):
            start = clock()
            call()
            times[i] = clock() - start
    finally:
        gc.enable()
    return times


def warm_up(call, seconds):
    """At least two calls; the time of the last, or the mean of the second half of them."""
    times, end = [], time.perf_counter() + seconds
    while len(times) < 2 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    late = times[len(times) // 2 :]
    return sum(late) / len(late)


def main(module, workload, contender, cores):
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})  # before any library starts a thread
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a library's output must not look like an answer
    family = importlib.import_module(module)
    sides = next(w for w in family.WORKLOADS if w.name == workload).variants(contender)
    calls = {}
    for line in sys.stdin:
        request = json.loads(line)
        variant = request["variant"]
        if variant not in calls:
            calls[variant] = sides[variant]()
        call = calls[variant]
        if request["do"] == "warm":
            answer = warm_up(call, request["seconds"])
        else:
            answer = call() if request["do"] == "result" else time_calls(call, request["calls"])
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
