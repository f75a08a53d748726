/* Parquet, as fuzz_columns.h says. */
#include "tests/fuzz/fuzz_columns.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    return fuzz_columns(&parquet_format, data, bytes);
}
