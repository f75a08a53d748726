/* Several short examples in one row: first-fit decreasing, the longest first,
 * each into the first row that has room for it. The same lengths give the same
 * rows. Examples are packed in windows, so that those of a row were near each
 * other and memory is bounded.
 *
 * Finding the fewest rows is bin packing, which nobody does exactly; this rule
 * takes at most 11/9 of them and a part of one (Dosa 2007). To find the first
 * row with room without looking at all of them, rows are the leaves of a binary
 * tree in which each node has the most room of the rows below it: from the root
 * the way goes left wherever that is enough. There are as many leaves as
 * examples, so there always is a row. */
#include "src/data/prepare/tokenize_finetune.h"
#include "src/base/new.h"

#include <assert.h>
#include <stdlib.h>

struct pack_example {
    int64_t length, index;
};

static int pack_compare(const void *left, const void *right)
{
    const struct pack_example *a = left, *b = right;
    if (a->length != b->length)
        return a->length > b->length ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

enum err pack_rows(const int64_t *length, int64_t count, int64_t seq_len,
                   int64_t *row, int64_t *rows)
{
    assert(count >= 0 && seq_len > 0);
    enum err rc = ERR_OK;
    struct pack_example *sorted = NULL;
    int64_t leaves = 1, *room = NULL;
    *rows = 0;
    if (count == 0)
        return ERR_OK;
    while (leaves < count)
        leaves *= 2;
    TRY_OUT(new_room(&sorted, (size_t)count));
    TRY_OUT(new_room(&room, (size_t)(2 * leaves)));
    for (int64_t i = 0; i < count; i++) {
        assert(length[i] > 0 && length[i] <= seq_len);
        sorted[i] = (struct pack_example){ length[i], i };
    }
    qsort(sorted, (size_t)count, sizeof *sorted, pack_compare);
    for (int64_t n = 0; n < 2 * leaves; n++)
        room[n] = seq_len;
    for (int64_t i = 0; i < count; i++) {
        int64_t node = 1;
        while (node < leaves)
            node = room[2 * node] >= sorted[i].length ? 2 * node : 2 * node + 1;
        row[sorted[i].index] = node - leaves;
        if (node - leaves >= *rows)
            *rows = node - leaves + 1;
        room[node] -= sorted[i].length;
        /* and up again, since the most may have been this row's */
        for (node /= 2; node > 0; node /= 2)
            room[node] = room[2 * node] > room[2 * node + 1]
                             ? room[2 * node]
                             : room[2 * node + 1];
    }
    assert(*rows > 0 && *rows <= count);
out:
    free(sorted);
    free(room);
    return rc;
}
