// block.h: one thread block in emulation: its threads (each a fiber), its warps, and how they wait for each other.
//
// A thread runs until it has to wait (a barrier, a warp collective) or ends; the scheduler then picks the next ready one
// by the schedule in force. When no thread is ready and some have not ended, that is a deadlock, found at once and
// reported with the place where each thread waits. Blocks of a grid run one after the other.
#pragma once
#include "fiber.h"
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr operator uint3() const { return {x, y, z}; }
};

namespace emulator
{

// A place in a .cu file. As a default argument, Site::here() is the place of the call.
struct Site {
    const char *file;
    int line;
    static constexpr Site here(const char *file_ = __builtin_FILE(), int line_ = __builtin_LINE()) { return {file_, line_}; }
    bool operator==(const Site &other) const;
};

constexpr int warp_size = 32;
constexpr int max_threads = 1024; // a block

enum class State : uint8_t { ready, at_barrier, in_collective, done };

// What a thread waits for, for the checks and the report.
struct Waiting {
    const char *operation = nullptr; // "__syncthreads", "__shfl_xor_sync", ...
    Site site = {nullptr, 0};
    unsigned mask = 0;       // lanes that take part, for warp collectives
    void *operand = nullptr; // on the stack of the thread that waits
};

struct AsyncCopy {
    void *destination; // shared
    const void *source;
    int bytes, valid_bytes; // the rest is filled with zeros
    int group;
    Site site;
};

struct Warp;
struct Touches;

struct Thread {
    Fiber fiber;
    uint3 index = {};
    int linear = 0, lane = 0;
    Warp *warp = nullptr;
    State state = State::done;
    Waiting waiting;
    bool vote = false;             // of a counting barrier
    std::vector<AsyncCopy> copies; // issued and not yet waited for, oldest first
    int copy_group = 0;            // groups committed so far
    uint32_t clock = 0;            // synchronisations so far; the access check orders accesses by it
    uint32_t seen[warp_size] = {}; // clock of each lane of the warp at the last synchronisation with it
    char arrive_key, wake_key;     // ThreadSanitizer orders by these addresses
};

struct Warp {
    Thread *lane[warp_size] = {};
    int number = 0;
    uint32_t lanes = 0, ready = 0, in_collective = 0, done = 0; // a bit a lane: those that there are, and by their states
    Waiting first;                                              // of those in_collective the first one to come,
    bool alike = true;                                          // and whether all of them came to the same
};

struct Block {
    std::vector<std::unique_ptr<Thread>> threads; // kept between blocks and launches
    Warp warps[max_threads / warp_size];
    int size = 0, warp_count = 0, ended = 0, at_barrier = 0;
    uint3 index = {}, dim = {}, grid = {};
    uint32_t barrier_clock[max_threads] = {}; // of each thread: its clock at the last barrier
    uint32_t serial = 1;                      // counts blocks over all launches; 1 is the host
    uint32_t launch_first = 0;                // serial of the first block of this launch
    char start_key, end_key;                  // as a thread's keys
    Fiber scheduler;                          // the stack that called launch()
    const char *kernel = "";
    void (*body)(void *) = nullptr;
    void *closure = nullptr;
    size_t dynamic_bytes = 0;
    const Touches *touches = nullptr; // kernel_rows.h; null: whatever it likes
};

extern Block block; // the one that runs
// The CUDA thread that runs; null on the host side, where other threads of the host may be while this one runs a kernel.
extern __thread Thread *current __attribute__((tls_model("initial-exec")));

// What a kernel may ask. Not instrumented: the emulator's own memory is none of the kernel's.
#define EMULATOR_OWN __attribute__((no_sanitize("thread"))) inline
EMULATOR_OWN uint3 thread_index() { return current->index; }
EMULATOR_OWN uint3 block_index() { return block.index; }
EMULATOR_OWN uint3 block_dim() { return block.dim; }
EMULATOR_OWN uint3 grid_dim() { return block.grid; }
EMULATOR_OWN int lane_index() { return current->lane; }

// ---- schedules ----

enum class Schedule { round_robin, greedy, random };
void set_schedule(Schedule schedule, uint64_t seed);
uint64_t random_bits(); // of the schedule's generator
Schedule current_schedule();

// ---- waiting (called by the running thread) ----

void block_barrier(const char *operation, Site site);
// Waits until every lane in `mask` has come to the same operation at the same site; the last one to come calls
// combine(warp, mask), which reads and writes all operands (warp.lane[i]->waiting.operand), and all go on.
// `orders_memory`: __syncwarp orders accesses to memory, a shuffle or a vote does not.
void warp_collective(const char *operation, Site site, unsigned mask, void *operand, void (*combine)(Warp &, unsigned mask),
                     bool orders_memory);
// Ends the launch with this report; the block, the thread and the site are added. Does not return.
[[noreturn]] void fail(Site site, const char *format, ...) __attribute__((format(printf, 2, 3)));

// ---- launching (called by the host side) ----

struct LaunchShape {
    dim3 grid, block;
    size_t dynamic_shared = 0; // bytes
};
// What a thread of the grid does, with arguments that are copied and deleted where the launch is put off.
struct Closure {
    void (*call)(void *self);
    void *(*copy)(const void *self);
    void (*remove)(void *self);
};
// Calls self as every thread of the grid, when the stream comes to it (streams.h). Gives a cudaError_t. `pretty_name` has the kernel's
// name after "kernel = ".
int launch(const char *pretty_name, const LaunchShape &shape, const Closure &closure, void *self, void *stream, Site site);

} // namespace emulator

extern "C" {
// For the tests. schedule: 0 round robin, 1 greedy, 2 random.
void emulator_set_schedule(int schedule, uint64_t seed);
void emulator_run_last_block_only(int only); // of each grid, from now on: for grids that are too large to run
const char *emulator_launches(void);         // the kernels launched since the last call, with their template arguments, one per line
const char *emulator_report(void);           // what went wrong in the last failed launch; "" when nothing has
void emulator_clear_report(void);
}
