// block.cpp: runs the threads of a block by a schedule, and names what is wrong when they cannot go on.
#include "block.h"
#include "count.h"
#include "kernel_rows.h"
#include "launch_bounds.h"
#include "memory.h"
#include "streams.h"
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

namespace emulator
{

Block block;
__thread Thread *current = nullptr;

namespace
{

#if defined(EMULATOR_ADDRESS_SANITIZER) || defined(EMULATOR_THREAD_SANITIZER)
constexpr size_t stack_bytes = 256 * 1024; // redzones make frames several times larger
#else
constexpr size_t stack_bytes = 64 * 1024;
#endif

std::string report;
bool failed = false; // this launch
bool last_block_only = false;

Schedule schedule = Schedule::round_robin;
uint64_t generator = 1;

int last_thread = -1;   // round robin: the one that ran last
int greedy_warp = 0;    // greedy: the warp that has the turn,
int greedy_turns = 0;   // and how many more of its threads may be started
bool greedy_descending; // and in which order

int lowest_bit(uint32_t bits) { return __builtin_ctz(bits); }
int highest_bit(uint32_t bits) { return 31 - __builtin_clz(bits); }

int random_bit(uint32_t bits)
{
    int skip = static_cast<int>(random_bits() % static_cast<unsigned>(__builtin_popcount(bits)));
    while (skip--) bits &= bits - 1;
    return lowest_bit(bits);
}

// The next warp from `start` on, cyclically, that has a ready lane; null when there is none.
Warp *ready_warp(int start)
{
    for (int i = 0; i < block.warp_count; i++) {
        Warp &warp = block.warps[(start + i) % block.warp_count];
        if (warp.ready) return &warp;
    }
    return nullptr;
}

Thread *next_round_robin()
{
    const int start = (last_thread + 1) % block.size;
    Warp &warp = block.warps[start / warp_size];
    const uint32_t rest = warp.ready & (~0u << (start % warp_size));
    if (rest) return warp.lane[lowest_bit(rest)];
    Warp *next = ready_warp(start / warp_size + 1);
    return next ? next->lane[lowest_bit(next->ready)] : nullptr;
}

// One warp runs as far as it can, as on a GPU whose scheduler favours it; the bound on its turn keeps a warp that polls
// from starving the one it waits for.
Thread *next_greedy()
{
    if (greedy_turns-- <= 0 || !block.warps[greedy_warp].ready) {
        Warp *warp = ready_warp(static_cast<int>(random_bits() % static_cast<unsigned>(block.warp_count)));
        if (!warp) return nullptr;
        greedy_warp = warp->number;
        greedy_turns = 64 + static_cast<int>(random_bits() % 1024);
        greedy_descending = random_bits() & 1;
    }
    Warp &warp = block.warps[greedy_warp];
    return warp.lane[greedy_descending ? highest_bit(warp.ready) : lowest_bit(warp.ready)];
}

Thread *next_random()
{
    Warp *warp = ready_warp(static_cast<int>(random_bits() % static_cast<unsigned>(block.warp_count)));
    return warp ? warp->lane[random_bit(warp->ready)] : nullptr;
}

Thread *next_thread()
{
    Thread *next = schedule == Schedule::round_robin ? next_round_robin() : schedule == Schedule::greedy ? next_greedy() : next_random();
    if (next) last_thread = next->linear;
    return next;
}

// Lets another thread run, or the scheduler when none can. Returns when this one has its turn again.
void yield()
{
    Thread *me = current, *next = failed ? nullptr : next_thread();
    if (next == me) return;
    current = next;
    (next ? next->fiber : block.scheduler).switch_from(me->fiber);
    current = me;
}

void set_ready(Thread &thread)
{
    thread.state = State::ready;
    thread.warp->ready |= 1u << thread.lane;
    thread.warp->in_collective &= ~(1u << thread.lane);
}

void set_waiting(Thread &thread, State state, const Waiting &waiting)
{
    thread.state = state;
    thread.waiting = waiting;
    thread.warp->ready &= ~(1u << thread.lane);
}

std::string place(Site site)
{
    const char *slash = strrchr(site.file, '/');
    return std::string(slash ? slash + 1 : site.file) + ":" + std::to_string(site.line);
}

void append(const char *format, ...) __attribute__((format(printf, 1, 2)));
void append(const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    report += line;
}

void append_block()
{
    append("\n  in kernel %s, block (%u, %u, %u) of (%u, %u, %u) threads", block.kernel, block.index.x, block.index.y, block.index.z,
           block.dim.x, block.dim.y, block.dim.z);
}

// "  31 threads (first: thread 1, lane 1 of warp 0) wait at __syncthreads, x.cu:12", a line for each place.
void append_waiting_threads()
{
    std::vector<bool> told(static_cast<size_t>(block.size), false);
    for (int i = 0; i < block.size; i++) {
        const Thread &first = *block.threads[i];
        if (told[i] || first.state == State::done || first.state == State::ready) continue;
        int count = 0;
        for (int j = i; j < block.size; j++) {
            const Thread &other = *block.threads[j];
            const bool same =
                other.state == first.state && other.waiting.site == first.waiting.site && other.waiting.mask == first.waiting.mask;
            if (!same) continue;
            told[j] = true;
            count++;
        }
        append("\n  %d thread%s (first: thread %d, lane %d of warp %d) wait%s at %s, %s", count, count == 1 ? "" : "s", first.linear,
               first.lane, first.warp->number, count == 1 ? "s" : "", first.waiting.operation, place(first.waiting.site).c_str());
        if (first.state == State::in_collective) append(", lanes 0x%x", first.waiting.mask);
    }
    if (block.ended) append("\n  %d threads have ended", block.ended);
}

void thread_main()
{
    current->fiber.on_first_entry();
    Fiber::acquire(&block.start_key);
    block.body(block.closure);
    Thread &me = *current;
    if (!me.copies.empty()) fail(me.copies.front().site, "asynchronous copy never waited for: the thread ended with the copy on its way");
    me.state = State::done;
    me.warp->ready &= ~(1u << me.lane);
    me.warp->done |= 1u << me.lane;
    block.ended++;
    if (block.at_barrier) {
        report = "divergent barrier: a thread ended while others wait for it";
        append_waiting_threads();
        append_block();
        failed = true;
    }
    Fiber::release(&block.end_key);
    yield();
    __builtin_unreachable();
}

void set_up_block(uint3 index)
{
    block.index = index;
    block.ended = block.at_barrier = 0;
    block.serial++;
    for (int i = 0; i < block.size; i++) {
        Thread &thread = *block.threads[i];
        Warp &warp = block.warps[i / warp_size];
        const unsigned n = static_cast<unsigned>(i);
        thread.index = {n % block.dim.x, n / block.dim.x % block.dim.y, n / block.dim.x / block.dim.y};
        thread.linear = i;
        thread.lane = i % warp_size;
        thread.warp = &warp;
        thread.copies.clear();
        thread.copy_group = 0;
        thread.clock = 1;
        block.barrier_clock[i] = 0;
        memset(thread.seen, 0, sizeof thread.seen);
        if (thread.lane == 0) {
            warp = Warp();
            warp.number = i / warp_size;
        }
        warp.lane[thread.lane] = &thread;
        warp.lanes |= 1u << thread.lane;
        thread.fiber.allocate_stack(stack_bytes);
        thread.fiber.start_at(thread_main);
        set_ready(thread);
    }
    last_thread = -1;
    greedy_turns = 0;
    begin_shared_memory(block.dynamic_bytes);
    Fiber::release(&block.start_key);
}

// Runs the block to its end. False: `report` says what stopped it.
bool run_block(uint3 index)
{
    set_up_block(index);
    Thread *first = next_thread();
    current = first;
    first->fiber.switch_from(block.scheduler);
    current = nullptr;
    Fiber::acquire(&block.end_key);
    if (failed) return false;
    count_block_so_far();
    if (block.ended < block.size) {
        report = "deadlock: no thread can go on";
        append_waiting_threads();
        append_block();
        return false;
    }
    return end_shared_memory(report);
}

bool shape_is_valid(const LaunchShape &shape)
{
    const dim3 &g = shape.grid, &b = shape.block;
    if (!g.x || !g.y || !g.z || !b.x || !b.y || !b.z) return false;
    if (g.x > 0x7fffffffu || g.y > 65535u || g.z > 65535u) return false;
    return b.x <= 1024 && b.y <= 1024 && b.z <= 64 && static_cast<uint64_t>(b.x) * b.y * b.z <= max_threads;
}

// Blocks may run in any order on a GPU: ascending, descending, or from a random place on, by the schedule.
uint64_t block_at(uint64_t step, uint64_t count, uint64_t start)
{
    if (schedule == Schedule::round_robin) return step;
    if (schedule == Schedule::greedy) return count - 1 - step;
    return (start + step) % count;
}

} // namespace

bool Site::operator==(const Site &other) const { return line == other.line && (file == other.file || strcmp(file, other.file) == 0); }

void set_schedule(Schedule new_schedule, uint64_t seed)
{
    schedule = new_schedule;
    generator = seed * 2654435769u + 1;
}
Schedule current_schedule() { return schedule; }

uint64_t random_bits() // splitmix64 (Steele et al. 2014)
{
    uint64_t z = generator += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void fail(Site site, const char *format, ...)
{
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    report = message;
    append("\n  at %s, thread %d (lane %d of warp %d)", place(site).c_str(), current->linear, current->lane, current->warp->number);
    append_block();
    failed = true;
    yield(); // to the scheduler, which abandons the block
    __builtin_unreachable();
}

void block_barrier(const char *operation, Site site)
{
    Thread &me = *current;
    if (block.at_barrier) {
        for (int i = 0; i < block.size; i++) {
            const Thread &thread = *block.threads[i];
            if (thread.state != State::at_barrier) continue;
            if (thread.waiting.site == site) break;
            fail(site, "divergent barrier: this thread came to %s here, thread %d waits at %s, %s", operation, thread.linear,
                 thread.waiting.operation, place(thread.waiting.site).c_str());
        }
    }
    if (block.ended) fail(site, "divergent barrier: %s after %d threads of the block have ended", operation, block.ended);
    Fiber::release(&me.arrive_key);
    set_waiting(me, State::at_barrier, {operation, site, 0, nullptr});
    if (++block.at_barrier == block.size) {
        block.at_barrier = 0;
        count_event(Event::barrier);
        count_block_so_far();
        for (int i = 0; i < block.size; i++) Fiber::acquire(&block.threads[i]->arrive_key);
        for (int i = 0; i < block.size; i++) {
            Thread &thread = *block.threads[i];
            block.barrier_clock[i] = thread.clock++;
            Fiber::release(&thread.wake_key);
            set_ready(thread);
        }
        if (schedule == Schedule::random) yield();
    } else {
        yield();
    }
    Fiber::acquire(&me.wake_key);
}

namespace
{

bool is_alike(const Waiting &one, const Waiting &other)
{
    const bool same = one.operation == other.operation || strcmp(one.operation, other.operation) == 0;
    return same && one.mask == other.mask && one.site == other.site;
}

void check_collective(const Thread &me, const Waiting &mine)
{
    Warp &warp = *me.warp;
    if (!warp.in_collective) {
        warp.first = mine;
        warp.alike = true;
    }
    warp.alike = warp.alike && is_alike(mine, warp.first);
    if (warp.alike && mine.mask >> me.lane & 1 && !(mine.mask & (~warp.lanes | warp.done))) return; // nothing below is found
    if (!(mine.mask >> me.lane & 1)) fail(mine.site, "%s: lane %d is not in its own mask 0x%x", mine.operation, me.lane, mine.mask);
    for (int i = 0; i < warp_size; i++) {
        const Thread *other = warp.lane[i];
        const bool named = mine.mask >> i & 1;
        if (named && !other) fail(mine.site, "%s: mask 0x%x names lane %d, which the warp does not have", mine.operation, mine.mask, i);
        if (!other || other == &me) continue;
        if (named && other->state == State::done)
            fail(mine.site, "%s: mask 0x%x names lane %d, which has ended", mine.operation, mine.mask, i);
        if (other->state != State::in_collective) continue;
        const Waiting &theirs = other->waiting;
        if (!named && !(theirs.mask >> me.lane & 1)) continue;
        if (!is_alike(mine, theirs))
            fail(mine.site, "divergent warp: this lane came to %s with mask 0x%x, lane %d waits at %s with mask 0x%x, %s", mine.operation,
                 mine.mask, i, theirs.operation, theirs.mask, place(theirs.site).c_str());
    }
}

// Everyone in the mask has seen all that anyone in it has seen.
void order_lanes(Warp &warp, unsigned mask)
{
    uint32_t seen[warp_size] = {};
    for (int i = 0; i < warp_size; i++) {
        if (!(mask >> i & 1)) continue;
        for (int j = 0; j < warp_size; j++) seen[j] = std::max(seen[j], warp.lane[i]->seen[j]);
        seen[i] = std::max(seen[i], warp.lane[i]->clock++);
    }
    for (int i = 0; i < warp_size; i++)
        if (mask >> i & 1) memcpy(warp.lane[i]->seen, seen, sizeof seen);
}

} // namespace

void warp_collective(const char *operation, Site site, unsigned mask, void *operand, void (*combine)(Warp &, unsigned mask),
                     bool orders_memory)
{
    Thread &me = *current;
    Warp &warp = *me.warp;
    const Waiting mine = {operation, site, mask, operand};
    check_collective(me, mine);
    Fiber::release(&me.arrive_key);
    set_waiting(me, State::in_collective, mine);
    warp.in_collective |= 1u << me.lane;
    if ((mask & ~warp.in_collective) == 0) {
        for (int i = 0; i < warp_size; i++)
            if (mask >> i & 1) Fiber::acquire(&warp.lane[i]->arrive_key);
        if (combine) combine(warp, mask);
        if (strncmp(operation, "mma", 3) == 0) count_event(Event::tensor);
        if (strncmp(operation, "__shfl", 6) == 0) count_event(Event::shuffle);
        if (orders_memory) order_lanes(warp, mask);
        for (int i = 0; i < warp_size; i++) {
            if (!(mask >> i & 1)) continue;
            Fiber::release(&warp.lane[i]->wake_key);
            set_ready(*warp.lane[i]);
        }
        if (schedule == Schedule::random) yield();
    } else {
        yield();
    }
    Fiber::acquire(&me.wake_key);
}

// "reverse<float>" of "... [with auto kernel = reverse<float>]", as GCC and clang write it.
static std::string kernel_name(const char *pretty)
{
    const char *name = strstr(pretty, "kernel = "), *end = strrchr(pretty, ']');
    if (!name || !end) return pretty;
    name += strlen("kernel = ");
    if (*name == '&') name++;
    return std::string(name, end);
}

static std::string launches; // the kernels, one per line

static int run_grid(const std::string &kernel, const LaunchShape &shape, void (*body)(void *), void *closure, const Touches *touches)
{
    const DeviceMemoryAccess access;
    block.kernel = kernel.c_str();
    block.body = body;
    block.closure = closure;
    block.touches = last_block_only ? nullptr : touches; // of arrays that are not there
    block.dynamic_bytes = shape.dynamic_shared;
    block.grid = shape.grid;
    block.dim = shape.block;
    block.size = static_cast<int>(block.dim.x * block.dim.y * block.dim.z);
    block.warp_count = (block.size + warp_size - 1) / warp_size;
    block.launch_first = block.serial + 1;
    while (static_cast<int>(block.threads.size()) < block.size) block.threads.push_back(std::make_unique<Thread>());
    block.scheduler.adopt_caller();
    failed = false;
    const uint64_t count = static_cast<uint64_t>(block.grid.x) * block.grid.y * block.grid.z;
    count_launch(kernel, static_cast<int64_t>(count), block.size);
    const uint64_t start = schedule == Schedule::random ? random_bits() % count : 0;
    bool good = true;
    for (uint64_t step = 0; good && step < (last_block_only ? 1 : count); step++) {
        const uint64_t i = last_block_only ? count - 1 : block_at(step, count, start);
        good = run_block({static_cast<unsigned>(i % block.grid.x), static_cast<unsigned>(i / block.grid.x % block.grid.y),
                          static_cast<unsigned>(i / block.grid.x / block.grid.y)});
    }
    good = good && check_device_memory(report);
    if (good) return 0;
    for (int i = 0; i < block.size; i++) block.threads[i]->fiber.abandon();
    end_shared_memory_after_failure();
    return 719; // cudaErrorLaunchFailure
}

int launch(const char *pretty_name, const LaunchShape &shape, const Closure &closure, void *self, void *stream, Site site)
{
    const std::lock_guard<std::recursive_mutex> held(runtime_lock());
    const std::string kernel = kernel_name(pretty_name);
    if (!own_device_is_current()) return cudaErrorInvalidResourceHandle;
    if (!shape_is_valid(shape) || shape.dynamic_shared > shared_limit()) {
        const dim3 &g = shape.grid, &b = shape.block;
        report = "invalid launch at " + place(site);
        append(": %s with a grid of (%u, %u, %u), blocks of (%u, %u, %u) threads, %zu bytes of shared memory", kernel.c_str(), g.x, g.y,
               g.z, b.x, b.y, b.z, shape.dynamic_shared);
        return 9; // cudaErrorInvalidConfiguration
    }
    const unsigned threads = shape.block.x * shape.block.y * shape.block.z;
    if (const int most = most_threads(kernel); most && threads > static_cast<unsigned>(most)) {
        report = "invalid launch at " + place(site);
        append(": %s with blocks of %u threads, its __launch_bounds__ allow %d", kernel.c_str(), threads, most);
        return 701; // cudaErrorLaunchOutOfResources
    }
    launches += kernel + "\n";
    const std::shared_ptr<void> kept(closure.copy(self), closure.remove);
    const auto call = closure.call;
    const auto touches = current_touches();
    return put_on_stream(static_cast<emulated_stream *>(stream), [=] { return run_grid(kernel, shape, call, kept.get(), touches.get()); });
}

} // namespace emulator

void emulator_set_schedule(int schedule, uint64_t seed) { emulator::set_schedule(static_cast<emulator::Schedule>(schedule), seed); }
void emulator_run_last_block_only(int only) { emulator::last_block_only = only != 0; }
const char *emulator_report(void) { return emulator::report.c_str(); }
const char *emulator_launches(void)
{
    static std::string told;
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    told = std::move(emulator::launches);
    emulator::launches.clear();
    return told.c_str();
}
void emulator_clear_report(void) { emulator::report.clear(); }
