/* Fills a replica with the weights that a run starts from, and keeps what they
 * say of their tokens.
 *
 * Each rank reads what it owns, so a model that no node could hold comes in from
 * one folder. Where the weights leave something out, fresh values are drawn for all
 * first, by seed and name, and written over: so what is left out is as fresh as in
 * a run without weights. Rank 0 finds out which checkpoint or folder it is, as "the
 * newest" may change meanwhile, and the others must find the same digest.
 */
#include "src/train/start/start.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/data/set/dataset.h"
#include "src/job/ledger.h"
#include "src/train/start/start_weights.h"
#include "src/formats/weights_ckpt_config.h"

/* Which checkpoint, folder or file it is, as rank 0 has found it. */
struct found {
    char path[FSIO_PATH_MAX];
    char sha256[65];
};

struct opening {
    const char *path;
    struct weights *weights;
};

static enum err open_it(void *arg)
{
    struct opening *opening = arg;
    return weights_open(opening->path, &opening->weights);
}

/* What lies at an address each node fetches, and who waits hears that it does. */
enum err trainer_weights_open(struct run *run, struct weights **out)
{
    enum err rc = ERR_OK;
    struct start_from from = train_settings_from(&run->settings);
    struct found found = { 0 };
    struct opening opening = { from.path, NULL };
    *out = NULL;
    TRY_OUT(start_alone(run->comm, open_it, &opening));
    if (run->rank == 0) {
        const struct weights_about *about = weights_about(opening.weights);
        snprintf(found.path, sizeof found.path, "%s", about->named);
        snprintf(found.sha256, sizeof found.sha256, "%s", about->sha256);
    }
    TRY_OUT(comm_broadcast(run->comm, &found, sizeof found, 0));
    opening.path = found.path;
    TRY_OUT(start_each(run->comm, run->rank != 0 ? open_it : NULL, &opening));
    if (strcmp(weights_about(opening.weights)->sha256, found.sha256) != 0)
        rc = err_set(ERR_DATA,
                     "%s is not the same on all nodes, or was "
                     "replaced while the run started",
                     found.path);
    TRY_OUT(comm_agree(run->comm, rc));
out:
    rc = new_or_none(rc, opening.weights, out, weights_close);
    return err_prefix(rc, "%s", from.key);
}

/* The model's tensors that have fresh values. */
static json_t *ignored_names(const struct params *params, const char *ignore)
{
    json_t *names = json_array();
    for (; params != NULL; params = params->frozen)
        for (int i = 0; i < params->count; i++)
            if (params->list[i].role >= PARAM_LORA ||
                weights_ignored(ignore, params->list[i].name))
                json_array_append_new(names, json_string(params->list[i].name));
    return names;
}

enum err trainer_weights_record(const struct run *run, struct weights *weights,
                                const char *event)
{
    const struct weights_about *about = weights_about(weights);
    struct start_from from = train_settings_from(&run->settings);
    return ledger_append(
        run->settings.run.dir, event, run->attempt,
        json_pack("{s:s, s:o, s:s, s:s, s:s, s:I, s:I, s:o, s:o}", "setting",
                  from.key, "path", jsontext_string(about->place), "kind",
                  weights_kind_names[about->kind], "dtype", about->dtype,
                  "sha256", about->sha256, "step", (json_int_t)about->step,
                  "tokens", (json_int_t)about->tokens, "ignore",
                  jsontext_string(from.ignore), "fresh",
                  ignored_names(run->engine.params, from.ignore)));
}

/* The whole model, whatever of it trains. */
static enum err check_all(const struct run *run, struct weights *weights)
{
    struct params *whole = NULL;
    TRY(params_create(&run->settings.model, &whole));
    enum err rc = start_weights_check(&run->settings, weights, whole);
    params_destroy(whole);
    return rc;
}

/* Rank 0. */
static enum err check(struct run *run, struct weights *weights)
{
    const struct weights_about *about = weights_about(weights);
    const struct dataset *data = run->inputs.train_data[0];
    int64_t bos = dataset_sidecar(data)->bos_token;
    int64_t eos = dataset_sidecar(data)->eos_token;
    int64_t vocab = dataset_sidecar(data)->vocab_size;
    const struct start_weights_data tokens = start_weights_data(data);
    TRY(check_all(run, weights));
    TRY(start_weights_tokens(&run->settings, about, &tokens));
    json_decref(run->inputs.text);
    run->inputs.text =
        weights_ckpt_config_text(vocab > about->vocab ? vocab : about->vocab,
                                 about->bos >= 0 ? about->bos : bos,
                                 about->eos >= 0 ? about->eos : eos, about);
    return run->inputs.text != NULL ? ERR_OK
                                    : err_set(ERR_MEMORY, "out of memory");
}

enum err trainer_weights_fill(void *arg, const struct params *params,
                              int64_t begin, int64_t end, float *out)
{
    const struct trainer_filling *filling = arg;
    return weights_fill(filling->weights, params, filling->ignore, begin, end,
                        out);
}

enum err trainer_weights_init(struct run *run)
{
    enum err rc = ERR_OK;
    struct start_from from = train_settings_from(&run->settings);
    uint64_t seed = (uint64_t)run->settings.train.seed;
    struct weights *weights = NULL;
    double begin_s = clock_now();
    assert(run->position.step == 0);
    assert(!from.state || from.path[0] == '\0');
    if (from.path[0] == '\0') {
        TRY(replica_init(run->engine.replica, seed, NULL));
        return trainer_base_begin(run, NULL, NULL);
    }
    TRY(trainer_weights_open(run, &weights));
    if (run->rank == 0)
        rc = check(run, weights);
    TRY_OUT(comm_agree(run->comm, rc));
    bool adapters = run->engine.params->lora_rank > 0;
    bool all = from.ignore[0] == '\0';
    char ignore[SETTINGS_TEXT_BYTES + 64];
    struct trainer_filling filling = { weights, ignore };
    struct replica_source source = { trainer_weights_fill, &filling,
                                     all && !adapters };
    snprintf(ignore, sizeof ignore, "%s %s", from.ignore,
             adapters ? TRAINER_BASE_ADAPTERS : "");
    TRY_OUT(replica_init(run->engine.replica, seed, &source));
    source.whole = all;
    TRY_OUT(trainer_base_begin(run, weights, &source));
    if (run->rank == 0) {
        log_info("weights of %s (%s, %s) in %.2fs%s%s",
                 weights_about(weights)->place,
                 weights_kind_names[weights_about(weights)->kind],
                 weights_about(weights)->dtype, clock_now() - begin_s,
                 from.ignore[0] != '\0' ? ", but for " : "", from.ignore);
        rc = trainer_weights_record(run, weights, "weights");
    }
    TRY_OUT(comm_agree(run->comm, rc));
out:
    weights_close(weights);
    return rc;
}

enum err trainer_weights_store(const struct run *run, json_t *state)
{
    const struct dataset *data = run->inputs.train_data[0];
    json_t *text =
        run->inputs.text != NULL
            ? json_incref(run->inputs.text)
            : weights_ckpt_config_text(dataset_sidecar(data)->vocab_size,
                                       dataset_sidecar(data)->bos_token,
                                       dataset_sidecar(data)->eos_token, NULL);
    return run_put(state, "text", text);
}

enum err trainer_weights_restore(struct run *run, const json_t *state)
{
    const json_t *text = json_object_get(state, "text");
    json_decref(run->inputs.text);
    run->inputs.text = json_deep_copy(text);
    return text == NULL || run->inputs.text != NULL
               ? ERR_OK
               : err_set(ERR_MEMORY, "out of memory");
}
