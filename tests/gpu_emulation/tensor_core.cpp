// tensor_core.cpp: the warp's matrix instructions, done by the last lane to arrive.
#include "tensor_core.h"
#include "access_check.h"
#include "count.h"
#include "memory.h"
#include "numerics.h"
#include <cmath>

namespace emulator
{

namespace
{

constexpr unsigned all_lanes = 0xffffffffu;

struct LoadOperand {
    uint32_t *registers;
    int count;
    bool transposed;
    const uint16_t *row;
};

LoadOperand &load_operand(Warp &warp, int lane) { return *static_cast<LoadOperand *>(warp.lane[lane]->waiting.operand); }

void combine_load(Warp &warp, unsigned)
{
    for (int lane = 0; lane < warp_size; lane++) {
        LoadOperand &mine = load_operand(warp, lane);
        for (int i = 0; i < mine.count; i++) {
            uint32_t packed = 0;
            for (int half = 0; half < 2; half++) {
                const int along = lane % 4 * 2 + half, across = lane / 4;
                const int row = mine.transposed ? along : across, column = mine.transposed ? across : along;
                packed |= static_cast<uint32_t>(load_operand(warp, i * 8 + row).row[column]) << (16 * half);
            }
            mine.registers[i] = packed;
        }
    }
}

struct MultiplyOperand {
    Element element;
    float *d;
    const uint32_t *a, *b;
    float accumulator[4];
};

const MultiplyOperand &multiply_operand(Warp &warp, int lane) { return *static_cast<MultiplyOperand *>(warp.lane[lane]->waiting.operand); }

float half_of(Element element, uint32_t packed, int half)
{
    const uint16_t bits = static_cast<uint16_t>(packed >> (16 * half));
    return element == Element::float16 ? float16_to_float(bits) : bfloat16_to_float(bits);
}

struct Tiles {
    float a[16][16], b[16][8];
};

// Puts the fragments of all lanes together to the matrices they are pieces of. Returns K.
int assemble(Warp &warp, Tiles &tiles)
{
    const Element element = multiply_operand(warp, 0).element;
    for (int lane = 0; lane < warp_size; lane++) {
        const MultiplyOperand &operand = multiply_operand(warp, lane);
        const int g = lane / 4, t = lane % 4;
        if (element == Element::tf32) {
            for (int i = 0; i < 4; i++) tiles.a[g + 8 * (i % 2)][t + 4 * (i / 2)] = tf32_to_float(operand.a[i]);
            for (int i = 0; i < 2; i++) tiles.b[t + 4 * i][g] = tf32_to_float(operand.b[i]);
            continue;
        }
        for (int half = 0; half < 2; half++) {
            for (int i = 0; i < 4; i++) tiles.a[g + 8 * (i % 2)][2 * t + half + 8 * (i / 2)] = half_of(element, operand.a[i], half);
            for (int i = 0; i < 2; i++) tiles.b[2 * t + half + 8 * i][g] = half_of(element, operand.b[i], half);
        }
    }
    return element == Element::tf32 ? 8 : 16;
}

// Tensor cores cut off what they add up: the products of half of an operation's k at a time, and the sum before (Fasi et al. 2021,
// "Numerical behavior of NVIDIA tensor cores"). Of long sums of positive numbers an H200 had 1.2 to 1.3 times the errors that this gives.
float towards_zero(double sum)
{
    const float nearest = static_cast<float>(sum);
    if (!(std::fabs(static_cast<double>(nearest)) > std::fabs(sum)) || std::isinf(nearest)) return nearest;
    return bit_cast<float>(bit_cast<uint32_t>(nearest) - 1);
}

void combine_multiply(Warp &warp, unsigned)
{
    Tiles tiles;
    float sums[16][8];
    const int K = assemble(warp, tiles);
    const auto element_of = [&](int lane, int i) -> float & { return sums[lane / 4 + 8 * (i / 2)][lane % 4 * 2 + i % 2]; };
    for (int lane = 0; lane < warp_size; lane++)
        for (int i = 0; i < 4; i++) element_of(lane, i) = multiply_operand(warp, lane).accumulator[i];
    for (int row = 0; row < 16; row++) {
        for (int k = 0; k < K; k += K / 2) {
            double more[8];
            for (int column = 0; column < 8; column++) more[column] = sums[row][column];
            for (int j = k; j < k + K / 2; j++)
                for (int column = 0; column < 8; column++) more[column] += static_cast<double>(tiles.a[row][j]) * tiles.b[j][column];
            for (int column = 0; column < 8; column++) sums[row][column] = towards_zero(more[column]);
        }
    }
    for (int lane = 0; lane < warp_size; lane++)
        for (int i = 0; i < 4; i++) multiply_operand(warp, lane).d[i] = element_of(lane, i);
}

} // namespace

void load_matrix(const char *operation, Site site, uint32_t *registers, int count, bool transposed, const void *row)
{
    check_access(Space::shared, row, 16, 16, operation, site); // sm_75 wants a valid address of every lane,
    if (current->lane < 8 * count) {                           // and uses those of the first ones
        record_access(row, 16, false, operation, site);
        count_access(row, 16, false, site);
    }
    for (int i = 0; i < count; i++) registers[i] = all_lanes; // NaN in each half
    LoadOperand operand = {registers, count, transposed, static_cast<const uint16_t *>(row)};
    warp_collective(operation, site, all_lanes, &operand, combine_load, false);
}

void multiply_accumulate(const char *operation, Site site, Element element, float *d, const uint32_t *a, const uint32_t *b)
{
    MultiplyOperand operand = {element, d, a, b, {d[0], d[1], d[2], d[3]}};
    for (int i = 0; i < 4; i++) d[i] = NAN;
    warp_collective(operation, site, all_lanes, &operand, combine_multiply, false);
}

} // namespace emulator
