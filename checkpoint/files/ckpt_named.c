/* Sorts and finds by name whatever a checkpoint has names for. Which item is
 * which tensor is told in ckpt_match.c. */
#include "checkpoint/files/ckpt_named.h"

#include <stdlib.h>
#include <string.h>

static int name_order(const void *a, const void *b)
{
    const struct ckpt_named *x = a, *y = b;
    return strcmp(x->name, y->name);
}

void ckpt_named_sort(struct ckpt_named *list, size_t count)
{
    qsort(list, count, sizeof *list, name_order);
}

int ckpt_named_find(const struct ckpt_named *list, size_t count,
                    const char *name)
{
    struct ckpt_named key = { .name = name };
    const struct ckpt_named *found =
        bsearch(&key, list, count, sizeof *list, name_order);
    return found != NULL ? found->index : -1;
}

struct ckpt_named *ckpt_named_tensors(const struct ckpt_manifest *manifest)
{
    size_t count = (size_t)manifest->tensor_count;
    struct ckpt_named *list = malloc((count + 1) * sizeof *list);
    if (list == NULL)
        return NULL;
    for (size_t t = 0; t < count; t++)
        list[t] = (struct ckpt_named){ manifest->tensors[t].name, (int)t };
    ckpt_named_sort(list, count);
    return list;
}
