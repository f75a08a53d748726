/* Computes a file's checksums together. */
#include "src/data/mds_sums.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct mds_sums_one {
    const struct mds_hash *hash;
    struct checksum *sum;
};

struct mds_sums {
    int count;
    struct mds_sums_one one[];
};

enum err mds_sums_create(const struct mds_hash *hash, int count,
                         struct mds_sums **out)
{
    assert(out != NULL && count >= 0);
    enum err rc = ERR_OK;
    *out = NULL;
    struct mds_sums *sums =
        calloc(1, sizeof *sums + (size_t)count * sizeof sums->one[0]);
    if (sums == NULL)
        return err_set(ERR_MEMORY, "no memory for %d checksums", count);
    for (int h = 0; h < count; h++) {
        if (checksum_digits(hash[h].name) == 0)
            continue;
        struct mds_sums_one *one = &sums->one[sums->count];
        TRY_OUT(checksum_create(hash[h].name, &one->sum));
        one->hash = &hash[h];
        sums->count++;
    }
    *out = sums;
    sums = NULL;
out:
    mds_sums_destroy(sums);
    return rc;
}

void mds_sums_destroy(struct mds_sums *sums)
{
    if (sums == NULL)
        return;
    for (int s = 0; s < sums->count; s++)
        checksum_destroy(sums->one[s].sum);
    free(sums);
}

bool mds_sums_is_empty(const struct mds_sums *sums)
{
    return sums->count == 0;
}

enum err mds_sums_update(struct mds_sums *sums, const void *data, size_t bytes)
{
    for (int s = 0; s < sums->count; s++)
        TRY(checksum_update(sums->one[s].sum, data, bytes));
    return ERR_OK;
}

enum err mds_sums_finish(struct mds_sums *sums, int number,
                         char hex[CHECKSUM_TEXT_BYTES])
{
    assert(number >= 0 && number < sums->count);
    return checksum_finish(sums->one[number].sum, hex);
}

enum err mds_sums_compare(struct mds_sums *sums)
{
    char hex[CHECKSUM_TEXT_BYTES];
    for (int s = 0; s < sums->count; s++) {
        const struct mds_hash *hash = sums->one[s].hash;
        TRY(mds_sums_finish(sums, s, hex));
        if (strcmp(hex, hash->hex) != 0)
            return err_set(ERR_DATA, "its %s should be %s and is %s",
                           hash->name, hash->hex, hex);
    }
    return ERR_OK;
}
