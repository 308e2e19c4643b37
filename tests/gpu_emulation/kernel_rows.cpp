// kernel_rows.cpp: see kernel_rows.h.
#include "kernel_rows.h"
#include "memory.h"
#include <cstring>
#include <string>

#include "../kernels.def" // the structs
#include "../kernel_ids.h"

namespace emulator
{

namespace
{

#define TC_KERNEL_ENTRY(name, gpu, args, ...) {&tc_kernel_##name, #__VA_ARGS__},
const Row rows[] = {
#include "../kernels.def"
};
#undef TC_KERNEL_ENTRY
#define RUNS_CPU false
#define RUNS_CUDA true
#define RUNS_CUDA_ALONE true
#define RUNS_CUDA_SCRATCH true
#define TC_KERNEL_ENTRY(name, gpu, args, ...) RUNS_##gpu,
const bool runs_here[] = {
#include "../kernels.def"
};
#undef TC_KERNEL_ENTRY

thread_local std::shared_ptr<const Touches> current_one;
uint64_t written[TC_KERNEL_COUNT]; // a bit for each member of the row; under the runtime's lock, which a launch holds while it runs

std::string member_name(const Row &row, int member)
{
    const char *name = row.members;
    for (; member > 0; member--) name = strchr(name, ',') + 2;
    return std::string(row.kernel->name) + "." + std::string(name, strcspn(name, ","));
}

void add(Touches &touches, const void *pointer, int member)
{
    const unsigned char *start, *end;
    if (array_of(Region::global, pointer, 1, &start, &end)) touches.blocks.push_back({start, end, member});
}

uint64_t *written_of(const Row &row)
{
    for (int id = 0; id < TC_KERNEL_COUNT; id++)
        if (rows[id].kernel == row.kernel) return &written[id];
    return nullptr;
}

const void *word(const void *args, size_t offset)
{
    const void *pointer;
    memcpy(&pointer, static_cast<const char *>(args) + offset, sizeof pointer);
    return pointer;
}

} // namespace

const Row &row_of(int id) { return rows[id]; }

Operands::Operands(const Row &row, const void *args, const void *scratch)
{
    const tc_kernel &kernel = *row.kernel;
    auto touches = std::make_shared<Touches>(Touches{row, written_of(row), {}});
    add(*touches, scratch, TouchedBlock::scratch);
    for (int i = 0; i < static_cast<int>(kernel.write_count); i++) {
        if (kernel.writes[i].kind == tc_kernel_write::TC_WRITES_MEMORY) {
            add(*touches, word(args, kernel.writes[i].offset), i);
            continue;
        }
        const auto &list = *static_cast<const tc_scale_args *>(args);
        for (int64_t j = 0; j < list.chunk_count; j++) {
            const tc_optimizer_chunk &chunk = list.chunks[j];
            add(*touches, chunk.gradient, i);
            add(*touches, chunk.parameter, i);
            add(*touches, chunk.half, i);
            for (const void *state : chunk.state) add(*touches, state, i);
        }
    }
    for (size_t at = 0; at + sizeof(void *) <= kernel.args_bytes; at += sizeof(void *))
        add(*touches, word(args, at), TouchedBlock::read_only);
    current_one = touches;
}

Operands::~Operands() { current_one = nullptr; }

std::shared_ptr<const Touches> current_touches() { return current_one; }

bool row_allows(const void *pointer, bool write)
{
    if (!block.touches) return true;
    const Touches &touches = *block.touches;
    int listed = -1, members = 0; // the last listed member that points into this block, and how many do
    bool allowed = false;
    for (const TouchedBlock &touched : touches.blocks) {
        if (pointer < touched.start || pointer >= touched.end) continue;
        allowed = allowed || !write || touched.member != TouchedBlock::read_only;
        if (touched.member >= 0 && touched.member != listed) members++, listed = touched.member;
    }
    if (allowed && write && members == 1 && touches.written) *touches.written |= uint64_t(1) << listed;
    return allowed;
}

void fail_row(Site site, const void *pointer, size_t bytes, bool write)
{
    const Row &row = block.touches->row;
    fail(site, "not in its row: %s of %zu bytes at %p, in none of the blocks that %s %s; the members it writes are %s",
         write ? "store" : "load", bytes, pointer, row.kernel->name, write ? "writes by kernels.def" : "is given in its arguments",
         row.members);
}

} // namespace emulator

const char *emulator_never_written(void)
{
    static std::string list;
    list.clear();
    for (int id = 0; id < TC_KERNEL_COUNT; id++) {
        const emulator::Row &row = emulator::row_of(id);
        for (size_t i = 0; emulator::runs_here[id] && i < row.kernel->write_count; i++) {
            if (!(emulator::written[id] >> i & 1)) list += emulator::member_name(row, static_cast<int>(i)) + "\n";
        }
    }
    return list.c_str();
}
