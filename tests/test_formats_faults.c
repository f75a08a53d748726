/* Models read and written in every format while memory or files fail. */
#include "tests/faults.h"
#include "tests/tokenizer_fixture.h"
#include "tests/weights_fixture.h"

/* A run with one checkpoint of a small model. */
static void make_run(const char *run, const char *preset, const char *tokenizer)
{
    static const struct replica_options zero1 = { .strategy = REPLICA_ZERO1,
                                                  .slots = 1,
                                                  .leaves = 1 };
    struct model_config config;
    struct comm *comm = NULL;
    fixture_need(weights_fixture_config(preset, &config));
    config.d_model = 32;
    config.n_heads = config.n_kv_heads = 2;
    config.ffn_width = 64;
    config.n_layers = 1;
    fixture_need(model_config_check(&config));
    fixture_need(comm_create("self", NULL, NULL, 60.0, &comm));
    fixture_need(
        weights_fixture_save(comm, &config, &zero1, tokenizer, run, 3));
    comm_destroy(comm);
}

/* A path that cannot be looked at holds no model. */
#define NONE (1u << ERR_USAGE)
static const struct faults_row rows[] = {
    { .line = "hf export --out work/hf llama", .also = NONE },
    { .line = "hf export --out work/hf --max-shard-size 16KiB --dtype bf16 "
              "llama",
      .also = NONE },
    { .line = "hf export --out work/hf --verify mpt", .also = NONE },
    { .line = "hf export --out work/m.gguf --format gguf llama", .also = NONE },
    { .line = "hf export --out work/m.gguf --format gguf --dtype q8_0 llama",
      .also = NONE },
    { .line = "hf import --out work/run hf", .varies = true, .also = NONE },
    { .line = "hf import --out work/run shards", .varies = true, .also = NONE },
    { .line = "hf import --out work/run --verify m.gguf",
      .varies = true,
      .also = NONE },
    { .line = "hf verify llama hf", .also = NONE },
    { .line = "hf verify hf m.gguf", .also = NONE },
};

int main(int argc, char **argv)
{
    char *json = NULL;
    size_t bytes = 0;
    faults_begin();
    fixture_tokenizer("t.json",
                      &(struct fixture_file){ .pretokenizer = LLAMA3 });
    fixture_need(fsio_read_file("t.json", 1 << 20, &json, &bytes));
    make_run("llama", "llama-tiny", json);
    make_run("mpt", "mpt-tiny", json);
    free(json);
    faults_need("hf export --out hf llama");
    faults_need("hf export --out shards --max-shard-size 16KiB llama");
    faults_need("hf export --out m.gguf --format gguf llama");
    faults_sweep(rows, sizeof rows / sizeof *rows, argc, argv);
    return faults_done();
}
