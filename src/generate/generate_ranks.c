/* Deals prompts to ranks, and brings what came of them to rank 0.
 *
 * Where weights are spread all ranks walk through the model together: before each call
 * they ask whether anybody has one, and a rank that has none, or has failed, lends its
 * weights until nobody has. They agree on the end of a round alone. */
#include "src/generate/generate_ranks.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"

/* Prompts of a round for each slot: more wait longer for the first line, and with fewer
 * slots are empty at a round's end more often. */
#define ROUND 4

static bool generate_ranks_several(const struct generate_engine *engine)
{
    return comm_size(engine->comm) > 1;
}

bool generate_ranks_first(const struct generate_engine *engine)
{
    return comm_rank(engine->comm) == 0;
}

/* --- prompts --- */

enum err generate_ranks_share(const struct generate_engine *engine, enum err rc,
                              struct token_list *tokens,
                              struct generate_prompt **list, size_t *count)
{
    struct comm *comm = engine->comm;
    bool first = comm_rank(comm) == 0;
    size_t head[2] = { tokens->count, *count };
    int64_t *lengths = NULL;
    if (!generate_ranks_several(engine))
        return rc;
    TRY(comm_agree(comm, rc));
    TRY(comm_broadcast(comm, head, sizeof head, 0));
    tokens->count = head[0];
    *count = head[1];
    rc = new_room(&lengths, *count + 1);
    if (rc == ERR_OK && !first)
        rc = array_room(&tokens->token, &tokens->capacity, tokens->count + 1);
    if (rc == ERR_OK && !first)
        rc = new_zeroed(list, *count + 1);
    TRY_OUT(comm_agree(comm, rc));
    for (size_t p = 0; first && p < *count; p++)
        lengths[p] = (int64_t)(*list)[p].count;
    TRY_OUT(comm_broadcast(comm, lengths, *count * sizeof *lengths, 0));
    TRY_OUT(comm_broadcast(comm, tokens->token,
                           tokens->count * sizeof *tokens->token, 0));
    const int32_t *at = tokens->token;
    for (size_t p = 0; p < *count; at += lengths[p], p++)
        (*list)[p] = (struct generate_prompt){ at, (size_t)lengths[p] };
out:
    free(lengths);
    return rc;
}

/* --- walks --- */

/* What a prompt has come to, with its text behind it, up to a multiple of 8 bytes. */
struct told {
    uint64_t prompt, count, bytes, end;
};

/* One round of prompts, of this rank's every `ranks`-th. */
struct round {
    struct generate_engine *engine;
    const struct generate_hooks *hooks; /* rank 0's */
    size_t first;                       /* of this rank's prompts */
    struct generate_prompt *list;
    struct buffer told;
};

static enum err before(void *arg, bool *stop)
{
    const struct round *round = arg;
    bool any;
    (void)stop;
    TRY(infer_ranks_ask(&round->engine->ranks, true, &any));
    infer_ranks_begin(&round->engine->ranks);
    return ERR_OK;
}

static enum err after(void *arg, enum err rc)
{
    const struct round *round = arg;
    return infer_ranks_end(&round->engine->ranks, rc);
}

static enum err keep(void *arg, size_t prompt,
                     const struct generate_result *result)
{
    struct round *round = arg;
    size_t ranks = (size_t)comm_size(round->engine->comm);
    const struct told told = { round->first + prompt * ranks, result->count,
                               result->bytes, (uint64_t)result->end };
    TRY(buffer_add(&round->told, &told, sizeof told));
    TRY(buffer_add(&round->told, result->text, result->bytes));
    return buffer_add(&round->told, "\0\0\0\0\0\0\0", -result->bytes % 8);
}

static struct generate_hooks hooks_of(struct round *round)
{
    bool together = infer_ranks_together(&round->engine->ranks);
    return (struct generate_hooks){ .arg = round,
                                    .before = together ? before : NULL,
                                    .after = together ? after : NULL,
                                    .result = keep };
}

/* Until nobody has a call any more; with the code of what this rank had to do. */
static enum err lend(struct generate_engine *engine, enum err rc)
{
    bool any = infer_ranks_together(&engine->ranks);
    struct err_kept kept;
    err_keep(&kept, rc);
    while (any && rc != ERR_COMM) {
        TRY(infer_ranks_ask(&engine->ranks, false, &any));
        if (any)
            TRY(infer_ranks_forward(&engine->ranks, NULL, 0));
    }
    return rc == ERR_COMM ? rc : comm_agree(engine->comm, err_again(&kept));
}

enum err generate_ranks_score(struct generate_engine *engine,
                              const int32_t *tokens, size_t count, double *nll)
{
    enum err rc = ERR_OK;
    struct round round = { .engine = engine };
    const struct generate_hooks hooks = hooks_of(&round);
    bool several = generate_ranks_several(engine);
    *nll = 0;
    if (generate_ranks_first(engine))
        rc = generate_score(engine->generate, tokens, count,
                            several ? &hooks : NULL, nll);
    return several ? lend(engine, rc) : rc;
}

/* --- results --- */

/* Rank 0 has what all have kept. */
static enum err bring(struct round *round)
{
    struct comm *comm = round->engine->comm;
    struct buffer *told = &round->told;
    int rank = comm_rank(comm), ranks = comm_size(comm);
    size_t *bytes_of = NULL, all = 0;
    enum err rc = new_zeroed(&bytes_of, (size_t)ranks);
    TRY_OUT(comm_agree(comm, rc));
    bytes_of[rank] = told->bytes;
    TRY_OUT(comm_gather_rows(comm, bytes_of, sizeof *bytes_of));
    for (int r = 1; r < ranks; r++)
        all += bytes_of[r];
    if (rank == 0)
        rc = buffer_reserve(told, all + 1);
    TRY_OUT(comm_agree(comm, rc));
    for (int r = 1; r < ranks; r++) {
        struct comm_request *request;
        if (rank != 0 && rank != r)
            continue;
        TRY_OUT(rank == 0 ? comm_start_recv(comm, told->data + told->bytes,
                                            bytes_of[r], r, 0, &request)
                          : comm_start_send(comm, told->data, told->bytes, 0, 0,
                                            &request));
        TRY_OUT(comm_wait(request, 0.0));
        if (rank == 0)
            told->bytes += bytes_of[r];
    }
out:
    free(bytes_of);
    return rc;
}

/* Rank 0: in the order of prompts. */
static enum err deliver(const struct round *round, size_t begin, size_t count)
{
    enum err rc = ERR_OK;
    const struct told **of = NULL;
    TRY(new_zeroed(&of, count));
    for (size_t at = 0; at < round->told.bytes;) {
        const struct told *told = (const void *)(round->told.data + at);
        assert(told->prompt - begin < count);
        of[told->prompt - begin] = told;
        at += sizeof *told + told->bytes + -told->bytes % 8;
    }
    for (size_t p = 0; p < count; p++) {
        assert(of[p] != NULL);
        const struct generate_result result = {
            .count = of[p]->count,
            .text = (const char *)(of[p] + 1),
            .bytes = of[p]->bytes,
            .end = (enum generate_end)of[p]->end,
        };
        TRY_OUT(round->hooks->result(round->hooks->arg, begin + p, &result));
    }
out:
    free(of);
    return rc;
}

/* The prompts from `begin` to `end`. */
static enum err run_round(struct round *round,
                          const struct generate_options *options,
                          const struct generate_prompt *prompts, size_t begin,
                          size_t end)
{
    struct comm *comm = round->engine->comm;
    size_t ranks = (size_t)comm_size(comm), count = 0;
    struct generate_options mine = *options;
    const struct generate_hooks hooks = hooks_of(round);
    round->first = mine.first = begin + (size_t)comm_rank(comm);
    mine.stride = ranks;
    round->told.bytes = 0;
    for (size_t p = round->first; p < end; p += ranks)
        round->list[count++] = prompts[p];
    enum err rc = generate_run(round->engine->generate, &mine, round->list,
                               count, &hooks);
    TRY(lend(round->engine, rc));
    TRY(bring(round));
    if (comm_rank(comm) == 0)
        rc = deliver(round, begin, end - begin);
    return comm_agree(comm, rc);
}

enum err generate_ranks_run(struct generate_engine *engine,
                            const struct generate_options *options,
                            const struct generate_prompt *prompts, size_t count,
                            const struct generate_hooks *hooks)
{
    struct round round = { .engine = engine, .hooks = hooks };
    if (!generate_ranks_several(engine))
        return generate_run(engine->generate, options, prompts, count, hooks);
    size_t own = ROUND * (size_t)engine->ranks.options.sequences;
    size_t most = own * (size_t)comm_size(engine->comm);
    enum err rc = comm_agree(engine->comm, new_room(&round.list, own));
    for (size_t begin = 0; rc == ERR_OK && begin < count; begin += most)
        rc = run_round(&round, options, prompts, begin,
                       count - begin < most ? count : begin + most);
    free(round.list);
    buffer_free(&round.told);
    return rc;
}
