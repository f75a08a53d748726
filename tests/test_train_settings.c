/* The run's settings: completion, cross-checks, the hash, and what stays. */
#include "src/train/settings/train_settings.h"

#include "src/data/set/dataset.h"
#include "src/train/plan/trainer_backend.h"
#include "src/train/start/start.h"
#include "tests/data_fixture.h"
#include "tests/idle_fixture.h"
#include "tests/run_settings.h"

static enum err load(const char *more, struct train_settings *out)
{
    return run_settings(out,
                        "run.dir=/tmp/x data.train=/tmp/y "
                        "train.max_duration=60ba train.global_batch=32 %s",
                        more);
}

static const struct {
    const char *overrides;
    const char *text; /* part of the error */
} refused[] = {
    { "train.global_batch=0", "train.global_batch" },
    { "train.global_batch=-8", "train.global_batch" },
    { "train.global_batch=1.5", "train.global_batch" },
    { "train.global_batch=33 parallel.slots=8", "not divisible" },
    { "train.global_batch=2000000000", "train.global_batch" },
    { "train.microbatch=3", "train.microbatch" },
    { "train.microbatch=some", "train.microbatch" },
    { "train.seed=auto", "train.seed" },
    { "memory.limit=8GB", "memory.limit" },
    { "memory.limit=-1GiB", "memory.limit" },
    { "run.dir=", "run.dir is empty" },
    { "run.mode=rwx", "run.mode" },
    { "run.mode=1750", "run.mode" },
    { "run.mode=0650", "7 for the owner" },
    { "data.seq_len=129", "data.seq_len" },
    { "model.n_heads=5", "model.n_heads" },
    { "model.preset=mpt-1t", "model.preset" },
    { "train.max_duration=0.5dur", "fraction of itself" },
    { "train.max_duration=0ba", "train.max_duration is 0" },
    { "train.max_duration=0.0ep", "train.max_duration is 0" },
    { "train.max_duration=10sec", "scheduler.t_max" },
    { "train.max_duration=10sec scheduler.t_max=10sec", "scheduler.t_max" },
    { "scheduler.warmup=10", "scheduler.warmup" },
    { "eval.samples=5", "data.eval" },
    { "optimizer.lrr=1", "optimizer.lr" },
    { "model.freeze=nope", "nope" },
    { "model.freeze=*", "nothing is left" },
    { "lora.alpha=4", "lora.rank" },
    { "lora.targets=q_proj", "lora.rank" },
    { "lora.dropout=0.1", "lora.rank" },
    { "lora.rank=4 model.preset=mpt-tiny lora.targets=gate_proj", "gate_proj" },
    { "lora.rank=4 lora.dropout=1", "lora.dropout" },
    { "lora.rank=4 train.precision=fp8", "lora.rank" },
    { "model.freeze=*wte* train.precision=fp8", "model.freeze" },
    { "model.freeze=*wte* model.preset=mpt-tiny model.weights=/tmp/x#ema",
      "export it" },
    { "lora.rank=4 model.preset=moe-tiny lora.targets=up_proj", "experts" },
    { "lora.rank=4 model.preset=moe-tiny parallel.strategy=zero2 "
      "parallel.expert_degree=2",
      "expert_degree" },
    { "optimizer.beta1=1.5", "optimizer.beta1" },
    { "optimizer.name=adagrad", "adamw|lion" },
    { "train.precision=fp16", "auto|fp32|bf16|fp8" },
    { "hardware.backend=rocm", "auto|cpu|cuda" },
    { "train.precision=bf16 hardware.backend=cpu",
      "needs a GPU and hardware.backend is cpu" },
    { "train.precision=fp8 hardware.backend=cpu",
      "fp8 needs a GPU and hardware.backend is cpu" },
    { "train.precision=fp8 model.d_model=96 model.n_heads=24 "
      "model.n_kv_heads=1",
      "model.d_model / model.n_heads is 8: change it, or use bf16" },
    { "train.precision=fp8 data.seq_len=120",
      "data.seq_len / parallel.sequence_chunks is 120" },
    { "train.precision=fp8 parallel.strategy=zero2 parallel.sequence_chunks=16",
      "data.seq_len / parallel.sequence_chunks is 8" },
    { "checkpoint.interval=3auto", "'3auto' is not a duration" },
    { "checkpoint.local_interval=auto", "'auto' is not a duration" },
    { "eval.interval=auto", "'auto' is not a duration" },
    { "parallel.determinism=maybe", "parallel.determinism" },
    { "parallel.sequence_chunks=0", "parallel.sequence_chunks" },
    { "parallel.strategy=zero1 parallel.sequence_chunks=2", "zero2 or zero3" },
    { "parallel.sequence_chunks=3 parallel.strategy=zero2", "data.seq_len" },
    { "parallel.sequence_degree=2 parallel.strategy=zero3",
      "does not divide parallel.sequence_chunks (1)" },
    { "parallel.expert_degree=2 parallel.strategy=zero2", "dense model" },
    { "parallel.expert_degree=2 parallel.strategy=zero1 "
      "model.preset=moe-tiny",
      "zero2 or zero3" },
    { "parallel.expert_degree=3 parallel.strategy=zero2 model.preset=moe-tiny",
      "8 experts" },
    { "parallel.expert_degree=8 parallel.strategy=zero2 model.preset=moe-tiny "
      "parallel.slots=4",
      "most ranks" },
    { "parallel.expert_degree=2 parallel.strategy=zero2 model.preset=moe-tiny "
      "parallel.sequence_chunks=2",
      "not combined" },
    { "parallel.expert_degree=8 parallel.strategy=zero3 model.preset=moe-tiny "
      "model.ffn_width=96",
      "no multiple of 16384" },
};

static void test_completion(struct train_settings *s)
{
    tap_ok(load("", s) == ERR_OK, "the smallest configuration: %s", err_text());
    tap_is_int(s->model.d_model, 128, "the preset fills the shape");
    tap_is_int(s->data.seq_len, 128, "seq_len is the model's");
    tap_is_int(s->parallel.slots, 8, "32 samples: 8 slots");
    tap_is_int(s->train.microbatch, 4, "a leaf is a slot");
    tap_ok(load("train.global_batch=12", s) == ERR_OK &&
               s->parallel.slots == 4 && s->train.microbatch == 3,
           "12 samples: 4 slots of 3");
    tap_ok(load("train.global_batch=7", s) == ERR_OK && s->parallel.slots == 1,
           "7 samples: 1 slot");
    tap_ok(load("train.global_batch=7 parallel.slots=7", s) == ERR_OK &&
               s->train.microbatch == 1,
           "7 slots when asked for");
    tap_ok(load("model.n_layers=5 model.vocab_size=1000", s) == ERR_OK &&
               s->model.n_layers == 5 && s->model.d_model == 128,
           "a preset can be changed in part");
    tap_ok(load("parallel.strategy=zero3 parallel.sequence_chunks=4 "
                "parallel.sequence_degree=2",
                s) == ERR_OK &&
               s->parallel.sequence_chunks == 4,
           "4 chunks on 2 ranks: %s", err_text());
    tap_ok(load("parallel.strategy=zero3 parallel.shard_degree=2 "
                "model.preset=moe-tiny parallel.expert_degree=4",
                s) == ERR_OK,
           "experts on 4 ranks: %s", err_text());
}

static void test_hash(struct train_settings *s)
{
    static const struct {
        const char *overrides;
        bool same;
    } cases[] = {
        { "run.dir=/tmp/other", true },
        { "run.mode=0750", true },
        { "hardware.threads=3 log.interval=7", true },
        { "checkpoint.interval=7ba", true },
        { "checkpoint.interval=auto", true },
        { "hardware.backend=cuda", true },
        { "optimizer.lr=1e-3", false },
        { "optimizer.name=lion", false },
        { "train.precision=fp32", false },
        { "train.precision=fp8", false },
        { "train.seed=18", false },
        { "parallel.slots=4", false },
        { "scheduler.warmup=7ba", false },
        { "parallel.strategy=zero2", true },
        { "model.bias=true", true },
        { "model.bias=false model.qkv_bias=true", false },
        { "model.activation=gelu_tanh", false },
        { "parallel.strategy=zero2 parallel.sequence_chunks=2", false },
    };
    char base[65], other[65];
    tap_ok(load("", s) == ERR_OK && train_settings_hash(s, base) == ERR_OK,
           "hash");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        tap_ok(load(cases[i].overrides, s) == ERR_OK &&
                   train_settings_hash(s, other) == ERR_OK &&
                   (strcmp(base, other) == 0) == cases[i].same,
               "%s %s the hash", cases[i].overrides,
               cases[i].same ? "keeps" : "changes");
}

/* What checkpoints of earlier versions have in their state: the hash as
 * "config_sha256", what stays as "fixed". */
static const struct {
    const char *overrides;
    const char *hash;
    const char *fixed; /* without the data set's, " written as ' */
} stored[] = {
    { "", "5a74b5261ec8f253b258c3473079662c41a26066c2e9f36e35a9bae5bc9ac38d",
      "{'model.d_model':128,'model.n_heads':4,'model.n_kv_heads':4,"
      "'model.n_layers':4,'model.vocab_size':320,'model.max_seq_len':128,"
      "'model.expansion_ratio':4.0,'model.ffn_width':512,"
      "'model.positions':'learned','model.rope_theta':10000.0,"
      "'model.alibi_bias_max':8.0,'model.norm':'layernorm',"
      "'model.norm_eps':1.0000000000000001e-5,'model.qk_norm':'none',"
      "'model.clip_qkv':0.0,'model.attn_uses_sequence_id':true,"
      "'model.ffn':'mlp','model.activation':'gelu','model.bias':true,"
      "'model.tied':true,'model.logit_scale':1.0,'model.residual_scale':1.0,"
      "'model.dropout_embedding':0.0,'model.dropout_attention':0.0,"
      "'model.dropout_residual':0.0,'model.init':'kaiming_normal',"
      "'model.init_std':0.0,'model.init_embedding_std':0.0,'model.experts':0,"
      "'model.experts_top_k':0,'model.router_jitter':0.0,"
      "'model.router_normalize':0.0,'model.balance_weight':0.0,"
      "'memory.compression':'none','data.seq_len':128,'train.global_batch':32,"
      "'train.microbatch':4,'train.seed':17,'train.precision':'auto',"
      "'optimizer.name':'adamw','parallel.sequence_chunks':1,"
      "'parallel.determinism':'elastic','parallel.slots':8}" },
    { "model.preset=moe-tiny parallel.determinism=run parallel.strategy=zero2 "
      "memory.compression=int8 memory.checkpoint=ffn model.norm_eps=3e-6 "
      "parallel.expert_degree=2 optimizer.name=lion scheduler.name=linear "
      "train.precision=bf16",
      "985b0231dcaf9595a65ec7a192dcdcf315c127e7991316bc44bd1ba8ddec19f5",
      "{'model.d_model':128,'model.n_heads':4,'model.n_kv_heads':2,"
      "'model.n_layers':4,'model.vocab_size':320,'model.max_seq_len':128,"
      "'model.expansion_ratio':1.0,'model.ffn_width':128,"
      "'model.positions':'rope','model.rope_theta':500000.0,"
      "'model.alibi_bias_max':8.0,'model.norm':'layernorm',"
      "'model.norm_eps':3.0000000000000001e-6,'model.qk_norm':'none',"
      "'model.clip_qkv':8.0,'model.attn_uses_sequence_id':true,"
      "'model.ffn':'glu','model.activation':'silu','model.bias':false,"
      "'model.tied':false,'model.logit_scale':1.0,'model.residual_scale':1.0,"
      "'model.dropout_embedding':0.0,'model.dropout_attention':0.0,"
      "'model.dropout_residual':0.0,'model.init':'kaiming_normal',"
      "'model.init_std':0.0,'model.init_embedding_std':0.0,'model.experts':8,"
      "'model.experts_top_k':2,'model.router_jitter':0.01,"
      "'model.router_normalize':1.0,"
      "'model.balance_weight':0.050000000000000003,"
      "'memory.compression':'int8','data.seq_len':128,'train.global_batch':32,"
      "'train.microbatch':4,'train.seed':17,'train.precision':'bf16',"
      "'optimizer.name':'lion','parallel.sequence_chunks':1,"
      "'parallel.determinism':'run','parallel.slots':8,"
      "'memory.checkpoint':'ffn','parallel.expert_degree':2,'ranks':4,"
      "'parallel.strategy':'zero2','parallel.sequence_degree':1,"
      "'parallel.reduce_precision':'fp32'}" },
    { "model.preset=llama-tiny parallel.determinism=fast model.init=small "
      "model.norm=low_precision_rmsnorm model.qk_norm=head train.clip_norm=0.3 "
      "parallel.reduce_precision=bf16 scheduler.warmup=5ba train.seed=99",
      "47ea63e006c1b110f43fb43fcc77059f4ba7928712bfd178bcfcfb933a1beb51",
      "{'model.d_model':128,'model.n_heads':4,'model.n_kv_heads':2,"
      "'model.n_layers':4,'model.vocab_size':320,'model.max_seq_len':128,"
      "'model.expansion_ratio':2.75,'model.ffn_width':352,"
      "'model.positions':'rope','model.rope_theta':500000.0,"
      "'model.alibi_bias_max':8.0,'model.norm':'low_precision_rmsnorm',"
      "'model.norm_eps':1.0000000000000001e-5,'model.qk_norm':'head',"
      "'model.clip_qkv':0.0,'model.attn_uses_sequence_id':true,"
      "'model.ffn':'glu','model.activation':'silu','model.bias':false,"
      "'model.tied':false,'model.logit_scale':1.0,'model.residual_scale':1.0,"
      "'model.dropout_embedding':0.0,'model.dropout_attention':0.0,"
      "'model.dropout_residual':0.0,'model.init':'small','model.init_std':0.0,"
      "'model.init_embedding_std':0.0,'model.experts':0,"
      "'model.experts_top_k':0,'model.router_jitter':0.0,"
      "'model.router_normalize':0.0,'model.balance_weight':0.0,"
      "'memory.compression':'none','data.seq_len':128,'train.global_batch':32,"
      "'train.microbatch':4,'train.seed':99,'train.precision':'auto',"
      "'optimizer.name':'adamw','parallel.sequence_chunks':1,"
      "'parallel.determinism':'fast','parallel.slots':8}" },
};

#define ROPE "model.positions=rope "
#define LINEAR "model.rope_scaling=linear model.rope_factor=2 "

static struct dataset *open_data(void)
{
    struct dataset *data = NULL;
    const int64_t lengths[] = { 8 };
    const char *folder = tap_folder();
    fixture_dataset(folder, "data", lengths, 1, 1 << 20, false);
    fixture_need(dataset_open(fixture_path(folder, "data"), &data));
    return data;
}

static void test_stored(struct train_settings *s)
{
    struct dataset *data = open_data();
    static struct run run = { .ranks = 4 };
    char hash[65] = "";
    run.inputs.train_data = &data;
    for (size_t i = 0; i < sizeof stored / sizeof stored[0]; i++) {
        tap_ok(load(stored[i].overrides, s) == ERR_OK &&
                   train_settings_hash(s, hash) == ERR_OK,
               "stored: %s", stored[i].overrides);
        tap_is_str(hash, stored[i].hash, "the hash is what it was");
        run.settings = *s;
        json_t *fixed = start_fixed_state(&run);
        json_object_del(fixed, "data.train");
        json_object_del(fixed, "tokenizer");
        char *text = json_dumps(fixed, JSON_COMPACT);
        for (char *c = text; *c != '\0'; c++)
            *c = *c == '"' ? '\'' : *c;
        tap_is_str(text, stored[i].fixed, "and so is what stays");
        free(text);
        json_decref(fixed);
    }
    dataset_close(data);
}

/* Of settings that were added later, a run that does not tell them has the
 * default. */
static void test_added(struct train_settings *s)
{
    static const struct {
        const char *then, *now;
        const char *error; /* NULL: none */
    } cases[] = {
        { "", "", NULL },
        { ROPE LINEAR, ROPE LINEAR, NULL },
        { ROPE, ROPE LINEAR, "model.rope_scaling = its default" },
        { ROPE LINEAR, ROPE, "model.rope_scaling = \"linear\", now" },
        { ROPE LINEAR, ROPE LINEAR "model.rope_factor=3",
          "model.rope_factor = 2.0, now it is 3.0" },
        { "", "model.bias=false model.out_bias=true", "model.bias = true" },
    };
    struct dataset *data = open_data();
    static struct run run;
    run.inputs.train_data = &data;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tap_ok(load(cases[i].then, s) == ERR_OK, "then: %s", cases[i].then);
        run.settings = *s;
        json_t *state = json_pack("{s:o}", "fixed", start_fixed_state(&run));
        tap_ok(load(cases[i].now, s) == ERR_OK, "now: %s", cases[i].now);
        run.settings = *s;
        enum err rc = start_fixed_check(&run, state);
        if (cases[i].error == NULL)
            tap_ok(rc == ERR_OK, "goes on: %s", rc == ERR_OK ? "" : err_text());
        else
            tap_ok(rc == ERR_CHECKPOINT &&
                       strstr(err_text(), cases[i].error) != NULL,
                   "refused: %s", rc == ERR_OK ? "no" : err_text());
        json_decref(state);
    }
    dataset_close(data);
}

static void test_local(void)
{
    static const char *const local[] = { "data.train",
                                         "data.eval",
                                         "data.cache",
                                         "data.cache_limit",
                                         "data.remote_deadline",
                                         "data.prefetch",
                                         "hardware.threads",
                                         "hardware.backend",
                                         "hardware.kernel_set",
                                         "hardware.graphs",
                                         "hardware.fallback",
                                         "hardware.peak_flops",
                                         "log.level" };
    const size_t count = sizeof local / sizeof local[0];
    size_t found = 0;
    for (int i = 0; i < train_settings_count; i++)
        if ((train_settings_schema[i].flags & SETTING_LOCAL) != 0) {
            const char *want = found < count ? local[found] : "no other";
            tap_is_str(train_settings_schema[i].key, want,
                       "ranks may differ in it");
            found++;
        }
    tap_is_int((long long)found, (long long)count, "in all of these");
}

static void test_print(struct train_settings *s)
{
    static const char *const cases[][2] = {
        { "train.global_batch", "32" },
        { "run.dir", "/tmp/x" },
        { "train.max_duration", "60ba" },
        { "parallel.allow_arithmetic_change", "false" },
        { "memory.limit", "0B" },
    };
    char *text = NULL;
    (void)load("", s);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tap_ok(train_settings_print(s, cases[i][0], &text) == ERR_OK, "print");
        tap_is_str(text, cases[i][1], "%s", cases[i][0]);
        free(text);
        text = NULL;
    }
    tap_ok(load("checkpoint.interval=auto", s) == ERR_OK &&
               s->checkpoint.interval.unit == UNIT_AUTO &&
               train_settings_print(s, "checkpoint.interval", &text) == ERR_OK,
           "an interval that is chosen");
    tap_is_str(text, "auto", "is printed as it is written");
    free(text);
    tap_ok(load("train.microbatch=auto", s) == ERR_OK &&
               s->train.microbatch == 4,
           "a whole number that is chosen");
    tap_ok(train_settings_print(s, "no.such", &text) == ERR_USAGE,
           "an unknown setting cannot be printed");
}

static void test_optimizer(struct train_settings *s)
{
    tap_ok(load("", s) == ERR_OK && s->optimizer.beta1 == 0.9 &&
               s->optimizer.beta2 == 0.95,
           "AdamW's betas");
    tap_ok(load("optimizer.name=lion", s) == ERR_OK &&
               s->optimizer.beta1 == 0.9 && s->optimizer.beta2 == 0.99,
           "Lion's are others");
    tap_ok(load("optimizer.name=lion optimizer.beta2=0.95", s) == ERR_OK &&
               s->optimizer.beta2 == 0.95,
           "where they are not given");
    tap_ok(load("optimizer.beta2=0.9 optimizer.eps=1e-7", s) == ERR_OK &&
               idle_are(s, ""),
           "AdamW uses them all");
    tap_ok(load("optimizer.name=sgd", s) == ERR_OK && idle_are(s, ""),
           "nothing is unused where it is not given");
    tap_ok(load("optimizer.name=sgd optimizer.beta2=0.9 optimizer.eps=1e-7",
                s) == ERR_OK &&
               idle_are(s, "optimizer.beta2 optimizer.eps"),
           "SGD does without the second moment's");
    tap_ok(load("optimizer.name=lion optimizer.beta2=0.9 optimizer.eps=1e-7",
                s) == ERR_OK &&
               idle_are(s, "optimizer.eps"),
           "Lion without eps");
}

static void test_backend(struct train_settings *s)
{
    const struct kernels *kernels = NULL;
    tap_ok(load("hardware.kernel_set=generic", s) == ERR_OK &&
               trainer_backend_find(s, 1, &kernels) == ERR_OK &&
               strcmp(kernels->kernel_set, "generic") == 0,
           "a kernel set of the processor chooses it");
    tap_is_int(s->hardware.backend, BACKEND_CPU, "as the settings say then");
    tap_is_int(s->train.precision, PRECISION_FP32, "and the precision");
    tap_ok(trainer_backend_dtype(s) == DTYPE_F32, "which has a dtype");
    tap_ok(load("hardware.kernel_set=generic train.precision=bf16", s) ==
                   ERR_OK &&
               trainer_backend_find(s, 1, &kernels) == ERR_UNSUPPORTED &&
               strstr(err_text(), "needs a GPU and there is none") != NULL,
           "bf16 is refused where no GPU is found");
    tap_ok(load("hardware.kernel_set=generic train.precision=fp8", s) ==
                   ERR_OK &&
               trainer_backend_find(s, 1, &kernels) == ERR_UNSUPPORTED &&
               strstr(err_text(), "fp8 needs a GPU and there is none") != NULL,
           "and so is fp8");
    tap_ok(load("train.precision=fp8", s) == ERR_OK && trainer_backend_fp8(s) &&
               trainer_backend_dtype(s) == DTYPE_BF16,
           "which is bf16 but for products");
    tap_ok(load("", s) == ERR_OK &&
               trainer_backend_plan(s, &kernels) == ERR_OK &&
               strcmp(kernels->backend, "cpu") == 0 &&
               trainer_backend_dtype(s) == DTYPE_F32,
           "a plan does not look for one");
    tap_ok(load("hardware.backend=cuda", s) == ERR_OK &&
               trainer_backend_dtype(s) == DTYPE_BF16,
           "with cuda it is bf16");
    enum err rc = trainer_backend_plan(s, &kernels);
    tap_ok(rc == ERR_OK ? kernels->memory->device
                        : rc == ERR_UNSUPPORTED &&
                              strstr(err_text(), "no CUDA kernels") != NULL,
           "planned for without a GPU, if it is in this build");
    tap_ok(load("hardware.backend=cuda train.precision=fp32", s) == ERR_OK &&
               trainer_backend_dtype(s) == DTYPE_F32,
           "if not told otherwise");
    tap_ok(load("hardware.backend=cuda hardware.kernel_set=avx2", s) ==
                   ERR_OK &&
               trainer_backend_find(s, 1, &kernels) == ERR_UNSUPPORTED,
           "it has no kernel set of the processor");
    tap_ok(load("", s) == ERR_OK &&
               trainer_backend_exchange(s) == EXCHANGE_ANY &&
               load("hardware.fallback=refuse", s) == ERR_OK &&
               trainer_backend_exchange(s) == EXCHANGE_AUTO &&
               load("parallel.exchange=staged hardware.fallback=refuse", s) ==
                   ERR_OK &&
               trainer_backend_exchange(s) == EXCHANGE_STAGED,
           "a slower exchange is a fall-back unless it is asked for");
    tap_ok(load("parallel.exchange=nccl hardware.backend=cpu", s) ==
                   ERR_USAGE &&
               load("parallel.exchange=nccl hardware.kernel_set=generic", s) ==
                   ERR_OK &&
               trainer_backend_find(s, 2, &kernels) == ERR_USAGE &&
               strstr(err_text(), "is for GPUs") != NULL,
           "processors have no NCCL: %s", err_text());
    tap_ok(load("hardware.kernel_set=generic", s) == ERR_OK &&
               trainer_backend_find(s, 2, &kernels) == ERR_OK,
           "their ranks have nothing to fall back from");
    tap_is_int(s->hardware.fallback, FALLBACK_WARN, "as the settings say then");
}

int main(void)
{
    struct train_settings *s = calloc(1, sizeof *s);
    test_completion(s);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        enum err rc = load(refused[i].overrides, s);
        if (!tap_ok(rc == ERR_USAGE &&
                        strstr(err_text(), refused[i].text) != NULL,
                    "refused: %s", refused[i].overrides))
            tap_note("%s", rc == ERR_OK ? "accepted" : err_text());
    }
    test_hash(s);
    test_stored(s);
    test_added(s);
    test_local();
    test_print(s);
    test_optimizer(s);
    test_backend(s);
    free(s);
    return tap_done();
}
