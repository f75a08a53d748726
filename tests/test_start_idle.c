/* Combinations of settings, one of which needs another: each is refused, told
 * to change nothing, or works; none is taken without a word. */

#include "tests/idle_fixture.h"
#include "tests/tap.h"
#include "tests/run_settings.h"

#define EPOCH 1000 /* samples */

/* What is told or refused has to name this; NULL: it works. '~' is a blank in a
 * value. */
static const struct {
    const char *overrides, *refused, *told;
} rows[] = {
    /* evaluation, tasks, samples */
    { "eval.interval=1ba", NULL, "eval.interval" },
    { "eval.interval=1ba data.eval=/tmp/e", NULL, NULL },
    { "eval.interval=1dur", NULL, NULL },
    { "eval.samples=5", "data.eval", NULL },
    { "eval.samples=5 data.eval=/tmp/e", NULL, NULL },
    { "eval.tasks_interval=1ba", NULL, "eval.tasks_interval" },
    { "eval.tasks_limit=5", NULL, "eval.tasks_limit" },
    { "eval.tasks_batch=2", NULL, "eval.tasks_batch" },
    { "eval.tasks_data=/tmp/t", NULL, "eval.tasks_data" },
    { "eval.tasks_data=/tmp/t eval.tasks=language_modeling:t.jsonl:0", NULL,
      "eval.gauntlet is empty" },
    { "eval.tasks_data=/tmp/t eval.gauntlet=g.conf", NULL, NULL },
    { "eval.tasks_limit=5 eval.tasks=language_modeling:t.jsonl:0", NULL, NULL },
    { "eval.tasks_interval=1ba eval.gauntlet=g.conf", NULL, NULL },
    { "generate.interval=1ba", NULL, "generate.interval" },
    { "generate.max_tokens=5", NULL, "generate.max_tokens" },
    { "generate.temperature=1", NULL, "generate.temperature" },
    { "generate.temperature=1 generate.prompts=p.txt", NULL, NULL },
    { "generate.interval=1ba generate.prompts=p.txt", NULL, NULL },
    /* hooks and trackers */
    { "hooks.interval=1ba", NULL, "hooks.interval" },
    { "hooks.interval=1ba hooks.on_fit_end=true", NULL, "hooks.interval" },
    { "hooks.interval=1ba hooks.on_batch_end=true", NULL, NULL },
    { "hooks.timeout_s=3", NULL, "there is no hook" },
    { "hooks.timeout_s=3 hooks.on_eval_end=true", NULL, NULL },
    { "tracking.experiment=e", NULL, "tracking.mlflow is empty" },
    { "tracking.mlflow_register=m", NULL, "tracking.mlflow is empty" },
    { "tracking.experiment=e tracking.tensorboard=true", NULL,
      "tracking.experiment" },
    { "tracking.experiment=e tracking.mlflow=/tmp/m", NULL, NULL },
    { "tracking.run_name=n", NULL, "tracking.run_name" },
    { "tracking.run_name=n tracking.prometheus=/tmp/n.prom", NULL, NULL },
    { "tracking.run_name=n tracking.mlflow=/tmp/m", NULL, NULL },
    { "tracking.queue=9", NULL, "there is no tracker" },
    { "tracking.finish_s=1", NULL, "tracking.finish_s" },
    { "tracking.queue=9 tracking.tensorboard=true", NULL, NULL },
    /* checkpoints */
    { "checkpoint.redundancy=xor", "checkpoint.local_dir", NULL },
    { "checkpoint.redundancy_group=4", "checkpoint.local_dir", NULL },
    { "checkpoint.redundancy=xor checkpoint.redundancy_group=4",
      "checkpoint.local_dir", NULL },
    { "checkpoint.redundancy=partner", NULL, NULL },
    { "checkpoint.local_dir=/tmp/l", "checkpoint.local_interval", NULL },
    { "checkpoint.local_interval=5ba", "checkpoint.local_dir", NULL },
    { "checkpoint.keep_state=true", "checkpoint.local_dir", NULL },
    { "checkpoint.keep_state=true checkpoint.local_dir=/tmp/l "
      "checkpoint.local_interval=5ba",
      "leave out checkpoint.local_interval", NULL },
    { "checkpoint.keep_state=true checkpoint.local_dir=/tmp/l", NULL, NULL },
    { "checkpoint.local_dir=/tmp/l checkpoint.local_interval=5ba "
      "checkpoint.redundancy_group=4",
      NULL, "checkpoint.redundancy_group" },
    { "checkpoint.local_dir=/tmp/l checkpoint.local_interval=5ba "
      "checkpoint.redundancy=xor checkpoint.redundancy_group=4",
      NULL, NULL },
    { "checkpoint.keep=0 checkpoint.keep_every=5", NULL,
      "checkpoint.keep_every" },
    { "checkpoint.keep=1 checkpoint.keep_every=5", NULL, NULL },
    { "checkpoint.keep_best=true", NULL, "data.eval is empty" },
    { "checkpoint.keep_best=true data.eval=/tmp/e checkpoint.keep=0 "
      "eval.interval=1ba checkpoint.interval=1ba",
      NULL, "keep = 0 keeps all" },
    { "checkpoint.keep_best=true data.eval=/tmp/e eval.interval=1ba "
      "checkpoint.interval=2ba",
      NULL, NULL },
    { "checkpoint.keep_best=true data.eval=/tmp/e eval.interval=5ba "
      "checkpoint.interval=auto",
      NULL, "meet at none before the last" },
    { "checkpoint.load_ignore=x", "checkpoint.load_ignore", NULL },
    { "checkpoint.load_weights_only=true", "checkpoint.load_weights_only",
      NULL },
    { "model.weights_ignore=x", "model.weights_ignore", NULL },
    { "checkpoint.load=/tmp/c model.weights=/tmp/w model.preset=mpt-tiny",
      "both", NULL },
    /* data */
    { "data.change=continue", NULL, "the run begins here" },
    { "parallel.allow_arithmetic_change=true", NULL, "the run begins here" },
    { "data.shuffle_seed=3", "data.shuffle_seed", NULL },
    { "data.shuffle_block=3", "data.shuffle_block", NULL },
    { "data.shuffle_block=3 data.order=py1s", "data.shuffle_block", NULL },
    { "data.shuffle_block=3 data.order=py1e", NULL, NULL },
    { "data.canonical_nodes=2", "data.canonical_nodes", NULL },
    { "data.canonical_nodes=2 data.order=py1s", NULL, NULL },
    { "data.sampling=fixed", "data.sampling", NULL },
    { "data.epoch_size=9", "data.epoch_size", NULL },
    { "data.epoch_size=9 data.order=py1e", NULL, NULL },
    { "data.batching=stratified", "data.batching", NULL },
    { "data.batching=stratified data.order=py1e", "data.mixture", NULL },
    { "data.order=py1e data.shuffle_seed=4", NULL, NULL },
    /* what is spread, and hardware */
    { "parallel.prefetch=3 parallel.strategy=ddp", NULL, "parallel.prefetch" },
    { "parallel.prefetch=3 parallel.strategy=zero1", NULL,
      "parallel.prefetch" },
    { "parallel.prefetch=3 parallel.strategy=zero2", NULL,
      "parallel.prefetch" },
    { "parallel.prefetch=3 parallel.strategy=zero3", NULL, NULL },
    { "parallel.prefetch=3 parallel.strategy=auto", NULL, NULL },
    { "parallel.shard_degree=2 parallel.strategy=ddp", "shard_degree", NULL },
    { "parallel.shard_degree=2 parallel.strategy=zero3", NULL, NULL },
    { "parallel.expert_degree=2 parallel.strategy=zero2", "expert_degree",
      NULL },
    { "parallel.expert_degree=2 parallel.strategy=ddp model.preset=moe-tiny",
      "expert_degree", NULL },
    { "parallel.sequence_degree=2", "sequence_degree", NULL },
    { "parallel.sequence_chunks=2 parallel.strategy=ddp", "sequence_chunks",
      NULL },
    { "parallel.sequence_chunks=2 parallel.strategy=zero2", NULL, NULL },
    { "parallel.reduce_precision=bf16", "reduce_precision", NULL },
    { "parallel.reduce_precision=bf16 parallel.strategy=zero2 "
      "parallel.determinism=run",
      NULL, NULL },
    { "parallel.exchange=nccl", "parallel.exchange", NULL },
    { "hardware.graphs=off", NULL, "hardware.graphs" },
    { "hardware.fallback=warn", NULL, "hardware.fallback" },
    { "hardware.graphs=off hardware.backend=cuda", NULL, NULL },
    { "hardware.fallback=refuse hardware.backend=cuda", NULL, NULL },
    { "train.precision=bf16", "needs a GPU", NULL },
    /* spikes */
    { "train.spike_budget=1", NULL, "train.spike_budget" },
    { "train.spike_window=5ba", NULL, "train.spike_window" },
    { "train.spike_budget=1 train.on_spike=warn", NULL, "train.spike_budget" },
    { "train.spike_budget=1 train.on_spike=stop", NULL, "train.spike_budget" },
    { "train.spike_budget=1 train.on_spike=skip", NULL, NULL },
    { "train.spike_window=5ba train.on_spike=rollback", NULL, NULL },
    { "train.spike_budget=1 train.on_nan=skip", NULL, NULL },
    { "train.spike_loss=0 train.spike_norm=0 train.on_spike=skip", NULL,
      "nothing is a spike" },
    { "train.spike_loss=0 train.on_spike=skip", NULL, NULL },
    /* the model */
    { "model.rope_theta=5e5", NULL, "model.rope_theta" },
    { "model.rope_theta=5e5 model.positions=alibi", NULL, "model.rope_theta" },
    { "model.rope_theta=5e5 model.positions=rope", NULL, NULL },
    { "model.preset=llama3-8b model.positions=learned", NULL, NULL },
    { "model.preset=llama3-8b model.rope_theta=5e5", NULL, NULL },
    { "model.alibi_bias_max=4", NULL, "model.alibi_bias_max" },
    { "model.alibi_bias_max=4 model.positions=rope", NULL,
      "model.alibi_bias_max" },
    { "model.alibi_bias_max=4 model.positions=alibi", NULL, NULL },
    { "model.rope_factor=2", "rope_factor", NULL },
    { "model.rope_scaling=linear model.rope_factor=2", "rope_scaling", NULL },
    { "model.rope_scaling=linear model.rope_factor=2 model.positions=rope",
      NULL, NULL },
    { "model.rope_original_len=64 model.rope_scaling=linear "
      "model.rope_factor=2 model.positions=rope",
      "rope_original_len", NULL },
    { "model.init_std=0.02", NULL, "model.init_std" },
    { "model.init_std=0.02 model.init=neox", NULL, "model.init_std" },
    { "model.init_std=0.02 model.init=baseline", NULL, NULL },
    { "model.init=baseline", "model.init_std", NULL },
    { "model.init=neox model.weights=/tmp/w model.preset=mpt-tiny", NULL,
      "model.init " },
    { "model.init=neox model.weights=/tmp/w model.weights_ignore=* "
      "model.preset=mpt-tiny",
      NULL, NULL },
    { "model.expansion_ratio=2 model.ffn_width=512", NULL,
      "model.expansion_ratio" },
    { "model.expansion_ratio=2 model.d_model=128 model.ffn_width=256", NULL,
      NULL },
    { "model.expansion_ratio=2", NULL, NULL },
    { "model.router_jitter=0.1", NULL, "model.router_jitter" },
    { "model.balance_weight=0.1", NULL, "model.balance_weight" },
    { "model.experts_top_k=2", NULL, "model.experts_top_k" },
    { "model.router_normalize=1", NULL, "model.router_normalize" },
    { "model.router_jitter=0.1 model.preset=moe-tiny", NULL, NULL },
    { "model.experts_top_k=3 model.preset=moe-tiny", NULL, NULL },
    { "monitor.experts=5ba", NULL, "monitor.experts" },
    { "monitor.experts=5ba model.preset=moe-tiny", NULL, NULL },
    { "model.qkv_bias=true", "model.qkv_bias", NULL },
    { "model.qkv_bias=true model.bias=false", NULL, NULL },
    { "model.mlp_bias=true model.preset=moe-tiny", "model.mlp_bias", NULL },
    /* adapters */
    { "lora.alpha=3", "lora.rank", NULL },
    { "lora.dropout=0.1", "lora.rank", NULL },
    { "lora.targets=q_proj", "lora.rank", NULL },
    { "lora.alpha=3 lora.rank=4 model.preset=mpt-tiny", NULL, NULL },
    { "model.freeze=*", "nothing is left", NULL },
    { "model.freeze=*nope*", "nope", NULL },
    /* optimizers and schedules */
    { "optimizer.momentum=0.9", NULL, "adamw does not use it" },
    { "optimizer.momentum=0.9 optimizer.name=muon", NULL, NULL },
    { "optimizer.eps=1e-6 optimizer.name=lion", NULL, "optimizer.eps" },
    { "optimizer.nesterov=true optimizer.name=sgd", NULL, NULL },
    { "optimizer.groups=({match=\"*\";optimizer=\"lion\";eps=1e-6;})", NULL,
      "item 1: eps" },
    { "optimizer.groups=({match=\"*wte*\";eps=1e-6;})", NULL, NULL },
    { "optimizer.groups=({match=\"*nope*\";})", "nope", NULL },
    { "optimizer.groups=({match=\"*wte*~*nope*\";lr=1e-4;})", NULL, "*nope*" },
    { "model.freeze=*wte*~*wpe*~*nope*", "nope", NULL },
    { "lora.rank=4 model.preset=mpt-tiny lora.targets=q_proj~nope", "nope",
      NULL },
    { "model.weights_tokenizer=any", NULL, "model.weights_tokenizer" },
    { "model.weights_tokenizer=any model.weights=/tmp/w model.preset=mpt-tiny",
      NULL, NULL },
    { "scheduler.period=5ba", NULL, "cosine does not use it" },
    { "scheduler.scale_warmup=true", NULL, "scheduler.scale_warmup" },
    { "scheduler.warmup=60ba", NULL, "never reaches" },
    { "scheduler.warmup=59ba", NULL, NULL },
    { "scheduler.name=multistep scheduler.milestones=20ba~10ba", NULL,
      "not behind the one before" },
    { "scheduler.name=multistep scheduler.milestones=10ba~80ba", NULL,
      "not before the run's end" },
    { "scheduler.name=multistep scheduler.milestones=10ba~20ba", NULL, NULL },
    { "scheduler.name=multistep", "milestones", NULL },
    /* algorithms and rules */
    { "algorithms=({name=\"swa\";start=\"90ba\";end=\"95ba\";})", NULL,
      "swa is given" },
    { "algorithms=({name=\"swa\";start=\"0.8dur\";end=\"0.5dur\";})", NULL,
      "ends before it starts" },
    { "algorithms=({name=\"swa\";})", NULL, NULL },
    { "algorithms=({name=\"ema\";start=\"1dur\";})", NULL, "ema is given" },
    { "algorithms=({name=\"ema\";start=\"30ba\";})", NULL, NULL },
    { "algorithms=({name=\"sam\";interval=90;})", NULL, "sam is given" },
    { "algorithms=({name=\"sam\";rho=0.0;})", NULL, "rho is 0" },
    { "algorithms=({name=\"sam\";interval=5;})", NULL, NULL },
    { "algorithms=({name=\"selective_backprop\";start=\"40ba\";"
      "end=\"20ba\";})",
      NULL, "ends before it starts" },
    { "algorithms=({name=\"selective_backprop\";keep=1.0;})", NULL,
      "keep is 1" },
    { "algorithms=({name=\"selective_backprop\";})", NULL, NULL },
    { "algorithms=({name=\"layer_freezing\";match=\"*\";start=\"0ba\";})",
      "nothing would train", NULL },
    { "algorithms=({name=\"layer_freezing\";match=\"*\";start=\"99ba\";})",
      NULL, "layer_freezing is given" },
    { "algorithms=({name=\"layer_freezing\";match=\"*nope*\";})", "nope",
      NULL },
    { "algorithms=({name=\"layer_freezing\";match=\"*wte*\";})", NULL, NULL },
    { "algorithms=({name=\"gradient_clipping\";eps=1e-2;})", "adaptive", NULL },
    { "train.clip_norm=2 algorithms=({name=\"gradient_clipping\";})",
      "both clip", NULL },
    { "algorithms=({name=\"gradient_noise\";eta=0.0;})", NULL, "eta is 0" },
    { "algorithms=({name=\"label_smoothing\";smoothing=0.0;})", NULL,
      "smoothing is 0" },
    { "algorithms=({name=\"z_loss\";weight=0.0;})", NULL, "weight is 0" },
    { "algorithms=({name=\"stochastic_depth\";drop_rate=0.0;})", NULL,
      "drop_rate is 0" },
    { "algorithms=({name=\"embedding_scaling\";gradient=1.0;})", NULL,
      "gradient is 1" },
    { "algorithms=({name=\"seq_length_warmup\";min_seq_len=128;})", NULL,
      "all of max_seq_len" },
    { "finish=({name=\"early_stop\";patience=\"90ba\";}) data.eval=/tmp/e",
      NULL, "early_stop is given" },
    { "finish=({name=\"early_stop\";patience=\"10ba\";}) data.eval=/tmp/e",
      NULL, NULL },
    { "finish=({name=\"early_stop\";patience=\"10ba\";})", "data.eval is empty",
      NULL },
    { "finish=({name=\"threshold\";metric=\"eval_loss\";value=1.0;})",
      "no run has a figure", NULL },
    { "finish=({name=\"threshold\";metric=\"train/los\";value=1.0;})",
      "no run has a figure", NULL },
    { "finish=({name=\"threshold\";metric=\"train/grad_norm\";value=1.0;})",
      NULL, NULL },
    { "finish=({name=\"threshold\";metric=\"norm/weight/global\";value=1.0;})",
      "monitor.norms", NULL },
    { "finish=({name=\"threshold\";metric=\"norm/weight/global\";value=1.0;}) "
      "monitor.norms=1ba",
      NULL, NULL },
    { "finish=({name=\"threshold\";metric=\"eval/arc/0-shot\";value=1.0;})",
      "eval.tasks", NULL },
    { "finish=({name=\"threshold\";metric=\"eval/arc/0-shot\";value=1.0;}) "
      "eval.tasks=multiple_choice:arc.jsonl:0",
      NULL, NULL },
    { "finish=({name=\"threshold\";metric=\"mine\";value=1.0;}) "
      "plugins=[\"a.so\"]",
      NULL, NULL },
};

static enum err load(const char *more, struct train_settings *out)
{
    return run_settings(out,
                        "run.dir=/tmp/x data.train=/tmp/y "
                        "train.max_duration=60ba train.global_batch=32 "
                        "hardware.backend=cpu %s",
                        more);
}

static void test_row(size_t i, struct train_settings *s)
{
    struct trainer_schedule plan;
    struct idle_lines lines = { .count = 0 };
    enum err rc = load(rows[i].overrides, s);
    if (rc == ERR_OK)
        rc = trainer_schedule(s, EPOCH, &plan);
    if (rc == ERR_OK)
        rc = trainer_schedule_check(s, &plan);
    if (rc == ERR_OK)
        lines = idle_of(s, NULL, &plan);
    bool right =
        rows[i].refused != NULL
            ? rc == ERR_USAGE && strstr(err_text(), rows[i].refused) != NULL
        : rows[i].told != NULL ? rc == ERR_OK && lines.count == 1 &&
                                     strstr(lines.text, rows[i].told) != NULL
                               : rc == ERR_OK && lines.count == 0;
    tap_ok(right, "%s: %s", rows[i].overrides,
           rows[i].refused != NULL ? "refused"
           : rows[i].told != NULL  ? "told"
                                   : "works");
    if (!right)
        tap_note("%s%s", rc == ERR_OK ? "" : err_text(), lines.text);
}

/* Of a resolved configuration, which gives all settings, nothing more is told;
 * nor by the attempts that follow, but for what they change. */
static void test_again(struct train_settings *s)
{
    struct trainer_schedule plan;
    static struct train_settings again, other;
    char *text = NULL, *path[] = { "hooks.interval=3ba" };
    char name[] = "/tmp/test-idle-XXXXXX";
    int fd = mkstemp(name);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (load("model.preset=llama3-8b eval.interval=1ba parallel.prefetch=3 "
             "parallel.strategy=ddp",
             s) != ERR_OK ||
        file == NULL || trainer_schedule(s, EPOCH, &plan) != ERR_OK ||
        settings_format(train_settings_schema, train_settings_count, s,
                        &text) != ERR_OK ||
        fputs(text, file) == EOF || fclose(file) != 0)
        tap_note("%s", err_text());
    tap_ok(start_settings_load(name, NULL, 0, &again) == ERR_OK &&
               idle_are(&again, "eval.interval parallel.prefetch"),
           "a resolved configuration tells what the given one does");
    tap_is_int(idle_of(&again, s, &plan).count, 0, "and nothing twice");
    struct idle_lines lines = { .count = 0 };
    if (start_settings_load(name, path, 1, &other) == ERR_OK)
        lines = idle_of(&other, s, &plan);
    tap_ok(lines.count == 1 && strstr(lines.text, "hooks.interval") != NULL,
           "but what another attempt gives");
    free(text);
    remove(name);
}

int main(void)
{
    static struct train_settings s;
    int64_t refused = 0, told = 0;
    size_t count = sizeof rows / sizeof rows[0];
    for (size_t i = 0; i < count; i++) {
        test_row(i, &s);
        refused += rows[i].refused != NULL;
        told += rows[i].told != NULL;
    }
    tap_note("%zu combinations: %lld refused, %lld told, %lld work", count,
             (long long)refused, (long long)told,
             (long long)((int64_t)count - refused - told));
    test_again(&s);
    return tap_done();
}
