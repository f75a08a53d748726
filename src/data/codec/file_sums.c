/* Computes a file's checksums together, in one pass over its bytes: reading a
 * shard from a file server costs more than all of its sums. */
#include "src/data/codec/file_sums.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/data/codec/checksum.h"

struct file_sums_one {
    const struct file_sum *hash;
    struct checksum *sum;
};

struct file_sums {
    int count;
    struct file_sums_one one[];
};

enum err file_sums_create(const struct file_sum *hash, int count,
                          struct file_sums **out)
{
    assert(out != NULL && count >= 0);
    enum err rc = ERR_OK;
    *out = NULL;
    struct file_sums *sums =
        calloc(1, sizeof *sums + (size_t)count * sizeof sums->one[0]);
    if (sums == NULL)
        return err_set(ERR_MEMORY, "no memory for %d checksums", count);
    for (int h = 0; h < count; h++) {
        /* not known here: others of the same file may be */
        if (checksum_digits(hash[h].name) == 0)
            continue;
        struct file_sums_one *one = &sums->one[sums->count];
        TRY_OUT(checksum_create(hash[h].name, &one->sum));
        one->hash = &hash[h];
        sums->count++;
    }
out:
    return new_or_none(rc, sums, out, file_sums_destroy);
}

void file_sums_destroy(struct file_sums *sums)
{
    if (sums == NULL)
        return;
    for (int s = 0; s < sums->count; s++)
        checksum_destroy(sums->one[s].sum);
    free(sums);
}

bool file_sums_is_empty(const struct file_sums *sums)
{
    return sums->count == 0;
}

enum err file_sums_update(struct file_sums *sums, const void *data,
                          size_t bytes)
{
    assert(sums != NULL && (data != NULL || bytes == 0));
    for (int s = 0; s < sums->count; s++)
        TRY(checksum_update(sums->one[s].sum, data, bytes));
    return ERR_OK;
}

enum err file_sums_compare(struct file_sums *sums)
{
    char hex[CHECKSUM_TEXT_BYTES];
    for (int s = 0; s < sums->count; s++) {
        const struct file_sum *hash = sums->one[s].hash;
        TRY(checksum_finish(sums->one[s].sum, hex));
        if (strcmp(hex, hash->hex) != 0)
            return err_set(ERR_DATA, "its %s should be %s and is %s",
                           hash->name, hash->hex, hex);
    }
    return ERR_OK;
}
