/* A model put together of what trained and a base: the values of both, a base
 * with other values, and what a state must not say of its base. */
#include "src/formats/weights_tuned.h"

#include "src/base/log.h"
#include "src/formats/weights_sums.h"
#include "tests/quotes.h"
#include "tests/weights_fixture.h"

#define RANK 4
#define INTERVALS 60
#define OWN_VALUE 0.25f
#define QUOTE(...) #__VA_ARGS__

struct place {
    struct comm *comm;
    char dir[FSIO_PATH_MAX], run[FSIO_PATH_MAX], step[FSIO_PATH_MAX];
    char sha256[65]; /* of the checkpoint there */
    struct model_config config;
    struct params *params;
    json_t *sums; /* of the fixture's weights */
    struct weights_tensor list[3];
};

static const struct replica_options zero1 = { .strategy = REPLICA_ZERO1,
                                              .slots = 1,
                                              .leaves = 1 };

/* --- what has trained --- */

static enum err read_own(void *arg, int index, int64_t begin, int64_t end,
                         float *out)
{
    (void)arg, (void)index;
    for (int64_t i = begin; i < end; i++)
        out[i - begin] = OWN_VALUE;
    return ERR_OK;
}

static struct weights_tensor tensor(const char *name, int dims, int64_t rows,
                                    int64_t cols)
{
    struct weights_tensor made = { .dims = dims, .shape = { rows, cols } };
    snprintf(made.name, sizeof made.name, "%s", name);
    return made;
}

/* The state takes the base. */
static enum err open_with(const struct place *place, int count, json_t *base,
                          struct weights_tuned **out)
{
    struct weights_tuned_own own = { .list = place->list,
                                     .count = count,
                                     .read = read_own };
    json_t *state = json_pack("{s:o}", "base", base);
    enum err rc =
        weights_tuned_open(state, place->step, &place->config, &own, out);
    json_decref(state);
    return rc;
}

static json_t *base_at(const struct place *place)
{
    return json_pack("{s:s, s:s, s:i, s:O}", "path", place->step, "sha256",
                     place->sha256, "seed", 1, "crc32c", place->sums);
}

static json_t *base_of_seed(const struct place *place, int seed)
{
    return json_pack("{s:i, s:O}", "seed", seed, "crc32c", place->sums);
}

static enum err prepare(struct place *place)
{
    struct weights *weights = NULL;
    struct weights_sums *sums = NULL;
    if (fsio_path(place->dir, "%s", tap_folder()) != ERR_OK)
        return err_errno("a folder");
    TRY(comm_create("self", NULL, NULL, 60.0, &place->comm));
    TRY(fsio_path(place->run, "%s/run", place->dir));
    TRY(ckpt_index_path(place->step, place->run, FIXTURE_STEP));
    TRY(weights_fixture_config("llama-tiny", &place->config));
    place->config.vocab_size = 20000; /* several blocks of checksums */
    TRY(params_create(&place->config, &place->params));
    TRY(weights_fixture_save(place->comm, &place->config, &zero1, NULL,
                             place->run, FIXTURE_STEP));
    TRY(weights_open(place->step, &weights));
    snprintf(place->sha256, sizeof place->sha256, "%s",
             weights_about(weights)->sha256);
    weights_close(weights);
    int64_t elements = place->params->elements;
    float *values = malloc((size_t)elements * sizeof *values);
    if (values == NULL)
        return ERR_MEMORY;
    params_init(place->params, FIXTURE_SEED, 0, elements, values);
    TRY(weights_sums_create(place->params, &sums));
    weights_sums_add(sums, 0, elements, values);
    place->sums = weights_sums_json(sums);
    weights_sums_destroy(sums);
    free(values);
    int64_t d = place->config.d_model;
    place->list[0] = tensor("transformer.norm_f.weight", 1, d, 0);
    place->list[1] =
        tensor("transformer.blocks.1.attn.q_proj.lora_A.weight", 2, RANK, d);
    place->list[2] =
        tensor("transformer.blocks.1.attn.q_proj.lora_B.weight", 2, d, RANK);
    return ERR_OK;
}

static int find(const struct place *place, const char *name)
{
    int i = 0;
    while (strcmp(place->params->list[i].name, name) != 0)
        i++;
    return i;
}

/* --- values --- */

/* Random intervals, backwards and forwards across blocks. */
static void test_values(struct place *place, json_t *base, const char *what)
{
    struct weights_tuned *tuned = NULL;
    enum err rc = open_with(place, 1, base, &tuned);
    int wrong = 0;
    float *values = malloc((size_t)place->params->elements * sizeof *values);
    for (uint64_t i = 0; i < INTERVALS && rc == ERR_OK; i++) {
        int p = i < 10
                    ? 0
                    : (int)(rng_u64(1, 0, i) % (uint64_t)place->params->count);
        const struct param *param = &place->params->list[p];
        int64_t begin = (int64_t)(rng_u64(1, 1, i) % (uint64_t)param->numel);
        int64_t end =
            begin + 1 +
            (int64_t)(rng_u64(1, 2, i) % (uint64_t)(param->numel - begin));
        rc = weights_tuned_read(tuned, p, begin, end, values);
        if (strcmp(param->name, place->list[0].name) == 0)
            wrong += values[0] != OWN_VALUE;
        else
            wrong += !weights_fixture_same(place->params, param->offset + begin,
                                           param->offset + end, values);
    }
    is_ok(rc, what);
    tap_is_int(wrong, 0, "%s: its values", what);
    free(values);
    weights_tuned_close(tuned);
}

/* What reading a tensor says, opened anew. */
static void test_read(struct place *place, json_t *base, const char *name,
                      enum err want, const char *part, const char *what)
{
    float value = 0.0f;
    struct weights_tuned *tuned = NULL;
    enum err rc = open_with(place, 1, base, &tuned);
    is_ok(rc, "opened");
    if (rc == ERR_OK)
        rc = weights_tuned_read(tuned, find(place, name), 7, 8, &value);
    if (want == ERR_OK)
        is_ok(rc, what);
    else
        fails(rc, want, part, what);
    weights_tuned_close(tuned);
}

/* The last sum of the embedding, another. */
static json_t *other_sum(const struct place *place)
{
    json_t *base = base_at(place);
    json_t *sums = json_deep_copy(place->sums);
    json_t *list = json_object_get(sums, "transformer.wte.weight");
    size_t last = json_array_size(list) - 1;
    json_int_t sum = json_integer_value(json_array_get(list, last));
    json_array_set_new(list, last, json_integer(sum ^ 1));
    json_object_set_new(base, "crc32c", sums);
    return base;
}

static void test_sums(struct place *place)
{
    static const char wte[] = "transformer.wte.weight";
    const struct param *param = &place->params->list[find(place, wte)];
    struct weights_tuned *tuned = NULL;
    float value = 0.0f;
    test_values(place, base_at(place), "a base");
    test_values(place, base_of_seed(place, FIXTURE_SEED), "fresh weights");
    json_t *old = base_at(place);
    json_object_del(old, "crc32c");
    test_values(place, old, "a base without checksums");
    test_read(place, base_of_seed(place, 5), wte, ERR_CHECKPOINT, wte,
              "other fresh values: names the tensor");
    test_read(place, base_of_seed(place, 5), place->list[0].name, ERR_OK, "",
              "what has trained is not asked for");
    test_read(place, other_sum(place), wte, ERR_OK, "",
              "another value: the first block is good");
    is_ok(open_with(place, 1, other_sum(place), &tuned), "opened");
    fails(weights_tuned_read(tuned, find(place, wte), param->numel - 1,
                             param->numel, &value),
          ERR_CHECKPOINT, place->step, "the last one is not");
    weights_tuned_close(tuned);
}

/* --- what a state may say --- */

#define SHA                                                                    \
    QUOTE(0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef)

/* With one tensor that trained, or three, of which two are an adapter. */
static const struct {
    const char *json, *part;
    int own;
} hostile[] = {
    { "{}", "does not say what the rest is", 1 },
    { "{'seed': '17'}", "base.seed", 1 },
    { "{'seed': 1.5}", "base.seed", 1 },
    { "{'seed': null}", "base.seed", 1 },
    { "{'path': 5, 'seed': 17}", "base.path", 1 },
    { "{'path': null, 'seed': 17}", "base.path", 1 },
    { "{'path': '', 'seed': 17}", "base.path", 1 },
    { "{'path': {}, 'seed': 17}", "base.path", 1 },
    { "{'path': '/nowhere'}", "base.sha256", 1 },
    { "{'path': '/nowhere', 'sha256': 5}", "base.sha256", 1 },
    { "{'path': '/nowhere', 'sha256': 'abc'}", "base.sha256", 1 },
    { "{'path': '/nowhere', 'sha256': '" SHA "'}", "a link to it, there", 1 },
    { "{'path': '/dev/null', 'sha256': '" SHA "'}", "/dev/null", 1 },
    { "{'seed': 17, 'from_run': []}", "base.from_run", 1 },
    { "{'seed': 17, 'ignore': 5}", "base.ignore", 1 },
    { "{'seed': 17, 'crc32c': 5}", "base.crc32c", 1 },
    { "{'seed': 17, 'crc32c': {'transformer.wte.weight': [1]}}",
      "transformer.wte.weight", 1 },
    { "{'seed': 17}", "does not say of which rank", 3 },
    { "{'seed': 17, 'lora': 5}", "base.lora", 3 },
    { "{'seed': 17, 'lora': {}}", "base.lora.rank", 3 },
    { "{'seed': 17, 'lora': {'rank': 4.0, 'alpha': 8}}", "base.lora.rank", 3 },
    { "{'seed': 17, 'lora': {'rank': '4', 'alpha': 8}}", "base.lora.rank", 3 },
    { "{'seed': 17, 'lora': {'rank': -4, 'alpha': 8}}", "base.lora.rank", 3 },
    { "{'seed': 17, 'lora': {'rank': 9223372036854775807, 'alpha': 8}}",
      "base.lora.rank", 3 },
    { "{'seed': 17, 'lora': {'rank': 65536, 'alpha': 8}}",
      "not of the type and shape", 3 },
    { "{'seed': 17, 'lora': {'rank': 5, 'alpha': 8}}",
      "not of the type and shape", 3 },
    { "{'seed': 17, 'lora': {'rank': 4, 'alpha': 0}}", "base.lora.alpha", 3 },
    { "{'seed': 17, 'lora': {'rank': 4, 'alpha': 1e300}}", "base.lora.alpha",
      3 },
    { "{'seed': 17, 'lora': {'rank': 4, 'alpha': '8'}}", "base.lora.alpha", 3 },
    { "{'seed': 17, 'lora': {'rank': 4, 'alpha': 8, 'dropout': 1}}",
      "base.lora.dropout", 3 },
    { "{'seed': 17, 'lora': {'rank': 4, 'alpha': 8, 'dropout': 'x'}}",
      "base.lora.dropout", 3 },
    { "{'seed': 17, 'lora': {'rank': 4, 'alpha': 8, 'targets': 1}}",
      "base.lora.targets", 3 },
    { "{'seed': 17, 'lora': {'rank': 4, 'alpha': 8}}", "it has none", 1 },
};

static void refused(struct place *place, json_t *base, int own,
                    const char *part, const char *what)
{
    struct weights_tuned *tuned = NULL;
    /* a path that is no model is an error of usage everywhere */
    bool usage = strstr(what, SHA) != NULL;
    fails(open_with(place, own, base, &tuned),
          usage ? ERR_USAGE : ERR_CHECKPOINT, part, what);
    tap_ok(tuned == NULL, "and nothing is open");
    weights_tuned_close(tuned);
}

/* Texts that fill memory, and a base that is the checkpoint itself. */
static void test_long(struct place *place)
{
    static const char *const members[] = { "path", "from_run", "sha256",
                                           "ignore" };
    size_t length = (size_t)1 << 20;
    char *text = malloc(length + 1);
    if (text == NULL)
        return;
    memset(text, 'x', length);
    text[length] = '\0';
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        json_t *base = base_at(place);
        json_object_set_new(base, members[i], json_string(text));
        refused(place, base, 1, members[i], members[i]);
    }
    json_t *base = base_of_seed(place, FIXTURE_SEED);
    json_object_set_new(base, "lora",
                        json_pack("{s:i, s:f, s:s}", "rank", RANK, "alpha", 8.0,
                                  "targets", text));
    refused(place, base, 3, "targets", "targets");
    free(text);
}

/* Names and shapes that are not the model's. */
static void test_names(struct place *place)
{
    static const struct {
        const char *name, *part;
        int64_t rows, cols;
    } cases[] = {
        { "transformer.blocks.9.attn.q_proj.lora_A.weight", "has no", RANK,
          64 },
        { "transformer.blocks.1.attn.x_proj.lora_A.weight", "has no", RANK,
          64 },
        { "x.lora_A.weight", "has no", RANK, 64 },
        { ".lora_B.weight", "has no", 64, RANK },
        { "transformer.blocks.1.attn.q_proj.lora_A.weight", "shape", RANK, 65 },
        { "transformer.blocks.1.attn.q_proj.lora_A.weight", "shape", 64, RANK },
        { "transformer.wte.weight", "shape", 20001, 64 },
        { "transformer.wte.weights", "has no", 20000, 64 },
        { "", "has no", 20000, 64 },
    };
    struct weights_tensor kept = place->list[1];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *base = base_of_seed(place, FIXTURE_SEED);
        json_object_set_new(
            base, "lora", json_pack("{s:i, s:f}", "rank", RANK, "alpha", 8.0));
        place->list[1] = tensor(cases[i].name, 2, cases[i].rows, cases[i].cols);
        refused(place, base, 3, cases[i].part, cases[i].name);
    }
    place->list[1] = kept;
    /* one matrix of two: said where it is read */
    struct weights_tuned *tuned = NULL;
    json_t *base = base_of_seed(place, FIXTURE_SEED);
    float value = 0.0f;
    json_object_set_new(base, "lora",
                        json_pack("{s:i, s:f}", "rank", RANK, "alpha", 8.0));
    is_ok(open_with(place, 2, base, &tuned), "A alone");
    fails(weights_tuned_read(
              tuned, find(place, "transformer.blocks.1.attn.Wqkv.weight"), 0, 1,
              &value),
          ERR_CHECKPOINT, "one matrix", "is named");
    weights_tuned_close(tuned);
}

static void test_hostile(struct place *place)
{
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++)
        refused(place, json_loads(quoted(hostile[i].json), 0, NULL),
                hostile[i].own, hostile[i].part, hostile[i].json);
    test_long(place);
    test_names(place);
    /* and what is none of that */
    struct weights_tuned *tuned = NULL;
    json_t *base = base_of_seed(place, FIXTURE_SEED);
    json_object_set_new(base, "lora",
                        json_pack("{s:i, s:i}", "rank", RANK, "alpha", 8));
    is_ok(open_with(place, 3, base, &tuned), "adapters");
    if (tuned != NULL) {
        struct weights_about about;
        weights_tuned_about(tuned, &about);
        const struct weights_lora *lora = about.lora;
        tap_ok(lora != NULL && lora->rank == RANK && lora->alpha == 8.0 &&
                   lora->others == 1 && lora->fresh == place->params->count - 1,
               "what is known of them");
    }
    weights_tuned_close(tuned);
}

/* One that is its own base ends. */
static void test_own_base(struct place *place)
{
    struct weights *weights = NULL;
    char run[FSIO_PATH_MAX], step[FSIO_PATH_MAX];
    static float ones[64];
    struct ckpt_item item = { .name = "transformer.norm_f.weight",
                              .dtype = DTYPE_F32,
                              .dims = 1,
                              .shape = { 64 },
                              .part = { .end = 64 },
                              .data = ones };
    struct ckpt_options options = { .attempt = "1.1", .timeout_s = 60.0 };
    is_ok(fsio_path(run, "%s/own", place->dir), "a path");
    is_ok(ckpt_index_path(step, run, 1), "a path");
    json_t *state = weights_fixture_state(&place->config, "another");
    json_object_set_new(
        state, "base",
        json_pack("{s:s, s:s}", "path", step, "sha256", place->sha256));
    is_ok(ckpt_save(place->comm, run, 1, state, &item, 1, &options, NULL),
          "saved");
    fails(weights_open(run, &weights), ERR_CHECKPOINT, "own",
          "a checkpoint that is its own base is refused");
    json_decref(state);
}

int main(void)
{
    struct place place = { 0 };
    log_init("test", -1, LOG_ERROR);
    enum err rc = prepare(&place);
    is_ok(rc, "a base");
    if (rc == ERR_OK) {
        test_sums(&place);
        test_hostile(&place);
        test_own_base(&place);
    }
    json_decref(place.sums);
    params_destroy(place.params);
    comm_destroy(place.comm);
    return tap_done();
}
