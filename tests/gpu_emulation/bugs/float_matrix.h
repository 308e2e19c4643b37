// float_matrix.h: matrices of float32 for the programs of attention in float32, and what they report.
#pragma once
#include <cmath>
#include <limits>
#include <stdint.h>
#include <stdio.h>
#include <vector>

namespace
{

struct Matrix {
    std::vector<float> data;
    int64_t columns;

    // nan_row: -1: none. growth: of every 64 rows, so that the largest score of a row grows from tile to tile.
    Matrix(int64_t rows, int64_t features, int64_t by, int64_t nan_row, int64_t growth = 0)
        : data(static_cast<size_t>(rows * features)), columns(features)
    {
        for (int64_t i = 0; i < rows * features; i++) {
            const int64_t row = i / features, next = (row * by + i % features * (by + 4) + row * row % 5) % 17 - 8;
            data[static_cast<size_t>(i)] =
                row == nan_row ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(next * (1 + growth * (row / 64))) / 8;
        }
    }
    double at(int64_t i, int64_t d) const { return static_cast<double>(data[static_cast<size_t>(i * columns + d)]); }
    double product(int64_t i, const Matrix &other, int64_t j) const
    {
        double sum = 0;
        for (int64_t d = 0; d < columns; d++) sum += at(i, d) * other.at(j, d);
        return sum;
    }
};

inline bool is_wrong(const char *name, int64_t i, int64_t d, float found, double expected)
{
    if (fabs(static_cast<double>(found) - expected) <= 1e-4 * (1 + fabs(expected))) return false;
    printf("wrong result: %s[%lld][%lld] is %g, expected %g\n", name, static_cast<long long>(i), static_cast<long long>(d),
           static_cast<double>(found), expected);
    return true;
}

// Do instructions so far have more passes over shared memory than their operands need, and than so many `more`?
inline bool is_costly(int64_t more = 0)
{
    const int64_t wavefronts = emulator_count("wavefronts"), ideal = emulator_count("ideal_wavefronts");
    if (wavefronts <= ideal + more) return false;
    printf("costly: %lld wavefronts, %lld would do\n", static_cast<long long>(wavefronts), static_cast<long long>(ideal + more));
    return true;
}

} // namespace
