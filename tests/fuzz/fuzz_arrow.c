/* Arrow, as fuzz_columns.h says. */
#include "tests/fuzz/fuzz_columns.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    return fuzz_columns(&arrow_format, data, bytes);
}
