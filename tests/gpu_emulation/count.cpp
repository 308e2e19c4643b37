// count.cpp: counts what a kernel would cost a GPU: transfers of global memory, passes over shared memory, special functions.
//
// The "count" build uses the calls that -fsanitize=thread makes before each load and store, as access_check.cpp does. The lanes of
// a warp that execute the same instruction, called along the same path, for the same time are one request, as on a GPU whose threads
// converge again after each branch. Global memory is moved in sectors of 32 bytes. Shared memory has 32 banks of 4 bytes: a request is
// served in groups of 32, 16 or 8 lanes (4, 8 or 16 bytes each), and a group takes a pass, a "wavefront", for each word that its fullest
// bank has to give; ideal is one. Requests of global memory take a pass for each line of 128 bytes; `single` are the requests of either
// memory that take one pass. Where a thread waits for asynchronous copies, those are counted that it has on their way: the copies in flight
// are so many to a wait; after an idle wait there are none, so none is made while the kernel goes on. Registers are the compiler's choice,
// so counts depend on it: g++ -O1 keeps locals in memory of its own, which is not counted, and does not join loads across iterations.
#include "count.h"
#if defined(EMULATOR_COUNT)
#include "hooks.h"
#include "memory.h"
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <unordered_map>

namespace emulator
{

namespace
{

constexpr uintptr_t line_bytes = 128, sector_bytes = 32, word_bytes = 4;
constexpr int banks = 32;

struct Counts {
    int64_t launches = 0, blocks = 0, threads = 0, requests = 0, lines = 0, shared_requests = 0, single = 0, load_sectors = 0,
            store_sectors = 0, load_bytes = 0, store_bytes = 0, block_bytes = 0;
    int64_t wavefronts = 0, ideal_wavefronts = 0, shuffles = 0, barriers = 0, special = 0, tensor = 0;
    int64_t copy_waits = 0, copies_in_flight = 0, idle_waits = 0; // of threads
};
struct Column {
    const char *name;
    int64_t Counts::*count;
};
#define COLUMN(name)                                                                                                                       \
    {                                                                                                                                      \
#name, &Counts::name                                                                                                               \
    }
constexpr Column columns[] = {
    COLUMN(launches),   COLUMN(blocks),           COLUMN(threads),       COLUMN(requests),   COLUMN(lines),       COLUMN(shared_requests),
    COLUMN(single),     COLUMN(load_sectors),     COLUMN(store_sectors), COLUMN(load_bytes), COLUMN(store_bytes), COLUMN(block_bytes),
    COLUMN(wavefronts), COLUMN(ideal_wavefronts), COLUMN(shuffles),      COLUMN(barriers),   COLUMN(special),     COLUMN(tensor),
    COLUMN(copy_waits), COLUMN(copies_in_flight), COLUMN(idle_waits)};
#undef COLUMN

std::map<std::string, Counts> totals;
Counts *counts = nullptr; // of the kernel that runs

struct Access {
    uint64_t instruction; // and the path of calls to it
    uintptr_t address;
    uint8_t bytes;
    bool write, shared;
};
struct ThreadLog {
    std::vector<Access> accesses; // since the last barrier
    std::vector<uint64_t> path;   // a hash of the calls that are open
};
ThreadLog logs[max_threads];

// Of one warp, made by as many of its lanes as reach the instruction.
struct Request {
    int lanes = 0;
    uintptr_t address[warp_size];
    int lane[warp_size];
    uint8_t bytes = 0;
    bool write = false, shared = false;
};

// ---- distinct bytes: which launch, and which block, last loaded or stored each ----

struct Touched {
    uint32_t load, store, load_block, store_block;
};
Touched *touched = nullptr;
uint32_t launch_number = 0;

bool is_first(uint32_t &last, uint32_t now)
{
    const bool first = last != now;
    last = now;
    return first;
}

void touch(uintptr_t address, size_t bytes, bool write)
{
    if (!touched) touched = new_shadow_table<Touched>();
    Touched *first = touched + shadow_index(reinterpret_cast<const void *>(address));
    const uint32_t block_number = block.serial;
    for (size_t i = 0; i < bytes; i++) {
        (write ? counts->store_bytes : counts->load_bytes) += is_first(write ? first[i].store : first[i].load, launch_number);
        counts->block_bytes += is_first(write ? first[i].store_block : first[i].load_block, block_number);
    }
}

// ---- requests ----

// Calls f for each sector or word of the lanes [from, to) of a request, numbered by address.
template <class F> void for_units(const Request &request, int from, int to, uintptr_t unit_bytes, F f)
{
    for (int i = 0; i < request.lanes; i++) {
        if (request.lane[i] < from || request.lane[i] >= to) continue;
        const uintptr_t last = request.address[i] + request.bytes - 1u;
        for (uintptr_t unit = request.address[i] / unit_bytes; unit <= last / unit_bytes; unit++) f(unit);
    }
}

size_t distinct(std::vector<uintptr_t> &values)
{
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    return values.size();
}

void count_global(const Request &request)
{
    static std::vector<uintptr_t> units;
    units.clear();
    for_units(request, 0, warp_size, sector_bytes, [](uintptr_t sector) { units.push_back(sector); });
    (request.write ? counts->store_sectors : counts->load_sectors) += static_cast<int64_t>(distinct(units));
    counts->requests++;
    units.clear();
    for_units(request, 0, warp_size, line_bytes, [](uintptr_t line) { units.push_back(line); });
    const size_t lines = distinct(units);
    counts->lines += static_cast<int64_t>(lines);
    counts->single += lines == 1;
    for (int i = 0; i < request.lanes; i++) touch(request.address[i], request.bytes, request.write);
}

void count_shared(const Request &request)
{
    int64_t passes = 0;
    static std::vector<uintptr_t> words;
    const int lanes = request.bytes <= 4 ? warp_size : request.bytes <= 8 ? warp_size / 2 : warp_size / 4;
    for (int from = 0; from < warp_size; from += lanes) {
        words.clear();
        for_units(request, from, from + lanes, word_bytes, [](uintptr_t word) { words.push_back(word); });
        if (words.empty()) continue;
        distinct(words);
        int in_bank[banks] = {};
        for (uintptr_t word : words) in_bank[word % banks]++;
        passes += *std::max_element(in_bank, in_bank + banks);
        counts->ideal_wavefronts++;
    }
    counts->wavefronts += passes;
    counts->shared_requests++;
    counts->single += passes == 1;
}

// Joins the lanes of a warp: the n-th time that one comes to an instruction goes with the n-th time of the others.
void count_warp(int first_thread, int end_thread)
{
    struct Instruction {
        std::vector<Request> executions;
        size_t next = 0;
        int lane = -1; // that `next` is of
    };
    static std::unordered_map<uint64_t, Instruction> instructions;
    instructions.clear();
    for (int thread = first_thread; thread < end_thread; thread++) {
        const int lane = thread - first_thread;
        for (const Access &access : logs[thread].accesses) {
            Instruction &instruction = instructions[access.instruction];
            if (instruction.lane != lane) instruction.lane = lane, instruction.next = 0;
            if (instruction.next == instruction.executions.size()) instruction.executions.emplace_back();
            Request &request = instruction.executions[instruction.next++];
            request.lane[request.lanes] = lane;
            request.address[request.lanes++] = access.address;
            request.bytes = std::max(request.bytes, access.bytes);
            request.write = access.write;
            request.shared = access.shared;
        }
        logs[thread].accesses.clear();
    }
    for (const auto &[_, instruction] : instructions)
        for (const Request &request : instruction.executions) request.shared ? count_shared(request) : count_global(request);
}

void record(uint64_t instruction, const void *pointer, size_t bytes, bool write)
{
    const Region region = region_of(pointer);
    if (region != Region::shared && region != Region::global) return;
    ThreadLog &log = logs[current->linear];
    const uint64_t path = log.path.empty() ? 0 : log.path.back();
    log.accesses.push_back(
        {instruction ^ path, reinterpret_cast<uintptr_t>(pointer), static_cast<uint8_t>(bytes), write, region == Region::shared});
}

} // namespace

void look(const void *pointer, size_t bytes, bool write, bool, const void *instruction)
{
    if (current) record(reinterpret_cast<uintptr_t>(instruction), pointer, bytes, write);
}

void enter(const void *caller)
{
    if (!current) return;
    std::vector<uint64_t> &path = logs[current->linear].path;
    path.push_back(((path.empty() ? 0 : path.back()) ^ reinterpret_cast<uintptr_t>(caller)) * 0x9e3779b97f4a7c15u);
}

void leave()
{
    if (current) logs[current->linear].path.pop_back();
}

void count_launch(const std::string &kernel, int64_t blocks, int threads)
{
    counts = &totals[kernel];
    counts->launches++;
    counts->blocks += blocks;
    counts->threads += blocks * threads;
    launch_number++;
    for (ThreadLog &log : logs) {
        log.accesses.clear();
        log.path.clear();
    }
}

void count_event(Event event)
{
    (event == Event::barrier ? counts->barriers : event == Event::shuffle ? counts->shuffles : counts->tensor)++;
}

void count_copy_wait(size_t in_flight, size_t left)
{
    counts->copy_waits++;
    counts->copies_in_flight += static_cast<int64_t>(in_flight);
    counts->idle_waits += left == 0;
}

void count_access(const void *pointer, size_t bytes, bool write, Site site)
{
    record(reinterpret_cast<uintptr_t>(site.file) * 31 + static_cast<uint64_t>(site.line) * 2 + write, pointer, bytes, write);
}

void count_block_so_far()
{
    for (int first = 0; first < block.size; first += warp_size) count_warp(first, std::min(first + warp_size, block.size));
}

} // namespace emulator

// What --wrap makes of a call of a mathematical function (emulation.py): a special function, then the call.
#define SPECIAL_1(name)                                                                                                                    \
    float __real_##name##f(float);                                                                                                         \
    double __real_##name(double);                                                                                                          \
    float __wrap_##name##f(float x) { return emulator::special(__real_##name##f, x); }                                                     \
    double __wrap_##name(double x) { return emulator::special(__real_##name, x); }
#define SPECIAL_2(name)                                                                                                                    \
    float __real_##name##f(float, float);                                                                                                  \
    double __real_##name(double, double);                                                                                                  \
    float __wrap_##name##f(float x, float y) { return emulator::special(__real_##name##f, x, y); }                                         \
    double __wrap_##name(double x, double y) { return emulator::special(__real_##name, x, y); }

namespace emulator
{
template <class F, class... X> auto special(F function, X... x)
{
    if (current) counts->special++;
    return function(x...);
}
} // namespace emulator

extern "C" {
SPECIAL_1(sqrt)
SPECIAL_1(exp)
SPECIAL_1(exp2)
SPECIAL_1(expm1)
SPECIAL_1(log)
SPECIAL_1(log1p)
SPECIAL_1(sin)
SPECIAL_1(cos)
SPECIAL_1(tanh)
SPECIAL_1(erf)
SPECIAL_1(erfc)
SPECIAL_2(pow)
SPECIAL_2(fmod)
}
#endif

const char *emulator_counts(void)
{
    static std::string told;
    told.clear();
#if defined(EMULATOR_COUNT)
    for (const emulator::Column &column : emulator::columns) told += std::string("\t") + column.name;
    for (const auto &[kernel, counts] : emulator::totals) {
        told += "\n" + kernel;
        for (const emulator::Column &column : emulator::columns) told += "\t" + std::to_string(counts.*column.count);
    }
    emulator::totals.clear();
#endif
    return told.c_str();
}

int64_t emulator_count([[maybe_unused]] const char *column)
{
    int64_t sum = 0;
#if defined(EMULATOR_COUNT)
    for (const emulator::Column &known : emulator::columns)
        for (const auto &total : emulator::totals) sum += std::string(column) == known.name ? total.second.*known.count : 0;
#endif
    return sum;
}
