/* Lists of tokens that grow. They stand below both of those who fill them, an
 * encoder word by word (bpe.h) and a tokenizer text by text (tokenizer.h). */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "src/base/array.h"

/* The caller frees `token`. Zeros: an empty one. */
struct token_list {
    int32_t *token;
    size_t count, capacity;
};

/* Room for so many more. */
static inline enum err token_list_room(struct token_list *list, size_t count)
{
    return array_room(&list->token, &list->capacity, list->count + count);
}

static inline enum err token_list_add(struct token_list *list,
                                      const int32_t *tokens, size_t count)
{
    assert(tokens != NULL || count == 0);
    TRY(token_list_room(list, count));
    if (count > 0)
        memcpy(list->token + list->count, tokens, count * sizeof *tokens);
    list->count += count;
    return ERR_OK;
}
