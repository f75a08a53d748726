/* Prompts continued by the ranks of a job: rank 0 reads and shows, each rank continues
 * every so many-th prompt, and lends its part of the weights to who has more. A prompt's
 * continuation is the same on any number of ranks. All of it is collective. */
#pragma once

#include "src/generate/generate_engine.h"

bool generate_ranks_first(const struct generate_engine *engine);

/* Every rank gets rank 0's prompts, [*count] in *list, which it frees, of tokens in
 * *tokens, where they lie one behind the other on rank 0 too. rc: of reading them. */
enum err generate_ranks_share(const struct generate_engine *engine, enum err rc,
                              struct token_list *tokens,
                              struct generate_prompt **list, size_t *count);

/* generate_run() of all prompts. Of the hooks rank 0 calls `result`, without tokens, by
 * rounds of prompts, and of several ranks no other. */
enum err generate_ranks_run(struct generate_engine *engine,
                            const struct generate_options *options,
                            const struct generate_prompt *prompts, size_t count,
                            const struct generate_hooks *hooks);
/* generate_score() of a text, on rank 0. */
enum err generate_ranks_score(struct generate_engine *engine,
                              const int32_t *tokens, size_t count, double *nll);
