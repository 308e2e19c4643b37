// kernel_rows.h: the rows of csrc/kernels/kernels.def, and which memory a launch may therefore touch.
//
// A launcher of the table runs with its Operands alive; the launches within it remember them. The access check then looks up every load
// and store: a kernel stores to the blocks that the members listed in its row point into and to its scratch memory, and loads from
// those and from the blocks that any other word of its args points into. Streams are kept in order by the same row.
#pragma once
#include "../kernels.h"
#include "block.h"
#include <memory>
#include <vector>

namespace emulator
{

struct Row {
    const tc_kernel *kernel;
    const char *members; // that it writes through, as in kernels.def: "y, mean, rstd"
};
const Row &row_of(int id); // a tc_kernel_id

struct TouchedBlock {
    const unsigned char *start, *end;
    int member; // of the row; or one of these two
    static constexpr int scratch = -1, read_only = -2;
};
struct Touches {
    Row row;
    uint64_t *written; // a bit for each member of the row; null: a row that is not in the table
    std::vector<TouchedBlock> blocks;
};

// The launches during its life are of this kernel.
class Operands
{
  public:
    Operands(const Row &row, const void *args, const void *scratch);
    ~Operands();
    Operands(const Operands &) = delete;
    Operands &operator=(const Operands &) = delete;
};
std::shared_ptr<const Touches> current_touches(); // null outside of any launcher: such launches touch what they like

// Does its row let the kernel that runs load from, or store to, this address in global memory?
bool row_allows(const void *pointer, bool write);
[[noreturn]] void fail_row(Site site, const void *pointer, size_t bytes, bool write);

// Runs a launcher by its row.
template <int id, auto run> int launch_by_row(const void *args, int64_t items, void *scratch, void *stream)
{
    const Operands operands(row_of(id), args, scratch);
    return run(args, items, scratch, stream);
}

} // namespace emulator

// The listed members that no launch of a kernel has stored through so far, one a line: "layer_norm_forward.sum". The access check sees
// the stores; a store to a block that several listed members point into counts for none of them.
extern "C" const char *emulator_never_written(void);
