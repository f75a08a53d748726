/* What is wrong with a model is said, all of it: another shape, names that are
 * not there or too many, damage, a path without a model. */
#include <fcntl.h>
#include <sys/stat.h>

#include "src/base/log.h"
#include "src/formats/weights.h"
#include "tests/weights_fixture.h"

struct place {
    struct comm *comm;
    char dir[FSIO_PATH_MAX], run[FSIO_PATH_MAX], step[FSIO_PATH_MAX];
    struct model_config config;
    struct params *params;
};

static const struct replica_options zero1 = { .strategy = REPLICA_ZERO1,
                                              .slots = 1,
                                              .leaves = 1 };

static enum err prepare(struct place *place)
{
    if (fsio_path(place->dir, "%s", tap_folder()) != ERR_OK)
        return err_errno("a folder");
    TRY(comm_create("self", NULL, NULL, 60.0, &place->comm));
    TRY(fsio_path(place->run, "%s/run", place->dir));
    TRY(ckpt_index_path(place->step, place->run, FIXTURE_STEP));
    TRY(weights_fixture_config("mpt-tiny", &place->config));
    place->config.positions = POSITIONS_LEARNED;
    TRY(params_create(&place->config, &place->params));
    return weights_fixture_save(place->comm, &place->config, &zero1, NULL,
                                place->run, FIXTURE_STEP);
}

/* --- another shape --- */

static void test_match(struct place *place)
{
    struct weights *weights = NULL;
    struct params *params = NULL;
    struct model_config other = place->config;
    other.ffn_width = 256;
    other.n_layers = 3;
    other.max_seq_len = 64;
    is_ok(weights_open(place->run, &weights), "a run directory");
    is_ok(params_create(&other, &params), "another shape");
    is_ok(weights_match(weights, place->params, NULL, ""), "its own matches");
    enum err rc = weights_match(weights, params, NULL, "");
    fails(rc, ERR_DATA,
          "transformer.wpe.weight is [32, 64] there, [64, 64] in the model",
          "both shapes are said");
    fails(rc, ERR_DATA, "transformer.blocks.0.ffn.up_proj.weight",
          "and those of the next one");
    fails(weights_match(weights, params, "*wpe* *.ffn.* *.blocks.2.*", ""),
          ERR_OK, "", "but for what is ignored");
    rc = weights_match(weights, params, "*wpe* *.ffn.*", "");
    fails(rc, ERR_DATA, "is [64] in the model and not there", "more layers");
    params_destroy(params);
    params = NULL;
    other = place->config;
    other.n_layers = 1;
    is_ok(params_create(&other, &params), "fewer layers");
    fails(weights_match(weights, params, NULL, ""), ERR_DATA,
          "is [64] there and not in the model", "too many are said, too");
    is_ok(weights_match(weights, params, "*.blocks.1.*", ""), "or ignored");
    tap_ok(!weights_ignored(NULL, "a"), "nothing is where there is no list");
    params_destroy(params);
    weights_close(weights);
}

/* --- rows that the source lacks, parameters that stay --- */

static void test_fill(struct place *place)
{
    struct weights *weights = NULL;
    struct params *params = NULL;
    struct model_config other = place->config;
    bool same = true, zero = true, kept = true;
    other.vocab_size = 320;
    is_ok(weights_open(place->step, &weights), "a checkpoint");
    is_ok(params_create(&other, &params), "a padded vocabulary");
    is_ok(weights_match(weights, params, NULL, ""), "it matches");
    const struct param *wte = &params->list[0];
    int64_t d = wte->shape[1];
    float *values = malloc((size_t)params->elements * sizeof *values);
    for (int64_t i = 0; i < params->elements; i++)
        values[i] = 0.25f;
    is_ok(weights_fill(weights, params, "*.norm_f.* *wpe*", 0, params->elements,
                       values),
          "filled");
    same =
        weights_fixture_same(place->params, 0, 300 * d, values + wte->offset);
    for (int64_t i = 300 * d; i < 320 * d; i++)
        zero = zero && values[wte->offset + i] == 0.0f;
    tap_ok(same, "its rows");
    tap_ok(zero, "the others are 0");
    for (int p = 0; p < params->count; p++) {
        const struct param *param = &params->list[p];
        for (int64_t i = 0; i < param->numel; i++)
            kept = kept && (values[param->offset + i] == 0.25f) ==
                               weights_ignored("*.norm_f.* *wpe*", param->name);
    }
    tap_ok(kept, "what is ignored stays as it was, nothing else");
    other.vocab_size = 299;
    params_destroy(params);
    params = NULL;
    is_ok(params_create(&other, &params), "a smaller vocabulary");
    fails(weights_match(weights, params, NULL, ""), ERR_DATA,
          "transformer.wte.weight is [300, 64] there, [299, 64] in the model",
          "is none for these weights");
    fails(weights_read(weights, &params->list[0], 0, 64, values), ERR_DATA,
          "[299, 64]", "nor can they be read");
    free(values);
    params_destroy(params);
    weights_close(weights);
}

/* --- damage --- */

static bool flip(const char *path, int64_t offset)
{
    unsigned char byte = 0;
    int fd = open(path, O_RDWR);
    bool pass = fd >= 0 && pread(fd, &byte, 1, offset) == 1;
    byte ^= 0x10;
    pass = pass && pwrite(fd, &byte, 1, offset) == 1;
    if (fd >= 0)
        close(fd);
    return pass;
}

static void test_damage(struct place *place)
{
    struct weights *weights = NULL;
    struct stat status = { 0 };
    char newer[FSIO_PATH_MAX], file[FSIO_PATH_MAX];
    size_t elements = (size_t)place->params->elements;
    float *values = malloc(elements * sizeof *values);
    is_ok(weights_fixture_save(place->comm, &place->config, &zero1, NULL,
                               place->run, 9),
          "a newer step");
    is_ok(ckpt_index_path(newer, place->run, 9), "its path");
    is_ok(fsio_path(file, "%s/shard-00000-of-00001.h5", newer), "its shard");
    tap_ok(stat(file, &status) == 0 && flip(file, status.st_size / 6),
           "one bit of it flips");
    is_ok(weights_open(place->run, &weights), "opened");
    tap_is_int(weights_about(weights)->step, 9, "the newest");
    fails(weights_fill(weights, place->params, NULL, 0, place->params->elements,
                       values),
          ERR_CHECKPOINT, "shard-00000-of-00001.h5", "read: names the shard");
    weights_close(weights);
    weights = NULL;
    tap_ok(truncate(file, status.st_size / 2) == 0, "it is cut off");
    is_ok(weights_open(place->run, &weights), "the run still has a good one");
    tap_is_int(weights_about(weights)->step, FIXTURE_STEP, "the older");
    weights_close(weights);
    weights = NULL;
    fails(weights_open(newer, &weights), ERR_CHECKPOINT, "shard-00000",
          "the checkpoint itself is refused");
    is_ok(fsio_path(file, "%s/MANIFEST.json", place->step), "manifest");
    tap_ok(flip(file, 100), "one bit of the older one's manifest");
    fails(weights_open(place->run, &weights), ERR_CHECKPOINT,
          "no good checkpoint", "none is left");
    free(values);
}

/* --- no model --- */

static void test_none(struct place *place)
{
    struct weights *weights = NULL;
    char path[FSIO_PATH_MAX];
    is_ok(fsio_path(path, "%s/nothing", place->dir), "a path");
    fails(weights_open(path, &weights), ERR_USAGE, "no such file", "missing");
    fails(weights_open(place->dir, &weights), ERR_USAGE, "MANIFEST.json",
          "a folder of something else: says what a model is");
    is_ok(fsio_path(path, "%s/empty/checkpoints", place->dir), "a path");
    is_ok(fsio_mkdirs(path), "a run without checkpoints");
    is_ok(fsio_path(path, "%s/empty", place->dir), "its path");
    fails(weights_open(path, &weights), ERR_CHECKPOINT, "no checkpoint",
          "is none");
}

/* What other programs than tessera-train may have saved: other types, another
 * state. */
static void test_foreign(struct place *place)
{
    static uint16_t half[] = { 0x3f80, 0xbf00, 0x7f80, 0x0001 };
    static double twice[] = { 1.0, -0.5, 3.0, 1e-3 };
    struct ckpt_item items[] = {
        { .name = "transformer.norm_f.weight",
          .dtype = DTYPE_BF16,
          .dims = 1,
          .shape = { 4 },
          .part = { .end = 4 },
          .data = half },
        { .name = "transformer.norm_f.bias",
          .dtype = DTYPE_F64,
          .dims = 1,
          .shape = { 4 },
          .part = { .end = 4 },
          .data = twice },
    };
    struct ckpt_options options = { .attempt = "1.1", .timeout_s = 60.0 };
    struct weights *weights = NULL;
    struct param param = { .dims = 1, .shape = { 4 }, .numel = 4 };
    char run[FSIO_PATH_MAX];
    float values[4] = { 0 };
    struct tokenizer *bytes = NULL;
    is_ok(tokenizer_create("bytes", &bytes), "bytes");
    json_t *state =
        weights_fixture_state(&place->config, tokenizer_sha256(bytes));
    json_object_del(state, "text");
    is_ok(fsio_path(run, "%s/foreign", place->dir), "a path");
    is_ok(ckpt_save(place->comm, run, 1, state, items, 2, &options, NULL),
          "saved in two types");
    is_ok(weights_open(run, &weights), "opened");
    const struct weights_about *about = weights_about(weights);
    tap_is_str(about->dtype, "mixed", "its types");
    tap_is_str(about->builtin_tokenizer, "bytes", "its tokenizer");
    tap_ok(about->eos == 256 && about->vocab == 257 && about->bos == -1 &&
               about->chat_template == NULL,
           "what is known of its tokens");
    snprintf(param.name, sizeof param.name, "transformer.norm_f.weight");
    is_ok(weights_read(weights, &param, 1, 4, values), "bf16");
    uint32_t bits;
    memcpy(&bits, &values[2], sizeof bits);
    tap_ok(values[0] == -0.5f && values[1] > 3e38f && bits == 0x00010000,
           "exactly");
    snprintf(param.name, sizeof param.name, "transformer.norm_f.bias");
    is_ok(weights_read(weights, &param, 0, 4, values), "f64");
    tap_ok(values[2] == 3.0f && values[3] == (float)1e-3, "rounded");
    weights_close(weights);
    weights = NULL;
    json_object_del(state, "fixed");
    is_ok(ckpt_save(place->comm, run, 2, state, items, 2, &options, NULL),
          "saved without a model");
    fails(weights_open(run, &weights), ERR_CHECKPOINT, "what model it is",
          "is refused");
    json_decref(state);
    tokenizer_destroy(bytes);
}

int main(void)
{
    struct place place = { 0 };
    log_init("test", -1, LOG_ERROR);
    enum err rc = prepare(&place);
    is_ok(rc, "a run with a checkpoint");
    if (rc == ERR_OK) {
        test_match(&place);
        test_fill(&place);
        test_none(&place);
        test_foreign(&place);
        test_damage(&place);
    }
    params_destroy(place.params);
    comm_destroy(place.comm);
    return tap_done();
}
