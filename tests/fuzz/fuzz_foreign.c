/* Configurations of other trainers: whatever is in a file, it is refused or read as
 * pairs, each with a key that is found and a line. What is made of them belongs to the
 * settings, with which programs without OpenMP, as these, can't be linked. */

#include "src/convert/foreign.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct foreign_file file = { 0 };
    if (foreign_read(fuzz_file(data, bytes), &file) == ERR_OK)
        for (size_t i = 0; i < file.count; i++)
            assert(file.pairs[i].line > 0 && file.pairs[i].key[0] != '\0' &&
                   foreign_find(&file, file.pairs[i].key) != NULL);
    foreign_free(&file);
    return 0;
}
