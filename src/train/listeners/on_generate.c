/* Listener: what the model writes behind the prompts of generate.prompts, every
 * generate.interval and after the last step.
 *
 * Rank 0 logs it and appends it to RUN/samples.jsonl: attempt, step, number,
 * prompt, text, tokens, end (src/infer/generate.h). All ranks compute the same
 * on the weights as the run has them spread, so the text depends on neither
 * ranks nor strategy, and nothing of the training on the text. A stop signal
 * ends it; steps that another attempt does again are sampled again. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/jsontext.h"
#include "src/base/lines.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/base/new.h"
#include "src/data/set/dataset.h"
#include "src/data/texts/inputs.h"
#include "src/infer/generate.h"
#include "src/job/stop.h"
#include "src/text/tokenizer/tokenizer.h"
#include "src/text/unicode.h"
#include "src/train/run/run.h"
#include "src/train/start/start_weights.h"

#define SAMPLES_FILE "samples.jsonl"
#define SEQUENCES 4 /* prompts at a time */
#define ROWS 64     /* tokens of them that are read at a time */
#define PROMPTS_MAX 1024

struct prompts {
    struct generate_prompt *list; /* [count] lent from tokens */
    size_t count, tokens_max;     /* of the longest */
    struct token_list tokens;
    int32_t eos; /* -1: none */
    /* On rank 0; others have one that never gives text. */
    struct tokenizer *tokenizer;
    struct buffer texts[PROMPTS_MAX]; /* rank 0's */
};

struct on_generate {
    struct run *run;
    struct prompts prompts;
    struct infer *infer; /* NULL: there are no prompts */
    struct generate *generate;
    double since;           /* rank 0's clock when the interval began */
    int64_t last_step;      /* sampled last, in this attempt; -1: never */
    bool stepped;           /* this attempt has done a step */
    struct err_kept failed; /* rank 0's, of writing */
};

/* --- the prompts: rank 0 reads and encodes them, by the tokenizer of the data --- */

/* What rank 0 has read, and what all get of it. */
struct prompts_read {
    const struct run *run;
    struct prompts *prompts;
    struct tokenizer_encoder *encoder;
    uint64_t count;
    uint64_t first[PROMPTS_MAX + 1]; /* where each begins */
};

static enum err prompts_take(void *arg, const char *text, size_t bytes)
{
    struct prompts_read *read = arg;
    struct prompts *prompts = read->prompts;
    assert(read->run->rank == 0 && read->count <= PROMPTS_MAX);
    int64_t room = read->run->settings.model.max_seq_len;
    if (read->count == PROMPTS_MAX)
        return err_set(ERR_USAGE, "a run continues at most %d", PROMPTS_MAX);
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
    struct prompts *prompts = read->prompts;
    const struct dataset *data = read->run->inputs.train_data[0];
    TRY(tokenizer_create(start_weights_data(data).tokenizer,
                         &prompts->tokenizer));
    if (strcmp(tokenizer_sha256(prompts->tokenizer),
               dataset_sidecar(data)->tokenizer_sha256) != 0)
        return err_set(ERR_USAGE,
                       "the data set %s does not have the tokenizer that it "
                       "was made with ('%s'), which prompts need: adopt it "
                       "with --tokenizer",
                       dataset_path(data), dataset_sidecar(data)->tokenizer);
    TRY(tokenizer_encoder_create(prompts->tokenizer, &read->encoder));
    TRY_OUT(prompt_file_read(read->run->settings.generate.prompts, prompts_take,
                             read));
    read->first[read->count] = prompts->tokens.count;
    uint64_t lost = tokenizer_encoder_lost(read->encoder);
    if (lost > 0)
        log_warn("%s: %" PRIu64 " bytes are left out, the tokenizer has no "
                 "tokens for them",
                 read->run->settings.generate.prompts, lost);
    prompts->eos = (int32_t)dataset_sidecar(data)->eos_token;
    if (prompts->eos < 0)
        prompts->eos = tokenizer_eos(prompts->tokenizer);
out:
    tokenizer_encoder_destroy(read->encoder);
    return rc;
}

static enum err prompts_list(struct prompts *prompts,
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

/* The same tokens on all ranks. ERR_USAGE: a prompt has no room for an answer
 * within model.max_seq_len. Collective. */
static enum err prompts_share(const struct run *run, struct prompts *prompts)
{
    enum err rc = ERR_OK;
    struct comm *comm = run->comm;
    struct prompts_read *read = NULL;
    rc = new_zeroed(&read, 1);
    if (rc == ERR_OK)
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

/* --- the listener's parts --- */

static enum err on_generate_create(void *self, struct run *run)
{
    struct on_generate *on = self;
    on->run = run;
    on->last_step = -1;
    if (run->settings.generate.prompts[0] != '\0' &&
        strcmp(run->engine.kernels->backend, "cpu") != 0)
        return err_set(ERR_UNSUPPORTED,
                       "generate.prompts works with hardware.backend=cpu "
                       "only: leave it out, and give checkpoints to "
                       "tessera-generate");
    /* read later, with the tokenizer of the data; the run is not to wait for
     * its weights to hear that there is nothing */
    return run->settings.generate.prompts[0] != '\0' && run->rank == 0
               ? err_prefix(prompt_file_check(run->settings.generate.prompts),
                            "generate.prompts")
               : ERR_OK;
}

static void on_generate_destroy(void *self)
{
    struct on_generate *on = self;
    generate_destroy(on->generate);
    infer_destroy(on->infer);
    free(on->prompts.list);
    free(on->prompts.tokens.token);
    tokenizer_destroy(on->prompts.tokenizer);
    for (size_t p = 0; p < PROMPTS_MAX; p++)
        buffer_free(&on->prompts.texts[p]);
}

static enum err generate_room(struct on_generate *on)
{
    struct run *run = on->run;
    const struct model_config *config = &run->settings.model;
    int64_t vocab = dataset_sidecar(run->inputs.train_data[0])->vocab_size;
    int64_t longest =
        (int64_t)on->prompts.tokens_max + run->settings.generate.max_tokens;
    size_t cache, held, total, available = memory_available("");
    char text[2][32];
    const struct infer_options options = {
        .threads = run->engine.threads,
        .sequences = on->prompts.count < SEQUENCES ? (int64_t)on->prompts.count
                                                   : SEQUENCES,
        .positions =
            longest < config->max_seq_len ? longest : config->max_seq_len,
        .rows = ROWS,
        .dtype = DTYPE_F32,
        .stream = run->engine.stream,
        .lora_alpha = run->settings.lora.alpha,
        .experts = replica_experts(run->engine.replica),
    };
    TRY(infer_plan(config, run->engine.params, run->engine.kernels, &options,
                   INFER_F32, &cache, &held, &total));
    units_bytes((double)(total - held), text[0], sizeof text[0]);
    units_bytes((double)available, text[1], sizeof text[1]);
    if (total - held > available)
        return err_set(ERR_MEMORY,
                       "generate.prompts needs %s of memory, and %s are left: "
                       "leave it out, or use shorter prompts",
                       text[0], text[1]);
    if (run->rank == 0)
        log_info("samples of %zu prompts take %s of memory", on->prompts.count,
                 text[0]);
    TRY(infer_create(config, run->engine.params, run->engine.kernels, &options,
                     &on->infer));
    const struct generate_model model = {
        .infer = on->infer,
        .access = replica_access(run->engine.replica),
        .sequences = options.sequences,
        .positions = options.positions,
        .rows = options.rows,
        .vocab_size = config->vocab_size,
        .vocab = vocab < config->vocab_size ? vocab : config->vocab_size,
        .tokenizer = on->prompts.tokenizer,
    };
    return generate_create(&model, &on->generate);
}

/* --- hooks, on all ranks together --- */

static enum err before(void *arg, bool *stop)
{
    const struct on_generate *on = arg;
    int64_t stops = stop_requested() != 0;
    TRY(comm_all_reduce_i64(on->run->comm, &stops, 1, COMM_MAX));
    *stop = stops != 0;
    if (!*stop)
        replica_begin_eval(on->run->engine.replica);
    return ERR_OK;
}

/* With zero3 the others need this rank's part also when it has failed; where
 * ranks share experts they wait for it, and the run ends. */
static enum err after(void *arg, enum err rc)
{
    const struct on_generate *on = arg;
    struct err_kept kept;
    bool experts = replica_experts(on->run->engine.replica) != NULL;
    on->run->engine.adrift |=
        experts && rc != ERR_OK && rc != ERR_NUMERIC && rc != ERR_COMM;
    if (rc == ERR_COMM || on->run->engine.adrift)
        return rc;
    err_keep(&kept, rc);
    rc = replica_end_eval(on->run->engine.replica);
    if (rc == ERR_COMM)
        return rc;
    return comm_agree(on->run->comm,
                      kept.code != ERR_OK ? err_again(&kept) : rc);
}

static enum err write_sample(const struct on_generate *on, size_t prompt,
                             const struct generate_result *result, json_t *said)
{
    enum err rc = ERR_OK;
    const struct run *run = on->run;
    const struct buffer *asked = &on->prompts.texts[prompt];
    char path[FSIO_PATH_MAX], name[32];
    char *line = NULL;
    struct buffer text = { 0 };
    int fd = -1;
    json_t *json = json_pack(
        "{si sI sI so* sO? sI ss}", "attempt", run->attempt, "step",
        (json_int_t)run->position.step, "number", (json_int_t)prompt, "prompt",
        unicode_json(asked->data, asked->bytes), "text", said, "tokens",
        (json_int_t)result->count, "end", generate_end_names[result->end]);
    TRY_OUT(jsontext_make(json, 0, &line));
    TRY_OUT(lines_open(run->settings.run.dir, SAMPLES_FILE, path, &fd));
    TRY_OUT(lines_append(fd, path, line));
    snprintf(name, sizeof name, "samples/%zu", prompt);
    TRY_OUT(buffer_add(&text,
                       json_string_value(json_object_get(json, "prompt")),
                       json_string_length(json_object_get(json, "prompt"))));
    TRY_OUT(
        buffer_add(&text, json_string_value(said), json_string_length(said)));
    tracking_list_text(run->now.record.scalars, name, (const char *)text.data,
                       text.bytes);
out:
    buffer_free(&text);
    fsio_close(fd);
    free(line);
    json_decref(json);
    return rc;
}

/* Rank 0 alone may fail, which all hear of when they have come to the end. */
static enum err show(void *arg, size_t prompt,
                     const struct generate_result *result)
{
    struct on_generate *on = arg;
    if (on->run->rank != 0 || result->end == GENERATE_INTERRUPTED)
        return ERR_OK;
    json_t *said = unicode_json((const uint8_t *)result->text, result->bytes);
    char *text = said != NULL ? json_dumps(said, JSON_ENCODE_ANY) : NULL;
    if (text != NULL)
        log_info("step %" PRId64 " sample %zu %s", on->run->position.step,
                 prompt, text);
    if (on->failed.code == ERR_OK)
        err_keep(&on->failed, write_sample(on, prompt, result, said));
    free(text);
    json_decref(said);
    return ERR_OK;
}

static enum err generate_now(struct on_generate *on)
{
    const struct train_settings *s = &on->run->settings;
    struct generate_options options = {
        .sample = sample_options_default,
        .max_tokens = s->generate.max_tokens,
        .eos = &on->prompts.eos,
        .eos_count = on->prompts.eos >= 0,
    };
    const struct generate_hooks hooks = {
        .arg = on, .before = before, .after = after, .result = show
    };
    options.sample.greedy = s->generate.temperature == 0;
    if (!options.sample.greedy)
        options.sample.temperature = s->generate.temperature;
    options.sample.seed = (uint64_t)s->train.seed;
    assert(on->last_step < on->run->position.step);
    on->last_step = on->run->position.step;
    enum err rc = generate_run(on->generate, &options, on->prompts.list,
                               on->prompts.count, &hooks);
    /* the same on all ranks, and the training's own affair */
    if (rc == ERR_NUMERIC && on->run->rank == 0)
        log_warn("no samples at step %" PRId64 ": %s", on->run->position.step,
                 err_text());
    if (rc != ERR_OK && rc != ERR_NUMERIC)
        return rc;
    return comm_agree(on->run->comm, err_again(&on->failed));
}

static enum err generate_step(struct on_generate *on,
                              const struct step_record *step, bool last)
{
    const struct run *run = on->run;
    if (on->last_step == step->step || step->stop_signal != 0 || !on->stepped)
        return ERR_OK;
    if (last ? !step->finished
             : step->agreed[ASK_GENERATE] == 0 &&
                   !run_due(run, run->settings.generate.interval))
        return ERR_OK;
    TRY(run_swap(run));
    TRY(generate_now(on));
    return run_swap(run);
}

static enum err on_generate_handle(void *self, enum event event,
                                   const struct step_record *step,
                                   struct asks *asks)
{
    struct on_generate *on = self;
    struct run *run = on->run;
    if (run->settings.generate.prompts[0] == '\0')
        return ERR_OK;
    switch (event) {
    case EVENT_FIT_START:
        on->since = clock_now();
        TRY(prompts_share(run, &on->prompts));
        return comm_agree(run->comm, generate_room(on));
    case EVENT_BATCH_ASK:
        if (step->rank == 0)
            events_ask(asks, ASK_GENERATE,
                       step_record_seconds_due(run->settings.generate.interval,
                                               &on->since));
        return ERR_OK;
    case EVENT_BATCH_END:
        on->stepped = true;
        return generate_step(on, step, false);
    default:
        return generate_step(on, step, true);
    }
}

const struct listener_ops on_generate_ops = {
    LISTENER_OF(struct on_generate), .create_together = on_generate_create,
    .destroy = on_generate_destroy, .handle = on_generate_handle
};
