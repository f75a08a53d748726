/* The shape of a model in the keys of a GGUF file: what is written is read
 * again, and whatever else a file says of the model is refused by name. */
#include "src/formats/gguf/gguf_config.h"

#include "src/base/fsio.h"
#include "src/formats/hf/hf_config.h"
#include "tests/data_fixture.h"

#define WIDTH 128 /* llama-tiny's */

/* One more key in a file of a Llama: a text, a count, or a real number. */
static const struct more {
    const char *key, *text;
    enum gguf_kind kind;
    float real;
    uint32_t count;
    const char *wants; /* in the refusal; NULL: it is accepted */
    bool linear;       /* angles are divided by `real` */
} rows[] = {
    { "llama.rope.scaling.type", .text = "dynamic", .wants = "is \"dynamic\"" },
    { "llama.rope.scaling.type", .text = "yarn",
      .wants = "model.rope_factor is 0" },
    { "llama.rope.scaling.yarn_beta_fast", .kind = GGUF_F32, .real = 8,
      .wants = "yarn_beta_fast is 8" },
    { "llama.rope.scaling.original_context_length", .kind = GGUF_U32,
      .count = 8 },
    { "llama.attention.causal", .kind = GGUF_BOOL, .wants = "is false" },
    { "llama.attention.sliding_window", .kind = GGUF_U32, .count = 9,
      .wants = "attention.sliding_window is 9" },
    { "llama.rope.scaling.factor", .kind = GGUF_F32, .real = 0.5f,
      .wants = "rope.scaling.factor is 0.5" },
    { "llama.rope.scaling.factor", .text = "2", .wants = "is \"2\"" },
    { "llama.rope.scaling.factor", .kind = GGUF_F32, .real = 2,
      .linear = true },
    { "llama.attn_logit_softcapping", .kind = GGUF_F32, .real = 30,
      .wants = "attn_logit_softcapping is not known" },
    { "split.count", .kind = GGUF_U32, .count = 2, .wants = "--merge" },
    { "llama.expert_count", .kind = GGUF_U32 },
    { "llama.tensor_data_layout", .text = "reference" },
    { "general.name", .text = "\xff" },
};

static enum err read_again(const char *path, const struct model_config *model,
                           const struct more *more, struct model_config *read)
{
    static const float zeros[WIDTH];
    const uint64_t dim[2] = { WIDTH, 1 };
    enum arch arch = ARCHS;
    struct gguf_writer *w = NULL;
    struct gguf *gguf = NULL;
    fixture_need(fsio_remove_tree(path));
    fixture_need(gguf_writer_create(path, &w));
    /* read as Llama's, whose name Mistral's files have */
    fixture_need(gguf_config_write(w, ARCH_MISTRAL, model));
    const void *number = more->kind == GGUF_F32 ? (const void *)&more->real
                                                : (const void *)&more->count;
    fixture_need(more->text != NULL
                     ? gguf_writer_text(w, more->key, more->text)
                     : gguf_writer_number(w, more->key, more->kind, number));
    fixture_need(
        gguf_writer_tensor(w, GGUF_CONFIG_EMBEDDING, GGUF_BLOCKS_F32, dim, 2));
    fixture_need(gguf_writer_data(w, zeros, sizeof zeros));
    fixture_need(gguf_writer_finish(w));
    gguf_writer_destroy(w);
    fixture_need(gguf_open(path, &gguf));
    enum err rc = gguf_config_read(gguf, &arch, read);
    gguf_close(gguf);
    tap_ok(rc != ERR_OK || arch == ARCH_LLAMA, "%s: a Llama", more->key);
    return rc;
}

int main(void)
{
    const char *folder = tap_folder();
    const char *path = strdup(fixture_path(folder, "m.gguf"));
    struct model_config model, read;
    fixture_need(model_config_preset("llama-tiny", &model));
    model.vocab_size = 1;
    model.tied = true;
    model.rope_theta = 123456.7; /* files have floats */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        enum err rc = read_again(path, &model, &rows[i], &read);
        struct model_config want = model;
        want.rope_scaling =
            rows[i].linear ? ROPE_SCALING_LINEAR : ROPE_SCALING_NONE;
        want.rope_factor = rows[i].linear ? rows[i].real : 0;
        bool good = rows[i].wants == NULL
                        ? rc == ERR_OK && read.rope_theta == 123456.7 &&
                              hf_config_difference(&want, &read) == NULL
                        : rc != ERR_OK && strstr(err_text(), path) != NULL &&
                              strstr(err_text(), rows[i].wants) != NULL;
        tap_ok(good, "%s: %s", rows[i].key, rc == ERR_OK ? "" : err_text());
    }
    free((char *)path);
    return tap_done();
}
