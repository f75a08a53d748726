/* Reads a run's prompts on one rank and tells them to all. */
#include "src/train/listeners/on_generate_prompts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/base/new.h"
#include "src/data/set/dataset.h"
#include "src/data/texts/inputs.h"

/* What rank 0 has read, and what all get of it. */
struct prompts_read {
    const struct run *run;
    struct on_generate_prompts *prompts;
    struct tokenizer_encoder *encoder;
    uint64_t count;
    uint64_t first[ON_GENERATE_PROMPTS_MAX + 1]; /* where each begins */
};

static enum err prompts_take(void *arg, const char *text, size_t bytes)
{
    struct prompts_read *read = arg;
    struct on_generate_prompts *prompts = read->prompts;
    int64_t room = read->run->settings.model.max_seq_len;
    if (read->count == ON_GENERATE_PROMPTS_MAX)
        return err_set(ERR_USAGE, "a run continues at most %d",
                       ON_GENERATE_PROMPTS_MAX);
    size_t before = prompts->tokens.count;
    read->first[read->count] = before;
    TRY(buffer_add(&prompts->texts[read->count++], text, bytes));
    TRY(tokenizer_encode(read->encoder, (const uint8_t *)text, bytes,
                         TOKENIZER_SPECIAL | TOKENIZER_TEMPLATE,
                         &prompts->tokens));
    size_t count = prompts->tokens.count - before;
    if (count == 0)
        return err_set(ERR_USAGE, "it has no token, and nothing can follow "
                                  "nothing");
    if ((int64_t)count >= room)
        return err_set(ERR_USAGE,
                       "it has %zu tokens, and model.max_seq_len is %" PRId64,
                       count, room);
    return ERR_OK;
}

static enum err prompts_on_rank_0(struct prompts_read *read)
{
    enum err rc = ERR_OK;
    struct on_generate_prompts *prompts = read->prompts;
    const struct dataset *data = read->run->inputs.train_data[0];
    const char *file = dataset_tokenizer_file(data);
    const char *name = file[0] != '\0' ? file : dataset_tokenizer(data);
    TRY(tokenizer_create(name, &prompts->tokenizer));
    if (strcmp(tokenizer_sha256(prompts->tokenizer),
               dataset_tokenizer_sha256(data)) != 0)
        return err_set(ERR_USAGE,
                       "the data set %s does not have the tokenizer that it "
                       "was made with ('%s'), which prompts need: adopt it "
                       "with --tokenizer",
                       dataset_path(data), dataset_tokenizer(data));
    TRY(tokenizer_encoder_create(prompts->tokenizer, &read->encoder));
    TRY_OUT(prompt_file_read(read->run->settings.generate.prompts, prompts_take,
                             read));
    read->first[read->count] = prompts->tokens.count;
    uint64_t lost = tokenizer_encoder_lost(read->encoder);
    if (lost > 0)
        log_warn("%s: %" PRIu64 " bytes are left out, the tokenizer has no "
                 "tokens for them",
                 read->run->settings.generate.prompts, lost);
    prompts->eos = (int32_t)dataset_eos_token(data);
    if (prompts->eos < 0)
        prompts->eos = tokenizer_eos(prompts->tokenizer);
out:
    tokenizer_encoder_destroy(read->encoder);
    return rc;
}

static enum err prompts_list(struct on_generate_prompts *prompts,
                             const struct prompts_read *read)
{
    TRY(new_zeroed(&prompts->list, (size_t)read->count));
    prompts->count = (size_t)read->count;
    for (size_t p = 0; p < prompts->count; p++) {
        size_t count = (size_t)(read->first[p + 1] - read->first[p]);
        prompts->list[p] =
            (struct generate_prompt){ prompts->tokens.token + read->first[p],
                                      count };
        if (count > prompts->tokens_max)
            prompts->tokens_max = count;
    }
    return ERR_OK;
}

enum err on_generate_prompts_read(const struct run *run,
                                  struct on_generate_prompts *prompts)
{
    enum err rc = ERR_OK;
    struct comm *comm = run->comm;
    struct prompts_read *read = calloc(1, sizeof *read);
    if (read == NULL)
        rc = err_set(ERR_MEMORY, "out of memory");
    else
        *read = (struct prompts_read){ .run = run, .prompts = prompts };
    if (rc == ERR_OK)
        rc = run->rank == 0
                 ? prompts_on_rank_0(read)
                 : tokenizer_create(TOKENIZER_DEFAULT, &prompts->tokenizer);
    TRY_OUT(comm_agree(comm, rc));
    TRY_OUT(comm_broadcast(comm, &read->count, sizeof read->count, 0));
    TRY_OUT(comm_broadcast(comm, read->first, sizeof read->first, 0));
    TRY_OUT(comm_broadcast(comm, &prompts->eos, sizeof prompts->eos, 0));
    size_t count = (size_t)read->first[read->count];
    if (run->rank != 0)
        rc = token_list_room(&prompts->tokens, count);
    TRY_OUT(comm_agree(comm, rc));
    prompts->tokens.count = count;
    TRY_OUT(comm_broadcast(comm, prompts->tokens.token,
                           count * sizeof *prompts->tokens.token, 0));
    TRY_OUT(comm_agree(comm, prompts_list(prompts, read)));
out:
    free(read);
    return rc;
}

void on_generate_prompts_free(struct on_generate_prompts *prompts)
{
    free(prompts->list);
    free(prompts->tokens.token);
    tokenizer_destroy(prompts->tokenizer);
    for (size_t p = 0; p < ON_GENERATE_PROMPTS_MAX; p++)
        buffer_free(&prompts->texts[p]);
}
