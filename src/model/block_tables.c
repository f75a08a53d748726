/* Makes the tables of positions. Where layers with a window turn by angles of
 * their own (Gemma 3: 10^4 there, 10^6 and scaled in the others; OLMo 3: YaRN in
 * the others alone) there are two of them. */
#include "src/model/block_tables.h"

#include <stdlib.h>

#include "src/base/new.h"

const float *block_tables_rope(const struct model_config *config, int64_t layer,
                               const float *rope, const float *apart)
{
    if (!model_config_turns(config, layer))
        return NULL;
    return model_config_turns_apart(config, layer) ? apart : rope;
}

void block_tables_layout(struct block_tables *tables,
                         const struct model_config *config, int64_t count,
                         struct arena *arena)
{
    size_t rope = (size_t)(count * model_config_head_dim(config));
    if (config->positions == POSITIONS_ROPE)
        tables->rope = arena_take(arena, rope * sizeof(float));
    if (config->window_rope_theta > 0.0)
        tables->apart = arena_take(arena, rope * sizeof(float));
    if (config->positions == POSITIONS_ALIBI)
        tables->slopes =
            arena_take(arena, (size_t)config->n_heads * sizeof(float));
}

enum err block_tables_fill(const struct block_tables *tables,
                           const struct model_config *config,
                           const struct kernels *kernels, void *stream,
                           int64_t count)
{
    enum err rc = ERR_OK;
    float *const all[] = { tables->rope, tables->apart, tables->slopes };
    int64_t rope = count * model_config_head_dim(config);
    float *numbers = NULL;
    TRY(new_room(&numbers,
                 (size_t)(rope > config->n_heads ? rope : config->n_heads)));
    for (int i = 0; i < 3; i++) {
        size_t n = (size_t)(i < 2 ? rope : config->n_heads);
        if (all[i] == NULL)
            continue;
        if (i < 2)
            model_config_rope_table(config, i == 1, 0, count, numbers);
        else
            model_config_alibi_slopes(config, numbers);
        TRY_OUT(kernels->memory->upload(stream, n * sizeof *numbers, numbers,
                                        all[i]));
        TRY_OUT(kernels->memory->wait(stream));
    }
out:
    free(numbers);
    return rc;
}
