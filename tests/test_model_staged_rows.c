/* Gradients that a leaf adds to those of former leaves in place: the bits are
 * those of a gradient of its own, added afterwards, and which blocks the model
 * asks for. */

#include "tests/model_fixture.h"

#define LEAVES 3

/* What the model is allowed, as ddp and zero1 do: layers always add in place,
 * the first and the last block where the model asks. Otherwise theirs go to
 * `apart`, which is added afterwards. */
struct place {
    struct model_fixture *f;
    float *apart;  /* [params->elements] */
    bool asked[2]; /* for the first, the last block */
};

/* NULL: a layer's. */
static bool *asked_for(struct place *place, int block)
{
    int last = place->f->params->block_count - 1;
    if (block != 0 && block != last)
        return NULL;
    return &place->asked[block == last];
}

static bool place_once(void *arg, int block)
{
    bool *asked = asked_for(arg, block);
    if (asked != NULL)
        *asked = true;
    return asked != NULL;
}

static enum err place_gather(void *arg, int block, const void **weights)
{
    return fixture_gather(((struct place *)arg)->f, block, weights);
}

static enum err place_release(void *arg, int block)
{
    return fixture_release(((struct place *)arg)->f, block);
}

static enum err place_gradient(void *arg, int block, float **gradient)
{
    struct place *place = arg;
    const bool *asked = asked_for(place, block);
    enum err rc = fixture_gradient(place->f, block, gradient);
    if (asked != NULL && !*asked)
        *gradient = place->apart + place->f->params->blocks[block].offset;
    return rc;
}

static enum err place_done(void *arg, int block)
{
    return fixture_done(((struct place *)arg)->f, block);
}

/* Leaf `number` of a slot; they share tokens, and the second has fewer rows. */
static struct leaf leaf_of(const struct model_fixture *f, int number)
{
    struct leaf leaf = f->leaf;
    leaf.samples -= number == 1;
    leaf.tokens += number;
    leaf.labels += number;
    leaf.first_sample += 10 * number;
    return leaf;
}

static void add(const struct model_fixture *f, const float *from, float *to)
{
    for (int64_t i = 0; i < f->params->elements; i++)
        to[i] += from[i];
}

/* Each leaf into a gradient of its own. */
static bool run_apart(struct model_fixture *f, struct model *model,
                      float *total)
{
    struct leaf whole = f->leaf;
    struct leaf_loss loss;
    bool fine = true;
    memset(total, 0, fixture_bytes(f));
    for (int i = 0; i < LEAVES && fine; i++) {
        f->leaf = leaf_of(f, i);
        fine = fixture_train(f, model, &loss);
        f->leaf = whole;
        add(f, f->gradient, total);
    }
    return fine;
}

/* All into f->gradient, the first one as it comes. */
static bool run_in_place(struct place *place, struct model *model)
{
    struct model_fixture *f = place->f;
    struct param_access access = { .arg = place,
                                   .gather = place_gather,
                                   .release = place_release,
                                   .gradient = place_gradient,
                                   .gradient_done = place_done };
    struct leaf_loss loss;
    bool fine = true;
    memset(f->gradient, 0, fixture_bytes(f));
    for (int i = 0; i < LEAVES && fine; i++) {
        struct leaf leaf = leaf_of(f, i);
        access.once = i > 0 ? place_once : NULL;
        memset(place->asked, 0, sizeof place->asked);
        memset(place->apart, 0, fixture_bytes(f));
        memset(f->done, 0, sizeof f->done);
        fine = model_train_leaf(model, &access, &leaf, &loss) == ERR_OK;
        add(f, place->apart, f->gradient);
    }
    return fine;
}

/* Leaves that end in the middle leave nothing to the next slot. */
static bool after_failures(struct place *place, struct model *model,
                           const float *want)
{
    struct model_fixture *f = place->f;
    f->calls = 0;
    bool same = run_in_place(place, model);
    int calls = f->calls;
    for (int at = calls; at > 0 && same; at -= 1 + calls / 9) {
        f->calls = 0;
        f->fail_at = at;
        same = !run_in_place(place, model);
        f->fail_at = 0;
        same = same && run_in_place(place, model) &&
               memcmp(f->gradient, want, fixture_bytes(f)) == 0;
    }
    return same;
}

struct staged_case {
    const char *name;
    struct model_config config;
    int64_t samples, seq_len, room; /* samples that the model has room for */
    bool asks[2];                   /* for the first, the last block */
};

static const struct staged_case cases[] = {
    { "mpt", TUPLE(.bias = true, .tied = true), 3, 7, 3, { true, true } },
    { "mpt, not tied", TUPLE(.bias = true), 3, 7, 5, { true, true } },
    { "mpt with dropout",
      { .tied = true,
        .dropout_embedding = 0.2,
        .dropout_attention = 0.3,
        .dropout_residual = 0.1 },
      3,
      7,
      4,
      TUPLE(true, true) },
    { "llama",
      { .positions = POSITIONS_ROPE,
        .norm = MODEL_NORM_RMSNORM,
        .n_kv_heads = 2,
        .ffn = FFN_GLU,
        .qk_norm = QK_NORM_HEAD,
        .activation = MODEL_SILU },
      3,
      8,
      3,
      TUPLE(true, true) },
    { "llama, tied",
      TUPLE(.positions = POSITIONS_ROPE, .tied = true, .ffn = FFN_GLU), 3, 8, 3,
      TUPLE(true, true) },
    { "experts",
      { .positions = POSITIONS_ROPE,
        .experts = 8,
        .experts_top_k = 2,
        .balance_weight = 0.1,
        .router_jitter = 0.1 },
      2,
      7,
      3,
      TUPLE(true, true) },
    /* the head's product comes in parts of 256 rows */
    { "many rows", TUPLE(.tied = true, .max_seq_len = 90), 4, 90, 4,
      TUPLE(false, true) },
    { "room for many", TUPLE(.tied = true, .max_seq_len = 90), 2, 90, 4,
      TUPLE(false, true) },
    { "many rows, not tied", TUPLE(.bias = true, .max_seq_len = 90), 4, 90, 4,
      TUPLE(true, false) },
};

static void check_case(const struct kernels *kernels,
                       const struct staged_case *test)
{
    struct model_fixture *f = fixture_create(test->config, false);
    struct model_options options = fixture_options(f, 2);
    struct model *model = NULL;
    struct place place = { .f = f, .apart = malloc(fixture_bytes(f)) };
    float *want = malloc(fixture_bytes(f));
    char name[96];
    snprintf(name, sizeof name, "%s, %s", kernels->kernel_set, test->name);
    /* tokens beyond the leaf, for the others */
    fixture_leaf(f, test->samples + 1, test->seq_len, false);
    f->leaf.samples = test->samples;
    options.samples = test->room;
    tap_ok(place.apart != NULL && want != NULL &&
               model_create(&f->config, f->params, kernels, &options, &model) ==
                   ERR_OK &&
               run_apart(f, model, want) && run_in_place(&place, model) &&
               memcmp(f->gradient, want, fixture_bytes(f)) == 0,
           "%s: in place as from gradients of their own", name);
    tap_ok(place.asked[0] == test->asks[0] && place.asked[1] == test->asks[1],
           "%s: and asks for the right blocks", name);
    if (test->seq_len < 10)
        tap_ok(after_failures(&place, model, want),
               "%s: leaves that fail leave nothing behind", name);
    model_destroy(model);
    free(place.apart);
    free(want);
    fixture_destroy(f);
}

int main(void)
{
    const struct kernels *const *tables = kernels_all();
    for (int k = 0; tables[k] != NULL; k++)
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
            if (tables[k]->adds_once)
                check_case(tables[k], &cases[i]);
    return tap_done();
}
